/*!
 * Which write a read of a shared buffer sees, if a pipelined loop fills the buffer. With several
 * versions, an iteration sees only its own writes, and code outside of the loop sees none of them.
 * These predicates prove that the program means the same with several versions.
 */
#pragma once
#include <vector>

#include "../../op/views.h"

namespace tl {

/*! The statement writes every element of the buffer, whatever it held, on every path. */
bool Overwrites(const Stmt& s, const Var& buffer, const Views& views);

/*! Statement `reader` of a loop's body reads only what of the buffer statements before it have
 * written in the same iteration: one of them all of it or the same region, or several of them
 * pieces of it. Writer and reader may stand under the same condition. */
bool IsSupplied(const std::vector<Stmt>& body, size_t reader, const Var& buffer,
                const Views& views);

/*! No two statements of a body write the same element of the buffer, as far as is known. */
bool WriteApart(const std::vector<Stmt>& body, const Var& buffer, const Views& views);

/*! Buffers that a function reads outside of one loop, which its variable names, without having
 * overwritten them since. */
std::vector<Var> ReadsOutside(const Stmt& function_body, const ForNode* loop, const Views& views);

}  // namespace tl
