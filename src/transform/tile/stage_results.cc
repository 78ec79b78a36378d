/*!
 * StageResults: results of MMAs go to tensors through shared memory that the kernel's loops leave.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, where `copy(C_local, C[..])` of a whole accumulator to a tensor of 16-bit elements
 *      is `copy(C_local, C_local_result)`, which stmatrix can make, and
 *      `copy(C_local_result, C[..])`, which TMA can. So are copies of a fragment that a loop makes
 *      of an accumulator, element by element (`total[i, j] += C_local[i, j] * scale[i]`), which
 *      gets its layout. The tile has no more bytes than those that pipelined loops in front of it
 *      load into, so that PlanSharedMemory has room for it there. In a loop over tiles, whose
 *      pipeline already loads the next tile, it has memory of its own, where as many blocks share a
 *      multiprocessor with it as without. `atomic_add(C[..], C_local)` is
 *      `copy(C_local, C_local_result)` and an addition by TMA, where two blocks share a
 *      multiprocessor.
 * Establishes: nothing else. A warp's own stores would be of half sectors: a lane of an accumulator
 *      has two neighbours of a row, four lanes have eight. Its additions would be of pairs.
 * Left alone: a program that has such a tile of its own. A copy in a branch, or in a loop that has
 *      no pipelined loop in front of the copy: nothing would hide its barrier and the wait for its
 *      store. A copy that has keywords, or is not the tensor's only use, under any name. A target
 *      without TMA; tensors whose rows are no multiples of 16 bytes, which TMA does not take.
 * Refuses nothing.
 */
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "../../op/copy_instruction.h"
#include "../../op/gemm.h"
#include "../../op/matrix_copy.h"
#include "../../op/tma_reduce.h"
#include "../../op/tma_select.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "tile_stager.h"
#include "warp_roles.h"

namespace tl {
namespace {

/*! Bits of an element of a result. */
constexpr int64_t kResultBits = 16;

/*! What of a kernel decides: its accumulators and what is made of them, how often it names each
 * buffer beside declarations of views. */
class Facts : public StmtExprVisitor {
 public:
  std::unordered_map<const Object*, int> uses;

  /*! Has the fragment elements of an accumulator, in the same places? */
  bool HasResults(const Var& fragment) const {
    std::vector<const Object*> known{fragment.get()};
    for (size_t i = 0; i < known.size(); ++i) {
      if (accumulators_.count(known[i])) return true;
      const auto [begin, end] = made_of_.equal_range(known[i]);
      for (auto it = begin; it != end; ++it) {
        if (std::find(known.begin(), known.end(), it->second) == known.end()) {
          known.push_back(it->second);
        }
      }
    }
    return false;
  }

 protected:
  void Visit_(const EvaluateNode* op) final {
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    if (call && IsGemm(call)) accumulators_.insert(ParseGemm(call, op->span).c.buffer.get());
    Default(op);
  }
  void Visit_(const BufferStoreNode* op) final {
    if (IsFragment(op->buffer)) {
      ForEachIn<TensorLoadNode>(op->value, [&](const TensorLoadNode* load) {
        const Var from = load->source.as_or_throw<Var>();
        if (IsFragment(from) && IsSamePlace(op->indices, load->indices)) {
          made_of_.emplace(op->buffer.get(), from.get());
        }
      });
    }
    Default(op);
  }
  void Visit_(const DeclBufferNode*) final {}
  void Visit_(const VarNode* op) final { ++uses[op]; }

 private:
  /*! Whether both are the same variables, which those of a loop over a whole fragment are. */
  static bool IsSamePlace(const Array<Expr>& a, const Array<Expr>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Expr& x, const Expr& y) { return x.as<VarNode>() && x.same_as(y); });
  }

  std::unordered_set<const Object*> accumulators_;
  std::unordered_multimap<const Object*, const Object*> made_of_;
};

/*! Strides that a tensor map takes, the last of them 1; those that the call decides are multiples
 * of 16 bytes by what the compiler knows of them. */
bool HasMapStrides(const Var& tensor) {
  const BufferTypeNode* type = BufferOf(tensor);
  if (!type->strides.empty() && !IsConst(type->strides.back(), 1)) return false;
  Analyzer analyzer;
  for (size_t d = 0; d + 1 < type->shape.size(); ++d) {
    const auto bytes = analyzer.ModularSet(analyzer.Simplify(TmaByteStride(type, d)));
    if (bytes.coeff % kTmaChunkBytes || bytes.base % kTmaChunkBytes) return false;
  }
  return true;
}

class ResultStager : public TileStager {
 public:
  ResultStager(const PrimFunc& f, const Stmt& kernel, const Target& target)
      : TileStager(kernel, target), params_(f->params), views_(kernel) {
    facts_(kernel);
  }

 private:
  /*! The kernel's threads come to it once, or once for each tile. */
  Stmt StagedStatement(const Stmt& s) final {
    const int64_t loaded = shared_.LoadedBytes(s);
    const auto* loop = s.as<ForNode>();
    if (loop && loop->kind == ForKind::kSerial && !IsPipelined(loop) && loaded) {
      return OfTiles(loop);
    }
    free_ += loaded;
    if (const CallNode* call = AsTileOp(s, kCopy)) return OfCopy(call, s);
    if (const CallNode* call = AsTileOp(s, kAtomic)) return OfAddition(call, s);
    return s;
  }

