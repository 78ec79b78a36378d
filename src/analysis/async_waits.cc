#include "async_waits.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "../tvm/attrs.h"
#include "../tvm/disjoint.h"
#include "../tvm/error.h"
#include "../tvm/functor.h"

namespace tl {
namespace {

/*! An execution of an issue, by how long ago it was. */
struct Operation {
  const AsyncIssue* issue;
  /*! Iterations since, for each of the issue's loops; from kManyAges on at least so many. */
  std::vector<int> age;
  /*! Its regions are written in terms that have other values by now. */
  bool moved = false;

  static constexpr int kManyAges = 4, kUnknown = -1;

  bool operator<(const Operation& o) const {
    return std::tie(issue->order, age, moved) < std::tie(o.issue->order, o.age, o.moved);
  }
};

/*! What is surely known of it. */
struct Progress {
  int64_t newer = 0;  // groups of its queue that were committed since
  bool has_read = false;
  bool operator==(const Progress& o) const { return newer == o.newer && has_read == o.has_read; }
};

using InFlight = std::map<Operation, Progress>;

/*! What is in flight on either way; true if that is more than on this one. */
bool Join(InFlight* state, const InFlight& other) {
  bool grows = false;
  for (const auto& [operation, progress] : other) {
    const auto [it, is_new] = state->try_emplace(operation, progress);
    const Progress before = it->second;
    it->second.newer = std::min(before.newer, progress.newer);
    it->second.has_read = before.has_read && progress.has_read;
    grows |= is_new || !(before == it->second);
  }
  return grows;
}

std::string Place(const Span& span) {
  const std::string where = Where(span);
  return where.empty() ? "" : " at " + where;
}

std::string NameOf(const AsyncIssue& issue) { return issue.name + Place(issue.span); }

/*! What a kernel's ranges of threads use, and whether it signals other blocks. */
class KernelUses {
 public:
  explicit KernelUses(const CfgNode& kernel) { Note(kernel, nullptr, {}); }

  /*! After an arrival, another range of threads may signal other blocks. */
  bool ArrivalsTell() const { return signals_ && has_ranges_; }
  /*! Other ranges use what the operation reads, and their arrivals do not order it: so it is waited
   * for at once. */
  bool IsSharedAtOnce(const AsyncIssue& issue) const {
    return issue.queue->completes_before > ThreadScope::kBlock && IsInSeveral(issue.sources);
  }
  /*! The operation has to be complete where its range of threads ends. */
  bool IsSharedAtEnd(const AsyncIssue& issue) const {
    return signals_ || IsInSeveral(issue.destinations);
  }
  /*! A statement in the loop that is no operation itself uses what the operation writes. */
  bool IsUsedIn(const CfgNode* loop, const AsyncIssue& issue) const {
    return AnyOf(issue.destinations, [&](const MemoryAccess& a) {
      const auto it = statements_in_.find(a.memory.get());
      return it != statements_in_.end() && it->second.count(loop);
    });
  }
  /*! The operations whose innermost loop this is, and which read registers that a statement of the
   * loop writes. */
  std::vector<const AsyncIssue*> ReadersOfRegisters(const CfgNode* loop) const {
    std::vector<const AsyncIssue*> readers;
    const auto own = issues_in_.find(loop);
    if (own == issues_in_.end()) return readers;
    const auto is_written = [&](const MemoryAccess& a) {
      const auto it = written_in_.find(a.memory.get());
      return InRegisters(a) && it != written_in_.end() && it->second.count(loop);
    };
    for (const AsyncIssue* issue : own->second) {
      if (AnyOf(issue->sources, is_written)) {
        readers.push_back(issue);
      }
    }
    return readers;
  }
  /*! The statement writes registers that the operation reads. */
  static bool WritesRegistersOf(const CfgNode& node, const AsyncIssue& issue) {
    const auto& own = node.effects.accesses;
    return AnyOf(own, [&](const MemoryAccess& a) {
      return a.writes && InRegisters(a) && AnyOf(issue.sources, [&](const MemoryAccess& b) {
               return a.memory.same_as(b.memory);
             });
    });
  }

