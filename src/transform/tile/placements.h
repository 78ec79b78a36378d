/*! Where layouts put the buffers of a kernel: what layout inference fills, and what passes before
 * it ask of operators that dictate. */
#pragma once
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../../op/operator.h"
#include "../../op/views.h"
#include "tensor_traffic.h"

namespace tl {

/*! The layouts found so far, and the statements that asked for them. */
class Placements : public LayoutScope {
 public:
  Placements() = default;
  /*! To try something: what is placed is on top of `below`, which stays there as it is. */
  static Placements OnTopOf(const Placements& below);
  /*! Takes over what was placed on top. */
  void Adopt(Placements&& top);
  /*! Here, and not below. */
  std::vector<std::pair<Var, Layout>> PlacedHere() const;
  /*! The buffers that were placed since the last call, without views. */
  std::vector<Var> TakeNews() { return std::exchange(news_, {}); }

  /*! Views have no layout of their own: theirs is that of the buffer, carried over. */
  std::shared_ptr<const Views> views;
  const TensorTraffic* traffic = nullptr;
  /*! Where this is set, it gets what `Place` is asked for, but of views, and a second layout of a
   * fragment is no error. */
  std::vector<std::pair<Var, Layout>>* dictated = nullptr;

  bool IsPointedTo(const Var& buffer) const final { return traffic->IsPointedTo(buffer); }
  StoreTraffic StoresTo(const Var& tensor) const final { return traffic->StoresTo(tensor); }
  Layout Find(const Var& buffer) const final;
  Layout FindAnnotated(const Var& buffer) const final;
  bool IsView(const Var& buffer) const final { return views->IsView(buffer); }
  Span PlacedBy(const Var& buffer) const final;
  void SetLayout(const Var& buffer, const Layout& layout, const Span& span) final;
  void PlaceAnnotated(const Var& buffer, const Layout& layout);

  static Layout Carry(const Layout& layout, const Var& from, const Var& to, const Span& span);

 private:
  struct Placed {
    Var buffer;
    Layout layout;
    Span asked_by;
    /*! By view: so that each has its tables once. */
    mutable std::unordered_map<const Object*, Layout> carried = {};
  };
  const Placed* At(const Var& root) const;

  const Placements* below_ = nullptr;
  std::unordered_map<const Object*, Placed> placed_;
  std::vector<Var> news_;
  std::unordered_set<const Object*> annotated_;
};

}  // namespace tl
