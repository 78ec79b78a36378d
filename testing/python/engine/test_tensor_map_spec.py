"""Tensor maps of programs: what is written into a call is what is read from it."""

from dataclasses import replace

import pytest
from tvm import tirx

from tilelang.engine.tensor_map import Im2col
from tilelang.engine.tensor_map_spec import TensorMapSpec

TILED = TensorMapSpec(
    pointer=tirx.Var("A", "handle"),
    shape=(tirx.Var("n", "int32"), tirx.const(64, "int32")),
    byte_strides=(tirx.const(256, "int64"),),
    dtype="float16",
    box=(64, 32),
    element_strides=(1, 2),
    swizzle=128,
    l2_promotion=256,
    oob_fill="nan",
)
SIZES = tuple(tirx.const(n, "int32") for n in (64, 28, 28, 2))
PIXELS = replace(
    TILED,
    shape=SIZES,
    byte_strides=SIZES[1:],
    box=(),
    element_strides=(1, 2, 2, 1),
    im2col=Im2col((-1, -1), (0, 1), channels=64, pixels=128),
)


@pytest.mark.parametrize("spec", [TILED, PIXELS, replace(TILED, shape=SIZES[:1], byte_strides=())])
def test_a_call_has_every_field(spec):
    call = spec.to_call()
    assert TensorMapSpec.is_call(call)
    assert TensorMapSpec.from_call(call) == spec


def test_what_depends_on_the_call_is_an_argument_the_rest_an_attribute_by_name():
    call = TILED.to_call()
    assert [str(arg) for arg in call.args] == ["A", "n", "64", "T.int64(256)"]
    assert (call.attrs["swizzle"], list(call.attrs["box"])) == (128, [64, 32])
    assert not TensorMapSpec.is_call(call.args[0])
