/*! Intrinsics that a program calls by name, for what one thread or warp does: shuffles and votes,
 * wide accesses, text, random numbers. */
#include "intrinsics.h"

namespace tl {

std::vector<Intrinsic> ThreadIntrinsics() {
  constexpr Access kNone = Access::kNone, kRead = Access::kRead, kWrite = Access::kWrite,
                   kReadWrite = Access::kReadWrite;
  return {
      // shfl_sync(mask, value, lane or distance, width)
      {"tl.shfl_sync", "tl::shfl_sync", "tl/warp.h", 0, {}},
      {"tl.shfl_up_sync", "tl::shfl_up_sync", "tl/warp.h", 0, {}},
      {"tl.shfl_down_sync", "tl::shfl_down_sync", "tl/warp.h", 0, {}},
      {"tl.shfl_xor_sync", "tl::shfl_xor_sync", "tl/warp.h", 0, {}},
      // any_sync(mask, predicate)
      {"tl.any_sync", "tl::any_sync", "tl/warp.h", 0, {}},
      {"tl.all_sync", "tl::all_sync", "tl/warp.h", 0, {}},
      {"tl.ballot_sync", "tl::ballot_sync", "tl/warp.h", 0, {}},
      {"tl.match_any_sync", "tl::match_any_sync", "tl/warp.h", 0, {}},
      {"tl.match_all_sync", "tl::match_all_sync", "tl/warp.h", 0, {}},
      {"tl.activemask", "tl::activemask", "tl/warp.h", 0, {}},
      {"tl.syncthreads_count", "tl::syncthreads_count", "tl/warp.h", 0, {}},
      {"tl.syncthreads_and", "tl::syncthreads_and", "tl/warp.h", 0, {}},
      {"tl.syncthreads_or", "tl::syncthreads_or", "tl/warp.h", 0, {}},
      // load_words<n>(pointer, predicate or nothing), store_words(pointer, words, the same)
      {"tl.load_words", "tl::load_words", "tl/words.h", 1, {kRead}},
      {"tl.store_words", "tl::store_words", "tl/words.h", 0, {kWrite}},
      {"tl.dp4a", "tl::dp4a", "tl/words.h", 0, {kRead, kRead, kReadWrite}},
      {kLoadReadOnly, "tl::load_read_only", "tl/memory.h", 0, {kRead}},
      // print_value(message, block x, y, z, dtype, value); an element has its buffer and index too
      {"tl.print_message", "tl::print_message", "tl/print.h", 0, {}},
      {"tl.print_value", "tl::print_value", "tl/print.h", 0, {}},
      {"tl.print_element", "tl::print_element", "tl/print.h", 0, {}},
      // device_assert(condition, message, place or nothing)
      {"tl.device_assert", "tl::device_assert", "tl/output.h", 0, {}},
      // rng_init<generator>(state, seed, sequence, offset)
      {"tl.rng_init", "tl::rng_init", "tl/random.h", 1, {kWrite, kNone, kNone, kNone}},
      {"tl.rng_next", "tl::rng_next", "tl/random.h", 1, {kReadWrite}},
      {"tl.rng_uniform", "tl::rng_uniform", "tl/random.h", 2, {kReadWrite}},
      {"tl.rng_normal", "tl::rng_normal", "tl/random.h", 2, {kReadWrite}},
  };
}

}  // namespace tl
