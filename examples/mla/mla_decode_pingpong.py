"""Decoding with latent attention by two ping-pong warp groups, with a schedule of warp
specialisation of its own. Each group has half of the results' columns and every other tile of keys:
while one makes weights of its scores, the other multiplies. For Hopper.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
from functools import partial

import torch
from mla_decode import LOG2_E, NO_KEY, relative_error

import tilelang
import tilelang.language as T

# Keys of a tile, and rows of a block: heads of one token.
TILE, HEADS = 64, 64
# A maximum is raised where weights would exceed 2^8: rows are rescaled seldom, and weights of 2^8
# are as precise as those of 1.
SLACK = 8


def schedule(producer=24, consumer=240):
    """Who does what, and what is passed on: tiles of keys a and b in halves and their rotated
    parts, weights with the maxima that they are relative to, at the end sums of weights. Threads
    that load have `producer` registers, the others `consumer`."""
    users = {
        "a_rope": ["scores_a"],
        "a_left": ["scores_a", "left_a"],
        "a_right": ["scores_a", "right_a"],
        "b_rope": ["scores_b"],
        "b_left": ["scores_b", "left_b"],
        "b_right": ["scores_b", "right_b"],
    }
    fills = [T.WSSync(f"load_{keys}", use, keys) for keys, uses in users.items() for use in uses]
    # What the right group can do of its own comes before it waits for the left one's weights.
    left = ["scores_a", "top_a", "weigh_a", "left_a"]
    right = ["scores_b", "top_b", "follow_a", "right_a", "weigh_b"]
    steps = T.WSScope(
        "steps",
        {
            "load": [f"load_{keys}" for keys in users],
            "left": [*left, "follow_b", "left_b"],
            "right": [*right, "right_b"],
        },
        [
            *fills,
            *(T.WSSync("weigh_a", use, "weights_a") for use in ("follow_a", "right_a")),
            *(T.WSSync("weigh_b", use, "weights_b") for use in ("follow_b", "left_b")),
        ],
    )
    whole = T.WSScope(
        None,
        {
            "load": ["load_q"],
            "left": ["init_a", "sum_a", "out_a"],
            "right": ["init_b", "sum_b", "out_b"],
        },
        [
            *(T.WSSync("load_q", use, "q") for use in ("scores_a", "scores_b")),
            T.WSSync("sum_a", "out_b", "sums_a"),
            T.WSSync("sum_b", "out_a", "sums_b"),
        ],
    )
    pipelines = [*users, "weights_a", "weights_b", "q", "sums_a", "sums_b"]
    return T.WSSchedule(
        num_warps=12,
        roles={
            "load": T.WSRole(warps_lo=0, warps_hi=4, max_nreg=producer),
            "left": T.WSRole(warps_lo=4, warps_hi=8, max_nreg=consumer),
            "right": T.WSRole(warps_lo=8, warps_hi=12, max_nreg=consumer),
        },
        pipelines={name: T.WSPipeline(1) for name in pipelines},
        scopes=[steps, whole],
    )


@T.macro
def rescaled(out, sums, rescale):
    """`out` and `sums` relative to a maximum that may have grown."""
    for i, j in T.Parallel(*out.shape):
        if rescale[i] < 1:
            out[i, j] = out[i, j] * rescale[i]
    for i in T.Parallel(HEADS):
        sums[i] = sums[i] * rescale[i]


@T.macro
def topmost(scores, tile_top, keys, seen):
    """The largest score of each row. Others than those of the first `keys`, or with `seen` than
    those it names, become those of no key."""
    if seen is not None:
        for i, j in T.Parallel(HEADS, TILE):
            scores[i, j] = T.if_then_else(seen[j], scores[i, j], NO_KEY)
    elif keys < TILE:
        for i, j in T.Parallel(HEADS, TILE):
            scores[i, j] = T.if_then_else(j < keys, scores[i, j], NO_KEY)
    T.reduce_max(scores, tile_top, dim=1)


@T.macro
def weighed(scores, weights, tile_top, top, before, rescale, scale):
    """Weights of the scores, and the maximum that they are relative to."""
    T.copy(top, before)
    for i in T.Parallel(HEADS):
        if (tile_top[i] - before[i]) * scale > SLACK:
            top[i] = tile_top[i]
    for i in T.Parallel(HEADS):
        rescale[i] = T.exp2((before[i] - top[i]) * scale)
    for i, j in T.Parallel(HEADS, TILE):
        scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
    T.copy(scores, weights)


@T.macro
def followed(given, top, before, rescale, scale):
    """The other group's maximum, `given`, instead of ours."""
    T.copy(top, before)
    T.copy(given, top)
    for i in T.Parallel(HEADS):
        rescale[i] = T.exp2((before[i] - top[i]) * scale)


@T.macro
def added(scores, part, sums):
    """The weights of a tile in `sums`."""
    T.reduce_sum(scores, part, dim=1)
    for i in T.Parallel(HEADS):
        sums[i] = sums[i] + part[i]


