/*! Reading an operand of a wgmma from shared memory by its descriptor (PTX ISA, Asynchronous
 * Warpgroup Level Matrix Shared Memory Layout). */
#pragma once

#include <tl/mma.h>
#include <tl/wgmma_shapes.h>

namespace tl {
namespace emu {

/*! The fields of a descriptor, in bytes. */
struct WgmmaDescriptor {
  uint32_t start, leading, stride, swizzle, base_offset;

  explicit WgmmaDescriptor(uint64_t bits)
      : start(uint32_t(bits & 0x3fff) << 4),
        leading(uint32_t(bits >> 16 & 0x3fff) << 4),
        stride(uint32_t(bits >> 32 & 0x3fff) << 4),
        swizzle(bits >> 62 == 0 ? 0 : 256 >> (bits >> 62)),
        base_offset(uint32_t(bits >> 49 & 7)) {}

  uint32_t span() const { return swizzle ? swizzle : 16; }

  /*! Of row `row`, where the `chunk`-th 16 bytes along K are. */
  uint32_t k_major(int row, int chunk) const {
    const uint32_t along_k = chunk * (swizzle ? 16 : leading);
    return row / 8 * stride + row % 8 * span() + along_k;
  }

  /*! Of index `k`, where the `chunk`-th 16 bytes along the other one are. */
  uint32_t mn_major(int k, int chunk) const {
    const int chunks = span() / 16;
    const uint32_t spans = swizzle ? leading : stride, eights = swizzle ? stride : leading;
    return chunk % chunks * 16 + chunk / chunks * spans + k % 8 * span() + k / 8 * eights;
  }

  uint32_t address(uint32_t offset) const {
    const uint32_t linear = (start + offset) & 0x3ffff;
    return swizzle ? swizzle_address(linear, swizzle) : linear;
  }
};

/*! tf32 operands are used as they are, without the lower 13 bits. */
template <typename T>
struct WgmmaNumber : MmaNumber<T> {};
template <>
struct WgmmaNumber<tfloat32_t> {
  static TL_DEVICE float of(float x) {
    return bit_cast<float>(bit_cast<uint32_t>(x) & ~uint32_t(0x1fff));
  }
};

/*! Calls `visit` with the address of each 16 bytes of `rows` rows of an operand from row `first`
 * on, in their order in memory. An operand has `parts` times 32 bytes along K. */
template <int rows, typename T, bool k_major, int parts = 1, typename Visit>
TL_DEVICE void each_chunk(const unsigned char* shared, uint64_t bits, int first, Visit visit) {
  constexpr int kChunk = 16 / int(sizeof(mma_memory<T>));
  const WgmmaDescriptor descriptor(bits);
  if constexpr (k_major) {
    for (int row = first; row < first + rows; ++row) {
      for (int chunk = 0; chunk < 2 * parts; ++chunk) {
        visit(shared + descriptor.address(descriptor.k_major(row, chunk)));
      }
    }
  } else {
    for (int k = 0; k < parts * wgmma_k<T>; ++k) {
      for (int chunk = first / kChunk; chunk < (first + rows) / kChunk; ++chunk) {
        visit(shared + descriptor.address(descriptor.mn_major(k, chunk)));
      }
    }
  }
}

/*! `rows` rows of an operand from row `first` on: numbers[row * K + k] where they are K-major, else
 * numbers[k * rows + row]. */
template <int rows, typename T, bool k_major, int parts = 1, typename Number>
void load_operand(const unsigned char* shared, uint64_t bits, int first, Number* numbers) {
  using Memory = mma_memory<T>;
  constexpr int kElements = parts * wgmma_k<T> * rows;
  Memory elements[kElements];
  char* to = reinterpret_cast<char*>(elements);
  each_chunk<rows, T, k_major, parts>(shared, bits, first, [&](const unsigned char* chunk) {
    __builtin_memcpy(to, chunk, 16);
    to += 16;
  });
  for (int i = 0; i < kElements; ++i) numbers[i] = WgmmaNumber<T>::of(elements[i]);
}

/*! Refuses a descriptor of which the hardware's reading is not known, or that leaves shared memory.
 */
template <int rows, typename T, bool k_major, int parts = 1>
void check_operand(uint64_t bits, const char* name, Location where) {
  constexpr int kChunks = rows * int(sizeof(mma_memory<T>)) / 16;
  const WgmmaDescriptor descriptor(bits);
  if (descriptor.base_offset != 0) {
    fail(where,
         "the descriptor of %s has base offset %u. Let the pattern of its swizzle begin at a "
         "multiple of its size, where the offset is 0",
         name, descriptor.base_offset);
  }
  if (k_major && descriptor.swizzle && descriptor.swizzle < 32 * parts) {
    fail(where, "%s has %d bytes along K in a swizzle of %u. Give it a swizzle of 64 or 128 bytes",
         name, 32 * parts, descriptor.swizzle);
  }
  // A swizzle moves bytes within 128.
  const uint32_t last = k_major ? descriptor.k_major(rows - 1, 2 * parts - 1)
                                : descriptor.mn_major(parts * wgmma_k<T> - 1, kChunks - 1);
  const uint32_t end = descriptor.start + last + 16, bytes = this_block().shared_bytes;
  if (end > (bytes + 127) / 128 * 128) {
    fail(where, "%s of a wgmma ends at byte %u of dynamic shared memory, which has %u", name, end,
         bytes);
  }
}

}  // namespace emu
}  // namespace tl
