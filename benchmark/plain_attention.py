"""Attention as it is written for the first time: forward, full and causal."""

import torch
from plain_case import BFLOAT16, FAST_MATH, Plain, Problem, named, normal, steps
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilelang.language as T

BATCH, HEADS, LENGTH = 2, 32, 4096
LOG2_E = 1.44269504


def attention(
    heads, length, dim, causal, tile, stages, threads, form="", batch=BATCH, dtype="bfloat16"
):
    """softmax(Q K^T / sqrt(dim)) V, a block for a tile of rows; of a `form`, the weights go through
    shared memory, or the call decides the length."""
    block_M, block_N = tile
    if form == "of any length":
        length = T.dynamic("length")
    scale = LOG2_E / dim**0.5
    shape = (batch, length, heads, dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        Output: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(length, block_M), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), T.float32)
            alloc_weights = T.alloc_shared if form == "shared weights" else T.alloc_fragment
            weights = alloc_weights((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            before = T.alloc_fragment((block_M,), T.float32)
            rescale = T.alloc_fragment((block_M,), T.float32)
            tile_sum = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)

            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(out)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity(T.float32))
            seen = (bx + 1) * block_M if causal else length
            for k in steps(T.ceildiv(seen, block_N), stages):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by, :], K_shared)
                if causal:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(
                            bx * block_M + i >= k * block_N + j, 0, -T.infinity(T.float32)
                        )
                else:
                    T.clear(scores)
                T.gemm(
                    Q_shared,
                    K_shared,
                    scores,
                    transpose_B=True,
                    policy=T.GemmWarpPolicy.FullRow,
                )
                T.copy(row_max, before)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    rescale[i] = T.exp2(before[i] * scale - row_max[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(scores[i, j] * scale - row_max[i] * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * rescale[i] + tile_sum[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] *= rescale[i]
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by, :], V_shared)
                T.gemm(weights, V_shared, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] /= row_sum[i]
            T.copy(out, Output[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


FASTEST_FIRST = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]


def problem(dim, causal):
    """Heads of so many numbers."""
    shape = (BATCH, LENGTH, HEADS, dim)

    def torch_attention(q, k, v):
        with sdpa_kernel(FASTEST_FIRST, set_priority=True):
            return torch.nn.functional.scaled_dot_product_attention(
                *(x.transpose(1, 2) for x in (q, k, v)), is_causal=causal
            ).transpose(1, 2)

    def corners(x):
        """The first head of the first sequence and the last one of the last."""
        return torch.stack([x[0, :, 0], x[-1, :, -1]])

    def reference(q, k, v):
        q, k, v = (corners(x).double() for x in (q, k, v))
        scores = q @ k.transpose(1, 2) / dim**0.5
        if causal:
            later = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
            scores.masked_fill_(later, -torch.inf)
        return scores.softmax(-1) @ v

    return Problem(
        lambda device: [normal(*shape, device=device, dtype=BFLOAT16) for _ in range(3)],
        torch_attention,
        4.0 * BATCH * HEADS * LENGTH**2 * dim * (0.5 if causal else 1.0),
        1e-2,
        reference=reference,
        part=corners,
    )


def cases():
    """By heads, tiles and stages."""
    for dim, causal, tile, stages, threads, *form in [
        (128, False, (64, 64), 1, 128),
        (128, False, (64, 64), 2, 128),
        (128, False, (128, 64), 2, 128),
        (128, False, (128, 64), 2, 256),
        (128, False, (128, 128), 1, 256),
        (128, False, (128, 128), 2, 256),
        (128, False, (128, 128), 2, 128),
        (128, False, (128, 128), 0, 256),
        (128, True, (64, 64), 1, 128),
        (128, True, (128, 64), 2, 256),
        (128, True, (128, 128), 1, 128),
        (128, True, (128, 128), 1, 256),
        (128, True, (128, 128), 2, 256),
        (64, False, (64, 64), 1, 128),
        (64, False, (128, 128), 2, 256),
        (64, True, (64, 64), 1, 128),
        (64, True, (128, 64), 2, 128),
        (64, True, (128, 128), 2, 256),
        (64, True, (64, 64), 0, 128),
        (256, False, (64, 64), 1, 128),
        (256, False, (128, 64), 2, 256),
        (256, True, (128, 64), 1, 256),
        (128, False, (128, 64), 2, 256, "shared weights"),
        (128, True, (64, 64), 2, 128, "shared weights"),
        (128, False, (128, 64), 2, 256, "of any length"),
        (64, True, (128, 64), 2, 256, "of any length"),
    ]:
        what = f"attention {'causal' if causal else 'full'} d{dim}"
        options = {"heads": HEADS, "length": LENGTH, "dim": dim, "causal": causal}
        options |= {"tile": tile, "stages": stages, "threads": threads, "form": "".join(form)}
        yield Plain(
            named(what, tile, stages, threads, *form),
            problem(dim, causal),
            attention,
            options,
            pass_configs=FAST_MATH,
        )
