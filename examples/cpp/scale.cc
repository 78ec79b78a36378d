// A server without Python: calls the kernel of a file on device memory that it has.
//
//   python -m tilelang.compile examples/cpp/scale.py:scale --arch sm_90a -o scale.tlk
//   g++ -std=c++17 -I src/runtime examples/cpp/scale.cc -ldl -o scale && ./scale scale.tlk
//
// Memory comes from the driver here, which a server would take from its own allocator.

#define TILELANG_KERNEL_IMPLEMENTATION
#include <cstdint>
#include <iostream>
#include <vector>

#include "tilelang_kernel.h"

namespace {

// The parts of the CUDA Driver API that this program calls itself.
struct Driver {
  explicit Driver(const char* name) : library(dlopen(name, RTLD_NOW)) {
    if (!library) throw std::string(dlerror());
  }
  template <typename Function>
  Function* get(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library, name));
  }
  void* library;
};

using Retain = int(void**, int);
using Push = int(void*);
using Allocate = int(std::uint64_t*, std::size_t);
using ToDevice = int(std::uint64_t, const void*, std::size_t);
using ToHost = int(void*, std::uint64_t, std::size_t);

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::cerr << "usage: scale FILE\n", 2;
  char message[TL_MESSAGE_BYTES];
  tl_kernel* kernel;
  if (tl_kernel_load(argv[1], 0, nullptr, &kernel, message)) return std::cerr << message << "\n", 1;

  const Driver driver("libcuda.so.1");
  void* context;
  driver.get<Retain>("cuDevicePrimaryCtxRetain")(&context, 0);
  driver.get<Push>("cuCtxPushCurrent_v2")(context);

  const std::int64_t shape[] = {1000, 64};
  std::vector<float> in(shape[0] * shape[1], 2.0f), out(in.size());
  const std::size_t bytes = in.size() * sizeof(float);
  std::uint64_t a, c;
  auto* allocate = driver.get<Allocate>("cuMemAlloc_v2");
  if (allocate(&a, bytes) || allocate(&c, bytes)) return std::cerr << "no device memory\n", 1;
  driver.get<ToDevice>("cuMemcpyHtoD_v2")(a, in.data(), bytes);

  const tl_argument arguments[] = {tl_float(reinterpret_cast<void*>(a), 32, 2, shape),
                                   tl_number(1.5),
                                   tl_float(reinterpret_cast<void*>(c), 32, 2, shape)};
  if (tl_kernel_launch(kernel, arguments, 3, nullptr, message))
    return std::cerr << message << "\n", 1;
  driver.get<ToHost>("cuMemcpyDtoH_v2")(out.data(), c, bytes);
  for (float value : out)
    if (value != 3.0f) return std::cerr << "expected 3, got " << value << "\n", 1;
  tl_kernel_free(kernel);
  std::cout << "scaled " << out.size() << " numbers\n";
}
