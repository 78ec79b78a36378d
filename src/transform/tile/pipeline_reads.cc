#include "pipeline_reads.h"

#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>

#include "../../op/intrinsics.h"
#include "../../op/parallel.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/functor.h"
#include "../thread/effects.h"
#include "pipeline.h"
#include "pipeline_bindings.h"

namespace tl {
namespace {

/*! The regions of a buffer's memory among the operands of a tile operator. */
std::vector<TileRegion> RegionsOf(const CallNode* call, const Var& buffer, const Views& views) {
  std::vector<TileRegion> regions;
  for (const Expr& arg : call->args) {
    if (!arg.as<TensorRegionNode>()) continue;
    const TileRegion region = TileRegion::From(arg);
    if (views.RootOf(region.buffer).same_as(buffer)) regions.push_back(region);
  }
  return regions;
}

bool IsWhole(const TileRegion& region) {
  Analyzer analyzer;
  const Array<Expr>& shape = BufferOf(region.buffer)->shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!IsConst(region.ranges[d]->min, 0)) return false;
    if (!analyzer.CanProveEqual(region.ranges[d]->extent, shape[d])) return false;
  }
  return true;
}

bool IsSame(const TileRegion& a, const TileRegion& b) {
  if (!a.buffer.same_as(b.buffer)) return false;
  // What is read from memory may be another value at the second statement.
  for (const Range& r : a.ranges) {
    if (!IsPureInteger(r->min)) return false;
  }
  Analyzer analyzer;
  for (size_t d = 0; d < a.ranges.size(); ++d) {
    if (!analyzer.CanProveEqual(a.ranges[d]->min, b.ranges[d]->min)) return false;
    if (!analyzer.CanProveEqual(a.ranges[d]->extent, b.ranges[d]->extent)) return false;
  }
  return true;
}

/*! The iterations of a nest store to each element: every index is a loop's variable over the whole
 * dimension, or the only one that there is. */
bool StoresWhole(const ParallelNest& nest, const BufferStoreNode* store) {
  std::vector<size_t> used;
  const Array<Expr>& shape = BufferOf(store->buffer)->shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (IsConst(shape[d], 1) && IsConst(store->indices[d], 0)) continue;
    const auto loop = std::find_if(nest.vars.begin(), nest.vars.end(),
                                   [&](const Var& v) { return v.same_as(store->indices[d]); });
    const size_t k = loop - nest.vars.begin();
    if (loop == nest.vars.end() || std::count(used.begin(), used.end(), k)) return false;
    if (!Analyzer().CanProveEqual(nest.extents[k], shape[d])) return false;
    used.push_back(k);
  }
  return true;
}

class OutsideReads : public StmtExprVisitor {
 public:
  OutsideReads(const ForNode* loop, const Views& views) : loop_(loop), views_(views) {}
  std::vector<Var> reads;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const AttrStmtNode* op) final {
    // Ranges of threads run at the same time, whatever is filled in front of them.
    if (op->attr_key == kThreadRange) filled_.clear();
    Default(op);
  }
  void Visit_(const ForNode* op) final {
    if (op->loop_var.same_as(loop_->loop_var)) {
      filled_.clear();
    } else {
      Inside(op);
    }
  }
  void Visit_(const WhileNode* op) final { Inside(op); }
  void Visit_(const IfThenElseNode* op) final { Inside(op); }
  void Visit_(const SeqStmtNode* op) final {
    for (const Stmt& s : op->seq) {
      Visit(s);
      for (const Var& v : views_.UseOf(s).writes) {
        if (Overwrites(s, v, views_)) filled_.push_back(v);
      }
    }
  }
  void Visit_(const EvaluateNode* op) final {
    for (const Var& v : views_.UseOf(GetRef<Stmt>(op)).reads) Add(v);
  }
  void Visit_(const TensorLoadNode* op) final {
    Add(views_.RootOf(op->source.as_or_throw<Var>()));
    Default(op);
  }

 private:
  /*! A body that may not run: what it fills is filled inside of it only. */
  void Inside(const StmtNode* op) {
    // The loop of interest may have run before the body starts again.
    if (Encloses(op)) filled_.clear();
    const std::vector<Var> before = filled_;
    Default(op);
    filled_ = before;
  }

  bool Encloses(const StmtNode* outer) const {
    struct Finder : StmtExprVisitor {
      const ForNode* wanted;
      bool found = false;
      using StmtExprVisitor::Visit_;
      void Visit_(const ForNode* f) final {
        found |= f->loop_var.same_as(wanted->loop_var);
        Default(f);
      }
    } finder;
    finder.wanted = loop_;
    finder(GetRef<Stmt>(outer));
    return finder.found;
  }

  void Add(const Var& v) {
    if (!Contains(reads, v) && !Contains(filled_, v)) reads.push_back(v);
  }

  const ForNode* loop_;
  const Views& views_;
  /*! Buffers overwritten since the loop, on every path to here. */
  std::vector<Var> filled_;
};

