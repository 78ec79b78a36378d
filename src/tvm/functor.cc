#include "functor.h"

#include "build.h"
#include "find.h"

namespace tl {
namespace {

enum Kind : uint8_t {
  kNone = 0,
  kNoParts,
#define X(N) k##N,
  TL_FOR_EACH_STMT(X) TL_FOR_EACH_EXPR(X)
#undef X
};

/*! Numbers and texts: the one thing in them is their type. */
template <typename T>
constexpr bool kIsLeaf = std::is_same_v<T, IntImmNode> || std::is_same_v<T, FloatImmNode> ||
                         std::is_same_v<T, StringImmNode>;

/*! Kind by type index; kNone for classes without a Visit_ of their own, kNoParts for what has
 * nothing in it: most of what is visited is a number, or the type of one. */
uint8_t KindOf(int32_t type_index) {
  static const std::vector<uint8_t> table = [] {
    std::vector<uint8_t> t;
    auto put = [&t](int32_t index, uint8_t kind) {
      if (index < 0) return;
      if (static_cast<size_t>(index) >= t.size()) t.resize(index + 1, kNone);
      t[index] = kind;
    };
#define X(N) put(N##Node::_type_index, k##N);
    TL_FOR_EACH_STMT(X)
    TL_FOR_EACH_EXPR(X)
#undef X
    put(PrimTypeNode::_type_index, kNoParts);
    put(kTVMFFINone, kNoParts);
    return t;
  }();
  return type_index >= 0 && static_cast<size_t>(type_index) < table.size() ? table[type_index]
                                                                           : uint8_t(kNone);
}

template <typename T>
const T* Raw(AnyView v) {
  return ffi::detail::AnyUnsafe::RawObjectPtrFromAnyViewAfterCheck<const T>(v);
}

/*! Errors travel through the engine, which is C, as values. */
template <typename Result, typename F>
Result Guard(F&& run) noexcept {
  try {
    return run();
  } catch (ffi::Error& e) {
    return ffi::Unexpected(std::move(e));
  } catch (std::exception& e) {
    return ffi::Unexpected(ffi::Error("InternalError", e.what(), ""));
  }
}

}  // namespace

class StmtExprVisitor::Engine : public ffi::StructuralVisitorObj {
 public:
  explicit Engine(StmtExprVisitor* o) : ffi::StructuralVisitorObj(VTable()), owner(o) {}

 private:
  using Result = ffi::Expected<Optional<ffi::VisitInterrupt>>;
  static const ffi::StructuralVisitorVTable* VTable() {
    static const ffi::StructuralVisitorVTable v{&Engine::Go};
    return &v;
  }
  static TVMFFIAny Go(ffi::StructuralVisitorObj* s, AnyView v) noexcept {
    auto* self = static_cast<Engine*>(s);
    return ffi::detail::ExpectedUnsafe::MoveToTVMFFIAny(
        Guard<Result>([&] { return self->Dispatch(v); }));
  }
  Result Dispatch(AnyView v) {
    switch (KindOf(v.type_index())) {
#define X(N)                        \
  case k##N:                        \
    owner->Visit_(Raw<N##Node>(v)); \
    return Optional<ffi::VisitInterrupt>(std::nullopt);
      TL_FOR_EACH_STMT(X)
      TL_FOR_EACH_EXPR(X)
#undef X
      case kNoParts:
        return Optional<ffi::VisitInterrupt>(std::nullopt);
      default:
        return DefaultVisitExpected(v);
    }
  }
  StmtExprVisitor* owner;
};

StmtExprVisitor::StmtExprVisitor() : engine_(make_object<Engine>(this)) {}
StmtExprVisitor::~StmtExprVisitor() = default;
void StmtExprVisitor::Visit(const ObjectRef& n) {
  if (n.defined()) engine_->VisitExpected(n).value();
}
void StmtExprVisitor::Default(const Object* op) {
  engine_->DefaultVisitExpected(AnyView(op)).value();
}
#define X(N)                                        \
  void StmtExprVisitor::Visit_(const N##Node* op) { \
    if constexpr (!kIsLeaf<N##Node>) Default(op);   \
  }
TL_FOR_EACH_STMT(X)
TL_FOR_EACH_EXPR(X)
#undef X

class StmtExprMutator::Engine : public ffi::StructuralMapEngineBase {
 public:
  explicit Engine(StmtExprMutator* o) : ffi::StructuralMapEngineBase(VTable()), owner(o) {}

 private:
  using Result = ffi::Expected<ffi::UnchangedOr<Any>>;
  static const ffi::StructuralMutatorVTable* VTable() {
    static const ffi::StructuralMutatorVTable v{
        &Engine::Go, &Engine::Go, &Engine::DispatchVarRemapGet, &Engine::DispatchVarRemapSet};
    return &v;
  }
  static TVMFFIAny Go(ffi::StructuralMutatorObj* s, AnyView v) noexcept {
    auto* self = static_cast<Engine*>(s);
    return ffi::detail::ExpectedUnsafe::MoveToTVMFFIAny(
        Guard<Result>([&] { return self->Dispatch(v); }));
  }
  template <typename R>
  static ffi::UnchangedOr<Any> ChangeOf(const Object* from, R to) {
    if (to.get() == from) return ffi::Unchanged();
    return Any(std::move(to));
  }
  Result Dispatch(AnyView v) {
    switch (KindOf(v.type_index())) {
#define X(N)                                 \
  case k##N: {                               \
    auto* op = Raw<N##Node>(v);              \
    return ChangeOf(op, owner->Mutate_(op)); \
  }
      TL_FOR_EACH_STMT(X)
      TL_FOR_EACH_EXPR(X)
#undef X
      case kNoParts:
        return ffi::Unchanged();
      default:
        return DefaultMutateExpected(v, ffi::InplaceMode::kDisallow);
    }
  }
  StmtExprMutator* owner;
};

StmtExprMutator::StmtExprMutator() : engine_(make_object<Engine>(this)) {}
StmtExprMutator::~StmtExprMutator() = default;
Any StmtExprMutator::MutateAny(AnyView n) { return engine_->Mutate(n).ValueOrUnchanged(n); }
Any StmtExprMutator::DefaultAny(const Object* op) {
  auto result = engine_->DefaultMutateExpected(AnyView(op), ffi::InplaceMode::kDisallow);
  if (result.is_err()) throw result.error();
  return std::move(result).value().ValueOrUnchanged(AnyView(op));
}
#define X(N) \
  Stmt StmtExprMutator::Mutate_(const N##Node* op) { return Default<Stmt>(op); }
TL_FOR_EACH_STMT(X)
#undef X
#define X(N)                                                        \
  Expr StmtExprMutator::Mutate_(const N##Node* op) {                \
    return kIsLeaf<N##Node> ? GetRef<Expr>(op) : Default<Expr>(op); \
  }
TL_FOR_EACH_EXPR(X)
#undef X

bool Uses(const ObjectRef& node, const Var& v) {
  return HasNode<VarNode>(node, [&](const VarNode* op) { return op == v.get(); });
}

std::vector<Var> VarsOf(const ObjectRef& node) {
  std::vector<Var> vars;
  ForEachIn<VarNode>(node, [&](const VarNode* op) { vars.push_back(GetRef<Var>(op)); });
  return vars;
}

bool HasCall(const ObjectRef& node, const std::vector<const char*>& ops) {
  return HasNode<CallNode>(node, [&](const CallNode* op) {
    return AnyOf(ops, [&](const char* name) { return IsCallTo(op, name); });
  });
}

}  // namespace tl
