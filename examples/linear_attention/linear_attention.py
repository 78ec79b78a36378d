"""Causal attention without softmax: a chunk at a time, what is before it as one matrix. In
retention (Sun et al. 2023) it decays, by a rate of each head. Check both.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-2, -1])
def linear_attention(
    batch,
    heads,
    length,
    dim,
    value_dim,
    retention=False,
    scale=None,
    reverse=False,
    chunk=64,
    block_V=64,
    num_stages=2,
    threads=None,
):
    """Output (batch, length, heads, value_dim) of Q and K (batch, length, heads, dim) and V, and
    the state at the end, Initial plus the sum of K^T V, (batch, heads, dim, value_dim) in float32.
    Row i of the output is Q[i] times the state after row i and `scale`, which is 1 / sqrt(dim).
    With `retention` head h's state is multiplied by 1 - 2^(-5 - h) from row to row. With `reverse`
    rows come from the last to the first, as in gradients."""
    shape, value_shape = (batch, length, heads, dim), (batch, length, heads, value_dim)
    state_shape, scale = (batch, heads, dim, value_dim), scale or dim**-0.5
    # The state and the output have the registers of their threads.
    threads = threads or (128 if dim <= 64 else 256)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, T.bfloat16),
        K: T.Tensor(shape, T.bfloat16),
        V: T.Tensor(value_shape, T.bfloat16),
        Initial: T.Tensor(state_shape, T.float32),
        Output: T.Tensor(value_shape, T.bfloat16),
        State: T.Tensor(state_shape, T.float32),
    ):
        with T.Kernel(T.ceildiv(value_dim, block_V), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((chunk, dim), T.bfloat16)
            K_shared = T.alloc_shared((chunk, dim), T.bfloat16)
            V_shared = T.alloc_shared((chunk, block_V), T.bfloat16)
            V_decayed = T.alloc_shared((chunk, block_V), T.bfloat16) if retention else V_shared
            scores = T.alloc_fragment((chunk, chunk), T.float32)
            scores_shared = T.alloc_shared((chunk, chunk), T.bfloat16)
            state = T.alloc_fragment((dim, block_V), T.float32)
            state_shared = T.alloc_shared((dim, block_V), T.bfloat16)
            out = T.alloc_fragment((chunk, block_V), T.float32)

            columns = slice(bx * block_V, (bx + 1) * block_V)
            rate = T.log2(1 - T.exp2(-5.0 - by))
            tiles = T.ceildiv(length, chunk)
            T.copy(Initial[bz, by, :, columns], state)
            for step in T.Pipelined(tiles, num_stages=num_stages):
                c = tiles - 1 - step if reverse else step
                T.copy(Q[bz, c * chunk : (c + 1) * chunk, by, :], Q_shared)
                T.copy(K[bz, c * chunk : (c + 1) * chunk, by, :], K_shared)
                T.copy(V[bz, c * chunk : (c + 1) * chunk, by, columns], V_shared)
                T.copy(state, state_shared)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, clear_accum=True)
                T.gemm(Q_shared, state_shared, out, clear_accum=True)
                # How far rows are from the state before the chunk, and from the one behind it.
                rows = T.min(chunk, length - c * chunk)
                if retention:
                    for i, j in T.Parallel(chunk, block_V):
                        out[i, j] *= T.exp2(rate * (rows - i if reverse else i + 1))
                    for i, j in T.Parallel(chunk, block_V):
                        V_decayed[i, j] = V_shared[i, j] * T.exp2(
                            rate * (i if reverse else rows - 1 - i)
                        )
                    for i, j in T.Parallel(dim, block_V):
                        state[i, j] *= T.exp2(rate * rows)
                    for i, j in T.Parallel(chunk, chunk):
                        scores[i, j] *= T.exp2(rate * T.abs(i - j))
                for i, j in T.Parallel(chunk, chunk):
                    seen = i <= j if reverse else i >= j
                    scores_shared[i, j] = T.if_then_else(seen, scores[i, j], 0)
                T.gemm(scores_shared, V_shared, out)
                T.gemm(K_shared, V_decayed, state, transpose_A=True)
                for i, j in T.Parallel(chunk, block_V):
                    out[i, j] = out[i, j] * scale
                T.copy(out, Output[bz, c * chunk : (c + 1) * chunk, by, columns])
            T.copy(state, State[bz, by, :, columns])

    return main


def decays(heads, retention=True, device="cpu"):
    """What the states of heads are multiplied by from row to row, in float64."""
    head = torch.arange(heads, dtype=torch.float64, device=device)
    return 1 - torch.exp2(-5 - head) if retention else torch.ones_like(head)


def reference(q, k, v, initial, retention=False):
    """The same in float64, all scores at once."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    length, decay = q.shape[2], decays(q.shape[1], retention, q.device)[:, None]
    row = torch.arange(length, dtype=torch.float64, device=q.device)
    mask = (decay[..., None] ** (row[:, None] - row).clamp(min=0)).tril()
    before = q * (decay ** (row + 1))[..., None] @ initial.double()
    out = (q @ k.transpose(-1, -2) * mask @ v + before) / q.shape[-1] ** 0.5
    ends = (decay ** (length - 1 - row))[..., None]
    state = (decay**length)[..., None] * initial.double() + k.transpose(-1, -2) @ (v * ends)
    return out.transpose(1, 2), state


def inputs(batch, heads, length, dim, value_dim, device="cpu"):
    """Q, K, V and an initial state."""
    shapes = [(batch, length, heads, d) for d in (dim, dim, value_dim)]
    tensors = [torch.randn(shape, device=device, dtype=torch.bfloat16) for shape in shapes]
    return *tensors, torch.randn(batch, heads, dim, value_dim, device=device)


def relative_error(batch, heads, length, dim, value_dim, retention=False, device="cpu", **tile):
    """The larger of ||ours - reference|| / ||reference|| of the output and the state."""
    torch.manual_seed(0)
    tensors = inputs(batch, heads, length, dim, value_dim, device)
    found = linear_attention(batch, heads, length, dim, value_dim, retention, **tile)(*tensors)
    return max(
        float((x.double() - y).norm() / y.norm())
        for x, y in zip(found, reference(*tensors, retention), strict=True)
    )


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096 if gpu else 200, help="positions")
    length = parser.parse_args().length
    batch, heads = (4, 16) if gpu else (1, 2)
    for retention in (False, True):
        error = relative_error(batch, heads, length, 64, 128, retention, "cuda" if gpu else "cpu")
        assert error < 8e-3, f"relative error {error:.1e}, wanted under 8e-3"
        name = "retention" if retention else "linear attention"
        print(f"{name}, {batch} x {length} x {heads} x 64: relative error {error:.1e}")
