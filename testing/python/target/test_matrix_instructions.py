"""Rows of matrix instructions: fragments by the vendors' documented formulas, and who has which."""

import pathlib
import runpy

import numpy as np
import pytest

from tilelang._ffi import get_function

rows = get_function("target.MatrixInstructions")
# The formulas of AMD's matrix instruction calculator, by instruction.
DOCUMENTED = runpy.run_path(
    str(pathlib.Path(__file__).parents[1] / "device" / "emu" / "test_mfma.py")
)


def find(arch, name, kind="hip"):
    (row,) = [r for r in rows(kind, arch) if r["name"] == f"{name} (float16 x float16 -> float32)"]
    return row


def elements(row, operand):
    """{(row, column): (lane, register)}"""
    return {(i, j): (lane, register) for i, j, lane, register in row[operand]}


def all_mfma():
    return [(arch, row) for arch in ("gfx90a", "gfx942", "gfx950") for row in rows("hip", arch)]


# What the device headers call the types of operands.
TYPES = {
    "float16": "half_t",
    "bfloat16": "bfloat16_t",
    "int8": "int8_t",
    "float8_e4m3fn": "fp8_e4_t",
    "float8_e5m2": "fp8_e5_t",
    "float8_e4m3fnuz": "fp8_e4_fnuz_t",
    "float8_e5m2fnuz": "fp8_e5_fnuz_t",
    "float6_e2m3fn": "fp6_e2_t",
    "float6_e3m2fn": "fp6_e3_t",
    "float4_e2m1fn": "fp4_e2_t",
    "float32": "float",
    "float64": "double",
}


def is_of_sums(row):
    """Takes the operands of two instructions of half the K, one after the other."""
    return row["name"].split(" ")[0].partition(".")[2].count("x") == 3


def documented_of(row):
    """The instruction of a row. A row of several instructions has the places of the largest one,
    which takes a part of a lane's elements."""
    table = DOCUMENTED["SCALED" if row["scale_k"] else "MFMA"]
    m, _, k = row["shape"]
    operand = "tfloat32_t" if row["opt_in"] else TYPES[row["operand"]]
    depth = k // 2 if is_of_sums(row) else k
    found = [i for i in table.values() if (i.m, i.types[0]) == (m, operand) and i.k <= depth]
    most = max(i.k for i in found)
    # Of f8f6f4 without scales there are two names for one layout.
    return next(i for i in found if i.k == most)


