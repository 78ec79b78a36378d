/*! Reads of shared memory (LDS) that transpose among the lanes of a wavefront (CDNA4 ISA,
 * DS_READ_B64_TR_B16, _B8 and _B4). */
#pragma once

#include <tl/platform.h>

namespace tl {

#if __gfx950__
namespace detail {

using DsShorts = short __attribute__((ext_vector_type(4)));
using DsWords = int __attribute__((ext_vector_type(2)));
template <typename T>
using DsPointer = const __attribute__((address_space(3))) T*;

}  // namespace detail

// Defined by tl/ds_read_tr.gfx950.ll, which says why.
extern "C" {
__device__ detail::DsShorts __tl_ds_read_tr16(detail::DsPointer<detail::DsShorts> row);
__device__ detail::DsWords __tl_ds_read_tr8(detail::DsPointer<detail::DsWords> row);
__device__ detail::DsWords __tl_ds_read_tr4(detail::DsPointer<detail::DsWords> row);
}

/*!
 * Each lane names 8 bytes of shared memory, and receives 8 bytes of elements of 16, 8 or 4 bits in
 * its registers. With n elements in 8 bytes, 16 consecutive lanes name n rows of 16 elements, one
 * after the other; lane i of them receives element i of each of the rows. All lanes of the
 * wavefront call.
 */
#define TL_DS_READ_TR(bits, Words)                                                   \
  TL_DEVICE void ds_read_tr##bits(const void* row, void* registers) {                \
    const auto words = __tl_ds_read_tr##bits((detail::DsPointer<detail::Words>)row); \
    memcpy(registers, &words, sizeof(words));                                        \
  }
TL_DS_READ_TR(16, DsShorts)
TL_DS_READ_TR(8, DsWords)
TL_DS_READ_TR(4, DsWords)
#undef TL_DS_READ_TR
#endif

}  // namespace tl
