"""Scalar functions on Python numbers and on expressions."""

import pytest

import tilelang.language as T

X = T.dynamic("x")
H = T.float16()


def test_python_numbers_stay_python_numbers():
    assert (T.ceildiv(1000, 128), T.floordiv(-7, 2), T.floormod(-7, 2)) == (8, -4, 1)
    assert (T.max(1, 2.5), T.min(3, 2), T.if_then_else(True, 1, 2)) == (2.5, 2, 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (T.ceildiv(X, 4), "(x + 4 - 1) // 4"),
        (T.floordiv(X, 4), "x // 4"),
        (T.floormod(X, 4), "x % 4"),
        (T.max(X, 0), "T.max(x, 0)"),
        (T.min(1, X), "T.min(1, x)"),
        (T.if_then_else(X > 1, X, 0), "T.if_then_else(x > 1, x, 0)"),
        (T.Select(X > 1, X, 0), "T.Select(x > 1, x, 0)"),
        (T.cast(X, "float16"), 'T.Cast("float16", x)'),
        (T.Cast("float16", 1), "T.float16(1.0)"),
        (-T.infinity(T.float32), 'T.float32("-inf")'),
        (T.max_value("int8"), "T.int8(127)"),
        (T.min_value(T.int8), "T.int8(-128)"),
        (T.exp2(T.float32(X)), 'T.exp2(T.Cast("float32", x))'),
        (T.shift_left(X, 2), "x << 2"),
    ],
)
def test_expressions(value, text):
    assert str(value) == text


@pytest.mark.parametrize("function", [T.max, T.min, lambda a, b: T.if_then_else(X > 0, a, b)])
def test_a_python_number_takes_the_other_operands_type(function):
    assert function(H, 0.5).ty.dtype == "float16"
    assert function(1, H).ty.dtype == "float16"


def test_errors():
    with pytest.raises(ValueError, match="by zero"):
        T.ceildiv(X, 0)
    with pytest.raises(TypeError, match=r"T\.ceildiv found 1\.5"):
        T.ceildiv(1.5, 2)
    with pytest.raises(TypeError, match="wanted a number or a scalar"):
        T.max("a", X)
    with pytest.raises(TypeError, match="where a scalar of type float16"):
        T.cast("a", "float16")
