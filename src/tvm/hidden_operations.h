/*!
 * TVM's simplifier would take some operations for others, or refuse a program for them, so it gets
 * to see calls in their place:
 *
 * * Arithmetic and comparisons of floats. It takes floats for real numbers: it makes 0 of x - x,
 *   true of x == x, and x >= 1 of not x < 1, which is something else where x is NaN or infinite,
 *   and x of (x + a) - a, which rounds.
 * * Casts of what the type may not hold. It takes int32(u) of a uint32 for positive, int32(x * 6)
 *   % 6 for 0, and refuses constants of other types: a uint32 of -5, an int8 of 300.
 * * Sums, differences, products and shifts that may leave an unsigned type, or one of less than 32
 *   bits: these wrap. Those of int32 and int64 are numbers without ends.
 * * Differences and comparisons of unsigned integers: for 0 < 7 it subtracts, and refuses 0 - 7.
 * * Sums and comparisons whose constants leave the type where it adds them up or brings them to one
 *   side: it raises, and of the least integer, which has no negative, it makes x == -2^31 false.
 * * Divisions by zero, which are no mistake where they are not reached.
 * * Selections in the condition of another one. It simplifies a condition several times, as a fact
 *   of each side, too: a chain of eight took longer than a minute. From the third on they are out
 *   of its sight: a chain of twelve took 13 s.
 * * Quotients, comparisons and casts deep in others: it simplifies operands several times. A chain
 *   of five comparisons, each of what the one before gives, took 35 s, and a link more takes eight
 *   times as long.
 * * Values of names that are large or deep once each name in them is its value, as TVM writes it: a
 *   chain of eight selections, each named and of the one before, took minutes.
 */
#pragma once
#include <functional>

#include "analyzer.h"

namespace tl {

bool IsIntegral(const DLDataType& type);

/*! Whether sums, differences, products and shifts of a type wrap: those of int32 and int64 are
 * numbers without ends. */
bool IsModulo(const DLDataType& type);

/*! Whether a type of integers or bool holds all values of another one. */
bool HoldsAll(const DLDataType& type, const DLDataType& of);

/*! How deep quotients, comparisons and casts are in others. What is deeper than `kMostWeight` is
 * out of TVM's sight. */
constexpr int kMostWeight = 8;
int WeightIn(const Expr& e);

using BoundOf = std::function<Analyzer::Bound(const Expr&)>;

/*! Whether TVM could misread an operation, but not its operands, whose bounds `bound_of` tells. */
bool MisleadsTvm(const Expr& e, const BoundOf& bound_of);

/*! The same with calls of `tl.hidden.<Operation>` in the place of arithmetic and comparisons of
 * floats, and of the operations that `misleads` holds for: it is asked of an operation, and of the
 * same with its operands hidden. The calls are pure, and nothing is known of them but their type.
 */
using Misleads = std::function<bool(const Expr& original, const Expr& with_hidden_operands)>;
Stmt HideOperations(const Stmt& s, const Misleads& misleads);
Expr HideOperations(const Expr& e, const Misleads& misleads);

/*! Undoes HideOperations, and computes those whose operands have become integer constants, as C
 * does: modulo 2^n. */
Stmt ShowOperations(const Stmt& s);
Expr ShowOperations(const Expr& e);

}  // namespace tl
