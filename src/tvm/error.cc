#include "error.h"

namespace tl {

std::string Where(const Span& span) {
  if (!span.defined()) return "";
  return std::string(span->source_name->name) + ":" + std::to_string(span->line);
}

void ThrowAt(const Span& span, const std::string& kind, const std::string& message) {
  const std::string where = Where(span);
  throw ffi::Error(kind, where.empty() ? message : where + ": " + message, "");
}

void ThrowBug(const Span& span, const std::string& pass, const std::string& message) {
  ThrowAt(span, "InternalError",
          message + " (a bug in tilelang, in " + pass +
              "; TILELANG_DUMP_IR=1 writes the program after each pass)");
}

}  // namespace tl
