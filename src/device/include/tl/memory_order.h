/*! Orders of atomic operations, with the numbers and meanings of C++'s std::memory_order. */
#pragma once

namespace tl {

enum MemoryOrder : int { relaxed, consume, acquire, release, acq_rel, seq_cst };

}  // namespace tl
