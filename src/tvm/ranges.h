/*! Algorithms of the standard library on whole ranges. */
#pragma once
#include <algorithm>
#include <vector>

namespace tl {

template <typename Range, typename Is>
bool AnyOf(const Range& range, Is is) {
  return std::any_of(range.begin(), range.end(), is);
}

template <typename Range, typename Is>
bool AllOf(const Range& range, Is is) {
  return std::all_of(range.begin(), range.end(), is);
}

template <typename Range, typename Is>
bool NoneOf(const Range& range, Is is) {
  return std::none_of(range.begin(), range.end(), is);
}

template <typename Range, typename Is>
auto CountIf(const Range& range, Is is) {
  return std::count_if(range.begin(), range.end(), is);
}

/*! The first element for which `is` holds, or the end. */
template <typename Range, typename Is>
auto FindIf(Range& range, Is is) {
  return std::find_if(range.begin(), range.end(), is);
}

template <typename T, typename Range>
void AppendRange(std::vector<T>* to, const Range& from) {
  to->insert(to->end(), from.begin(), from.end());
}

}  // namespace tl
