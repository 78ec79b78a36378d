"""Attention that leaves out the tiles of keys that a mask excludes: check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from flash_attention import LOG2_E, inputs, online_softmax

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def block_sparse_attention(
    batch, heads, length, dim, block_M=64, block_N=64, num_stages=2, threads=128
):
    """softmax(Q K^T / sqrt(dim)) V of tensors (batch, length, heads, dim) in float16, over the
    tiles of keys that mask (batch, heads, tiles of queries, tiles of keys) has, at least one for
    each."""
    shape = (batch, length, heads, dim)
    scale = LOG2_E / dim**0.5
    tiles = (T.ceildiv(length, block_M), T.ceildiv(length, block_N))

    @T.prim_func
    def main(
        Q: T.Tensor(shape, T.float16),
        K: T.Tensor(shape, T.float16),
        V: T.Tensor(shape, T.float16),
        mask: T.Tensor((batch, heads, *tiles), T.bool),
        Output: T.Tensor(shape, T.float16),
    ):
        with T.Kernel(tiles[0], heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), T.float16)
            K_shared = T.alloc_shared((block_N, dim), T.float16)
            V_shared = T.alloc_shared((block_N, dim), T.float16)
            scores = T.alloc_fragment((block_M, block_N), T.float32)
            weights = T.alloc_fragment((block_M, block_N), T.float16)
            out = T.alloc_fragment((block_M, dim), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)

            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(out)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity(T.float32))
            for k in T.Pipelined(tiles[1], num_stages=num_stages):
                if mask[bz, by, bx, k]:
                    T.copy(K[bz, k * block_N : (k + 1) * block_N, by, :], K_shared)
                    T.gemm(
                        Q_shared,
                        K_shared,
                        scores,
                        transpose_B=True,
                        policy=T.GemmWarpPolicy.FullRow,
                        clear_accum=True,
                    )
                    if (k + 1) * block_N > length:
                        for i, j in T.Parallel(block_M, block_N):
                            scores[i, j] = T.if_then_else(
                                k * block_N + j < length, scores[i, j], -T.infinity(T.float32)
                            )
                    online_softmax(scores, out, row_max, row_sum, scale)
                    T.copy(scores, weights)
                    T.copy(V[bz, k * block_N : (k + 1) * block_N, by, :], V_shared)
                    T.gemm(weights, V_shared, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] = out[i, j] / row_sum[i]
            T.copy(out, Output[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def reference(q, k, v, mask, block_M, block_N):
    """The same in float64."""
    length = q.shape[1]
    elements = mask.repeat_interleave(block_M, 2)[:, :, :length]
    elements = elements.repeat_interleave(block_N, 3)[..., :length]
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=elements)
    return out.transpose(1, 2)


def relative_error(
    batch, heads, length, dim, density, device="cpu", block_M=64, block_N=64, **tile
):
    """||ours - reference|| / ||reference|| where about a share `density` of the tiles is wanted."""
    torch.manual_seed(0)
    q, k, v = inputs(batch, heads, length, dim, device=device)
    rows, columns = -(-length // block_M), -(-length // block_N)
    mask = torch.rand(batch, heads, rows, columns, device=device) < density
    mask[..., 0] |= ~mask.any(-1)
    kernel = block_sparse_attention(
        batch, heads, length, dim, block_M=block_M, block_N=block_N, **tile
    )
    found = kernel(q, k, v, mask).double()
    wanted = reference(q, k, v, mask, block_M, block_N)
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096 if gpu else 200, help="positions")
    parser.add_argument("--density", type=float, default=0.4, help="share of tiles")
    arguments = parser.parse_args()
    batch, heads = (4, 16) if gpu else (1, 2)
    error = relative_error(
        batch, heads, arguments.length, 64, arguments.density, "cuda" if gpu else "cpu"
    )
    assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
    print(f"{batch} x {arguments.length} x {heads} x 64: relative error {error:.1e}")
