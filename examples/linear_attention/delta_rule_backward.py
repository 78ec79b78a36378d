"""The gradients of the gated delta rule and of Kimi Delta Attention in four kernels: what chunks do
alone (delta_rule_chunks.py), the states from chunk to chunk, the states' gradients in the reverse
order, and then all others, a chunk a block. Check them against float64 autograd of the recurrence.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from delta_rule import CHUNK, KEY, VALUE, inputs, reference
from delta_rule_chunks import chunk_parts, parts_of, store

import tilelang
import tilelang.language as T

# The names are of delta_rule_chunks.py; S' and dS' belong to the state behind a chunk, S and dS to
# that before it. As O = X S + P T (beta v) and S' = exp(G[last]) S + kept^T (T (beta v) - W S) are
# linear in S, and O = exp(G) q S + P U and S' = exp(G[last]) S + kept^T U in U, which is
# T (beta (v - exp(G) k S)), it follows (without gates: Yang, Wang, Zhang, Shen, Kim 2024,
# "Parallelizing linear transformers with the delta rule over sequence length"):
#   dS = exp(G[last]) dS' + X^T dO - W^T kept dS',
#   R = T^T (P^T dO + kept dS'),                        dv = beta R,
#   dP = dO U^T,                                        dA = -R U^T, as dT = -T dA T,
#   dq[i] = exp(G[i]) S dO[i] + sum of dP[i, j] exp(G[i] - G[j]) k[j] over j,
#   row[i] = sum of dA[i, j] exp(G[i] - G[j]) k[j] over j - exp(G[i]) S R[i],
#   column[j] = exp(G[last] - G[j]) dS' U[j] + sum of dP[i, j] exp(G[i] - G[j]) q[i]
#       + dA[i, j] beta[i] exp(G[i] - G[j]) k[i] over i,
#   dk = beta row + column,                             dbeta = k . row + R . v.
# G[i] stands wherever q[i] and the k[i] of `row` do, -G[j] wherever the k[j] of `column` does, each
# in an exponential factor. So a product with the gradient is that of the exponent:
#   dG = q dq + k (beta row - column), and dG[last] has exp(G[last]) S dS' + kept U dS'^T besides,
# by channel or summed up. A gate is in all G behind it: the sum of their gradients is its own.


def states(
    heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=64, num_stages=1, blocks=2, threads=128
):
    """The state before each chunk and its U, of W, T (beta v), kept and exp(G[last]). A block has a
    head's state for `columns` of its values."""
    chunks = T.dynamic("chunks")

    @T.prim_func
    def main(
        Removed: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Added: T.Tensor((chunks, heads, chunk, d_value), "bfloat16"),
        Kept: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Decay: T.Tensor((chunks, heads, d_key), "float32"),
        State: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
        Updates: T.Tensor((chunks, heads, chunk, d_value), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(d_value, columns), heads, threads=threads) as (bx, h):
            # The steps of a chunk wait for each other: a second block computes meanwhile.
            T.annotate_min_blocks_per_sm(blocks)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(232 if blocks == 1 else 208)
            removed = T.alloc_shared((chunk, d_key), "bfloat16")
            kept = T.alloc_shared((chunk, d_key), "bfloat16")
            added = T.alloc_shared((chunk, columns), "bfloat16")
            decay = T.alloc_shared((d_key,), "float32")
            state_shared = T.alloc_shared((d_key, columns), "bfloat16")
            updates_shared = T.alloc_shared((chunk, columns), "bfloat16")
            state = T.alloc_fragment((d_key, columns), "float32")
            updates = T.alloc_fragment((chunk, columns), "float32")
            here = slice(bx * columns, (bx + 1) * columns)
            T.clear(state)
            for n in T.Pipelined(chunks, num_stages=num_stages):
                T.copy(Removed[n, h, :, :], removed)
                T.copy(Added[n, h, :, here], added)
                T.copy(Kept[n, h, :, :], kept)
                T.copy(Decay[n, h, :], decay)
                store(state, state_shared, State[n, h, :, here])
                T.gemm(removed, state_shared, updates, clear_accum=True)
                for i, d in T.Parallel(chunk, columns):
                    updates[i, d] = added[i, d] - updates[i, d]
                for i, d in T.Parallel(d_key, columns):
                    state[i, d] *= decay[i]
                store(updates, updates_shared, Updates[n, h, :, here])
                T.gemm(kept, updates_shared, state, transpose_A=True)

    return main


def gradients_of_states(
    heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=64, num_stages=1, blocks=2, threads=128
):
    """The gradient of the state behind each chunk, of dO, W, X, kept and exp(G[last])."""
    length, chunks = T.dynamic("length"), T.dynamic("chunks")

    @T.prim_func
    def main(
        dOut: T.Tensor((length, heads, d_value), "bfloat16"),
        Removed: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Seen: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Kept: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Decay: T.Tensor((chunks, heads, d_key), "float32"),
        dState: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(d_value, columns), heads, threads=threads) as (bx, h):
            # The steps of a chunk wait for each other: a second block computes meanwhile.
            T.annotate_min_blocks_per_sm(blocks)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(232 if blocks == 1 else 208)
            removed = T.alloc_shared((chunk, d_key), "bfloat16")
            seen = T.alloc_shared((chunk, d_key), "bfloat16")
            kept = T.alloc_shared((chunk, d_key), "bfloat16")
            d_out = T.alloc_shared((chunk, columns), "bfloat16")
            decay = T.alloc_shared((d_key,), "float32")
            state_shared = T.alloc_shared((d_key, columns), "bfloat16")
            change_shared = T.alloc_shared((chunk, columns), "bfloat16")
            state = T.alloc_fragment((d_key, columns), "float32")
            change = T.alloc_fragment((chunk, columns), "float32")
            here = slice(bx * columns, (bx + 1) * columns)
            T.clear(state)
            for step in T.Pipelined(chunks, num_stages=num_stages):
                n = chunks - 1 - step
                T.copy(Kept[n, h, :, :], kept)
                T.copy(Seen[n, h, :, :], seen)
                T.copy(dOut[n * chunk : (n + 1) * chunk, h, here], d_out)
                T.copy(Removed[n, h, :, :], removed)
                T.copy(Decay[n, h, :], decay)
                store(state, state_shared, dState[n, h, :, here])
                T.gemm(kept, state_shared, change, clear_accum=True)
                for i, d in T.Parallel(chunk, columns):
                    change_shared[i, d] = -change[i, d]
                for i, d in T.Parallel(d_key, columns):
                    state[i, d] *= decay[i]
                T.gemm(seen, d_out, state, transpose_A=True)
                T.gemm(removed, change_shared, state, transpose_A=True)

    return main


def gradients(heads, channels, chunk=CHUNK, d_key=KEY, d_value=VALUE, blocks=2, threads=256):
    """dQ, dK, dV, the gate's gradient and beta's: a block has a chunk."""
    length, chunks = T.dynamic("length"), T.dynamic("chunks")
    gates = (chunk, d_key) if channels else (chunk,)

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Gate: T.Tensor((length, heads, *gates[1:]), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        dOut: T.Tensor((length, heads, d_value), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Weights: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Kept: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Decay: T.Tensor((chunks, heads, d_key), "float32"),
        State: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
        Updates: T.Tensor((chunks, heads, chunk, d_value), "bfloat16"),
        dState: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
        dQ: T.Tensor((length, heads, d_key), "bfloat16"),
        dK: T.Tensor((length, heads, d_key), "bfloat16"),
        dV: T.Tensor((length, heads, d_value), "bfloat16"),
        dGate: T.Tensor((length, heads, *gates[1:]), "float32"),
        dBeta: T.Tensor((length, heads), "float32"),
    ):
        with T.Kernel(chunks, heads, threads=threads) as (n, h):
            # A block's loads and products wait for each other: another one runs meanwhile.
            T.annotate_min_blocks_per_sm(1 if channels else blocks)
            d_out = T.alloc_shared((chunk, d_value), "bfloat16")
            weights = T.alloc_shared((chunk, chunk), "bfloat16")
            inverse = T.alloc_shared((chunk, chunk), "bfloat16")
            kept = T.alloc_shared((chunk, d_key), "bfloat16")
            d_state = T.alloc_shared((d_key, d_value), "bfloat16")
            state = T.alloc_shared((d_key, d_value), "bfloat16")
            updates = T.alloc_shared((chunk, d_value), "bfloat16")
            right_shared = T.alloc_shared((chunk, d_value), "bfloat16")
            v = T.alloc_shared((chunk, d_value), "bfloat16")
            q = T.alloc_shared((chunk, d_key), "bfloat16")
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            k_column = T.alloc_shared((chunk, d_key), "bfloat16") if channels else k
            beta = T.alloc_shared((chunk,), "float32")
            log_decay = T.alloc_shared(gates, "float32")
            # dP, dA and beta dA.
            slopes = T.alloc_shared((3, chunk, chunk), "bfloat16")
            right = T.alloc_fragment((chunk, d_value), "float32")
            product = T.alloc_fragment((chunk, d_value), "float32")
            d_weights = T.alloc_fragment((chunk, chunk), "float32")
            d_system = T.alloc_fragment((chunk, chunk), "float32")
            query = T.alloc_fragment((chunk, d_key), "float32")
            row = T.alloc_fragment((chunk, d_key), "float32")
            column = T.alloc_fragment((chunk, d_key), "float32")
            d_gates = T.alloc_fragment((chunk, d_key), "float32")
            state_rows = T.alloc_fragment((d_key, d_value), "bfloat16")
            of_states = T.alloc_fragment((d_key, d_value), "float32")
            d_beta = T.alloc_fragment((chunk,), "float32")
            d_row = T.alloc_fragment((chunk,), "float32")
            d_channel = T.alloc_fragment((d_key,), "float32")
            d_last = T.alloc_fragment((1,), "float32")
            d_last_shared = T.alloc_shared((d_key,) if channels else (1,), "float32")
            rows = slice(n * chunk, (n + 1) * chunk)

            # R = T^T (P^T dO + kept dS'), and what follows from it alone.
            T.copy(Kept[n, h, :, :], kept)
            T.copy(dState[n, h, :, :], d_state)
            T.copy(dOut[rows, h, :], d_out)
            T.copy(Weights[n, h, :, :], weights)
            T.copy(Inverse[n, h, :, :], inverse)
            T.copy(Beta[rows, h], beta)
            T.gemm(weights, d_out, right, transpose_A=True, clear_accum=True)
            T.gemm(kept, d_state, right)
            T.copy(right, right_shared)
            T.gemm(inverse, right_shared, right, transpose_A=True, clear_accum=True)
            T.copy(right, right_shared)
            T.copy(V[rows, h, :], v)
            for i, d in T.Parallel(chunk, d_value):
                product[i, d] = right[i, d] * v[i, d]
                right[i, d] *= beta[i]
            T.reduce_sum(product, d_beta, dim=1)
            store(right, v, dV[rows, h, :])

            # What both states give to dG[last].
            T.copy(State[n, h, :, :], state_rows)
            for i, d in T.Parallel(d_key, d_value):
                of_states[i, d] = state_rows[i, d] * d_state[i, d]
            T.reduce_sum(of_states, d_channel, dim=1)
            for d in T.Parallel(d_key):
                d_channel[d] *= Decay[n, h, d]

            # dP and dA, with the decays of a gate a head.
            T.copy(Updates[n, h, :, :], updates)
            if not channels:
                T.reduce_sum(d_channel, d_last, dim=0)
                T.copy(Gate[rows, h], log_decay)
                T.cumsum(log_decay, dim=0)
            T.gemm(d_out, updates, d_weights, transpose_B=True, clear_accum=True)
            T.gemm(right_shared, updates, d_system, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(chunk, chunk):
                decay = 1.0 if channels else T.exp(T.min(log_decay[i] - log_decay[j], 0))
                d_weights[i, j] = T.if_then_else(i >= j, d_weights[i, j] * decay, 0)
                d_system[i, j] = T.if_then_else(i > j, -d_system[i, j] * decay, 0)
            T.copy(d_weights, slopes[0, :, :])
            T.copy(d_system, slopes[1, :, :])
            for i, j in T.Parallel(chunk, chunk):
                d_system[i, j] *= beta[i]
            T.copy(d_system, slopes[2, :, :])

            # dq, of the state and of the chunk; the factor of both products comes last.
            T.gemm(updates, d_state, column, transpose_B=True, clear_accum=True)
            if not channels:
                for i, d in T.Parallel(chunk, d_key):
                    column[i, d] *= T.exp(log_decay[chunk - 1] - log_decay[i])
            T.copy(State[n, h, :, :], state)
            T.gemm(d_out, state, query, transpose_B=True, clear_accum=True)
            if channels:
                T.gemm(right_shared, state, row, transpose_B=True, clear_accum=True)
                T.copy(Gate[rows, h, :], log_decay)
                T.cumsum(log_decay, dim=0)
            for i, d in T.Parallel(chunk, d_key):
                shared = log_decay[chunk // 2 - 1, d] if channels else log_decay[i]
                query[i, d] *= T.exp(shared)
                if channels:
                    column[i, d] *= T.exp(log_decay[chunk - 1, d] - shared)
            T.copy(Q[rows, h, :], q)
            T.copy(K[rows, h, :], k)
            if channels:
                for i, d in T.Parallel(chunk, d_key):
                    decay = log_decay[i, d] - log_decay[chunk // 2 - 1, d]
                    k_column[i, d] = k[i, d] * T.exp(-decay)
                    q[i, d] = q[i, d] * T.exp(decay)
                    k[i, d] = k[i, d] * T.exp(decay)
            # The updates' part of dG[last], kept U dS'^T.
            for i, d in T.Parallel(chunk, d_key):
                d_gates[i, d] = k_column[i, d] * column[i, d]
            if channels:
                T.reduce_sum(d_gates, d_channel, dim=0, clear=False)
                T.copy(d_channel, d_last_shared)
            else:
                T.reduce_sum(d_gates, d_row, dim=1)
                T.reduce_sum(d_row, d_last, dim=0, clear=False)
                T.copy(d_last, d_last_shared)
            T.gemm(slopes[0, :, :], k_column, query)
            T.gemm(slopes[0, :, :], q, column, transpose_A=True)
            for i, d in T.Parallel(chunk, d_key):
                d_gates[i, d] = q[i, d] * query[i, d]
            if channels:
                for i, d in T.Parallel(chunk, d_key):
                    query[i, d] *= T.exp(log_decay[i, d] - log_decay[chunk // 2 - 1, d])
            else:
                T.reduce_sum(d_gates, d_row, dim=1)
            store(query, q, dQ[rows, h, :])

            # dk, of a row and of a column.
            if not channels:
                T.gemm(right_shared, state, row, transpose_B=True, clear_accum=True)
            for i, d in T.Parallel(chunk, d_key):
                shared = log_decay[chunk // 2 - 1, d] if channels else log_decay[i]
                row[i, d] *= -T.exp(shared)
            T.gemm(slopes[1, :, :], k_column, row)
            T.gemm(slopes[2, :, :], k, column, transpose_A=True)
            if channels:
                for i, d in T.Parallel(chunk, d_key):
                    d_gates[i, d] += beta[i] * k[i, d] * row[i, d] - k_column[i, d] * column[i, d]
                for i, d in T.Parallel(chunk, d_key):
                    decay = log_decay[i, d] - log_decay[chunk // 2 - 1, d]
                    column[i, d] = column[i, d] * T.exp(-decay) + beta[i] * row[i, d] * T.exp(decay)
            else:
                for i, d in T.Parallel(chunk, d_key):
                    d_gates[i, d] = k[i, d] * (beta[i] * row[i, d] - column[i, d])
                for i, d in T.Parallel(chunk, d_key):
                    column[i, d] += beta[i] * row[i, d]
                T.reduce_sum(d_gates, d_row, dim=1, clear=False)
            for i, d in T.Parallel(chunk, d_key):
                row[i, d] *= k[i, d]
            T.reduce_sum(row, d_beta, dim=1, clear=False)
            store(column, k, dK[rows, h, :])
            T.copy(d_beta, dBeta[rows, h])

            # A gate is in all G behind it.
            if channels:
                T.copy(d_gates, log_decay)
            else:
                T.copy(d_row, log_decay)
            T.cumsum(log_decay, dim=0, reverse=True)
            if channels:
                for i, d in T.Parallel(chunk, d_key):
                    log_decay[i, d] += d_last_shared[d]
                T.copy(log_decay, dGate[rows, h, :])
            else:
                for i in T.Parallel(chunk):
                    log_decay[i] += d_last_shared[0]
                T.copy(log_decay, dGate[rows, h])

    return main


def kernels_of(heads, channels, chunk=CHUNK, key=KEY, value=VALUE, **options):
    """The four kernels; `options` are those of tilelang.compile."""
    sizes = chunk, key, value
    return [
        tilelang.compile(program, **options)
        for program in (
            chunk_parts(heads, channels, *sizes),
            states(heads, *sizes, columns=min(value, 64)),
            gradients_of_states(heads, *sizes, columns=min(value, 64)),
            gradients(heads, channels, *sizes),
        )
    ]


def backward(q, k, v, gate, beta, d_out, kernels, chunk=CHUNK):
    """dQ, dK and dV in bfloat16, the gradients of the gates and of beta in float32, of all that the
    forward has; `d_out` is (length, heads, d_value) in bfloat16, `kernels` are `kernels_of` it."""
    make_parts, make_states, make_gradients, make_results = kernels
    inverse, weights, removed, added, seen, kept, decay = parts = parts_of(q, v, chunk)
    make_parts(q, k, v, gate, beta, *parts)
    shape = (*decay.shape, v.shape[2])
    state, d_state = (torch.empty(shape, dtype=q.dtype, device=q.device) for _ in range(2))
    updates = torch.empty_like(added)
    make_states(removed, added, kept, decay, state, updates)
    make_gradients(d_out, removed, seen, kept, decay, d_state)
    found = [torch.empty_like(x) for x in (q, k, v, gate, beta)]
    tiles = inverse, weights, kept, decay, state, updates, d_state
    make_results(q, k, v, gate, beta, d_out, *tiles, *found)
    return found


def errors(
    heads, length, channels, device="cpu", sizes=(CHUNK, KEY, VALUE), gates=0.125, **options
):
    """||ours - float64|| / ||float64|| of each gradient, for `sizes` of a chunk, of keys and of
    values. The logarithms of gates are above `-gates`; `options` are those of tilelang.compile."""
    chunk, key, value = sizes
    torch.manual_seed(0)
    q, k, v, beta = inputs(heads, length, key, value, device)
    shape = (length, heads, key) if channels else (length, heads)
    gate = -torch.rand(shape, device=device) * gates
    d_out = torch.randn_like(v)
    kernels = kernels_of(heads, channels, *sizes, **options)
    found = backward(q, k, v, gate, beta, d_out, kernels, chunk)
    leaves = [x.double().requires_grad_() for x in (q, k, v, gate, beta)]
    wanted = torch.autograd.grad(reference(*leaves), leaves, d_out.double())
    return [float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)]


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    # Autograd keeps a state in float64 for each row and head.
    parser.add_argument("--length", type=int, default=1000 if gpu else 100)
    parser.add_argument("--heads", type=int, default=32 if gpu else 1)
    parser.add_argument("--dim", type=int, nargs=2, default=[128, 128] if gpu else [KEY, VALUE])
    arguments = parser.parse_args()
    for channels in (False, True):
        error = max(
            errors(
                *(arguments.heads, arguments.length, channels, "cuda" if gpu else "cpu"),
                sizes=(CHUNK, *arguments.dim),
            )
        )
        assert error < 2e-2, f"relative error {error:.1e}, wanted under 2e-2"
        name = "a gate for each channel" if channels else "a gate for each head"
        print(f"length {arguments.length}, {name}: relative error {error:.1e}")
