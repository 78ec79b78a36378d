/*! Instructions that copy tiles, and asynchronous queues, as rows of a target. */
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "../layout/layout.h"

namespace tl {

enum class Feature : uint8_t;

/*! Which threads a call concerns. */
enum class ThreadScope : uint8_t { kThread, kLanes, kBlock, kCluster, kGrid };

/*! Asynchronous operations that complete together, in groups or at an mbarrier. */
enum class AsyncQueue : uint8_t {
  kNone,
  kCpAsync,   // copies of a thread into shared memory, such as cp.async: groups of the thread
  kTmaLoad,   // bulk copies into shared memory: an mbarrier counts their bytes
  kTmaStore,  // bulk copies from shared memory: groups of a thread
  kWgmma      // wgmma: groups of a warp
};

/*! A queue of which threads count the groups. They complete in the order of their commits, so a
 * wait names the number of youngest groups that may still be in flight. */
struct AsyncQueueRow {
  AsyncQueue queue;
  std::string name;
  /*! Intrinsics: `commit()` makes a group of what was issued, `wait(n, ..)` takes until at most n
   * groups are in flight. */
  std::string commit, wait;
  /*! The largest n that the wait takes. */
  int64_t max_pending;
  /*! The wait can end where the operations have read their sources, before their destinations are
   * written. */
  bool waits_for_reads;
  /*! Operations have to be complete before a signal to so many threads. */
  ThreadScope completes_before;
  /*! Waits count operations, whoever commits them: CountAsyncOperations knows how many a group has.
   */
  bool counts_operations = false;
};

inline constexpr int64_t kNoMaxPending = std::numeric_limits<int64_t>::max();

enum class MemorySpace : uint8_t { kGlobal, kShared, kRegisters };

/*! A matrix that the lanes of a warp move between shared memory and registers together: each lane
 * names a row of it, whose elements other lanes hold. */
struct LaneMatrix {
  /*! Bits of an element. */
  int64_t bits;
  /*! The lane and the register that hold an element, given its row and its place there. The rows of
   * a matrix are named by consecutive lanes; elements of a row lie side by side in shared memory,
   * at a multiple of their bytes. */
  Fragment places;
  /*! Elements that lie side by side in shared memory do not in registers. */
  bool transposed;
  /*! Calls with pointers to this lane's row and to its registers: for one matrix, for two, for
   * four, of which the next lanes name the rows and the next registers hold the elements. */
  std::vector<std::string> intrinsics;

  int64_t Rows() const { return places->Shape()[0]; }
  int64_t Columns() const { return places->Shape()[1]; }
  /*! Elements of a lane. */
  int64_t Registers() const { return places->RegisterExtent(); }
};

/*! An instruction that copies tiles from one space to another. Loads and stores of threads need no
 * row. */
struct CopyInstruction {
  /*! As a candidate of copies: copy_instruction.h. */
  std::string name;
  MemorySpace from, to;
  Feature feature;
  /*! kNone: the copy is complete behind the instruction. */
  AsyncQueue queue;
  /*! Bytes that it moves at a time, the fewest first; addresses are multiples of as many. */
  std::vector<int64_t> bytes;
  /*! For kCpAsync: intrinsic<bytes>(shared, global), and one with a condition behind, which writes
   * zeros where that is false. */
  std::string intrinsic, conditional;
  /*! The bytes of a warp's lanes lie side by side in shared memory, in the order of the lanes, from
   * one address on that all lanes share. */
  bool in_lane_order = false;
  /*! Between shared memory and registers: what it moves, the preferred ones first. */
  std::vector<LaneMatrix> matrices = {};
};

}  // namespace tl
