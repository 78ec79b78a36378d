"""T.gemm_blockscaled on gfx950 against float64: types, orders, memories, tiles, pipelines; what is
refused; and that AMD's compiler makes the scaled MFMA of it, without spills."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.hip.compile import compile_code_object
from tilelang.utils import float6

GFX950 = "hip -mcpu=gfx950"
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def one(tile, dtype, threads=128, transpose=(False, True), a_in_registers=False, **options):
    """One product, of one tile."""
    m, n, k = tile
    shape_a, shape_b = (k, m) if transpose[0] else (m, k), (n, k) if transpose[1] else (k, n)

    @T.prim_func
    def main(
        A: T.Tensor(shape_a, dtype),
        SA: T.Tensor((m, k // 32), "float8_e8m0fnu"),
        B: T.Tensor(shape_b, dtype),
        SB: T.Tensor((n, k // 32), "float8_e8m0fnu"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            a, b = T.alloc_shared(shape_a, dtype), T.alloc_shared(shape_b, dtype)
            a_f = T.alloc_fragment(shape_a, dtype)
            sa = T.alloc_shared((m, k // 32), "float8_e8m0fnu")
            sb = T.alloc_shared((n, k // 32), "float8_e8m0fnu")
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(SA, sa)
            T.copy(SB, sb)
            if a_in_registers:
                T.copy(a, a_f)
            T.fill(c, 1)
            T.gemm_blockscaled(a_f if a_in_registers else a, b, c, sa, sb, *transpose, **options)
            T.copy(c, C)

    return main


def pipelined(m, n, k, dtype, block=(64, 64, 256), stages=2, threads=128):
    """C of A and B, by tiles, the scales loaded beside their elements."""

    @T.prim_func
    def main(
        A: T.Tensor((m, k), dtype),
        SA: T.Tensor((m, k // 32), "float8_e8m0fnu"),
        B: T.Tensor((n, k), dtype),
        SB: T.Tensor((n, k // 32), "float8_e8m0fnu"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, block[1]), T.ceildiv(m, block[0]), threads=threads) as (bx, by):
            a, b = T.alloc_shared(block[::2], dtype), T.alloc_shared(block[1:], dtype)
            sa = T.alloc_shared((block[0], block[2] // 32), "float8_e8m0fnu")
            sb = T.alloc_shared((block[1], block[2] // 32), "float8_e8m0fnu")
            c = T.alloc_fragment(block[:2], "float32")
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, block[2]), num_stages=stages):
                T.copy(A[by * block[0], ko * block[2]], a)
                T.copy(SA[by * block[0], ko * (block[2] // 32)], sa)
                T.copy(B[bx * block[1], ko * block[2]], b)
                T.copy(SB[bx * block[1], ko * (block[2] // 32)], sb)
                T.gemm_blockscaled(a, b, c, sa, sb, transpose_B=True)
            T.copy(c, C[by * block[0], bx * block[1]])

    return main


def operand(rows, k, dtype, transposed=False):
    """What the kernel takes, the scales, and the values in float64, (rows, k)."""
    scales = torch.randint(122, 133, (rows, k // 32), dtype=torch.uint8)
    if dtype == "float4_e2m1fn":
        codes = torch.randint(0, 16, (rows, k))
        values, codes = E2M1[codes], codes.T if transposed else codes
        stored = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
        stored = stored.contiguous().view(T.dtype(dtype).as_torch())
    elif dtype.startswith("float6"):
        codes = torch.randint(0, 64, (rows, k))
        values, stored = float6.values(dtype)[codes], float6.pack_codes(codes)
    else:
        values = torch.randn(rows, k).to(T.dtype(dtype).as_torch())
        stored = values.T.contiguous() if transposed else values
    powers = (scales.double() - 127).exp2().repeat_interleave(32, 1)
    return stored, scales.view(torch.float8_e8m0fnu), values.double() * powers


def check(kernel, m, n, k, dtype, transpose=(False, True), start=0.0):
    torch.manual_seed(0)
    a, sa, x = operand(m, k, dtype, transpose[0])
    b, sb, y = operand(n, k, dtype, not transpose[1])
    found, wanted = kernel(a, sa, b, sb).double(), x @ y.T + start
    assert (found - wanted).norm() <= 1e-6 * wanted.norm()


@pytest.mark.parametrize(
    ("tile", "dtype", "threads", "instruction"),
    [
        ((64, 64, 128), "float4_e2m1fn", 128, "mfma_scale<32, 32, 64, fp4_e2_t, fp4_e2_t>"),
        ((16, 32, 256), "float4_e2m1fn", 128, "mfma_scale<16, 16, 128, fp4_e2_t, fp4_e2_t>"),
        ((64, 32, 64), "float8_e4m3fn", 128, "mfma_scale<32, 32, 64, fp8_e4_t, fp8_e4_t>"),
        ((48, 16, 128), "float8_e4m3fn", 64, "mfma_scale<16, 16, 128, fp8_e4_t, fp8_e4_t>"),
        ((32, 64, 192), "float8_e5m2", 64, "mfma_scale<32, 32, 64, fp8_e5_t, fp8_e5_t>"),
        ((16, 16, 128), "float8_e5m2", 64, "mfma_scale<16, 16, 128, fp8_e5_t, fp8_e5_t>"),
        ((64, 32, 64), "float6_e2m3fn", 128, "mfma_scale<32, 32, 64, fp6_e2_t, fp6_e2_t>"),
        ((48, 16, 128), "float6_e2m3fn", 64, "mfma_scale<16, 16, 128, fp6_e2_t, fp6_e2_t>"),
        ((32, 64, 192), "float6_e3m2fn", 64, "mfma_scale<32, 32, 64, fp6_e3_t, fp6_e3_t>"),
        ((16, 16, 128), "float6_e3m2fn", 64, "mfma_scale<16, 16, 128, fp6_e3_t, fp6_e3_t>"),
    ],
)
def test_types_and_tiles(tile, dtype, threads, instruction):
    kernel = tilelang.compile(one(tile, dtype, threads), out_idx=-1, target=GFX950)
    assert instruction in kernel.get_kernel_source()
    check(kernel, *tile, dtype, start=1.0)


@pytest.mark.parametrize(
    ("tile", "dtype", "transpose"),
    [
        ((64, 64, 256), "float4_e2m1fn", (False, True)),
        ((16, 32, 512), "float4_e2m1fn", (False, True)),
        ((32, 32, 512), "float4_e2m1fn", (True, False)),
        ((64, 32, 256), "float8_e4m3fn", (False, True)),
        ((64, 32, 256), "float6_e2m3fn", (False, True)),
        ((32, 16, 512), "float6_e3m2fn", (False, True)),
        ((16, 16, 512), "float8_e5m2", (True, False)),
    ],
)
def test_four_steps_load_their_scales_at_once(tile, dtype, transpose):
    """A lane's blocks along K follow each other, and so do their scales, four in a register."""
    program = one(tile, dtype, 64, transpose)
    kernel = tilelang.compile(program, out_idx=-1, target=GFX950)
    source = kernel.get_kernel_source()
    assert re.findall(r"mfma_scale_of_word<.*, (\d)>", source) == ["0", "1", "2", "3"]
    assert "tl::load<fp8_e8_t, 4>(sa + " in source
    check(kernel, *tile, dtype, transpose, 1.0)


