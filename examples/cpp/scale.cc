// A server without Python: calls the kernel of a file on device memory that it has.
//
//   python -m tilelang.compile examples/cpp/scale.py:scale --arch sm_90a -o scale.tlk
//   g++ -std=c++17 -I src/runtime examples/cpp/scale.cc -ldl -o scale && ./scale scale.tlk

#define TILELANG_KERNEL_IMPLEMENTATION
#include <iostream>

#include "driver.h"
#include "tilelang_kernel.h"

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: scale FILE\n", 2;
  char message[TL_MESSAGE_BYTES];
  tl_kernel* kernel;
  if (tl_kernel_load(argv[1], 0, nullptr, &kernel, message)) throw std::runtime_error(message);

  Driver driver;
  const std::int64_t shape[] = {1000, 64};
  const std::vector<float> in(shape[0] * shape[1], 2.0f);
  void* const a = driver.on_device(in);
  void* const c = driver.allocate(in.size() * sizeof(float));

  const tl_argument arguments[] = {tl_float(a, 32, 2, shape), tl_number(1.5),
                                   tl_float(c, 32, 2, shape)};
  if (tl_kernel_launch(kernel, arguments, 3, nullptr, message)) throw std::runtime_error(message);
  for (float value : driver.on_host<float>(c, in.size())) {
    if (value != 3.0f) throw std::runtime_error("expected 3, got " + std::to_string(value));
  }
  tl_kernel_free(kernel);
  std::cout << "scaled " << in.size() << " numbers\n";
} catch (const std::exception& error) {
  return std::cerr << error.what() << "\n", 1;
}
