#include "int_program.h"

namespace tl {
namespace {

constexpr int kMaxDepth = 64;

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }

}  // namespace

IntProgram::IntProgram(const Expr& e, const std::vector<Var>& vars) { Compile(e, vars); }

void IntProgram::Emit(Code code, int64_t value, int stack_change) {
  steps_.push_back({code, value});
  depth_ += stack_change;
  TVM_FFI_ICHECK(depth_ <= kMaxDepth) << "index expression is nested too deeply";
}

template <typename Node>
bool IntProgram::TryBinary(const Expr& e, Code code, const std::vector<Var>& vars) {
  const auto* op = e.as<Node>();
  if (!op) return false;
  Compile(op->a, vars);
  Compile(op->b, vars);
  Emit(code, 0, -1);
  return true;
}

void IntProgram::Compile(const Expr& e, const std::vector<Var>& vars) {
  if (std::optional<int64_t> v = AsInt(e)) return Emit(Code::kConst, *v, 1);
  if (e.as<VarNode>()) {
    for (size_t i = 0; i < vars.size(); ++i) {
      if (vars[i].same_as(e)) return Emit(Code::kSlot, static_cast<int64_t>(i), 1);
    }
    TVM_FFI_THROW(InternalError) << "index expression has a free variable "
                                 << e.as<VarNode>()->name;
  }
  if (const auto* cast = e.as<CastNode>()) return Compile(cast->value, vars);
  if (const auto* select = e.as<SelectNode>()) {
    Compile(select->condition, vars);
    Compile(select->true_value, vars);
    Compile(select->false_value, vars);
    return Emit(Code::kSelect, 0, -2);
  }
  const bool known =
      TryBinary<AddNode>(e, Code::kAdd, vars) || TryBinary<SubNode>(e, Code::kSub, vars) ||
      TryBinary<MulNode>(e, Code::kMul, vars) ||
      TryBinary<FloorDivNode>(e, Code::kFloorDiv, vars) ||
      TryBinary<FloorModNode>(e, Code::kFloorMod, vars) ||
      TryBinary<MinNode>(e, Code::kMin, vars) || TryBinary<MaxNode>(e, Code::kMax, vars) ||
      TryBinary<BitwiseXorNode>(e, Code::kXor, vars) ||
      TryBinary<BitwiseAndNode>(e, Code::kAnd, vars) ||
      TryBinary<BitwiseOrNode>(e, Code::kOr, vars) || TryBinary<LShiftNode>(e, Code::kShl, vars) ||
      TryBinary<RShiftNode>(e, Code::kShr, vars) || TryBinary<LTNode>(e, Code::kLT, vars) ||
      TryBinary<LENode>(e, Code::kLE, vars) || TryBinary<GTNode>(e, Code::kGT, vars) ||
      TryBinary<GENode>(e, Code::kGE, vars) || TryBinary<EQNode>(e, Code::kEQ, vars) ||
      TryBinary<NENode>(e, Code::kNE, vars) || TryBinary<AndNode>(e, Code::kAnd, vars) ||
      TryBinary<OrNode>(e, Code::kOr, vars);
  if (known) return;
  if (const auto* call = e.as<CallNode>(); call && OpOf(call)) {
    const std::string name = OpOf(call)->name;
    const Code code = name == "tirx.bitwise_xor"   ? Code::kXor
                      : name == "tirx.bitwise_and" ? Code::kAnd
                      : name == "tirx.bitwise_or"  ? Code::kOr
                      : name == "tirx.shift_left"  ? Code::kShl
                      : name == "tirx.shift_right" ? Code::kShr
                                                   : Code::kConst;
    if (code != Code::kConst) {
      Compile(call->args[0], vars);
      Compile(call->args[1], vars);
      return Emit(code, 0, -1);
    }
  }
  TVM_FFI_THROW(InternalError) << "index expression has a " << e->GetTypeKey();
}

int64_t IntProgram::operator()(const int64_t* point) const {
  int64_t stack[kMaxDepth + 1];
  int64_t* top = stack - 1;
  for (const Step& s : steps_) {
    if (s.code == Code::kConst) {
      *++top = s.value;
      continue;
    }
    if (s.code == Code::kSlot) {
      *++top = point[s.value];
      continue;
    }
    const int64_t b = *top--;
    int64_t& a = *top;
    switch (s.code) {
      case Code::kAdd:
        a += b;
        break;
      case Code::kSub:
        a -= b;
        break;
      case Code::kMul:
        a *= b;
        break;
      case Code::kFloorDiv:
        a = FloorDivide(a, b);
        break;
      case Code::kFloorMod:
        a -= FloorDivide(a, b) * b;
        break;
      case Code::kMin:
        a = a < b ? a : b;
        break;
      case Code::kMax:
        a = a > b ? a : b;
        break;
      case Code::kXor:
        a ^= b;
        break;
      case Code::kAnd:
        a &= b;
        break;
      case Code::kOr:
        a |= b;
        break;
      case Code::kShl:
        a <<= b;
        break;
      case Code::kShr:
        a >>= b;
        break;
      case Code::kLT:
        a = a < b;
        break;
      case Code::kLE:
        a = a <= b;
        break;
      case Code::kGT:
        a = a > b;
        break;
      case Code::kGE:
        a = a >= b;
        break;
      case Code::kEQ:
        a = a == b;
        break;
      case Code::kNE:
        a = a != b;
        break;
      case Code::kSelect: {
        const int64_t if_true = a;
        --top;
        *top = *top ? if_true : b;
        break;
      }
      default:
        break;
    }
  }
  return *top;
}

std::vector<int64_t> EvaluateOverBox(const Array<Expr>& exprs, const Array<Var>& vars,
                                     const std::vector<int64_t>& extents) {
  std::vector<IntProgram> programs;
  for (const Expr& e : exprs) programs.emplace_back(e, std::vector<Var>(vars.begin(), vars.end()));
  int64_t points = 1;
  for (int64_t e : extents) points *= e;
  std::vector<int64_t> table, point(extents.size(), 0);
  table.reserve(points * programs.size());
  for (int64_t k = 0; k < points; ++k) {
    for (const IntProgram& p : programs) table.push_back(p(point.data()));
    for (size_t d = extents.size(); d-- > 0;) {
      if (++point[d] < extents[d]) break;
      point[d] = 0;
    }
  }
  return table;
}

}  // namespace tl
