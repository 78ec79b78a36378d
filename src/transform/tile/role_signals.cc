#include "role_signals.h"

#include <algorithm>

#include "../../op/call_attrs.h"
#include "../../op/rank_intrinsics.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "pipeline.h"

namespace tl {
namespace {

const CallNode* RankCall(const RoleNode& node) {
  const CallNode* call = node.IsLeaf() ? AsTileOp(node.stmt) : nullptr;
  return call && OrdersRanks(call) ? call : nullptr;
}

bool IsOp(const RoleNode& node, const char* op) {
  const CallNode* call = RankCall(node);
  return call && IsCallTo(call, op);
}

std::string TextArg(const CallNode* call, size_t i) { return ToString(call->args[i]); }

bool ReadsGlobal(const Expr& e) {
  return HasNode<TensorLoadNode>(
      e, [&](const TensorLoadNode* op) { return IsGlobal(op->source.as_or_throw<Var>()); });
}

/*! What a statement with bodies evaluates itself reads a tensor. */
bool ControlReadsGlobal(const RoleNode& node) {
  if (const ForNode* loop = node.Loop()) return ReadsGlobal(loop->min) || ReadsGlobal(loop->extent);
  if (const auto* loop = node.stmt.as<WhileNode>()) return ReadsGlobal(loop->condition);
  const auto* branch = node.stmt.as<IfThenElseNode>();
  return branch && ReadsGlobal(branch->condition);
}

bool IsFill(const RoleNode& node) { return node.fill != CopyKind::kNothing; }

/*! The statement of `sequence` that a node is or is in; nullptr if it is elsewhere. */
const RoleNode* Within(const RoleSequence& sequence, const RoleNode& node) {
  const RoleNode* n = &node;
  while (n && n->parent != &sequence) n = n->parent->owner;
  return n;
}

/*! How far the consumer is behind a wait of the producer. */
class ConsumerScan {
 public:
  enum class Result : uint8_t { kGoesOn, kIsOrdered, kTouches };
  explicit ConsumerScan(Analyzer* analyzer) : analyzer_(analyzer) {}
  /*! The statement that touches what the wait is for. */
  const RoleNode* touching = nullptr;

  /*! From behind the wait to the end of the kernel. */
  Result From(const RoleNode& wait) {
    const RoleNode* node = &wait;
    while (node) {
      const Result found = Sequence(*node->parent, IndexOf(*node) + 1);
      if (found != Result::kGoesOn) return found;
      const RoleNode* owner = node->parent->owner;
      // What comes first in the next iteration is in front of that one's wait.
      if (owner && owner->kind != RoleNode::Kind::kIf) {
        touching = &wait;
        return Result::kTouches;
      }
      node = owner;
    }
    return Result::kGoesOn;
  }

 private:
  Result Sequence(const RoleSequence& sequence, size_t first) {
    for (size_t i = first; i < sequence.nodes.size(); ++i) {
      const RoleNode& node = *sequence.nodes[i];
      if (IsFill(node)) {
        AppendRange(&filled_, node.use.writes);
        continue;
      }
      const bool acquires = AnyOf(filled_, [&](const Var& v) { return IsUsed(node, v); });
      if (acquires && !Refills(node)) return Result::kIsOrdered;
      const Result found = node.IsLeaf() ? Leaf(node) : Bodies(node);
      if (found != Result::kGoesOn) return found;
    }
    return Result::kGoesOn;
  }

  /*! The tile is one that the statement's own body loads. */
  bool Refills(const RoleNode& node) const {
    bool fills = false;
    ForEachNode(node.body, [&](const RoleNode* n) { fills |= IsFill(*n); });
    return fills;
  }

  Result Leaf(const RoleNode& node) {
    const auto touches = [](const std::vector<Var>& list) { return AnyOf(list, IsGlobal); };
    const bool harmless = !RankCall(node) && node.opaque.empty() && !touches(node.use.reads) &&
                          !touches(node.use.writes);
    // Another wait of the producer is not in the consumer's program.
    if (harmless || node.role == kProducer) return Result::kGoesOn;
    touching = &node;
    return Result::kTouches;
  }

