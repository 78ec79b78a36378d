/*! Names of what a thread's number makes, such as `row = tx // 4`. Where a statement is copied for
 * another warp group, they stand for values of that group's threads. */
#pragma once
#include <utility>
#include <vector>

#include "../../analysis/effects.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"

namespace tl {

class ThreadNames {
 public:
  /*! A name is noted if its value, in numbers of the thread, is an integer that depends on it. */
  void Note(const Var& name, const Expr& value, const Var& thread) {
    if (Uses(value, thread) && IsPureInteger(value)) named_.emplace_back(name, value);
  }
  /*! An expression in the thread's number, not in names of it. */
  Expr InNumbers(const Expr& e) const {
    Substituter names;
    for (const auto& [name, value] : named_) names.map[name.get()] = value;
    return names.Mutate(e);
  }
  auto begin() const { return named_.begin(); }
  auto end() const { return named_.end(); }

 private:
  /*! With values in the thread's number. */
  std::vector<std::pair<Var, Expr>> named_;
};

}  // namespace tl
