"""What the benchmarks of the tuner tune: a GEMM with a block for each tile, as a hint says."""

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, block_M=128, block_N=128, block_K=64, num_stages=3, threads=128, panel=0):
    """C (M, N) of A (M, K) and B (N, K), transposed; float16, added in float32."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float16),
        B: T.Tensor((N, K), T.float16),
        C: T.Tensor((M, N), T.float16),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), T.float16)
            B_shared = T.alloc_shared((block_N, block_K), T.float16)
            C_shared = T.alloc_shared((block_M, block_N), T.float16)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            if panel:
                T.use_swizzle(panel)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                T.gemm(
                    A_shared,
                    B_shared,
                    C_local,
                    transpose_B=True,
                    policy=T.GemmWarpPolicy.FullRow,
                )
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return main


def config_of(hint):
    """The program's configuration for a hint of `MatmulTemplate`."""
    return {
        "block_M": hint.block[0],
        "block_N": hint.block[1],
        "block_K": hint.rstep[0],
        "num_stages": hint.pipeline_stage,
        "threads": hint.threads,
        "panel": hint.rasterization_plan.panel_width,
    }


def reference(a, b):
    """The same by torch."""
    return a @ b.T


def supply(params):
    """A and B, normally distributed, so that results of any K are near each other's size."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    made = [torch.randn(param.shape, device=device) for param in params]
    return [
        tensor.half() / param.shape[1] ** 0.25 for tensor, param in zip(made, params, strict=True)
    ]
