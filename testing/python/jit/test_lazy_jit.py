"""Annotations in the signature of a function in eager style: constants, sizes of the run,
pointers."""

from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T

pytestmark = pytest.mark.usefixtures("tensors_on_device")


@T.macro
def gemm_tiles(A, B, C, M, N, K, block, accum_dtype):
    with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
        A_shared = T.alloc_shared((block, 32), A.dtype)
        B_shared = T.alloc_shared((32, block), B.dtype)
        C_local = T.alloc_fragment((block, block), accum_dtype)
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
            T.copy(A[by * block, k * 32], A_shared)
            T.copy(B[k * 32, bx * block], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * block, bx * block])


@tilelang.lazy_jit
def gemm(
    A: T.Tensor[[int, int], T.float16],
    B: T.Tensor[[int, int], T.float16],
    block: int = 32,
    out_dtype: T.dtype = T.float32,
):
    M, K = A.shape
    K, N = B.shape
    C = T.empty((M, N), out_dtype)
    gemm_tiles(A, B, C, M, N, K, block, T.float32)
    return C


@tilelang.lazy_jit
def gemm_dynamic(
    A: T.Tensor[[int, T.dyn["K"]], T.float16],  # noqa: F821  (a name, no forward reference)
    B: T.Tensor[[T.dyn["K"], int], T.float16],  # noqa: F821  (a name, no forward reference)
    block: int = 32,
):
    M, K = A.shape
    K, N = B.shape
    C = T.empty((M, N), T.float32)
    gemm_tiles(A, B, C, M, N, K, block, T.float32)
    return C


@tilelang.lazy_jit
def gemm_pointers(A: T.ptr, B: T.ptr, C: T.ptr, M: int, N: int, K: int, block: int = 32):
    A = T.match_buffer(A, (M, K), T.float16, strides=(K, 1))
    B = T.make_tensor(B, (K, N), T.float16)
    C = T.Tensor.from_ptr(C, (M, N), T.float32)
    gemm_tiles(A, B, C, M, N, K, block, T.float32)


@tilelang.lazy_jit
def gemm_dynamic_pointers(
    A: T.ptr, B: T.ptr, C: T.ptr, M: T.int32, N: T.int32, K: T.int32, block: int = 32
):
    A = T.match_buffer(A, (M, K), T.float16, strides=(K, 1))
    B = T.match_buffer(B, (K, N), T.float16, strides=(N, 1))
    C = T.match_buffer(C, (M, N), T.float32, strides=(N, 1))
    gemm_tiles(A, B, C, M, N, K, block, T.float32)


def operands(M=40, N=72, K=104):
    """Two matrices of small integers, whose product is exact in any order, and the product."""
    a = torch.randint(-4, 5, (M, K)).half()
    b = torch.randint(-4, 5, (K, N)).half()
    return a, b, a.float() @ b.float()


def test_a_gemm_of_constant_sizes():
    a, b, expected = operands()
    assert torch.equal(gemm(a, b), expected)
    kernel = gemm.compile(a, b, out_dtype=T.float16)
    assert [p.shape for p in kernel.params] == [(40, 104), (104, 72), (40, 72)]
    assert gemm.compile(a, b, out_dtype="float16") is kernel
    assert gemm.compile(A_shape_0=40, A_shape_1=104, B_shape_0=104, B_shape_1=72).out_idx == [2]
    with pytest.raises(TypeError, match="missing the argument 'A', whose shape is constant"):
        gemm.compile()


def test_a_gemm_of_dynamic_depth_is_compiled_once():
    for K in (104, 64):
        a, b, expected = operands(K=K)
        assert torch.equal(gemm_dynamic(a, b), expected)
    (kernels,) = gemm_dynamic._eager._kernels.values()
    assert len(kernels) == 1


def test_a_gemm_through_pointers():
    a, b, expected = operands()
    c = torch.empty(40, 72)
    assert gemm_pointers(a, b.data_ptr(), c, 40, 72, 104) is None
    assert torch.equal(c, expected)


def test_a_gemm_through_pointers_of_sizes_of_the_run():
    for M, N, K in [(40, 72, 104), (32, 24, 64)]:
        a, b, expected = operands(M, N, K)
        c = torch.empty(M, N)
        gemm_dynamic_pointers(a, b, c.data_ptr(), M, N, K)
        assert torch.equal(c, expected)
    kernel = gemm_dynamic_pointers.compile()
    assert "A: pointer" in kernel.get_host_source()
    assert gemm_dynamic_pointers.compile(block=32) is kernel


