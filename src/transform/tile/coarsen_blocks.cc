/*!
 * CoarsenBlocks: many blocks of little work each become fewer blocks of more (block coarsening).
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, where a block does the work of R neighbours along one axis of the grid, if each
 *      moves fewer bytes of tensors than `launch_bytes` of its chip. Tiles have a dimension of R
 *      in front, parallel loops and copies a loop over R around them, and reductions reduce the
 *      dimension behind. Where a block had the only row of its fragment in all of its warps, each
 *      warp then has rows of its own.
 * Establishes: the launch of blocks does not bind. One takes 0.6 ns on an H200, in which memory
 *      moves 2.6 KB. Reductions of a row that had all warps need no barrier.
 *      Where the launch decides how many blocks there are, a thread has a vector of a row.
 * Left alone: grids of fewer than `launch_blocks` blocks; fragments of which a thread would then
 *      have more than kMostElements, and shared memory beyond kMostShared; kernels with other
 *      memory than tensors, fragments and shared tiles, with names of threads, with other operators
 *      than copies, fills and reductions of whole fragments, with branches at block level, whose
 *      tiles or loops have layouts or stages, and which call what has an effect; grids that R does
 *      not divide, if accesses behind the end of a tensor are not guarded, or a place in a tile
 *      depends on the block; numbers of blocks that an int32 would not hold.
 * Refuses nothing.
 */
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../layout/layout.h"
#include "../../op/copy_instruction.h"
#include "../../op/region_nest.h"
#include "../../target/multiprocessors.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/pass_configs.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "buffer_bytes.h"

namespace tl {
namespace {

constexpr int64_t kMostCoarsening = 16;
/*! Iterations of a loop for which the call decides how many it has. */
constexpr int64_t kMany = 8192;
/*! Of all fragments, in the registers of one thread. */
constexpr int64_t kMostElements = 64;
/*! Of one fragment, where the launch decides how many blocks there are: 16 bytes of 16 bits. */
constexpr int64_t kElementsOfVector = 8;

/*! Bytes of tiles in shared memory, of which several blocks are to fit on a multiprocessor. */
constexpr int64_t kMostShared = 16384;

struct BlockAxis {
  Var variable;
  Expr extent;
};

/*! What a kernel launches, and whether its block can do the work of several. */
class Reader : public StmtExprVisitor {
 public:
  std::vector<BlockAxis> axes;
  /*! Fragments and tiles in shared memory. */
  std::vector<Var> tiles;
  int64_t threads = 1;
  /*! That a block moves from and to tensors. */
  int64_t bytes = 0;
  /*! Iterations of its longest parallel loop. */
  int64_t points = 0;
  bool fits = true;
  /*! Where in a tile something is depends on the block: a neighbour that is none may be outside. */
  bool places_by_block = false;

  /*! By the axes of the grid, or by names at block level. */
  bool NamesBlock(const ObjectRef& node) const {
    return AnyOf(bound_, [&](const Var& v) { return Uses(node, v); }) ||
           AnyOf(axes, [&](const BlockAxis& axis) { return Uses(node, axis.variable); });
  }

 protected:
  void Visit_(const AttrStmtNode* op) final {
    fits &= op->attr_key == kThreadExtent;
    if (!fits) return;
    const IterVar axis = op->node.cast<IterVar>();
    if (IsBlockAxis(axis)) {
      axes.push_back({axis->var, op->value});
    } else {
      threads *= AsInt(op->value).value_or(0);
      names_.push_back(axis->var);
    }
    Visit(op->body);
  }
  void Visit_(const SBlockNode* op) final {
    fits &= op->annotations.empty() && tiles.empty();
    for (const Var& v : op->alloc_buffers) {
      fits &= IsTile(v);
      tiles.push_back(v);
    }
    for (const Var& name : names_) fits &= !Uses(op->body, name);
    if (fits) AtBlockLevel(op->body, 1);
  }

