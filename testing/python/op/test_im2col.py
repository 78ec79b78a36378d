"""``T.im2col`` in pipelined loops of sm_90: loads by TMA in im2col mode, or a gather, and why."""

import pytest
import torch

import tilelang
import tilelang.language as T

SM90 = {"kind": "cuda", "arch": "sm_90a"}


def build(func, **options):
    return tilelang.compile(func, target=SM90, execution_backend="emulate", **options)


def convolution(
    image,
    kernel,
    stride=1,
    dilation=1,
    pad=0,
    tile=(64, 32),
    dtype="float16",
    source=None,
    filters=16,
    layout=None,
    safe_value=None,
    threads=128,
    in_order=False,
    **keywords,
):
    """A convolution of `image` (N, H, W, C), of which numbers may be symbolic; `in_order`: of a
    pipeline whose steps stay as they are."""
    order = {"order": [0, 1, 2], "stage": [0, 0, 1]} if in_order else {"num_stages": 2}
    n, h, w, c = image
    rows, columns = ((x + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for x in (h, w))
    M, K = n * rows * columns, kernel * kernel * c

    @T.prim_func
    def main(
        A: T.Tensor(image, source or dtype),
        W: T.Tensor((K, filters), dtype),
        C: T.Tensor((M, filters), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, tile[0]), threads=threads) as by:
            S = T.alloc_shared(tile, dtype)
            B = T.alloc_shared((tile[1], filters), dtype)
            F = T.alloc_fragment((tile[0], filters), "float32")
            if layout is not None:
                T.annotate_layout({S: layout})
            if safe_value is not None:
                T.annotate_safe_value({A: safe_value})
            T.clear(F)
            for k in T.Pipelined(T.ceildiv(K, tile[1]), **order):
                T.im2col(A, S, by, k, kernel, stride, dilation, pad, **keywords)
                T.copy(W[k * tile[1], 0], B)
                T.gemm(S, B, F)
            T.copy(F, C[by * tile[0], 0])

    return main


def small(shape, dtype="float16"):
    """Integers whose products and sums are exact."""
    return torch.randint(-3, 4, shape).to(getattr(torch, dtype))


def reference(image, weight, kernel, stride, dilation, pad):
    """The same by torch in float64, a row for each pixel."""
    filters = weight.double().view(kernel, kernel, image.shape[3], -1).permute(3, 2, 0, 1)
    x = image.double().permute(0, 3, 1, 2)
    found = torch.nn.functional.conv2d(x, filters, None, stride, pad, dilation)
    return found.permute(0, 2, 3, 1).flatten(0, 2)


def check(built, shape, kernel, stride=1, dilation=1, pad=0, dtype="float16", filters=16):
    image, weight = small(shape, dtype), small((kernel * kernel * shape[3], filters), dtype)
    wanted = reference(image, weight, kernel, stride, dilation, pad)
    found = torch.full(wanted.shape, float("nan"))
    built(image, weight, found)
    assert torch.equal(found.double(), wanted)


def what_explain_says(built):
    (line,) = (x.strip() for x in built.explain().splitlines() if ", T.im2col(" in x)
    return line.partition(": ")[2]


@pytest.mark.parametrize(
    ("image", "kernel", "stride", "dilation", "pad", "tile", "dtype"),
    [
        ((2, 9, 7, 64), 3, 1, 1, 1, (64, 64), "float16"),  # two images in a tile, 2 rows too many
        ((5, 7, 5, 32), 3, 2, 1, 1, (64, 32), "float16"),  # five images in a tile that is not full
        ((2, 11, 9, 32), 3, 1, 2, 2, (64, 32), "bfloat16"),
        ((1, 11, 8, 32), 5, 2, 1, 2, (64, 16), "float32"),
        ((2, 5, 7, 16), 1, 1, 1, 0, (64, 16), "float16"),
        ((1, 9, 12, 128), 3, 2, 2, 0, (64, 128), "float16"),  # two boxes of 64 channels
    ],
)
def test_a_convolution(image, kernel, stride, dilation, pad, tile, dtype):
    built = build(convolution(image, kernel, stride, dilation, pad, tile, dtype))
    assert "tl::tma_load_im2col<4, tl::evict_normal>(A_desc, " in built.get_kernel_source()
    # Threads do not read A: its address is no parameter.
    assert "restrict__ A" not in built.get_kernel_source()
    assert what_explain_says(built) == "producer, by TMA, channel 0"
    check(built, image, kernel, stride, dilation, pad, dtype)


def test_sizes_of_the_run():
    n, h, w = (T.dynamic(name, "int32") for name in "nhw")
    built = build(convolution((n, h, w, 32), 3, 2, 1, 1))
    assert "tl::tma_load_im2col<4" in built.get_kernel_source()
    for size in [(2, 7, 10), (1, 1, 3), (3, 8, 5), (0, 7, 7)]:
        check(built, (*size, 32), 3, 2, 1, 1)


def test_an_image_that_is_smaller_than_the_window_is_refused():
    h = T.dynamic("h", "int32")
    built = build(convolution((1, h, 8, 32), 3))
    with pytest.raises(ValueError, match=r"tensor map of `A`.*wanted a window that fits into"):
        built(small((1, 2, 8, 32)), small((288, 16)), torch.zeros(0, 16))


def test_columns_outside_of_the_matrix_are_zero():
    @T.prim_func
    def main(
        A: T.Tensor((1, 6, 6, 32), "float16"),
        W: T.Tensor((352, 16), "float16"),
        C: T.Tensor((64, 16), "float32"),
        tiles: T.int32,
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 32), "float16")
            B = T.alloc_shared((32, 16), "float16")
            F = T.alloc_fragment((64, 16), "float32")
            T.clear(F)
            for k in T.Pipelined(tiles, num_stages=2):
                T.im2col(A, S, 0, k - 1, 3, 1, 1, 0)
                T.copy(W[k * 32, 0], B)
                T.gemm(S, B, F)
            T.copy(F, C)

    built = build(main)
    assert "tl::tma_load_im2col<4" in built.get_kernel_source()
    image, weight, found = small((1, 6, 6, 32)), small((352, 16)), torch.full((64, 16), 7.0)
    built(image, weight, found, 11)
    assert torch.equal(found[:16].double(), reference(image, weight[32:320], 3, 1, 1, 0))
    assert not found[16:].any()


