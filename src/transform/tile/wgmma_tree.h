/*!
 * A kernel of a tile program as PlaceWgmmaWaits sees it: statements that touch memory, products,
 * and the control flow that threads go through together. A wait is planned as a mark in front of a
 * node.
 */
#pragma once
#include <memory>

#include "../../target/target.h"
#include "../../tvm/registry.h"
#include "wgmma_groups.h"

namespace tl {

/*! A statement with what is planned before it. */
struct WgmmaNode {
  enum class Kind { kLeaf, kSequence, kScope, kLoop, kIf, kAlone, kWait };
  Kind kind = Kind::kLeaf;
  Stmt stmt;
  TouchedMemory touched;  // of a leaf, or of a loop's or if's own expressions
  std::unique_ptr<WgmmaIssue> issue;
  std::vector<std::unique_ptr<WgmmaNode>> body, otherwise;

  std::optional<size_t> wait;        // groups that may stay in flight
  std::optional<size_t> final_wait;  // at the end of the body
  /*! Accumulators that a wait leaves complete on some way, and in flight on some way. */
  std::vector<const WgmmaIssue*> complete, pending;
};

/*! Is there one of these with the accumulator? */
bool HasAccumulator(const std::vector<const WgmmaIssue*>& list, const WgmmaIssue& issue);

std::unique_ptr<WgmmaNode> BuildWgmmaTree(const Stmt& kernel, const Views* views,
                                          Analyzer* analyzer, const Target& target);
/*! The statements again, with the waits that the nodes are marked with; products wait for nobody.
 */
Stmt WithWaits(const WgmmaNode& root);

}  // namespace tl