 private:
  void AtBlockLevel(const Stmt& s, int64_t times) {
    if (s.as<SeqStmtNode>()) {
      for (const Stmt& t : FlatSeq(s)) AtBlockLevel(t, times);
      return;
    }
    if (const auto* bind = s.as<BindNode>()) {
      fits &= IsPureInteger(bind->value);
      bound_.push_back(bind->var);
      return;
    }
    const auto* loop = s.as<ForNode>();
    if (loop && loop->kind == ForKind::kSerial && loop->annotations.empty()) {
      const int64_t extent = AsInt(loop->extent).value_or(0);
      fits &= extent > 0 && AsInt(loop->min).has_value() && !loop->step;
      return AtBlockLevel(loop->body, times * extent);
    }
    if (const Expr fact = AssumptionOf(s); fact.defined()) {
      fits &= IsArithmetic(fact) && !NamesBlock(fact);
      return;
    }
    if (s.as<EvaluateNode>()) return Operator(s, times);
    fits &= s.as<BufferStoreNode>() || (loop && loop->kind == ForKind::kParallel);
    int64_t iterations = 1;
    ForEachIn<ForNode>(s,
                       [&](const ForNode* op) { iterations *= AsInt(op->extent).value_or(kMany); });
    points = std::max(points, iterations);
    Elements(s, times);
  }

  void Operator(const Stmt& s, int64_t times) {
    if (const Stmt loops = LoopsOfCopy(s); loops.defined()) return Elements(loops, times);
    const CallNode* call = AsTileOp(s);
    fits &= call != nullptr;
    if (!fits) return;
    if (IsCallTo(call, kFill)) {
      fits &= IsTile(TileRegion::From(call->args[0]).buffer) && IsArithmetic(call->args[1]) &&
              !NamesBlock(call->args[1]);
    } else if (IsCallTo(call, kReduce)) {
      for (int i : {0, 1}) {
        const TileRegion region = TileRegion::From(call->args[i]);
        fits &= IsFragment(region.buffer) && region.IsWhole();
      }
    } else {
      fits = false;
    }
  }

  /*! Loops over elements, and single ones. */
  void Elements(const Stmt& s, int64_t times) {
    if (const auto* loop = s.as<ForNode>()) {
      const int64_t extent = AsInt(loop->extent).value_or(0);
      fits &= extent > 0 && loop->annotations.empty() && !loop->step &&
              (loop->kind == ForKind::kParallel || loop->kind == ForKind::kSerial);
      return Elements(loop->body, times * extent);
    }
    if (s.as<SeqStmtNode>()) {
      for (const Stmt& t : FlatSeq(s)) Elements(t, times);
      return;
    }
    if (const auto* branch = s.as<IfThenElseNode>()) {
      Values(branch->condition, times);
      Elements(branch->then_case, times);
      if (branch->else_case) Elements(branch->else_case.value(), times);
      return;
    }
    const auto* store = s.as<BufferStoreNode>();
    fits &= store != nullptr;
    if (!fits) return;
    Access(store->buffer, store->indices, times);
    for (const Expr& index : store->indices) Values(index, times);
    Values(store->value, times);
  }

  void Values(const Expr& e, int64_t times) {
    // A neighbour behind the end of the grid computes with zeros, by which it may not divide.
    fits &= !HasEffect(e) &&
            !HasNode<FloorDivNode>(e, [](const FloorDivNode* op) { return !AsInt(op->b); }) &&
            !HasNode<FloorModNode>(e, [](const FloorModNode* op) { return !AsInt(op->b); });
    ForEachIn<TensorLoadNode>(e, [&](const TensorLoadNode* op) {
      Access(op->source.as_or_throw<Var>(), op->indices, times);
    });
  }

  void Access(const Var& buffer, const Array<Expr>& indices, int64_t times) {
    fits &= IsTile(buffer) || IsGlobal(buffer);
    if (IsTile(buffer)) {
      places_by_block |=
          AnyOf(indices, [&](const Expr& i) { return NamesBlock(i) || !IsArithmetic(i); });
    }
    if (IsGlobal(buffer)) bytes += times * DTypeOf(buffer).bits / 8;
  }

