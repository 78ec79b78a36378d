"""Rows of matrix instructions: fragments by the vendors' documented formulas, and who has which."""

import pytest

from tilelang._ffi import get_function

rows = get_function("target.MatrixInstructions")


def find(arch, name, kind="hip"):
    (row,) = [r for r in rows(kind, arch) if r["name"] == f"{name} (float16 x float16 -> float32)"]
    return row


def elements(row, operand):
    """{(row, column): (lane, register)}"""
    return {(i, j): (lane, register) for i, j, lane, register in row[operand]}


def all_mfma():
    return [(arch, row) for arch in ("gfx90a", "gfx942", "gfx950") for row in rows("hip", arch)]


@pytest.mark.parametrize(
    ("arch", "row"), all_mfma(), ids=lambda x: x if isinstance(x, str) else x["name"]
)
def test_fragments_of_mfma(arch, row):
    """AMD matrix instruction calculator, "Register to matrix element mapping". A and B are
    exchanged: element (m, n) of our C is element (n, m) of the instruction's."""
    m, n, k = row["shape"]
    assert m == n
    assert row["exchanges_operands"]
    of_lane = m * k // 64
    for name in "AB":
        found = elements(row, name)
        assert len(found) == m * k
        for (i, depth), place in found.items():
            assert place == (i + m * (depth // of_lane), depth % of_lane)
    found = elements(row, "C")
    assert len(found) == m * n
    for (j, i), (lane, register) in found.items():  # D[i, j] of the instruction
        assert j == lane % n
        if row["accumulator"] == "float64":
            assert i == 4 * register + lane // 16
        elif m == 32:
            assert i == 8 * (register // 4) + 4 * (lane // 32) + register % 4
        else:
            assert i == 4 * (lane // 16) + register


def test_a_sum_is_an_operand_of_the_next_product():
    """The registers of C, in order, are those of A for consecutive steps of K: attention's second
    product takes the first one's result as it is."""
    for name in ("mfma.32x32x8", "mfma.16x16x16"):
        row = find("gfx942", name)
        c, a, k = elements(row, "C"), elements(row, "A"), row["shape"][2]
        of_lane = 1 + max(register for _, register in a.values())
        for (i, j), (lane, register) in c.items():
            assert (lane, register % of_lane) == a[i, j % k]
            assert register // of_lane == j // k


def test_fragments_of_mma_sync():
    """PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"."""
    row = find("sm_80", "mma.m16n8k16", "cuda")
    for (i, depth), (lane, register) in elements(row, "A").items():
        group, of_group = lane // 4, lane % 4
        assert i == group + 8 * (register // 2 % 2)
        assert depth == of_group * 2 + register % 2 + 8 * (register // 4)
    for (j, depth), (lane, register) in elements(row, "B").items():
        assert (j, depth) == (lane // 4, lane % 4 * 2 + register % 2 + 8 * (register // 2))
    for (i, j), (lane, register) in elements(row, "C").items():
        assert (i, j) == (lane // 4 + 8 * (register // 2), lane % 4 * 2 + register % 2)


@pytest.mark.parametrize(
    ("arch", "operand", "names"),
    [
        (
            "gfx90a",
            "float16",
            ["mfma.32x32x16", "mfma.16x16x32", "mfma.32x32x8", "mfma.16x16x16"],
        ),
        ("gfx90a", "int8", ["mfma.32x32x8", "mfma.16x16x16"]),
        ("gfx90a", "float8_e4m3fn", []),
        (
            "gfx942",
            "int8",
            ["mfma.32x32x32", "mfma.16x16x64", "mfma.32x32x16", "mfma.16x16x32"],
        ),
        ("gfx942", "float8_e4m3fnuz", ["mfma.32x32x16", "mfma.16x16x32"]),
        ("gfx942", "float8_e4m3fn", []),
        ("gfx950", "float8_e4m3fn", ["mfma.32x32x16", "mfma.16x16x32"]),
        (
            "gfx950",
            "float16",
            ["mfma.32x32x16", "mfma.16x16x32", "mfma.32x32x8", "mfma.16x16x16"],
        ),
        (
            "gfx942",
            "float32",
            ["mfma.32x32x4", "mfma.16x16x8", "mfma.32x32x2", "mfma.16x16x4"],
        ),
        ("gfx950", "float32", ["mfma.32x32x2", "mfma.16x16x4"]),
        ("gfx1100", "float16", []),
    ],
)
def test_instructions_of_an_architecture(arch, operand, names):
    found = [r["name"].split(" ")[0] for r in rows("hip", arch) if r["operand"] == operand]
    assert found == names
