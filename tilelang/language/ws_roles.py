"""Schedules of warp specialisation by roles: each role has a body, in which the program says where
pipelines are acquired, committed, waited for and released."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import tvm_ffi
from tvm import ir, tirx
from tvm.sym import Analyzer
from tvm.tirx.script.builder import ir as tir_builder

from tilelang._ffi import get_function
from tilelang.language.allocation import allocate
from tilelang.language.barriers import alloc_barrier, mbarrier_wait_parity
from tilelang.language.intrinsics import address_of
from tilelang.language.launch import KernelLaunchFrame
from tilelang.language.ops import device_call
from tilelang.language.regions import store
from tilelang.language.register_counts import registers_at_start, set_max_nreg
from tilelang.language.scalars import as_int
from tilelang.language.tracer import Tracer, current_tracer
from tilelang.language.warp_groups import WarpGroupFrame

if TYPE_CHECKING:
    from tilelang.language.ws_schedule import WSRole, WSSchedule

_WARPS_OF_GROUP = 4
_MOST_SET = 240

_ACQUIRE, _COMMIT, _WAIT, _RELEASE = (
    "producer_acquire",
    "producer_commit",
    "consumer_wait",
    "consumer_release",
)


@dataclass(frozen=True)
class _Step:
    """A call in a role's body, and the loops (variable, extent) and conditions around it there. A
    loop's jumps are conditions, too: of the loop, and of what stands behind them."""

    what: str
    pipeline: str
    span: ir.Span
    around: tuple[Any, ...]

    @property
    def line(self) -> str:
        """Where it stands."""
        return f"line {self.span.line}"


@dataclass
class _Pipeline:
    """The mbarriers of a pipeline, and how often a thread of a role has begun and ended its use."""

    depth: int
    full: ir.Var
    empty: ir.Var
    begun: ir.Var
    ended: ir.Var


