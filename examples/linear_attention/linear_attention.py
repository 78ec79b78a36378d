"""Causal attention without softmax: a chunk at a time, what is before it as one matrix. Check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-2, -1])
def linear_attention(
    batch, heads, length, dim, value_dim, chunk=64, block_V=64, num_stages=2, threads=128
):
    """Output (batch, length, heads, value_dim) of Q and K (batch, length, heads, dim) and V, and
    the state at the end, the sum of K^T V, (batch, heads, dim, value_dim) in float32. Row i of the
    output is Q[i] / sqrt(dim) times the state after row i."""
    shape, value_shape = (batch, length, heads, dim), (batch, length, heads, value_dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, T.bfloat16),
        K: T.Tensor(shape, T.bfloat16),
        V: T.Tensor(value_shape, T.bfloat16),
        Output: T.Tensor(value_shape, T.bfloat16),
        State: T.Tensor((batch, heads, dim, value_dim), T.float32),
    ):
        with T.Kernel(T.ceildiv(value_dim, block_V), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((chunk, dim), T.bfloat16)
            K_shared = T.alloc_shared((chunk, dim), T.bfloat16)
            V_shared = T.alloc_shared((chunk, block_V), T.bfloat16)
            scores = T.alloc_fragment((chunk, chunk), T.float32)
            scores_shared = T.alloc_shared((chunk, chunk), T.bfloat16)
            state = T.alloc_fragment((dim, block_V), T.float32)
            state_shared = T.alloc_shared((dim, block_V), T.bfloat16)
            out = T.alloc_fragment((chunk, block_V), T.float32)

            columns = slice(bx * block_V, (bx + 1) * block_V)
            T.clear(state)
            for c in T.Pipelined(T.ceildiv(length, chunk), num_stages=num_stages):
                T.copy(Q[bz, c * chunk : (c + 1) * chunk, by, :], Q_shared)
                T.copy(K[bz, c * chunk : (c + 1) * chunk, by, :], K_shared)
                T.copy(V[bz, c * chunk : (c + 1) * chunk, by, columns], V_shared)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    scores_shared[i, j] = T.if_then_else(i >= j, scores[i, j], 0)
                T.copy(state, state_shared)
                T.gemm(scores_shared, V_shared, out, clear_accum=True)
                T.gemm(Q_shared, state_shared, out)
                T.gemm(K_shared, V_shared, state, transpose_A=True)
                for i, j in T.Parallel(chunk, block_V):
                    out[i, j] = out[i, j] / dim**0.5
                T.copy(out, Output[bz, c * chunk : (c + 1) * chunk, by, columns])
            T.copy(state, State[bz, by, :, columns])

    return main


def reference(q, k, v):
    """The same in float64, all scores at once."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    out = (q @ k.transpose(-1, -2)).tril() @ v / q.shape[-1] ** 0.5
    return out.transpose(1, 2), k.transpose(-1, -2) @ v


def relative_error(batch, heads, length, dim, value_dim, device="cpu", **tile):
    """The larger of ||ours - reference|| / ||reference|| of the output and the state."""
    torch.manual_seed(0)
    shapes = [(batch, length, heads, d) for d in (dim, dim, value_dim)]
    tensors = [torch.randn(shape, device=device, dtype=torch.bfloat16) for shape in shapes]
    found = linear_attention(batch, heads, length, dim, value_dim, **tile)(*tensors)
    return max(
        float((x.double() - y).norm() / y.norm())
        for x, y in zip(found, reference(*tensors), strict=True)
    )


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096 if gpu else 200, help="positions")
    length = parser.parse_args().length
    batch, heads = (4, 16) if gpu else (1, 1)
    error = relative_error(batch, heads, length, 64, 128, "cuda" if gpu else "cpu")
    assert error < 8e-3, f"relative error {error:.1e}, wanted under 8e-3"
    print(f"{batch} x {length} x {heads} x 64: relative error {error:.1e}")
