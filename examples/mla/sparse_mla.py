"""Attention over chosen rows of a latent cache (DeepSeek-V3.2, 2025): keys are a latent row beside
a rotated one, values the latent row; each query has a list of the rows that it sees. Check it
against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math

import torch
from mla_decode import COLUMNS, LOG2_E, NO_KEY

import tilelang
import tilelang.language as T

# Columns of a row that neighbouring threads gather at a time, one line of L2, so that a thread has
# few rows and their addresses.
LINE = 64


@T.macro
def online_softmax(scores, out, row_max, row_sum, scale):
    """Make a tile's scores weights; where a row's maximum grows, rescale what earlier tiles came
    to, the pieces `out`."""
    rows, columns = scores.shape
    rescale = T.alloc_fragment((rows,), T.float32)
    tile_sum = T.alloc_fragment((rows,), T.float32)
    T.copy(row_max, rescale)
    T.reduce_max(scores, row_max, dim=1, clear=False)
    for i in T.Parallel(rows):
        rescale[i] = T.exp2((rescale[i] - row_max[i]) * scale)
    for i, j in T.Parallel(rows, columns):
        scores[i, j] = T.exp2(scores[i, j] * scale - row_max[i] * scale)
    T.reduce_sum(scores, tile_sum, dim=1)
    for i in T.Parallel(rows):
        row_sum[i] = row_sum[i] * rescale[i] + tile_sum[i]
    for piece in out:
        for i, j in T.Parallel(*piece.shape):
            piece[i, j] = piece[i, j] * rescale[i]


@T.macro
def gather_rows(KV, number, tile, here):
    """Columns `here` of the rows number(j). What is no row is zero."""
    rows, columns = (int(extent) for extent in tile.shape)
    line = math.gcd(columns, LINE)
    for part, j, d in T.Parallel(columns // line, rows, line):
        at = part * line + d
        tile[j, at] = KV[number(j), here.start + at]


@T.macro
def gather(KV, Chosen, query, tile, first, here):
    """Columns `here` of the rows that are named from `first` on."""
    gather_rows(KV, lambda j: Chosen[query, first + j], tile, here)


@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def sparse_mla(
    heads, latent, rotated, dtype=T.bfloat16, block_H=64, block_N=64, pieces=4, threads=256
):
    """softmax(Q KV^T / sqrt(latent + rotated)) KV[:, :latent] of Q (queries, heads, latent +
    rotated) over the rows of KV (length, latent + rotated) that Chosen (queries, chosen) names, -1
    where there is none, at least one for each; and log2 of each row's sum of exponentials,
    (queries, heads) in float32, from which gradients are computed. A block has a query's heads, at
    most `block_H`, and gathers the rows for all of them, in `pieces` along `latent`: each is
    gathered again while the others are in use, so that one buffer for each will do."""
    queries, length, chosen = T.dynamic("queries, length, chosen")
    scale, width = LOG2_E / (latent + rotated) ** 0.5, latent // pieces
    if latent % pieces:
        raise ValueError(f"pieces is {pieces}, wanted a divisor of latent, {latent}")
    columns = [slice(first, first + width) for first in range(0, latent, width)]

    @T.prim_func
    def main(
        Q: T.Tensor((queries, heads, latent + rotated), dtype),
        KV: T.Tensor((length, latent + rotated), dtype),
        Chosen: T.Tensor((queries, chosen), T.int32),
    ):
        Output = T.empty((queries, heads, latent), dtype)
        LogSum = T.empty((queries, heads), T.float32)
        with T.Kernel(T.ceildiv(heads, block_H), queries, threads=threads) as (bx, query):
            q = [T.alloc_shared((block_H, width), dtype) for _ in columns]
            q_rotated = T.alloc_fragment((block_H, rotated), dtype)
            kv = [T.alloc_shared((block_N, width), dtype) for _ in columns]
            k_rotated = T.alloc_shared((block_N, rotated), dtype)
            weights = T.alloc_shared((block_H, block_N), dtype)
            seen = T.alloc_fragment((block_N,), T.bool)
            scores = T.alloc_fragment((block_H, block_N), T.float32)
            out = [T.alloc_fragment((block_H, width), T.float32) for _ in columns]
            row_max = T.alloc_fragment((block_H,), T.float32)
            row_sum = T.alloc_fragment((block_H,), T.float32)
            rows = slice(bx * block_H, (bx + 1) * block_H)
            for p, here in enumerate(columns):
                T.copy(Q[query, rows, here], q[p])
                T.clear(out[p])
            T.copy(Q[query, rows, latent:], q_rotated)
            T.clear(row_sum)
            T.fill(row_max, NO_KEY)
            for t in T.Pipelined(T.ceildiv(chosen, block_N), num_stages=1):
                first = t * block_N
                for j in T.Parallel(block_N):
                    seen[j] = first + j < chosen and Chosen[query, first + j] >= 0
                gather(KV, Chosen, query, k_rotated, first, slice(latent, latent + rotated))
                product = {"transpose_B": True, "policy": COLUMNS}
                T.gemm(q_rotated, k_rotated, scores, clear_accum=True, **product)
                for p, here in enumerate(columns):
                    gather(KV, Chosen, query, kv[p], first, here)
                    T.gemm(q[p], kv[p], scores, **product)
                for i, j in T.Parallel(block_H, block_N):
                    scores[i, j] = T.if_then_else(seen[j], scores[i, j], NO_KEY)
                online_softmax(scores, out, row_max, row_sum, scale)
                T.copy(scores, weights)
                for values, piece in zip(kv, out, strict=True):
                    T.gemm(weights, values, piece, policy=COLUMNS)
            for piece, here in zip(out, columns, strict=True):
                for i, d in T.Parallel(block_H, width):
                    piece[i, d] = piece[i, d] / row_sum[i]
                T.copy(piece, Output[query, rows, here])
            for i in T.Parallel(block_H):
                row_sum[i] = T.log2(row_sum[i]) + row_max[i] * scale
            T.copy(row_sum, LogSum[query, rows])
        return Output, LogSum

    return main


def inputs(queries, length, chosen, heads, latent, rotated, dtype=T.bfloat16, device="cpu"):
    """Q, KV and lists of rows, of which some are none."""
    shapes = (queries, heads, latent + rotated), (length, latent + rotated)
    q, kv = (torch.randn(shape, device=device).to(dtype.as_torch()) for shape in shapes)
    lists = torch.rand(queries, length, device=device).argsort(dim=1)[:, :chosen].int()
    lists[-1, 5::7] = -1
    return q, kv, lists.contiguous()


def reference(q, kv, lists, latent):
    """The result and log2 of the sums in float64, of float64 tensors."""
    keys = kv[lists.clamp(min=0).long()]
    scores = torch.einsum("qhd,qkd->qhk", q, keys) * q.shape[2] ** -0.5
    scores = scores.masked_fill((lists < 0)[:, None, :], -torch.inf)
    return scores.softmax(-1) @ keys[:, :, :latent], scores.logsumexp(-1) * LOG2_E


def relative_error(kernel, queries, length, chosen, heads, latent, rotated, device="cpu"):
    """The larger of ||ours - reference|| / ||reference|| of the result and the sums."""
    torch.manual_seed(0)
    q, kv, lists = inputs(queries, length, chosen, heads, latent, rotated, device=device)
    found = kernel(q, kv, lists)
    # Some queries at a time, whose keys are written out.
    parts = zip(q.double().split(64), lists.split(64), strict=True)
    results = [reference(x, kv.double(), rows, latent) for x, rows in parts]
    wanted = (torch.cat(x) for x in zip(*results, strict=True))
    return max(
        float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)
    )


def check(kernel, queries, length, chosen, *shape, error_of=relative_error, limit=8e-3):
    """Print the error of a kernel, which has to be that of bfloat16."""
    error = error_of(kernel, queries, length, chosen, *shape)
    assert error < limit, f"relative error {error:.1e}, wanted under {limit:.0e}"
    print(f"{queries} queries, {chosen} of {length} rows: relative error {error:.1e}")


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1024 if gpu else 3)
    parser.add_argument("--rows", type=int, nargs=2, default=[8192, 2048] if gpu else [90, 77])
    parser.add_argument("--heads", type=int, default=128 if gpu else 64)
    parser.add_argument("--dim", type=int, nargs=2, default=[512, 64] if gpu else [64, 32])
    arguments = parser.parse_args()
    shape = arguments.queries, *arguments.rows, arguments.heads, *arguments.dim
    check(sparse_mla(arguments.heads, *arguments.dim), *shape, "cuda" if gpu else "cpu")