@dataclass
class RoleProgram:
    """The roles of a kernel and what their bodies do to the pipelines.

    Example
    -------
    ``kernel.ws_roles = RoleProgram(schedule, span)``
    """

    schedule: WSSchedule
    span: ir.Span
    pipelines: dict[str, _Pipeline] = field(default_factory=dict)
    steps: dict[str, list[_Step]] = field(default_factory=dict)
    running: str | None = None
    """The role whose body is being traced."""

    def __post_init__(self) -> None:
        for name, pipeline in self.schedule.pipelines.items():
            # How many arrive is known when all roles are.
            full, empty = (alloc_barrier([1] * pipeline.depth) for _ in range(2))
            counts = [
                allocate("T.WSPipeline", [1], "uint32", "local.var", "local.var") for _ in range(2)
            ]
            tracer = current_tracer("T.annotate_ws_schedule")
            kinds = ("full", "empty", "begun", "ended")
            for kind, var in zip(kinds, (full, empty, *counts), strict=True):
                tracer.name(f"{name}_{kind}", var)
            for count in counts:
                store(count, 0, 0)
            self.pipelines[name] = _Pipeline(pipeline.depth, full, empty, *counts)

    def steps_in(self, statements: Sequence[Any]) -> list[_Step]:
        """Return the steps of a traced body."""
        kinds = {}
        for name, p in self.pipelines.items():
            kinds[p.empty, "mbarrier_wait"] = _ACQUIRE, name
            kinds[p.full, "mbarrier_arrive_warp"] = _COMMIT, name
            kinds[p.full, "mbarrier_wait"] = _WAIT, name
            kinds[p.empty, "mbarrier_arrive_warp"] = _RELEASE, name
        steps = []
        for call, around in _calls(statements, (), {}):
            barrier = call.value.args[0].args[0].source
            found = kinds.get((barrier, call.value.op.name.removeprefix("tl.")))
            if found is not None:
                steps.append(_Step(*found, call.span, around))
        return steps

    def close(self) -> None:
        """Check the bodies against each other, and let each phase wait for those who arrive."""
        for role in self.schedule.roles:
            if role not in self.steps:
                self.refuse(
                    self.span,
                    f"found no body of role {role!r}, wanted `with T.ws_role({role!r}):` in the "
                    "kernel; write one, or leave the role out",
                )
        kernel = KernelLaunchFrame.Current()
        assert kernel is not None
        for name, pipeline in self.pipelines.items():
            producer, consumers = self._check_pipeline(name)
            arrivals = ((pipeline.full, [producer]), (pipeline.empty, consumers))
            for barrier, roles in arrivals:
                count = sum(_warps(self.schedule.roles[role]) for role in roles)
                kernel.barriers[barrier] = [tirx.const(count, "int32")] * pipeline.depth

    def _check_pipeline(self, name: str) -> tuple[str, list[str]]:
        """Return who fills a pipeline and who uses it."""
        counts = _Counts()
        of_role = {
            role: {
                what: [s for s in steps if s.pipeline == name and s.what == what]
                for what in (_ACQUIRE, _COMMIT, _WAIT, _RELEASE)
            }
            for role, steps in self.steps.items()
        }
        producers = [r for r, s in of_role.items() if s[_ACQUIRE] or s[_COMMIT]]
        consumers = [r for r, s in of_role.items() if s[_WAIT] or s[_RELEASE]]
        if len(producers) != 1 or not consumers or producers[0] in consumers:
            self.refuse(
                self.span,
                f"found pipeline {name!r} filled by {_names(producers)} and used by "
                f"{_names(consumers)}, wanted one role that fills it and others that use it; give "
                "each role that fills a pipeline of its own",
            )
        pairs = [(producers[0], _ACQUIRE, _COMMIT), *((r, _WAIT, _RELEASE) for r in consumers)]
        for role, first, second in pairs:
            self._check_pair(name, role, of_role[role][first], of_role[role][second], first, second)
            if not counts.are_equal(of_role[role][first], of_role[role][second]):
                at = (of_role[role][first] or of_role[role][second])[0]
                self.refuse(
                    at.span,
                    f"found T.{first}({name!r}) {counts.text(of_role[role][first])} in role "
                    f"{role!r} and T.{second}({name!r}) {counts.text(of_role[role][second])}, "
                    "wanted as many; put them into the same loops under the same conditions",
                )
            self._check_in_use(name, role)
        filled = of_role[producers[0]][_COMMIT]
        for role in consumers:
            used = of_role[role][_WAIT]
            if not counts.are_equal(filled, used):
                self.refuse(
                    used[0].span,
                    f"found T.{_WAIT}({name!r}) {counts.text(used)} in role {role!r}, where role "
                    f"{producers[0]!r} commits {counts.text(filled)} ({filled[0].line}), wanted as "
                    "many; let both roles have the same loops and conditions around them",
                )
        return producers[0], consumers

    def _check_pair(
        self,
        name: str,
        role: str,
        begins: list[_Step],
        ends: list[_Step],
        first: str,
        second: str,
    ) -> None:
        """The one stands in front of the other, and neither is missing."""
        if begins and not ends:
            self.refuse(
                begins[0].span,
                f"found T.{first}({name!r}) in role {role!r}, which never calls T.{second}("
                f"{name!r}), wanted both: the other roles would wait for ever; write T.{second}("
                f"{name!r}) behind the last access of the version",
            )
        if not begins or self.steps[role].index(begins[0]) > self.steps[role].index(ends[0]):
            self.refuse(
                ends[0].span,
                f"found T.{second}({name!r}) in role {role!r} with no T.{first}({name!r}) in front "
                f"of it, wanted one; write T.{first}({name!r}) before the version is used",
            )

    def _check_in_use(self, name: str, role: str) -> None:
        """A role never waits for a version that it has itself."""
        steps = [s for s in self.steps[role] if s.pipeline == name]
        _, most = _in_use(steps, 0)
        depth = self.pipelines[name].depth
        if most > depth:
            found = f"up to {most:g}" if most < math.inf else "a number that a run knows"
            self.refuse(
                steps[0].span,
                f"found {found} versions of pipeline {name!r} in use by role {role!r} at once, "
                f"wanted at most its depth, {depth}, since the role would wait for itself for "
                "ever; end the use of a version before the next one's begins, or raise depth",
            )

    @staticmethod
    def refuse(span: ir.Span, text: str) -> NoReturn:
        """Refuse the program at a statement."""
        current_tracer("T.annotate_ws_schedule").at(span)
        raise ValueError(text)


def _warps(role: WSRole) -> int:
    return role.warps_hi - role.warps_lo


def _names(roles: list[str]) -> str:
    return " and ".join(map(repr, roles)) or "nobody"


def _is_of_barrier(value: ir.Expr) -> bool:
    return isinstance(value, ir.Call) and getattr(value.op, "name", "").startswith("tl.mbarrier_")


