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
# A time step whose logarithm and inverse are finite, and which adds nothing to a state.
LEAST = 2**-60
# Of half precision nothing shows by what a quick exponential is less precise.
FAST_MATH = {tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True}


@T.macro
def scan_rows(x, b, c, scores, decays, state, y, tiles):
    """Rows of a chunk, and the state behind it. Of decays (2, chunk) and scores[i, j] = c[i] . b[j]
    for j <= i, else 0, y[i] is

    2 ** decays[0, i] c[i]^T state + sum over j <= i of 2 ** (decays[0, i] - decays[1, j])
    scores[i, j] x[j].

    state_shared is a copy of the state, in front of the chunk."""
    weights, state_shared, scaled = tiles
    (chunk, width), (d_state, _) = x.shape, state.shape
    T.gemm(c, state_shared, y, clear_accum=True)
    for i, j in T.Parallel(chunk, chunk):
        # Where j > i the exponent has no bound, and the score is zero.
        decay = T.exp2(T.min(decays[0, i] - decays[1, j], 100))
        weights[i, j] = scores[i, j] * decay
    for i, p in T.Parallel(chunk, width):
        y[i, p] *= T.exp2(decays[0, i])
    T.gemm(weights, x, y)
    total = decays[0, chunk - 1]
    for i, p in T.Parallel(chunk, width):
        scaled[i, p] = x[i, p] * T.exp2(total - decays[1, i])
    for s, p in T.Parallel(d_state, width):
        state[s, p] *= T.exp2(total)
    # A warp group has whole rows of the state.
    T.gemm(b, scaled, state, transpose_A=True, policy=T.GemmWarpPolicy.FullRow)


@T.macro
def sum_up_steps(dt, A, Decays, n, first, group):
    """What `chunk_decays` makes of chunk n of `group` heads. A block is at it."""
    chunk = Decays.shape[3]
    # A column more: the banks of a column's elements differ.
    by_rows = T.alloc_shared((chunk, group + 1), "float32")
    step = T.alloc_shared((group, chunk), "float32")
    decays = T.alloc_shared((group, chunk), "float32")
    rate = T.alloc_shared((group,), "float32")
    # Rows behind the end are zero: they take no time.
    T.copy(dt[n * chunk, first], by_rows[:, :group])
    T.copy(A[first], rate)
    for k, i in T.Parallel(group, chunk):
        step[k, i] = by_rows[i, k]
        decays[k, i] = LOG2_E * rate[k] * by_rows[i, k]
    T.cumsum(decays, dim=1)
    for k, i in T.Parallel(group, chunk):
        Decays[n, first + k, 0, i] = decays[k, i]
        Decays[n, first + k, 1, i] = decays[k, i] - T.log2(T.max(step[k, i], LEAST))


def chunk_decays(heads, chunk=CHUNK, group=64):
    """Decays (chunks, heads, 2, chunk) of dt (length, heads), none negative, and A (heads,), as
    binary logarithms: what rows of a chunk make of the state in front of it, and that less log2(dt)
    (of LEAST, where dt is less). Row j of a chunk adds
    2 ** (Decays[.., 0, i] - Decays[.., 1, j]) b[j] x[j]^T to the state behind its row i."""
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        dt: T.Tensor((length, heads), "float32"),
        A: T.Tensor((heads,), "float32"),
        Decays: T.Tensor((chunks, heads, 2, chunk), "float32"),
    ):
        with T.Kernel(T.ceildiv(heads, group), chunks, threads=256) as (bx, n):
            sum_up_steps(dt, A, Decays, n, bx * group, group)

    return main


