"""A call finds its kernel again by a few comparisons, which miss nothing that decides about it."""

import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang.engine.callback import register_cuda_postproc
from tilelang.env import env
from tilelang.jit import surroundings


@pytest.fixture
def lazy():
    """A factory, and how often it has been traced."""
    traces = []

    @tilelang.jit(out_idx=-1, pass_configs={"tl.enable_fast_math": True})
    def filled(value, n=64):
        traces.append((value, n))

        @T.prim_func
        def filled(C: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=64):
                for i in T.Parallel(n):
                    C[i] = value

        return filled

    return filled, traces


def test_a_kernel_is_found_again_however_it_is_spelled(lazy):
    function, traces = lazy
    kernel = function(1)
    assert all(found is kernel for found in (function(1), function(1, 64), function(1, n=64)))
    assert all(found is kernel for found in (function(1), function(1, 64), function(1, n=64)))
    assert traces == [(1, 64)]


def test_equal_arguments_of_other_types_are_other_kernels(lazy):
    function, traces = lazy
    for _ in range(2):
        for value in (1, 1.0, True, 0.0, -0.0):
            function(value)
    assert [repr(value) for value, _ in traces] == ["1", "1.0", "True", "0.0", "-0.0"]


@pytest.mark.parametrize(
    "change",
    [
        lambda f, patch: patch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a"),
        lambda f, patch: patch.setenv("TILELANG_EMULATE_CHECKS", "bounds"),
        lambda f, patch: patch.setenv("TILELANG_ENABLE_DATA_RACE_CHECK", "0"),
        lambda f, patch: patch.setitem(vars(env), "TILELANG_ENABLE_DATA_RACE_CHECK", False),
        lambda f, patch: patch.setattr(f, "target", "cuda -arch=sm_90a"),
        lambda f, patch: patch.setattr(f, "out_idx", [0]),
        lambda f, patch: patch.setitem(f.pass_configs, "tl.enable_fast_math", False),
        lambda f, patch: register_cuda_postproc(lambda code, target: code),
    ],
)
def test_what_changes_between_two_calls_is_seen(lazy, monkeypatch, change):
    function, _ = lazy
    before = function(2)
    assert function(2) is before
    change(function, monkeypatch)
    try:
        after = function(2)
        assert after is not before
        assert function(2) is after
    finally:
        register_cuda_postproc(None)
        monkeypatch.undo()


def test_a_target_scope_is_seen(lazy):
    function, _ = lazy
    before = function(3)
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}):
        inside = function(3)
        assert inside.target.arch == "sm_90a"
        assert function(3) is inside
    assert function(3) is before


def test_what_a_trace_reads_is_seen():
    size = 8

    @tilelang.jit(out_idx=-1)
    def filled(value):
        @T.prim_func
        def filled(C: T.Tensor((size,), "float32")):
            with T.Kernel(1, threads=8):
                for i in T.Parallel(size):
                    C[i] = value

        return filled

    assert filled(1) is filled(1)
    assert filled(1).params[0].shape == (8,)
    size = 16
    assert filled(1).params[0].shape == (16,)


@pytest.mark.usefixtures("tensors_on_device")
def test_an_eager_call_after_a_change(monkeypatch):
    @tilelang.jit
    def doubled(A, block: int = 64):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        C = T.empty((N,), T.float32)
        with T.Kernel(1, threads=block):
            for i in T.Parallel(N):
                C[i] = A[i] * 2
        return C

    a = torch.ones(64)
    assert torch.equal(doubled(a), a * 2)
    first = doubled.compile(a)
    assert doubled.compile(a) is first
    monkeypatch.setenv("TILELANG_ENABLE_DATA_RACE_CHECK", "0")
    assert doubled.compile(a) is not first
    assert torch.equal(doubled(a), a * 2)


def test_the_device_of_cuda_and_a_fork_are_seen(lazy, monkeypatch):
    """CUDA's state, which functions of torch tell, is part of what decides."""
    device, forked, told = 0, False, []

    def current_device():
        told.append(device)
        return device

    function, _ = lazy
    monkeypatch.setattr(surroundings, "_current_device", current_device)
    monkeypatch.setattr(surroundings, "_is_forked", lambda: forked)
    monkeypatch.setattr(surroundings.torch.cuda, "is_initialized", lambda: not forked)
    monkeypatch.setattr(surroundings.torch.cuda, "current_device", lambda: device)
    found = function._surroundings._states
    function(4)
    first = found.current()
    assert first is not None
    device = 1
    assert found.current() is None
    function(4)
    told.clear()
    assert found.current() is not None
    assert told == [1]
    forked = True
    told.clear()
    assert found.current() is None
    function(4)
    assert found.current() is not None
    assert not told, "CUDA is not asked in a child of fork"
