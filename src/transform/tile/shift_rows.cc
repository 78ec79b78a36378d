/*!
 * ShiftRows: rows of a tensor that begin between vectors of 16 bytes are loaded by the vectors that
 * cover them.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, where a pipelined loop loads a tile of elements of 1 or 2 bytes to shared memory,
 *      and rows of the tensor are no multiple of 16 bytes apart. With N = 8191 halves,
 *        A[64 * k, 64 * b] -> x; for i, j in T.Parallel(64, 64): y[i, j] += x[i, j]
 *      becomes, with f(i) = (64 * k + i) * N + 64 * b,
 *        for i, c in T.Parallel(64, 72): x[i, c] = A_flat[f(i) // 8 * 8 + c]
 *        for i, j in T.Parallel(64, 64): y[i, j] += x[i, f(i) % 8 + j] if 64 * b + j < N else 0
 *      A row of the tile is a vector longer. An element is as far from the row's beginning as it is
 *      from the beginning of a vector in the tensor.
 * Establishes: loads run ahead, by cp.async of 16 bytes. Those of 2 bytes have no asynchronous
 *      form, and as many of them as a thread has registers for do not fill the time of one.
 * Left alone: rows of less than four vectors; places that may be negative; and
 *      - loops without stages, whose loads under conditions wait for each other, and elements of 4
 *        bytes, which cp.async takes by themselves (docs/measurements.md);
 *      - kernels with products or with roles of the program's;
 *      - tensors that the kernel writes or that may have other names, with a layout or a value for
 *        what is outside of them, of sizes of the call, or whose bytes are no multiple of 16;
 *      - tiles with a layout or a view, tiles that something else fills, too, and tiles that others
 *        read than loops over elements and copies behind the load, in the load's loop.
 * Refuses nothing.
 */
#include "shift_rows.h"

#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../layout/annotation.h"
#include "../../op/copy_instruction.h"
#include "../../op/region_nest.h"
#include "../../op/views.h"
#include "../../target/target.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "kernel_scope.h"
#include "tensor_rows.h"
#include "warp_roles.h"

namespace tl {
namespace {

/*! A row of so many vectors takes a quarter more of them at most. */
constexpr int64_t kLeastVectors = 4;

/*! A load of rows that no vector fits. */
struct OddRows {
  TileRegion rows;
  Var tile;
  /*! The tile with longer rows, and the tensor as one row. */
  Var wide, flat;
  std::vector<int64_t> shape;
  /*! Dimensions of the tensor that the tile has. */
  std::vector<size_t> dims;
  /*! Elements of a vector. */
  int64_t vector;

  /*! Where an element of the tile is in the tensor. */
  Array<Expr> Element(const Array<Expr>& indices) const {
    Array<Expr> out = rows.Mins();
    for (size_t k = 0; k < dims.size(); ++k) out.Set(dims[k], out[dims[k]] + indices[k]);
    return out;
  }
  /*! Number of the first element that the tile has of the row of an element. */
  Expr First(Array<Expr> indices) const {
    indices.Set(indices.size() - 1, MakeInt(0));
    const Array<Expr> element = Element(indices);
    Expr place = MakeInt(0);
    for (size_t d = 0; d < shape.size(); ++d) place = place * shape[d] + element[d];
    return place;
  }
  /*! The load by vectors. */
  Stmt Fill(const Span& span) const {
    Array<Expr> here;
    std::vector<Var> axes;
    for (const Expr& extent : BufferOf(wide)->shape) {
      axes.push_back(MakeVar("r" + std::to_string(axes.size()), extent->dtype()));
      here.push_back(axes.back());
    }
    const Expr begin = FloorDivOf(First(here), vector) * vector;
    Stmt s = MakeStore(wide, LoadOf(flat, {begin + axes.back()}), here, span);
    for (size_t k = axes.size(); k-- > 0;) {
      s = MakeFor(axes[k], BufferOf(wide)->shape[k], ForKind::kParallel, s, span);
    }
    return s;
  }
  /*! An element of the tile. */
  Expr Read(const Array<Expr>& indices, Analyzer* analyzer) const {
    const Array<Expr> element = Element(indices);
    Expr inside;
    for (size_t d = 0; d < shape.size(); ++d) {
      const Expr is_element = element[d] < MakeInt(element[d]->dtype(), shape[d]);
      if (analyzer->CanProve(is_element)) continue;
      inside = inside.defined() ? inside && is_element : is_element;
    }
    Array<Expr> place = indices;
    place.Set(place.size() - 1, FloorModOf(First(indices), vector) + indices.back());
    const Expr value = LoadOf(wide, place);
    return inside.defined() ? IfThenElseOf(inside, value, ZeroOf(value->dtype())) : value;
  }
};

/*! Reads a tile in its new form. What is left names the tile. */
class RowReader : public StmtExprMutator {
 public:
  RowReader(const OddRows& rows, Analyzer* analyzer) : rows_(rows), analyzer_(analyzer) {}

