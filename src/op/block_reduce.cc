#include "block_reduce.h"

#include "../tvm/attrs.h"
#include "../tvm/functor.h"
#include "intrinsics.h"

namespace tl {
namespace {

struct BitRun {
  int low, count;
};

std::vector<BitRun> BitRunsOf(int64_t bits) {
  std::vector<BitRun> runs;
  for (int b = 0; bits >> b; ++b) {
    if (!(bits >> b & 1)) continue;
    if (!runs.empty() && runs.back().low + runs.back().count == b) {
      ++runs.back().count;
    } else {
      runs.push_back({b, 1});
    }
  }
  return runs;
}

Expr BitsAt(const Expr& x, BitRun run) {
  return FloorModOf(FloorDivOf(x, int64_t(1) << run.low), int64_t(1) << run.count);
}

/*! The chosen bits of x, moved together. */
Expr Gather(const Expr& x, int64_t bits) {
  Expr out = MakeInt(0);
  int position = 0;
  for (const BitRun& run : BitRunsOf(bits)) {
    out = out + BitsAt(x, run) * (int64_t(1) << position);
    position += run.count;
  }
  return out;
}

int64_t Combinations(int64_t bits) {
  int64_t n = 1;
  for (; bits; bits &= bits - 1) n *= 2;
  return n;
}

/*! Whether threads whose numbers differ in `bits` alone are all below `num_threads`, or none is. */
bool HasWholeGroups(int64_t bits, int64_t num_threads, int64_t warp_threads) {
  for (int64_t t = num_threads / warp_threads * warp_threads; t < num_threads; ++t) {
    if ((t | bits) >= num_threads) return false;
  }
  return true;
}

}  // namespace

ThreadGroups ThreadGroups::DifferingIn(int64_t bits, const Expr& thread, int64_t num_threads,
                                       int64_t warp_threads) {
  ThreadGroups out;
  int64_t all = 1;
  while (all < num_threads) all *= 2;
  const int64_t in_warp = bits & (warp_threads - 1);
  out.leads = MakeInt(kBool, 1);
  for (const BitRun& run : BitRunsOf(in_warp)) {
    const int64_t count = int64_t(1) << run.count, scale = int64_t(1) << run.low;
    out.butterflies.push_back(
        {count, scale, HasWholeGroups((count - 1) * scale, num_threads, warp_threads)});
    out.leads = out.leads && EqualOf(BitsAt(thread, run), MakeInt(0));
  }
  const int64_t across = bits & ~in_warp, others = (all - 1) & ~bits;
  out.group = Gather(thread, others);
  out.part = Gather(thread, across);
  out.complete = MakeInt(kBool, 1);
  if (all > num_threads) {
    Expr last = thread;
    for (const BitRun& run : BitRunsOf(across)) {
      const Expr above = MakeInt((int64_t(1) << run.count) - 1) - BitsAt(thread, run);
      last = last + above * (int64_t(1) << run.low);
    }
    out.complete = last < MakeInt(num_threads);
  }
  out.num_groups = Combinations(others);
  out.num_parts = Combinations(across);
  return out;
}

ThreadGroups ThreadGroups::WholeBlock(const Expr& thread, int64_t num_threads,
                                      int64_t warp_threads) {
  ThreadGroups out;
  out.group = MakeInt(0);
  out.complete = MakeInt(kBool, 1);
  if (num_threads % warp_threads == 0) {
    out.butterflies = {{warp_threads, 1}};
    out.leads = EqualOf(FloorModOf(thread, warp_threads), MakeInt(0));
    out.part = FloorDivOf(thread, warp_threads);
    out.num_parts = num_threads / warp_threads;
  } else {
    out.leads = MakeInt(kBool, 1);
    out.part = thread;
    out.num_parts = num_threads;
  }
  return out;
}

/*! From so many parts on, the lanes of a warp take one each and shuffle: a thread that reads all of
 *  them waits for a chain of as many operations. */
constexpr int64_t kPartsForLanes = 16;

/*! Whether each warp is of one group whose parts are no more than its lanes: a power of two. */
bool HasLaneForEachPart(const ThreadGroups& groups, int64_t warp_threads) {
  const int64_t parts = groups.num_parts;
  const bool whole_warps = groups.butterflies.size() == 1 && groups.butterflies[0].whole &&
                           groups.butterflies[0].threads == warp_threads;
  return whole_warps && IsConst(groups.complete, 1) && parts >= kPartsForLanes &&
         parts <= warp_threads && (parts & (parts - 1)) == 0;
}

/*! Operations that combine the parts of a result in straight-line code. */
constexpr int64_t kMaxUnrolled = 256;

Stmt UnrolledFor(const Var& v, int64_t extent, const Stmt& body, const Span& span) {
  if (extent == 1) return Substitute(body, v, MakeInt(0));
  return MakeFor(v, MakeInt(extent), ForKind::kUnrolled, body, span);
}

Array<Expr> CoordinatesOf(const Var& buffer, const Expr& flat) {
  const std::vector<int64_t> shape = ConstShape(buffer);
  std::vector<Expr> at(shape.size(), Expr());
  Expr rest = flat;
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = d ? FloorModOf(rest, shape[d]) : rest;
    rest = FloorDivOf(rest, shape[d]);
  }
  return Array<Expr>(at.begin(), at.end());
}

