#include "convert_layouts.h"

#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "../../analysis/effects.h"
#include "../../layout/int_program.h"
#include "../../op/copy_instruction.h"
#include "../../op/operator.h"
#include "../../op/parallel.h"
#include "../../op/tile_op.h"
#include "../../op/views.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"

namespace tl {
namespace {

/*! What a statement has to find elsewhere: in shared memory, or in a fragment with a layout. */
struct Staged {
  Var fragment;
  /*! Undefined in shared memory. */
  Fragment held_as;
  /*! The reads that go there; all accesses where the statement writes the fragment. */
  std::vector<Array<Expr>> reads;
  bool is_written = false;

  bool IsSamePlace(const Var& v, const Fragment& layout) const {
    if (!fragment.same_as(v) || held_as.defined() != layout.defined()) return false;
    return !layout.defined() || IsSameLayout(held_as, layout);
  }
};

using StagedOf = std::unordered_map<const Object*, std::vector<Staged>>;

/*! The conversions by statement. If one access of a fragment needs the shared tile, all of the
 * statement's accesses of it go there. */
StagedOf ByStatement(const std::vector<Conversion>& conversions) {
  const auto is_tile = [&](const Conversion& one) {
    return AnyOf(conversions, [&](const Conversion& c) {
      return c.statement.same_as(one.statement) && c.fragment.same_as(one.fragment) &&
             !c.held_as.defined();
    });
  };
  StagedOf out;
  for (const Conversion& c : conversions) {
    std::vector<Staged>& list = out[c.statement.get()];
    const bool is_written = Contains(CollectBufferUse(c.statement).writes, c.fragment);
    const Fragment held_as = is_written || is_tile(c) ? Fragment() : c.held_as;
    auto it = FindIf(list, [&](const Staged& s) { return s.IsSamePlace(c.fragment, held_as); });
    if (it == list.end()) it = list.insert(list.end(), {c.fragment, held_as, {}, false});
    it->reads.push_back(c.indices);
    it->is_written |= is_written;
  }
  return out;
}

/*! Visits statements that may have conversions, and knows the loops around them that the same
 * threads run as often as the statement. */
class StagedVisitor : public StmtExprVisitor {
 protected:
  std::vector<const ForNode*> loops_;
  virtual void At(const StmtNode* op) = 0;

  void Visit_(const EvaluateNode* op) final { At(op); }
  void Visit_(const ForNode* op) final {
    At(op);
    loops_.push_back(op);
    Default(op);
    loops_.pop_back();
  }
  void Visit_(const AttrStmtNode* op) final { Apart(op); }
  void Visit_(const IfThenElseNode* op) final { Apart(op); }
  void Visit_(const WhileNode* op) final { Apart(op); }

 private:
  void Apart(const StmtNode* op) {
    std::vector<const ForNode*> around;
    std::swap(around, loops_);
    Default(op);
    std::swap(around, loops_);
  }
};

/*! Whether a statement works on a shared tile as well as on a fragment. */
bool TakesEither(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  if (!call) return s.as<ForNode>() != nullptr;
  return IsCallTo(call, kCopy) || IsCallTo(call, kFill);
}

/*! Moves a statement's conversions of a fragment that it writes to the outermost loop around it in
 * which all users of the fragment take a shared tile, too: the fragment is in shared memory during
 * the loop, and copied once. */
class LoopLifter : public StagedVisitor {
 public:
  LoopLifter(StagedOf* staged, const Views& views) : staged_(*staged), views_(views) {}

 protected:
  void At(const StmtNode* op) final {
    auto it = staged_.find(op);
    if (it == staged_.end()) return;
    for (const Staged& s : std::vector<Staged>(it->second)) {
      const ForNode* place = nullptr;
      for (size_t k = loops_.size(); k-- > 0 && MayMove(loops_[k], s.fragment);) place = loops_[k];
      if (!s.is_written || !place) continue;
      std::vector<Staged>& lifted = staged_[place];
      if (NoneOf(lifted, [&](const Staged& l) { return l.fragment.same_as(s.fragment); })) {
        lifted.push_back(s);
      }
    }
  }

 private:
  /*! The fragment has no other names here, and its users do not mind. */
  bool MayMove(const ForNode* loop, const Var& fragment) const {
    struct Users : StmtExprVisitor {
      const Views& views;
      Var fragment;
      bool all = true;
      Users(const Views& v, Var f) : views(v), fragment(std::move(f)) {}
      void Visit_(const ForNode* op) final {
        if (!OperatorOf(GetRef<Stmt>(op))) return Default(op);
        Check(op);
      }
      void Visit_(const EvaluateNode* op) final { Check(op); }
      void Check(const StmtNode* op) {
        const Stmt s = GetRef<Stmt>(op);
        const BufferUse use = CollectBufferUse(s);
        for (const auto* list : {&use.reads, &use.writes}) {
          for (const Var& v : *list) {
            if (!views.RootOf(v).same_as(views.RootOf(fragment))) continue;
            all = all && v.same_as(fragment) && TakesEither(s);
          }
        }
      }
    } users(views_, fragment);
    users(loop->body);
    return users.all;
  }

