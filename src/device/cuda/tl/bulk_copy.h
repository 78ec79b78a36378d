/*! Copies of consecutive bytes by TMA, and the groups of copies from
 * shared memory (sm_90). */
#pragma once

#include <tl/shared_address.h>
#include <tl/tensor_map.h>
#include <tl/traits.h>

namespace tl {

/*!
 * Starts copying `bytes` bytes from global to shared memory; both addresses and the size are
 * multiples of 16. The mbarrier's transactions count them. One thread calls it. PTX ISA,
 * cp.async.bulk.
 */
template <uint64_t hint = evict_normal>
TL_DEVICE void bulk_load(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(detail::shared_address(shared)),
      "l"(global), "r"(bytes), "r"(detail::shared_address(barrier)), "l"(hint)
      : "memory");
}

/*! bulk_load into the blocks of the cluster whose bit is set in `blocks`, at the same places. */
template <uint64_t hint = evict_normal>
TL_DEVICE void bulk_load_multicast(void* shared, const void* global, uint32_t bytes,
                                   uint64_t* barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(detail::shared_address(shared)),
      "l"(global), "r"(bytes), "r"(detail::shared_address(barrier)), "h"(blocks), "l"(hint)
      : "memory");
}

/*!
 * Starts copying `bytes` bytes, in multiples of 16, from this block's shared memory to that of the
 * block of rank `rank` in the cluster; `to` and `barrier` are the places in this block's that the
 * other's correspond to. PTX ISA, cp.async.bulk.
 */
TL_DEVICE void bulk_copy_remote(void* to, const void* from, uint32_t bytes, uint64_t* barrier,
                                uint32_t rank) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(detail::remote_address(to, rank)),
      "r"(detail::shared_address(from)), "r"(bytes), "r"(detail::remote_address(barrier, rank))
      : "memory");
}

/*!
 * Starts copying `bytes` bytes from shared to global memory, in multiples of 16. Completion is by
 * this thread's groups: tma_store_arrive, tma_store_wait.
 */
template <uint64_t hint = evict_normal>
TL_DEVICE void bulk_store(void* global, const void* shared, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
          global),
      "r"(detail::shared_address(shared)), "r"(bytes), "l"(hint)
      : "memory");
}

/*!
 * bulk_store that adds elements of T to what is there, atomically; T is half_t, bfloat16_t, float,
 * double, int, uint32_t or uint64_t. PTX ISA, cp.reduce.async.bulk.
 */
template <typename T>
TL_DEVICE void bulk_reduce_add(T* global, const T* shared, uint32_t bytes) {
  const uint32_t from = detail::shared_address(shared);
#define TL_REDUCE(type)                                                       \
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add." type \
               " [%0], [%1], %2;" ::"l"(global),                              \
               "r"(from), "r"(bytes)                                          \
               : "memory")
  if constexpr (is_same<T, half_t>) {
    TL_REDUCE("noftz.f16");
  } else if constexpr (is_same<T, bfloat16_t>) {
    TL_REDUCE("noftz.bf16");
  } else if constexpr (is_same<T, float>) {
    TL_REDUCE("f32");
  } else if constexpr (is_same<T, double>) {
    TL_REDUCE("f64");
  } else if constexpr (is_same<T, int>) {
    TL_REDUCE("s32");
  } else if constexpr (is_same<T, uint32_t>) {
    TL_REDUCE("u32");
  } else {
    static_assert(is_same<T, uint64_t>, "tl::bulk_reduce_add has no form for this type");
    TL_REDUCE("u64");
  }
#undef TL_REDUCE
}

/*! Asks for bytes of global memory in the L2 cache. PTX ISA, cp.async.bulk.prefetch. */
TL_DEVICE void bulk_prefetch(const void* global, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

/*! Makes this thread's copies from shared memory since the last call a group. PTX ISA,
 * cp.async.bulk.commit_group. */
TL_DEVICE void tma_store_arrive() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/*!
 * Waits until at most `groups` of this thread's groups are in flight: until shared memory has been
 * read, or with `read` false until global memory has been written. PTX ISA,
 * cp.async.bulk.wait_group.
 */
template <int groups, bool read = true>
TL_DEVICE void tma_store_wait() {
  if constexpr (read) {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
  } else {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(groups) : "memory");
  }
}

}  // namespace tl
