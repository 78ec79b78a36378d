#include "shared_reuse.h"

#include <algorithm>

#include "../../analysis/effects.h"
#include "../../analysis/shared_memory.h"
#include "../../op/intrinsics.h"
#include "../../op/thread_range.h"
#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"

namespace tl {

using Region = SharedReuse::Region;
using ReuseKind = SharedReuse::Kind;

namespace {

/*! Whether the statements under an attribute count as statements of the sequence around it. */
bool IsTransparent(const AttrStmtNode* op) { return op->attr_key != kUnrollFactor; }

/*! Calls `leaf` for each statement of a sequence, also of sequences in it. */
template <typename Leaf>
void ForEachItem(const Stmt& s, Leaf leaf) {
  if (const auto* seq = s.as<SeqStmtNode>()) {
    for (const Stmt& t : seq->seq) ForEachItem(t, leaf);
  } else {
    leaf(s);
  }
}

AsyncQueue QueueOf(SharedReuse::Kind kind) {
  switch (kind) {
    case SharedReuse::Kind::kCopy:
      return AsyncQueue::kCpAsync;
    case SharedReuse::Kind::kStore:
      return AsyncQueue::kTmaStore;
    case SharedReuse::Kind::kProduct:
      return AsyncQueue::kWgmma;
    default:
      return AsyncQueue::kNone;
  }
}

}  // namespace

/*! Numbers the regions and items of a kernel. Notes each access of a shared buffer as an event. */
class ReuseWalk : public StmtExprVisitor {
 public:
  ReuseWalk(const Stmt& kernel, SharedReuse* out)
      : out_(*out), uniformity_(kernel), views_(kernel) {
    Region all;
    Enter(all, kernel);
  }

 protected:
  void Visit_(const AttrStmtNode* op) override {
    if (IsApart(op)) return EnterRange(op);
    const bool rewrites = op->attr_key == kRewrites;
    if (!rewrites) {
      if (op->attr_key == kWarpRole || op->attr_key == kScheduledRole) {
        out_.regions_[range_].of_role = true;
      }
      return IsTransparent(op) ? Body(op->body) : Default(op);
    }
    std::vector<const Object*> opened;
    const int scope = static_cast<int>(out_.scopes_.size());
    out_.scopes_.push_back({Now() + 1, Now(), region_});
    for (const Var& v : op->node.cast<Array<Var>>()) {
      // The outermost of nested attributes for one buffer counts: its scope is the longest.
      if (scope_of_.try_emplace(views_.RootOf(v).get(), scope).second) {
        opened.push_back(views_.RootOf(v).get());
      }
    }
    Body(op->body);
    out_.scopes_[scope].last = Now();
    for (const Object* buffer : opened) scope_of_.erase(buffer);
  }

  void Visit_(const ForNode* op) override {
    Visit(op->min);
    Visit(op->extent);
    Region loop;
    loop.is_loop = true;
    loop.together = uniformity_.IsUniform(op);
    loop.loop_tag = IntAnnotation(op->annotations, kRoleLoop).value_or(-1);
    Enter(loop, op->body);
  }
  void Visit_(const WhileNode* op) override {
    Region loop;
    loop.is_loop = true;
    loop.together = uniformity_.IsUniform(op);
    const int outside = Begin(loop);
    Visit(op->condition);
    Body(op->body);
    region_ = outside;
  }
  void Visit_(const IfThenElseNode* op) override {
    Visit(op->condition);
    Region branch;
    branch.together = uniformity_.IsUniform(op->condition);
    branch.by_one = HasCall(op->condition, {kShuffleElect});
    Enter(branch, op->then_case);
    branch.by_one = false;
    if (op->else_case) Enter(branch, *op->else_case);
  }

