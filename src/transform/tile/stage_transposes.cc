/*!
 * StageTransposes: a loop that transposes from tensor to tensor goes through shared memory.
 *
 * In:  a tile program under thread_extent attributes, before instructions are selected.
 * Out: the same, where a parallel loop stores to a tensor whose rows run along one of its variables
 *      what it reads of a tensor whose rows run along another one:
 *        for i, j in T.Parallel(m, n): B[i, j] = A[j, i] + C[i, j]
 *      reads through a tile:
 *        for j, i in T.Parallel(n, m): A_tile[j, i] = A[j, i]
 *        for i, j in T.Parallel(m, n): B[i, j] = A_tile[j, i] + C[i, j]
 * Establishes: neighbouring threads read neighbours of a row, and store neighbours of a row.
 *      Without the tile they do one of both, and each element of the other one moves a sector of 32
 *      bytes.
 * Left alone: loops in branches and in pipelined loops, of kernels whose threads have roles, and
 *      whose layout the program gives; reads under a condition, and of tensors that the kernel
 *      writes; rows of a tile that are shorter than a sector; tiles for which shared memory has no
 *      room beside kLeastThreads of a multiprocessor.
 * Refuses nothing.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../op/call_attrs.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "buffer_bytes.h"
#include "tile_stager.h"
#include "warp_roles.h"

namespace tl {
namespace {

constexpr int64_t kSectorBytes = 32;
/*! Threads of a multiprocessor that shared memory has to leave room for: with fewer, loads in
 * flight do not fill the time that one takes. */
constexpr int64_t kLeastThreads = 512;

/*! A variable of a parallel loop. */
struct NestAxis {
  Var variable;
  int64_t extent;
};

/*! A nest of parallel loops around one store. */
struct Nest {
  std::vector<NestAxis> axes;
  const BufferStoreNode* store;

  const NestAxis* Find(const Var& v) const {
    for (const NestAxis& axis : axes) {
      if (axis.variable.same_as(v)) return &axis;
    }
    return nullptr;
  }
  /*! The axes that an expression names, `last` at the end. */
  std::vector<NestAxis> Of(const ObjectRef& node, const NestAxis& last) const {
    std::vector<NestAxis> out;
    for (const NestAxis& axis : axes) {
      if (&axis != &last && Uses(node, axis.variable)) out.push_back(axis);
    }
    out.push_back(last);
    return out;
  }
};

std::optional<Nest> AsNest(const ForNode* op) {
  Nest nest;
  for (;; op = op->body.as<ForNode>()) {
    const std::optional<int64_t> extent = AsInt(op->extent);
    if (op->kind != ForKind::kParallel || !extent || !IsConst(op->min, 0) || op->step ||
        !op->annotations.empty()) {
      return std::nullopt;
    }
    nest.axes.push_back({op->loop_var, *extent});
    if (!op->body.as<ForNode>()) break;
  }
  nest.store = op->body.as<BufferStoreNode>();
  return nest.store ? std::optional<Nest>(nest) : std::nullopt;
}

Stmt MakeNest(const std::vector<NestAxis>& axes, Stmt body, const Span& span) {
  for (size_t i = axes.size(); i-- > 0;) {
    const NestAxis& axis = axes[i];
    body = MakeFor(axis.variable, MakeInt(axis.variable->dtype(), axis.extent), ForKind::kParallel,
                   body, span);
  }
  return body;
}

/*! The axis along which an access runs in a row of its tensor: alone in the last index, with a
 * factor of 1, and in no other one. nullptr if there is none. */
const NestAxis* RowAxis(const Nest& nest, const Var& tensor, const Array<Expr>& indices) {
  const BufferTypeNode* type = BufferOf(tensor);
  if (!IsGlobal(tensor) || indices.empty() || type->dtype->dtype.lanes != 1 ||
      type->dtype->dtype.bits < 8 ||
      (!type->strides.empty() && !IsConst(type->strides.back(), 1))) {
    return nullptr;
  }
  const Expr& last = indices[indices.size() - 1];
  const NestAxis* found = nullptr;
  for (const NestAxis& axis : nest.axes) {
    if (!Uses(last, axis.variable)) continue;
    if (found) return nullptr;
    found = &axis;
  }
  if (!found || found->extent * type->dtype->dtype.bits / 8 < kSectorBytes) return nullptr;
  for (size_t d = 0; d + 1 < indices.size(); ++d) {
    if (Uses(indices[d], found->variable)) return nullptr;
  }
  Substituter first;
  first.map[found->variable.get()] = MakeInt(found->variable->dtype(), 0);
  Analyzer analyzer;
  const bool is_row = analyzer.CanProveEqual(last, first.Mutate(last) + found->variable);
  return is_row ? found : nullptr;
}

