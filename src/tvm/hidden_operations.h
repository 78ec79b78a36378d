/*!
 * TVM's simplifier would take some operations for others, or refuse a program for them, so it gets
 * to see calls in their place:
 *
 * * Arithmetic and comparisons of floats. It takes floats for real numbers: it makes 0 of x - x,
 *   true of x == x, and x >= 1 of not x < 1, which is something else where x is NaN or infinite,
 *   and x of (x + a) - a, which rounds.
 * * Casts of what the type may not hold. It takes int32(x * 6) % 6 for 0, and refuses constants of
 *   other types: a uint32 of -5, an int8 of 300.
 * * Differences and comparisons of unsigned integers: for 0 < 7 it subtracts, and refuses 0 - 7.
 * * Divisions by zero, which are no mistake where they are not reached.
 */
#pragma once
#include <functional>

#include "analyzer.h"

namespace tl {

/*! Whether TVM could misread a cast, comparison or division of integers with these facts. */
bool MisleadsTvm(Analyzer* analyzer, const Expr& e);

/*! The same with calls of `tl.hidden.<Operation>` in the place of arithmetic and comparisons of
 * floats, of unsigned differences, and of the operations that `misleads` holds for. They are pure
 * and nothing is known of them. */
using Misleads = std::function<bool(const Expr&)>;
Stmt HideOperations(const Stmt& s, const Misleads& misleads);
Expr HideOperations(const Expr& e, const Misleads& misleads);

/*! Undoes HideOperations, and computes those whose operands have become integer constants, as C
 * does: modulo 2^n. */
Stmt ShowOperations(const Stmt& s);
Expr ShowOperations(const Expr& e);

}  // namespace tl
