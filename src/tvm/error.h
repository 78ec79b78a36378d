/*! Errors with the place in the user's Python. */
#pragma once
#include <string>

#include "ir.h"

namespace tl {

/*! "file.py:12" or "" where there is no span. */
std::string Where(const Span& span);

/*!
 * Throws the Python exception class `kind` ("ValueError", ...). `message` says what was found, what
 * was wanted and one repair; the place is put before it, the line of source after it
 * (tilelang/_snippet.py).
 */
[[noreturn]] void ThrowAt(const Span& span, const std::string& kind, const std::string& message);

/*! Levels of Python's `logging`. */
enum class LogLevel : int { kInfo = 20, kWarning = 30 };

/*! Tells the logger `tilelang`, with the place put before the message. */
void LogAt(LogLevel level, const Span& span, const std::string& message);

/*! An invariant of this library that does not hold: a bug of ours, told as such. */
[[noreturn]] void ThrowBug(const Span& span, const std::string& pass, const std::string& message);

}  // namespace tl
