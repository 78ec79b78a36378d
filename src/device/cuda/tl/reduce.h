/*! Reductions and scans over the lanes of a warp. All lanes that have not exited take part. */
#pragma once

#include <tl/reduce_ops.h>
#include <tl/warp.h>

namespace tl {
namespace detail {

TL_DEVICE int lane_index() {
  int lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/*! The value of another lane, word by word: PTX ISA, shfl.sync. A source that does not exist gives
 * an undefined value, for shuffle_up the lane's own. */
#define TL_SHUFFLE(name, mode, clamp)                                          \
  template <typename T>                                                        \
  TL_DEVICE T name(T value, int lane) {                                        \
    constexpr int kWords = (sizeof(T) + 3) / 4;                                \
    uint32_t words[kWords] = {};                                               \
    memcpy(words, &value, sizeof(T));                                          \
    TL_UNROLL for (int i = 0; i < kWords; ++i) {                               \
      asm volatile("shfl.sync." mode ".b32 %0, %0, %1, " clamp ", 0xffffffff;" \
                   : "+r"(words[i])                                            \
                   : "r"(lane));                                               \
    }                                                                          \
    memcpy(&value, words, sizeof(T));                                          \
    return value;                                                              \
  }
TL_SHUFFLE(shuffle_xor, "bfly", "31")
TL_SHUFFLE(shuffle_up, "up", "0")
TL_SHUFFLE(shuffle, "idx", "31")
#undef TL_SHUFFLE

/*! Op over all lanes of a warp in one instruction: PTX ISA, redux.sync, of integers of 32 bits from
 * sm_80 on. */
template <typename Op, typename T>
struct Redux {
  static constexpr bool kExists = false;
  static TL_DEVICE T run(T value) { return value; }
};
#if __CUDA_ARCH__ >= 800
#define TL_REDUX(Op, T, instruction)                                                \
  template <>                                                                       \
  struct Redux<Op, T> {                                                             \
    static constexpr bool kExists = true;                                           \
    static TL_DEVICE T run(T value) {                                               \
      asm volatile("redux.sync." instruction " %0, %0, 0xffffffff;" : "+r"(value)); \
      return value;                                                                 \
    }                                                                               \
  };
#define TL_REDUX_ALL(T, suffix)        \
  TL_REDUX(SumOp, T, "add." suffix)    \
  TL_REDUX(MaxOp, T, "max." suffix)    \
  TL_REDUX(MinOp, T, "min." suffix)    \
  TL_REDUX(MaxOpNan, T, "max." suffix) \
  TL_REDUX(MinOpNan, T, "min." suffix) \
  TL_REDUX(BitAndOp, T, "and.b32")     \
  TL_REDUX(BitOrOp, T, "or.b32")       \
  TL_REDUX(BitXorOp, T, "xor.b32")
TL_REDUX_ALL(int32_t, "s32")
TL_REDUX_ALL(uint32_t, "u32")
#undef TL_REDUX_ALL
#undef TL_REDUX
#endif

}  // namespace detail

/*! Op over `threads` lanes (a power of two), `scale` apart (one too), all of which exist; each of
 * them has the same result. */
template <typename Op, int threads, int scale, typename T>
TL_DEVICE T AllReduce(T value) {
  static_assert(threads * scale <= 32, "tl::AllReduce is over the lanes of one warp");
  if constexpr (threads == 32 && detail::Redux<Op, T>::kExists) {
    return detail::Redux<Op, T>::run(value);
  }
  TL_UNROLL for (int step = threads / 2; step > 0; step /= 2) {
    value = Op::run(value, detail::shuffle_xor(value, step * scale));
  }
  return value;
}

/*! AllReduce where the block may lack lanes of a group. The lanes of such a group take part,
 * because the warp shuffles together; their result is undefined, as is what they read. */
template <typename Op, int threads, int scale, typename T>
TL_DEVICE T AllReduceIfWhole(T value) {
  return AllReduce<Op, threads, scale>(value);
}

/*! Op over the lanes of `mask`, each of which calls; each of them has the same result. */
template <typename Op, typename T>
TL_DEVICE T reduce_lanes(uint32_t mask, T value) {
  T result = shfl_sync(mask, value, __ffs(mask) - 1, 32);
  for (uint32_t rest = mask & (mask - 1); rest != 0; rest &= rest - 1) {
    result = Op::run(result, shfl_sync(mask, value, __ffs(rest) - 1, 32));
  }
  return result;
}

/*! Op over lanes 0 to this one, of the warp's first `lanes` lanes. */
template <typename Op, int lanes, typename T>
TL_DEVICE T warp_scan(T value) {
  TL_UNROLL for (int step = 1; step < lanes; step *= 2) {
    const T before = detail::shuffle_up(value, step);
    if (detail::lane_index() >= step) value = Op::run(before, value);
  }
  return value;
}

/*! The value of lane `lane`. */
template <int lane, typename T>
TL_DEVICE T warp_broadcast(T value) {
  return detail::shuffle(value, lane);
}

}  // namespace tl
