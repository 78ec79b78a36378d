/*!
 * The plan of warp specialisation: which statements of a kernel the threads of each role run, and
 * the barriers between them. The compiler's own plan (warp_roles.cc) has two roles, a producer and
 * a consumer; that of T.annotate_ws_schedule (scheduled_roles.cc) those that the program names.
 *
 * A *fill* is a statement that writes shared memory for other roles; a producer's are copies from
 * global memory. The buffers that are filled together and read over the same statements are a
 * *channel*: an mbarrier `full` and an mbarrier `empty` for each of its versions. A *window* is a
 * place where a channel is used: the statements of one body from the first fill to the last use.
 * All roles run the same control flow, so they go through the same windows in the same order and
 * agree on the number n of a fill: slot n % versions, phase n / versions. What a role waits for
 * stands before the wait in the program that all roles come from, so no role waits for ever.
 */
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../op/thread_range.h"
#include "../../op/views.h"
#include "../../target/target.h"
#include "../../tvm/registry.h"
#include "kernel_scope.h"

namespace tl {

/*! How a fill is made. kNothing: the statement is no fill. kThreads: by ordinary stores. kElements:
 * a loop that copies elements, by cp.async where LowerAsyncCopy finds one and by stores elsewhere.
 * kFetchTile is no copy: one thread fetches the number of a tile from a counter, and the producer
 * reads that number, too. */
enum class CopyKind : uint8_t { kNothing, kTma, kCpAsync, kThreads, kElements, kFetchTile };

/*! A part of the block's threads and their registers. */
struct Role {
  std::string name;
  ThreadRange range;
  /*! The thread that its program calls 0. */
  int64_t first_number = 0;
  /*! One thread runs all that the role does. */
  bool one_thread = false;
  /*! The order that the user gave to a loop's statements is that of this role. */
  bool keeps_schedule = false;
  /*! What setmaxnreg gives to a thread, if the program says so. */
  std::optional<int64_t> registers;
};
/*! Indices of the roles of the compiler's own plan. */
inline constexpr size_t kProducer = 0, kConsumer = 1;

struct RoleNode;

/*! The statements of a body, nested sequences flattened. */
struct RoleSequence {
  std::vector<std::unique_ptr<RoleNode>> nodes;
  /*! The statement whose body it is, nullptr for the kernel's. */
  RoleNode* owner = nullptr;
};

/*! A statement, and what the plan gives it. */
struct RoleNode {
  enum class Kind : uint8_t { kLeaf, kFor, kWhile, kIf };
  Kind kind = Kind::kLeaf;
  Stmt stmt;
  RoleSequence* parent = nullptr;
  RoleSequence body, otherwise;
  /*! What it and the statements in it read and write. A view counts as its buffer. */
  BufferUse use;
  /*! Buffers whose address it passes on: their accesses are unknown. */
  std::vector<Var> opaque;

  CopyKind fill = CopyKind::kNothing;
  /*! The channel of a fill. */
  size_t channel = 0;
  /*! The dimension, counted among those longer than 1, in which each block of a cluster loads a
   * part of a fill that they share. */
  std::optional<size_t> split;
  /*! Why each block of a cluster makes the fill for itself. */
  std::string why_own;
  /*! The roles that run it, a bit each: control and scalars may be several roles'. */
  uint32_t run_by = 0;
  /*! The producer computes what it needs of the tile that it writes. */
  bool is_repeated = false;
  /*! Why TMA does not make the copy. */
  std::string why;
  /*! The name that the program gives to it, a leaf of the innermost one around it (T.WSID). */
  std::string id;
  /*! The role that a schedule gives to the statement, where that is its operation. */
  std::optional<size_t> role;

  bool IsLeaf() const { return kind == Kind::kLeaf; }
  bool IsRunBy(size_t r) const { return run_by >> r & 1; }
  const ForNode* Loop() const { return kind == Kind::kFor ? stmt.as<ForNode>() : nullptr; }
};

/*! How a role uses a slot that another role has filled. */
struct SlotUse {
  size_t role = kConsumer;
  /*! The statements that use the buffers first and last, in the order in which they run. */
  size_t acquire = 0, release = 0;
  /*! The role releases the slot in front of this statement (side -1) or behind it (1).
   * `is_deferred`: it releases the slot of the fill before; the last one is released behind the
   * loop. */
  size_t release_at = 0;
  int release_side = 1;
  bool is_deferred = false;
  /*! `release_at` is a loop, of which the role uses the slot in each iteration: its last iteration
   * releases the slot, on that side of the statement `at` of the loop's body, and `last_use` is the
   * last of its statements that use the buffers. */
  struct InLoop {
    size_t at, last_use;
  };
  std::optional<InLoop> in_loop = std::nullopt;
  /*! At that place the role waits for the MMA that uses the slot last, even without an arrival. */
  bool is_waited_for = false;
  /*! A later arrival of another role implies this role's. It waits for the MMAs that read the
   * slot, and does not arrive. */
  bool is_implied = false;
};

struct Window {
  const RoleSequence* sequence;
  size_t first_fill, last_fill, last_use;
  std::vector<SlotUse> uses;
  /*! The role's use of the slot; nullptr for the role that fills it, and for others. */
  const SlotUse* UseBy(size_t role) const;
  /*! Bytes that TMA copies in one fill. */
  int64_t tma_bytes = 0;
};

/*! The number of a fill, of all channels that have their windows in the same bodies. */
struct FillCount {
  std::vector<const RoleSequence*> sequences;
  /*! The loops from whose variables the number is computed, the innermost first. */
  std::vector<const ForNode*> loops;
  /*! A running count where there are no such loops; else undefined. */
  Var variable;

