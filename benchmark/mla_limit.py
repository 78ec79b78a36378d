"""What the chip allows decoding with latent attention: the products of mla.py's programs on a tile
of keys that stays in shared memory, alone and beside loads of all keys; no softmax, and no waiting
of one warp group for the other. The tensor cores are busy all the time there, at the clock that the
chip's power limit leaves them, which is lower on normal inputs than on zeros."""

import torch
from common import Row, example, main, norm_error
from mla import SIZES, flops, limit

import tilelang
import tilelang.language as T

DIM, ROPE, TILE, HEADS = 512, 64, 64, 64


@tilelang.jit(target={"kind": "cuda", "arch": "sm_90a"})
def products(batch, heads, length, dtype, loads):
    """For each step of two tiles of keys, a warp group's share of scores and results: the scores
    of one tile and its half of the results of both, the tile always being the first one, with Q's
    first columns for weights. Scores (batch, 2, heads, TILE), of each group, and Output (batch,
    heads, DIM) are float32 sums over the steps."""
    assert heads == 2 * HEADS, "two blocks share the loads of a token"
    assert length % (2 * TILE) == 0, "whole steps"
    half, steps = DIM // 2, length // (2 * TILE)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, DIM), dtype),
        Q_rope: T.Tensor((batch, heads, ROPE), dtype),
        KV: T.Tensor((batch, length, DIM), dtype),
        K_rope: T.Tensor((batch, length, ROPE), dtype),
    ):
        Scores = T.empty((batch, 2, heads, TILE), T.float32)
        Output = T.empty((batch, heads, DIM), T.float32)
        with T.Kernel(heads // HEADS, batch, threads=384) as (bx, by):
            tx = T.get_thread_binding()
            Q_shared = [T.alloc_shared((HEADS, half), dtype) for _ in "lr"]
            keys = [T.alloc_shared((TILE, half), dtype) for _ in "lr"]
            rope = T.alloc_shared((TILE, ROPE), dtype)
            weights_shared = [T.alloc_shared((HEADS, TILE), dtype) for _ in "ab"]
            # What nobody reads: half of two tiles, the other block of the token has the rest.
            loaded = T.alloc_shared((9, TILE, 64), dtype)
            asked, full = T.alloc_barrier(256), T.alloc_barrier(1)
            Q_rope_local = [T.alloc_fragment((HEADS, ROPE), dtype) for _ in "ab"]
            weights = [T.alloc_fragment((HEADS, TILE), dtype) for _ in "ab"]
            scores = [T.alloc_fragment((HEADS, TILE), T.float32) for _ in "ab"]
            out = [T.alloc_fragment((HEADS, half), T.float32) for _ in "lr"]

            rows = slice(bx * HEADS, (bx + 1) * HEADS)
            T.copy(K_rope[by, 0:TILE, :], rope)
            for g in T.unroll(2, explicit=True):
                columns = slice(g * half, (g + 1) * half)
                T.copy(Q[by, rows, columns], Q_shared[g])
                T.copy(Q[by, rows, g * TILE : (g + 1) * TILE], weights_shared[g])
                T.copy(KV[by, 0:TILE, columns], keys[g])
            T.fence_proxy_async()
            T.sync_threads()
            with T.ws(0):
                T.dec_max_nreg(24)
                for step in T.serial(steps if loads else 0):
                    T.barrier_wait(asked, step % 2)
                    for part in T.unroll(8, explicit=True):
                        first = (step * 2 + part // 4) * TILE
                        column = bx * half + part % 4 * 64
                        box = KV[by, first : first + TILE, column : column + 64]
                        T.tma_copy(box, loaded[part, :, :], barrier=full)
                    mine = (step * 2 + bx) * TILE
                    T.tma_copy(K_rope[by, mine : mine + TILE, :], loaded[8, :, :], barrier=full)
                    if tx == 0:
                        T.barrier_arrive(full)
            for g in T.unroll(2, explicit=True):
                with T.ws(1 + g):
                    T.inc_max_nreg(240)
                    T.copy(Q_rope[by, rows, :], Q_rope_local[g])
                    T.copy(Q[by, rows, g * TILE : (g + 1) * TILE], weights[g])
                    T.clear(scores[g])
                    T.clear(out[g])
                    for step in T.serial(steps):
                        if loads:
                            T.barrier_arrive(asked)
                        T.wgmma_gemm(Q_rope_local[g], rope, scores[g], transpose_B=True)
                        for h in T.unroll(2, explicit=True):
                            T.wgmma_gemm(Q_shared[h], keys[h], scores[g], transpose_B=True)
                        T.wgmma_gemm(weights[g], keys[g], out[g])
                        T.wgmma_gemm(weights_shared[1 - g], keys[g], out[g])
                        T.wait_wgmma(0)
                        if loads:
                            T.barrier_wait(full, step % 2)
                    T.copy(scores[g], Scores[by, g, rows, :])
                    T.copy(out[g], Output[by, rows, g * half : (g + 1) * half])
        return Scores, Output

    return main


def error(tensors, found):
    """The largest relative error of the first and the last token's sums."""
    Q, Q_rope, KV, K_rope = (x[:: max(1, len(x) - 1)].double() for x in tensors)
    steps, keys = tensors[2].shape[1] // (2 * TILE), KV[:, :TILE]
    scores = Q @ keys.mT + Q_rope @ K_rope[:, :TILE].mT
    weights = Q[:, :, :TILE] + Q[:, :, TILE : 2 * TILE]
    wanted = (torch.stack([scores, scores], dim=1), weights @ keys)
    last = max(1, len(tensors[0]) - 1)
    return max(norm_error(f[::last], w * steps) for f, w in zip(found, wanted, strict=True))


def row(name, loads, dtype, small, scale):
    """A program on normal inputs, or on zeros."""
    batch, heads, length = (1, 128, 512) if small else SIZES
    mla = example("mla_decode")

    def inputs(device):
        return [x * scale for x in mla.inputs(batch, heads, length, dtype=dtype, device=device)]

    def relative_error(tensors, found):
        # Zeros have to be zeros.
        return error(tensors, found) if scale else float(max(x.abs().max() for x in found))

    bound = torch.finfo(dtype.as_torch()).eps
    work = flops(batch, heads, length)
    return Row(
        name=f"{batch} x {heads} x {length} {dtype} {name}",
        program=products,
        arguments={"batch": batch, "heads": heads, "length": length, "dtype": dtype},
        config={"loads": loads},
        inputs=inputs,
        error=lambda tensors, found: (relative_error(tensors, found), bound),
        work=work,
        limit=lambda tensors: limit(work, tensors),
    )


def rows(small):
    """Both programs, on normal inputs and on zeros."""
    programs = [("products", False), ("products and loads", True)]
    return [
        row(name + ("" if scale else ", zeros"), loads, dtype, small, scale)
        for dtype in (T.float16, T.bfloat16)
        for scale in (1, 0)
        for name, loads in programs
    ]


if __name__ == "__main__":
    main(__doc__, rows)
