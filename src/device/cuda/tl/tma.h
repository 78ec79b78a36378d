/*! Copies of boxes of tensors between global and shared memory by TMA
 * (sm_90). */
#pragma once

#include <tl/reduce_ops.h>
#include <tl/shared_address.h>
#include <tl/tensor_map.h>

namespace tl {
namespace detail {

// What the operators of reduce_ops.h are called in cp.reduce.async.bulk: templates, as in wgmma.h.
template <typename Op, int unused = 0>
struct TmaReduction;
#define TL_TMA_REDUCTION(Op, name)       \
  template <int unused>                  \
  struct TmaReduction<Op, unused> {      \
    static constexpr char text[] = name; \
  };
TL_TMA_REDUCTION(SumOp, "add")
TL_TMA_REDUCTION(MaxOp, "max")
TL_TMA_REDUCTION(MinOp, "min")
TL_TMA_REDUCTION(BitAndOp, "and")
TL_TMA_REDUCTION(BitOrOp, "or")
TL_TMA_REDUCTION(BitXorOp, "xor")
#undef TL_TMA_REDUCTION

// The instructions for tensors of one rank, with an array of coordinates. PTX ISA,
// cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and cp.async.bulk.prefetch.tensor.
template <int rank>
struct TensorCopy;
#define TL_TENSOR_COPY(rank, at5, at3, at2, ...)                                                   \
  template <>                                                                                      \
  struct TensorCopy<rank> {                                                                        \
    static TL_DEVICE void load(uint32_t to, const CUtensorMap* map, uint32_t barrier,              \
                               uint64_t hint, const int* c) {                                      \
      asm volatile("cp.async.bulk.tensor." #rank                                                   \
                   "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "    \
                   "[%0], [%1, {" at5 "}], [%2], %4;" ::"r"(to),                                   \
                   "l"(map), "r"(barrier), "n"(0), "l"(hint), __VA_ARGS__                          \
                   : "memory");                                                                    \
    }                                                                                              \
    static TL_DEVICE void multicast(uint32_t to, const CUtensorMap* map, uint32_t barrier,         \
                                    uint16_t blocks, uint64_t hint, const int* c) {                \
      asm volatile("cp.async.bulk.tensor." #rank                                                   \
                   "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster" \
                   ".L2::cache_hint [%0], [%1, {" at5 "}], [%2], %3, %4;" ::"r"(to),               \
                   "l"(map), "r"(barrier), "h"(blocks), "l"(hint), __VA_ARGS__                     \
                   : "memory");                                                                    \
    }                                                                                              \
    static TL_DEVICE void store(const CUtensorMap* map, uint32_t from, uint64_t hint,              \
                                const int* c) {                                                    \
      asm volatile("cp.async.bulk.tensor." #rank                                                   \
                   "d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {" at3                \
                   "}], [%1], %2;" ::"l"(map),                                                     \
                   "r"(from), "l"(hint), __VA_ARGS__                                               \
                   : "memory");                                                                    \
    }                                                                                              \
    template <typename Reduction>                                                                  \
    static TL_DEVICE void reduce(const CUtensorMap* map, uint32_t from, const int* c) {            \
      asm volatile("cp.reduce.async.bulk.tensor." #rank                                            \
                   "d.global.shared::cta.%2.tile.bulk_group [%0, {" at3 "}], [%1];" ::"l"(map),    \
                   "r"(from), "C"(Reduction::text), __VA_ARGS__                                    \
                   : "memory");                                                                    \
    }                                                                                              \
    static TL_DEVICE void prefetch(const CUtensorMap* map, uint64_t hint, const int* c) {          \
      asm volatile("cp.async.bulk.prefetch.tensor." #rank                                          \
                   "d.L2.global.tile.L2::cache_hint [%0, {" at2 "}], %1;" ::"l"(map),              \
                   "l"(hint), __VA_ARGS__                                                          \
                   : "memory");                                                                    \
    }                                                                                              \
  };
TL_TENSOR_COPY(1, "%5", "%3", "%2", "r"(c[0]))
TL_TENSOR_COPY(2, "%5, %6", "%3, %4", "%2, %3", "r"(c[0]), "r"(c[1]))
TL_TENSOR_COPY(3, "%5, %6, %7", "%3, %4, %5", "%2, %3, %4", "r"(c[0]), "r"(c[1]), "r"(c[2]))
TL_TENSOR_COPY(4, "%5, %6, %7, %8", "%3, %4, %5, %6", "%2, %3, %4, %5", "r"(c[0]), "r"(c[1]),
               "r"(c[2]), "r"(c[3]))
TL_TENSOR_COPY(5, "%5, %6, %7, %8, %9", "%3, %4, %5, %6, %7", "%2, %3, %4, %5, %6", "r"(c[0]),
               "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]))
#undef TL_TENSOR_COPY

// The last rank - 2 coordinates are the offsets of the pixels.
template <int rank>
struct Im2colCopy;
#define TL_IM2COL_COPY(rank, coordinates, offsets, ...)                                           \
  template <>                                                                                     \
  struct Im2colCopy<rank> {                                                                       \
    static TL_DEVICE void load(uint32_t to, const CUtensorMap* map, uint32_t barrier,             \
                               uint64_t hint, const int* c) {                                     \
      asm volatile("cp.async.bulk.tensor." #rank                                                  \
                   "d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.L2::cache_hint " \
                   "[%0], [%1, {" coordinates "}], [%2], {" offsets "}, %4;" ::"r"(to),           \
                   "l"(map), "r"(barrier), "n"(0), "l"(hint), __VA_ARGS__                         \
                   : "memory");                                                                   \
    }                                                                                             \
    static TL_DEVICE void multicast(uint32_t to, const CUtensorMap* map, uint32_t barrier,        \
                                    uint16_t blocks, uint64_t hint, const int* c) {               \
      asm volatile("cp.async.bulk.tensor." #rank                                                  \
                   "d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"                 \
                   ".multicast::cluster.L2::cache_hint [%0], [%1, {" coordinates                  \
                   "}], [%2], {" offsets "}, %3, %4;" ::"r"(to),                                  \
                   "l"(map), "r"(barrier), "h"(blocks), "l"(hint), __VA_ARGS__                    \
                   : "memory");                                                                   \
    }                                                                                             \
  };
#define TL_OFFSET(i) "h"(uint16_t(c[i]))
TL_IM2COL_COPY(3, "%5, %6, %7", "%8", "r"(c[0]), "r"(c[1]), "r"(c[2]), TL_OFFSET(3))
TL_IM2COL_COPY(4, "%5, %6, %7, %8", "%9, %10", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]),
               TL_OFFSET(4), TL_OFFSET(5))
TL_IM2COL_COPY(5, "%5, %6, %7, %8, %9", "%10, %11, %12", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]),
               "r"(c[4]), TL_OFFSET(5), TL_OFFSET(6), TL_OFFSET(7))
