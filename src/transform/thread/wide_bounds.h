/*!
 * The integers of indices and of what guards them, as the program means them: without a width.
 *
 * `WideBounds` knows the ranges of threads, loops, dimensions and names; anything else of a type
 * is any value of the type. It tells whether an expression, with all of its parts, has its
 * mathematical value in its own type, and writes it out in int64 where that is not known. TVM's
 * own bounds of an int32 expression end at its limits, and its divisions want a divisor that is
 * not zero.
 *
 * Unsigned integers wrap: their arithmetic is a value, as what is loaded or cast.
 */
#pragma once
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../../analysis/size_product.h"

namespace tl {

/*! int64 that stays at its limits, and an int64 as a coordinate of a tensor map, which is int32. */
inline constexpr const char* kAddSaturating = "tl.add_saturating";
inline constexpr const char* kSubSaturating = "tl.sub_saturating";
inline constexpr const char* kMulSaturating = "tl.mul_saturating";
inline constexpr const char* kTmaCoordinate = "tl.tma_coordinate";

/*! Annotation of a loop by a step: its extent is a number of iterations, `(stop - start + 3) // 4`,
 * whose parts may leave the type that it has itself. */
inline constexpr const char* kExactExtent = "tl.exact_extent";

class WideBounds {
 public:
  struct Bound {
    int64_t min;
    int64_t max;
  };

  /*! `v` is in [min, min + extent). */
  void Range(const Var& v, const Expr& min, const Expr& extent);
  /*! `bind` gives a name to a value. If that may leave int32, the result is a second name, of the
   * exact value in int64, to be declared behind the first; else undefined. */
  Stmt Value(const BindNode* bind);
  /*! Whether something has asked for the second name `v`. */
  bool IsUsed(const Var& v) const { return used_.count(v.get()) != 0; }
  /*! Variables in the parameters' shapes and strides, and what the call's guards say of them. */
  void Shapes(const PrimFunc& f);

  /*! What variables were known to be, to be put back. */
  using Before = std::vector<std::pair<const Object*, std::optional<Bound>>>;
  /*! The comparison `fact`, or each of several, holds from now on. */
  void Assume(const Expr& fact, Before* before);
  void PutBack(const Before& before);

  /*! At least the elements of a row-major tensor: the product of its extents, which an assumption
   * may bound where it bounds none of them. Doubles are exact below 2^53. */
  double MostElements(const Array<Expr>& shape) const;

  /*! Bounds of the mathematical value; the limits of int64 where it may lie beyond. */
  Bound Of(const Expr& e) const;
  /*! The expression and all of its parts have their mathematical values in their own types. */
  bool IsExact(const Expr& e) const;
  /*! Whether its bits are those of the mathematical value, where it may have wrapped. */
  bool IsModular(const Expr& e) const;
  /*! The same as IsExact if the value is in [min, max], as a guard or the size of a buffer says:
   * what a part may be follows from the sum or the product that it is a part of. */
  bool IsExactWithin(const Expr& e, int64_t min, int64_t max) const;
  /*! `e` at least `least`, as a comparison of the one part that decides it: with a part c * x that
   * is larger than the rest it is x against a constant. Undefined where there is none. */
  Expr AtLeast(const Expr& e, int64_t least) const;
  /*! The mathematical value of `e`, an integer of at most 64 bits, as an int64. */
  Expr Widened(const Expr& e);

 private:
  struct Sum;
  void Split(const Expr& e, int64_t sign, Sum* sum) const;
  void AssumeOrder(const Expr& smaller, const Expr& larger, int64_t by, Before* before);
  void Narrow(const Expr& e, int64_t min, int64_t max, Before* before);
  void NarrowFactors(const SizeProduct& product, int64_t max, Before* before);
  Expr WidenedParts(const Expr& e);

  struct Name {
    Expr value;
    Var wide;
  };
  std::unordered_map<const Object*, Bound> known_;
  std::unordered_map<const Object*, Name> names_;
  // Names that may have wrapped, and whether they are IsModular.
  std::unordered_map<const Object*, bool> modular_;
  std::unordered_set<const Object*> used_;
  // Products of variables that the guards say are at most a constant.
  std::vector<std::pair<SizeProduct, int64_t>> products_;
};

}  // namespace tl
