/*! Copies of boxes of tensors between global and shared memory by TMA. */
#pragma once

#include <tl/bulk_write.h>
#include <tl/grid.h>
#include <tl/mbarrier_state.h>
#include <tl/tensor_map_state.h>

namespace tl {
namespace emu {

// A row has at most 256 elements of at most 8 bytes.
constexpr unsigned kMaxRowBytes = 2048;

struct TensorLoad {
  static constexpr const char* kName = "TMA load";
  Box box;
  unsigned char* shared;
  Mbarrier* barrier;

  const void* place() const { return shared; }
  unsigned long size() const { return box.map.bytes(); }

  void perform(const AsyncOperation& operation) const {
    box.each_row([this](const BoxRow& row) { load(row); });
    transact(*barrier, -int(box.map.bytes()), operation.where);
  }

 private:
  void load(const BoxRow& row) const {
    const TensorMap& map = box.map;
    const unsigned bytes = map.row_bytes();
    const char* from = row.address;
    char padded[kMaxRowBytes];
    if (row.from > 0 || row.to < bytes) {
      fill_outside(map, padded, bytes);
      if (row.from < row.to) {
        __builtin_memcpy(padded + row.from, row.address + row.from, row.to - row.from);
      }
      from = padded;
    }
    each_piece(map, shared, row.index, [from](unsigned char* to, unsigned at, unsigned n) {
      __builtin_memcpy(to, from + at, n);
    });
  }
};

/*! Reads the box from shared memory; the write follows. */
struct TensorStore {
  static constexpr const char* kName = "TMA store";
  Box box;
  const unsigned char* shared;
  Combine combine;
  AsyncQueue* writes;

  const void* place() const { return nullptr; }
  unsigned long size() const { return box.map.bytes(); }

  void perform(const AsyncOperation& operation) const {
    const TensorMap& map = box.map;
    char* data = push_write(*writes, Write{box, combine}, map.bytes(), operation);
    for (unsigned row = 0; row < map.rows(); ++row, data += map.row_bytes()) {
      each_piece(map, shared, row, [data](const unsigned char* from, unsigned at, unsigned n) {
        __builtin_memcpy(data + at, from, n);
      });
    }
  }

 private:
  struct Write {
    Box box;
    Combine combine;

