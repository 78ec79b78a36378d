"""T.fill and T.clear."""

import pytest


def test_fill_casts_to_the_buffers_dtype(traced):
    text = traced("""
        S = T.alloc_shared((8, 4), T.float16)
        T.clear(S)
        T.fill(S[0:4, 1], -T.infinity(T.float32))
        T.fill(S[2, 3], n)
        T.fill(A, 1.5)
    """)
    assert text.splitlines()[1:] == [
        "T.tl.fill(S[0:8, 0:4], T.float16(0.0))",
        'T.tl.fill(S[0:4, 1], T.Cast("float16", T.float32("-inf")))',
        'T.tl.fill(S[2, 3], T.Cast("float16", n))',
        "T.tl.fill(A[0:8, 0:16], T.float32(1.5))",
    ]


def test_a_scalar_is_stored_to(traced):
    text = traced("v = T.alloc_var('float32')\nT.fill(v, 3)\nT.clear(v)")
    assert text.endswith("v[0] = T.float32(3.0)\nv[0] = T.float32(0.0)\n")


@pytest.mark.parametrize(
    ("arguments", "message"), [("3, 0", "the operand of T.fill"), ("A, B", "scalar")]
)
def test_errors(trace, arguments, message):
    with pytest.raises(TypeError, match=rf"{message}[\s\S]*--> "):
        trace(f"T.fill({arguments})")
