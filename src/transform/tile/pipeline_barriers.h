/*!
 * mbarriers that a program uses itself in a pipelined loop: `T.tma_copy` with a barrier, arrivals,
 * waits. If each iteration completes one phase and waits for it, loads and arrivals may run ahead
 * of the wait. Then the mbarrier gets versions: iteration n, counted over the whole kernel, uses
 * slot n % versions, at phase parity n / versions % 2.
 */
#pragma once
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/functor.h"

namespace tl {

/*! A statement that does nothing but loads by T.tma_copy, and arrivals at mbarriers and the bytes
 * that these expect, whatever the condition on threads. */
bool CopiesByTma(const Stmt& s);
/*! A barrier of all threads of the block. */
bool IsBlockSync(const Stmt& s);
/*! The mbarrier of a call that is about one, undefined for others. */
const TensorLoadNode* BarrierOf(const CallNode* call);

/*! Elements and regions of a buffer that a statement names. */
size_t CountMentions(const Stmt& s, const Var& buffer);

/*! The iterations of a loop that a block runs. */
struct IterationCount {
  /*! How many have run when the loop starts, in terms of the loops around it; `unknown` says why
   * this is not known. */
  Expr before;
  std::string unknown;
  std::vector<const ForNode*> around;
  /*! The number of the present iteration. */
  Expr Of(const ForNode* loop) const;
};
IterationCount CountIterations(const Stmt& function_body, const ForNode* loop);

/*! The statements at mbarriers of a loop's body. */
class LoopBarriers {
 public:
  LoopBarriers(const Stmt& function_body, const ForNode* loop, const std::vector<Stmt>& body,
               const Views& views);

  /*! Whether the statement touches an mbarrier. */
  bool Touches(size_t statement) const;
  bool Waits(size_t statement) const;
  /*! The mbarriers that a statement touches. */
  std::vector<Var> Of(size_t statement) const;
  /*! Why the statement, which touches mbarriers, has to stay with the waits; "" if it can run
   * ahead, with all others of its mbarriers that fill. */
  std::string WhyNotAhead(size_t statement) const;

 private:
  enum class Kind { kLoad, kSignal, kWait };
  struct Event {
    size_t statement;
    Kind kind;
    Var barrier;
    Expr index;
    /*! The parity of a wait; undefined for one under a condition. */
    Expr parity;
    /*! What a load fills. */
    Var tile;
  };
  void Collect(const Stmt& s, size_t statement, bool conditional);
  void Note(const CallNode* call, size_t statement, bool conditional);
  std::string WhyOneVersion(const Var& barrier) const;
  std::string WhyOnePhase(const std::vector<Event>& events) const;
  std::string WhyUnordered(const std::vector<Event>& events) const;
  bool IsParityOfIteration(const Expr& parity) const;

  const Stmt& function_body_;
  const ForNode* loop_;
  const std::vector<Stmt>& body_;
  const Views& views_;
  const IterationCount count_;
  std::vector<Event> events_;
};

/*! A buffer of mbarriers with versions. */
struct BarrierRing {
  Var barrier;  // with all versions in one dimension
  int64_t versions;
  IterationCount count;
  /*! Elements of the buffer with one version at which waits are for the phase before the one of
   * the iteration. */
  std::set<int64_t> phase_before = {};
};
/*! By the buffer with one version. */
using BarrierRings = std::unordered_map<const Object*, BarrierRing>;
/*! Each version of an mbarrier completes a phase after the same arrivals. */
void RepeatArrivals(const BarrierRings& rings, Map<String, Any>* annotations);

/*! Points accesses of mbarriers with versions, and the waits at them, at one iteration. */
class BarrierSelector : public StmtExprMutator {
 public:
  BarrierRings rings;
  const ForNode* loop = nullptr;

 protected:
  Expr Mutate_(const TensorLoadNode* op) final;
  Expr Mutate_(const TensorRegionNode* op) final;
  Expr Mutate_(const CallNode* op) final;

 private:
  Expr IndexOf(const BarrierRing& ring, const Var& one, const Expr& index);
};

}  // namespace tl
