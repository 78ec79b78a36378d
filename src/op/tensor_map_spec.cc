#include "tensor_map_spec.h"

#include <functional>
#include <numeric>

#include "intrinsics.h"
#include "tile_op.h"

namespace tl {
namespace {

Array<Any> ListOf(const std::vector<int64_t>& numbers) {
  return Array<Any>(numbers.begin(), numbers.end());
}

std::vector<int64_t> NumbersOf(const Any& list) {
  std::vector<int64_t> numbers;
  for (const Any& number : list.cast<Array<Any>>()) numbers.push_back(number.cast<int64_t>());
  return numbers;
}

}  // namespace

Call TensorMapSpec::ToCall() const {
  Array<Expr> args = {pointer};
  for (const Expr& extent : shape) args.push_back(extent);
  for (const Expr& stride : byte_strides) args.push_back(stride);
  auto attrs = make_object<DictAttrsNode>();
  attrs->__dict__ = {{"dtype", String(dtype)},
                     {"box", ListOf(box)},
                     {"element_strides", ListOf(element_strides)},
                     {"swizzle", swizzle},
                     {"l2_promotion", l2_promotion},
                     {"oob_fill", String(oob_fill)}};
  if (peers) attrs->__dict__.Set("peers", true);
  if (im2col) {
    attrs->__dict__.Set("im2col", Map<String, Any>{{"lower", ListOf(im2col->lower)},
                                                   {"upper", ListOf(im2col->upper)},
                                                   {"channels", im2col->channels},
                                                   {"pixels", im2col->pixels}});
  }
  Call call = CallOp(kCreateTmaDescriptor, args, pointer->ty);
  call.CopyOnWrite()->attrs = DictAttrs(attrs);
  return call;
}

TensorMapSpec TensorMapSpec::FromCall(const CallNode* call) {
  const Map<String, Any> attrs = TileOpAttrs(call);
  TensorMapSpec map;
  map.pointer = call->args[0];
  // A pointer, the extents, and one stride less than these.
  const size_t rank = call->args.size() / 2;
  for (size_t k = 1; k < call->args.size(); ++k) {
    (k <= rank ? map.shape : map.byte_strides).push_back(call->args[k]);
  }
  map.dtype = attrs.at("dtype").cast<String>();
  map.box = NumbersOf(attrs.at("box"));
  map.element_strides = NumbersOf(attrs.at("element_strides"));
  map.swizzle = attrs.at("swizzle").cast<int64_t>();
  map.l2_promotion = attrs.at("l2_promotion").cast<int64_t>();
  map.oob_fill = attrs.at("oob_fill").cast<String>();
  map.peers = attrs.count("peers") != 0;
  if (attrs.count("im2col")) {
    const auto pixels = attrs.at("im2col").cast<Map<String, Any>>();
    map.im2col = {NumbersOf(pixels.at("lower")), NumbersOf(pixels.at("upper")),
                  pixels.at("channels").cast<int64_t>(), pixels.at("pixels").cast<int64_t>()};
  }
  return map;
}

std::optional<TensorMapSpec> TensorMapSpec::FromOperand(const Expr& operand) {
  if (!IsCallTo(operand, kCreateTmaDescriptor)) return std::nullopt;
  return FromCall(operand.as<CallNode>());
}

int64_t TensorMapSpec::BoxElements() const {
  return std::accumulate(box.begin(), box.end(), int64_t(1), std::multiplies<>());
}

std::string MapDType(DLDataType t) {
  const bool known = (t.code == kDLFloat && t.bits >= 16) || t.code == kDLBfloat ||
                     (t.code == kDLInt && t.bits >= 32);
  if (!known) t.code = kDLUInt;
  return DTypeName(t);
}

}  // namespace tl
