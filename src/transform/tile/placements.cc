#include "placements.h"

#include <utility>

#include "../../tvm/error.h"

namespace tl {

Placements Placements::OnTopOf(const Placements& below) {
  Placements top;
  static_cast<LayoutScope&>(top) = below;
  top.views = below.views;
  top.traffic = below.traffic;
  top.below_ = &below;
  return top;
}

void Placements::Adopt(Placements&& top) {
  for (auto& [root, placed] : top.placed_) placed_.insert_or_assign(root, std::move(placed));
}

std::vector<std::pair<Var, Layout>> Placements::PlacedHere() const {
  std::vector<std::pair<Var, Layout>> out;
  for (const auto& [root, placed] : placed_) out.emplace_back(placed.buffer, placed.layout);
  return out;
}

const Placements::Placed* Placements::At(const Var& root) const {
  auto it = placed_.find(root.get());
  if (it != placed_.end()) return &it->second;
  return below_ ? below_->At(root) : nullptr;
}

Layout Placements::Find(const Var& buffer) const {
  const Var root = views->RootOf(buffer);
  const Placed* placed = At(root);
  if (!placed) return Layout();
  if (root.same_as(buffer)) return placed->layout;
  Layout& carried = placed->carried[buffer.get()];
  if (!carried.defined()) carried = Carry(placed->layout, root, buffer, placed->asked_by);
  return carried;
}

Layout Placements::FindAnnotated(const Var& buffer) const {
  if (below_) return below_->FindAnnotated(buffer);
  return annotated_.count(views->RootOf(buffer).get()) ? Find(buffer) : Layout();
}

Span Placements::PlacedBy(const Var& buffer) const {
  const Placed* placed = At(views->RootOf(buffer));
  return placed ? placed->asked_by : Span();
}

void Placements::SetLayout(const Var& buffer, const Layout& layout, const Span& span) {
  const Var root = views->RootOf(buffer);
  if (!root.same_as(buffer)) {
    auto* const asked = std::exchange(dictated, nullptr);
    SetLayout(root, Carry(layout, buffer, root, span), span);
    dictated = asked;
    return;
  }
  const Placed* first = At(buffer);
  if (!first) {
    placed_.emplace(buffer.get(), Placed{buffer, layout, span});
    news_.push_back(buffer);
  }
  if (dictated && IsFragment(buffer)) {
    dictated->emplace_back(buffer, layout);
    return;
  }
  if (!first || !IsFragment(buffer) || IsSameLayout(first->layout, layout)) return;
  ThrowAt(
      span, "ValueError",
      "found two layouts for " + std::string(buffer->name) + ":\n  " + LayoutText(first->layout) +
          (first->asked_by.defined() ? ", asked for at " + Where(first->asked_by) : "") + "\n  " +
          LayoutText(layout) + ", asked for here\nwanted one; copy to a second fragment");
}

void Placements::PlaceAnnotated(const Var& buffer, const Layout& layout) {
  SetLayout(buffer, layout, Span());
  annotated_.insert(views->RootOf(buffer).get());
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