  /*! In a window: the number of its fill, from 0. */
  Expr Number(const RoleSequence* sequence) const;
  /*! The loop whose variable counts the windows of its body; nullptr if there is none. */
  static const ForNode* CountingLoop(const RoleSequence* sequence);
};

struct Channel {
  /*! The pipeline of a schedule. */
  std::string name;
  /*! The role that fills it. */
  size_t source = kProducer;
  std::vector<Var> buffers;
  std::vector<Window> windows;
  int64_t versions = 1;
  /*! Blocks that fill its slots together: those of the cluster, or 1. */
  int64_t blocks = 1;
  bool by_cp_async = false, by_threads = false, by_fetch = false;
  /*! Arrivals that complete a phase. `empty` has 0 if the channel is filled once. If several blocks
   * fill it together, the warps of all of them arrive at `empty`. */
  int64_t full_arrivals = 1, empty_arrivals = 0;
  /*! A role that uses the buffers writes to them; one of them may read through the async proxy. */
  bool consumer_writes = false, read_by_async_proxy = false;
  size_t count = 0;

  /*! Fills of this kind are among them. */
  void AddKind(CopyKind kind) {
    by_cp_async |= kind == CopyKind::kCpAsync || kind == CopyKind::kElements;
    by_threads |= kind == CopyKind::kThreads || kind == CopyKind::kElements;
    by_fetch |= kind == CopyKind::kFetchTile;
  }
  /*! One thread issues all of its fills. */
  bool IsByOne() const { return !by_cp_async && !by_threads; }
  bool IsUsedBy(size_t role) const;
};

struct WarpRoles {
  RoleSequence body;
  std::vector<Channel> channels;
  std::vector<FillCount> counts;
  std::vector<Role> roles;
  /*! The block's threads. `is_scheduled`: the plan is that of T.annotate_ws_schedule. */
  int64_t threads = 0;
  bool is_scheduled = false;
  /*! Why there is no plan, and the statement that is the cause; empty if there is one. */
  std::string why;
  Span where;