def test_scales_are_those_of_the_lane_s_elements():
    """Lane l of 16 x 16 x 128 has row l % 16, in step s the 32 elements of block 4 (l / 16) + s,
    and byte s of its scales. Of row i of 256 bytes, chunk c of 16 bytes is at chunk c xor x of row
    i of its half: bits 1, 2 and 3 of i are worth 4, 3 and 2 in x, for 64 banks."""
    source = tilelang.lower(one((16, 16, 512), "float4_e2m1fn", 64), target=GFX950).kernel_source
    elements = re.findall(r"tl::store\(a_frag.*tl::load<fp4_e2_t, 32>\(a \+ (.*)\)\);", source)
    (scales,) = re.findall(r"tl::load<fp8_e8_t, 4>\(sa \+ (.*)\)\);", source)
    assert len(elements) == 4
    for lane in range(64):
        row, group = lane % 16, lane // 16
        assert eval(scales.replace("/", "//"), {"tx": lane}) == row * 16 + 4 * group
        for s, element in enumerate(elements):
            place = eval(element.replace("/", "//"), {"tx": lane})
            x = row // 2 % 2 * 4 ^ row // 4 % 2 * 3 ^ row // 8 % 2 * 2
            chunk = place // 2048 * 8 + (place % 128 // 16 ^ x)
            assert (place % 2048 // 128, chunk) == (row, 4 * group + s)


@pytest.mark.parametrize(
    ("dtype", "transpose", "a_in_registers"),
    [
        ("float8_e4m3fn", (True, False), False),
        ("float8_e4m3fn", (False, True), True),
        ("float4_e2m1fn", (False, True), True),
        ("float6_e3m2fn", (False, True), True),
        ("float4_e2m1fn", (True, False), False),
    ],
)
def test_orders_and_memories(dtype, transpose, a_in_registers):
    tile = 32, 64, 128
    program = one(tile, dtype, 128, transpose, a_in_registers)
    check(tilelang.compile(program, out_idx=-1, target=GFX950), *tile, dtype, transpose, 1.0)


@pytest.mark.parametrize(
    ("dtype", "block", "stages"),
    [
        ("float4_e2m1fn", (64, 64, 256), 2),
        ("float8_e4m3fn", (64, 32, 128), 3),
        ("float6_e2m3fn", (64, 64, 256), 2),
        ("float6_e3m2fn", (64, 32, 128), 3),
    ],
)
def test_pipelines(dtype, block, stages):
    """With a part of a tile behind the end of C."""
    kernel = tilelang.compile(
        pipelined(80, 48, 512, dtype, block, stages), out_idx=-1, target=GFX950
    )
    check(kernel, 80, 48, 512, dtype)


def test_clear_accum_overwrites():
    program = one((32, 32, 64), "float8_e4m3fn", 64, clear_accum=True)
    check(tilelang.compile(program, out_idx=-1, target=GFX950), 32, 32, 64, "float8_e4m3fn")


@pytest.mark.parametrize("dtype", ["float4_e2m1fn", "float6_e2m3fn", "float8_e4m3fn"])
def test_it_is_compiled_to_the_scaled_mfma_without_spills(dtype):
    program = pipelined(4096, 4096, 4096, dtype, (128, 128, 256), 2, 256)
    source = tilelang.lower(program, target=GFX950).kernel_source
    code = compile_code_object(source, "gfx950", ["main_kernel"])
    (usage,) = code.resource_usage.values()
    assert (usage.spill_stores, usage.stack) == (0, 0)
    assert "v_mfma_scale_f32_32x32x64_f8f6f4" in code.assembly
    assert "op_sel" in code.assembly
    assert "ds_read_u8" not in code.assembly
    # In the loop, loads to LDS are waited for by the program alone.
    label, loop = re.search(r"(\.LBB\w+):.*Loop Header([\s\S]*)", code.assembly).groups()
    loop = loop[: loop.rindex(f" {label}\n")]
    assert len(re.findall(r"s_waitcnt.*vmcnt", loop)) == 1


@pytest.mark.parametrize(
    ("target", "tile", "dtype", "why"),
    [
        ("cuda -arch=sm_90a", (64, 64, 128), "float4_e2m1fn", "no instruction for float4_e2m1fn"),
        ("hip -mcpu=gfx942", (64, 64, 128), "float8_e4m3fn", "needs gfx950, found gfx942"),
        (GFX950, (64, 24, 128), "float8_e4m3fn", "N must be a multiple of 16, found 24"),
        (GFX950, (16, 16, 96), "float8_e4m3fn", "K must be a multiple of 128, found 96"),
        (GFX950, (64, 64, 128), "float16", "no instruction for float16"),
    ],
)
def test_what_no_instruction_takes_is_refused(target, tile, dtype, why):
    message = (
        rf"T\.gemm_blockscaled: found a tile of .*{re.escape(why)}.*; change it, or use T\.gemm"
    )
    with pytest.raises(ValueError, match=message):
        tilelang.lower(one(tile, dtype), target=target)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sf_a_granularity_k": 16}, ValueError, "sf_a_granularity_k .* wanted 32"),
        ({"SFA": "float32"}, TypeError, "SFA .* of dtype float32, wanted float8_e8m0fnu"),
        ({"SFB": (64, 8)}, AssertionError, r"SFB .* is \(64, 8\), wanted \(64, 4\)"),
    ],
)
def test_scales_are_checked_while_tracing(options, error, message):
    options = dict(options)
    dtype = options.pop("SFA", "float8_e8m0fnu")
    of_b = options.pop("SFB", (64, 4))

    def program():
        @T.prim_func
        def main():
            with T.Kernel(1, threads=128):
                a = T.alloc_shared((64, 128), "float8_e4m3fn")
                b = T.alloc_shared((64, 128), "float8_e4m3fn")
                c = T.alloc_fragment((64, 64), "float32")
                sa = T.alloc_shared((64, 4), dtype)
                sb = T.alloc_shared(of_b, "float8_e8m0fnu")
                T.gemm_blockscaled(a, b, c, sa, sb, transpose_B=True, **options)

        return main

    with pytest.raises(error, match=message):
        program()
