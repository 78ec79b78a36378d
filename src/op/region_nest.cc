#include "region_nest.h"

#include "../layout/annotation.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "copy_instruction.h"

namespace tl {
namespace {

std::string ExtentsText(const TileRegion& r) {
  static const Function repr = Function::GetGlobalRequired("ffi.ReprPrint");
  return std::string(r.buffer->name) + std::string(repr(r.Extents()).cast<String>());
}

int Closeness(const Var& buffer) {
  if (IsGlobal(buffer)) return 0;
  return IsShared(buffer) ? 1 : 2;
}

[[noreturn]] void RefuseShapes(const char* op, const TileRegion& a, const TileRegion& b,
                               const char* wanted, const Span& span) {
  ThrowAt(span, "ValueError",
          std::string(op) + ": found " + ExtentsText(a) + " and " + ExtentsText(b) + ", wanted " +
              wanted);
}

}  // namespace

std::vector<size_t> NonUnitDims(const TileRegion& r) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < r.ranges.size(); ++d) {
    if (!IsConst(r.ranges[d]->extent, 1)) dims.push_back(d);
  }
  return dims;
}

ParallelNest NestOverRegion(const TileRegion& r, const Span& span) {
  ParallelNest nest;
  nest.span = span;
  for (size_t d : NonUnitDims(r)) {
    const size_t k = nest.vars.size();
    const Expr& extent = r.ranges[d]->extent;
    nest.vars.push_back(
        MakeVar(k < 3 ? std::string(1, "ijk"[k]) : "i" + std::to_string(k), extent->dtype()));
    nest.extents.push_back(extent);
  }
  if (nest.vars.empty()) {
    nest.vars.push_back(MakeVar("i"));
    nest.extents.push_back(MakeInt(1));
  }
  return nest;
}

Array<Expr> ElementOf(const TileRegion& r, const ParallelNest& nest) {
  std::vector<Expr> out;
  for (const Range& range : r.ranges) out.push_back(range->min);
  const std::vector<size_t> dims = NonUnitDims(r);
  for (size_t k = 0; k < dims.size(); ++k) out[dims[k]] = out[dims[k]] + nest.vars[k];
  return Array<Expr>(out.begin(), out.end());
}

ParallelNest NestOverBoth(const char* op, const TileRegion& a, const TileRegion& b,
                          const TileRegion& of, const Span& span) {
  const std::vector<size_t> a_dims = NonUnitDims(a), b_dims = NonUnitDims(b);
  if (a_dims.size() != b_dims.size()) {
    RefuseShapes(op, a, b, "the same number of dimensions longer than 1; slice one side", span);
  }
  for (size_t k = 0; k < a_dims.size(); ++k) {
    auto m = AsInt(a.ranges[a_dims[k]]->extent), n = AsInt(b.ranges[b_dims[k]]->extent);
    if (m && n && *m != *n) RefuseShapes(op, a, b, "equal extents; slice the longer side", span);
  }
  return NestOverRegion(of, span);
}

ParallelNest NestOfCopy(const CallNode* copy, const Span& span) {
  const TileRegion src = TileRegion::From(copy->args[0]), dst = TileRegion::From(copy->args[1]);
  const bool by_dst = Closeness(dst.buffer) > Closeness(src.buffer);
  ParallelNest nest = NestOverBoth("T.copy", src, dst, by_dst ? dst : src, span);
  nest.coalesced_width = TileOpIntAttr(copy, "coalesced_width", 0);
  nest.has_placed_tensor = TileOpAttr(copy, kPlacedTensor) != nullptr;
  nest.loop_layout = GetLoopLayout(TileOpAttrs(copy));
  const Expr value = LoadOf(src.buffer, ElementOf(src, nest));
  nest.body = MakeStore(dst.buffer, CastTo(DTypeOf(dst.buffer), value), ElementOf(dst, nest), span);
  return nest;
}

Stmt LoopsOfCopy(const Stmt& s) {
  const CallNode* call = AsTileOp(s, kCopy);
  if (!call || !TileOpAttrs(call).empty()) return Stmt();
  const ParallelNest nest = NestOfCopy(call, s->span);
  Stmt loops = nest.body;
  for (size_t i = nest.vars.size(); i-- > 0;) {
    loops = MakeFor(nest.vars[i], nest.extents[i], ForKind::kParallel, loops, s->span);
  }
  return loops;
}

}  // namespace tl
