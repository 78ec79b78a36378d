#include "unused_bindings.h"

#include <algorithm>
#include <unordered_set>

#include "../tvm/functor.h"
#include "effects.h"

namespace tl {
namespace {

/*! From the end to the front: what reads a name comes after it, and is gone already if nobody reads
 * what it makes. */
class BindingRemover : public StmtExprMutator {
 public:
  explicit BindingRemover(const std::function<bool(const BindNode*)>& is_removable)
      : is_removable_(is_removable) {}

 protected:
  Expr Mutate_(const VarNode* op) final {
    used_.insert(op);
    return GetRef<Expr>(op);
  }
  Stmt Mutate_(const SeqStmtNode* op) final {
    std::vector<Stmt> kept(op->seq.begin(), op->seq.end());
    for (auto s = kept.rbegin(); s != kept.rend(); ++s) *s = Mutate(*s);
    kept.erase(std::remove_if(kept.begin(), kept.end(), IsNothing), kept.end());
    return MakeSeq(kept);
  }
  Stmt Mutate_(const BindNode* op) final {
    if (!used_.count(op->var.get()) && is_removable_(op)) return MakeSeq({});
    Mutate(op->value);
    return GetRef<Stmt>(op);
  }

 private:
  const std::function<bool(const BindNode*)>& is_removable_;
  std::unordered_set<const Object*> used_;
};

}  // namespace

Stmt WithoutUnusedBindings(const Stmt& s,
                           const std::function<bool(const BindNode*)>& is_removable) {
  return BindingRemover(is_removable).Mutate(s);
}

}  // namespace tl
