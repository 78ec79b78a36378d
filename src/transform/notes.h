/*! What passes tell `kernel.explain()`: the function attribute `tl.notes`, lines in program order;
 * where a statement of their other attributes is. */
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

/*! Adds the file of a statement if it is another one than `file`, as that of a macro may be. */
inline void AddFile(Map<String, Any>* entry, const Stmt& s, const String& file) {
  if (!s->span.defined() || s->span->source_name->name == file) return;
  entry->Set("file", s->span->source_name->name);
}

}  // namespace tl
