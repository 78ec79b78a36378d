"""What became of a kernel, in words: `JITKernel.explain`.

Passes leave facts on the device functions: ``tl.pipelines`` (one entry for each T.Pipelined, from
PipelinePlanning and InjectSoftwarePipeline) and ``tl.notes`` (which instructions an operator
became). The rest is read off the thread program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tvm
from tvm import ir, tirx
from tvm_ffi import structural_walk

from tilelang.engine.explain_roles import roles_text, source_line
from tilelang.engine.performance import facts
from tilelang.utils import dtypes

if TYPE_CHECKING:
    from tilelang.engine.resource_usage import ResourceUsage

_BARRIERS = ("tirx.tvm_storage_sync", "tl.sync_threads_partial")
_COPIES = {
    "tl.cp_async_gs": "cp.async",
    "tl.cp_async_gs_conditional": "cp.async",
    "tl.buffer_load_lds": "buffer_load_lds",
    "tl.buffer_load_lds_if": "buffer_load_lds",
}
# What the two halves of a copy do where a target has no asynchronous copies of threads.
_PARTS = {"load": "by the threads, ahead in registers", "store": "from registers"}
_ENGINES = {
    "tl.tma_load": "TMA, completes on an mbarrier",
    "tl.tma_load_im2col": "TMA in im2col mode, completes on an mbarrier",
    "tl.tma_load_multicast": "TMA to several blocks of the cluster, completes on their mbarriers",
    "tl.tma_store": "TMA, a group of bulk copies",
    "tl.wgmma_ss": "wgmma, operands from shared memory",
    "tl.wgmma_rs": "wgmma, A from registers",
}


@dataclass(frozen=True)
class KernelExplanation:
    """What there is to say about one kernel: `head` in front of its resources, `lines` behind."""

    name: str
    head: str
    dynamic_shared: int | str
    """Bytes, or the expression that the launch computes them by."""
    lines: tuple[str, ...]

    def shared(self, static: int) -> str:
        """Words for its shared memory, `static` bytes of which are no dynamic ones."""
        if isinstance(self.dynamic_shared, int):
            return f"{self.dynamic_shared + static} bytes"
        beside = f" and {static}" if static else ""
        return f"{self.dynamic_shared}{beside} bytes, as the launch computes"


@dataclass(frozen=True)
class Explanation:
    """What became of a program, as data. `notes` say which instructions its operators became."""

    kernels: tuple[KernelExplanation, ...]
    notes: tuple[str, ...]

    @staticmethod
    def of(device_mod: tvm.IRModule) -> Explanation:
        """The explanation of the kernels of a module after `SplitHostDevice`."""
        functions = sorted(
            device_mod.functions.values(), key=lambda f: str(f.attrs["global_symbol"])
        )
        # A pipeline repeats its operators around the loop, and all kernels have all notes.
        notes = dict.fromkeys(str(n) for f in functions for n in f.attrs.get("tl.notes") or [])
        return Explanation(tuple(map(_kernel, functions)), tuple(notes))

    @staticmethod
    def of_json(fields: Mapping[str, Any]) -> Explanation:
        """The inverse of `dataclasses.asdict`."""
        kernels = (KernelExplanation(**k | {"lines": tuple(k["lines"])}) for k in fields["kernels"])
        return Explanation(tuple(kernels), tuple(fields["notes"]))

    def text(self, usage: Mapping[str, ResourceUsage]) -> str:
        """A text about each kernel: its launch, registers and shared memory; for each pipelined
        loop its plan, or why it has none; which instructions its operators became.

        `usage` has the resources of each kernel by name.

        Example: ``print(Explanation.of(artifact.device_mod).text(kernel.resource_usage))``
        """
        lines: list[str] = []
        for kernel in self.kernels:
            of_kernel = usage[kernel.name]
            lines += [
                kernel.head,
                f"  registers: {of_kernel.registers} of each thread, "
                f"{of_kernel.spill_stores} bytes spilled",
                *(f"    {line}" for line in facts(of_kernel)),
                f"  shared memory: {kernel.shared(of_kernel.static_shared)}",
                *kernel.lines,
            ]
        return "\n".join([*lines, *self.notes])


def _kernel(function: tirx.PrimFunc) -> KernelExplanation:
    attrs = function.attrs
    grid, block = (", ".join(map(str, attrs[key])) for key in ("tl.grid", "tl.block"))
    lines = _shared_buffers(function)
    for entry in attrs.get("tl.warp_roles") or []:
        if int(entry["kernel"]) != int(attrs["tl.kernel_number"]):
            continue
        lines += [f"  {line}" for line in roles_text(entry)]
    here = _lines(function.body)
    for entry in attrs.get("tl.pipelines") or []:
        if here & {int(line) for statement in entry["statements"] for line in statement["lines"]}:
            lines += _loop(function, entry)
    name = str(attrs["global_symbol"])
    shared = attrs["tl.dyn_shared_bytes"]
    is_constant = isinstance(shared, int | tirx.IntImm)
    turns = " of tiles, which a block for each multiprocessor takes one after the other"
    turns = turns if attrs["tl.persistent"] else ""
    return KernelExplanation(
        name,
        f"kernel {name}: grid ({grid}){turns}, block ({block})",
        int(shared) if is_constant else str(shared),
        tuple(lines),
    )


def _shared_buffers(function: tirx.PrimFunc) -> list[str]:
    lines: list[str] = []

    def allocation(node: tirx.AllocBuffer) -> None:
        offset = node.annotations.get("tl.shared_offset")
        if offset is not None:
            name, dtype, (extent,) = node.buffer.name, node.buffer.dtype, node.buffer.shape
            if not isinstance(extent, tirx.IntImm):
                lines.append(f"    from byte {offset}, {extent} elements: {name}, {dtype}")
                return
            size = int(extent) * dtypes.bits(str(dtype)) // 8
            first = int(offset)
            lines.append(f"    bytes {first} to {first + size}: {name}, {dtype}")

    structural_walk(function.body, [(tirx.AllocBuffer, allocation)])
    return lines


def _loop(function: tirx.PrimFunc, entry: Any) -> list[str]:
    file, line = str(entry["file"]), int(entry["line"])
    head = f"  T.Pipelined over {entry['variable']} at {file}:{line}"
    if "stage" not in entry and "versions" in entry:
        return [
            f"{head}: its T.ws run ahead of each other as far as their mbarriers let them",
            *_steps(function, entry),
        ]
    if "stage" not in entry:
        lines = [f"{head}: a plain loop, because nothing can run ahead"]
        for statement in entry["statements"]:
            if statement["reason"]:
                lines.append(f"    {source_line(file, statement)}: {statement['reason']}")
        return lines
    ahead = max(int(s) for s in entry["stage"])
    lines = [f"{head}: {ahead} {'step' if ahead == 1 else 'steps'} ahead"]
    beside = _defaults(entry)
    if "chosen" in entry:
        lines[0] += f", {entry['chosen']}"
    if beside is not None:
        lines[0] += ", as the program says" + ("" if beside else "; by default a plain loop")
    keys = ("statements", "stage", "order", "async", "parts")
    plan = zip(*(entry[key] for key in keys), strict=True)
    for i, (statement, stage, order, is_async, part) in enumerate(plan):
        words = [f"stage {stage}", f"order {order}"]
        if beside:
            words[-1] += f" (by default {beside[i]})"
        engine = _PARTS.get(str(part))
        words.append(engine or _engine(function, set(map(int, statement["lines"])), bool(is_async)))
        if statement["reason"] and int(stage) == ahead and "" in _reasons(entry):
            words.append(f"not ahead: {statement['reason']}")
        lines.append(f"    {source_line(file, statement)}: {', '.join(words)}")
    return lines + _steps(function, entry)


def _steps(function: tirx.PrimFunc, entry: Any) -> list[str]:
    """What the steps of a pipeline share, and what orders the threads in one."""
    versions = ", ".join(f"{name} {count}" for name, count in sorted(entry["versions"].items()))
    lines = [f"    versions of buffers: {versions or 'one of each'}"]
    if "slots" in entry:
        slots = ", ".join(f"{name} {count}" for name, count in sorted(entry["slots"].items()))
        late = ", released an iteration late" if entry["late"] else ""
        lines = [f"    slots that the program has itself: {slots}{late}"]
    loop = _loop_of(function, entry)
    if loop is not None:
        lines.append(f"    barriers in a step: {_count(loop, _BARRIERS)}")
    return lines


def _defaults(entry: Any) -> list[str] | None:
    """The compiler's own places of the statements beside a plan of the user; empty if it would make
    a plain loop, None if the plan is its own."""
    if "default_stage" not in entry:
        return None
    places = zip(entry["default_stage"], entry["default_order"], strict=True)
    return [f"stage {stage}, order {order}" for stage, order in places]


def _reasons(entry: Any) -> list[str]:
    return [str(statement["reason"]) for statement in entry["statements"]]


def _engine(function: tirx.PrimFunc, lines: set[int], planned: bool) -> str:
    """How the statement of these lines of the kernel is executed, as the thread program says."""
    widths: set[int] = set()
    copies: set[str] = set()
    engines: set[str] = set()

    def statement(node: tirx.Evaluate) -> None:
        call = node.value
        if node.span is None or node.span.line not in lines:
            return
        if _is_call(call, tuple(_COPIES)):
            widths.add(int(call.args[0]))
            copies.add(_COPIES[str(call.op.name)])
        elif _is_call(call, tuple(_ENGINES)):
            engines.add(_ENGINES[str(call.op.name)])

    structural_walk(function.body, [(tirx.Evaluate, statement)])
    if engines:
        return "; ".join(sorted(engines))
    if not planned:
        return "by the threads"
    if not widths:
        return "by the threads: cp.async does not fit its width or alignment"
    of = f"{', '.join(sorted(copies))} of {', '.join(map(str, sorted(widths)))}"
    return f"{of} bytes, a group for each step"


def _loop_of(function: tirx.PrimFunc, entry: Any) -> tirx.For | None:
    """The loop that a pipeline became: of its variable, with the most of its lines in it (TVM drops
    the places of loops). None if it has one iteration and is no loop any more."""
    lines = {int(line) for statement in entry["statements"] for line in statement["lines"]}
    found: dict[tirx.For, int] = {}

    def loop(node: tirx.For) -> None:
        if node.loop_var.name == entry["variable"]:
            found[node] = len(lines & _lines(node.body))

    structural_walk(function.body, [(tirx.For, loop)])
    best = max(found, key=lambda node: found[node], default=None)
    return best if best is not None and found[best] else None


def _lines(body: tirx.Stmt) -> set[int]:
    lines: set[int] = set()

    def statement(node: tirx.Evaluate | tirx.BufferStore) -> None:
        if node.span is not None:
            lines.add(node.span.line)

    structural_walk(body, [((tirx.Evaluate, tirx.BufferStore), statement)])
    return lines


def _count(body: tirx.For, names: tuple[str, ...]) -> int:
    found: list[ir.Call] = []

    def call(node: ir.Call) -> None:
        if _is_call(node, names):
            found.append(node)

    structural_walk(body, [(ir.Call, call)])
    return len(found)


def _is_call(value: Any, names: tuple[str, ...]) -> bool:
    return (
        isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and str(value.op.name) in names
    )
