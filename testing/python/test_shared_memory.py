"""Kernels whose shared buffers share bytes: results, places and barriers."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def places(source):
    """Byte offset of each dynamic shared buffer."""
    found = re.findall(r"auto (\w+) = tl::shared<\w+, \d+>\(buf_dyn_shmem \+ (\d+)\);", source)
    return {name: int(offset) for name, offset in found}


def gemm_with_epilogue(m, n, k, threads, stages):
    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_shared = T.alloc_shared((64, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=stages):
                T.copy(A[by * 64, ko * 32], A_shared)
                T.copy(B[ko * 32, bx * 64], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * 64, bx * 64])

    return main


@pytest.mark.parametrize(
    ("size", "threads", "stages", "reuse"),
    [
        ((129, 100, 60), 128, 3, True),
        ((129, 100, 60), 128, 3, False),
        ((64, 64, 96), 64, 2, True),
        ((60, 17, 33), 32, 0, True),
    ],
    ids=str,
)
def test_a_gemm_and_its_epilogue(size, threads, stages, reuse):
    m, n, k = size
    kernel = tilelang.compile(
        gemm_with_epilogue(m, n, k, threads, stages),
        out_idx=-1,
        pass_configs={"tl.disable_shared_memory_reuse": not reuse},
    )
    source = kernel.get_kernel_source()
    at = places(source)
    assert at["A_shared"] != at["B_shared"]
    assert (at["C_shared"] < max(at["A_shared"], at["B_shared"])) == reuse
    loop = re.search(r"\n  for \(int ko = [\s\S]*?\n  }\n", source)
    assert loop is not None
    assert loop[0].count("__syncthreads()") == (1 if stages >= 2 else 2)
    assert source.count("__syncthreads()") - loop[0].count("__syncthreads()") == (2 if reuse else 1)
    a = torch.randn(m, k, dtype=torch.float16, device=DEVICE)
    b = torch.randn(k, n, dtype=torch.float16, device=DEVICE)
    wanted = a.double() @ b.double()
    assert torch.allclose(kernel(a, b).double(), wanted, rtol=2**-10, atol=1e-3 * k**0.5)


@pytest.mark.parametrize(("n", "threads"), [(1, 32), (17, 96), (60, 256), (100, 32), (129, 128)])
def test_a_chain_of_buffers(n, threads):
    @T.prim_func
    def main(A: T.Tensor((n, 4), "float32"), B: T.Tensor((n, 4), "float32")):
        with T.Kernel(1, threads=threads):
            P = T.alloc_shared((n, 4), "float32")
            Q = T.alloc_shared((n, 4), "float32")
            R = T.alloc_shared((n, 4), "float32")
            T.copy(A, P)
            for i, j in T.Parallel(n, 4):
                Q[n - 1 - i, j] = P[i, j] + 1
            for i, j in T.Parallel(n, 4):
                R[i, 3 - j] = Q[i, j] * 2
            for i, j in T.Parallel(n, 4):
                P[n - 1 - i, j] = R[i, j]
            for i, j in T.Parallel(n, 4):
                B[i, j] = P[i, 3 - j] - 1

    a = torch.randn(n, 4, device=DEVICE)
    found = tilelang.compile(main, out_idx=-1)(a)
    assert torch.allclose(found.double(), (a.double() + 1) * 2 - 1, atol=1e-5)


def test_elementwise_statements_on_own_elements_need_no_barrier():
    @T.prim_func
    def main(A: T.Tensor((60, 100), "float32"), B: T.Tensor((60, 100), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((60, 100), "float32")
            R = T.alloc_shared((60, 100), "float32")
            for i, j in T.Parallel(60, 100):
                S[i, j] = A[i, j] * 2
            for i, j in T.Parallel(60, 100):
                R[i, j] = S[i, j] + 1
            for i, j in T.Parallel(60, 100):
                S[i, j] = R[i, j] * S[i, j]
            for i, j in T.Parallel(60, 100):
                B[i, j] = S[i, j]

    kernel = tilelang.compile(main, out_idx=-1)
    assert "sync" not in kernel.get_kernel_source()
    a = torch.randn(60, 100, device=DEVICE)
    wanted = (a.double() * 2 + 1) * a.double() * 2
    assert torch.allclose(kernel(a).double(), wanted, atol=1e-4)


def test_too_much_even_with_reuse_shows_who_shares():
    @T.prim_func
    def main(A: T.Tensor((128, 128), "float32"), B: T.Tensor((128, 256), "float32")):
        with T.Kernel(1):
            S = T.alloc_shared((128, 128), "float32")
            R = T.alloc_shared((128, 128), "float32")
            L = T.alloc_shared((128, 256), "float32")
            F = T.alloc_fragment((128, 128), "float32")
            T.copy(A, S)
            T.copy(S, R)
            T.copy(R, F)
            T.fill(L, 1.0)
            T.copy(L, B)
            T.copy(F, A)

    table = (
        r"found 131072 bytes of shared memory in one block, wanted at most 101376 \(sm_89\).*"
        r"\n  65536 bytes at 0: S, float32\[128, 128\], in the place of L"
        r"\n  65536 bytes at 65536: R, float32\[128, 128\], in the place of L"
        r"\n  131072 bytes at 0: L, float32\[128, 256\], in the place of S, R\n  --> "
    )
    with pytest.raises(ValueError, match=table):
        tilelang.lower(main, target="cuda -arch=sm_89")
