"""From a tile program, written as users write it, to its text after some passes."""

import ast
import re
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

import tilelang
from tilelang import transform
from tilelang.transform import PassContext
from tilelang.utils.target import determine_target

# What decides about instructions stands in front of the passes that read the decision.
READERS = {
    "DoubleAccumulators",
    "PlanWarpRoles",
    "PipelinePlanning",
    "PlaceAsyncWaits",
    "LayoutInference",
}
DECISIONS = {
    "instruction",
    "rejected",
    "swizzle",
    "warps",
    "interleaved",
    "demanded",
    "touched_elsewhere",
    "aligned",
}


def with_decisions(names: tuple[str, ...]) -> tuple[str, ...]:
    applied = "ProducerConsumerWarpSpecialized"
    if applied in names and "PlanWarpRoles" not in names:
        at = names.index(applied)
        names = (*names[:at], "PlanWarpRoles", *names[at:])
    first = next((i for i, name in enumerate(names) if name in READERS), None)
    if first is None or "SelectInstructions" in names:
        return names
    return (*names[:first], "SelectInstructions", *names[first:])


def without_decisions(line: str) -> str:
    """A line of a program as it is without the attributes of SelectInstructions."""
    call = re.fullmatch(
        r'(.*)T\.Call\("tl\.tileop\.(\w+)", \[(.*)\], attrs=(\{.*\}), ret_ty="void"\)', line
    )
    if call is None:
        return line
    indent, name, operands, attrs = call.groups()
    kept = {key: value for key, value in ast.literal_eval(attrs).items() if key not in DECISIONS}
    if not kept:
        return f"{indent}T.tl.{name}({operands})"
    text = ", ".join(f'"{key}": {value!r}' for key, value in kept.items()).replace("'", '"')
    return f'{indent}T.Call("tl.tileop.{name}", [{operands}], attrs={{{text}}}, ret_ty="void")'


@pytest.fixture
def tile_passes() -> Callable[..., tvm.IRModule]:
    """Runs the passes named after the traced function was bound to a target and a launch, with
    SelectInstructions and PlanWarpRoles in front of those that read what they decide."""

    def run(func: tirx.PrimFunc, *names: str, arch: str = "sm_80", config: Any = None) -> Any:
        name = f"hip -mcpu={arch}" if arch.startswith("gfx") else f"cuda -arch={arch}"
        target = determine_target(name, return_object=True)
        mod = tvm.IRModule({"main": func})
        with PassContext(config=config):
            for step in (
                transform.BindTarget(target),
                transform.MaterializeKernelLaunch(),
                *(getattr(transform, name)() for name in with_decisions(names)),
            ):
                mod = step(mod)
        return mod

    return run


@pytest.fixture
def statements(tile_passes) -> Callable[..., str]:
    """The text of the block `tilelang_root` after passes, without declarations and instructions."""

    def run(func: tirx.PrimFunc, *names: str, **kwargs: Any) -> str:
        text = tile_passes(func, *names, **kwargs)["main"].script(show_meta=False)
        block = text.partition('with T.sblock("tilelang_root"):\n')[2].splitlines()
        declared = ("T.reads(", "T.writes(", "T.sblock_attr(")
        kept = [
            without_decisions(line)
            for line in block
            if not line.strip().startswith(declared)
            and " = T.sblock_alloc_buffer(" not in line
            and " = T.Buffer(" not in line
        ]
        return textwrap.dedent("\n".join(kept)).strip()

    return run


@pytest.fixture
def layouts() -> Callable[[tvm.IRModule], tuple[dict[str, Any], list[Any]]]:
    """What LayoutInference left: layouts by buffer name, and loop layouts in program order."""

    def collect(mod: tvm.IRModule) -> tuple[dict[str, Any], list[Any]]:
        placed: dict[str, Any] = {}
        loops: list[Any] = []

        def block(node: s_tir.SBlock) -> None:
            for buffer, layout in dict(node.annotations.get("layout_map", {})).items():
                placed[buffer.name] = layout

        def loop(node: tirx.For) -> None:
            if "parallel_loop_layout" in node.annotations:
                loops.append(node.annotations["parallel_loop_layout"])

        tvm_ffi.structural_walk(mod["main"], [(s_tir.SBlock, block), (tirx.For, loop)])
        return placed, loops

    return collect


_EVENTS = {
    "tl.mbarrier_wait": "acquire {}",
    "tl.mbarrier_arrive_warp": "release {}",
    "tl.mbarrier_arrive_warp_cluster": "release {} of all",
    "tl.warpgroup_commit_batch": "commit",
    "tl.warpgroup_wait": "wait {}",
}


@pytest.fixture
def role_events() -> Callable[..., list[list[str]]]:
    """For each role of a kernel for sm_90a, what it waits for and signals, in program order.

    Slots are left out. A loop is "for", if its variable is one of `loops`.
    """

    def run(func: tirx.PrimFunc, *loops: str) -> list[list[str]]:
        roles: list[list[str]] = [[]]  # the first is what all threads do, in front of the roles

        def branch(node: tirx.IfThenElse) -> None:
            if "warp_group" in str(node.condition):
                roles.append([])

        def loop(node: tirx.For) -> None:
            if node.loop_var.name in loops:
                roles[-1].append("for")

        def call(node: ir.Call) -> None:
            event = _EVENTS.get(node.op.name)
            if event is None:
                return
            operand = node.args[0] if len(node.args) else None
            barrier = operand.args[0].source.name if isinstance(operand, ir.Call) else operand
            roles[-1].append(event.format(barrier))

        (kernel,) = tilelang.lower(func, target="cuda -arch=sm_90a").device_mod.functions.values()
        callbacks = [(tirx.IfThenElse, branch), (tirx.For, loop), (ir.Call, call)]
        tvm_ffi.structural_walk(kernel, callbacks, order="pre")
        return roles[1:]

    return run
