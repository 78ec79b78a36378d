/*! T.copy between two fragments: from register to register of one thread, or, where other threads
 * hold what an element is copied to, through shared memory. */
#pragma once
#include <string>

#include "loop_layout.h"
#include "operator.h"
#include "region_nest.h"

namespace tl {

struct FragmentCopy {
  TileRegion src, dst;
  /*! From the one to the other. */
  ParallelNest nest;

  /*! Both sides are fragments that have their places: the copy is possible. */
  bool IsPlaced(const FragmentLookup& fragment) const;
  /*! More than registers ever cost where it goes through shared memory, else 0. */
  int64_t LayoutCost(const FragmentLookup& fragment) const;
  /*! Why it has to go through shared memory, "" where registers of each thread do. */
  std::string WhyNotThreads(const FragmentLookup& fragment) const;
  Stmt LowerThroughShared(LoweringScope* scope, const Span& span) const;

 private:
  bool AreFragments() const;
  bool FitsInThreads(const FragmentLookup& fragment) const;
};

}  // namespace tl
