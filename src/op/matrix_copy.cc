#include "matrix_copy.h"

#include "../layout/inverse.h"
#include "../layout/swizzle.h"
#include "../target/target.h"
#include "../tvm/error.h"
#include "../tvm/functor.h"
#include "block_reduce.h"
#include "copy_instruction.h"
#include "launch_sized.h"
#include "region_nest.h"
#include "tma_copy.h"

namespace tl {
namespace {

/*! Elements from each multiple of a row's length in the last dimension lie side by side in memory,
 * at a multiple of their bytes. */
bool HasWholeRows(const Layout& shared, const LaneMatrix& m) {
  const std::vector<int64_t> place = shared->Addresses();
  const int64_t columns = shared->Shape().back(), length = m.Columns();
  for (int64_t k = 0; k < static_cast<int64_t>(place.size()); ++k) {
    const int64_t row = k - k % columns % length;
    if (row - row % columns + columns < row + length) continue;  // the ragged end of a row
    if (place[row] % length || place[k] != place[row] + (k - row)) return false;
  }
  return true;
}

/*! Whether each element of the buffer, by its row-major number, is in a region with constant
 * bounds. */
std::vector<char> ElementsOf(const TileRegion& r) {
  std::vector<char> inside = {1};
  const std::vector<int64_t> shape = ConstShape(r.buffer);
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t min = ToInt(r.ranges[d]->min), end = min + ToInt(r.ranges[d]->extent);
    std::vector<char> finer;
    finer.reserve(inside.size() * shape[d]);
    for (char outer : inside) {
      for (int64_t i = 0; i < shape[d]; ++i) finer.push_back(outer && min <= i && i < end);
    }
    inside = std::move(finer);
  }
  return inside;
}

using Run = MatrixPlan::Run;

/*! The matrices that are the region's; nullopt where one lies in it in part, or in some warps only.
 */
std::optional<std::vector<Run>> RunsOf(const TileRegion& r, const Fragment& f, const LaneMatrix& m,
                                       int64_t num_threads) {
  if (!AllOf(r.ranges, [](const Range& d) { return AsInt(d->min) && AsInt(d->extent); })) {
    return std::nullopt;
  }
  const int64_t of_matrix = m.Registers(), registers = f->RegisterExtent();
  const std::vector<int64_t>& held = f->HeldElements();
  const int64_t holders = f->ThreadExtent();
  const std::vector<char> is_in_region = ElementsOf(r);
  std::vector<Run> runs;
  for (int64_t matrix = 0; matrix < registers / of_matrix; ++matrix) {
    int64_t inside = 0;
    for (int64_t thread = 0; thread < holders; ++thread) {
      for (int64_t reg = matrix * of_matrix; reg < (matrix + 1) * of_matrix; ++reg) {
        const int64_t element = held[thread * registers + reg];
        inside += element >= 0 && is_in_region[element];
      }
    }
    if (inside == 0) continue;
    if (inside != of_matrix * num_threads) return std::nullopt;
    if (runs.empty() || runs.back().first + runs.back().count != matrix) {
      runs.push_back({matrix, 0});
    }
    ++runs.back().count;
  }
  return runs;
}

class MatrixCopy {
 public:
  MatrixCopy(const TileRegion& fragment, const TileRegion& shared, bool loads, const LaneMatrix& m,
             LoweringScope* scope, Span span)
      : fragment_(fragment),
        shared_(shared),
        loads_(loads),
        matrix_(m),
        scope_(scope),
        span_(std::move(span)),
        layout_(scope->FragmentOf(fragment.buffer)),
        registers_(scope->RegistersOf(fragment.buffer)) {
    const DLDataType there = DTypeOf(shared.buffer);
    if (there == DTypeOf(fragment.buffer)) return;
    converted_ = MakeBuffer(std::string(fragment.buffer->name) + "_" + DTypeName(there), there,
                            {MakeInt(Most() * matrix_.Registers())}, "local");
  }

  Stmt Lower(const std::vector<Run>& runs) {
    std::vector<Stmt> out;
    if (converted_) out.push_back(MakeAlloc(*converted_));
    for (const Run& run : runs) Move(run, &out);
    return MakeSeq(out);
  }

 private:
  /*! The most matrices of an instruction. */
  int64_t Most() const { return int64_t(1) << (matrix_.intrinsics.size() - 1); }

