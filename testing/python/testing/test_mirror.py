"""`pytest --mirror` without a GPU: the emulator stands in for it, with any kernel."""

import functools

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.jit import JITKernel
from tilelang.runtime.adapter.cython._adapter import Callee
from tilelang.testing import mirror
from tilelang.testing.gpu import DeviceLost, GuardedCall


def scaled(by):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                B[i] = A[i] * by
                A[i] = 0

    return tilelang.compile(main, out_idx=-1, execution_backend="emulate", checks=True)


@pytest.fixture
def repeated(monkeypatch):
    """The kernels that were repeated; what `there` runs is what "the GPU" computes."""
    # Without what a test run on a GPU may have put there.
    monkeypatch.setattr(JITKernel, "__call__", Callee.__call__)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(mirror, "GuardedCall", functools.partial(GuardedCall, device="cpu"))
    told = []

    def begin(there):
        adapter = there.adapter if isinstance(there, JITKernel) else there
        monkeypatch.setattr(mirror, "cuda_adapter", lambda *_: adapter)
        mirror.watch(told.append)
        return told

    return begin


def test_equal_results(repeated):
    kernel = scaled(2)
    told = repeated(kernel)
    a = torch.randn(64)
    wanted = a * 2
    assert torch.equal(kernel(A=a), wanted)
    assert (a == 0).all()
    assert told == [kernel]


def test_another_result_is_told(repeated):
    told = repeated(scaled(3))
    with pytest.raises(mirror.Differs, match=r"test_mirror\.py.*64 of 64 elements of tensor 1"):
        scaled(2)(torch.ones(64))
    assert not told


def test_the_last_bits_of_a_float_may_differ(repeated):
    repeated(scaled(2.001))
    scaled(2)(torch.ones(64))


def test_nothing_is_repeated_on_a_gpu_that_is_lost(repeated):
    calls = []

    def lose(*given):
        calls.append(given)
        raise DeviceLost("hang")

    repeated(lose)
    kernel = scaled(2)
    with pytest.raises(DeviceLost):
        kernel(torch.ones(64))
    assert torch.equal(kernel(torch.ones(64)), torch.full((64,), 2.0))
    assert len(calls) == 1


def test_a_program_that_the_emulator_refuses_is_not_repeated(repeated):
    @T.prim_func
    def race(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            A[T.get_thread_binding() // 2] = T.get_thread_binding()

    told = repeated(lambda *given: None)
    with pytest.raises(RuntimeError, match="race"):
        tilelang.compile(race, execution_backend="emulate", checks=True)(torch.zeros(64).int())
    assert not told
