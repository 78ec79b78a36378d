"""Backward of attention over chosen rows of a latent cache (as in sparse_mla_backward.py) by a
schedule of four warp groups. One gathers rows. Two have the products of which the heads' gradients
come: the left one makes weights, the right one gradients of scores, and each has half of the
columns of dQ. The fourth makes the rows' gradients and adds them to dKV. That takes longest, so the
other two do it for a quarter of the columns each, while the next tile is gathered. For Hopper.
Check it against float64 autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
from typing import Any, NamedTuple

import torch
from sparse_mla import check, gather_rows
from sparse_mla_backward import (
    IS_RIGHT,
    add_rows,
    lines,
    row_products,
    rows_of,
    slopes,
    weights,
)

import tilelang
import tilelang.language as T

# Rows of a tile, heads of a block.
TILE, HEADS = 64, 64
# Registers of a thread of each group. No instruction may take more than the 128 that a thread
# begins with.
REGISTERS = {"load": 24, "left": 192, "right": 192, "rows": 104}
# The groups that have dQ.
SIDES = ["left", "right"]


def schedule(shares):
    """Who does what, and what is passed on: a tile's rows, their rotated part, weights, gradients
    of scores. With `shares` the left and the right group add to rows' gradients, too."""
    added = [f"add_{side}" for side in SIDES] if shares else []
    users = {
        "kv_left": ["scores", "slopes", "left"],
        "kv_right": ["scores", "slopes", "right"],
        "k_rotated": ["scores", "rotated"],
    }
    # What its own group makes, a group needs not wait for.
    of_weights = ["weigh", "add", *added[1:]]
    of_slopes = ["left", "rotated", "add", *added[:1]]
    tiles = T.WSScope(
        "tiles",
        {
            "load": [*(f"load_{rows}" for rows in users), "next_rows"],
            "left": ["scores", "weights", "left", *added[:1]],
            "right": ["slopes", "weigh", "right", *added[1:]],
            "rows": ["rotated", "add"],
        },
        [
            *(T.WSSync(f"load_{rows}", use, rows) for rows, uses in users.items() for use in uses),
            *(T.WSSync("weights", use, "p") for use in of_weights),
            *(T.WSSync("weigh", use, "ds") for use in of_slopes),
        ],
    )
    groups = [*SIDES, "rows"]
    whole = T.WSScope(
        None,
        {
            "load": ["load_q", "first_rows"],
            **{name: [f"begin_{name}", f"end_{name}"] for name in groups},
        },
        [T.WSSync("load_q", use, "q") for use in ("scores", "slopes", "add", *added)],
    )
    return T.WSSchedule(
        num_warps=16,
        roles={
            name: T.WSRole(warps_lo=4 * n, warps_hi=4 * n + 4, max_nreg=registers)
            for n, (name, registers) in enumerate(REGISTERS.items())
        },
        pipelines={name: T.WSPipeline(1) for name in (*users, "p", "ds", "q")},
        scopes=[tiles, whole],
    )


class Tiles(NamedTuple):
    """What the groups share: Q and dO of a block, a tile of rows in halves, weights and gradients
    of scores."""

    q: Any
    q_rotated: Any
    do: Any
    kv: Any
    k_rotated: Any
    p: Any
    ds: Any


@T.macro
def load_rows(KV, Chosen, query, first, named, tiles, columns):
    """The rows that are `named`, and the numbers of those from `first` on, the next tile's."""
    for g, side in enumerate(SIDES):
        with T.ws_op(f"load_kv_{side}"):
            gather_rows(KV, lambda j: named[j], tiles.kv[g], columns[g])
    with T.ws_op("load_k_rotated"):
        gather_rows(KV, lambda j: named[j], tiles.k_rotated, columns[2])
    with T.ws_op("next_rows"):
        rows_of(Chosen, query, first, named)


