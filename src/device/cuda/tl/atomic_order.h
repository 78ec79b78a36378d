/*! How PTX writes the orders of atomic operations, and the instructions of the state spaces. */
#pragma once

#include <tl/bits.h>
#include <tl/memory_order.h>
#include <tl/shared_address.h>

namespace tl {
namespace detail {

template <MemoryOrder order>
TL_DEVICE void fence_before() {
  if constexpr (order == seq_cst) asm volatile("fence.sc.gpu;" ::: "memory");
  if constexpr (order == seq_cst_system) asm volatile("fence.sc.sys;" ::: "memory");
}

/*! How PTX writes an order and its scope. The compiler pays for each assembly statement that it
 * parses, used or not, so that text stands in for the orders and operations ("C": NVRTC, constant
 * text in assembly). Each text is that of a template, since those of classes are data of every
 * program. */
template <MemoryOrder order, int unused = 0>
struct PtxOrder;
#define TL_PTX_ORDER(order, words)        \
  template <int unused>                   \
  struct PtxOrder<order, unused> {        \
    static constexpr char text[] = words; \
  };
TL_PTX_ORDER(relaxed, "relaxed.gpu")
TL_PTX_ORDER(acquire, "acquire.gpu")
TL_PTX_ORDER(release, "release.gpu")
TL_PTX_ORDER(acq_rel, "acq_rel.gpu")
TL_PTX_ORDER(relaxed_system, "relaxed.sys")
TL_PTX_ORDER(acquire_system, "acquire.sys")
TL_PTX_ORDER(release_system, "release.sys")
TL_PTX_ORDER(acq_rel_system, "acq_rel.sys")
#undef TL_PTX_ORDER

/*! `order`, which is one of the device, at the scope of another one. */
TL_DEVICE constexpr MemoryOrder at_scope_of(MemoryOrder scope, MemoryOrder order) {
  return is_system(scope) ? MemoryOrder(order + relaxed_system) : order;
}
/*! That of an instruction that loads and stores. */
template <MemoryOrder order>
using UpdateOrder = PtxOrder<plain(order) == consume   ? at_scope_of(order, acquire)
                             : plain(order) == seq_cst ? at_scope_of(order, acq_rel)
                                                       : order>;
/*! That of one that does one of them: relaxed, or `ordered`. */
template <MemoryOrder order, MemoryOrder ordered>
using AccessOrder = PtxOrder<plain(order) == relaxed ? order : at_scope_of(order, ordered)>;

/*! TL_SPACED(TL_INSTRUCTION, letter): by the instruction of the state space that `at` is in. NVVM
 * knows the spaces of a kernel's arguments and tiles. An instruction on a generic address goes the
 * long way of all spaces. */
#define TL_SPACED(TL_INSTRUCTION, letter)                                 \
  if (__isShared(at)) {                                                   \
    TL_INSTRUCTION(".shared", "r"(detail::shared_address(at)), letter);   \
  } else if (__isGlobal(at)) {                                            \
    TL_INSTRUCTION(".global", "l"(__cvta_generic_to_global(at)), letter); \
  } else {                                                                \
    TL_INSTRUCTION("", "l"(at), letter);                                  \
  }
#define TL_ATOM_AT(space, address, letter)                                        \
  asm volatile("atom.%3" space ".%4 %0, [%1], %2;"                                \
               : "=" letter(old)                                                  \
               : address, letter(operand), "C"(Order::text), "C"(Operation::text) \
               : "memory")

}  // namespace detail
}  // namespace tl
