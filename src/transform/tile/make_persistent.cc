/*!
 * MakePersistent: blocks of a grid of tiles take tile after tile.
 *
 * In:  a tile program under thread_extent attributes whose copies have their candidates.
 * Out: the same, where the blocks of a kernel are a loop over the tiles of its grid, in the order
 *      in which the hardware starts blocks, x first, or in that of T.use_swizzle:
 *        for wave in range(tl.tiles_of_block(tiles)):
 *            tile = tl.tile_of_block(wave, tiles), bx = tl.tile_index(tile, 1, columns), ..
 *            the kernel's statements
 *      The grid has one dimension, and its extent is the number of tiles; a launch may have any
 *      number of blocks. SplitHostDevice finds the call, and the host launches no more blocks than
 *      the device has multiprocessors.
 * Establishes: while the warps that compute store a tile, the producer loads the next one. Where a
 *      multiprocessor has room for one block, the end of a block and the start of the next one
 *      overlap with nothing else.
 * Left alone:
 *      - kernels without a producer or without products;
 *      - kernels of which two blocks have room on a multiprocessor, or none has room for memory of
 *        its own for what a tile stores; those whose memory the launch decides;
 *      - grids of one wave, and those whose extents the launch decides;
 *      - long tiles, unless all that an iteration does is to load and to multiply (IsWorthIt);
 *      - kernels whose tiles may take different times, since the hardware gives a tile to the
 *        multiprocessor that is free first: loops whose number of iterations depends on the block
 *        or on memory, pipelined loops in branches or in other loops;
 *      - clusters, orders of chiplets, kernels that wait for others or tell other blocks more than
 *        a sum, those that call functions of the user's text, which may ask for the number of the
 *        block, and what the program decides itself: how many blocks, which roles.
 * Refuses nothing.
 */
#include <algorithm>
#include <unordered_set>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../op/gemm.h"
#include "../../op/intrinsics.h"
#include "../../target/mma.h"
#include "../../target/multiprocessors.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../../tvm/tile_numbers.h"
#include "../each_kernel.h"
#include "register_estimate.h"
#include "shared_estimate.h"
#include "warp_roles.h"
#include "ws_schedule.h"

namespace tl {
namespace {

/*! The variables of a grid's axes, x first, and their extents. */
struct Grid {
  std::vector<Var> vars;
  std::vector<Expr> extents;

  Expr Tiles() const {
    Expr tiles = MakeInt(1);
    for (const Expr& extent : extents) tiles = tiles * extent;
    return Analyzer().Simplify(tiles);
  }
};

/*! The launch of a kernel: its grid and what says that its blocks are not independent. */
class LaunchReader : public StmtExprVisitor {
 public:
  Grid grid;
  bool is_special = false;
  /*! The order of T.use_swizzle, "" without one. */
  std::string order;

 protected:
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      const IterVar axis = op->node.cast<IterVar>();
      if (IsBlockAxis(axis)) {
        grid.vars.push_back(axis->var);
        grid.extents.push_back(op->value);
      }
    }
    for (const char* key : {kClusterDims, kMinBlocks, kThreadRange, kWsOp}) {
      is_special |= op->attr_key == key;
    }
    if (op->attr_key == kSwizzle) {
      // Several orders, or one of chiplets, go by the number of the block.
      is_special |= !order.empty();
      order = ToString(op->value);
      is_special |= order.find(',') != std::string::npos;
    }
    Default(op);
  }
};

/*! What of a kernel's statements keeps its blocks from taking tile after tile. */
class Independence : public StmtExprVisitor {
 public:
  explicit Independence(const Grid& grid) {
    for (const Var& v : grid.vars) of_block_.insert(v.get());
  }

  bool has_products = false;
  /*! Blocks depend on each other, or their tiles may take different times. */
  bool is_refused = false;