  void Visit_(const SeqStmtNode* op) override { Body(GetRef<Stmt>(op)); }
  void Visit_(const AllocBufferNode*) override {}
  void Visit_(const DeclBufferNode*) override {}
  void Visit_(const BreakNode*) override { Jump(); }
  void Visit_(const ContinueNode*) override { Jump(); }
  void Visit_(const EvaluateNode* op) override {
    const Stmt s = GetRef<Stmt>(op);
    if (IsBreak(s) || IsContinue(s) || IsCallTo(op->value, kThreadReturn) ||
        IsCallTo(op->value, "tirx.ret")) {
      Jump();
    }
    Default(op);
  }
  void Visit_(const BufferStoreNode* op) override {
    Note(op->buffer, ReuseKind::kWrite);
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
  }
  void Visit_(const TensorLoadNode* op) override {
    Note(op->source.as_or_throw<Var>(), ReuseKind::kRead);
    for (const Expr& i : op->indices) Visit(i);
  }
  void Visit_(const VarNode* op) override {
    // A pointer that is no operand of an intrinsic: who has it may read and write.
    Note(GetRef<Var>(op), ReuseKind::kWrite);
    Note(GetRef<Var>(op), ReuseKind::kRead);
  }
  void Visit_(const CallNode* op) override {
    NoteWait(op);
    if (!FindIntrinsic(op)) return Default(op);
    for (const PointerAccess& p : PointerAccesses(op)) {
      NotePointer(op, p);
      for (const Expr& i : p.indices) Visit(i);
    }
    for (const Expr& arg : op->args) {
      if (!AsAddressOf(arg)) Visit(arg);
    }
  }

 private:
  int Now() const { return static_cast<int>(out_.items_.size()) - 1; }

  int Begin(Region region) {
    const int outside = region_;
    region.around = Now();
    region.range = range_;
    region_ = static_cast<int>(out_.regions_.size());
    if (outside < 0) region.around = -1;
    out_.regions_.push_back(region);
    counts_.push_back(0);
    return outside;
  }
  void Enter(const Region& region, const Stmt& body) {
    const int outside = Begin(region);
    Body(body);
    region_ = outside;
  }
  void EnterRange(const AttrStmtNode* op) {
    Region region;
    for (const ThreadRange& r : ThreadRangesOf(op)) region.threads += r.threads;
    const int range = range_, outside = region_;
    range_ = static_cast<int>(out_.regions_.size());
    Begin(region);
    out_.regions_.back().around = -1;
    Body(op->body);
    range_ = range;
    region_ = outside;
  }

  void Body(const Stmt& body) {
    ForEachItem(body, [&](const Stmt& s) {
      const auto* attr = s.as<AttrStmtNode>();
      if (attr && IsTransparent(attr) && !IsApart(attr)) return Visit(s);
      const size_t item = out_.items_.size();
      out_.items_.push_back({region_, counts_[region_]++, 0});
      Visit(s);
      out_.items_[item].end = Now();
    });
  }

  void Jump() {
    for (int r = region_; r >= 0;) {
      out_.regions_[r].jumps = true;
      const int around = out_.regions_[r].around;
      r = around < 0 ? -1 : out_.items_[around].region;
    }
  }

  void Note(const Var& v, ReuseKind kind) {
    if (!AsBuffer(v) || ScopeOf(v) != "shared.dyn") return;
    const Object* buffer = views_.RootOf(v).get();
    const auto scope = scope_of_.find(buffer);
    out_.events_[buffer][range_].push_back(
        {Now(), kind, scope == scope_of_.end() ? -1 : scope->second});
  }

  void NotePointer(const CallNode* op, const PointerAccess& p) {
    if (p.access == Access::kNone || p.access == Access::kBarrier) return;
    if (p.access == Access::kAsyncProxyWrite) {
      if (FillsOtherBlocks(op)) out_.lives_[views_.RootOf(p.buffer).get()].remote = true;
      return Note(p.buffer, ReuseKind::kFill);
    }
    if (p.access == Access::kAsyncWrite) return Note(p.buffer, ReuseKind::kCopy);
    if (IsBulkStore(op) && p.access == Access::kAsyncProxyRead)
      return Note(p.buffer, ReuseKind::kStore);
    if (IsOperandOfWgmma(op, p.access)) return Note(p.buffer, ReuseKind::kProduct);
    if (Writes(p.access)) Note(p.buffer, ReuseKind::kWrite);
    if (Reads(p.access)) Note(p.buffer, ReuseKind::kRead);
  }

