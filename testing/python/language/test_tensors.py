"""Annotations of parameters."""

import pytest

import tilelang.language as T


def test_call_and_subscript_are_the_same():
    for tensor in (
        T.Tensor((4, 8), "float16"),
        T.Tensor[[4, 8], T.float16],
        T.Tensor[(4, 8), "float16"],
    ):
        assert (tensor.shape, tensor.dtype, tensor.strides) == ((4, 8), "float16", (8, 1))


def test_one_dimension_and_the_default_dtype():
    assert repr(T.Tensor(4)) == "T.Tensor((4), 'float32')"


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ((4, -1), ValueError, "a dimension of T.Tensor is -1"),
        ((4, 2.0), TypeError, "wanted an int or a T.dynamic variable"),
        ("m", TypeError, "wanted one dimension or several"),
        ((), TypeError, "wanted one dimension or several"),
    ],
)
def test_shapes_are_checked(shape, error, message):
    with pytest.raises(error, match=message):
        T.Tensor(shape)


def test_subscript_needs_shape_and_dtype():
    with pytest.raises(TypeError, match=r"wanted T\.Tensor\[shape, dtype\]"):
        T.Tensor[4]


def test_buffer_is_deprecated():
    with pytest.warns(DeprecationWarning, match=r"use T\.Tensor"):
        assert isinstance(T.Buffer((4,), "int8"), T.Tensor)


def test_dynamic_names():
    assert T.dynamic("m").name == "m"
    for names in ("m, n", "m n", "m,n"):
        assert [v.name for v in T.dynamic(names, "int64")] == ["m", "n"]
    with pytest.raises(ValueError, match="wanted one identifier"):
        T.dynamic("2m")


def test_symbolic_is_deprecated():
    with pytest.warns(DeprecationWarning, match=r"use T\.dynamic"):
        assert T.symbolic("m", "int64").name == "m"


def test_annotations_of_a_macros_tiles(traced, define):
    body = "    S[0, 0] = L[0] + F[0, 0]"
    scale = define(
        "@T.macro\ndef scale(S: T.SharedBuffer((4, 8), 'float32'), "
        f"F: T.FragmentBuffer((4, 8), T.float32), L: T.LocalBuffer(8)):\n{body}"
    )["scale"]
    text = traced(
        "S = T.alloc_shared((4, 8), 'float32')\nF = T.alloc_fragment((4, 8), 'float32')\n"
        "L = T.alloc_local(8, 'float32')\nscale(S, F, L)",
        scale=scale,
    )
    assert text.endswith("S[0, 0] = L[0] + F[0, 0]\n")
    for kind, scope in (("Shared", "shared.dyn"), ("Fragment", "local.fragment")):
        assert getattr(T, f"{kind}Buffer")((4, 8), "int8").scope == scope
    assert T.LocalBuffer(8).scope == "local"


def test_dynamic_sizes_are_shared_between_parameters(define, round_trip):
    main = define(
        """
        @T.prim_func
        def main(A: T.Tensor((m, 2 * m), "float32"), B: T.Tensor[[m], "float32"]):
            with T.Kernel(T.ceildiv(m, 8)) as bx:
                A[bx, m - 1] = B[bx]
        """,
        m=T.dynamic("m"),
    )["main"]
    assert main.params[0].shape[0].same_as(main.params[1].shape[0])
    assert "A[bx, m - 1] = B[bx]" in main.script()
    round_trip(main)
