"""Numbers and expressions."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.language.scalars import as_dtype, as_int, is_scalar_expr, unwrap

X = T.dynamic("x")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), (np.int64(3), 3), (T.int64(3), 3), (True, None), (3.0, None), (X, None), ("3", None)],
)
def test_as_int(value, expected):
    assert as_int(value) == expected


def test_unwrap():
    assert unwrap(T.int32(3)) == 3
    assert unwrap(T.bool(True)) is True
    assert unwrap(T.int64(3)).ty.dtype == "int64"
    assert is_scalar_expr(X == 3)
    assert str(unwrap(X == 3)) == "x == 3"


def test_as_dtype():
    assert str(as_dtype(1.5, "int32")) == "1"
    assert as_dtype(X, "int32").same_as(X)
    with pytest.raises(TypeError, match="found None of type NoneType"):
        as_dtype(None, "int32")


@pytest.mark.parametrize(
    ("value", "dtype", "nearest"),
    [
        (3.4028235e38, "float32", float(np.finfo(np.float32).max)),
        (-65519.0, "float16", -65504.0),
        (65520.0, "float16", None),
        (3.41e38, "float32", None),
        (-1.0, "float8_e8m0fnu", None),
    ],
)
def test_a_number_counts_by_its_nearest_value(value, dtype, nearest):
    if nearest is None:
        with pytest.raises(ValueError, match=f"for a value of type {dtype}, wanted .* wider type"):
            as_dtype(value, dtype)
    else:
        assert as_dtype(value, dtype).value == nearest
