"""Attention, its softmax kept up tile by tile of keys: compile it, check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504


@tilelang.jit(out_idx=[-1])
def flash_attention(
    batch, heads, length, dim, causal, block_M=128, block_N=64, num_stages=2, threads=128
):
    """softmax(Q K^T / sqrt(dim)) V of tensors (batch, length, heads, dim) in float16."""
    shape = (batch, length, heads, dim)
    scale = LOG2_E / dim**0.5

    @T.prim_func
    def main(
        Q: T.Tensor(shape, T.float16),
        K: T.Tensor(shape, T.float16),
        V: T.Tensor(shape, T.float16),
        Output: T.Tensor(shape, T.float16),
    ):
        with T.Kernel(T.ceildiv(length, block_M), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), T.float16)
            K_shared = T.alloc_shared((block_N, dim), T.float16)
            V_shared = T.alloc_shared((block_N, dim), T.float16)
            scores = T.alloc_fragment((block_M, block_N), T.float32)
            weights = T.alloc_fragment((block_M, block_N), T.float16)
            out = T.alloc_fragment((block_M, dim), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            row_max_before = T.alloc_fragment((block_M,), T.float32)
            rescale = T.alloc_fragment((block_M,), T.float32)
            tile_sum = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)

            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(out)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity(T.float32))
            last = T.min(length, (bx + 1) * block_M) if causal else length
            for k in T.Pipelined(T.ceildiv(last, block_N), num_stages=num_stages):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by, :], K_shared)
                T.gemm(
                    Q_shared,
                    K_shared,
                    scores,
                    transpose_B=True,
                    policy=T.GemmWarpPolicy.FullRow,
                    clear_accum=True,
                )
                for i, j in T.Parallel(block_M, block_N):
                    end = T.min(length, bx * block_M + i + 1) if causal else length
                    scores[i, j] = T.if_then_else(
                        k * block_N + j < end, scores[i, j], -T.infinity(T.float32)
                    )
                T.copy(row_max, row_max_before)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    rescale[i] = T.exp2((row_max_before[i] - row_max[i]) * scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2((scores[i, j] - row_max[i]) * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * rescale[i] + tile_sum[i]
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] = out[i, j] * rescale[i]
                T.copy(scores, weights)
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by, :], V_shared)
                T.gemm(weights, V_shared, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] = out[i, j] / row_sum[i]
            T.copy(out, Output[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def reference(q, k, v, causal):
    """The same in float64."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out.transpose(1, 2)


def relative_error(batch, heads, length, dim, causal, device, **tile):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    shape = (batch, length, heads, dim)
    q, k, v = (torch.randn(shape, device=device, dtype=torch.float16) for _ in range(3))
    found = flash_attention(batch, heads, length, dim, causal, **tile)(q, k, v)
    wanted = reference(q, k, v, causal)
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, help="positions of a sequence")
    arguments = parser.parse_args()
    gpu = torch.cuda.is_available()
    batch, heads, length = (4, 16, 4096) if gpu else (1, 1, 200)
    length = arguments.length or length
    for causal in (False, True):
        error = relative_error(batch, heads, length, 128, causal, "cuda" if gpu else "cpu")
        assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
        print(f"{batch} x {length} x {heads} x 128, causal {causal}: relative error {error:.1e}")
