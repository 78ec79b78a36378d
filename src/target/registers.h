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

/*! Registers that a block of `threads` begins with, where `blocks` share a multiprocessor: those
 * that setmaxnreg deals out anew. WSSchedule in tilelang/language/ws_schedule.py counts them in the
 * same way. */
inline int64_t RegistersAtStart(int64_t threads, int64_t blocks) {
  const int64_t each = std::min(kRegistersOfThread, kRegistersOfSm / (blocks * threads));
  return each / kRegisterStep * kRegisterStep * threads;
}

/*! Most registers that each of `threads` can have of `all`, beside what `others` have. */
inline int64_t MostRegistersBeside(int64_t others, int64_t threads, int64_t all) {
  return std::min(kMostRegisters, (all - others) / threads / kRegisterStep * kRegisterStep);
}

}  // namespace tl