  Result Bodies(const RoleNode& node) {
    if (ControlReadsGlobal(node)) {
      touching = &node;
      return Result::kTouches;
    }
    const std::vector<Var> outside = filled_;
    const Result body = Sequence(node.body, 0);
    Result otherwise = Result::kGoesOn;
    if (node.kind == RoleNode::Kind::kIf && body != Result::kTouches) {
      filled_ = outside;
      otherwise = Sequence(node.otherwise, 0);
    }
    filled_ = outside;
    if (body == Result::kTouches || otherwise == Result::kTouches) return Result::kTouches;
    if (node.kind == RoleNode::Kind::kIf) return body == otherwise ? body : Result::kGoesOn;
    return Runs(node) ? body : Result::kGoesOn;
  }

  /*! The loop has an iteration. */
  bool Runs(const RoleNode& node) const {
    const ForNode* loop = node.Loop();
    return loop && analyzer_->CanProve(ZeroOf(loop->extent->dtype()) < loop->extent);
  }

  Analyzer* analyzer_;
  std::vector<Var> filled_;
};

class RankOrder {
 public:
  RankOrder(const KernelInfo& kernel, const Peers& peers, RoleSequence* body)
      : kernel_(kernel), peers_(peers), body_(body) {
    ForEachNode(*body_, [&](RoleNode* node) {
      node_number_[node] = node_number_.size();
      if (IsFill(*node)) fills_.push_back(node);
      if (RankCall(*node)) orders_.push_back(node);
    });
  }

  std::string Place(Span* where) {
    if (fills_.empty()) return "";
    for (RoleNode* node : orders_) {
      if (IsOp(*node, kSignalOp) || !ComesBeforeLoads(*node)) continue;
      node->role = kProducer;
      node->run_by = 0;
    }
    for (const RoleNode* node : orders_) {
      const bool by_producer = node->role == kProducer;
      const std::string why = by_producer ? WhyNotProducer(*node) : WhyNotConsumer(*node);
      if (why.empty()) continue;
      *where = (where_ ? where_ : node)->stmt->span;
      return why;
    }
    return "";
  }

 private:
  /*! `b` runs behind `a` at some time. */
  bool ComesBehind(const RoleNode& a, const RoleNode& b) const {
    if (AreExclusive(a, b)) return false;
    if (node_number_.at(&a) < node_number_.at(&b)) return true;
    for (const RoleNode* n = a.parent->owner; n; n = n->parent->owner) {
      if (n->kind != RoleNode::Kind::kIf && Within(n->body, b)) return true;
    }
    return false;
  }

  bool ComesBeforeLoads(const RoleNode& node) const {
    return AnyOf(fills_, [&](const RoleNode* fill) { return ComesBehind(node, *fill); });
  }

  const ForNode* PipelineAround(const RoleNode& node) const {
    for (const RoleNode* n = node.parent->owner; n; n = n->parent->owner) {
      if (n->Loop() && IsPipelined(n->Loop())) return n->Loop();
    }
    return nullptr;
  }

  std::string WhyNotConsumer(const RoleNode& node) {
    if (PipelineAround(node)) return "it orders ranks in a pipelined loop, behind loads of tiles";
    for (const RoleNode* n = &node; n; n = n->parent->owner) {
      const auto& nodes = n->parent->nodes;
      const size_t here = IndexOf(*n);
      for (size_t f = 0; f < here; ++f) {
        if (!IsFill(*nodes[f])) continue;
        bool awaited = false;
        for (size_t u = f + 1; u <= here; ++u) {
          for (const Var& v : nodes[f]->use.writes) {
            awaited |= !IsFill(*nodes[u]) && IsUsed(*nodes[u], v);
          }
        }
        if (!awaited) return "it orders ranks between the load of a tile and its first use";
      }
    }
    return "";
  }

  std::string WhyNotProducer(const RoleNode& node) {
    if (kernel_.cluster_blocks > 1) return "it waits for a rank in a cluster, which shares loads";
    const ForNode* loop = PipelineAround(node);
    if (loop && loop->annotations.count(kUserOrder)) {
      return "it waits for a rank in a loop with an order of its own";
    }
    std::string why = IsOp(node, kSyncRanksOp) ? WhyNotFirst(node) : WhyNotEarlier(node);
    if (!why.empty()) return why;
    Analyzer analyzer;
    ConsumerScan scan(&analyzer);
    WithFacts(&analyzer, LeadingAssumptions(kernel_.block->body), [&] { scan.From(node); });
    if (!scan.touching) return "";
    where_ = scan.touching;
    return scan.touching == &node
               ? "it waits for a rank, and the consumer may go on without a tile loaded behind it"
               : "it stands between the wait for a rank and the use of a tile loaded behind that";
  }