  void NoteWait(const CallNode* op) {
    for (ReuseKind kind : {ReuseKind::kCopy, ReuseKind::kStore, ReuseKind::kProduct}) {
      if (WaitsForAll(op, QueueOf(kind))) out_.waits_.push_back({Now(), kind});
    }
  }

  SharedReuse& out_;
  const Uniformity uniformity_;
  const Views views_;
  int region_ = -1, range_ = 0;
  std::vector<int> counts_;  // number of items in each region
  std::unordered_map<const Object*, int> scope_of_;
};

SharedReuse::SharedReuse(const Stmt& kernel) {
  ReuseWalk(kernel, this);
  for (const auto& [buffer, events] : events_) {
    lives_[buffer] = LifeOf(events, lives_[buffer].remote);
  }
}

/*! The regions around one, which is the first. The last is the whole program of its range. */
std::vector<int> SharedReuse::RegionsAround(int region) const {
  std::vector<int> out = {region};
  while (regions_[out.back()].around >= 0) {
    out.push_back(items_[regions_[out.back()].around].region);
  }
  return out;
}

bool SharedReuse::IsInside(int region, int outer) const {
  const std::vector<int> around = RegionsAround(region);
  return std::count(around.begin(), around.end(), outer) > 0;
}

/*! Whether all threads of the range come to the region together. */
bool SharedReuse::AreTogether(int region) const {
  const std::vector<int> around = RegionsAround(region);
  return AllOf(around, [&](int r) { return regions_[r].together; });
}

/*! The item of `region` that contains `item`, or is it; -1 if `item` is outside of the region. */
int SharedReuse::ItemIn(int region, int item) const {
  while (item >= 0 && items_[item].region != region) item = regions_[items_[item].region].around;
  return item;
}

/*! The innermost loop around both regions; -1 if there is none. */
int SharedReuse::LoopOfBoth(int a, int b) const {
  for (int r : RegionsAround(a)) {
    if (regions_[r].is_loop && IsInside(b, r)) return r;
  }
  return -1;
}

/*! Finds the range that reads the buffer, and the ranges that only fill it. False if several ranges
 * read it, or if the order between them is not known. */
bool SharedReuse::FindUsers(const Events& events, Life* life) const {
  life->range = -1;
  for (const auto& [range, in_range] : events) {
    const bool fills = AllOf(in_range, [](const Event& e) {
      return e.kind == ReuseKind::kFill || e.kind == ReuseKind::kWrite ||
             e.kind == ReuseKind::kCopy;
    });
    if (fills && events.size() > 1) {
      life->fillers.push_back(range);
    } else if (life->range < 0) {
      life->range = range;
    } else {
      return false;
    }
  }
  if (life->fillers.empty()) return life->range >= 0 && !life->remote;
  // A role of warp specialisation waits for all fills of what it reads. About ranges of the program
  // (T.ws) this is not known.
  return life->range >= 0 && regions_[life->range].of_role &&
         AllOf(life->fillers, [&](int r) { return regions_[r].of_role; });
}

/*! Whether each run of the region overwrites the buffer before it reads it. */
bool SharedReuse::IsFresh(const std::vector<Event>& events, int region) const {
  const bool all = AllOf(events, [](auto& e) { return e.scope >= 0; });
  const int first = events.front().scope;
  return all || (first >= 0 && scopes_[first].region == region);
}

SharedReuse::Life SharedReuse::LifeOf(const Events& events, bool remote) const {
  Life life;
  life.remote = remote;
  if (!FindUsers(events, &life)) return life;
  const std::vector<Event>& uses = events.at(life.range);
  // Nobody waits for a fill by the async proxy that is the last use: it may still be writing.
  if (uses.back().kind == ReuseKind::kFill) return life;
  const auto place = [&](const Event& e) {
    return e.scope >= 0 ? scopes_[e.scope].region : items_[e.item].region;
  };
  std::vector<int> around = RegionsAround(place(uses.front()));
  for (const Event& e : uses) {
    while (!IsInside(place(e), around.front())) around.erase(around.begin());
  }
  // The life has to end where all threads of the range can meet: outside of divergent regions.
  const auto apart =
      std::find_if(around.rbegin(), around.rend(), [&](int r) { return !regions_[r].together; });
  around.erase(around.begin(), apart.base());
  life.region = around.front();
  if (!IsFresh(uses, life.region)) {
    // A later iteration may read it. So it lives as long as the outermost loop runs.
    for (size_t i = around.size(); i-- > 0;) {
      if (!regions_[around[i]].is_loop) continue;
      life.region = items_[regions_[around[i]].around].region;
      break;
    }
  }
  life.known = true;
  life.first = ItemIn(life.region, uses.front().item);
  life.last = items_[ItemIn(life.region, uses.back().item)].end;
  for (const Event& e : uses) {
    if (e.scope < 0 || scopes_[e.scope].region != life.region) continue;
    life.first = std::min(life.first, scopes_[e.scope].first);
    life.last = std::max(life.last, scopes_[e.scope].last);
  }
  FindEnd(uses, &life);
  return life;
}

/*! An asynchronous access lasts until the wait for it, so the life ends there. If the life's region
 * has no wait that follows on every path, the access is `unawaited`: WaitWriter adds a wait. */
void SharedReuse::FindEnd(const std::vector<Event>& events, Life* life) const {
  for (const Event& e : events) {
    if (e.kind != ReuseKind::kCopy && e.kind != ReuseKind::kStore && e.kind != ReuseKind::kProduct)
      continue;
    const auto wait = FindIf(waits_, [&](const Wait& w) {
      const int region = items_[w.item].region;
      return w.kind == e.kind && w.item > e.item && IsInside(items_[e.item].region, region) &&
             IsInside(region, life->region) && AreTogether(region);
    });
    if (wait != waits_.end()) {
      life->last = std::max(life->last, items_[ItemIn(life->region, wait->item)].end);
    } else if (!std::count(life->unawaited.begin(), life->unawaited.end(), e.kind)) {
      life->unawaited.push_back(e.kind);
    }
  }
}

SharedReuse::Price SharedReuse::PriceOf(const Object* a, const Object* b) const {
  const auto first = lives_.find(a), second = lives_.find(b);
  if (first == lives_.end() || second == lives_.end()) return Price::kImpossible;
  const Life &x = first->second, &y = second->second;
  if (!x.known || !y.known || x.range != y.range) return Price::kImpossible;
  if (y.last < x.first) return PriceOf(b, a);
  if (x.last >= y.first) return Price::kImpossible;
  std::vector<Handshake> wanted;
  if (!HandshakesOf(x, y, a, b, &wanted)) return Price::kImpossible;
  return wanted.empty() ? Price::kWaits : Price::kHandshake;
}

bool SharedReuse::HandshakesOf(const Life& first, const Life& second, const Object* a,
                               const Object* b, std::vector<Handshake>* out) const {
  const int loop = LoopOfBoth(first.region, second.region);
  for (int filler : second.fillers) {
    if (!Connect(first, b, filler, loop, true, out)) return false;
  }
  for (int filler : first.fillers) {
    if (loop >= 0 && !Connect(second, a, filler, loop, false, out)) return false;
  }
  return out->empty() || (!first.remote && !second.remote);
}

bool SharedReuse::Connect(const Life& done, const Object* filled, int filler, int loop,
                          bool same_iteration, std::vector<Handshake>* out) const {
  const std::vector<Event>& fills = events_.at(filled).at(filler);
  const int level = loop < 0 ? done.range : loop;
  Handshake h{ItemIn(level, done.last), 0, done.range, filler, same_iteration, loop >= 0, false};
  // The region of the filler's program that is run as often as `level` of the reader's.
  int part = -1;
  if (loop >= 0) {
    for (int r : RegionsAround(items_[fills.front().item].region)) {
      if (regions_[loop].loop_tag >= 0 && regions_[r].loop_tag == regions_[loop].loop_tag) part = r;
    }
  } else {
    for (int r : RegionsAround(items_[fills.front().item].region)) {
      if (part < 0 || regions_[r].is_loop) part = regions_[r].is_loop ? -1 : r;
    }
  }
  if (part < 0 || h.arrive_behind < 0 || regions_[level].jumps || regions_[part].jumps) {
    return false;
  }
  if (AnyOf(fills, [&](const Event& e) { return !IsInside(items_[e.item].region, part); })) {
    return false;
  }
  h.wait_before = ItemIn(part, fills.front().item);
  for (int r : RegionsAround(part)) {
    if (!regions_[r].together && !regions_[r].by_one) return false;
    h.by_one |= regions_[r].by_one;
  }
  // In the same iteration the next life has to begin behind the arrival, and the filler's wait may
  // not block a fill that the reader needs before it arrives.
  if (same_iteration) {
    const Life& next = lives_.at(filled);
    if (ItemIn(level, next.first) <= h.arrive_behind || !MayWait(h, done.last)) return false;
  }
  out->push_back(h);
  return true;
}

/*! Whether the handshake cannot deadlock. It would if the reader needed a fill before it arrives,
 * and the filler made that fill only after it has waited for the arrival. */
bool SharedReuse::MayWait(const Handshake& h, int done) const {
  for (const auto& [buffer, events] : events_) {
    const auto read = events.find(h.from), filled = events.find(h.to);
    if (read == events.end() || filled == events.end()) continue;
    const bool needed = AnyOf(read->second, [&](const Event& e) { return e.item <= done; });
    const bool late =
        AnyOf(filled->second, [&](const Event& e) { return e.item >= h.wait_before; });
    if (needed && late) return false;
  }
  return true;
}

bool SharedReuse::IsUsedOnce(const Object* buffer) const {
  const auto it = lives_.find(buffer);
  if (it == lives_.end() || !it->second.known) return false;
  const std::vector<int> around = RegionsAround(it->second.region);
  return NoneOf(around, [&](int r) { return regions_[r].is_loop; });
}

bool SharedReuse::IsBefore(const Object* a, const Object* b) const {
  return lives_.at(a).last < lives_.at(b).first;
}

std::string SharedReuse::Unawaited(const Object* buffer) const {
  std::string out;
  for (ReuseKind kind : lives_.at(buffer).unawaited) {
    out += (out.empty() ? "" : ", ");
    out += kind == ReuseKind::kStore  ? "stores by TMA"
           : kind == ReuseKind::kCopy ? "copies"
                                      : "products";
  }
  return out;
}

void SharedReuse::ShareNothing() {
  handshakes_.clear();
  closed_.clear();
}

void SharedReuse::Share(const Object* a, const Object* b) {
  if (lives_.at(b).last < lives_.at(a).first) std::swap(a, b);
  const Life &x = lives_.at(a), &y = lives_.at(b);
  std::vector<Handshake> wanted;
  if (!HandshakesOf(x, y, a, b, &wanted)) return;
  for (const Handshake& h : wanted) {
    handshakes_.try_emplace(h, static_cast<int>(handshakes_.size()));
  }
  for (const Life* life : {&x, &y}) {
    if (life == &y && LoopOfBoth(x.region, y.region) < 0) continue;
    std::vector<ReuseKind>& kinds = closed_[ItemIn(life->region, life->last)];
    for (ReuseKind k : life->unawaited) {
      if (!std::count(kinds.begin(), kinds.end(), k)) kinds.push_back(k);
    }
  }
}

/*! Adds the mbarriers, waits and arrivals. It numbers items in the order of ReuseWalk. */
class WaitWriter : public StmtExprMutator {
 public:
  WaitWriter(const SharedReuse& plan, int64_t offset, const Target& target)
      : plan_(plan), offset_(offset), target_(target) {
    for (const auto& [h, number] : plan.handshakes_) {
      Pair pair{h, number, Var(), Var(), Var()};
      const std::string name = "reuse" + std::to_string(number);
      pair.barriers = MakeBuffer(name, DLDataType{kDLUInt, 64, 1}, {MakeInt(2)}, "shared.barrier");
      const DLDataType parity{kDLUInt, 32, 1};
      if (h.in_loop) {
        pair.told = MakeBuffer(name + "_told", parity, {MakeInt(1)}, "local.var");
        pair.heard = MakeBuffer(name + "_heard", parity, {MakeInt(1)}, "local.var");
      }
      pairs_.push_back(pair);
    }
  }

