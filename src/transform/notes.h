/*! Function attribute `tl.notes`: lines for `kernel.explain()` that passes add, in program order.
 */
#pragma once
#include <utility>

#include "../tvm/build.h"

namespace tl {

inline PrimFunc WithNotes(PrimFunc f, const Array<String>& more) {
  constexpr const char* kNotes = "tl.notes";
  if (more.empty()) return f;
  Array<String> notes;
  if (const Any known = GetAttr(f, kNotes); known != nullptr) notes = known.cast<Array<String>>();
  for (const String& note : more) notes.push_back(note);
  return WithAttr(std::move(f), kNotes, notes);
}

}  // namespace tl
