/*! How registers are dealt to the threads of a block, and to its warp groups by setmaxnreg. */
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace tl {

/*! Registers of a multiprocessor, and most of a thread (CUDA Programming Guide, "Technical
 * Specifications per Compute Capability": the same for all rows of nvidia.cc). */
inline constexpr int64_t kRegistersOfSm = 65536, kRegistersOfThread = 255;
/*! PTX ISA, setmaxnreg: a multiple of kRegisterStep from kLeastRegisters on; kMostRegisters is
 * what a thread gets at most. */
inline constexpr int64_t kLeastRegisters = 24, kMostRegisters = 240, kRegisterStep = 8;
/*! Registers of a producer's thread that copies by itself, and keeps addresses of several rows.
 * With 40, ptxas spilled 56 bytes where a thread has eight rows, sparse latent attention with tiles
 * of 128 keys. */
inline constexpr int64_t kRegistersOfCopies = 48;
/*! Registers of a thread beside its fragments with which another block is worth a try: a GEMM of
 * 128 x 128 tiles by two warp groups takes 217 us with two blocks and 40 other registers, and 323
 * with one block (4096^3, H200). */
inline constexpr int64_t kFewOtherRegisters = 20;
/*! The same where a thread has other buffers than accumulators, or ptxas has spilled with so few.
 */
inline constexpr int64_t kManyOtherRegisters = 64;
/*! Registers that ptxas (CUDA 13.0 to 13.5) wants for a wgmma beside its accumulators, of those
 * that a thread begins with: what setmaxnreg moves later does not count ("C7602: found an
 * instruction that takes 154 registers", n = 256). */
inline constexpr int64_t kBesideAccumulators = 26;
/*! What a thread that computes needs beside its fragments: indices, addresses, parts of reductions.
 * As measured with ptxas for attention with heads of 64 and 128 and two and three warp groups. */
inline constexpr int64_t kOtherRegisters = 28;

/*! Does AnnotateWarpGroupRegAlloc move registers from so many warp groups that copy to so many that
 * compute? No registers are left to move among more groups. Threads that make copies by themselves
 * need their own, which leaves few if they are as many. */
inline bool MovesRegisters(int64_t copying, int64_t computing, bool by_themselves) {
  if (by_themselves && copying >= computing) return false;
  constexpr std::pair<int64_t, int64_t> kGroups[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 3}};
  const std::pair<int64_t, int64_t> groups{copying, computing};
  return std::find(std::begin(kGroups), std::end(kGroups), groups) != std::end(kGroups);
}

/*! Registers that a thread begins with where `blocks` of `threads` share a multiprocessor: what
 * ptxas gives by __launch_bounds__. All warps together count as whole fours, since a quarter of the
 * multiprocessor has a quarter of the registers: 96 where two blocks have nine warps each, 80 where
 * one has 22 (ptxas of CUDA 13.0 and 13.5). */
inline int64_t RegistersOfThreadAtStart(int64_t threads, int64_t blocks) {
  constexpr int64_t kWarpThreads = 32, kQuarters = 4;
  const int64_t warps = (threads + kWarpThreads - 1) / kWarpThreads * blocks;
  const int64_t places = (warps + kQuarters - 1) / kQuarters * kQuarters * kWarpThreads;
  return std::min(kRegistersOfThread + 1, kRegistersOfSm / places / kRegisterStep * kRegisterStep);
}

/*! Registers that a block of `threads` begins with, where `blocks` share a multiprocessor: those
 * that setmaxnreg deals out anew. */
inline int64_t RegistersAtStart(int64_t threads, int64_t blocks) {
  const int64_t each = std::min(kRegistersOfThread, RegistersOfThreadAtStart(threads, blocks));
  return each / kRegisterStep * kRegisterStep * threads;
}

/*! Most registers that each of `threads` can have of `all`, beside what `others` have. */
inline int64_t MostRegistersBeside(int64_t others, int64_t threads, int64_t all) {
  return std::min(kMostRegisters, (all - others) / threads / kRegisterStep * kRegisterStep);
}

/*! Blocks with roles that the compiler lets share a multiprocessor. */
inline constexpr int64_t kMostBlocksWithRoles = 4;

/*! The threads of a block that copy and that compute, and what a thread needs of either. */
struct RoleRegisters {
  int64_t copying_threads, computing_threads;
  int64_t of_copying, of_computing;
  /*! Registers of the wgmma with most accumulators, of those that a thread begins with; 0 without.
   */
  int64_t accumulators = 0;
};

/*! The most blocks, up to `most`, of which a multiprocessor has registers for all roles; 1 if for
 * none. Threads that copy give registers back, so they begin with no fewer than they keep. */
inline int64_t BlocksWithRegisters(const RoleRegisters& roles, int64_t most) {
  const int64_t threads = roles.copying_threads + roles.computing_threads;
  for (int64_t blocks = most; blocks > 1; --blocks) {
    const int64_t all = RegistersAtStart(threads, blocks), start = all / threads;
    if (roles.accumulators && start < roles.accumulators + kBesideAccumulators) continue;
    if (start < roles.of_copying) continue;
    if (MostRegistersBeside(roles.copying_threads * roles.of_copying, roles.computing_threads,
                            all) >= roles.of_computing) {
      return blocks;
    }
  }
  return 1;
}

}  // namespace tl