 private:
  static bool InRegisters(const MemoryAccess& a) {
    return !IsShared(a.memory) && !IsGlobal(a.memory);
  }
  void Note(const CfgNode& node, const CfgNode* range, std::vector<const CfgNode*> loops) {
    if (node.kind == CfgNode::Kind::kRange) {
      has_ranges_ = true;
      range = &node;
    } else {
      signals_ |= node.effects.tells >= ThreadScope::kCluster;
      for (const MemoryAccess& a : node.effects.accesses) {
        ranges_[a.memory.get()].insert(range);
        if (node.issue) continue;
        statements_in_[a.memory.get()].insert(loops.begin(), loops.end());
        if (a.writes) written_in_[a.memory.get()].insert(loops.begin(), loops.end());
      }
    }
    if (node.issue && !loops.empty()) issues_in_[loops.back()].push_back(node.issue.get());
    if (node.kind == CfgNode::Kind::kLoop) loops.push_back(&node);
    for (const auto& n : node.body) Note(*n, range, loops);
    for (const auto& n : node.otherwise) Note(*n, range, loops);
  }
  bool IsInSeveral(const std::vector<MemoryAccess>& accesses) const {
    return AnyOf(accesses,
                 [&](const MemoryAccess& a) { return ranges_.at(a.memory.get()).size() > 1; });
  }

  bool signals_ = false, has_ranges_ = false;
  std::unordered_map<const Object*, std::unordered_set<const CfgNode*>> ranges_;
  /*! By memory, the loops around statements that are no operations. */
  std::unordered_map<const Object*, std::unordered_set<const CfgNode*>> statements_in_;
  /*! The same of those that write it. */
  std::unordered_map<const Object*, std::unordered_set<const CfgNode*>> written_in_;
  std::unordered_map<const CfgNode*, std::vector<const AsyncIssue*>> issues_in_;
};

/*! How far an operation has to be, and why. */
struct Need {
  Completion until = Completion::kStarted;
  std::string why;
  /*! The statement writes registers that the operation reads. */
  bool of_registers = false;
  /*! The statement uses what the operation writes. */
  bool of_result = false;
};

/*! Decides what a statement needs of an operation. */
class Conflicts {
 public:
  Conflicts(const KernelUses& uses, Analyzer* analyzer) : uses_(uses), analyzer_(analyzer) {}

  Need Of(const CfgNode& node, const Operation& operation) const {
    const AsyncIssue& issue = *operation.issue;
    if (issue.by_hand) return {};
    const CfgEffects& e = node.effects;
    if (e.tells >= issue.queue->completes_before || (e.arrives && uses_.ArrivalsTell())) {
      return {Completion::kComplete, "lets other threads go on, behind the " + NameOf(issue)};
    }
    if (e.jumps) {
      const Completion until =
          issue.destinations.empty() ? Completion::kHasRead : Completion::kComplete;
      return {until, "may leave the loop of the " + NameOf(issue)};
    }
    if (const auto* a = Conflicting(node, issue.destinations, operation, false)) {
      return {Completion::kComplete, About("uses", *a) + ", which the " + NameOf(issue) + " writes",
              false, true};
    }
    if (const auto* a = Conflicting(node, issue.sources, operation, true)) {
      return {Completion::kHasRead, About("writes", *a) + ", which the " + NameOf(issue) + " reads",
              !IsShared(a->memory) && !IsGlobal(a->memory)};
    }
    return {};
  }

  /*! The statement changes memory that the operation's indices are read from. */
  static bool Moves(const CfgNode& node, const AsyncIssue& issue) {
    return AnyOf(node.effects.accesses,
                 [&](const MemoryAccess& a) { return a.writes && IsIndexedBy(issue, a.memory); });
  }
  /*! The next iteration of the loop has other values of variables in its indices. */
  static bool Rebinds(const CfgNode& loop, const AsyncIssue& issue) {
    return AnyOf(loop.bound, [&](const Var& v) { return IsIndexedBy(issue, v); });
  }

 private:
  static std::string About(const char* verb, const MemoryAccess& a) {
    return std::string(verb) + " " + std::string(a.memory->name);
  }

  static bool IsIndexedBy(const AsyncIssue& issue, const Var& v) {
    for (const auto* list : {&issue.sources, &issue.destinations}) {
      for (const MemoryAccess& a : *list) {
        if (!a.region) continue;
        for (const Range& r : a.region->ranges) {
          if (Uses(r->min, v)) return true;
        }
      }
    }
    return false;
  }

