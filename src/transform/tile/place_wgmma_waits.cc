/*!
 * PlaceWgmmaWaits: products of warp groups run while the program goes on.
 *
 * In:  a tile program, pipelines expanded, layouts of the user on its blocks. A T.gemm is complete
 * when the next statement begins.
 * Out: the same, where a T.gemm that is a wgmma, decidably so, waits for nobody (`wg_wait` is -1)
 * and `tl.tileop.wgmma_wait(n, C..)` stands before the first statement that needs it: that touches
 * its C (further products into the same C do not), writes an operand, gives up the slot of one, or
 * hands anything to other threads. At most n groups are in flight then, the C.. are complete. A
 * T.wait_wgmma gets the C.. that are complete after it.
 * Establishes: what every statement finds is what it found before.
 * Refuses: nothing. Where T.wgmma_gemm or T.wait_wgmma stands in a kernel, the program counts
 * groups itself, and each T.gemm waits at once.
 *
 * The plan: walk the program with the queues of groups in flight on every way (wgmma_groups.h),
 * loops until nothing is new. Threads that run a branch alone start and end it with nothing in
 * flight, and a statement whose inside not all threads run is one piece.
 */
#include <algorithm>

#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "wgmma_tree.h"

namespace tl {
namespace {

/*! Walks a kernel's tree and notes the waits. */
class Planner {
 public:
  Planner(const Views* views, Analyzer* analyzer) : conflicts_(views, analyzer) {}

  void Plan(WgmmaNode* kernel) {
    while (kernel->body.size() == 1 && kernel->body[0]->kind == WgmmaNode::Kind::kScope) {
      kernel = kernel->body[0].get();
    }
    WgmmaState state = {WgmmaQueue()};
    Alone(kernel, &state);
  }

 private:
  /*! More ways than this are not worth telling apart. */
  static constexpr size_t kMaxQueues = 32;

  void Sequence(std::vector<std::unique_ptr<WgmmaNode>>& nodes, WgmmaState* state) {
    for (const auto& n : nodes) Visit(n.get(), state);
  }

  void Visit(WgmmaNode* node, WgmmaState* state) {
    if (state->size() > kMaxQueues) Wait(node, 0, state);
    switch (node->kind) {
      case WgmmaNode::Kind::kLeaf:
        return Leaf(node, state);
      case WgmmaNode::Kind::kSequence:
      case WgmmaNode::Kind::kScope:
        return Sequence(node->body, state);
      case WgmmaNode::Kind::kIf: {
        Before(node, state);
        WgmmaState otherwise = *state;
        Sequence(node->body, state);
        Sequence(node->otherwise, &otherwise);
        state->insert(otherwise.begin(), otherwise.end());
        return;
      }
      case WgmmaNode::Kind::kLoop:
        return Loop(node, state);
      case WgmmaNode::Kind::kAlone:
        Wait(node, 0, state);
        return Alone(node, state);
      case WgmmaNode::Kind::kWait: {
        const CallNode* call = AsTileOp(node->stmt);
        return Retire(ToInt(call->args[0]), state, node);
      }
    }
  }

  /*! A body at whose end nothing is in flight. */
  void Alone(WgmmaNode* node, WgmmaState* state) {
    const bool again = node->stmt.as<WhileNode>() != nullptr;
    for (size_t known = 0; known != state->size();) {
      known = state->size();
      WgmmaState end = *state;
      Sequence(node->body, &end);
      if (!std::all_of(end.begin(), end.end(), Idle)) {
        node->final_wait = 0;
        end = {WgmmaQueue()};
      }
      if (!again) {
        *state = std::move(end);
        return;
      }
      state->insert(end.begin(), end.end());
    }
  }
  /*! Groups that the program itself waits for do not count. */
  static bool Idle(const WgmmaQueue& q) {
    auto by_hand = [](const WgmmaGroup& g) { return g.issue->by_hand; };
    return std::all_of(q.older.begin(), q.older.end(), by_hand) &&
           std::all_of(q.recent.begin(), q.recent.end(), by_hand);
  }

  void Leaf(WgmmaNode* node, WgmmaState* state) {
    Before(node, state);
    if (!node->issue) return Move(node->touched, state);
    WgmmaGroup group{node->issue.get(), {}};
    for (const ForNode* loop : loops_) group.age[loop] = 0;
    WgmmaState after;
    for (WgmmaQueue q : *state) {
      q.Push(group);
      after.insert(q);
    }
    *state = std::move(after);
  }

