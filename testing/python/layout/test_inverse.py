"""Inverses: exact on the whole table, or refused."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang import layout as L
from tilelang.layout import Fragment, Layout


def tile(*shape, dtype="float16"):
    return T.Tensor(shape, dtype).as_buffer()


def check(layout):
    """Every element comes back, evaluated through the inverse's own table."""
    inverse = layout.inverse()
    shape = layout.get_input_shape()
    assert inverse.get_input_shape() == layout.get_output_shape()
    back = np.array(inverse.table())[layout.addresses()]
    assert (back == np.array(list(np.ndindex(*shape)))).all()


@pytest.mark.parametrize(
    "layout",
    [
        Layout((4, 4), lambda i, j: i * 4 + (j ^ i)),
        Layout((5, 7), lambda i, j: [j, i]),
        Layout((6, 10), lambda i, j: (j // 5 * 6 + i) * 5 + j % 5),
        Layout((9,), lambda i: 8 - i),
        L.make_full_bank_swizzled_layout(tile(24, 192)),
        L.make_half_bank_swizzled_layout(tile(2, 16, 96)),
        L.make_quarter_bank_swizzled_layout(tile(8, 96, dtype="int8")),
        L.make_swizzled_layout(tile(12, 48, dtype="float64")),
        L.make_volta_swizzled_layout(tile(64, 32)),
        L.make_volta_swizzled_layout(tile(8, 128), is_a=True, k_inner=False),
        L.make_volta_swizzled_layout(tile(8, 64), is_a=False, k_inner=False),
    ],
)
def test_inverse_of_a_bijection(layout):
    check(layout)


def test_inverse_of_a_fragment_tells_the_element_and_the_replica():
    fragment = L.make_gemm_fragment("A", (32, 32), (2, 2), "float16")
    inverse = fragment.inverse()
    assert inverse.get_input_shape() == [128, 16]
    for thread, register in [(0, 0), (37, 9), (127, 15)]:
        i, j, rep = (int(e) for e in inverse(thread, register))
        assert int(fragment.map_forward_thread([i, j], rep)) == thread
        assert int(fragment(i, j)[0]) == register


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        (Layout((4, 4), lambda i, j: i + j), "two elements in one place"),
        (Layout((4, 4), lambda i, j: i * 8 + j), "places without an element"),
        (Layout((4,), lambda i: i - 1), "a negative place"),
        (Layout((7,), lambda i: i * 3 % 7), "neither sums nor xors"),
        (Fragment((4,), lambda i: (i // 2, 0)), "two elements in one place"),
    ],
)
def test_what_has_no_inverse(layout, told):
    with pytest.raises(ValueError, match=f"inverse: found .*{told}"):
        layout.inverse()
