#include "wgmma_groups.h"

#include <algorithm>

#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../tvm/disjoint.h"
#include "../../tvm/functor.h"

namespace tl {
namespace {

/*! Calls after which no other thread, and no engine, does what it could not do before. */
bool IsPrivate(const CallNode* call) {
  const IntrinsicEffects* e = EffectsOf(call);
  return e && e->tells == ThreadScope::kThread && !e->StartsAsync();
}

/*! Calls in a statement that hand something to someone else. */
bool Announces(const Stmt& s) {
  struct Finder : StmtExprVisitor {
    bool found = false;
    using StmtExprVisitor::Visit_;
    void Visit_(const EvaluateNode* op) override {
      const Stmt s = GetRef<Stmt>(op);
      const auto* call = op->value.as<CallNode>();
      if (AsTileOp(s) || !call) return;
      found |= !IsPrivate(call);
    }
  } finder;
  finder(s);
  return finder.found;
}

/*! Reads an element of the buffer. */
bool Loads(const Expr& e, const Var& buffer) {
  struct Finder : StmtExprVisitor {
    Var buffer;
    bool found = false;
    using StmtExprVisitor::Visit_;
    void Visit_(const TensorLoadNode* op) override {
      found |= op->source.same_as(buffer);
      Default(op);
    }
  } finder;
  finder.buffer = buffer;
  finder(e);
  return finder.found;
}

}  // namespace

bool IsTileOp(const CallNode* call, const char* name) {
  return call && std::string(OpOf(call)->name) == name;
}

void WgmmaQueue::Push(WgmmaGroup group) {
  recent.push_back(std::move(group));
  if (recent.size() <= kRecent) return;
  for (auto& [loop, age] : recent.front().age) age = WgmmaGroup::kUnknown;
  older.insert(recent.front());
  recent.erase(recent.begin());
}

std::vector<WgmmaGroup> WgmmaQueue::Retire(size_t n) {
  std::vector<WgmmaGroup> retired(older.begin(), older.end());
  older.clear();
  while (recent.size() > n) {
    retired.push_back(recent.front());
    recent.erase(recent.begin());
  }
  return retired;
}

TouchedMemory WgmmaConflicts::Touched(const Stmt& s) const {
  TouchedMemory out;
  if (const auto* attr = s.as<AttrStmtNode>()) return Touched(attr->body);
  if (s.as<SeqStmtNode>()) {
    for (const Stmt& part : FlatSeq(s)) {
      TouchedMemory more = Touched(part);
      out.accesses.insert(out.accesses.end(), more.accesses.begin(), more.accesses.end());
      out.everything |= more.everything;
    }
    return out;
  }
  const CallNode* call = AsTileOp(s);
  if (IsTileOp(call, kAcquire)) return out;
  if (IsTileOp(call, kRelease)) {
    for (const Expr& arg : call->args) {
      if (!arg.as<TensorRegionNode>()) continue;
      const TileRegion r = TileRegion::From(arg);
      out.accesses.push_back({views_->RootOf(r.buffer), r, true});
    }
    return out;
  }
  out.everything = Announces(s);
  const BufferUse use = views_->UseOf(s);
  for (const Var& v : use.reads) out.accesses.push_back({v, std::nullopt, false});
  for (const Var& v : use.writes) {
    bool known = false;
    for (size_t i = 0; call && i < call->args.size(); ++i) {
      if (!call->args[i].as<TensorRegionNode>()) continue;
      const TileRegion r = TileRegion::From(call->args[i]);
      if (!r.buffer.same_as(v)) continue;
      known = true;
      out.accesses.push_back({v, r, true});
    }
    if (!known) out.accesses.push_back({v, std::nullopt, true});
  }
  return out;
}

bool WgmmaConflicts::Overlaps(const TouchedMemory::Access& access, const TileRegion& operand,
                              const WgmmaGroup& group) const {
  if (!access.buffer.same_as(operand.buffer)) return false;
  if (group.moved) return true;
  if (!access.region || !access.region->buffer.same_as(operand.buffer)) return true;
  Substituter then;
  for (const auto& [loop, age] : group.age) {
    const Var& v = loop->loop_var;
    const Expr step = loop->step ? *loop->step : Expr(MakeInt(v->dtype(), 1));
    // Iterations too long ago, or of a loop that has ended, have any number.
    then.map[v.get()] = age == WgmmaGroup::kUnknown ? Expr(MakeVar("some", v->dtype()))
                                                    : v - step * MakeInt(v->dtype(), age);
  }
  for (size_t d = 0; d < operand.ranges.size(); ++d) {
    const Range &a = access.region->ranges[d], &b = operand.ranges[d];
    const auto a_extent = AsInt(a->extent), b_extent = AsInt(b->extent);
    if (!a_extent || !b_extent) continue;
    if (AreDisjoint(a->min, *a_extent, then.Mutate(b->min), *b_extent, analyzer_)) return false;
  }
  return true;
}

bool WgmmaConflicts::Conflicts(const TouchedMemory& touched, const WgmmaGroup& group) const {
  if (group.issue->by_hand) return false;
  if (touched.everything) return true;
  const GemmOp& op = group.issue->op;
  return std::any_of(touched.accesses.begin(), touched.accesses.end(),
                     [&](const TouchedMemory::Access& a) {
                       if (a.buffer.same_as(views_->RootOf(op.c.buffer))) return true;
                       if (!a.writes) return false;
                       if (IsFragment(op.a.buffer) && a.buffer.same_as(views_->RootOf(op.a.buffer)))
                         return true;
                       return Overlaps(a, op.a, group) || Overlaps(a, op.b, group);
                     });
}

bool WgmmaConflicts::Moves(const TouchedMemory& touched, const WgmmaGroup& group) const {
  const GemmOp& op = group.issue->op;
  return std::any_of(touched.accesses.begin(), touched.accesses.end(), [&](const auto& access) {
    const auto is_index = [&](const Range& r) { return Loads(r->min, access.buffer); };
    const auto any = [&](const TileRegion& r) {
      return std::any_of(r.ranges.begin(), r.ranges.end(), is_index);
    };
    return access.writes && (any(op.a) || any(op.b));
  });
}

bool WgmmaConflicts::Conflicts(const WgmmaIssue& next, const WgmmaGroup& group) const {
  if (group.issue->by_hand) return false;
  const GemmOp &a = group.issue->op, &b = next.op;
  auto same = [&](const Var& x, const Var& y) { return views_->IsSameMemory(x, y); };
  if (same(b.a.buffer, a.c.buffer) || same(b.c.buffer, a.a.buffer)) return true;
  if (!same(a.c.buffer, b.c.buffer)) return false;
  // PTX ISA, wgmma.fence: products of one shape on the same accumulators keep their order.
  const WgmmaChoice &x = group.issue->choice, &y = next.choice;
  return x.n != y.n || x.instruction != y.instruction || !a.c.buffer.same_as(b.c.buffer);
}

}  // namespace tl
