"""The gradients of the gated delta rule in four kernels: the inverses of the chunks' systems
(delta_rule.py), the states from chunk to chunk, then all gradients in the reverse order, and last
the sums that a gate's gradient is. Check them against float64 autograd of the recurrence.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
from functools import partial

import torch
from delta_rule import (
    CHUNK,
    FAST_MATH,
    KEY,
    VALUE,
    Gates,
    chunk_inverses,
    chunk_tensors,
    decays_of,
    inputs,
    load_chunk,
    reference,
    scale_rows,
    sharing,
    walk,
    weigh,
)

import tilelang
import tilelang.language as T

ROWS = T.GemmWarpPolicy.FullRow

# Of a chunk's rows i, with G the sums of the logarithms of gates since its begin, `last` its last
# row, S the state before it and S' that behind it:
#   A[i, j] = beta[i] exp(G[i] - G[j]) k[i] . k[j] for j < i,   T = (1 + A)^-1,
#   P[i, j] = exp(G[i] - G[j]) q[i] . k[j]         for j <= i,
#   U = T (beta (v - exp(G) k S)),                  O = exp(G) q S + P U,
#   S' = exp(G[last]) S + kept^T U,                 kept[j] = exp(G[last] - G[j]) k[j].
# These are linear in S and in U, from which it follows (without gates: Yang, Wang, Zhang, Shen, Kim
# 2024, "Parallelizing linear transformers with the delta rule over sequence length"):
#   dv = beta T^T (P^T dO + kept dS'),
#   dS = exp(G[last]) dS' + (exp(G) q)^T dO - (exp(G) k)^T dv,
#   dP = dO U^T,                                    beta dA = -dv U^T, as dT = -T dA T,
#   dq[i] = exp(G[i]) S dO[i] + sum of dP[i, j] exp(G[i] - G[j]) k[j] over j,
#   row[i] = sum of beta[i] dA[i, j] exp(G[i] - G[j]) k[j] over j - exp(G[i]) S dv[i],
#   column[j] = exp(G[last] - G[j]) dS' U[j] + sum of dP[i, j] exp(G[i] - G[j]) q[i]
#       + beta[i] dA[i, j] exp(G[i] - G[j]) k[i] over i,
#   dk = row + column,                              beta dbeta = dv . U / beta.
# G[i] stands wherever q[i] and the k[i] of `row` do, -G[j] wherever the k[j] of `column` does, each
# in an exponential factor. So a product with the gradient is that of the exponent:
#   dG = q dq + k (row - column), and dG[last] has S' dS' besides, of which each part grows by it,
# summed up: the reverse order has had that state and found its gradient just before. A gate is in
# all G behind it: the sum of their gradients is its own.


@T.macro
def store(rows, tile, target):
    # Through shared memory, in whole rows.
    T.copy(rows, tile)
    T.copy(tile, target)


@T.macro
def store_chunk(tensor, h, here, n, tile):
    T.copy(tile, tensor[n, h, :, here])


def states(heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=64, threads=128, ahead=2):
    """The state before each chunk and its U. A block has a head's state for `columns` of its
    values."""
    length, chunks = T.dynamic("length, chunks")
    blocks = -(-d_value // columns)

    @T.prim_func
    def main(
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Rows: T.Tensor((chunks, heads, 2, chunk), "float32"),
        State: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
        Updates: T.Tensor((chunks, heads, chunk, d_value), "bfloat16"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        # The blocks of a head share its tiles.
        with T.Kernel(blocks, heads, threads=threads, cluster_dims=sharing(blocks)) as (bx, h):
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            v = T.alloc_shared((chunk, columns), "bfloat16")
            inverse = T.alloc_shared((chunk, chunk), "bfloat16")
            gates = T.alloc_shared((2, chunk), "float32")
            state = T.alloc_fragment((d_key, columns), "float32")
            # The first products of a chunk wait for these: they arrive during the one before.
            T.annotate_ws_pipeline_depth({k: ahead, gates: ahead})
            here = slice(bx * columns, (bx + 1) * columns)
            load = partial(load_chunk, (K, Rows, V, Inverse), (k, gates, v, inverse), h, here)
            stores = [partial(store_chunk, tensor, h, here) for tensor in (State, Updates)]
            walk(chunks, load, (k, k, v, inverse), Gates(gates), state, states=stores)

    return main


@T.macro
def find_updates(loaded, d_state_shared, tiles, kept, right):
    # dv, by P in `weights`.
    q, k, d_out, inverse, gates = loaded
    (weights, tile), chunk = tiles, q.shape[0]
    scores = T.alloc_fragment((chunk, chunk), "float32")
    T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
    T.gemm(k, d_state_shared, right, clear_accum=True)
    weigh(scores, gates)
    T.copy(scores, weights)
    scale_rows(right, kept)
    T.gemm(weights, d_out, right, transpose_A=True)
    T.copy(right, tile)
    T.gemm(inverse, tile, right, transpose_A=True, clear_accum=True)


@T.macro
def find_slopes(loaded, tiles, before, right, d_beta, target):
    # Of dv in `right`: beta dA in `slopes`, -exp(G) dv, and dv . U, which is on the diagonal of dv
    # U^T: U of a row grows by the part by which its beta grows. The minus of beta dA = -dv U^T is
    # taken here: `of_keys` multiplies it by k itself.
    gates, updates = loaded
    slopes, right_shared, scaled_right = tiles
    scores = T.alloc_fragment(slopes.shape, "float32")
    store(right, right_shared, target)
    T.gemm(right_shared, updates, scores, transpose_B=True, clear_accum=True)
    for i, d in T.Parallel(*right.shape):
        right[i, d] *= -before[i]
    T.copy(right, scaled_right)
    for i, j in T.Parallel(*scores.shape):
        if i == j:
            d_beta[i] = scores[i, j]
    weigh(scores, gates, 1)
    for i, j in T.Parallel(*slopes.shape):
        scores[i, j] = -scores[i, j]
    T.copy(scores, slopes)


@T.macro
def from_behind(loaded, tiles, kept, column, d_state):
    # dP, exp(G) dO, what the state behind the chunk gives to `column`, and to its own gradient.
    d_out, gates, updates = loaded
    d_state_shared, weights, tile = tiles
    chunk = weights.shape[0]
    scores = T.alloc_fragment((chunk, chunk), "float32")
    T.gemm(d_out, updates, scores, transpose_B=True, clear_accum=True)
    T.gemm(updates, d_state_shared, column, transpose_B=True, clear_accum=True)
    for i, d in T.Parallel(*d_out.shape):
        tile[i, d] = d_out[i, d] * T.exp2(gates[0, i])
    total = T.exp2(gates[0, chunk - 1])
    for i, d in T.Parallel(*d_state.shape):
        d_state[i, d] *= total
    weigh(scores, gates)
    T.copy(scores, weights)
    scale_rows(column, kept)


@T.macro
def of_queries(loaded, weights, scaled_out, query, column, d_state, d_row):
    # dq, its parts of dG, of `column` and of the state's gradient.
    q, k, state = loaded
    product = T.alloc_fragment((q.shape[0], 2, q.shape[1] // 2), "float32")
    T.gemm(scaled_out, state, query, transpose_B=True, clear_accum=True)
    T.gemm(weights, k, query)
    T.gemm(q, scaled_out, d_state, transpose_A=True, policy=ROWS)
    T.gemm(weights, q, column, transpose_A=True)
    add_rows(product, q, query, d_row, True)


@T.macro
def of_keys(loaded, slopes, scaled_right, row, column, d_state):
    # `row`, and the rest of `column` and of the state's gradient.
    k, state = loaded
    T.gemm(scaled_right, state, row, transpose_B=True, clear_accum=True)
    T.gemm(slopes, k, row)
    T.gemm(slopes, k, column, transpose_A=True)
    T.gemm(k, scaled_right, d_state, transpose_A=True, policy=ROWS)


@T.macro
def sum_keys(k, gates, row, column, d_row, d_beta):
    # dk in `column`, and the rest of dG and dbeta.
    product = T.alloc_fragment((k.shape[0], 2, k.shape[1] // 2), "float32")
    for i, d in T.Parallel(*k.shape):
        row[i, d] -= column[i, d]
        column[i, d] = 2 * column[i, d] + row[i, d]
    add_rows(product, k, row, d_row, False)
    for i in T.Parallel(k.shape[0]):
        d_beta[i] /= gates[1, i] * gates[1, i]


@T.macro
def load_gradients(tensors, tiles, h, n):
    # In the order in which there is room for the next chunk's.
    Q, K, dOut, Inverse, Rows, State, Updates = tensors
    q, k, d_out, inverse, gates, state, updates = tiles
    chunk = q.shape[0]
    rows = slice(n * chunk, (n + 1) * chunk)
    T.copy(K[rows, h, :], k)
    T.copy(Inverse[n, h, :, :], inverse)
    T.copy(Updates[n, h, :, :], updates)
    T.copy(Rows[n, h, :, :], gates)
    T.copy(dOut[rows, h, :], d_out)
    T.copy(Q[rows, h, :], q)
    T.copy(State[n, h, :, :], state)


@T.macro
def sum_states(state, d_state, target):
    # This state and its gradient are S' and dS' of the chunk before.
    d_channel = T.alloc_fragment((state.shape[0],), "float32")
    product = T.alloc_fragment(state.shape, "float32")
    for i, d in T.Parallel(*state.shape):
        product[i, d] = state[i, d] * d_state[i, d]
    T.reduce_sum(product, d_channel, dim=1)
    T.copy(d_channel, target)


@T.macro
def add_rows(product, factor, gradient, d_row, first):
    # What `factor` times its gradient gives to that of the exponents, for each half of the
    # channels, which are those of other warps.
    half = product.shape[2]
    for i, side, d in T.Parallel(*product.shape):
        product[i, side, d] = factor[i, side * half + d] * gradient[i, side * half + d]
    T.reduce_sum(product, d_row, dim=2, clear=first)


def gradients(heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, threads=256):
    """dQ, dK, dV, beta's and what `gate_sums` adds up to the gate's gradient: a block has a head,
    from its last chunk on, and the state's gradient in registers."""
    length, chunks = T.dynamic("length, chunks")
    width = max(d_key, d_value)
    keys, values = slice(0, d_key), slice(0, d_value)

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        dOut: T.Tensor((length, heads, d_value), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Rows: T.Tensor((chunks, heads, 2, chunk), "float32"),
        State: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
        Updates: T.Tensor((chunks, heads, chunk, d_value), "bfloat16"),
        dQ: T.Tensor((length, heads, d_key), "bfloat16"),
        dK: T.Tensor((length, heads, d_key), "bfloat16"),
        dV: T.Tensor((length, heads, d_value), "bfloat16"),
        dRows: T.Tensor((chunks, heads, chunk, 2), "float32"),
        dStates: T.Tensor((chunks, heads, d_key), "float32"),
        dBeta: T.Tensor((length, heads), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, threads=threads) as h:
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(240)
            tensors = Q, K, dOut, Inverse, Rows, State, Updates
            rows_of_keys, rows_of_values = (chunk, d_key), (chunk, d_value)
            q, k = [T.alloc_shared(rows_of_keys, "bfloat16") for _ in range(2)]
            # A chunk begins with keys, and ends with them.
            T.annotate_ws_pipeline_depth({k: 2})
            d_out, updates = [T.alloc_shared(rows_of_values, "bfloat16") for _ in range(2)]
            inverse = T.alloc_shared((chunk, chunk), "bfloat16")
            # G and beta.
            gates = T.alloc_shared((2, chunk), "float32")
            state = T.alloc_shared((d_key, d_value), "bfloat16")
            d_state_shared = T.alloc_shared((d_key, d_value), "bfloat16")
            # P, then dP; beta dA.
            weights, slopes = [T.alloc_shared((chunk, chunk), "bfloat16") for _ in range(2)]
            # Operands of products and, on the way to memory, results.
            tile, right_shared = [T.alloc_shared((chunk, width), "bfloat16") for _ in range(2)]
            scaled_right = T.alloc_shared(rows_of_values, "bfloat16")
            d_beta = T.alloc_shared((chunk,), "float32")
            decays = [T.alloc_fragment((chunk,), "float32") for _ in range(2)]
            d_state = T.alloc_fragment((d_key, d_value), "float32")
            right = T.alloc_fragment(rows_of_values, "float32")
            query, row, column = [T.alloc_fragment(rows_of_keys, "float32") for _ in range(3)]
            d_row = T.alloc_fragment((chunk, 2), "float32")
            T.clear(d_state)
            for step in T.Pipelined(chunks, num_stages=1):
                n = chunks - 1 - step
                rows = slice(n * chunk, (n + 1) * chunk)
                loaded = q, k, d_out, inverse, gates, state, updates
                load_gradients(tensors, loaded, h, n)
                T.copy(d_state, d_state_shared)
                decays_of(gates, *decays)
                loaded = q, k, d_out, inverse, gates
                tiles = weights, tile[:, values]
                find_updates(loaded, d_state_shared, tiles, decays[1], right)
                tiles = slopes, right_shared[:, values], scaled_right
                loaded = gates, updates
                find_slopes(loaded, tiles, decays[0], right, d_beta, dV[rows, h, :])
                loaded = d_out, gates, updates
                tiles = d_state_shared, weights, tile
                from_behind(loaded, tiles, decays[1], column, d_state)
                loaded = q, k, state
                of_queries(loaded, weights, tile[:, values], query, column, d_state, d_row)
                store(query, right_shared[:, keys], dQ[rows, h, :])
                of_keys((k, state), slopes, scaled_right, row, column, d_state)
                sum_keys(k, gates, row, column, d_row, d_beta)
                store(column, tile[:, keys], dK[rows, h, :])
                T.copy(d_beta, dBeta[rows, h])
                T.copy(d_row, dRows[n, h, :, :])
                sum_states(state, d_state, dStates[n, h, :])

    return main


def gate_sums(heads, chunk=CHUNK, d_key=KEY, columns=16, threads=128):
    """The gradient of each gate, which is in all G behind it. A block has a chunk of some heads."""
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        dRows: T.Tensor((chunks, heads, chunk, 2), "float32"),
        dStates: T.Tensor((chunks, heads, d_key), "float32"),
        dGate: T.Tensor((length, heads), "float32"),
    ):
        with T.Kernel(T.ceildiv(heads, columns), chunks, threads=threads) as (b, n):
            rows = T.alloc_fragment((columns, chunk, 2), "float32")
            states_behind = T.alloc_fragment((columns, d_key), "float32")
            sums = T.alloc_shared((columns, chunk), "float32")
            sum_of_row = T.alloc_fragment((columns, chunk), "float32")
            total = T.alloc_fragment((columns,), "float32")
            behind = T.alloc_shared((columns,), "float32")
            here = slice(b * columns, (b + 1) * columns)
            T.copy(dRows[n, here, :, :], rows)
            T.reduce_sum(rows, sum_of_row, dim=2)
            T.copy(sum_of_row, sums)
            T.cumsum(sums, dim=1, reverse=True)
            # Behind the last chunk there are zeros.
            T.copy(dStates[n + 1, here, :], states_behind)
            T.reduce_sum(states_behind, total, dim=1)
            T.copy(total, behind)
            for i, c in T.Parallel(chunk, columns):
                if n * chunk + i < length and b * columns + c < heads:
                    dGate[n * chunk + i, b * columns + c] = sums[c, i] + behind[c]

    return main


