/*!
 * BoundUnrolling: long loops that need no copy of their body for each iteration get a few.
 *
 * In:  a thread program. Behind it no pass makes or changes loops.
 * Out: the same, in which a long unrolled loop in whose body is no array of the thread's own has
 *      the annotation `pragma_unroll_factor`. An array is in registers only if its indices are
 *      constants, which those of a copied body are. A loop is long with more than kMostUnrolled
 *      iterations, and gets kCopies. One that stores single elements to global memory, and loads
 *      none from there, is long with more than kMostStores, and gets kStores.
 * Refuses nothing.
 *
 * kCopies accesses are enough to be in flight together, and compilers take more than linear time:
 * clang over two minutes for 344 copies of a shared load whose address is a quotient. Stores wait
 * for nothing, but straight code runs once a tile, and is fetched as it runs: an H200 took 470
 * clocks for each element of a result whose rows TMA does not take.
 */

#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

constexpr int64_t kMostUnrolled = 64;
constexpr int64_t kCopies = 32;
constexpr int64_t kMostStores = 16;
constexpr int64_t kStores = 8;

class UnrollingBounder : public StmtExprMutator {
 protected:
  Stmt Mutate_(const ForNode* op) override {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    const std::optional<int64_t> extent = AsInt(loop->extent);
    if (loop->kind != ForKind::kUnrolled || !extent ||
        IntAnnotation(loop->annotations, kUnrollFactor) || IndexesRegisters(loop)) {
      return loop;
    }
    const bool stores = StoresElements(loop);
    if (*extent <= (stores ? kMostStores : kMostUnrolled)) return loop;
    Map<String, Any> notes = loop->annotations;
    notes.Set(kUnrollFactor, stores ? kStores : kCopies);
    loop.CopyOnWrite()->annotations = notes;
    return loop;
  }

 private:
  /*! Whether an index of a thread's own array may depend on the variable: any array in the body
   * counts, which costs copies and no speed. */
  static bool IndexesRegisters(const For& loop) {
    return HasNode<VarNode>(loop->body, [](const VarNode* op) {
      const Var v = GetRef<Var>(op);
      const BufferTypeNode* buffer = AsBuffer(v);
      return buffer && IsLocal(v) && !AreOne(buffer->shape);
    });
  }

  /*! Whether all stores of the body are of single elements to global memory, and no load is from
   * there. */
  static bool StoresElements(const For& loop) {
    const auto is_other = [](const BufferStoreNode* op) {
      return !IsGlobal(op->buffer) || op->value->dtype().lanes != 1;
    };
    const auto is_global = [](const TensorLoadNode* op) {
      return IsGlobal(op->source.as_or_throw<Var>());
    };
    return HasNode<BufferStoreNode>(loop->body) &&
           !HasNode<BufferStoreNode>(loop->body, is_other) &&
           !HasNode<TensorLoadNode>(loop->body, is_global);
  }

  static bool AreOne(const Array<Expr>& extents) {
    return AllOf(extents, [](const Expr& extent) { return IsConst(extent, 1); });
  }
};

PrimFunc BoundUnrolling(PrimFunc f) { return WithBody(f, UnrollingBounder().Mutate(f->body)); }

TL_REGISTER_PASS(BoundUnrolling);

}  // namespace
}  // namespace tl