  /*! A loop over tiles, each of which a pipelined loop in it loads. */
  Stmt OfTiles(const ForNode* loop) {
    const int64_t outside = free_;
    const bool was_in_loop = in_loop_;
    free_ = 0;
    in_loop_ = true;
    const For staged = StagedLoop(loop);
    free_ = outside;
    in_loop_ = was_in_loop;
    return staged;
  }

  /*! Do as many blocks fit on a multiprocessor, with warps that load, if each has `bytes` more? */
  bool HasRoom(int64_t bytes, int64_t threads) const {
    if (!shared_.bytes || PassConfigFlag(kSpareShared, false)) return false;
    const auto blocks = [&](int64_t shared) {
      return target_.BlocksThatFit(threads + kWarpGroupThreads, shared);
    };
    const int64_t now = *shared_.bytes + taken;
    return blocks(now + bytes) > 0 && blocks(now + bytes) == blocks(now);
  }

  Stmt OfCopy(const CallNode* call, const Stmt& s) {
    const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
    const DLDataType t = DTypeOf(dst.buffer);
    if (!IsResult(call, src, dst) || int64_t(t.bits) * t.lanes != kResultBits) return s;
    const Array<Expr>& shape = BufferOf(src.buffer)->shape;
    const bool in_rows = ToInt(shape[shape.size() - 1]) * kResultBits / 8 % kTmaChunkBytes == 0;
    const TileRegion tile = TileOf(src, dst);
    const int64_t threads = scope_.Threads(s->span).threads;
    if (!in_rows || !WhyNotMatrices(kByStmatrix, src, tile, target_, threads).empty()) return s;
    return Through(tile, src, CallOp(kCopy, {tile.ToExpr(), dst.ToExpr()}), s);
  }

  /*! TMA adds rows of a tile, where threads would add pairs of elements: beside another block's
   * products. A block that is alone on its multiprocessor waits for it (35.7 us, by threads 34.2).
   */
  Stmt OfAddition(const CallNode* call, const Stmt& s) {
    if (!call->args[1].as<TensorRegionNode>() || ToString(call->args[2]) != "add" ||
        ToString(call->args[3]) != "relaxed") {
      return s;
    }
    const TileRegion dst = TileRegion::From(call->args[0]), src = TileRegion::From(call->args[1]);
    if (!IsResult(call, src, dst) || !shared_.bytes) return s;
    const int64_t threads = scope_.Threads(s->span).threads + kWarpGroupThreads;
    if (target_.BlocksThatFit(threads, *shared_.bytes) < 2) return s;
    const TileRegion tile = TileOf(src, dst);
    Array<Expr> args = call->args;
    args.Set(1, tile.ToExpr());
    const Call add = WithTileOpAttr(CallOp(kAtomic, args).get(), "use_tma", int64_t(1));
    Analyzer analyzer;
    const TmaDecision tma =
        SelectTma(add.get(), TmaMoment::kCandidate, Layout(), target_, &analyzer);
    return tma.IsMade() ? Through(tile, src, add, s) : s;
  }

  static TileRegion TileOf(const TileRegion& src, const TileRegion& dst) {
    return TileRegion::Whole(MakeBuffer(std::string(src.buffer->name) + "_result",
                                        DTypeOf(dst.buffer), BufferOf(src.buffer)->shape,
                                        "shared.dyn"));
  }

  /*! The copy to a tile, and what becomes of it then; `s` where there is no room. */
  Stmt Through(const TileRegion& tile, const TileRegion& src, const Call& then, const Stmt& s) {
    const int64_t bytes = BytesOfBuffer(tile.buffer);
    if (bytes > free_) return s;
    if (in_loop_ && !HasRoom(bytes, scope_.Threads(s->span).threads)) return s;
    if (in_loop_) taken += bytes;
    free_ -= bytes;
    tiles_.push_back(tile.buffer);
    const std::vector<Stmt> stmts = {
        MakeEvaluate(CallOp(kCopy, {src.ToExpr(), tile.ToExpr()}), s->span),
        MakeEvaluate(then, s->span)};
    return MakeSeq(stmts);
  }

  /*! Whether a call takes all of a fragment of results to a region of a tensor that the kernel uses
   * nowhere else, of which a tensor map says where elements lie. */
  bool IsResult(const CallNode* call, const TileRegion& src, const TileRegion& dst) {
    if (!TileOpAttrs(call).empty() || !facts_.HasResults(src.buffer) || !IsFragment(src.buffer) ||
        !src.IsWhole()) {
      return false;
    }
    const Var tensor = views_.RootOf(dst.buffer);
    if (!IsGlobal(tensor) || !Contains(params_, tensor)) return false;
    int uses = facts_.uses[tensor.get()];
    for (const Var& view : views_.all) {
      if (views_.IsSameMemory(view, tensor)) uses += facts_.uses[view.get()];
    }
    return uses == 1 && DTypeOf(dst.buffer) == DTypeOf(tensor) && HasMapStrides(dst.buffer);
  }

  const Array<Var> params_;
  const Views views_;
  Facts facts_;
  /*! Bytes of the tiles of loops in front, that no result has. */
  int64_t free_ = 0;
  /*! The statements are of a loop over tiles. */
  bool in_loop_ = false;
};

PrimFunc StageResults(PrimFunc f) {
  if (!TargetOf(f).Has(Feature::kTma)) return f;
  return WithStagedTiles(
      f, [&](const Stmt& kernel, const Target& target) { return ResultStager(f, kernel, target); });
}

TL_REGISTER_PASS(StageResults);

}  // namespace
}  // namespace tl
