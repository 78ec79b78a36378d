/*! Accesses that permute a fragment: each iteration of a nest has an element of its own, and all
 * elements have one. */
#pragma once
#include "parallel.h"

namespace tl {

/*! The iteration that each element belongs to: a layout from the fragment's indices to those of the
 * nest. nullopt where the access is no such permutation, or the number of the iteration is no sum
 * of digits of the element's indices times positive strides. */
std::optional<Layout> IterationsOfElements(const ParallelNest& nest, const FragmentAccess& access);

/*!
 * The layout in which each thread has the elements of its iterations. A thread's registers are in
 * the order of the elements, not of the iterations, so that elements side by side are loaded and
 * stored in vectors. nullopt where threads or registers are no such sums of digits.
 *
 * Example: 8 iterations i of two threads, i // 4 each, and F[i % 4 * 2 + i // 4]. Thread 0 has the
 * elements 0, 2, 4, 6, thread 1 has 1, 3, 5, 7.
 */
std::optional<Fragment> FragmentOfPermutation(const Layout& iterations,
                                              const Fragment& loop_layout);

}  // namespace tl
