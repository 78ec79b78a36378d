#include "amd.h"

#include <algorithm>
#include <array>
#include <regex>

#include "../layout/mma_fragment.h"
#include "../tvm/error.h"
#include "intrinsic_names.h"
#include "packed_float.h"

namespace tl {
namespace {

constexpr int64_t kKiB = 1024;
/*! HIP Programming Model, "Limits". */
constexpr int64_t kThreadsOfBlock = 1024;

struct Row {
  const char* arch;
  int64_t wavefront_threads;
  Limits limits;
  /*! Bytes of a lane that a load to LDS has; none where the rows have no such loads. */
  std::vector<int64_t> lds_load_bytes;
  int lds_banks = 32;
};

/*!
 * LLVM, "User Guide for AMDGPU Backend", and AMD's instruction set guides of CDNA 2, CDNA 3 and
 * RDNA 3: local data share, wavefronts, and vector registers. Banks: LLVM, AMDGPU.td,
 * FeatureLDSBankCount64.
 *
 * A compute unit of CDNA has four SIMDs of 8 wavefronts, and 512 registers for each lane, of which
 * half may be accumulation registers. A block of RDNA runs on a workgroup processor, which has two
 * compute units: four SIMDs of 16 wavefronts, twice the local data share that a block may have.
 * Sixteen blocks of several wavefronts have barriers in a compute unit at a time.
 */
const std::array<Row, 4> kRows = {{
    {"gfx90a", 64, {64 * kKiB, 64 * kKiB, kThreadsOfBlock, 2048, 16, 0, 4 * 512 * 64, 512}, {4}},
    {"gfx942", 64, {64 * kKiB, 64 * kKiB, kThreadsOfBlock, 2048, 16, 0, 4 * 512 * 64, 512}, {4}},
    {"gfx950",
     64,
     {160 * kKiB, 160 * kKiB, kThreadsOfBlock, 2048, 16, 0, 4 * 512 * 64, 512},
     {4, 16},
     64},
    {"gfx1100", 32, {64 * kKiB, 128 * kKiB, kThreadsOfBlock, 2048, 32, 0, 4 * 1536 * 32, 256}, {}},
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
      {Feature::kMfmaGfx950, "MFMA of 16-bit floats of gfx950", {"gfx950"}},
      {Feature::kWmma, "WMMA", {"gfx1100"}},
      {Feature::kBufferLoads, "buffer loads of vectors", {"gfx90a", "gfx942", "gfx950"}},
      {Feature::kLdsLoads, "buffer loads to LDS", {"gfx90a", "gfx942", "gfx950"}},
      {Feature::kDsReadTr, "ds_read_tr", {"gfx950"}},
  };
  return table;
}

/*!
 * CDNA4 ISA, DS_READ_B64_TR_B16, _B8 and _B4: a lane's address is that of 64 bits, n elements. 16
 * lanes together read n rows of 16 elements, 16 / n lanes each; lane i of them gets element i of
 * each row. Where the rows lie is free. Triton, MemoryOpToLLVM.cpp of its AMD backend, has the same
 * as a layout.
 */
std::vector<LaneMatrix> TransposingReads() {
  constexpr int64_t kLanes = 64, kGroup = 16, kBits = 64;
  std::vector<LaneMatrix> matrices;
  for (int64_t bits : {16, 8, 4}) {
    const int64_t n = kBits / bits, of_row = kGroup / n;
    const Fragment places = MakeWarpFragment(
        {{1, n, 1}, {0, of_row, 1}, {0, kLanes / kGroup, kGroup}}, {{0, n, of_row}});
    matrices.push_back({bits, places, true, {"tl.ds_read_tr" + std::to_string(bits)}});
  }
  return matrices;
}

/*!
 * On CDNA vectors are loaded by a buffer resource, to registers or to LDS (CDNA3 ISA, "Vector
 * Memory Buffer Instructions"; CDNA4 ISA, BUFFER_LOAD_DWORDX4 with LDS). Elsewhere, and where a
 * load to LDS has 4 bytes, which takes as many instructions more, threads load to registers, and
 * store those to LDS behind other work.
 */
std::vector<CopyInstruction> Copies(const Row& row) {
  constexpr MemorySpace kGlobal = MemorySpace::kGlobal, kShared = MemorySpace::kShared;
  std::vector<CopyInstruction> copies = {
      {"registers", kGlobal, kShared, Feature::kNone, AsyncQueue::kNone, {1, 2, 4, 8, 16}, "", ""},
      {"buffer_load",
       kGlobal,
       MemorySpace::kRegisters,
       Feature::kBufferLoads,
       AsyncQueue::kNone,
       {4, 8, 16},
       "",
       ""},
      {"ds_read_tr",
       kShared,
       MemorySpace::kRegisters,
       Feature::kDsReadTr,
       AsyncQueue::kNone,
       {8},
       "",
       "",
       false,
       TransposingReads()},
  };
  if (row.lds_load_bytes.empty()) return copies;
  const bool is_best = row.lds_load_bytes.back() == 16;
  copies.insert(copies.begin() + (is_best ? 0 : 1),
                {"buffer_load_lds", kGlobal, kShared, Feature::kLdsLoads, AsyncQueue::kCpAsync,
                 row.lds_load_bytes, kLoadLds, kLoadLdsIf, true});
  return copies;
}

/*! Loads to LDS are counted with other accesses of vector memory, which complete in order (CDNA3
 * ISA, "Manually Inserted Wait States", VM_CNT: 6 bits). */
std::vector<AsyncQueueRow> Queues(const Row& row) {
  if (row.lds_load_bytes.empty()) return {};
  return {{AsyncQueue::kCpAsync, "vmcnt", kCpAsyncCommit, kCpAsyncWait, 63, false,
           ThreadScope::kLanes, true}};
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
    Target target{"hip", arch,        row.wavefront_threads, row.limits,   {},
                  {},    Copies(row), Queues(row),           row.lds_banks};
    for (const AmdFeature& f : FeatureTable()) {
      const auto& all = f.architectures;
      if (std::find(all.begin(), all.end(), arch) != all.end()) {
        target.features.push_back(f.feature);
      }
    }
    return target;
  }
  ThrowAt(span, "ValueError",
          "found target arch " + arch + ", wanted one of " + AmdArchitectures() +
              ". A code object runs on its own architecture alone, so that this GPU has none; run "
              "programs for one of these with execution_backend=\"emulate\"");
}

/*! V_PK_FMA_F32 and its like came with CDNA 2, as this MFMA did ("AMD Instinct MI200 Instruction
 * Set Architecture", "Packed Math"). */
bool HasPackedFloat32(const Target& target) { return target.Has(Feature::kMfma); }

std::string AmdArchitectures() {
  std::string all;
  for (const Row& row : kRows) all += (all.empty() ? "" : ", ") + std::string(row.arch);
  return all;
}

}  // namespace tl
