/*!
 * T.cumsum, T.cummax: running sums and maxima along one dimension of a tile in shared memory, in
 * place or to a second tile. Where there are lines enough for all threads, or they are short, a
 * thread takes a line, and so it does where a warp's lanes have lines side by side: elements of
 * such a line are rows apart, in the same bank. Else a warp takes a line, a vector of lanes at a
 * time with a carry between them, and a lane as many elements as one access of memory has. So one
 * line keeps one warp busy, whatever the block has: to share it out would take memory for the sums
 * of its parts, and two barriers. A program with a long line scans the rows of a matrix, and then
 * their sums.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include "../target/access_width.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"
#include "block_reduce.h"
#include "intrinsics.h"
#include "loop_layout.h"

namespace tl {
namespace {

/*! A line of fewer elements keeps fewer lanes busy than a thread alone would waste. */
constexpr int64_t kShortLine = 8;

/*! A tile with several versions has one dimension of extent 1 more in front than its program
 * says, and the other tile may have none: coordinates are those that both have, the last ones. */
struct ScanOp {
  TileRegion src, dst;
  Reduction reduction;
  size_t dim;
  std::vector<int64_t> shape;
  bool reverse;
  Span span;
};

/*! Gives the starts of regions that are read from memory names. What is bound in front of a loop
 * has one value in it, which is how `SharedConflict` knows one thread's lines from another's; and
 * a scan in place may write where its start was read. */
class StartNames {
 public:
  explicit StartNames(const Span& span) : span_(span) {}
  std::vector<Stmt> bindings;

  TileRegion Of(TileRegion region) {
    region.ranges = region.ranges.Map([this](const Range& range) {
      return IsRead(range->min) ? MakeRange(NameOf(range->min), range->extent) : range;
    });
    return region;
  }

 private:
  static bool IsRead(const Expr& start) {
    const auto any = [](const auto*) { return true; };
    return HasNode<TensorLoadNode>(start, any) || HasNode<CallNode>(start, any);
  }
  Expr NameOf(const Expr& start) {
    for (const auto& [value, name] : names_) {
      if (ffi::StructuralEqual()(value, start)) return name;
    }
    names_.emplace_back(start, MakeVar("start", start->dtype()));
    bindings.push_back(MakeBind(names_.back().second, start, span_));
    return names_.back().second;
  }

  Span span_;
  std::vector<std::pair<Expr, Var>> names_;
};

class ScanEmitter {
 public:
  ScanEmitter(const ScanOp& op, LoweringScope* scope) : op_(op), scope_(scope), starts_(op.span) {
    op_.src = starts_.Of(op_.src);
    op_.dst = starts_.Of(op_.dst);
    length_ = op.shape[op.dim];
    lines_ = Product(op.shape) / length_;
    type_ = DTypeOf(op.dst.buffer);
    carry_ = MakeBuffer("carry", type_, {MakeInt(1)}, "local");
  }

  Stmt Emit() {
    const bool side_by_side =
        op_.dim + 1 < op_.shape.size() && op_.shape.back() >= scope_->target->warp_threads;
    const bool by_thread = lines_ >= scope_->num_threads || length_ <= kShortLine || side_by_side;
    const int64_t lanes =
        by_thread ? 1 : std::min(scope_->target->warp_threads, scope_->num_threads);
    const int64_t workers = scope_->num_threads / lanes;
    const Expr worker = FloorDivOf(scope_->thread, lanes);
    Var step = MakeVar("l");
    const int64_t steps = (lines_ + workers - 1) / workers;
    scope_->analyzer->BindConst(step, steps);
    const Expr line = step * workers + worker;
    Stmt body = by_thread ? ByThread(line) : ByWarp(line, lanes);
    body = MakeSeq({StoreCarry(op_.reduction.Identity(type_)), body});
    // Threads left over from whole warps have no line of their own. Two conditions, because one
    // that reads the loop says nothing of threads where the loop does not matter.
    const Expr is_worker = scope_->analyzer->Simplify(worker < MakeInt(workers));
    scope_->analyzer->WithConstraint(is_worker, [&] {
      body = MakeIf(scope_->analyzer->Simplify(line < MakeInt(lines_)), body, op_.span);
    });
    body = MakeIf(is_worker, body, op_.span);
    body = steps == 1 ? Substitute(body, step, MakeInt(0))
                      : Stmt(MakeFor(step, MakeInt(steps), ForKind::kSerial, body, op_.span));
    // One thread alone touches an element: it is written where it was read, or in a part that
    // nothing is read from (VerifyParallelLoop).
    body = MakeAttr(MakeInt(0), kIndependentNest, MakeInt(kProvedNest), body);
    std::vector<Stmt> all = starts_.bindings;
    all.insert(all.end(), {MakeAlloc(carry_), body});
    return scope_->PlaceAccesses(MakeSeq(all));
  }