 protected:
  Stmt Mutate_(const AttrStmtNode* op) override {
    if (IsApart(op)) return Range(op);
    return With(op, &AttrStmtNode::body, IsTransparent(op) ? Body(op->body) : Mutate(op->body));
  }
  Stmt Mutate_(const ForNode* op) override { return With(op, &ForNode::body, Body(op->body)); }
  Stmt Mutate_(const WhileNode* op) override { return With(op, &WhileNode::body, Body(op->body)); }
  Stmt Mutate_(const IfThenElseNode* op) override {
    auto n = make_object<IfThenElseNode>(*op);
    n->then_case = Body(op->then_case);
    if (op->else_case) n->else_case = Body(*op->else_case);
    return IfThenElse(n);
  }
  Stmt Mutate_(const SeqStmtNode* op) override { return Body(GetRef<Stmt>(op)); }
  Stmt Mutate_(const AllocBufferNode* op) override {
    std::vector<Stmt> out;
    if (!std::exchange(allocated_, true)) {
      for (const Pair& p : pairs_) {
        Map<String, Any> notes = op->annotations;
        notes.Set(kSharedOffset, offset_ + 16 * p.number);
        out.push_back(MakeAlloc(p.barriers, notes));
      }
    }
    out.push_back(GetRef<Stmt>(op));
    return MakeSeq(out);
  }
  Stmt Mutate_(const EvaluateNode* op) override {
    if (!IsCallTo(op->value, kFenceBarrierInit)) return GetRef<Stmt>(op);
    std::vector<Stmt> out;
    for (const Pair& p : pairs_) {
      const int64_t warps = plan_.regions_[p.h.from].threads / target_.warp_threads;
      const int64_t others = p.h.by_one ? 1 : plan_.regions_[p.h.to].threads / target_.warp_threads;
      out.push_back(Call(kMbarrierInit, p, 0, {MakeInt(warps)}));
      if (p.h.in_loop) out.push_back(Call(kMbarrierInit, p, 1, {MakeInt(others)}));
    }
    out.push_back(GetRef<Stmt>(op));
    return MakeSeq(out);
  }
  Stmt Mutate_(const BufferStoreNode* op) override { return GetRef<Stmt>(op); }
  Stmt Mutate_(const BindNode* op) override { return GetRef<Stmt>(op); }
  Stmt Mutate_(const DeclBufferNode* op) override { return GetRef<Stmt>(op); }

