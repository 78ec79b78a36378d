"""The gated delta rule and Kimi Delta Attention in two kernels: what chunks do alone,
beside each other, and then what waits for the state, from chunk to chunk. Check both gates against
float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from delta_rule import BLOCK, CHUNK, KEY, VALUE, inputs, invert_blocks, join_blocks, reference

import tilelang
import tilelang.language as T

# Of a chunk's rows i, with G the sums of the logarithms of gates since its begin, `last` its last
# row, and S the state before it (Yang, Kautz, Hatamizadeh 2024, "Gated Delta Networks", for a gate
# a head; Kimi Team 2025, for gates of channels, whose exponents stand inside of the products):
#   A[i, j] = beta[i] exp(G[i] - G[j]) k[i] . k[j] for j < i,   T = (1 + A)^-1,
#   P[i, j] = exp(G[i] - G[j]) q[i] . k[j]         for j <= i,
#   kept[j] = exp(G[last] - G[j]) k[j],             W = T (beta exp(G) k),
#   U = T (beta v) - W S, O = exp(G) q S + P U,     S' = exp(G[last]) S + kept^T U.
# With X = exp(G) q - P W, O = X S + P T (beta v): but for U and S', chunks wait for nothing.
#
# Exponents of a gate a head are never above zero. Those of channels become factors of a row and of
# a column, relative to the middle of the chunk: the sum of each half's gates has to stay above -80.


@T.macro
def invert(system, inverse_shared):
    # As in the forward, but the inverse itself: its products follow.
    chunk = system.shape[0]
    inverse = T.alloc_shared((chunk, chunk), "float16")
    below = T.alloc_shared((chunk, chunk), "float16")
    invert_blocks(system, inverse)
    join_blocks(system, inverse, below, BLOCK)
    if chunk > 2 * BLOCK:
        join_blocks(system, inverse, below, 2 * BLOCK)
    T.copy(inverse, inverse_shared)


@T.macro
def store(rows, tile, target):
    # Through shared memory, in whole rows.
    T.copy(rows, tile)
    T.copy(tile, target)


def chunk_parts(heads, channels, chunk=CHUNK, d_key=KEY, d_value=VALUE, threads=None):
    """T, P, W, T (beta v), X and kept of each chunk, and exp(G[last]): a block has a chunk."""
    length, chunks = T.dynamic("length"), T.dynamic("chunks")
    gates = (chunk, d_key) if channels else (chunk,)
    threads = threads or (256 if channels else 128)

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Gate: T.Tensor((length, heads, *gates[1:]), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Weights: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Removed: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Added: T.Tensor((chunks, heads, chunk, d_value), "bfloat16"),
        Seen: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Kept: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Decay: T.Tensor((chunks, heads, d_key), "float32"),
    ):
        with T.Kernel(chunks, heads, threads=threads) as (n, h):
            q = T.alloc_shared((chunk, d_key), "bfloat16")
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            v = T.alloc_shared((chunk, d_value), "bfloat16")
            beta = T.alloc_shared((chunk,), "float32")
            log_decay = T.alloc_shared(gates, "float32")
            weights_shared = T.alloc_shared((chunk, chunk), "bfloat16")
            inverse = T.alloc_shared((chunk, chunk), "bfloat16")
            system_shared = T.alloc_shared((chunk, chunk), "float32")
            keys = T.alloc_shared((chunk, d_key), "bfloat16")
            removed_shared = T.alloc_shared((chunk, d_key), "bfloat16")
            system = T.alloc_fragment((chunk, chunk), "float32")
            weights = T.alloc_fragment((chunk, chunk), "float32")
            removed = T.alloc_fragment((chunk, d_key), "float32")
            added = T.alloc_fragment((chunk, d_value), "float32")
            rows = slice(n * chunk, (n + 1) * chunk)
            # Rows behind the end are zero: they decay and change nothing.
            if channels:
                T.copy(Gate[rows, h, :], log_decay)
            else:
                T.copy(Gate[rows, h], log_decay)
            T.copy(K[rows, h, :], k)
            T.copy(Q[rows, h, :], q)
            T.copy(Beta[rows, h], beta)
            T.cumsum(log_decay, dim=0)
            if channels:
                q_row = T.alloc_shared((chunk, d_key), "bfloat16")
                k_row = T.alloc_shared((chunk, d_key), "bfloat16")
                k_column = T.alloc_shared((chunk, d_key), "bfloat16")
                for i, d in T.Parallel(chunk, d_key):
                    decay = log_decay[i, d] - log_decay[chunk // 2 - 1, d]
                    q_row[i, d] = q[i, d] * T.exp(decay)
                    k_row[i, d] = k[i, d] * T.exp(decay)
                    k_column[i, d] = k[i, d] * T.exp(-decay)
                T.gemm(k_row, k_column, system, transpose_B=True, clear_accum=True)
                T.gemm(q_row, k_column, weights, transpose_B=True, clear_accum=True)
            else:
                T.gemm(k, k, system, transpose_B=True, clear_accum=True)
                T.gemm(q, k, weights, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(chunk, chunk):
                decay = 1.0 if channels else T.exp(T.min(log_decay[i] - log_decay[j], 0))
                system[i, j] = T.if_then_else(i > j, system[i, j] * beta[i] * decay, 0)
                weights[i, j] = T.if_then_else(i >= j, weights[i, j] * decay, 0)
            T.copy(system, system_shared)
            store(weights, weights_shared, Weights[n, h, :, :])
            invert(system_shared, inverse)
            T.copy(inverse, Inverse[n, h, :, :])
            for i, d in T.Parallel(chunk, d_key):
                before = log_decay[i, d] if channels else log_decay[i]
                total = log_decay[chunk - 1, d] if channels else log_decay[chunk - 1]
                keys[i, d] = k[i, d] * T.exp(before) * beta[i]
                q[i, d] = q[i, d] * T.exp(before)
                k[i, d] = k[i, d] * T.exp(total - before)
            T.copy(k, Kept[n, h, :, :])
            for d in T.Parallel(d_key):
                total = log_decay[chunk - 1, d] if channels else log_decay[chunk - 1]
                Decay[n, h, d] = T.exp(total)
            T.gemm(inverse, keys, removed, clear_accum=True)
            store(removed, removed_shared, Removed[n, h, :, :])
            T.gemm(weights_shared, removed_shared, removed, clear_accum=True)
            for i, d in T.Parallel(chunk, d_key):
                removed[i, d] = q[i, d] - removed[i, d]
            store(removed, q, Seen[n, h, :, :])
            T.copy(V[rows, h, :], v)
            for i, d in T.Parallel(chunk, d_value):
                v[i, d] = v[i, d] * beta[i]
            T.gemm(inverse, v, added, clear_accum=True)
            store(added, v, Added[n, h, :, :])

    return main


def outputs(
    heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=64, num_stages=1, blocks=2, threads=128
):
    """O of W, T (beta v), X, P, kept and exp(G[last]). A block has a head's state for
    `columns` of its values."""
    length, chunks = T.dynamic("length"), T.dynamic("chunks")

    @T.prim_func
    def main(
        Weights: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Removed: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Added: T.Tensor((chunks, heads, chunk, d_value), "bfloat16"),
        Seen: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Kept: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Decay: T.Tensor((chunks, heads, d_key), "float32"),
        Out: T.Tensor((length, heads, d_value), "float32"),
    ):
        with T.Kernel(T.ceildiv(d_value, columns), heads, threads=threads) as (bx, h):
            # The steps of a chunk wait for each other: a second block computes meanwhile.
            T.annotate_min_blocks_per_sm(blocks)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(232 if blocks == 1 else 208)
            weights = T.alloc_shared((chunk, chunk), "bfloat16")
            removed = T.alloc_shared((chunk, d_key), "bfloat16")
            seen = T.alloc_shared((chunk, d_key), "bfloat16")
            kept = T.alloc_shared((chunk, d_key), "bfloat16")
            added = T.alloc_shared((chunk, columns), "bfloat16")
            decay = T.alloc_shared((d_key,), "float32")
            state_shared = T.alloc_shared((d_key, columns), "bfloat16")
            updates_shared = T.alloc_shared((chunk, columns), "bfloat16")
            state = T.alloc_fragment((d_key, columns), "float32")
            updates = T.alloc_fragment((chunk, columns), "float32")
            out = T.alloc_fragment((chunk, columns), "float32")
            here = slice(bx * columns, (bx + 1) * columns)
            T.clear(state)
            for n in T.Pipelined(chunks, num_stages=num_stages):
                T.copy(Removed[n, h, :, :], removed)
                T.copy(Added[n, h, :, here], added)
                T.copy(Kept[n, h, :, :], kept)
                T.copy(Decay[n, h, :], decay)
                T.copy(Seen[n, h, :, :], seen)
                T.copy(Weights[n, h, :, :], weights)
                T.copy(state, state_shared)
                T.gemm(removed, state_shared, updates, clear_accum=True)
                T.gemm(weights, added, out, clear_accum=True)
                T.gemm(seen, state_shared, out)
                for i, d in T.Parallel(chunk, columns):
                    updates_shared[i, d] = added[i, d] - updates[i, d]
                for i, d in T.Parallel(d_key, columns):
                    state[i, d] *= decay[i]
                T.gemm(kept, updates_shared, state, transpose_A=True)
                T.copy(out, Out[n * chunk : (n + 1) * chunk, h, here])

    return main


def parts_of(q, v, chunk):
    """Tensors for T, P, W, T (beta v), X, kept and exp(G[last]) of each chunk."""
    (length, heads, d_key), d_value = q.shape, v.shape[2]
    chunks = -(-length // chunk)
    widths = chunk, chunk, d_key, d_value, d_key, d_key
    shapes = [(chunks, heads, chunk, width) for width in widths]
    tiles = [torch.empty(shape, dtype=q.dtype, device=q.device) for shape in shapes]
    return *tiles, torch.empty(chunks, heads, d_key, device=q.device)


def relative_error(heads, length, channels, device="cpu", chunk=CHUNK, key=KEY, value=VALUE):
    """||ours - reference|| / ||reference||; with `channels` each has a gate of its own."""
    torch.manual_seed(0)
    q, k, v, beta = inputs(heads, length, key, value, device)
    gate = -torch.rand((length, heads, key) if channels else (length, heads), device=device) / 8
    parts, out = parts_of(q, v, chunk), torch.empty(length, heads, value, device=device)
    tilelang.compile(chunk_parts(heads, channels, chunk, key, value))(q, k, v, gate, beta, *parts)
    columns = min(value, 64)
    tilelang.compile(outputs(heads, chunk, key, value, columns))(*parts[1:], out)
    wanted = reference(q, k, v, gate, beta)
    return float((out.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096 if gpu else 100)
    parser.add_argument("--heads", type=int, default=32 if gpu else 1)
    parser.add_argument("--dim", type=int, nargs=2, default=[128, 128] if gpu else [KEY, VALUE])
    arguments = parser.parse_args()
    for channels in (False, True):
        error = relative_error(
            *(arguments.heads, arguments.length, channels, "cuda" if gpu else "cpu"),
            *(CHUNK, *arguments.dim),
        )
        assert error < 2e-2, f"relative error {error:.1e}, wanted under 2e-2"
        name = "a gate for each channel" if channels else "a gate for each head"
        print(f"length {arguments.length}, {name}: relative error {error:.1e}")
