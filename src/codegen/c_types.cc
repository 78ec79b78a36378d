#include "c_types.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "../tvm/build.h"

namespace tl {
namespace {

std::optional<std::string> ScalarName(DLDataType t) {
  if (IsSubByte(t)) {
    if (t.code == kDLFloat4_e2m1fn) return "fp4_e2_t";
    return t.code == kDLInt ? "int4b_t" : "uint4b_t";
  }
  const std::string bits = std::to_string(t.bits);
  const bool byte_sized = t.bits == 8 || t.bits == 16 || t.bits == 32 || t.bits == 64;
  switch (t.code) {
    case kDLInt:
      if (t.bits == 32) return "int";
      return byte_sized ? std::optional("int" + bits + "_t") : std::nullopt;
    case kDLUInt:
      return byte_sized ? std::optional("uint" + bits + "_t") : std::nullopt;
    case kDLBool:
      return "bool";
    case kDLBfloat:
      return "bfloat16_t";
    // Without a suffix it is the format of NVIDIA's chips.
    case kDLFloat8_e4m3:
    case kDLFloat8_e4m3fn:
      return "fp8_e4_t";
    case kDLFloat8_e5m2:
      return "fp8_e5_t";
    case kDLFloat8_e4m3fnuz:
      return "fp8_e4_fnuz_t";
    case kDLFloat8_e5m2fnuz:
      return "fp8_e5_fnuz_t";
    case kDLFloat8_e8m0fnu:
      return "fp8_e8_t";
    case kDLFloat:
      if (t.bits == 16) return "half_t";
      if (t.bits == 32) return "float";
      return t.bits == 64 ? std::optional<std::string>("double") : std::nullopt;
    default:
      return std::nullopt;
  }
}

/*! Fewest digits that read back as the same value. */
template <typename T>
std::string Shortest(T value, int max_digits) {
  char text[40];
  for (int digits = 1; digits <= max_digits; ++digits) {
    std::snprintf(text, sizeof(text), "%.*g", digits, static_cast<double>(value));
    if (static_cast<T>(std::strtod(text, nullptr)) == value) break;
  }
  std::string out = text;
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string SingleLiteral(float value) {
  if (std::isnan(value)) return "tl::bit_cast<float>(0x7fc00000u)";
  if (std::isinf(value))
    return std::string(value < 0 ? "-" : "") + "tl::bit_cast<float>(0x7f800000u)";
  return Shortest(value, 9) + "f";
}

std::string DoubleLiteral(double value) {
  const std::string sign = value < 0 ? "-" : "";
  if (std::isnan(value)) return "tl::bit_cast<double>(uint64_t(0x7ff8000000000000))";
  if (std::isinf(value)) return sign + "tl::bit_cast<double>(uint64_t(0x7ff0000000000000))";
  return Shortest(value, 17);
}

}  // namespace

std::optional<std::string> CTypeName(DLDataType t) {
  std::optional<std::string> scalar = ScalarName(WithLanes(t, 1));
  if (!scalar || t.lanes == 1) return scalar;
  return "tl::vec<" + *scalar + ", " + std::to_string(t.lanes) + ">";
}

std::string IntLiteral(int64_t value, DLDataType t) {
  const std::string text = std::to_string(value);
  if (t.code == kDLBool) return value ? "true" : "false";
  if (t.code == kDLInt && t.bits == 32) {
    // -2147483648 is minus applied to a number that is no int.
    return value == INT32_MIN ? "int(-2147483647 - 1)" : text;
  }
  if (t.code == kDLUInt && t.bits == 32) return text + "u";
  if (t.code == kDLUInt && t.bits == 64) {
    return "uint64_t(" + std::to_string(static_cast<uint64_t>(value)) + "u)";
  }
  if (value == INT64_MIN) return "int64_t(-9223372036854775807 - 1)";
  return *CTypeName(t) + "(" + text + ")";
}

std::string StringLiteral(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string FloatLiteral(double value, DLDataType t) {
  if (t.code == kDLFloat && t.bits == 64) return DoubleLiteral(value);
  if (t.code == kDLFloat && t.bits == 32) return SingleLiteral(static_cast<float>(value));
  return *CTypeName(t) + "(" + SingleLiteral(static_cast<float>(value)) + ")";
}

}  // namespace tl
