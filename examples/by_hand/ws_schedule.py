"""A @ B in float16 with a schedule of warp specialisation of its own: warps that load, two groups
that multiply half of a tile's rows each, and warps that store the tile before. For Hopper.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

SCHEDULE = T.WSSchedule(
    num_warps=16,
    roles={
        "load": T.WSRole(warps_lo=0, warps_hi=4, max_nreg=24),
        "store": T.WSRole(warps_lo=4, warps_hi=8, max_nreg=40),
        "upper": T.WSRole(warps_lo=8, warps_hi=12, max_nreg=216),
        "lower": T.WSRole(warps_lo=12, warps_hi=16, max_nreg=216),
    },
    pipelines={name: T.WSPipeline(depth) for name, depth in (("ab", 3), ("c0", 1), ("c1", 1))},
    scopes=[
        T.WSScope(
            "loop_k",
            {"load": ["load"], "upper": ["product_0"], "lower": ["product_1"]},
            [T.WSSync("load", "product_0", "ab"), T.WSSync("load", "product_1", "ab")],
        ),
        T.WSScope(
            None,
            {"upper": ["clear_0", "out_0"], "lower": ["clear_1", "out_1"], "store": ["s_0", "s_1"]},
            [T.WSSync("out_0", "s_0", "c0"), T.WSSync("out_1", "s_1", "c1")],
        ),
    ],
)


@tilelang.jit(out_idx=[-1], target={"kind": "cuda", "arch": "sm_90a"})
def matmul(M, N, K, blocks, block_M=128, block_N=128, block_K=64, dtype="float16"):
    """C (M, N) of A (M, K) and B (K, N); each of `blocks` works on one tile after the other."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(blocks, threads=32 * SCHEDULE.num_warps) as block:
            T.annotate_ws_schedule(SCHEDULE)
            half = block_M // 2
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = [T.alloc_fragment((half, block_N), "float32") for _ in range(2)]
            C_shared = [T.alloc_shared((half, block_N), dtype) for _ in range(2)]
            for by, bx in T.Persistent(
                [T.ceildiv(M, block_M), T.ceildiv(N, block_N)], blocks, block
            ):
                for i in T.unroll(2, explicit=True):
                    T.fill(C_local[i], 0, annotations={T.WSID: f"clear_{i}"})
                for k in T.Pipelined(T.ceildiv(K, block_K), annotations={T.WSID: "loop_k"}):
                    with T.ws_op("load"):
                        T.copy(A[by * block_M, k * block_K], A_shared)
                        T.copy(B[k * block_K, bx * block_N], B_shared)
                    for i in T.unroll(2, explicit=True):
                        with T.ws_op(f"product_{i}"):
                            T.gemm(A_shared[i * half : (i + 1) * half, :], B_shared, C_local[i])
                for i in T.unroll(2, explicit=True):
                    with T.ws_op(f"out_{i}"):
                        T.copy(C_local[i], C_shared[i])
                    with T.ws_op(f"s_{i}"):
                        T.copy(C_shared[i], C[by * block_M + i * half, bx * block_N])

    return main


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    M, N, K = parser.parse_args().size
    blocks = torch.cuda.get_device_properties().multi_processor_count if gpu else 2
    a, b = (torch.randn(s, device="cuda" if gpu else "cpu").half() for s in ((M, K), (K, N)))
    wanted = a.double() @ b.double()
    error = float((matmul(M, N, K, blocks)(a, b).double() - wanted).norm() / wanted.norm())
    assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
    print(f"{M} x {N} x {K}: relative error {error:.1e}")