 protected:
  void Visit_(const SBlockNode* op) final {
    is_refused |= op->annotations.count(kWsSchedule) || op->annotations.count(kBarrierInit);
    Default(op);
  }
  void Visit_(const BindNode* op) final {
    if (!IsOfAllBlocks(op->value)) of_block_.insert(op->var.get());
    Default(op);
  }
  void Visit_(const WhileNode*) final { is_refused = true; }
  void Visit_(const IfThenElseNode* op) final { Within(op); }
  void Visit_(const ForNode* op) final {
    if (IsPipelined(op)) {
      is_refused |= depth_ > 0;
      has_products |= HasNode<EvaluateNode>(
          op->body, [](const EvaluateNode* e) { return IsGemm(GetRef<Stmt>(e)); });
    }
    is_refused |= !IsOfAllBlocks(op->min) || !IsOfAllBlocks(op->extent);
    Within(op);
  }
  void Visit_(const CallNode* op) final {
    const Expr call = GetRef<Expr>(op);
    for (const char* name : {kThreadReturn, kPdlSync, kPdlTrigger, kSyncGrid}) {
      is_refused |= IsCallTo(call, name);
    }
    // The user's text may ask for the number of the block.
    for (const char* name : {"tirx.call_extern", "tirx.call_pure_extern"}) {
      is_refused |= IsCallTo(call, name);
    }
    is_refused |= IsOfOtherBlocks(op);
    Default(op);
  }

 private:
  template <typename Node>
  void Within(const Node* op) {
    ++depth_;
    Default(op);
    --depth_;
  }

  /*! A number that is the same in all blocks, as far as its variables tell. */
  bool IsOfAllBlocks(const Expr& e) const {
    return IsArithmetic(e) &&
           !HasNode<VarNode>(e, [&](const VarNode* v) { return of_block_.count(v) != 0; });
  }

  /*! It tells other blocks, or learns from them, more than a sum or an extremum of what all do. */
  static bool IsOfOtherBlocks(const CallNode* call) {
    const IntrinsicEffects* effects = EffectsOf(call);
    if (!effects) return false;
    const bool is_update = *effects->update && effects->result == CallResult::kOfOperands;
    const std::vector<PointerAccess> accesses = PointerAccesses(call);
    const bool is_atomic =
        AnyOf(accesses, [](const auto& access) { return access.access == Access::kAtomic; });
    return (is_atomic || effects->tells == ThreadScope::kGrid) && !is_update;
  }

  std::unordered_set<const Object*> of_block_;
  int depth_ = 0;
};

/*! Puts the loop over tiles around a kernel's statements. The indices of a tile are calls: what is
 * known of them is what was known of the block's, their ranges. */
