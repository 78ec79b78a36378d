#include "placements.h"

#include <utility>

#include "../../layout/swizzle.h"
#include "../../tvm/error.h"

namespace tl {

Layout Placements::Find(const Var& buffer) const {
  const Var root = views.RootOf(buffer);
  auto it = placed_.find(root.get());
  if (it == placed_.end()) return Layout();
  if (root.same_as(buffer)) return it->second.layout;
  Layout& carried = it->second.carried[buffer.get()];
  if (!carried.defined()) {
    carried = Carry(it->second.layout, root, buffer, it->second.asked_by);
  }
  return carried;
}

Layout Placements::FindAnnotated(const Var& buffer) const {
  return annotated_.count(views.RootOf(buffer).get()) ? Find(buffer) : Layout();
}

Span Placements::PlacedBy(const Var& buffer) const {
  auto it = placed_.find(views.RootOf(buffer).get());
  return it == placed_.end() ? Span() : it->second.asked_by;
}

void Placements::SetLayout(const Var& buffer, const Layout& layout, const Span& span) {
  const Var root = views.RootOf(buffer);
  if (!root.same_as(buffer)) {
    auto* const asked = std::exchange(dictated, nullptr);
    SetLayout(root, Carry(layout, buffer, root, span), span);
    dictated = asked;
    return;
  }
  auto [it, is_new] = placed_.try_emplace(buffer.get(), Placed{layout, span});
  if (dictated && IsFragment(buffer)) {
    dictated->emplace_back(buffer, layout);
    return;
  }
  if (is_new || !IsFragment(buffer) || IsSameLayout(it->second.layout, layout)) return;
  const Placed& first = it->second;
  ThrowAt(span, "ValueError",
          "found two layouts for " + std::string(buffer->name) + ":\n  " +
              LayoutText(first.layout) +
              (first.asked_by.defined() ? ", asked for at " + Where(first.asked_by) : "") + "\n  " +
              LayoutText(layout) + ", asked for here\nwanted one; copy to a second fragment");
}

void Placements::PlaceAnnotated(const Var& buffer, const Layout& layout) {
  SetLayout(buffer, layout, Span());
  annotated_.insert(views.RootOf(buffer).get());
}

void Placements::PlaceSwizzle(const Var& buffer, const Layout& layout, const Span& span) {
  auto [it, is_new] = placed_.try_emplace(buffer.get(), Placed{layout, span});
  if (is_new) return;
  const int bits = BufferOf(buffer)->dtype->dtype.bits;
  const std::optional<int> old_span = SwizzleBytes(it->second.layout, bits);
  if (old_span && *SwizzleBytes(layout, bits) < *old_span) it->second = {layout, span};
}

Layout Placements::Carry(const Layout& layout, const Var& from, const Var& to, const Span& span) {
  std::optional<Layout> carried = CarryLayout(layout, from, to);
  if (carried) return *carried;
  ThrowAt(span, "ValueError",
          "found a layout of " + std::string(from->name) + " that scatters the elements of " +
              std::string(to->name) + ", another name of its memory with wider elements:\n  " +
              LayoutText(layout) + "\nwanted each of them in one piece; copy instead of T.view");
}

}  // namespace tl