def _calls(
    statements: Sequence[Any], around: tuple[Any, ...], names: dict[ir.Var, ir.Expr]
) -> Iterator[tuple[Any, Any]]:
    """Calls on mbarriers, with the loops and conditions around them; `names` are of values."""
    for s in statements:
        if isinstance(s, tirx.SeqStmt):
            yield from _calls(s.seq, around, names)
        elif isinstance(s, tirx.Bind):
            names[s.var] = _without(names, s.value)
        elif isinstance(s, tirx.For):
            loop = (s.loop_var, _without(names, s.extent))
            yield from _calls([s.body], (*around, loop, *_jumps(s.body, names, "break")), names)
        elif isinstance(s, tirx.While):
            condition = _without(names, s.condition)
            ends = _jumps(s.body, names, "break")
            yield from _calls([s.body], (*around, condition, *ends), names)
        elif isinstance(s, tirx.IfThenElse):
            condition = _without(names, s.condition)
            yield from _calls([s.then_case], (*around, condition), names)
            if s.else_case is not None:
                yield from _calls([s.else_case], (*around, tirx.Not(condition)), names)
        elif isinstance(s, tirx.AttrStmt):
            yield from _calls([s.body], around, names)
        elif isinstance(s, tirx.Evaluate) and _is_of_barrier(s.value):
            yield s, around
        # What stands behind a jump runs where that is not taken.
        around = (*around, *map(tirx.Not, _jumps(s, names, "break", "continue")))


def _jumps(s: Any, names: dict[ir.Var, ir.Expr], *kinds: str) -> list[ir.Expr]:
    """The conditions under which a statement jumps in the loop around it."""
    if isinstance(s, tirx.Evaluate):
        name = getattr(getattr(s.value, "op", None), "name", "")
        return [tirx.const(True, "bool") for kind in kinds if name == f"tirx.{kind}_loop"]
    if isinstance(s, tirx.Bind):
        names[s.var] = _without(names, s.value)
    if isinstance(s, tirx.SeqStmt):
        return [jump for statement in s.seq for jump in _jumps(statement, names, *kinds)]
    if isinstance(s, tirx.AttrStmt):
        return _jumps(s.body, names, *kinds)
    if not isinstance(s, tirx.IfThenElse):
        return []
    condition = _without(names, s.condition)
    jumps = [tirx.And(condition, jump) for jump in _jumps(s.then_case, names, *kinds)]
    if s.else_case is not None:
        otherwise = _jumps(s.else_case, names, *kinds)
        jumps += [tirx.And(tirx.Not(condition), jump) for jump in otherwise]
    return jumps


def _is_in(step: _Step, depth: int, entry: Any) -> bool:
    """Whether the step stands in that very loop or branch."""
    return len(step.around) > depth and step.around[depth] is entry


def _in_use(steps: Sequence[_Step], depth: int) -> tuple[float, float]:
    """By how many the versions in use change over steps inside of ``depth`` loops and conditions,
    and how many there are at most; infinity where only a run knows."""
    change = most = 0.0
    first = 0
    while first < len(steps):
        step = steps[first]
        if len(step.around) == depth:
            change += 1 if step.what in (_ACQUIRE, _WAIT) else -1
            most = max(most, change)
            first += 1
            continue
        entry, last = step.around[depth], first
        while last < len(steps) and _is_in(steps[last], depth, entry):
            last += 1
        inner_change, inner_most = _in_use(steps[first:last], depth + 1)
        times = as_int(entry[1]) if isinstance(entry, tuple) else None
        if inner_change == 0:
            times = 1
        if times is None:
            return 0.0, math.inf
        most = max(most, change + max(0.0, (times - 1) * inner_change) + inner_most)
        change += times * inner_change
        first = last
    return change, most


def _without(names: dict[Any, Any], value: ir.Expr) -> ir.Expr:
    """The value with what names stand for."""
    return get_function("SubstituteVars")(value, names)


