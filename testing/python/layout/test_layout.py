"""Layouts: members, each answered from the table."""

import numpy as np
import pytest
import tvm
from tvm import tirx

import tilelang.language as T
from tilelang.layout import Layout, make_full_bank_swizzled_layout


def worked_example():
    return Layout((4, 4), lambda i, j: i * 4 + tirx.bitwise_xor(j, i))


def test_table_of_the_worked_example():
    layout = worked_example()
    assert [t[0] for t in layout.table()] == [0, 1, 2, 3, 5, 4, 7, 6, 10, 11, 8, 9, 15, 14, 13, 12]
    assert layout.get_output_shape() == [16]


def test_output_shape_is_exact_without_powers_of_two():
    assert Layout((5, 3), lambda i, j: [j, i * 2]).get_output_shape() == [3, 9]


def test_expressions_are_of_the_forward_vars():
    layout = Layout((6, 4), lambda i, j: [j, i])
    i, j = layout.get_forward_vars()
    assert [e.same_as(v) for e, v in zip(layout.get_forward_index(), (j, i), strict=True)] == [1, 1]
    assert layout.get_input_shape() == [6, 4]
    flat = layout.get_linearized_forward_index()
    assert tvm.sym.Analyzer().can_prove_equal(flat, j * 6 + i)


def test_equality_is_of_functions_not_of_text():
    a = Layout((8, 8), lambda i, j: i * 8 + j)
    assert a.is_equal(Layout((8, 8), lambda i, j: (i * 16 + j * 2) // 2))
    assert not a.is_equal(Layout((8, 8), lambda i, j: j * 8 + i))


def test_map_index_substitutes_and_checks_rank():
    layout = Layout((8, 8), lambda i, j: i * 8 + j)
    assert int(layout.map_forward_index([3, 5])[0]) == 29
    assert int(layout(3, 5)[0]) == 29
    with pytest.raises(ValueError, match="takes 2 indices, found 1"):
        layout(3)


@pytest.mark.parametrize(
    ("shape", "fn", "error", "told"),
    [
        ((0, 4), lambda i, j: i, ValueError, "positive ints"),
        ((1.5, 4), lambda i, j: i, ValueError, "positive ints"),
        ((T.dynamic("n"), 0), lambda i, j: i, ValueError, "positive ints"),
        ((4,), lambda i: [], ValueError, "no coordinate"),
        ((4,), lambda i: "x", TypeError, "wanted an integer expression"),
    ],
)
def test_what_is_no_layout(shape, fn, error, told):
    with pytest.raises(error, match=told):
        Layout(shape, fn)


def test_a_layout_of_a_symbol_has_no_table():
    n = T.dynamic("n")
    layout = Layout((n, 4), lambda i, j: [i // 2, j, i % 2])
    assert layout.get_input_shape() == [n, 4]
    assert str(layout) == "Layout(i < n, j < 4) -> (i // 2, j, i % 2)"
    assert [int(c) for c in layout(5, 3)] == [2, 3, 1]
    with pytest.raises(ValueError, match="found a layout of extent n, which a run knows"):
        layout.table()


ALIKE = {
    "rows": lambda i, j: i * 8 + j,
    "columns": lambda i, j: j * 8 + i,
    "another constant": lambda i, j: i * 9 + j,
    "a constant on the left": lambda i, j: 40 - (8 * i + j),
    "by a power of two": lambda i, j: (i + 17 - 4 * j) // 4 + i % 4,
    "by another number": lambda i, j: (i + 17 - 4 * j) // 3 + i % 3,
    "bits": lambda i, j: i * 8 + (j ^ (i & 3)),
    "two coordinates": lambda i, j: [i, j * 2],
}


def test_tables_that_are_kept_are_told_apart():
    """Tables are shared by layouts of equal expressions; one that is too large drops the others."""
    for _ in range(2):
        for shape in ((4, 6), (6, 4), (1, 24), (3, 100)):
            for name, function in ALIKE.items():
                found = Layout(shape, function).table()
                wanted = [function(i, j) for i, j in np.ndindex(*shape)]
                wanted = [tuple(at) if isinstance(at, list) else (at,) for at in wanted]
                assert found == wanted, (name, shape)
        assert Layout((1024, 1100), lambda i, j: [i, j]).get_output_shape() == [1024, 1100]


def test_repeat_puts_the_number_of_the_repetition_first():
    layout = Layout((3, 5), lambda i, j: j * 3 + i).repeat(1, 4)
    assert layout.get_input_shape() == [3, 20]
    table = np.array(layout.table()).reshape(3, 20, 2)
    for i, j in np.ndindex(3, 20):
        assert tuple(table[i, j]) == (j // 5, j % 5 * 3 + i)
    with pytest.raises(ValueError, match="dim=2"):
        layout.repeat(2, 2)


def test_expand_keeps_leading_indices():
    layout = worked_example().expand([3, 2])
    assert layout.get_input_shape() == [3, 2, 4, 4]
    assert layout.table()[5 * 16 + 5] == (2, 1, worked_example().table()[5][0])


def test_reshape_keeps_the_order_of_elements():
    layout = worked_example()
    assert layout.reshape((2, 8)).addresses() == layout.addresses()
    with pytest.raises(ValueError, match="found 16 elements of 1 bits and 15 of 1"):
        layout.reshape((3, 5))


def test_reshape_to_narrower_and_wider_elements():
    layout = make_full_bank_swizzled_layout(T.Tensor((16, 64), "float16").as_buffer())
    as_bytes = layout.reshape((16, 128), 16, 8)
    halves = np.array(layout.addresses())
    assert as_bytes.addresses() == (halves[:, None] * 2 + [0, 1]).reshape(-1).tolist()
    as_vectors = layout.reshape((16, 8), 16, 128)
    assert as_vectors.addresses() == (halves[::8] // 8).tolist()
    assert as_vectors.reshape((16, 64), 128, 16).is_equal(layout)
    with pytest.raises(ValueError, match="do not lie side by side"):
        layout.reshape((16, 4), 16, 256)


def test_widest_vector_of_a_row():
    assert (
        make_full_bank_swizzled_layout(
            T.Tensor((16, 64), "float16").as_buffer()
        ).contiguous_elements()
        == 8
    )
    assert Layout((4, 12), lambda i, j: i * 14 + j).contiguous_elements() == 2
    assert Layout((4, 8), lambda i, j: i * 9 + j).contiguous_elements() == 1


def test_text_shows_the_addresses_of_a_small_layout():
    lines = str(Layout((2, 4), lambda i, j: [j, i])).splitlines()
    assert lines == ["Layout(i < 2, j < 4) -> (j, i)", "  0 2 4 6", "  1 3 5 7"]
    assert len(str(Layout((32, 4), lambda i, j: [j, i])).splitlines()) == 1
