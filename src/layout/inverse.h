/*!
 * Inverse of a fragment: from (thread, register) back to the element.
 *
 * The fragments that compilers make are mixed-radix: along an input coordinate the thread and the
 * register are sums of digits times strides. The digits are read off the table, one axis at a time,
 * and the resulting closed form is checked against the whole table, so that a function which is not
 * of this form is refused and never wrongly inverted. Extents need not be powers of two: the top
 * digit of a coordinate may be ragged, which adds a bound to the guard.
 *
 * Example: thread = 4 (i % 8) + (j % 8) / 2, register = j % 2 + 2 (j / 8) over 8 x 32 has the
 * digits i: {extent 8, thread stride 4}; j: {2, register 1}, {4, thread 1}, {4, register 2}.
 */
#pragma once
#include "layout.h"

namespace tl {

struct FragmentInverse {
  /*! The element's coordinates as expressions of `thread` and `reg`. */
  Array<Expr> coords;
  /*! Which replica this thread holds. */
  Expr replica;
  /*! True where (thread, reg) holds an element at all; constant true if every pair does. */
  Expr guard;
};

/*!
 * What is left of `f` when only the dimensions in `keep` count: an element is held by every thread
 * that held one of the elements it stands for. Reading a row's value in a loop over rows and
 * columns asks for this, and so does the result of a reduction. Where `f` is not mixed-radix, every
 * thread of `num_threads` holds every element.
 */
Fragment ProjectFragment(const Fragment& f, const std::vector<bool>& keep, int64_t num_threads);
/*! Numbers a thread's registers from zero on, without the steps between those that are used: 0, 1,
 * 2 for 1, 3, 5. */
Fragment CondenseRegisters(const Fragment& f);

/*! Every thread holds every element; a tile without dimensions has one. */
Fragment MakeReplicatedFragment(const std::vector<int64_t>& shape, int64_t num_threads);

/*!
 * Inverts `f` for threads [0, num_threads). Returns nullopt when `f` is neither mixed-radix, in
 * its coordinates or in the number of its elements, counted along the dimensions in any order (row
 * by row, column by column), nor a bijection that InvertLayout inverts.
 */
std::optional<FragmentInverse> InvertFragment(const Fragment& f, const Expr& thread,
                                              const Expr& reg, int64_t num_threads);

}  // namespace tl
