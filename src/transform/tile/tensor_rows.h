/*! Tensors whose rows begin between vectors of 16 bytes, and such a tensor as one row. */
#pragma once
#include <string>

#include "../../layout/layout.h"
#include "../../tvm/build.h"
#include "../../tvm/pass_configs.h"

namespace tl {

inline constexpr int64_t kTensorVectorBytes = 16;
/*! Places are of 32 bits, behind the end of a tensor, too. */
inline constexpr int64_t kMostTensorPlaces = int64_t(1) << 30;

inline bool IsKnownExtent(const Expr& extent) { return AsInt(extent).has_value(); }

/*! Elements of the tensor, whose extents are known, are whole bytes that follow each other from a
 * multiple of 16 bytes on. */
inline bool IsInOnePiece(const Var& tensor) {
  const BufferTypeNode* buffer = BufferOf(tensor);
  const DLDataType type = DTypeOf(tensor);
  if (!IsGlobal(tensor) || type.lanes != 1 || type.bits < 8 ||
      type.bits >= 8 * kTensorVectorBytes || !AllOf(buffer->shape, IsKnownExtent) ||
      !IsConst(buffer->elem_offset, 0)) {
    return false;
  }
  int64_t stride = 1;
  for (size_t d = buffer->strides.size(); d-- > 0;) {
    if (!IsConst(buffer->strides[d], stride)) return false;
    stride *= ToInt(buffer->shape[d]);
  }
  return Product(ConstShape(tensor)) < kMostTensorPlaces;
}

/*! Elements of a vector. */
inline int64_t VectorOf(const Var& tensor) { return kTensorVectorBytes * 8 / DTypeOf(tensor).bits; }

/*! Its rows begin between vectors, its end is that of one. The tensor is in one piece. */
inline bool HasOddRows(const Var& tensor) {
  const std::vector<int64_t> shape = ConstShape(tensor);
  return shape.back() % VectorOf(tensor) && Product(shape) % VectorOf(tensor) == 0;
}

/*! A view of a tensor in one piece, in the order of its memory. */
inline Var AsOneRow(const Var& tensor) {
  return MakeBuffer(std::string(tensor->name) + "_flat", DTypeOf(tensor),
                    {MakeInt(Product(ConstShape(tensor)))}, ScopeOf(tensor));
}

}  // namespace tl
