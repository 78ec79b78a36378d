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

All heads share B and C, so a block takes a chunk of many heads. One group of its warps goes by rows
i: y, dc, and the weights M dt P of all heads, which it adds up and multiplies by B once. The other
goes by columns j: z, dx, db. It makes P once more, transposed: so no group waits for the other's
products, and what a product takes from the one before stays in registers. For Hopper.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from chunk_scan import CHUNK, FAST_MATH, STATE, WIDTH, chunk_decays, inputs, reference

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


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


def schedule(depth):
    """Warps that load, with `depth` heads' tiles at a time, and the two groups."""
    both = ["of_rows", "of_columns"]
    users = {"decays": both, "x": both, "dy": both, "state": both[:1], "behind": both}
    loop = T.WSScope(
        "heads",
        {
            "load": [f"load_{tile}" for tile in users],
            "rows": ["of_rows"],
            "columns": ["of_columns"],
        },
        [T.WSSync(f"load_{tile}", use, tile) for tile, uses in users.items() for use in uses],
    )
    ends = ["begin_rows", "end_rows"], ["begin_columns", "end_columns"]
    whole = T.WSScope(
        None,
        {"load": ["load_keys"], "rows": ends[0], "columns": ends[1]},
        [
            *(T.WSSync("load_keys", use, "keys") for use in (*ends[0], *ends[1], *both)),
            T.WSSync("end_rows", "end_columns", "sums"),
        ],
    )
    return T.WSSchedule(
        num_warps=12,
        roles={
            "load": T.WSRole(warps_lo=0, warps_hi=4, max_nreg=24),
            "rows": T.WSRole(warps_lo=4, warps_hi=8, max_nreg=240),
            "columns": T.WSRole(warps_lo=8, warps_hi=12, max_nreg=240),
        },
        pipelines={
            **{tile: T.WSPipeline(depth) for tile in users},
            "keys": T.WSPipeline(1),
            "sums": T.WSPipeline(1),
        },
        scopes=[loop, whole],
    )