def chunk_scores(chunk=CHUNK, d_state=STATE):
    """Scores[t, j] = C[t] . B[s] of row s = s0 + j <= t of the chunk that begins at s0, else 0: all
    heads share them."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        Scores: T.Tensor((length, chunk), "float16"),
    ):
        with T.Kernel(T.ceildiv(length, chunk), threads=128) as n:
            # The scan by roles may start: it waits where it begins.
            T.pdl_trigger()
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


def chunk_scan(heads, chunk=CHUNK, d_state=STATE, width=WIDTH):
    """y[t] = sum over s <= t of exp(a[s + 1] + .. + a[t]) (c[t] . b[s]) dt[s] x[s], where
    a[t] = A dt[t], of X (length, heads, width), B and C (length, d_state), which the heads share,
    and their `chunk_decays` and `chunk_scores`; and the state behind the end, (heads, d_state,
    width). A block has a head."""
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, width), "float16"),
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        Decays: T.Tensor((chunks, heads, 2, chunk), "float32"),
        Scores: T.Tensor((length, chunk), "float16"),
        Y: T.Tensor((length, heads, width), "float16"),
        Last: T.Tensor((heads, d_state, width), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, threads=128) as h:
            # The steps of a chunk wait for each other: a second block computes meanwhile.
            T.annotate_min_blocks_per_sm(2)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(224)
            x = T.alloc_shared((chunk, width), "float16")
            b = T.alloc_shared((chunk, d_state), "float16")
            c = T.alloc_shared((chunk, d_state), "float16")
            decays = T.alloc_shared((2, chunk), "float32")
            scores = T.alloc_shared((chunk, chunk), "float16")
            scaled = T.alloc_shared((chunk, width), "float16")
            y_shared = T.alloc_shared((chunk, width), "float16")
            state_shared = T.alloc_shared((d_state, width), "float16")
            state = T.alloc_fragment((d_state, width), "float32")
            y = T.alloc_fragment((chunk, width), "float32")
            weights = T.alloc_fragment((chunk, chunk), "float16")
            tiles = weights, state_shared, scaled
            T.clear(state)
            T.clear(state_shared)
            for n in T.Pipelined(chunks, num_stages=1):
                rows = slice(n * chunk, (n + 1) * chunk)
                T.copy(C[rows, :], c)
                T.copy(Decays[n, h, :, :], decays)
                T.copy(Scores[rows, :], scores)
                T.copy(X[rows, h, :], x)
                T.copy(B[rows, :], b)
                scan_rows(x, b, c, scores, decays, state, y, tiles)
                # The state's product runs meanwhile.
                T.copy(y, y_shared)
                T.copy(y_shared, Y[rows, h, :])
                T.copy(state, state_shared)
            T.copy(state, Last[h, :, :])

    return main


def prepare(x, dt, a, b, c, chunk=CHUNK, **options):
    """Decays and scores of all chunks, and room for Y and for the last state: zeros, the one behind
    an empty sequence."""
    (length, heads, width), d_state = x.shape, b.shape[1]
    decays = torch.empty(-(-length // chunk), heads, 2, chunk, device=x.device)
    scores = torch.empty(length, chunk, device=x.device, dtype=x.dtype)
    tilelang.compile(chunk_decays(heads, chunk), **options)(dt, a, decays)
    tilelang.compile(chunk_scores(chunk, d_state), **options)(b, c, scores)
    return decays, scores, torch.empty_like(x), torch.zeros(heads, d_state, width, device=x.device)


def forward(x, dt, a, b, c, chunk=CHUNK, **options):
    """Y and the last state."""
    (_, heads, width), d_state = x.shape, b.shape[1]
    decays, scores, y, last = prepare(x, dt, a, b, c, chunk, **options)
    kernel = tilelang.compile(chunk_scan(heads, chunk, d_state, width), **options)
    kernel(x, b, c, decays, scores, y, last)
    return y, last


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


def relative_error(form, length, heads, d_state, device="cpu"):
    """The larger of ||ours - reference|| / ||reference|| of Y and of the state."""
    torch.manual_seed(0)
    tensors = inputs(length, heads, d_state, device=device)
    return max(
        float((found.double() - wanted).norm() / wanted.norm())
        for found, wanted in zip(form(*tensors), reference(*tensors), strict=True)
    )


def check(form, description=__doc__, state=STATE, heads=1):
    """A form at the sizes of the command line; `state` and `heads` are those without a GPU."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--length", type=int, default=4096 if gpu else 140)
    parser.add_argument("--heads", type=int, default=80 if gpu else heads)
    parser.add_argument("--state", type=int, default=128 if gpu else state)
    arguments = parser.parse_args()
    sizes = arguments.length, arguments.heads, arguments.state
    error = relative_error(form, *sizes, "cuda" if gpu else "cpu")
    assert error < 5e-3, f"relative error {error:.1e}, wanted under 5e-3"
    print(f"length {arguments.length}, {arguments.heads} heads: relative error {error:.1e}")


if __name__ == "__main__":
    check(forward)
