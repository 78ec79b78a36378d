"""The cost model's parts against numbers by hand, and what templates suggest."""

import dataclasses
import math

import numpy as np
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
    schedules_of,
)
from tilelang.carver.arch import CDNA, auto_infer_current_arch
from tilelang.carver.cost import (
    HANDSHAKE_CLOCKS,
    LATENCY_CLOCKS,
    OVERLAP,
    STEP_CLOCKS,
    WRITE_SHARE,
    Product,
    Tiling,
    blocks_per_sm,
    memory_bytes,
    powered,
    product_seconds,
    registers,
    shared_bytes,
    step_clocks,
    streaming_seconds,
    tile_clocks,
    together,
    warp_tile,
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


@pytest.mark.parametrize(("arch", "shared"), [("gfx942", 64), ("gfx950", 160), ("gfx1100", 64)])
def test_the_chip_that_is_compiled_for_may_be_one_of_amd(arch, shared, monkeypatch):
    """It was looked for under the attribute of NVIDIA's targets: AttributeError."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", f"hip -mcpu={arch}")
    chip = auto_infer_current_arch()
    assert isinstance(chip, CDNA)
    assert (chip.arch, chip.smem_cap) == (arch, shared * 1024)
    assert chip.warp_size == (32 if arch == "gfx1100" else 64)
    assert not any((chip.has_warp_groups, chip.has_clusters, chip.has_async_copies))
    assert chip.blocks_per_sm(256, chip.smem_cap, 32) >= 1
    with pytest.raises(ValueError, match=f"found target hip {arch}, whose speeds are not known"):
        print(chip.speeds)
    # The model knows chips of NVIDIA alone.
    with pytest.raises(ValueError, match=f"found target hip {arch}, wanted one of kind cuda"):
        MatmulTemplate(256, 256, 256).recommend_hints(1)
    with pytest.raises(ValueError, match=f"found target hip {arch}, wanted one of kind cuda"):
        schedules_of(256, 256, 256)


@pytest.mark.parametrize("style", ["lazy", "eager"])
def test_the_chip_of_a_function_is_that_of_its_target(style):
    """It was that of the environment, whatever `target=` said."""
    found = []

    @tilelang.jit(target="cuda -arch=sm_90a")
    def lazy(n: int):
        found.append(auto_infer_current_arch().arch)

        @T.prim_func
        def main(A: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=32):
                T.fill(A, 0)

        return main

    @T.macro
    def note():
        found.append(auto_infer_current_arch().arch)

    @tilelang.jit(target="cuda -arch=sm_90a")
    def eager(A):
        n = T.const("n")
        A: T.Tensor[[n], T.float32]
        note()
        with T.Kernel(1, threads=32):
            T.fill(A, 0)

    lazy.compile(8) if style == "lazy" else eager.compile(torch.zeros(8))
    assert set(found) == {"sm_90a"}


def test_a_chip_is_of_one_kind():
    with pytest.raises(ValueError, match="found target cuda sm_80, wanted one of kind hip"):
        CDNA("cuda -arch=sm_80")
    with pytest.raises(ValueError, match="found target llvm, wanted one of kind cuda"):
        CUDA("llvm")


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
    assert registers(hopper, LARGE) == 128 + 48
    # Eight warps of 16 x 256 have 16 x 16 elements of A and 256 x 16 of B besides.
    by_warps = dataclasses.replace(LARGE, by_warp_groups=False)
    assert registers(hopper, by_warps) == 128 + (16 + 256) * 16 // 64 + 48
    assert blocks_per_sm(hopper, product, LARGE) == 1
    assert not blocks_per_sm(hopper, product, Tiling(256, 256, 64, 2, 256, 8, True))


def test_a_tile_takes_the_tensor_cores_or_the_shared_memory_that_they_read(hopper, product):
    # 4096 FLOP a clock against 128 bytes a clock.
    math_clocks = 2 * 128 * 256 * 4096 / 4096
    shared = (2 * (64 + 256) + WRITE_SHARE * (128 + 256)) * 4096 * 2 / 128
    assert tile_clocks(hopper, product, LARGE) == together(math_clocks, shared)
    by_warps = dataclasses.replace(LARGE, by_warp_groups=False)
    # Eight warps of 16 x 256.
    shared = (8 * (16 + 256) + WRITE_SHARE * (128 + 256)) * 4096 * 2 / 128
    assert tile_clocks(hopper, product, by_warps) == together(math_clocks / 0.63, shared)
    narrow = Tiling(64, 16, 64, 4, 128, 8, True)
    read = (64 + 16 + WRITE_SHARE * (64 + 16)) * 4096 * 2 / 128
    assert tile_clocks(hopper, product, narrow) == pytest.approx(read, rel=0.01)


def test_work_that_overlaps():
    assert together(3.0, 0.0) == 3.0
    assert together(2.0, 2.0) == pytest.approx(2 * 2 ** (1 / OVERLAP))
    assert together(math.inf, 1.0) == math.inf


def test_operands_that_leave_l2_are_read_again(hopper, product):
    small = dataclasses.replace(product, m=2048, n=2048)
    assert memory_bytes(hopper, small, LARGE, 132) == 2 * 2048 * 4096 * 2 + 2048 * 2048 * 2
    large = Product(16384, 16384, 16384, "float16", 2, 2)
    panels = [Tiling(128, 256, 64, 4, 256, panel, True) for panel in (1, 8)]
    alone, grouped = (memory_bytes(hopper, large, tiling, 132) for tiling in panels)
    assert alone > grouped > 3 * 16384 * 16384 * 2


@pytest.fixture
def unlimited(hopper):
    """The same chip, with all the power that it wants."""
    arch = CUDA(hopper.target)
    speeds = dataclasses.replace(hopper.speeds, sustained_flops=math.inf)
    object.__setattr__(arch, "speeds", speeds)
    return arch


def test_tiles_come_in_waves(hopper, unlimited):
    """One tile more than there are multiprocessors takes twice the time of the tensor cores; if
    power limits the others, the clock is higher while it is alone."""

    def more(arch):
        sms = arch.speeds.sms
        few, more = (
            product_seconds(arch, Product(128 * n, 256, 16384, "float16", 2, 2), LARGE)
            for n in (sms, sms + 1)
        )
        return more / few

    assert more(unlimited) == pytest.approx(2, rel=0.1)
    assert 1.6 < more(hopper) < 0.95 * more(unlimited)


def test_power_limits_what_multiplies_all_the_time(hopper, unlimited):
    share = hopper.power_share
    assert 0.6 < share < 0.75
    assert unlimited.power_share == 1
    assert powered(unlimited, 100.0, 100.0) == 100
    # Power grows with the square of the clock, and with the share of the time.
    assert powered(hopper, 100.0, 100.0) == pytest.approx(100 / share)
    assert powered(hopper, 100.0, 81.0) == pytest.approx(90 / share)
    assert powered(hopper, 100.0, 25.0) == 100
    # The same product, whatever the tiles are, in no less time.
    size = 8192
    for arch, most in ((hopper, 7.3e14), (unlimited, 9.9e14)):
        (hint,) = MatmulTemplate(size, size, size).with_arch(arch).recommend_hints(1)
        assert 0.85 * most < 2 * size**3 / hint.seconds < most


def test_warp_groups_share_rows_and_then_columns():
    """As `PartitionWarps` does with the policy FullRow."""
    assert warp_tile(128, 256, 8, True) == (16, 256)
    assert warp_tile(192, 192, 8, True) == (48, 96)
    assert warp_tile(64, 192, 12, True) == (16, 64)
    assert warp_tile(256, 96, 12, True) == (64, 32)
    assert warp_tile(64, 96, 2, False) == (32, 96)


def test_groups_that_share_columns_read_rows_again(hopper, product):
    rows, columns = (Tiling(m, 192, 64, 4, 256, 8, True) for m in (128, 192))
    clocks = 4096 * 2 / 128
    assert tile_clocks(hopper, product, rows) == pytest.approx(
        together(2 * 128 * 192, (128 + 2 * 192 + WRITE_SHARE * (128 + 192)) * clocks)
    )
    assert tile_clocks(hopper, product, columns) == pytest.approx(
        together(2 * 192 * 192, (2 * 192 + 3 * 192 + WRITE_SHARE * (192 + 192)) * clocks)
    )


def test_a_warp_has_one_of_four_tensor_cores(hopper, product):
    alone = Tiling(64, 64, 64, 2, 32, 1, False)
    times = [tile_clocks(hopper, product, alone, beside) for beside in (1, 2, 4, 8)]
    assert times[0] > 1.9 * times[1] > 1.9 * times[2] == 1.9 * times[3]


def test_a_step_waits_for_loads_of_few_stages(hopper, product):
    """Two stages: a load begins when the other one has arrived."""
    small = Tiling(128, 128, 64, 2, 128, 8, True)
    latency = LATENCY_CLOCKS + HANDSHAKE_CLOCKS + 256 * 64 * 2 / 64
    assert step_clocks(hopper, product, small) == pytest.approx(latency, rel=0.01)
    # Another block multiplies meanwhile, and loads, too.
    beside = step_clocks(hopper, product, small, beside=2)
    assert latency / 2 < beside < 0.7 * latency
    deep = dataclasses.replace(small, stages=8)
    assert 512 + STEP_CLOCKS < step_clocks(hopper, product, deep) < 0.5 * latency


def test_another_block_hides_the_ends_of_a_tile(hopper):
    """128 x 128 by a warp group: two blocks have room with 3 stages, one with 6."""
    product = Product(5120, 5120, 512, "float16", 2, 2)
    two, one = (Tiling(128, 128, 64, stages, 128, 8, True) for stages in (3, 6))
    assert [blocks_per_sm(hopper, product, tiling) for tiling in (two, one)] == [2, 1]
    assert product_seconds(hopper, product, two) < 0.93 * product_seconds(hopper, product, one)


MEASURED = """
128 128 64 3 128 8 0.4254   128 128 64 6 256 8 0.4354   192 192 64 4 256 0 0.4355
128 192 64 4 128 8 0.4445   192 192 64 3 384 8 0.4447   192 128 64 4 384 8 0.4458
256 96 64 5 128 8 0.4536    256 128 64 4 256 8 0.4563   128 192 64 4 384 8 0.4586
128 256 64 3 256 8 0.4606   192 96 64 6 128 8 0.4661    64 256 64 4 128 8 0.4667
64 192 64 6 256 8 0.4725    256 192 64 4 256 0 0.4732   256 64 64 4 256 0 0.4942
64 128 64 4 128 8 0.5102    128 64 64 4 128 0 0.5199    256 96 64 4 384 8 0.5218
192 64 64 6 128 0 0.5455    128 256 64 2 256 8 0.5758   128 128 64 2 128 8 0.5812
64 96 64 4 128 8 0.5821     64 192 64 2 64 8 0.6852     256 32 64 3 128 0 0.6793
128 192 64 2 128 8 0.6980   64 64 64 3 128 8 0.7203     256 128 64 2 256 8 0.7223
128 32 64 4 128 0 0.7562    192 128 64 2 128 8 0.7783   128 128 64 2 256 8 0.8946
32 256 64 3 128 8 0.8447    256 96 64 2 128 8 0.8534    64 32 64 6 128 0 1.0268
16 256 128 3 128 8 1.1773   64 32 128 3 256 0 1.1601    16 192 64 2 64 8 1.3514
"""
"""The program of `benchmark/tuned_gemm.py` at 5120 x 5120 x 5120 on an H200, in milliseconds behind
block_M, block_N, block_K, stages, threads, panel: some of 1364 configurations."""


def test_the_order_is_that_of_measured_times(hopper):
    numbers = np.array(MEASURED.split(), dtype=float).reshape(-1, 7)
    product = Product(5120, 5120, 5120, "float16", 2, 2)
    modelled = []
    for m, n, k, stages, threads, panel in numbers[:, :6].astype(int):
        by_groups = bool(threads % 128 == 0 and m % 64 == 0)
        tiling = Tiling(m, n, k, stages, threads, max(panel, 1), by_groups)
        modelled.append(product_seconds(hopper, product, tiling) * 1e3)
    places = [np.argsort(np.argsort(times)) for times in (modelled, numbers[:, 6])]
    assert np.corrcoef(*places)[0, 1] > 0.92
    fast = numbers[:, 6] < 0.55
    errors = np.array(modelled)[fast] / numbers[fast, 6]
    assert 0.85 < errors.min() < errors.max() < 1.1


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


def test_persistent_attention_has_tiles_of_its_own(hopper):
    """One block a multiprocessor: groups of 64 rows that take turns, and room for the result."""
    for dim, causal in ((64, False), (128, True), (256, False)):
        template = FlashAttentionTemplate(8, 32, dim, 4096, is_causal=causal, persistent=True)
        found = template.with_arch(hopper).recommend_hints(3)
        assert found[0].threads >= 256
        for hint in found:
            rows, keys, parts = hint.block[0], hint.rstep[0], template.out_parts(hint)
            assert rows == hint.threads // 2
            places = rows + rows / parts + 2 * hint.pipeline_stage * keys
            assert places * dim * 2 <= hopper.smem_cap
    tiles = FlashAttentionTemplate(8, 32, 128, 4096, persistent=True).with_arch(hopper)
    first = tiles.recommend_hints(1)[0]
    assert (first.block[0], first.rstep[0], first.pipeline_stage) == (128, 128, 2)
    assert tiles.out_parts(first) == 1


def test_results_of_wide_heads_leave_in_parts_that_leave_room_for_keys(hopper):
    """On an H200 3 x 22 x 2048 took 311 us in tiles of 64 x 64, 355 in tiles of 128 x 32."""
    wide = FlashAttentionTemplate(3, 22, 256, 2048, is_causal=True, persistent=True)
    first = wide.with_arch(hopper).recommend_hints(1)[0]
    assert (first.block[0], first.rstep[0], first.pipeline_stage) == (128, 64, 2)
    assert wide.out_parts(first) == 2


def test_heads_that_share_keys_read_them_once(hopper):
    """Else memory seems to bind in all tiles alike."""
    sizes = {"batch_size": 11, "num_heads": 104, "head_dim": 128, "seq_length": 512}
    apart, shared = (
        FlashAttentionTemplate(**sizes, is_causal=True, persistent=True, num_kv_heads=heads)
        .with_arch(hopper)
        .recommend_hints(1)[0]
        for heads in (None, 13)
    )
    assert shared.seconds < 0.95 * apart.seconds
    assert (shared.block[0], shared.rstep[0]) == (128, 128)
