#include "pipeline_reads.h"

#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>

#include "../../analysis/effects.h"
#include "../../layout/int_program.h"
#include "../../op/gemm.h"
#include "../../op/intrinsics.h"
#include "../../op/parallel.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
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

bool IsSame(const TileRegion& a, const TileRegion& b) {
  if (!a.buffer.same_as(b.buffer)) return false;
  // An index that is read from memory may have changed between the two statements.
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

/*! Whether the iterations of a nest store to each element of the buffer. Each index has to be the
 * variable of a loop over the whole dimension, or 0 in a dimension of extent 1. */
bool StoresWhole(const ParallelNest& nest, const BufferStoreNode* store) {
  std::vector<size_t> used;
  const Array<Expr>& shape = BufferOf(store->buffer)->shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (IsConst(shape[d], 1) && IsConst(store->indices[d], 0)) continue;
    const auto loop = FindIf(nest.vars, [&](const Var& v) { return v.same_as(store->indices[d]); });
    const size_t k = loop - nest.vars.begin();
    if (loop == nest.vars.end() || std::count(used.begin(), used.end(), k)) return false;
    if (!Analyzer().CanProveEqual(nest.extents[k], shape[d])) return false;
    used.push_back(k);
  }
  return true;
}

/*! Elements of a buffer that statements certainly write. No element is counted for two of them. */
class Pieces {
 public:
  Pieces(const Var& buffer, const Views& views) : buffer_(buffer), views_(views) {
    for (const Expr& e : BufferOf(buffer)->shape) {
      known_ = known_ && AsInt(e);
      shape_.push_back(known_ ? ToInt(e) : 0);
    }
    known_ = known_ && Product(shape_) <= kMostElements;
    if (known_) written_.resize(Product(shape_));
  }

  /*! Adds what a statement writes. False if that is not known, or if an earlier statement writes
   * one of these elements. */
  bool Add(const Stmt& s) {
    if (!known_) return false;
    if (const CallNode* call = AsTileOp(s)) {
      const std::vector<TileRegion> regions = RegionsOf(call, buffer_, views_);
      const auto box = regions.size() == 1 ? BoxOf(regions[0]) : std::nullopt;
      return box && Visit(*box, [&](int64_t k) { return Take(k); });
    }
    const auto* loop = s.as<ForNode>();
    return loop && loop->kind == ForKind::kParallel && AddNest(InlinedNestOfLoop(loop, views_));
  }

  bool IsWhole() const {
    return known_ && AllOf(written_, [](bool w) { return w; });
  }

  /*! Whether the statements write all that an operator reads of the buffer. */
  bool Supplies(const CallNode* reader) const {
    const std::vector<TileRegion> regions = RegionsOf(reader, buffer_, views_);
    return known_ && AllOf(regions, [&](const TileRegion& r) {
             const auto box = BoxOf(r);
             return box && Visit(*box, [&](int64_t k) { return bool(written_[k]); });
           });
  }

 private:
  static constexpr int64_t kMostElements = 1 << 18;
  struct Box {
    std::vector<int64_t> min, extent;
  };

  std::optional<Box> BoxOf(const TileRegion& r) const {
    if (!r.buffer.same_as(buffer_)) return std::nullopt;
    Box box;
    for (size_t d = 0; d < shape_.size(); ++d) {
      const auto min = AsInt(Analyzer().Simplify(r.ranges[d]->min));
      const auto extent = AsInt(Analyzer().Simplify(r.ranges[d]->extent));
      if (!min || !extent || *min < 0 || *min + *extent > shape_[d]) return std::nullopt;
      box.min.push_back(*min);
      box.extent.push_back(*extent);
    }
    return box;
  }

  /*! Calls `visit` with the number of each element of a box until it returns false. */
  template <typename F>
  bool Visit(const Box& box, F visit) const {
    const int64_t count = Product(box.extent);
    for (int64_t k = 0; k < count; ++k) {
      int64_t rest = k, element = 0, stride = 1;
      for (size_t d = shape_.size(); d-- > 0;) {
        element += (box.min[d] + rest % box.extent[d]) * stride;
        rest /= box.extent[d];
        stride *= shape_[d];
      }
      if (!visit(element)) return false;
    }
    return true;
  }

  bool Take(int64_t element) {
    if (written_[element]) return false;
    return written_[element] = true;
  }

