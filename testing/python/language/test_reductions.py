"""T.reduce_*, T.cumsum, reducers: their statements, and what they refuse."""

import pytest

TILES = """
f = T.alloc_fragment((8, 16), "float32")
r = T.alloc_fragment((8,), "float32")
s = T.alloc_shared((8, 16), "float32")
i = T.alloc_fragment((8,), "int32")
j = T.alloc_fragment((8, 16), "int32")
l = T.alloc_local((8, 16), "float32")
h = T.alloc_fragment((8,), "float8_e4m3fn")
w = T.alloc_fragment((8, 1), "float32")
one = T.alloc_shared((8, 1), "float32")
acc = T.alloc_reducer((8,), "float32")
"""
F, R = "f[0:8, 0:16]", "r[0:8]"


@pytest.mark.parametrize(
    ("statement", "printed"),
    [
        ("T.reduce_sum(f, r)", f'T.tl.reduce({F}, {R}, "sum", 1, T.bool(True))'),
        (
            "T.reduce_max(f, r, dim=-1, clear=False)",
            f'T.tl.reduce({F}, {R}, "max", 1, T.bool(False))',
        ),
        ("T.reduce(f, r, 'absmax', 1)", f'T.tl.reduce({F}, {R}, "absmax", 1, T.bool(True))'),
        *(
            (f"T.{name}(j, i)", f'T.tl.reduce(j[0:8, 0:16], i[0:8], "{op}", 1, T.bool(True))')
            for name, op in (
                ("reduce_bitand", "bitand"),
                ("reduce_bitor", "bitor"),
                ("reduce_bitxor", "bitxor"),
            )
        ),
        ("T.cumsum(s, dim=1)", 'T.tl.scan(s[0:8, 0:16], s[0:8, 0:16], "sum", -1, T.bool(False))'),
        ("T.reducer_init(acc, 1)", 'T.tl.reducer_init(acc[0:8], "sum", T.float32(1.0))'),
        ("T.clear(acc)", 'T.tl.reducer_init(acc[0:8], "sum", T.float32(0.0))'),
        ("T.finalize_reducer(acc)", 'T.tl.reducer_finalize(acc[0:8], "sum")'),
    ],
)
def test_statements(trace, traced, statement, printed, round_trip):
    assert traced(TILES + statement).splitlines()[-1] == printed
    round_trip(trace(TILES + statement))


def test_shared_memory_is_staged(traced):
    lines = traced(f"{TILES}T.reduce_max(s, one, clear=False)")
    assert [line.split("(")[0] for line in lines.splitlines()[-4:]] == [
        "T.tl.copy",
        "T.tl.copy",
        "T.tl.reduce",
        "T.tl.copy",
    ]


def test_parts_of_fragments_are_staged(traced):
    lines = traced(f"{TILES}T.reduce_max(f[0:4, 2:16], r[4:8], clear=False)").splitlines()[-4:]
    assert [line.split("(")[0].strip() for line in lines] == [
        "T.tl.copy",
        "T.tl.copy",
        "T.tl.reduce",
        "T.tl.copy",
    ]


@pytest.mark.parametrize(
    ("statement", "error", "told"),
    [
        (
            "T.reduce_sum(f, r, dim=0)",
            ValueError,
            r"\(8, 16\) and r of shape \(8,\).* \(16,\) or \(1, 16\)",
        ),
        ("T.reduce_sum(f, r, dim=2)", ValueError, "dim of T.reduce_sum is 2, wanted -2 to 1"),
        ("T.reduce(f, r, 'mean', 1)", ValueError, "reduce_type of T.reduce is 'mean'"),
        ("T.reduce_bitor(f, r)", ValueError, "dtype float32, wanted integers or bool"),
        ("T.reduce_sum(f, h)", ValueError, "result of dtype float8_e4m3fn"),
        ("T.reduce_sum(l, r)", ValueError, "Invalid buffer scopes"),
        ("T.reduce_sum(A, r)", ValueError, "Invalid buffer scopes: .* 'global'"),
        ("T.reduce_sum(l[0:4, :], l[0:4, 0:1])", ValueError, "wanted two tiles"),
        ("T.reduce_sum(l[0:1, :], T.alloc_local((1,), 'float32'))", ValueError, "a slice of me"),
        ("T.reduce_sum(f, r, batch=0)", ValueError, "batch of T.reduce_sum is 0"),
        ("T.reduce_sum(f, 3)", TypeError, "the result of T.reduce_sum is 3"),
        ("T.reduce_sum(w, w)", ValueError, "wanted two tiles"),
        ("T.cumsum(s, dim=2)", ValueError, "dim of T.cumsum is 2, wanted -2 to 1"),
        ("T.cumsum(s, r)", ValueError, "wanted equal shapes"),
        ("T.cummax(A)", ValueError, "Invalid buffer scopes"),
        ("T.alloc_reducer((1,), 'float32', 'mean')", ValueError, "op of T.alloc_reducer is 'mean'"),
        ("T.alloc_reducer((1,), 'float32', 'bitor')", ValueError, "for bitor, wanted integers or"),
        ("T.reducer_init(f)", TypeError, "wanted a reducer"),
        ("T.reducer_update(acc, 1)", TypeError, "wanted an element of a reducer"),
        ("T.any_of(s)", ValueError, "extents of 1"),
        ("T.any_of(i)", ValueError, "found the fragment i"),
        ("T.warp_reduce_bitor(T.float32(1))", ValueError, "wanted integers or bool"),
        ("T.warp_reduce_sum(f)", TypeError, "wanted a scalar expression"),
    ],
)
def test_errors(trace, statement, error, told):
    with pytest.raises(error, match=rf"{told}[\s\S]*--> "):
        trace(TILES + statement)
