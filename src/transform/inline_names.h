/*! Values in the places of names. */
#pragma once
#include "../tvm/functor.h"

namespace tl {

/*! Puts the values of integers in the places of their names, and leaves the names out. */
class NameInliner : public Substituter {
 protected:
  using Substituter::Mutate_;
  /*! Which values are put there. */
  virtual bool IsInlined(const Expr& value) const;
  Stmt Mutate_(const BindNode* op) override;
  Expr Mutate_(const LetNode* op) override;
  Stmt Mutate_(const SeqStmtNode* op) override;
};

}  // namespace tl
