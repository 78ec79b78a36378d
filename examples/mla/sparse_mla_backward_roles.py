"""Backward of attention over chosen rows of a latent cache (as in sparse_mla_backward.py) by a
schedule of four warp groups. One gathers rows. Two have the products of which the heads' gradients
come: the left one makes weights, the right one gradients of scores, and each has half of the
columns of dQ. The fourth makes the rows' gradients and adds them to dKV. These additions are most
of what the L2 cache has to do. So they have a group of their own, which goes on with them while the
others multiply. For Hopper. Check it against float64 autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from sparse_mla import gather
from sparse_mla_backward import add_rows, check, lines, rows_of, slopes, weights

import tilelang
import tilelang.language as T

# Rows of a tile, heads of a block.
TILE, HEADS = 64, 64
# Registers of a thread of each group. No instruction may take more than the 128 that a thread
# begins with.
REGISTERS = {"load": 24, "left": 192, "right": 192, "rows": 104}


def schedule():
    """Who does what, and what is passed on: a tile's rows, their rotated part, weights, gradients
    of scores."""
    users = {
        "kv_left": ["scores", "slopes", "left"],
        "kv_right": ["scores", "slopes", "right"],
        "k_rotated": ["scores", "rotated"],
    }
    tiles = T.WSScope(
        "tiles",
        {
            "load": [f"load_{rows}" for rows in users],
            "left": ["scores", "weights", "left"],
            "right": ["slopes", "weigh", "right"],
            "rows": ["rotated", "add"],
        },
        [
            *(T.WSSync(f"load_{rows}", use, rows) for rows, uses in users.items() for use in uses),
            *(T.WSSync("weights", use, "p") for use in ("weigh", "add")),
            *(T.WSSync("weigh", use, "ds") for use in ("left", "rotated", "add")),
        ],
    )
    groups = ["left", "right", "rows"]
    whole = T.WSScope(
        None,
        {"load": ["load_q"], **{name: [f"begin_{name}", f"end_{name}"] for name in groups}},
        [T.WSSync("load_q", use, "q") for use in ("scores", "slopes", "add")],
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


@T.macro
def row_products(p, do, ds, q, first, dkv):
    """The gradients of a tile's rows, in the columns from `first` on."""
    piece = slice(first, first + dkv.shape[1])
    T.gemm(p, do[:, piece], dkv, transpose_A=True, clear_accum=True)
    T.gemm(ds, q[:, piece], dkv, transpose_A=True)


