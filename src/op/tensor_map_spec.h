/*!
 * The tensor maps of a program: what TMA is told about a tensor, and the box of it that one
 * instruction copies (CUDA Driver API, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col).
 */
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "../tvm/build.h"

namespace tl {

/*!
 * A tensor map, dimensions innermost first. In a program it is the operand
 * `tl.create_tma_descriptor(pointer, shape.., byte_strides..)` of a copy, whose attributes are the
 * other fields by name. tilelang/engine/tensor_map_spec.py is its Python face.
 */
struct TensorMapSpec {
  Expr pointer;                          // to the tensor's first element
  Array<Expr> shape;                     // extents in elements
  Array<Expr> byte_strides;              // of all dimensions but the innermost, which is contiguous
  std::string dtype;                     // a type that the driver knows
  std::vector<int64_t> box;              // extents of the box; empty in im2col mode
  std::vector<int64_t> element_strides;  // steps between the elements of the box
  int64_t swizzle = 0;                   // bytes: 128, 64, 32, or 0
  int64_t l2_promotion = 128;            // bytes that L2 reads at once
  std::string oob_fill = "zeros";        // what is read outside of the tensor
  /*! A map for each rank: `pointer` is to the table of the addresses of a symmetric tensor. */
  bool peers = false;

  /*! The pixels of a map in im2col mode: corners for each pixel dimension, channels and pixels of
   * one copy. */
  struct Pixels {
    std::vector<int64_t> lower, upper;
    int64_t channels, pixels;
  };
  std::optional<Pixels> im2col;

  Call ToCall() const;
  static TensorMapSpec FromCall(const CallNode* call);
  /*! The map that an operand is; none where it is something else. */
  static std::optional<TensorMapSpec> FromOperand(const Expr& operand);
  /*! Elements of the box. */
  int64_t BoxElements() const;
};

/*! The type of a tensor map whose tensor has elements of type `t`: types that the driver does not
 * know move as their bits. */
std::string MapDType(DLDataType t);

}  // namespace tl
