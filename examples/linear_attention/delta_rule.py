"""The gated delta rule (Yang, Kautz, Hatamizadeh 2024) in chunks: S = g S (I - b k k^T) + b v k^T.
The updates of a chunk follow from a triangular system, solved by the inverses of its blocks. In
Kimi Delta Attention (Kimi Team 2025) each channel of the keys has a gate of its own. Check both
against float64.

A kernel solves the system of a chunk when it comes there (`delta_rule`, `channel_delta_rule`). Or
one inverts the systems of all chunks, which wait for no state, and another one goes from chunk to
chunk (`chunk_inverses` and `delta_rule_by_inverses`).

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

CHUNK, KEY, VALUE, BLOCK = 64, 32, 64, 16
# A quick exponential is as good as another where results are rounded to bfloat16.
FAST_MATH = {tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True}


@T.macro
def invert_blocks(system, inverse):
    # inverse = (1 + system)^-1 of each block on the diagonal of a strictly lower triangle, a column
    # a thread: less each row times what the rows above have of it.
    chunk = system.shape[0]
    factors = T.alloc_shared((chunk, BLOCK), "float32")
    column = T.alloc_fragment((chunk, BLOCK), "float32")
    for i, j in T.Parallel(chunk, chunk):
        if i // BLOCK == j // BLOCK:
            factors[i, j % BLOCK] = system[i, j]
    T.clear(inverse)
    for j in T.Parallel(chunk):
        for i in T.unroll(BLOCK):
            column[j, i] = T.if_then_else(i == j % BLOCK, 1, 0)
        for k in T.unroll(BLOCK - 1):
            for i in T.unroll(k + 1, BLOCK):
                column[j, i] -= factors[j // BLOCK * BLOCK + i, k] * column[j, k]
        for i in T.unroll(BLOCK):
            inverse[j // BLOCK * BLOCK + i, j] = column[j, i]


@T.macro
def join_blocks(system, inverse, below, size):
    # Of blocks on the diagonal make blocks of twice their size: [[A, 0], [B, C]] has the inverse
    # [[A', 0], [-C' B A', C']]. Numbers are of float16, whose mantissa is that of tf32.
    chunk = system.shape[0]
    product = T.alloc_fragment((chunk, chunk), "float32")
    factor = T.alloc_fragment((chunk, chunk), "float16")
    for i, j in T.Parallel(chunk, chunk):
        below[i, j] = T.if_then_else(
            i // size == j // size + 1 and j // size % 2 == 0, system[i, j], 0
        )
    T.gemm(inverse, below, product, clear_accum=True)
    T.copy(product, factor)
    T.gemm(factor, inverse, product, clear_accum=True)
    for i, j in T.Parallel(chunk, chunk):
        product[i, j] = inverse[i, j] - product[i, j]
    T.copy(product, inverse)


@T.macro
def invert(system, inverse, below):
    # Of the blocks of 16 rows on the diagonal, then of 32, then of all.
    invert_blocks(system, inverse)
    join_blocks(system, inverse, below, BLOCK)
    if system.shape[0] > 2 * BLOCK:
        join_blocks(system, inverse, below, 2 * BLOCK)


@T.macro
def solve_by_blocks(system, right, solved):
    chunk = system.shape[0]
    right_shared = T.alloc_shared(right.shape, "bfloat16")
    inverse = T.alloc_shared((chunk, chunk), "float16")
    below = T.alloc_shared((chunk, chunk), "float16")
    inverse_cast = T.alloc_fragment((chunk, chunk), "bfloat16")
    T.copy(right, right_shared)
    invert(system, inverse, below)
    T.copy(inverse, inverse_cast)
    T.gemm(inverse_cast, right_shared, solved, clear_accum=True)


def delta_rule(heads, solve, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=VALUE, threads=128):
    """A block has a head's state for `columns` of its values; `solve` is one of the macros."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Gate: T.Tensor((length, heads), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Out: T.Tensor((length, heads, d_value), "float32"),
    ):
        with T.Kernel(T.ceildiv(d_value, columns), heads, threads=threads) as (bx, h):
            # The steps of a chunk wait for each other: a second block computes meanwhile.
            T.annotate_min_blocks_per_sm(2)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(224)
            q = T.alloc_shared((chunk, d_key), "bfloat16")
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            v = T.alloc_shared((chunk, columns), "bfloat16")
            gate = T.alloc_shared((chunk,), "float32")
            beta = T.alloc_shared((chunk,), "float32")
            log_decay = T.alloc_shared((chunk,), "float32")
            state_shared = T.alloc_shared((d_key, columns), "bfloat16")
            decayed = T.alloc_shared((chunk, d_key), "bfloat16")
            updates_shared = T.alloc_shared((chunk, columns), "bfloat16")
            # In shared memory during the solution, which needs the registers.
            system_shared = T.alloc_shared((chunk, chunk), "float32")
            weights = T.alloc_shared((chunk, chunk), "bfloat16")
            system = T.alloc_fragment((chunk, chunk), "float32")
            scores = T.alloc_fragment((chunk, chunk), "float32")
            right = T.alloc_fragment((chunk, columns), "float32")
            updates = T.alloc_fragment((chunk, columns), "float32")
            state = T.alloc_fragment((d_key, columns), "float32")
            out = T.alloc_fragment((chunk, columns), "float32")
            here = slice(bx * columns, (bx + 1) * columns)
            T.clear(state)
            # All that reads a chunk's tiles comes first: the next ones arrive meanwhile.
            for n in T.Pipelined(T.ceildiv(length, chunk), num_stages=1):
                rows = slice(n * chunk, (n + 1) * chunk)
                T.copy(K[rows, h, :], k)
                # Rows behind the end are zero: they decay nothing.
                T.copy(Gate[rows, h], gate)
                T.copy(Beta[rows, h], beta)
                T.copy(V[rows, h, here], v)
                T.copy(Q[rows, h, :], q)
                T.cumsum(gate, log_decay, dim=0)
                T.gemm(k, k, system, transpose_B=True, clear_accum=True)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    decay = T.if_then_else(i >= j, T.exp(log_decay[i] - log_decay[j]), 0)
                    system[i, j] = T.if_then_else(i > j, system[i, j] * beta[i] * decay, 0)
                    weights[i, j] = scores[i, j] * decay
                T.copy(system, system_shared)
                T.copy(state, state_shared)
                T.gemm(k, state_shared, right, clear_accum=True)
                T.gemm(q, state_shared, out, clear_accum=True)
                for i, d in T.Parallel(chunk, columns):
                    right[i, d] = beta[i] * (v[i, d] - T.exp(log_decay[i]) * right[i, d])
                total = log_decay[chunk - 1]
                for i, d in T.Parallel(chunk, d_key):
                    decayed[i, d] = k[i, d] * T.exp(total - log_decay[i])
                for i, d in T.Parallel(chunk, columns):
                    out[i, d] *= T.exp(log_decay[i])
                for i, d in T.Parallel(d_key, columns):
                    state[i, d] *= T.exp(total)
                solve(system_shared, right, updates)
                T.copy(updates, updates_shared)
                T.gemm(weights, updates_shared, out)
                T.gemm(decayed, updates_shared, state, transpose_A=True)
                T.copy(out, Out[rows, h, here])

    return main


