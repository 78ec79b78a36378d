"""Calls of functions under `tilelang.jit`: methods, keywords, over other decorators."""

import functools

import pytest
import torch

import tilelang
import tilelang.language as T

pytestmark = pytest.mark.usefixtures("tensors_on_device")


class Scaler:
    """Two kernels as methods."""

    def __init__(self, factor):
        self.factor = factor

    @tilelang.jit
    def eager(self, A, plus: T.float32):
        """C = factor * A + plus."""
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        C = T.empty((N,), T.float32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                C[i] = self.factor * A[i] + plus
        return C

    @tilelang.jit(out_idx=-1)
    def lazy(self, n, minus=0):
        @T.prim_func
        def main(A: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(n):
                    C[i] = self.factor * A[i] - minus

        return main


def test_methods_are_bound():
    a = torch.ones(32)
    two, three = Scaler(2.0), Scaler(3.0)
    assert [two.eager(a, 1.0)[0], three.eager(a, plus=1.0)[0]] == [3, 4]
    assert [two.lazy(32)(a)[0], three.lazy(n=32, minus=1)(a)[0]] == [2, 2]
    assert Scaler.eager(two, a, 1.0)[0] == 3
    two.factor = 5.0
    assert [two.eager(a, 1.0)[0], two.lazy(32)(a)[0]] == [6, 5]


def test_bound_functions_have_the_rest_of_the_interface():
    a, two = torch.ones(32), Scaler(2.0)
    assert two.eager.compile(N=32)(a, 1.0)[0] == 3
    assert two.eager.get_tir(N=32).script().count("def ") == 1
    assert "__global__" in two.lazy.get_kernel_source(32)
    kernels = two.lazy.par_compile([{"n": 32}, (32, 1)], num_workers=1)
    assert [kernel(a)[0] for kernel in kernels] == [2, 1]
    assert two.eager.__doc__ == "C = factor * A + plus."


def test_inputs_of_a_kernel_have_names():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), k: T.float32, C: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                C[i] = A[i] + k

    a = torch.ones(32)
    kernel = tilelang.compile(main, out_idx=-1)
    assert kernel(k=2.0, A=a)[0] == kernel(a, k=2.0)[0] == 3
    for args, kwargs, text in [
        ((a,), {"j": 1.0}, "missing a required argument: 'k'"),
        ((a, 1.0), {"j": 1.0}, "got an unexpected keyword argument 'j'"),
        ((a, 1.0), {"A": a}, "multiple values for argument 'A'"),
    ]:
        with pytest.raises(TypeError, match=rf"`main` \(.*py:\d+\): .*{text}.*Pass A, k"):
            kernel(*args, **kwargs)


def traced(function):
    """A decorator of the user's."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def unnamed(function):
    """Another one, which keeps nothing of the function."""

    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("decorator", [traced, unnamed])
def test_another_decorator_stands_above(decorator):
    def body(A: T.Tensor[[32], T.float32]):
        with T.Kernel(1, threads=32):
            A[0] = 2

    a = torch.ones(32)
    decorator(tilelang.jit(body))(a)
    assert a[0] == 2
    with pytest.raises(TypeError, match=r"put @tilelang\.jit under the other decorator"):
        tilelang.jit(decorator(body))(a)


@pytest.mark.parametrize("decorator", [traced, unnamed])
def test_a_decorated_function_may_return_its_program(decorator):
    def program(n):
        @T.prim_func
        def main(A: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=32):
                A[0] = 2

        return main

    a = torch.ones(32)
    tilelang.jit(decorator(program))(32)(a)
    assert a[0] == 2
