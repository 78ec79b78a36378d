"""Decoding with the keys in splits (Flash-Decoding, Dao et al. 2023): partial results, combined by
their logarithms of sums; the combination walks fragments serially."""

import pytest
import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
DIM, ROWS, BLOCK = 64, 16, 32


def split_decode(
    add_block, heads, groups, splits, length, dim=DIM, rows=ROWS, block=BLOCK, threads=128
):
    """`heads` of a query of one position, in `groups` that share keys."""
    batch = T.dynamic("batch")
    per_group = heads // groups

    @T.prim_func
    def decode(
        Q: T.Tensor((batch, heads, dim), "float16"),
        K: T.Tensor((batch, length, groups, dim), "float16"),
        V: T.Tensor((batch, length, groups, dim), "float16"),
        partial: T.Tensor((batch, heads, splits, dim), "float32"),
        log_sums: T.Tensor((batch, heads, splits), "float32"),
    ):
        with T.Kernel(batch, groups, splits, threads=threads) as (b, g, s):
            q = T.alloc_shared((rows, dim), "float16")
            k = T.alloc_shared((block, dim), "float16")
            v = T.alloc_shared((block, dim), "float16")
            scores = T.alloc_fragment((rows, block), "float32")
            weights = T.alloc_fragment((rows, block), "float16")
            out = T.alloc_fragment((rows, dim), "float32")
            top = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            share = T.ceildiv(length, splits)
            start = s * share
            end = T.min(start + share, length)
            for i, d in T.Parallel(rows, dim):
                q[i, d] = T.if_then_else(i < per_group, Q[b, g * per_group + i, d], 0)
            T.clear(out)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for t in T.Pipelined(T.ceildiv(end - start, block), num_stages=2):
                T.copy(K[b, start + t * block : start + (t + 1) * block, g, :], k)
                T.copy(V[b, start + t * block : start + (t + 1) * block, g, :], v)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(rows, block):
                    scores[i, j] = T.if_then_else(
                        start + t * block + j < end, scores[i, j], -T.infinity("float32")
                    )
                add_block(scores, top, total, out, LOG2_E / dim**0.5)
                T.copy(scores, weights)
                T.gemm(weights, v, out)
            for i, d in T.Parallel(rows, dim):
                if i < per_group:
                    partial[b, g * per_group + i, s, d] = out[i, d] / total[i]
            for i in T.Parallel(rows):
                if i < per_group:
                    log_sums[b, g * per_group + i, s] = T.log2(total[i]) + top[i] * (
                        LOG2_E / dim**0.5
                    )

    return decode


def combine(heads, splits, rows=4, dim=DIM):
    """A block has `rows` heads; the splits of a head are summed up one after the other."""
    batch = T.dynamic("batch")

    @T.prim_func
    def combined(
        partial: T.Tensor((batch, heads, splits, dim), "float32"),
        log_sums: T.Tensor((batch, heads, splits), "float32"),
        out: T.Tensor((batch, heads, dim), "float16"),
    ):
        with T.Kernel(T.ceildiv(heads, rows), batch, threads=128) as (h, b):
            logs = T.alloc_fragment((splits, rows), "float32")
            top = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            weight = T.alloc_fragment((rows,), "float32")
            acc = T.alloc_fragment((rows, dim), "float32")
            for k, i in T.Parallel(splits, rows):
                logs[k, i] = T.if_then_else(h * rows + i < heads, log_sums[b, h * rows + i, k], 0.0)
            T.fill(top, -T.infinity("float32"))
            T.clear(total)
            T.clear(acc)
            for k in T.serial(splits):
                for i in T.Parallel(rows):
                    top[i] = T.max(top[i], logs[k, i])
            for k in T.serial(splits):
                for i in T.Parallel(rows):
                    weight[i] = T.exp2(logs[k, i] - top[i])
                    total[i] += weight[i]
                for i, d in T.Parallel(rows, dim):
                    if h * rows + i < heads:
                        acc[i, d] += weight[i] * partial[b, h * rows + i, k, d]
            for i, d in T.Parallel(rows, dim):
                if h * rows + i < heads:
                    out[b, h * rows + i, d] = acc[i, d] / total[i]

    return combined


def combine_by_head(heads, splits, dim=DIM):
    """A block has one head, whose splits lie in a fragment that is read element by element."""
    batch = T.dynamic("batch")

    @T.prim_func
    def combined(
        partial: T.Tensor((batch, heads, splits, dim), "float32"),
        log_sums: T.Tensor((batch, heads, splits), "float32"),
        out: T.Tensor((batch, heads, dim), "float16"),
    ):
        with T.Kernel(heads, batch, threads=128) as (h, b):
            logs = T.alloc_fragment((splits,), "float32")
            tile = T.alloc_fragment((splits, dim), "float32")
            acc = T.alloc_fragment((dim,), "float32")
            top = T.alloc_var("float32", init=-T.infinity("float32"))
            total = T.alloc_var("float32", init=0.0)
            T.copy(log_sums[b, h, :], logs)
            T.copy(partial[b, h, :, :], tile)
            T.clear(acc)
            for k in T.serial(splits):
                top = T.max(top, logs[k])
            for k in T.serial(splits):
                logs[k] = T.exp2(logs[k] - top)
                total += logs[k]
            for k in T.serial(splits):
                for d in T.Parallel(dim):
                    acc[d] += logs[k] / total * tile[k, d]
            T.copy(acc, out[b, h, :])

    return combined


def reference(q, k, v):
    q, k, v = q.double(), k.double(), v.double()
    per_group = q.shape[1] // k.shape[2]
    k, v = (x.repeat_interleave(per_group, dim=2) for x in (k, v))
    weights = torch.einsum("bhd,blhd->bhl", q, k).div(q.shape[2] ** 0.5).softmax(-1)
    return torch.einsum("bhl,blhd->bhd", weights, v)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, add_block, arch):
    heads, groups, splits = 10, 2, 3
    programs = (
        split_decode(add_block, heads, groups, splits, T.dynamic("length")),
        combine(heads, splits),
        combine_by_head(heads, splits),
    )
    decode, by_rows, by_head = (
        tilelang.compile(p, execution_backend="auto", target=f"cuda -arch={arch}") for p in programs
    )
    for batch, length in ((1, 7), (2, 197)):
        q = torch.randn(batch, heads, DIM).half().to(device)
        k, v = (torch.randn(batch, length, groups, DIM).half().to(device) for _ in range(2))
        partial = torch.full((batch, heads, splits, DIM), torch.nan, device=device)
        log_sums = torch.full((batch, heads, splits), torch.nan, device=device)
        decode(q, k, v, partial, log_sums)
        for kernel in (by_rows, by_head):
            out = torch.full((batch, heads, DIM), torch.nan, dtype=torch.float16, device=device)
            kernel(partial, log_sums, out)
            torch.testing.assert_close(out.double(), reference(q, k, v), rtol=4e-3, atol=4e-3)
