/*!
 * BoundUnrolling: long loops that need no copy of their body for each iteration get a few.
 *
 * In:  a thread program. Behind it no pass makes or changes loops.
 * Out: the same, in which an unrolled loop of more than kMost iterations in whose body is no
 *      array of the thread's own has the annotation `pragma_unroll_factor` = kCopies. An array is
 *      in registers only if its indices are constants, which those of a copied body are.
 * Refuses nothing.
 *
 * kCopies accesses are enough to be in flight together, and compilers take more than linear time:
 * clang over two minutes for 344 copies of a shared load whose address is a quotient.
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

class UnrollingBounder : public StmtExprMutator {
 protected:
  Stmt Mutate_(const ForNode* op) override {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    const std::optional<int64_t> extent = AsInt(loop->extent);
    if (loop->kind != ForKind::kUnrolled || !extent || *extent <= kMostUnrolled ||
        IntAnnotation(loop->annotations, kUnrollFactor) || IndexesRegisters(loop)) {
      return loop;
    }
    Map<String, Any> notes = loop->annotations;
    notes.Set(kUnrollFactor, kCopies);
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

  static bool AreOne(const Array<Expr>& extents) {
    return AllOf(extents, [](const Expr& extent) { return IsConst(extent, 1); });
  }
};

PrimFunc BoundUnrolling(PrimFunc f) { return WithBody(f, UnrollingBounder().Mutate(f->body)); }

TL_REGISTER_PASS(BoundUnrolling);

}  // namespace
}  // namespace tl
