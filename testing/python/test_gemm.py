"""relu(A @ B) from the Python function to the result, at sizes that divide and that do not."""

import pytest
import torch

import tilelang
import tilelang.language as T


def matmul(m, n, k, stages=3, threads=128, block=128):
    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, block), T.ceildiv(m, block), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block, 32), "float16")
            B_shared = T.alloc_shared((32, block), "float16")
            C_local = T.alloc_fragment((block, block), "float32")
            T.use_swizzle(10)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=stages):
                T.copy(A[by * block, ko * 32], A_shared)
                T.copy(B[ko * 32, bx * block], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block, block):
                C_local[i, j] = T.max(C_local[i, j], 0)
            T.copy(C_local, C[by * block, bx * block])

    return main


def check(kernel, m, n, k):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.randn(m, k, dtype=torch.float16, device=device)
    b = torch.randn(k, n, dtype=torch.float16, device=device)
    wanted = torch.relu(a.double() @ b.double())
    found = kernel(a, b).double()
    # One rounding of the result to float16 (2^-11), sums in float32.
    assert (found - wanted).norm() <= 1e-3 * wanted.norm()
    assert torch.allclose(found, wanted, rtol=2**-10, atol=1e-3 * k**0.5)


@pytest.mark.parametrize(
    "size",
    [(512, 512, 512), (1000, 777, 333), (1000, 776, 336), (129, 130, 40), (1, 64, 96), (1, 1, 1)],
    ids=str,
)
def test_every_size(size):
    check(tilelang.compile(matmul(*size), out_idx=-1), *size)


@pytest.mark.parametrize("stages", [0, 1, 2, 4])
def test_every_number_of_stages(stages):
    check(tilelang.compile(matmul(130, 128, 96, stages), out_idx=-1), 130, 128, 96)


@pytest.mark.parametrize("threads", [32, 64, 256])
def test_every_number_of_threads(threads):
    check(tilelang.compile(matmul(128, 128, 64, threads=threads), out_idx=-1), 128, 128, 64)


def test_one_kernel_for_every_shape():
    program = matmul(*T.dynamic("m, n, k"), block=64)
    kernel = tilelang.compile(program, out_idx=-1)
    for size in ((64, 64, 64), (100, 70, 33), (65, 128, 65), (3, 200, 97), (2, 2, 161), (1, 1, 1)):
        check(kernel, *size)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="takes minutes in the emulator")
@pytest.mark.parametrize("size", [1024, 4096])
def test_large(size):
    check(tilelang.compile(matmul(size, size, size), out_idx=-1), size, size, size)


def test_main_loop_has_one_barrier_and_wide_copies():
    source = tilelang.lower(matmul(4096, 4096, 4096), target="cuda -arch=sm_80").kernel_source
    assert source.count("__syncthreads()") == 1
    assert source.count("cp_async_gs<16>") == 4
    assert source.count("cp_async_gs_conditional<16>") == 2


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_compiles_for_every_architecture_without_spills(arch):
    kernel = tilelang.compile(
        matmul(4096, 4096, 4096), target=f"cuda -arch={arch}", execution_backend="emulate"
    )
    usage = kernel.resource_usage["main_kernel"]
    assert max(usage.spill_stores, usage.spill_loads) == 0
    # For sm_120a ptxas stores the coordinates of a box to local memory, and never reads them.
    assert usage.stack <= (8 if arch == "sm_120a" else 0)
    assert usage.registers <= 255
