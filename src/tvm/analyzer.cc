#include "analyzer.h"

#include <tvm/ffi/reflection/accessor.h>

namespace tl {

void Analyzer::Bind(const Var& v, const Expr& min, const Expr& extent) {
  auto r = make_object<RangeNode>();
  r->min = min;
  r->extent = extent;
  TL_GLOBAL("sym.AnalyzerBind")(self_, v, Range(r), true);
}

Expr Analyzer::Simplify(const Expr& e) {
  return TL_GLOBAL("sym.AnalyzerSimplify")(self_, e, 2).cast<Expr>();
}

bool Analyzer::CanProve(const Expr& condition) {
  if (AsInt(condition)) return ToInt(condition) != 0;
  return TL_GLOBAL("sym.AnalyzerCanProve")(self_, condition, 0).cast<bool>();
}

bool Analyzer::CanProveEqual(const Expr& a, const Expr& b) {
  return TL_GLOBAL("sym.AnalyzerCanProveEqual")(self_, a, b).cast<bool>();
}

Analyzer::Modular Analyzer::ModularSet(const Expr& e) {
  static const ffi::reflection::FieldGetter coeff("sym.ModularSet", "coeff");
  static const ffi::reflection::FieldGetter base("sym.ModularSet", "base");
  ObjectRef set = TL_GLOBAL("sym.AnalyzerModularSet")(self_, e).cast<ObjectRef>();
  return {coeff(set).cast<int64_t>(), base(set).cast<int64_t>()};
}

Analyzer::Bound Analyzer::ConstBound(const Expr& e) {
  static const ffi::reflection::FieldGetter min("sym.ConstIntBound", "min_value");
  static const ffi::reflection::FieldGetter max("sym.ConstIntBound", "max_value");
  ObjectRef bound = TL_GLOBAL("sym.AnalyzerConstIntBound")(self_, e).cast<ObjectRef>();
  return {min(bound).cast<int64_t>(), max(bound).cast<int64_t>()};
}

Function Analyzer::EnterConstraint(const Expr& condition) {
  return TL_GLOBAL("sym.AnalyzerEnterConstraintContext")(self_, condition).cast<Function>();
}

}  // namespace tl
