"""The beginning of a block's life as a schedule: who loads which stage when, computes, and waits.

The tile program behind `LayoutInference` is followed as its threads would: roles side by side,
mbarriers, groups of copies and of products as in the program. So order and waits are the
program's. Times are not: each statement has a length of the table `LENGTHS`, in steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import ir, tirx

from tilelang.tools.known_values import element_of, value_of
from tilelang.utils import dtypes

LENGTHS = {"issue": 1, "load": 6, "product": 4, "compute": 3, "store": 4}
"""Steps: to start something asynchronous, from there to its end, and of what threads do."""
_MOST_STEPS = 90
_ARRIVALS = {
    "tl.mbarrier_arrive": False,
    "tl.mbarrier_arrive_expect_tx": False,
    "tl.cp_async_mbarrier_arrive_noinc": False,
    "tl.mbarrier_arrive_warp": True,
    "tl.mbarrier_arrive_warp_cluster": True,
}
"""Intrinsics that arrive, and whether a warp does so once for its lanes."""
_ASYNC_LOADS = ("tl.tileop.tma_copy", "tl.tileop.tma_im2col")
_COPIES = ("tl.tileop.copy", *_ASYNC_LOADS)
_PRODUCTS = ("tl.tileop.gemm", "tl.tileop.gemm_sp")
_QUIET = ("tl.tileop.reducer_init", "tirx.assume")

Wait = Generator["Condition", None, None]


@dataclass(frozen=True)
class Bar:
    """Something that takes time.

    Attributes:
        row: a role, a stage such as ``A_shared[0]``, or ``tensor cores``.
        begin, end: steps.
        kind: ``"load"``, ``"product"``, ``"compute"``, ``"store"``, ``"wait"``, ``"read"``,
            ``"issue"``.
        words: what it is.
        fill: the number of the fill that it makes or uses, -1 without.
        line: of the kernel's source, 0 where that is not known.
    """

    row: str
    begin: int
    end: int
    kind: str
    words: str
    fill: int = -1
    line: int = 0


@dataclass
class TileSchedule:
    """`rows` in the order of a picture, and what is in them. `is_cut`: more follows."""

    rows: list[str] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    is_cut: bool = False
    is_stuck: bool = False
    """Roles wait for what nobody does here, such as another block of the cluster."""


@dataclass
class Condition:
    """Until when a role waits: `ends` gives the step, or None as long as nobody knows."""

    ends: Any
    words: str


class _Barrier:
    """An mbarrier: when its phases ended, and what is missing in this one."""

    def __init__(self, count: int):
        self.count, self.arrived, self.bytes, self.latest = count, 0, 0, 0
        self.ended: list[int] = []

    def change(self, at: int, arrivals: int = 0, bytes_: int = 0) -> None:
        self.arrived += arrivals
        self.bytes += bytes_
        self.latest = max(self.latest, at)
        if self.arrived >= self.count and self.bytes <= 0:
            self.ended.append(self.latest)
            self.arrived, self.bytes, self.latest = 0, 0, 0

    def end_of(self, parity: int) -> int | None:
        """When the phase of this parity ended, that before the current one; 0 at the beginning."""
        if len(self.ended) & 1 == parity & 1:
            return None
        return self.ended[-1] if self.ended else 0


class _Role:
    """Threads that go through the program together."""

    def __init__(self, name: str, threads: int, clock: int):
        self.name, self.threads, self.clock = name, threads, clock
        self.lanes = threads  # that are at the statement
        self.open_copies, self.copies, self.products = 0, [0][:0], [0][:0]


def tile_schedule(mod: tvm.IRModule, kernel: int = 0) -> TileSchedule:
    """The schedule of a kernel of a module behind `LayoutInference`; the first 90 steps.

    Values that only the run knows are taken as true, and loops of unknown length as long.

    Example: ``tile_schedule(trace.after("LayoutInference").mod).bars``
    """
    (function,) = mod.functions.values()
    return _Machine(kernels_of(function.body)[kernel], warp_threads(function)).schedule


def warp_threads(function: Any) -> int:
    """The lanes of a warp of the target that a function is bound to.

    Example: ``warp_threads(trace.after("LayoutInference").mod["main"]) == 32``
    """
    return int(function.attrs["target"].attrs["thread_warp_size"])


def kernels_of(body: Any) -> list[Any]:
    """The kernels in the body of a program: the outermost attributes ``thread_extent``.

    Example: ``len(kernels_of(function.body))``
    """
    if isinstance(body, tirx.AttrStmt) and body.attr_key == "thread_extent":
        return [body]
    parts = body.seq if isinstance(body, tirx.SeqStmt) else [getattr(body, "body", None)]
    if isinstance(body, tvm.s_tir.SBlockRealize):
        parts = [body.block.body]
    return [found for part in parts if part is not None for found in kernels_of(part)]


class _Machine:
    def __init__(self, kernel: Any, warp: int):
        self._warp = warp
        self.schedule = TileSchedule()
        self._values: dict[Any, int] = {}
        self._barriers: dict[tuple[Any, int], _Barrier] = {}
        self._counts: dict[Any, list[int]] = {}
        self._fills: Counter[str] = Counter()
        self._filled: dict[str, int] = {}
        self._tensor_cores = 0
        self._stages: list[str] = []
        threads = 1
        while isinstance(kernel, tirx.AttrStmt) and kernel.attr_key == "thread_extent":
            if str(kernel.node.thread_tag).startswith("threadIdx"):
                threads *= int(kernel.value)
            else:
                self._values[kernel.node.var] = 0
            kernel = kernel.body
        everyone = _Role("all threads", threads, 0)
        self._finish(everyone, self._run(kernel, everyone, self._values))
        self._sort_rows()

    # Roles.

    def _finish(self, role: _Role, steps: Iterator[Condition]) -> None:
        """Runs the threads of the block to their end."""
        for condition in steps:
            self._wait(role, condition, condition.ends() or role.clock)

    def _run_beside(self, pairs: list[tuple[_Role, Wait]]) -> None:
        """Runs roles side by side, each until it waits for what is not known yet."""
        waiting: dict[int, Condition | None] = dict.fromkeys(range(len(pairs)))
        while waiting:
            moved = False
            for number in sorted(waiting, key=lambda n: pairs[n][0].clock):
                role, steps = pairs[number]
                condition = waiting[number]
                if condition is not None:
                    end = condition.ends()
                    if end is None:
                        continue
                    self._wait(role, condition, end)
                moved = True
                waiting[number] = following = next(steps, None)
                if following is None:
                    del waiting[number]
                break
            if not moved:
                self.schedule.is_stuck = not self.schedule.is_cut
                return

    def _wait(self, role: _Role, condition: Condition, end: int) -> None:
        if end > role.clock:
            self._add(role.name, role.clock, end, "wait", condition.words)
            role.clock = end

    def _fork(self, ranges: list[Any], role: _Role, values: dict[Any, int]) -> None:
        pairs = []
        for attr in ranges:
            first, threads = (int(n) for n in list(attr.node)[:2])
            name, body = f"threads {first} to {first + threads - 1}", attr.body
            if isinstance(body, tirx.AttrStmt) and body.attr_key == "tl.warp_role":
                name, body = f"{body.node} ({name})", body.body
            one = _Role(name, threads, role.clock)
            pairs.append((one, self._run(body, one, dict(values))))
        self._run_beside(pairs)
        role.clock = max(one.clock for one, _ in pairs)

    # Statements.

    def _run(self, node: Any, role: _Role, values: dict[Any, int]) -> Wait:
        if role.clock >= _MOST_STEPS:
            self.schedule.is_cut = True
            return
        if isinstance(node, tirx.SeqStmt):
            yield from self._sequence(list(node.seq), role, values)
        elif isinstance(node, tvm.s_tir.SBlockRealize):
            for buffer, counts in (node.block.annotations.get("barrier_init") or {}).items():
                self._counts[buffer] = [int(count) for count in counts]
            yield from self._run(node.block.body, role, values)
        elif isinstance(node, tirx.For):
            yield from self._loop(node, role, values)
        elif isinstance(node, tirx.While):
            before = -1
            while value_of(node.condition, values) != 0 and before < role.clock < _MOST_STEPS:
                before = role.clock
                yield from self._run(node.body, role, values)
            self.schedule.is_cut |= role.clock >= _MOST_STEPS
        elif isinstance(node, tirx.IfThenElse):
            yield from self._branch(node, role, values)
        elif isinstance(node, tirx.AttrStmt):
            is_off = node.attr_key == "async_copy" and value_of(node.value, values) == 0
            if _is_apart(node):
                self._fork([node], role, values)
            elif not is_off:
                yield from self._run(node.body, role, values)
        elif isinstance(node, tirx.Bind):
            _set(values, node.var, value_of(node.value, values))
        elif isinstance(node, tirx.BufferStore):
            _set(
                values,
                element_of(node.buffer, node.indices, values),
                value_of(node.value, values),
            )
        elif isinstance(node, tirx.Evaluate) and isinstance(node.value, ir.Call):
            yield from self._call(node.value, node.span, role, values)

    def _sequence(self, parts: list[Any], role: _Role, values: dict[Any, int]) -> Wait:
        while parts:
            ranges = []
            while parts and (found := _range_of(parts[0])) is not None:
                ranges.append(found)
                parts.pop(0)
            if ranges:
                self._fork(ranges, role, values)
            elif parts:
                yield from self._run(parts.pop(0), role, values)

    def _loop(self, node: Any, role: _Role, values: dict[Any, int]) -> Wait:
        if node.kind == tirx.ForKind.PARALLEL:
            self._work(role, "compute", "T.Parallel", node.span)
            return
        extent = value_of(node.extent, values)
        begin = value_of(node.min, values) or 0
        for i in range(begin, begin + (_MOST_STEPS if extent is None else extent)):
            values[node.loop_var] = i
            before = role.clock
            yield from self._run(node.body, role, values)
            if role.clock >= _MOST_STEPS or (role.clock == before and extent is None):
                break
        values.pop(node.loop_var, None)

    def _branch(self, node: Any, role: _Role, values: dict[Any, int]) -> Wait:
        condition = value_of(node.condition, values)
        body = node.else_case if condition == 0 else node.then_case
        if body is None:
            return
        lanes = role.lanes
        # One elected thread, or the one that an equation names.
        if condition is None and isinstance(node.condition, ir.Call | tirx.EQ):
            role.lanes = 1
        yield from self._run(body, role, values)
        role.lanes = lanes

    def _call(self, call: Any, span: Any, role: _Role, values: dict[Any, int]) -> Wait:
        name = str(getattr(call.op, "name", ""))
        if name == "tl.tileop.acquire" or name.startswith("tl.mbarrier_wait"):
            where, barrier = self._barrier(call.args[0], values)
            parity = value_of(call.args[1], values)
            if parity is not None:
                yield Condition(lambda: barrier.end_of(parity), f"waits for {where}")
        elif name == "tl.tileop.release":
            conditional = len(call.args) > 1 and not isinstance(call.args[1], ir.TensorRegion)
            if not conditional or value_of(call.args[1], values) != 0:
                blocks = int((call.attrs or {}).get("blocks", 1))
                self._arrive(call.args[0], max(1, role.lanes // self._warp) * blocks, role, values)
        elif name in _ARRIVALS:
            bytes_ = value_of(call.args[1], values) or 0 if name.endswith("expect_tx") else 0
            count = max(1, role.lanes // (self._warp if _ARRIVALS[name] else 1))
            self._arrive(call.args[0], count, role, values, bytes_)
        elif name == "tl.tileop.wgmma_wait":
            yield _until(role.products, value_of(call.args[0], values) or 0, "products")
        elif name == "tl.cp_async_commit":
            role.copies.append(max(role.open_copies, role.clock))
            role.open_copies = 0
        elif name == "tl.cp_async_wait":
            yield _until(role.copies, value_of(call.args[0], values) or 0, "copies")
        elif name in _COPIES:
            self._copy(call, name, span, role, values)
        elif name in _PRODUCTS:
            self._product(call, name, span, role, values)
        elif name.startswith("tl.tileop.") and name not in _QUIET:
            self._work(role, "compute", "T." + name.rpartition(".")[2], span)

    # Operators.

    def _copy(self, call: Any, name: str, span: Any, role: _Role, values: dict[Any, int]) -> None:
        source, to = call.args[0], call.args[1]
        attrs = call.attrs or {}
        chosen = str(next(iter(attrs.get("instruction", ())), ""))
        words = f"{source.source.name} to {to.source.name}"
        is_load = _is_global(source) and not _is_global(to)
        if not is_load:
            kind = "store" if _is_global(to) else "compute"
            is_async = _is_global(to) and (chosen == "tma" or name in _ASYNC_LOADS)
            self._read(source, role.clock, LENGTHS["store"], words, values)
            self._work(role, "issue" if is_async else kind, words, span)
            return
        begin = role.clock
        self._work(role, "issue", f"loads {words}", span)
        end = begin + LENGTHS["load"]
        if name in _ASYNC_LOADS:
            if len(call.args) > 2:
                _, barrier = self._barrier(call.args[2], values)
                barrier.change(end, bytes_=-_bytes(to, values))
        elif chosen == "cp.async":
            role.open_copies = max(role.open_copies, end)
        else:
            role.clock = end
        row = self._stage(to, values)
        if row is not None:
            fill = self._fills[to.source.name]
            self._fills[to.source.name] += 1
            self._filled[row] = fill
            self._add(row, begin, end, "load", f"fill {fill}: {words}", fill, span)

    def _product(
        self, call: Any, name: str, span: Any, role: _Role, values: dict[Any, int]
    ) -> None:
        operands = [a for a in call.args if isinstance(a, ir.TensorRegion)]
        words = "T." + name.rpartition(".")[2] + " " + ", ".join(a.source.name for a in operands)
        rows = [self._stage(operand, values) for operand in operands]
        fill = max((self._filled[row] for row in rows if row in self._filled), default=-1)
        begin = role.clock
        if int((call.attrs or {}).get("wg_wait", 0)) == -1:
            self._work(role, "issue", f"starts {words}", span)
            begin = max(begin, self._tensor_cores)
            self._tensor_cores = begin + LENGTHS["product"]
            role.products.append(self._tensor_cores)
            self._add("tensor cores", begin, self._tensor_cores, "product", words, fill, span)
        else:
            self._work(role, "product", words, span, fill)
        for operand in operands[:-1]:
            self._read(operand, begin, LENGTHS["product"], words, values)

    def _work(self, role: _Role, kind: str, words: str, span: Any, fill: int = -1) -> None:
        end = role.clock + LENGTHS[kind]
        self._add(role.name, role.clock, end, kind, words, fill, span)
        role.clock = end

    def _read(
        self, region: Any, begin: int, length: int, words: str, values: dict[Any, int]
    ) -> None:
        row = self._stage(region, values)
        if row in self._filled:
            fill = self._filled[row]
            self._add(row, begin, begin + length, "read", f"{words} read fill {fill}", fill)

    # Places.

    def _stage(self, region: Any, values: dict[Any, int]) -> str | None:
        """The row of a version of a shared tile; None for other memory."""
        buffer = region.source
        if not str(buffer.scope()).startswith("shared"):
            return None
        first, row = region.region[0], str(buffer.name)
        if len(region.region) > 1 and int(buffer.shape[0]) > 1 and _is_one(first.extent):
            row += f"[{value_of(first.min, values) or 0}]"
        if row not in self._stages:
            self._stages.append(row)
        return row

    def _barrier(self, at: Any, values: dict[Any, int]) -> tuple[str, _Barrier]:
        """The mbarrier of a region of one element, or of the address of one."""
        if isinstance(at, ir.TensorRegion):
            buffer, index = at.source, at.region[0].min
        else:
            buffer, index = at.args[0].source, at.args[0].indices[0]
        number = value_of(index, values) or 0
        if (buffer, number) not in self._barriers:
            counts = self._counts.get(buffer, [1])
            self._barriers[buffer, number] = _Barrier(counts[min(number, len(counts) - 1)])
        return f"{buffer.name}[{number}]", self._barriers[buffer, number]

    def _arrive(
        self, at: Any, count: int, role: _Role, values: dict[Any, int], bytes_: int = 0
    ) -> None:
        self._barrier(at, values)[1].change(role.clock, count, bytes_)

    def _add(
        self,
        row: str,
        begin: int,
        end: int,
        kind: str,
        words: str,
        fill: int = -1,
        span: Any = None,
    ) -> None:
        line = 0 if span is None else int(span.line)
        self.schedule.bars.append(Bar(row, begin, end, kind, words, fill, line))

    def _sort_rows(self) -> None:
        used = dict.fromkeys(bar.row for bar in self.schedule.bars)
        stages = [row for row in sorted(self._stages) if row in used]
        others = [row for row in used if row not in stages and row != "tensor cores"]
        cores = ["tensor cores"] if "tensor cores" in used else []
        self.schedule.rows = [*others, *cores, *stages]


def _until(groups: list[int], allowed: int, what: str) -> Condition:
    """All but the newest `allowed` of the groups."""
    ends = groups[: len(groups) - allowed]
    end = max(ends, default=0)
    return Condition(lambda: end, f"waits for {what}, {allowed} groups may be in flight")


def _set(values: dict[Any, int], name: Any, value: int | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value


def _is_apart(node: Any) -> bool:
    """Whether it is a range of threads whose order with others is the program's."""
    is_range = isinstance(node, tirx.AttrStmt) and node.attr_key == "tl.thread_range"
    return is_range and int(node.value) == 1


def _range_of(node: Any) -> Any:
    """The range that a branch on the thread's number is, or None."""
    if isinstance(node, tirx.IfThenElse) and node.else_case is None:
        node = node.then_case
    return node if _is_apart(node) else None


def _is_global(region: Any) -> bool:
    return str(region.source.scope()) == "global"


def _is_one(extent: Any) -> bool:
    return value_of(extent, {}) == 1


def _bytes(region: Any, values: dict[Any, int]) -> int:
    count = math.prod(value_of(r.extent, values) or 1 for r in region.region)
    return count * dtypes.bits(str(region.source.ty.dtype)) // 8
