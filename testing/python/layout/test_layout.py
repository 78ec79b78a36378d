"""Layouts and fragments as tables."""

import numpy as np
import pytest
from tvm import tirx

import tilelang  # noqa: F401  (loads the library)
from tilelang._ffi import get_function
from tilelang.layout import Fragment, Layout, make_gemm_fragment_8x8


def swizzled(rows, cols, bits):
    return get_function("MakeSwizzledLayout")([rows, cols], bits)


def byte_addresses(layout, bits):
    """Byte offset of every element in the row-major arena of the physical shape."""
    table = np.array(layout.table()).reshape(*layout.get_input_shape(), -1)
    extents = layout.get_output_shape()
    strides = [int(np.prod(extents[d + 1 :])) for d in range(len(extents))]
    return table @ np.array(strides) * bits // 8


def test_table_of_the_worked_example():
    layout = Layout((4, 4), lambda i, j: i * 4 + tirx.bitwise_xor(j, i))
    assert [t[0] for t in layout.table()] == [0, 1, 2, 3, 5, 4, 7, 6, 10, 11, 8, 9, 15, 14, 13, 12]
    assert layout.get_output_shape() == [16]


def test_output_shape_is_exact_without_powers_of_two():
    assert Layout((5, 3), lambda i, j: [j, i * 2]).get_output_shape() == [3, 9]


def test_equality_is_of_functions_not_of_text():
    a = Layout((8, 8), lambda i, j: i * 8 + j)
    assert a.is_equal(Layout((8, 8), lambda i, j: (i * 16 + j * 2) // 2))
    assert not a.is_equal(Layout((8, 8), lambda i, j: j * 8 + i))


def test_map_index_substitutes_and_checks_rank():
    layout = Layout((8, 8), lambda i, j: i * 8 + j)
    assert int(layout.map_forward_index([3, 5])[0]) == 29
    with pytest.raises(ValueError, match="takes 2 indices, found 1"):
        layout.map_forward_index([3])


@pytest.mark.parametrize(
    ("rows", "cols", "bits"), [(128, 64, 16), (128, 32, 16), (64, 16, 16), (32, 128, 8)]
)
def test_swizzle_is_a_bijection_without_ldmatrix_conflicts(rows, cols, bits):
    layout, lanes = swizzled(rows, cols, bits), 128 // bits
    assert len(set(layout.table())) == rows * cols
    chunks = byte_addresses(layout, bits)[:, ::lanes] // 16 % 8
    for eight_rows in chunks.reshape(rows // 8, 8, -1):
        assert all(len(set(column)) == 8 for column in eight_rows.T)


def test_swizzle_keeps_vectors_of_sixteen_bytes_whole():
    layout = swizzled(64, 64, 16)
    vectors = byte_addresses(layout, 16).reshape(-1, 8)
    assert (vectors[:, 0] % 16 == 0).all()
    assert (vectors - vectors[:, :1] == 2 * np.arange(8)).all()


def test_shape_that_no_swizzle_fits_is_padded():
    layout = swizzled(12, 48, 16)
    assert layout.get_output_shape() == [11 * 56 + 48]
    assert len(set(layout.table())) == 12 * 48


def test_base_fragment_is_the_one_of_the_ptx_manual():
    base = make_gemm_fragment_8x8()
    assert base.thread_table()[:10] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [t[0] for t in base.table()][:4] == [0, 1, 0, 1]


@pytest.mark.parametrize(("m", "n", "mw", "nw"), [(128, 128, 2, 2), (64, 96, 4, 1), (16, 24, 1, 3)])
def test_accumulator_gives_every_register_of_every_thread_one_element(m, n, mw, nw):
    fragment = get_function("MakeGemmFragmentC")(m, n, mw, nw)
    places = set(zip(fragment.thread_table(), (t[0] for t in fragment.table()), strict=True))
    assert len(places) == m * n
    assert {t for t, _ in places} == set(range(32 * mw * nw))
    assert {r for _, r in places} == set(range(m * n // (32 * mw * nw)))


def test_text_shows_a_small_fragment_as_a_grid():
    text = str(Fragment((2, 4), lambda i, j: (i * 2 + j // 2, j % 2)))
    assert text.splitlines()[1:] == ["  0:0 0:1 1:0 1:1", "  2:0 2:1 3:0 3:1"]
