/*! mbarriers in shared memory, and the fences that go with them (sm_90). */
#pragma once

#include <tl/copy.h>

namespace tl {

/*!
 * Makes the 8 bytes, aligned to 8, an mbarrier whose phases need `arrivals` arrivals, 1 to 2^20
 * - 1. Other threads, and engines, may use it after fence_barrier_init and a barrier. PTX ISA,
 * mbarrier.init.
 */
TL_DEVICE void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(detail::shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

/*! Makes the mbarrier 8 bytes of memory again. PTX ISA, mbarrier.inval. */
TL_DEVICE void mbarrier_inval(uint64_t* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(detail::shared_address(barrier))
               : "memory");
}

/*! Arrives. PTX ISA, mbarrier.arrive. */
TL_DEVICE void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(detail::shared_address(barrier))
               : "memory");
}

/*! Arrives `count` times. PTX ISA, mbarrier.arrive. */
TL_DEVICE void mbarrier_arrive(uint64_t* barrier, uint32_t count) {
  asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(detail::shared_address(barrier)),
      "r"(count)
      : "memory");
}

/*!
 * Arrives once for the warp, after the accesses of all its lanes, each of which calls it. PTX ISA,
 * bar.warp.sync, which orders them, and elect.sync, which does not.
 */
TL_DEVICE void mbarrier_arrive_warp(uint64_t* barrier) {
  // One statement: around a branch, ptxas moves arrivals behind what may be done after them.
  asm volatile(
      "{\n.reg .pred p;\nbar.warp.sync 0xffffffff;\nelect.sync _|p, 0xffffffff;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(detail::shared_address(barrier))
      : "memory");
}

/*!
 * Arrives `count` times at the mbarrier that the block of rank `rank` in the cluster has at this
 * address of its shared memory, after this thread's accesses. PTX ISA, mbarrier.arrive and mapa.
 */
TL_DEVICE void mbarrier_arrive_remote(uint64_t* barrier, uint32_t rank, uint32_t count = 1) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                   detail::remote_address(barrier, rank)),
               "r"(count)
               : "memory");
}

/*!
 * mbarrier_arrive_remote whose release has the scope of this block: it says that this thread's
 * reads are over. It orders no writes of memory for the other block. PTX ISA, mbarrier.arrive.
 */
TL_DEVICE void mbarrier_arrive_remote_cta(uint64_t* barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(
                   detail::remote_address(barrier, rank))
               : "memory");
}

/*!
 * Arrives once for the warp at the mbarriers that the first `blocks` blocks of the cluster, 1 to
 * 32, have at this address, after what all its lanes have read there; each of them calls it. It
 * orders no writes of memory for the other blocks: a release at the scope of the cluster waits for
 * all that are on their way. PTX ISA, mbarrier.arrive and mapa.
 */
TL_DEVICE void mbarrier_arrive_warp_cluster(uint64_t* barrier, uint32_t blocks) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b32 lane, remote;\nbar.warp.sync 0xffffffff;\n"
      "mov.u32 lane, %%laneid;\nsetp.lt.u32 p, lane, %1;\n"
      "mapa.shared::cluster.u32 remote, %0, lane;\n"
      "@p mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(
          detail::shared_address(barrier)),
      "r"(blocks)
      : "memory");
}

/*!
 * The current phase waits for `bytes` more bytes of asynchronous copies, at most 2^20 - 1 in all.
 * PTX ISA, mbarrier.expect_tx.
 */
TL_DEVICE void mbarrier_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(
                   detail::shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

/*! mbarrier_expect_tx, then mbarrier_arrive. PTX ISA, mbarrier.arrive.expect_tx. */
TL_DEVICE void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   detail::shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

/*! mbarrier_arrive_expect_tx at the mbarrier of the block of rank `rank`. */
TL_DEVICE void mbarrier_arrive_expect_tx_remote(uint64_t* barrier, uint32_t bytes, uint32_t rank) {
  asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(
                   detail::remote_address(barrier, rank)),
               "r"(bytes)
               : "memory");
}

/*! Counts `bytes` bytes as transferred, as an engine does. PTX ISA, mbarrier.complete_tx. */
TL_DEVICE void mbarrier_complete_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(
                   detail::shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// PTX ISA, mbarrier.test_wait and mbarrier.try_wait.
#define TL_MBARRIER_POLL(name, instruction)                                       \
  TL_DEVICE bool name(uint64_t* barrier, uint32_t parity) {                       \
    uint32_t ended;                                                               \
    asm volatile("{\n.reg .pred p;\n" instruction                                 \
                 ".parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" \
                 : "=r"(ended)                                                    \
                 : "r"(detail::shared_address(barrier)), "r"(parity)              \
                 : "memory");                                                     \
    return ended;                                                                 \
  }
/*! Whether the latest phase with this parity (0 for the first one) has ended; does not wait. */
TL_MBARRIER_POLL(mbarrier_test_wait, "mbarrier.test_wait")
/*! mbarrier_test_wait that may wait for a while. */
TL_MBARRIER_POLL(mbarrier_try_wait, "mbarrier.try_wait")
#undef TL_MBARRIER_POLL

/*! Nanoseconds that a thread may sleep before it asks an mbarrier again, as many as CUTLASS has: of
 * a chip at the limit of its power, warps that ask all the time cost speed. */
constexpr uint32_t kMbarrierSleep = 10000000;

/*! Waits until the phase with this parity has ended: 0 for the first phase, 1 for the second, ...
 */
TL_DEVICE void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nTL_WAIT_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1, %2;\n"
      "@!p bra TL_WAIT_%=;\n}" ::"r"(detail::shared_address(barrier)),
      "r"(parity), "r"(kMbarrierSleep)
      : "memory");
}

/*! mbarrier_wait that also acquires what other blocks of the cluster released by their arrivals. */
TL_DEVICE void mbarrier_wait_cluster(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nTL_WAIT_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1, %2;\n"
      "@!p bra TL_WAIT_%=;\n}" ::"r"(detail::shared_address(barrier)),
      "r"(parity), "r"(kMbarrierSleep)
      : "memory");
}

/*!
 * Arrives when this thread's cp.async so far are complete; the phase needs one arrival more. PTX
 * ISA, cp.async.mbarrier.arrive.
 */
TL_DEVICE void cp_async_mbarrier_arrive(uint64_t* barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(detail::shared_address(barrier))
      : "memory");
}

/*!
 * Arrives when this thread's cp.async so far are complete. The arrival is one of those that the
 * mbarrier was initialised for. PTX ISA, cp.async.mbarrier.arrive.noinc.
 */
TL_DEVICE void cp_async_mbarrier_arrive_noinc(uint64_t* barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(detail::shared_address(barrier))
      : "memory");
}

/*! Orders initialisations of mbarriers before what the cluster does with them. PTX ISA,
 * fence.mbarrier_init. */
TL_DEVICE void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/*!
 * Orders this thread's accesses of shared memory before what engines do there after its next
 * signal. PTX ISA, fence.proxy.async.
 */
TL_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/*! The same for accesses of all memory. */
TL_DEVICE void fence_proxy_async_all() { asm volatile("fence.proxy.async;" ::: "memory"); }

}  // namespace tl