    void perform(const char* data) const {
      box.each_row([this, data](const BoxRow& row) {
        if (row.from == row.to) return;
        const char* from = data + row.index * box.map.row_bytes() + row.from;
        if (combine) {
          combine(row.address + row.from, from, row.to - row.from);
        } else {
          __builtin_memcpy(row.address + row.from, from, row.to - row.from);
        }
      });
    }
  };
};

/*! Hopper takes it for an illegal instruction if a box begins elsewhere, which PTX ISA leaves out.
 */
TL_RUNTIME void check_innermost(const Box& box, Location where) {
  const int elements = 16 / int(box.map.element_bytes());
  if (box.start[0] % elements == 0) return;
  fail(where,
       "innermost coordinate %d of a box of elements of %d bytes, an illegal instruction on a GPU. "
       "Use a multiple of %d",
       box.start[0], int(box.map.element_bytes()), elements);
}

/*! A GPU writes the whole chunk of 16 bytes in which a row of the tensor ends, which PTX ISA leaves
 * out: to what lies behind the tensor. */
TL_RUNTIME void check_row_ends(const Box& box, Location where) {
  box.each_row([&](const BoxRow& row) {
    if (row.from == row.to || row.to % 16 == 0) return;
    fail(where,
         "a row of the tensor that ends %u bytes behind a multiple of 16, where a GPU writes all "
         "16. "
         "Use a tensor whose rows are whole chunks of 16 bytes",
         row.to % 16);
  });
}

TL_RUNTIME Box make_box(const CUtensorMap& map, const int* coordinates, unsigned rank, bool im2col,
                        Location where) {
  worker->current->where = where;
  Box box{read_tensor_map(map, rank, im2col, where), {}, {}};
  box.map.address = static_cast<char*>(check_relocated(box.map.address));
  for (unsigned d = 0; d < rank; ++d) box.start[d] = coordinates[d];
  check_innermost(box, where);
  if (!im2col) return box;
  // PTX ISA, Im2col mode: the offsets have 16, 8 or 5 bits.
  const int limit = rank == 3 ? 1 << 16 : rank == 4 ? 1 << 8 : 1 << 5;
  for (unsigned d = 0; d < rank - 2; ++d) {
    box.offsets[d] = coordinates[rank + d];
    if (box.offsets[d] < 0 || box.offsets[d] >= limit) {
      fail(where, "im2col offset %d of a tensor of %u dimensions. Use 0 to %d", box.offsets[d],
           rank, limit - 1);
    }
  }
  return box;
}

TL_RUNTIME void check_box(const Box& box, const void* shared, Location where) {
  check_alignment(shared, 128, "shared address of a TMA copy", where);
  check_in_shared(shared, box.map.bytes(), "this box of a TMA copy", where);
}

/*! Calls `tensor(address, bytes)` and `block(address, bytes)` for what a copy of the box touches.
 */
template <typename Byte, typename Tensor, typename Shared>
void each_access(const Box& box, Byte* shared, Tensor tensor, Shared block) {
  box.each_row([&](const BoxRow& row) {
    if (row.from < row.to) tensor(row.address + row.from, row.to - row.from);
    each_piece(box.map, shared, row.index, [&](Byte* at, unsigned, unsigned n) { block(at, n); });
  });
}

TL_RUNTIME void issue_tensor_load(Mbarrier& barrier, const TensorLoad& load, Location where) {
  if (TL_EMU_CHECKS) {
    const Agent agent = check_issue(barrier.now());
    each_access(
        load.box, load.shared,
        [&](const char* from, unsigned n) { check_read(agent, from, n, where); },
        [&](unsigned char* to, unsigned n) { check_write(agent, to, n, where); });
  }
  issue_at(barrier, load, where);
}

TL_RUNTIME void issue_load(const CUtensorMap& map, uint64_t* barrier, void* shared,
                           const int* coordinates, unsigned rank, bool im2col, Location where) {
  const Box box = make_box(map, coordinates, rank, im2col, where);
  check_box(box, shared, where);
  Mbarrier& state = mbarrier_at(barrier, "use by a TMA copy", where);
  issue_tensor_load(state, TensorLoad{box, static_cast<unsigned char*>(shared), &state}, where);
}

TL_RUNTIME void issue_multicast(const CUtensorMap& map, uint64_t* barrier, void* shared,
                                uint16_t blocks, const int* coordinates, unsigned rank, bool im2col,
                                Location where) {
  const Box box = make_box(map, coordinates, rank, im2col, where);
  check_box(box, shared, where);
  each_block(blocks, where, [&](unsigned block) {
    auto* to = static_cast<unsigned char*>(map_shared_alive(shared, block, where));
    Mbarrier& state =
        mbarrier_at(map_shared_alive(barrier, block, where), "use by a TMA copy", where);
    issue_tensor_load(state, TensorLoad{box, to, &state}, where);
  });
}

TL_RUNTIME void issue_store(const Box& box, const void* shared, Combine combine, Location where) {
  check_box(box, shared, where);
  check_row_ends(box, where);
  ThreadQueues& queues = worker->current->queues;
  if (TL_EMU_CHECKS) {
    const Agent reader = check_issue(Engine::kBulkRead, queues.bulk_reads.open_group);
    const Agent writer = check_issue(Engine::kBulkWrite, queues.bulk_writes.open_group);
    each_access(
        box, static_cast<const unsigned char*>(shared),
        [&](char* to, unsigned n) {
          combine ? check_reduce(writer, to, n, where) : check_write(writer, to, n, where);
        },
        [&](const unsigned char* from, unsigned n) { check_read(reader, from, n, where); });
  }
  issue(queues.bulk_reads,
        TensorStore{box, static_cast<const unsigned char*>(shared), combine, &queues.bulk_writes},
        where);
  perform_early(queues.bulk_writes);
}

/*! What combines elements of a type by an operator, or nullptr where there is no instruction. */
template <typename Op>
Combine find_combine(TensorType type) {
  constexpr bool kSum = is_same<Op, SumOp>;
  if constexpr (kSum || is_same<Op, MaxOp> || is_same<Op, MinOp>) {
    switch (type) {
      case kUint32:
        return combine<Op, uint32_t>;
      case kInt32:
        return combine<Op, int32_t>;
      case kUint64:
        return combine<Op, uint64_t>;
      case kInt64:
        return kSum ? combine<Op, uint64_t> : combine<Op, int64_t>;
      case kFloat16:
        return combine<Op, half_t>;
      case kBFloat16:
        return combine<Op, bfloat16_t>;
      case kFloat32:
        return kSum ? combine<Op, float> : nullptr;
      case kFloat64:
        return kSum ? combine<Op, double> : nullptr;
      default:
        return nullptr;
    }
  } else {
    switch (type) {
      case kUint32:
      case kInt32:
        return combine<Op, uint32_t>;
      case kUint64:
      case kInt64:
        return combine<Op, uint64_t>;
      default:
        return nullptr;
    }
  }
}

/*! A tensor map and where it is used: a location as a default argument cannot follow a pack. */
struct MapAt {
  const CUtensorMap& map;
  Location where;

