"""The gated delta rule (Yang, Kautz, Hatamizadeh 2024) in chunks: S = g S (I - b k k^T) + b v k^T.
The updates of a chunk follow from a triangular system, solved row after row. In Kimi Delta
Attention (Kimi Team 2025) each channel of the keys has a gate of its own."""

import pytest
import torch

import tilelang
import tilelang.language as T

CHUNK, KEY, VALUE = 32, 32, 64


@T.macro
def solve_in_fragment(system, right, solved):
    # solved[i] = right[i] - sum over j < i of system[i, j] solved[j]
    chunk, d_value = solved.shape
    T.copy(right, solved)
    for j in T.serial(chunk - 1):
        for i, d in T.Parallel(chunk, d_value):
            if i > j:
                solved[i, d] -= system[i, j] * solved[j, d]


@T.macro
def solve_in_shared(system, right, solved):
    chunk, d_value = solved.shape
    rows = T.alloc_shared((chunk, d_value), "float32")
    factors = T.alloc_shared((chunk, chunk), "float32")
    T.copy(right, rows)
    T.copy(system, factors)
    for i in T.serial(1, chunk):
        for d in T.Parallel(d_value):
            for j in T.serial(i):
                rows[i, d] -= factors[i, j] * rows[j, d]
    T.copy(rows, solved)