class _Counts:
    """How often steps run: products of extents, and unknowns for what depends on loops or
    conditions, the same for the same ones."""

    def __init__(self) -> None:
        self._unknown: list[tuple[list[Any], ir.Var]] = []
        self._loops = [tirx.Var(f"i{d}", "int32") for d in range(16)]

    def are_equal(self, a: list[_Step], b: list[_Step]) -> bool:
        """Whether two lists surely run as often."""
        return Analyzer().can_prove_equal(self._total(a), self._total(b))

    def text(self, steps: list[_Step]) -> str:
        """How often, for an error message."""
        total = Analyzer().simplify(self._total(steps))
        is_known = all(not self._is_unknown(s) for s in steps)
        return f"{total} times" if is_known else "under conditions"

    def _total(self, steps: list[_Step]) -> ir.Expr:
        total: Any = tirx.const(0, "int32")
        for step in steps:
            total = total + self._runs(step)
        return total

    def _is_unknown(self, step: _Step) -> bool:
        loops = {entry[0] for entry in step.around if isinstance(entry, tuple)}
        return any(
            not isinstance(entry, tuple)
            or not loops.isdisjoint(tirx.analysis.undefined_vars(entry[1]))
            for entry in step.around
        )

    def _runs(self, step: _Step) -> ir.Expr:
        if not self._is_unknown(step):
            return math.prod((extent for _, extent in step.around), start=tirx.const(1, "int32"))
        renamed: dict[Any, Any] = {}
        shape: list[Any] = []
        for entry in step.around:
            value = entry[1] if isinstance(entry, tuple) else entry
            value = _without(renamed, value)
            if isinstance(entry, tuple):
                renamed[entry[0]] = self._loops[len(renamed)]
            shape.append([isinstance(entry, tuple), value])
        for known, var in self._unknown:
            if tvm_ffi.structural_equal(known, shape):
                return var
        self._unknown.append((shape, tirx.Var("runs", "int32")))
        return self._unknown[-1][1]