  /*! Instructions for the matrices of a run. */
  void Move(Run run, std::vector<Stmt>* out) {
    for (int64_t count = Most(); count > 0; count /= 2) {
      const int64_t times = run.count / count;
      if (times == 0) continue;
      Var r = MakeVar("r");
      const Stmt copy = times == 1 ? Instruction(count, MakeInt(run.first))
                                   : Instruction(count, Expr(r) * count + run.first);
      out->push_back(times == 1 ? copy
                                : MakeFor(r, MakeInt(times), ForKind::kUnrolled, copy, span_));
      run = {run.first + times * count, run.count - times * count};
    }
  }

  /*! One instruction for `count` matrices from number `first` on. */
  Stmt Instruction(int64_t count, const Expr& first) {
    const int64_t lanes = scope_->target->warp_threads;
    const Expr lane = FloorModOf(scope_->thread, lanes);
    const Expr warp = FloorDivOf(scope_->thread, lanes) * lanes;
    const int64_t of_matrix = matrix_.Registers();
    const RowPlace row = RowOfLane(matrix_, lane, count);
    const auto inverse = InvertFragment(
        layout_, warp + row.lane, (first + row.matrix) * of_matrix + row.reg, scope_->num_threads);
    if (!inverse) ThrowBug(span_, "MatrixCopy", "the planned fragment has no inverse");

    const std::vector<size_t> in_fragment = NonUnitDims(fragment_),
                              in_shared = NonUnitDims(shared_);
    Array<Expr> element = shared_.Mins();
    for (size_t d = 0; d < in_shared.size(); ++d) {
      const size_t to = in_shared[d];
      const Expr from_start =
          inverse->coords[in_fragment[d]] - fragment_.ranges[in_fragment[d]]->min;
      element.Set(to, scope_->analyzer->Simplify(element[to] + from_start));
    }
    auto [buffer, indices] = scope_->ToPhysical(shared_.buffer, element);
    const Expr registers = converted_ ? AddressOf(*converted_, {MakeInt(0)})
                                      : AddressOf(registers_, {first * of_matrix});
    const Stmt move = MakeEvaluate(
        CallOp(IntrinsicFor(matrix_, count), {AddressOf(buffer, indices), registers}), span_);
    if (!converted_) return move;
    const Stmt convert = Convert(first * of_matrix, count * of_matrix);
    return loads_ ? MakeSeq({move, convert}) : MakeSeq({convert, move});
  }

  /*! Registers from `first` on, in the dtype of one side, into that of the other. */
  Stmt Convert(const Expr& first, int64_t count) const {
    const Var v = MakeVar("v");
    const auto [from, to] =
        loads_ ? std::pair(*converted_, registers_) : std::pair(registers_, *converted_);
    const Expr at = loads_ ? Expr(v) : first + v, into = loads_ ? first + v : Expr(v);
    const Expr value = CastTo(DTypeOf(to), LoadOf(from, {at}));
    return MakeFor(v, MakeInt(count), ForKind::kVectorized, MakeStore(to, value, {into}, span_),
                   span_);
  }

  const TileRegion& fragment_;
  const TileRegion& shared_;
  bool loads_;
  const LaneMatrix& matrix_;
  LoweringScope* scope_;
  Span span_;
  Fragment layout_;
  Var registers_;
  /*! What one instruction moves, in the dtype of shared memory, where that is another one. */
  std::optional<Var> converted_;
};

/*! The sides of a copy between a fragment and shared memory. */
struct MatrixSides {
  const TileRegion &fragment, &shared;
  bool loads;