  const MemoryAccess* Conflicting(const CfgNode& node, const std::vector<MemoryAccess>& own,
                                  const Operation& operation, bool writes_only) const {
    for (const MemoryAccess& a : node.effects.accesses) {
      if (writes_only && !a.writes) continue;
      for (const MemoryAccess& b : own) {
        if (!a.memory.same_as(b.memory) || InChain(node, a, b, *operation.issue)) continue;
        if (!AreApart(a, b, operation)) return &a;
      }
    }
    return nullptr;
  }

  static bool InChain(const CfgNode& node, const MemoryAccess& a, const MemoryAccess& b,
                      const AsyncIssue& issue) {
    return node.issue && a.writes && b.writes && !issue.chain.empty() &&
           node.issue->chain == issue.chain && a.region && b.region &&
           a.region->buffer.same_as(b.region->buffer);
  }

  /*! Elements of one memory that are surely others. */
  bool AreApart(const MemoryAccess& a, const MemoryAccess& b, const Operation& operation) const {
    if (operation.moved || !a.region || !b.region || !a.region->buffer.same_as(b.region->buffer)) {
      return false;
    }
    Substituter then = Then(operation);
    for (size_t d = 0; d < b.region->ranges.size(); ++d) {
      const Range &x = a.region->ranges[d], &y = b.region->ranges[d];
      const auto x_extent = AsInt(x->extent), y_extent = AsInt(y->extent);
      if (!x_extent || !y_extent) continue;
      if (AreDisjoint(x->min, *x_extent, then.Mutate(y->min), *y_extent, analyzer_)) return true;
    }
    return false;
  }

  /*! The loops' variables when the operation was issued. */
  Substituter Then(const Operation& operation) const {
    Substituter then;
    for (size_t i = 0; i < operation.age.size(); ++i) {
      const auto* loop = operation.issue->loops[i]->stmt.as<ForNode>();
      const int age = operation.age[i];
      if (!loop || age == 0) continue;
      const Var& v = loop->loop_var;
      const Expr step = loop->step ? *loop->step : Expr(MakeInt(v->dtype(), 1));
      Expr ago = MakeInt(v->dtype(), age);
      if (age == Operation::kManyAges) {
        const Var more = MakeVar("more", v->dtype());
        analyzer_->BindConst(more, std::numeric_limits<int32_t>::max());
        ago = more + age;
      }
      // Behind the loop, the iteration was any.
      then.map[v.get()] =
          age == Operation::kUnknown ? Expr(MakeVar("some", v->dtype())) : v - step * ago;
    }
    return then;
  }

  const KernelUses& uses_;
  Analyzer* analyzer_;
};

/*! Walks the tree with what is in flight. */
class Dataflow {
 public:
  Dataflow(const CfgNode& kernel, Analyzer* analyzer)
      : uses_(kernel), conflicts_(uses_, analyzer), analyzer_(analyzer) {}

  void Kernel(CfgNode* root) {
    CfgNode* body = root;
    while (body->body.size() == 1 && body->body[0]->kind == CfgNode::Kind::kSequence) {
      body = body->body[0].get();
    }
    const size_t known = behind_next_.size();
    InFlight state;
    Nodes(body->body, &state);
    End(body, false, &state);
    if (behind_next_.size() > known) return Kernel(root);
    // Nobody uses what they have made.
    for (AsyncWait& wait : body->at_end) wait.complete.clear();
  }

 private:
  void Nodes(const std::vector<std::unique_ptr<CfgNode>>& nodes, InFlight* state) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      CfgNode* node = nodes[i].get();
      node->before.clear();
      if (node->kind == CfgNode::Kind::kIf) {
        Wait(&node->before, state, [&](const Operation& o) { return OfBranch(nodes, i, o); });
      }
      Visit(node, state);
    }
  }

  /*! What a branch needs of an MMA whose accumulators one of its statements uses, and a statement
   * behind it, too, in front of any other MMA. If the wait stood in the branch, the ways would meet
   * with the MMA complete on one and in flight on the other, and ptxas may then let no MMA of the
   * kernel run beside another one (C7514). */
  Need OfBranch(const std::vector<std::unique_ptr<CfgNode>>& nodes, size_t branch,
                const Operation& operation) const {
    if (!operation.issue->result.defined()) return {};
    const Need need = OfResult(*nodes[branch], operation);
    for (size_t i = branch; need.of_result && i < nodes.size(); ++i) {
      if (HasIssue(*nodes[i])) break;
      if (i > branch && conflicts_.Of(*nodes[i], operation).of_result) return need;
    }
    return {};
  }
  /*! The need of the first statement, in a node or below it, that uses the operation's result. */
  Need OfResult(const CfgNode& node, const Operation& operation) const {
    Need need = conflicts_.Of(node, operation);
    for (const auto* way : {&node.body, &node.otherwise}) {
      for (auto n = way->begin(); !need.of_result && n != way->end(); ++n) {
        need = OfResult(**n, operation);
      }
    }
    return need.of_result ? need : Need();
  }