def check_parts(row, documented, operands):
    """The registers of a lane are those of several instructions, in turn: which elements along K
    each multiplies is free, if A and B agree for all rows."""
    m, k = row["shape"][0], row["shape"][2]
    indices, depths = np.indices((m, documented.k))
    places = [np.broadcast_to(x, (m, documented.k)) for x in documented.place(indices, depths)]
    of_lane = int(places[1].max()) + 1
    depth_at = {}
    for found in operands:
        assert len(found) == m * k
        at = {place: element for element, place in found.items()}
        for part in range(k // documented.k):
            for (i, d), lane in np.ndenumerate(places[0]):
                row_of, depth = at[int(lane), part * of_lane + int(places[1][i, d])]
                assert row_of == i
                assert depth_at.setdefault((part, d), depth) == depth
    assert sorted(depth_at.values()) == list(range(k))


def check_bytes(found, documented, m, k):
    """A fragment of 6-bit floats counts bytes: each is where the bits of its elements are."""
    assert len(found) == m * k * 6 // 8
    for (i, byte), (lane, register) in found.items():
        first = 8 * byte // 6
        at, element = documented.place(np.int64(i), np.int64(first))
        assert (lane, 8 * register) == (at, 6 * element + 8 * byte - 6 * first)


@pytest.mark.parametrize(
    ("arch", "row"), all_mfma(), ids=lambda x: x if isinstance(x, str) else x["name"]
)
def test_fragments_of_mfma(arch, row):
    """AMD matrix instruction calculator, "Register to matrix element mapping". A and B are
    exchanged: element (m, n) of our C is element (n, m) of the instruction's."""
    m, n, k = row["shape"]
    assert m == n
    assert row["exchanges_operands"]
    documented = documented_of(row)
    operands = [elements(row, name) for name in "AB"]
    if row["operand"].startswith("float6_"):
        for found in operands:
            check_bytes(found, documented, m, k)
    else:
        check_parts(row, documented, operands)
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
    for arch, name in (
        ("gfx942", "mfma.32x32x8"),
        ("gfx942", "mfma.16x16x16"),
        ("gfx950", "mfma.32x32x8x2"),
        ("gfx950", "mfma.16x16x16x2"),
    ):
        row = find(arch, name)
        c, a, k = elements(row, "C"), elements(row, "A"), row["shape"][2]
        of_lane = 1 + max(register for _, register in a.values())
        for (i, j), (lane, register) in c.items():
            assert (lane, register % of_lane) == a[i, j % k]
            assert register // of_lane == j // k


@pytest.mark.parametrize("number", range(3))
def test_fragments_of_wmma(number):
    """RDNA3 ISA, "Wave Matrix Multiply Accumulate": lane l has row l % 16 of A and column l % 16 of
    B, register r of them element r along K; of C column l % 16, register r at row 2 r + l // 16."""
    row = rows("hip", "gfx1100")[number]
    assert (list(row["shape"]), row["exchanges_operands"]) == ([16, 16, 16], False)
    for name in "AB":
        found = {tuple(e) for e in row[name]}
        assert found == {(lane % 16, k, lane, k) for lane in range(32) for k in range(16)}
        assert len(row[name]) == 512
    wanted = {(2 * r + lane // 16, lane % 16, lane, r) for lane in range(32) for r in range(8)}
    assert {tuple(e) for e in row["C"]} == wanted


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
        (
            "gfx90a",
            "int8",
            ["mfma.32x32x32", "mfma.16x16x64", "mfma.32x32x8", "mfma.16x16x16"],
        ),
        ("gfx90a", "float8_e4m3fn", []),
        (
            "gfx942",
            "int8",
            ["mfma.32x32x32", "mfma.16x16x64", "mfma.32x32x16", "mfma.16x16x32"],
        ),
        (
            "gfx942",
            "float8_e4m3fnuz",
            ["mfma.32x32x32", "mfma.16x16x64", "mfma.32x32x16", "mfma.16x16x32"],
        ),
        ("gfx942", "float8_e4m3fn", []),
        (
            "gfx950",
            "float8_e4m3fn",
            [
                "mfma.32x32x64",
                "mfma.16x16x128",
                "mfma.32x32x16",
                "mfma.16x16x32",
                "mfma_scale.32x32x64",
                "mfma_scale.16x16x128",
            ],
        ),
        ("gfx950", "float4_e2m1fn", ["mfma_scale.32x32x64", "mfma_scale.16x16x128"]),
        ("gfx942", "float4_e2m1fn", []),
        ("gfx950", "float6_e2m3fn", ["mfma_scale.32x32x64", "mfma_scale.16x16x128"]),
        ("gfx950", "float6_e3m2fn", ["mfma_scale.32x32x64", "mfma_scale.16x16x128"]),
        ("gfx942", "float6_e2m3fn", []),
        (
            "gfx950",
            "float16",
            [
                *("mfma.32x32x16", "mfma.16x16x32", "mfma.32x32x8x2", "mfma.16x16x16x2"),
                *("mfma.32x32x8", "mfma.16x16x16"),
            ],
        ),
        (
            "gfx942",
            "float32",
            [
                *("mfma_xf32.32x32x8", "mfma_xf32.16x16x16"),
                *("mfma_xf32.32x32x4", "mfma_xf32.16x16x8"),
                *("mfma.32x32x8", "mfma.16x16x16", "mfma.32x32x2", "mfma.16x16x4"),
            ],
        ),
        (
            "gfx950",
            "float32",
            ["mfma.32x32x8", "mfma.16x16x16", "mfma.32x32x2", "mfma.16x16x4"],
        ),
        ("gfx950", "float64", ["mfma.16x16x8", "mfma.16x16x4"]),
        *(
            ("gfx1100", dtype, ["wmma.16x16x16"])
            for dtype in ("float16", "bfloat16", "int8", "uint8")
        ),
        ("gfx1100", "float32", []),
    ],
)
def test_instructions_of_an_architecture(arch, operand, names):
    found = [
        r["name"].split(" ")[0]
        for r in rows("hip", arch)
        if r["operand"] == r["operand_b"] == operand
    ]
    assert found == names


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_one_operand_may_be_e4m3_and_the_other_one_e5m2(arch):
    """By the same instructions, but those with scales."""
    of_one = [r for r in rows("hip", arch) if r["operand"].startswith("float8_e4")]
    found = [r["name"] for r in rows("hip", arch) if r["operand"] != r["operand_b"]]
    unscaled = [r["name"].split(" ")[0] for r in of_one if r["operand"] == r["operand_b"]]
    unscaled = [name for name in unscaled if not name.startswith("mfma_scale")]
    assert sorted(name.split(" ")[0] for name in found) == sorted(2 * unscaled)
