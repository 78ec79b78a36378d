"""The recurrence of Mamba-3 (Lahoti et al. 2026) with one input and output, forward. Beside the
decays of Mamba-2 it has a trapezoidal rule, by which a row counts in two steps, and complex states:
rotations by angles of the data, which rotate the rows of B and C instead. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math

import torch
from chunk_scan import CHUNK, LOG2_E, STATE, WIDTH, scan_rows
from chunk_scan import inputs as inputs_of_mamba2

import tilelang
import tilelang.language as T


@T.macro
def decays_of(A, head, time, step, share, next_step, next_share, decays, own):
    """Of rows of a chunk: logarithms of the decays up to them, and of those divided by what they
    count in the rows that follow; and which part of that counts in the row itself."""
    for i in T.Parallel(*own.shape):
        counts = share[i] * step[i] + (1 - next_share[i]) * next_step[i]
        decays[0, i] = LOG2_E * A[head] * time[i]
        decays[1, i] = decays[0, i] - T.log2(counts)
        # Of no steps nothing.
        own[i] = share[i] * step[i] / T.max(counts, 1e-30)


@T.macro
def rotate(b, c, b_rotated, c_rotated, rates, step, angles, angle_before):
    """Rows of B and C in coordinates that rotate with the state, `angle_before` a chunk; it becomes
    that behind it."""
    chunk, half = angles.shape
    for i, m in T.Parallel(chunk, half):
        angles[i, m] = rates[i, m] * step[i]
    T.cumsum(angles, dim=0)
    for i, m in T.Parallel(chunk, half):
        angle = angle_before[m] + angles[i, m]
        cos, sin = T.cos(angle), T.sin(angle)
        b_rotated[i, m] = b[i, m] * cos + b[i, m + half] * sin
        b_rotated[i, m + half] = b[i, m + half] * cos - b[i, m] * sin
        c_rotated[i, m] = c[i, m] * cos + c[i, m + half] * sin
        c_rotated[i, m + half] = c[i, m + half] * cos - c[i, m] * sin
    for m in T.Parallel(half):
        # Angles stay small, so that they keep their digits.
        angle = angle_before[m] + angles[chunk - 1, m]
        angle_before[m] = angle - T.floor(angle / (2 * math.pi)) * (2 * math.pi)


@T.macro
def rotate_back(state, angle, Last, head):
    """The last state, from coordinates that rotate with it."""
    half, width = angle.shape[0], state.shape[1]
    for s, p in T.Parallel(half, width):
        cos, sin = T.cos(angle[s]), T.sin(angle[s])
        Last[head, s, p] = state[s, p] * cos - state[s + half, p] * sin
        Last[head, s + half, p] = state[s + half, p] * cos + state[s, p] * sin


def mamba3(heads, chunk=CHUNK, d_state=STATE, width=WIDTH, threads=128):
    """y[t] = c[t] . h[t] of the states

    h[t] = exp(A dt[t]) R[t] (h[t - 1] + (1 - share[t]) dt[t] b[t - 1] x[t - 1])
           + share[t] dt[t] b[t] x[t],

    where R[t] rotates the components n and n + d_state / 2 by the angle Angles[t, n] dt[t]. X is
    (length, heads, width), dt and Share (length, heads), A (heads,); the heads share B and C
    (length, d_state) and Angles (length, d_state / 2). The last state is (heads, d_state, width).
    A block has a head.

    In coordinates that rotate with the state, nothing rotates but B and C. There a row counts
    share[t] dt[t] in its own step, and (1 - share[t + 1]) dt[t + 1] more in all that follow."""
    length, half = T.dynamic("length"), d_state // 2

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, width), "float16"),
        dt: T.Tensor((length, heads), "float32"),
        Share: T.Tensor((length, heads), "float32"),
        A: T.Tensor((heads,), "float32"),
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        Angles: T.Tensor((length, half), "float32"),
        Y: T.Tensor((length, heads, width), "float16"),
        Last: T.Tensor((heads, d_state, width), "float32"),
    ):
        with T.Kernel(heads, threads=threads) as h:
            x = T.alloc_shared((chunk, width), "float16")
            b, c = (T.alloc_shared((chunk, d_state), "float16") for _ in range(2))
            b_rotated, c_rotated = (T.alloc_shared((chunk, d_state), "float16") for _ in range(2))
            rates, angles = (T.alloc_shared((chunk, half), "float32") for _ in range(2))
            angle_before = T.alloc_shared((half,), "float32")
            step = T.alloc_shared((chunk,), "float32")
            share = T.alloc_shared((chunk,), "float32")
            next_step = T.alloc_shared((chunk,), "float32")
            next_share = T.alloc_shared((chunk,), "float32")
            time = T.alloc_shared((chunk,), "float32")
            decays = T.alloc_shared((2, chunk), "float32")
            own = T.alloc_shared((chunk,), "float32")
            scaled = T.alloc_shared((chunk, width), "float16")
            y_shared = T.alloc_shared((chunk, width), "float16")
            state_shared = T.alloc_shared((d_state, width), "float16")
            products = T.alloc_fragment((chunk, chunk), "float32")
            scores = T.alloc_shared((chunk, chunk), "float16")
            weights = T.alloc_fragment((chunk, chunk), "float16")
            state = T.alloc_fragment((d_state, width), "float32")
            y = T.alloc_fragment((chunk, width), "float32")
            tiles = weights, state_shared, scaled
            T.clear(state)
            T.clear(state_shared)
            T.clear(angle_before)
            for n in T.Pipelined(T.ceildiv(length, chunk), num_stages=1):
                rows = slice(n * chunk, (n + 1) * chunk)
                following = slice(n * chunk + 1, (n + 1) * chunk + 1)
                # Rows behind the end are zero: they take no time.
                T.copy(dt[rows, h], step)
                T.copy(dt[following, h], next_step)
                T.copy(Share[rows, h], share)
                T.copy(Share[following, h], next_share)
                T.copy(Angles[n * chunk, 0], rates)
                T.copy(B[n * chunk, 0], b)
                T.copy(C[n * chunk, 0], c)
                T.copy(X[rows, h, :], x)
                T.cumsum(step, time, dim=0)
                decays_of(A, h, time, step, share, next_step, next_share, decays, own)
                rotate(b, c, b_rotated, c_rotated, rates, step, angles, angle_before)
                T.gemm(c_rotated, b_rotated, products, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    seen = T.if_then_else(i == j, own[i], T.if_then_else(i > j, 1.0, 0))
                    scores[i, j] = products[i, j] * seen
                scan_rows(x, b_rotated, c_rotated, scores, decays, state, y, tiles)
                T.copy(y, y_shared)
                T.copy(y_shared, Y[rows, h, :])
                T.copy(state, state_shared)
            rotate_back(state, angle_before, Last, h)

    return main


def inputs(length, heads, d_state=STATE, width=WIDTH, device="cpu"):
    """X, dt, Share, A, B, C and Angles."""
    x, dt, a, b, c = inputs_of_mamba2(length, heads, d_state, width, device)
    share = torch.rand(length, heads, device=device)
    return x, dt, share, a, b, c, 2 * torch.randn(length, d_state // 2, device=device)


def reference(x, dt, share, a, b, c, angles):
    """Y and the last state in float64, row by row, with states that rotate."""
    x, dt, share, a, b, c, angles = (t.double() for t in (x, dt, share, a, b, c, angles))
    half = b.shape[1] // 2
    state, out = torch.zeros(len(a), 2 * half, x.shape[2]).to(x), []
    for t in range(len(x)):
        if t:
            more = torch.einsum("h,s,hp->hsp", (1 - share[t]) * dt[t], b[t - 1], x[t - 1])
            angle = (dt[t][:, None] * angles[t])[..., None]
            first, second = (state + more).split(half, dim=1)
            state = (
                torch.cat(
                    (
                        first * angle.cos() - second * angle.sin(),
                        second * angle.cos() + first * angle.sin(),
                    ),
                    dim=1,
                )
                * (dt[t] * a).exp()[:, None, None]
            )
        state = state + torch.einsum("h,s,hp->hsp", share[t] * dt[t], b[t], x[t])
        out.append(torch.einsum("s,hsp->hp", c[t], state))
    return torch.stack(out), state


def relative_error(length, heads, d_state, device="cpu"):
    """The larger of ||ours - reference|| / ||reference|| of Y and of the state."""
    torch.manual_seed(0)
    tensors = inputs(length, heads, d_state, device=device)
    y = torch.empty_like(tensors[0])
    last = torch.empty(heads, d_state, WIDTH, device=device)
    tilelang.compile(mamba3(heads, d_state=d_state))(*tensors, y, last)
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
