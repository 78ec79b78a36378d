/*!
 * RaiseIm2col: loops that gather windows of an image become T.im2col.
 *
 * In:  a tile program under thread_extent attributes, as it was written: indices are not
 *      simplified.
 * Out: the same, where a parallel loop fills a tile with elements of a convolution's matrix
 *      (im2col.h). With pixel = by * 128 + i and column = k * 32 + j,
 *        for i, j in parallel(128, 32):
 *          y = pixel // 56 % 56 + column // 128 // 3 - 1
 *          x = pixel % 56 + column // 128 % 3 - 1
 *          tile[i, j] = image[pixel // 3136, y, x, column % 128] if 0 <= y < 56 and ... else 0
 *      is
 *        im2col(image, tile, by, k, 3, 1, 1, 1)
 * Establishes: TMA may load the tile in im2col mode, by one instruction. The loop's threads compute
 *      the place of each 16 bytes: of 64 images of 56 x 56 x 128, 3 x 3, a thread of the producer
 *      had 200 instructions a step. Passes that make tiles larger know what the tile has.
 * Left alone: loops of which it is not proved that they are the operator, as those with other
 *      windows along y than along x; images whose height, width or channels the call decides; what
 *      TMA does not load; images that the kernel writes, that are no parameters or that have a safe
 *      value; tiles and tensors with a layout of the program's; kernels with tensors of which
 *      several may be one.
 * Refuses nothing.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/predicated_load.h"
#include "../../layout/annotation.h"
#include "../../op/im2col.h"
#include "../../op/parallel.h"
#include "../../op/tma_select.h"
#include "../../op/views.h"
#include "../../tvm/conjuncts.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../name_expressions.h"
#include "../notes.h"
#include "pipeline_bindings.h"
#include "register_estimate.h"

namespace tl {
namespace {

namespace ffi = tvm::ffi;

/*! Element (i, j) of a tile is image[indices], or 0 where `inside` is false. */
struct Gather {
  Var image, tile, i, j;
  Array<Expr> indices;
  /*! Conditions that all have to hold. */
  std::vector<Expr> inside;

  Expr Rows() const { return BufferOf(tile)->shape[0]; }
  Expr Columns() const { return BufferOf(tile)->shape[1]; }
};

std::optional<Gather> AsGather(const ForNode* op, const Views& views) {
  if (op->kind != ForKind::kParallel || !op->annotations.empty()) return std::nullopt;
  const ParallelNest nest = InlinedNestOfLoop(op, views);
  if (nest.vars.size() != 2) return std::nullopt;
  const auto* store = nest.body.as<BufferStoreNode>();
  const auto value = store ? AsPredicatedLoad(store->value) : std::nullopt;
  if (!value || !IsShared(store->buffer) || !AreIteration(store->indices, nest)) {
    return std::nullopt;
  }
  Gather found{value->load->source.as_or_throw<Var>(),
               store->buffer,
               nest.vars[0],
               nest.vars[1],
               value->load->indices,
               {}};
  const BufferTypeNode *tile = BufferOf(found.tile), *image = BufferOf(found.image);
  for (size_t d = 0; d < 2; ++d) {
    if (!AsInt(tile->shape[d]) || AsInt(tile->shape[d]) != AsInt(nest.extents[d])) {
      return std::nullopt;
    }
  }
  if (image->shape.size() != 4 || DTypeOf(found.image) != DTypeOf(found.tile)) return std::nullopt;
  for (size_t d = 1; d < 4; ++d) {
    if (AsInt(image->shape[d]).value_or(0) <= 0) return std::nullopt;
  }
  for (const Expr& e : found.indices) {
    if (!IsPureInteger(e)) return std::nullopt;
  }
  if (value->condition.defined()) found.inside = ConjunctsOf(value->condition);
  return AllOf(found.inside, IsArithmetic) ? std::optional<Gather>(found) : std::nullopt;
}

/*! An expression that is at least 0 where a comparison holds; undefined for other conditions. */
Expr Excess(const Expr& condition) {
  if (const auto* op = condition.as<GENode>()) return op->a - op->b;
  if (const auto* op = condition.as<LENode>()) return op->b - op->a;
  if (const auto* op = condition.as<GTNode>()) return op->a - op->b + (-1);
  if (const auto* op = condition.as<LTNode>()) return op->b - op->a + (-1);
  return Expr();
}

/*! A gather as a function of the row and the column of the matrix. */
class MatrixGather {
 public:
  /*! `row` and `column` are the matrix's, as far as the gather says. */
  MatrixGather(const Gather& gather, const Expr& row, const Expr& column)
      : gather_(gather), row_(MakeVar("row")), column_(MakeVar("column")) {
    ExpressionNamer namer;
    namer.names = {{row, row_}, {column, column_}};
    indices_ = namer.MutateArray(gather.indices);
    for (const Expr& e : gather.inside) inside_.push_back(namer.Mutate(e));
  }

