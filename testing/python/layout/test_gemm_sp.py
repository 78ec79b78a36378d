"""Layouts of sparsity metadata."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.layout import make_cutlass_metadata_layout


def tile(*shape, dtype):
    return T.Tensor(shape, dtype).as_buffer()


@pytest.mark.parametrize(("dtype", "group"), [("int16", 32), ("int32", 16)])
def test_sm80_reorders_rows_and_transposes_pairs(dtype, group):
    """In one group the rows i, i + 8, ... of an 8-row block follow each other, and each 2x2 block
    of the result lies column by column in a strip of two columns."""
    rows, cols = 64, 6
    layout = make_cutlass_metadata_layout(tile(rows, cols, dtype=dtype))
    addresses = np.array(layout.addresses()).reshape(rows, cols)
    assert sorted(addresses.ravel()) == list(range(rows * cols))
    order = [
        g + r + 8 * b for g in range(0, rows, group) for r in range(8) for b in range(group // 8)
    ]
    for strip in range(cols // 2):
        memory = [
            (order[pair + r], strip * 2 + c)
            for pair in range(0, rows, 2)
            for c in range(2)
            for r in range(2)
        ]
        start = strip * 2 * rows
        assert [addresses[at] for at in memory] == list(range(start, start + 2 * rows))


def test_sm90_is_the_ordered_layout_of_the_atom():
    """Strides grow in the order: bytes, rows 8 apart, 4-byte blocks, rows, halves of a block,
    16-row groups; then atoms along M, then along K."""
    buffer = tile(128, 32, dtype="uint8")
    layout = make_cutlass_metadata_layout(buffer, "bfloat16", "9.0", block_k=128)
    addresses = np.array(layout.addresses()).reshape(128, 32)
    assert sorted(addresses.ravel()) == list(range(128 * 32))
    atoms = np.ndindex(2, 2, 4, 2, 8, 4, 2, 2)
    for place, (k_atom, m_atom, m2, k1, m0, k2, m1, k0) in enumerate(atoms):
        row = m_atom * 64 + m2 * 16 + m1 * 8 + m0
        assert addresses[row, k_atom * 16 + k2 * 4 + k1 * 2 + k0] == place


def test_sm90_of_bytes_is_row_major_in_its_atom():
    buffer = tile(64, 16, dtype="uint8")
    layout = make_cutlass_metadata_layout(buffer, "int8", "9.0", block_k=64)
    addresses = np.array(layout.addresses()).reshape(64, 2, 8).transpose(1, 0, 2)
    assert addresses.ravel().tolist() == list(range(1024))


@pytest.mark.parametrize(
    ("buffer", "arguments", "told"),
    [
        (tile(32, 4, dtype="int8"), {}, "wanted int16 or int32"),
        (tile(24, 4, dtype="int16"), {}, "24 rows, wanted a multiple of 32"),
        (tile(32, 3, dtype="int16"), {}, "3 columns"),
        (tile(64, 4, dtype="int16"), {"arch": "9.0"}, "wanted uint8"),
        (tile(64, 4, dtype="int16"), {"arch": "10.0"}, "wanted '8.x' or '9.x'"),
    ],
)
def test_what_does_not_fit(buffer, arguments, told):
    with pytest.raises(ValueError, match=told):
        make_cutlass_metadata_layout(buffer, **arguments)
