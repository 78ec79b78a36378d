#include "like_accesses.h"

#include <tvm/ffi/extra/structural_equal.h>
#include <tvm/ffi/extra/structural_hash.h>

#include <map>
#include <tuple>

#include "../../tvm/functor.h"

namespace tl {
namespace {

class Linker {
 public:
  void Visit(SyncNode* node) {
    for (SharedAccess& a : node->accesses) Link(&a);
    for (const auto& n : node->body) Visit(n.get());
    for (const auto& n : node->otherwise) Visit(n.get());
  }

 private:
  /*! What an access is, with names of its own for the loops of its nest; its hash finds it. */
  struct Known {
    const SharedAccess* first;
    Array<Expr> text;
  };
  using Key = std::tuple<const SyncNode*, const Object*, const Object*, uint64_t>;

  void Link(SharedAccess* a) {
    const SyncNode* nest = a->node;
    Array<Expr> text;
    Substituter names;
    // The nest: loops of constant range around this statement alone.
    for (const SyncNode* loop = nest->parent; loop && loop->body.size() == 1; loop = loop->parent) {
      const auto* op = loop->stmt.as<ForNode>();
      const std::optional<Axis> axis = op ? AxisOf(op) : std::nullopt;
      if (!axis) break;
      names.map[op->loop_var.get()] = Name(text.size(), op->loop_var->dtype());
      text.push_back(MakeInt(axis->min));
      text.push_back(MakeInt(axis->extent));
      nest = loop;
    }
    for (const Expr& e : a->indices) text.push_back(names.Mutate(e));
    for (const auto& [condition, value] : a->guards) {
      text.push_back(names.Mutate(condition));
      text.push_back(MakeInt(value));
    }
    for (const Axis& axis : a->inner) {
      text.push_back(axis.var);
      text.push_back(MakeInt(axis.extent));
    }
    a->nest = nest;
    a->like = Find(*a, text);
  }

  const SharedAccess* Find(const SharedAccess& a, const Array<Expr>& text) {
    const Key key{a.nest->parent, a.buffer.get(), a.name.get(), ffi::StructuralHash()(text)};
    std::vector<Known>& list = known_[key];
    for (const Known& k : list) {
      if (IsSameKind(*k.first, a) && ffi::StructuralEqual()(k.text, text)) return k.first;
    }
    list.push_back({&a, text});
    return &a;
  }

  static bool IsSameKind(const SharedAccess& a, const SharedAccess& b) {
    const auto kind = [](const SharedAccess& x) {
      return std::tie(x.lanes, x.whole, x.writes, x.queue, x.atomic, x.async_proxy, x.signalled,
                      x.waited, x.by_warp, x.tensor, x.update);
    };
    return kind(a) == kind(b) && a.indices.size() == b.indices.size() &&
           a.guards.size() == b.guards.size();
  }

  /*! The variable that stands for the loop at this place of a text. */
  Var Name(size_t place, DLDataType dtype) {
    const auto [it, is_new] = names_.try_emplace({place, dtype.code, dtype.bits});
    if (is_new) it->second = MakeVar("loop", dtype);
    return it->second;
  }

  std::map<Key, std::vector<Known>> known_;
  std::map<std::tuple<size_t, int, int>, Var> names_;
};

}  // namespace

void LinkLikeAccesses(SyncNode* root) { Linker().Visit(root); }

}  // namespace tl
