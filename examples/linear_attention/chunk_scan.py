"""The chunk scan of Mamba-2 (Dao and Gu 2024, state space duality), forward: inside of a chunk a
product weighted by decays, between chunks a state. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math

import torch

import tilelang
import tilelang.language as T

CHUNK, STATE, WIDTH = 64, 32, 64
LOG2_E = math.log2(math.e)


@T.macro
def decays(step, rate, time, log_decay, before):
    """Of the time steps of a chunk: log_decay[i], the binary logarithm of what the state in front
    of the chunk has decayed by after row i, and before[j] = log_decay[j] - log2(step[j]). By
    2 ** (log_decay[i] - before[j]) row j counts in row i."""
    (chunk,) = step.shape
    T.cumsum(step, time, dim=0)
    for i in T.Parallel(chunk):
        log_decay[i] = LOG2_E * rate * time[i]
        before[i] = LOG2_E * rate * time[i] - T.log2(step[i])


@T.macro
def scan_rows(x, b, c, scores, log_decay, before, own, state, y, tiles):
    """Rows of a chunk, and the state behind it, of scores[i, j] = c[i] . b[j] for j <= i, else 0,
    and of state_shared, the state in front of it: y[i] is

    2 ** log_decay[i] c[i]^T state + sum over j <= i of 2 ** (log_decay[i] - before[j]) scores[i, j] x[j].

    If there is `own`, 2 ** own[i] is what row i counts in itself."""
    weights, state_shared, scaled = tiles
    (chunk, width), (d_state, _) = x.shape, state.shape
    T.gemm(c, state_shared, y, clear_accum=True)
    for i, j in T.Parallel(chunk, chunk):
        exponent = log_decay[i] - before[j]
        if own is not None:
            exponent = T.if_then_else(i == j, own[j], exponent)
        # Where j > i it may overflow, and the score is zero.
        weights[i, j] = scores[i, j] * T.exp2(T.min(exponent, 100))
    for i, p in T.Parallel(chunk, width):
        y[i, p] *= T.exp2(log_decay[i])
    T.gemm(weights, x, y)
    total = log_decay[chunk - 1]
    for i, p in T.Parallel(chunk, width):
        scaled[i, p] = x[i, p] * T.exp2(total - before[i])
    for s, p in T.Parallel(d_state, width):
        state[s, p] *= T.exp2(total)
    T.gemm(b, scaled, state, transpose_A=True)


def chunk_scores(chunk=CHUNK, d_state=STATE):
    """Scores[t, j] = C[t] . B[s] of the rows s = s0 + j <= t of the chunk that begins at s0, else 0:
    all heads share them."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        Scores: T.Tensor((length, chunk), "float16"),
    ):
        with T.Kernel(T.ceildiv(length, chunk), threads=128) as n:
            b = T.alloc_shared((chunk, d_state), "float16")
            c = T.alloc_shared((chunk, d_state), "float16")
            scores = T.alloc_fragment((chunk, chunk), "float32")
            T.copy(B[n * chunk, 0], b)
            T.copy(C[n * chunk, 0], c)
            T.gemm(c, b, scores, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(chunk, chunk):
                scores[i, j] = T.if_then_else(i >= j, scores[i, j], 0)
            T.copy(scores, Scores[n * chunk, 0])

    return main


def chunk_scan(heads, chunk=CHUNK, d_state=STATE, width=WIDTH, threads=128):
    """y[t] = sum over s <= t of exp(a[s + 1] + .. + a[t]) (c[t] . b[s]) dt[s] x[s], where
    a[t] = A dt[t], of X (length, heads, width), dt (length, heads), not negative, A (heads,), and B
    and C (length, d_state), which the heads share, and their `chunk_scores`; and the state behind
    the end, (heads, d_state, width). A block has a head."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, width), "float16"),
        dt: T.Tensor((length, heads), "float32"),
        A: T.Tensor((heads,), "float32"),
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        Scores: T.Tensor((length, chunk), "float16"),
        Y: T.Tensor((length, heads, width), "float16"),
        Last: T.Tensor((heads, d_state, width), "float32"),
    ):
        # Of half precision nothing shows by what a quick exponential is less precise.
        T.annotate_pass_configs({tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
        with T.Kernel(heads, threads=threads) as h:
            # The steps of a chunk wait for each other: a second block computes meanwhile.
            T.annotate_min_blocks_per_sm(2)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(224)
            x = T.alloc_shared((chunk, width), "float16")
            b = T.alloc_shared((chunk, d_state), "float16")
            c = T.alloc_shared((chunk, d_state), "float16")
            scores = T.alloc_shared((chunk, chunk), "float16")
            first = T.alloc_shared((chunk,), "float32")
            step = T.alloc_shared((chunk,), "float32")
            time = T.alloc_shared((chunk,), "float32")
            log_decay = T.alloc_shared((chunk,), "float32")
            before = T.alloc_shared((chunk,), "float32")
            scaled = T.alloc_shared((chunk, width), "float16")
            y_shared = T.alloc_shared((chunk, width), "float16")
            state_shared = T.alloc_shared((d_state, width), "float16")
            weights = T.alloc_fragment((chunk, chunk), "float16")
            state = T.alloc_fragment((d_state, width), "float32")
            y = T.alloc_fragment((chunk, width), "float32")
            tiles = weights, state_shared, scaled
            T.annotate_ws_pipeline_depth({x: 2, step: 2})
            T.clear(state)
            T.clear(state_shared)
            # Rows behind the end are zero: they take no time.
            T.copy(dt[:chunk, h], first)
            decays(first, A[h], time, log_decay, before)
            for n in T.Pipelined(T.ceildiv(length, chunk), num_stages=1):
                rows = slice(n * chunk, (n + 1) * chunk)
                following = slice((n + 1) * chunk, (n + 2) * chunk)
                T.copy(C[n * chunk, 0], c)
                T.copy(Scores[n * chunk, 0], scores)
                T.copy(X[rows, h, :], x)
                T.copy(B[n * chunk, 0], b)
                T.copy(dt[following, h], step)
                scan_rows(x, b, c, scores, log_decay, before, None, state, y, tiles)
                # Beside the product that makes the state: what needs no state.
                decays(step, A[h], time, log_decay, before)
                T.copy(y, y_shared)
                T.copy(y_shared, Y[rows, h, :])
                T.copy(state, state_shared)
            T.copy(state, Last[h, :, :])

    return main


def forward(x, dt, a, b, c, y, last, chunk=CHUNK, **target):
    """Y and the last state."""
    (_, heads, width), d_state = x.shape, b.shape[1]
    scores = torch.empty(len(x), chunk, device=x.device, dtype=x.dtype)
    tilelang.compile(chunk_scores(chunk, d_state), **target)(b, c, scores)
    kernel = tilelang.compile(chunk_scan(heads, chunk, d_state, width), **target)
    kernel(x, dt, a, b, c, scores, y, last)


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
    forward(*tensors, y, last)
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
