#include "fragment_copy.h"

#include "../tvm/error.h"
#include "parallel_operator.h"

namespace tl {

std::optional<WarpShuffle> PlanCheapShuffle(const Fragment& from, const Fragment& to, int bits,
                                            int64_t num_threads, const Target& target) {
  auto plan = PlanWarpShuffle(from, to, bits, num_threads, target.warp_threads);
  if (plan && plan->CostBits(bits) > SharedCostBits(from, to, bits)) plan.reset();
  return plan;
}

bool FragmentCopy::AreFragments() const {
  const auto is_number = [](const Expr& e) { return AsInt(e).has_value(); };
  return IsFragment(src.buffer) && IsFragment(dst.buffer) && AllOf(nest.extents, is_number);
}

bool FragmentCopy::IsPlaced(const FragmentLookup& fragment) const {
  return AreFragments() && fragment(src.buffer).defined() && fragment(dst.buffer).defined();
}

bool FragmentCopy::FitsInThreads(const FragmentLookup& fragment) const {
  const std::vector<FragmentAccess> accesses = FragmentAccesses(nest);
  const auto layout = ChooseLoopLayout(nest, accesses, fragment);
  return layout && AllOf(accesses, [&](const FragmentAccess& a) {
           return IsCompatible(nest, a, fragment(a.buffer), *layout);
         });
}

std::optional<WarpShuffle> FragmentCopy::PlanShuffle(const FragmentLookup& fragment,
                                                     int64_t num_threads,
                                                     const Target& target) const {
  // What a thread does not hold it overwrites with anything, which has to be no other element.
  if (Product(StaticExtents(nest)) != Product(ConstShape(dst.buffer))) return std::nullopt;
  Fragment from, to;
  for (const FragmentAccess& access : FragmentAccesses(nest)) {
    const auto layout = LayoutFromFragment(nest, access, fragment(access.buffer));
    if (!layout) return std::nullopt;
    (access.is_write ? to : from) = *layout;
  }
  const DLDataType type = ShuffledType(DTypeOf(src.buffer),  //
                                       DTypeOf(dst.buffer));
  return PlanCheapShuffle(from, to, type.bits, num_threads, target);
}

int64_t FragmentCopy::LayoutCost(const LayoutScope& scope) const {
  if (WhyNotThreads(scope).empty()) return 0;
  return WhyNotShuffles(scope).empty() ? kShuffledBits : kThroughSharedBits;
}

std::string FragmentCopy::WhyNotThreads(const LayoutScope& scope) const {
  const auto fragment = [&](const Var& v) { return scope.FindFragment(v); };
  const bool fits = !IsPlaced(fragment) || FitsInThreads(fragment);
  return fits ? "" : "other threads hold its elements";
}

std::string FragmentCopy::WhyNotShuffles(const LayoutScope& scope) const {
  const auto fragment = [&](const Var& v) { return scope.FindFragment(v); };
  return PlanShuffle(fragment, scope.num_threads, *scope.target)
             ? ""
             : "shared memory costs less, or other warps hold its elements";
}

Stmt FragmentCopy::LowerByShuffles(LoweringScope* scope, const Span& span) const {
  const auto fragment = [&](const Var& v) { return scope->FragmentOf(v); };
  const auto shuffle = PlanShuffle(fragment, scope->num_threads, *scope->target);
  if (!shuffle) ThrowBug(span, "T.copy", "found no shuffles that make the copy");
  const Var from = scope->RegistersOf(src.buffer), to = scope->RegistersOf(dst.buffer);
  const DLDataType type = ShuffledType(DTypeOf(from), DTypeOf(to));
  scope->Note(span, "T.copy " + std::string(src.buffer->name) + " to " +
                        std::string(dst.buffer->name) +
                        ": by shuffles in a warp: " + std::to_string(shuffle->Shuffles(type.bits)) +
                        " shfl, because other lanes hold its elements");
  return ShuffleRegisters(*shuffle, from, to, scope, span);
}

Stmt FragmentCopy::LowerThroughShared(LoweringScope* scope, const Span& span) const {
  const std::string name = std::string(src.buffer->name) + "_to_" + std::string(dst.buffer->name);
  const DLDataType type = DTypeOf(src.buffer);
  const Var tile = scope->AllocShared(name, type, nest.extents);
  ParallelNest in = nest, out = nest;
  const Array<Expr> element = nest.vars.Map([](const Var& v) -> Expr { return v; });
  in.body = MakeStore(tile, LoadOf(src.buffer, ElementOf(src, nest)), element, span);
  out.body = MakeStore(dst.buffer, CastTo(DTypeOf(dst.buffer), LoadOf(tile, element)),
                       ElementOf(dst, nest), span);
  scope->Note(span, "T.copy " + std::string(src.buffer->name) + " to " +
                        std::string(dst.buffer->name) + ": through shared memory, " +
                        std::to_string((Product(ConstShape(tile)) * type.bits + 7) / 8) +
                        " bytes, because other threads hold its elements");
  return MakeSeq({MakeParallelOperator(in, Fragment())->Lower(scope),
                  MakeParallelOperator(out, Fragment())->Lower(scope)});
}

}  // namespace tl
