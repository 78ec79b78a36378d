"""Subscripts."""

import pytest


def test_negative_constants_count_from_the_end(traced):
    assert traced("A[-1, -16] = B[n, -2]") == "A[7, 0] = B[n, 14]\n"


def test_stores_cast(traced):
    assert traced("A[0, 0] = n\nA[0, 1] = True\nA[0, 2] = n > 1") == (
        'A[0, 0] = T.Cast("float32", n)\n'
        "A[0, 1] = T.float32(1.0)\n"
        'A[0, 2] = T.Cast("float32", n > 1)\n'
    )


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("A[0] = 1", IndexError, "A has rank 2, found 1 indices, wanted 2"),
        ("A[0, 0, 0] = 1", IndexError, "A has rank 2, found 3 indices, wanted 2"),
        ("x = A[0:2]", IndexError, "A has rank 2"),
        ("A[0.5, 0] = 1", TypeError, "index 0 of A is 0.5"),
        ("A[A[0, 0], 0] = 1", TypeError, "index 0 of A is the expression .*T.cast"),
        ("A[-9, 0] = 1", IndexError, "index 0 of A is -9, wanted -8 to 7"),
        ("x = T.alloc_shared((4,), 'int8')[4]", IndexError, "is 4, wanted -4 to 3"),
        ("T.clear(T.alloc_shared((4,), 'int8')[2:5])", IndexError, "is 2:5, wanted it in 0:4"),
        ("T.clear(A[0:4:2, 0])", TypeError, "has step 2, wanted 1"),
        ("T.clear(A[4:4, 0])", IndexError, "which is empty"),
        ("A[0, 0] = 'x'", TypeError, "found 'x' of type str"),
        ("A[0, 0] = B", TypeError, "found the buffer B"),
        ("A[0, 0] = B[0:2, 0]", TypeError, "found the region"),
        ("A[0, T.Ramp(0, 1, 2)] = 1", ValueError, "vector index of A in a store.*T.vectorized"),
        ("A[0, 0] = B[0, T.Ramp(0, 1, 2)]", TypeError, "a vector, the expression.*float32 was"),
    ],
)
def test_errors(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(statement)
