/*!
 * Which boxes of a tensor a copy by TMA moves: a tile of shared
 * memory is cut into boxes each of which lies dense in it, row-major, but for the exchange of
 * 16-byte chunks that the hardware's swizzles make.
 */
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "../layout/layout.h"
#include "../tvm/analyzer.h"
#include "tile_op.h"

namespace tl {

/*! Bytes that a row of a box and a tensor's strides are multiples of. */
constexpr int64_t kTmaChunkBytes = 16;
constexpr int64_t kL2LineBytes = 128;

/*! A dimension of the shared tile and the dimension of the tensor that goes with it. */
struct TmaDim {
  size_t global;
  size_t shared;
  int64_t box;    // elements of one copy
  int64_t count;  // boxes side by side
};

/*!
 * The pixels that a copy in im2col mode walks over, the same in both directions: from `lower` of
 * the first pixel of an image to `upper` of its last one, in steps (PTX ISA, Tensors, "Im2col
 * mode").
 */
struct PixelBox {
  int64_t lower, upper, step;
};

struct TmaPlan {
  int swizzle = 0;           // bytes: 128, 64, 32, or 0
  std::vector<TmaDim> dims;  // those longer than 1, in program order
  /*! Dimensions of the tensor that its map has, in program order: all, or where there are more than
   * five, those that are longer than 1 in the tensor or in the tile. */
  std::vector<size_t> map_dims;

  /*! In im2col mode `dims` are pixels and channels, whose `global` is their dimension of the matrix
   * (im2col.h). */
  std::optional<PixelBox> pixels;

  /*! Where the region of the tensor and its place in shared memory are one piece each: its bytes.
   * Such a copy needs no tensor map, and the tensor's strides may be any; 0 elsewhere. */
  int64_t bulk_bytes = 0;

  /*! Where each warp group copies rows of its own, the boxes of its part: the tensor's dimension.
   */
  std::optional<size_t> group_dim;

  /*! Extent of the box in a dimension of the tensor. */
  int64_t BoxOf(size_t global) const;
  /*! The plan as an attribute that prints, and from it. */
  Map<String, Any> Describe() const;
  static TmaPlan From(const Map<String, Any>& text);
};

/*! How much has to be proved: what nobody asked for must be legal for every shape that a call may
 * bring, what the user asks for is checked again when the map is made. */
enum class TmaProof : uint8_t { kFully, kAtLaunch };

/*! The stride of a dimension, in a tensor map. That of one element is never taken: where the
 * tensor's own is no multiple of 16 bytes, which a map wants, the next one is as good. */
Expr TmaByteStride(const BufferTypeNode* type, size_t dim);

/*!
 * Plans a copy between a region of a tensor and one of a shared tile that lies as `layout` says;
 * one that `writes` the tensor is a store or a reduction. Returns why there is no plan, as the
 * words behind "found"; empty if there is one.
 */
std::string PlanTma(const TileRegion& global, const TileRegion& shared, const Layout& layout,
                    bool writes, TmaProof proof, Analyzer* analyzer, TmaPlan* plan);

/*!
 * Plans a copy in im2col mode: rows of the tile, its last two dimensions, are channels of one pixel
 * each of `image` (N, H, W, C). Legal for every shape that a call may bring.
 */
std::string PlanTmaPixels(const TileRegion& image, const TileRegion& tile, const Layout& layout,
                          const PixelBox& pixels, Analyzer* analyzer, TmaPlan* plan);

/*!
 * Why the elements of one shared region are not bytes in one piece that another one has in the same
 * order, as the words behind "found"; empty if they are: one copy of bytes moves them.
 */
std::string WhyNotBytes(const TileRegion& from, const Layout& from_layout, const TileRegion& to,
                        const Layout& to_layout, Analyzer* analyzer);

/*! The layout that TMA writes and threads read best: the widest swizzle that the tile and the
 * copied region have room for, else row-major, as for a region that is not eights of rows. */
Layout ProposeTmaLayout(const TileRegion& shared);
/*! The same for a tile that threads write and TMA stores. Boxes of a swizzle are as wide as it is,
 * and pieces of rows below a line of L2 are slow to store: rows that are no whole lines are one box
 * without a swizzle, unless more than two of eight rows, which stmatrix writes at once, lie in the
 * same banks. */
Layout ProposeStoreLayout(const TileRegion& shared);

}  // namespace tl