  /*! A barrier of all ranks also signals: what the consumer did before is to be in front of it. */
  std::string WhyNotFirst(const RoleNode& node) {
    if (LoopAround(node)) return "it waits for all ranks in a loop that loads tiles";
    std::string why;
    ForEachNode(*body_, [&](const RoleNode* n) {
      if (!why.empty() || !n->IsLeaf() || n == &node || !ComesBehind(*n, node)) return;
      if (n->role == kProducer) return;
      const bool touches = AnyOf(n->use.reads, IsGlobal) || AnyOf(n->use.writes, IsGlobal);
      if (touches || !n->opaque.empty()) {
        why = "it stands in front of a barrier of all ranks behind which tiles are loaded";
        where_ = n;
      }
    });
    return why;
  }

  /*! The producer comes to the wait before the consumer has done what stands in front of it. */
  std::string WhyNotEarlier(const RoleNode& wait) {
    const CallNode* call = RankCall(wait);
    const std::string comparison = TextArg(call, 2);
    const Var signal = peers_.TensorOf(TileRegion::From(call->args[0]).buffer);
    std::string why;
    ForEachNode(*body_, [&](const RoleNode* n) {
      if (!why.empty() || !n->IsLeaf() || !ComesBehind(*n, wait)) return;
      const bool writes =
          AnyOf(n->use.writes, [&](const Var& v) { return peers_.TensorOf(v).same_as(signal); });
      const bool is_opaque =
          AnyOf(n->opaque, [&](const Var& v) { return peers_.TensorOf(v).same_as(signal); });
      if ((!writes && !is_opaque) || OnlyRaises(*n, comparison)) return;
      why = "it changes " + std::string(signal->name) +
            " in front of a wait, which the producer would come to earlier";
      where_ = n;
    });
    return why;
  }

  /*! What holds of the signal before the statement, holds behind it. */
  static bool OnlyRaises(const RoleNode& node, const std::string& comparison) {
    if (!IsOp(node, kSignalOp) || (comparison != "ge" && comparison != "gt")) return false;
    const CallNode* call = RankCall(node);
    const auto value = AsInt(call->args[1]);
    return TextArg(call, 2) == "add" && value && *value >= 0;
  }

  const KernelInfo& kernel_;
  const Peers& peers_;
  RoleSequence* body_;
  std::unordered_map<const RoleNode*, size_t> node_number_;
  std::vector<const RoleNode*> fills_;
  std::vector<RoleNode*> orders_;
  const RoleNode* where_ = nullptr;
};

}  // namespace

bool OrdersRanks(const RoleNode& node) { return RankCall(node) != nullptr; }

bool HasRankOrder(const RoleSequence& body) {
  bool found = false;
  ForEachNode(body, [&](const RoleNode* node) { found |= OrdersRanks(*node); });
  return found;
}

std::string PlaceRankOrder(const KernelInfo& kernel, const Peers& peers, RoleSequence* body,
                           Span* where) {
  return RankOrder(kernel, peers, body).Place(where);
}

bool AreExclusive(const RoleNode& a, const RoleNode& b) {
  for (const RoleNode* n = a.parent->owner; n; n = n->parent->owner) {
    if (n->kind != RoleNode::Kind::kIf || LoopAround(*n)) continue;
    const bool a_first = Within(n->body, a), b_first = Within(n->body, b);
    const bool a_second = Within(n->otherwise, a), b_second = Within(n->otherwise, b);
    if ((a_first && b_second) || (a_second && b_first)) return true;
  }
  return false;
}

Stmt ByOneThread(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  if (!call || !OrdersRanks(call)) return s;
  return MakeEvaluate(WithTileOpAttrs(call, {{kElected, int64_t(1)}}), s->span);
}

Stmt UnderPeerNames(const Stmt& body, const Stmt& roles) {
  // Those of the kernel's own statements go around all roles.
  std::vector<const AttrStmtNode*> around;
  for (const auto* attr = FlatSeq(body).back().as<AttrStmtNode>(); attr;
       attr = FlatSeq(attr->body).back().as<AttrStmtNode>()) {
    around.push_back(attr);
  }
  Stmt out = roles;
  ForEachIn<AttrStmtNode>(body, [&](const AttrStmtNode* op) {
    if (op->attr_key != kAliased) return;
    if (std::find(around.begin(), around.end(), op) != around.end()) return;
    out = MakeAttr(op->node, kAliased, op->value, out);
  });
  return out;
}

}  // namespace tl
