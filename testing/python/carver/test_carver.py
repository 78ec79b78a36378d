"""The cost model's parts against numbers by hand, and what templates suggest."""

import dataclasses
import math

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.carver import (
    CUDA,
    ElementwiseTemplate,
    FlashAttentionTemplate,
    GEMVTemplate,
    GeneralReductionTemplate,
    MatmulTemplate,
)
from tilelang.carver.arch import CDNA, auto_infer_current_arch
from tilelang.carver.cost import (
    LATENCY_CLOCKS,
    Product,
    Tiling,
    blocks_per_sm,
    memory_bytes,
    product_seconds,
    registers,
    shared_bytes,
    streaming_seconds,
    tile_clocks,
    together,
)
from tilelang.carver.roller.rasterization import NoRasterization, Rasterization2DRow


@pytest.fixture(scope="module")
def hopper():
    return CUDA("cuda -arch=sm_90a")


@pytest.fixture(scope="module")
def ampere():
    return CUDA({"kind": "cuda", "arch": "sm_80"})


@pytest.fixture
def product():
    return Product(4096, 4096, 4096, "float16", 2, 2)


LARGE = Tiling(128, 256, 64, 4, 256, 8, True)


def test_chips(hopper, ampere):
    assert (hopper.sm, hopper.has_warp_groups, ampere.has_warp_groups) == (90, True, False)
    assert hopper.smem_cap == 227 * 1024
    assert ampere.smem_cap == 163 * 1024
    # Dense float16: 312 TFLOP/s on an A100, 989 on an H200, twice that in 8 bits.
    if not torch.cuda.is_available():
        assert ampere.tensor_flops("float16") == pytest.approx(312e12, rel=0.01)
        assert hopper.tensor_flops("bfloat16") == pytest.approx(989e12, rel=0.01)
        assert hopper.tensor_flops("float8_e4m3") == pytest.approx(1979e12, rel=0.01)
        assert hopper.tensor_flops("float64") == pytest.approx(67e12, rel=0.1)
    assert auto_infer_current_arch().compute_max_core > 0
    with pytest.raises(ValueError, match="sm_70"):
        CUDA("cuda -arch=sm_70")
    with pytest.raises(ValueError, match="wanted cuda"):
        CDNA("hip")


def test_occupancy(hopper, ampere):
    """65536 registers, 228 KB of which a block takes 1 for the system, 2048 threads."""
    assert hopper.blocks_per_sm(256, 0, 32) == 8
    assert hopper.blocks_per_sm(256, 0, 128) == 2
    assert hopper.blocks_per_sm(128, 75 * 1024, 32) == 3
    assert hopper.blocks_per_sm(128, 76 * 1024, 32) == 2
    assert hopper.blocks_per_sm(128, 228 * 1024, 32) == 0
    assert ampere.blocks_per_sm(32, 0, 16) == 32
    assert hopper.blocks_per_sm(2048, 0, 16) == 0


def test_resources_of_a_tile(hopper, product):
    assert shared_bytes(product, LARGE) == 4 * (128 + 256) * 64 * 2
    assert registers(LARGE) == 128 + 48
    assert blocks_per_sm(hopper, product, LARGE) == 1
    assert not blocks_per_sm(hopper, product, Tiling(256, 256, 64, 2, 256, 8, True))


def test_a_tile_takes_the_tensor_cores_or_the_shared_memory_that_they_read(hopper, product):
    # 4096 FLOP a clock against 128 bytes a clock.
    math_clocks = 2 * 128 * 256 * 4096 / 4096
    shared = (2 * (64 + 256) + 128 + 256) * 4096 * 2 / 128
    assert tile_clocks(hopper, product, LARGE) == together(math_clocks, shared)
    by_warps = dataclasses.replace(LARGE, by_warp_groups=False)
    # Eight warps of 16 x 256.
    shared = (8 * (16 + 256) + 128 + 256) * 4096 * 2 / 128
    assert tile_clocks(hopper, product, by_warps) == together(math_clocks / 0.63, shared)
    narrow = Tiling(64, 16, 64, 4, 128, 8, True)
    read = (64 + 16 + 64 + 16) * 4096 * 2 / 128
    assert tile_clocks(hopper, product, narrow) == pytest.approx(read, rel=0.01)


def test_work_that_overlaps():
    assert together(3.0, 0.0) == 3.0
    assert together(2.0, 2.0) == pytest.approx(2 * 2 ** (1 / 6))
    assert together(math.inf, 1.0) == math.inf


def test_operands_that_leave_l2_are_read_again(hopper, product):
    small = dataclasses.replace(product, m=2048, n=2048)
    assert memory_bytes(hopper, small, LARGE, 132) == 2 * 2048 * 4096 * 2 + 2048 * 2048 * 2
    large = Product(16384, 16384, 16384, "float16", 2, 2)
    panels = [Tiling(128, 256, 64, 4, 256, panel, True) for panel in (1, 8)]
    alone, grouped = (memory_bytes(hopper, large, tiling, 132) for tiling in panels)
    assert alone > grouped > 3 * 16384 * 16384 * 2


def test_tiles_come_in_waves(hopper):
    """One tile more than there are multiprocessors takes twice the time of the tensor cores."""
    sms = hopper.speeds.sms
    few, more = (
        product_seconds(hopper, Product(128 * n, 256, 16384, "float16", 2, 2), LARGE)
        for n in (sms, sms + 1)
    )
    assert more / few == pytest.approx(2, rel=0.1)


