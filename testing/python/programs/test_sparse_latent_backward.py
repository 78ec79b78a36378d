"""Backward of attention over chosen rows of a latent cache (DeepSeek-V3.2, 2025): keys are a latent
row beside a rotated one, values the latent row; each query has a list of the rows that it sees,
-1 where there is none. A block has the heads of a query; it adds to the gradients of the rows by
atomic operations, half of an accumulator at a time, since there is no room for all of it."""

import pytest
import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
HEADS, LATENT, ROTATED, BLOCK = 64, 64, 32, 64


def sparse_latent_backward(
    parts, heads=HEADS, latent=LATENT, rotated=ROTATED, block=BLOCK, threads=128
):
    """The accumulator of the rows' gradients is stored in `parts` parts."""
    queries, length, chosen = T.dynamic("queries, length, chosen")
    rows, scale = block // parts, (latent + rotated) ** -0.5

    @T.macro
    def add(dKV, Chosen, query, first, gradient, staged, column, width):
        """Add the rows from `first` of a block's gradients, `width` columns from `column`."""
        for part in T.serial(parts):
            for j, d in T.Parallel(block, width):
                if j < rows:
                    staged[j, d] = gradient[part * rows + j, d]
            for j, d in T.Parallel(rows, width // 4):
                if first + part * rows + j < chosen:
                    row = Chosen[query, first + part * rows + j]
                    if row >= 0:
                        T.atomic_addx4(dKV[row, column + d * 4], staged[j, d * 4])

    @T.prim_func
    def main(
        Q: T.Tensor((queries, heads, latent + rotated), "float16"),
        KV: T.Tensor((length, latent + rotated), "float16"),
        dO: T.Tensor((queries, heads, latent), "float16"),
        Chosen: T.Tensor((queries, chosen), "int32"),
        LogSum: T.Tensor((queries, heads), "float32"),
        Delta: T.Tensor((queries, heads), "float32"),
        dQ: T.Tensor((queries, heads, latent + rotated), "float16"),
        dKV: T.Tensor((length, latent + rotated), "float32"),
    ):
        with T.Kernel(queries, threads=threads) as query:
            q = T.alloc_shared((heads, latent), "float16")
            q_rotated = T.alloc_shared((heads, rotated), "float16")
            do = T.alloc_shared((heads, latent), "float16")
            kv = T.alloc_shared((block, latent), "float16")
            k_rotated = T.alloc_shared((block, rotated), "float16")
            p_shared = T.alloc_shared((heads, block), "float16")
            ds_shared = T.alloc_shared((heads, block), "float16")
            staged = T.alloc_shared((rows, latent), "float32")
            staged_rotated = T.alloc_shared((rows, rotated), "float32")
            seen = T.alloc_fragment((block,), "bool")
            p = T.alloc_fragment((heads, block), "float32")
            dp = T.alloc_fragment((heads, block), "float32")
            dq = T.alloc_fragment((heads, latent), "float32")
            dq_rotated = T.alloc_fragment((heads, rotated), "float32")
            dkv = T.alloc_fragment((block, latent), "float32")
            dk_rotated = T.alloc_fragment((block, rotated), "float32")
            T.copy(Q[query, :, 0:latent], q)
            T.copy(Q[query, :, latent : latent + rotated], q_rotated)
            T.copy(dO[query, :, :], do)
            T.clear(dq)
            T.clear(dq_rotated)
            for t in T.Pipelined(T.ceildiv(chosen, block), num_stages=1):
                for j in T.Parallel(block):
                    seen[j] = t * block + j < chosen and Chosen[query, t * block + j] >= 0
                for j, d in T.Parallel(block, latent):
                    kv[j, d] = KV[Chosen[query, t * block + j], d]
                for j, d in T.Parallel(block, rotated):
                    k_rotated[j, d] = KV[Chosen[query, t * block + j], latent + d]
                T.gemm(q, kv, p, transpose_B=True, clear_accum=True)
                T.gemm(q_rotated, k_rotated, p, transpose_B=True)
                for i, j in T.Parallel(heads, block):
                    p[i, j] = T.if_then_else(
                        seen[j], T.exp2(p[i, j] * (scale * LOG2_E) - LogSum[query, i]), 0
                    )
                T.copy(p, p_shared)
                T.gemm(do, kv, dp, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(heads, block):
                    dp[i, j] = p[i, j] * (dp[i, j] - Delta[query, i]) * scale
                T.copy(dp, ds_shared)
                T.gemm(ds_shared, kv, dq)
                T.gemm(ds_shared, k_rotated, dq_rotated)
                T.gemm(ds_shared, q, dkv, transpose_A=True, clear_accum=True)
                T.gemm(p_shared, do, dkv, transpose_A=True)
                T.gemm(ds_shared, q_rotated, dk_rotated, transpose_A=True, clear_accum=True)
                add(dKV, Chosen, query, t * block, dkv, staged, 0, latent)
                add(dKV, Chosen, query, t * block, dk_rotated, staged_rotated, latent, rotated)
            T.copy(dq, dQ[query, :, 0:latent])
            T.copy(dq_rotated, dQ[query, :, latent : latent + rotated])

    return main


def reference(q, kv, do, chosen):
    """Gradients, and what the forward pass leaves, in float64."""
    q, kv = (t.double().requires_grad_() for t in (q, kv))
    keys = kv[chosen.clamp(min=0).long()]
    scores = torch.einsum("qhd,qkd->qhk", q, keys) * q.shape[2] ** -0.5
    scores = scores.masked_fill((chosen < 0)[:, None, :], -torch.inf)
    out = scores.softmax(-1) @ keys[:, :, : do.shape[2]]
    out.backward(do.double())
    log_sum = scores.logsumexp(-1) * LOG2_E
    delta = (out * do.double()).sum(-1)
    return q.grad, kv.grad, log_sum.detach(), delta.detach()


@pytest.mark.parametrize(("arch", "parts"), [("sm_80", 2), ("sm_90a", 2), ("sm_90a", 4)])
def test_results(device, arch, parts):
    queries, length, chosen = 3, 90, 77
    kernel = tilelang.compile(
        sparse_latent_backward(parts), execution_backend="auto", target=f"cuda -arch={arch}"
    )
    q = torch.randn(queries, HEADS, LATENT + ROTATED).half().to(device)
    kv = torch.randn(length, LATENT + ROTATED).half().to(device)
    do = torch.randn(queries, HEADS, LATENT).half().to(device)
    lists = [torch.randperm(length)[:chosen] for _ in range(queries)]
    indices = torch.stack(lists).int().to(device)
    indices[1, 5:60:7] = -1
    wanted_dq, wanted_dkv, log_sum, delta = reference(q, kv, do, indices)
    dq, dkv = torch.full_like(q, torch.nan), torch.zeros(kv.shape, device=device)
    kernel(q, kv, do, indices, log_sum.float(), delta.float(), dq, dkv)
    torch.testing.assert_close(dq.double(), wanted_dq, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(dkv.double(), wanted_dkv, rtol=1e-2, atol=2e-2)


def test_the_parts_of_an_accumulator_stay_in_their_threads():
    kernel = tilelang.compile(sparse_latent_backward(2), target="cuda -arch=sm_90a")
    assert "dkv: copied to shared memory" not in kernel.explain()
