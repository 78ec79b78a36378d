"""Attention over sequences of different lengths, packed one behind the other: check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import itertools

import torch
from flash_attention import (
    LOG2_E,
    NO_KEY,
    attend,
    check_heads,
    new_counter,
    processors,
    reference,
)

import tilelang
import tilelang.language as T


@T.macro
def mask_last(scores, step, here, masked, first, length, causal):
    """Leave out, in the first `masked` steps, which are the last tiles of keys, those behind the
    row's own, or the sequence's end."""
    if step < masked:
        for i, j in T.Parallel(*scores.shape):
            # Rows behind the end are nobody's.
            end = first + i + 1 if causal else length
            scores[i, j] = T.if_then_else(here + j < end, scores[i, j], NO_KEY)


@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def flash_attention_varlen(
    heads,
    dim,
    causal,
    key_heads=None,
    dtype=T.float16,
    longest=2**20,
    block_M=128,
    block_N=64,
    num_stages=2,
    threads=256,
):
    """softmax(Q K^T / sqrt(dim)) V of Q (positions, heads, dim), sequence by sequence. `tiles`
    tells of each tile of block_M rows where its sequence starts, how long that is, at most
    `longest`, the tile's first row in it, and the head: in any order, best such that neighbours
    share keys and no long one is left when the others are done. Blocks fetch them from `counter`.
    """
    key_heads = key_heads or heads
    check_heads(heads, key_heads)
    positions, count = T.dynamic("positions"), T.dynamic("count")
    scale = LOG2_E / dim**0.5
    # Tiles of keys of which some rows see a part only: the last ones.
    masked = -(-block_M // block_N) + (block_M % block_N > 0) if causal else 1
    blocks = processors()

    @T.prim_func
    def main(
        Q: T.Tensor((positions, heads, dim), dtype),
        K: T.Tensor((positions, key_heads, dim), dtype),
        V: T.Tensor((positions, key_heads, dim), dtype),
        tiles: T.Tensor((count, 4), T.int32),
        counter: T.Tensor((1,), T.int32),
    ):
        Output = T.empty((positions, heads, dim), dtype)
        with T.Kernel(blocks, threads=threads) as block:
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            out_shared = T.alloc_shared((block_M, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), T.float32)
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)

            # The next tile's rows come while this one's are still read.
            T.annotate_ws_pipeline_depth({Q_shared: 2})
            for tile in T.Persistent([count], blocks, block, 1, counter=counter):
                start, length, first = tiles[tile, 0], tiles[tile, 1], tiles[tile, 2]
                by = tiles[tile, 3]
                head = by // (heads // key_heads)
                T.assume(0 <= by < heads)
                T.assume(0 < length <= longest)
                T.assume(0 <= first < length)
                steps = T.ceildiv(T.min(length, first + block_M) if causal else length, block_N)
                T.copy(Q[start + first : start + first + block_M, by, :], Q_shared)
                attend(
                    *(Q_shared, K, V, (start,), head, steps),
                    *((K_shared, V_shared, scores, weights), (out, row_max, row_sum)),
                    *(scale, num_stages, mask_last, (masked, first, length, causal)),
                )
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] = out[i, j] / row_sum[i]
                # Rows are stored as a whole, and asked once whether they are of the sequence.
                T.copy(out, out_shared)
                for i, j in T.Parallel(block_M, dim):
                    if first + i < length:
                        Output[start + first + i, by, j] = out_shared[i, j]
        return Output

    return main


def tiles_of(lengths, heads, block_M, causal):
    """The tiles of sequences that stand one behind the other: the longest sequence first, and of a
    head those with the most keys first."""
    ends = itertools.accumulate(lengths)
    longest_first = sorted(zip(lengths, ends, strict=True), reverse=True)
    tiles = [
        (end - length, length, first, head)
        for length, end in longest_first
        for head in range(heads)
        for first in range(0, length, block_M)[:: -1 if causal else 1]
    ]
    return torch.tensor(tiles, dtype=torch.int32).reshape(-1, 4)


def inputs(lengths, heads, dim, causal, key_heads=None, dtype=T.float16, block_M=128, device="cpu"):
    """Q, K and V, normally distributed, the tiles and a counter."""
    shapes = [(sum(lengths), count, dim) for count in (heads, *[key_heads or heads] * 2)]
    tensors = [torch.randn(shape, device=device).to(dtype.as_torch()) for shape in shapes]
    return [*tensors, tiles_of(lengths, heads, block_M, causal).to(device), new_counter(device)]


def relative_error(lengths, heads, dim, causal, device="cpu", key_heads=None, **tile):
    """||ours - float64|| / ||float64|| over all sequences."""
    torch.manual_seed(0)
    block_M = tile.setdefault("block_M", 128)
    given = inputs(lengths, heads, dim, causal, key_heads, block_M=block_M, device=device)
    q, k, v, *_ = given
    found = flash_attention_varlen(heads, dim, causal, key_heads, **tile)(*given).double()
    parts = zip(*(x.split(lengths) for x in (q, k, v)), strict=True)
    wanted = torch.cat([reference(*(x[None] for x in part), causal=causal)[0] for part in parts])
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", help="positions of each sequence")
    parser.add_argument("--dim", type=int, default=128, help="of a head")
    arguments = parser.parse_args()
    gpu = torch.cuda.is_available()
    lengths = arguments.lengths or ([4096, 1, 700, 2048] if gpu else [130, 1, 70])
    for causal in (False, True):
        error = relative_error(
            lengths, 16 if gpu else 1, arguments.dim, causal, "cuda" if gpu else "cpu"
        )
        assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
        print(f"{lengths}, causal {causal}: relative error {error:.1e}")