/*! Puts tiles into the places of reads that run across the rows of what the nest stores. */
class ReadStager : public StmtExprMutator {
 public:
  ReadStager(const Nest& nest, const NestAxis& row,
             const std::unordered_set<const Object*>& written)
      : nest_(nest), row_(row), written_(written) {}
  std::vector<Var> tiles;
  std::vector<Stmt> fills;

 protected:
  /*! Only one operand of a choice is read. */
  Expr Mutate_(const CallNode* op) final {
    return IsIfThenElse(op) ? GetRef<Expr>(op) : Default<Expr>(op);
  }
  Expr Mutate_(const AndNode* op) final { return GetRef<Expr>(op); }
  Expr Mutate_(const OrNode* op) final { return GetRef<Expr>(op); }

  Expr Mutate_(const TensorLoadNode* op) final {
    const Var tensor = op->source.as_or_throw<Var>();
    const NestAxis* along = RowAxis(nest_, tensor, op->indices);
    if (!along || along == &row_ || written_.count(tensor.get()) ||
        !Uses(op->indices, row_.variable)) {
      return Default<Expr>(op);
    }
    const std::vector<NestAxis> axes = nest_.Of(op->indices, *along);
    Substituter renamed;
    std::vector<NestAxis> own;
    Array<Expr> shape, here, there;
    for (const NestAxis& axis : axes) {
      const Var v = MakeVar(std::string(axis.variable->name), axis.variable->dtype());
      renamed.map[axis.variable.get()] = v;
      own.push_back({v, axis.extent});
      shape.push_back(MakeInt(axis.extent));
      here.push_back(axis.variable);
      there.push_back(v);
    }
    const Var tile =
        MakeBuffer(std::string(tensor->name) + "_tile", op->dtype(), shape, "shared.dyn");
    const Expr read = renamed.Mutate(GetRef<Expr>(op));
    tiles.push_back(tile);
    fills.push_back(
        MakeNest(own, MakeStore(tile, read, there, nest_.store->span), nest_.store->span));
    return LoadOf(tile, here);
  }

 private:
  const Nest& nest_;
  const NestAxis& row_;
  const std::unordered_set<const Object*>& written_;
};

class TransposeStager : public TileStager {
 public:
  TransposeStager(const Stmt& kernel, const Target& target)
      : TileStager(kernel, target), written_(WrittenBuffers(kernel)) {}

 private:
  /*! All threads of the kernel come to it together. */
  Stmt StagedStatement(const Stmt& s) final {
    const auto* loop = s.as<ForNode>();
    if (loop && loop->kind == ForKind::kSerial && !IsPipelined(loop)) return StagedLoop(loop);
    const std::optional<Nest> nest = loop ? AsNest(loop) : std::nullopt;
    return nest ? OfNest(*nest, s) : s;
  }

  Stmt OfNest(const Nest& nest, const Stmt& s) {
    const NestAxis* row = RowAxis(nest, nest.store->buffer, nest.store->indices);
    if (!row) return s;
    ReadStager stager(nest, *row, written_);
    const Expr value = stager.Mutate(nest.store->value);
    int64_t bytes = 0;
    for (const Var& tile : stager.tiles) bytes += BytesOfBuffer(tile);
    if (!bytes || !HasRoom(bytes, scope_.Threads(s->span).threads)) return s;
    taken += bytes;
    AppendRange(&tiles_, stager.tiles);
    std::vector<Stmt> out = stager.fills;
    const Stmt store = MakeStore(nest.store->buffer, value, nest.store->indices, s->span);
    out.push_back(MakeNest(nest.Of(GetRef<Stmt>(nest.store), *row), store, s->span));
    return MakeSeq(out);
  }

  bool HasRoom(int64_t bytes, int64_t threads) const {
    if (!shared_.bytes || PassConfigFlag(kSpareShared, false)) return false;
    return target_.BlocksThatFit(threads, *shared_.bytes + taken + bytes) * threads >=
           kLeastThreads;
  }

  const std::unordered_set<const Object*> written_;
};

PrimFunc StageTransposes(PrimFunc f) {
  return WithStagedTiles(
      f, [](const Stmt& kernel, const Target& target) { return TransposeStager(kernel, target); });
}

TL_REGISTER_PASS(StageTransposes);

}  // namespace
}  // namespace tl