 private:
  struct Pair {
    SharedReuse::Handshake h;
    int number;
    /*! Two mbarriers: at the first the reader arrives, at the second the filler has seen that. */
    Var barriers;
    /*! Parity of the filler's next wait at the first, and of the reader's at the second. */
    Var told, heard;
  };

  static Stmt Call(const char* op, const Pair& p, int which, std::vector<Expr> more = {}) {
    Array<Expr> args = {AddressOf(p.barriers, {MakeInt(which)})};
    for (const Expr& e : more) args.push_back(e);
    return MakeEvaluate(CallOp(op, args), Span());
  }

  /*! A range of threads, with the parities of its waits in front of its body. */
  Stmt Range(const AttrStmtNode* op) {
    const int first = item_;
    auto n = make_object<AttrStmtNode>(*op);
    const Stmt body = Body(op->body);
    std::vector<Stmt> out;
    const auto begin = [&](const Var& parity, int64_t value) {
      out.push_back(MakeAlloc(parity));
      const DLDataType t = DTypeOf(parity);
      out.push_back(MakeStore(parity, MakeInt(t, value), {MakeInt(0)}, op->span));
    };
    const auto is_here = [&](int item) { return item >= first && item < item_; };
    for (const Pair& p : pairs_) {
      if (!p.h.in_loop) continue;
      // A wait for the phase before the first one returns at once (PTX ISA, mbarrier.test_wait).
      if (is_here(p.h.wait_before)) begin(p.told, p.h.same_iteration ? 0 : 1);
      if (is_here(p.h.arrive_behind)) begin(p.heard, p.h.same_iteration ? 1 : 0);
    }
    out.push_back(body);
    n->body = MakeSeq(out);
    return AttrStmt(n);
  }

