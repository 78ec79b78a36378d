"""TMA copies in the emulator against slices of arrays: ranks, swizzles, edges, reductions."""

import numpy as np
import pytest

from tilelang.engine.tensor_map import Im2col

HEADERS = """#include <tl/common.h>
#include <tl/bulk_copy.h>
#include <tl/mbarrier.h>
#include <tl/tma.h>
"""
BEGIN = """
  unsigned char* const buf_dyn_shmem = tl::dynamic_shared();
  __shared__ uint64_t barrier[1];
  const int t = threadIdx.x;
  if (t == 0) {
    tl::mbarrier_init(barrier, 1);
    tl::fence_barrier_init();
  }
  tl::sync_threads();
"""
LOADS = HEADERS + "".join(
    f"""
extern "C" __global__ void {name}(const __grid_constant__ CUtensorMap map, unsigned char* out,
                                  int bytes, int c0, int c1, int c2, int c3, int c4) {{
  {BEGIN}
  if (t == 0) {{
    tl::mbarrier_arrive_expect_tx(barrier, bytes);
    tl::{call};
  }}
  tl::mbarrier_wait(barrier, 0);
  for (int i = t; i < bytes; i += 32) out[i] = buf_dyn_shmem[i];
}}
"""
    for name, call in [
        *[
            (
                f"load{n}",
                f"tma_load(map, barrier, buf_dyn_shmem, {', '.join(f'c{i}' for i in range(n))})",
            )
            for n in (1, 2, 3, 4, 5)
        ],
        ("pixels3", "tma_load_im2col<3>(map, barrier, buf_dyn_shmem, 0, c0, c1, c2)"),
        ("pixels4", "tma_load_im2col<4>(map, barrier, buf_dyn_shmem, 0, c0, c1, c2, c3, c4)"),
    ]
)