@T.macro
def head_by_rows(k, c, tiles, scores, of_heads, dc, y_dy, of_states):
    """What head k adds to the weights and to dc, its rows' dy y, and a part of <G, S'>."""
    x, dy, state, behind, decays = tiles
    (chunk, width), (_, part) = x.shape, of_states.shape
    product = T.alloc_fragment((chunk, chunk), "float32")
    y = T.alloc_fragment((chunk, width), "float32")
    dy_scaled = T.alloc_fragment((chunk, width), "float16")
    sums = T.alloc_fragment((chunk,), "float32")
    both = T.alloc_fragment((part, width), "float32")
    of_both = T.alloc_fragment((part,), "float32")
    T.gemm(dy, x, product, transpose_B=True, clear_accum=True)
    T.gemm(c, state, y, clear_accum=True)
    for i, j in T.Parallel(chunk, chunk):
        # Where j > i the exponent has no bound: the scores are zero, and the sum is not used.
        product[i, j] *= T.exp2(T.min(decays[0, i] - decays[1, j], 100))
        of_heads[i, j] += product[i, j]
        product[i, j] *= scores[i, j]
    T.reduce_sum(product, sums, dim=1)
    for i, p in T.Parallel(chunk, width):
        dy_scaled[i, p] = T.exp2(decays[0, i]) * dy[i, p]
    for i, p in T.Parallel(chunk, width):
        y[i, p] *= dy[i, p]
    T.gemm(dy_scaled, state, dc, transpose_B=True)
    for i, p in T.Parallel(chunk, width):
        y[i, p] *= T.exp2(decays[0, i])
    T.reduce_sum(y, sums, dim=1, clear=False)
    T.copy(sums, y_dy[k, :])
    T.clear(both)
    for n in T.unroll(state.shape[0] // part):
        for s, p in T.Parallel(part, width):
            both[s, p] += T.cast(state[n * part + s, p], "float32") * behind[n * part + s, p]
    T.reduce_sum(both, of_both, dim=1)
    T.copy(of_both, of_states[k, :])


@T.macro
def head_by_columns(k, b, tiles, scores, z, db, sums):
    """The dx of head k in `z`, and what it adds to db. Of its rows `sums` get x z, the part of it
    that is by the state behind the chunk, and the time steps."""
    (x, dy, _, behind, decays), (x_z, ends, step) = tiles, sums
    chunk, width = x.shape
    product = T.alloc_fragment((chunk, chunk), "float32")
    weights = T.alloc_fragment((chunk, chunk), "float16")
    along = T.alloc_fragment((chunk, width), "float32")
    x_scaled = T.alloc_fragment((chunk, width), "float16")
    inside = T.alloc_fragment((chunk,), "float32")
    end = T.alloc_fragment((chunk,), "float32")
    total = decays[0, chunk - 1]
    T.gemm(x, dy, product, transpose_B=True, clear_accum=True)
    T.gemm(b, behind, z, clear_accum=True)
    for j, i in T.Parallel(chunk, chunk):
        # One where j > i: there the scores are zero.
        weight = T.exp2(T.min(decays[0, i] - decays[0, j], 0)) * scores[j, i]
        weights[j, i] = weight
        product[j, i] *= weight
    T.reduce_sum(product, inside, dim=1)
    for j, p in T.Parallel(chunk, width):
        z[j, p] *= T.exp2(total - decays[0, j])
        along[j, p] = z[j, p] * x[j, p]
    T.gemm(weights, dy, z)
    for j, p in T.Parallel(chunk, width):
        x_scaled[j, p] = T.exp2(total - decays[1, j]) * x[j, p]
    T.gemm(x_scaled, behind, db, transpose_B=True)
    T.reduce_sum(along, end, dim=1)
    T.copy(end, ends[k, :])
    for j in T.Parallel(chunk):
        inside[j] += end[j]
        step[k, j] = T.exp2(decays[0, j] - decays[1, j])
    T.copy(inside, x_z[k, :])
    for j, p in T.Parallel(chunk, width):
        z[j, p] *= T.exp2(decays[0, j] - decays[1, j])


@T.macro
def time_gradients(first, A, given, whole, sums, last, of_dt, dA):
    """d_dt of the heads from `first` on, by rows, and what they add to dA. `given` are dy y,
    `whole` <G, S>, `sums` those of head_by_columns, `last` the decays of whole chunks."""
    x_z, ends, step = sums
    group, chunk = x_z.shape
    d_log = T.alloc_shared((group, chunk), "float32")
    of_rows = T.alloc_fragment((group, chunk), "float32")
    of_state = T.alloc_fragment((group,), "float32")
    da = T.alloc_fragment((group,), "float32")
    # <G, S'>.
    for k, i in T.Parallel(group, chunk):
        of_rows[k, i] = step[k, i] * ends[k, i]
    T.reduce_sum(of_rows, of_state, dim=1)
    for k in T.Parallel(group):
        of_state[k] += T.exp2(last[k]) * whole[k]
    for k, i in T.Parallel(group, chunk):
        d_log[k, i] = given[k, i] - step[k, i] * x_z[k, i]
    T.cumsum(d_log, dim=1, reverse=True)
    for k, i in T.Parallel(group, chunk):
        d_log[k, i] += of_state[k]
        of_rows[k, i] = step[k, i] * d_log[k, i]
    T.reduce_sum(of_rows, da, dim=1)
    T.atomic_add(dA[first : first + group], da)
    for i, k in T.Parallel(chunk, group):
        of_dt[i, k] = x_z[k, i] + A[first + k] * d_log[k, i]


def gradients(heads, group, chunk=CHUNK, d_state=STATE, width=WIDTH, depth=2):
    """dX and d_dt; dA, dB and dC are added to those arguments, in float32. States and Behind are
    those of `chunk_states`. A block has a chunk of `group` heads, which has to divide them, and
    tiles of `depth` of them at a time."""
    if heads % group:
        raise ValueError(f"found {heads} heads, wanted a multiple of group, {group}")
    length, chunks = T.dynamic("length, chunks")
    plan, part = schedule(depth), d_state // 4

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, width), "float16"),
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
        with T.Kernel(heads // group, chunks, threads=32 * plan.num_warps) as (bx, n):
            T.annotate_ws_schedule(plan)
            rows, these = slice(n * chunk, (n + 1) * chunk), slice(bx * group, (bx + 1) * group)
            b, c = [T.alloc_shared((chunk, d_state), "float16") for _ in "bc"]
            x, dy = [T.alloc_shared((chunk, width), "float16") for _ in range(2)]
            state, behind = [T.alloc_shared((d_state, width), "float16") for _ in range(2)]
            decays = T.alloc_shared((2, chunk), "float32")
            dx_shared = T.alloc_shared((chunk, width), "float16")
            weights_shared = T.alloc_shared((chunk, chunk), "float16")
            # Of all heads of the block: sums of rows, and what the rows' group gives the other.
            y_dy, given = [T.alloc_shared((group, chunk), "float32") for _ in range(2)]
            sums = [T.alloc_shared((group, chunk), "float32") for _ in range(3)]
            of_states = T.alloc_shared((group, part), "float32")
            whole_shared, last = [T.alloc_shared((group,), "float32") for _ in range(2)]
            # A column more: the banks of a column's elements differ.
            of_dt = T.alloc_shared((chunk, group + 1), "float32")
            # By rows i, then by columns j.
            scores = [T.alloc_fragment((chunk, chunk), "float16") for _ in "ij"]
            product = [T.alloc_fragment((chunk, chunk), "float32") for _ in "ij"]
            d_keys = [T.alloc_fragment((chunk, d_state), "float32") for _ in "cb"]
            of_heads = T.alloc_fragment((chunk, chunk), "float32")
            weights = T.alloc_fragment((chunk, chunk), "float16")
            of_both = T.alloc_fragment((group, part), "float32")
            whole = T.alloc_fragment((group,), "float32")
            z = T.alloc_fragment((chunk, width), "float32")
            tiles = x, dy, state, behind, decays
            with T.ws_op("load_keys"):
                T.copy(B[rows, :], b)
                T.copy(C[rows, :], c)
            with T.ws_op("begin_rows"):
                T.clear(of_heads)
                T.clear(d_keys[0])
                T.gemm(c, b, product[0], transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    scores[0][i, j] = T.if_then_else(i >= j, product[0][i, j], 0)
            with T.ws_op("begin_columns"):
                T.clear(d_keys[1])
                T.gemm(b, c, product[1], transpose_B=True, clear_accum=True)
                for j, i in T.Parallel(chunk, chunk):
                    scores[1][j, i] = T.if_then_else(i >= j, product[1][j, i], 0)
            for k in T.serial(group, annotations={T.WSID: "heads"}):
                h = bx * group + k
                T.copy(Decays[n, h, :, :], decays, annotations={T.WSID: "load_decays"})
                T.copy(X[rows, h, :], x, annotations={T.WSID: "load_x"})
                T.copy(dY[rows, h, :], dy, annotations={T.WSID: "load_dy"})
                T.copy(States[n, h, :, :], state, annotations={T.WSID: "load_state"})
                T.copy(Behind[n, h, :, :], behind, annotations={T.WSID: "load_behind"})
                with T.ws_op("of_rows"):
                    head_by_rows(k, c, tiles, scores[0], of_heads, d_keys[0], y_dy, of_states)
                with T.ws_op("of_columns"):
                    head_by_columns(k, b, tiles, scores[1], z, d_keys[1], sums)
                    last[k] = decays[0, chunk - 1]
                    T.copy(z, dx_shared)
                    T.copy(dx_shared, dX[rows, h, :])
            with T.ws_op("end_rows"):
                for i, j in T.Parallel(chunk, chunk):
                    weights[i, j] = T.if_then_else(i >= j, of_heads[i, j], 0)
                T.copy(weights, weights_shared)
                T.copy(y_dy, given)
                T.copy(of_states, of_both)
                T.reduce_sum(of_both, whole, dim=1)
                T.copy(whole, whole_shared)
                T.gemm(weights, b, d_keys[0])
                T.atomic_add(dC[rows, :], d_keys[0])
            with T.ws_op("end_columns"):
                T.gemm(weights_shared, c, d_keys[1], transpose_A=True)
                T.atomic_add(dB[rows, :], d_keys[1])
                time_gradients(bx * group, A, given, whole_shared, sums, last, of_dt, dA)
                T.copy(of_dt[:, :group], d_dt[rows, these])

    return main


def backward(x, dt, a, b, c, d_y, d_last, group=1, chunk=CHUNK, depth=2):
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
    kernel = tilelang.compile(gradients(heads, group, depth=depth, **sizes), target=HOPPER)
    kernel(x, a, b, c, d_y, decays, states, behind, *results)
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
