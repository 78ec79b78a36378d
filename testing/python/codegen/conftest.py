"""From a thread program to source text, and one expression in a kernel of one statement."""

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import s_tir, tirx

from tilelang._ffi import get_function
from tilelang.engine.device_codegen import SplitHostDevice, emit_cuda, split_modules


@pytest.fixture
def emit() -> Callable[..., str]:
    """Source text of a thread program in a block, whose name is `main`."""

    def run(func: tirx.PrimFunc, line_directives: bool = False, arch: str = "sm_80") -> str:
        target = tvm.target.Target({"kind": "cuda", "arch": arch})
        mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        for transform in (
            tirx.transform.BindTarget(target),
            s_tir.transform.LowerOpaqueBlock(),
            get_function("transform.PlanSharedMemory")(),
            get_function("transform.FlattenBuffer")(),
            SplitHostDevice(),
        ):
            mod = transform(mod)
        return emit_cuda(split_modules(mod)[1], line_directives)

    return run


@pytest.fixture
def body(emit: Callable[..., str]) -> Callable[..., list[str]]:
    """Lines between the braces of the one kernel, without the indices that open it."""

    def run(func: tirx.PrimFunc) -> list[str]:
        lines = emit(func).partition(") {\n")[2].splitlines()[:-1]
        opening = ("= threadIdx", "tl::assume(")
        return [line[2:] for line in lines if not any(text in line for text in opening)]

    return run


@pytest.fixture
def stored() -> Callable[..., str]:
    """C++ of one expression over the variables `params` that is stored."""

    def run(value: Any, *params: Any) -> str:
        out = tirx.decl_buffer((64,), str(value.ty.dtype), name="out")
        return _between(tirx.BufferStore(out, value, [0]), [*params, out], "out[0] = ")

    return run


@pytest.fixture
def expression() -> Callable[..., str]:
    """C++ of one expression over the variables `params`: of places and counts, not of values."""

    def run(value: Any, *params: Any) -> str:
        bound = tirx.Var("bound", str(value.ty.dtype))
        return _between(tirx.Bind(bound, value), [*params], " bound = ")

    return run


def _between(body: tirx.Stmt, params: list[Any], start: str) -> str:
    kernel = tirx.PrimFunc(params, body).with_attrs({"global_symbol": "k", "tl.block": [1, 1, 1]})
    text = str(get_function("codegen.EmitCuda")([kernel], False))
    return text.partition(start)[2].rpartition(";")[0]
