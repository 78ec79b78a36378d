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
    assert kernel.fills == ["tma", "tma"]
    assert "tl.wgmma_ss" in kernel.consumer.calls
    assert kernel.calls["tl.warpgroup_reg_dealloc", "24"] == 1
    assert [name for name, _ in kernel.calls].count("tl.warpgroup_reg_alloc") == 1
    # One thread, chosen outside of the loop, which is not unrolled.
    assert kernel.producer.events[:3] == ["tl.shuffle_elect", "unroll 1", "for k"]
    # Threads wait for nothing but the slots.
    for role in (kernel.producer, kernel.consumer):
        assert not [name for name in role.calls if "sync" in name]
        assert role.calls.count("tl.mbarrier_wait") == 1
    assert kernel.compiled.resource_usage["main_kernel"].spill_stores == 0


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
