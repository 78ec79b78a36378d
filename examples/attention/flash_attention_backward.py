"""The gradients of attention: the weights are computed anew from Q, K and the sums of the forward
pass; dQ is added up atomically. Check them against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from flash_attention import LOG2_E, ROWS, flash_attention, inputs, new_counter, reference

import tilelang
import tilelang.language as T

FAST_MATH = {tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True}


def padded(length):
    """The length of a row of float32 that TMA loads: one of whole 16 bytes."""
    return -(-length // 4) * 4


@tilelang.jit(out_idx=[-1])
def dot_of_rows(batch, heads, length, dim, dtype=T.float16, block=64):
    """The sums of Out * dO over a head, (batch, heads, padded(length)): 0 behind `length`."""
    shape = (batch, length, heads, dim)

    @T.prim_func
    def main(
        Out: T.Tensor(shape, dtype),
        dO: T.Tensor(shape, dtype),
        Delta: T.Tensor((batch, heads, padded(length)), T.float32),
    ):
        with T.Kernel(T.ceildiv(length, block), heads, batch, threads=128) as (bx, by, bz):
            out = T.alloc_fragment((block, dim), dtype)
            gradient = T.alloc_fragment((block, dim), dtype)
            product = T.alloc_fragment((block, dim), T.float32)
            total = T.alloc_fragment((block,), T.float32)
            T.copy(Out[bz, bx * block : (bx + 1) * block, by, :], out)
            T.copy(dO[bz, bx * block : (bx + 1) * block, by, :], gradient)
            for i, j in T.Parallel(block, dim):
                product[i, j] = T.cast(out[i, j], T.float32) * gradient[i, j]
            T.reduce_sum(product, total, dim=1)
            T.copy(total, Delta[bz, by, bx * block : (bx + 1) * block])

    return main


@tilelang.jit(out_idx=[-1])
def scaled(size, factor, dtype=T.float16, block=2048):
    """`factor` times a tensor of float32, in `dtype`."""

    @T.prim_func
    def main(x: T.Tensor((size,), T.float32), y: T.Tensor((size,), dtype)):
        with T.Kernel(T.ceildiv(size, block), threads=256) as bx:
            for i in T.Parallel(block):
                y[bx * block + i] = x[bx * block + i] * factor

    return main


# Place in a step, and stage, of each statement of the loop over queries: the products for dQ and dK
# of an iteration run beside the exponentials of the next one.
OVERLAP = {
    "order": [0, 1, 2, 5, 3, 4, 11, 8, 12, 13, 14, 15, 7, 6, 9, 10],
    "stage": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1],
}


@T.macro
def weigh(weights, log_sum, here, first, length, causal, scale):
    """The scores of keys from `here` on and queries from `first` on become weights."""
    for i, j in T.Parallel(*weights.shape):
        seen = i <= first - here + j if causal else here + i < length
        weights[i, j] = T.if_then_else(seen, T.exp2(weights[i, j] * scale - log_sum[j]), 0)


@T.macro
def store(dK_local, dV_local, K_shared, V_shared, dK, dV, head, batch, here):
    """The gradients of keys from `here` on, through the memory of the keys and the values."""
    block_N, dim = dK_local.shape
    for i, j in T.Parallel(block_N, dim):
        dK_local[i, j] = dK_local[i, j] * int(dim) ** -0.5
    T.copy(dV_local, V_shared)
    T.copy(dK_local, K_shared)
    T.copy(V_shared, dV[batch, here : here + block_N, head, :])
    T.copy(K_shared, dK[batch, here : here + block_N, head, :])


@tilelang.jit(pass_configs=FAST_MATH)
def gradients(
    batch,
    heads,
    length,
    dim,
    causal,
    dtype=T.float16,
    block_M=64,
    block_N=64,
    num_stages=2,
    threads=128,
    overlap=False,
    by_tma=False,
):
    """dK and dV; dQ * sqrt(dim) is added to the last argument, in float32. Rows of LogSum and Delta
    are filled up to padded(length) with zeros. A block has `block_N` keys and goes through the
    queries. With S^T = K Q^T, P^T = exp(S^T - LogSum) and dS = P * (dO V^T - Delta): dV = P^T dO,
    dK = dS^T Q / sqrt(dim), dQ = dS K / sqrt(dim). With `overlap`, products of two iterations run
    at a time; with `by_tma`, which sm_90 has, a tile of dQ is added in one operation."""
    shape, row_shape = (batch, length, heads, dim), (batch, heads, padded(length))
    scale = LOG2_E / dim**0.5
    schedule = OVERLAP if overlap else {}

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        dO: T.Tensor(shape, dtype),
        LogSum: T.Tensor(row_shape, T.float32),
        Delta: T.Tensor(row_shape, T.float32),
        dQ: T.Tensor(shape, T.float32),
    ):
        dK, dV = T.empty(shape, dtype), T.empty(shape, dtype)
        with T.Kernel(T.ceildiv(length, block_N), heads, batch, threads=threads) as (bx, by, bz):
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            dO_shared = T.alloc_shared((block_M, dim), dtype)
            log_sum = T.alloc_shared((block_M,), T.float32)
            delta = T.alloc_shared((block_M,), T.float32)
            weights = T.alloc_fragment((block_N, block_M), T.float32)
            weights_cast = T.alloc_fragment((block_N, block_M), dtype)
            slope = T.alloc_fragment((block_N, block_M), T.float32)
            slope_cast = T.alloc_fragment((block_N, block_M), dtype)
            slope_shared = T.alloc_shared((block_N, block_M), dtype)
            dK_local = T.alloc_fragment((block_N, dim), T.float32)
            dV_local = T.alloc_fragment((block_N, dim), T.float32)
            dQ_local = T.alloc_fragment((block_M, dim), T.float32)
            dQ_shared = T.alloc_shared((block_M, dim), T.float32)

            here = bx * block_N
            T.copy(K[bz, here : here + block_N, by, :], K_shared)
            T.copy(V[bz, here : here + block_N, by, :], V_shared)
            T.clear(dK_local)
            T.clear(dV_local)
            before = here // block_M if causal else 0
            steps = T.ceildiv(length, block_M) - before
            for step in T.Pipelined(steps, num_stages=num_stages, **schedule):
                first = (before + step) * block_M
                T.copy(Q[bz, first : first + block_M, by, :], Q_shared)
                T.copy(LogSum[bz, by, first : first + block_M], log_sum)
                T.gemm(K_shared, Q_shared, weights, transpose_B=True, policy=ROWS, clear_accum=True)
                T.copy(dO[bz, first : first + block_M, by, :], dO_shared)
                T.copy(Delta[bz, by, first : first + block_M], delta)
                T.gemm(V_shared, dO_shared, slope, transpose_B=True, policy=ROWS, clear_accum=True)
                weigh(weights, log_sum, here, first, length, causal, scale)
                for i, j in T.Parallel(block_N, block_M):
                    slope_cast[i, j] = weights[i, j] * (slope[i, j] - delta[j])
                T.copy(slope_cast, slope_shared)
                T.copy(weights, weights_cast)
                T.gemm(weights_cast, dO_shared, dV_local, policy=ROWS)
                T.gemm(slope_shared, Q_shared, dK_local, policy=ROWS)
                T.gemm(slope_shared, K_shared, dQ_local, transpose_A=True, clear_accum=True)
                T.copy(dQ_local, dQ_shared)
                T.atomic_add(dQ[bz, first : first + block_M, by, :], dQ_shared, use_tma=by_tma)
            store(dK_local, dV_local, K_shared, V_shared, dK, dV, by, bz, here)
        return dK, dV

    return main


def backward(q, k, v, out, log_sum, d_out, kernel, dtype=T.float16):
    """dQ, dK and dV of `out` and `log_sum`, which `flash_attention` made of q, k and v; `kernel` is
    one of `gradients`."""
    batch, length, heads, dim = q.shape
    d_q = torch.zeros(q.shape, device=q.device)
    delta = dot_of_rows(batch, heads, length, dim, dtype)(out, d_out)
    if padded(length) > length:
        log_sum = torch.nn.functional.pad(log_sum, (0, padded(length) - length))
    d_k, d_v = kernel(q, k, v, d_out, log_sum, delta, d_q)
    return scaled(d_q.numel(), dim**-0.5, dtype)(d_q.view(-1)).view(q.shape), d_k, d_v


def relative_error(batch, heads, length, dim, causal, device="cpu", **tile):
    """The largest of ||ours - float64|| / ||float64|| of dQ, dK and dV."""
    torch.manual_seed(0)
    q, k, v = inputs(batch, heads, length, dim, device=device)
    d_out = torch.randn_like(q)
    forward = flash_attention(batch, heads, length, dim, causal, log_sum=True)
    out, log_sum = forward(q, k, v, new_counter(device))
    kernel = gradients(batch, heads, length, dim, causal, **tile)
    found = backward(q, k, v, out, log_sum, d_out, kernel)
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    wanted = torch.autograd.grad(reference(*leaves, causal=causal), leaves, d_out.double())
    return max(
        float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, help="positions of a sequence")
    parser.add_argument("--dim", type=int, nargs="+", default=[64, 128], help="of a head")
    arguments = parser.parse_args()
    gpu = torch.cuda.is_available()
    batch, heads, length = (4, 16, 2048) if gpu else (1, 1, 130)
    length = arguments.length or length
    for dim in arguments.dim:
        for causal in (False, True):
            error = relative_error(batch, heads, length, dim, causal, "cuda" if gpu else "cpu")
            assert error < 2e-3, f"relative error {error:.1e}, wanted under 2e-3"
            shape = f"{batch} x {length} x {heads} x {dim}"
            print(f"{shape}, causal {causal}: relative error {error:.1e}")
