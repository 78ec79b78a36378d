/*! Copies of consecutive bytes by TMA, and the groups of copies from
 * shared memory. */
#pragma once

#include <tl/bulk_write.h>
#include <tl/grid.h>
#include <tl/mbarrier_state.h>
#include <tl/shared_address.h>
#include <tl/tensor_map.h>

namespace tl {
namespace emu {

struct BulkLoad {
  static constexpr const char* kName = "bulk load";
  void* to;
  const void* from;
  uint32_t bytes;
  Mbarrier* barrier;

  const void* place() const { return to; }
  unsigned long size() const { return bytes; }

  void perform(const AsyncOperation& operation) const {
    __builtin_memcpy(to, from, bytes);
    transact(*barrier, -int(bytes), operation.where);
  }
};

TL_RUNTIME void check_bulk(const void* shared, const void* global, uint32_t bytes, Location where) {
  worker->current->where = where;
  check_alignment(shared, 16, "shared address of a bulk copy", where);
  check_alignment(global, 16, "other address of a bulk copy", where);
  if (bytes % 16 != 0) {
    fail(where, "a bulk copy of %u bytes. Copy a multiple of 16", bytes);
  }
  check_in_shared(shared, bytes, "this end of a bulk copy", where);
}

/*! Reads shared memory; the write follows. */
struct BulkStore {
  static constexpr const char* kName = "bulk store";
  void* to;
  const void* from;
  uint32_t bytes;
  Combine combine;
  AsyncQueue* writes;

  const void* place() const { return to; }
  unsigned long size() const { return bytes; }

  void perform(const AsyncOperation& operation) const {
    Write write{to, bytes, combine};
    __builtin_memcpy(push_write(*writes, write, bytes, operation), from, bytes);
  }

 private:
  struct Write {
    void* to;
    uint32_t bytes;
    Combine combine;

    void perform(const char* data) const {
      if (combine) {
        combine(to, data, bytes);
      } else {
        __builtin_memcpy(to, data, bytes);
      }
    }
  };
};

/*! Tells the checks of a copy that an mbarrier announces. */
inline void issue_bulk_load(Mbarrier& barrier, const BulkLoad& load, Location where) {
  const Agent agent = check_issue(barrier.now());
  check_read(agent, load.from, load.bytes, where);
  check_write(agent, load.to, load.bytes, where);
  issue_at(barrier, load, where);
}

inline void issue_bulk_store(void* global, const void* shared, uint32_t bytes, Combine combine,
                             Location where) {
  check_bulk(shared, global, bytes, where);
  ThreadQueues& queues = worker->current->queues;
  check_read(check_issue(Engine::kBulkRead, queues.bulk_reads.open_group), shared, bytes, where);
  const Agent writer = check_issue(Engine::kBulkWrite, queues.bulk_writes.open_group);
  if (combine) {
    check_reduce(writer, global, bytes, where);
  } else {
    check_write(writer, global, bytes, where);
  }
  issue(queues.bulk_reads, BulkStore{global, shared, bytes, combine, &queues.bulk_writes}, where);
  perform_early(queues.bulk_writes);
}

}  // namespace emu

/*! Starts copying `bytes` bytes from global to shared memory; the mbarrier counts them. */
template <uint64_t hint = evict_normal>
TL_DEVICE void bulk_load(void* shared, const void* global, uint32_t bytes, uint64_t* barrier,
                         emu::Location where = emu::here()) {
  emu::check_bulk(shared, global, bytes, where);
  emu::Mbarrier& state = emu::mbarrier_at(barrier, "use by a bulk copy", where);
  emu::issue_bulk_load(state, emu::BulkLoad{shared, global, bytes, &state}, where);
}

/*! bulk_load into the blocks of the cluster whose bit is set in `blocks`, at the same places. */
template <uint64_t hint = evict_normal>
TL_DEVICE void bulk_load_multicast(void* shared, const void* global, uint32_t bytes,
                                   uint64_t* barrier, uint16_t blocks,
                                   emu::Location where = emu::here()) {
  emu::check_bulk(shared, global, bytes, where);
  emu::each_block(blocks, where, [&](unsigned rank) {
    void* to = emu::map_shared_alive(shared, rank, where);
    void* at = emu::map_shared_alive(barrier, rank, where);
    emu::Mbarrier& state = emu::mbarrier_at(at, "use by a bulk copy", where);
    emu::issue_bulk_load(state, emu::BulkLoad{to, global, bytes, &state}, where);
  });
}

/*! Starts copying `bytes` bytes from this block's shared memory to that of the block of rank
 * `rank`. */
TL_DEVICE void bulk_copy_remote(void* to, const void* from, uint32_t bytes, uint64_t* barrier,
                                uint32_t rank, emu::Location where = emu::here()) {
  emu::check_bulk(from, to, bytes, where);
  void* theirs = emu::map_shared_alive(to, rank, where);
  void* at = emu::map_shared_alive(barrier, rank, where);
  emu::Mbarrier& state = emu::mbarrier_at(at, "use by a bulk copy", where);
  emu::issue_bulk_load(state, emu::BulkLoad{theirs, from, bytes, &state}, where);
}

/*! Starts copying `bytes` bytes from shared to global memory, in this thread's open group. */
template <uint64_t hint = evict_normal>
TL_DEVICE void bulk_store(void* global, const void* shared, uint32_t bytes,
                          emu::Location where = emu::here()) {
  emu::issue_bulk_store(global, shared, bytes, nullptr, where);
}

/*! bulk_store that adds elements of T to what is there. */
template <typename T>
TL_DEVICE void bulk_reduce_add(T* global, const T* shared, uint32_t bytes,
                               emu::Location where = emu::here()) {
  emu::issue_bulk_store(global, shared, bytes, emu::combine<SumOp, T>, where);
}

/*! Asks for bytes of global memory in the L2 cache. */
TL_DEVICE void bulk_prefetch(const void* global, uint32_t bytes,
                             emu::Location where = emu::here()) {
  emu::check_alignment(global, 16, "address of a bulk prefetch", where);
  if (bytes % 16 != 0) emu::fail(where, "a prefetch of %u bytes. Use a multiple of 16", bytes);
}

/*! Makes this thread's copies from shared memory since the last call a group. */
TL_DEVICE void tma_store_arrive() {
  emu::worker->current->queues.bulk_reads.commit();
  emu::worker->current->queues.bulk_writes.commit();
}

/*! Waits until at most `groups` of this thread's groups are in flight: until shared memory has been
 * read, or with `read` false until global memory has been written. */
template <int groups, bool read = true>
TL_DEVICE void tma_store_wait(emu::Location where = emu::here()) {
  emu::worker->current->where = where;
  emu::ThreadQueues& queues = emu::worker->current->queues;
  queues.bulk_reads.wait(groups);
  emu::check_groups_done(emu::Engine::kBulkRead, queues.bulk_reads.done(groups));
  if (read) return;
  queues.bulk_writes.wait(groups);
  emu::check_groups_done(emu::Engine::kBulkWrite, queues.bulk_writes.done(groups));
}

}  // namespace tl
