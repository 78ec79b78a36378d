"""FlattenBuffer: indices, strides, offsets, vectors, index width."""

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from tilelang._ffi import get_function


def flatten(func: tirx.PrimFunc) -> str:
    mod = get_function("transform.FlattenBuffer")()(tvm.IRModule({"main": func}))
    return mod["main"].script()


def test_rows_and_columns_become_one_simplified_index():
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64, 32), "float32"), B: T.Buffer((2048,), "float32")):
        bx = T.launch_thread("blockIdx.x", 16)
        tx = T.launch_thread("threadIdx.x", 128)
        A[bx * 4 + tx // 32, tx % 32] = B[tx]

    text = flatten(func)
    assert "A_1 = A.view(2048)" in text
    assert "A_1[bx * 128 + tx] = B[tx]" in text


def test_allocations_become_flat_in_place():
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        S = T.alloc_buffer((2, 4, 4), "float32", scope="shared.dyn")
        S[1, tx // 4, tx % 4] = A[tx]
        T.evaluate(T.address_of(S[tx // 4, 1, 2]))

    text = flatten(func)
    assert 'S = T.alloc_buffer((32,), scope="shared.dyn"' in text
    assert "S[tx + 16] = A[tx]" in text
    assert "T.address_of(S[tx // 4 * 16 + 6])" in text


def test_vectors_stay_vectors():
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8, 64), "float32"), B: T.Buffer((8, 64), "float32")):
        tx = T.launch_thread("threadIdx.x", 16)
        for i in range(8):
            A[i, T.Ramp(tx * 4, 1, 4)] = B[7 - i, T.Ramp(tx * 4, 1, 4)]

    assert (
        "A_1[i * 64 + tx * 4:i * 64 + tx * 4 + 4] = B_1[T.Ramp(tx * 4 + 448 - i * 64, 1, 4)]"
        in flatten(func)
    )


def test_strides_and_offset():
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8, 4), "float32", strides=(100, 2), elem_offset=3)):
        tx = T.launch_thread("threadIdx.x", 8)
        A[tx, 1] = T.float32(0)

    text = flatten(func)
    assert "A_1[tx * 100 + 5]" in text
    # the last element is at 3 + 7 * 100 + 3 * 2
    assert "T.decl_buffer((710,)" in text


def test_load_inside_an_index():
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8, 8), "float32"), J: T.Buffer((2, 4), "int32")):
        tx = T.launch_thread("threadIdx.x", 4)
        A[J[0, tx], J[1, tx]] = T.float32(0)

    assert "A_1[J_1[tx] * 8 + J_1[tx + 4]]" in flatten(func)


def test_index_is_int64_where_int32_might_not_do():
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((65536, 32768), "int8"), B: T.Buffer((65535, 32768), "int8")):
        tx = T.launch_thread("threadIdx.x", 8)
        A[tx, 5] = B[tx, 5]

    assert (
        'A_1[T.Cast("int64", tx) * T.int64(32768) + T.int64(5)] = B_1[tx * 32768 + 5]'
        in flatten(func)
    )


def test_symbolic_dimensions_are_int64_unless_one():
    n = tirx.Var("n", "int32")

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((n, 64), "float32"), B: T.Buffer((n,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        A[tx, 5] = B[tx]

    assert 'A_1[T.Cast("int64", tx) * T.int64(64) + T.int64(5)] = B[tx]' in flatten(func)


def test_parts_of_a_long_dimension_are_widened():
    n = tirx.Var("n", "int32")

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((n * 1024,), "float32")):
        bx = T.launch_thread("blockIdx.x", n)
        tx = T.launch_thread("threadIdx.x", 8)
        A[bx * 1024 + tx] = T.float32(0)

    assert 'A[T.Cast("int64", bx) * T.int64(1024) + T.Cast("int64", tx)]' in flatten(func)


def test_comparisons_are_as_wide_as_what_is_assumed_leaves_them():
    @T.prim_func(s_tir=True)
    def func(starts: T.Buffer((9,), "int32"), A: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        length = T.bind(starts[1] - starts[0])
        if tx < 4:
            T.assume(length >= 0 and length < 4096)
            if tx * 128 + 127 < length + 64:
                A[tx] = T.float32(1)
        # It is assumed there only.
        if tx * 128 + 127 < length + 64:
            A[tx] = T.float32(2)

    conditions = [
        s.strip() for s in flatten(func).splitlines() if "if tx * 128" in s or "if T.Cast" in s
    ]
    assert conditions == [
        "if tx * 128 + 127 < length + 64:",
        'if T.Cast("int64", tx * 128 + 127) < length_1 + T.int64(64):',
    ]


def test_what_cannot_be_changes_nothing():
    @T.prim_func(s_tir=True)
    def func(n: T.int32, A: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        T.assume(n < 0)
        T.assume(n > 8)
        if tx < n:
            A[tx] = T.float32(1)

    assert "if tx < n:" in flatten(func)


def test_vector_in_another_index_is_a_bug_of_ours():
    buffer = tirx.decl_buffer((8, 8), "float32", name="A")
    store = tirx.BufferStore(buffer, T.Broadcast(T.float32(0), 4), [0, T.Broadcast(0, 4)])
    with pytest.raises(Exception, match=r"wanted a Ramp in the last index \(a bug in tilelang"):
        flatten(tirx.PrimFunc([buffer], store))
