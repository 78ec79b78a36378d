"""Weights of 4 bits: split K in one kernel, and what ptxas makes of the loop."""

import pytest

import tilelang
from tilelang.testing.sass import loop_with

EXAMPLE = "quantization/dequantize_gemm.py"
SHORT = {"block_M": 16, "block_N": 64, "threads": 128}


@pytest.mark.parametrize(("form", "bound"), [("int4", 1e-3), ("mxfp4", 8e-3)])
def test_shares_of_k_are_added_up_by_the_last_block(example, device, form, bound):
    """Two steps of each of the three shares, of which the last ones are behind the end of K."""
    tile = {**SHORT, "block_K": 256, "num_stages": 2, "split": 3, "packed": True, "parts": 2}
    assert example.relative_error(form, 24, 72, 1000, device=device, **tile) < bound


@pytest.mark.parametrize("parts", [1, 2])
def test_sums_take_the_scale_of_their_group(example, device, parts):
    """More exactly than weights do: their products with the scale are rounded."""
    tile = {**SHORT, "block_K": 128 * parts, "num_stages": 2, "packed": True, "parts": parts}
    errors = [
        example.relative_error("int4", 24, 72, 1000, device=device, scale_sums=sums, **tile)
        for sums in (False, True)
    ]
    assert errors[1] < errors[0] < 1e-3
    wrong = {**tile, "block_K": 128, "parts": 1, "group": 64}
    with pytest.raises(ValueError, match="parts of 128, wanted groups of 64 to be whole"):
        example.matmul.get_tir("int4", 24, 72, 1000, scale_sums=True, **wrong)
    with pytest.raises(ValueError, match="found groups of 192, wanted a divisor or a multiple of"):
        example.matmul.get_tir("int4", 24, 72, 1000, **{**wrong, "group": 192})
    with pytest.raises(ValueError, match="found scale_sums for mxfp4, wanted it for int4"):
        example.matmul.get_tir("mxfp4", 24, 72, 1000, scale_sums=True, **tile)


@pytest.mark.parametrize(
    ("form", "config", "wanted"),
    [
        # 42 of 128 columns in each of 3 parts would leave two of each step out.
        ("int4", {"block_K": 128, "parts": 3}, "found 3 parts, wanted a divisor of block_K 128"),
        ("int4", {"parts": 0}, "found 0 parts, wanted a divisor of block_K"),
        ("int4", {"block_K": 64, "parts": 1, "packed": True}, "wanted a multiple of 128 for"),
        ("mxfp4", {"block_K": 128, "parts": 8, "packed": True}, "in parts of 16, .* of 32, 64 or"),
        ("int4", {"block_K": 384, "parts": 4, "packed": True}, "in parts of 96, .* of 32, 64 or"),
        (
            "mxfp4",
            {"packed": True, "block_N": 128},
            "found 128 threads, wanted twice block_N, 256, for packed",
        ),
        ("int4", {"split": 0}, "found 0 shares of K, wanted 1 or more"),
        ("int4", {"whole_rows": True, "packed": True}, "wanted it for int4 that is not packed"),
        ("mxfp4", {"whole_rows": True}, "wanted it for int4 that is not packed"),
        (
            "int4",
            {"whole_rows": True, "threads": 256},
            "found 256 threads, wanted twice block_N, 128, for whole_rows",
        ),
    ],
)
def test_steps_that_do_not_fit_are_refused(example, form, config, wanted):
    tile = {"block_M": 16, "block_N": 64, "threads": 128, **config}
    with pytest.raises(ValueError, match=wanted):
        example.matmul.get_tir(form, 24, 72, 1000, **tile)


@pytest.mark.parametrize(
    ("shape", "config"), [((24, 72, 1000), {"blocks": 3}), ((300, 1, 1000), {"block_M": 16})]
)
def test_shares_without_blocks_or_counters_are_refused(example, shape, config):
    with pytest.raises(ValueError, match="found 2 shares of K"):
        example.matmul.get_tir("int4", *shape, **{**SHORT, "split": 2, **config})


@pytest.mark.parametrize("options", [{}, {"parts": 2, "block_K": 256, "scale_sums": True}])
def test_rows_that_are_not_packed_are_loaded_whole(example, device, options):
    """By the four threads that have parts of one, which take their bytes from registers."""
    tile = {**SHORT, "block_K": 128, "num_stages": 2, "whole_rows": True, **options}
    assert example.relative_error("int4", 24, 72, 1000, device=device, **tile) < 1e-3


