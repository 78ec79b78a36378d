"""The chunk scan of Mamba-2 (Dao and Gu 2024, state space duality), forward: inside of a chunk a
product weighted by decays, between chunks a state. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

CHUNK, STATE, WIDTH = 64, 32, 64


@T.macro
def scan_rows(x, b, c, time, before, own, rate, state, y, tiles):
    """Rows of a chunk, and the state behind it. With decay[i, j] = exp(rate (time[i] - time[j]))
    y[i] is exp(rate time[i]) c[i]^T state + (c[i] . b[i]) own[i] x[i] + the sum over j < i of
    decay[i, j] (c[i] . b[j]) before[j] x[j]."""
    scores, weights, state_shared, scaled = tiles
    (chunk, width), (d_state, _) = x.shape, state.shape
    # What the state before the chunk adds, and what the chunk itself does: its decays are a row
    # less a column.
    T.copy(state, state_shared)
    T.gemm(c, state_shared, y, clear_accum=True)
    T.gemm(c, b, scores, transpose_B=True, clear_accum=True)
    for i, p in T.Parallel(chunk, width):
        y[i, p] *= T.exp(rate * time[i])
    for i, j in T.Parallel(chunk, chunk):
        step = before[j] if own is before else T.if_then_else(i > j, before[j], own[j])
        weights[i, j] = T.if_then_else(
            i >= j, scores[i, j] * T.exp(rate * (time[i] - time[j])) * step, 0
        )
    T.gemm(weights, x, y)
    # The state behind it.
    total = time[chunk - 1]
    for i, p in T.Parallel(chunk, width):
        scaled[i, p] = x[i, p] * T.exp(rate * (total - time[i])) * before[i]
    for s, p in T.Parallel(d_state, width):
        state[s, p] *= T.exp(rate * total)
    T.gemm(b, scaled, state, transpose_A=True)


def chunk_scan(heads, chunk=CHUNK, d_state=STATE, width=WIDTH, threads=128):
    """y[t] = sum over s <= t of exp(a[s + 1] + .. + a[t]) (c[t] . b[s]) dt[s] x[s], where
    a[t] = A dt[t], of X (length, heads, width), dt (length, heads), A (heads,), and B and C
    (length, d_state), which the heads share; and the state behind the end, (heads, d_state, width).
    A block has a head."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, width), "float16"),
        dt: T.Tensor((length, heads), "float32"),
        A: T.Tensor((heads,), "float32"),
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        Y: T.Tensor((length, heads, width), "float16"),
        Last: T.Tensor((heads, d_state, width), "float32"),
    ):
        with T.Kernel(heads, threads=threads) as h:
            # The steps of a chunk wait for each other: a second block computes meanwhile.
            T.annotate_min_blocks_per_sm(2)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(224)
            x = T.alloc_shared((chunk, width), "float16")
            b = T.alloc_shared((chunk, d_state), "float16")
            c = T.alloc_shared((chunk, d_state), "float16")
            step = T.alloc_shared((chunk,), "float32")
            time = T.alloc_shared((chunk,), "float32")
            scaled = T.alloc_shared((chunk, width), "float16")
            y_shared = T.alloc_shared((chunk, width), "float16")
            state_shared = T.alloc_shared((d_state, width), "float16")
            scores = T.alloc_fragment((chunk, chunk), "float32")
            weights = T.alloc_fragment((chunk, chunk), "float16")
            state = T.alloc_fragment((d_state, width), "float32")
            y = T.alloc_fragment((chunk, width), "float32")
            tiles = scores, weights, state_shared, scaled
            T.clear(state)
            for n in T.Pipelined(T.ceildiv(length, chunk), num_stages=2):
                rows = slice(n * chunk, (n + 1) * chunk)
                # Rows behind the end are zero: they take no time.
                T.copy(dt[rows, h], step)
                T.copy(C[n * chunk, 0], c)
                T.copy(B[n * chunk, 0], b)
                T.copy(X[rows, h, :], x)
                T.cumsum(step, time, dim=0)
                scan_rows(x, b, c, time, step, step, A[h], state, y, tiles)
                T.copy(y, y_shared)
                T.copy(y_shared, Y[rows, h, :])
            T.copy(state, Last[h, :, :])

    return main


def inputs(length, heads, d_state=STATE, width=WIDTH, device="cpu"):
    """X, dt, A, B and C."""
    x = torch.randn(length, heads, width, device=device).half()
    b, c = ((torch.randn(length, d_state, device=device) / 4).half() for _ in range(2))
    return (
        x,
        torch.rand(length, heads, device=device),
        -torch.rand(heads, device=device) / 4,
        b,
        c,
    )


def reference(x, dt, a, b, c):
    """Y and the last state in float64, row by row."""
    x, dt, a, b, c = (t.double() for t in (x, dt, a, b, c))
    state, out = torch.zeros(len(a), b.shape[1], x.shape[2]).to(x), []
    for t in range(len(x)):
        state = state * (dt[t] * a).exp()[:, None, None]
        state = state + torch.einsum("h,s,hp->hsp", dt[t], b[t], x[t])
        out.append(torch.einsum("s,hsp->hp", c[t], state))
    return torch.stack(out), state


def relative_error(length, heads, d_state, device="cpu"):
    """The larger of ||ours - reference|| / ||reference|| of Y and of the state."""
    torch.manual_seed(0)
    tensors = inputs(length, heads, d_state, device=device)
    y = torch.empty_like(tensors[0])
    last = torch.empty(heads, d_state, WIDTH, device=device)
    tilelang.compile(chunk_scan(heads, d_state=d_state))(*tensors, y, last)
    return max(
        float((found.double() - wanted).norm() / wanted.norm())
        for found, wanted in zip((y, last), reference(*tensors), strict=True)
    )


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096 if gpu else 140)
    parser.add_argument("--heads", type=int, default=80 if gpu else 1)
    parser.add_argument("--state", type=int, default=128 if gpu else STATE)
    arguments = parser.parse_args()
    error = relative_error(
        arguments.length, arguments.heads, arguments.state, "cuda" if gpu else "cpu"
    )
    assert error < 5e-3, f"relative error {error:.1e}, wanted under 5e-3"
    print(f"length {arguments.length}, {arguments.heads} heads: relative error {error:.1e}")