/*! Two statements run under one condition, whose value is the same for both. */
bool HaveOneCondition(const std::vector<Stmt>& body, size_t a, size_t b, const Views& views) {
  const Expr first = SplitGuard(body[a]).condition, second = SplitGuard(body[b]).condition;
  if (!first.defined() || !second.defined() || !ffi::StructuralEqual()(first, second)) return false;
  if (HasEffect(first)) return false;
  const std::vector<Var> asked = views.UseOf(MakeEvaluate(first, Span())).reads;
  for (size_t i = std::min(a, b); i <= std::max(a, b); ++i) {
    for (const Var& v : views.UseOf(body[i]).writes) {
      if (Contains(asked, v)) return false;
    }
  }
  return true;
}

/*! The load into the buffer that one thread issues for all; undefined for other statements. */
Stmt ElectedLoadOf(const Stmt& s, const Var& buffer, const Views& views) {
  for (const Stmt& piece : FlatSeq(SplitGuard(s).body)) {
    const CallNode* call = AsTileOp(piece);
    if (call && TileOpIntAttr(call, kElected, 0) && Contains(views.UseOf(piece).writes, buffer)) {
      return piece;
    }
  }
  return Stmt();
}

}  // namespace

bool Overwrites(const Stmt& s, const Var& buffer, const Views& views) {
  if (const CallNode* call = AsTileOp(s)) {
    const BufferUse use = views.UseOf(s);
    if (!Contains(use.writes, buffer) || Contains(use.reads, buffer)) return false;
    const std::vector<TileRegion> regions = RegionsOf(call, buffer, views);
    return std::any_of(regions.begin(), regions.end(), IsWhole);
  }
  const auto* loop = s.as<ForNode>();
  if (!loop || loop->kind != ForKind::kParallel) return false;
  const ParallelNest nest = NestOfLoop(loop);
  for (const Stmt& t : FlatSeq(nest.body)) {
    const auto* store = t.as<BufferStoreNode>();
    if (store && views.RootOf(store->buffer).same_as(buffer) && StoresWhole(nest, store)) {
      return true;
    }
  }
  return false;
}

bool Supplies(const std::vector<Stmt>& body, size_t writer, size_t reader, const Var& buffer,
              const Views& views) {
  const bool shared_condition = HaveOneCondition(body, writer, reader, views);
  const Stmt elected = ElectedLoadOf(body[writer], buffer, views);
  const Stmt from = elected.defined()  ? elected
                    : shared_condition ? SplitGuard(body[writer]).body
                                       : body[writer];
  const Stmt to = shared_condition ? SplitGuard(body[reader]).body : body[reader];
  if (Overwrites(from, buffer, views)) return true;
  const CallNode *copy = AsTileOp(from), *user = AsTileOp(to);
  if (!copy || !user) return false;
  const std::vector<TileRegion> written = RegionsOf(copy, buffer, views);
  const std::vector<TileRegion> read = RegionsOf(user, buffer, views);
  return written.size() == 1 && std::all_of(read.begin(), read.end(), [&](const TileRegion& r) {
           return IsSame(r, written[0]);
         });
}

std::vector<Var> ReadsOutside(const Stmt& function_body, const ForNode* loop, const Views& views) {
  OutsideReads outside(loop, views);
  outside(function_body);
  return outside.reads;
}

}  // namespace tl