def kernels_of(heads, chunk=CHUNK, key=KEY, value=VALUE, **options):
    """The four kernels; `options` are those of tilelang.compile."""
    programs = (
        chunk_inverses(heads, chunk, key),
        states(heads, chunk, key, value, columns=min(value, 64)),
        gradients(heads, chunk, key, value),
        gate_sums(heads, chunk, key),
    )
    return [tilelang.compile(program, **options) for program in programs]


def backward(q, k, v, gate, beta, d_out, kernels, chunk=CHUNK):
    """dQ, dK and dV in bfloat16, the gradients of the gates and of beta in float32, of all that the
    forward has; `d_out` is (length, heads, d_value) in bfloat16, `kernels` are `kernels_of` it.
    Gates are natural logarithms of decays, at most 0."""
    key, value = k.shape[2], v.shape[2]
    shapes = (chunk, chunk), (key, value), (chunk, value)
    inverse, state, updates = chunk_tensors(k, chunk, *shapes)
    (rows,) = chunk_tensors(k, chunk, (2, chunk), dtype=torch.float32)
    kernels[0](k, gate, beta, inverse, rows)
    kernels[1](k, v, inverse, rows, state, updates)
    return backward_of(q, k, v, d_out, (inverse, rows, state, updates), kernels[2:])


