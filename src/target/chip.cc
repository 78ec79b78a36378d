#include "chip.h"

#include <algorithm>
#include <vector>

#include "../tvm/error.h"
#include "../tvm/registry.h"

namespace tl {
namespace {

constexpr int64_t kKiB = 1024;

/*!
 * CUDA Programming Guide, "Technical Specifications per Compute Capability": maximum amounts of
 * shared memory per thread block and multiprocessor, threads and blocks per multiprocessor. PTX
 * ISA, "Target ISA Notes" of ldmatrix (sm_75), cp.async (sm_80), stmatrix and cp.async.bulk
 * (sm_90).
 */
const std::vector<Chip>& Chips() {
  static const std::vector<Chip> chips = {
      {75, 64 * kKiB, 64 * kKiB, 1024, 16, true, false, false, false},
      {80, 163 * kKiB, 164 * kKiB, 2048, 32, true, true, false, false},
      {86, 99 * kKiB, 100 * kKiB, 1536, 16, true, true, false, false},
      {87, 163 * kKiB, 164 * kKiB, 1536, 16, true, true, false, false},
      {89, 99 * kKiB, 100 * kKiB, 1536, 24, true, true, false, false},
      {90, 227 * kKiB, 228 * kKiB, 2048, 32, true, true, true, true},
      {100, 227 * kKiB, 228 * kKiB, 2048, 32, true, true, true, true},
      {103, 227 * kKiB, 228 * kKiB, 2048, 32, true, true, true, true},
      {110, 227 * kKiB, 228 * kKiB, 1536, 24, true, true, true, true},
      {120, 99 * kKiB, 100 * kKiB, 1536, 24, true, true, true, true},
      {121, 99 * kKiB, 100 * kKiB, 1536, 24, true, true, true, true},
  };
  return chips;
}

Map<String, Any> Describe(int sm) {
  const Chip& chip = ChipOf(Arch{sm}, Span());
  return {{"sm", chip.sm},
          {"shared_bytes_per_block", chip.shared_bytes_per_block},
          {"shared_bytes_per_sm", chip.shared_bytes_per_sm},
          {"threads_per_sm", chip.threads_per_sm},
          {"blocks_per_sm", chip.blocks_per_sm},
          {"has_ldmatrix", chip.has_ldmatrix},
          {"has_cp_async", chip.has_cp_async},
          {"has_stmatrix", chip.has_stmatrix},
          {"has_bulk_copy", chip.has_bulk_copy}};
}

Registration registration([] { RegisterFunction("target.Chip", Describe); });

}  // namespace

int64_t Chip::BlocksThatFit(int64_t threads, int64_t shared_bytes) const {
  // The system takes its part of the multiprocessor's shared memory for each block.
  const int64_t of_system = shared_bytes_per_sm - shared_bytes_per_block;
  const int64_t warps = (threads + kWarpThreads - 1) / kWarpThreads;
  const int64_t by_shared = shared_bytes_per_sm / std::max<int64_t>(shared_bytes + of_system, 1);
  return std::min({blocks_per_sm, threads_per_sm / (warps * kWarpThreads), by_shared});
}

const Chip& ChipOf(const Arch& arch, const Span& span) {
  std::string known;
  for (const Chip& chip : Chips()) {
    if (chip.sm == arch.sm) return chip;
    known += (known.empty() ? "sm_" : ", sm_") + std::to_string(chip.sm);
  }
  ThrowAt(span, "ValueError",
          "found target arch " + arch.Name() + ", wanted one of " + known +
              ". Compile for the nearest of these that is not newer than the GPU");
}

}  // namespace tl