  Stmt Body(const Stmt& body) {
    std::vector<Stmt> out;
    ForEachItem(body, [&](const Stmt& s) {
      const auto* attr = s.as<AttrStmtNode>();
      if (attr && IsTransparent(attr) && !IsApart(attr)) {
        out.push_back(Mutate(s));
        return;
      }
      const int item = item_++;
      const Stmt mutated = Mutate(s);
      InFront(item, &out);
      out.push_back(mutated);
      Behind(item, &out);
    });
    return MakeSeq(out);
  }

  static void WaitFor(const Pair& p, int which, const Var& parity, std::vector<Stmt>* out) {
    const Array<Expr> zero = {MakeInt(0)};
    const Expr now = parity.defined() ? LoadOf(parity, zero) : MakeInt(0);
    out->push_back(Call(kMbarrierWait, p, which, {now}));
    if (!parity.defined()) return;
    out->push_back(MakeStore(parity, XorOf(now, MakeInt(now->dtype(), 1)), zero, Span()));
  }

  Expr WaitForAll(ReuseKind kind) const {
    const AsyncQueueRow& queue = *target_.RowOf(QueueOf(kind));
    Array<Expr> args = {MakeInt(0)};
    if (queue.waits_for_reads) args.push_back(StringOf("true"));
    return CallOp(queue.wait, args);
  }

