/*! How a kernel uses the tensors that its copies store to: what decides whether the async proxy
 * may. */
#pragma once
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "../../op/operator.h"
#include "../../op/peers.h"
#include "../../op/views.h"
#include "../../tvm/functor.h"

namespace tl {

class TensorTraffic {
 public:
  TensorTraffic() = default;
  explicit TensorTraffic(const Stmt& kernel);

  /*! Those to a symmetric tensor are those to its peers, too. */
  StoreTraffic StoresTo(const Var& tensor) const;
  /*! The program has a pointer to the buffer: someone may count on where its elements lie. */
  bool IsPointedTo(const Var& buffer) const { return pointed_to_.count(Root(buffer)) != 0; }

 private:
  friend class TrafficCollector;
  /*! One for all tensors that may be one memory. */
  const Object* Root(const Var& v) const {
    const Var tensor = peers_.TensorOf(views_.RootOf(v));
    const Object* root = tensor.get();
    for (const Var& other : views_.OthersOf(tensor)) {
      root = std::min<const Object*>(root, other.get());
    }
    return root;
  }

  Views views_;
  Peers peers_;
  struct Copies {
    std::vector<TileRegion> regions;  // of each statement
    bool in_loop = false;
  };
  std::unordered_map<const Object*, Copies> copies_;
  std::unordered_set<const Object*> others_, pointed_to_;
};

}  // namespace tl