class TileLoop : public Substituter {
 public:
  TileLoop(const Grid& grid, const std::string& order, const Expr& tiles)
      : grid_(grid), order_(order), tiles_(tiles), block_(MakeVar("block", grid.vars[0]->dtype())) {
    for (size_t d = 0; d < grid.vars.size(); ++d) {
      const bool is_one = IsConst(grid.extents[d], 1);
      const Var& v = grid.vars[d];
      map[v.get()] = is_one ? Expr(MakeInt(v->dtype(), 0)) : MakeVar(v->name, v->dtype());
    }
  }

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key == kSwizzle) return Mutate(op->body);
    if (op->attr_key != kThreadExtent) return Substituter::Mutate_(op);
    const IterVar axis = op->node.cast<IterVar>();
    const bool is_first = axis->var.same_as(grid_.vars[0]);
    if (!is_first && !Contains(grid_.vars, axis->var)) return Substituter::Mutate_(op);
    const Expr extent = is_first ? tiles_ : Expr(MakeInt(axis->var->dtype(), 1));
    // Its variable would else be that of the old axis, which is replaced in the body.
    const Var var = is_first ? block_ : MakeVar(axis->var->name, axis->var->dtype());
    AttrStmt attr = WithAxis(op, var, extent);
    attr.CopyOnWrite()->body = Mutate(op->body);
    return attr;
  }
  Stmt Mutate_(const SBlockNode* op) final {
    if (in_kernel_) return Substituter::Mutate_(op);
    in_kernel_ = true;
    return With(op, &SBlockNode::body, Looped(op->body));
  }

 private:
  /*! The loop, behind declarations and facts that hold for all tiles. */
  Stmt Looped(const Stmt& s) {
    std::vector<Stmt> front, rest;
    for (const Stmt& t : FlatSeq(s)) {
      (rest.empty() && IsOfKernel(t) ? front : rest).push_back(t);
    }
    if (rest.size() == 1) {
      const auto* attr = rest[0].as<AttrStmtNode>();
      if (attr && attr->attr_key == kSwizzle) {
        front.push_back(Looped(attr->body));
        return MakeSeq(front);
      }
      if (attr) {
        auto n = make_object<AttrStmtNode>(*attr);
        n->body = Looped(attr->body);
        front.push_back(AttrStmt(n));
        return MakeSeq(front);
      }
    }
    const Span& span = rest.empty() ? s->span : rest[0]->span;
    const Var count = MakeVar("tiles"), wave = MakeVar("wave");
    front.push_back(MakeBind(count, CallOp(kTilesOfBlock, {tiles_}, PrimTy(kInt32)), span));
    front.push_back(MakeAssume(count < tiles_ + MakeInt(1), span));
    std::vector<Stmt> of_tile = Indices(wave, span);
    for (const Stmt& t : FlatSeq(Mutate(MakeSeq(rest)))) of_tile.push_back(t);
    front.push_back(MakeFor(wave, count, ForKind::kSerial, MakeSeq(of_tile), span));
    return MakeSeq(front);
  }

  /*! The tile's number and its indices. */
  std::vector<Stmt> Indices(const Var& wave, const Span& span) const {
    std::vector<Stmt> out;
    const auto name = [&](const Var& v, const char* op, const Array<Expr>& args) {
      out.push_back(MakeBind(v, CallOp(op, args, PrimTy(v->dtype())), span));
      out.push_back(MakeAssume(MakeInt(v->dtype(), -1) < v, span));
      out.push_back(MakeAssume(v < args.back(), span));
    };
    const Var tile = MakeVar("tile");
    name(tile, kTileOfBlock, {wave, tiles_});
    Expr below = MakeInt(1), number = tile;
    if (!order_.empty() && !IsConst(grid_.extents[2], 1)) {
      const Var in_plane = MakeVar("number");
      name(in_plane, kTileIndex,
           {tile, below, Analyzer().Simplify(grid_.extents[0] * grid_.extents[1])});
      number = in_plane;
    }
    for (size_t d = 0; d < grid_.vars.size(); ++d) {
      const Expr& extent = grid_.extents[d];
      const auto* index = map.at(grid_.vars[d].get()).as<VarNode>();
      if (index && d < 2 && !order_.empty()) {
        name(GetRef<Var>(index), kOrderedIndex,
             {StringOf("tl::" + order_), MakeInt(d), number, grid_.extents[0], grid_.extents[1],
              extent});
      } else if (index) {
        name(GetRef<Var>(index), kTileIndex, {tile, below, extent});
      }
      below = Analyzer().Simplify(below * extent);
    }
    return out;
  }

  /*! A view, an assumption or a number that no tile differs in. */
  bool IsOfKernel(const Stmt& s) const {
    const auto* bind = s.as<BindNode>();
    const bool declares =
        s.as<DeclBufferNode>() || (bind && IsArithmetic(bind->value)) || AssumptionOf(s).defined();
    return declares && !HasNode<VarNode>(s, [&](const VarNode* v) { return map.count(v) != 0; });
  }

  const Grid& grid_;
  const std::string order_;
  const Expr tiles_;
  const Var block_;
  /*! The walk is in the block of the kernel's statements. */
  bool in_kernel_ = false;
};

/*! What a block's multiprocessor does for a tile. */
class TileWork : public StmtExprVisitor {
 public:
  explicit TileWork(const Target& target) : product_bits_(MultiprocessorsOf(target).product_bits) {}

  /*! Clocks of the tensor cores, at their peak; unknown where the number of iterations is. */
  double clocks = 0;
  bool is_known = true;
  /*! Iterations of pipelined loops load and multiply, and threads compute nothing. */
  bool is_products = true;

 protected:
  void Visit_(const ForNode* op) final {
    const double outside = times_;
    const bool was_in_pipeline = in_pipeline_;
    const auto times = AsInt(op->extent);
    is_known &= times.has_value();
    times_ *= times.value_or(1);
    if (IsPipelined(op)) in_pipeline_ = true;
    if (in_pipeline_ && !IsPipelined(op)) is_products = false;
    Default(op);
    times_ = outside;
    in_pipeline_ = was_in_pipeline;
  }
  void Visit_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    if (IsGemm(s)) {
      const GemmOp gemm = ParseGemm(AsTileOp(s), op->span);
      const double bits = DTypeOf(gemm.b.buffer).bits;
      clocks += times_ * gemm.M() * gemm.N() * gemm.K() * bits / product_bits_;
    } else if (in_pipeline_ && AsTileOp(s) && !IsTileLoad(s)) {
      is_products = false;
    }
  }

 private:
  const double product_bits_;
  double times_ = 1;
  bool in_pipeline_ = false;
};

