/*! Values in the places of names. */
#pragma once
#include "../tvm/name_counts.h"

namespace tl {

/*!
 * Puts the values of integers in the places of their names, and leaves the names out, where the
 * values read few names (`NameCounts`).
 */
class NameInliner : public Substituter {
 protected:
  using Substituter::Mutate_;
  /*! Which values are put there, of those that are short enough. */
  virtual bool IsInlined(const Expr& value) const;
  Stmt Mutate_(const BindNode* op) override;
  Expr Mutate_(const LetNode* op) override;
  Stmt Mutate_(const SeqStmtNode* op) override;

 private:
  bool Keeps(const Var& name, const Expr& value);
  NameCounts counts_;
};

}  // namespace tl