def test_what_is_on_its_way_bounds_the_speed_of_loads(hopper):
    """16 rows: the memory is busy; one stage of a few blocks does not keep it so."""
    product = Product(16, 8192, 8192, "float16", 2, 2)
    deep, flat = (
        product_seconds(hopper, product, Tiling(16, 64, 64, stages, 64, 1, False))
        for stages in (8, 1)
    )
    assert deep * hopper.bandwidth == pytest.approx(8192 * 8192 * 2, rel=0.2)
    assert flat > 2 * deep
    clocks = LATENCY_CLOCKS / hopper.speeds.clock
    assert streaming_seconds(hopper, 1e6, 1, 32, 16) == pytest.approx(
        1e6 / (32 * 16 / clocks) + clocks
    )


SHAPES = [(16, 8192, 8192), (128, 7168, 2048), (5120, 5120, 5120), (4096, 14336, 4096)]


@pytest.mark.parametrize("shape", SHAPES)
def test_suggested_products_fit_and_are_in_order(hopper, ampere, shape):
    for arch in (hopper, ampere):
        template = MatmulTemplate(*shape).with_arch(arch)
        hints = template.recommend_hints(10)
        assert len(hints) == len({(hint.block, hint.threads) for hint in hints}) == 10
        assert [h.seconds for h in hints] == sorted(h.seconds for h in hints)
        for hint in hints:
            (m, n), (k,), (rows, columns) = hint.block, hint.rstep, hint.warp
            assert (m // rows) * (n // columns) * 32 == hint.threads
            assert hint.pipeline_stage * (m + n) * k * 2 <= arch.smem_cap
            assert m < 2 * shape[0] or m == 16
        # No faster than the tensor cores or the memory allow.
        flop, operands = 2 * math.prod(shape), shape[2] * (shape[0] + shape[1]) * 2
        limit = max(flop / arch.tensor_flops("float16"), operands / arch.bandwidth)
        assert limit < hints[0].seconds < 2.5 * limit


def test_suggestions_go_with_the_shape(hopper):
    small, large = (MatmulTemplate(*SHAPES[i]).with_arch(hopper).recommend_hints(3) for i in (0, 3))
    assert {hint.block[0] for hint in small} == {16}
    assert all(math.prod(hint.block) >= 128 * 256 for hint in large)
    assert isinstance(large[0].rasterization_plan, Rasterization2DRow)
    assert isinstance(small[0].rasterization_plan, NoRasterization)


@tilelang.jit(out_idx=[-1], target="cuda -arch=sm_90a", execution_backend="emulate")
def product_of(hint, size):
    """A product as a hint says."""
    (m, n), (k,) = hint.block, hint.rstep

    @T.prim_func
    def main(
        A: T.Tensor((size, size), "float16"),
        B: T.Tensor((size, size), "float16"),
        C: T.Tensor((size, size), "float16"),
    ):
        with T.Kernel(T.ceildiv(size, n), T.ceildiv(size, m), threads=hint.threads) as (bx, by):
            a = T.alloc_shared((m, k), "float16")
            b = T.alloc_shared((n, k), "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(size, k), num_stages=hint.pipeline_stage):
                T.copy(A[by * m, step * k], a)
                T.copy(B[bx * n, step * k], b)
                T.gemm(a, b, c, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(c, C[by * m, bx * n])

    return main


def test_the_model_knows_what_ptxas_makes(hopper):
    hint = MatmulTemplate(4096, 4096, 4096).with_arch(hopper).recommend_hints(1)[0]
    kernel = product_of(hint, 4096)
    assert kernel.n_spills == 0
    (launch,) = kernel.launch_plan.kernels
    tiling = Tiling(*hint.block, *hint.rstep, hint.pipeline_stage, hint.threads, 1, True)
    modelled = shared_bytes(Product(4096, 4096, 4096, "float16", 2, 2), tiling)
    # mbarriers besides, and alignment.
    assert modelled <= launch.shared_bytes <= modelled + 2048


@pytest.mark.parametrize(
    ("template", "moved"),
    [
        (ElementwiseTemplate([8192, 8192]), 2 * 8192 * 8192 * 2),
        (GEMVTemplate(8192, 8192), 8192 * 8192 * 2),
        (GeneralReductionTemplate("SR", [8192, 8192]), 8192 * 8192 * 2),
    ],
)
def test_streams_reach_the_bandwidth(hopper, template, moved):
    hints = template.with_arch(hopper).recommend_hints(5)
    assert hints[0].seconds * hopper.bandwidth == pytest.approx(moved, rel=0.15)
    assert all(hint.vectorize == 8 and hint.threads % 32 == 0 for hint in hints)


def test_few_long_rows_are_shared_by_many_threads(hopper):
    few, many = (
        GeneralReductionTemplate("SR", shape).with_arch(hopper).recommend_hints(1)[0]
        for shape in ([256, 65536], [1 << 20, 64])
    )
    assert few.reduce_thread[0] > many.reduce_thread[0]
    with pytest.raises(ValueError, match="wanted a letter S or R for each of 2"):
        GeneralReductionTemplate("SRS", [2, 3])


def test_attention_fits_and_keeps_the_tensor_cores_busy(hopper):
    template = FlashAttentionTemplate(8, 16, 128, 4096).with_arch(hopper)
    hints = template.recommend_hints(5)
    flop = 4 * 8 * 16 * 4096 * 4096 * 128
    assert 0.5 < flop / hints[0].seconds / hopper.tensor_flops("float16") < 0.95
    for hint in hints:
        (rows, dim), (keys,) = hint.block, hint.rstep
        assert (rows + 2 * keys * hint.pipeline_stage) * dim * 2 <= hopper.smem_cap
        assert hint.pipeline_stage > 1
    causal = FlashAttentionTemplate(8, 16, 128, 4096, is_causal=True).with_arch(hopper)
    assert 0.5 < causal.recommend_hints(1)[0].seconds / hints[0].seconds < 0.65
