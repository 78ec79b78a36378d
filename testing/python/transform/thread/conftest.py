"""From a thread program to the statements that passes make of it."""

import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import tirx

from tilelang._ffi import get_function
from tilelang.transform import PassContext


@pytest.fixture
def after() -> Callable[..., tvm.IRModule]:
    """The module of a function after passes."""

    def run(
        names: str, func: tirx.PrimFunc, config: dict[str, Any] | None = None, arch: str = "sm_80"
    ) -> tvm.IRModule:
        target = tvm.target.Target({"kind": "cuda", "arch": arch})
        mod = tirx.transform.BindTarget(target)(tvm.IRModule({"main": func}))
        with PassContext(config=config or {}):
            for name in names.split():
                mod = get_function(f"transform.{name}")()(mod)
        return mod

    return run


@pytest.fixture
def statements(after) -> Callable[..., str]:
    """The printed statements of the block `tilelang_root` after passes, without its allocations."""

    def run(*arguments: Any, **options: Any) -> str:
        mod = after(*arguments, **options)
        block = mod["main"].script().partition('with T.sblock("tilelang_root"):\n')[2].splitlines()
        about_the_block = re.compile(r"\s*(T\.reads\(|T\.writes\(|\w+ = T\.sblock_alloc_buffer\()")
        kept = [line for line in block if not about_the_block.match(line)]
        return textwrap.dedent("\n".join(kept)).strip()

    return run


@pytest.fixture
def sync(statements) -> Callable[..., str]:
    """Statements after the pass, a barrier being the line BARRIER."""

    def run(func: tirx.PrimFunc, **kw: Any) -> str:
        return statements("ThreadSync", func, **kw).replace(
            'T.tvm_storage_sync("shared")', "BARRIER"
        )

    return run
