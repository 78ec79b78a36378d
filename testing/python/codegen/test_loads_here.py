"""Numbers that a program reads in front of waits for mbarriers are asked for there."""

import pytest
import torch

import tilelang
import tilelang.language as T


def scaled_sums(dtype=T.float32, steps=4):
    """Sums of rows of tiles that TMA loads, times a number that is read first."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64 * steps), T.float16),
        factors: T.Tensor((3,), dtype),
        B: T.Tensor((3, 64), T.float32),
    ):
        with T.Kernel(3, threads=128) as bx:
            tile = T.alloc_shared((64, 64), T.float16)
            values = T.alloc_fragment((64, 64), T.float32)
            sums = T.alloc_fragment((64,), T.float32)
            factor = factors[bx]
            T.clear(sums)
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(A[0, k * 64], tile)
                T.copy(tile, values)
                T.reduce_sum(values, sums, dim=1, clear=False)
            for i in T.Parallel(64):
                B[bx, i] = sums[i] * T.cast(factor, T.float32)

    return main


def test_a_number_is_loaded_where_the_program_reads_it():
    """`test_gqa_decode.py` sees that ptxas leaves it there."""
    kernel = tilelang.compile(
        scaled_sums(), target="cuda -arch=sm_90a", execution_backend="emulate"
    )
    assert "const float factor = tl::load_here(factors + bx);" in kernel.get_kernel_source()


def test_loads_in_loops_and_without_waits_are_left_to_the_compiler():
    """There it may ask for what the next step needs, and nothing holds a load back."""

    @T.prim_func
    def main(
        A: T.Tensor((256, 64), T.float16),
        rows: T.Tensor((4,), T.int32),
        B: T.Tensor((64, 64), T.float32),
    ):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), T.float16)
            sums = T.alloc_fragment((64, 64), T.float32)
            T.clear(sums)
            for k in T.Pipelined(4, num_stages=2):
                row = rows[k]
                T.copy(A[row * 64, 0], tile)
                for i, j in T.Parallel(64, 64):
                    sums[i, j] += T.cast(tile[i, j], T.float32)
            T.copy(sums, B)

    hopper, ampere = (
        tilelang.compile(program, target=f"cuda -arch={arch}", execution_backend="emulate")
        for program, arch in ((main, "sm_90a"), (scaled_sums(), "sm_80"))
    )
    assert "mbarrier_wait" in hopper.get_kernel_source()
    assert "load_here" not in hopper.get_kernel_source() + ampere.get_kernel_source()


@pytest.mark.parametrize(
    "dtype", [T.int8, T.uint16, T.float16, T.bfloat16, T.float8_e4m3fn, T.int32, T.int64, T.float64]
)
def test_numbers_of_each_size(device, dtype):
    """The load is of as many bytes as the number has."""
    a = torch.randn(64, 256, device=device).half()
    numbers = torch.tensor([3, 1, 2], device=device)
    found = torch.zeros(3, 64, device=device)
    kernel = tilelang.compile(
        scaled_sums(dtype), target="cuda -arch=sm_90a" if device == "cpu" else "auto"
    )
    assert "load_here" in kernel.get_kernel_source()
    kernel(a, numbers.to(dtype.as_torch()), found)
    wanted = a.double().sum(1) * numbers.double()[:, None]
    assert (found.double() - wanted).norm() < 1e-6 * wanted.norm()
