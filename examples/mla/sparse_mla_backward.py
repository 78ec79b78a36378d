"""Backward of attention over chosen rows of a latent cache (DeepSeek-V3.2, 2025). A block has a
query's heads; it adds to the gradients of the rows by atomic operations. Check them against float64
autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math

import torch
from mla_decode import COLUMNS
from sparse_mla import LOG2_E, check, gather, inputs, reference, sparse_mla

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def dot_of_rows(width, dtype=T.bfloat16, block=4):
    """The sums (rows,) of X * Y (rows, width)."""
    rows = T.dynamic("rows")

    @T.prim_func
    def main(
        X: T.Tensor((rows, width), dtype),
        Y: T.Tensor((rows, width), dtype),
        Sums: T.Tensor((rows,), T.float32),
    ):
        with T.Kernel(T.ceildiv(rows, block), threads=128) as bx:
            x = T.alloc_fragment((block, width), dtype)
            y = T.alloc_fragment((block, width), dtype)
            product = T.alloc_fragment((block, width), T.float32)
            total = T.alloc_fragment((block,), T.float32)
            T.copy(X[bx * block, 0], x)
            T.copy(Y[bx * block, 0], y)
            for i, j in T.Parallel(block, width):
                product[i, j] = T.cast(x[i, j], T.float32) * y[i, j]
            T.reduce_sum(product, total, dim=1)
            T.copy(total, Sums[bx * block])

    return main


@T.macro
def weights(scores, log_sum, scale):
    """The softmax of a tile's scores. None is made above 1: where there is no row, the score is 0,
    which may be above LogSum by so much that its exponential is infinite."""
    for i, j in T.Parallel(*scores.shape):
        scores[i, j] = T.exp2(T.min(scores[i, j] * (scale * LOG2_E) - log_sum[i], 0))


@T.macro
def slopes(p, dp, delta, scale, keys):
    """The gradients of a tile's scores, of those of weights, for the first `keys` rows. Behind the
    list's end `Chosen` reads as row 0, so those are cleared; rows of -1 are zeros, and their
    products with KV vanish."""
    for i, j in T.Parallel(*dp.shape):
        dp[i, j] = T.if_then_else(j < keys, p[i, j] * (dp[i, j] - delta[i]) * scale, 0)


@T.macro
def rows_of(Chosen, query, first, row):
    """The rows that are named from `first` on, -1 where there is none."""
    for j in T.Parallel(*row.shape):
        row[j] = -1
        if first + j < Chosen.shape[1]:
            row[j] = Chosen[query, first + j]


def lines(tile, groups=1):
    """A layout of a tile, of which warp groups have columns side by side: eight neighbouring
    threads hold 32 columns of a row, a line of L2, so that a warp adds to four lines at a time. In
    a product's layout it would add to parts of eight. A tile has at most 64 rows, and each
    group a multiple of 16 columns."""
    rows, columns = (int(extent) for extent in tile.shape)
    width = columns // groups
    line = math.gcd(width, 32)
    step = line // 16
    return tilelang.layout.Fragment(
        (rows, columns),
        lambda i, j: (
            j // width * 128 + i // 16 * 32 + i % 8 // step * (line // 4) + j % line // 4,
            ((j % width // line * 2 + i % 16 // 8) * step + i % step) * 4 + j % 4,
        ),
    )


@T.macro
def add_rows(dKV, row, column, gradient, by_lines):
    """Add a tile's gradients, of columns from `column` on, to the rows that it was gathered
    from."""
    T.copy(gradient, by_lines)
    for j, d in T.Parallel(*gradient.shape):
        if row[j] >= 0:
            T.atomic_add(dKV[row[j], column + d], by_lines[j, d])


@T.macro
def row_products(q, do, p, ds, first, dkv, **options):
    """The gradients of a tile's rows, in the columns from `first` on."""
    piece = slice(first, first + dkv.shape[1])
    T.gemm(p, do[:, piece], dkv, transpose_A=True, clear_accum=True, **options)
    T.gemm(ds, q[:, piece], dkv, transpose_A=True, **options)


