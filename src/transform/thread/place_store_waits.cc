/*!
 * PlaceStoreWaits: waits for stores by TMA stand as late as they may.
 *
 * Input: a thread program with `AttrStmt({tile, tensor, order}, "tl.store_wait", region)` around
 * each store that the compiler has to wait for; order is "none" where nothing depends on when
 * global memory is written. Output: no such attribute, and `tl.tma_store_wait`, which all threads
 * run: those that have issued nothing go on. Each wait stands before the first of these on each way
 * on from the store:
 *  - a statement that may write to the tile;
 *  - where order is not "none", a statement that stores to the tensor again; but for another store
 *    by TMA of the same iteration to elements that are surely others, and, where order is
 *    "additions", for another addition: they may come in any order;
 *  - a signal to other blocks, which may mean the store: then until global memory is written;
 *  - outside of loops, a statement that uses shared memory for the first time: it may have the
 *    tile's bytes;
 *  - a loop or branch without stores that contains one of these; a jump;
 *  - the end of the range of threads, or of the kernel, which is an end for global memory as well.
 * So the stores of one iteration run beside the next one until the tile is needed again. ThreadSync
 * places the barrier between the wait and other threads' writes. A tile that several ranges of
 * threads use is waited for at once: they order their accesses by means that are not seen here.
 */
#include <algorithm>
#include <limits>
#include <map>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"

namespace tl {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

/*! Stores of a tile that nobody has waited for. */
struct Store {
  Var tile, tensor;
  std::vector<TileRegion> regions;  // of the tensor
  bool only_read;                   // nothing depends on when global memory is written
  bool adds;                        // all are additions
  bool has_read = false;            // a wait for the tile is over
  bool is_earlier = false;          // an iteration has ended since: variables have other values
  int64_t newer = 0;                // groups of stores that were surely issued since

  void Join(const Store& other) {
    regions.insert(regions.end(), other.regions.begin(), other.regions.end());
    only_read &= other.only_read;
    adds &= other.adds;
    has_read &= other.has_read;
    is_earlier |= other.is_earlier;
    newer = std::min(newer, other.newer);
  }
};

/*! What a statement does that a store may have to be finished for. */
class Effects : public StmtExprVisitor {
 public:
  Effects(const Views& views, const Stmt& s) : views_(views) {
    for (const Object* v : WrittenBuffers(s)) {
      written.insert(views.RootOf(GetRef<Var>(static_cast<const VarNode*>(v))).get());
    }
    Visit(s);
  }

  std::unordered_set<const Object*> written, mentioned, shared;
  bool signals = false, arrives = false, leaves = false, has_store = false;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const VarNode* op) final {
    const Var v = GetRef<Var>(op);
    if (!AsBuffer(v)) return;
    const Var root = views_.RootOf(v);
    mentioned.insert(root.get());
    if (IsShared(root)) shared.insert(root.get());
  }
  void Visit_(const CallNode* op) final {
    const std::string name = OpOf(op) ? std::string(OpOf(op)->name) : "";
    const IntrinsicEffects* e = EffectsOf(op);
    signals |= name.rfind("tirx.call_extern", 0) == 0 || (e && e->tells >= ThreadScope::kCluster);
    arrives |= e && e->tells >= ThreadScope::kBlock && e->meets == ThreadScope::kThread;
    leaves |= name == "tirx.ret" || name == kThreadReturn;
    Default(op);
  }
  void Visit_(const AttrStmtNode* op) final {
    has_store |= op->attr_key == kStoreWait;
    Default(op);
  }
  void Visit_(const AllocBufferNode*) final {}
  void Visit_(const DeclBufferNode*) final {}

 private:
  const Views& views_;
};

/*! The ranges of threads in which a buffer is used. */
class RangeUse : public StmtExprVisitor {
 public:
  RangeUse(const Views& views, const Stmt& kernel) : views_(views) { Visit(kernel); }

  bool has_ranges = false;
  bool IsInSeveral(const Var& buffer) const {
    auto it = ranges_.find(buffer.get());
    return it != ranges_.end() && it->second.size() > 1;
  }

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const VarNode* op) final {
    if (AsBuffer(GetRef<Var>(op))) ranges_[views_.RootOf(GetRef<Var>(op)).get()].insert(range_);
  }
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == kStoreWait) return Visit(op->body);
    const Object* outside = range_;
    if (op->attr_key == kThreadRange) {
      has_ranges = true;
      range_ = op;
    }
    Default(op);
    range_ = outside;
  }
  void Visit_(const AllocBufferNode*) final {}
  void Visit_(const DeclBufferNode*) final {}
  void Visit_(const SBlockNode* op) final { Visit(op->body); }

 private:
  const Views& views_;
  const Object* range_ = nullptr;
  std::unordered_map<const Object*, std::unordered_set<const Object*>> ranges_;
};

/*! Walks a kernel with the stores that nobody has waited for. */
class WaitPlacer {
 public:
  explicit WaitPlacer(const Stmt& kernel)
      : views_(kernel), ranges_(views_, kernel), signals_(Effects(views_, kernel).signals) {}