  StagedOf& staged_;
  const Views& views_;
};

/*! The outermost loop in front of which a fragment may be copied for a statement in it: the loop
 * does not write the fragment, and its threads are those of the statement. */
class CopyPlaces : public StagedVisitor {
 public:
  CopyPlaces(const StagedOf& staged, const Views& views) : staged_(staged), views_(views) {}
  /*! Loop -> fragments. */
  std::unordered_map<const Object*, std::vector<Staged>> before;

 protected:
  void At(const StmtNode* op) final {
    auto it = staged_.find(op);
    if (it == staged_.end()) return;
    for (const Staged& s : it->second) {
      const size_t depth = CopyDepth(loops_, s.fragment, views_);
      if (depth == loops_.size()) continue;
      // Tiles first: they serve those, too, who would take another fragment.
      std::vector<Staged>& list = before[loops_[depth]];
      list.insert(s.held_as.defined() ? list.end() : list.begin(), s);
    }
  }

 private:
  const StagedOf& staged_;
  const Views& views_;
};

/*! Puts a shared tile, or another fragment, in the place of a fragment's accesses. */
class AccessRewriter : public Substituter {
 public:
  AccessRewriter(const Staged& staged, const Var& tile) : staged_(staged) {
    map[staged.fragment.get()] = tile;
  }

 protected:
  using Substituter::Mutate_;
  Expr Mutate_(const TensorLoadNode* op) final {
    if (!op->source.same_as(staged_.fragment) || IsStaged(op->indices)) return Default<Expr>(op);
    return LoadOf(staged_.fragment, MutateArray(op->indices));
  }

 private:
  bool IsStaged(const Array<Expr>& indices) const {
    return staged_.is_written || AnyOf(staged_.reads, [&](const Array<Expr>& known) {
             return ffi::StructuralEqual()(known, indices);
           });
  }
  const Staged& staged_;
};

/*! The elements of a fragment that a nest surely writes: by stores under no condition, also in
 * loops of constant extents in it. */
class WrittenElements {
 public:
  WrittenElements(const ParallelNest& nest, Var fragment)
      : fragment_(std::move(fragment)),
        shape_(ConstShape(fragment_)),
        vars_(nest.vars),
        extents_(StaticExtents(nest)) {
    Add(nest.body);
  }
  bool AreAll() const { return int64_t(elements_.size()) == Product(shape_); }

 private:
  void Add(const Stmt& body) {
    for (const Stmt& part : FlatSeq(body)) {
      if (const auto* store = part.as<BufferStoreNode>()) AddStore(store);
      if (const auto* loop = part.as<ForNode>()) AddLoop(loop);
    }
  }
  void AddLoop(const ForNode* loop) {
    const auto extent = AsInt(loop->extent);
    if (!extent || *extent < 1 || !IsConst(loop->min, 0) || LeavesEarly(loop->body)) return;
    const Array<Var> around = vars_;
    vars_.push_back(loop->loop_var);
    extents_.push_back(*extent);
    Add(loop->body);
    vars_ = around;
    extents_.pop_back();
  }
  void AddStore(const BufferStoreNode* store) {
    if (!store->buffer.same_as(fragment_) || !ReadsOnly(store->indices, vars_)) return;
    const SharedTable table = EvaluateOverBox(store->indices, vars_, extents_);
    const std::vector<int64_t>& at = *table;
    for (size_t k = 0; k < at.size(); k += shape_.size()) {
      int64_t element = 0;
      for (size_t d = 0; d < shape_.size(); ++d) element = element * shape_[d] + at[k + d];
      elements_.insert(element);
    }
  }

