/*! Linear algebra over bits: vectors are the bits of an integer, addition is xor. */
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tl {

/*! A linear map by its columns: column k is what bit k of the input becomes. */
using BitColumns = std::vector<int64_t>;

inline int64_t Apply(const BitColumns& columns, int64_t input) {
  int64_t out = 0;
  for (std::size_t k = 0; k < columns.size(); ++k) {
    if (input >> k & 1) out ^= columns[k];
  }
  return out;
}

/*!
 * A linear map that is known on some vectors, kept in echelon form. Of a vector outside of what
 * they span, it maps the part that they do span, and the rest to 0; so it is linear everywhere.
 */
class PartialMap {
 public:
  struct Entry {
    int64_t input, output;
  };

  /*! What is left of an input when the span of the known ones is taken off, and what the part that
   * was taken off becomes. */
  Entry Reduce(int64_t input) const {
    Entry out{input, 0};
    for (const Entry& e : entries_) {
      if (!(out.input >> TopBit(e.input) & 1)) continue;
      out.input ^= e.input;
      out.output ^= e.output;
    }
    return out;
  }
  int64_t At(int64_t input) const { return Reduce(input).output; }
  bool Spans(int64_t input) const { return Reduce(input).input == 0; }

  /*! Adds input -> output. The result has input 0 where the input was spanned before; its output is
   * then what the old map and the new one differ by. */
  Entry Define(int64_t input, int64_t output) {
    Entry rest = Reduce(input);
    rest.output ^= output;
    if (rest.input == 0) return rest;
    auto at = entries_.begin();
    while (at != entries_.end() && at->input > rest.input) ++at;
    entries_.insert(at, rest);
    return rest;
  }

  /*! Its vectors, the largest first; each has a top bit of its own. */
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  static int TopBit(int64_t v) {
    int bit = 0;
    while (v >> (bit + 1)) ++bit;
    return bit;
  }
  std::vector<Entry> entries_;
};

}  // namespace tl
