"""Long loops are copied a few times, unless that would put arrays of a thread into memory."""

import torch
from tvm.script import tirx as T

import tilelang
import tilelang.language as TL


def test_a_long_loop_has_a_bounded_number_of_copies(statements):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((16384,), "int32"), B: T.Buffer((16384,), "int32")):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for i in T.unroll(65):
                for j in T.unroll(4):
                    A[i * 128 + j * 32 + tx] = B[i * 128 + j * 32 + tx]
            for i in T.unroll(64):
                A[i * 32 + tx] = B[i * 32 + tx]

    text = statements("BoundUnrolling", func)
    assert text.count("pragma_unroll_factor") == 1
    assert 'for i in T.unroll(65, annotations={"pragma_unroll_factor": 32})' in text


def test_stores_of_single_elements_have_fewer_copies(statements):
    """Those that load from global memory are to be in flight together."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((16384,), "int32"), B: T.Buffer((16384,), "int32")):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            s = T.sblock_alloc_buffer((1024,), "int32", scope="shared")
            for i in T.unroll(16):
                A[i * 32 + tx] = s[i * 32 + tx]
            for j in T.unroll(17):
                A[j * 32 + tx] = s[j * 32 + tx]
            for k in T.unroll(17):
                A[k * 32 + tx] = B[k * 32 + tx]

    text = statements("BoundUnrolling", func)
    assert text.count("pragma_unroll_factor") == 1
    assert 'for j in T.unroll(17, annotations={"pragma_unroll_factor": 8})' in text


def test_a_loop_over_registers_is_copied_whole(statements):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((4096,), "int32")):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            own = T.sblock_alloc_buffer((100,), "int32", scope="local")
            one = T.sblock_alloc_buffer((1,), "int32", scope="local.var")
            for i in T.unroll(100):
                own[i] = A[i * 32 + tx]
            for i in T.unroll(100):
                one[0] = one[0] + A[i * 32 + tx]

    text = statements("BoundUnrolling", func)
    assert "for i in T.unroll(100):" in text
    assert text.count("pragma_unroll_factor") == 1


def test_results_of_many_elements_a_thread(device):
    @TL.prim_func
    def main(A: TL.Tensor((97, 33), "float32"), B: TL.Tensor((33, 97), "float32")):
        with TL.Kernel(1, threads=32):
            a = TL.alloc_shared((97, 33), "float32")
            TL.copy(A, a)
            for i, j in TL.Parallel(33, 97):
                B[i, j] = a[j, i]

    kernel = tilelang.compile(main, execution_backend="auto")
    assert "#pragma unroll 32" in kernel.get_kernel_source()
    a = torch.randn(97, 33, device=device)
    b = torch.full((33, 97), float("nan"), device=device)
    kernel(a, b)
    assert torch.equal(b, a.T)
