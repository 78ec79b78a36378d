#include "amd.h"

#include <algorithm>
#include <array>
#include <regex>

#include "../tvm/error.h"

namespace tl {
namespace {

constexpr int64_t kKiB = 1024;
/*! HIP Programming Model, "Limits". */
constexpr int64_t kThreadsOfBlock = 1024;

struct Row {
  const char* arch;
  int64_t wavefront_threads;
  Limits limits;
};

/*!
 * LLVM, "User Guide for AMDGPU Backend", and AMD's instruction set guides of CDNA 2, CDNA 3 and
 * RDNA 3: local data share, wavefronts, and vector registers.
 *
 * A compute unit of CDNA has four SIMDs of 8 wavefronts, and 512 registers for each lane, of which
 * half may be accumulation registers. A block of RDNA runs on a workgroup processor, which has two
 * compute units: four SIMDs of 16 wavefronts, twice the local data share that a block may have.
 * Sixteen blocks of several wavefronts have barriers in a compute unit at a time.
 */
constexpr std::array<Row, 4> kRows = {{
    {"gfx90a", 64, {64 * kKiB, 64 * kKiB, kThreadsOfBlock, 2048, 16, 0, 4 * 512 * 64, 512}},
    {"gfx942", 64, {64 * kKiB, 64 * kKiB, kThreadsOfBlock, 2048, 16, 0, 4 * 512 * 64, 512}},
    {"gfx950", 64, {160 * kKiB, 160 * kKiB, kThreadsOfBlock, 2048, 16, 0, 4 * 512 * 64, 512}},
    {"gfx1100", 32, {64 * kKiB, 128 * kKiB, kThreadsOfBlock, 2048, 32, 0, 4 * 1536 * 32, 256}},
}};

/*! AMD's instruction set guides of CDNA 2, CDNA 3 and CDNA 4, "Matrix instructions". */
struct AmdFeature {
  Feature feature;
  const char* name;
  std::vector<std::string> architectures;
};
const std::vector<AmdFeature>& FeatureTable() {
  static const std::vector<AmdFeature> table = {
      {Feature::kMfma, "MFMA", {"gfx90a", "gfx942", "gfx950"}},
      {Feature::kMfmaGfx90a, "MFMA of int8 of gfx90a", {"gfx90a"}},
      {Feature::kMfmaGfx942, "MFMA of int8 of gfx942", {"gfx942", "gfx950"}},
      {Feature::kMfmaFnuz, "MFMA of float8 fnuz", {"gfx942"}},
      {Feature::kMfmaOcp, "MFMA of the OCP's formats", {"gfx950"}},
      {Feature::kMfmaXf32, "MFMA of xf32", {"gfx942"}},
  };
  return table;
}

/*! Threads load to registers, and store those to LDS behind other work; on CDNA vectors are loaded
 * by a buffer resource (CDNA3 ISA, "Vector Memory Buffer Instructions"). */
std::vector<CopyInstruction> Copies() {
  constexpr MemorySpace kGlobal = MemorySpace::kGlobal;
  return {
      {"registers",
       kGlobal,
       MemorySpace::kShared,
       Feature::kNone,
       AsyncQueue::kNone,
       {1, 2, 4, 8, 16},
       "",
       ""},
      {"buffer_load",
       kGlobal,
       MemorySpace::kRegisters,
       Feature::kMfma,
       AsyncQueue::kNone,
       {4, 8, 16},
       "",
       ""},
  };
}

}  // namespace

std::vector<FeatureRow> AmdFeatures() {
  std::vector<FeatureRow> rows;
  for (const AmdFeature& f : FeatureTable()) {
    std::string all;
    for (const std::string& arch : f.architectures) all += (all.empty() ? "" : ", ") + arch;
    rows.push_back({f.feature, f.name, f.architectures[0], all});
  }
  return rows;
}

std::optional<Target> AmdTarget(const std::string& arch, const Span& span) {
  static const std::regex form("gfx[0-9]{1,2}[0-9a-f]{2}");
  if (!std::regex_match(arch, form)) {
    ThrowAt(span, "ValueError",
            "found target arch \"" + arch + "\", wanted a name such as gfx942 or gfx1100");
  }
  for (const Row& row : kRows) {
    if (row.arch != arch) continue;
    Target target{"hip", arch, row.wavefront_threads, row.limits, {}, {}, Copies(), {}};
    for (const AmdFeature& f : FeatureTable()) {
      const auto& all = f.architectures;
      if (std::find(all.begin(), all.end(), arch) != all.end()) {
        target.features.push_back(f.feature);
      }
    }
    return target;
  }
  return std::nullopt;
}

std::string AmdArchitectures() {
  std::string all;
  for (const Row& row : kRows) all += (all.empty() ? "" : ", ") + std::string(row.arch);
  return all;
}

}  // namespace tl
