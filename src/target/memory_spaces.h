/*! The memory spaces of buffers, as rows of one table: passes ask a buffer's row, and the checks of
 * program forms ask which form may have it. */
#pragma once
#include <optional>
#include <string>

#include "../tvm/build.h"
#include "target.h"

namespace tl {

/*! Whose memory it is. */
enum class MemoryOwner : uint8_t {
  kLaunch,       // global memory, which all threads of a launch share
  kBlock,        // shared memory
  kBarriers,     // mbarriers, in shared memory: only their instructions know the bits
  kDistributed,  // a tile of which each thread has a part in its registers, as its layout says
  kReducer,      // a value of which each thread has a part until it is finalised
  kThread        // one thread
};

/*! A storage scope. */
struct MemorySpaceRow {
  /*! As buffers have it: "shared.dyn". */
  std::string scope;
  MemoryOwner owner;
  /*! T.alloc_buffer takes it. */
  bool is_for_users;
  /*! Thread programs have it; tile programs have all. */
  bool is_of_threads;
  /*! What a target needs for it. */
  Feature feature;
  /*! What it is to instructions that copy tiles, if they know it. */
  std::optional<MemorySpace> tiles;
};

/*! The row of a scope; nullptr for one that there is not. */
const MemorySpaceRow* FindMemorySpace(const std::string& scope);

bool HasMemorySpace(const Var& buffer, const Target& target);
/*! Refuses a buffer in memory that the target lacks (ValueError at `span`). */
[[noreturn]] void RefuseMemorySpace(const Var& buffer, const Target& target, const Span& span);

}  // namespace tl
