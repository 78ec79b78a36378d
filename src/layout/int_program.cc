#include "int_program.h"

#include <algorithm>
#include <map>
#include <utility>

#include "../tvm/hidden_operations.h"
#include "box_points.h"

namespace tl {
namespace {

constexpr int kMaxDepth = 64;

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }

int64_t Wrapped(int64_t x, int64_t type) {
  const int unused = 64 - static_cast<int>(type & 255);
  const uint64_t bits = static_cast<uint64_t>(x) << unused;
  return type & 256 ? static_cast<int64_t>(bits) >> unused : static_cast<int64_t>(bits >> unused);
}

template <typename Operation>
void ForAll(int64_t* a, const int64_t* b, int64_t n, const Operation& operation) {
  for (int64_t k = 0; k < n; ++k) a[k] = operation(a[k], b[k]);
}
template <typename Operation>
void ForAll(int64_t* a, int64_t b, int64_t n, const Operation& operation) {
  for (int64_t k = 0; k < n; ++k) a[k] = operation(a[k], b);
}

/*! The tables that were asked for last. */
class RecentTables {
 public:
  SharedTable Find(const std::vector<int64_t>& key) const {
    const auto found = tables_.find(key);
    return found == tables_.end() ? nullptr : found->second;
  }
  void Keep(std::vector<int64_t> key, const SharedTable& table) {
    numbers_ += key.size() + table->size();
    if (numbers_ > kMostNumbers) {
      tables_.clear();
      numbers_ = key.size() + table->size();
    }
    if (numbers_ > kMostNumbers) {
      numbers_ = 0;
    } else {
      tables_.emplace(std::move(key), table);
    }
  }

 private:
  static constexpr size_t kMostNumbers = 1 << 20;  // 8 MiB
  std::map<std::vector<int64_t>, SharedTable> tables_;
  size_t numbers_ = 0;
};

}  // namespace

IntProgram::IntProgram(const Expr& e, const std::vector<Var>& vars) { Compile(e, vars); }

void IntProgram::AppendKey(std::vector<int64_t>* key) const {
  key->push_back(static_cast<int64_t>(steps_.size()));
  for (const Step& s : steps_) {
    key->push_back(2 * static_cast<int64_t>(s.code) + s.has_constant);
    key->push_back(s.value);
  }
}

void IntProgram::Emit(Step step, int stack_change) {
  steps_.push_back(step);
  depth_ += stack_change;
  most_depth_ = std::max(most_depth_, depth_);
  TVM_FFI_ICHECK(depth_ <= kMaxDepth) << "index expression is nested too deeply";
}

/*! The step of an operation whose first operand has been compiled. */
void IntProgram::EmitBinary(Code code, const Expr& second, const std::vector<Var>& vars) {
  const std::optional<int64_t> constant = AsInt(second);
  if (!constant) {
    Compile(second, vars);
    return Emit({code, false, 0}, -1);
  }
  const bool divides = code == Code::kFloorDiv || code == Code::kFloorMod;
  if (divides && *constant > 0 && (*constant & (*constant - 1)) == 0) {
    // By a power of two: rounds down for negative numbers, too.
    if (code == Code::kFloorDiv) return Emit({Code::kShr, true, __builtin_ctzll(*constant)}, 0);
    return Emit({Code::kAnd, true, *constant - 1}, 0);
  }
  Emit({code, true, *constant}, 0);
}

void IntProgram::EmitWrap(const DLDataType& type) {
  if (type.code == kDLBool) return Emit({Code::kNE, true, 0}, 0);
  Emit({Code::kWrap, true, type.bits | (type.code == kDLInt ? 256 : 0)}, 0);
}

template <typename Node>
bool IntProgram::TryBinary(const Expr& e, Code code, const std::vector<Var>& vars) {
  const auto* op = e.as<Node>();
  if (!op) return false;
  Compile(op->a, vars);
  EmitBinary(code, op->b, vars);
  const bool arithmetic =
      code == Code::kAdd || code == Code::kSub || code == Code::kMul || code == Code::kShl;
  if (arithmetic && IsModulo(e->dtype())) EmitWrap(e->dtype());
  return true;
}

void IntProgram::Compile(const Expr& e, const std::vector<Var>& vars) {
  if (std::optional<int64_t> v = AsInt(e)) return Emit({Code::kConst, false, *v}, 1);
  if (e.as<VarNode>()) {
    for (size_t i = 0; i < vars.size(); ++i) {
      if (vars[i].same_as(e)) {
        return Emit({Code::kSlot, false, static_cast<int64_t>(i)}, 1);
      }
    }
    TVM_FFI_THROW(InternalError) << "index expression has a free variable "
                                 << e.as<VarNode>()->name;
  }
  if (const auto* cast = e.as<CastNode>()) {
    Compile(cast->value, vars);
    if (!HoldsAll(e->dtype(), cast->value->dtype())) EmitWrap(e->dtype());
    return;
  }
  if (const auto* select = e.as<SelectNode>()) {
    Compile(select->condition, vars);
    Compile(select->true_value, vars);
    Compile(select->false_value, vars);
    return Emit({Code::kSelect, false, 0}, -2);
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
      return EmitBinary(code, call->args[1], vars);
    }
  }
  TVM_FFI_THROW(InternalError) << "index expression has a " << e->GetTypeKey();
}