  /*! The window's size, stride, dilation and padding: what the first pixels and taps say of it;
   * nullopt where they say none. */
  std::optional<std::array<int64_t, 4>> Window() const {
    constexpr int64_t kMostTaps = 64;
    if (!HasOnlyPlaces()) return std::nullopt;
    const auto& shape = BufferOf(gather_.image)->shape;
    const auto x = [&](int64_t row, int64_t tap) {
      return At(indices_[2], row, tap * ToInt(shape[3]));
    };
    const auto first = x(0, 0);
    if (!first || *first > 0) return std::nullopt;
    int64_t kernel = 1;
    while (kernel < kMostTaps && x(0, kernel) != first) ++kernel;
    const int64_t dilation = kernel > 1 ? x(0, 1).value_or(*first) - *first : 1;
    const int64_t along_x = x(1, 0).value_or(*first) - *first;
    const int64_t along_y = At(indices_[1], 1, 0).value_or(*first) - *first;
    const int64_t stride = along_x > 0 ? along_x : std::max<int64_t>(along_y, 1);
    const int64_t reach = (kernel - 1) * dilation;
    if (dilation <= 0 || std::min(ToInt(shape[1]), ToInt(shape[2])) - 2 * *first <= reach) {
      return std::nullopt;
    }
    return std::array<int64_t, 4>{kernel, stride, dilation, -*first};
  }

  /*! Whether it gathers what the operator loads. `in_matrix`: columns are those of taps. */
  bool Is(const Im2col& im2col, bool in_matrix) const {
    const Expr zero = MakeInt(0);
    const Im2col::Pixel pixel = im2col.FirstPixel(row_);
    const Im2col::Tap tap = im2col.TapOf(column_);
    const Expr y = pixel.y + tap.y, x = pixel.x + tap.x;
    Analyzer analyzer;
    analyzer.Bind(row_, zero, MakeInt(std::numeric_limits<int32_t>::max()));
    analyzer.Bind(column_, zero, Columns(im2col));
    const std::array<Expr, 4> wanted = {pixel.image, y, x, tap.channel};
    for (size_t d = 0; d < wanted.size(); ++d) {
      if (!analyzer.CanProveEqual(indices_[d], wanted[d])) return false;
    }
    // Behind the last image elements are 0 for both, whatever the conditions are.
    const auto [height, width] = im2col.OutputsOfImage();
    const auto images = AsInt(BufferOf(gather_.image)->shape[0]);
    if (images) analyzer.Bind(row_, zero, height * width * *images);
    return HasConditions(im2col, y, x, in_matrix, &analyzer);
  }

 private:
  static Expr Columns(const Im2col& im2col) {
    return im2col.Channels() * (im2col.kernel * im2col.kernel);
  }

  /*! Whether the conditions are that the pixel (y, x) is in its image, and the column that of a
   * tap, beside what is always so. */
  bool HasConditions(const Im2col& im2col, const Expr& y, const Expr& x, bool in_matrix,
                     Analyzer* analyzer) const {
    const Expr zero = MakeInt(0), one = MakeInt(1);
    const auto& shape = BufferOf(gather_.image)->shape;
    std::vector<Expr> needed = {y, shape[1] - one - y, x, shape[2] - one - x};
    for (const Expr& condition : inside_) {
      const Expr e = Excess(condition);
      if (!e.defined()) return false;
      const auto same = [&](const Expr& other) { return analyzer->CanProveEqual(e, other); };
      const auto it = std::find_if(needed.begin(), needed.end(), same);
      if (it != needed.end()) {
        needed.erase(it);
      } else if (same(Columns(im2col) - one - column_)) {
        in_matrix = true;
      } else if (!analyzer->CanProve(e >= zero)) {
        return false;
      }
    }
    return in_matrix && AllOf(needed, [&](const Expr& e) { return analyzer->CanProve(e >= zero); });
  }

  bool HasOnlyPlaces() const {
    const auto is_place = [&](const VarNode* v) { return v == row_.get() || v == column_.get(); };
    const auto has_other = [&](const Expr& e) {
      return HasNode<VarNode>(e, [&](const VarNode* v) { return !is_place(v); });
    };
    return NoneOf(indices_, has_other) && NoneOf(inside_, has_other);
  }

  std::optional<int64_t> At(const Expr& e, int64_t row, int64_t column) const {
    Substituter values;
    values.map[row_.get()] = MakeInt(row);
    values.map[column_.get()] = MakeInt(column);
    return AsInt(Analyzer().Simplify(values.Mutate(e)));
  }

  const Gather& gather_;
  const Var row_, column_;
  Array<Expr> indices_;
  std::vector<Expr> inside_;
};

class Im2colRaiser : public AnalyzingMutator {
 public:
  Im2colRaiser(const PrimFunc& f, const KernelInfo& kernel)
      : AnalyzingMutator(f),
        kernel_(kernel),
        views_(kernel.block->body),
        written_(WrittenTensors(kernel.block->body)) {}

