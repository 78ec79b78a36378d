/*!
 * Matrix products of a warp group.
 *
 * A product is four products of a warp, each with its 16 rows: no warp waits for another one, and
 * each reads B by itself. They are performed when the warp waits for their group.
 */
#pragma once

#include <tl/issue.h>
#include <tl/wgmma_operand.h>

namespace tl {
namespace emu {

constexpr int kWarpRows = 16;

TL_DEVICE Warp& current_warp() { return this_block().warps[worker->current->linear / kWarpSize]; }

/*! d[n * 16 + row] += a[k * 16 + row] * b[n * b_row + k * b_k] over k, four rows to a vector. */
template <int N, int K, int b_row, int b_k, typename Number>
void add_products(const Number* a, const Number* b, Number* d) {
  typedef Number Vector __attribute__((vector_size(16)));
  constexpr int kVectors = kWarpRows / 4;
  for (int n = 0; n < N; n += 2, d += 2 * kWarpRows, b += 2 * b_row) {
    Vector sums[2 * kVectors], factors[kVectors];
    __builtin_memcpy(sums, d, sizeof(sums));
    for (int k = 0; k < K; ++k) {
      __builtin_memcpy(factors, a + k * kWarpRows, sizeof(factors));
      const Number left = b[k * b_k], right = b[k * b_k + b_row];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        sums[i] += left * factors[i];
        sums[kVectors + i] += right * factors[i];
      }
    }
    __builtin_memcpy(d, sums, sizeof(sums));
  }
}

/*! to[k * 16 + row] = from[row * K + k]. */
template <int K, typename Number>
void transpose_rows(const Number* from, Number* to) {
  for (int k = 0; k < K; ++k) {
    for (int row = 0; row < kWarpRows; ++row) to[k * kWarpRows + row] = from[row * K + k];
  }
}

/*! Where a lane's i-th accumulator is, for even i; the next is a column to the right. */
TL_DEVICE int accumulator_row(int lane, int i) { return lane / 4 + 8 * (i / 2 % 2); }
TL_DEVICE int accumulator_column(int lane, int i) { return 8 * (i / 4) + 2 * (lane % 4); }

struct WgmmaArguments {
  void* d;
  const void* a_registers;
  uint64_t a, b;
  bool sum;
  uint32_t metadata = 0;
};

/*! One warp's part of a product. */
template <int N, typename TA, typename TB, typename TC, bool from_registers, bool a_k_major,
          bool b_k_major, bool negate_a, bool negate_b, bool sparse = false>
struct WarpProduct {
  static constexpr const char* kName = "wgmma";
  static constexpr int kParts = sparse ? 2 : 1, kStored = wgmma_k<TA>, K = kParts * kStored;
  static constexpr bool kSparse = sparse;
  static constexpr bool kFromRegisters = from_registers;
  static constexpr unsigned kRegisterBytes = N / 2 * sizeof(TC);  // of a lane's accumulators
  static constexpr unsigned kOperandBytes = 16;                   // of a lane's part of A
  using Number = decltype(MmaNumber<TA>::of(mma_memory<TA>()));

  void* d[kWarpSize];
  const void* a_registers[from_registers ? kWarpSize : 1];
  const unsigned char* shared;
  uint64_t a, b;
  int first_row;
  bool sum;
  uint32_t metadata[sparse ? kWarpSize : 1];

  const void* place() const { return nullptr; }
  unsigned long size() const { return 0; }

  static void check(const WgmmaArguments& arguments, Location where) {
    if (!from_registers) {
      check_operand<4 * kWarpRows, TA, a_k_major>(arguments.a, "A", where);
    }
    check_operand<N, TB, b_k_major, kParts>(arguments.b, "B", where);
  }

  /*! Tells the checks what it reads. */
  void observe(const Agent& agent, Location where) const {
    const auto read = [&](const unsigned char* at) { check_read(agent, at, 16, where); };
    if (!from_registers) each_chunk<kWarpRows, TA, a_k_major>(shared, a, first_row, read);
    each_chunk<N, TB, b_k_major, kParts>(shared, b, 0, read);
  }

  void perform(const AsyncOperation& operation) const {
    alignas(32) Number a_numbers[K * kWarpRows], b_numbers[K * N], d_numbers[kWarpRows * N];
    load_a(a_numbers, operation.where);
    load_operand<N, TB, b_k_major, kParts>(shared, b, 0, b_numbers);
    if (negate_a != negate_b) {
      for (Number& x : a_numbers) x = -x;
    }
    exchange<false>(d_numbers);
    add_products<N, K, b_k_major ? K : 1, b_k_major ? 1 : N>(a_numbers, b_numbers, d_numbers);
    exchange<true>(d_numbers);
  }

 private:
  void load_a(Number* numbers, Location where) const {
    if constexpr (sparse) {
      static_assert(a_k_major, "a sparse A is K-major");
      Number stored[kWarpRows * kStored], rows[kWarpRows * K];
      load_operand<kWarpRows, TA, true>(shared, a, first_row, stored);
      MmaArguments lanes[kWarpSize];
      void* arguments[kWarpSize];
      for (int l = 0; l < kWarpSize; ++l) {
        lanes[l] = {nullptr, nullptr, nullptr, metadata[l], where};
        arguments[l] = &lanes[l];
      }
      expand<kWarpRows, K, TA>(arguments, stored, rows);
      transpose_rows<K>(rows, numbers);
    } else if constexpr (from_registers) {
      Number rows[kWarpRows * K];
      mma_operand<kWarpRows, K, TA, WgmmaNumber>([this](int l) { return a_registers[l]; }, rows);
      transpose_rows<K>(rows, numbers);
    } else if constexpr (a_k_major) {
      Number rows[kWarpRows * K];
      load_operand<kWarpRows, TA, true>(shared, a, first_row, rows);
      transpose_rows<K>(rows, numbers);
    } else {
      load_operand<kWarpRows, TA, false>(shared, a, first_row, numbers);
    }
  }