def test_wrong_pointers_are_refused():
    kernel = gemm_dynamic_pointers.compile()
    a = torch.zeros(64, 64).half()
    with pytest.raises(TypeError, match=r"`B`: expected a torch.Tensor or an address.*got float"):
        kernel(a, 1.5, a, 64, 64, 64)
    with pytest.raises(ValueError, match="`A`: expected data aligned to 16 bytes, got address 0x7"):
        kernel(7, a, a, 64, 64, 64)

    @tilelang.jit
    def typed(A: T.ptr(T.float32)):
        A = T.make_tensor(A, (32,), T.float32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                A[i] = i

    with pytest.raises(ValueError, match="`A`: dtype mismatch: expected float32, got float16"):
        typed(torch.zeros(32).half())
    out = torch.zeros(32)
    typed(out)
    assert out.tolist() == list(range(32))


@tilelang.lazy_jit
def contiguous(
    A: T.StridedTensor[[T.dyn, T.dyn], [T.dyn, T.dyn], Any], block_M: int = 32, block_N: int = 32
):
    M, N = A.shape
    B = T.empty((M, N), A.dtype)
    with T.Kernel(T.ceildiv(M, block_M), T.ceildiv(N, block_N), threads=128) as (bm, bn):
        for i, j in T.Parallel(block_M, block_N):
            B[bm * block_M + i, bn * block_N + j] = A[bm * block_M + i, bn * block_N + j]
    return B


def test_a_strided_view_is_made_contiguous():
    for shape in [(70, 90), (64, 32)]:
        a = torch.randn(shape)[::2, ::2]
        found = contiguous(a)
        assert found.is_contiguous()
        assert torch.equal(found, a)
    (kernels,) = contiguous._eager._kernels.values()
    assert [constants for constants, _ in kernels] == [("float32",)]


@tilelang.lazy_jit
def elementwise(A: T.Tensor[[T.dyn], Any], fn):
    (N,) = A.shape
    B = T.empty((N,), A.dtype)
    with T.Kernel(T.ceildiv(N, 128), threads=128) as bx:
        for i in T.Parallel(128):
            B[bx * 128 + i] = fn(A[bx * 128 + i])
    return B


def test_an_elementwise_kernel_takes_a_macro():
    @T.macro
    def square(x):
        return x * x

    @T.macro
    def relu(x):
        return T.max(x, 0)

    a = torch.randn(200)
    assert torch.equal(elementwise(a, square), a * a)
    assert torch.equal(elementwise(a, relu), a.relu())


def test_eight_blocks_in_parallel():
    a, b, expected = operands(64, 64, 64)
    configs = [
        {"A": a, "B": b, "block": block, "out_dtype": dtype}
        for block in (16, 32, 64, 128)
        for dtype in (T.float32, T.float16)
    ]
    kernels = gemm.par_compile(configs)
    assert len({kernel.get_kernel_source() for kernel in kernels}) == 8
    for kernel, config in zip(kernels, configs, strict=True):
        assert kernel is gemm.compile(**config)
    assert torch.equal(kernels[0](a, b), expected)


def test_annotations_as_text():
    assert gemm_dynamic.func.annot == {
        "A": "T.Tensor((A_shape_0$, K$dyn), 'float16')",
        "B": "T.Tensor((K$dyn, B_shape_1$), 'float16')",
    }
    assert contiguous.func.annot == {
        "A": "T.StridedTensor((A_shape_0$dyn, A_shape_1$dyn), (A_stride_0$dyn, A_stride_1$dyn), "
        "Any)"
    }
    assert gemm_pointers.func.annot == {"A": "T.ptr", "B": "T.ptr", "C": "T.ptr"}


def test_open_places_are_for_calls_only():
    with pytest.raises(TypeError, match="leaves a dimension or the dtype to the call"):

        @T.prim_func
        def main(A: T.Tensor[[int], T.float32]):
            with T.Kernel(1):
                A[0] = 0


def test_a_named_dimension_is_one_variable():
    assert T.dyn["N"] is T.dyn["N"]
    assert T.dyn["M, N"] == (T.dyn["M"], T.dyn["N"])
    assert T.dyn("N") is not T.dyn["N"]
    with pytest.raises(ValueError, match=r"T.dyn found the name '1'"):
        T.dyn["1"]
