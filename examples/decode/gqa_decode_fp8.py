"""Decoding with grouped queries and a cache of 8-bit floats, which halves the bytes to read. Both
products are transposed: keys and values are widened into registers that are the first operand of a
matrix instruction, so that they do not go through shared memory a second time. Check it against
float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import functools
from types import SimpleNamespace

import torch
from gqa_decode import (
    NO_KEY,
    begin_softmax,
    combine,
    end_softmax,
    form_of,
    grid_of,
    leave_result,
    leave_share,
    list_shares,
    load_queries,
    online_softmax,
    reference,
    share_of,
    splits_for,
    tiles_of,
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


@T.macro
def state_of(form):
    """What a block keeps."""
    block_H, block_N, dim = form.block_H, form.block_N, form.dim
    Q_shared = T.alloc_shared((block_H, dim), T.float16)
    K_shared = T.alloc_shared((block_N, dim), T.float8_e4m3fn)
    V_shared = T.alloc_shared((block_N, dim), T.float8_e4m3fn)
    if form.early:
        K_first = T.alloc_shared((block_N, dim), T.float8_e4m3fn)
        V_first = T.alloc_shared((block_N, dim), T.float8_e4m3fn)
    out = T.alloc_fragment((dim, block_H), T.float32)
    # A sum for each key of a tile: they are added up once, at the end.
    sums = T.alloc_fragment((block_N, block_H), T.float32)
    row_max = T.alloc_fragment((block_H,), T.float32)
    row_sum = T.alloc_fragment((block_H,), T.float32)
    return SimpleNamespace(
        Q=Q_shared,
        tiles=(K_shared, V_shared),
        first_tiles=(K_first, V_first) if form.early else None,
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
        row_sum=row_sum,
        row_max_before=T.alloc_fragment((block_H,), T.float32),
        rescale=T.alloc_fragment((block_H,), T.float32),
    )


@T.macro
def attend(form, K, V, own, b, g, s, length, span, scale):
    """Attend to the tiles of share s."""
    block_N = form.block_N
    K_shared, V_shared = own.tiles
    _, _, _, start, count = span
    if form.early:
        K_first, V_first = own.first_tiles
        T.copy(K[b, s * block_N : (s + 1) * block_N, g, :], K_first)
        T.copy(V[b, s * block_N : (s + 1) * block_N, g, :], V_first)
        behind = (s + 1) * block_N > length
        step(own, K_first, V_first, s * block_N, length, scale, behind)
    stages = form.num_stages - 1 if form.early else form.num_stages
    for t in T.Pipelined(count, num_stages=stages):
        # From the last keys on, so that the mask stands in front of the loop.
        tile = s + (t + 1) * form.splits if form.early else start + count - 1 - t
        first = tile * block_N
        T.copy(K[b, first : first + block_N, g, :], K_shared)
        T.copy(V[b, first : first + block_N, g, :], V_shared)
        masked = first + block_N > length if form.early else t == 0
        step(own, K_shared, V_shared, first, length, scale, masked)


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
    batch, longest, blocks = T.dynamic("batch, longest, blocks")
    cached = (batch, longest, key_heads, dim)
    form = form_of(
        *(heads, key_heads, block_H, block_N, dim, splits, least, num_stages, listed, early)
    )

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
        with T.Kernel(*grid_of(form, key_heads, batch, blocks), threads=threads) as (g, y, z):
            # One widens while the other one waits for its products or loads.
            T.annotate_min_blocks_per_sm(min_blocks)
            own = state_of(form)
            b, s, listed_share, length = share_of(form, Lengths, y, z, Q, K)
            # Read here, not where they are used, with nothing left to wait for beside them.
            scale, factor = scale_K[g] * form.scale, scale_V[g]
            span = tiles_of(form, s, listed_share, length)
            load_queries(form, Q, own, b, g, place_of_channel)
            begin_softmax(own)
            attend(form, K, V, own, b, g, s, length, span, scale)
            end_softmax(form, own)
            place = functools.partial(place_of_row, dim=dim)
            if splits > 1:
                results = (partial, log_sums)
                leave_share(form, own, results, b, g, s, span, scale, place, factor)
            else:
                leave_result(form, own, Output, b, g, None, place, factor)
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