  template <bool write>
  void exchange(Number* numbers) const {
    if (!write && !sum) {
      __builtin_memset(numbers, 0, kWarpRows * N * sizeof(Number));
      return;
    }
    for (int l = 0; l < kWarpSize; ++l) {
      TC* mine = static_cast<TC*>(d[l]);
      for (int i = 0; i < N / 2; i += 2) {
        Number* first = numbers + accumulator_column(l, i) * kWarpRows + accumulator_row(l, i);
        Number* second = first + kWarpRows;
        if (write) {
          mine[i] = TC(*first);
          mine[i + 1] = TC(*second);
        } else {
          *first = Number(mine[i]);
          *second = Number(mine[i + 1]);
        }
      }
    }
  }
};

TL_RUNTIME void check_warpgroup(const char* name, Location where) {
  if (this_block().threads % (4 * kWarpSize) != 0 &&
      worker->current->linear / (4 * kWarpSize) == this_block().threads / (4 * kWarpSize)) {
    fail(where,
         "%s in a warp group that lacks warps: the block has %u threads. Launch a multiple of 128",
         name, this_block().threads);
  }
}

/*! The last lane issues the product of its warp. */
template <typename Product>
void issue_product(void* const* arguments) {
  const auto& first = *static_cast<const WgmmaArguments*>(arguments[0]);
  Warp& warp = current_warp();
  const Location where = warp.meeting.where;
  Product::check(first, where);
  Product product;
  for (int l = 0; l < kWarpSize; ++l) {
    const auto& lane = *static_cast<const WgmmaArguments*>(arguments[l]);
    if (lane.a != first.a || lane.b != first.b || lane.sum != first.sum) {
      fail(where,
           "the lanes of a warp give different descriptors or conditions to one wgmma: lanes 0 and "
           "%d",
           l);
    }
    product.d[l] = lane.d;
    if (Product::kFromRegisters) product.a_registers[l] = lane.a_registers;
    if (Product::kSparse) product.metadata[l] = lane.metadata;
  }
  product.shared = this_block().dynamic_shared();
  product.a = first.a;
  product.b = first.b;
  product.sum = first.sum;
  product.first_row = worker->current->linear / kWarpSize % 4 * kWarpRows;
  if (TL_EMU_CHECKS) product.observe(check_issue_product(warp.products.open_group), where);
  const unsigned group = warp.products.open_group;
  check_product_registers(product.d, Product::kRegisterBytes, true, product.sum, group, where);
  if constexpr (Product::kFromRegisters) {
    check_product_registers(product.a_registers, Product::kOperandBytes, false, true, group, where);
  }
  issue(warp.products, product, where);
}

/*! Counts the product, so that the end of the block can tell whether all warps issued the same. */
TL_RUNTIME void count_product(Warp& warp, const WgmmaArguments& arguments, Location where) {
  constexpr uint64_t kPrime = 0x100000001b3;  // of the FNV-1a hash
  ++warp.product_count;
  warp.product_where = where;
  const uint64_t parts[] = {arguments.a, arguments.b, arguments.sum, uint64_t(where.line)};
  for (uint64_t part : parts) warp.product_checksum = (warp.product_checksum ^ part) * kPrime;
}

template <typename Product>
void wgmma(const char* name, WgmmaArguments arguments, Location where) {
  check_warpgroup(name, where);
  Warp& warp = current_warp();
  if (!warp.registers_fenced) {
    fail(where, "this warp has called no warpgroup_arrive before its first %s", name);
  }
  if (worker->current->linear % kWarpSize == 0) count_product(warp, arguments, where);
  collective_sync(name, issue_product<Product>, &arguments, where);
}

inline void commit_products(void* const*) { current_warp().products.commit(); }

inline void fence_registers(void* const*) { current_warp().registers_fenced = true; }

template <int groups>
void wait_for_products(void* const*) {
  AsyncQueue& products = current_warp().products;
  products.wait(groups);
  check_warp_groups_done(products.done(groups));
}

}  // namespace emu

/*! Orders this warp's accesses of registers before the products that it issues next. */
TL_DEVICE void warpgroup_arrive(emu::Location where = emu::here()) {
  emu::check_warpgroup("warpgroup_arrive", where);
  emu::collective_sync("warpgroup_arrive", emu::fence_registers, nullptr, where);
}

/*! The same; of basic blocks, which it ends on a GPU, only ptxas has some. */
TL_DEVICE void warpgroup_arrive_apart(emu::Location where = emu::here()) {
  warpgroup_arrive(where);
}

/*! Makes the products since the last commit a group. */
TL_DEVICE void warpgroup_commit_batch(emu::Location where = emu::here()) {
  emu::check_warpgroup("warpgroup_commit_batch", where);
  emu::collective_sync("warpgroup_commit_batch", emu::commit_products, nullptr, where);
}

/*! Waits until at most `groups` groups, 0 to 7, are in flight. */
template <int groups>
TL_DEVICE void warpgroup_wait(emu::Location where = emu::here()) {
  static_assert(groups >= 0 && groups <= 7, "tl::warpgroup_wait<groups> takes 0 to 7");
  emu::check_warpgroup("warpgroup_wait", where);
  emu::collective_sync("warpgroup_wait", emu::wait_for_products<groups>, nullptr, where);
}

/*! Keeps the compiler from moving accesses of `count` accumulator elements across this point. */
template <int count, typename Registers>
TL_DEVICE void warpgroup_fence_operand(const Registers&) {}

}  // namespace tl
