#include "tile_op.h"

namespace tl {

TileRegion TileRegion::From(const Expr& e) {
  const auto* r = e.as<TensorRegionNode>();
  TVM_FFI_ICHECK(r) << "operand of a tile operator is a " << e->GetTypeKey() << ", not a region";
  return {r->source.as_or_throw<Var>(), r->region};
}

Array<Expr> TileRegion::Extents() const {
  Array<Expr> out;
  for (const Range& r : ranges) out.push_back(r->extent);
  return out;
}

Array<Expr> TileRegion::Mins() const {
  Array<Expr> out;
  for (const Range& r : ranges) out.push_back(r->min);
  return out;
}

const CallNode* AsTileOp(const Stmt& s) {
  const auto* eval = s.as<EvaluateNode>();
  const auto* call = eval ? eval->value.as<CallNode>() : nullptr;
  const OpNode* op = call ? OpOf(call) : nullptr;
  if (!op) return nullptr;
  return std::string(op->name).rfind("tl.tileop.", 0) == 0 ? call : nullptr;
}

Map<String, Any> TileOpAttrs(const CallNode* call) {
  const auto* attrs = call->attrs.defined() ? call->attrs.as<DictAttrsNode>() : nullptr;
  return attrs ? attrs->__dict__ : Map<String, Any>();
}

Any TileOpAttr(const CallNode* call, const char* key) {
  const Map<String, Any> attrs = TileOpAttrs(call);
  auto it = attrs.find(key);
  return it == attrs.end() ? Any(nullptr) : (*it).second;
}

int64_t TileOpIntAttr(const CallNode* call, const char* key, int64_t otherwise) {
  Any v = TileOpAttr(call, key);
  if (v == nullptr) return otherwise;
  if (auto i = v.as<int64_t>()) return *i;
  return ToInt(v.cast<Expr>());
}

}  // namespace tl