def backward_of(q, k, v, d_out, chunks, kernels):
    """The gradients by what has been found of the chunks, by `gradients` and `gate_sums`."""
    key, chunk = k.shape[2], chunks[0].shape[-1]
    d_rows, d_states = chunk_tensors(k, chunk, (chunk, 2), (key,), dtype=torch.float32)
    found = [torch.empty_like(x) for x in (q, k, v)]
    d_gate, d_beta = [torch.empty(k.shape[:2], device=k.device) for _ in range(2)]
    kernels[0](q, k, d_out, *chunks, *found, d_rows, d_states, d_beta)
    kernels[1](d_rows, d_states, d_gate)
    return [*found, d_gate, d_beta]


def errors(
    form, heads, length, channels, device="cpu", sizes=(CHUNK, KEY, VALUE), gates=0.125, **options
):
    """||ours - float64|| / ||float64|| of each gradient, for `sizes` of a chunk, of keys and of
    values. `form` is `kernels_of` and `backward`; with `channels` each has a gate of its own. The
    logarithms of gates are above `-gates`; `options` are those of tilelang.compile."""
    chunk, key, value = sizes
    make_kernels, compute = form
    torch.manual_seed(0)
    q, k, v, beta = inputs(heads, length, key, value, device)
    shape = (length, heads, key) if channels else (length, heads)
    gate = -torch.rand(shape, device=device) * gates
    d_out = torch.randn_like(v)
    found = compute(q, k, v, gate, beta, d_out, make_kernels(heads, *sizes, **options), chunk)
    leaves = [x.double().requires_grad_() for x in (q, k, v, gate, beta)]
    wanted = torch.autograd.grad(reference(*leaves), leaves, d_out.double())
    return [float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)]


def check(form, channels=False, description=__doc__, sizes=(KEY, VALUE)):
    """The errors at the sizes that the command line has; `sizes` are those without a GPU."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=description)
    # Autograd keeps a state in float64 for each row and head.
    parser.add_argument("--length", type=int, default=1000 if gpu else 100)
    parser.add_argument("--heads", type=int, default=32 if gpu else 1)
    parser.add_argument("--dim", type=int, nargs=2, default=[128, 128] if gpu else sizes)
    arguments = parser.parse_args()
    sizes = CHUNK, *arguments.dim
    heads, length, device = arguments.heads, arguments.length, "cuda" if gpu else "cpu"
    error = max(errors(form, heads, length, channels, device, sizes))
    assert error < 2e-2, f"relative error {error:.1e}, wanted under 2e-2"
    print(f"length {length}: relative error {error:.1e}")


if __name__ == "__main__":
    check((kernels_of, backward))
