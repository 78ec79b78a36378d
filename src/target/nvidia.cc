#include "nvidia.h"

#include <array>
#include <regex>

#include "../layout/mma_fragment.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "intrinsic_names.h"
#include "registers.h"

namespace tl {
namespace {

constexpr int64_t kKiB = 1024;

/*! CUDA Programming Guide, "Technical Specifications per Compute Capability": threads of a block,
 * the same for all. */
constexpr int64_t kThreadsOfBlock = 1024;

/*! The same: maximum amounts of shared memory per thread block and SM, threads and blocks per SM.
 */
struct Row {
  int number;  // 80 for sm_80, 90 for sm_90 and sm_90a
  int64_t shared_bytes_per_block, shared_bytes_per_sm, threads_per_sm, blocks_per_sm;
};

constexpr std::array<Row, 11> kRows = {{
    {75, 64 * kKiB, 64 * kKiB, 1024, 16},
    {80, 163 * kKiB, 164 * kKiB, 2048, 32},
    {86, 99 * kKiB, 100 * kKiB, 1536, 16},
    {87, 163 * kKiB, 164 * kKiB, 1536, 16},
    {89, 99 * kKiB, 100 * kKiB, 1536, 24},
    {90, 227 * kKiB, 228 * kKiB, 2048, 32},
    {100, 227 * kKiB, 228 * kKiB, 2048, 32},
    {103, 227 * kKiB, 228 * kKiB, 2048, 32},
    {110, 227 * kKiB, 228 * kKiB, 1536, 24},
    {120, 99 * kKiB, 100 * kKiB, 1536, 24},
    {121, 99 * kKiB, 100 * kKiB, 1536, 24},
}};

/*! A name such as sm_90a. PTX ISA, "PTX Module Directives: .target": `sm_90a` has, beside what
 * every later architecture has, too, the features of that one alone, `sm_100f` those of its
 * family. */
struct Name {
  int number;
  char suffix;  // 'a', 'f', or 0
};

Name Parse(const std::string& arch, const Span& span) {
  static const std::regex form("sm_([0-9]{2,3})([af]?)");
  std::smatch parts;
  if (!std::regex_match(arch, parts, form)) {
    ThrowAt(span, "ValueError",
            "found target arch \"" + arch + "\", wanted a name such as sm_80 or sm_90a");
  }
  return {std::stoi(parts[1]), parts[2].length() ? parts[2].str()[0] : '\0'};
}

/*! Which architectures have a feature. */
struct NvidiaFeature {
  Feature feature;
  const char* name;    // in messages
  int first;           // 90: sm_90 is the first that has it
  bool alone = false;  // only that one has it, under its name with suffix "a"
};

bool Has(const Name& name, const NvidiaFeature& row) {
  return row.alone ? name.number == row.first && name.suffix == 'a' : name.number >= row.first;
}

/*! PTX ISA, "Target ISA Notes" of each instruction. wgmma and setmaxnreg are architecture-specific;
 * later architectures have setmaxnreg, too, but nothing here moves their registers. mbarriers exist
 * from sm_80 on, those that count bytes (mbarrier.expect_tx) from sm_90 on. */
constexpr std::array<NvidiaFeature, 16> kFeatures = {{
    {Feature::kMmaSm75, "mma.sync of sm_75", 75},
    {Feature::kMmaSm80, "mma.sync of sm_80", 80},
    {Feature::kMmaSm89, "mma.sync of 8-bit floats", 89},
    {Feature::kLdmatrix, "ldmatrix", 75},
    {Feature::kStmatrix, "stmatrix", 90},
    {Feature::kCpAsync, "cp.async", 80},
    {Feature::kMbarrier, "mbarrier", 90},
    {Feature::kTma, "TMA", 90},
    {Feature::kCluster, "clusters", 90},
    {Feature::kElectSync, "elect.sync", 90},
    {Feature::kDependentLaunch, "griddepcontrol", 90},
    {Feature::kVectorAtomics, "red.v4.f32", 90},
    {Feature::kNamedBarriers, "bar.sync of some warps", 75},
    {Feature::kGridSync, "a barrier of the grid", 75},
    {Feature::kWgmma, "wgmma", 90, true},
    {Feature::kSetMaxNReg, "setmaxnreg", 90, true},
}};

/*! PTX ISA, ldmatrix and stmatrix: 8x8 matrices of 16 bits, row r of which lane r names. Lane
 * 4 r + c / 2 has elements c and c + 1 of row r, or of column r. Where rows stay rows, four bytes
 * of one are a lane's, so that elements may have 8 or 32 bits as well. */
std::vector<LaneMatrix> Matrices(const std::string& name) {
  const auto intrinsics = [&](const std::string& form) -> std::vector<std::string> {
    return {name + "_x1" + form, name + "_x2" + form, name + "_x4" + form};
  };
  std::vector<LaneMatrix> matrices;
  for (int64_t bits : {16, 8, 32}) {
    const int64_t of_lane = 32 / bits;
    const Fragment rows = MakeWarpFragment({{1, 4, of_lane}, {0, 8, 1}}, {{1, of_lane, 1}});
    matrices.push_back({bits, rows, false, intrinsics("")});
  }
  const Fragment columns = MakeWarpFragment({{0, 4, 2}, {1, 8, 1}}, {{0, 2, 1}});
  matrices.push_back({16, columns, true, intrinsics("_trans")});
  return matrices;
}

/*! PTX ISA, "Data Movement and Conversion Instructions": cp.async.bulk and its tensor forms,
 * cp.async, ldmatrix, stmatrix. */
std::vector<CopyInstruction> Copies() {
  constexpr MemorySpace kGlobal = MemorySpace::kGlobal, kShared = MemorySpace::kShared,
                        kRegisters = MemorySpace::kRegisters;
  constexpr AsyncQueue kNone = AsyncQueue::kNone;
  return {
      {"tma", kGlobal, kShared, Feature::kTma, AsyncQueue::kTmaLoad, {16}, "", ""},
      {"cp.async",
       kGlobal,
       kShared,
       Feature::kCpAsync,
       AsyncQueue::kCpAsync,
       {4, 8, 16},
       kCpAsync,
       kCpAsyncConditional},
      {"tma", kShared, kGlobal, Feature::kTma, AsyncQueue::kTmaStore, {16}, "", ""},
      {"ldmatrix",
       kShared,
       kRegisters,
       Feature::kLdmatrix,
       kNone,
       {16},
       "",
       "",
       false,
       Matrices("tl.ptx_ldmatrix")},
      {"stmatrix",
       kRegisters,
       kShared,
       Feature::kStmatrix,
       kNone,
       {16},
       "",
       "",
       false,
       Matrices("tl.ptx_stmatrix")},
  };
}

std::vector<AsyncQueueRow> Queues() {
  return {
      {AsyncQueue::kCpAsync, "cp.async", kCpAsyncCommit, kCpAsyncWait, kNoMaxPending, false,
       ThreadScope::kLanes},
      {AsyncQueue::kTmaStore, "TMA store", kTmaStoreArrive, kTmaStoreWait, kNoMaxPending, true,
       ThreadScope::kCluster},
      // PTX ISA, wgmma.wait_group: 0 to 7.
      {AsyncQueue::kWgmma, "wgmma", kWarpgroupCommit, kWarpgroupWait, 7, false,
       ThreadScope::kLanes},
  };
}

}  // namespace

std::optional<Target> NvidiaTarget(const std::string& arch, const Span& span) {
  const Name name = Parse(arch, span);
  for (const Row& row : kRows) {
    if (row.number != name.number) continue;
    // What a block cannot have of the SM's shared memory is the system's, for each block.
    const int64_t of_system = row.shared_bytes_per_sm - row.shared_bytes_per_block;
    const Limits limits{row.shared_bytes_per_block,
                        row.shared_bytes_per_sm,
                        kThreadsOfBlock,
                        row.threads_per_sm,
                        row.blocks_per_sm,
                        of_system,
                        kRegistersOfSm,
                        kRegistersOfThread};
    Target target{"cuda", arch, 32, limits, {}, {}, Copies(), Queues()};
    for (const NvidiaFeature& feature : kFeatures) {
      if (Has(name, feature)) target.features.push_back(feature.feature);
      if (Has({name.number, 'a'}, feature)) target.specific_features.push_back(feature.feature);
    }
    return target;
  }
  return std::nullopt;
}

std::vector<FeatureRow> NvidiaFeatures() {
  static const std::vector<FeatureRow> rows = [] {
    std::vector<FeatureRow> all;
    for (const NvidiaFeature& f : kFeatures) {
      const std::string first = "sm_" + std::to_string(f.first) + (f.alone ? "a" : "");
      all.push_back({f.feature, f.name, first, first + (f.alone ? "" : " or later")});
    }
    return all;
  }();
  return rows;
}

std::string NvidiaArchitectures() {
  std::string all;
  for (const Row& row : kRows) all += (all.empty() ? "sm_" : ", sm_") + std::to_string(row.number);
  return all;
}

}  // namespace tl
