/*! The roles that a program gives to threads in a loop's body (`T.ws`), each with its steps. */
#pragma once
#include <string>
#include <vector>

#include "../../analysis/thread_set.h"
#include "../../op/views.h"

namespace tl {

/*! A statement of a role, without the conditions on the thread's number around it. */
struct RoleStep {
  enum class Kind : uint8_t { kWait, kArrive, kExpect, kLoad, kOther };
  Kind kind;
  Stmt stmt;
  /*! In the loop's body, the statement that it is part of. */
  size_t statement;
  /*! Who runs it. */
  ThreadSet threads;
  /*! The mbarrier that it is about, but for kOther. */
  Var barrier;
  int64_t element = 0;
  /*! The parity of a wait. */
  Expr parity;
};

struct BodyRole {
  ThreadSet threads;
  std::vector<RoleStep> steps;
};

/*! The roles, or the first statement that is no role's, and why. */
struct BodyRoles {
  std::vector<BodyRole> roles;
  size_t statement = 0;
  std::string why;
};

/*!
 * Several statements of the same threads are one role. A statement under a condition that is not
 * about the thread's number alone, and a loop, are one step of kind kOther.
 */
BodyRoles SplitRoles(const std::vector<Stmt>& body, const std::vector<Axis>& threads,
                     const Views& views);

/*! The range of threads that the program orders itself, of `if ..: T.attr(.., "tl.thread_range",
 * ..)`; nullptr for other statements. */
const AttrStmtNode* RangeOfRole(const Stmt& s);

/*! The step at which the reads of step `step` are complete: the step itself, or the one that waits
 * for the asynchronous operation that it starts; the number of steps if none waits. */
size_t EndOfReads(const std::vector<RoleStep>& steps, size_t step);

}  // namespace tl