  void Visit(CfgNode* node, InFlight* state) {
    node->at_end.clear();
    node->at_other_end.clear();
    node->behind.clear();
    if (node->kind != CfgNode::Kind::kSequence) Before(node, state);
    switch (node->kind) {
      case CfgNode::Kind::kLeaf:
        return Leaf(node, state);
      case CfgNode::Kind::kSequence:
        return Nodes(node->body, state);
      case CfgNode::Kind::kIf: {
        const InFlight in_front = *state;
        InFlight otherwise = *state;
        Nodes(node->body, state);
        Nodes(node->otherwise, &otherwise);
        const InFlight one = *state;
        WaitOnOneWay(&node->at_end, in_front, otherwise, state);
        WaitOnOneWay(&node->at_other_end, in_front, one, &otherwise);
        Join(state, otherwise);
        return;
      }
      case CfgNode::Kind::kLoop:
        return Loop(node, state);
      case CfgNode::Kind::kRange: {
        InFlight own;
        Nodes(node->body, &own);
        End(node, true, &own);
        return Move(node, state);
      }
    }
  }

  void Leaf(CfgNode* node, InFlight* state) {
    if (node->wait) return Retire(&*node->wait, state);
    if (!node->issue) return Move(node, state);
    const AsyncIssue& issue = *node->issue;
    for (auto& [operation, progress] : *state) {
      if (operation.issue->queue != issue.queue) continue;
      progress.newer = std::min(progress.newer + 1, issue.queue->max_pending);
    }
    (*state)[{&issue, std::vector<int>(issue.loops.size(), 0)}] = Progress();
    WaitBehind(node, state);
    if (!uses_.IsSharedAtOnce(issue)) return;
    // Conflicts with what is written are still found: it is waited for where it is used.
    AsyncWait wait{issue.queue,
                   0,
                   uses_.IsSharedAtEnd(issue) ? Completion::kComplete : Completion::kHasRead,
                   {},
                   "other threads use the memory of the " + NameOf(issue)};
    Retire(&wait, state);
    node->at_end.push_back(wait);
  }

  /*! The operation is to be waited for behind the next one, and so are the others of its loop that
   * read registers written there, even if those need no wait of their own: ptxas serialises all of
   * a loop's MMAs if one of them is still in flight where registers of the next are written. */
  void LetWaitBehindNext(const AsyncIssue& issue) {
    behind_next_.insert(&issue);
    if (issue.loops.empty()) return;
    const auto others = uses_.ReadersOfRegisters(issue.loops.back());
    behind_next_.insert(others.begin(), others.end());
  }

  /*! Waits, behind an issue, for the earlier operations of `behind_next_`. */
  void WaitBehind(CfgNode* node, InFlight* state) {
    const AsyncQueueRow* const queue = node->issue->queue;
    AsyncWait wait{queue, kNoMaxPending, Completion::kComplete, {}, ""};
    for (const auto& [operation, progress] : *state) {
      if (operation.issue->queue != queue || !behind_next_.count(operation.issue)) continue;
      if (progress.newer == 0) continue;  // this one
      wait.pending = std::min(wait.pending, progress.newer);
      wait.why = "registers that the " + NameOf(*operation.issue) + " reads are written next";
    }
    if (wait.pending == kNoMaxPending) return;
    Retire(&wait, state);
    node->at_end.push_back(wait);
  }

  /*! Marks the operations whose regions are no longer what their indices say. */
  static void Move(const CfgNode* node, InFlight* state) {
    InFlight out;
    for (const auto& [operation, progress] : *state) {
      Operation moved = operation;
      moved.moved |= Conflicts::Moves(*node, *operation.issue);
      Join(&out, {{moved, progress}});
    }
    *state = std::move(out);
  }

