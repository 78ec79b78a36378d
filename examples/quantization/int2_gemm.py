"""A @ B^T of activations in int8 and weights in int2, 16 of them in a word, as in BitNet b1.58 (Ma
et al. 2024), whose weights are -1, 0 and 1: check it.

C is computed as its transpose: weights are unpacked into registers that are the first operand of
the matrix instruction. Four of them are unpacked at a time.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

PER_WORD = 16


@T.macro
def four_of(word, s):
    """The weights 4 s to 4 s + 3 of a word, each in a byte: bit 1 of one is copied to the bits
    above, as 2 * 0x7E is 0xFC."""
    bits = word >> T.cast(2 * s, T.uint32) & T.uint32(0x03030303)
    return bits | (bits & T.uint32(0x02020202)) * T.uint32(0x7E)


@tilelang.jit(out_idx=[-1])
def matmul_int2(
    M, N, K, block_M=256, block_N=128, block_K=128, num_stages=3, threads=256, out_dtype=T.float16
):
    """C (M, N) of A (M, K) in int8 and B (N, K) in int2, as words (N, K / 16) from `pack`, times
    scale_A (M,) and scale_B (N,). K is a multiple of 16; sums are exact. Weights that are unpacked
    serve `block_M` rows of A."""
    if K % PER_WORD:
        raise ValueError(f"K is {K}, wanted a multiple of {PER_WORD}")

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.int8),
        B: T.Tensor((N, K // PER_WORD), T.uint32),
        scale_A: T.Tensor((M,), T.float32),
        scale_B: T.Tensor((N,), T.float32),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), T.int8)
            B_shared = T.alloc_shared((block_N, block_K // PER_WORD), T.uint32)
            weight = T.alloc_fragment((block_N, block_K), T.int8)
            words = T.view(weight, (block_N, block_K // 4), T.uint32)
            C_local = T.alloc_fragment((block_N, block_M), T.int32)
            C_shared = T.alloc_shared((block_M, block_N), out_dtype)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * (block_K // PER_WORD)], B_shared)
                for n, w in T.Parallel(block_N, block_K // 4):
                    words[n, w] = four_of(B_shared[n, w // 4], w % 4)
                T.gemm(weight, A_shared, C_local, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            for n, m in T.Parallel(block_N, block_M):
                scale = scale_A[by * block_M + m] * scale_B[bx * block_N + n]
                C_shared[m, n] = C_local[n, m] * scale
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return main


def pack(weights):
    """Weights (N, K), integers from -2 to 1, as words (N, K / 16): byte b of a word has the
    elements b, b + 4, b + 8 and b + 12, from its lowest bits on."""
    bits = (weights.to(torch.uint8) & 3).view(len(weights), -1, 4, 4)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=weights.device)
    data = (bits << shifts[:, None]).sum(2, dtype=torch.uint8)
    return data.view(len(weights), -1).contiguous().view(torch.uint32)


def inputs(M, N, K, device="cpu"):
    """A, weights and the scales of both."""
    a = torch.randint(-127, 128, (M, K), dtype=torch.int8, device=device)
    weights = torch.randint(-2, 2, (N, K), dtype=torch.int8, device=device)
    return a, weights, *(torch.rand(n, device=device) / 100 for n in (M, N))


def reference(a, weights, scale_a, scale_b):
    """The product in float64."""
    return a.double() @ weights.double().T * scale_a.double()[:, None] * scale_b.double()


def relative_error(M, N, K, device="cpu", **tile):
    """||ours - float64|| / ||float64||"""
    torch.manual_seed(0)
    a, weights, *scales = inputs(M, N, K, device)
    found = matmul_int2(M, N, K, **tile)(a, pack(weights), *scales)
    wanted = reference(a, weights, *scales)
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    M, N, K = parser.parse_args().size
    error = relative_error(M, N, K, "cuda" if gpu else "cpu")
    assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
    print(f"{M} x {N} x {K}: relative error {error:.1e}")
