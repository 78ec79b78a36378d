/*! Fragments that statements dictate differently: a part of LayoutInference. */
#pragma once
#include <vector>

#include "../../op/views.h"
#include "../../tvm/build.h"

namespace tl {

/*! A statement dictates where a fragment lives. */
struct Dictation {
  Stmt statement;
  Var fragment;
  /*! The same for statements that dictate the same layout of the fragment. */
  int layout;
};

/*!
 * In:  a tile program under thread_extent attributes; all dictations of some fragments.
 * Out: the same; the statements that dictate another layout than `keeper` work on a fragment of
 * their own,
 *
 *   gemm(a, b, F, FullRow); for k: gemm(c, d, F, FullCol)
 *
 * as
 *
 *   gemm(a, b, F, FullRow); copy(F, F_2); for k: gemm(c, d, F_2, FullCol); copy(F_2, F)
 *
 * The copies stand around the outermost loop in which all dictate the same. MMAs that nobody
 * waits for are waited for in front of them. Establishes: statements read what the fragment would
 * have had. Refuses nothing.
 */
Stmt ConvertAccumulators(const Stmt& kernel, const std::vector<Dictation>& dictations, int keeper);

}  // namespace tl
