"""launch_plan_of: parameters, symbolic dimensions, launches."""

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from tilelang.engine.device_codegen import SplitHostDevice, launch_plan_of, split_modules
from tilelang.engine.launch_plan import KernelLaunch, LaunchPlan, ScalarParam, TensorParam
from tilelang.utils.target import determine_target

m, n = tirx.Var("m", "int32"), tirx.Var("n", "int32")


def plan(func: tirx.PrimFunc, target: str = "cuda -arch=sm_80") -> LaunchPlan:
    chosen = determine_target(target, return_object=True)
    mod = tvm.IRModule({"main": func.with_attr({"global_symbol": "main", "target": chosen})})
    return launch_plan_of(*split_modules(SplitHostDevice()(mod)))


@T.prim_func(s_tir=True)
def scale(
    A: T.Buffer((m, 64), "float16", strides=(n, 1)), s: T.float32, B: T.Buffer((m * 64,), "float32")
):
    bx = T.launch_thread("blockIdx.x", (m + 3) // 4)
    by = T.launch_thread("blockIdx.y", T.min(m, 7) - 1)
    tx = T.launch_thread("threadIdx.x", 32)
    B[bx + by + tx + m] = s


def test_plan():
    found = plan(scale)
    var = ("var", "m")
    assert found.params == (
        TensorParam("A", "float16", (var, 64), (("var", "n"), 1)),
        ScalarParam("s", "float32"),
        TensorParam("B", "float32", (("*", var, 64),)),
    )
    assert found.kernels == (
        KernelLaunch(
            "main_kernel",
            grid=(("//", ("+", var, 3), 4), ("-", ("min", var, 7), 1), 1),
            block=(32, 1, 1),
            shared_bytes=0,
            args=(("param", "B"), ("param", "s"), ("value", var, "int32")),
            writes=("B",),
        ),
    )


def test_location_is_in_the_kernel_file():
    assert plan(scale).location.rpartition(":")[0] == __file__


@pytest.mark.parametrize(
    ("target", "lanes"),
    [("cuda -arch=sm_90a", 32), ("hip -mcpu=gfx942", 64), ("hip -mcpu=gfx1100", 32)],
)
def test_a_plan_says_how_many_lanes_a_warp_has(target, lanes):
    found = plan(scale, target)
    assert found.warp_threads == lanes
    assert LaunchPlan.from_json(found.to_json()) == found


def test_two_dimensions_with_one_name():
    other = tirx.Var("m", "int32")

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((m,), "float32"), B: T.Buffer((other,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        A[tx] = B[tx]

    with pytest.raises(ValueError, match="found two dimensions named `m`"):
        plan(func)


def test_dimension_that_the_host_cannot_compute():
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((m,), "float32")):
        bx = T.launch_thread("blockIdx.x", m | 1)
        A[bx] = T.float32(0)

    with pytest.raises(ValueError, match=r"found dimension or grid extent .*\| 1.*, wanted \+, -"):
        plan(func)