  std::vector<Var> names_, bound_;
};

/*! Gives a block the work of `times` neighbours along an axis. */
class Coarsener : public StmtExprMutator {
 public:
  Coarsener(const BlockAxis& axis, int64_t times, const std::vector<Var>& tiles)
      : axis_(axis), times_(times) {
    for (const Var& v : tiles) {
      Array<Expr> shape{MakeInt(times)};
      for (const Expr& extent : BufferOf(v)->shape) shape.push_back(extent);
      const Var wide = MakeBuffer(std::string(v->name), DTypeOf(v), shape, ScopeOf(v));
      wide_.emplace(v.get(), wide);
    }
  }

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    const IterVar axis = op->node.cast<IterVar>();
    if (!axis->var.same_as(axis_.variable)) return Default<Stmt>(op);
    // Rounded up, without a sum that could be more than an int32 holds.
    const Expr extent = FloorDivOf(op->value + (-1), times_) + 1;
    AttrStmt attr = WithAxis(op, axis->var, extent);
    attr.CopyOnWrite()->body = Mutate(op->body);
    return attr;
  }
  Stmt Mutate_(const SBlockNode* op) final {
    auto block = make_object<SBlockNode>(*op);
    block->alloc_buffers = op->alloc_buffers.Map([&](const Var& v) { return wide_.at(v.get()); });
    block->body = AtBlockLevel(op->body);
    return SBlock(block);
  }

  Stmt Mutate_(const BufferStoreNode* op) final {
    const Expr value = Mutate(op->value);
    const auto it = wide_.find(op->buffer.get());
    const Array<Expr> indices = MutateArray(op->indices);
    if (it == wide_.end()) {
      const Stmt store = MakeStore(op->buffer, value, indices, op->span);
      if (AsInt(axis_.extent).value_or(1) % times_ == 0) return store;
      return MakeIf(axis_.variable * times_ + neighbour_ < axis_.extent, store, op->span);
    }
    return MakeStore(it->second, value, Within(indices), op->span);
  }
  Expr Mutate_(const TensorLoadNode* op) final {
    const auto it = wide_.find(op->source.get());
    if (it == wide_.end()) return Default<Expr>(op);
    return LoadOf(it->second, Within(MutateArray(op->indices)));
  }
  Expr Mutate_(const VarNode* op) final {
    if (op == axis_.variable.get()) return axis_.variable * times_ + neighbour_;
    const auto it = values_.find(op);
    return it == values_.end() ? GetRef<Expr>(op) : Mutate(it->second);
  }

 private:
  Stmt AtBlockLevel(const Stmt& s) {
    if (s.as<SeqStmtNode>()) {
      std::vector<Stmt> out;
      for (const Stmt& t : FlatSeq(s)) {
        const auto* bind = t.as<BindNode>();
        if (bind) {
          values_[bind->var.get()] = bind->value;
        } else {
          out.push_back(AtBlockLevel(t));
        }
      }
      return MakeSeq(out);
    }
    if (AssumptionOf(s).defined()) return s;
    const auto* loop = s.as<ForNode>();
    if (loop && loop->kind == ForKind::kSerial) {
      return With(loop, &ForNode::body, AtBlockLevel(loop->body));
    }
    const Stmt loops = LoopsOfCopy(s);
    if (s.as<EvaluateNode>() && !loops.defined()) return OnAll(AsTileOp(s), s->span);
    neighbour_ = MakeVar("neighbour", axis_.variable->dtype());
    const Expr extent = MakeInt(neighbour_->dtype(), times_);
    const Stmt body = Mutate(loops.defined() ? loops : s);
    return MakeFor(neighbour_, extent, ForKind::kParallel, body, s->span);
  }

