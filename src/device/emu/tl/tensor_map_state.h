/*! What a tensor map says here, and the rows of a box (PTX ISA, Tensors). */
#pragma once

#include <tl/shared_address.h>
#include <tl/tensor_map.h>
#include <tl/traits.h>

namespace tl {
namespace emu {

/*! The numbers of CUtensorMapDataType in the CUDA Driver API. */
enum TensorType : uint8_t {
  kUint8,
  kUint16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBFloat16
};

constexpr unsigned kTensorMapMark = 0x7e450a9d;
constexpr int kMaxRank = 5;

/*! The contents of a CUtensorMap; tilelang.emulator.tensor_map writes them. Dimensions are
 * innermost first. */
struct TensorMap {
  char* address;
  uint64_t strides[kMaxRank - 1];  // in bytes, of dimensions 1 to rank - 1
  uint32_t last[kMaxRank];         // extents - 1
  uint32_t mark;
  uint16_t box[kMaxRank];  // of im2col: channels and pixels
  int16_t lower[3], upper[3];
  uint8_t element_strides[kMaxRank];
  uint8_t rank;
  TensorType type;
  uint8_t swizzle;  // bytes
  bool nan_fill;
  bool im2col;

  unsigned element_bytes() const {
    constexpr uint8_t kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    return kBytes[type];
  }
  unsigned row_bytes() const { return box[0] * element_bytes(); }
  unsigned count(int dimension) const {
    const unsigned step = element_strides[dimension];
    return (box[dimension] + step - 1) / step;
  }
  unsigned rows() const {
    if (im2col) return box[1];
    unsigned product = 1;
    for (int d = 1; d < rank; ++d) product *= count(d);
    return product;
  }
  unsigned bytes() const { return rows() * row_bytes(); }
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap), "the contents do not fit");

TL_RUNTIME const TensorMap& read_tensor_map(const CUtensorMap& map, unsigned rank, bool im2col,
                                            Location where) {
  check_alignment(&map, 64, "address of a tensor map", where);
  const auto& contents = reinterpret_cast<const TensorMap&>(map);
  if (contents.mark != kTensorMapMark) {
    fail(where, "these 128 bytes are no tensor map. Take the kernel's parameter as it is");
  }
  if (contents.rank != rank || contents.im2col != im2col) {
    fail(where, "%u %scoordinates for a tensor map of %u dimensions%s", rank,
         im2col ? "im2col " : "", contents.rank, contents.im2col ? " in im2col mode" : "");
  }
  check_map_used(&map, where);
  return contents;
}

/*! A place in the tensor, which may be outside of it. */
struct BoxRow {
  unsigned index;     // of the row in the box
  char* address;      // of the row's element 0 where all of it is inside
  unsigned from, to;  // the bytes of the row that are inside
};

/*! One copy's box: where it begins and, for im2col, the offsets from each pixel. */
struct Box {
  TensorMap map;
  int start[kMaxRank];
  int offsets[3];

  /*! Calls `visit(BoxRow)` for each row in the order of shared memory. */
  template <typename Visit>
  void each_row(Visit visit) const {
    int64_t at[kMaxRank];
    for (int d = 0; d < map.rank; ++d) at[d] = start[d];
    const unsigned rows = map.rows();
    for (unsigned row = 0; row < rows; ++row) {
      visit(row_at(row, at));
      map.im2col ? next_pixel(at) : next_row(at);
    }
  }

 private:
  BoxRow row_at(unsigned index, const int64_t* at) const {
    const int64_t bytes = map.element_bytes();
    char* address = map.address + start[0] * bytes;
    for (int d = 1; d < map.rank; ++d) {
      const bool pixel = map.im2col && d < map.rank - 1;
      const int64_t place = at[d] + (pixel ? offsets[d - 1] : 0);
      if (place < 0 || place > map.last[d]) return {index, nullptr, 0, 0};
      address += place * int64_t(map.strides[d - 1]);
    }
    const int64_t left = int64_t(map.last[0]) + 1 - start[0], width = map.box[0];
    const int64_t from = start[0] < 0 ? -int64_t(start[0]) : 0, to = left < width ? left : width;
    if (from >= to) return {index, nullptr, 0, 0};
    return {index, address, unsigned(from * bytes), unsigned(to * bytes)};
  }

  void next_row(int64_t* at) const {
    for (int d = 1; d < map.rank; ++d) {
      at[d] += map.element_strides[d];
      if (at[d] < start[d] + int64_t(map.box[d])) return;
      at[d] = start[d];
    }
  }

  // Pixels follow each other within the bounding box, then go on in the next image.
  void next_pixel(int64_t* at) const {
    for (int d = 1; d < map.rank - 1; ++d) {
      at[d] += map.element_strides[d];
      if (at[d] <= int64_t(map.last[d]) + map.upper[d - 1]) return;
      at[d] = map.lower[d - 1];
    }
    at[map.rank - 1] += 1;
  }
};

/*! Calls `visit(shared, offset in row, bytes)` for the pieces of a row of the box at `shared`. A
 * swizzle goes by addresses: each block's memory begins at a multiple of 1024. */
template <typename Byte, typename Visit>
void each_piece(const TensorMap& map, Byte* shared, unsigned row, Visit visit) {
  const unsigned bytes = map.row_bytes();
  Byte* begin = shared + row * bytes;
  if (!map.swizzle) {
    visit(begin, 0u, bytes);
    return;
  }
  for (unsigned i = 0; i < bytes; i += 16) {
    const uint32_t low = uint32_t(reinterpret_cast<uintptr_t>(begin + i)) & 1023;
    visit(begin + i - low + swizzle_address(low, map.swizzle), i, 16u);
  }
}

/*! Fills `bytes` bytes with what lies outside of the tensor. */
inline void fill_outside(const TensorMap& map, char* to, unsigned bytes) {
  if (!map.nan_fill) {
    __builtin_memset(to, 0, bytes);
    return;
  }
  const uint64_t nan = map.type == kFloat64   ? 0x7fffffffffffffff
                       : map.type == kFloat32 ? 0x7fffffff
                                              : 0x7fff;
  for (unsigned i = 0; i < bytes; i += map.element_bytes()) {
    __builtin_memcpy(to + i, &nan, map.element_bytes());
  }
}

}  // namespace emu
}  // namespace tl