  Var fragment_;
  std::vector<int64_t> shape_;
  Array<Var> vars_;
  std::vector<int64_t> extents_;
  std::unordered_set<int64_t> elements_;
};

/*! The statement surely writes all elements of the fragment, and reads none. */
bool WritesAll(const Stmt& s, const Var& fragment) {
  if (Contains(CollectBufferUse(s).reads, fragment)) return false;
  if (const CallNode* call = AsTileOp(s)) {
    return AnyOf(call->args, [&](const Expr& e) {
      const auto* region = e.as<TensorRegionNode>();
      return region && region->source.same_as(fragment) &&
             ffi::StructuralEqual()(TileRegion::From(e).Extents(), BufferOf(fragment)->shape);
    });
  }
  if (s.as<ForNode>()->kind != ForKind::kParallel) return false;
  return WrittenElements(NestOfLoop(s.as<ForNode>()), fragment).AreAll();
}

/*! What a kernel does to a fragment outside of one of its loops. */
class UseOutside : public StmtExprVisitor {
 public:
  UseOutside(const StmtNode* loop, const Var& fragment, const Views& views)
      : loop_(loop), root_(views.RootOf(fragment)), views_(views) {}
  bool reads = false, writes = false;

 protected:
  void Visit_(const ForNode* op) final {
    if (op == loop_) return;
    if (op->kind != ForKind::kParallel) return Default(op);
    Add(op);
  }
  void Visit_(const EvaluateNode* op) final { Add(op); }

 private:
  void Add(const StmtNode* op) {
    const auto is_it = [this](const Var& v) { return views_.RootOf(v).same_as(root_); };
    const BufferUse use = CollectBufferUse(GetRef<Stmt>(op));
    reads |= AnyOf(use.reads, is_it);
    writes |= AnyOf(use.writes, is_it);
  }
  const StmtNode* loop_;
  Var root_;
  const Views& views_;
};

class LayoutConverter : public StmtExprMutator {
 public:
  LayoutConverter(const Stmt& kernel, const StagedOf& staged, const CopyPlaces& places,
                  const Views& views, Array<String>* notes, HeldFragments* made)
      : kernel_(kernel),
        staged_(staged),
        places_(places),
        views_(views),
        notes_(notes),
        made_(made) {}

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    if (op->alloc_buffers.empty()) return Default<Stmt>(op);
    const SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    return WithBuffers(block, std::exchange(tiles_, {}));
  }
  Stmt Mutate_(const SeqStmtNode* op) final { return MakeSeq({Default<Stmt>(op)}); }
  Stmt Mutate_(const ForNode* op) final {
    if (auto staged = Convert(op)) return *staged;
    std::vector<Stmt> out;
    if (auto it = places_.before.find(op); it != places_.before.end()) {
      for (const Staged& s : it->second) FillTile(s, op->span, &out);
    }
    ++loops_;
    out.push_back(Scoped(op));
    --loops_;
    return MakeSeq(out);
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    if (auto staged = Convert(op)) return *staged;
    Forget(op);
    return GetRef<Stmt>(op);
  }
  Stmt Mutate_(const BufferStoreNode* op) final {
    Forget(op);
    return GetRef<Stmt>(op);
  }
  Stmt Mutate_(const AttrStmtNode* op) final { return Scoped(op); }
  Stmt Mutate_(const IfThenElseNode* op) final { return Scoped(op); }
  Stmt Mutate_(const WhileNode* op) final {
    ++loops_;
    Stmt s = Scoped(op);
    --loops_;
    return s;
  }

 private:
  /*! Tiles that are filled in control that may not run, or by other threads, are no use behind it;
   *  those that the control changes are none in it either. */
  Stmt Scoped(const StmtNode* op) {
    Forget(op);
    const auto outside = filled_;
    Stmt s = Default<Stmt>(op);
    filled_ = outside;
    return s;
  }

  /*! The fragments that a statement writes are no longer what their tiles have. */
  void Forget(const StmtNode* op) {
    for (const Var& written : CollectBufferUse(GetRef<Stmt>(op)).writes) {
      ForgetCopies(written, nullptr);
    }
  }

  /*! All copies of a fragment, but one. */
  void ForgetCopies(const Var& fragment, const Object* but) {
    const Var root = views_.RootOf(fragment);
    filled_.erase(std::remove_if(filled_.begin(), filled_.end(),
                                 [&](const Filled& f) {
                                   return views_.RootOf(f.what.fragment).same_as(root) &&
                                          f.tile.get() != but;
                                 }),
                  filled_.end());
  }

  std::optional<Stmt> Convert(const StmtNode* op) {
    auto it = staged_.find(op);
    if (it == staged_.end()) return std::nullopt;
    std::vector<Stmt> out, behind;
    Stmt s = GetRef<Stmt>(op);
    for (const Staged& staged : it->second) {
      const Var& v = staged.fragment;
      const auto [enters, leaves] = CrossesBorder(op, staged);
      if (!enters || (staged.is_written && WritesAll(s, v))) {
        ForgetCopies(v, nullptr);
        filled_.push_back({staged, NewTile(staged)});
      } else {
        FillTile(staged, op->span, &out);
      }
      const Var tile = *FindTile(staged);
      if (staged.is_written) ForgetCopies(v, tile.get());
      if (IsSerialLoop(op)) NoteResident(tile, v, op->span);
      const Stmt before = s;
      s = AccessRewriter(staged, tile).Mutate(s);
      if (s.same_as(before)) {
        ThrowBug(op->span, "ConvertLayouts",
                 "the statement has no such access of " + std::string(v->name));
      }
      if (staged.is_written && leaves) behind.push_back(Copy(tile, v, op->span));
    }
    out.push_back(s);
    Forget(s.get());
    AppendRange(&out, behind);
    return MakeSeq(out);
  }