def chunk_inverses(heads, chunk=CHUNK, d_key=KEY, threads=128):
    """What of each chunk needs no state: (1 + system)^-1 diag(beta), (chunks, heads, chunk, chunk),
    and the sums of the gates since the chunk's begin, (chunks, heads, chunk). A block has a chunk
    of a head."""
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        Gate: T.Tensor((length, heads), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        LogDecay: T.Tensor((chunks, heads, chunk), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, chunks, threads=threads) as (h, n):
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            gate = T.alloc_shared((chunk,), "float32")
            beta = T.alloc_shared((chunk,), "float32")
            log_decay = T.alloc_shared((chunk,), "float32")
            system_shared = T.alloc_shared((chunk, chunk), "float32")
            inverse = T.alloc_shared((chunk, chunk), "float16")
            below = T.alloc_shared((chunk, chunk), "float16")
            inverse_cast = T.alloc_shared((chunk, chunk), "bfloat16")
            system = T.alloc_fragment((chunk, chunk), "float32")
            rows = slice(n * chunk, (n + 1) * chunk)
            T.copy(K[rows, h, :], k)
            # Rows behind the end are zero: they decay nothing.
            T.copy(Gate[rows, h], gate)
            T.copy(Beta[rows, h], beta)
            T.cumsum(gate, log_decay, dim=0)
            T.gemm(k, k, system, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(chunk, chunk):
                decay = T.exp(log_decay[i] - log_decay[j])
                system[i, j] = T.if_then_else(i > j, system[i, j] * beta[i] * decay, 0)
            T.copy(system, system_shared)
            invert(system_shared, inverse, below)
            for i, j in T.Parallel(chunk, chunk):
                inverse_cast[i, j] = inverse[i, j] * beta[j]
            T.copy(inverse_cast, Inverse[n, h, :, :])
            T.copy(log_decay, LogDecay[n, h, :])

    return main


def delta_rule_by_inverses(
    heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=VALUE, threads=128, ahead=2
):
    """The delta rule by the results of `chunk_inverses`: from chunk to chunk go products alone. A
    block has a head's state for `columns` of its values."""
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        LogDecay: T.Tensor((chunks, heads, chunk), "float32"),
        Out: T.Tensor((length, heads, d_value), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(T.ceildiv(d_value, columns), heads, threads=threads) as (bx, h):
            # The steps of a chunk wait for each other: a second block computes meanwhile.
            T.annotate_min_blocks_per_sm(2)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(224 if threads == 128 else 104)
            q = T.alloc_shared((chunk, d_key), "bfloat16")
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            v = T.alloc_shared((chunk, columns), "bfloat16")
            inverse = T.alloc_shared((chunk, chunk), "bfloat16")
            log_decay = T.alloc_shared((chunk,), "float32")
            state_shared = T.alloc_shared((d_key, columns), "bfloat16")
            right_shared = T.alloc_shared((chunk, columns), "bfloat16")
            updates_shared = T.alloc_shared((chunk, columns), "bfloat16")
            # The first products of a chunk wait for these: they arrive during the one before.
            T.annotate_ws_pipeline_depth({k: ahead, log_decay: ahead})
            scores = T.alloc_fragment((chunk, chunk), "float32")
            weights = T.alloc_fragment((chunk, chunk), "bfloat16")
            right = T.alloc_fragment((chunk, columns), "float32")
            state = T.alloc_fragment((d_key, columns), "float32")
            out = T.alloc_fragment((chunk, columns), "float32")
            here = slice(bx * columns, (bx + 1) * columns)
            T.clear(state)
            for n in T.Pipelined(chunks, num_stages=1):
                rows = slice(n * chunk, (n + 1) * chunk)
                T.copy(K[rows, h, :], k)
                T.copy(Q[rows, h, :], q)
                T.copy(LogDecay[n, h, :], log_decay)
                T.copy(V[rows, h, here], v)
                T.copy(Inverse[n, h, :, :], inverse)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    decay = T.exp(log_decay[i] - log_decay[j])
                    weights[i, j] = T.if_then_else(i >= j, scores[i, j] * decay, 0)
                T.copy(state, state_shared)
                T.gemm(k, state_shared, right, clear_accum=True)
                T.gemm(q, state_shared, out, clear_accum=True)
                total = log_decay[chunk - 1]
                for i, d in T.Parallel(chunk, columns):
                    right_shared[i, d] = v[i, d] - T.exp(log_decay[i]) * right[i, d]
                T.gemm(inverse, right_shared, right, clear_accum=True)
                for i, d in T.Parallel(chunk, columns):
                    out[i, d] *= T.exp(log_decay[i])
                for i, d in T.Parallel(d_key, columns):
                    state[i, d] *= T.exp(total)
                for i, d in T.Parallel(chunk, columns):
                    updates_shared[i, d] = right[i, d]
                    right_shared[i, d] = right[i, d] * T.exp(total - log_decay[i])
                T.gemm(weights, updates_shared, out)
                T.gemm(k, right_shared, state, transpose_A=True)
                T.copy(out, Out[rows, h, here])

    return main


def channel_delta_rule(
    heads, solve, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=VALUE, threads=128
):
    """A gate for each channel: rows take the decays since the chunk's begin, and columns give them
    back, so that both are products of matrices. Their sum in a chunk has to stay above -60."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Gate: T.Tensor((length, heads, d_key), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Out: T.Tensor((length, heads, d_value), "float32"),
    ):
        with T.Kernel(T.ceildiv(d_value, columns), heads, threads=threads) as (bx, h):
            T.annotate_min_blocks_per_sm(2)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(224)
            q = T.alloc_shared((chunk, d_key), "bfloat16")
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            v = T.alloc_shared((chunk, columns), "bfloat16")
            gate = T.alloc_shared((chunk, d_key), "float32")
            beta = T.alloc_shared((chunk,), "float32")
            log_decay = T.alloc_shared((chunk, d_key), "float32")
            q_decayed = T.alloc_shared((chunk, d_key), "bfloat16")
            k_decayed = T.alloc_shared((chunk, d_key), "bfloat16")
            k_grown = T.alloc_shared((chunk, d_key), "bfloat16")
            state_shared = T.alloc_shared((d_key, columns), "bfloat16")
            updates_shared = T.alloc_shared((chunk, columns), "bfloat16")
            system = T.alloc_fragment((chunk, chunk), "float32")
            scores = T.alloc_fragment((chunk, chunk), "float32")
            weights = T.alloc_fragment((chunk, chunk), "bfloat16")
            right = T.alloc_fragment((chunk, columns), "float32")
            updates = T.alloc_fragment((chunk, columns), "float32")
            state = T.alloc_fragment((d_key, columns), "float32")
            out = T.alloc_fragment((chunk, columns), "float32")
            here = slice(bx * columns, (bx + 1) * columns)
            T.clear(state)
            for n in T.Pipelined(T.ceildiv(length, chunk), num_stages=1):
                rows = slice(n * chunk, (n + 1) * chunk)
                # Rows behind the end are zero: they decay nothing.
                T.copy(Gate[rows, h, :], gate)
                T.copy(Q[rows, h, :], q)
                T.copy(K[rows, h, :], k)
                T.copy(Beta[rows, h], beta)
                T.copy(V[rows, h, here], v)
                T.cumsum(gate, log_decay, dim=0)
                for i, d in T.Parallel(chunk, d_key):
                    decay = T.exp(log_decay[i, d])
                    q_decayed[i, d] = q[i, d] * decay
                    k_decayed[i, d] = k[i, d] * decay
                    k_grown[i, d] = k[i, d] * T.exp(-log_decay[i, d])
                T.gemm(k_decayed, k_grown, system, transpose_B=True, clear_accum=True)
                T.gemm(q_decayed, k_grown, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    system[i, j] = T.if_then_else(i > j, system[i, j] * beta[i], 0)
                    weights[i, j] = T.if_then_else(i >= j, scores[i, j], 0)
                T.copy(state, state_shared)
                T.gemm(k_decayed, state_shared, right, clear_accum=True)
                T.gemm(q_decayed, state_shared, out, clear_accum=True)
                for i, d in T.Parallel(chunk, columns):
                    right[i, d] = beta[i] * (v[i, d] - right[i, d])
                solve(system, right, updates)
                T.copy(updates, updates_shared)
                T.gemm(weights, updates_shared, out)
                T.gemm(k_grown, updates_shared, state, transpose_A=True)
                for i, d in T.Parallel(d_key, columns):
                    state[i, d] *= T.exp(log_decay[chunk - 1, i])
                T.copy(out, Out[rows, h, here])

    return main


def reference(q, k, v, gate, beta):
    """A gate (length, heads), or one for each channel (length, heads, d_key)."""
    q, k, v, gate, beta = (t.double() for t in (q, k, v, gate, beta))
    state, out = torch.zeros(*q.shape[1:], v.shape[2]).to(q), []
    for t in range(len(q)):
        state = state * gate[t].exp().reshape(len(state), -1, 1)
        seen = torch.einsum("hk,hkv->hv", k[t], state)
        state = state + torch.einsum("h,hk,hv->hkv", beta[t], k[t], v[t] - seen)
        out.append(torch.einsum("hk,hkv->hv", q[t], state))
    return torch.stack(out)


def inputs(heads, length, d_key, d_value, device):
    """Q, K, V and beta."""
    q, k = (torch.randn(length, heads, d_key, device=device) for _ in range(2))
    q, k = (torch.nn.functional.normalize(t, dim=-1).bfloat16() for t in (q, k))
    v = torch.randn(length, heads, d_value, device=device).bfloat16()
    return q, k, v, torch.rand(length, heads, device=device)


def by_inverses(q, k, v, gate, beta, chunk):
    """Out (length, heads, d_value) in float32, by two kernels. `gate` is (length, heads)."""
    (length, heads, d_key), d_value = k.shape, v.shape[2]
    shape = -(-length // chunk), heads, chunk
    inverse = torch.empty(*shape, chunk, device=k.device, dtype=k.dtype)
    log_decay = torch.empty(shape, device=k.device)
    out = torch.empty(length, heads, d_value, device=k.device)
    first = chunk_inverses(heads, chunk, d_key)
    tilelang.compile(first)(k, gate, beta, inverse, log_decay)
    second = delta_rule_by_inverses(heads, chunk, d_key, d_value, columns=min(d_value, 64))
    tilelang.compile(second)(q, k, v, inverse, log_decay, out)
    return out


def by_systems(q, k, v, gate, beta, chunk):
    """The same, by one kernel. `gate` may be (length, heads, d_key)."""
    (length, heads, d_key), d_value = k.shape, v.shape[2]
    out = torch.empty(length, heads, d_value, device=k.device)
    program = channel_delta_rule if gate.dim() == 3 else delta_rule
    sizes = {"chunk": chunk, "d_key": d_key, "d_value": d_value, "columns": min(d_value, 64)}
    tilelang.compile(program(heads, solve_by_blocks, **sizes))(q, k, v, gate, beta, out)
    return out


def relative_error(form, heads, length, channels, device="cpu", chunk=CHUNK, key=KEY, value=VALUE):
    """||ours - reference|| / ||reference||; with `channels` each has a gate of its own. `form` is
    `by_inverses` or `by_systems`."""
    torch.manual_seed(0)
    q, k, v, beta = inputs(heads, length, key, value, device)
    gate = -torch.rand((length, heads, key) if channels else (length, heads), device=device) / 8
    out = form(q, k, v, gate, beta, chunk)
    wanted = reference(q, k, v, gate, beta)
    return float((out.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096 if gpu else 100)
    parser.add_argument("--heads", type=int, default=32 if gpu else 1)
    parser.add_argument("--dim", type=int, nargs=2, default=[128, 128] if gpu else [KEY, VALUE])
    arguments = parser.parse_args()
    for form, channels in ((by_inverses, False), (by_systems, False), (by_systems, True)):
        # The decays of channels take the shared memory of a chunk of 64.
        error = relative_error(
            *(form, arguments.heads, arguments.length, channels, "cuda" if gpu else "cpu"),
            *(CHUNK // 2 if channels else CHUNK, *arguments.dim),
        )
        assert error < 2e-2, f"relative error {error:.1e}, wanted under 2e-2"
        name = "a gate for each channel" if channels else "a gate for each head"
        print(f"length {arguments.length}, {name}, {form.__name__}: relative error {error:.1e}")
