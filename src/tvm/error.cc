#include "error.h"

#include "build.h"

namespace tl {

namespace {

std::string Placed(const Span& span, const std::string& message) {
  const std::string where = Where(span);
  return where.empty() ? message : where + ": " + message;
}

std::string Snippet(const Span& span) {
  if (!span.defined()) return "";
  return TL_GLOBAL("tl.snippet")(span->source_name->name, span->line, span->column).cast<String>();
}

}  // namespace

std::string Where(const Span& span) {
  if (!span.defined()) return "";
  return std::string(span->source_name->name) + ":" + std::to_string(span->line);
}

void ThrowAt(const Span& span, const std::string& kind, const std::string& message) {
  throw ffi::Error(kind, Placed(span, message) + Snippet(span), "");
}

void LogAt(LogLevel level, const Span& span, const std::string& message) {
  TL_GLOBAL("tl.log")(static_cast<int>(level), String(Placed(span, message)));
}

void ThrowBug(const Span& span, const std::string& pass, const std::string& message) {
  ThrowAt(span, "InternalError",
          message + " (a bug in tilelang, in " + pass +
              "; TILELANG_DUMP_IR=1 writes the program after each pass)");
}

}  // namespace tl