  void InFront(int item, std::vector<Stmt>* out) const {
    for (const Pair& p : pairs_) {
      if (p.h.wait_before != item) continue;
      WaitFor(p, 0, p.told, out);
      if (p.h.in_loop)
        out->push_back(Call(p.h.by_one ? kMbarrierArrive : kMbarrierArriveWarp, p, 1));
    }
  }

  void Behind(int item, std::vector<Stmt>* out) const {
    const auto closed = plan_.closed_.find(item);
    if (closed != plan_.closed_.end()) {
      for (ReuseKind kind : closed->second) out->push_back(MakeEvaluate(WaitForAll(kind), Span()));
    }
    for (const Pair& p : pairs_) {
      if (p.h.arrive_behind != item) continue;
      if (p.h.in_loop) WaitFor(p, 1, p.heard, out);
      // The threads have accessed the bytes, and the async proxy may fill them next.
      out->push_back(MakeEvaluate(CallOp(kFenceProxyAsync, {}), Span()));
      out->push_back(Call(kMbarrierArriveWarp, p, 0));
    }
  }

  const SharedReuse& plan_;
  const int64_t offset_;
  const Target& target_;
  std::vector<Pair> pairs_;
  int item_ = 0;
  bool allocated_ = false;
};

Stmt SharedReuse::WithWaits(const Stmt& kernel, int64_t offset, const Target& target) const {
  return WaitWriter(*this, offset, target).Mutate(kernel);
}

}  // namespace tl