@T.macro
def attend(plan, half, rope_dim, dtype, queries, length, load, store, look=None):
    """The steps of `plan` over `length` keys, for rows of queries: their left and right half, then
    their rotated part. `load(tile, first, part)` fills a tile with that part, of these three, of
    the keys from `first` on; `look(seen, first)` says which of these are keys, if not the first
    `length`. `store(out, g, sums, top)` has half g of the results, the sums of the weights, and the
    maxima that they are relative to."""
    scale = LOG2_E / (2 * half + rope_dim) ** 0.5
    T.annotate_ws_schedule(plan)
    Q_shared = [T.alloc_shared((HEADS, half), dtype) for _ in "lr"]
    # Of the tiles a and b, the groups' own; the results' left and right half.
    keys = [[T.alloc_shared((TILE, half), dtype) for _ in "lr"] for _ in "ab"]
    rope = [T.alloc_shared((TILE, rope_dim), dtype) for _ in "ab"]
    weights_shared = [T.alloc_shared((HEADS, TILE), dtype) for _ in "ab"]
    top_shared = [T.alloc_shared((HEADS,), T.float32) for _ in "ab"]
    sums_shared = [T.alloc_shared((HEADS,), T.float32) for _ in "ab"]
    Q_rope_local = [T.alloc_fragment((HEADS, rope_dim), dtype) for _ in "ab"]
    seen = [None if look is None else T.alloc_fragment((TILE,), T.bool) for _ in "ab"]
    scores = [T.alloc_fragment((HEADS, TILE), T.float32) for _ in "ab"]
    weights = [T.alloc_fragment((HEADS, TILE), dtype) for _ in "ab"]
    out = [T.alloc_fragment((HEADS, half), T.float32) for _ in "lr"]
    tile_top = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]
    top = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]
    before = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]
    rescale = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]
    part = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]
    sums = [T.alloc_fragment((HEADS,), T.float32) for _ in "ab"]

    with T.ws_op("load_q"):
        for h in T.unroll(2, explicit=True):
            T.copy(queries[h], Q_shared[h])
    for g, name in enumerate("ab"):
        with T.ws_op(f"init_{name}"):
            T.copy(queries[2], Q_rope_local[g])
            T.clear(out[g])
            T.clear(sums[g])
            T.fill(top[g], NO_KEY)
    for step in T.serial(T.ceildiv(length, 2 * TILE), annotations={T.WSID: "steps"}):
        for g, name in enumerate("ab"):
            first = (step * 2 + g) * TILE
            with T.ws_op(f"load_{name}_rope"):
                load(rope[g], first, 2)
            for h, side in enumerate(["left", "right"]):
                with T.ws_op(f"load_{name}_{side}"):
                    load(keys[g][h], first, h)
            with T.ws_op(f"scores_{name}"):
                if look is not None:
                    look(seen[g], first)
                T.gemm(Q_rope_local[g], rope[g], scores[g], transpose_B=True, clear_accum=True)
                for h in T.unroll(2, explicit=True):
                    T.gemm(Q_shared[h], keys[g][h], scores[g], transpose_B=True)
            with T.ws_op(f"top_{name}"):
                topmost(scores[g], tile_top[g], length - first, seen[g])
        # Each group's own product comes first; the other's weights take a while.
        for g, (name, own, other) in enumerate([("a", "left", "right"), ("b", "right", "left")]):
            with T.ws_op(f"weigh_{name}"):
                weighed(*(scores[g], weights[g], tile_top[g], top[g], before[g], rescale[g]), scale)
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
                # No keys: 0.
                sums[g][i] = T.max(sums[g][i] + sums_shared[1 - g][i], 1e-30)
            for i, j in T.Parallel(HEADS, half):
                out[g][i, j] = out[g][i, j] / sums[g][i]
            store(out[g], g, sums[g], top[g])


@tilelang.jit(
    target={"kind": "cuda", "arch": "sm_90a"},
    pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True},
)
def mla_decode(batch, heads, length, dim=512, rope_dim=64, dtype=T.float16, cluster=1):
    """softmax((Q KV^T + Q_rope K_rope^T) / sqrt(dim + rope_dim)) KV, as in mla_decode.py: Q (batch,
    heads, dim), Q_rope (batch, heads, rope_dim), KV (batch, length, dim), K_rope (batch, length,
    rope_dim). The blocks of a cluster work on heads of one token; each loads a part of the keys for
    all."""
    plan = schedule()
    halves = [slice(0, dim // 2), slice(dim // 2, dim)]
    columns = [*halves, slice(0, rope_dim)]

    @T.macro
    def load(sources, b, tile, first, part):
        T.copy(sources[part][b, first : first + TILE, columns[part]], tile)

    @T.macro
    def store(Output, b, rows, out, half, sums, top):
        T.copy(out, Output[b, rows, halves[half]])

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        Q_rope: T.Tensor((batch, heads, rope_dim), dtype),
        KV: T.Tensor((batch, length, dim), dtype),
        K_rope: T.Tensor((batch, length, rope_dim), dtype),
    ):
        Output = T.empty((batch, heads, dim), dtype)
        with T.Kernel(
            T.ceildiv(heads, HEADS), batch, threads=32 * plan.num_warps, cluster_dims=cluster
        ) as (bx, by):
            rows = slice(bx * HEADS, (bx + 1) * HEADS)
            queries = [*(Q[by, rows, here] for here in halves), Q_rope[by, rows, :]]
            keys = partial(load, [KV, KV, K_rope], by)
            results = partial(store, Output, by, rows)
            attend(plan, dim // 2, rope_dim, dtype, queries, length, keys, results)
        return Output

    return main


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=132 if gpu else 1)
    parser.add_argument("--length", type=int, default=8192 if gpu else 200, help="of the context")
    parser.add_argument("--cluster", type=int, default=2 if gpu else 1, help="blocks of a cluster")
    arguments = parser.parse_args()
    batch, length, heads = arguments.batch, arguments.length, HEADS * arguments.cluster
    kernel = mla_decode(batch, heads, length, cluster=arguments.cluster)
    error = relative_error(kernel, batch, heads, length, device="cuda" if gpu else "cpu")
    assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
    print(f"batch {batch}, context {length}: relative error {error:.1e}")