  /*! Adds a nest of one statement that stores to another element in each iteration. */
  bool AddNest(const ParallelNest& nest) {
    const auto* store = nest.body.as<BufferStoreNode>();
    if (!store || !store->buffer.same_as(buffer_) || !ReadsOnly(store->indices, nest.vars)) {
      return false;
    }
    std::vector<int64_t> extents;
    for (const Expr& e : nest.extents) {
      if (!AsInt(e)) return false;
      extents.push_back(ToInt(e));
    }
    if (Product(extents) > kMostElements) return false;
    const SharedTable table = EvaluateOverBox(store->indices, nest.vars, extents);
    const std::vector<int64_t>& at = *table;
    for (size_t k = 0; k < at.size(); k += shape_.size()) {
      int64_t element = 0;
      for (size_t d = 0; d < shape_.size(); ++d) {
        if (at[k + d] < 0 || at[k + d] >= shape_[d]) return false;
        element = element * shape_[d] + at[k + d];
      }
      if (!Take(element)) return false;
    }
    return true;
  }

  const Var& buffer_;
  const Views& views_;
  bool known_ = true;
  std::vector<int64_t> shape_;
  std::vector<bool> written_;
};

class OutsideReads : public StmtExprVisitor {
 public:
  OutsideReads(const ForNode* loop, const Views& views) : loop_(loop), views_(views) {}
  std::vector<Var> reads;

 protected:
  void Visit_(const AttrStmtNode* op) final {
    // Another range may read at the same time: what was filled in front says nothing.
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
  /*! Visits a body that may not run. Behind it, what it fills does not count as filled. */
  void Inside(const StmtNode* op) {
    // In a loop around loop_, loop_ may have run before the body starts again.
    if (Encloses(op)) filled_.clear();
    const std::vector<Var> before = filled_;
    Default(op);
    filled_ = before;
  }

  bool Encloses(const StmtNode* outer) const {
    return HasNode<ForNode>(GetRef<Stmt>(outer),
                            [&](const ForNode* f) { return f->loop_var.same_as(loop_->loop_var); });
  }

  void Add(const Var& v) {
    if (!Contains(reads, v) && !Contains(filled_, v)) reads.push_back(v);
  }

  const ForNode* loop_;
  const Views& views_;
  /*! Buffers that every path from the loop to here has overwritten. */
  std::vector<Var> filled_;
};

/*! Whether two statements stand under the same condition, and its value is the same for both. */
bool HaveOneCondition(const std::vector<Stmt>& body, size_t a, size_t b, const Views& views) {
  const Expr first = SplitGuard(body[a]).condition, second = SplitGuard(body[b]).condition;
  if (!first.defined() || !second.defined() || !ffi::StructuralEqual()(first, second)) return false;
  if (WritesMemory(first)) return false;
  const std::vector<Var> asked = views.UseOf(MakeEvaluate(first, Span())).reads;
  for (size_t i = std::min(a, b); i <= std::max(a, b); ++i) {
    for (const Var& v : views.UseOf(body[i]).writes) {
      if (Contains(asked, v)) return false;
    }
  }
  return true;
}

/*! The load of the buffer that one elected thread issues; undefined if the statement has none. */
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
    return AnyOf(regions, [](const TileRegion& r) { return r.IsWhole(); });
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

namespace {

bool SuppliesAlone(const std::vector<Stmt>& body, size_t writer, size_t reader, const Var& buffer,
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
  return written.size() == 1 &&
         AllOf(read, [&](const TileRegion& r) { return IsSame(r, written[0]); });
}

/*! Whether the writers in front of the reader write, together, all that it reads. */
bool SupplyInPieces(const std::vector<Stmt>& body, const std::vector<size_t>& writers,
                    size_t reader, const Var& buffer, const Views& views) {
  Pieces pieces(buffer, views);
  bool shared_condition = true;
  for (size_t w : writers) {
    const bool same = HaveOneCondition(body, w, reader, views);
    shared_condition = shared_condition && same;
    pieces.Add(same ? SplitGuard(body[w]).body : body[w]);
  }
  if (pieces.IsWhole()) return true;
  const CallNode* user = AsTileOp(shared_condition ? SplitGuard(body[reader]).body : body[reader]);
  return user && pieces.Supplies(user);
}

}  // namespace

bool IsSupplied(const std::vector<Stmt>& body, size_t reader, const Var& buffer,
                const Views& views) {
  std::vector<size_t> writers;
  for (size_t w = 0; w < reader; ++w) {
    if (!Contains(views.UseOf(body[w]).writes, buffer)) continue;
    if (SuppliesAlone(body, w, reader, buffer, views)) return true;
    writers.push_back(w);
  }
  return !writers.empty() && SupplyInPieces(body, writers, reader, buffer, views);
}

bool WriteApart(const std::vector<Stmt>& body, const Var& buffer, const Views& views) {
  Pieces pieces(buffer, views);
  return AllOf(body, [&](const Stmt& s) {
    return !Contains(views.UseOf(s).writes, buffer) || pieces.Add(SplitGuard(s).body);
  });
}

std::vector<Var> ReadsOutside(const Stmt& function_body, const ForNode* loop, const Views& views) {
  OutsideReads outside(loop, views);
  outside(function_body);
  return outside.reads;
}

}  // namespace tl