  bool IsApplied() const { return why.empty(); }
};

/*! A kernel as planning sees it. */
struct KernelInfo {
  const SBlockNode* block = nullptr;
  Array<Var> params;
  std::vector<Var> thread_vars;
  /*! Extents of the threads are 1 but for threadIdx.x. */
  bool is_flat = true;
  int64_t threads = 0;
  const Target* target = nullptr;
  /*! Blocks that the program wants on one multiprocessor. */
  int64_t min_blocks = 1;
  /*! The program says how many registers producers or consumers have. */
  bool gives_registers = false;
  /*! Blocks of a cluster, and the axes of the grid in which it has several, with their number. */
  int64_t cluster_blocks = 1;
  std::vector<std::pair<Var, int64_t>> cluster;
  /*! Block indices are not those of the grid (T.use_swizzle). */
  bool is_swizzled = false;
  /*! Names of tensors of which several may be one (T.annotate_restrict_buffers). */
  std::vector<std::string> aliased;
};

// --- kernel_info.cc
/*! Reads the attributes and the block of `kernel`, whose outermost attribute is a thread_extent. */
KernelInfo ReadKernelInfo(const Stmt& kernel, const PrimFunc& f);

// --- warp_roles.cc
/*! The compiler's own plan: a producer and a consumer. */
WarpRoles PlanProducerConsumer(const KernelInfo& kernel);

// --- role_plan.cc
/*! The plan as a value that prints: what PlanWarpRoles leaves. */
Map<String, Any> DescribeRoles(const KernelInfo& kernel, const WarpRoles& roles);
/*! The plan of a kernel from that value. The kernel is as it was when the value was made. */
WarpRoles ReadRoles(const KernelInfo& kernel, const Views& views, const Map<String, Any>& plan);

// --- role_tree.cc
/*! A wait for the kernel before this one (T.pdl_sync). */
bool IsWaitForKernel(const Stmt& s);
/*! Makes a tree of the statements of `body`. False, with the cause in `why` and `where`, if a
 * statement can be given to no role: it synchronises threads itself, or its effects are unknown.
 * The tree lacks what stands in front of the roles: views, and waits for the kernel before this one
 * that no other statement precedes. */
bool BuildRoleTree(const KernelInfo& kernel, const Stmt& body, const Views& views,
                   WarpRoles* roles);
/*! The innermost loop around a node, nullptr if there is none. */
RoleNode* LoopAround(const RoleNode& node);
/*! Every node, outer ones and earlier ones first. */
template <typename F>
void ForEachNode(const RoleSequence& sequence, F f);
/*! The pipelined loop whose body it is, ifs in between; nullptr if there is none. */
const ForNode* PipelineOf(const RoleSequence& sequence);
bool IsPipelined(const ForNode* loop);
/*! The versions that a pipelined loop wants of the tiles that it loads. */
int64_t StagesOf(const ForNode* loop);
/*! A loop encloses the sequence. */
bool IsRepeated(const RoleSequence& sequence);
/*! The place of a node in its body. */
size_t IndexOf(const RoleNode& node);
bool IsUsed(const RoleNode& node, const Var& buffer);
/*! A jump that would leave a slot filled and unused; nullptr if there is none. */
const RoleNode* JumpOutOfWindow(const WarpRoles& roles);
/*! Global memory that the kernel writes to, under the names of its parameters. */
std::vector<Var> WrittenGlobals(const KernelInfo& kernel, const RoleSequence& body);

// --- fill_count.cc
/*! The thread's own variable that counts fills. */
Var MakeCountVariable(const std::string& name);
/*! Numbers the fills of all channels, and counts the bytes that TMA brings. */
void CountFills(WarpRoles* roles);
/*! The expression reads memory: its value may change. */
bool HasLoad(const Expr& e);
/*! Arrivals of a phase of each channel's barriers; the roles have their threads. */
void CountArrivals(WarpRoles* roles, int64_t warp_threads);

// --- copy_kind.cc
/*!
 * How a statement is made where `threads` of a producer make it, by its candidates; kNothing where
 * it cannot be taken out of its place. `why` says why it is not TMA.
 */
CopyKind CopyKindOf(const Stmt& copy, int64_t threads, std::string* why);
/*! A tile operator that copies from global to shared memory. */
bool IsTileLoad(const Stmt& s);
/*! A loop all of whose stores put an element of global memory, or zero, into shared memory. */
bool IsElementCopy(const Stmt& s);
bool IsGemm(const Stmt& s);
/*! Such a loop along rows of a tile, which begin at multiples of 16 bytes of a tensor, and of which
 * each is whole vectors of 16 bytes. */
bool IsVectorCopy(const Stmt& s);
bool HasProducts(const Stmt& s);
/*! Threads can make all loads of the pipelined loops by cp.async, and there are some. The copies
 * have their candidates. */
bool LoadsByCpAsync(const Stmt& kernel);
/*! It fetches the number of a tile from a counter. */
bool IsFetchTile(const Stmt& s);

// --- mma_overlap.cc
/*! Gives loops of two MMAs order and stage, where that has them run at once; true if any. The
 * channels are known. */
bool OverlapMmas(const KernelInfo& kernel, const Views& views, WarpRoles* roles);

// --- multicast_copies.cc
/*! Finds the fills that all blocks of a cluster make alike. The channels are known. */
void MulticastCopies(const KernelInfo& kernel, WarpRoles* roles);
/*! Number of the block in its cluster, x innermost (PTX ISA, %cluster_ctarank). */
Expr BlockRank(const KernelInfo& kernel);
/*! The part of a copy that the block of rank `rank` makes of `parts`, in the dimension `split` of
 * those that are longer than 1. */
Call PartOfLoad(const CallNode* copy, size_t split, int64_t parts, const Expr& rank);

// --- late_release.cc
/*! Sets where the roles that use a window release its slot. */
void PlaceReleases(const Views& views, WarpRoles* roles);

// --- scheduled_releases.cc
/*! Leaves out arrivals that those of another role imply. Moves those at all blocks of a cluster
 * behind the role's next signal. Releases are placed. */
void RefineReleases(WarpRoles* roles, int64_t warp_threads);

// --- role_slice.cc
/*!
 * Marks what the producer and the consumer run (`run_by`): of the producer the nodes that fill, the
 * control around them, and the scalar statements that either depends on. Returns why that is not
 * possible, with the statement in `where`; "" if it is.
 */
std::string SliceProducer(const KernelInfo& kernel, const Views& views, RoleSequence* body,
                          Span* where);
/*! The same for one role of a schedule: its operations and what they depend on. */
std::string SliceRole(const KernelInfo& kernel, const Views& views, size_t role, RoleSequence* body,
                      Span* where);

template <typename F>
void ForEachNode(const RoleSequence& sequence, F f) {
  for (const auto& node : sequence.nodes) {
    f(node.get());
    ForEachNode(node->body, f);
    ForEachNode(node->otherwise, f);
  }
}

}  // namespace tl