  int64_t Bits() const { return DTypeOf(shared.buffer).bits; }
};
std::optional<MatrixSides> MatrixSidesOf(const TileRegion& src, const TileRegion& dst) {
  const bool loads = IsFragment(dst.buffer) && IsShared(src.buffer);
  if (!loads && !(IsFragment(src.buffer) && IsShared(dst.buffer))) return std::nullopt;
  return loads ? MatrixSides{dst, src, true} : MatrixSides{src, dst, false};
}

/*! A row of a matrix in the fragment is a row in shared memory. */
bool RowsMatch(const MatrixSides& s, const LaneMatrix& m, Analyzer* analyzer) {
  const std::vector<size_t> in_fragment = NonUnitDims(s.fragment),
                            in_shared = NonUnitDims(s.shared);
  if (in_fragment.size() < 2 || in_fragment.size() != in_shared.size()) return false;
  if (in_fragment.back() + 1 != s.fragment.ranges.size()) return false;
  if (in_shared.back() + 1 != s.shared.ranges.size()) return false;
  const Analyzer::Modular start = analyzer->ModularSet(s.shared.ranges.back()->min);
  return start.coeff % m.Columns() == 0 && start.base % m.Columns() == 0;
}

/*! The row of the target's instruction; nullptr without it. */
const CopyInstruction* CopyInstructionOf(const std::string& instruction, const Target& target) {
  for (const CopyInstruction& row : target.copies) {
    if (row.name == instruction && !row.matrices.empty() && target.Has(row.feature)) return &row;
  }
  return nullptr;
}

/*! The matrices of elements of the sides' bits that the fragment is made of; nullptr without any.
 */
const LaneMatrix* MatrixOfFragment(const MatrixSides& s, const CopyInstruction& row,
                                   const Fragment& f, const LayoutScope& scope) {
  return FindMatrix(row, s.Bits(), [&](const LaneMatrix& m) {
    return IsMadeOf(f, m, scope.num_threads, scope.target->warp_threads);
  });
}

}  // namespace

const LaneMatrix* FindMatrix(const CopyInstruction& row, int64_t bits,
                             const std::function<bool(const LaneMatrix&)>& wanted) {
  for (const LaneMatrix& m : row.matrices) {
    if (m.bits == bits && wanted(m)) return &m;
  }
  return nullptr;
}

bool IsMadeOf(const Fragment& f, const LaneMatrix& m, int64_t num_threads, int64_t lanes) {
  const int64_t registers = f->RegisterExtent(), columns = f->Shape().back();
  const int64_t of_matrix = m.Registers(), length = m.Columns();
  if (registers % of_matrix || f->ThreadExtent() > num_threads) return false;
  if (f->ThreadExtent() < num_threads / lanes * lanes) return false;  // a warp that holds nothing
  const std::vector<int64_t>& held = f->HeldElements();
  const std::vector<int64_t>&lane = m.places->ThreadTable(), &reg = m.places->Table();
  for (int64_t warp = 0; warp < num_threads / lanes; ++warp) {
    for (int64_t matrix = 0; matrix < registers / of_matrix; ++matrix) {
      const auto element = [&](int64_t e) {
        return held[(warp * lanes + lane[e]) * registers + matrix * of_matrix + reg[e]];
      };
      for (int64_t row = 0; row < m.Rows() * length; row += length) {
        const int64_t first = element(row), column = first % columns;
        if (first < 0 || column % length || column + length > columns) return false;
        for (int64_t e = 1; e < length; ++e) {
          if (element(row + e) != first + e) return false;
        }
      }
    }
  }
  return true;
}

RowPlace RowOfLane(const LaneMatrix& m, const Expr& lane, int64_t count) {
  const Expr row = FloorModOf(lane, m.Rows());
  const Array<Expr> first = {row, MakeInt(0)};
  const Fragment& places = m.places;
  Substituter at_first;
  for (size_t d = 0; d < first.size(); ++d) at_first.map[places->vars[d].get()] = first[d];
  return {at_first.Mutate(places->thread), at_first.Mutate(places->index[0]),
          FloorModOf(FloorDivOf(lane, m.Rows()), count)};
}

const std::string& IntrinsicFor(const LaneMatrix& m, int64_t count) {
  size_t number = 0;
  while ((int64_t(1) << number) < count) ++number;
  return m.intrinsics.at(number);
}

std::string WhyNotMatrices(const std::string& instruction, const TileRegion& src,
                           const TileRegion& dst, const Target& target, int64_t num_threads) {
  const auto sides = MatrixSidesOf(src, dst);
  if (!sides) return "a copy that is not between a fragment and shared memory";
  const CopyInstruction* row = CopyInstructionOf(instruction, target);
  if (!row) return target.arch + " has no " + instruction;
  if (!FindMatrix(*row, sides->Bits(), [](const LaneMatrix&) { return true; })) {
    return "elements of " + std::to_string(sides->Bits()) + " bits";
  }
  if (IsSizedAtLaunch(sides->shared.buffer)) return "a size that the call decides";
  if (DTypeOf(sides->fragment.buffer).bits < 8 && sides->Bits() >= 8) {
    return "a conversion to elements of parts of a byte";
  }
  if (num_threads % target.warp_threads) {
    return std::to_string(num_threads) + " threads, no whole warps";
  }
  return "";
}

