"""Outputs of programs: T.empty in a @T.prim_func."""

import pytest
import torch

import tilelang
import tilelang.language as T


def program(returned=lambda C, D: (D, C)):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), n: T.int32):
        C = T.empty((64,), "float32")
        D = T.empty(64)
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                C[i] = A[i] + n
                D[i] = A[i] - n
        return returned(C, D)

    return main


@pytest.mark.usefixtures("tensors_on_device")
def test_outputs_of_a_program_are_its_result():
    func = program()
    assert [p.name for p in func.params] == ["A", "n", "C", "D"]
    a = torch.randn(64)
    plus, minus = a + 3, a - 3
    found = tilelang.compile(func)(a, 3)
    assert torch.equal(found[0], minus)
    assert torch.equal(found[1], plus)
    with pytest.raises(ValueError, match="Out index conflict: out_idx=-1 is given"):
        tilelang.compile(func, out_idx=-1)


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (lambda C, D: C, r"main does not return the buffer D of shape \(64\)"),
        (lambda C, D: None, "main does not return the buffer C"),
        (lambda C, D: [C, D, 1], "main returns 1 of type int; a program returns tensors of"),
        (lambda C, D: (C, C, D), "main returns a tensor twice"),
    ],
)
def test_exactly_the_outputs_are_returned(returned, text):
    with pytest.raises(RuntimeError, match=rf"{text}[\s\S]*--> .*test_header.py:\d+"):
        program(returned)


def test_an_output_is_no_parameter_of_the_same_name():
    with pytest.raises(ValueError, match="two parameters called 'A', one of them made with"):

        @T.prim_func
        def main(A: T.Tensor((64,), "float32")):
            A = T.empty(64)
            with T.Kernel(1, threads=64):
                A[0] = 1
            return A
