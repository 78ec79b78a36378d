"""The decorator by which programs ask for what lowering does anyway."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.transform import simplify_prim_func


def doubled(n, other):
    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                B[i] = T.if_then_else(i < n, A[i] * 2, other)

    return main


@pytest.mark.parametrize("of_program", [False, True], ids=["of a function", "of a program"])
def test_programs_are_simplified(of_program):
    program = (
        simplify_prim_func(doubled(8, 0)) if of_program else simplify_prim_func(doubled)(8, other=0)
    )
    assert "if_then_else" in doubled(8, 0).script()
    assert "if_then_else" not in program.script()


def test_a_kernel_of_a_simplified_program(device):
    kernel = tilelang.jit(out_idx=-1)(simplify_prim_func(doubled))
    a = torch.arange(40, dtype=torch.int32, device=device)
    assert torch.equal(kernel(40, other=0)(a), 2 * a)
    assert torch.equal(kernel(8, 0)(a[:8]), 2 * a[:8])


def test_a_loop_of_one_iteration_begins_anywhere(device):
    """TVM's simplifier ended in an internal error: two values of one variable."""

    @T.prim_func
    def main(A: T.Tensor((4, 32), "int32"), B: T.Tensor((4, 32), "int32")):
        with T.Kernel(4, threads=32) as b:
            for row in T.serial(b, b + 1):
                for i in T.serial(row + 28, row + 29):
                    B[row, i] = A[row, i] + row

    a = torch.arange(128, dtype=torch.int32, device=device).view(4, 32)
    b = torch.zeros_like(a)
    tilelang.compile(main)(a, b)
    assert b.diag(28).tolist() == [28, 62, 96, 130]
    assert int((b != 0).sum()) == 4
