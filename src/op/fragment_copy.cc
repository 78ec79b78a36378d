#include "fragment_copy.h"

#include <algorithm>

#include "parallel_operator.h"

namespace tl {

bool FragmentCopy::AreFragments() const {
  const auto is_number = [](const Expr& e) { return AsInt(e).has_value(); };
  return IsFragment(src.buffer) && IsFragment(dst.buffer) &&
         std::all_of(nest.extents.begin(), nest.extents.end(), is_number);
}

bool FragmentCopy::IsPlaced(const FragmentLookup& fragment) const {
  return AreFragments() && fragment(src.buffer).defined() && fragment(dst.buffer).defined();
}

bool FragmentCopy::FitsInThreads(const FragmentLookup& fragment) const {
  const std::vector<FragmentAccess> accesses = FragmentAccesses(nest);
  const auto layout = ChooseLoopLayout(nest, accesses, fragment);
  return layout && std::all_of(accesses.begin(), accesses.end(), [&](const FragmentAccess& a) {
           return IsCompatible(nest, a, fragment(a.buffer), *layout);
         });
}

int64_t FragmentCopy::LayoutCost(const FragmentLookup& fragment) const {
  constexpr int64_t kMuch = int64_t(1) << 32;
  return IsPlaced(fragment) && !FitsInThreads(fragment) ? kMuch : 0;
}

std::string FragmentCopy::WhyNotThreads(const FragmentLookup& fragment) const {
  return LayoutCost(fragment) ? "other threads hold its elements" : "";
}

Stmt FragmentCopy::LowerThroughShared(LoweringScope* scope, const Span& span) const {
  const std::string name = std::string(src.buffer->name) + "_to_" + std::string(dst.buffer->name);
  const DLDataType type = BufferOf(src.buffer)->dtype->dtype;
  const Var tile = scope->AllocShared(name, type, nest.extents);
  ParallelNest in = nest, out = nest;
  const Array<Expr> element = nest.vars.Map([](const Var& v) -> Expr { return v; });
  in.body = MakeStore(tile, LoadOf(src.buffer, ElementOf(src, nest)), element, span);
  out.body =
      MakeStore(dst.buffer, CastTo(BufferOf(dst.buffer)->dtype->dtype, LoadOf(tile, element)),
                ElementOf(dst, nest), span);
  scope->Note(span, "T.copy " + std::string(src.buffer->name) + " to " +
                        std::string(dst.buffer->name) + ": through shared memory, " +
                        std::to_string((Product(ConstShape(tile)) * type.bits + 7) / 8) +
                        " bytes, because other threads hold its elements");
  return MakeSeq({MakeParallelOperator(in, Fragment())->Lower(scope),
                  MakeParallelOperator(out, Fragment())->Lower(scope)});
}

}  // namespace tl
