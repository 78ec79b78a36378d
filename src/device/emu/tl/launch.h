/*! Running a kernel: all blocks in order, the threads of a block as fibers. */
#pragma once

#include <tl/barrier.h>
#include <tl/deadlock.h>
#include <tl/fault.h>

namespace tl {
namespace emu {

constexpr unsigned kMaxSharedBytes = 227 * 1024;

}  // namespace emu
}  // namespace tl

/*! Dynamic shared memory of the block that this worker runs. */
extern "C" {
__attribute__((
    aligned(1024))) inline thread_local unsigned char buf_dyn_shmem[tl::emu::kMaxSharedBytes];
}

namespace tl {
namespace emu {

struct Launch {
  const char* kernel;
  dim3 grid, block;
  unsigned shared_bytes;
  void (*invoke)(const void* closure);
  const void* closure;
  char* error;
  unsigned long error_size;
};

// Unwritten shared memory reads as NaN, and what is written behind its end shows.
constexpr unsigned char kPoison = 0xff;
constexpr unsigned kWatchedBytes = 4096;

inline void fiber_main() {
  worker->invoke(worker->closure);
  exit_thread();
  __builtin_unreachable();
}

inline void prepare_block() {
  Worker& w = *worker;
  w.live = w.threads;
  w.ready = {};
  for (WaitPoint& barrier : w.barriers) barrier = {};
  for (unsigned i = 0; i < kMaxThreads / kWarpSize; ++i) {
    Warp& warp = w.warps[i];
    const unsigned first = i * kWarpSize, rest = w.threads > first ? w.threads - first : 0;
    warp = {};
    warp.point.collective = true;
    warp.point.expected = rest < kWarpSize ? rest : kWarpSize;
    warp.barrier.collective = true;
    warp.barrier.name = "sync_warp";
  }
  for (unsigned i = 0; i < w.threads; ++i) {
    Fiber& fiber = w.fibers[i];
    fiber.linear = i;
    fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    fiber.exited = false;
    fiber.waits_at = nullptr;
    fiber.where = {};
    fiber.copies.clear();
    make_context(fiber.context, stack_top(w.stacks, i), kStackBytes / 2, fiber_main);
    w.ready.push(&fiber);
  }
}

inline void check_shared_end(unsigned shared_bytes) {
  const unsigned rest = kMaxSharedBytes - shared_bytes;
  for (unsigned i = 0; i < (rest < kWatchedBytes ? rest : kWatchedBytes); ++i) {
    if (buf_dyn_shmem[shared_bytes + i] == kPoison) continue;
    worker->failed = true;
    Text text{worker->error, worker->error_size};
    text.add("block ");
    text.add(block_index());
    text.add(" of %s wrote to byte %u of %u bytes of dynamic shared memory. Launch it with more",
             worker->kernel, shared_bytes + i, shared_bytes);
    return;
  }
}

inline void run_block(unsigned shared_bytes) {
  prepare_block();
  memset(buf_dyn_shmem, kPoison, shared_bytes);
  Fiber* first = worker->ready.pop();
  worker->current = first;
  switch_context(worker->scheduler, first->context);
  worker->current = nullptr;
  if (!worker->failed && worker->live > 0) report_deadlock();
  if (!worker->failed) check_shared_end(shared_bytes);
}

inline void run_grid(const Launch& launch) {
  gridDim = launch.grid;
  blockDim = launch.block;
  memset(buf_dyn_shmem, kPoison, kMaxSharedBytes);
  for (unsigned z = 0; z < launch.grid.z; ++z) {
    for (unsigned y = 0; y < launch.grid.y; ++y) {
      for (unsigned x = 0; x < launch.grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        run_block(launch.shared_bytes);
        if (worker->failed) return;
      }
    }
  }
}

/*! What a GPU refuses to launch (CUDA C++ Programming Guide, Technical Specifications per Compute
 * Capability). */
inline bool check_launch(const Launch& launch, Text& text) {
  const dim3 g = launch.grid, b = launch.block;
  const unsigned long threads = static_cast<unsigned long>(b.x) * b.y * b.z;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > INT32_MAX || g.y > 65535 || g.z > 65535) {
    text.add("%s: the grid is (%u, %u, %u). Use 1 to (2147483647, 65535, 65535)", launch.kernel,
             g.x, g.y, g.z);
  } else if (threads == 0 || threads > kMaxThreads || b.x > kMaxThreads || b.y > kMaxThreads ||
             b.z > 64) {
    text.add("%s: the block is (%u, %u, %u). Use 1 to %u threads, 64 along z", launch.kernel, b.x,
             b.y, b.z, kMaxThreads);
  } else if (launch.shared_bytes > kMaxSharedBytes) {
    text.add("%s: %u bytes of dynamic shared memory. Use at most %u", launch.kernel,
             launch.shared_bytes, kMaxSharedBytes);
  } else {
    return true;
  }
  return false;
}

/*! Runs the worker's blocks with fault handlers that have a stack to run on. */
inline void run_guarded(const Launch& launch, char* signal_stack, size_t signal_stack_bytes) {
  stack_t own = {}, previous = {};
  own.ss_sp = signal_stack;
  own.ss_size = signal_stack_bytes;
  sigaltstack(&own, &previous);
  install_fault_handlers();
  run_grid(launch);
  remove_fault_handlers();
  sigaltstack(&previous, nullptr);
}

/*! Runs the kernel; 0, or 1 with a report in launch.error. */
inline int run(const Launch& launch) {
  Text text{launch.error, launch.error_size};
  text.add("%s", "");
  if (!check_launch(launch, text)) return 1;
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  // One more than the threads: the stack of the fault handlers.
  char* stacks = map_stacks(threads + 1);
  Worker* mine = static_cast<Worker*>(calloc(1, sizeof(Worker)));
  if (stacks && mine) {
    mine->threads = threads;
    mine->stacks = stacks;
    mine->invoke = launch.invoke;
    mine->closure = launch.closure;
    mine->kernel = launch.kernel;
    mine->error = launch.error;
    mine->error_size = launch.error_size;
    worker = mine;
    run_guarded(launch, stacks + threads * stack_stride() + page_bytes(), kStackBytes);
    worker = nullptr;
    for (Fiber& fiber : mine->fibers) fiber.copies.free_items();
  } else {
    text.add("%s: no memory for the stacks of %u threads", launch.kernel, threads);
  }
  const bool failed = !stacks || !mine || mine->failed;
  free(mine);
  if (stacks) unmap_stacks(stacks, threads + 1);
  return failed;
}

template <unsigned... I>
struct Indices {};
template <unsigned N, unsigned... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <unsigned... I>
struct MakeIndices<0, I...> {
  using type = Indices<I...>;
};

template <typename T>
struct Value {
  using type = T;
};
template <typename T>
struct Value<const T> {
  using type = T;
};

/*! The kernel and its arguments: arguments[i] points to the i-th one, as for cuLaunchKernel. */
template <typename... P>
struct Call {
  void (*kernel)(P...);
  void** arguments;

