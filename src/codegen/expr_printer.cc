#include "expr_printer.h"

#include <type_traits>
#include <utility>

#include "../op/intrinsics.h"
#include "../tvm/error.h"
#include "../tvm/find.h"
#include "c_types.h"

namespace tl {
namespace {

struct MathFunction {
  const char* name;
  const char* header;
};

/*! TVM's mathematical functions that the device headers have for every floating-point type, and
 * where they have them. */
const MathFunction* FindMathFunction(const std::string& op) {
  static const std::unordered_map<std::string, MathFunction> table = {
      {"tirx.fabs", {"tl::abs", "tl/math.h"}},
      {"tirx.floor", {"tl::floor", "tl/floor.h"}},
      {"prim.ceil", {"tl::ceil", "tl/floor.h"}},
      {"tirx.trunc", {"tl::trunc", "tl/floor.h"}},
      {"tirx.round", {"tl::round", "tl/floor.h"}},
      {"tirx.nearbyint", {"tl::round", "tl/floor.h"}},
      {"tirx.fmod", {"tl::fmod", "tl/floor.h"}},
      {"tirx.isnan", {"tl::isnan", "tl/number_bits.h"}},
      {"tirx.isinf", {"tl::isinf", "tl/number_bits.h"}},
      {"tirx.isfinite", {"tl::isfinite", "tl/number_bits.h"}},
      {"tirx.copysign", {"tl::copysign", "tl/floor.h"}},
      {"tirx.nextafter", {"tl::nextafter", "tl/number_bits.h"}},
      {"tirx.popcount", {"tl::popcount", "tl/number_bits.h"}},
      {"prim.clz", {"tl::clz", "tl/number_bits.h"}},
      {"tirx.exp", {"tl::exp", "tl/exponential.h"}},
      {"tirx.exp2", {"tl::exp2", "tl/exponential.h"}},
      {"tirx.exp10", {"tl::exp10", "tl/exponential.h"}},
      {"tirx.log", {"tl::log", "tl/exponential.h"}},
      {"prim.log2", {"tl::log2", "tl/exponential.h"}},
      {"tirx.log10", {"tl::log10", "tl/exponential.h"}},
      {"tirx.sqrt", {"tl::sqrt", "tl/exponential.h"}},
      {"tirx.rsqrt", {"tl::rsqrt", "tl/exponential.h"}},
      {"tirx.erf", {"tl::erf", "tl/exponential.h"}},
      {"tirx.ldexp", {"tl::ldexp", "tl/exponential.h"}},
      {"tirx.pow", {"tl::pow", "tl/exponential.h"}},
      {"tirx.sigmoid", {"tl::sigmoid", "tl/exponential.h"}},
      {"tirx.log1p", {"tl::log1p", "tl/exponential.h"}},
      {"tirx.sin", {"tl::sin", "tl/trigonometric.h"}},
      {"tirx.cos", {"tl::cos", "tl/trigonometric.h"}},
      {"tirx.tan", {"tl::tan", "tl/trigonometric.h"}},
      {"tirx.sinh", {"tl::sinh", "tl/trigonometric.h"}},
      {"tirx.cosh", {"tl::cosh", "tl/trigonometric.h"}},
      {"tirx.tanh", {"tl::tanh", "tl/trigonometric.h"}},
      {"tirx.atan", {"tl::atan", "tl/trigonometric.h"}},
      {"tirx.asin", {"tl::asin", "tl/trigonometric.h"}},
      {"tirx.acos", {"tl::acos", "tl/trigonometric.h"}},
      {"tirx.asinh", {"tl::asinh", "tl/trigonometric.h"}},
      {"tirx.acosh", {"tl::acosh", "tl/trigonometric.h"}},
      {"tirx.atanh", {"tl::atanh", "tl/trigonometric.h"}},
      {"tirx.atan2", {"tl::atan2", "tl/trigonometric.h"}},
      {"tirx.hypot", {"tl::hypot", "tl/trigonometric.h"}},
  };
  auto it = table.find(op);
  return it == table.end() ? nullptr : &it->second;
}

bool IsInteger(DLDataType t) { return t.code == kDLInt || t.code == kDLUInt; }

bool IsBitOperator(int precedence) {
  return precedence == kShift || (precedence >= kBitOr && precedence <= kBitAnd);
}

}  // namespace

void ExprPrinter::Refuse(const std::string& found, const std::string& repair) {
  ThrowAt(span_, "ValueError",
          "found " + found + ", which has no form in CUDA C++ here. " + repair);
}

void ExprPrinter::Bug(const std::string& found) { ThrowBug(span_, "EmitCuda", "found " + found); }

std::string ExprPrinter::Print(const Expr& e, int at_least) {
  done_ = nullptr;
  Visit(e);
  if (done_ != e.get()) Bug("an expression of class " + e->GetTypeKey());
  return precedence_ < at_least ? "(" + text_ + ")" : std::move(text_);
}

std::string ExprPrinter::PrintValue(const Expr& e) {
  const bool before = std::exchange(value_, true);
  std::string text = Print(e);
  value_ = before;
  return text;
}

/*! C++ of a place in a buffer. */
std::string ExprPrinter::PrintIndex(const Expr& e, int at_least) {
  const bool before = std::exchange(value_, false);
  std::string text = Print(e, at_least);
  value_ = before;
  return text;
}

bool ExprPrinter::ReadsMemory(const Expr& e) {
  return HasNode<TensorLoadNode>(e) ||
         HasNode<VarNode>(e, [&](const VarNode* op) { return loaded_.count(op) > 0; });
}

void ExprPrinter::Done(const ExprNode* op, std::string text, int precedence) {
  done_ = op;
  text_ = std::move(text);
  precedence_ = precedence;
}

std::string ExprPrinter::TypeName(DLDataType t) {
  std::optional<std::string> name = CTypeName(t);
  if (!name)
    Refuse("type " + DTypeName(t), "Use a type that the target's headers have, such as float16");
  if (IsSubByte(t)) headers_.insert("tl/subbyte.h");
  return *name;
}

const std::string& ExprPrinter::Name(const VarNode* var) {
  const std::string* name = names_.Find(var);
  if (!name) Bug("variable " + std::string(var->name) + " used outside of its scope");
  return *name;
}

std::string ExprPrinter::Pointer(const Var& buffer, const Expr& index) {
  if (scalars_.count(buffer.get())) return "&" + Name(buffer.get());
  const Expr place = IsSubByte(DTypeOf(buffer)) ? ByteOf(buffer, index) : index;
  if (IsConst(place, 0)) return Name(buffer.get());
  return Name(buffer.get()) + " + " + PrintIndex(place, kAdditive);
}

/*! Number of the byte that the element of half a byte begins. */
Expr ExprPrinter::ByteOf(const Var& buffer, const Expr& index) {
  const Analyzer::Modular m = analyzer_.ModularSet(index);
  if (m.coeff % 2 || m.base % 2) {
    Refuse("the address of an element of " + std::string(buffer->name) +
               " that may be the second one in a byte",
           "Use an even index");
  }
  return analyzer_.Simplify(FloorDivOf(index, 2));
}

std::string ExprPrinter::Element(const Var& buffer, const Expr& index) {
  if (scalars_.count(buffer.get())) return Name(buffer.get());
  const DLDataType type = DTypeOf(buffer);
  if (IsSubByte(type)) {
    return "tl::get_sub_byte<" + TypeName(type) + ">(" + Name(buffer.get()) + ", " +
           PrintIndex(index) + ")";
  }
  return Name(buffer.get()) + "[" + PrintIndex(index) + "]";
}

std::string ExprPrinter::Function(const std::string& name, const Array<Expr>& args, size_t first) {
  std::string text = name + "(";
  for (size_t i = first; i < args.size(); ++i) text += (i == first ? "" : ", ") + Print(args[i]);
  return text + ")";
}

// --- leaves

void ExprPrinter::Visit_(const VarNode* op) { Done(op, Name(op), kPrimary); }

void ExprPrinter::Visit_(const IntImmNode* op) {
  TypeName(op->dtype());
  // IntLiteral takes uint64 constants by their bits.
  const bool huge = op->value > INT64_MAX;
  const ffi::BigInt value = huge ? op->value - INT64_MAX - INT64_MAX - 2 : op->value;
  std::string text = IntLiteral(static_cast<int64_t>(value), op->dtype());
  const int precedence = text[0] == '-' ? kUnary : kPrimary;
  Done(op, std::move(text), precedence);
}

void ExprPrinter::Visit_(const FloatImmNode* op) {
  TypeName(op->dtype());
  std::string text = FloatLiteral(op->value, op->dtype());
  const int precedence = text[0] == '-' ? kUnary : kPrimary;
  Done(op, std::move(text), precedence);
}

void ExprPrinter::Visit_(const StringImmNode* op) { Done(op, StringLiteral(op->value), kPrimary); }

void ExprPrinter::Visit_(const TensorLoadNode* op) {
  const auto buffer = op->source.as_or_throw<Var>();
  if (op->indices.size() != 1)
    Bug("a load of " + std::string(buffer->name) + " with several indices");
  const Expr& index = op->indices[0];
  if (index->dtype().lanes != 1) return Done(op, VectorLoad(op, buffer), kPrimary);
  if (loads_here_ && IsGlobal(buffer) && !IsSubByte(op->dtype())) {
    return Done(op, "tl::load_here(" + Pointer(buffer, index) + ")", kPrimary);
  }
  const bool by_load = loads_elements_ && IsShared(buffer) && !IsSubByte(op->dtype());
  Done(op,
       by_load ? "tl::load<" + TypeName(op->dtype()) + ", 1>(" + Pointer(buffer, index) + ")[0]"
               : Element(buffer, index),
       kPrimary);
}

std::string ExprPrinter::VectorLoad(const TensorLoadNode* op, const Var& buffer) {
  const std::string parameters =
      "<" + TypeName(WithLanes(op->dtype(), 1)) + ", " + std::to_string(op->dtype().lanes) + ">(";
  if (const auto* same = op->indices[0].as<BroadcastNode>()) {
    return "tl::broadcast" + parameters + Element(buffer, same->value) + ")";
  }
  if (LanesOfRegisters(GetRef<Expr>(op))) return Lanes(op, "tl::lanes<");
  const auto* ramp = op->indices[0].as<RampNode>();
  if (!ramp || !IsConst(ramp->stride, 1)) {
    Bug("a vector load of " + std::string(buffer->name) + " that is not contiguous");
  }
  return "tl::load" + parameters + Pointer(buffer, ramp->base) + ")";
}

/*! A load of elements of half a byte from an array of the thread that are no whole words side by
 * side; nullptr for all else. */
const TensorLoadNode* ExprPrinter::LanesOfRegisters(const Expr& e) {
  const auto* load = e.as<TensorLoadNode>();
  const auto* ramp = load && load->indices.size() == 1 ? load->indices[0].as<RampNode>() : nullptr;
  if (!ramp || !IsSubByte(load->dtype()) || !IsLocal(load->source.as_or_throw<Var>())) {
    return nullptr;
  }
  const int kElementsOfWord = 8;
  return !IsConst(ramp->stride, 1) || ramp->dtype().lanes % kElementsOfWord ? load : nullptr;
}

/*! `tl::lanes<int4b_t, 2, 4>(F, 8)`, given what stands in front of the element type. */
std::string ExprPrinter::Lanes(const TensorLoadNode* load, const std::string& function) {
  const auto* ramp = load->indices[0].as<RampNode>();
  return function + TypeName(WithLanes(load->dtype(), 1)) + ", " +
         std::to_string(ramp->dtype().lanes) + ", " + std::to_string(ToInt(ramp->stride)) + ">(" +
         Name(load->source.as_or_throw<Var>().get()) + ", " + PrintIndex(ramp->base) + ")";
}

// --- operators

template <typename Node>
void ExprPrinter::Infix(const Node* op, const char* symbol, int precedence) {
  // Few readers know how bit operators bind, and compilers warn of `&&` inside `||`.
  const bool clear = !IsBitOperator(precedence) && precedence != kLogicalOr;
  const int right = clear ? precedence + 1 : precedence == kLogicalOr ? int(kBitOr) : int(kUnary);
  const int left = clear || op->a.template as<Node>() ? precedence : right;
  // A shift has the type of its left operand alone.
  const std::string a = precedence == kShift ? Print(op->a, left) : Operand(op->a, op->b, left);
  DoneArithmetic(op, a + " " + symbol + " " + Operand(op->b, op->a, right), precedence);
}

/*! What is compared is a place or a count unless it was read from memory. */
template <typename Node>
void ExprPrinter::Compare(const Node* op, const char* symbol, int precedence) {
  const bool before = std::exchange(value_, ReadsMemory(GetRef<Expr>(op)));
  Infix(op, symbol, precedence);
  value_ = before;
}

/*! Is it a value that may leave the integers that C++ computes it in? */
template <typename Node>
bool ExprPrinter::Wraps(const Node* op) {
  const DLDataType t = op->dtype();
  if (!value_ || t.lanes != 1 || !IsInteger(t)) return false;
  if (t.bits < 32) return t.code == kDLUInt && t.bits == 16 && std::is_same_v<Node, MulNode>;
  if (t.code == kDLUInt) return false;
  const Analyzer::Bound bound = analyzer_.ConstBound(GetRef<Expr>(op));
  if (t.bits == 64) return bound.min == INT64_MIN || bound.max == INT64_MAX;
  return bound.min < INT32_MIN || bound.max > INT32_MAX;
}

template <typename Node>
void ExprPrinter::Prefix(const Node* op, const char* symbol) {
  DoneArithmetic(op, symbol + Print(op->a, kUnary), kUnary);
}

/*! `cast(x) + added` of vectors of elements of 4 bits: the constant, if the sums are integers that
 * both types have; nullopt for other sums. */
static std::optional<int> AddedToNibbles(const AddNode* op) {
  const auto* cast = op->a.as<CastNode>();
  const auto* added = op->b.as<BroadcastNode>();
  const auto* number = added ? added->value.as<FloatImmNode>() : nullptr;
  if (!cast || !number) return std::nullopt;
  const DLDataType from = cast->value->dtype(), to = op->dtype();
  const bool is_integer = from.bits == 4 && (from.code == kDLInt || from.code == kDLUInt);
  const bool is_half = to.bits == 16 && (to.code == kDLFloat || to.code == kDLBfloat);
  const auto value = static_cast<int>(number->value);
  if (!is_integer || !is_half || from.lanes % 2 || value != number->value) return std::nullopt;
  return std::abs(value) <= 16 ? std::optional(value) : std::nullopt;
}

void ExprPrinter::Visit_(const AddNode* op) {
  if (const std::optional<int> added = AddedToNibbles(op)) {
    const Expr value = op->a.as<CastNode>()->value;
    const std::string types = TypeName(WithLanes(op->dtype(), 1)) + ", " + std::to_string(*added);
    const TensorLoadNode* lanes = LanesOfRegisters(value);
    return Done(op,
                lanes ? Lanes(lanes, "tl::cast_sum_lanes<" + types + ", ")
                      : "tl::cast_sum<" + types + ">(" + Print(value) + ")",
                kPrimary);
  }
  if (Wraps(op)) return Done(op, Function("tl::add", {op->a, op->b}), kPrimary);
  std::optional<int64_t> b = AsInt(op->b);
  if (!b || *b >= 0 || *b <= INT32_MIN) return Infix(op, "+", kAdditive);
  DoneArithmetic(op, Print(op->a, kAdditive) + " - " + std::to_string(-*b), kAdditive);
}

void ExprPrinter::Visit_(const SubNode* op) {
  if (Wraps(op)) return Done(op, Function("tl::sub", {op->a, op->b}), kPrimary);
  Infix(op, "-", kAdditive);
}

void ExprPrinter::Visit_(const MulNode* op) {
  if (Wraps(op)) return Done(op, Function("tl::mul", {op->a, op->b}), kPrimary);
  Infix(op, "*", kMultiplicative);
}

void ExprPrinter::RefuseSubByte(DLDataType t) {
  if (IsSubByte(t)) {
    Refuse("arithmetic in " + DTypeName(t), "Cast to int8 or float16, compute, and cast back");
  }
}

/*! C++ computes integers of less than 32 bits as int; the program's wrap at their own width. */
void ExprPrinter::DoneArithmetic(const ExprNode* op, std::string text, int precedence) {
  const DLDataType t = op->dtype();
  RefuseSubByte(t);
  if (!IsInteger(t) || t.bits >= 32 || t.lanes != 1) return Done(op, std::move(text), precedence);
  Done(op, TypeName(t) + "(" + text + ")", kPrimary);
}

/*! An integer constant beside a variable takes its type from it. */
std::string ExprPrinter::Operand(const Expr& e, const Expr& other, int at_least) {
  std::optional<int64_t> value = AsInt(e);
  const bool plain =
      value && IsInteger(e->dtype()) && !AsInt(other) && *value >= 0 && *value <= INT32_MAX;
  return plain && e->dtype().bits != 32 ? std::to_string(*value) : Print(e, at_least);
}

bool ExprPrinter::NeverNegative(const Expr& e) {
  if (e->dtype().code == kDLUInt) return true;
  if (analyzer_.ConstBound(e).min >= 0) return true;
  return analyzer_.CanProve(e >= MakeInt(e->dtype(), 0));
}

template <typename Node>
void ExprPrinter::Floor(const Node* op, const char* symbol, const char* function) {
  RefuseSubByte(op->dtype());
  const bool scalar = op->dtype().lanes == 1;
  if (scalar && NeverNegative(op->a) && NeverNegative(op->b)) {
    return Infix(op, symbol, kMultiplicative);
  }
  const std::optional<int64_t> divisor = AsInt(op->b);
  if (scalar && op->dtype().bits >= 32 && divisor && *divisor > 0 &&
      (*divisor & (*divisor - 1)) == 0) {
    // Two's complement rounds down by itself; of a call the C++ compiler makes the same, later.
    constexpr bool kQuotient = std::is_same_v<Node, FloorDivNode>;
    const int64_t bits = kQuotient ? __builtin_ctzll(*divisor) : *divisor - 1;
    const std::string operand = Operand(MakeInt(op->dtype(), bits), op->a, kUnary);
    return Done(op, Print(op->a, kUnary) + (kQuotient ? " >> " : " & ") + operand,
                kQuotient ? kShift : kBitAnd);
  }
  headers_.insert("tl/floor.h");
  Done(op, Function(function, {op->a, op->b}), kPrimary);
}

void ExprPrinter::Visit_(const CastNode* op) {
  const DLDataType from = op->value->dtype();
  const DLDataType to = op->dtype();
  const std::string target = TypeName(WithLanes(to, 1));
  if (const TensorLoadNode* lanes = LanesOfRegisters(op->value)) {
    return Done(op, Lanes(lanes, "tl::cast_lanes<" + target + ", "), kPrimary);
  }
  // tl::cast says what happens to vectors and to floats out of the integer's range; C++ does not.
  const bool simple = to.lanes == 1 && !IsSubByte(from) && !IsSubByte(to) &&
                      (!IsInteger(to) || IsInteger(from) || from.code == kDLBool);
  Done(op, (simple ? target : "tl::cast<" + target + ">") + "(" + Print(op->value) + ")", kPrimary);
}

void ExprPrinter::Visit_(const SelectNode* op) {
  // Both operands are computed, which C++'s own choice does not do. The type of literals is not
  // always that of what stands beside them.
  const bool scalar = op->condition->dtype().lanes == 1;
  const std::string type = scalar ? "<" + TypeName(op->dtype()) + ">" : "";
  Done(op, Function("tl::select" + type, {op->condition, op->true_value, op->false_value}),
       kPrimary);
}

void ExprPrinter::Visit_(const LetNode* op) {
  const std::string body = Print(Substitute(op->body, op->var, op->value));
  Done(op, body, precedence_);
}

// --- vectors

void ExprPrinter::Visit_(const RampNode* op) {
  const std::string type = TypeName(op->base->dtype());
  Done(op,
       Function("tl::ramp<" + type + ", " + std::to_string(op->dtype().lanes) + ">",
                {op->base, op->stride}),
       kPrimary);
}

void ExprPrinter::Visit_(const BroadcastNode* op) {
  const std::string type = TypeName(op->value->dtype());
  Done(op,
       Function("tl::broadcast<" + type + ", " + std::to_string(op->dtype().lanes) + ">",
                {op->value}),
       kPrimary);
}

void ExprPrinter::Visit_(const ShuffleNode* op) {
  std::vector<std::string> lanes;
  for (const Expr& v : op->vectors) {
    const int count = v->dtype().lanes;
    const std::string text = Print(v, kPrimary);
    for (int i = 0; i < count; ++i) {
      lanes.push_back(count == 1 ? text : text + "[" + std::to_string(i) + "]");
    }
  }
  std::string text;
  for (const Expr& index : op->indices) {
    text += (text.empty() ? "" : ", ") + lanes.at(static_cast<size_t>(ToInt(index)));
  }
  if (op->indices.size() > 1) text = TypeName(op->dtype()) + "{" + text + "}";
  Done(op, text, kPrimary);
}

// --- calls

void ExprPrinter::Visit_(const CallNode* op) {
  const OpNode* callee = OpOf(op);
  if (!callee) Bug("a call of a function that is not an operator");
  const std::string name = callee->name;
  if (FindIntrinsic(op)) return Done(op, Intrinsic(op), kPrimary);
  if (const MathFunction* function = FindMathFunction(name)) {
    RefuseSubByte(op->args[0]->dtype());
    headers_.insert(function->header);
    return Done(op, Function(function->name, op->args), kPrimary);
  }
  if (!CallToBuiltin(op, name)) {
    Refuse("a call of " + name,
           "Use T.call_extern with a function of your own, or another formula");
  }
}

/*! A function of the user's takes plain pointers. */
std::string ExprPrinter::ExternCall(const std::string& name, const Array<Expr>& args) {
  std::string text = name + "(";
  for (size_t i = 1; i < args.size(); ++i) {
    const TensorLoadNode* target = AsAddressOf(args[i]);
    const bool element = target && target->indices.size() == 1 &&
                         !scalars_.count(target->source.get()) &&
                         target->indices[0]->dtype().lanes == 1;
    text += (i == 1 ? "" : ", ") + (element ? ElementAddress(target) : Print(args[i]));
  }
  return text + ")";
}

std::string ExprPrinter::ElementAddress(const TensorLoadNode* target) {
  const auto buffer = target->source.as_or_throw<Var>();
  const bool packed = IsSubByte(DTypeOf(buffer));
  const Expr& index = target->indices[0];
  headers_.insert("tl/buffer.h");
  const std::string place = Print(packed ? ByteOf(buffer, index) : index);
  return "tl::raw(" + Name(buffer.get()) + " + (" + place + "))";
}

std::string ExprPrinter::Intrinsic(const CallNode* op) {
  const auto* row = FindIntrinsic(op);
  if (!row->header.empty()) headers_.insert(row->header);
  std::string function = row->function;
  for (int i = 0; i < row->template_args; ++i) {
    const auto* text = op->args[i].as<StringImmNode>();
    function +=
        (i ? ", " : "<") + (text ? std::string(text->value) : std::to_string(ToInt(op->args[i])));
  }
  if (row->template_args) function += ">";
  if (!row->HasDescriptorOperands()) return Function(function, op->args, row->template_args);
  products_.Add(op);
  const auto printed = static_cast<ptrdiff_t>(row->template_args + row->access.size());
  const Array<Expr> args(op->args.begin(), op->args.begin() + printed);
  return Function(function, args, row->template_args);
}

bool ExprPrinter::CallToBuiltin(const CallNode* op, const std::string& name) {
  if (name == "tirx.address_of") {
    const TensorLoadNode* load = AsAddressOf(GetRef<Expr>(op));
    if (!load || load->indices.size() != 1) Bug("address_of without one flat index");
    const auto buffer = load->source.as_or_throw<Var>();
    const auto* ramp = load->indices[0].as<RampNode>();
    const std::string text = Pointer(buffer, ramp ? ramp->base : load->indices[0]);
    Done(op, text, text == Name(buffer.get()) ? kPrimary : text[0] == '&' ? kUnary : kAdditive);
  } else if (name == "prim.if_then_else") {
    const std::string condition = Print(op->args[0], kLogicalOr);
    const std::string yes = Print(op->args[1], kLogicalOr);
    Done(op, condition + " ? " + yes + " : " + Print(op->args[2], kTernary), kTernary);
  } else if (name == "prim.likely") {
    const std::string text = Print(op->args[0]);
    Done(op, text, precedence_);
  } else if (name == "tirx.reinterpret") {
    Done(op, Function("tl::bit_cast<" + TypeName(op->dtype()) + ">", op->args), kPrimary);
  } else if (name == "tirx.call_extern" || name == "tirx.call_pure_extern") {
    const auto* function = op->args[0].as<StringImmNode>();
    if (!function) Bug("call_extern without a name");
    // It may be one of the headers'.
    headers_.insert(std::begin(kFunctionHeaders), std::end(kFunctionHeaders));
    Done(op, ExternCall(function->value, op->args), kPrimary);
  } else if (name == kSync) {
    const auto* scope = op->args[0].as<StringImmNode>();
    const std::string text = scope ? std::string(scope->value) : "";
    if (text != "shared" && text != "shared.dyn") {
      Refuse("a barrier of scope \"" + text + "\"", "Use scope \"shared\"");
    }
    Done(op, "__syncthreads()", kPrimary);
  } else if (name == "tirx.break_loop" || name == "tirx.continue_loop") {
    Done(op, name == "tirx.break_loop" ? "break" : "continue", kPrimary);
  } else if (name == kThreadReturn) {
    Done(op, "return", kPrimary);
  } else {
    return false;
  }
  return true;
}

}  // namespace tl
