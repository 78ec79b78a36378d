/*!
 * Which value a read of a shared buffer means that a pipelined loop fills. With several versions an
 * iteration sees what it has written itself, and nothing outside of the loop sees any of it; these
 * questions tell where the program means just that.
 */
#pragma once
#include <vector>

#include "../../op/views.h"

namespace tl {

/*! The statement writes every element of the buffer, whatever it held, on every path. */
bool Overwrites(const Stmt& s, const Var& buffer, const Views& views);

/*! Of the buffer, statement `reader` of a loop's body reads nothing but what statement `writer`,
 * before it in the same iteration, has written: all of it, or the same region. Both may stand under
 * the same condition. */
bool Supplies(const std::vector<Stmt>& body, size_t writer, size_t reader, const Var& buffer,
              const Views& views);

/*! Buffers that a function reads outside of one loop, which its variable names, without having
 * overwritten them since. */
std::vector<Var> ReadsOutside(const Stmt& function_body, const ForNode* loop, const Views& views);

}  // namespace tl
