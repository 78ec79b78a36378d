/*!
 * Loads of a tile to shared memory (LDS) that no register holds: AMD's buffer_load with LDS (CDNA3
 * ISA, "Memory Buffer Load to LDS").
 *
 * The instruction has one address of LDS for a wavefront, M0, and writes the `bytes` of lane l at
 * M0 + l * bytes. So consecutive lanes have consecutive places, whatever the tile's layout: each
 * lane loads the element whose place is its own, which is the layout's inverse. A swizzle is
 * applied to the addresses in global memory.
 */
#pragma once
#include <string>
#include <vector>

#include "operator.h"

namespace tl {

/*! Attribute of the call: the bytes of a lane that one instruction moves. */
inline constexpr const char* kLaneBytes = "bytes";

/*! Tensors have less, since the offsets of a buffer resource have 32 bits. */
inline constexpr int64_t kMostResourceBytes = int64_t(1) << 31;
/*! The bytes of a tensor that a buffer resource can have; nullopt for 2 GiB and more, for sizes
 * that the call decides, and for parts of a byte. */
std::optional<int64_t> ResourceBytes(const Var& tensor);

/*!
 * The bytes from the first element of a region of a tensor to its last one; nullopt where the call
 * decides it. Below `kMostResourceBytes`, a resource that begins at the region reaches all of it,
 * whatever the tensor's size is.
 */
std::optional<int64_t> ReachOf(const TileRegion& region);

/*! How a tile's places are dealt to lanes. */
struct LdsPlan {
  /*! What a lane copies by one instruction, in bytes and in elements. */
  int64_t bytes = 0, unit = 0;
  /*! The first dimension of the tile of which several elements are copied, `share` of them: one of
   * equal shares. Those behind it are copied whole, those in front have one element. The elements
   * that are copied are `block`. */
  size_t first_dim = 0;
  int64_t share = 0, block = 0;
  /*! From the number of a unit of the block in memory to its coordinates, the last one counted in
   * units. */
  Layout inverse;
};

/*!
 * Plans the copy to `dst`, in `layout` (undefined: row-major), by `threads` threads: the
 * widest of `widths` (the fewest bytes first, `aligned` at most), of which each thread has equally
 * many. Returns why there is none, as words, else "".
 */
std::string PlanLdsCopy(const TileRegion& dst, const Layout& layout,
                        const std::vector<int64_t>& widths, int64_t aligned, int64_t threads,
                        LdsPlan* plan);

/*! ValueError: a copy that has to be loads to LDS cannot be. */
[[noreturn]] void RefuseLdsLoads(const std::string& why, const Span& span);

/*! The loads of one thread, as stores of vectors that LowerAsyncCopy makes instructions. */
Stmt LowerToLdsLoads(const TileRegion& src, const TileRegion& dst, const LdsPlan& plan,
                     LoweringScope* scope, const Span& span);

}  // namespace tl