def test_a_view_in_a_persistent_kernel_with_a_loop_for_each_direction():
    """The number of a fill is a running count; the last tile begins behind all images."""

    @T.prim_func
    def main(
        pixels: T.Tensor((288, 32), "float16"),
        W: T.Tensor((288, 16), "float16"),
        C: T.Tensor((288, 16), "float32"),
    ):
        with T.Kernel(2, threads=128) as block:
            A = T.reshape(pixels, (4, 9, 8, 32))
            S = T.alloc_shared((64, 32), "float16")
            B = T.alloc_shared((32, 16), "float16")
            F = T.alloc_fragment((64, 16), "float32")
            for by in T.Persistent([6], 2, block):
                T.clear(F)
                for kh in T.serial(3):
                    for kw in T.Pipelined(3, num_stages=2):
                        T.im2col(A, S, by, kh * 3 + kw, 3, 1, 1, 1)
                        T.copy(W[(kh * 3 + kw) * 32, 0], B)
                        T.gemm(S, B, F)
                T.copy(F, C[by * 64, 0])

    built = build(main)
    assert "tl::tma_load_im2col<4" in built.get_kernel_source()
    image, weight, found = small((4, 9, 8, 32)), small((288, 16)), torch.zeros(288, 16)
    built(image.view(288, 32), weight, found)
    assert torch.equal(found.double(), reference(image, weight, 3, 1, 1, 1))


def test_a_tall_tile_is_several_loads():
    built = build(convolution((8, 32, 32, 16), 3, 1, 1, 1, (2048, 16), threads=256))
    assert "pixels (-1, -1) to (-1, -1), 16 channels of 1024)" in built.get_host_source()
    line = next(x for x in built.get_kernel_source().splitlines() if "tma_load_im2col" in x)
    # A box is an image of 32 x 32 pixels.
    assert "S + k % 3 * 32768 + box * 16384, 0, -1, -1, bx * 2 + box, k % 3, k / 3);" in line