  Stmt Place(const Stmt& s) {
    if (const auto* op = s.as<AttrStmtNode>()) return PlaceAttr(op);
    if (const auto* op = s.as<SBlockRealizeNode>()) return PlaceBlock(op);
    if (s.as<SeqStmtNode>()) {
      std::vector<Stmt> out;
      for (const Stmt& t : FlatSeq(s)) out.push_back(Place(t));
      return MakeSeq(out);
    }
    const Effects effects(views_, s);
    if (!effects.has_store) return PlaceLeaf(s, effects);
    if (const auto* op = s.as<IfThenElseNode>()) return PlaceIf(op);
    if (const auto* op = s.as<ForNode>()) return PlaceLoop(op, effects);
    if (const auto* op = s.as<WhileNode>()) return PlaceLoop(op, effects);
    return s;
  }

 private:
  // By the places of tile and tensor in the program, so that the result is the same each time.
  using Stores = std::map<std::pair<int, int>, Store>;

  int Number(const Var& v) {
    return numbers_.try_emplace(v.get(), static_cast<int>(numbers_.size())).first->second;
  }

  Stmt PlaceAttr(const AttrStmtNode* op) {
    if (op->attr_key == kStoreWait) return PlaceStore(op);
    auto n = make_object<AttrStmtNode>(*op);
    if (op->attr_key != kThreadRange) {
      n->body = Place(op->body);
      return AttrStmt(n);
    }
    const Stmt before = WaitBefore(Effects(views_, GetRef<Stmt>(op)), op->span);
    Stores outside;
    std::swap(outside, stores_);
    n->body = Place(op->body);
    n->body = MakeSeq({n->body, Wait(!MattersElsewhere(), op->span)});
    stores_ = outside;
    return MakeSeq({before, AttrStmt(n)});
  }

  Stmt PlaceStore(const AttrStmtNode* op) {
    const auto about = op->node.cast<Array<Any>>();
    const String order = about[2].cast<String>();
    Store store{views_.RootOf(about[0].cast<Var>()),
                views_.RootOf(about[1].cast<Var>()),
                {TileRegion::From(op->value)},
                order == kOrderNone,
                order == kOrderAdditions};
    const Stmt before = WaitBefore(Effects(views_, op->body), op->span, &store);
    for (auto& [key, waiting] : stores_) ++waiting.newer;
    auto [it, is_new] = stores_.try_emplace({Number(store.tile), Number(store.tensor)}, store);
    if (!is_new) it->second.Join(store);
    const Stmt behind = ranges_.IsInSeveral(store.tile)
                            ? Wait(store.only_read && !signals_, op->span)
                            : MakeSeq({});
    return MakeSeq({before, op->body, behind});
  }

  Stmt PlaceBlock(const SBlockRealizeNode* op) {
    auto block = make_object<SBlockNode>(*op->block.get());
    block->body = Place(op->block->body);
    // The end of a kernel is one for its stores to global memory too.
    block->body = MakeSeq({block->body, Wait(true, op->block->span)});
    stores_.clear();
    auto n = make_object<SBlockRealizeNode>(*op);
    n->block = SBlock(block);
    return SBlockRealize(n);
  }

  Stmt PlaceLeaf(const Stmt& s, const Effects& effects) {
    const bool jumps = IsBreak(s) || IsContinue(s) || effects.leaves || ContainsJump(s);
    const Stmt wait =
        jumps ? Wait(!RepeatsStore() && !effects.signals, s->span) : WaitBefore(effects, s->span);
    return MakeSeq({wait, s});
  }

  Stmt PlaceIf(const IfThenElseNode* op) {
    auto n = make_object<IfThenElseNode>(*op);
    const Stmt wait = WaitBefore(Effects(views_, MakeEvaluate(op->condition, op->span)), op->span);
    const Stores before = stores_;
    n->then_case = Place(op->then_case);
    const Stores after = stores_;
    stores_ = before;
    if (op->else_case) n->else_case = Place(*op->else_case);
    Join(after);
    return MakeSeq({wait, IfThenElse(n)});
  }

  /*! The next iteration begins with what this one leaves. */
  template <typename Loop>
  Stmt PlaceLoop(const Loop* op, const Effects& effects) {
    const Stmt wait = WaitBefore(effects, op->span);
    const Stores outside = stores_;
    stores_.clear();
    ++loops_;
    auto n = make_object<Loop>(*op);
    for (bool grows = true; grows;) {
      const Stores back = stores_;
      n->body = Place(op->body);
      Stores end = stores_;
      for (auto& [key, store] : end) store.is_earlier = true;
      stores_ = back;
      grows = Join(end);
    }
    --loops_;
    Join(outside);
    return MakeSeq({wait, Stmt(ObjectPtr<StmtNode>(n))});
  }