def test_of_two_shares_the_last_block_keeps_its_own(example, device):
    """Which block is the last one does not change a bit of the result."""
    tile = {**SHORT, "block_K": 128, "num_stages": 2, "split": 2}
    a, pairs, scale, arrivals = example.inputs("int4", 24, 72, 1000, device=device)
    found = [
        example.matmul("int4", 24, 72, 1000, **tile)(a, pairs, scale, arrivals) for _ in range(3)
    ]
    assert all(each.equal(found[0]) for each in found[1:])
    assert not arrivals.any()
    assert example.relative_error("int4", 24, 72, 1000, device=device, **tile) < 1e-3


@pytest.mark.parametrize(("form", "bound"), [("int4", 1e-3), ("mxfp4", 8e-3)])
def test_shares_of_k_are_added_up_by_a_second_kernel(example, device, form, bound):
    """Of tiles that end behind those of the second kernel, and before them."""
    tile = {**SHORT, "block_K": 256, "num_stages": 2, "split": 3, "packed": True, "parts": 2}
    assert example.relative_error(form, 24, 72, 1000, device=device, apart=True, **tile) < bound
    assert example.relative_error(form, 5, 200, 520, device=device, apart=True, **tile) < bound


def test_kernels_that_wait_for_another_one_start_early(example):
    """Behind the copy of A, and behind the shares."""
    tile = {**SHORT, "block_K": 128, "num_stages": 2, "packed": True, "padded": True}
    program = example.matmul.get_tir("int4", 24, 72, 1004, split=3, apart=True, **tile)
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    kernels = kernel.get_kernel_source().split("__global__")[1:]
    assert ["pdl_sync" in source for source in kernels] == [False, True, True]


@pytest.mark.parametrize(
    ("form", "size", "tile"),
    [
        # Seven tiles, of which each block has two or three; the last ones are not whole.
        pytest.param("int4", (40, 136, 392), {"blocks": 3}, id="blocks that stay"),
        pytest.param("mxfp4", (5, 72, 300), {"padded": True, "split": 2}, id="rows of 600 bytes"),
        pytest.param("int4", (24, 72, 300), {"parts": 2}, id="halves of what is packed together"),
        pytest.param("mxfp4", (5, 72, 520), {"block_K": 256}, id="two packs at once"),
    ],
)
def test_other_schedules(example, device, form, size, tile):
    tile = {**SHORT, "block_K": 128, "num_stages": 2, "packed": True, **tile}
    bound = {"int4": 1e-3, "mxfp4": 8e-3}[form]
    assert example.relative_error(form, *size, device=device, **tile) < bound


@pytest.mark.parametrize(("form", "columns"), [("int4", 74), ("mxfp4", 71)])
def test_rows_of_scales_that_begin_anywhere_are_loaded_by_tma(example, device, form, columns):
    """Threads of the producer would load those of a step, and wait for them, before they ask for
    those of the next one. Of the second tile few scales are of use."""
    tile = {**SHORT, "block_K": 256, "num_stages": 2, "packed": True, "parts": 2}
    bound = {"int4": 1e-3, "mxfp4": 8e-3}[form]
    assert example.relative_error(form, 24, columns, 1000, device=device, split=3, **tile) < bound
    program = example.matmul.get_tir(form, 24, columns, 1000, **tile)
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    (loads,) = [line for line in kernel.explain().splitlines() if "channel 0: " in line]
    assert "A_shared, B_bytes, scale_shared" in loads
    assert "by the threads" not in kernel.explain()


@pytest.mark.parametrize("form", ["int4", "mxfp4"])
def test_packed_weights_are_unpacked_by_their_order(example, form):
    _, pairs, scale, _ = example.inputs(form, 1, 3, 1000)
    assert example.unpack_order(form, example.pack(form, pairs, scale))[:, :500].equal(pairs)


