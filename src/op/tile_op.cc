#include "tile_op.h"

namespace tl {

TileRegion TileRegion::From(const Expr& e) {
  const auto* r = e.as<TensorRegionNode>();
  TVM_FFI_ICHECK(r) << "operand of a tile operator is a " << e->GetTypeKey() << ", not a region";
  return {r->source.as_or_throw<Var>(), r->region};
}

TileRegion TileRegion::Whole(const Var& buffer) {
  TileRegion whole{buffer, {}};
  for (const Expr& extent : BufferOf(buffer)->shape) {
    whole.ranges.push_back(MakeRange(MakeInt(0), extent));
  }
  return whole;
}

bool TileRegion::IsWhole() const {
  const Array<Expr>& shape = BufferOf(buffer)->shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!IsConst(ranges[d]->min, 0)) return false;
    const auto extent = AsInt(shape[d]);
    // The launch may know a tile's extents alone.
    const bool is_whole = extent ? IsConst(ranges[d]->extent, *extent)
                                 : Analyzer().CanProveEqual(ranges[d]->extent, shape[d]);
    if (!is_whole) return false;
  }
  return true;
}

Expr TileRegion::ToExpr() const {
  auto n = make_object<TensorRegionNode>();
  n->source = buffer;
  n->ty = BufferOf(buffer)->dtype;
  n->region = ranges;
  return TensorRegion(n);
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

Array<Expr> TileRegion::MatrixExtents() const {
  const Array<Expr> all = Extents();
  return {all[all.size() - 2], all[all.size() - 1]};
}

Array<Expr> TileRegion::MatrixElement(const Expr& row, const Expr& column) const {
  const Array<Expr> mins = Mins();
  std::vector<Expr> indices(mins.begin(), mins.end());
  const size_t last = indices.size() - 1;
  indices[last - 1] = indices[last - 1] + row;
  indices[last] = indices[last] + column;
  return Array<Expr>(indices.begin(), indices.end());
}

bool IsTileOp(const CallNode* call) {
  const OpNode* op = OpOf(call);
  return op && std::string(op->name).rfind(kTileOpPrefix, 0) == 0;
}

std::string TileOpName(const CallNode* call) {
  return std::string(OpOf(call)->name).substr(std::string(kTileOpPrefix).size());
}

const CallNode* AsTileOp(const Stmt& s) {
  const auto* eval = s.as<EvaluateNode>();
  const auto* call = eval ? eval->value.as<CallNode>() : nullptr;
  return call && IsTileOp(call) ? call : nullptr;
}

const CallNode* AsTileOp(const Stmt& s, const char* op) {
  const CallNode* call = AsTileOp(s);
  return call && IsCallTo(call, op) ? call : nullptr;
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
