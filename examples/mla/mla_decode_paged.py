"""Decoding with latent attention from pages of a cache: a row of it has the compressed key, which
is the value too, and the rotated part of the key (DeepSeek-V2, Liu et al. 2024). Sequences have
lengths of their own, and blocks share the keys of a long one. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from mla_decode import (
    LOG2_E,
    NO_KEY,
    OF_HEADS,
    alloc_tiles,
    columns_of,
    combine,
    online_softmax,
)

import tilelang
import tilelang.language as T


@T.macro
def load(Cache, Table, tile, b, first, here, length):
    """Columns `here` of the rows of sequence b from `first` on."""
    page, rows = int(Cache.shape[1]), int(tile.shape[0])
    part = min(page, rows)  # rows of a copy
    for n in T.serial(rows // part):
        row = first + n * part
        # What is behind the last page is masked: that page again.
        number = Table[b, T.min(row, length - 1) // page]
        to = tile[n * part : (n + 1) * part, :]
        T.copy(Cache[number, row % page : row % page + part, here], to)


@T.macro
def attend(
    Q, Cache, Table, Lengths, Output, log_sums, dim, block_H, block_N, pieces, num_stages, threads
):
    """Output (batch, heads, dim), or with `log_sums` one for each split."""
    (batch, heads, deep), dtype, columns = Q.shape, Q.dtype, columns_of(dim, pieces)
    splits, width = 1 if log_sums is None else log_sums.shape[0], dim // pieces
    scale, rope_dim = LOG2_E / int(deep) ** 0.5, int(deep) - dim
    with T.Kernel(T.ceildiv(heads, block_H), batch, splits, threads=threads) as (bx, by, bz):
        operands, computed = alloc_tiles(block_H, block_N, width, rope_dim, pieces, dtype)
        Q_shared, Q_rope_local, KV_shared, K_rope_shared, weights_shared = operands
        scores, out, row_max, sums, row_sum = computed

        length = Lengths[by]
        tiles = T.ceildiv(length, block_N)
        share = T.ceildiv(tiles, splits)
        count = T.max(T.min(share, tiles - bz * share), 0)
        rows = slice(bx * block_H, (bx + 1) * block_H)
        for p, here in enumerate(columns):
            T.copy(Q[by, rows, here], Q_shared[p])
            T.clear(out[p])
        T.copy(Q[by, rows, dim:], Q_rope_local)
        T.clear(sums)
        T.fill(row_max, NO_KEY)
        for step in T.Pipelined(count, num_stages=num_stages):
            first = (bz * share + step) * block_N
            load(Cache, Table, K_rope_shared, by, first, slice(dim, dim + rope_dim), length)
            T.gemm(Q_rope_local, K_rope_shared, scores, clear_accum=True, **OF_HEADS)
            for p, here in enumerate(columns):
                load(Cache, Table, KV_shared[p], by, first, here, length)
                T.gemm(Q_shared[p], KV_shared[p], scores, **OF_HEADS)
            if first + block_N > length:
                for i, j in T.Parallel(block_H, block_N):
                    scores[i, j] = T.if_then_else(first + j < length, scores[i, j], NO_KEY)
            online_softmax(scores, weights_shared, KV_shared, out, sums, row_max, scale)
        T.reduce_sum(sums, row_sum, dim=1)
        parts = T.view(Output, (1, batch, heads, dim)) if log_sums is None else Output
        for piece, here in zip(out, columns, strict=True):
            for i, j in T.Parallel(block_H, width):
                # No keys: 0, with a weight of 0.
                piece[i, j] = piece[i, j] / T.max(row_sum[i], 1e-30)
            T.copy(piece, parts[bz, by, rows, here])
        if log_sums is not None:
            for i in T.Parallel(block_H):
                row_sum[i] = T.if_then_else(
                    row_sum[i] > 0, T.log2(row_sum[i]) + row_max[i] * scale, NO_KEY
                )
            T.copy(row_sum, log_sums[bz, by, rows])


# Fast math leaves out what exp2 does for subnormal weights.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def mla_decode_paged(
    heads,
    dim=512,
    rope_dim=64,
    page=64,
    splits=1,
    dtype=T.bfloat16,
    block_H=64,
    block_N=64,
    num_stages=1,
    pieces=4,
    threads=256,
):
    """softmax(Q [KV K_rope]^T / sqrt(dim + rope_dim)) KV of Q (batch, heads, dim + rope_dim), a
    token of each sequence, after `Lengths` (batch,) keys. Cache is (pages, page, dim + rope_dim);
    row b of `Table` (batch, most) names the pages of sequence b. What lies behind the last key in
    its page has to be finite.

    The keys of a step come in `pieces` along `dim`: each is loaded again while the others are in
    use, so that one buffer for each will do. `splits` blocks share the keys of a tile of heads;
    then their results are combined by a second kernel.
    """
    batch, pages, most = T.dynamic("batch, pages, most")
    if page % block_N and block_N % page:
        raise ValueError(f"page is {page}, wanted a divisor or a multiple of block_N, {block_N}")
    tile = dim, block_H, block_N, pieces, num_stages, threads

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim + rope_dim), dtype),
        Cache: T.Tensor((pages, page, dim + rope_dim), dtype),
        Table: T.Tensor((batch, most), T.int32),
        Lengths: T.Tensor((batch,), T.int32),
    ):
        Output = T.empty((batch, heads, dim), dtype)
        if splits == 1:
            attend(Q, Cache, Table, Lengths, Output, None, *tile)
        else:
            partial = T.alloc_global((splits, batch, heads, dim), T.float32)
            log_sums = T.alloc_global((splits, batch, heads), T.float32)
            attend(Q, Cache, Table, Lengths, partial, log_sums, *tile)
            combine(partial, log_sums, Output)
        return Output

    return main


def inputs(lengths, heads, dim=512, rope_dim=64, page=64, dtype=T.bfloat16, device="cpu"):
    """Q, the cache, the table of pages, in no order, and lengths."""
    batch, most = len(lengths), -(-max(lengths) // page)
    q = torch.randn(batch, heads, dim + rope_dim, device=device).to(dtype.as_torch())
    cache = torch.randn(batch * most, page, dim + rope_dim, device=device, dtype=dtype.as_torch())
    table = torch.randperm(batch * most, device=device).int().view(batch, most)
    return q, cache, table, torch.tensor(lengths, dtype=torch.int32, device=device)


def reference(q, cache, table, lengths, rope_dim=64):
    """The same in float64."""
    found = []
    for b, length in enumerate(lengths.tolist()):
        keys = cache[table[b].long()].flatten(0, 1)[:length].double()
        weights = (q[b].double() @ keys.T / q.shape[2] ** 0.5).softmax(1)
        found.append(weights @ keys[:, :-rope_dim])
    return torch.stack(found)


def relative_error(kernel, lengths, heads, dim=512, rope_dim=64, page=64, device="cpu"):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    tensors = inputs(lengths, heads, dim, rope_dim, page, device=device)
    wanted = reference(*tensors, rope_dim)
    return float((kernel(*tensors).double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", help="keys of each sequence")
    parser.add_argument("--heads", type=int, default=128 if gpu else 16)
    parser.add_argument("--dim", type=int, nargs=2, default=[512, 64], help="latent, rotated")
    parser.add_argument("--page", type=int, default=64)
    parser.add_argument("--splits", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    lengths = arguments.lengths or ([8192, 1, 777, 4096] * 8 if gpu else [100, 1])
    device = "cuda" if gpu else "cpu"
    for splits in arguments.splits:
        latent, rotated = arguments.dim
        sizes = arguments.heads, latent, rotated, arguments.page
        error = relative_error(mla_decode_paged(*sizes, splits), lengths, *sizes, device)
        bound = torch.finfo(torch.bfloat16).eps
        assert error < bound, f"relative error {error:.1e}, wanted under {bound:.1e}"
        print(f"{len(lengths)} sequences, {splits} splits: relative error {error:.1e}")