 protected:
  Stmt Mutate_(const ForNode* op) final {
    analyzer_->BindLoop(op);
    return Default<Stmt>(op);
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* copy = AsTileOp(s, kCopy);
    if (!copy) return AsTileOp(s) ? s : Default<Stmt>(op);
    const bool reads = TileRegion::From(copy->args[0]).buffer.same_as(rows_.tile);
    const Stmt loops = reads ? LoopsOfCopy(s) : Stmt();
    return loops.defined() ? Mutate(loops) : s;
  }
  Expr Mutate_(const CallNode* op) final {
    return AsAddressOf(GetRef<Expr>(op)) ? GetRef<Expr>(op) : Default<Expr>(op);
  }
  Expr Mutate_(const TensorLoadNode* op) final {
    if (!op->source.same_as(rows_.tile)) return Default<Expr>(op);
    return rows_.Read(MutateArray(op->indices), analyzer_);
  }

 private:
  const OddRows& rows_;
  Analyzer* analyzer_;
};

/*! Shifts the rows of a kernel's tiles. */
class RowShifter : public StmtExprMutator {
 public:
  explicit RowShifter(const Stmt& kernel) : names_(kernel), written_(WrittenBuffers(kernel)) {}

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    return scope_.Within(op, [&] { return Default<Stmt>(op); });
  }
  Stmt Mutate_(const SBlockNode* op) final {
    scope_.BindTo(&analyzer_);
    annotated_ = AnnotatedBuffers(op->annotations);
    SBlock block = GetRef<SBlock>(op);
    for (const Var& tile : op->alloc_buffers) {
      if (IsShared(tile)) block = Shifted(block, tile);
    }
    return block;
  }

 private:
  /*! The block in which the tile has shifted rows, or as it is. */
  SBlock Shifted(const SBlock& block, const Var& tile) {
    tile_ = tile;
    done_.reset();
    const Stmt body = Walk(block->body);
    if (!done_ || Uses(body, tile)) return block;
    auto out = make_object<SBlockNode>(*block.get());
    out->body = MakeSeq({DeclareView(done_->flat, done_->rows.buffer, block->body->span), body});
    out->alloc_buffers =
        block->alloc_buffers.Map([&](const Var& v) { return v.same_as(tile) ? done_->wide : v; });
    return SBlock(out);
  }

  /*! Statements that all threads come to. */
  Stmt Walk(const Stmt& s) {
    if (const auto* loop = s.as<ForNode>(); loop && loop->kind == ForKind::kSerial) {
      analyzer_.BindLoop(loop);
      const bool may_shift = IsPipelined(loop) && !done_;
      return With(loop, &ForNode::body, may_shift ? OfPipeline(loop->body) : Walk(loop->body));
    }
    if (!s.as<SeqStmtNode>()) return s;
    std::vector<Stmt> out;
    for (const Stmt& t : FlatSeq(s)) out.push_back(Walk(t));
    return MakeSeq(out);
  }