  /*! A fill or a reduction, of the fragments of all neighbours. */
  Stmt OnAll(const CallNode* op, const Span& span) const {
    auto call = make_object<CallNode>(*op);
    const bool reduces = IsCallTo(op, kReduce);
    for (int i = 0; i < (reduces ? 2 : 1); ++i) {
      const TileRegion own = TileRegion::From(op->args[i]);
      TileRegion all{wide_.at(own.buffer.get()), {MakeRange(MakeInt(0), MakeInt(times_))}};
      for (const Range& r : own.ranges) all.ranges.push_back(r);
      call->args.Set(i, all.ToExpr());
    }
    if (reduces) call->args.Set(3, MakeInt(ToInt(op->args[3]) + 1));
    return MakeEvaluate(Call(call), span);
  }

  Array<Expr> Within(const Array<Expr>& indices) const {
    Array<Expr> out{neighbour_};
    for (const Expr& i : indices) out.push_back(i);
    return out;
  }

  const BlockAxis axis_;
  const int64_t times_;
  std::unordered_map<const Object*, Var> wide_;
  Var neighbour_;
  /*! Of names at block level, which are others for each neighbour. */
  std::unordered_map<const Object*, Expr> values_;
};

/*! How many blocks become one; 1 for kernels that stay as they are. */
int64_t TimesOf(const Reader& kernel, const Multiprocessors& chip) {
  std::optional<int64_t> blocks = 1;
  int64_t elements = 0, largest = kernel.points, shared = 0, times = 1;
  for (const BlockAxis& axis : kernel.axes) {
    const std::optional<int64_t> extent = AsInt(axis.extent);
    blocks = blocks && extent ? std::optional<int64_t>(*blocks * *extent) : std::nullopt;
  }
  for (const Var& v : kernel.tiles) {
    if (IsShared(v)) shared += BytesOfBuffer(v);
    if (IsShared(v)) continue;
    elements += Product(ConstShape(v));
    largest = std::max(largest, Product(ConstShape(v)));
  }
  if (!kernel.fits || !kernel.bytes || blocks.value_or(chip.launch_blocks) < chip.launch_blocks)
    return 1;
  elements = blocks ? std::max(elements, largest) : largest;
  const int64_t most = kernel.threads * (blocks ? kMostElements : kElementsOfVector);
  while (kernel.bytes * times < chip.launch_bytes && times < kMostCoarsening &&
         2 * times * elements <= most && 2 * times * shared <= kMostShared) {
    times *= 2;
  }
  return times;
}

/*! Whether a block may do the work of neighbours behind the end of the grid, whose numbers are
 * int32. What they read is no element, and LegalizeSafeMemoryAccess makes it zeros in tensors, not
 * in tiles. */
bool MayRunPastEnd(const Reader& kernel, const BlockAxis& axis, int64_t times) {
  const std::optional<int64_t> extent = AsInt(axis.extent);
  if (extent && *extent > std::numeric_limits<int32_t>::max() - times) return false;
  const bool ends_with_block = extent && *extent % times == 0;
  return ends_with_block || (!DisablesSafeMemoryAccess() && !kernel.places_by_block);
}

Stmt Coarsened(const Stmt& kernel, const Multiprocessors& chip) {
  Reader reader;
  reader(kernel);
  const int64_t times = TimesOf(reader, chip);
  for (const BlockAxis& axis : reader.axes) {
    if (times > 1 && AsInt(axis.extent).value_or(times) >= times &&
        MayRunPastEnd(reader, axis, times)) {
      return Coarsener(axis, times, reader.tiles).Mutate(kernel);
    }
  }
  return kernel;
}

PrimFunc CoarsenBlocks(PrimFunc f) {
  const Multiprocessors chip = MultiprocessorsOf(TargetOf(f));
  return ForEachKernel(f,
                       [&](const AttrStmtNode* op) { return Coarsened(GetRef<Stmt>(op), chip); });
}

TL_REGISTER_PASS(CoarsenBlocks);

}  // namespace
}  // namespace tl
