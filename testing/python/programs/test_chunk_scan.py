"""The chunk scan of Mamba-2 (Dao and Gu 2024, state space duality), forward: inside of a chunk a
product weighted by decays, between chunks a state."""

import pytest
import torch

import tilelang
import tilelang.language as T

CHUNK, STATE, WIDTH = 64, 32, 64


def chunk_scan(heads):
    """y[t] = sum over s <= t of exp(a[s + 1] + .. + a[t]) (c[t] . b[s]) dt[s] x[s]."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, WIDTH), "float16"),
        dt: T.Tensor((length, heads), "float32"),
        A: T.Tensor((heads,), "float32"),
        B: T.Tensor((length, STATE), "float16"),
        C: T.Tensor((length, STATE), "float16"),
        Y: T.Tensor((length, heads, WIDTH), "float16"),
        Last: T.Tensor((heads, STATE, WIDTH), "float32"),
    ):
        with T.Kernel(heads, threads=128) as h:
            x = T.alloc_shared((CHUNK, WIDTH), "float16")
            b = T.alloc_shared((CHUNK, STATE), "float16")
            c = T.alloc_shared((CHUNK, STATE), "float16")
            scaled = T.alloc_shared((CHUNK, STATE), "float16")
            state_shared = T.alloc_shared((STATE, WIDTH), "float16")
            step = T.alloc_fragment((CHUNK,), "float32")
            sums = T.alloc_fragment((CHUNK,), "float32")
            sums_shared = T.alloc_shared((CHUNK,), "float32")
            scores = T.alloc_fragment((CHUNK, CHUNK), "float32")
            weights = T.alloc_fragment((CHUNK, CHUNK), "float16")
            state = T.alloc_fragment((STATE, WIDTH), "float32")
            y = T.alloc_fragment((CHUNK, WIDTH), "float32")
            T.clear(state)
            for n in T.Pipelined(T.ceildiv(length, CHUNK), num_stages=2):
                T.copy(X[n * CHUNK : (n + 1) * CHUNK, h, :], x)
                T.copy(B[n * CHUNK, 0], b)
                T.copy(C[n * CHUNK, 0], c)
                for i in T.Parallel(CHUNK):
                    step[i] = T.if_then_else(n * CHUNK + i < length, dt[n * CHUNK + i, h], 0)
                for i in T.Parallel(CHUNK):
                    sums[i] = step[i] * A[h]
                T.cumsum(sums, dim=0)
                # What the state before the chunk adds.
                T.copy(state, state_shared)
                T.gemm(c, state_shared, y, clear_accum=True)
                for i, p in T.Parallel(CHUNK, WIDTH):
                    y[i, p] *= T.exp(sums[i])
                # What the chunk itself does: its decays are a row less a column.
                T.gemm(c, b, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(CHUNK, CHUNK):
                    weights[i, j] = T.if_then_else(
                        i >= j, scores[i, j] * T.exp(sums[i] - sums[j]) * step[j], 0
                    )
                T.gemm(weights, x, y)
                T.copy(y, Y[n * CHUNK : (n + 1) * CHUNK, h, :])
                # The state behind it.
                T.copy(sums, sums_shared)
                for i, s in T.Parallel(CHUNK, STATE):
                    scaled[i, s] = b[i, s] * T.exp(sums_shared[CHUNK - 1] - sums[i]) * step[i]
                for s, p in T.Parallel(STATE, WIDTH):
                    state[s, p] *= T.exp(sums_shared[CHUNK - 1])
                T.gemm(scaled, x, state, transpose_A=True)
            T.copy(state, Last[h, :, :])

    return main


def reference(x, dt, a, b, c):
    x, dt, a, b, c = (t.double() for t in (x, dt, a, b, c))
    state, out = torch.zeros(len(a), STATE, WIDTH, dtype=torch.float64, device=x.device), []
    for t in range(len(x)):
        state = state * (dt[t] * a).exp()[:, None, None]
        state = state + torch.einsum("h,s,hp->hsp", dt[t], b[t], x[t])
        out.append(torch.einsum("s,hsp->hp", c[t], state))
    return torch.stack(out), state


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    heads = 2
    kernel = tilelang.compile(
        chunk_scan(heads), execution_backend="auto", target=f"cuda -arch={arch}"
    )
    for length in (5, 2 * CHUNK + 11):
        x = torch.randn(length, heads, WIDTH).half().to(device)
        b, c = ((torch.randn(length, STATE) / 4).half().to(device) for _ in range(2))
        dt, a = torch.rand(length, heads, device=device), -torch.rand(heads, device=device) / 4
        y = torch.full((length, heads, WIDTH), torch.nan, dtype=torch.float16, device=device)
        last = torch.full((heads, STATE, WIDTH), torch.nan, device=device)
        kernel(x, dt, a, b, c, y, last)
        wanted, state = reference(x, dt, a, b, c)
        torch.testing.assert_close(y.double(), wanted, rtol=5e-3, atol=1e-2)
        torch.testing.assert_close(last.double(), state, rtol=5e-3, atol=1e-2)
