"""Decoding with latent attention from pages of a cache (as in mla_decode_paged.py) by the schedule
of mla_decode_pingpong.py. For Hopper. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
from functools import partial

import torch
from mla_decode_paged import relative_error
from mla_decode_pingpong import HEADS, TILE, attend, schedule

import tilelang
import tilelang.language as T


@tilelang.jit(
    target={"kind": "cuda", "arch": "sm_90a"},
    pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True},
)
def mla_decode_paged(heads, dim=512, rope_dim=64, page=64, dtype=T.bfloat16, cluster=1):
    """The same of Q (batch, heads, dim + rope_dim), Cache (pages, page, dim + rope_dim), Table
    (batch, most) and Lengths (batch,). The blocks of a cluster work on heads of one token; each
    loads a part of the keys for all."""
    batch, pages, most = T.dynamic("batch, pages, most")
    if page % TILE:
        raise ValueError(f"page is {page}, wanted a multiple of {TILE}")
    width, half, plan = dim + rope_dim, dim // 2, schedule()
    columns = [slice(0, half), slice(half, dim), slice(dim, width)]

    @T.macro
    def load(Cache, Table, b, length, tile, first, part):
        # What is behind the last page is masked: that page again.
        number = Table[b, T.min(first, length - 1) // page]
        here = first % page
        T.copy(Cache[number, here : here + TILE, columns[part]], tile)

    @T.macro
    def store(Output, b, rows, out, part, sums, top):
        T.copy(out, Output[b, rows, columns[part]])

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, width), dtype),
        Cache: T.Tensor((pages, page, width), dtype),
        Table: T.Tensor((batch, most), T.int32),
        Lengths: T.Tensor((batch,), T.int32),
    ):
        Output = T.empty((batch, heads, dim), dtype)
        with T.Kernel(
            T.ceildiv(heads, HEADS), batch, threads=32 * plan.num_warps, cluster_dims=cluster
        ) as (bx, by):
            rows, length = slice(bx * HEADS, (bx + 1) * HEADS), Lengths[by]
            attend(
                *(plan, half, rope_dim, dtype, [Q[by, rows, here] for here in columns], length),
                load=partial(load, Cache, Table, by, length),
                store=partial(store, Output, by, rows),
            )
        return Output

    return main


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", help="keys of each sequence")
    parser.add_argument("--cluster", type=int, default=2 if gpu else 1, help="blocks of a cluster")
    arguments = parser.parse_args()
    lengths = arguments.lengths or ([8192, 1, 777, 4096] * 8 if gpu else [100, 1])
    heads = HEADS * arguments.cluster
    kernel = mla_decode_paged(heads, cluster=arguments.cluster)
    error = relative_error(kernel, lengths, heads, device="cuda" if gpu else "cpu")
    bound = torch.finfo(torch.bfloat16).eps
    assert error < bound, f"relative error {error:.1e}, wanted under {bound:.1e}"
    print(f"{len(lengths)} sequences: relative error {error:.1e}")
