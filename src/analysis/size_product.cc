#include "size_product.h"

namespace tl {
namespace {

constexpr int64_t kMost = int64_t(1) << 48;

bool Multiply(const Expr& e, SizeProduct* product) {
  if (const auto constant = AsInt(e)) {
    if (*constant <= 0 || *constant > kMost / product->constant) return false;
    product->constant *= *constant;
    return true;
  }
  if (const auto* op = e.as<MulNode>()) return Multiply(op->a, product) && Multiply(op->b, product);
  if (const auto* op = e.as<CastNode>()) {
    const DLDataType from = op->value->dtype(), to = e->dtype();
    return from.code == kDLInt && to.code == kDLInt && from.bits <= to.bits &&
           Multiply(op->value, product);
  }
  const auto* v = e.as<VarNode>();
  if (!v || v->dtype().code != kDLInt) return false;
  product->factors.push_back(GetRef<Var>(v));
  return true;
}

}  // namespace

bool SizeProduct::SameFactors(const SizeProduct& other) const {
  const auto same = [](const Var& a, const Var& b) { return a.same_as(b); };
  return std::is_permutation(factors.begin(), factors.end(), other.factors.begin(),
                             other.factors.end(), same);
}

std::optional<SizeProduct> SizeProductOf(const std::vector<Expr>& factors) {
  SizeProduct product;
  for (const Expr& factor : factors) {
    if (!Multiply(factor, &product)) return std::nullopt;
  }
  return product;
}

std::optional<SizeProduct> SizeProductOf(const Expr& e) {
  return SizeProductOf(std::vector<Expr>{e});
}

}  // namespace tl
