/*! The launch around a statement: which variables are threads and blocks, how many there are. */
#pragma once
#include <string>
#include <vector>

#include "../../tvm/analyzer.h"
#include "../../tvm/functor.h"

namespace tl {

/*! Threads of the enclosing kernel, read from its thread_extent attributes. */
class KernelScope {
 public:
  /*! Notes an attribute statement; true if it is a thread or block extent. */
  bool Enter(const AttrStmtNode* op);
  /*! Threads of a block. */
  int64_t NumThreads() const;
  /*! Linear number of the thread in its block: x + ex (y + ey z). */
  Expr ThreadIndex() const;
  /*! Tells the analyzer the ranges of all thread and block variables. */
  void BindTo(Analyzer* analyzer) const;

 private:
  struct Axis {
    std::string tag;
    Var var;
    Expr extent;
  };
  const Axis* Find(const std::string& tag) const;
  std::vector<Axis> axes_;
};

}  // namespace tl