@T.macro
def score_slopes(tiles, log_sum, delta, scale, keys, columns, dtype):
    """A tile's weights by the left group, gradients of its scores by the right one."""
    p, ds = [T.alloc_fragment((HEADS, TILE), T.float32) for _ in SIDES]
    p_right = T.alloc_fragment((HEADS, TILE), dtype)
    with T.ws_op("scores"):
        T.clear(p)
        for half, tile in zip(columns, tiles.kv, strict=False):
            T.gemm(tiles.q[:, half], tile, p, transpose_B=True)
        T.gemm(tiles.q_rotated, tiles.k_rotated, p, transpose_B=True)
    with T.ws_op("weights"):
        weights(p, log_sum, scale)
        T.copy(p, tiles.p)
    with T.ws_op("slopes"):
        T.clear(ds)
        for half, tile in zip(columns, tiles.kv, strict=False):
            T.gemm(tiles.do[:, half], tile, ds, transpose_B=True)
    with T.ws_op("weigh"):
        T.copy(tiles.p, p_right)
        slopes(p_right, ds, delta, scale, keys)
        T.copy(ds, tiles.ds)


@T.macro
def heads_gradients(tiles, dq, dq_rotated):
    """Half of dQ by the left and the right group each, the rotated columns by the fourth one."""
    for side, kv, quarters in zip(SIDES, tiles.kv, dq, strict=True):
        with T.ws_op(side):
            for n, quarter in enumerate(quarters):
                columns = quarter.shape[1]
                T.gemm(tiles.ds, kv[:, n * columns : (n + 1) * columns], quarter)
    with T.ws_op("rotated"):
        T.gemm(tiles.ds, tiles.k_rotated, dq_rotated)


@T.macro
def add_columns(dKV, tiles, row, columns, dkv, by_lines):
    """The rows' gradients in these columns, a piece of dkv's width at a time."""
    for first in range(columns.start, columns.stop, dkv.shape[1]):
        row_products(tiles.q, tiles.do, tiles.p, tiles.ds, first, dkv)
        add_rows(dKV, row, first, dkv, by_lines)


@T.macro
def rows_gradients(dKV, Chosen, query, first, tiles, share, row, dkv, by_lines):
    """`share` columns by the left and the right group each, the rest by the fourth one."""
    latent, rotated = (int(tile.shape[1]) for tile in (tiles.q, tiles.q_rotated))
    if share:
        for g, side in enumerate(SIDES):
            with T.ws_op(f"add_{side}"):
                rows_of(Chosen, query, first, row[g])
                own = slice(g * share, (g + 1) * share)
                add_columns(dKV, tiles, row[g], own, dkv[g], by_lines[g])
    with T.ws_op("add"):
        rows_of(Chosen, query, first, row[2])
        T.gemm(tiles.ds, tiles.q_rotated, dkv[2], transpose_A=True, clear_accum=True)
        add_rows(dKV, row[2], latent, dkv[2], by_lines[2])
        # The next tile's weights are made beside the last addition.
        for own in slice(2 * share, latent - rotated), slice(latent - rotated, latent):
            add_columns(dKV, tiles, row[2], own, dkv[2], by_lines[2])


