"""Layouts of shared tiles: the mapping, bijection, bank conflicts, which swizzle it is."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang import layout as L
from tilelang._ffi import get_function
from tilelang.layout import Layout, SwizzleMode, shared_wavefronts

BANK_SWIZZLES = {
    8: L.make_full_bank_swizzled_layout,
    4: L.make_half_bank_swizzled_layout,
    2: L.make_quarter_bank_swizzled_layout,
}


def tile(*shape, dtype="float16"):
    return T.Tensor(shape, dtype).as_buffer()


def grid(layout):
    return np.array(layout.addresses()).reshape(layout.get_input_shape())


def wavefronts_of_columns(layout, bits, rows=8):
    """Reading 16 bytes of each of `rows` rows, for every 16-byte column: as ldmatrix does."""
    addresses = grid(layout) * bits // 8
    for column in addresses[:, :: 128 // bits].T:
        for first in range(0, len(column), rows):
            yield shared_wavefronts(column[first : first + rows].tolist(), 16)


@pytest.mark.parametrize("chunks", [8, 4, 2])
@pytest.mark.parametrize(("dtype", "bits"), [("int8", 8), ("float16", 16), ("float32", 32)])
def test_bank_swizzle_is_the_documented_mapping(chunks, dtype, bits):
    w = 128 // bits
    cols = 3 * chunks * w
    layout = BANK_SWIZZLES[chunks](tile(24, cols, dtype=dtype))
    table = np.array(layout.table()).reshape(24, cols, 3)
    for i in range(24):
        for j in range(cols):
            s, c = i % 8, j // w % chunks
            vector = (c ^ (s // (8 // chunks))) + chunks * s
            assert tuple(table[i, j]) == (j // w // chunks, i // 8, j % w + w * vector)
    assert len(set(layout.addresses())) == 24 * cols
    assert all(n.conflicts == 0 for n in wavefronts_of_columns(layout, bits))
    assert layout.contiguous_elements() == w
    buffer = tile(24, cols, dtype=dtype)
    assert L.detect_swizzle_mode(layout, buffer) == SwizzleMode(chunks * 16)


# What the bits of a row from its second on are worth in the number of a chunk of 16 bytes among the
# 16 that 64 banks have, by the chunks of a span.
WIDE = {8: (4, 3, 2, 1), 4: (0, 3, 2, 1), 2: (0, 0, 9, 1), 1: (0, 0, 0, 12)}


@pytest.mark.parametrize("chunks", WIDE)
@pytest.mark.parametrize("bits", [4, 8, 16])
def test_swizzle_of_64_banks(chunks, bits):
    w = 128 // bits
    rows, cols = 48, 3 * chunks * w
    layout = get_function("MakeWideSwizzle")([2, rows, cols], bits, chunks)
    found = np.array(layout.addresses()).reshape(2, rows, cols)
    assert len(set(found.ravel())) == found.size == found.max() + 1
    for i in range(rows):
        for j in range(cols):
            flips = 0
            for bit, worth in enumerate(WIDE[chunks]):
                flips ^= (i >> bit + 1 & 1) * worth
            line, slot = divmod(i * chunks + j // w % chunks, 16)
            place = line * 16 + (slot ^ flips)
            assert found[0, i, j] == j // w // chunks * rows * chunks * w + place * w + j % w
    np.testing.assert_array_equal(found[1], found[0] + rows * cols)


def test_four_rows_and_leading_dimensions():
    layout = L.make_full_bank_swizzled_layout(tile(3, 4, 64))
    assert len(set(layout.addresses())) == 3 * 4 * 64
    assert L.detect_swizzle_mode(layout, tile(3, 4, 64)) == SwizzleMode.SWIZZLE_128B


@pytest.mark.parametrize(
    ("shape", "told"),
    [((8, 96), "96 columns, wanted a multiple of 64"), ((12, 64), "12 rows"), ((64,), "a matrix")],
)
def test_shapes_that_a_swizzle_does_not_fit(shape, told):
    with pytest.raises(ValueError, match=told):
        L.make_full_bank_swizzled_layout(tile(*shape))


@pytest.mark.parametrize(
    ("shape", "dtype", "k_major", "mode"),
    [
        ((128, 64), "float16", True, 128),
        ((128, 96), "float16", True, 64),
        ((64, 16), "float16", False, 32),
        ((32, 128), "int8", True, 128),
        ((32, 128), "int8", False, None),  # padded
        ((60, 64), "float16", True, None),
        ((64, 24), "float16", True, 0),  # rows of 48 bytes need no padding
    ],
)
def test_swizzled_layout_takes_the_widest_that_fits(shape, dtype, k_major, mode):
    buffer = tile(*shape, dtype=dtype)
    layout = L.make_swizzled_layout(buffer, k_major)
    assert L.detect_swizzle_mode(layout, buffer) == mode
    assert len(set(layout.addresses())) == np.prod(shape)


def test_padding_of_rows_that_start_in_the_same_banks():
    buffer = tile(12, 48)
    assert L.make_swizzled_layout(buffer).get_output_shape() == [11 * 56 + 48]
    assert L.make_padded_layout(tile(12, 40)).get_output_shape() == [12 * 40]
    assert all(n.conflicts == 0 for n in wavefronts_of_columns(L.make_padded_layout(buffer), 16, 4))


@pytest.mark.parametrize("columns_are_k", [True, False])
def test_doubles_are_read_without_conflicts(columns_are_k):
    """mma.m8n8k4: lane l reads row l // 4 and k l % 4 (PTX ISA), either stored along rows."""
    addresses = grid(L.make_swizzled_layout(tile(16, 32, dtype="float64"))) * 8
    lanes = [(lane // 4, lane % 4) for lane in range(32)]
    for r, c in [(0, 0), (8, 4), (0, 24)]:
        at = [
            addresses[r + a, c + b] if columns_are_k else addresses[r + b, c + a] for a, b in lanes
        ]
        assert shared_wavefronts(at, 8).conflicts == 0


@pytest.mark.parametrize(
    ("shape", "continuity", "mode"),
    [((64, 128), None, 128), ((64, 128), 32, 64), ((64, 128), 16, 32), ((8, 24), None, 0)],
)
def test_wgmma_operands_are_never_padded(shape, continuity, mode):
    buffer = tile(*shape)
    for make in (L.make_wgmma_swizzled_layout, L.make_tcgen05mma_swizzled_layout):
        assert L.detect_swizzle_mode(make(buffer, continuity), buffer) == mode
    if continuity is None:
        layout = L.make_swizzled_layout(buffer, allow_pad=False)
        assert L.detect_swizzle_mode(layout, buffer) == mode


def test_shapes_that_wgmma_cannot_read():
    with pytest.raises(ValueError, match="60 rows"):
        L.make_wgmma_swizzled_layout(tile(60, 64))
    with pytest.raises(ValueError, match="12 elements side by side"):
        L.make_swizzled_layout(tile(64, 12), allow_pad=False)
    with pytest.raises(ValueError, match="not K-major"):
        L.make_wgmma_swizzled_layout(tile(64, 64, dtype="int8"), k_major=False)


@pytest.mark.parametrize(
    ("shape", "is_a", "k_inner"),
    [((64, 32), True, True), ((8, 128), True, False), ((8, 64), False, False)],
)
def test_volta_layouts_are_bijections_that_keep_vectors(shape, is_a, k_inner):
    layout = L.make_volta_swizzled_layout(tile(*shape), is_a, k_inner)
    assert sorted(layout.addresses()) == list(range(shape[0] * shape[1]))
    assert layout.contiguous_elements() == (4 if k_inner else 8)
    with pytest.raises(ValueError, match="wanted 16 bits"):
        L.make_volta_swizzled_layout(tile(*shape, dtype="int8"), is_a, k_inner)


def test_volta_crosswise_reads_without_conflicts():
    """Row r of 32 consecutive ones, 8 bytes each: the operand of mma.m8n8k4."""
    addresses = grid(L.make_volta_swizzled_layout(tile(64, 32))) * 2
    for column in (0, 4, 28):
        assert shared_wavefronts(addresses[:32, column].tolist(), 8).conflicts == 0


def test_row_major_and_others():
    buffer = tile(6, 10)
    assert L.make_linear_layout(buffer).addresses() == list(range(60))
    assert L.detect_swizzle_mode(L.make_linear_layout(buffer), buffer) == SwizzleMode.NONE
    assert L.detect_swizzle_mode(Layout((6, 10), lambda i, j: [j, i]), buffer) is None
    with pytest.raises(ValueError, match="wanted the buffer's shape"):
        L.detect_swizzle_mode(Layout((6, 9), lambda i, j: [i, j]), buffer)


def untagged(layout):
    """The same function, made by nobody who knows a swizzle."""
    return get_function("Layout")(layout.vars, layout.shape, layout.index)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize("rows", [4, 24])
@pytest.mark.parametrize("make", [*BANK_SWIZZLES.values(), L.make_padded_layout])
def test_what_a_layout_knows_of_its_swizzle_is_what_tables_say(make, rows, dtype):
    vector = 16 // np.dtype(dtype).itemsize
    for shape in ((rows, 8 * vector), (2, rows, 24 * vector)):
        made = make(tile(*shape, dtype=dtype))
        for layout, of in ((made, shape), (made.expand([2]), (2, *shape))):
            found = L.detect_swizzle_mode(untagged(layout), tile(*of, dtype=dtype))
            assert layout.swizzle_bytes == (-1 if found is None else found)


def test_the_swizzle_stands_in_the_text_and_is_of_one_type():
    made = L.make_full_bank_swizzled_layout(tile(8, 64))
    assert str(made).endswith(", a swizzle of 128 bytes")
    assert made.swizzle_bits == 16
    assert L.detect_swizzle_mode(made, tile(8, 64, dtype="int8")) is None
    assert made.repeat(0, 2).swizzle_bytes == -1  # another function, which knows nothing


def test_a_layout_of_the_users_is_compared_once():
    """Where the program says what it is of."""
    made = L.make_full_bank_swizzled_layout(tile(8, 64))
    (known,) = get_function("LayoutMapAnnotations")({tile(8, 64): untagged(made)})[
        "layout_map"
    ].values()
    assert (known.swizzle_bytes, known.swizzle_bits) == (128, 16)