@pytest.mark.parametrize("scale", [66, 192])
def test_packed_mxfp4_takes_scales_far_from_one(example, device, scale):
    """Its weights are multiplied by a power of two that bfloat16 has for scales up to 192."""
    tile = {**SHORT, "block_K": 128, "num_stages": 2, "packed": True}
    a, pairs, scales, arrivals = example.inputs("mxfp4", 24, 72, 300, device=device)
    scales.fill_(scale)
    packed = example.pack("mxfp4", pairs, scales)
    found = example.matmul("mxfp4", 24, 72, 300, **tile)(a, packed, scales, arrivals)
    wanted = example.reference("mxfp4", a, pairs, scales)
    assert (found.double() - wanted).norm() < 8e-3 * wanted.norm()


@pytest.mark.parametrize("scale", [0, 65, 193, 255])
def test_packed_mxfp4_refuses_scales_that_it_has_no_room_for(example, scale):
    """Weights would become zero, or products NaN; zeros have no use for their scale."""
    _, pairs, scales, _ = example.inputs("mxfp4", 1, 3, 300)
    scales[4, 1] = scale
    with pytest.raises(ValueError, match="wanted 66 to 192"):
        example.pack("mxfp4", pairs, scales)
    pairs[1, 64:80] = 0x80  # 0 and -0
    example.pack("mxfp4", pairs, scales)


@pytest.mark.parametrize(
    ("form", "limit", "options"),
    [
        # Of 64 weights of a thread: 32 pairs take a mask, two floating-point operations and a
        # shift for four; the rest is waits and products. NVRTC 13.0 needs 1 to 8 more than 13.5.
        pytest.param("int4", 180, {}, id="int4"),
        pytest.param("int4", 166, {"scale_sums": True}, id="int4, scaled sums"),
        # Of four pairs, one takes a mask, two a shift and a mask, one two masks, a shift and a
        # product of integers; each takes a product of floats.
        pytest.param("mxfp4", 194, {}, id="mxfp4"),
        # A pair takes a permutation of bytes, a mask and an addition; a byte would take a load.
        pytest.param("int4", 220, {"packed": False, "whole_rows": True}, id="int4, whole rows"),
    ],
)
def test_the_loop_is_short(example, form, limit, options):
    tile = {**SHORT, "block_K": 128, "num_stages": 4, "split": 2, "packed": True, "min_blocks": 4}
    tile.update(options)
    program = example.matmul.get_tir(form, 16, 8192, 8192, **tile)
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    loop = loop_with(kernel.sass, "HGMMA")
    assert sum("HGMMA" in line for line in loop) == 8
    assert len(loop) <= limit
    assert [usage.spill_stores for usage in kernel.resource_usage.values()] == [0]


def test_tiles_in_turn_are_stored_by_matrices(example):
    """A thread has two neighbours of a column of the tile: it would store each by itself."""
    tile = {"block_M": 192, "block_K": 128, "num_stages": 3, "packed": True, "blocks": 132}
    program = example.matmul.get_tir("int4", 1312, 29824, 448, **tile)
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    assert kernel.sass.count("STSM.16.MT88.4") == 12
    assert "STS.U16" not in kernel.sass
    assert [usage.spill_stores for usage in kernel.resource_usage.values()] == [0]


@pytest.mark.parametrize(("block_K", "stages", "limit"), [(256, 2, 320), (128, 3, 196)])
def test_a_part_is_unpacked_beside_the_product_of_another_one(example, block_K, stages, limit):
    """Else ptxas awaits each instruction by itself."""
    tile = {"block_K": block_K, "num_stages": stages, "packed": True, "parts": 2}
    program = example.matmul.get_tir("int4", 4096, 4096, 4096, **tile)
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    loop = loop_with(kernel.sass, "HGMMA")
    assert sum("HGMMA" in line for line in loop) == block_K // 16
    assert sum("WARPGROUP.DEPBAR" in line for line in loop) == 2
    assert len(loop) <= limit


@pytest.mark.parametrize("parts", [2, 4])
def test_products_of_parts_run_beside_each_other(example, parts):
    """While the next part is unpacked: ptxas serialises nothing (C7513)."""
    tile = {"block_M": 16, "block_N": 64, "block_K": 256, "threads": 128}
    program = example.matmul.get_tir("int4", 64, 128, 4096, packed=True, parts=parts, **tile)
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a", execution_backend="emulate")
    (usage,) = kernel.resource_usage.values()
    assert usage.advisories == ()
