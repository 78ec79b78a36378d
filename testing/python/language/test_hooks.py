"""Places, statements and errors in a kernel."""

import pytest


def test_slices_are_filled_and_copied(traced):
    assert traced("A[0:4, :] = 3\nA[0:4, :] = B[4:8, :]") == (
        "T.tl.fill(A[0:4, 0:16], T.float32(3.0))\nT.tl.copy(B[4:8, 0:16], A[0:4, 0:16])\n"
    )


def test_attributes_of_expressions(traced):
    assert traced("A[0, 0] = A.dtype.bits + B[0, 0].dtype.bits + n.dtype.bytes") == (
        "A[0, 0] = T.float32(68.0)\n"
    )


def test_a_nested_function_is_inlined(traced):
    assert traced("def put(z):\n    A[0, 0] = z\n    return z + 1\nA[0, 1] = put(n * 2)") == (
        "z: T.let[T.int32] = n * 2\nA[0, 0] = T.Cast('float32', z)\n"
        "A[0, 1] = T.Cast('float32', z + 1)\n".replace("'", '"')
    )


def test_an_untraced_helper_can_use_tile_operators(traced, define):
    helper = define("def load(dst, src):\n    T.copy(src, dst)\n    T.clear(dst)")["load"]
    text = traced("load(A, B)", load=helper)
    assert text == (
        "T.tl.copy(B[0:8, 0:16], A[0:8, 0:16])\nT.tl.fill(A[0:8, 0:16], T.float32(0.0))\n"
    )


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("A.shape = 1", NotImplementedError, "attribute shape of the buffer A"),
        ("A[0, 0][1] = 1", TypeError, "cannot be assigned to by index"),
        ("x = A[0, 0][1]", TypeError, "cannot be indexed again"),
        ("with n:\n    pass", TypeError, "cannot be used in `with`"),
        ("T.serial(4)", TypeError, "a serial loop does nothing as a statement"),
        ("return 1", RuntimeError, "a program returns tensors of T.empty only"),
        ("if n > 1:\n    return", NotImplementedError, "`return` in the branch at line 5"),
        ("assert 1 == 2, f'no {3}'", AssertionError, "no 3"),
        # Raised in C++, by TVM.
        ("T.call_intrin('int32', 'tirx.none', n)", TypeError, "tirx.none is not registered"),
    ],
)
def test_errors_name_the_place(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> <kernel \d+>:\d+:\d+\n   \|"):
        trace(statement)
