/*! What is compiled for: one `Target` an architecture, which passes ask. Numbers of architectures
 * are compared in the tables of this folder only. */
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../tvm/attrs.h"
#include "../tvm/build.h"
#include "copies.h"

namespace tl {

/*! What some targets have and others do not: an instruction, or a kind of them. */
enum class Feature : uint8_t {
  kNone,             // every target has it
  kMmaSm75,          // mma.sync as CUTLASS groups its shapes and types, by the first that have them
  kMmaSm80,          //
  kMmaSm89,          //
  kLdmatrix,         //
  kStmatrix,         //
  kCpAsync,          // cp.async with commit groups
  kMbarrier,         // mbarriers with transaction counts
  kTma,              // bulk copies, with and without tensor maps
  kCluster,          // clusters of thread blocks, distributed shared memory
  kElectSync,        // elect.sync
  kDependentLaunch,  // griddepcontrol
  kVectorAtomics,    // red of four float32 in global memory
  kNamedBarriers,    // barriers of some warps of a block
  kGridSync,         // a barrier of all blocks of a cooperative launch
  kWgmma,            // wgmma.mma_async
  kSetMaxNReg,       // setmaxnreg
  kMfma,             // MFMA of f16, bf16_1k, f32, f64
  kMfmaGfx90a,       // MFMA of int8, as gfx90a alone has them
  kMfmaGfx942,       // MFMA of int8 and 8-bit floats, as gfx942 has them and later ones
  kMfmaFnuz,         // MFMA reads 8-bit floats with one zero and no infinities
  kMfmaOcp,          // MFMA reads 8-bit floats of the OCP's formats
  kMfmaXf32,         // MFMA of float32 rounded to xf32
  kMfmaGfx950,       // MFMA of 16-bit floats with twice the K, in the same time
  kWmma,             // WMMA of wavefronts of 32 lanes
  kBufferLoads,      // loads by a buffer resource, whose range the hardware checks
  kLdsLoads,         // the same into shared memory (LDS)
  kDsReadTr,         // reads of LDS that transpose among 16 lanes
};

/*! A feature in messages. */
struct FeatureRow {
  Feature feature;
  std::string name;     // "wgmma"
  std::string first;    // the first architecture that has it: "sm_90a"
  std::string targets;  // all that have it: "sm_90a", "sm_90 or later", "gfx90a, gfx942"
};

/*! Sizes of what a block, and the processor that runs it (SM, compute unit), have. */
struct Limits {
  int64_t shared_bytes_per_block;
  int64_t shared_bytes_per_sm;
  int64_t threads_per_block;
  int64_t threads_per_sm;
  int64_t blocks_per_sm;
  /*! What the system takes of the processor's shared memory for each block. */
  int64_t system_bytes_per_block;
  /*! 32-bit registers of the processor, and most of a thread. */
  int64_t registers_per_sm;
  int64_t registers_per_thread;
};

struct Target {
  std::string kind;      // "cuda", "hip"
  std::string arch;      // "sm_90a", "gfx942"
  int64_t warp_threads;  // lanes of a warp: 32, or the 64 of a wavefront
  Limits limits;
  std::vector<Feature> features;
  /*! Those that the same chip has under its architecture-specific name: sm_90 as sm_90a. */
  std::vector<Feature> specific_features;
  /*! Those of its kind, the best first; the target has those whose feature it has. */
  std::vector<CopyInstruction> copies;
  std::vector<AsyncQueueRow> queues;
  /*! Banks of 4 bytes of shared memory. */
  int banks = 32;

  bool Has(Feature feature) const;
  /*! The chip has it, if under another name of the architecture. */
  bool ChipHas(Feature feature) const;

  /*! The row of a queue; nullptr where threads count no groups of it. */
  const AsyncQueueRow* RowOf(AsyncQueue queue) const;
  /*! The instruction that it has for asynchronous copies of threads into shared memory; nullptr
   * without one. */
  const CopyInstruction* ThreadCopy() const;

  /*! How many blocks of `threads`, with these bytes of shared memory, an SM has room for, if they
   * use few registers. */
  int64_t BlocksThatFit(int64_t threads, int64_t shared_bytes) const;
};

/*! A kind of targets: how its architectures are found. */
struct TargetKind {
  std::string name;  // "hip"
  /*! The kind of TVM's targets that stands for it, and the attribute with the architecture. */
  std::string tvm_kind, tvm_arch;
  /*! nullopt for an architecture without a row. ValueError at the span where the text is not the
   * name of one. */
  std::function<std::optional<Target>(const std::string& arch, const Span& span)> find;
  /*! Architectures that have a row: "sm_75, sm_80, ...". */
  std::function<std::string()> architectures;
  /*! The features that some of its targets have, and no other kind's. */
  std::function<std::vector<FeatureRow>()> features;
};

/*! Adds a kind, before its first target is asked for. */
void RegisterTargetKind(const TargetKind& kind);

/*! The target of this kind and architecture; ValueError at `span` for one without a row. */
const Target& FindTarget(const std::string& kind, const std::string& arch, const Span& span);

/*! The target bound to the function. */
const Target& TargetOf(const PrimFunc& f);

/*! The field's name of a feature: "wgmma". */
std::string FeatureName(Feature feature);
/*! The architectures that have it: "sm_90a", or "sm_90 or later". */
std::string TargetsWith(Feature feature);
/*! The first architecture that has it: "sm_90a". */
std::string FirstTargetWith(Feature feature);

}  // namespace tl