  MapAt(const CUtensorMap& map, Location where = here()) : map(map), where(where) {}
};

}  // namespace emu

/*! Starts loading the box that begins at the coordinates into shared memory; the mbarrier counts
 * its bytes. */
template <uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_load(emu::MapAt map, uint64_t* barrier, void* shared,
                        Coordinates... coordinates) {
  const int c[] = {int(coordinates)...};
  emu::issue_load(map.map, barrier, shared, c, sizeof...(Coordinates), false, map.where);
}

/*! tma_load into the blocks of the cluster whose bit is set in `blocks`, at the same places. */
template <uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_load_multicast(emu::MapAt map, uint64_t* barrier, void* shared, uint16_t blocks,
                                  Coordinates... coordinates) {
  const int c[] = {int(coordinates)...};
  emu::issue_multicast(map.map, barrier, shared, blocks, c, sizeof...(Coordinates), false,
                       map.where);
}

/*! tma_load in im2col mode: `rank` coordinates of the first pixel, `rank` - 2 offsets. */
template <int rank, uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_load_im2col(emu::MapAt map, uint64_t* barrier, void* shared,
                               Coordinates... coordinates) {
  static_assert(sizeof...(Coordinates) == 2 * rank - 2,
                "tl::tma_load_im2col<rank> takes rank coordinates and rank - 2 offsets");
  const int c[] = {int(coordinates)...};
  emu::issue_load(map.map, barrier, shared, c, rank, true, map.where);
}

/*! tma_load_im2col into several blocks, as tma_load_multicast. */
template <int rank, uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_load_im2col_multicast(emu::MapAt map, uint64_t* barrier, void* shared,
                                         uint16_t blocks, Coordinates... coordinates) {
  static_assert(sizeof...(Coordinates) == 2 * rank - 2,
                "tl::tma_load_im2col_multicast<rank> takes rank coordinates and rank - 2 offsets");
  const int c[] = {int(coordinates)...};
  emu::issue_multicast(map.map, barrier, shared, blocks, c, rank, true, map.where);
}

/*! Starts storing a box from shared memory; completion is by this thread's groups. */
template <uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_store(emu::MapAt map, const void* shared, Coordinates... coordinates) {
  const int c[] = {int(coordinates)...};
  const emu::Box box = emu::make_box(map.map, c, sizeof...(Coordinates), false, map.where);
  emu::issue_store(box, shared, nullptr, map.where);
}

/*! tma_store that combines each element with what the tensor has. */
template <typename Op, typename... Coordinates>
TL_DEVICE void tma_reduce(emu::MapAt map, const void* shared, Coordinates... coordinates) {
  const int c[] = {int(coordinates)...};
  const emu::Box box = emu::make_box(map.map, c, sizeof...(Coordinates), false, map.where);
  const emu::Combine combine = emu::find_combine<Op>(box.map.type);
  if (!combine) emu::fail(map.where, "this tma_reduce has no form for the tensor's type");
  emu::issue_store(box, shared, combine, map.where);
}

/*! Asks for a box in the L2 cache. */
template <uint64_t hint = evict_normal, typename... Coordinates>
TL_DEVICE void tma_prefetch(emu::MapAt map, Coordinates... coordinates) {
  const int c[] = {int(coordinates)...};
  emu::make_box(map.map, c, sizeof...(Coordinates), false, map.where);
}

/*! Asks for the tensor map itself. */
TL_DEVICE void prefetch_tma_descriptor(emu::MapAt map) {
  emu::check_alignment(&map.map, 64, "address of a tensor map", map.where);
}

}  // namespace tl
