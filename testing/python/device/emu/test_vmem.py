"""Buffers whose range is checked, and copies to shared memory that a wait counts."""

import numpy as np
import pytest

SOURCE = """#include <tl/common.h>
#include <tl/vmem.h>
extern "C" __global__ void ranges(const half_t* x, half_t* y, half_t* z, int bytes) {
  const tl::buffer_resource from = tl::make_buffer_resource(x, bytes);
  const tl::buffer_resource to = tl::make_buffer_resource(z, bytes);
  const int t = threadIdx.x;
  const tl::vec<half_t, 8> words = tl::buffer_load<half_t, 8>(from, t * 16);
  tl::store(y + t * 8, words);
  tl::buffer_store(to, t * 16, words + tl::broadcast<half_t, 8>(half_t(1.0f)));
  y[512 + t] = tl::buffer_load<half_t, 1>(from, t * 2)[0];
}
extern "C" __global__ void wide(const half_t* x, half_t* y, int bytes) {
  auto rows = tl::shared<half_t, 512>(tl::dynamic_shared());
  const int t = threadIdx.x;
  tl::buffer_load_lds<16>(rows, tl::make_buffer_resource(x, bytes), t * 16);
  tl::wait_vmcnt<0>();
  tl::store(y + t * 8, tl::load<half_t, 8>(rows + t * 8));
}
extern "C" __global__ void rest(const half_t* x, half_t* y, long bytes, int uniform) {
#line 5 "user.py"
  tl::store(y + threadIdx.x * 8,
            tl::buffer_load<8>(x, int64_t(bytes), threadIdx.x * 8, int64_t(uniform)));
}
extern "C" __global__ void counted(const int* x, int* y) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto rows = tl::shared<int, 1024>(buf_dyn_shmem + 0);
  const int t = threadIdx.x;
  for (int i = 0; i < 16; ++i) tl::global_load_lds<4>(rows + i * 64, x + i * 64 + t);
  tl::wait_vmcnt<12>();
  for (int i = 0; i < 4; ++i) y[i * 64 + t] = rows[i * 64 + t];
#line 9 "user.py"
  y[256 + t] = rows[256 + t];
}
"""


def run64(run, kernel, args, **how):
    run(SOURCE, kernel, args, block=64, shared=4096, warp_threads=64, **how)


@pytest.mark.parametrize("elements", [0, 2, 401, 506, 512])
def test_the_range_of_each_word_is_checked(run, aligned, elements):
    x = aligned(np.random.default_rng(0).standard_normal(512).astype(np.float16))
    y, z = aligned(np.ones(576, np.float16)), aligned(np.zeros(512, np.float16))
    run64(run, "ranges", [x, y, z, 2 * elements])
    words = elements // 2 * 2
    np.testing.assert_array_equal(y[:512], np.where(np.arange(512) < words, x, 0))
    np.testing.assert_array_equal(z, np.where(np.arange(512) < words, x + np.float16(1), 0))
    single = np.arange(64) < elements
    np.testing.assert_array_equal(y[512:], np.where(single, x[:64], 0))


@pytest.mark.parametrize("elements", [0, 300, 507, 512])
def test_a_copy_fills_with_zeros(run, aligned, elements):
    x = aligned(np.random.default_rng(0).standard_normal(512).astype(np.float16))
    y = aligned(np.ones(512, np.float16))
    run64(run, "wide", [x, y, 2 * elements])
    np.testing.assert_array_equal(y, np.where(np.arange(512) < elements // 2 * 2, x, 0))


def test_a_resource_may_begin_inside_of_a_tensor(run, aligned):
    x, y = aligned(np.arange(1024).astype(np.float16)), aligned(np.ones(512, np.float16))
    run64(run, "rest", [x, y, 2048, 512])
    np.testing.assert_array_equal(y, x[512:])
    message = r"user.py:[56]: .*: a buffer load of element 1024 \+ 0 of a tensor of 1024 elements"
    with pytest.raises(RuntimeError, match=message):
        run64(run, "rest", [x, y, 2048, 520])


def test_a_wait_counts_copies(run):
    x, y = np.arange(1024, dtype=np.int32), np.zeros(320, np.int32)
    found = r"at rows \+ (2|3)\d\d .*copy to LDS of .*a wait for the copy .*\(wait_vmcnt\)"
    with pytest.raises(RuntimeError, match=f"race on 4 bytes {found}") as error:
        run64(run, "counted", [x, y], checks=True)
    assert {r.kind for r in error.value.reports} <= {"race", "uninitialized"}
    assert all(r.access.place == "user.py:9" for r in error.value.reports)
    np.testing.assert_array_equal(y[:256], x[:256])