int64_t IntProgram::operator()(const int64_t* point) const {
  int64_t stack[kMaxDepth];
  Run<1>(point, 1, stack);
  return stack[0];
}

void IntProgram::Evaluate(const int64_t* slots, int64_t n, int64_t* values) const {
  int64_t stack[kMaxDepth * kMostPoints];
  Run<kMostPoints>(slots, n, stack);
  std::copy_n(stack, n, values);
}

/*! Leaves the values at the bottom of the stack; an entry of it, and a slot, is kStride numbers. */
template <int64_t kStride>
void IntProgram::Run(const int64_t* slots, int64_t n, int64_t* stack) const {
  int64_t* top = stack - kStride;
  for (const Step& s : steps_) {
    if (s.code == Code::kConst) {
      std::fill_n(top += kStride, n, s.value);
      continue;
    }
    if (s.code == Code::kSlot) {
      std::copy_n(slots + s.value * kStride, n, top += kStride);
      continue;
    }
    const int64_t* b = top;
    int64_t* a = s.has_constant ? top : top -= kStride;
    switch (s.code) {
#define TL_STEP_(Name, Value)                                      \
  case Code::Name: {                                               \
    const auto value = [](int64_t x, int64_t y) { return Value; }; \
    if (s.has_constant) {                                          \
      ForAll(a, s.value, n, value);                                \
    } else {                                                       \
      ForAll(a, b, n, value);                                      \
    }                                                              \
    break;                                                         \
  }
      TL_STEP_(kAdd, x + y)
      TL_STEP_(kSub, x - y)
      TL_STEP_(kMul, x * y)
      TL_STEP_(kFloorDiv, FloorDivide(x, y))
      TL_STEP_(kFloorMod, x - FloorDivide(x, y) * y)
      TL_STEP_(kMin, std::min(x, y))
      TL_STEP_(kMax, std::max(x, y))
      TL_STEP_(kXor, x ^ y)
      TL_STEP_(kAnd, x & y)
      TL_STEP_(kOr, x | y)
      TL_STEP_(kShl, x << y)
      TL_STEP_(kShr, x >> y)
      TL_STEP_(kLT, x < y)
      TL_STEP_(kLE, x <= y)
      TL_STEP_(kGT, x > y)
      TL_STEP_(kGE, x >= y)
      TL_STEP_(kEQ, x == y)
      TL_STEP_(kNE, x != y)
      TL_STEP_(kWrap, Wrapped(x, y))
#undef TL_STEP_
      case Code::kSelect: {
        int64_t* condition = top -= kStride;
        for (int64_t k = 0; k < n; ++k) condition[k] = condition[k] ? a[k] : b[k];
        break;
      }
      default:
        break;
    }
  }
}

namespace {

std::vector<int64_t> TableOf(const std::vector<IntProgram>& programs,
                             const std::vector<int64_t>& extents) {
  int64_t points = 1;
  for (int64_t e : extents) points *= e;
  constexpr int64_t kMost = IntProgram::kMostPoints;
  const int64_t width = static_cast<int64_t>(programs.size());
  const std::vector<int64_t> begin(extents.size(), 0);
  std::vector<int64_t> table(points * width), point = begin;
  std::vector<int64_t> slots(extents.size() * kMost), values(kMost);
  for (int64_t first = 0; first < points; first += kMost) {
    const int64_t n = std::min(kMost, points - first);
    FillSlots(begin, extents, n, &point, slots.data());
    for (int64_t p = 0; p < width; ++p) {
      programs[p].Evaluate(slots.data(), n, values.data());
      for (int64_t k = 0; k < n; ++k) table[(first + k) * width + p] = values[k];
    }
  }
  return table;
}

}  // namespace

SharedTable EvaluateOverBox(const Array<Expr>& exprs, const Array<Var>& vars,
                            const std::vector<int64_t>& extents) {
  thread_local RecentTables recent;
  const std::vector<Var> slots(vars.begin(), vars.end());
  std::vector<IntProgram> programs;
  std::vector<int64_t> key(extents);
  for (const Expr& e : exprs) {
    programs.emplace_back(e, slots);
    programs.back().AppendKey(&key);
  }
  if (SharedTable known = recent.Find(key)) return known;
  auto table = std::make_shared<const std::vector<int64_t>>(TableOf(programs, extents));
  recent.Keep(std::move(key), table);
  return table;
}

}  // namespace tl
