"""Attention over chosen rows of a latent cache (as in sparse_mla.py) by the schedule of
mla_decode_pingpong.py: a third warp group gathers the rows, while two multiply in turns. For
Hopper. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
from functools import partial

import torch
from mla_decode_pingpong import HEADS, TILE, attend, schedule
from sparse_mla import LOG2_E, check, gather

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
    columns = [slice(0, half), slice(half, latent), slice(latent, width)]

    @T.macro
    def load(KV, Chosen, query, tile, first, part):
        gather(KV, Chosen, query, tile, first, columns[part])

    @T.macro
    def look(Chosen, query, seen, first):
        for j in T.Parallel(TILE):
            seen[j] = first + j < chosen and Chosen[query, first + j] >= 0

    @T.macro
    def store(Output, LogSum, query, rows, out, part, sums, top):
        T.copy(out, Output[query, rows, columns[part]])
        if part == 0:
            for i in T.Parallel(HEADS):
                sums[i] = T.log2(sums[i]) + top[i] * scale
            T.copy(sums, LogSum[query, rows])

    @T.prim_func
    def main(
        Q: T.Tensor((queries, heads, width), dtype),
        KV: T.Tensor((length, width), dtype),
        Chosen: T.Tensor((queries, chosen), T.int32),
    ):
        Output = T.empty((queries, heads, latent), dtype)
        LogSum = T.empty((queries, heads), T.float32)
        with T.Kernel(T.ceildiv(heads, HEADS), queries, threads=32 * plan.num_warps) as (bx, query):
            rows = slice(bx * HEADS, (bx + 1) * HEADS)
            attend(
                *(plan, half, rotated, dtype, [Q[query, rows, here] for here in columns], chosen),
                load=partial(load, KV, Chosen, query),
                store=partial(store, Output, LogSum, query, rows),
                look=partial(look, Chosen, query),
            )
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
