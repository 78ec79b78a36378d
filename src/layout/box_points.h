/*! The points of a box, many at a time, in the form that IntProgram reads. */
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "int_program.h"

namespace tl {

/*! Writes the next `n` points of the box [begin, end) to the slots, the last dimension fastest, and
 * moves `point` behind them. */
inline void FillSlots(const std::vector<int64_t>& begin, const std::vector<int64_t>& end, int64_t n,
                      std::vector<int64_t>* point, int64_t* slots) {
  constexpr int64_t kMost = IntProgram::kMostPoints;
  if (end.empty()) return;
  const size_t last = end.size() - 1;
  for (int64_t k = 0; k < n;) {
    const int64_t from = (*point)[last], run = std::min(n - k, end[last] - from);
    for (size_t d = 0; d < last; ++d) std::fill_n(slots + d * kMost + k, run, (*point)[d]);
    std::iota(slots + last * kMost + k, slots + last * kMost + k + run, from);
    k += run;
    (*point)[last] += run;
    for (size_t d = last; d > 0 && (*point)[d] == end[d]; --d) {
      (*point)[d] = begin[d];
      ++(*point)[d - 1];
    }
  }
}

}  // namespace tl
