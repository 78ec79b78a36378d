#include "reduction.h"

#include <limits>
#include <map>

#include "intrinsics.h"

namespace tl {
namespace {

bool IsFloat(DLDataType t) { return t.code == kDLFloat || t.code == kDLBfloat; }

Expr Extreme(DLDataType t, bool highest) {
  if (IsFloat(t)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return MakeFloat(t, highest ? infinity : -infinity);
  }
  return (highest ? TL_GLOBAL("prim.max_value") : TL_GLOBAL("prim.min_value"))(PrimTy(t), nullptr)
      .cast<Expr>();
}

Expr AbsoluteOf(const Expr& x) {
  const DLDataType t = x->dtype();
  return t.code == kDLUInt ? x : CallOp("tirx.fabs", {x}, PrimTy(t));
}

}  // namespace

Reduction Reduction::Named(const std::string& name, bool nan_propagate) {
  static const std::map<std::string, Kind> kinds = {
      {"sum", Kind::kSum}, {"abssum", Kind::kSum}, {"max", Kind::kMax},  {"absmax", Kind::kMax},
      {"min", Kind::kMin}, {"bitand", Kind::kAnd}, {"bitor", Kind::kOr}, {"bitxor", Kind::kXor}};
  auto it = kinds.find(name);
  TVM_FFI_ICHECK(it != kinds.end()) << "no reduction " << name;
  Reduction r;
  r.kind_ = it->second;
  r.absolute_ = name.rfind("abs", 0) == 0;
  r.nan_propagate_ = nan_propagate;
  return r;
}

Expr Reduction::Identity(DLDataType t) const {
  switch (kind_) {
    case Kind::kMax:
      return absolute_ ? ZeroOf(t) : Extreme(t, false);
    case Kind::kMin:
      return Extreme(t, true);
    case Kind::kAnd:
      if (t.code == kDLBool) return MakeInt(t, 1);
      return t.code == kDLUInt ? Extreme(t, true) : Expr(MakeInt(t, -1));
    default:
      return ZeroOf(t);
  }
}

Expr Reduction::Combine(const Expr& a, const Expr& b) const {
  const DLDataType t = a->dtype();
  const bool is_bool = t.code == kDLBool;
  switch (kind_) {
    case Kind::kSum:
      return a + b;
    case Kind::kMax:
      return nan_propagate_ && IsFloat(t) ? CallOp(kMaxNan, {a, b}, PrimTy(t)) : MaxOf(a, b);
    case Kind::kMin:
      return nan_propagate_ && IsFloat(t) ? CallOp(kMinNan, {a, b}, PrimTy(t)) : MinOf(a, b);
    case Kind::kAnd:
      return is_bool ? a && b : BitAndOf(a, b);
    case Kind::kOr:
      return is_bool ? a || b : BitOrOf(a, b);
    case Kind::kXor:
      return is_bool ? NotEqualOf(a, b) : XorOf(a, b);
  }
  return Expr();
}

Expr Reduction::Contribution(const Expr& element, DLDataType t) const {
  Expr x = CastTo(t, element);
  return absolute_ ? AbsoluteOf(x) : x;
}

std::string Reduction::DeviceName() const {
  switch (kind_) {
    case Kind::kSum:
      return "tl::SumOp";
    case Kind::kMax:
      return nan_propagate_ ? "tl::MaxOpNan" : "tl::MaxOp";
    case Kind::kMin:
      return nan_propagate_ ? "tl::MinOpNan" : "tl::MinOp";
    case Kind::kAnd:
      return "tl::BitAndOp";
    case Kind::kOr:
      return "tl::BitOrOp";
    case Kind::kXor:
      return "tl::BitXorOp";
  }
  return "";
}

}  // namespace tl