def sparse_mla_backward(heads, latent=512, rotated=64, dtype=T.bfloat16):
    """dQ and dKV as in sparse_mla_backward.py. The rows' gradients are computed `rotated` columns
    at a time, a multiple of 16 that divides `latent`, a multiple of 32."""
    queries, length, chosen = T.dynamic("queries, length, chosen")
    if latent % rotated or latent % 32 or rotated % 16:
        raise ValueError(
            f"found latent {latent}, rotated {rotated}, wanted a multiple of 16 as rotated, and a "
            "multiple of it and of 32 as latent"
        )
    scale, plan = (latent + rotated) ** -0.5, schedule()
    # The columns of a group's dQ are two pieces, those of the rows' gradients `rotated` each.
    halves = [slice(0, latent // 2), slice(latent // 2, latent)]
    quarters = [slice(n * latent // 4, (n + 1) * latent // 4) for n in range(4)]

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
        T.annotate_pass_configs({tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
        with T.Kernel(T.ceildiv(heads, HEADS), queries, threads=32 * plan.num_warps) as (bx, query):
            T.annotate_ws_schedule(plan)
            q, do = [T.alloc_shared((HEADS, latent), dtype) for _ in range(2)]
            q_rotated = T.alloc_shared((HEADS, rotated), dtype)
            kv = [T.alloc_shared((TILE, latent // 2), dtype) for _ in halves]
            k_rotated = T.alloc_shared((TILE, rotated), dtype)
            p_shared, ds_shared = [T.alloc_shared((HEADS, TILE), dtype) for _ in range(2)]
            p_right = T.alloc_fragment((HEADS, TILE), dtype)
            p, ds = [T.alloc_fragment((HEADS, TILE), T.float32) for _ in range(2)]
            log_sum, delta = [T.alloc_fragment((HEADS,), T.float32) for _ in range(2)]
            dq = [T.alloc_fragment((HEADS, latent // 4), T.float32) for _ in quarters]
            dq_rotated = T.alloc_fragment((HEADS, rotated), T.float32)
            row = T.alloc_fragment((TILE,), T.int32)
            dkv = T.alloc_fragment((TILE, rotated), T.float32)
            by_lines = T.alloc_fragment((TILE, rotated), T.float32)
            T.annotate_layout({by_lines: lines(by_lines)})
            here = slice(bx * HEADS, (bx + 1) * HEADS)
            with T.ws_op("load_q"):
                T.copy(Q[query, here, :latent], q)
                T.copy(Q[query, here, latent:], q_rotated)
                T.copy(dO[query, here, :], do)
            for g, (name, of_heads, own) in enumerate(
                [("left", LogSum, log_sum), ("right", Delta, delta)]
            ):
                with T.ws_op(f"begin_{name}"):
                    T.copy(of_heads[query, here], own)
                    T.clear(dq[2 * g])
                    T.clear(dq[2 * g + 1])
            with T.ws_op("begin_rows"):
                T.clear(dq_rotated)
            for t in T.serial(T.ceildiv(chosen, TILE), annotations={T.WSID: "tiles"}):
                for g, name in enumerate(["left", "right"]):
                    with T.ws_op(f"load_kv_{name}"):
                        gather(KV, Chosen, query, kv[g], t * TILE, halves[g])
                with T.ws_op("load_k_rotated"):
                    gather(KV, Chosen, query, k_rotated, t * TILE, slice(latent, latent + rotated))
                with T.ws_op("scores"):
                    T.clear(p)
                    for half, tile in zip(halves, kv, strict=True):
                        T.gemm(q[:, half], tile, p, transpose_B=True)
                    T.gemm(q_rotated, k_rotated, p, transpose_B=True)
                with T.ws_op("weights"):
                    weights(p, log_sum, scale)
                    T.copy(p, p_shared)
                with T.ws_op("slopes"):
                    T.clear(ds)
                    for half, tile in zip(halves, kv, strict=True):
                        T.gemm(do[:, half], tile, ds, transpose_B=True)
                with T.ws_op("weigh"):
                    T.copy(p_shared, p_right)
                    slopes(p_right, ds, delta, scale, chosen - t * TILE)
                    T.copy(ds, ds_shared)
                for g, name in enumerate(["left", "right"]):
                    with T.ws_op(name):
                        for n in (2 * g, 2 * g + 1):
                            part = slice(n % 2 * latent // 4, (n % 2 + 1) * latent // 4)
                            T.gemm(ds_shared, kv[g][:, part], dq[n])
                with T.ws_op("rotated"):
                    T.gemm(ds_shared, k_rotated, dq_rotated)
                with T.ws_op("add"):
                    rows_of(Chosen, query, t * TILE, row)
                    T.gemm(ds_shared, q_rotated, dkv, transpose_A=True, clear_accum=True)
                    add_rows(dKV, row, latent, dkv, by_lines)
                    for first in range(0, latent - rotated, rotated):
                        row_products(p_shared, do, ds_shared, q, first, dkv)
                        add_rows(dKV, row, first, dkv, by_lines)
                    # The next tile's weights are made beside the last addition.
                    row_products(p_shared, do, ds_shared, q, latent - rotated, dkv)
                    add_rows(dKV, row, latent - rotated, dkv, by_lines)
            for g, name in enumerate(["left", "right"]):
                with T.ws_op(f"end_{name}"):
                    for n in (2 * g, 2 * g + 1):
                        T.copy(dq[n], dQ[query, here, quarters[n]])
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
    check(kernel, *shape, device="cuda" if gpu else "cpu")
