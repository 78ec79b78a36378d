"""The gradients of Mamba-2's chunk scan (Dao and Gu 2024, "Transformers are SSMs", section 6: the
chunks of the forward pass, in reverse). The states in front of all chunks and the gradients of
those behind them come first; then each chunk is on its own. Check them against float64 autograd.

Of a head in a chunk, with rows i and j from 0, a[i] = A dt[i], the running sum l of a, and its last
element t, the forward pass is

    y[i] = exp(l[i]) c[i]^T S + sum over j <= i of exp(l[i] - l[j]) (c[i] . b[j]) dt[j] x[j],
    S'   = exp(t) S + sum over j of exp(t - l[j]) dt[j] b[j] x[j]^T.

Let G be the gradient of S', and P[i, j] = dy[i] . x[j]. With M[i, j] = exp(l[i] - l[j]) for j <= i,
else 0, and s[i, j] = c[i] . b[j], the product rule gives

    gradient of S:  exp(t) G + sum over i of exp(l[i]) c[i] dy[i]^T,
    z[j]  = exp(t - l[j]) G^T b[j] + sum over i of M[i, j] s[i, j] dy[i],
    dx[j] = dt[j] z[j],
    dc[i] = sum over heads of exp(l[i]) S dy[i] + sum over j of M[i, j] dt[j] P[i, j] b[j],
    db[j] = sum over heads of exp(t - l[j]) dt[j] G x[j] + sum over i of M[i, j] dt[j] P[i, j] c[i].

l[i] is in exponents alone, so its gradient is what these exponents multiply:

    dl[i] = dy[i] . y[i] - dt[i] x[i] . z[i], and <G, S'> more for the last row,
    da[i] = sum over k >= i of dl[k],
    d_dt[i] = x[i] . z[i] + A da[i],  dA = sum over all rows of dt[i] da[i].

What rows i and j of a chunk give to both terms of dl is the sum of the same products, by rows and
by columns: in da most of it cancels, which it would not with another rounding of z.

All heads share B and C, so a block takes a chunk of many heads: it adds up the weights M dt P of
its heads, and multiplies them by B and C once.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from chunk_scan import CHUNK, STATE, WIDTH, chunk_decays, inputs, reference

import tilelang
import tilelang.language as T

# Of half precision nothing shows by what a quick exponential is less precise.
FAST_MATH = {tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True}


def chunk_states(heads, reverse, chunk=CHUNK, d_state=STATE, width=WIDTH, threads=128):
    """The state in front of each chunk, of X and B, and in reverse order the gradient of the state
    behind each chunk, of dY and C: States (chunks, heads, d_state, width). Decays are those of
    `chunk_decays`, and Initial (heads, d_state, width) is the state in front of the first chunk
    that is visited. A block has a head."""
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        Rows: T.Tensor((length, heads, width), "float16"),
        Decays: T.Tensor((chunks, heads, 2, chunk), "float32"),
        Keys: T.Tensor((length, d_state), "float16"),
        Initial: T.Tensor((heads, d_state, width), "float32"),
        States: T.Tensor((chunks, heads, d_state, width), "float16"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, threads=threads) as h:
            rows = T.alloc_shared((chunk, width), "float16")
            keys = T.alloc_shared((chunk, d_state), "float16")
            decays = T.alloc_shared((2, chunk), "float32")
            scaled = T.alloc_shared((chunk, width), "float16")
            state_shared = T.alloc_shared((d_state, width), "float16")
            state = T.alloc_fragment((d_state, width), "float32")
            T.annotate_min_blocks_per_sm(3)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(136)
            T.copy(Initial[h, :, :], state)
            for k in T.Pipelined(chunks, num_stages=2):
                n = chunks - 1 - k if reverse else k
                T.copy(Decays[n, h, :, :], decays)
                T.copy(Rows[n * chunk : (n + 1) * chunk, h, :], rows)
                T.copy(Keys[n * chunk, 0], keys)
                T.copy(state, state_shared)
                T.copy(state_shared, States[n, h, :, :])
                total = decays[0, chunk - 1]
                for i, p in T.Parallel(chunk, width):
                    exponent = decays[0, i] if reverse else total - decays[1, i]
                    scaled[i, p] = rows[i, p] * T.exp2(exponent)
                for s, p in T.Parallel(d_state, width):
                    state[s, p] *= T.exp2(total)
                T.gemm(keys, scaled, state, transpose_A=True)

    return main


def gradients(
    heads,
    group,
    chunk=CHUNK,
    d_state=STATE,
    width=WIDTH,
    threads=256,
    num_stages=2,
):
    """dX and d_dt; dA, dB and dC are added to those arguments, in float32. States and Behind are
    those of `chunk_states`. A block has a chunk of `group` heads, which has to divide them."""
    assert heads % group == 0
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, width), "float16"),
        dt: T.Tensor((length, heads), "float32"),
        A: T.Tensor((heads,), "float32"),
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        dY: T.Tensor((length, heads, width), "float16"),
        Decays: T.Tensor((chunks, heads, 2, chunk), "float32"),
        States: T.Tensor((chunks, heads, d_state, width), "float16"),
        Behind: T.Tensor((chunks, heads, d_state, width), "float16"),
        dX: T.Tensor((length, heads, width), "float16"),
        d_dt: T.Tensor((length, heads), "float32"),
        dA: T.Tensor((heads,), "float32"),
        dB: T.Tensor((length, d_state), "float32"),
        dC: T.Tensor((length, d_state), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads // group, chunks, threads=threads) as (bx, n):
            x = T.alloc_shared((chunk, width), "float16")
            dy = T.alloc_shared((chunk, width), "float16")
            state = T.alloc_shared((d_state, width), "float16")
            behind = T.alloc_shared((d_state, width), "float16")
            b = T.alloc_shared((chunk, d_state), "float16")
            c = T.alloc_shared((chunk, d_state), "float16")
            # Of all heads of the block: time steps, binary logarithms of decays, dl, sums over
            # halves of rows, which two warp groups have, and over the rows of a warp.
            by_rows = T.alloc_shared((chunk, group), "float32")
            step = T.alloc_shared((group, chunk), "float32")
            log_decay = T.alloc_shared((group, chunk), "float32")
            d_log = T.alloc_shared((group, chunk), "float32")
            y_dy = T.alloc_shared((group, chunk, 2), "float32")
            x_z = T.alloc_shared((group, chunk, 2), "float32")
            columns = T.alloc_shared((group, 4, chunk), "float32")
            of_states = T.alloc_shared((group, d_state), "float32")
            rate = T.alloc_shared((group,), "float32")
            dx_shared = T.alloc_shared((chunk, width), "float16")
            x_scaled = T.alloc_shared((chunk, width), "float16")
            dy_scaled = T.alloc_shared((chunk, width), "float16")
            weights = T.alloc_shared((chunk, chunk), "float16")
            scores = T.alloc_fragment((chunk, chunk), "float32")
            product = T.alloc_fragment((chunk, chunk), "float32")
            of_heads = T.alloc_fragment((chunk, chunk), "float32")
            y = T.alloc_fragment((chunk, width), "float32")
            z = T.alloc_fragment((chunk, width), "float32")
            along = T.alloc_fragment((chunk, width), "float32")
            of_columns = T.alloc_fragment((4, chunk), "float32")
            of_halves = T.alloc_fragment((chunk, 2), "float32")
            db = T.alloc_fragment((chunk, d_state), "float32")
            dc = T.alloc_fragment((chunk, d_state), "float32")
            both = T.alloc_fragment((d_state, width), "float32")
            of_both = T.alloc_fragment((d_state,), "float32")
            of_rows = T.alloc_fragment((group, chunk), "float32")
            wholes = T.alloc_fragment((group, d_state), "float32")
            whole = T.alloc_fragment((group,), "float32")
            da = T.alloc_fragment((group,), "float32")
            rows = slice(n * chunk, (n + 1) * chunk)
            these = slice(bx * group, (bx + 1) * group)
            T.copy(B[rows, :], b)
            T.copy(C[rows, :], c)
            T.copy(Decays[n, these, 0, :], log_decay)
            T.copy(dt[rows, these], by_rows)
            T.copy(A[these], rate)
            for k, i in T.Parallel(group, chunk):
                step[k, i] = by_rows[i, k]
            T.clear(of_heads)
            T.clear(db)
            T.clear(dc)
            T.gemm(c, b, scores, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(chunk, chunk):
                scores[i, j] = T.if_then_else(i >= j, scores[i, j], 0)
            for k in T.Pipelined(group, num_stages=num_stages):
                h = bx * group + k
                T.copy(X[rows, h, :], x)
                T.copy(dY[rows, h, :], dy)
                T.copy(States[n, h, :, :], state)
                T.copy(Behind[n, h, :, :], behind)
                total = log_decay[k, chunk - 1]
                T.gemm(dy, x, product, transpose_B=True, clear_accum=True)
                T.gemm(c, state, y, clear_accum=True)
                T.gemm(b, behind, z, clear_accum=True)
                # A part of <G, S'>.
                for s, p in T.Parallel(d_state, width):
                    both[s, p] = T.cast(state[s, p], "float32") * behind[s, p]
                T.reduce_sum(both, of_both, dim=1)
                T.copy(of_both, of_states[k, :])
                # Inside of the chunk.
                for i, j in T.Parallel(chunk, chunk):
                    # One where j > i: there the scores are zero, and the sum is not used.
                    decay = T.exp2(T.min(log_decay[k, i] - log_decay[k, j], 0))
                    weights[i, j] = decay * scores[i, j]
                    product[i, j] *= decay
                    of_heads[i, j] += product[i, j] * step[k, j]
                    product[i, j] *= scores[i, j]
                T.reduce_sum(T.reshape(product, (4, chunk // 4, chunk)), of_columns, dim=1)
                T.copy(of_columns, columns[k, :, :])
                # By the state in front of it, and by that behind it.
                for i, p in T.Parallel(chunk, width):
                    begun = T.exp2(log_decay[k, i]) * dy[i, p]
                    dy_scaled[i, p] = begun
                    y[i, p] *= begun
                for i, p in T.Parallel(chunk, width):
                    end = T.exp2(total - log_decay[k, i])
                    z[i, p] *= end
                    x_scaled[i, p] = end * step[k, i] * x[i, p]
                    along[i, p] = z[i, p] * x[i, p]
                T.gemm(weights, dy, z, transpose_A=True)
                T.gemm(dy_scaled, state, dc, transpose_B=True)
                T.gemm(x_scaled, behind, db, transpose_B=True)
                T.reduce_sum(T.reshape(along, (chunk, 2, width // 2)), of_halves, dim=2)
                T.copy(of_halves, x_z[k, :, :])
                for i, j in T.Parallel(chunk, chunk):
                    product[i, j] *= step[k, j]
                T.reduce_sum(T.reshape(product, (chunk, 2, chunk // 2)), of_halves, dim=2)
                T.reduce_sum(T.reshape(y, (chunk, 2, width // 2)), of_halves, dim=2, clear=False)
                T.copy(of_halves, y_dy[k, :, :])
                for i, p in T.Parallel(chunk, width):
                    z[i, p] *= step[k, i]
                T.copy(z, dx_shared)
                T.copy(dx_shared, dX[rows, h, :])
            for i, j in T.Parallel(chunk, chunk):
                weights[i, j] = T.if_then_else(i >= j, of_heads[i, j], 0)
            T.gemm(weights, b, dc)
            T.gemm(weights, c, db, transpose_A=True)
            T.atomic_add(dB[rows, :], db)
            T.atomic_add(dC[rows, :], dc)
            # <G, S'>.
            for k, s in T.Parallel(group, d_state):
                wholes[k, s] = T.exp2(log_decay[k, chunk - 1]) * of_states[k, s]
            T.reduce_sum(wholes, whole, dim=1)
            for k, i in T.Parallel(group, chunk):
                of_rows[k, i] = step[k, i] * (x_z[k, i, 0] + x_z[k, i, 1])
            T.reduce_sum(of_rows, whole, dim=1, clear=False)
            for k, i in T.Parallel(group, chunk):
                inside = columns[k, 0, i] + columns[k, 1, i] + columns[k, 2, i] + columns[k, 3, i]
                x_z[k, i, 0] += x_z[k, i, 1] + inside
                d_log[k, i] = y_dy[k, i, 0] + y_dy[k, i, 1] - step[k, i] * x_z[k, i, 0]
            T.cumsum(d_log, dim=1, reverse=True)
            for k, i in T.Parallel(group, chunk):
                d_log[k, i] += whole[k]
                of_rows[k, i] = step[k, i] * d_log[k, i]
            T.reduce_sum(of_rows, da, dim=1)
            T.atomic_add(dA[these], da)
            for i, k in T.Parallel(chunk, group):
                by_rows[i, k] = x_z[k, i, 0] + rate[k] * d_log[k, i]
            T.copy(by_rows, d_dt[rows, these])

    return main


def backward(x, dt, a, b, c, d_y, d_last, group=1, chunk=CHUNK, **tile):
    """dX, d_dt, dA, dB and dC of dY and of the gradient of the last state."""
    (length, heads, width), d_state = x.shape, b.shape[1]
    chunks = -(-length // chunk)
    sizes = {"chunk": chunk, "d_state": d_state, "width": width}
    states, behind = (
        torch.empty(chunks, heads, d_state, width, device=x.device, dtype=x.dtype) for _ in range(2)
    )
    decays = torch.empty(chunks, heads, 2, chunk, device=x.device)
    tilelang.compile(chunk_decays(heads, chunk))(dt, a, decays)
    in_front = tilelang.compile(chunk_states(heads, False, **sizes))
    in_front(x, decays, b, torch.zeros_like(d_last), states)
    tilelang.compile(chunk_states(heads, True, **sizes))(d_y, decays, c, d_last, behind)
    d_x, d_dt = torch.empty_like(x), torch.empty_like(dt)
    d_a, d_b, d_c = (torch.zeros_like(t, dtype=torch.float32) for t in (a, b, c))
    results = d_x, d_dt, d_a, d_b, d_c
    kernel = tilelang.compile(gradients(heads, group, **sizes, **tile))
    kernel(x, dt, a, b, c, d_y, decays, states, behind, *results)
    return results


def relative_errors(length, heads, d_state, device="cpu", **options):
    """||ours - float64|| / ||float64|| of the gradients of x, dt, A, B and C."""
    torch.manual_seed(0)
    tensors = inputs(length, heads, d_state, device=device)
    d_y = torch.randn_like(tensors[0])
    d_last = torch.randn(heads, d_state, WIDTH, device=device)
    found = backward(*tensors, d_y, d_last, **options)
    leaves = [t.double().requires_grad_() for t in tensors]
    wanted = torch.autograd.grad(reference(*leaves), leaves, (d_y.double(), d_last.double()))
    return [float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)]


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096 if gpu else 140)
    parser.add_argument("--heads", type=int, default=16 if gpu else 2)
    parser.add_argument("--state", type=int, default=128 if gpu else STATE)
    arguments = parser.parse_args()
    errors = relative_errors(
        *(arguments.length, arguments.heads, arguments.state, "cuda" if gpu else "cpu"),
        group=16 if arguments.heads % 16 == 0 else 1,
    )
    for name, error in zip(("x", "dt", "A", "B", "C"), errors, strict=True):
        assert error < 5e-3, f"relative error of d{name} {error:.1e}, wanted under 5e-3"
    print(f"length {arguments.length}, {arguments.heads} heads: relative error {max(errors):.1e}")
