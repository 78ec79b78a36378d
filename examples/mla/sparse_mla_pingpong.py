"""Attention over chosen rows of a latent cache (as in sparse_mla.py) by the schedule of
mla_decode_pingpong.py: a third warp group gathers the rows, while two multiply in turns. For
Hopper. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math

import torch
from mla_decode_pingpong import HEADS, TILE, added, followed, rescaled, schedule, weighed
from sparse_mla import LOG2_E, NO_KEY, PIECE, check

import tilelang
import tilelang.language as T

# A gather keeps addresses of rows, which a producer that copies boxes does not.
PRODUCER, CONSUMER = 40, 232


@tilelang.jit(
    target={"kind": "cuda", "arch": "sm_90a"},
    pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True},
)
def sparse_mla(heads, latent=512, rotated=64, dtype=T.bfloat16):
    """Output and LogSum as in sparse_mla.py, of Q (queries, heads, latent + rotated), KV (length,
    latent + rotated) and Chosen (queries, chosen)."""
    queries, length, chosen = T.dynamic("queries, length, chosen")
    width, half = latent + rotated, latent // 2
    scale = LOG2_E / width**0.5
    plan = schedule(PRODUCER, CONSUMER)
    halves = [slice(0, half), slice(half, latent)]

    @T.macro
    def gather(KV, Chosen, query, first, columns, tile):
        """Columns of the rows that are named from `first` on. What is no row is zero."""
        piece = math.gcd(int(tile.shape[1]), PIECE)
        for part, j, d in T.Parallel(tile.shape[1] // piece, TILE, piece):
            at = part * piece + d
            tile[j, at] = KV[Chosen[query, first + j], columns + at]

    @T.prim_func
    def main(
        Q: T.Tensor((queries, heads, width), dtype),
        KV: T.Tensor((length, width), dtype),
        Chosen: T.Tensor((queries, chosen), T.int32),
    ):
        Output = T.empty((queries, heads, latent), dtype)
        LogSum = T.empty((queries, heads), T.float32)
        with T.Kernel(T.ceildiv(heads, HEADS), queries, threads=32 * plan.num_warps) as (bx, query):
            T.annotate_ws_schedule(plan)
            Q_shared = [T.alloc_shared((HEADS, half), dtype) for _ in "lr"]
            # Of the tiles a and b, the groups' own; the results' left and right half.
            keys = [[T.alloc_shared((TILE, half), dtype) for _ in "lr"] for _ in "ab"]
            rope = [T.alloc_shared((TILE, rotated), dtype) for _ in "ab"]
            weights_shared = [T.alloc_shared((HEADS, TILE), dtype) for _ in "ab"]
            top_shared = [T.alloc_shared((HEADS,), T.float32) for _ in "ab"]
            sums_shared = [T.alloc_shared((HEADS,), T.float32) for _ in "ab"]
            Q_rope_local = [T.alloc_fragment((HEADS, rotated), dtype) for _ in "ab"]
            seen = [T.alloc_fragment((TILE,), T.bool) for _ in "ab"]
            scores = [T.alloc_fragment((HEADS, TILE), T.float32) for _ in "ab"]
            weights = [T.alloc_fragment((HEADS, TILE), dtype) for _ in "ab"]
            out = [T.alloc_fragment((HEADS, half), T.float32) for _ in "lr"]
            tile_top = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]
            top = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]
            before = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]
            rescale = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]
            part = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]
            sums = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]

            rows = slice(bx * HEADS, (bx + 1) * HEADS)
            with T.ws_op("load_q"):
                for h, here in enumerate(halves):
                    T.copy(Q[query, rows, here], Q_shared[h])
            for g, name in enumerate("ab"):
                with T.ws_op(f"init_{name}"):
                    T.copy(Q[query, rows, latent:], Q_rope_local[g])
                    T.clear(out[g])
                    T.clear(sums[g])
                    T.fill(top[g], NO_KEY)
            for step in T.serial(T.ceildiv(chosen, 2 * TILE), annotations={T.WSID: "steps"}):
                for g, name in enumerate("ab"):
                    first = (step * 2 + g) * TILE
                    with T.ws_op(f"load_{name}_rope"):
                        gather(KV, Chosen, query, first, latent, rope[g])
                    for h, side in enumerate(["left", "right"]):
                        with T.ws_op(f"load_{name}_{side}"):
                            gather(KV, Chosen, query, first, h * half, keys[g][h])
                    with T.ws_op(f"scores_{name}"):
                        for j in T.Parallel(TILE):
                            seen[g][j] = first + j < chosen and Chosen[query, first + j] >= 0
                        T.gemm(
                            Q_rope_local[g], rope[g], scores[g], transpose_B=True, clear_accum=True
                        )
                        for h in T.unroll(2, explicit=True):
                            T.gemm(Q_shared[h], keys[g][h], scores[g], transpose_B=True)
                    with T.ws_op(f"top_{name}"):
                        for i, j in T.Parallel(HEADS, TILE):
                            scores[g][i, j] = T.if_then_else(seen[g][j], scores[g][i, j], NO_KEY)
                        T.reduce_max(scores[g], tile_top[g], dim=1)
                # Each group's own product comes first; the other's weights take a while.
                for g, (name, own, other) in enumerate(
                    [("a", "left", "right"), ("b", "right", "left")]
                ):
                    with T.ws_op(f"weigh_{name}"):
                        weighed(
                            *(scores[g], weights[g], tile_top[g], top[g], before[g], rescale[g]),
                            scale,
                        )
                        T.copy(weights[g], weights_shared[g])
                        T.copy(top[g], top_shared[g])
                    with T.ws_op(f"{own}_{name}"):
                        rescaled(out[g], sums[g], rescale[g])
                        T.gemm(weights[g], keys[g][g], out[g])
                        added(scores[g], part[g], sums[g])  # beside the product
                    o = 1 - g
                    with T.ws_op(f"follow_{name}"):
                        followed(top_shared[g], top[o], before[o], rescale[o], scale)
                        rescaled(out[o], sums[o], rescale[o])
                    with T.ws_op(f"{other}_{name}"):
                        T.gemm(weights_shared[g], keys[g][o], out[o])
            for g, name in enumerate("ab"):
                with T.ws_op(f"sum_{name}"):
                    T.copy(sums[g], sums_shared[g])
            for g, name in enumerate("ab"):
                with T.ws_op(f"out_{name}"):
                    for i in T.Parallel(HEADS):
                        sums[g][i] = sums[g][i] + sums_shared[1 - g][i]
                    for i, j in T.Parallel(HEADS, half):
                        out[g][i, j] = out[g][i, j] / sums[g][i]
                    T.copy(out[g], Output[query, rows, halves[g]])
                    if g == 0:
                        for i in T.Parallel(HEADS):
                            sums[g][i] = T.log2(sums[g][i]) + top[g][i] * scale
                        T.copy(sums[g], LogSum[query, rows])
        return Output, LogSum

    return main


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1024 if gpu else 2)
    parser.add_argument("--rows", type=int, nargs=2, default=[8192, 2048] if gpu else [150, 139])
    parser.add_argument("--heads", type=int, default=128 if gpu else 64)
    arguments = parser.parse_args()
    shape = arguments.queries, *arguments.rows, arguments.heads, 512, 64
    check(sparse_mla(arguments.heads), *shape, "cuda" if gpu else "cpu")