  /*! Notes what no longer can be told of the groups' operands after a statement. */
  void Move(const TouchedMemory& touched, WgmmaState* state) const {
    WgmmaState after;
    for (const WgmmaQueue& q : *state) {
      const auto moved = [&](WgmmaGroup g) {
        g.moved |= conflicts_.Moves(touched, g);
        return g;
      };
      WgmmaQueue then;
      for (const WgmmaGroup& g : q.older) then.older.insert(moved(g));
      for (const WgmmaGroup& g : q.recent) then.recent.push_back(moved(g));
      after.insert(then);
    }
    *state = std::move(after);
  }

  /*! The wait that a statement needs. */
  void Before(WgmmaNode* node, WgmmaState* state) {
    const auto most = MayStay(*state, [&](const WgmmaGroup& g) {
      return node->issue ? conflicts_.Conflicts(*node->issue, g)
                         : conflicts_.Conflicts(node->touched, g);
    });
    if (most) Wait(node, *most, state);
  }

  void Wait(WgmmaNode* node, size_t groups, WgmmaState* state) {
    const bool idle = std::all_of(state->begin(), state->end(), Idle);
    if (idle) return;
    node->wait = std::min(groups, node->wait.value_or(groups));
    Retire(*node->wait, state, node);
  }

  static void Retire(size_t groups, WgmmaState* state, WgmmaNode* node) {
    WgmmaState after;
    for (WgmmaQueue q : *state) {
      for (const WgmmaGroup& g : q.Retire(groups)) AddOnce(g.issue, &node->complete);
      for (const WgmmaGroup& g : q.recent) AddOnce(g.issue, &node->pending);
      after.insert(q);
    }
    *state = std::move(after);
  }

  static void AddOnce(const WgmmaIssue* issue, std::vector<const WgmmaIssue*>* list) {
    if (!HasAccumulator(*list, *issue)) list->push_back(issue);
  }

  void Loop(WgmmaNode* node, WgmmaState* state) {
    const auto* loop = node->stmt.as<ForNode>();
    const auto extent = AsInt(loop->extent);
    loops_.push_back(loop);
    WgmmaState head = *state, exits;
    for (size_t known = 0; known != head.size();) {
      known = head.size();
      WgmmaState end = head;
      Sequence(node->body, &end);
      exits = end;
      const WgmmaState next = Aged(end, loop, 1);
      head.insert(next.begin(), next.end());
    }
    loops_.pop_back();
    const WgmmaState after = Aged(exits, loop, WgmmaGroup::kUnknown);
    if (extent && *extent > 0) {
      *state = after;
    } else {
      state->insert(after.begin(), after.end());
    }
  }

  /*! The groups as a later iteration, or what follows the loop, sees them. */
  static WgmmaState Aged(const WgmmaState& state, const ForNode* loop, int by) {
    auto older = [&](WgmmaGroup g) {
      auto it = g.age.find(loop);
      if (it == g.age.end() || it->second == WgmmaGroup::kUnknown) return g;
      const bool known = by != WgmmaGroup::kUnknown && it->second < WgmmaGroup::kMaxAge;
      it->second = known ? it->second + by : WgmmaGroup::kUnknown;
      return g;
    };
    WgmmaState out;
    for (const WgmmaQueue& q : state) {
      WgmmaQueue aged;
      for (const WgmmaGroup& g : q.older) aged.older.insert(older(g));
      for (const WgmmaGroup& g : q.recent) aged.recent.push_back(older(g));
      out.insert(aged);
    }
    return out;
  }

  WgmmaConflicts conflicts_;
  std::vector<const ForNode*> loops_;
};

bool Issues(const WgmmaNode& node) {
  auto any = [](const auto& nodes) {
    return std::any_of(nodes.begin(), nodes.end(), [](const auto& n) { return Issues(*n); });
  };
  return node.issue || any(node.body) || any(node.otherwise);
}

PrimFunc PlaceWgmmaWaits(PrimFunc f) {
  return ForEachKernel(f, [&target = TargetOf(f)](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    const Views views(kernel);
    Analyzer analyzer;
    const std::unique_ptr<WgmmaNode> tree = BuildWgmmaTree(kernel, &views, &analyzer, target);
    if (!Issues(*tree)) return kernel;
    Planner(&views, &analyzer).Plan(tree.get());
    return WithWaits(*tree);
  });
}

Registration registration([] { RegisterPass("PlaceWgmmaWaits", PlaceWgmmaWaits); });

}  // namespace
}  // namespace tl