#undef TL_OFFSET
#undef TL_IM2COL_COPY

}  // namespace detail

/*!
 * Starts loading the box of the tensor that begins at the coordinates, innermost first, into shared
 * memory at a multiple of 128 bytes. The mbarrier's transactions count the bytes of the whole box;
 * elements outside of the tensor are filled in. One thread calls it. PTX ISA, cp.async.bulk.tensor.
 */
template <uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_load(const CUtensorMap& map, uint64_t* barrier, void* shared,
                        Coordinates... coordinates) {
  const int c[] = {int(coordinates)...};
  detail::TensorCopy<sizeof...(Coordinates)>::load(detail::shared_address(shared), &map,
                                                   detail::shared_address(barrier), hint, c);
}

/*!
 * tma_load into the blocks of the cluster whose bit is set in `blocks`, at the same places of their
 * shared memory, each of which signals its own mbarrier.
 */
template <uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_load_multicast(const CUtensorMap& map, uint64_t* barrier, void* shared,
                                  uint16_t blocks, Coordinates... coordinates) {
  const int c[] = {int(coordinates)...};
  detail::TensorCopy<sizeof...(Coordinates)>::multicast(
      detail::shared_address(shared), &map, detail::shared_address(barrier), blocks, hint, c);
}

/*!
 * tma_load in im2col mode from a tensor of `rank` 3, 4 or 5 (channels, then one to three pixel
 * coordinates, then images): `rank` coordinates of the first pixel, and `rank` - 2 offsets from
 * each pixel. PTX ISA, Tensor Access Modes.
 */
template <int rank, uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_load_im2col(const CUtensorMap& map, uint64_t* barrier, void* shared,
                               Coordinates... coordinates) {
  static_assert(sizeof...(Coordinates) == 2 * rank - 2,
                "tl::tma_load_im2col<rank> takes rank coordinates and rank - 2 offsets");
  const int c[] = {int(coordinates)...};
  detail::Im2colCopy<rank>::load(detail::shared_address(shared), &map,
                                 detail::shared_address(barrier), hint, c);
}

/*! tma_load_im2col into several blocks, as tma_load_multicast. */
template <int rank, uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_load_im2col_multicast(const CUtensorMap& map, uint64_t* barrier, void* shared,
                                         uint16_t blocks, Coordinates... coordinates) {
  static_assert(sizeof...(Coordinates) == 2 * rank - 2,
                "tl::tma_load_im2col_multicast<rank> takes rank coordinates and rank - 2 offsets");
  const int c[] = {int(coordinates)...};
  detail::Im2colCopy<rank>::multicast(detail::shared_address(shared), &map,
                                      detail::shared_address(barrier), blocks, hint, c);
}

/*!
 * Starts storing a box from shared memory, as tma_load loads it; elements outside of the tensor are
 * not stored. Completion is by this thread's groups: tma_store_arrive, tma_store_wait.
 */
template <uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_store(const CUtensorMap& map, const void* shared, Coordinates... coordinates) {
  const int c[] = {int(coordinates)...};
  detail::TensorCopy<sizeof...(Coordinates)>::store(&map, detail::shared_address(shared), hint, c);
}

/*!
 * tma_store that combines each element with what the tensor has, atomically, by an operator of
 * reduce_ops.h: SumOp (32-bit integers, uint64, floats), MaxOp and MinOp (integers of 32 and 64
 * bits, 16-bit floats), BitAndOp, BitOrOp and BitXorOp (integers of 32 and 64 bits). PTX ISA,
 * cp.reduce.async.bulk.tensor.
 */
template <typename Op, typename... Coordinates>
TL_DEVICE void tma_reduce(const CUtensorMap& map, const void* shared, Coordinates... coordinates) {
  const int c[] = {int(coordinates)...};
  detail::TensorCopy<sizeof...(Coordinates)>::template reduce<detail::TmaReduction<Op>>(
      &map, detail::shared_address(shared), c);
}

/*! Asks for a box in the L2 cache. PTX ISA, cp.async.bulk.prefetch.tensor. */
template <uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_prefetch(const CUtensorMap& map, Coordinates... coordinates) {
  const int c[] = {int(coordinates)...};
  detail::TensorCopy<sizeof...(Coordinates)>::prefetch(&map, hint, c);
}

/*! Asks for the tensor map itself. PTX ISA, prefetch.tensormap. */
TL_DEVICE void prefetch_tma_descriptor(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace tl