  static void invoke(const void* self) {
    static_cast<const Call*>(self)->unpack(typename MakeIndices<sizeof...(P)>::type());
  }

 private:
  template <unsigned... I>
  void unpack(Indices<I...>) const {
    kernel(*static_cast<typename Value<P>::type*>(arguments[I])...);
  }
};

template <typename... P>
int launch(const char* name, void (*kernel)(P...), const unsigned* grid, const unsigned* block,
           unsigned shared_bytes, void** arguments, char* error, unsigned long error_size) {
  const Call<P...> call{kernel, arguments};
  return run({name, dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]),
              shared_bytes, Call<P...>::invoke, &call, error, error_size});
}

}  // namespace emu
}  // namespace tl

/*! Exports `tl_launch_<kernel>`, which runs a grid of it and returns 0, or 1 with a report in
 * `error`. */
#define TL_EMU_EXPORT(kernel)                                                                      \
  extern "C" __attribute__((visibility("default"))) int tl_launch_##kernel(                        \
      const unsigned grid[3], const unsigned block[3], unsigned dynamic_shared_bytes, void** args, \
      char* error, unsigned long error_size) {                                                     \
    return tl::emu::launch(#kernel, &kernel, grid, block, dynamic_shared_bytes, args, error,       \
                           error_size);                                                            \
  }