  /*! The waits that a statement needs, one for each queue. */
  void Before(CfgNode* node, InFlight* state) {
    Wait(&node->before, state, [&](const Operation& o) {
      Need need = conflicts_.Of(*node, o);
      if (need.until == Completion::kStarted) need = OfRegistersOfAnother(*node, o);
      const bool may_share = node->uses_new_memory && o.issue->queue->waits_for_reads;
      if (need.until == Completion::kStarted && may_share) {
        need = {Completion::kHasRead, "may use the bytes that the " + NameOf(*o.issue) + " reads"};
      }
      return need;
    });
  }

  /*! What a statement needs that writes registers of one of the loop's MMAs, of another one of the
   * iteration before, whose registers the loop writes, too. ptxas takes both for one stage, unless
   * they add to the same accumulators, and awaits each MMA of the kernel by itself (C7513). */
  Need OfRegistersOfAnother(const CfgNode& node, const Operation& operation) const {
    const AsyncIssue& issue = *operation.issue;
    if (node.issue || issue.loops.empty() || operation.age.back() <= 0) return {};
    const auto readers = uses_.ReadersOfRegisters(issue.loops.back());
    if (std::find(readers.begin(), readers.end(), &issue) == readers.end()) return {};
    for (const AsyncIssue* reader : readers) {
      if (SharesResult(*reader, issue) || !KernelUses::WritesRegistersOf(node, *reader)) continue;
      return {Completion::kComplete, "writes registers that the " + NameOf(*reader) +
                                         " reads, beside the " + NameOf(issue)};
    }
    return {};
  }

  template <typename F>
  void Wait(std::vector<AsyncWait>* waits, InFlight* state, F need_of) {
    std::map<AsyncQueue, const AsyncQueueRow*> queues;
    for (const auto& [operation, progress] : *state) {
      queues.emplace(operation.issue->queue->queue, operation.issue->queue);
    }
    for (const auto& [key, queue] : queues) {
      AsyncWait wait{queue, kNoMaxPending, Completion::kStarted, {}, ""};
      std::vector<const AsyncIssue*> of_registers;
      for (const auto& [operation, progress] : *state) {
        if (operation.issue->queue != queue) continue;
        Need need = need_of(operation);
        const bool is_over = need.until == Completion::kStarted ||
                             (need.until == Completion::kHasRead && progress.has_read);
        if (is_over) continue;
        if (need.of_registers) of_registers.push_back(operation.issue);
        if (progress.newer < wait.pending || need.until > wait.until) wait.why = need.why;
        const bool may_pend = !need.of_result || !IsOfEarlierIteration(operation);
        wait.pending = may_pend ? std::min(wait.pending, progress.newer) : 0;
        wait.until = std::max(wait.until, need.until);
      }
      if (wait.until == Completion::kStarted) continue;
      if (CompletesUsedResult(wait, *state)) wait.pending = 0;
      if (wait.pending > 0) {
        for (const AsyncIssue* issue : of_registers) LetWaitBehindNext(*issue);
      }
      if (!queue->waits_for_reads) wait.until = Completion::kComplete;
      Retire(&wait, state);
      waits->push_back(wait);
    }
  }

  /*! Accumulators of an earlier iteration. ptxas lets no MMA of a kernel run beside another one if
   * these are used behind a wait that leaves later MMAs in flight (C7514). */
  static bool IsOfEarlierIteration(const Operation& operation) {
    const bool is_older = AnyOf(operation.age, [](int age) { return age > 0; });
    return is_older && operation.issue->result.defined();
  }

  /*! The same where the wait is for something else, such as the slot that an operation reads, and
   * a statement of the loop uses the accumulators behind it. */
  bool CompletesUsedResult(const AsyncWait& wait, const InFlight& state) const {
    return AnyOf(state, [&](const auto& entry) {
      const auto& [operation, progress] = entry;
      const AsyncIssue& issue = *operation.issue;
      if (issue.queue != wait.queue || progress.newer < wait.pending) return false;
      if (!issue.result.defined()) return false;
      const bool goes_on = AnyOf(state, [&](const auto& later) {
        return later.second.newer < wait.pending && SharesResult(*later.first.issue, issue);
      });
      if (goes_on) return false;
      for (size_t i = 0; i < operation.age.size(); ++i) {
        if (operation.age[i] > 0 && uses_.IsUsedIn(issue.loops[i], issue)) return true;
      }
      return false;
    });
  }

