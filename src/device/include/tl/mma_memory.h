/*! What the operands of tensor cores are in memory. */
#pragma once

#include <tl/traits.h>

/*! float32 of which an instruction uses 10 bits of mantissa; in memory it is a float. */
struct tfloat32_t;

namespace tl {
template <typename Format>
struct SubByte;

namespace detail {

template <typename T>
struct MmaMemory {
  using type = T;
};
template <>
struct MmaMemory<tfloat32_t> {
  using type = float;
};
template <typename Format>
struct MmaMemory<SubByte<Format>> {
  using type = uint8_t;
};

}  // namespace detail

/*! What pointers to the elements of an operand point to; two of 4 bits lie in a byte. */
template <typename T>
using mma_memory = typename detail::MmaMemory<T>::type;

}  // namespace tl
