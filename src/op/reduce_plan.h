/*!
 * Where the results of a reduction over one dimension of a fragment land.
 *
 * A thread first combines what it holds of each result in its registers. The threads that hold
 * parts of one result then combine theirs, after which each of them has it: the reduced dimension
 * became replication. Example: rows of a tensor core's accumulator, thread = 4 (i % 8) + (j % 8) /
 * 2, lie in four neighbouring lanes; the row's result is held by these four.
 */
#pragma once
#include "../layout/inverse.h"

namespace tl {

struct ReducePlan {
  /*! Layout over the result's shape: every thread that holds a part of a result holds the result.
   */
  Fragment result;
  /*!
   * Bits of the thread number: the holders of one result differ in no others, and threads that
   * differ in no others hold parts of one result, or nothing, in the same register. nullopt where
   * there are no such bits; the source then has to be dealt to threads anew.
   */
  std::optional<int64_t> lanes;
  /*! Digits of the source's register number that are digits of the result's. */
  struct RegisterDigit {
    int64_t stride, extent, result_stride;
  };
  std::vector<RegisterDigit> registers;

  /*! Register of the result that register `r` of the source contributes to. */
  Expr ResultRegister(const Expr& r) const;
};

/*! The plan for reducing dimension `dim` of `source`, checked against the source's table. The
 *  result's shape lacks the dimension, or has extent 1 there. */
ReducePlan PlanReduce(const Fragment& source, size_t dim, const std::vector<int64_t>& result_shape,
                      int64_t num_threads);

/*! A layout of `shape` that PlanReduce has lanes for: a power of two of neighbouring threads take
 *  vectors of `width` elements of dimension `dim` in turn, as many threads as it has vectors. Of
 *  another dimension than the last one, neighbouring threads have neighbouring vectors of the last
 *  one, which `width` divides. */
Fragment PlanReducible(const std::vector<int64_t>& shape, size_t dim, int64_t width,
                       int64_t num_threads);

}  // namespace tl