def delta_rule(heads, in_fragment, chunk=CHUNK, d_key=KEY, d_value=VALUE, threads=128):
    """The system is solved in an accumulator, or in shared memory."""
    length = T.dynamic("length")

    solve = solve_in_fragment if in_fragment else solve_in_shared

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Gate: T.Tensor((length, heads), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Out: T.Tensor((length, heads, d_value), "float32"),
    ):
        with T.Kernel(heads, threads=threads) as h:
            q = T.alloc_shared((chunk, d_key), "bfloat16")
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            v = T.alloc_shared((chunk, d_value), "bfloat16")
            decayed = T.alloc_shared((chunk, d_key), "bfloat16")
            state_shared = T.alloc_shared((d_key, d_value), "bfloat16")
            updates_shared = T.alloc_shared((chunk, d_value), "bfloat16")
            log_decay = T.alloc_fragment((chunk,), "float32")
            beta = T.alloc_fragment((chunk,), "float32")
            system = T.alloc_fragment((chunk, chunk), "float32")
            scores = T.alloc_fragment((chunk, chunk), "float32")
            weights = T.alloc_fragment((chunk, chunk), "bfloat16")
            right = T.alloc_fragment((chunk, d_value), "float32")
            updates = T.alloc_fragment((chunk, d_value), "float32")
            state = T.alloc_fragment((d_key, d_value), "float32")
            out = T.alloc_fragment((chunk, d_value), "float32")
            T.clear(state)
            for n in T.Pipelined(T.ceildiv(length, chunk), num_stages=2):
                T.copy(Q[n * chunk : (n + 1) * chunk, h, :], q)
                T.copy(K[n * chunk : (n + 1) * chunk, h, :], k)
                T.copy(V[n * chunk : (n + 1) * chunk, h, :], v)
                for i in T.Parallel(chunk):
                    log_decay[i] = T.if_then_else(n * chunk + i < length, Gate[n * chunk + i, h], 0)
                    beta[i] = T.if_then_else(n * chunk + i < length, Beta[n * chunk + i, h], 0)
                T.cumsum(log_decay, dim=0)
                T.gemm(k, k, system, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    system[i, j] = T.if_then_else(
                        i > j, system[i, j] * beta[i] * T.exp(log_decay[i] - log_decay[j]), 0
                    )
                T.copy(state, state_shared)
                T.gemm(k, state_shared, right, clear_accum=True)
                for i, d in T.Parallel(chunk, d_value):
                    right[i, d] = beta[i] * (v[i, d] - T.exp(log_decay[i]) * right[i, d])
                solve(system, right, updates)
                T.copy(updates, updates_shared)
                T.gemm(q, state_shared, out, clear_accum=True)
                for i, d in T.Parallel(chunk, d_value):
                    out[i, d] *= T.exp(log_decay[i])
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    weights[i, j] = T.if_then_else(
                        i >= j, scores[i, j] * T.exp(log_decay[i] - log_decay[j]), 0
                    )
                T.gemm(weights, updates_shared, out)
                T.copy(out, Out[n * chunk : (n + 1) * chunk, h, :])
                total = log_decay[chunk - 1]
                for i, d in T.Parallel(chunk, d_key):
                    decayed[i, d] = k[i, d] * T.exp(total - log_decay[i])
                for i, d in T.Parallel(d_key, d_value):
                    state[i, d] *= T.exp(total)
                T.gemm(decayed, updates_shared, state, transpose_A=True)

    return main


def channel_delta_rule(heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, threads=128):
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
        with T.Kernel(heads, threads=threads) as h:
            q = T.alloc_shared((chunk, d_key), "bfloat16")
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            v = T.alloc_shared((chunk, d_value), "bfloat16")
            gate = T.alloc_shared((chunk, d_key), "float32")
            q_decayed = T.alloc_shared((chunk, d_key), "bfloat16")
            k_decayed = T.alloc_shared((chunk, d_key), "bfloat16")
            k_grown = T.alloc_shared((chunk, d_key), "bfloat16")
            k_last = T.alloc_shared((chunk, d_key), "bfloat16")
            total = T.alloc_shared((d_key,), "float32")
            state_shared = T.alloc_shared((d_key, d_value), "bfloat16")
            updates_shared = T.alloc_shared((chunk, d_value), "bfloat16")
            log_decay = T.alloc_fragment((chunk, d_key), "float32")
            beta = T.alloc_fragment((chunk,), "float32")
            system = T.alloc_fragment((chunk, chunk), "float32")
            scores = T.alloc_fragment((chunk, chunk), "float32")
            weights = T.alloc_fragment((chunk, chunk), "bfloat16")
            right = T.alloc_fragment((chunk, d_value), "float32")
            updates = T.alloc_fragment((chunk, d_value), "float32")
            state = T.alloc_fragment((d_key, d_value), "float32")
            out = T.alloc_fragment((chunk, d_value), "float32")
            T.clear(state)
            for n in T.Pipelined(T.ceildiv(length, chunk), num_stages=2):
                T.copy(Q[n * chunk : (n + 1) * chunk, h, :], q)
                T.copy(K[n * chunk : (n + 1) * chunk, h, :], k)
                T.copy(V[n * chunk : (n + 1) * chunk, h, :], v)
                # Rows behind the end are zero: they decay nothing.
                T.copy(Gate[n * chunk : (n + 1) * chunk, h, :], gate)
                for i in T.Parallel(chunk):
                    beta[i] = T.if_then_else(n * chunk + i < length, Beta[n * chunk + i, h], 0)
                T.copy(gate, log_decay)
                T.cumsum(log_decay, dim=0)
                for i, d in T.Parallel(chunk, d_key):
                    q_decayed[i, d] = q[i, d] * T.exp(log_decay[i, d])
                    k_decayed[i, d] = k[i, d] * T.exp(log_decay[i, d])
                    k_grown[i, d] = k[i, d] * T.exp(-log_decay[i, d])
                    if i == chunk - 1:
                        total[d] = log_decay[i, d]
                for i, d in T.Parallel(chunk, d_key):
                    k_last[i, d] = k[i, d] * T.exp(total[d] - log_decay[i, d])
                T.gemm(k_decayed, k_grown, system, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    system[i, j] = T.if_then_else(i > j, system[i, j] * beta[i], 0)
                T.copy(state, state_shared)
                T.gemm(k_decayed, state_shared, right, clear_accum=True)
                for i, d in T.Parallel(chunk, d_value):
                    right[i, d] = beta[i] * (v[i, d] - right[i, d])
                solve_in_shared(system, right, updates)
                T.copy(updates, updates_shared)
                T.gemm(q_decayed, k_grown, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    weights[i, j] = T.if_then_else(i >= j, scores[i, j], 0)
                T.gemm(q_decayed, state_shared, out, clear_accum=True)
                T.gemm(weights, updates_shared, out)
                T.copy(out, Out[n * chunk : (n + 1) * chunk, h, :])
                for i, d in T.Parallel(d_key, d_value):
                    state[i, d] *= T.exp(total[i])
                T.gemm(k_last, updates_shared, state, transpose_A=True)

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


@pytest.mark.parametrize("in_fragment", [False, True], ids=["shared", "fragment"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch, in_fragment):
    heads, length = 2, 2 * CHUNK + 7
    kernel = tilelang.compile(
        delta_rule(heads, in_fragment), execution_backend="auto", target=f"cuda -arch={arch}"
    )
    q, k, v, beta = inputs(heads, length, KEY, VALUE, device)
    gate = -torch.rand(length, heads, device=device) / 8
    out = torch.full((length, heads, VALUE), torch.nan, device=device)
    kernel(q, k, v, gate, beta, out)
    torch.testing.assert_close(out.double(), reference(q, k, v, gate, beta), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_gates_of_channels(device, arch):
    heads, length = 2, 2 * CHUNK + 7
    kernel = tilelang.compile(
        channel_delta_rule(heads), execution_backend="auto", target=f"cuda -arch={arch}"
    )
    q, k, v, beta = inputs(heads, length, KEY, VALUE, device)
    gate = -torch.rand(length, heads, KEY, device=device) / 2
    out = torch.full((length, heads, VALUE), torch.nan, device=device)
    kernel(q, k, v, gate, beta, out)
    torch.testing.assert_close(out.double(), reference(q, k, v, gate, beta), rtol=2e-2, atol=2e-2)
