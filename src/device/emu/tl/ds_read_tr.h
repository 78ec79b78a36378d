/*!
 * Reads of shared memory (LDS) that transpose among the lanes of a wavefront. The last lane to
 * arrive does the work of all.
 */
#pragma once

#include <tl/barrier.h>
#include <tl/buffer.h>

namespace tl {
namespace emu {

static_assert(kWarpSize == 64, "ds_read_tr is an instruction of wavefronts of 64 lanes");

struct DsReadTrArguments {
  const void* row;
  void* registers;
};

/*! Element e of `bits` bits. */
template <int bits>
TL_DEVICE uint32_t ds_element(const uint8_t* bytes, int e) {
  if (bits == 16) return bytes[2 * e] | bytes[2 * e + 1] << 8;
  return bits == 8 ? bytes[e] : bytes[e / 2] >> 4 * (e % 2) & 15;
}

/*!
 * The 8 bytes that each lane names are n elements. 16 lanes have n rows of 16 elements in their
 * order; lane i of them receives element i of each row (CDNA4 ISA, DS_READ_B64_TR_B16 and its
 * like).
 */
template <int bits>
TL_UNOBSERVED void ds_read_tr(void* const* arguments) {
  constexpr int kBytes = 8, n = kBytes * 8 / bits, kGroup = 16;
  uint8_t rows[kWarpSize][kBytes];
  for (int l = 0; l < kWarpSize; ++l) {
    __builtin_memcpy(rows[l], static_cast<const DsReadTrArguments*>(arguments[l])->row, kBytes);
  }
  for (int l = 0; l < kWarpSize; ++l) {
    uint64_t received = 0;
    for (int r = 0; r < n; ++r) {
      const int place = r * kGroup + l % kGroup;
      const uint64_t element = ds_element<bits>(rows[l / kGroup * kGroup + place / n], place % n);
      received |= element << bits * r;
    }
    __builtin_memcpy(static_cast<DsReadTrArguments*>(arguments[l])->registers, &received, kBytes);
  }
}

template <int bits>
TL_DEVICE void ds_read_tr_sync(const char* name, const void* row, void* registers, Location where) {
  check_alignment(row, 8, "address of a ds_read_tr", where);
  check_read(row, 8, where);
  DsReadTrArguments arguments{row, registers};
  collective_sync(name, ds_read_tr<bits>, &arguments, where);
  check_write(registers, 8, where);
}

}  // namespace emu

/*!
 * Each lane names 8 bytes of shared memory, and receives 8 bytes of elements of 16, 8 or 4 bits in
 * its registers. With n elements in 8 bytes, 16 consecutive lanes name n rows of 16 elements, one
 * after the other; lane i of them receives element i of each of the rows.
 */
#define TL_DS_READ_TR(bits)                                                \
  TL_DEVICE void ds_read_tr##bits(const void* row, void* registers,        \
                                  emu::Location where = emu::here()) {     \
    emu::ds_read_tr_sync<bits>("ds_read_tr" #bits, row, registers, where); \
  }
TL_DS_READ_TR(16)
TL_DS_READ_TR(8)
TL_DS_READ_TR(4)
#undef TL_DS_READ_TR

}  // namespace tl