 private:
  Expr Carry() const { return LoadOf(carry_, {MakeInt(0)}); }
  Stmt StoreCarry(const Expr& value) const {
    return MakeStore(carry_, value, {MakeInt(0)}, op_.span);
  }

  /*! An element of a region: the line's other coordinates, and the position in scan order. */
  Array<Expr> At(const TileRegion& r, const Expr& line, const Expr& position) const {
    const size_t versions = r.ranges.size() - op_.shape.size();
    std::vector<Expr> at;
    for (const Range& range : r.ranges) at.push_back(range->min);
    Expr rest = line;
    for (size_t d = op_.shape.size(); d-- > 0;) {
      Expr inside = op_.reverse ? MakeInt(length_ - 1) - position : position;
      if (d != op_.dim) {
        inside = FloorModOf(rest, op_.shape[d]);
        rest = FloorDivOf(rest, op_.shape[d]);
      }
      at[versions + d] = scope_->analyzer->Simplify(at[versions + d] + inside);
    }
    return Array<Expr>(at.begin(), at.end());
  }

  Expr Element(const Expr& line, const Expr& position) const {
    return op_.reduction.Contribution(LoadOf(op_.src.buffer, At(op_.src, line, position)), type_);
  }
  Stmt Deliver(const Expr& line, const Expr& position) const {
    return MakeStore(op_.dst.buffer, Carry(), At(op_.dst, line, position), op_.span);
  }

  Stmt ByThread(const Expr& line) const {
    Var p = MakeVar("p");
    scope_->analyzer->BindConst(p, length_);
    const Stmt body =
        MakeSeq({StoreCarry(op_.reduction.Combine(Carry(), Element(line, p))), Deliver(line, p)});
    return MakeFor(p, MakeInt(length_), ForKind::kSerial, body, op_.span);
  }

  /*! Elements that a lane takes at a time: as many as an access of its memory has, if they lie side
   * by side there and leave no lane without any. */
  int64_t ElementsOfLane(int64_t lanes) const {
    if (op_.dim + 1 < op_.shape.size() || lanes < scope_->target->warp_threads) return 1;
    const int bits = std::max(type_.bits, DTypeOf(op_.src.buffer).bits);
    int64_t elements = std::max(1, kMaxInstructionBits / bits);
    while (elements > 1 && (length_ % elements || lanes * elements > length_)) elements /= 2;
    return elements;
  }

  /*! A lane sums up its elements, the lanes scan these sums, and each element has what is in front
   * of its lane added: five shuffles for all of a vector's elements, not for each. */
  Stmt ByVectors(const Expr& line, int64_t lanes, int64_t elements) const {
    const Var p = MakeVar("p"), k = MakeVar("k");
    const Var own = MakeBuffer("own", type_, {MakeInt(elements)}, "local");
    const Var behind = MakeBuffer("behind", type_, {MakeInt(1)}, "local");
    const Var in_front = MakeBuffer("in_front", type_, {MakeInt(1)}, "local");
    const int64_t vectors = (length_ + lanes * elements - 1) / (lanes * elements);
    scope_->analyzer->BindConst(p, vectors);
    scope_->analyzer->BindConst(k, elements);
    const Expr lane = FloorModOf(scope_->thread, lanes);
    const Expr first = (p * lanes + lane) * elements;
    const Expr position = first + (op_.reverse ? MakeInt(elements - 1) - k : Expr(k));
    const Expr inside = scope_->analyzer->Simplify(first < MakeInt(length_));
    const auto place = [&](int64_t n) { return MakeInt(op_.reverse ? elements - 1 - n : n); };
    const auto each = [&](const Stmt& body) {
      return MakeFor(k, MakeInt(elements), ForKind::kVectorized, body, op_.span);
    };
    const auto of_lanes = [&](const Expr& value) {
      return CallOp(kWarpScan, {StringOf(op_.reduction.DeviceName()), MakeInt(lanes), value},
                    PrimTy(type_));
    };
    const Expr element =
        IfThenElseOf(inside, Element(line, position), op_.reduction.Identity(type_));
    std::vector<Stmt> body = {MakeAlloc(own), MakeAlloc(behind), MakeAlloc(in_front),
                              each(MakeStore(own, element, {k}, op_.span))};
    for (int64_t n = 1; n < elements; ++n) {
      const Expr sum = op_.reduction.Combine(LoadOf(own, {place(n - 1)}), LoadOf(own, {place(n)}));
      body.push_back(MakeStore(own, sum, {place(n)}, op_.span));
    }
    const Expr last = LoadOf(own, {place(elements - 1)});
    body.push_back(
        MakeStore(behind, op_.reduction.Combine(Carry(), of_lanes(last)), {MakeInt(0)}, op_.span));
    const Expr sums = LoadOf(behind, {MakeInt(0)});
    const Expr mask = lanes == 32 ? MakeInt(DLDataType{kDLUInt, 32, 1}, 0xffffffff)
                                  : MakeInt(DLDataType{kDLUInt, 64, 1}, -1);
    const Expr before =
        CallOp(kShuffleUpSync, {mask, sums, MakeInt(1), MakeInt(lanes)}, PrimTy(type_));
    body.push_back(MakeStore(in_front, before, {MakeInt(0)}, op_.span));
    body.push_back(MakeIf(EqualOf(lane, MakeInt(0)),
                          MakeStore(in_front, Carry(), {MakeInt(0)}, op_.span), op_.span));
    body.push_back(MakeIf(
        inside,
        each(MakeStore(op_.dst.buffer,
                       op_.reduction.Combine(LoadOf(in_front, {MakeInt(0)}), LoadOf(own, {k})),
                       At(op_.dst, line, position), op_.span)),
        op_.span));
    if (vectors == 1) return Substitute(MakeSeq(body), p, MakeInt(0));
    body.push_back(StoreCarry(CallOp(kWarpBroadcast, {MakeInt(lanes - 1), sums}, PrimTy(type_))));
    return MakeFor(p, MakeInt(vectors), ForKind::kSerial, MakeSeq(body), op_.span);
  }

