/*! How a program's kernels are launched. */
#pragma once

#include <tl/barrier.h>

/*! How a kernel is launched. A cluster of (1, 1, 1) is none. In a cooperative launch all blocks run
 * at the same time, so that they may wait for each other (sync_grid). */
extern "C" struct tl_launch_config {
  unsigned grid[3], block[3];
  unsigned dynamic_shared_bytes;
  unsigned cluster[3];
  unsigned cooperative;
  const unsigned long* argument_bytes;  // those that pointers lead to, or nullptr (Arguments)
  const tl_machine* machine;            // nullptr: one worker, round robin
};

namespace tl {
namespace emu {

struct Launch {
  const char* kernel;
  dim3 grid, block, cluster;
  unsigned shared_bytes;
  bool cooperative;
  bool static_arrays;  // __shared__ ones, which all blocks of a worker would have in common
  void (*invoke)(const void* closure);
  const void* closure;
  Arguments* arguments;
  tl_machine machine;
  unsigned ranks;
};

/*! Runs the kernel; 0, or 1 with a report that the caller frees (nullptr: no memory for it). */
int run(Launch launch, char** report);

/*! The static shared memory of the running thread's block. The first thread to ask poisons it. */
unsigned char* static_shared(unsigned bytes);

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
  const Arguments* arguments;

  static void invoke(const void* self) {
    static_cast<const Call*>(self)->unpack(typename MakeIndices<sizeof...(P)>::type());
  }

 private:
  template <unsigned... I>
  void unpack(Indices<I...>) const {
    void* const* const values = arguments->values + this_rank() * arguments->each;
    kernel(*static_cast<typename Value<P>::type*>(values[I])...);
  }
};

template <typename P>
inline constexpr Arguments::Kind kind_of = Arguments::kValue;
template <typename T>
inline constexpr Arguments::Kind kind_of<T*> = Arguments::kWritable;
template <typename T>
inline constexpr Arguments::Kind kind_of<const T*> = Arguments::kReadOnly;

/*! The launches of all ranks as one: the arguments of each behind those of the one before. */
template <typename... P>
int launch(const char* name, void (*kernel)(P...), const tl_launch_config* const* configs,
           bool static_arrays, void** const* values, unsigned ranks, char** report) {
  constexpr unsigned char kinds[] = {kind_of<P>..., Arguments::kValue};
  constexpr unsigned each = sizeof...(P);
  const tl_launch_config& config = *configs[0];
  const unsigned count = each * ranks;
  void** const all = static_cast<void**>(calloc(count + 1, sizeof(void*)));
  auto* const bytes = static_cast<unsigned long*>(calloc(count + 1, sizeof(unsigned long)));
  bool sized = true;
  for (unsigned i = 0; all && bytes && i < count; ++i) {
    const unsigned long* const known = configs[i / each]->argument_bytes;
    all[i] = values[i / each][i % each];
    if (known) bytes[i] = known[i % each];
    sized &= known != nullptr;
  }
  int failed = 1;
  *report = nullptr;
  if (all && bytes) {
    Arguments arguments = {all, sized ? bytes : nullptr, kinds, each, count};
    const Call<P...> call{kernel, &arguments};
    const unsigned *g = config.grid, *b = config.block, *c = config.cluster;
    failed = run(
        {name, dim3(g[0], g[1], g[2]), dim3(b[0], b[1], b[2]), dim3(c[0], c[1], c[2]),
         config.dynamic_shared_bytes, config.cooperative != 0, static_arrays, Call<P...>::invoke,
         &call, &arguments, config.machine ? *config.machine : tl_machine{}, ranks},
        report);
  }
  free(all);
  free(bytes);
  return failed;
}

/*! The number of a kernel's parameters; the bytes of the first `room` of them go to `bytes`. */
template <typename... P>
unsigned parameter_bytes(void (*)(P...), unsigned* bytes, unsigned room) {
  constexpr unsigned all[] = {unsigned(sizeof(P))..., 0};
  for (unsigned i = 0; i < room && i < sizeof...(P); ++i) bytes[i] = all[i];
  return sizeof...(P);
}

}  // namespace emu
}  // namespace tl

/*! Exports `tl_launch_<kernel>`, which runs a grid of it and returns 0, or 1 with a `report` that
 * the caller frees (nullptr: no memory for it). `function`: what the kernel is called in C++.
 * `static_arrays`: whether the program declares __shared__ arrays. And `tl_launch_ranks_<kernel>`,
 * which runs the grids of several ranks at the same time, each with arguments of its own but with
 * one grid, block and machine; `tl_parameters_<kernel>`, what the kernel takes. */
#define TL_EMU_EXPORT(kernel, function, static_arrays)                                             \
  extern "C" __attribute__((visibility("default"))) int tl_launch_ranks_##kernel(                  \
      const tl_launch_config* const* configs, void** const* args, unsigned ranks, char** report) { \
    return tl::emu::launch(#kernel, &function, configs, static_arrays, args, ranks, report);       \
  }                                                                                                \
  extern "C" __attribute__((visibility("default"))) int tl_launch_##kernel(                        \
      const tl_launch_config* config, void** args, char** report) {                                \
    return tl_launch_ranks_##kernel(&config, &args, 1, report);                                    \
  }                                                                                                \
  extern "C" __attribute__((visibility("default"))) unsigned tl_parameters_##kernel(               \
      unsigned* bytes, unsigned room) {                                                            \
    return tl::emu::parameter_bytes(&function, bytes, room);                                       \
  }
