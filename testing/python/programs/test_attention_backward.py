"""Attention backward (FlashAttention-2, Dao 2023): a block has a tile of keys, and adds to dQ of
all queries. dQ lies so that each lane of a warp adds to four consecutive elements, and the lanes to
consecutive ones of these; it has whole tiles. A second kernel reads it back and casts."""

import pytest
import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
DIM, ROWS, KEYS = 64, 64, 64


def by_lanes(h, i, d):
    """Each of the 32 lanes of a warp adds four registers of an accumulator, those of two elements
    in each of two rows, to consecutive elements, next to those of the lane before."""
    return [h, i // 16, d // 8, 4 * (i % 8) + d % 8 // 2, i // 8 % 2, d % 2]


def backward(heads, dim=DIM, rows=ROWS, keys=KEYS, threads=128):
    length, tiles = T.dynamic("length, tiles")
    shape = (heads, length, dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        dO: T.Tensor(shape, "float16"),
        LogSum: T.Tensor((heads, length), "float32"),
        Delta: T.Tensor((heads, length), "float32"),
        dQ: T.Tensor((heads, tiles * rows, dim), "float32"),
        dK: T.Tensor(shape, "float16"),
        dV: T.Tensor(shape, "float16"),
    ):
        with T.Kernel(T.ceildiv(length, keys), heads, threads=threads) as (bx, h):
            T.annotate_layout({dQ: T.Layout(dQ.shape, by_lanes)})
            k = T.alloc_shared((keys, dim), "float16")
            v = T.alloc_shared((keys, dim), "float16")
            q = T.alloc_shared((rows, dim), "float16")
            do = T.alloc_shared((rows, dim), "float16")
            ds_shared = T.alloc_shared((keys, rows), "float16")
            log_sum = T.alloc_shared((rows,), "float32")
            delta = T.alloc_shared((rows,), "float32")
            dk_shared = T.alloc_shared((keys, dim), "float16")
            dv_shared = T.alloc_shared((keys, dim), "float16")
            # Of transposed scores: rows are keys.
            p = T.alloc_fragment((keys, rows), "float32")
            p_half = T.alloc_fragment((keys, rows), "float16")
            ds = T.alloc_fragment((keys, rows), "float32")
            ds_half = T.alloc_fragment((keys, rows), "float16")
            dk = T.alloc_fragment((keys, dim), "float32")
            dv = T.alloc_fragment((keys, dim), "float32")
            dq = T.alloc_fragment((rows, dim), "float32")
            T.copy(K[h, bx * keys : (bx + 1) * keys, :], k)
            T.copy(V[h, bx * keys : (bx + 1) * keys, :], v)
            T.clear(dk)
            T.clear(dv)
            for n in T.Pipelined(tiles, num_stages=2):
                T.copy(Q[h, n * rows : (n + 1) * rows, :], q)
                T.gemm(k, q, p, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(LogSum[h, n * rows : (n + 1) * rows], log_sum)
                for j, i in T.Parallel(keys, rows):
                    p[j, i] = T.if_then_else(
                        n * rows + i < length,
                        T.exp2(p[j, i] * (LOG2_E / dim**0.5) - log_sum[i]),
                        0,
                    )
                T.copy(dO[h, n * rows : (n + 1) * rows, :], do)
                T.gemm(
                    v, do, ds, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow
                )
                T.copy(p, p_half)
                T.gemm(p_half, do, dv, policy=T.GemmWarpPolicy.FullRow)
                T.copy(Delta[h, n * rows : (n + 1) * rows], delta)
                for j, i in T.Parallel(keys, rows):
                    ds_half[j, i] = p[j, i] * (ds[j, i] - delta[i]) * dim**-0.5
                T.gemm(ds_half, q, dk, policy=T.GemmWarpPolicy.FullRow)
                T.copy(ds_half, ds_shared)
                T.gemm(ds_shared, k, dq, transpose_A=True, clear_accum=True)
                for i, d in T.Parallel(rows, dim):
                    T.atomic_add(dQ[h, n * rows + i, d], dq[i, d])
            T.copy(dk, dk_shared)
            T.copy(dv, dv_shared)
            T.copy(dk_shared, dK[h, bx * keys : (bx + 1) * keys, :])
            T.copy(dv_shared, dV[h, bx * keys : (bx + 1) * keys, :])

    return main


def read_back(heads, dim=DIM, rows=ROWS):
    length, tiles = T.dynamic("length, tiles")

    @T.prim_func
    def main(
        dQ: T.Tensor((heads, tiles * rows, dim), "float32"),
        Out: T.Tensor((heads, length, dim), "float16"),
    ):
        with T.Kernel(tiles, heads, threads=128) as (bx, h):
            T.annotate_layout({dQ: T.Layout(dQ.shape, by_lanes)})
            T.copy(
                dQ[h, bx * rows : (bx + 1) * rows, :],
                Out[h, bx * rows : (bx + 1) * rows, :],
            )

    return main


def reference(q, k, v, do):
    """The gradients, and what the forward pass leaves, in float64."""
    leaves = [t.double().requires_grad_() for t in (q, k, v)]
    scores = leaves[0] @ leaves[1].transpose(1, 2) / q.shape[2] ** 0.5
    out = scores.softmax(-1) @ leaves[2]
    out.backward(do.double())
    log_sum, delta = scores.logsumexp(-1) * LOG2_E, (out * do.double()).sum(-1)
    return [leaf.grad for leaf in leaves], log_sum.detach(), delta.detach()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    heads, length = 2, 72
    gradients, cast = (
        tilelang.compile(p(heads), execution_backend="auto", target=f"cuda -arch={arch}")
        for p in (backward, read_back)
    )
    q, k, v, do = (torch.randn(heads, length, DIM).half().to(device) for _ in range(4))
    exact, log_sum, delta = reference(q, k, v, do)
    dq = torch.zeros(heads, -(-length // ROWS) * ROWS, DIM, device=device)
    dk, dv, dq_half = (torch.full_like(q, torch.nan) for _ in range(3))
    gradients(q, k, v, do, log_sum.float(), delta.float(), dq, dk, dv)
    cast(dq, dq_half)
    for found, wanted in zip((dq_half, dk, dv), exact, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-2, atol=1e-2)
    assert ("load<float, 4>(dq" in gradients.get_kernel_source()) == (arch == "sm_90a")