def sparse_mla_backward(heads, latent=512, rotated=64, dtype=T.bfloat16):
    """dQ and dKV as in sparse_mla_backward.py. The rows' gradients are computed at most `rotated`
    columns at a time, a multiple of 16 that divides `latent`, a multiple of 32."""
    queries, length, chosen = T.dynamic("queries, length, chosen")
    if latent % rotated or latent % 32 or rotated % 16:
        raise ValueError(
            f"found latent {latent}, rotated {rotated}, wanted a multiple of 16 as rotated, and a "
            "multiple of it and of 32 as latent"
        )
    half, width = latent // 2, latent + rotated
    # Columns of the rows' gradients that the left and the right group add, each.
    share = latent // rotated // 4 * rotated
    # Beside half of dQ there is room for a narrow piece. A spilled value waits for the additions in
    # front of its load.
    narrow = rotated // 2 if rotated % 32 == 0 else rotated
    widths = [narrow, narrow, rotated]
    scale, plan = width**-0.5, schedule(share > 0)
    columns = [slice(0, half), slice(half, latent), slice(latent, width)]

    @T.prim_func
    def main(
        Q: T.Tensor((queries, heads, width), dtype),
        KV: T.Tensor((length, width), dtype),
        dO: T.Tensor((queries, heads, latent), dtype),
        Chosen: T.Tensor((queries, chosen), T.int32),
        LogSum: T.Tensor((queries, heads), T.float32),
        Delta: T.Tensor((queries, heads), T.float32),
        dQ: T.Tensor((queries, heads, width), dtype),
        dKV: T.Tensor((length, width), T.float32),
    ):
        T.annotate_pass_configs({tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
        with T.Kernel(T.ceildiv(heads, HEADS), queries, threads=32 * plan.num_warps) as (bx, query):
            T.annotate_ws_schedule(plan)
            q, do = [T.alloc_shared((HEADS, latent), dtype) for _ in range(2)]
            q_rotated = T.alloc_shared((HEADS, rotated), dtype)
            kv = [T.alloc_shared((TILE, half), dtype) for _ in SIDES]
            k_rotated = T.alloc_shared((TILE, rotated), dtype)
            p_shared, ds_shared = [T.alloc_shared((HEADS, TILE), dtype) for _ in range(2)]
            tiles = Tiles(q, q_rotated, do, kv, k_rotated, p_shared, ds_shared)
            named = T.alloc_fragment((TILE,), T.int32)
            log_sum, delta = [T.alloc_fragment((HEADS,), T.float32) for _ in SIDES]
            # Quarters of dQ by group, and what each group adds.
            dq = [[T.alloc_fragment((HEADS, half // 2), T.float32) for _ in "ab"] for _ in SIDES]
            dq_rotated = T.alloc_fragment((HEADS, rotated), T.float32)
            row = [T.alloc_fragment((TILE,), T.int32) for _ in range(3)]
            dkv = [T.alloc_fragment((TILE, piece), T.float32) for piece in widths]
            by_lines = [T.alloc_fragment((TILE, piece), T.float32) for piece in widths]
            T.annotate_layout({part: lines(part) for part in by_lines})
            here = slice(bx * HEADS, (bx + 1) * HEADS)
            with T.ws_op("load_q"):
                T.copy(Q[query, here, :latent], q)
                T.copy(Q[query, here, latent:], q_rotated)
                T.copy(dO[query, here, :], do)
            with T.ws_op("first_rows"):
                rows_of(Chosen, query, 0, named)
            for g, (of_heads, own) in enumerate([(LogSum, log_sum), (Delta, delta)]):
                with T.ws_op(f"begin_{SIDES[g]}"):
                    T.copy(of_heads[query, here], own)
                    for quarter in dq[g]:
                        T.clear(quarter)
            with T.ws_op("begin_rows"):
                T.clear(dq_rotated)
            for t in T.serial(T.ceildiv(chosen, TILE), annotations={T.WSID: "tiles"}):
                first = t * TILE
                load_rows(KV, Chosen, query, first + TILE, named, tiles, columns)
                score_slopes(tiles, log_sum, delta, scale, chosen - first, columns, dtype)
                heads_gradients(tiles, dq, dq_rotated)
                rows_gradients(dKV, Chosen, query, first, tiles, share, row, dkv, by_lines)
            for g, side in enumerate(SIDES):
                with T.ws_op(f"end_{side}"):
                    for n, quarter in enumerate(dq[g]):
                        at = (2 * g + n) * half // 2
                        T.copy(quarter, dQ[query, here, at : at + half // 2])
            with T.ws_op("end_rows"):
                T.copy(dq_rotated, dQ[query, here, latent:])

    return main


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1024 if gpu else 2)
    parser.add_argument("--rows", type=int, nargs=2, default=[8192, 2048] if gpu else [150, 139])
    parser.add_argument("--heads", type=int, default=128 if gpu else 64)
    arguments = parser.parse_args()
    kernel = tilelang.compile(
        sparse_mla_backward(arguments.heads), target={"kind": "cuda", "arch": "sm_90a"}
    )
    shape = arguments.queries, *arguments.rows, arguments.heads, 512, 64
    check(kernel, *shape, "cuda" if gpu else "cpu", **IS_RIGHT)