MatrixPlan MatrixPlan::Of(const CallNode* copy) {
  const auto text = TileOpAttr(copy, kMatrices).cast<Map<String, Any>>();
  MatrixPlan plan;
  plan.transposed = text.count("transposed") != 0;
  for (const Array<int64_t>& run : text.at("runs").cast<Array<Array<int64_t>>>()) {
    plan.runs.push_back({run[0], run[1]});
  }
  return plan;
}

std::string PlanMatrixCopy(const std::string& instruction, const TileRegion& src,
                           const TileRegion& dst, const LayoutScope& scope,
                           Map<String, Any>* to_do) {
  const int64_t threads = scope.num_threads;
  const std::string why = WhyNotMatrices(instruction, src, dst, *scope.target, threads);
  if (!why.empty()) return why;
  const MatrixSides s = *MatrixSidesOf(src, dst);
  const CopyInstruction& row = *CopyInstructionOf(instruction, *scope.target);
  const Fragment f = scope.FindFragment(s.fragment.buffer);
  if (!s.loads && f->replicate > 1) return "elements that several threads hold";
  const LaneMatrix* m = MatrixOfFragment(s, row, f, scope);
  if (!m) return "a fragment without matrices of " + row.name;
  if (!RowsMatch(s, *m, scope.analyzer)) return "rows that are not those of the matrices";
  const Layout found = scope.Find(s.shared.buffer);
  if (!HasWholeRows(found.defined() ? found : MakeLinearLayout(ConstShape(s.shared.buffer)), *m)) {
    return "rows of " + std::to_string(m->Columns() * m->bits / 8) +
           " bytes that are not in one piece in shared memory";
  }
  const auto runs = RunsOf(s.fragment, f, *m, threads);
  if (!runs) return "a part of a matrix";
  if (!InvertFragment(f, MakeVar("thread"), MakeVar("register"), threads)) {
    return "a fragment without an inverse in closed form";
  }
  Array<Array<int64_t>> text_of_runs;
  for (const Run& run : *runs) text_of_runs.push_back({run.first, run.count});
  Map<String, Any> text = {{"runs", text_of_runs}};
  if (m->transposed) text.Set("transposed", int64_t(1));
  to_do->Set(kMatrices, text);
  return "";
}

Stmt LowerToMatrixCopy(const std::string& instruction, const TileRegion& src, const TileRegion& dst,
                       const MatrixPlan& plan, LoweringScope* scope, const Span& span) {
  const MatrixSides s = *MatrixSidesOf(src, dst);
  const LaneMatrix* m =
      FindMatrix(*CopyInstructionOf(instruction, *scope->target), s.Bits(),
                 [&](const LaneMatrix& m) { return m.transposed == plan.transposed; });
  if (!m) ThrowBug(span, "MatrixCopy", "the target has no such matrices as are planned");
  return MatrixCopy(s.fragment, s.shared, s.loads, *m, scope, span).Lower(plan.runs);
}

Layout ProposeMatrixLayout(const TileRegion& src, const TileRegion& dst, const LayoutScope& scope) {
  const auto sides = MatrixSidesOf(src, dst);
  const Fragment f = sides ? scope.FindFragment(sides->fragment.buffer) : Fragment();
  if (!f.defined()) return Layout();
  for (const CopyInstruction& row : scope.target->copies) {
    const std::string& name = row.name;
    if ((row.from == MemorySpace::kShared) != sides->loads) continue;
    if (!WhyNotMatrices(name, src, dst, *scope.target, scope.num_threads).empty()) continue;
    if (!MatrixOfFragment(*sides, row, f, scope)) continue;
    if (scope.target->banks == 32) {
      return sides->loads ? ProposeTmaLayout(sides->shared) : ProposeStoreLayout(sides->shared);
    }
    return MakeSwizzledLayout(ConstShape(sides->shared.buffer), static_cast<int>(sides->Bits()),
                              true, scope.target->banks);
  }
  return Layout();
}

}  // namespace tl
