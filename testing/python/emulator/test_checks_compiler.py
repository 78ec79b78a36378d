"""Kernels of the compiler with a line taken out or changed, found through `tilelang.compile`."""

import ctypes

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import CHECKS, EmulationError
from tilelang.emulator.compiler import build_emulated
from tilelang.engine.device_codegen import emit_cuda


def matmul(stages):
    @T.prim_func
    def main(
        A: T.Tensor((128, 128), "float16"),
        B: T.Tensor((128, 128), "float16"),
        C: T.Tensor((128, 128), "float32"),
    ):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[by * 64, k * 32], A_shared)
                T.copy(B[k * 32, bx * 64], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 64, bx * 64])

    return main


@pytest.fixture(scope="module")
def source():
    kernel = tilelang.compile(matmul(2), target="cuda -arch=sm_80", execution_backend="emulate")
    return emit_cuda(kernel.artifact.device_mod, line_directives=True)


def reports(source):
    """What a run of the matrix product is blamed for; an empty list means that it was right too."""
    module = build_emulated(source, ["main_kernel"], checks=True)
    a, b = torch.randn(128, 128).half(), torch.randn(128, 128).half()
    c = torch.empty(128, 128)
    args = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, c)]
    arrays = [tensor.numpy() for tensor in (a, b, c)]
    try:
        module.launch("main_kernel", (2, 2, 1), (128, 1, 1), 16384, args, arrays=arrays)
    except EmulationError as error:
        return error.reports
    assert torch.allclose(c, a.float() @ b.float(), atol=1e-2)
    return []


def test_the_compiler_is_not_blamed(source):
    assert reports(source) == []


@pytest.mark.parametrize(
    ("old", "new", "kind", "text"),
    [
        ("__syncthreads();", "", "race", "_shared + "),
        ("tl::cp_async_wait<0>();", "", "race", "cp_async_wait"),
        (
            "C_local[r] = 0.0f;",
            "if (tx > 0) C_local[r] = 0.0f;",
            "uninitialized",
            "C_local + 0",
        ),
        ("tl::shared<half_t, 4096>", "tl::shared<half_t, 4095>", "out-of-bounds", "_shared + 4088"),
        ("threadIdx.x;", "threadIdx.x / 2;", "race", "_shared + "),
    ],
)
def test_a_mutation_is_found(source, old, new, kind, text):
    assert old in source
    found = [r for r in reports(source.replace(old, new)) if r.kind == kind]
    assert found
    assert any(text in r.message for r in found), found
    lines = matmul.__code__.co_firstlineno + 9, matmul.__code__.co_firstlineno + 18
    for report in found:
        file, _, line = report.access.place.rpartition(":")
        assert file == __file__
        assert lines[0] <= int(line) <= lines[1], report


@T.prim_func
def outside(A: T.Tensor((64,), "float32"), n: T.int32):
    with T.Kernel(1, threads=64):
        S = T.alloc_shared((64,), "float32")
        t = T.get_thread_binding()
        S[t] = 1.0
        A[t] = S[t + n]


def test_a_kernel_says_what_is_wrong_with_it():
    kernel = tilelang.compile(outside, execution_backend="emulate", checks=True)
    a = torch.zeros(64)
    kernel(a, 0)
    with pytest.raises(EmulationError, match=r"(?s)compiler.py:\d+\): kernel .*S \+ 64") as error:
        kernel(a, 1)
    assert [report.kind for report in error.value.reports] == ["out-of-bounds"]


def test_some_checks_only():
    kernel = tilelang.compile(outside, execution_backend="emulate", checks={"races"})
    kernel(torch.zeros(64), 1)
    kernel = tilelang.compile(outside, execution_backend="emulate", checks={"bounds"})
    with pytest.raises(EmulationError, match=r"S \+ 64"):
        kernel(torch.zeros(64), 1)


def test_what_the_keyword_takes(monkeypatch):
    monkeypatch.setenv("TILELANG_EMULATE_CHECKS", "races, bounds")
    kernel = tilelang.compile(outside, execution_backend="emulate")
    assert kernel.checks == {"races", "bounds"}
    assert tilelang.compile(outside, execution_backend="emulate", checks=True).checks == set(CHECKS)
    with pytest.raises(
        ValueError, match="'speed' is unknown: expected True, False, or some of race"
    ):
        tilelang.compile(outside, execution_backend="emulate", checks="speed")
    with pytest.raises(ValueError, match=r"expected execution_backend='emulate'.*got 'nvrtc'"):
        tilelang.compile(outside, execution_backend="nvrtc", checks=True)
