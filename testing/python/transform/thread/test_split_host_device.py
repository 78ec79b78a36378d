"""SplitHostDevice: parameters, extents and launches of each kernel."""

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from tilelang.engine.device_codegen import SplitHostDevice, split_modules

n = tirx.Var("n", "int32")


def split(func: tirx.PrimFunc) -> tuple[tvm.IRModule, tvm.IRModule]:
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return split_modules(SplitHostDevice()(mod))


@T.prim_func(s_tir=True)
def two_kernels(
    s: T.float32,
    A: T.Buffer((n,), "float32"),
    B: T.Buffer((n,), "float32"),
    C: T.Buffer((8,), "float32"),
):
    half = T.bind(n // 2)
    with T.launch_thread("blockIdx.y", half) as by:
        tx = T.launch_thread("threadIdx.x", 32)
        B[by * 32 + tx] = A[n - tx] * s
    with T.launch_thread("threadIdx.x", 8) as tx:
        C[tx] = T.float32(1)


def test_kernels_in_order_with_their_parameters():
    host, device = split(two_kernels)
    kernels = {name.name_hint: f for name, f in device.functions.items()}
    assert sorted(kernels) == ["main_kernel", "main_kernel_1"]
    assert [p.name for p in kernels["main_kernel"].params] == ["A", "B", "s", "n"]
    assert [p.name for p in kernels["main_kernel_1"].params] == ["C"]
    text = host["main"].script()
    assert 'T.tl.launch("main_kernel", A, B, s, n)' in text
    assert 'T.tl.launch("main_kernel_1", C)' in text


def test_extents_in_which_host_values_are_expanded():
    _, device = split(two_kernels)
    first = device["main_kernel"].attrs
    assert [str(e) for e in first["tl.grid"]] == ["1", "n // 2", "1"]
    assert [int(e) for e in first["tl.block"]] == [32, 1, 1]
    assert first["tl.dyn_shared_bytes"] == 0
    assert [int(e) for e in device["main_kernel_1"].attrs["tl.block"]] == [8, 1, 1]


def test_tensors_that_every_launch_touches():
    """Behind conditions of threads and iterations alone; not of arguments, nor where the call
    decides how many blocks or iterations there are."""

    @T.prim_func(s_tir=True)
    def func(
        k: T.int32,
        A: T.Buffer((40,), "float32"),
        B: T.Buffer((40,), "float32"),
        C: T.Buffer((40,), "float32"),
        D: T.Buffer((40,), "float32"),
        E: T.Buffer((40,), "float32"),
    ):
        tx = T.launch_thread("threadIdx.x", 32)
        for i in range(2):
            if i * 32 + tx < 40:
                A[i * 32 + tx] = T.if_then_else(k > 0, C[tx], B[i * 32 + tx])
        if k > 1:
            D[tx] = T.float32(0)
        for i in range(k):
            E[i] = A[i] + B[0]

    _, device = split(func)
    assert [str(name) for name in device["main_kernel"].attrs["tl.touched"]] == ["A"]
    _, device = split(two_kernels)
    touched = [device[name].attrs["tl.touched"] for name in ("main_kernel", "main_kernel_1")]
    assert [list(map(str, names)) for names in touched] == [[], ["C"]]


def test_shared_bytes_end_with_the_last_buffer():
    @T.prim_func(s_tir=True)
    def func(C: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        S = T.alloc_buffer(
            (8,), "float32", scope="shared.dyn", annotations={"tl.shared_offset": 256}
        )
        S[tx] = T.float32(0)
        C[tx] = S[tx]

    assert split(func)[1]["main_kernel"].attrs["tl.dyn_shared_bytes"] == 256 + 32


def test_statement_outside_of_a_kernel():
    @T.prim_func(s_tir=True)
    def func(C: T.Buffer((8,), "float32")):
        C[0] = T.float32(0)

    with pytest.raises(
        ValueError, match=r"test_split_host_device\.py:\d+: found a statement outside"
    ):
        split(func)


def test_no_kernel():
    @T.prim_func(s_tir=True)
    def func():
        T.evaluate(0)

    with pytest.raises(ValueError, match=r"found no kernel in main, .*with T\.Kernel"):
        split(func)


def test_number_of_threads_is_constant():
    @T.prim_func(s_tir=True)
    def func(C: T.Buffer((n,), "float32")):
        tx = T.launch_thread("threadIdx.x", n)
        C[tx] = T.float32(0)

    with pytest.raises(
        ValueError, match=r"number of threads that is known only at run time.*threads=128"
    ):
        split(func)


def test_two_extents_for_one_index():
    @T.prim_func(s_tir=True)
    def func(C: T.Buffer((8,), "float32")):
        with T.launch_thread("blockIdx.x", 1):
            with T.launch_thread("threadIdx.x", 8) as tx:
                C[tx] = T.float32(0)
            with T.launch_thread("threadIdx.x", 4) as ty:
                C[ty] = T.float32(0)

    with pytest.raises(ValueError, match=r"found two extents for threadIdx\.x"):
        split(func)