  Stmt ByWarp(const Expr& line, int64_t lanes) const {
    const int64_t elements = ElementsOfLane(lanes);
    if (elements > 1) return ByVectors(line, lanes, elements);
    Var p = MakeVar("p");
    const int64_t vectors = (length_ + lanes - 1) / lanes;
    scope_->analyzer->BindConst(p, vectors);
    const Expr position = p * lanes + FloorModOf(scope_->thread, lanes);
    const Expr inside = scope_->analyzer->Simplify(position < MakeInt(length_));
    const Expr element =
        IfThenElseOf(inside, Element(line, position), op_.reduction.Identity(type_));
    const Expr scanned = CallOp(
        kWarpScan, {StringOf(op_.reduction.DeviceName()), MakeInt(lanes), element}, PrimTy(type_));
    std::vector<Stmt> body = {StoreCarry(op_.reduction.Combine(Carry(), scanned)),
                              MakeIf(inside, Deliver(line, position), op_.span)};
    if (vectors == 1) return Substitute(MakeSeq(body), p, MakeInt(0));
    body.push_back(
        StoreCarry(CallOp(kWarpBroadcast, {MakeInt(lanes - 1), Carry()}, PrimTy(type_))));
    return MakeFor(p, MakeInt(vectors), ForKind::kSerial, MakeSeq(body), op_.span);
  }

  ScanOp op_;
  LoweringScope* scope_;
  StartNames starts_;
  int64_t length_, lines_;
  DLDataType type_;
  Var carry_;
};

class ScanOperator : public TileOperator {
 public:
  explicit ScanOperator(ScanOp op) : TileOperator(op.span), op_(std::move(op)) {}

  BufferUse Use() const final { return {{op_.src.buffer}, {op_.dst.buffer}}; }
  bool Infer(LayoutScope*, InferLevel) final { return false; }
  Stmt Lower(LoweringScope* scope) const final { return ScanEmitter(op_, scope).Emit(); }

 private:
  ScanOp op_;
};

std::unique_ptr<TileOperator> MakeScan(const CallNode* call, const Span& span) {
  ScanOp op;
  op.src = TileRegion::From(call->args[0]);
  op.dst = TileRegion::From(call->args[1]);
  op.reduction = Reduction::Named(ToString(call->args[2]), false);
  const bool by_src = op.src.ranges.size() < op.dst.ranges.size();
  for (const Expr& e : (by_src ? op.src : op.dst).Extents()) op.shape.push_back(ToInt(e));
  op.dim = static_cast<size_t>(ToInt(call->args[3]) + static_cast<int64_t>(op.shape.size()));
  op.reverse = ToInt(call->args[4]) != 0;
  op.span = span;
  return std::make_unique<ScanOperator>(std::move(op));
}

OperatorRegistration scan_registration(kScan, "tl.scan", MakeScan);

}  // namespace
}  // namespace tl
