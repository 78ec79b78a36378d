/*! Walks for the nodes of one class, where a StmtExprVisitor would have one short Visit_. */
#pragma once
#include <type_traits>
#include <vector>

#include "functor.h"

namespace tl {

/*! Whether `is` holds for a node of the class below a statement or expression. */
template <typename Node, typename Is>
bool HasNode(const ObjectRef& root, Is is) {
  struct Finder final : StmtExprVisitor {
    explicit Finder(Is* is) : is(is) {}
    Is* is;
    bool found = false;
    void Visit_(const Node* op) final {
      found = found || (*is)(op);
      // A variable has no children but its type.
      if (!found && !std::is_same_v<Node, VarNode>) Default(op);
    }
  } finder(&is);
  finder(root);
  return finder.found;
}

template <typename Node, typename... Others>
struct ClassFinder : ClassFinder<Others...> {
  void Visit_(const Node*) final { this->found = true; }
};
template <typename Node>
struct ClassFinder<Node> : StmtExprVisitor {
  bool found = false;
  void Visit_(const Node*) final { found = true; }
};

/*! Whether there is a node of one of the classes below a statement or expression. */
template <typename... Nodes>
bool HasNode(const ObjectRef& root) {
  ClassFinder<Nodes...> finder;
  finder(root);
  return finder.found;
}

/*! Calls `visit` for each node of the class below a statement or expression, outer ones first. */
template <typename Node, typename Visit>
void ForEachIn(const ObjectRef& root, Visit visit) {
  HasNode<Node>(root, [&](const Node* op) {
    visit(op);
    return false;
  });
}

/*! The variables in the shape and the strides of a buffer. */
inline std::vector<Var> SizeSymbolsOf(const Var& buffer) {
  std::vector<Var> symbols;
  for (const Array<Expr>& sizes : {BufferOf(buffer)->shape, BufferOf(buffer)->strides}) {
    for (const Expr& size : sizes) {
      const std::vector<Var> vars = VarsOf(size);
      AppendRange(&symbols, vars);
    }
  }
  return symbols;
}

}  // namespace tl
