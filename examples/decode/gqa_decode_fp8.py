"""Decoding with grouped queries and a cache of 8-bit floats, which halves the bytes to read. Both
products are transposed: keys and values are widened into registers that are the first operand of a
matrix instruction, so that they do not go through shared memory a second time. Check it against
float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
from types import SimpleNamespace

import torch
from gqa_decode import (
    LOG2_E,
    NO_KEY,
    combine,
    heads_of_a_group,
    list_shares,
    mark_absent,
    online_softmax,
    reference,
    share_of,
    splits_for,
)

import tilelang
import tilelang.language as T


def place_of_channel(d):
    """Which channel of a key is in column d of the fragment that is multiplied: the product adds up
    all of them, in any order. A thread has 4 of each 16 columns, 2t, 2t + 1, 2t + 8 and 2t + 9 (PTX
    ISA, wgmma, register fragments of A): of 64 these are 16 neighbours, which are loaded at once.
    """
    return d // 64 * 64 + d % 8 // 2 * 16 + d % 64 // 16 * 4 + d % 16 // 8 * 2 + d % 2


def place_of_row(d, dim):
    """Which channel of a value is row d of the product: a thread has rows g and g + 8 of a warp's
    16 in each 64, which are neighbours in a value."""
    tiles = dim // 64
    return d % 64 // 16 * (16 * tiles) + d % 8 * (2 * tiles) + d // 64 * 2 + d % 16 // 8


@T.macro
def step(own, K_tile, V_tile, first, length, scale, masked):
    """What a block does with a tile of keys from `first` on. Where it is `masked`, it may have keys
    behind the last one."""
    block_N, block_H = own.scores.shape
    dim = own.out.shape[0]
    T.copy(K_tile, own.K_bytes)
    for j, d in T.Parallel(block_N, dim):
        own.K_local[j, d] = own.K_bytes[j, place_of_channel(d)]
    T.gemm(own.K_local, own.Q, own.scores, transpose_B=True, clear_accum=True)
    if masked:
        for j, i in T.Parallel(block_N, block_H):
            own.scores[j, i] = T.if_then_else(first + j < length, own.scores[j, i], NO_KEY)
    online_softmax(own, scale)
    T.copy(V_tile, own.V_wide)
    for d, j in T.Parallel(dim, block_N):
        own.V_local[d, j] = own.V_wide[j, place_of_row(d, dim)]
    T.gemm(own.V_local, own.weights, own.out)


# Fast math leaves out what exp2 does for subnormal weights.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def gqa_decode_fp8(
    heads,
    key_heads,
    dim=128,
    splits=1,
    block_H=None,
    block_N=64,
    num_stages=4,
    threads=128,
    least=1,
    min_blocks=2,
    dependent=False,
    listed=False,
    early=False,
):
    """softmax(q K^T / sqrt(dim)) V of q (batch, heads, dim) in float16, a token of each sequence,
    after `Lengths` (batch,) keys. K and V (batch, longest, key_heads, dim) are float8_e4m3fn, with
    a scale for each of their heads. Each is for heads / key_heads neighbours of q's, which are the
    first of the products' block_H columns, by default the least multiple of 8. `splits` blocks
    share the keys of a head, `least` tiles each or more; a second kernel combines their results,
    which, if it is `dependent`, is launched while the first one ends (from sm_90 on).
    `min_blocks` are to share a multiprocessor. If `listed`, `Lengths` is what `list_shares` makes
    of them for the same `splits`, `least` and `block_N`. `early` is that of `gqa_decode`."""
    if early and (listed or num_stages < 2):
        raise ValueError(
            f"found early with listed={listed}, num_stages={num_stages}, wanted no list, and two "
            "stages or more; leave early out"
        )
    batch, longest, blocks = T.dynamic("batch, longest, blocks")
    cached = (batch, longest, key_heads, dim)
    per_group, block_H = heads_of_a_group(heads, key_heads, block_H)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), T.float16),
        K: T.Tensor(cached, T.float8_e4m3fn),
        V: T.Tensor(cached, T.float8_e4m3fn),
        scale_K: T.Tensor((key_heads,), T.float32),
        scale_V: T.Tensor((key_heads,), T.float32),
        Lengths: T.Tensor((blocks, 4) if listed else (batch,), T.int32),
    ):
        Output = T.empty((batch, heads, dim), T.float16)
        if splits > 1:
            partial = T.alloc_global((batch, heads, splits, dim), T.float32)
            log_sums = T.alloc_global((batch, heads, splits), T.float32)
        # Of lengths, the shares that short sequences do not have come last.
        grid = (key_heads, blocks, 1) if listed else (key_heads, batch, splits)
        with T.Kernel(*grid, threads=threads) as (g, y, z):
            # One widens while the other one waits for its products or loads.
            T.annotate_min_blocks_per_sm(min_blocks)
            Q_shared = T.alloc_shared((block_H, dim), T.float16)
            K_shared = T.alloc_shared((block_N, dim), T.float8_e4m3fn)
            V_shared = T.alloc_shared((block_N, dim), T.float8_e4m3fn)
            if early:
                K_first = T.alloc_shared((block_N, dim), T.float8_e4m3fn)
                V_first = T.alloc_shared((block_N, dim), T.float8_e4m3fn)
            out = T.alloc_fragment((dim, block_H), T.float32)
            # A sum for each key of a tile: they are added up once, at the end.
            sums = T.alloc_fragment((block_N, block_H), T.float32)
            row_max = T.alloc_fragment((block_H,), T.float32)
            row_sum = T.alloc_fragment((block_H,), T.float32)
            own = SimpleNamespace(
                Q=Q_shared,
                K_bytes=T.alloc_fragment((block_N, dim), T.float8_e4m3fn),
                # Widened in pairs of neighbours, before rows and columns change places.
                V_wide=T.alloc_fragment((block_N, dim), T.float16),
                K_local=T.alloc_fragment((block_N, dim), T.float16),
                V_local=T.alloc_fragment((dim, block_N), T.float16),
                scores=T.alloc_fragment((block_N, block_H), T.float32),
                weights=T.alloc_shared((block_N, block_H), T.float16),
                out=out,
                sums=sums,
                row_max=row_max,
                row_max_before=T.alloc_fragment((block_H,), T.float32),
                rescale=T.alloc_fragment((block_H,), T.float32),
            )

            b, s, listed_share, length = share_of(Lengths, y, z, batch, splits)
            scale = scale_K[g] * (LOG2_E / dim**0.5)
            # Lengths, and what is computed of them, fit 32 bits.
            T.assume(length >= 0 and length < 2**30)
            tiles = T.ceildiv(length, block_N)
            share = T.max(listed_share, 1) if listed else T.max(T.ceildiv(tiles, splits), least)
            start = s * share
            if early:
                # Tiles in turns: the first one is known before the length is.
                count = T.max(T.ceildiv(tiles - s, splits) - 1, 0)
            else:
                count = T.max(T.min(share, tiles - start), 0)
            for i, d in T.Parallel(block_H, dim):
                place = place_of_channel(d)
                Q_shared[i, d] = T.if_then_else(i < per_group, Q[b, g * per_group + i, place], 0)
            T.clear(out)
            T.clear(sums)
            T.fill(row_max, NO_KEY)
            if early:
                T.copy(K[b, s * block_N : (s + 1) * block_N, g, :], K_first)
                T.copy(V[b, s * block_N : (s + 1) * block_N, g, :], V_first)
                behind = (s + 1) * block_N > length
                step(own, K_first, V_first, s * block_N, length, scale, behind)
            for t in T.Pipelined(count, num_stages=num_stages - 1 if early else num_stages):
                # From the last keys on, so that the mask stands in front of the loop.
                tile = s + (t + 1) * splits if early else start + count - 1 - t
                first = tile * block_N
                T.copy(K[b, first : first + block_N, g, :], K_shared)
                T.copy(V[b, first : first + block_N, g, :], V_shared)
                masked = first + block_N > length if early else t == 0
                step(own, K_shared, V_shared, first, length, scale, masked)
            T.reduce_sum(sums, row_sum, dim=0)
            if early:
                # Scores of a share without keys count for nothing, and its values may be any.
                for i in T.Parallel(block_H):
                    row_sum[i] = T.if_then_else(row_max[i] > NO_KEY, row_sum[i], 0)
                for d, i in T.Parallel(dim, block_H):
                    out[d, i] = T.if_then_else(row_max[i] > NO_KEY, out[d, i], 0)
            if splits == 1:
                for d, i in T.Parallel(dim, block_H):
                    if i < per_group:
                        # No keys: 0.
                        Output[b, g * per_group + i, place_of_row(d, dim)] = (
                            out[d, i] * scale_V[g] / T.max(row_sum[i], 1e-30)
                        )
            else:
                for d, i in T.Parallel(dim, block_H):
                    if i < per_group:
                        # No keys: 0, with a weight of 0.
                        partial[b, g * per_group + i, s, place_of_row(d, dim)] = (
                            out[d, i] * scale_V[g] / T.max(row_sum[i], 1e-30)
                        )
                for i in T.Parallel(block_H):
                    if i < per_group:
                        log_sums[b, g * per_group + i, s] = T.if_then_else(
                            row_sum[i] > 0, T.log2(row_sum[i]) + row_max[i] * scale, NO_KEY
                        )
                if listed and s == 0:
                    shares = T.max(T.ceildiv(tiles, share), 1)
                    mark_absent(log_sums, b, g * per_group, per_group, block_H, shares)
        if splits > 1:
            combine(partial, log_sums, None, Output, dependent, listed)
        return Output

    return main


def inputs(lengths, heads, key_heads, dim, device="cpu"):
    """q, keys, values, their scales, and lengths."""
    cached = (len(lengths), max(lengths), key_heads, dim)
    q = torch.randn(len(lengths), heads, dim, device=device).half()
    k, v = (torch.randn(cached, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    scales = [torch.rand(key_heads, device=device) + 0.5 for _ in range(2)]
    return q, k, v, *scales, torch.tensor(lengths, dtype=torch.int32, device=device)


def reference_fp8(q, k, v, scale_k, scale_v, lengths):
    """The same in float64."""
    k, v = (x.double() * s.double()[:, None] for x, s in ((k, scale_k), (v, scale_v)))
    return reference(q, k, v, None, lengths, None)


def relative_error(lengths, heads, key_heads, dim, splits, device="cpu", **tile):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    tensors = inputs(lengths, heads, key_heads, dim, device)
    wanted = reference_fp8(*tensors)
    if tile.get("listed"):
        cut = {name: tile[name] for name in ("least", "block_N") if name in tile}
        tensors = (*tensors[:5], list_shares(lengths, splits, **cut, device=device))
    found = gqa_decode_fp8(heads, key_heads, dim, splits, **tile)(*tensors)
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", help="keys of each sequence")
    parser.add_argument("--heads", type=int, nargs=2, default=[32, 8] if gpu else [6, 2])
    parser.add_argument("--dim", type=int, default=128 if gpu else 64, help="of a head")
    parser.add_argument("--splits", type=int, help="blocks that share the keys of a head")
    arguments = parser.parse_args()
    lengths = arguments.lengths or ([8192, 1, 777, 4096] * 8 if gpu else [150, 1])
    splits = arguments.splits or splits_for(len(lengths), arguments.heads[1], max(lengths))
    error = relative_error(
        *(lengths, *arguments.heads, arguments.dim, splits, "cuda" if gpu else "cpu")
    )
    assert error < 2e-3, f"relative error {error:.1e}, wanted under 2e-3"
    print(f"{len(lengths)} sequences, {splits} splits: relative error {error:.1e}")