/*!
 * Whether starts and ends of blocks are worth the loop. An iteration of its pipelines has a few
 * instructions more, and each multiprocessor has a share of the tiles, however fast it is. On an
 * H200 that costs more than it saves where few tiles follow each other, and where tiles are long:
 * attention of 4096 keys, 128 x 128 in 66000 clocks, takes 0.8 % longer, of 2048 keys 2.7 % less.
 * Iterations that only load and multiply have issue slots to spare: GEMMs of four waves and more
 * gain with any K.
 */
bool IsWorthIt(const Stmt& kernel, int64_t tiles, const Target& target) {
  constexpr double kShort = 40000;
  TileWork work(target);
  work(kernel);
  const bool is_short = work.is_known && work.clocks < kShort;
  return is_short || (work.is_products && tiles >= 2 * MultiprocessorsOf(target).number);
}

/*! The launch and the statements allow it, and tiles are more than a wave. */
bool MayBePersistent(const LaunchReader& launch, const Stmt& kernel, const Target& target) {
  if (launch.is_special || launch.grid.vars.size() != 3) return false;
  // Where the launch decides, tiles may be one wave, which takes 2 % longer.
  const auto tiles = AsInt(launch.grid.Tiles());
  // Numbers of tiles, and of the tile behind the last one, are int32.
  constexpr int64_t kMostTiles = int64_t(1) << 30;
  if (!tiles || *tiles <= MultiprocessorsOf(target).number || *tiles > kMostTiles) return false;
  Independence reader(launch.grid);
  reader(kernel);
  return reader.has_products && !reader.is_refused && IsWorthIt(kernel, *tiles, target);
}

/*! One block has room on a multiprocessor: two have no registers, or no memory for the producer's
 * tiles. */
bool IsAlone(const Stmt& kernel, const PrimFunc& f) {
  const KernelInfo info = ReadKernelInfo(kernel, f);
  const WarpRoles roles = PlanProducerConsumer(info);
  if (!roles.IsApplied()) return false;
  const SharedEstimate shared(GetRef<Stmt>(info.block));
  // Else the launch decides how many blocks have room.
  if (!shared.bytes) return false;
  int64_t loaded = 0;
  for (const Channel& channel : roles.channels) {
    for (const Var& tile : channel.buffers) loaded += BytesOfBuffer(tile) * channel.versions;
  }
  const int64_t threads = info.threads + kWarpGroupThreads;
  const int64_t blocks = std::min(info.target->BlocksThatFit(threads, loaded),
                                  BlocksByRegisters(info, WidestAccumulators(info)));
  return blocks == 1 && info.target->BlocksThatFit(threads, *shared.bytes) > 0;
}

PrimFunc MakePersistent(PrimFunc f) {
  const Target& target = TargetOf(f);
  // Set by tilelang/jit/second_choice.py.
  if (PassConfigFlag("tl.second_choice.one_tile", false)) return f;
  if (MultiprocessorsOf(target).number == 0 || GetAttr(f, "tilelang_team") != nullptr) return f;
  if (PassConfigFlag(kSpareShared, false)) return f;
  bool takes_shared = false;
  const PrimFunc out = ForEachKernel(f, [&](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    LaunchReader launch;
    launch(kernel);
    if (!MayBePersistent(launch, kernel, target)) return kernel;
    const Stmt persistent = TileLoop(launch.grid, launch.order, launch.grid.Tiles()).Mutate(kernel);
    if (!IsAlone(persistent, f)) return kernel;
    // What a tile stores shares no memory with the next tile's loads.
    takes_shared = true;
    return persistent;
  });
  return takes_shared ? WithAttr(out, kTakesShared, MakeInt(1)) : out;
}

TL_REGISTER_PASS(MakePersistent);

}  // namespace
}  // namespace tl