  /*! Notes in the wait what it completes. */
  static void Retire(AsyncWait* wait, InFlight* state) {
    std::vector<const AsyncIssue*> retired;
    for (auto it = state->begin(); it != state->end();) {
      const AsyncIssue* issue = it->first.issue;
      const bool is_over = issue->queue == wait->queue && it->second.newer >= wait->pending;
      it->second.has_read |= is_over;
      const bool ends = is_over && (wait->until == Completion::kComplete ||
                                    (issue->destinations.empty() && !issue->by_hand));
      if (ends && !Contains(retired, issue)) retired.push_back(issue);
      it = ends ? state->erase(it) : std::next(it);
    }
    wait->complete.clear();
    for (const AsyncIssue* issue : retired) {
      const bool goes_on = AnyOf(
          *state, [&](const auto& entry) { return SharesResult(*entry.first.issue, *issue); });
      if (!goes_on) wait->complete.push_back(issue);
    }
  }
  static bool Contains(const std::vector<const AsyncIssue*>& list, const AsyncIssue* issue) {
    return AnyOf(list, [&](const AsyncIssue* other) { return SharesResult(*other, *issue); });
  }
  /*! Both write one buffer, under one name. */
  static bool SharesResult(const AsyncIssue& a, const AsyncIssue& b) {
    if (&a == &b) return true;
    const auto name_of = [](const AsyncIssue& i) {
      return i.destinations.empty() ? Var(nullptr) : i.destinations[0].region->buffer;
    };
    return a.queue == b.queue && name_of(a).defined() && name_of(a).same_as(name_of(b));
  }

  /*! The end of a range of threads, or of the kernel, to which nobody counts on an operation. */
  void End(CfgNode* node, bool is_range, InFlight* state) {
    Wait(&node->at_end, state, [&](const Operation& o) {
      if (o.issue->by_hand) return Need();
      const bool is_shared = is_range && uses_.IsSharedAtEnd(*o.issue);
      return Need{is_shared ? Completion::kComplete : Completion::kHasRead,
                  is_range ? "the range of threads ends" : "the kernel ends"};
    });
  }

  void Loop(CfgNode* node, InFlight* state) {
    const auto* loop = node->stmt.as<ForNode>();
    const bool runs = loop && analyzer_->ConstBound(loop->extent).min > 0;
    InFlight head = *state, exits;
    const auto behind_next = behind_next_;
    for (bool grows = true; grows;) {
      behind_next_ = behind_next;  // what a state that is not complete yet asked for
      InFlight end = head;
      Nodes(node->body, &end);
      // What decides over the next iteration is asked again.
      node->at_end.clear();
      Wait(&node->at_end, &end, [&](const Operation& o) { return conflicts_.Of(*node, o); });
      exits = end;
      grows = Join(&head, Aged(end, node, true));
    }
    WaitAtEnd(node, *state, &exits);
    exits = Aged(exits, node, false);
    if (runs) {
      *state = std::move(exits);
      return;
    }
    if (loop) WaitBehindLoop(node, *state, &exits);
    Join(state, exits);
  }

  /*! Waits for the loop's own MMAs, whose accumulators the program has set in front of it. */
  void WaitBehindLoop(CfgNode* loop, const InFlight& in_front, InFlight* exits) {
    Wait(&loop->behind, exits, [&](const Operation& o) {
      const auto& loops = o.issue->loops;
      const bool is_own = std::find(loops.begin(), loops.end(), loop) != loops.end();
      if (!is_own || !IsInFlightHereAlone(*o.issue, in_front)) return Need();
      return Need{Completion::kComplete, "the loop may run no iteration"};
    });
  }

  /*! The same for MMAs of one way of a branch, at its end. */
  void WaitOnOneWay(std::vector<AsyncWait>* at_end, const InFlight& in_front, const InFlight& other,
                    InFlight* state) {
    Wait(at_end, state, [&](const Operation& o) {
      const bool is_own = IsInFlightHereAlone(*o.issue, in_front);
      if (!is_own || !IsInFlightHereAlone(*o.issue, other)) return Need();
      return Need{Completion::kComplete,
                  "not both ways of the branch have the " + NameOf(*o.issue)};
    });
  }