Stmt CombineOverGroups(const ThreadGroups& groups, const Reduction& reduction, const Var& values,
                       const Var& results, const std::string& name, LoweringScope* scope,
                       const Span& span) {
  const DLDataType t = DTypeOf(values);
  const int64_t count = Product(ConstShape(values)), warp = scope->target->warp_threads;
  auto element = [&](const Var& of, const Expr& k) { return LoadOf(of, CoordinatesOf(of, k)); };
  auto set = [&](const Var& of, const Expr& k, const Expr& value) {
    return MakeStore(of, value, CoordinatesOf(of, k), span);
  };
  std::vector<Stmt> out;
  auto over_lanes = [&](const ThreadGroups::Butterfly& b, const Expr& value) -> Expr {
    return CallOp(b.whole ? kAllReduce : kAllReduceIfWhole,
                  {StringOf(reduction.DeviceName()), MakeInt(b.threads), MakeInt(b.scale), value},
                  PrimTy(t));
  };
  Var k = MakeVar("k");
  Expr value = element(values, k);
  for (const ThreadGroups::Butterfly& b : groups.butterflies) value = over_lanes(b, value);
  const Var& combined = groups.num_parts == 1 ? results : values;
  if (!groups.butterflies.empty() || !combined.same_as(values)) {
    out.push_back(UnrolledFor(k, count, set(combined, k, value), span));
  }
  if (groups.num_parts == 1) return MakeSeq(out);

  const Expr group = scope->analyzer->Simplify(groups.group);
  const Expr part = scope->analyzer->Simplify(groups.part);
  Var parts = scope->AllocShared(
      name, t, {MakeInt(count), MakeInt(groups.num_groups), MakeInt(groups.num_parts)});
  Var w = MakeVar("k");
  Stmt write =
      UnrolledFor(w, count, MakeStore(parts, element(values, w), {w, group, part}, span), span);
  out.push_back(MakeIf(groups.leads, write, span));
  Var r = MakeVar("k"), p = MakeVar("p");
  if (HasLaneForEachPart(groups, warp)) {
    const Expr own = scope->analyzer->Simplify(FloorModOf(scope->thread, groups.num_parts));
    const Expr all = over_lanes({groups.num_parts, 1}, LoadOf(parts, {r, group, own}));
    out.push_back(UnrolledFor(r, count, set(results, r, all), span));
    return MakeSeq(out);
  }
  const Expr first = LoadOf(parts, {r, group, MakeInt(0)});
  const Expr next = LoadOf(parts, {r, group, Expr(p) + 1});
  const Stmt add = set(results, r, reduction.Combine(element(results, r), next));
  const int64_t others = groups.num_parts - 1;
  Map<String, Any> rolled;
  rolled.Set(kUnrollFactor, int64_t(1));
  // Unrolled, 64 results of 48 parts in bfloat16 took NVRTC 80 s, and 2 s like this.
  const Stmt combine = count * others <= kMaxUnrolled
                           ? UnrolledFor(p, others, add, span)
                           : Stmt(MakeFor(p, MakeInt(others), ForKind::kSerial, add, span, rolled));
  const Stmt read = UnrolledFor(r, count, MakeSeq({set(results, r, first), combine}), span);
  out.push_back(MakeIf(scope->analyzer->Simplify(groups.complete), read, span));
  return MakeSeq(out);
}

}  // namespace tl
