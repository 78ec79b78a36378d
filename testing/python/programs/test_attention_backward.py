"""Attention backward (FlashAttention-2, Dao 2023): a block has a tile of keys, and adds to dQ of
all queries. dQ lies so that the lanes of a warp add to consecutive elements; a second kernel reads
it back and casts."""

import pytest
import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
DIM, ROWS, KEYS = 64, 64, 64


def by_lanes(h, i, d):
    """The 32 lanes of a warp add each register of an accumulator to consecutive elements."""
    return [h, i // 8, d // 8, d % 2, 4 * (i % 8) + d % 8 // 2]


def backward(heads):
    length = T.dynamic("length")
    shape = (heads, length, DIM)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        dO: T.Tensor(shape, "float16"),
        LogSum: T.Tensor((heads, length), "float32"),
        Delta: T.Tensor((heads, length), "float32"),
        dQ: T.Tensor(shape, "float32"),
        dK: T.Tensor(shape, "float16"),
        dV: T.Tensor(shape, "float16"),
    ):
        with T.Kernel(T.ceildiv(length, KEYS), heads, threads=128) as (bx, h):
            T.assume(length % 8 == 0)
            T.annotate_layout({dQ: T.Layout(dQ.shape, by_lanes)})
            k = T.alloc_shared((KEYS, DIM), "float16")
            v = T.alloc_shared((KEYS, DIM), "float16")
            q = T.alloc_shared((ROWS, DIM), "float16")
            do = T.alloc_shared((ROWS, DIM), "float16")
            ds_shared = T.alloc_shared((KEYS, ROWS), "float16")
            log_sum = T.alloc_shared((ROWS,), "float32")
            delta = T.alloc_shared((ROWS,), "float32")
            dk_shared = T.alloc_shared((KEYS, DIM), "float16")
            dv_shared = T.alloc_shared((KEYS, DIM), "float16")
            # Of transposed scores: rows are keys.
            p = T.alloc_fragment((KEYS, ROWS), "float32")
            p_half = T.alloc_fragment((KEYS, ROWS), "float16")
            ds = T.alloc_fragment((KEYS, ROWS), "float32")
            ds_half = T.alloc_fragment((KEYS, ROWS), "float16")
            dk = T.alloc_fragment((KEYS, DIM), "float32")
            dv = T.alloc_fragment((KEYS, DIM), "float32")
            dq = T.alloc_fragment((ROWS, DIM), "float32")
            T.copy(K[h, bx * KEYS : (bx + 1) * KEYS, :], k)
            T.copy(V[h, bx * KEYS : (bx + 1) * KEYS, :], v)
            T.clear(dk)
            T.clear(dv)
            for n in T.Pipelined(T.ceildiv(length, ROWS), num_stages=2):
                T.copy(Q[h, n * ROWS : (n + 1) * ROWS, :], q)
                T.gemm(k, q, p, transpose_B=True, clear_accum=True)
                T.copy(LogSum[h, n * ROWS : (n + 1) * ROWS], log_sum)
                for j, i in T.Parallel(KEYS, ROWS):
                    p[j, i] = T.if_then_else(
                        n * ROWS + i < length,
                        T.exp2(p[j, i] * (LOG2_E / DIM**0.5) - log_sum[i]),
                        0,
                    )
                T.copy(dO[h, n * ROWS : (n + 1) * ROWS, :], do)
                T.gemm(v, do, ds, transpose_B=True, clear_accum=True)
                T.copy(p, p_half)
                T.gemm(p_half, do, dv)
                T.copy(Delta[h, n * ROWS : (n + 1) * ROWS], delta)
                for j, i in T.Parallel(KEYS, ROWS):
                    ds_half[j, i] = p[j, i] * (ds[j, i] - delta[i]) / DIM**0.5
                T.gemm(ds_half, q, dk)
                T.copy(ds_half, ds_shared)
                T.gemm(ds_shared, k, dq, transpose_A=True, clear_accum=True)
                for i, d in T.Parallel(ROWS, DIM):
                    if n * ROWS + i < length:
                        T.atomic_add(dQ[h, n * ROWS + i, d], dq[i, d])
            T.copy(dk, dk_shared)
            T.copy(dv, dv_shared)
            T.copy(dk_shared, dK[h, bx * KEYS : (bx + 1) * KEYS, :])
            T.copy(dv_shared, dV[h, bx * KEYS : (bx + 1) * KEYS, :])

    return main


def read_back(heads):
    length = T.dynamic("length")

    @T.prim_func
    def main(
        dQ: T.Tensor((heads, length, DIM), "float32"),
        Out: T.Tensor((heads, length, DIM), "float16"),
    ):
        with T.Kernel(T.ceildiv(length, ROWS), heads, threads=128) as (bx, h):
            T.assume(length % 8 == 0)
            T.annotate_layout({dQ: T.Layout(dQ.shape, by_lanes)})
            T.copy(
                dQ[h, bx * ROWS : (bx + 1) * ROWS, :],
                Out[h, bx * ROWS : (bx + 1) * ROWS, :],
            )

    return main


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    heads, length = 2, 72
    gradients, cast = (
        tilelang.compile(p(heads), execution_backend="auto", target=f"cuda -arch={arch}")
        for p in (backward, read_back)
    )
    q, k, v, do = (torch.randn(heads, length, DIM).half().to(device) for _ in range(4))
    exact = [t.double().requires_grad_() for t in (q, k, v)]
    scores = exact[0] @ exact[1].transpose(1, 2) / DIM**0.5
    out = scores.softmax(-1) @ exact[2]
    out.backward(do.double())
    log_sum = (scores.logsumexp(-1) * LOG2_E).float().detach()
    delta = (out * do.double()).sum(-1).float().detach()
    dq = torch.zeros(heads, length, DIM, device=device)
    dk, dv, dq_half = (torch.full_like(q, torch.nan) for _ in range(3))
    gradients(q, k, v, do, log_sum, delta, dq, dk, dv)
    cast(dq, dq_half)
    for found, wanted in zip((dq_half, dk, dv), exact, strict=True):
        torch.testing.assert_close(found.double(), wanted.grad, rtol=1e-2, atol=1e-2)
    assert "tx) % 32" in gradients.get_kernel_source()
