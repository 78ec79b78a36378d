/* Causal attention from C++, the example of examples/attention:
 *
 *   python -m tilelang.compile examples/attention/flash_attention.py:flash_attention \
 *     --arg batch=1 --arg heads=2 --arg length=256 --arg dim=64 --arg causal=True \
 *     --arch sm_90a -o attention.tlk
 *   g++ -std=c++17 -I src/runtime examples/cpp/attention.cc -ldl -o attention
 *   ./attention attention.tlk
 *
 * The keys are zeros, so that a row's weights are equal, and only the first value is 1: row i of
 * the result is 1 / (i + 1).
 */

#define TILELANG_KERNEL_IMPLEMENTATION
#include <algorithm>
#include <cmath>
#include <iostream>

#include "driver.h"
#include "tilelang_kernel.h"

namespace {

constexpr std::int64_t kShape[] = {1, 256, 2, 64};  // batch, length, heads, dim
constexpr std::uint16_t kOne = 0x3c00;              // of float16

// A float16 that is no infinity and no NaN.
double value_of(std::uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double size =
      exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
  return half >> 15 ? -size : size;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: attention FILE\n", 2;
  char message[TL_MESSAGE_BYTES];
  tl_kernel* kernel;
  if (tl_kernel_load(argv[1], 0, nullptr, &kernel, message)) throw std::runtime_error(message);

  Driver driver;
  const std::int64_t length = kShape[1], row = kShape[2] * kShape[3], elements = length * row;
  const std::vector<std::uint16_t> ones(elements, kOne), zeros(elements);
  std::vector<std::uint16_t> first(elements);
  std::fill_n(first.begin(), row, kOne);
  const std::int64_t one[] = {1};
  // What the program returns is its last parameter; who calls from here allocates it.
  std::int64_t shape[4];
  tl_argument arguments[] = {tl_float(driver.on_device(ones), 16, 4, kShape),
                             tl_float(driver.on_device(zeros), 16, 4, kShape),
                             tl_float(driver.on_device(first), 16, 4, kShape),
                             tl_int(driver.on_device(std::vector<std::int32_t>{0}), 32, 1, one),
                             tl_float(nullptr, 16, 4, shape)};
  if (tl_kernel_shape(kernel, arguments, 5, 4, shape, message)) throw std::runtime_error(message);
  void* const out = driver.allocate(elements * sizeof(std::uint16_t));
  arguments[4] = tl_float(out, 16, 4, shape);
  if (tl_kernel_launch(kernel, arguments, 5, nullptr, message)) throw std::runtime_error(message);

  const auto found = driver.on_host<std::uint16_t>(out, elements);
  for (std::int64_t i = 0; i < elements; ++i) {
    const double wanted = 1.0 / (i / row + 1);
    if (std::abs(value_of(found[i]) - wanted) > 1e-2 * wanted) {
      throw std::runtime_error("expected " + std::to_string(wanted) + ", got " +
                               std::to_string(value_of(found[i])));
    }
  }
  tl_kernel_free(kernel);
  std::cout << "attention of " << length << " rows\n";
} catch (const std::exception& error) {
  return std::cerr << error.what() << "\n", 1;
}
