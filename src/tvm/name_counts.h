/*! How long the values of names are, once each name in them is its value. */
#pragma once
#include <unordered_map>

#include "functor.h"

namespace tl {

/*! Most names that a value may read, once each name in it is its value, for it to stand where its
 * name does. Names that each read the one before twice, such as the rounds of a hash, double that
 * number with each of them. */
constexpr int64_t kMostNames = 64;

/*! The numbers of names that values read. A value that reads more than `kMostNames` keeps its name,
 * which is one name where it is read. */
class NameCounts {
 public:
  /*! Takes the value of `v` in; whether it may stand in the place of its name. */
  bool Add(const Var& v, const Expr& value) {
    int64_t count = 0;
    for (const Var& read : VarsOf(value)) {
      const auto it = counts_.find(read.get());
      count += it == counts_.end() ? 1 : it->second;
    }
    const bool is_short = count <= kMostNames;
    counts_[v.get()] = is_short ? count : 1;
    return is_short;
  }

 private:
  std::unordered_map<const Object*, int64_t> counts_;
};

}  // namespace tl
