/*!
 * The statements of a thread program as a tree with parents, each with its accesses of memory that
 * threads share, which is shared memory and the tensors that the kernel writes: what ThreadSync
 * plans on. A barrier is planned as a mark "before this node", so every node is in a sequence of
 * its parent's.
 */
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "../../layout/index_box.h"
#include "../../op/intrinsic_effects.h"
#include "../../op/thread_range.h"
#include "../../tvm/attrs.h"
#include "../../tvm/stmt.h"

namespace tl {

struct SyncNode;

/*! One access of memory that threads share. The indices have no vectors and no names of integers
 * but threads, loops and symbols. */
struct SharedAccess {
  Var buffer;           // the memory: of several names, one
  Array<Expr> indices;  // of the first element
  int lanes;            // contiguous elements in the last index; 0 if not known
  bool whole;           // any element may be touched, the indices mean nothing
  bool writes;
  /*! Who acts beside the thread, and until which wait: a write by cp.async and what that reads, a
   * read by a bulk copy or by wgmma. */
  AsyncQueue queue;
  bool atomic;  // needs no order among its like
  /*! Conditions under which the access happens, with the value that they have then. */
  std::vector<std::pair<Expr, bool>> guards;
  const SyncNode* node;
  int order;  // in the program's text
  /*! Variables of the indices that are neither threads nor loops, and run over what the access
   * touches. */
  std::vector<Axis> inner = {};
  /*! The async proxy acts: what threads wrote before is to pass a fence between proxies. */
  bool async_proxy = false;
  /*! The async proxy's write whose order with other accesses of the buffer is the program's affair.
   */
  bool signalled = false;
  /*! The async proxy's write that all threads wait for before they go on. */
  bool waited = false;
  bool by_warp = false;  // an instruction of all lanes: the thread that has the address is not the
                         // one that acts
  /*! An access of global memory; else of shared memory. */
  bool tensor = false;
  /*! By which the access calls the memory: what its indices are about. */
  Var name = buffer;
  /*! What an atomic operation combines with, as "add": others of that operation come in any order.
   * Empty for loads and stores, by which programs order things themselves. */
  std::string update = {};
  /*! The first access that is like this one, and the loops around this statement alone, or the
   * statement: see like_accesses.h. nullptr of what a wait completes. */
  const SharedAccess* like = nullptr;
  const SyncNode* nest = nullptr;
};

struct SyncNode {
  enum class Kind {
    kLeaf,
    kScope,
    kLoop,
    kIf,
    kBarrier,  // of the whole block, or with `named` a named one
    kCommit,
    kWait,
    kBreak,
    kContinue
  };
  /*! A barrier that some threads of the block wait at. */
  struct Named {
    int id;
    int threads;
  };
  Kind kind;
  Stmt stmt;
  SyncNode* parent;
  int depth;
  bool uniform = true;        // all threads that run the node run the bodies together
  Expr condition;             // kIf: in threads, loops and symbols
  bool in_otherwise = false;  // of the parent, a kIf
  /*! The innermost `tl.thread_range` attribute's node around this one whose order with others is
   * the program's, nullptr outside of all. */
  const SyncNode* range = nullptr;
  WarpSet groups = WarpSet::All();  // of that attribute
  std::optional<Named> named;       // kBarrier
  /*! kBarrier: one of the block in a role that was the kernel (`tl.warp_role`), so of the role's
   * threads. Its mark stands for it in the end. */
  bool of_role = false;
  AsyncQueue queue = AsyncQueue::kNone;  // kCommit, kWait
  int64_t in_flight = 0;                 // kWait: groups that it leaves in flight
  std::vector<SharedAccess> accesses;    // of a leaf, or of a loop's or if's own expressions
  std::vector<std::unique_ptr<SyncNode>> body;
  std::vector<std::unique_ptr<SyncNode>> otherwise;
  bool returns = false;  // kLeaf: the threads that run it leave the kernel
  /*! kLeaf: all threads of the block meet at a call in it, and whether that orders what they do. */
  bool meets = false, meets_in_order = false;
  /*! Without accesses, barriers, waits and jumps, and so are the bodies. */
  bool is_inert = false;
  /*! A range of threads apart is in the node, whose threads do something that counts. */
  bool has_range = false;
  /*! What is planned in front of a node: nothing, a barrier of the block, one of the threads that
   * run it, or one of each of their warp groups. */
  enum class Mark { kNone, kBlock, kSubset, kGroups };
  /*! The named barrier of kSubset and kGroups, which it gets in the end: its id is a thread's own.
   */
  struct Planned {
    Expr id;
    int threads;
  };
  struct Plan {
    Mark mark = Mark::kNone;
    int number = 0;  // of a mark that may be superfluous
    Planned barrier{};
    /*! A fence between proxies goes in front of the node, and of its barrier: for shared memory, or
     * for all memory. */
    bool fence = false;
    bool tensor_fence = false;
  };
  /*! One of the nodes that stand once in the program (sync_instances.h). */
  std::shared_ptr<Plan> plan = std::make_shared<Plan>();
  /*! How many warp groups run the statement, each by itself, where the node is for one of them, and
   * whether another node stands for it. */
  int instances = 1;
  bool is_copy = false;
  /*! The branch of the first group, for a branch of another one. */
  SyncNode* first_instance = nullptr;
  /*! Prints nothing, and stands at the end of a body so that a barrier may stand behind the other
   * nodes. In a `while`, it is for the next evaluation of the condition; in a range of threads
   * apart, it is inert. */
  bool is_end = false;

  bool IsInside(const SyncNode* other) const;
};

/*! What has one value in all threads, until somebody writes it: a variable (T.alloc_var), or a name
 * that is bound to a result of a load or call. */
struct SyncScalar {
  Var buffer;  // the variable, or the name
  Var value;   // its name in indices of tensors
  std::vector<const SyncNode*> writers = {};
};

struct SyncTree {
  std::unique_ptr<SyncNode> root;
  std::vector<SyncScalar> scalars;
  /*! Variables that are no function of threads, loops and symbols: results of loads and calls. */
  std::vector<Var> opaque;
  int accesses;
};

SyncTree BuildSyncTree(const Stmt& body, int64_t warp_threads);

/*! The divergent nodes around one, whose bodies not all threads run together; outermost first. */
std::vector<const SyncNode*> DivergentAround(const SyncNode& node);

/*! What a copy has touched when the thread that issued it waits for it: the same as it touches
 * there, where threads and constant loops around the copy alone decide that, else any element. */
SharedAccess EndOf(const SharedAccess& copy, const SyncNode* wait);

/*! Moves fences in front of waits for products of wgmma that stand directly in front of them: then
 * a thread waits for its own accesses while the tensor cores work. Nothing is between that a fence
 * would have to follow, since the tensor cores are the async proxy themselves. */
void MoveFencesBeforeWaits(SyncNode* root);

/*! The statements again, with the barriers and fences that the nodes are marked with. */
Stmt WithBarriers(const SyncNode& root);

}  // namespace tl
