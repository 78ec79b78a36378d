/*!
 * Copies by TMA (sm_90): which copies it can make, and their statements.
 * An operator lowers to the copies of boxes that tma_plan.h finds, issued by one thread.
 */
#pragma once
#include <string>

#include "operator.h"
#include "tma_plan.h"

namespace tl {

inline constexpr const char* kTmaCopy = "tl.tileop.tma_copy";
/*! A load in im2col mode: tma_im2col.cc. */
inline constexpr const char* kTmaIm2col = "tl.tileop.tma_im2col";

/*! The call is a load by TMA whose mbarrier is its last argument, and which fills args[1]. */
bool IsTmaLoad(const CallNode* call);
/*! The load by TMA of a `tl.tileop.copy` or `tl.tileop.im2col` that has the candidate, issued by a
 * thread that is elected already, into the blocks of the cluster in `cluster_mask`, 0 for this one.
 */
Call ElectedTmaLoad(const CallNode* copy, const Expr& barrier, int64_t cluster_mask);

/*! Gives a tile without a layout the one that TMA writes, if TMA makes the copy then. */
bool ProposeTma(const Call& call, const Var& tile, LayoutScope* scope, const Span& span);
/*! The call with its plan as an attribute, and the plan of one. */
Call WithTmaPlan(const CallNode* copy, const TmaPlan& plan);
TmaPlan TmaPlanOf(const CallNode* copy);

/*! What an mbarrier has to expect for a copy into `dst`: elements outside of the tensor count. */
int64_t TmaBytes(const TileRegion& dst);

/*! How a copy is issued: the keywords of T.tma_copy. */
struct TmaIssue {
  int64_t eviction_policy = 0;       // 0 normal, 1 first, 2 last
  int64_t cluster_mask = 0;          // blocks of the cluster that a load goes to; 0: this one
  int64_t leader_scope_threads = 0;  // one thread in each so many issues; 0: one of all
  bool elected = false;              // the statement runs in one thread already: it only issues
  bool by_one_thread = false;        // the program lets one thread alone run the statement
  bool waited = false;               // all threads wait for a load before they go on
  bool adds = false;                 // a store adds to what the tensor has
};
TmaIssue TmaIssueOf(const CallNode* call);

/*! The places of one box in both memories; `loops` have the variables that count boxes. */
struct BoxAddress {
  Expr shared;  // address
  std::vector<std::pair<Var, int64_t>> loops;
};
/*! `from` is where the region begins, by dimension, and becomes where the box does. */
BoxAddress AddressOfBox(const TileRegion& shared, const TmaPlan& plan, std::vector<Expr>* from,
                        LoweringScope* scope);
Stmt OverBoxes(const BoxAddress& place, Stmt body, const Span& span);
/*! The template argument that says how long the L2 cache keeps what is copied. */
Expr HintOf(const TmaIssue& issue);
/*! `tl.create_tma_descriptor(..)`, which SplitHostDevice makes a kernel parameter. */
Expr TmaDescriptor(const Var& tensor, const TmaPlan& plan, Analyzer* analyzer);

/*! Pointer to an element of a shared tile where a copy by the async proxy begins. */
Expr SharedAddress(const Var& tile, const Array<Expr>& element, LoweringScope* scope);
/*! True in one of `threads` threads that all ask, of which `thread` is 0 in the first. */
Expr ElectOne(const Target& target, const Expr& thread, int64_t threads);
/*! True in the one thread that issues. */
Expr ElectThread(const LoweringScope& scope, int64_t leader_scope_threads);
/*! The loads of all boxes; `barrier` points to the mbarrier. */
Stmt IssueTmaLoad(const TileRegion& global, const TileRegion& shared, const TmaPlan& plan,
                  const Expr& barrier, const TmaIssue& issue, LoweringScope* scope,
                  const Span& span);
/*! The stores of all boxes, and the commit of their group. */
Stmt IssueTmaStore(const TileRegion& shared, const TileRegion& global, const TmaPlan& plan,
                   const TmaIssue& issue, LoweringScope* scope, const Span& span);
/*! A store that the compiler has to wait for, marked for PlaceAsyncWaits; `order` is one of
 * kOrderNone, kOrderStores and kOrderAdditions. */
Stmt WaitedStore(const Stmt& store, const TileRegion& shared, const TileRegion& global,
                 const char* order, LoweringScope* scope);
/*! Refuses a load from a tensor whose elements outside of it are to be something else than 0. */
void RefuseSafeValue(const LoweringScope& scope, const Var& tensor, const std::string& op,
                     const Span& span);
/*! Refuses, in the name of `op`, a copy that has no plan. */
[[noreturn]] void RefuseTma(const std::string& op, const std::string& why, const Span& span);

}  // namespace tl
