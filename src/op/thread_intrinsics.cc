/*! Intrinsics that a program calls by name, for what one thread or warp does: shuffles and votes,
 * wide accesses, text, random numbers. */
#include "../tvm/attrs.h"
#include "intrinsics.h"

namespace tl {

std::vector<Intrinsic> ThreadIntrinsics() {
  constexpr IntrinsicEffects kPure = IntrinsicEffects::None();
  constexpr IntrinsicEffects kVote = kPure.Barrier(ThreadScope::kBlock).Gives(CallResult::kOfBlock);
  constexpr Access kNone = Access::kNone, kRead = Access::kRead, kWrite = Access::kWrite,
                   kReadWrite = Access::kReadWrite;
  return {
      // shfl_sync(mask, value, lane or distance, width)
      {kShuffleSync, "tl::shfl_sync", "tl/warp.h", 0, {}, kPure.LaneMask()},
      {kShuffleUpSync, "tl::shfl_up_sync", "tl/warp.h", 0, {}, kPure.LaneMask()},
      {kShuffleDownSync, "tl::shfl_down_sync", "tl/warp.h", 0, {}, kPure.LaneMask()},
      {kShuffleXorSync, "tl::shfl_xor_sync", "tl/warp.h", 0, {}, kPure.LaneMask()},
      // any_sync(mask, predicate)
      {kAnySync, "tl::any_sync", "tl/warp.h", 0, {}, kPure.LaneMask().AgreesInWarp()},
      {kAllSync, "tl::all_sync", "tl/warp.h", 0, {}, kPure.LaneMask().AgreesInWarp()},
      {kBallotSync, "tl::ballot_sync", "tl/warp.h", 0, {}, kPure.LaneMask().AgreesInWarp()},
      {kMatchAnySync, "tl::match_any_sync", "tl/warp.h", 0, {}, kPure.LaneMask()},
      {kMatchAllSync, "tl::match_all_sync", "tl/warp.h", 0, {}, kPure.LaneMask().AgreesInWarp()},
      {"tl.activemask",
       "tl::activemask",
       "tl/warp.h",
       0,
       {},
       kPure.Gives(CallResult::kOfThread).AgreesInWarp()},
      {"tl.syncthreads_count", "tl::syncthreads_count", "tl/warp.h", 0, {}, kVote},
      {"tl.syncthreads_and", "tl::syncthreads_and", "tl/warp.h", 0, {}, kVote},
      {"tl.syncthreads_or", "tl::syncthreads_or", "tl/warp.h", 0, {}, kVote},
      // load_words<n>(pointer, predicate or nothing), store_words(pointer, words, the same)
      {"tl.load_words", "tl::load_words", "tl/words.h", 1, {kRead}, kPure},
      {"tl.store_words", "tl::store_words", "tl/words.h", 0, {kWrite}, kPure},
      {"tl.dp4a", "tl::dp4a", "tl/words.h", 0, {kRead, kRead, kReadWrite}, kPure},
      // load_if<lanes>(tensor, condition): zeros and no access where it is false
      {kLoadIf, "tl::load_if", "tl/memory.h", 1, {kRead, kNone}, kPure},
      {kLoadReadOnly, "tl::load_read_only", "tl/memory.h", 0, {kRead}, kPure},
      // prefetch_l2(first element, bytes)
      {"tl.prefetch_l2", "tl::prefetch_l2", "tl/memory.h", 0, {kRead, kNone}, kPure.Observable()},
      // print_value(message, block x, y, z, dtype, value); an element has its buffer and index too
      {"tl.print_message", "tl::print_message", "tl/print.h", 0, {}, kPure.Observable()},
      {"tl.print_value", "tl::print_value", "tl/print.h", 0, {}, kPure.Observable()},
      {"tl.print_element", "tl::print_element", "tl/print.h", 0, {}, kPure.Observable()},
      // device_assert(condition, message and place or nothing)
      {"tl.device_assert", "tl::device_assert", "tl/output.h", 0, {}, kPure.Observable()},
      // rng_init<generator>(state, seed, sequence, offset)
      {"tl.rng_init",
       "tl::rng_init",
       "tl/random.h",
       1,
       {kWrite, kNone, kNone, kNone},
       kPure.Gives(CallResult::kOfThread)},
      {"tl.rng_next",
       "tl::rng_next",
       "tl/random.h",
       1,
       {kReadWrite},
       kPure.Gives(CallResult::kOfThread)},
      {"tl.rng_uniform",
       "tl::rng_uniform",
       "tl/random.h",
       2,
       {kReadWrite},
       kPure.Gives(CallResult::kOfThread)},
      {"tl.rng_normal",
       "tl::rng_normal",
       "tl/random.h",
       2,
       {kReadWrite},
       kPure.Gives(CallResult::kOfThread)},
  };
}

}  // namespace tl
