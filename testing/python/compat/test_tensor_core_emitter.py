"""Products by a warp's instructions that a program emits by name, and where matrices lie."""

import importlib

import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang.intrinsics import (
    TensorCoreIntrinEmitter,
    get_mma_micro_size,
    get_swizzle_layout,
    ldmatrix_32x8_to_shared_16x16_layout,
    ldmatrix_trans_32x8_to_shared_16x16_layout,
    make_mma_swizzle_layout,
    mma_store_index_map,
)

TORCH = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "float32": torch.float32,
    "int32": torch.int32,
}


@pytest.mark.parametrize(
    "module",
    [
        "intrinsics",
        "intrinsics.mma_macro_generator",
        "cuda.intrinsics",
        "cuda.intrinsics.macro.mma_macro_generator",
    ],
)
def test_names(module):
    found = importlib.import_module(f"tilelang.{module}")
    assert found.TensorCoreIntrinEmitter is TensorCoreIntrinEmitter


@pytest.mark.parametrize("module", ["intrinsics.mma_layout", "cuda.intrinsics.layout.mma_layout"])
def test_names_of_layouts(module):
    found = importlib.import_module(f"tilelang.{module}")
    assert found.make_mma_swizzle_layout is make_mma_swizzle_layout


def product(dtype, accum, a_transposed, b_transposed, squares, m_first, k=64):
    """Two warps by two, of 32 rows and 16 columns each."""
    emitter = TensorCoreIntrinEmitter(
        a_dtype=dtype,
        b_dtype=dtype,
        accum_dtype=accum,
        a_transposed=a_transposed,
        b_transposed=b_transposed,
        block_row_warps=2,
        block_col_warps=2,
        warp_row_tiles=32,
        warp_col_tiles=16,
        chunk=32,
        is_m_first=m_first,
    )
    of_a = (32, 64) if a_transposed else (64, 32)
    of_b = (32, 32)
    c_tile = (4, 2, 16, 16) if squares else (64, 32)

    @T.prim_func
    def main(
        A: T.Tensor((k, 64) if a_transposed else (64, k), dtype),
        B: T.Tensor((32, k) if b_transposed else (k, 32), dtype),
        C: T.Tensor((64, 32), accum),
    ):
        with T.Kernel(1, threads=emitter.threads):
            a_shared = T.alloc_shared(of_a, dtype)
            b_shared = T.alloc_shared(of_b, dtype)
            c_shared = T.alloc_shared(c_tile, accum)
            a = T.alloc_local((emitter.warp_rows * emitter.local_size_a,), dtype)
            b = T.alloc_local((emitter.warp_cols * emitter.local_size_b,), dtype)
            c = T.alloc_local(
                (emitter.warp_rows * emitter.warp_cols * emitter.local_size_out,), accum
            )
            T.annotate_layout(
                {
                    a_shared: make_mma_swizzle_layout(a_shared),
                    b_shared: make_mma_swizzle_layout(b_shared),
                }
            )
            T.clear(c)
            for ko in T.serial(k // 32):
                if a_transposed:
                    T.copy(A[ko * 32, 0], a_shared)
                else:
                    T.copy(A[0, ko * 32], a_shared)
                if b_transposed:
                    T.copy(B[0, ko * 32], b_shared)
                else:
                    T.copy(B[ko * 32, 0], b_shared)
                for ki in T.serial(32 // emitter.micro_size_k):
                    emitter.ldmatrix_a(a, a_shared, ki)
                    emitter.ldmatrix_b(b, b_shared, ki)
                    emitter.mma(a, b, c)
            if squares is None:
                emitter.stmatrix(c, C, pid_m=0, pid_n=0)
            else:
                emitter.stmatrix(c, c_shared)
                for i, j in T.Parallel(64, 32):
                    C[i, j] = (
                        c_shared[i // 16, j // 16, i % 16, j % 16] if squares else c_shared[i, j]
                    )

    return main


@pytest.mark.parametrize(
    ("dtype", "accum", "a_transposed", "b_transposed", "squares", "m_first"),
    [
        ("float16", "float32", False, True, True, False),
        ("float16", "float16", True, False, False, True),
        ("bfloat16", "float32", False, False, None, False),
        ("int8", "int32", False, True, True, True),
    ],
)
def test_products(device, dtype, accum, a_transposed, b_transposed, squares, m_first):
    program = product(dtype, accum, a_transposed, b_transposed, squares, m_first)
    kernel = tilelang.compile(program, target="cuda -arch=sm_80", execution_backend="auto")
    a = torch.randint(-3, 4, (64, 64), device=device)
    b = torch.randint(-3, 4, (64, 32), device=device)
    c = torch.zeros(64, 32, dtype=TORCH[accum], device=device)
    stored = ((a.T if a_transposed else a), (b.T if b_transposed else b))
    kernel(*(t.contiguous().to(TORCH[dtype]) for t in stored), c)
    assert torch.equal(c.long().cpu(), a.cpu() @ b.cpu())


def test_sizes():
    assert get_mma_micro_size("bfloat16") == (16, 16, 16)
    assert get_mma_micro_size(T.float8_e4m3fn) == (16, 16, 32)
    emitter = TensorCoreIntrinEmitter(
        "float16",
        "float16",
        "float32",
        chunk=16,
        warp_row_tiles=32,
        warp_col_tiles=64,
        b_transposed=True,
    )
    assert (emitter.warp_rows, emitter.warp_cols, emitter.threads) == (2, 4, 128)
    assert (emitter.local_size_a, emitter.local_size_b, emitter.local_size_out) == (8, 8, 8)


def test_index_maps_are_bijections():
    lanes = [(thread, local) for thread in range(32) for local in range(8)]
    square = {(i, j) for i in range(16) for j in range(16)}
    for index_map in (
        mma_store_index_map,
        ldmatrix_32x8_to_shared_16x16_layout,
        ldmatrix_trans_32x8_to_shared_16x16_layout,
    ):
        assert {index_map(*lane) for lane in lanes} == square


@pytest.mark.parametrize(("columns", "dtype"), [(64, "float16"), (32, "float16"), (32, "int8")])
def test_swizzles_are_those_of_the_layout(columns, dtype):
    """The same element lies at the same place as in `make_swizzled_layout`."""
    buffer = tvm.tirx.decl_buffer((16, columns), dtype)
    layout = make_mma_swizzle_layout(buffer)
    for i in range(16):
        for j in range(columns):
            row, column = get_swizzle_layout(i, j, columns, dtype)
            assert layout.addresses()[i * columns + j] == row * columns + column


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"a_dtype": "float16", "b_dtype": "int8"}, "wanted A and B of one type"),
        ({"warp_row_tiles": 24}, "warp_row_tiles of .* is 24, wanted a multiple of 16"),
        ({"chunk": 8}, "chunk of .* is 8, wanted a multiple of 16"),
        (
            {"a_dtype": "int8", "b_dtype": "int8", "accum_dtype": "int32", "chunk": 32},
            "ldmatrix transposes 16-bit elements only",
        ),
    ],
)
def test_refusals(arguments, what):
    given = {"accum_dtype": "float32", "warp_row_tiles": 16, "warp_col_tiles": 16} | arguments
    with pytest.raises(ValueError, match=what):
        TensorCoreIntrinEmitter(**given)


def test_spans_that_do_not_divide_a_row():
    with pytest.raises(ValueError, match="rows of 24 elements of float16"):
        get_swizzle_layout(0, 0, 24, "float16")
