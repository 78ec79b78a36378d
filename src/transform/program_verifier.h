/*! What the checks of both program forms say and ask alike. */
#pragma once
#include <string>

#include "../target/memory_spaces.h"
#include "../tvm/error.h"
#include "../tvm/functor.h"
#include "instances.h"

namespace tl {

/*! A visitor that reports the form of a program, as a bug of the pass in front of it. */
class ProgramVerifier : public StmtExprVisitor {
 public:
  explicit ProgramVerifier(const char* pass) : pass_(pass) {}

 protected:
  void Visit_(const BufferStoreNode* op) override {
    span_ = op->span;
    CheckAccess(op->buffer, op->indices.size());
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) override {
    CheckAccess(op->source.as_or_throw<Var>(), op->indices.size());
    Default(op);
  }

  void Visit_(const IfThenElseNode* op) override {
    const ForNode* loop = InstancesOf(op);
    if (loop && !op->else_case && IsOfRange(loop, op->then_case.as<AttrStmtNode>())) {
      of_groups_ = loop;
    }
    Default(op);
  }
  /*! A loop over warp groups that any pass could take for one of iterations. */
  void CheckInstances(const ForNode* op) {
    if (IsInstances(op) && !IsConst(op->extent, 1) && op != of_groups_) {
      Report("found a loop with the annotation " + std::string(kInstances) +
             " that is not alone in the range of the first of its warp groups");
    }
  }

  /*! Whether programs of the form may have buffers in a memory. */
  virtual bool IsAllowed(const MemorySpaceRow& row) const = 0;

  [[noreturn]] void Report(const std::string& found) const { ThrowBug(span_, pass_, found); }
  void CheckScope(const Var& buffer) const {
    const MemorySpaceRow* row = FindMemorySpace(ScopeOf(buffer));
    if (row && IsAllowed(*row)) return;
    Report("found " + std::string(buffer->name) + " in scope " + ScopeOf(buffer));
  }
  void CheckAccess(const Var& buffer, size_t indices) const {
    CheckScope(buffer);
    const size_t rank = BufferOf(buffer)->shape.size();
    if (rank == indices) return;
    Report("found " + std::to_string(indices) + " indices of " + std::string(buffer->name) +
           ", which has " + std::to_string(rank) + " dimensions");
  }

  /*! The place of the statement that is visited. */
  Span span_;

 private:
  const char* const pass_;
  /*! The last one that stands where such a loop may stand. */
  const ForNode* of_groups_ = nullptr;
};

}  // namespace tl
