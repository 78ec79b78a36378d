/*! What the multiprocessors of chips do, for passes that choose between programs by time. */
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "target.h"

namespace tl {

/*! A row of the table below. What is "of a clock" is of a clock of one multiprocessor, at its peak;
 * shares are those of the peak that programs reach. Bytes under way are bytes of loads. */
struct Multiprocessors {
  std::string_view arch;
  /*! Of the chip that has most; 0 for chips on which blocks that take tile after tile were not
   * measured. */
  int64_t number;
  /*! Bits of B that are multiplied in a clock, each with one of A, and their share. */
  double product_bits, product_share;
  /*! Bytes of a clock that come from L2, and their share; those of shared memory, and theirs. */
  double l2_bytes, l2_share, shared_bytes, shared_share;
  /*! Bytes of a clock that the memory gives to all multiprocessors. */
  double memory_bytes;
  /*! Bytes of a clock that TMA and threads add to tensors. */
  double added_bytes;
  /*! Elements of a parallel loop that threads compute in a clock; bits of an operand that they read
   * in a clock from shared memory for a product. */
  double elements, operand_bits;
  /*! Clocks from the launch of a kernel to its first product, and behind its last one. */
  double start_clocks;
  /*! Bytes under way that hide the latency of memory where blocks hide each other's loads, and
   * where steps of a pipeline do, beside the steps in use. */
  int64_t hiding_bytes, pipelined_bytes;
  /*! Blocks that move fewer bytes take less time than their launch; a grid of fewer blocks than
   * these is launched beside the work of others. */
  int64_t launch_bytes, launch_blocks;
};

/*! A chip is added by a row. Numbers that no document gives were measured on an H200
 * (docs/measurements.md). */
inline constexpr std::array<Multiprocessors, 1> kMultiprocessors = {{
    {
        "sm_90a",
        132,    // number: "NVIDIA H100 Tensor Core GPU Architecture"
        32768,  // product_bits: the same: 2048 products of 16 bits
        0.8,    // product_share: 4096^3 by 128 x 256: 772 TFLOP/s
        64,     // l2_bytes: L2_PORT_BYTES_PER_CLOCK of tilelang/carver/arch/cuda.py
        0.76,   // l2_share: 4096^3 by 64 x 64 and by 128 x 128: 48 bytes
        128,    // shared_bytes: CUDA Programming Guide, "Shared Memory"
        0.98,   // shared_share: two products of 256 x 64: 125 bytes
        2700,   // memory_bytes: data sheet of the H200: 4.8 TB/s, at 1.75 GHz
        24,     // added_bytes: split K by T.atomic_add
        32,     // elements: assumed: a handful of instructions an element, by four schedulers
        512,    // operand_bits: tf32 with B as it is
        4500,   // start_clocks: grids of few blocks: 2.5 us
        49152,  // hiding_bytes: sums and log-sum-exps of rows
        65536,  // pipelined_bytes: products, sums of rows and of columns, by one, two and four
                // blocks
        8192,   // launch_bytes: rows of 256 elements, a block each
        16384,  // launch_blocks: the same: 0.6 ns a block, in which memory moves 2.6 KB
    },
}};

/*! The row of a target; one without a row has the first one's numbers, and a number of 0. */
inline Multiprocessors MultiprocessorsOf(const Target& target) {
  for (const Multiprocessors& row : kMultiprocessors) {
    if (row.arch == target.arch) return row;
  }
  Multiprocessors other = kMultiprocessors.front();
  other.number = 0;
  return other;
}

}  // namespace tl