def sparse_mla_backward(
    heads, latent, rotated, dtype=T.bfloat16, block_H=64, block=64, width=128, threads=256
):
    """dQ of Q (queries, heads, latent + rotated), and what is added to dKV (length, latent +
    rotated) in float32, of `sparse_mla`. LogSum and Delta, the sums of Out * dO, are (queries,
    heads). The rows' gradients are computed `width` columns at a time, since registers do not hold
    all of them beside dQ: `width` divides `latent`, and both it and `rotated` are multiples of 16
    for each 128 threads."""
    queries, length, chosen = T.dynamic("queries, length, chosen")
    scale, width, step = (latent + rotated) ** -0.5, min(width, latent), threads // 8
    if latent % width or width % step or rotated % step:
        raise ValueError(
            f"found latent {latent}, rotated {rotated}, width {width}, wanted a width that divides "
            f"latent, and multiples of {step} for {threads} threads"
        )
    # Each warp has all rows: the products' other operand is read once.
    columns = {"policy": COLUMNS}

    @T.prim_func
    def main(
        Q: T.Tensor((queries, heads, latent + rotated), dtype),
        KV: T.Tensor((length, latent + rotated), dtype),
        dO: T.Tensor((queries, heads, latent), dtype),
        Chosen: T.Tensor((queries, chosen), T.int32),
        LogSum: T.Tensor((queries, heads), T.float32),
        Delta: T.Tensor((queries, heads), T.float32),
        dQ: T.Tensor((queries, heads, latent + rotated), dtype),
        dKV: T.Tensor((length, latent + rotated), T.float32),
    ):
        with T.Kernel(T.ceildiv(heads, block_H), queries, threads=threads) as (bx, query):
            q = T.alloc_shared((block_H, latent), dtype)
            q_rotated = T.alloc_shared((block_H, rotated), dtype)
            do = T.alloc_shared((block_H, latent), dtype)
            kv = T.alloc_shared((block, latent), dtype)
            k_rotated = T.alloc_shared((block, rotated), dtype)
            p_shared, ds_shared = (T.alloc_shared((block_H, block), dtype) for _ in range(2))
            row = T.alloc_fragment((block,), T.int32)
            log_sum, delta = (T.alloc_fragment((block_H,), T.float32) for _ in range(2))
            p, dp = (T.alloc_fragment((block_H, block), T.float32) for _ in range(2))
            dq = T.alloc_fragment((block_H, latent), T.float32)
            dq_rotated = T.alloc_fragment((block_H, rotated), T.float32)
            dkv = T.alloc_fragment((block, width), T.float32)
            dk_rotated = T.alloc_fragment((block, rotated), T.float32)
            by_lines = T.alloc_fragment((block, width), T.float32)
            rotated_by_lines = T.alloc_fragment((block, rotated), T.float32)
            groups = threads // 128
            T.annotate_layout({x: lines(x, groups) for x in (by_lines, rotated_by_lines)})
            here = slice(bx * block_H, (bx + 1) * block_H)
            T.copy(Q[query, here, :latent], q)
            T.copy(Q[query, here, latent:], q_rotated)
            T.copy(dO[query, here, :], do)
            T.copy(LogSum[query, here], log_sum)
            T.copy(Delta[query, here], delta)
            T.clear(dq)
            T.clear(dq_rotated)
            for t in T.Pipelined(T.ceildiv(chosen, block), num_stages=1):
                gather(KV, Chosen, query, kv, t * block, slice(0, latent))
                gather(KV, Chosen, query, k_rotated, t * block, slice(latent, latent + rotated))
                T.gemm(q, kv, p, transpose_B=True, clear_accum=True, **columns)
                T.gemm(q_rotated, k_rotated, p, transpose_B=True, **columns)
                weights(p, log_sum, scale)
                T.copy(p, p_shared)
                T.gemm(do, kv, dp, transpose_B=True, clear_accum=True, **columns)
                slopes(p, dp, delta, scale, chosen - t * block)
                T.copy(dp, ds_shared)
                T.gemm(ds_shared, kv, dq, **columns)
                T.gemm(ds_shared, k_rotated, dq_rotated, **columns)
                rows_of(Chosen, query, t * block, row)
                T.gemm(
                    ds_shared, q_rotated, dk_rotated, transpose_A=True, clear_accum=True, **columns
                )
                add_rows(dKV, row, latent, dk_rotated, rotated_by_lines)
                for first in range(0, latent, width):
                    row_products(q, do, p_shared, ds_shared, first, dkv, **columns)
                    add_rows(dKV, row, first, dkv, by_lines)
            T.copy(dq, dQ[query, here, :latent])
            T.copy(dq_rotated, dQ[query, here, latent:])

    return main


def backward(q, kv, lists, out, log_sum, d_out, kernel):
    """dQ, and dKV in float32, of `out` and `log_sum`, which `sparse_mla` made of q, kv and lists;
    `kernel` is a compiled `sparse_mla_backward`."""
    latent = out.shape[2]
    delta = dot_of_rows(latent)(out.view(-1, latent), d_out.view(-1, latent)).view(log_sum.shape)
    d_q, d_kv = torch.empty_like(q), torch.zeros(kv.shape, device=kv.device)
    kernel(q, kv, d_out, lists, log_sum, delta, d_q, d_kv)
    return d_q, d_kv


def gradients(q, kv, lists, d_out):
    """dQ and dKV in float64, by autograd, some queries at a time, whose keys are written out."""
    slopes, d_kv = [], torch.zeros(kv.shape, dtype=torch.float64, device=kv.device)
    for x, rows, d in zip(q.split(64), lists.split(64), d_out.split(64), strict=True):
        leaves = [t.double().requires_grad_() for t in (x, kv)]
        out, _ = reference(*leaves, rows, d_out.shape[2])
        d_x, d_rows = torch.autograd.grad(out, leaves, d.double())
        slopes.append(d_x)
        d_kv += d_rows
    return torch.cat(slopes), d_kv


def relative_error(kernel, queries, length, chosen, heads, latent, rotated, device="cpu"):
    """The larger of ||ours - float64|| / ||float64|| of dQ and dKV."""
    torch.manual_seed(0)
    q, kv, lists = inputs(queries, length, chosen, heads, latent, rotated, device=device)
    out, log_sum = sparse_mla(heads, latent, rotated)(q, kv, lists)
    d_out = torch.randn_like(out)
    found = backward(q, kv, lists, out, log_sum, d_out, kernel)
    wanted = gradients(q, kv, lists, d_out)
    return max(
        float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)
    )


IS_RIGHT = {"error_of": relative_error, "limit": 2e-2}
"""For `check`."""


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1024 if gpu else 3)
    parser.add_argument("--rows", type=int, nargs=2, default=[8192, 2048] if gpu else [90, 77])
    parser.add_argument("--heads", type=int, default=128 if gpu else 64)
    parser.add_argument("--dim", type=int, nargs=2, default=[512, 64] if gpu else [64, 32])
    arguments = parser.parse_args()
    kernel = tilelang.compile(sparse_mla_backward(arguments.heads, *arguments.dim))
    shape = arguments.queries, *arguments.rows, arguments.heads, *arguments.dim
    check(kernel, *shape, "cuda" if gpu else "cpu", **IS_RIGHT)
