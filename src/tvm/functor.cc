#include "functor.h"

namespace tl {
namespace detail_ {

uint8_t KindOf(int32_t type_index) {
  static const std::vector<uint8_t> table = [] {
    std::vector<uint8_t> t;
    auto put = [&t](int32_t index, uint8_t kind) {
      if (index < 0) return;
      if (static_cast<size_t>(index) >= t.size()) t.resize(index + 1, kNone);
      t[index] = kind;
    };
#define X(N) put(N##Node::_type_index, k##N);
    TL_FOR_EACH_STMT(X)
    TL_FOR_EACH_EXPR(X)
#undef X
    return t;
  }();
  return type_index >= 0 && static_cast<size_t>(type_index) < table.size() ? table[type_index]
                                                                           : uint8_t(kNone);
}

}  // namespace detail_
}  // namespace tl
