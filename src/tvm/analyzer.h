/*! TVM's integer analyzer. It serves simplification and dynamic bounds; exact layout questions go
 * to src/layout. */
#pragma once
#include "build.h"
#include "name_counts.h"

namespace tl {

class Analyzer {
 public:
  Analyzer() : self_(TL_GLOBAL("sym.Analyzer")().cast<ObjectRef>()) {}

  /*! `v` is in [min, min + extent). Overwrites what was known. */
  void Bind(const Var& v, const Expr& min, const Expr& extent);
  void BindConst(const Var& v, int64_t extent) {
    Bind(v, MakeInt(v->dtype(), 0), MakeInt(v->dtype(), extent));
  }
  /*! Threads, loops, bound values and dimensions of parameters: the ranges that every walk of a
   * thread program knows. */
  void BindThread(const AttrStmtNode* thread_extent);
  void BindLoop(const ForNode* loop);
  void BindValue(const BindNode* bind);
  /*! `v` is another name of the integer `value`. */
  void BindExpr(const Var& v, const Expr& value);
  /*! Variables in the parameters' shapes are at least 0: a tensor has no negative dimension. */
  void BindShapes(const PrimFunc& f);
  Expr Simplify(const Expr& e);
  bool CanProve(const Expr& condition) { return CanProve(condition, 0); }
  /*! Also from bounds that are symbols, such as `i < n` of a loop; takes about twice as long. */
  bool CanProveSymbolic(const Expr& condition) { return CanProve(condition, 1); }
  bool CanProveEqual(const Expr& a, const Expr& b);
  /*! Largest c and the b with e == b (mod c) for every value of the bound variables; c == 0 means e
   * == b. */
  struct Modular {
    int64_t coeff;
    int64_t base;
  };
  Modular ModularSet(const Expr& e);
  /*! Inclusive bounds; int64 limits where unbounded. */
  struct Bound {
    int64_t min;
    int64_t max;
  };
  Bound ConstBound(const Expr& e);
  /*! Runs `body` while `condition` is known to hold. */
  template <typename F>
  void WithConstraint(const Expr& condition, F body) {
    Function exit = EnterConstraint(condition);
    struct Leave {
      Function& f;
      ~Leave() { f(); }
    } leave{exit};
    body();
  }

 private:
  bool CanProve(const Expr& condition, int strength);
  Function EnterConstraint(const Expr& condition);
  ObjectRef self_;
  NameCounts names_;
};

}  // namespace tl