def unswizzled(memory, row_bytes, swizzle):
    """The rows of a box from the bytes of shared memory."""
    place = np.arange(len(memory))
    if swizzle:
        place ^= (place >> 7 & (swizzle // 16 - 1)) << 4
    return memory[place].reshape(-1, row_bytes)


def load(run, map_of, array, start, box, swizzle=0, steps=(), **keywords):
    """The box as the kernel found it in shared memory, outermost dimension first."""
    steps = steps or (1,) * len(box)
    counts = [-(-extent // step) for extent, step in zip(box, steps, strict=True)]
    counts[0] = box[0]
    size = int(np.prod(counts)) * array.itemsize
    out = np.zeros(size, np.uint8)
    described = map_of(array, box=box, swizzle=swizzle, element_strides=steps, **keywords)
    places = [*start, *[0] * (5 - len(start))]
    run(LOADS, f"load{len(box)}", [described, out, size, *places], shared=size)
    rows = unswizzled(out, box[0] * array.itemsize, swizzle)
    return np.ascontiguousarray(rows).view(array.dtype).reshape(counts[::-1])


def box_of(array, start, box, steps=(), fill=0):
    """The same box by numpy."""
    steps = steps or (1,) * len(box)
    places = [
        begin + np.arange(0, extent, step if d else 1)
        for d, (begin, extent, step) in enumerate(zip(start, box, steps, strict=True))
    ][::-1]
    inside = np.ones([len(p) for p in places], bool)
    for d, place in enumerate(places):
        ok = (place >= 0) & (place < array.shape[d])
        inside &= ok.reshape([-1 if i == d else 1 for i in range(len(places))])
    clipped = np.ix_(*[np.clip(p, 0, n - 1) for p, n in zip(places, array.shape, strict=True)])
    return np.where(inside, array[clipped], np.asarray(fill, array.dtype))


def numbers(aligned, shape, dtype=np.float32):
    return aligned((np.arange(np.prod(shape)) % 251 + 1).astype(dtype).reshape(shape))


@pytest.mark.parametrize(
    ("shape", "dtype", "start", "box", "swizzle"),
    [
        ((200,), np.float32, (148,), (64,), 0),
        ((70, 72), np.float16, (8, 3), (64, 40), 128),
        ((70, 72), np.float16, (40, 40), (32, 64), 64),
        ((70, 72), np.float16, (-8, -5), (16, 64), 32),
        ((9, 20, 48), np.uint8, (32, -1, 7), (32, 6, 4), 32),
        ((3, 4, 5, 24), np.int32, (4, 1, 2, 1), (16, 4, 3, 2), 64),
        ((2, 3, 4, 5, 16), np.float64, (2, 1, -1, 2, 1), (16, 3, 3, 2, 1), 128),
    ],
)
def test_boxes_of_all_ranks(run, map_of, aligned, shape, dtype, start, box, swizzle):
    x = numbers(aligned, shape, dtype)
    found = load(run, map_of, x, start, box, swizzle)
    np.testing.assert_array_equal(found, box_of(x, start, box))


def test_element_strides(run, map_of, aligned):
    x = numbers(aligned, (40, 30, 16))
    found = load(run, map_of, x, (0, 4, 30), (16, 15, 20), steps=(1, 2, 3))
    np.testing.assert_array_equal(found, box_of(x, (0, 4, 30), (16, 15, 20), (1, 2, 3)))


def test_strided_tensor(run, map_of, aligned):
    x = numbers(aligned, (20, 64))[::2, :24]
    found = load(run, map_of, x, (8, 5), (16, 8))
    np.testing.assert_array_equal(found, box_of(x, (8, 5), (16, 8)))


def test_fill_with_nan(run, map_of, aligned):
    x = numbers(aligned, (8, 16))
    found = load(run, map_of, x, (-4, 6), (16, 4), oob_fill="nan")
    np.testing.assert_array_equal(found, box_of(x, (-4, 6), (16, 4), fill=np.nan))


@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 1), (1, 0)])
def test_im2col_gives_the_rows_of_a_convolution(run, map_of, aligned, stride, padding):
    x, kernel, pixels, (r, s) = numbers(aligned, (2, 7, 9, 16), np.float16), 3, 50, (1, 2)
    height, width = ((n + 2 * padding - kernel) // stride + 1 for n in x.shape[1:3])
    columns = Im2col((-padding,) * 2, (padding - kernel + 1,) * 2, 16, pixels)
    described = map_of(x, im2col=columns, element_strides=(1, stride, stride, 1))
    first = width + 2  # image 0, row 1, column 2
    out = np.zeros((pixels, 16), np.float16)
    start = [2 * stride - padding, stride - padding, 0]
    run(LOADS, "pixels4", [described, out, out.nbytes, *start, s, r], shared=out.nbytes)
    # Behind the last image there are zeros.
    padded = np.pad(x, ((0, 2), (padding,) * 2, (padding,) * 2, (0, 0)))
    for i in range(pixels):
        rest, column = divmod(first + i, width)
        image, row = divmod(rest, height)
        np.testing.assert_array_equal(out[i], padded[image, row * stride + r, column * stride + s])


def test_im2col_of_one_pixel_dimension(run, map_of, aligned):
    x, out = numbers(aligned, (3, 10, 16)), np.zeros((12, 16), np.float32)
    described = map_of(x, im2col=Im2col((-2,), (-1,), 16, 12))
    # Pixels -2 to 8 of an image, three to the right: 9, 10, 11, then -2 of the next image, ...
    run(LOADS, "pixels3", [described, out, out.nbytes, 6, 1, 3, 0, 0], shared=out.nbytes)
    zero = np.zeros((2, 16))
    np.testing.assert_array_equal(out, np.concatenate([x[1, 9:], zero, x[2, 1:]]))


STORES = HEADERS + "".join(
    f"""
extern "C" __global__ void {name}(const __grid_constant__ CUtensorMap map, const unsigned char* x,
                                  int bytes, int c0, int c1) {{
  {BEGIN}
  for (int i = t; i < bytes; i += 32)
    buf_dyn_shmem[i ^ (i >> 7 & 3) << 4] = x[i];
  tl::fence_proxy_async();
  tl::sync_threads();
  if (t == 0) {{
    tl::{call}(map, buf_dyn_shmem, c0, c1);
    tl::tma_store_arrive();
    tl::tma_store_wait<0>();
  }}
}}
"""
    for name, call in [
        ("store", "tma_store"),
        ("add", "tma_reduce<tl::SumOp>"),
        ("maximum", "tma_reduce<tl::MaxOp>"),
        ("bitwise_xor", "tma_reduce<tl::BitXorOp>"),
    ]
)


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        ("store", np.float16),
        ("store", np.uint8),
        ("add", np.float16),
        ("add", np.float32),
        ("add", np.int64),
        ("maximum", np.int32),
        ("bitwise_xor", np.uint64),
    ],
)
def test_stores_and_reductions(run, map_of, aligned, operation, dtype):
    old = numbers(aligned, (20, 48), dtype)
    wanted, width = old.copy(), 64 // old.itemsize
    box = np.arange(width * 24).reshape(24, width).astype(dtype) % 200
    c0, c1 = 48 - width // 2, -3
    inside = wanted[0 : 24 + c1, c0:]
    part = box[-c1 : 20 - c1, : 48 - c0]
    combine = getattr(np, operation, None)
    inside[...] = combine(inside, part) if combine else part
    run(
        STORES,
        operation,
        [map_of(old, box=(width, 24), swizzle=64), box, box.nbytes, c0, c1],
        shared=box.nbytes,
    )
    np.testing.assert_array_equal(old, wanted)


def test_a_reduction_that_the_hardware_lacks(run, map_of, aligned):
    x = numbers(aligned, (20, 32), np.float32)
    with pytest.raises(RuntimeError, match="this tma_reduce has no form for the tensor's type"):
        run(STORES, "maximum", [map_of(x, box=(16, 8)), x, 512, 0, 0], shared=512)
