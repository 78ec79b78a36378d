/*! Shuffles of a warp: the analyzer knows that each gives the value that its operand has in one of
 * the lanes. */
#pragma once
#include "build.h"

namespace tl {

// (mask, value, lane or distance, width)
inline constexpr const char* kShuffleSync = "tl.shfl_sync";
inline constexpr const char* kShuffleUpSync = "tl.shfl_up_sync";
inline constexpr const char* kShuffleDownSync = "tl.shfl_down_sync";
inline constexpr const char* kShuffleXorSync = "tl.shfl_xor_sync";

/*! The shuffle that an expression is, nullptr for another one. */
inline const CallNode* AsShuffle(const Expr& e) {
  for (const char* op : {kShuffleSync, kShuffleUpSync, kShuffleDownSync, kShuffleXorSync}) {
    if (IsCallTo(e, op)) return e.as<CallNode>();
  }
  return nullptr;
}

}  // namespace tl
