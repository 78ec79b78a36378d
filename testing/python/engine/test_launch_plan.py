import pytest
import torch

from tilelang.engine.launch_plan import (
    Descriptor,
    KernelLaunch,
    LaunchPlan,
    PointerParam,
    Requirement,
    ScalarParam,
    TensorParam,
    format_expr,
)
from tilelang.engine.tensor_map import Im2col

M = ("var", "m")
N = ("var", "n")


def plan(params, outputs=(), args=(), grid=(1, 1, 1), **parts):
    kernel = KernelLaunch("k", grid, (128, 1, 1), 0, args)
    return LaunchPlan("main", params, (kernel,), outputs, "gemm.py:7", **parts)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (("+", M, 1), "(m + 1)"),
        (("-", 1, M), "(1 - m)"),
        (("*", M, N), "(m * n)"),
        (("//", N, 2), "(n // 2)"),
        (("%", N, 2), "(n % 2)"),
        (("min", M, N), "min(m, n)"),
        (("max", M, N), "max(m, n)"),
        (("ceildiv", M, 4), "ceildiv(m, 4)"),
    ],
)
def test_expressions_are_shown_in_infix(expr, text):
    assert format_expr(expr) == text


def test_json_gives_the_plan_back():
    params = (
        TensorParam("A", "float16", (M, ("*", 2, N)), (N, 1)),
        ScalarParam("s", "float32"),
        TensorParam("C", "float16", (M,)),
        PointerParam("p", "float16"),
        PointerParam("q", None),
    )
    args = (("param", "A"), ("param", "s"), ("param", "C"), ("value", ("-", M, 1), "int32"))
    before = plan(params, (2,), args, (("ceildiv", M, 128), 1, 1))
    assert LaunchPlan.from_json(before.to_json()) == before


def described(**changes):
    fields = {
        "name": "A_desc",
        "param": "A",
        "dtype": "float16",
        "shape": (64, M),
        "strides": (("*", N, 2),),
        "box": (64, 128),
        "element_strides": (1, 1),
        "swizzle": 128,
    }
    kernel = KernelLaunch("k", (1, 1, 1), (128, 1, 1), 0, (("descriptor", "A_desc"),))
    params = (TensorParam("A", "float16", (M, 64), (N, 1)),)
    return LaunchPlan(
        "main",
        params,
        (kernel,),
        location="gemm.py:7",
        descriptors=(Descriptor(**fields | changes),),
    )


def test_json_gives_tensor_maps_back():
    before = described()
    assert LaunchPlan.from_json(before.to_json()) == before
    assert (
        "A_desc = tensor_map(A, float16, shape=(64, m), byte_strides=((n * 2),), box=(64, 128), "
        "swizzle=128)\n    launch k(A_desc) " in before.script()
    )


def test_json_gives_tensor_maps_in_im2col_mode_back():
    columns = Im2col((-1, -1), (-1, -1), channels=32, pixels=128)
    before = described(
        shape=(64, 7, 9, M),
        strides=(128, 896, 8064),
        box=(),
        element_strides=(1, 2, 2, 1),
        swizzle=64,
        im2col=columns,
    )
    assert LaunchPlan.from_json(before.to_json()) == before
    assert (
        "byte_strides=(128, 896, 8064), element_strides=(1, 2, 2, 1), im2col=(pixels (-1, -1) to "
        "(-1, -1), 32 channels of 128), swizzle=64)" in before.script()
    )


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"name": "B_desc"}, "takes unknown parameters"),
        ({"param": "B"}, "A_desc is of no parameter: B"),
        ({"strides": ()}, "2 extents and 0 strides"),
        ({"shape": (64, ("var", "k"))}, "dimension `k` of `A_desc`"),
    ],
)
def test_a_tensor_map_that_cannot_be_made_is_refused(changes, found):
    with pytest.raises(ValueError, match=found):
        described(**changes)


def test_json_of_something_else_is_refused():
    with pytest.raises(ValueError, match="not the JSON form of a plan"):
        LaunchPlan.from_json('{"params": [], "kernels": [{}]}')


def test_a_scalar_goes_before_shapes_and_shapes_before_strides():
    found = plan(
        (
            TensorParam("A", "int8", (("+", M, N), M), (N, 1)),
            TensorParam("B", "int8", (N,)),
            ScalarParam("m", "int32"),
        )
    ).sources.definitions
    assert (found["m"].param, found["m"].kind) == (2, "scalar")
    assert (found["n"].param, found["n"].kind, found["n"].dim) == (1, "shape", 0)


def test_a_variable_that_only_an_output_has_is_refused():
    params = (TensorParam("A", "int8", (M,)), TensorParam("C", "int8", (N,)))
    with pytest.raises(ValueError, match=r"`main` \(gemm.py:7\).*dimension `n` of `C`.*scalar"):
        plan(params, (1,))


