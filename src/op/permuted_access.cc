#include "permuted_access.h"

#include <algorithm>

#include "../layout/inverse.h"

namespace tl {
namespace {

bool CountsUp(const Digit& digit) { return digit.thread_stride >= 0 && digit.register_stride >= 0; }

/*! The digits of a layout whose threads and registers count up with the elements; nothing of
 * others, whose loops would have no closed form. */
std::optional<std::vector<Digit>> RisingDigitsOf(const Fragment& f) {
  const std::optional<std::vector<Digit>> digits = f->Digits();
  if (!digits || !AllOf(*digits, CountsUp)) return std::nullopt;
  return digits;
}

}  // namespace

std::optional<Layout> IterationsOfElements(const ParallelNest& nest, const FragmentAccess& access) {
  if (!access.inner_vars.empty() || !ReadsOnly(access.indices, nest.vars)) return std::nullopt;
  const std::vector<int64_t> extents = StaticExtents(nest), shape = ConstShape(access.buffer);
  if (shape.empty() || Product(extents) != Product(shape)) return std::nullopt;
  const Layout elements = MakeLayout(nest.vars, extents, access.indices);
  if (!PlacementDefect(elements).empty() || elements->OutputShape() != shape) return std::nullopt;
  std::string reason;
  const std::optional<Layout> inverse = InvertLayout(elements, &reason);
  if (!inverse) return std::nullopt;
  Expr number = MakeInt(0);
  for (size_t k = 0; k < extents.size(); ++k) number = number * extents[k] + (*inverse)->index[k];
  const Var replica = MakeVar("rep");
  const Fragment in_one_thread =
      MakeFragment((*inverse)->vars, shape, number, MakeInt(0), replica, 1);
  return RisingDigitsOf(in_one_thread) ? inverse : std::nullopt;
}

std::optional<Fragment> FragmentOfPermutation(const Layout& iterations,
                                              const Fragment& loop_layout) {
  const Array<Expr>& at = iterations->index;
  const Fragment by_iteration =
      MakeFragment(iterations->vars, iterations->Shape(), loop_layout->MapIndex(at)[0],
                   loop_layout->MapThread(at, loop_layout->replica), loop_layout->replica,
                   loop_layout->replicate);
  std::optional<std::vector<Digit>> digits = RisingDigitsOf(by_iteration);
  if (!digits) return std::nullopt;
  std::sort(digits->begin(), digits->end(), [](const Digit& a, const Digit& b) {
    return a.dim != b.dim ? a.dim > b.dim : a.divisor < b.divisor;
  });
  Expr index = MakeInt(0);
  int64_t stride = 1;
  for (const Digit& digit : *digits) {
    if (!digit.register_stride) continue;
    const Expr& coordinate = by_iteration->vars[digit.dim];
    index = index + FloorModOf(FloorDivOf(coordinate, digit.divisor), digit.extent) * stride;
    stride *= digit.extent;
  }
  const Fragment by_element =
      MakeFragment(by_iteration->vars, by_iteration->Shape(), index, by_iteration->thread,
                   by_iteration->replica, by_iteration->replicate);
  return PlacementDefect(by_element).empty() ? by_element : by_iteration;
}

}  // namespace tl