class RoleFrame(WarpGroupFrame):
    """An open ``T.ws_role``.

    Example
    -------
    ``with T.ws_role("load"): ...``
    """

    def __init__(self, program: RoleProgram, name: str):
        role = program.schedule.roles[name]
        super().__init__(range(role.warps_lo // _WARPS_OF_GROUP, role.warps_hi // _WARPS_OF_GROUP))
        self.program = program
        self.name = name

    @property
    def description(self) -> str:
        """What the frame is, for an error message."""
        return f"T.ws_role({self.name!r})"

    def open(self, tracer: Tracer) -> None:
        """Enter the branch of the role's warps, which then have its registers."""
        super().open(tracer)
        self.program.running = self.name
        roles = self.program.schedule.roles
        has = registers_at_start(self.program.schedule.num_warps)
        # If a role's number changes, every role says its own: ptxas ignores all of them where one
        # does not (C7507).
        moves = any(role.max_nreg not in (None, has) for role in roles.values())
        if moves and self.name not in self.program.steps:
            wanted = roles[self.name].max_nreg or min(has, _MOST_SET)
            set_max_nreg(wanted, wanted > has)

    def close(self) -> None:
        """Keep what the body does to the pipelines."""
        self.program.running = None
        steps = self.program.steps.setdefault(self.name, [])
        steps += self.program.steps_in(current_tracer("T.ws_role").statements())


def _program(name: str) -> RoleProgram:
    current_tracer(name).kernel_scope(name)
    kernel = KernelLaunchFrame.Current()
    assert kernel is not None
    if kernel.ws_roles is None:
        raise ValueError(
            f"{name} found no schedule by roles, wanted T.annotate_ws_schedule before it, with a "
            "T.WSSchedule that has no scopes"
        )
    return kernel.ws_roles


def _pipeline(name: str, pipeline: Any) -> _Pipeline:
    program = _program(name)
    if program.running is None:
        raise ValueError(f"{name} is outside of a role, wanted it under `with T.ws_role(..):`")
    if pipeline not in program.pipelines:
        known = ", ".join(map(repr, program.pipelines)) or "none"
        raise ValueError(
            f"{name}: the schedule has no pipeline {pipeline!r}, wanted one of its own: {known}"
        )
    return program.pipelines[pipeline]


def _version(count: ir.Var, depth: int) -> tuple[ir.Expr, ir.Expr]:
    """The version that comes next, and how often all versions were used before."""
    used = tirx.BufferLoad(count, [0])
    length = tirx.const(depth, "uint32")
    return tirx.floormod(used, length).astype("int32"), tirx.floordiv(used, length)


def _begin(name: str, pipeline: Any, barrier: str, parity: int) -> ir.Var:
    p = _pipeline(name, pipeline)
    version, turns = _version(p.begun, p.depth)
    slot = current_tracer(name).let(version, f"{pipeline}_version")
    phase = tirx.bitwise_and(turns + tirx.const(parity, "uint32"), tirx.const(1, "uint32"))
    mbarrier_wait_parity(getattr(p, barrier)[slot], phase)
    store(p.begun, 0, tirx.BufferLoad(p.begun, [0]) + tirx.const(1, "uint32"))
    return slot


def _end(name: str, pipeline: Any, barrier: str) -> None:
    p = _pipeline(name, pipeline)
    version, _ = _version(p.ended, p.depth)
    element = getattr(p, barrier)[version]
    tir_builder.evaluate(device_call("mbarrier_arrive_warp", [address_of(element)]))
    store(p.ended, 0, tirx.BufferLoad(p.ended, [0]) + tirx.const(1, "uint32"))


def ws_role(name: str) -> RoleFrame:
    """Let the warps of a role of the kernel's ``T.WSSchedule`` run the ``with`` body.

    The schedule has no scopes: what a role runs stands in its body. Tile operators there work with
    the role's threads, as under ``T.ws``. What roles pass on to each other goes by pipelines: each
    is ``depth`` versions of shared buffers, which the program allocates with ``depth`` as their
    first extent. One role fills it::

        version = T.producer_acquire("ab")
        T.tma_copy(A[0, k * 64], A_shared[version, :, :], barrier=T.producer_barrier("ab", version))
        T.producer_commit("ab")

    Others use it::

        version = T.consumer_wait("ab")
        T.gemm(A_shared[version, :, :], B_shared[version, :, :], C_local)
        T.consumer_release("ab")

    All threads of the role run each of these calls, as often in one role as in the others. A
    commit or a release may stand further behind than the next acquire or wait, such as behind a
    wait for a product: each counts for itself.

    Parameters
    ----------
    name
        Of the role.

    Raises
    ------
    ValueError
        Outside of a kernel with a schedule by roles; inside of another ``T.ws_role``, ``T.ws`` or
        ``T.Parallel``; for a name that the schedule does not have. At the kernel's end: for a role
        without a body; for a pipeline that not exactly one role fills, or nobody uses; for an
        acquire without a commit, a wait without a release, or such that do not surely run as often;
        for roles that do not surely wait as often as the other one commits.

    Example
    -------
    ``with T.ws_role("load"): ...``
    """
    program = _program("T.ws_role")
    if name not in program.schedule.roles:
        known = ", ".join(map(repr, program.schedule.roles))
        raise ValueError(
            f"T.ws_role: the schedule has no role {name!r}, wanted one of its own: {known}"
        )
    for scope in current_tracer("T.ws_role").scopes:
        if scope.kind == "parallel" or isinstance(scope.frame, WarpGroupFrame):
            raise ValueError(
                f"T.ws_role({name!r}) is inside of the {scope.description}, wanted it outside; end "
                "that one before"
            )
    return RoleFrame(program, name)


def producer_acquire(pipeline: str) -> ir.Var:
    """Wait until all roles that use ``pipeline`` have released its next version.

    Returns
    -------
    Number of the version, int32, from 0 to less than the pipeline's depth.

    Raises
    ------
    ValueError
        Outside of ``T.ws_role``; for a name that the schedule does not have.

    Example
    -------
    ``version = T.producer_acquire("ab")``
    """
    return _begin("T.producer_acquire", pipeline, "empty", 1)


def producer_barrier(pipeline: str, version: Any) -> ir.Expr:
    """Return the mbarrier on which the users of a version wait, for ``T.tma_copy``; errors are
    those of ``producer_acquire``.

    Example
    -------
    ``T.tma_copy(A[0, 0], S[version, :, :], barrier=T.producer_barrier("ab", version))``
    """
    return _pipeline("T.producer_barrier", pipeline).full[version]


def producer_commit(pipeline: str) -> None:
    """Say that the role has written or asked TMA for all of the oldest version that it has
    acquired and not committed; errors are those of ``producer_acquire``.

    Example
    -------
    ``T.producer_commit("ab")``
    """
    _end("T.producer_commit", pipeline, "full")


def consumer_wait(pipeline: str) -> ir.Var:
    """Wait until the next version of ``pipeline`` is filled.

    Returns
    -------
    Number of the version, int32; errors are those of ``producer_acquire``.

    Example
    -------
    ``version = T.consumer_wait("ab")``
    """
    return _begin("T.consumer_wait", pipeline, "full", 0)


def consumer_release(pipeline: str) -> None:
    """Give up the oldest version that the role has waited for and not released; errors are those
    of ``producer_acquire``.

    Example
    -------
    ``T.consumer_release("ab")``
    """
    _end("T.consumer_release", pipeline, "empty")