  /*! What waits on either way; true if that is more than on this one. */
  bool Join(const Stores& other) {
    bool grows = false;
    for (const auto& [key, store] : other) {
      auto [it, is_new] = stores_.try_emplace(key, store);
      if (is_new) {
        grows = true;
        continue;
      }
      const Store before = it->second;
      it->second.Join(store);
      const Store& after = it->second;
      grows |= before.has_read != after.has_read || before.adds != after.adds ||
               before.only_read != after.only_read || before.is_earlier != after.is_earlier ||
               before.newer != after.newer;
    }
    return grows;
  }

  static bool ContainsJump(const Stmt& s) {
    // A jump inside of a loop stays there.
    if (s.as<ForNode>() || s.as<WhileNode>()) return false;
    struct Finder : StmtExprVisitor {
      bool found = false;
      using StmtExprVisitor::Visit_;
      void Visit_(const ForNode*) override {}
      void Visit_(const WhileNode*) override {}
      void Visit_(const BreakNode*) override { found = true; }
      void Visit_(const ContinueNode*) override { found = true; }
      void Visit_(const EvaluateNode* op) override {
        found |= IsBreak(GetRef<Stmt>(op)) || IsContinue(GetRef<Stmt>(op));
      }
    } finder;
    finder(s);
    return finder.found;
  }

  bool RepeatsStore() const {
    return std::any_of(stores_.begin(), stores_.end(),
                       [](const auto& entry) { return !entry.second.only_read; });
  }

  /*! Other threads of the kernel may count on a store that waits here being complete. */
  bool MattersElsewhere() const {
    return signals_ || std::any_of(stores_.begin(), stores_.end(), [&](const auto& entry) {
             return !entry.second.only_read && ranges_.IsInSeveral(entry.second.tensor);
           });
  }

  /*! Whether a store and those that wait may come in any order. */
  bool RunsBeside(const Store& waiting, const Store& next) {
    if (waiting.tensor.get() != next.tensor.get()) return false;
    if (waiting.adds && next.adds) return true;
    return !waiting.is_earlier &&
           std::all_of(waiting.regions.begin(), waiting.regions.end(),
                       [&](const TileRegion& r) { return AreApart(r, next.regions.front()); });
  }

  /*! Some dimension's ranges begin a constant apart, further than they are long. */
  bool AreApart(const TileRegion& a, const TileRegion& b) {
    for (size_t d = 0; d < a.ranges.size(); ++d) {
      if (!IsPureInteger(a.ranges[d]->min) || !IsPureInteger(b.ranges[d]->min)) continue;
      const auto distance = AsInt(analyzer_.Simplify(b.ranges[d]->min - a.ranges[d]->min));
      const auto shorter = AsInt((distance.value_or(0) < 0 ? b : a).ranges[d]->extent);
      if (distance && shorter && std::abs(*distance) >= *shorter) return true;
    }
    return false;
  }

  /*! The wait that a statement, which may be the store `next`, needs in front of it, if any. */
  Stmt WaitBefore(const Effects& effects, const Span& span, const Store* next = nullptr) {
    const bool signals = effects.signals || (effects.arrives && signals_ && ranges_.has_ranges);
    bool fresh = false;
    for (const Object* buffer : effects.shared) {
      const bool is_new = seen_.insert(buffer).second;
      fresh |= is_new && loops_ == 0;
    }
    if (signals) return Wait(false, span);
    bool needed = false, written = false;
    int64_t newer = kAny;
    for (const auto& [key, store] : stores_) {
      const bool again = !store.only_read && effects.mentioned.count(store.tensor.get()) &&
                         !(next && RunsBeside(store, *next));
      const bool touched = fresh || effects.written.count(store.tile.get());
      if (!again && !touched) continue;
      needed = true;
      written |= again;
      if (again || !store.has_read) newer = std::min(newer, store.newer);
    }
    return needed ? Wait(!written, span, newer) : MakeSeq({});
  }

  /*! Waits for all stores but those of the `newer` last groups: until they have read their tiles,
   * or also written. */
  Stmt Wait(bool until_read, const Span& span, int64_t newer = 0) {
    bool needed = false;
    for (auto it = stores_.begin(); it != stores_.end();) {
      Store& store = it->second;
      const bool over = store.newer >= newer;
      needed |= over && (!until_read || !store.has_read);
      store.has_read |= over;
      it = over && (!until_read || store.only_read) ? stores_.erase(it) : std::next(it);
    }
    if (!needed) return MakeSeq({});
    return MakeEvaluate(
        CallOp(kTmaStoreWait, {MakeInt(newer), StringOf(until_read ? "true" : "false")}), span);
  }

  const Views views_;
  const RangeUse ranges_;
  const bool signals_;
  Analyzer analyzer_;
  Stores stores_;
  int loops_ = 0;
  std::unordered_set<const Object*> seen_;  // shared buffers that the program has used so far
  std::unordered_map<const Object*, int> numbers_;
};

PrimFunc PlaceStoreWaits(PrimFunc f) {
  return ForEachKernel(f, [](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    const Views views(kernel);
    return Effects(views, kernel).has_store ? WaitPlacer(kernel).Place(kernel) : kernel;
  });
}

Registration registration([] { RegisterPass("PlaceStoreWaits", PlaceStoreWaits); });

}  // namespace
}  // namespace tl
