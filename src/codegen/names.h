/*! C++ identifiers for the program's variables: the user's names, made legal and unique where they
 * are visible. */
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../tvm/ir.h"

namespace tl {

class NameScopes {
 public:
  NameScopes() { Enter(); }
  /*! A pair of braces opens and closes. */
  void Enter() { scopes_.emplace_back(); }
  void Leave();
  /*! Chooses the name of `var` until the current scope is left. */
  const std::string& Declare(const Var& var);
  /*! nullptr for a variable that is not declared here. */
  const std::string* Find(const VarNode* var) const;

 private:
  struct Entry {
    const VarNode* var;
    std::string name;
  };
  std::unordered_map<const VarNode*, std::string> names_;
  std::unordered_set<std::string> used_;
  std::vector<std::vector<Entry>> scopes_;
};

}  // namespace tl
