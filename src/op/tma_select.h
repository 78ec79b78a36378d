/*!
 * Whether TMA makes a copy: decided by one function, which passes ask at three moments. Each moment
 * reads what the one before has left on the call (copy_instruction.h).
 */
#pragma once
#include <string>

#include "../target/target.h"
#include "tma_plan.h"

namespace tl {

enum class TmaMoment : uint8_t {
  /*! SelectInstructions: the program's keywords are read, layouts are what users and gemms dictate.
   * A tile without one gets the layout that TMA proposes. */
  kCandidate,
  /*! Layout inference, for a tile that nothing else has placed: the call has its candidates. The
   * decision holds for the layout that TMA proposes. */
  kProposal,
  /*! All layouts are known. A tile without one is row-major. */
  kFinal,
};

struct TmaDecision {
  /*! Why TMA does not make the copy, as the words behind "found"; empty if it does. */
  std::string why;
  /*! The layout of the tile that it is about. */
  Layout layout;
  /*! What TMA does. */
  TmaPlan plan;

  bool IsMade() const { return why.empty(); }
};

/*!
 * Decides about a call of tl.tileop.copy, im2col, tma_copy, tma_im2col or atomic. `layout` is that
 * of its tile, undefined where it has none. A copy that nobody demands has to be legal for every
 * shape that a call may bring; of a demand, TMA's tensor map is checked again when it is made.
 *
 * The tensor has to be a parameter, or a view of one with the same dtype, and may have no safe
 * value but 0: the call cannot tell these.
 */
TmaDecision SelectTma(const CallNode* call, TmaMoment moment, const Layout& layout,
                      const Target& target, Analyzer* analyzer);

/*! What a copy's own keywords, its tile's extents and pass configurations have against TMA, "" for
 * nothing. Part of the decision at kCandidate; of a store, all that is known then. */
std::string WhyNotTmaAsked(const CallNode* copy);

/*! The target has no TMA, as words; "" if it has. */
std::string WhyNotTmaTarget(const Target& target);

}  // namespace tl
