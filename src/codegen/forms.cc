/*!
 * FormsOf: the forms of generated code that kernels have, as lines of text.
 *
 * A form is what the C++ compiler for a device, and the device headers, may get wrong independently
 * of other forms: a function of the headers with the types of its arguments, an operator or a cast
 * with its type, a load or a store with memory, type and vector width. For the arrays that are to
 * lie in registers, it counts what the index depends on, too: `constant`, `unrolled` (loops that
 * are unrolled), `loop` (others), `thread`, `value` (anything else that is known at run time).
 *
 * Sizes that do not change the code but for a number (the columns of a wgmma, how many threads
 * reduce) are left out, so that all programs together have some thousand forms.
 */
#include <set>

#include "../op/intrinsics.h"
#include "../op/views.h"
#include "../tvm/attrs.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"
#include "../tvm/registry.h"
#include "c_types.h"

namespace tl {
namespace {

/*! What the value of an expression depends on, as bits. */
enum Dependence : unsigned { kConstant = 0, kUnrolled = 1, kLoop = 2, kThread = 4, kValue = 8 };

std::string DependenceText(unsigned bits) {
  static constexpr const char* kNames[] = {"unrolled", "loop", "thread", "value"};
  std::string text;
  for (int i = 0; i < 4; ++i) {
    if (bits >> i & 1) text += (text.empty() ? "" : "+") + std::string(kNames[i]);
  }
  return " [" + (text.empty() ? "constant" : text) + "]";
}

std::string TypeText(DLDataType t) {
  const DLDataType scalar = WithLanes(t, 1);
  const std::string name = CTypeName(scalar).value_or(DTypeName(scalar));
  return t.lanes == 1 ? name : name + " x" + std::to_string(t.lanes);
}

DLDataType ElementType(const Var& buffer) { return DTypeOf(buffer); }

/*! Whether numbers among a function's template arguments choose another instruction. */
bool NumbersCount(const std::string& op, int position) {
  if (op == kMmaSync || op == kMmaSpSync || op == kCpAsync || op == kCpAsyncConditional) {
    return true;
  }
  constexpr int kColumns = 1;
  return op.rfind("tl.wgmma_", 0) == 0 && op != kWgmmaSteps && op != kWgmmaDescriptor &&
         position != kColumns;
}

class FormFinder : public StmtExprVisitor {
 public:
  explicit FormFinder(const PrimFunc& kernel) { Visit(kernel->body); }
  std::set<std::string> found;

 private:
  // --- what variables depend on

  void Visit_(const AttrStmtNode* op) override {
    if (op->attr_key == kThreadExtent) {
      const auto index = op->node.cast<IterVar>();
      const bool thread = IsThreadAxis(index);
      dependence_[index->var.get()] = thread ? kThread : kValue;
    }
    Visit(op->body);
  }
  void Visit_(const ForNode* op) override {
    dependence_[op->loop_var.get()] = op->kind == ForKind::kUnrolled ? kUnrolled : kLoop;
    Default(op);
  }
  void Visit_(const BindNode* op) override {
    dependence_[op->var.get()] = Depends(op->value);
    Default(op);
  }
  void Visit_(const LetNode* op) override {
    dependence_[op->var.get()] = Depends(op->value);
    Default(op);
  }

  unsigned Depends(const Expr& e) {
    struct Finder : StmtExprVisitor {
      explicit Finder(const std::unordered_map<const Object*, unsigned>& known) : known(known) {}
      const std::unordered_map<const Object*, unsigned>& known;
      unsigned bits = 0;
      void Visit_(const TensorLoadNode*) override { bits |= kValue; }
      void Visit_(const VarNode* op) override {
        auto it = known.find(op);
        bits |= it == known.end() ? unsigned(kValue) : it->second;
      }
    } finder(dependence_);
    finder(e);
    return finder.bits;
  }

  // --- memory

  void Visit_(const AllocBufferNode* op) override {
    if (IsLocal(op->buffer) && IsConst(BufferOf(op->buffer)->shape[0], 1)) {
      variables_.insert(op->buffer.get());
    }
  }
  void Visit_(const DeclBufferNode* op) override {
    const Var of = ViewedBy(op);
    found.insert(
        "view " + TypeText(ElementType(op->buffer)) +
        (of.defined() ? " of " + Scope(of) + " " + TypeText(ElementType(of)) : " at an address"));
    if (of.defined() && variables_.count(of.get())) variables_.insert(op->buffer.get());
  }

  std::string Scope(const Var& buffer) {
    if (variables_.count(buffer.get())) return "variable";
    if (IsLocal(buffer)) return "local";
    return IsBarrier(buffer) ? "mbarrier" : IsShared(buffer) ? "shared" : "global";
  }

  /*! `local half_t x2 [thread]` */
  std::string Place(const Var& buffer, const Expr& index) {
    const auto* ramp = index.as<RampNode>();
    const auto* same = index.as<BroadcastNode>();
    const Expr first = ramp ? ramp->base : same ? same->value : index;
    const int lanes = index->dtype().lanes;
    std::string text = Scope(buffer) + " " + TypeText(ElementType(buffer));
    if (lanes > 1) text += (same ? " same x" : " x") + std::to_string(lanes);
    if (ramp && !IsConst(ramp->stride, 1)) text += " by " + std::to_string(ToInt(ramp->stride));
    return IsLocal(buffer) && !variables_.count(buffer.get())
               ? text + DependenceText(Depends(first))
               : text;
  }

