"""Which parameters the launch plan of a program says that a call may change."""

import pytest

import tilelang
import tilelang.language as T


def written(program, arch="sm_90a"):
    return tilelang.lower(program, target=f"cuda -arch={arch}").launch_plan.written


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_tiles_by_the_tensor_memory_access_unit_and_without(arch):
    @T.prim_func
    def program(A: T.Tensor((256, 128), "float16"), B: T.Tensor((256, 128), "float16")):
        with T.Kernel(2, threads=128) as bx:
            tile = T.alloc_shared((128, 64), "float16")
            T.copy(A[bx * 128, 0], tile)
            T.copy(tile, B[bx * 128, 64])

    assert written(program, arch) == {"B"}


def test_atomics_views_and_more_than_one_kernel():
    @T.prim_func
    def program(
        A: T.Tensor((64,), "float32"),
        total: T.Tensor((1,), "float32"),
        seen: T.Tensor((64,), "int32"),
        last: T.Tensor((8, 8), "float32"),
        unused: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                T.atomic_add(total[0], A[i])
        with T.Kernel(1, threads=64):
            flat = T.view(last, (64,), "float32")
            for i in T.Parallel(64):
                flat[i] = T.if_then_else(seen[i] > 0, A[i], 0.0)

    assert written(program) == {"total", "last"}


def test_pointers():
    @T.prim_func
    def program(source: T.ptr, target: T.ptr, n: T.int32):
        with T.Kernel(1, threads=64):
            A = T.make_tensor(source, (n,), "float32")
            B = T.make_tensor(target, (n,), "float32")
            for i in T.Parallel(64):
                B[i] = A[i]

    assert "target" in written(program)


def test_of_a_text_of_the_users_nothing_is_known():
    text = 'extern "C" __global__ void own(float* A, float* B) { B[0] = A[0]; }'

    @T.prim_func
    def program(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), n: T.int32):
        T.CUDASourceCodeKernel(1, threads=64, source_code_or_path=text, entry_name="own")

    assert written(program) == {"A", "B"}
