/*! T.atomic_add(tensor, tile, use_tma=True): a store by TMA that adds. */
#pragma once
#include <memory>

#include "operator.h"

namespace tl {

/*! Atomic operations of a tile; with `use_tma` this file's operator makes them. */
inline constexpr const char* kAtomic = "tl.tileop.atomic";

/*! What a call of kAtomic does to one element of a buffer, with a value of any type. */
Stmt AtomicOnElement(const CallNode* call, const Var& buffer, const Array<Expr>& indices,
                     const Expr& value, const Span& span);

/*!
 * One thread issues the boxes of a copy from shared to global memory whose elements are added to
 * what the tensor has, each atomically. Refused (ValueError): what the unit cannot copy, dtypes
 * that it does not add.
 */
std::unique_ptr<TileOperator> MakeTmaReduce(const CallNode* call, const Span& span);

}  // namespace tl
