"""T.copy: the extents of both sides, and the keywords."""

import re

import pytest

SHAPES = {"S": (8, 16), "V": (16,), "T3": (2, 8, 16), "W": (4, 4)}
ALLOCATIONS = "".join(f"{n} = T.alloc_shared({s}, 'float32')\n" for n, s in SHAPES.items())


@pytest.mark.parametrize(
    ("src", "dst", "regions"),
    [
        ("A", "B", "A[0:8, 0:16], B[0:8, 0:16]"),
        ("A", "S", "A[0:8, 0:16], S[0:8, 0:16]"),
        ("A[n, 4]", "W", "A[n:n + 4, 4:8], W[0:4, 0:4]"),
        ("W", "A[n, tx]", "W[0:4, 0:4], A[n:n + 4, tx:tx + 4]"),
        ("A[0:4, 4:8]", "W", "A[0:4, 4:8], W[0:4, 0:4]"),
        ("A[2:4, :]", "B[6, 0]", "A[2:4, 0:16], B[6:8, 0:16]"),
        ("A[3, :]", "V", "A[3, 0:16], V[0:16]"),
        ("A[3, 0]", "V", "A[3, 0:16], V[0:16]"),
        ("V", "A[n, :]", "V[0:16], A[n, 0:16]"),
        ("A", "T3[1, :, :]", "A[0:8, 0:16], T3[1, 0:8, 0:16]"),
        ("T3[1, 0, 0]", "S", "T3[1, 0:8, 0:16], S[0:8, 0:16]"),
        ("T3[0, :, :]", "T3[1, 0, 0]", "T3[0, 0:8, 0:16], T3[1, 0:8, 0:16]"),
        ("A[-4:, -4]", "W[0:4, 1]", "A[4:8, 12], W[0:4, 1]"),
    ],
)
def test_regions(traced, src, dst, regions):
    text = traced(f"{ALLOCATIONS}T.copy({src}, {dst})")
    assert text.splitlines()[-1] == f"T.tl.copy({regions})"


def test_elements_are_stored_by_each_thread(traced):
    text = traced("v = T.alloc_var('float16')\nT.copy(A[0, n], v)\nT.copy(v, B[0, 1])")
    assert text.splitlines()[1:] == [
        'v[0] = T.Cast("float16", A[0, n])',
        'B[0, 1] = T.Cast("float32", v[0])',
    ]


def test_keywords_are_attributes_if_given(trace, traced, round_trip):
    statements = (
        f"{ALLOCATIONS}T.copy(A, S, coalesced_width=4, disable_tma=True, "
        "eviction_policy='evict_last', prefer_instruction='sync', "
        "annotations={'coalesced_width': 2})"
    )
    assert traced(statements).splitlines()[-1] == (
        'T.Call("tl.tileop.copy", [A[0:8, 0:16], S[0:8, 0:16]], attrs={"coalesced_width": 2, '
        '"disable_tma": True, "eviction_policy": 2, "prefer_instruction": "sync"}, ret_ty="void")'
    )
    round_trip(trace(statements))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("A, W", ValueError, r"shape \(8, 16\) and the buffer W of shape \(4, 4\), wanted equal"),
        ("A[0:8, 0:8], W", ValueError, r"source tile of shape \(8, 8\).*destination.*\(4, 4\)"),
        ("W, S[0:2, 0:4]", ValueError, "slice the larger one"),
        ("T3[0:2, 0:8, 0:16], V", ValueError, "number of dimensions that are not 1"),
        ("3.0, A", TypeError, r"T\.fill\(buf, value\)"),
        ("A, 'B'", TypeError, "the destination of T.copy is 'B'"),
        ("A, B, coalesced_width=0", ValueError, "wanted a number of elements"),
        ("A, B, eviction_policy='keep'", ValueError, "wanted one of evict_normal"),
        ("A, B, prefer_instruction='dma'", ValueError, "wanted one of tma"),
    ],
)
def test_errors(trace, arguments, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(f"{ALLOCATIONS}T.copy({arguments})")


def test_groups_of_asynchronous_copies(traced):
    assert traced("T.ptx_commit_group()\nT.ptx_wait_group(1)") == (
        "T.tl.cp_async_commit()\nT.tl.cp_async_wait(1)\n"
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "place",
    ["bx, 0", "bx, bx * 32", "bx, 32", "bx, n", "0, 0", "n, I[bx]"],
)
def test_a_tile_larger_than_a_dimension_is_usual(define, place):
    define(f"""
        @T.prim_func
        def main(A: T.Tensor((64, 20), "float32"), I: T.Tensor((4,), "int32"), n: T.int32):
            with T.Kernel(4, threads=32) as bx:
                s = T.alloc_shared((32,), "float32")
                T.copy(A[{place}], s)
        """)


@pytest.mark.parametrize(
    ("place", "repair"),
    [
        ("bx * 32, 1", "bx * 32:bx * 32 + 32, 1"),
        ("bx * 32, 0", "bx * 32:bx * 32 + 32, 0"),
        ("bx, 3", "bx:bx + 32, 3"),
    ],
)
def test_a_tile_that_seems_to_be_meant_for_another_dimension_warns(define, place, repair):
    with pytest.warns(UserWarning, match=re.escape(f"for a tile in dimension 0 write A[{repair}]")):
        define(f"""
            @T.prim_func
            def main(A: T.Tensor((64, 20), "float32")):
                with T.Kernel(2, threads=32) as bx:
                    s = T.alloc_shared((32,), "float32")
                    T.copy(A[{place}], s)
            """)