  void Visit_(const TensorLoadNode* op) override {
    if (op->indices.size() == 1) {
      found.insert("load " + Place(op->source.as_or_throw<Var>(), op->indices[0]));
      Visit(op->indices[0]);
    }
  }
  void Visit_(const BufferStoreNode* op) override {
    const std::string place = Place(op->buffer, op->indices[0]);
    found.insert("store " + place);
    if (ReadsItself(op)) found.insert("update " + place + " by " + OperationOf(op->value));
    Visit(op->value);
    Visit(op->indices[0]);
  }

  static bool ReadsItself(const BufferStoreNode* store) {
    return HasNode<TensorLoadNode>(store->value, [&](const TensorLoadNode* op) {
      return op->source.get() == store->buffer.get();
    });
  }

  static std::string OperationOf(const Expr& value) {
    if (const auto* call = value.as<CallNode>()) {
      const OpNode* callee = OpOf(call);
      return callee ? std::string(callee->name) : "a function";
    }
    const std::string key = value->GetTypeKey();
    return key.substr(key.rfind('.') + 1);
  }

  // --- calls

  void Visit_(const CallNode* op) override {
    const OpNode* callee = OpOf(op);
    const std::string name = callee ? std::string(callee->name) : "a function";
    if (const TensorLoadNode* target = AsAddressOf(GetRef<Expr>(op))) {
      for (const Expr& index : target->indices) Visit(index);
      return;
    }
    const Intrinsic* row = FindIntrinsic(op);
    std::string text = "call " + (row ? row->function : name);
    const auto templates = static_cast<size_t>(row ? row->template_args : 0);
    std::string parameters;
    for (size_t i = 0; i < templates; ++i) {
      const auto* word = op->args[i].as<StringImmNode>();
      if (!word && !NumbersCount(name, static_cast<int>(i))) continue;
      parameters += (parameters.empty() ? "" : ", ") +
                    (word ? std::string(word->value) : std::to_string(ToInt(op->args[i])));
    }
    if (!parameters.empty()) text += "<" + parameters + ">";
    text += "(";
    // What a descriptor stands for is not printed.
    const size_t end =
        row && row->HasDescriptorOperands() ? templates + row->access.size() : op->args.size();
    for (size_t i = templates; i < end; ++i) {
      text += (i == templates ? "" : ", ") + Argument(op->args[i]);
      Visit(op->args[i]);
    }
    found.insert(text + ")" + (IsVoid(op) ? "" : " -> " + TypeText(op->dtype())));
  }

  /*! Has the call no type, or type handle? So TVM writes calls without a result. */
  static bool IsVoid(const CallNode* op) {
    return !op->ty.as<PrimTypeNode>() || op->dtype().code == kDLOpaqueHandle;
  }

  std::string Argument(const Expr& arg) {
    if (arg.as<StringImmNode>()) return "text";
    if (const TensorLoadNode* target = AsAddressOf(arg)) {
      return "&" + Place(target->source.as_or_throw<Var>(), target->indices[0]);
    }
    if (arg.as<VarNode>() && !arg->ty.as<PrimTypeNode>()) return "pointer";
    return arg->dtype().code == kDLOpaqueHandle ? "pointer" : TypeText(arg->dtype());
  }

  // --- operators

  template <typename Node>
  void Operation(const Node* op, const char* name, DLDataType type) {
    found.insert(std::string(name) + " " + TypeText(type));
    Default(op);
  }
#define TL_OPERATION(N, name) \
  void Visit_(const N##Node* op) override { Operation(op, name, op->a->dtype()); }
  TL_OPERATION(Add, "+")
  TL_OPERATION(Sub, "-")
  TL_OPERATION(Mul, "*")
  TL_OPERATION(Div, "/")
  TL_OPERATION(Mod, "%")
  TL_OPERATION(FloorDiv, "floordiv")
  TL_OPERATION(FloorMod, "floormod")
  TL_OPERATION(Min, "min")
  TL_OPERATION(Max, "max")
  TL_OPERATION(EQ, "==")
  TL_OPERATION(NE, "!=")
  TL_OPERATION(LT, "<")
  TL_OPERATION(LE, "<=")
  TL_OPERATION(GT, ">")
  TL_OPERATION(GE, ">=")
  TL_OPERATION(And, "&&")
  TL_OPERATION(Or, "||")
  TL_OPERATION(Not, "!")
  TL_OPERATION(BitwiseAnd, "&")
  TL_OPERATION(BitwiseOr, "|")
  TL_OPERATION(BitwiseXor, "^")
  TL_OPERATION(BitwiseNot, "~")
  TL_OPERATION(LShift, "<<")
  TL_OPERATION(RShift, ">>")
#undef TL_OPERATION
  void Visit_(const CastNode* op) override {
    found.insert("cast " + TypeText(op->value->dtype()) + " -> " + TypeText(op->dtype()));
    Default(op);
  }
  void Visit_(const SelectNode* op) override { Operation(op, "select", op->dtype()); }
  void Visit_(const RampNode* op) override { Operation(op, "ramp", op->dtype()); }
  void Visit_(const BroadcastNode* op) override { Operation(op, "broadcast", op->dtype()); }
  void Visit_(const ShuffleNode* op) override { Operation(op, "lanes", op->dtype()); }

  std::unordered_map<const Object*, unsigned> dependence_;
  std::set<const Object*> variables_;
};

Array<String> FormsOf(const Array<PrimFunc>& kernels) {
  std::set<std::string> all;
  for (const PrimFunc& kernel : kernels) {
    // Source of the user's own has none.
    if (GetAttr(kernel, kSource) != nullptr) continue;
    const FormFinder finder(kernel);
    all.insert(finder.found.begin(), finder.found.end());
  }
  Array<String> lines;
  for (const std::string& form : all) lines.push_back(form);
  return lines;
}

Registration forms_registration([] { RegisterFunction("codegen.FormsOf", FormsOf); });

}  // namespace
}  // namespace tl