def test_a_variable_inside_an_expression_alone_is_solved_for():
    found = plan((TensorParam("A", "int8", (("+", ("*", 2, M), 1), ("*", N, M))),)).sources
    assert found.solutions == {
        "m": ("//", ("-", ("var", "A.shape[0]"), 1), 2),
        "n": ("//", ("var", "A.shape[1]"), M),
    }
    assert found.definitions["A.shape[1]"].dim == 1


@pytest.mark.parametrize("expr", [("%", M, 4), ("*", M, M), ("-", M, M), ("+", M, N)])
def test_a_variable_that_expressions_do_not_determine_is_refused(expr):
    with pytest.raises(ValueError, match=r"dimension `m` of `A`.*alone or as in n \* 2 [+] 1"):
        plan((TensorParam("A", "int8", (expr,)),))


def test_symbols_have_their_values_in_elements_of_the_kernel():
    """A torch tensor of a dtype of 4 bits has two elements in one of its last dimension."""
    found = plan(
        (
            TensorParam("A", "int4", (M, ("*", 2, N)), (("var", "s"), 1)),
            ScalarParam("k", "int32"),
        )
    )
    packed = torch.zeros((3, 5), dtype=torch.int8)
    assert found.symbol_values((packed, 7)) == {
        "m": 3,
        "n": 5,
        "s": 10,
        "k": 7,
        "A.shape[1]": 10,
    }


def test_what_a_call_requires_is_a_part_of_the_plan():
    wanted = plan(
        (TensorParam("A", "int8", (M, N)),),
        requirements=(Requirement(M, "<=", N, "wide", "f.py:3"),),
    )
    assert LaunchPlan.from_json(wanted.to_json()) == wanted
    assert "    assert m <= n, 'wide'" in wanted.script()
    with pytest.raises(ValueError, match="found comparison '=', wanted one of ==, !=, <, <="):
        Requirement(M, "=", N)


def test_row_major_strides_are_left_out():
    shape = (4, M, ("+", N, 1), 8)
    strides = (("*", ("*", M, ("+", N, 1)), 8), ("*", 8, ("+", N, 1)), 8, 1)
    assert TensorParam("A", "int8", shape, strides).strides is None
    assert TensorParam("A", "int8", (M, 4), (N, 1)).strides == (N, 1)
    assert TensorParam("A", "int8", (M, 4), (8, 1)).strides == (8, 1)


@pytest.mark.parametrize("expr", [1.5, True, ("**", 2, 3), ("var", 3), ("+", 1), "m"])
def test_what_is_no_expression_is_refused(expr):
    with pytest.raises(ValueError, match="is not an expression"):
        TensorParam("A", "int8", (expr,))


def test_structure_is_checked():
    tensor, scalar = TensorParam("A", "int8", (4,)), ScalarParam("s", "int32")
    with pytest.raises(ValueError, match="have one name"):
        plan((tensor, tensor))
    with pytest.raises(ValueError, match="no parameter 2 to return"):
        plan((tensor, scalar), (2,))
    with pytest.raises(ValueError, match="scalar s cannot be an output"):
        plan((tensor, scalar), (1,))
    with pytest.raises(ValueError, match="pointer p cannot be an output"):
        plan((tensor, PointerParam("p", None)), (1,))
    with pytest.raises(ValueError, match=r"takes unknown parameters \['B'\]"):
        plan((tensor,), args=(("param", "B"),))
    with pytest.raises(ValueError, match="is not an argument of k"):
        plan((tensor,), args=(("symbol", "m"),))
    with pytest.raises(ValueError, match="grid of k needs three extents"):
        plan((tensor,), grid=(1, 1))
    with pytest.raises(ValueError, match="strides of A do not match"):
        TensorParam("A", "int8", (4, 4), (1,))


def test_script_reads_like_the_call():
    params = (
        TensorParam("A", "int8", (M, 4)),
        ScalarParam("s", "int32"),
        TensorParam("C", "int8", (M,)),
        PointerParam("p", None),
    )
    args = (("param", "A"), ("param", "s"), ("value", M, "int32"))
    assert plan(params, (2,), args, (("ceildiv", M, 128), 1, 1)).script().splitlines() == [
        "def main(A, s, p):",
        "    # gemm.py:7",
        "    A: Tensor((m, 4), int8)",
        "    s: int32",
        "    C = empty((m,), int8)",
        "    p: pointer",
        "    launch k(A, s, m) grid=(ceildiv(m, 128), 1, 1) block=(128, 1, 1) shared_bytes=0",
        "    return C",
    ]
