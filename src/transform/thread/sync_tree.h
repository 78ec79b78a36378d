/*!
 * The statements of a thread program as a tree with parents, each with its accesses of shared
 * memory: what ThreadSync plans on. A barrier is planned as a mark "before this node", so every
 * node is in a sequence of its parent's.
 */
#pragma once
#include <memory>
#include <vector>

#include "../../tvm/stmt.h"

namespace tl {

struct SyncNode;

/*! One access of shared memory. The indices have no vectors and no names of integers but threads,
 * loops and symbols. */
struct SharedAccess {
  Var buffer;
  Array<Expr> indices;  // of the first element
  int lanes;            // contiguous elements in the last index; 0 if not known
  bool whole;           // any element may be touched, the indices mean nothing
  bool writes;
  bool async;  // a write that is complete at a later cp_async_wait
  /*! Conditions under which the access happens, with the value that they have then. */
  std::vector<std::pair<Expr, bool>> guards;
  const SyncNode* node;
  int order;  // in the program's text
};

struct SyncNode {
  enum class Kind { kLeaf, kScope, kLoop, kIf, kBarrier, kWait, kBreak, kContinue };
  Kind kind;
  Stmt stmt;
  SyncNode* parent;
  int depth;
  bool uniform = true;    // all threads of the block run the bodies together
  int64_t in_flight = 0;  // kWait: groups of asynchronous copies that it leaves in flight
  std::vector<SharedAccess> accesses;  // of a leaf, or of a loop's or if's own expressions
  std::vector<std::unique_ptr<SyncNode>> body;
  std::vector<std::unique_ptr<SyncNode>> otherwise;
  bool barrier_before = false;

  bool IsInside(const SyncNode* other) const;
};

struct SyncTree {
  std::unique_ptr<SyncNode> root;
  /*! Variables that are no function of threads, loops and symbols: results of loads and calls. */
  std::vector<Var> opaque;
  int accesses;
};

SyncTree BuildSyncTree(const Stmt& body);

/*! The statements again, with a barrier before each node that has the mark. */
Stmt WithBarriers(const SyncNode& root);

}  // namespace tl
