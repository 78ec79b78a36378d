"""Data types as names, annotations and conversions."""

import numpy as np
import pytest
import torch

import tilelang.language as T


@pytest.mark.parametrize(
    "value",
    ["float16", T.float16, np.float16, np.dtype("float16"), torch.float16, T.half],
)
def test_sources_of_a_dtype(value):
    assert T.dtype(value) == T.float16 == "float16"


def test_python_types():
    assert [T.dtype(t) for t in (int, float, bool)] == ["int32", "float32", "bool"]


@pytest.mark.parametrize("value", ["float17", "nothing", 3, None])
def test_what_is_not_a_dtype(value):
    with pytest.raises(ValueError, match="is not a data type"):
        T.dtype(value)


def test_sizes():
    assert (T.float16.bits, T.float16.bytes, T.int8x4.bytes, T.float4_e2m1fn.bytes) == (16, 2, 4, 1)
    assert T.float32.with_lanes(4) == T.float32x4
    assert T.float4_e2m1fn.is_float4_e2m1fn()
    assert not T.float8_e5m2.is_float4()


def test_calls():
    x = T.dynamic("x")
    assert str(T.float16(2)) == "T.float16(2.0)"
    assert str(T.int8(x)) == 'T.Cast("int8", x)'
    assert T.int32(x).same_as(x)
    assert T.int64().ty.dtype == "int64"
    assert T.float16x2(1, x).ty.dtype == "float16x2"
    with pytest.raises(TypeError, match="takes 1 or 2 values, found 3"):
        T.float16x2(1, 2, 3)


def test_as_torch():
    same = ["float16", "bfloat16", "float32", "float64", "int8", "int64", "uint8", "bool"]
    assert all(T.dtype(name).as_torch() is getattr(torch, name) for name in same)
    assert T.float8_e4m3fn.as_torch() is torch.float8_e4m3fn
    assert T.int4.as_torch() is torch.int8
    assert T.dtype("handle").as_torch() is None
    with pytest.raises(ValueError, match="torch has no dtype for float16x2"):
        T.float16x2.as_torch()