  /*! A load of the tile, and its users behind it. */
  Stmt OfPipeline(const Stmt& body) {
    std::vector<Stmt> out;
    for (const Stmt& s : FlatSeq(body)) {
      if (done_) {
        out.push_back(RowReader(*done_, &analyzer_).Mutate(s));
      } else {
        done_ = OddRowsOf(s);
        out.push_back(done_ ? done_->Fill(s->span) : s);
      }
    }
    return MakeSeq(out);
  }

  /*! What the statement loads into the tile, if it is rows that no vector fits. */
  std::optional<OddRows> OddRowsOf(const Stmt& s) {
    const CallNode* copy = AsTileOp(s, kCopy);
    if (!copy || !IsTileLoad(s) || !TileOpAttrs(copy).empty()) return std::nullopt;
    const TileRegion rows = TileRegion::From(copy->args[0]), dst = TileRegion::From(copy->args[1]);
    if (!dst.buffer.same_as(tile_) || !dst.IsWhole() || !IsPlain(rows.buffer) ||
        !AllOf(BufferOf(tile_)->shape, IsKnownExtent)) {
      return std::nullopt;
    }
    const DLDataType type = DTypeOf(rows.buffer);
    OddRows odd{rows, tile_, {}, {}, ConstShape(rows.buffer), NonUnitDims(rows), 0};
    odd.vector = VectorOf(rows.buffer);
    const std::vector<int64_t> tile = ConstShape(tile_);
    const bool fits = type == DTypeOf(tile_) && odd.dims.size() == tile.size() &&
                      NonUnitDims(dst).size() == tile.size() && tile.size() > 1 &&
                      odd.dims.back() + 1 == odd.shape.size();
    if (!fits || tile.back() < kLeastVectors * odd.vector) return std::nullopt;
    for (const Range& r : rows.ranges) {
      if (!IsArithmetic(r->min) || !analyzer_.CanProve(r->min >= MakeInt(r->min->dtype(), 0))) {
        return std::nullopt;
      }
    }
    Array<Expr> longer = BufferOf(tile_)->shape;
    longer.Set(longer.size() - 1, MakeInt(tile.back() + odd.vector));
    odd.wide = MakeBuffer(std::string(tile_->name), type, longer, ScopeOf(tile_));
    odd.flat = AsOneRow(rows.buffer);
    return odd;
  }

  /*! A tensor in one piece, which does not change and has one name. */
  bool IsPlain(const Var& tensor) const {
    return IsInOnePiece(tensor) && HasOddRows(tensor) && DTypeOf(tensor).bits < 8 * kCpAsyncBytes &&
           !names_.IsView(tensor) && !written_.count(tensor.get()) &&
           !Contains(annotated_, tensor) && !Contains(annotated_, tile_);
  }

  const Views names_;
  const std::unordered_set<const Object*> written_;
  KernelScope scope_;
  Analyzer analyzer_;
  std::vector<Var> annotated_;
  Var tile_;
  /*! The tile's load. */
  std::optional<OddRows> done_;
};

/*! Threads do the same, and no tensor has two names. */
bool MayShift(const Stmt& kernel) {
  return !HasProducts(kernel) && !HasNode<AttrStmtNode>(kernel, [](const AttrStmtNode* op) {
    return op->attr_key == kThreadRange || op->attr_key == kWsOp || op->attr_key == kAliased;
  });
}

}  // namespace

PrimFunc ShiftRows(PrimFunc f) {
  // Whole vectors may end behind the tensor.
  if (!TargetOf(f).Has(Feature::kCpAsync) || DisablesSafeMemoryAccess()) return f;
  return ForEachKernel(f, [](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    return MayShift(kernel) ? RowShifter(kernel).Mutate(kernel) : kernel;
  });
}

namespace {
TL_REGISTER_PASS(ShiftRows);
}  // namespace
}  // namespace tl