def test_loads_of_a_pipeline_without_a_producer():
    """As for T.copy: one thread of all issues what is asked for."""
    func = convolution((2, 6, 5, 32), 3, annotations={"prefer_instruction": "tma"})
    built = build(func, pass_configs={"tl.disable_warp_specialized": True})
    assert "tl::tma_load_im2col<4" in built.get_kernel_source()
    assert "TMA in im2col mode, completes on an mbarrier" in built.explain()
    check(built, (2, 6, 5, 32), 3)


def test_eviction_policy():
    source = build(convolution((1, 6, 6, 32), 3, eviction_policy="evict_first")).get_kernel_source()
    assert "tl::tma_load_im2col<4, tl::evict_first>(" in source


def padded(i, j):
    return i * 40 + j


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"image": (1, 6, 6, 16)}, "a tile of 32 columns, which does not divide 16 channels"),
        (
            {"image": (1, 6, 6, T.dynamic("c", "int32"))},
            "a tile of 32 columns, which does not divide a symbolic number of channels",
        ),
        ({"stride": 9}, "a stride of 9 pixels, more than 8"),
        ({"pad": 128}, "a padding of 128 pixels, more than 127"),
        ({"pad": 127, "dilation": 128}, "taps at a distance of 256 pixels, more than 255"),
        (
            {"image": (1, 140, 140, 32), "pad": 1, "dilation": 65},
            "taps behind the padding, by 129 pixels, more than 128",
        ),
        ({"source": "float32"}, "a conversion from float32 to float16"),
        (
            {"image": (1, 6, 6, 6), "dtype": "float32", "tile": (64, 6)},
            "a stride of 24 bytes in A, not a multiple of 16",
        ),
        ({"tile": (64, 4), "in_order": True}, "rows of 8 bytes, not a multiple of 16"),
        (
            {"layout": T.Layout((64, 32), padded)},
            "a layout of S that is neither row-major nor a swizzle of 128, 64 or 32 bytes where "
            "the copied part begins at a multiple of 128 bytes (8 rows of a swizzle)",
        ),
        ({"safe_value": 1.0}, "A has a safe value"),
        ({"annotations": {"disable_tma": True}}, "disable_tma=True"),
    ],
    ids=lambda value: value.partition(",")[0] if isinstance(value, str) else "",
)
def test_what_stays_a_gather(arguments, reason):
    built = build(convolution(**{"image": (1, 6, 6, 32), "kernel": 3} | arguments))
    assert "tma_load_im2col" not in built.get_kernel_source()
    assert what_explain_says(built).endswith(f", channel 0, not TMA: {reason}")


@pytest.mark.parametrize("options", [{}, {"annotations": {"disable_tma": True}}], ids=str)
@pytest.mark.parametrize("channels", [40])
def test_whole_taps(channels, options):
    """Zeros behind the channels, by TMA and in a gather; the last tap is not the last tile."""
    filters, per_tap = 16, -(-channels // 32)

    @T.prim_func
    def main(
        A: T.Tensor((2, 6, 5, channels), "float16"),
        W: T.Tensor((9, channels, filters), "float16"),
        C: T.Tensor((60, filters), "float32"),
    ):
        with T.Kernel(1, threads=128) as by:
            S = T.alloc_shared((64, 32), "float16")
            B = T.alloc_shared((32, filters), "float16")
            F = T.alloc_fragment((64, filters), "float32")
            T.clear(F)
            for k in T.Pipelined(9 * per_tap + 1, num_stages=2):
                T.im2col(A, S, by, k, 3, 1, 1, 1, whole_taps=True, **options)
                # Not zero behind the channels, nor behind the taps.
                for i, j in T.Parallel(32, filters):
                    channel = T.min(k % per_tap * 32 + i, channels - 1)
                    B[i, j] = W[T.min(k // per_tap, 8), channel, j]
                T.gemm(S, B, F)
            T.copy(F, C[0, 0])

    built = build(main)
    assert ("tma_load_im2col" in built.get_kernel_source()) == (not options)
    image, weight = small((2, 6, 5, channels)), small((9, channels, filters))
    found = torch.full((60, filters), float("nan"))
    built(image, weight, found)
    assert torch.equal(found.double(), reference(image, weight.flatten(0, 1), 3, 1, 1, 1))


def test_a_gather_beside_a_load():
    built = build(convolution((1, 6, 6, 16), 3, pad=1))
    assert "tl::tma_load<" in built.get_kernel_source()
    check(built, (1, 6, 6, 16), 3, pad=1)
