/*! T.copy between two fragments: from register to register of one thread, or, where other threads
 * hold what an element is copied to, by shuffles in a warp or through shared memory. */
#pragma once
#include <optional>
#include <string>

#include "loop_layout.h"
#include "operator.h"
#include "region_nest.h"
#include "shuffle_registers.h"

namespace tl {

/*! What a copy of a fragment to other threads costs at least, in bits of a thread: more than
 * registers ever do. By shuffles it has no barriers and no memory. */
inline constexpr int64_t kShuffledBits = int64_t(1) << 31, kThroughSharedBits = int64_t(1) << 32;

/*! The shuffles by which elements of so many bits go from one layout to the other; nullopt where
 * shared memory is cheaper, or has to be. */
std::optional<WarpShuffle> PlanCheapShuffle(const Fragment& from, const Fragment& to, int bits,
                                            int64_t num_threads, const Target& target);

struct FragmentCopy {
  TileRegion src, dst;
  /*! From the one to the other. */
  ParallelNest nest;

  /*! Both sides are fragments that have their places: the copy is possible. */
  bool IsPlaced(const FragmentLookup& fragment) const;
  /*! More than registers ever cost where it goes to other threads, else 0. */
  int64_t LayoutCost(const LayoutScope& scope) const;
  /*! Why it has to go to other threads, "" where registers of each thread do. */
  std::string WhyNotThreads(const LayoutScope& scope) const;
  /*! Why it does not go by shuffles in a warp. */
  std::string WhyNotShuffles(const LayoutScope& scope) const;
  Stmt LowerByShuffles(LoweringScope* scope, const Span& span) const;
  Stmt LowerThroughShared(LoweringScope* scope, const Span& span) const;

 private:
  std::optional<WarpShuffle> PlanShuffle(const FragmentLookup& fragment, int64_t num_threads,
                                         const Target& target) const;
  bool AreFragments() const;
  bool FitsInThreads(const FragmentLookup& fragment) const;
};

}  // namespace tl
