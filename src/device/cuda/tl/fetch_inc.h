/*! The counter of blocks that fetch their tiles; kernels that have no other atomic operation are
 * spared the time that their header takes. */
#pragma once

#include <tl/atomic_order.h>

namespace tl {
namespace detail {

template <typename Value>
struct Operation_inc {
  static constexpr char text[] = "inc.u32";
};

}  // namespace detail

/*! Counts up, from `last` on to 0 (PTX ISA, atom, inc). */
template <MemoryOrder order, typename T>
TL_DEVICE T fetch_inc(T* at, T last) {
  static_assert(sizeof(T) == 4, "tl::fetch_inc counts in 32 bits");
  using Order = detail::UpdateOrder<order>;
  using Operation = detail::Operation_inc<T>;
  const uint32_t operand = bit_cast<uint32_t>(last);
  uint32_t old;
  detail::fence_before<order>();
  TL_SPACED(TL_ATOM_AT, "r")
  return bit_cast<T>(old);
}

}  // namespace tl
