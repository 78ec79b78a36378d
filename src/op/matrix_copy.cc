#include "matrix_copy.h"

#include <algorithm>

#include "../layout/inverse.h"
#include "../target/target.h"
#include "../target/warp.h"
#include "../tvm/error.h"
#include "../tvm/functor.h"
#include "block_reduce.h"
#include "copy_instruction.h"
#include "launch_sized.h"
#include "region_nest.h"
#include "tma_copy.h"

namespace tl {
namespace {

constexpr int64_t kLanes = kMatrixCopyLanes;
constexpr int64_t kSide = 8;       // rows and columns of a matrix
constexpr int64_t kMostPairs = 4;  // matrices, a pair of registers each, that an instruction moves

/*! Where a warp holds element (row, column) of a matrix: lane and register of the pair. */
struct Holder {
  int64_t lane;
  int64_t reg;
};
Holder HolderOf(int64_t row, int64_t column, bool transposed) {
  if (transposed) std::swap(row, column);
  return {4 * row + column / 2, column % 2};
}

/*! The row-major number of the element that each (thread, register) holds, -1 where none. */
std::vector<int64_t> HeldElements(const Fragment& f, int64_t num_threads) {
  const int64_t registers = f->RegisterExtent();
  std::vector<int64_t> held(num_threads * registers, -1);
  const std::vector<int64_t>&reg = f->Table(), &thread = f->ThreadTable();
  for (size_t k = 0; k < thread.size(); ++k) {
    const size_t element = k / f->replicate;
    held[thread[k] * registers + reg[element]] = static_cast<int64_t>(element);
  }
  return held;
}

/*! Rows of the matrices are 8 elements of the fragment's last dimension, starting at multiples of
 * 8. */
bool IsMadeOfMatrices(const Fragment& f, int64_t num_threads, bool transposed) {
  const int64_t registers = f->RegisterExtent(), columns = f->Shape().back();
  if (registers % 2 || f->ThreadExtent() > num_threads) return false;
  const std::vector<int64_t> held = HeldElements(f, num_threads);
  auto at = [&](int64_t warp, int64_t pair, Holder h) {
    return held[(warp * kLanes + h.lane) * registers + 2 * pair + h.reg];
  };
  for (int64_t warp = 0; warp < num_threads / kLanes; ++warp) {
    for (int64_t pair = 0; pair < registers / 2; ++pair) {
      for (int64_t row = 0; row < kSide; ++row) {
        const int64_t first = at(warp, pair, HolderOf(row, 0, transposed));
        if (first < 0 || first % columns % kSide || first % columns + kSide > columns) return false;
        for (int64_t column = 1; column < kSide; ++column) {
          if (at(warp, pair, HolderOf(row, column, transposed)) != first + column) return false;
        }
      }
    }
  }
  return true;
}

/*! Eight elements from each multiple of 8 in the last dimension lie side by side in memory, at a
 * multiple of 16 bytes. */
bool HasWholeRows(const Layout& shared) {
  const std::vector<int64_t> place = shared->Addresses();
  const int64_t columns = shared->Shape().back();
  for (int64_t k = 0; k < static_cast<int64_t>(place.size()); ++k) {
    const int64_t row = k - k % columns % kSide;
    if (row - row % columns + columns < row + kSide) continue;  // the ragged end of a row
    if (place[row] % kSide || place[k] != place[row] + (k - row)) return false;
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

/*! The pairs whose matrices are the region's; nullopt where one lies in it in part, or in some
 * warps only. */
std::optional<std::vector<Run>> PairsOf(const TileRegion& r, const Fragment& f,
                                        int64_t num_threads) {
  if (!std::all_of(r.ranges.begin(), r.ranges.end(),
                   [](const Range& d) { return AsInt(d->min) && AsInt(d->extent); })) {
    return std::nullopt;
  }
  const int64_t pairs = f->RegisterExtent() / 2;
  const std::vector<int64_t> held = HeldElements(f, num_threads);
  const std::vector<char> is_in_region = ElementsOf(r);
  std::vector<Run> runs;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    int64_t inside = 0;
    for (int64_t thread = 0; thread < num_threads; ++thread) {
      for (int64_t reg : {2 * pair, 2 * pair + 1}) {
        const int64_t element = held[thread * 2 * pairs + reg];
        inside += element >= 0 && is_in_region[element];
      }
    }
    if (inside == 0) continue;
    if (inside != 2 * num_threads) return std::nullopt;
    if (runs.empty() || runs.back().first + runs.back().count != pair) runs.push_back({pair, 0});
    ++runs.back().count;
  }
  return runs;
}

class MatrixCopy {
 public:
  MatrixCopy(const TileRegion& fragment, const TileRegion& shared, bool loads, bool transposed,
             LoweringScope* scope, Span span)
      : fragment_(fragment),
        shared_(shared),
        loads_(loads),
        transposed_(transposed),
        scope_(scope),
        span_(std::move(span)),
        layout_(scope->FragmentOf(fragment.buffer)),
        registers_(scope->RegistersOf(fragment.buffer)) {
    const DLDataType there = BufferOf(shared.buffer)->dtype->dtype;
    if (there == BufferOf(fragment.buffer)->dtype->dtype) return;
    converted_ = MakeBuffer(std::string(fragment.buffer->name) + "_" + DTypeName(there), there,
                            {MakeInt(kMostPairs * 2)}, "local");
  }

  Stmt Lower(const std::vector<Run>& runs) {
    std::vector<Stmt> out;
    if (converted_) out.push_back(AllocLocal(*converted_));
    for (const Run& run : runs) Move(run, &out);
    return MakeSeq(out);
  }

 private:
  /*! Instructions for the pairs of a run. */
  void Move(Run run, std::vector<Stmt>* out) {
    for (int64_t count : {kMostPairs, kMostPairs / 2, int64_t(1)}) {
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

  /*! One instruction for `count` matrices from pair number `first` on: lane 8 m + k gives row k of
   * matrix m. */
  Stmt Instruction(int64_t count, const Expr& first) {
    const Expr lane = FloorModOf(scope_->thread, kLanes), row = FloorModOf(lane, kSide);
    const Expr warp = FloorDivOf(scope_->thread, kLanes) * kLanes;
    const Expr pair = first + FloorModOf(FloorDivOf(lane, kSide), count);
    const Expr thread = warp + (transposed_ ? FloorDivOf(row, 2) : row * 4);
    const Expr reg = pair * 2 + (transposed_ ? FloorModOf(row, 2) : Expr(MakeInt(0)));
    const auto inverse = InvertFragment(layout_, thread, reg, scope_->num_threads);
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
    const Expr registers =
        converted_ ? AddressOf(*converted_, {MakeInt(0)}) : AddressOf(registers_, {first * 2});
    const std::string op = std::string(loads_ ? "tl.ptx_ldmatrix_x" : "tl.ptx_stmatrix_x") +
                           std::to_string(count) + (transposed_ ? "_trans" : "");
    const Stmt move = MakeEvaluate(CallOp(op, {AddressOf(buffer, indices), registers}), span_);
    if (!converted_) return move;
    const Stmt convert = Convert(first * 2, count * 2);
    return loads_ ? MakeSeq({move, convert}) : MakeSeq({convert, move});
  }

  /*! Registers from `first` on, in the dtype of one side, into that of the other. */
  Stmt Convert(const Expr& first, int64_t count) const {
    const Var v = MakeVar("v");
    const auto [from, to] =
        loads_ ? std::pair(*converted_, registers_) : std::pair(registers_, *converted_);
    const Expr at = loads_ ? Expr(v) : first + v, into = loads_ ? first + v : Expr(v);
    const Expr value = CastTo(BufferOf(to)->dtype->dtype, LoadOf(from, {at}));
    return MakeFor(v, MakeInt(count), ForKind::kVectorized, MakeStore(to, value, {into}, span_),
                   span_);
  }

  const TileRegion& fragment_;
  const TileRegion& shared_;
  bool loads_, transposed_;
  LoweringScope* scope_;
  Span span_;
  Fragment layout_;
  Var registers_;
  /*! What one instruction moves, in the dtype of shared memory, where that is another one. */
  std::optional<Var> converted_;
};

/*! The sides of a copy between a fragment and shared memory whose elements matrices may have. */
struct Sides {
  const TileRegion &fragment, &shared;
  bool loads;
};
std::optional<Sides> SidesOf(const TileRegion& src, const TileRegion& dst) {
  const bool loads = IsFragment(dst.buffer) && IsShared(src.buffer);
  if (!loads && !(IsFragment(src.buffer) && IsShared(dst.buffer))) return std::nullopt;
  const Sides s = loads ? Sides{dst, src, true} : Sides{src, dst, false};
  if (BufferOf(s.shared.buffer)->dtype->dtype.bits != 16) return std::nullopt;
  if (IsSizedAtLaunch(s.shared.buffer)) return std::nullopt;
  if (BufferOf(s.fragment.buffer)->dtype->dtype.bits < 8) return std::nullopt;
  return s;
}

/*! A row of a matrix in the fragment is a row in shared memory. */
bool RowsMatch(const Sides& s, Analyzer* analyzer) {
  const std::vector<size_t> in_fragment = NonUnitDims(s.fragment),
                            in_shared = NonUnitDims(s.shared);
  if (in_fragment.size() < 2 || in_fragment.size() != in_shared.size()) return false;
  if (in_fragment.back() + 1 != s.fragment.ranges.size()) return false;
  if (in_shared.back() + 1 != s.shared.ranges.size()) return false;
  const Analyzer::Modular start = analyzer->ModularSet(s.shared.ranges.back()->min);
  return start.coeff % kSide == 0 && start.base % kSide == 0;
}

}  // namespace

std::string WhyNotMatrices(const TileRegion& src, const TileRegion& dst, const Target& target,
                           int64_t num_threads) {
  const auto sides = SidesOf(src, dst);
  if (!sides) return "elements that are not of 16 bits";
  const Feature feature = sides->loads ? Feature::kLdmatrix : Feature::kStmatrix;
  if (!target.Has(feature)) return "a target before " + FirstTargetWith(feature);
  if (num_threads % kLanes) return std::to_string(num_threads) + " threads, no whole warps";
  return "";
}

MatrixPlan MatrixPlan::Of(const CallNode* copy) {
  const auto text = TileOpAttr(copy, kMatrices).cast<Map<String, Any>>();
  MatrixPlan plan;
  plan.transposed = text.count("transposed") != 0;
  for (const Array<int64_t>& run : text.at("pairs").cast<Array<Array<int64_t>>>()) {
    plan.runs.push_back({run[0], run[1]});
  }
  return plan;
}

std::string PlanMatrixCopy(const TileRegion& src, const TileRegion& dst, const LayoutScope& scope,
                           Map<String, Any>* to_do) {
  const int64_t threads = scope.num_threads;
  const std::string why = WhyNotMatrices(src, dst, *scope.target, threads);
  if (!why.empty()) return why;
  const Sides s = *SidesOf(src, dst);
  if (!RowsMatch(s, scope.analyzer)) return "rows that are not those of the matrices";
  const Fragment f = scope.FindFragment(s.fragment.buffer);
  if (!s.loads && f->replicate > 1) return "elements that several threads hold";
  const bool transposed = !IsMadeOfMatrices(f, threads, false);
  if (transposed && !IsMadeOfMatrices(f, threads, true)) return "a fragment without 8x8 matrices";
  const Layout found = scope.Find(s.shared.buffer);
  if (!HasWholeRows(found.defined() ? found : MakeLinearLayout(ConstShape(s.shared.buffer)))) {
    return "rows of 16 bytes that are not in one piece in shared memory";
  }
  const auto runs = PairsOf(s.fragment, f, threads);
  if (!runs) return "a part of a matrix";
  if (!InvertFragment(f, MakeVar("thread"), MakeVar("register"), threads)) {
    return "a fragment without an inverse in closed form";
  }
  Array<Array<int64_t>> pairs;
  for (const Run& run : *runs) pairs.push_back({run.first, run.count});
  Map<String, Any> text = {{"pairs", pairs}};
  if (transposed) text.Set("transposed", int64_t(1));
  to_do->Set(kMatrices, text);
  return "";
}

Stmt LowerToMatrixCopy(const TileRegion& src, const TileRegion& dst, const MatrixPlan& plan,
                       LoweringScope* scope, const Span& span) {
  const Sides s = *SidesOf(src, dst);
  return MatrixCopy(s.fragment, s.shared, s.loads, plan.transposed, scope, span).Lower(plan.runs);
}

Layout ProposeMatrixLayout(const TileRegion& src, const TileRegion& dst, const LayoutScope& scope) {
  if (!WhyNotMatrices(src, dst, *scope.target, scope.num_threads).empty()) return Layout();
  const auto sides = SidesOf(src, dst);
  const Fragment f = scope.FindFragment(sides->fragment.buffer);
  const auto is_made = [&](bool transposed) {
    return IsMadeOfMatrices(f, scope.num_threads, transposed);
  };
  if (!f.defined() || (!is_made(false) && !is_made(true))) return Layout();
  return ProposeTmaLayout(sides->shared);
}

}  // namespace tl
