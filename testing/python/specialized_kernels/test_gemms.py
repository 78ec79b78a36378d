"""Pipelined products become what one would write by hand: TMA loads by one thread, wgmma on both
tiles where they lie, mbarriers alone between them."""

import pytest
import torch

import tilelang.language as T


def matmul(dtype, accum, trans_a, trans_b, step, tile=(128, 64), n=3, allow_tf32=False):
    rows, columns = tile
    depth = step * n
    shape_a = (depth, rows) if trans_a else (rows, depth)
    shape_b = (columns, depth) if trans_b else (depth, columns)
    tile_a = (step, rows) if trans_a else (rows, step)
    tile_b = (columns, step) if trans_b else (step, columns)

    @T.prim_func
    def main(A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor(tile, accum)):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared(tile_a, dtype)
            W = T.alloc_shared(tile_b, dtype)
            F = T.alloc_fragment(tile, accum)
            T.clear(F)
            for k in T.Pipelined(n, num_stages=2):
                T.copy(A[k * step, 0] if trans_a else A[0, k * step], S)
                T.copy(B[0, k * step] if trans_b else B[k * step, 0], W)
                T.gemm(S, W, F, trans_a, trans_b, annotations={"allow_tf32": allow_tf32})
            T.copy(F, C)

    return main


def reads_like_by_hand(kernel):
    assert kernel.fills == ["TMA", "TMA"]
    assert "tl::wgmma_ss<" in kernel.consumer
    assert "warpgroup_reg_dealloc<24>" in kernel.producer
    assert "warpgroup_reg_alloc<" in kernel.consumer
    # One thread, chosen outside of the loop, which is not unrolled.
    before, loop, _ = kernel.producer.partition("for (int k = 0")
    assert loop
    assert "tl::shuffle_elect<128>()" in before
    assert "#pragma unroll 1" in before
    # Threads wait for nothing but the slots.
    for role in (kernel.producer, kernel.consumer):
        assert "sync_threads" not in role
        assert role.count("mbarrier_wait(") == 1
    assert " 0 bytes spilled" in kernel.text


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_all_orders_of_operands(build, trans_a, trans_b):
    reads_like_by_hand(build(matmul("float16", "float32", bool(trans_a), bool(trans_b), 64)))


@pytest.mark.parametrize(
    ("dtype", "accum", "step"),
    [
        ("bfloat16", "float32", 32),
        ("float32", "float32", 32),
        ("float8_e4m3fn", "float32", 64),
        ("int8", "int32", 128),
    ],
)
def test_all_types(build, dtype, accum, step):
    tf32 = dtype == "float32"
    kernel = build(matmul(dtype, accum, False, True, step, allow_tf32=tf32))
    reads_like_by_hand(kernel)
    low = torch.randint(-4, 5, (128, step * 3)), torch.randint(-4, 5, (64, step * 3))
    a, b = (x.to(T.dtype(dtype).as_torch()) for x in low)
    kernel.check(a, b, wanted=low[0].double() @ low[1].double().T)
