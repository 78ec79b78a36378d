"""relu(A @ B) as a tile program: compile it, check it against float64, time it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, block_M, block_N, block_K, dtype=T.float16, accum_dtype=T.float32):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)

            T.use_swizzle(10)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[ko * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = T.max(C_local[i, j], 0)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def relative_error(kernel, M, N, K, device):
    """||ours - reference|| / ||reference||, the reference in float64."""
    torch.manual_seed(0)
    a = torch.randn(M, K, device=device, dtype=torch.float16)
    b = torch.randn(K, N, device=device, dtype=torch.float16)
    reference = (a.double() @ b.double()).relu()
    return float((kernel(a, b).double() - reference).norm() / reference.norm().clamp(min=1e-9))


def run(size, device):
    kernel = matmul(size, size, size, 128, 128, 32)
    error = relative_error(kernel, size, size, size, device)
    assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
    line = f"{size} x {size} x {size} on {device}: relative error {error:.1e}"
    if device == "cuda":
        milliseconds = kernel.get_profiler().do_bench()
        line += f", {milliseconds:.3f} ms, {2e-9 * size**3 / milliseconds:.0f} TFLOP/s"
    print(line)
    return kernel


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", action="store_true", help="print the generated CUDA")
    arguments = parser.parse_args()
    kernels = (
        [run(size, "cuda") for size in (1024, 4096)]
        if torch.cuda.is_available()
        else [run(512, "cpu")]
    )
    lines = kernels[-1].get_kernel_source().splitlines()
    shown = lines if arguments.source else [*lines[:12], "... (--source prints the rest)"]
    print("\n".join(shown))