  Array<String> notes;

 protected:
  Stmt Mutate_(const ForNode* op) final {
    const std::optional<Gather> gather = AsGather(op, views_);
    if (!gather || !IsPlainImage(*gather)) return AnalyzingMutator::Mutate_(op);
    analyzer_.BindConst(gather->i, ToInt(gather->Rows()));
    analyzer_.BindConst(gather->j, ToInt(gather->Columns()));
    for (const Expr& row : SumsOf(*gather, gather->i, gather->j)) {
      for (const Expr& column : SumsOf(*gather, gather->j, gather->i)) {
        const Call call = Raised(*gather, row, column);
        if (!call.defined()) continue;
        notes.push_back(Where(op->span) + ": the loop gathers windows, as T.im2col does");
        return MakeEvaluate(call, op->span);
      }
    }
    return AnalyzingMutator::Mutate_(op);
  }

 private:
  bool IsPlainImage(const Gather& gather) const {
    const Var tensor = views_.RootOf(gather.image);
    const std::vector<Var> annotated = AnnotatedBuffers(kernel_.block->annotations);
    return Contains(kernel_.params, tensor) && DTypeOf(tensor) == DTypeOf(gather.image) &&
           !written_.count(tensor.get()) && !views_.IsView(gather.tile) &&
           NoneOf(annotated, [&](const Var& v) {
             return views_.IsSameMemory(v, tensor) || v.same_as(gather.tile);
           });
  }

  /*! The expressions `.. + v` in a gather, the longest first, that do not depend on `other`. */
  std::vector<Expr> SumsOf(const Gather& gather, const Var& v, const Var& other) {
    std::vector<Expr> found;
    const auto add = [&](const Expr& e) {
      if (!IsPureInteger(e) || !Uses(e, v) || Uses(e, other)) return;
      if (AnyOf(found, [&](const Expr& f) { return ffi::StructuralEqual()(e, f); })) return;
      if (!Uses(analyzer_.Simplify(e - v), v)) found.push_back(e);
    };
    for (const Expr& index : gather.indices) {
      ForEachIn<AddNode>(index, [&](const AddNode* op) { add(GetRef<Expr>(op)); });
    }
    add(v);
    return found;
  }

  /*! The operator for a gather whose row and column of the matrix are these; undefined where it is
   * none. */
  Call Raised(const Gather& gather, const Expr& row, const Expr& column) {
    const MatrixGather matrix(gather, row, column);
    const auto window = matrix.Window();
    if (!window) return Call();
    const Expr zero = MakeInt(0);
    const auto block = [&](const Expr& place, const Var& v, const Expr& extent) {
      return WiderBlock(analyzer_.Simplify(place - v), ToInt(extent), &analyzer_);
    };
    const Expr of_row = block(row, gather.i, gather.Rows());
    const Expr of_column = block(column, gather.j, gather.Columns());
    if (!of_row.defined() || !of_column.defined() || !analyzer_.CanProve(row >= zero) ||
        !analyzer_.CanProve(column >= zero)) {
      return Call();
    }
    const auto [kernel, stride, dilation, pad] = *window;
    Array<Expr> args = {TileRegion::Whole(gather.image).ToExpr(),
                        TileRegion::Whole(gather.tile).ToExpr(), of_row, of_column};
    for (const int64_t number : {kernel, stride, dilation, pad, int64_t(0)}) {
      args.push_back(MakeInt(number));
    }
    const Call call = CallOp(kIm2col, args);
    const Im2col im2col = Im2col::From(call.get());
    const Expr columns = im2col.Channels() * (kernel * kernel);
    if (!matrix.Is(im2col, analyzer_.CanProve(column < columns))) return Call();
    const TmaDecision tma =
        SelectTma(call.get(), TmaMoment::kCandidate, Layout(), *kernel_.target, &analyzer_);
    return tma.IsMade() ? call : Call();
  }

  const KernelInfo& kernel_;
  const Views views_;
  const std::unordered_set<const Object*> written_;
};

PrimFunc RaiseIm2col(PrimFunc f) {
  if (!TargetOf(f).Has(Feature::kTma) || DisablesWarpSpecialized()) return f;
  Array<String> notes;
  const PrimFunc out = ForEachKernel(f, [&](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    const Views views(kernel);
    const auto gathers = [&](const ForNode* loop) { return AsGather(loop, views).has_value(); };
    if (!HasNode<ForNode>(kernel, gathers)) return kernel;
    const KernelInfo info = ReadKernelInfo(kernel, f);
    if (!MayHaveProducer(info) || !info.aliased.empty()) return kernel;
    Im2colRaiser raiser(f, info);
    const Stmt raised = raiser.Mutate(kernel);
    for (const String& note : raiser.notes) notes.push_back(note);
    return raised;
  });
  return WithNotes(out, notes);
}

TL_REGISTER_PASS(RaiseIm2col);

}  // namespace
}  // namespace tl