  /*! Whether the operation's accumulators, in registers, have no operation on the other way to
   * where both meet: they are values there, which the program has set. */
  static bool IsInFlightHereAlone(const AsyncIssue& issue, const InFlight& other) {
    // An operation with a result has it in registers.
    return issue.result.defined() && !issue.by_hand && NoneOf(other, [&](const auto& entry) {
             return SharesResult(*entry.first.issue, issue);
           });
  }

  /*! Lets an iteration end with the wait for its MMAs that the next one would begin with. Nothing
   * runs between the two, and ptxas takes accumulators that an iteration begins with for written in
   * the middle of a stage: it awaits each MMA of the kernel by itself (C7515). */
  static void WaitAtEnd(CfgNode* loop, const InFlight& in_front, InFlight* exits) {
    for (const auto& [operation, progress] : in_front) {
      if (operation.issue->queue->queue == AsyncQueue::kWgmma) return;
    }
    std::vector<CfgNode*> first;
    AppendFirst(*loop, &first);
    for (CfgNode* node : first) {
      const auto wait = FindIf(node->before, [](const AsyncWait& w) {
        return w.queue->queue == AsyncQueue::kWgmma && w.pending == 0;
      });
      if (wait == node->before.end()) continue;
      loop->at_end.push_back(*wait);
      node->before.erase(wait);
      return Retire(&loop->at_end.back(), exits);
    }
  }
  /*! The statements that an iteration begins with, up to the first one that accesses memory. */
  static bool AppendFirst(const CfgNode& node, std::vector<CfgNode*>* out) {
    for (const auto& n : node.body) {
      if (n->kind == CfgNode::Kind::kSequence) {
        if (!AppendFirst(*n, out)) return false;
        continue;
      }
      out->push_back(n.get());
      if (n->kind != CfgNode::Kind::kLeaf || !n->effects.accesses.empty() || n->issue || n->wait) {
        return false;
      }
    }
    return true;
  }

  /*! The operations as a later iteration sees them, or what follows the loop. */
  static InFlight Aged(const InFlight& state, const CfgNode* loop, bool again) {
    InFlight out;
    for (const auto& [operation, progress] : state) {
      Operation older = operation;
      const auto& loops = operation.issue->loops;
      const size_t i = std::find(loops.begin(), loops.end(), loop) - loops.begin();
      if (i < loops.size() && older.age[i] != Operation::kUnknown) {
        older.age[i] =
            again ? std::min(older.age[i] + 1, Operation::kManyAges) : Operation::kUnknown;
      }
      older.moved |= i < loops.size() && Conflicts::Rebinds(*loop, *operation.issue);
      Join(&out, {{older, progress}});
    }
    return out;
  }

  const KernelUses uses_;
  const Conflicts conflicts_;
  Analyzer* const analyzer_;
  /*! Operations that are waited for behind the next ones of their queue: their registers are
   * written while those run. ptxas takes what stands between an MMA and a wait for a part of the
   * MMA's stage, and lets no MMA run beside it that computes registers of another one (C7513). */
  std::unordered_set<const AsyncIssue*> behind_next_;
};

std::string Text(const AsyncWait& wait, const CfgNode& node, const char* where) {
  const bool reads = wait.until == Completion::kHasRead;
  return std::string(wait.queue->name) + "<" + std::to_string(wait.pending) +
         (reads ? ", read>" : ">") + where + Place(node.stmt->span) + ": " + wait.why;
}

void AddTexts(const CfgNode& node, Array<String>* out) {
  for (const AsyncWait& w : node.before) out->push_back(Text(w, node, " before the statement"));
  for (const auto& n : node.body) AddTexts(*n, out);
  for (const auto& n : node.otherwise) AddTexts(*n, out);
  const bool leaf = node.kind == CfgNode::Kind::kLeaf;
  const char* where = leaf ? " behind the statement" : " at the end of what begins";
  for (const auto* waits : {&node.at_end, &node.at_other_end}) {
    for (const AsyncWait& w : *waits) out->push_back(Text(w, node, where));
  }
  for (const AsyncWait& w : node.behind) out->push_back(Text(w, node, " behind the loop"));
}

}  // namespace

void PlanAsyncWaits(CfgNode* kernel, Analyzer* analyzer) {
  Dataflow(*kernel, analyzer).Kernel(kernel);
}

Array<String> WaitTexts(const CfgNode& root) {
  Array<String> out;
  AddTexts(root, &out);
  return out;
}

}  // namespace tl