  /*! Whether elements are there before the statement, and whether some are wanted behind it: a
   * fragment that is the tile during a loop may have no use outside. */
  std::pair<bool, bool> CrossesBorder(const StmtNode* op, const Staged& staged) const {
    if (!staged.is_written || loops_ || !IsSerialLoop(op)) return {true, true};
    UseOutside outside(op, staged.fragment, views_);
    outside(kernel_);
    return {outside.writes, outside.reads};
  }

  static bool IsSerialLoop(const StmtNode* op) {
    const auto* loop = GetRef<Stmt>(op).as<ForNode>();
    return loop && loop->kind != ForKind::kParallel;
  }

  void NoteResident(const Var& tile, const Var& fragment, const Span& span) {
    const int64_t bits = Product(ConstShape(tile)) * DTypeOf(tile).bits;
    notes_->push_back((span.defined() ? Where(span) + ": " : "") + std::string(fragment->name) +
                      ": in shared memory during the loop, " + std::to_string((bits + 7) / 8) +
                      " bytes, because its statements want elements of other threads");
  }

  /*! The copy of a fragment that is there, best in shared memory; nullopt if none. */
  std::optional<Var> FindTile(const Staged& what) const {
    for (const Fragment& place : {Fragment(), what.held_as}) {
      for (const Filled& f : filled_) {
        if (f.what.IsSamePlace(what.fragment, place)) return f.tile;
      }
    }
    return std::nullopt;
  }

  void FillTile(const Staged& what, const Span& span, std::vector<Stmt>* out) {
    if (FindTile(what)) return;
    const Var tile = NewTile(what);
    filled_.push_back({what, tile});
    out->push_back(Copy(what.fragment, tile, span));
  }

  Var NewTile(const Staged& what) {
    const BufferTypeNode* type = BufferOf(what.fragment);
    const bool in_shared = !what.held_as.defined();
    const std::string name = std::string(what.fragment->name) + (in_shared ? "_shared" : "_lanes");
    tiles_.push_back(MakeBuffer(name, type->dtype->dtype, type->shape,
                                in_shared ? "shared.dyn" : "local.fragment"));
    if (!in_shared) made_->emplace_back(tiles_.back(), what.held_as);
    return tiles_.back();
  }

  static Stmt Copy(const Var& from, const Var& to, const Span& span) {
    Call call = CallOp(kCopy, {TileRegion::Whole(from).ToExpr(), TileRegion::Whole(to).ToExpr()});
    call = WithChoice(call.get(), ChoiceOfThreads(from, to));
    return MakeEvaluate(WithTileOpAttr(call.get(), kConverts, int64_t(1)), span);
  }

  struct Filled {
    Staged what;
    Var tile;
  };
  const Stmt& kernel_;
  const StagedOf& staged_;
  const CopyPlaces& places_;
  const Views& views_;
  Array<String>* notes_;
  HeldFragments* made_;
  std::vector<Filled> filled_;
  std::vector<Var> tiles_;
  /*! How many loops are around. */
  int loops_ = 0;
};

}  // namespace

size_t CopyDepth(const std::vector<const ForNode*>& loops, const Var& fragment,
                 const Views& views) {
  const auto writes = [&](const ForNode* loop) {
    const BufferUse use = CollectBufferUse(GetRef<Stmt>(loop));
    return AnyOf(use.writes,
                 [&](const Var& v) { return views.RootOf(v).same_as(views.RootOf(fragment)); });
  };
  size_t depth = loops.size();
  while (depth > 0 && !writes(loops[depth - 1])) --depth;
  return depth;
}

Stmt ConvertLayouts(const Stmt& kernel, const std::vector<Conversion>& conversions,
                    Array<String>* notes, HeldFragments* made) {
  StagedOf staged = ByStatement(conversions);
  const Views views(kernel);
  LoopLifter(&staged, views)(kernel);
  CopyPlaces places(staged, views);
  places(kernel);
  return LayoutConverter(kernel, staged, places, views, notes, made).Mutate(kernel);
}

}  // namespace tl
