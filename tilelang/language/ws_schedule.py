"""Schedules of warp specialisation that the program writes: which warps run which operators, and
what they pass on to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Any

from tvm import ir
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.launch import KernelLaunchFrame
from tilelang.language.register_counts import registers_at_start
from tilelang.language.scalars import as_int, describe, is_buffer
from tilelang.language.tracer import BuilderFrame, Frame, current_tracer
from tilelang.language.warps import TRACED_LANES
from tilelang.language.ws_roles import RoleProgram


class _NameKey(str):
    """Key of the name of an operator or a loop in its ``annotations``, for a ``T.WSSchedule``.

    Example
    -------
    ``T.copy(A[0, k * 64], A_shared, annotations={T.WSID: "load_a"})``
    """


WSID = _NameKey("tl.ws_id")

_WARPS_OF_GROUP = 4
# CUDA C++ Programming Guide, Compute Capabilities: 1024 threads of a block.
_MOST_WARPS = 1024 // TRACED_LANES
_REGISTERS = range(24, 241, 8)


class WSSyncKind(str, Enum):
    """What the two ends of a ``WSSync`` wait for.

    Example
    -------
    ``T.WSSync("load_q", "scores", "q", T.WSSyncKind.FULL)``
    """

    FULL_EMPTY = "full_empty"
    """The target waits until a version is full, and the source, before it fills that version again,
    until the target has given it up: behind its last use, or where it waits for the product that
    reads it."""
    FULL = "full"
    """The source fills a version once for a block, and waits for nobody; where it would run again,
    the schedule is refused."""


@dataclass(frozen=True)
class WSRole:
    """Warps ``warps_lo`` to ``warps_hi - 1`` of a block, whole groups of four.

    ``max_nreg`` is how many registers each of their threads gets (PTX ISA, setmaxnreg; sm_90a):
    24 to 240, a multiple of 8; None for those that it starts with.

    Raises
    ------
    TypeError, ValueError
        For warps that are no ints or no whole groups, and for another number of registers.

    Example
    -------
    ``T.WSRole(warps_lo=0, warps_hi=4, max_nreg=24)``
    """

    warps_lo: int
    warps_hi: int
    max_nreg: int | None = None

    def __post_init__(self) -> None:
        for name in ("warps_lo", "warps_hi"):
            warps = _int(getattr(self, name), f"{name} of T.WSRole")
            if warps % _WARPS_OF_GROUP:
                raise ValueError(
                    f"{name} of T.WSRole is {warps}, wanted a multiple of {_WARPS_OF_GROUP}: a "
                    "role has whole warp groups"
                )
        if not 0 <= self.warps_lo < self.warps_hi <= _MOST_WARPS:
            raise ValueError(
                f"T.WSRole found warps {self.warps_lo} to {self.warps_hi}, wanted 0 <= warps_lo < "
                f"warps_hi <= {_MOST_WARPS}; a block has at most {_MOST_WARPS} warps"
            )
        if self.max_nreg is None:
            return
        if _int(self.max_nreg, "max_nreg of T.WSRole") not in _REGISTERS:
            raise ValueError(
                f"max_nreg of T.WSRole is {self.max_nreg}, wanted a multiple of 8 from "
                f"{_REGISTERS[0]} to {_REGISTERS[-1]}, or None"
            )


@dataclass(frozen=True)
class WSPipeline:
    """Shared buffers that one role fills for others, in ``depth`` versions.

    Each version has an mbarrier for being full and one for being empty.

    Raises
    ------
    TypeError, ValueError
        If ``depth`` is no positive int.

    Example
    -------
    ``T.WSPipeline(depth=3)``
    """

    depth: int

    def __post_init__(self) -> None:
        if _int(self.depth, "depth of T.WSPipeline") < 1:
            raise ValueError(f"depth of T.WSPipeline is {self.depth}, wanted at least 1")


@dataclass(frozen=True)
class WSSync:
    """Operation ``target`` reads what operation ``source``, of another role, leaves in shared
    memory: the buffers belong to ``pipeline``.

    Raises
    ------
    TypeError
        If a name is no string, or ``kind`` no ``T.WSSyncKind``.

    Example
    -------
    ``T.WSSync("load_a", "product", "ab")``
    """

    source: str
    target: str
    pipeline: str
    kind: WSSyncKind = WSSyncKind.FULL_EMPTY

    def __post_init__(self) -> None:
        for name in ("source", "target", "pipeline"):
            _name(getattr(self, name), f"{name} of T.WSSync")
        if not isinstance(self.kind, WSSyncKind):
            raise TypeError(
                f"kind of T.WSSync is {describe(self.kind)}, wanted a T.WSSyncKind; leave it out "
                "for FULL_EMPTY"
            )


@dataclass(frozen=True)
class WSScope:
    """A body of the program: that of the loop with the name ``body``, None for the kernel's.

    ``ops`` has the operations of each role in that body, ``syncs`` what they pass on in each
    run through it.

    Raises
    ------
    TypeError
        If ``ops`` maps no names to sequences of names, or ``syncs`` are no ``T.WSSync``.

    Example
    -------
    ``T.WSScope("loop_k", {"load": ["load_a"], "mma": ["product"]},
    [T.WSSync("load_a", "product", "ab")])``
    """

    body: str | None
    ops: Mapping[str, Sequence[str]]
    syncs: Sequence[WSSync] = ()

    def __post_init__(self) -> None:
        if self.body is not None:
            _name(self.body, "body of T.WSScope")
        if not isinstance(self.ops, Mapping):
            raise TypeError(
                f"ops of T.WSScope is {describe(self.ops)}, wanted a mapping of roles to names of "
                "their operations"
            )
        for role, ops in self.ops.items():
            _name(role, "role of T.WSScope")
            if isinstance(ops, str) or not isinstance(ops, Sequence):
                raise TypeError(
                    f"the operations of role {role!r} are {describe(ops)}, wanted a list of names"
                )
            for op in ops:
                _name(op, f"operation of role {role!r}")
        if not isinstance(self.syncs, Sequence):
            raise TypeError(f"syncs of T.WSScope is {describe(self.syncs)}, wanted a list")
        _all_are(self.syncs, WSSync, "syncs of T.WSScope")


@dataclass(frozen=True)
class WSSchedule:
    """Who runs what in a kernel of ``num_warps`` warps: named roles and pipelines, and scopes.

    Without scopes the bodies of the roles stand in the program, under ``T.ws_role``. With scopes,
    each operation of a scope is run by one role. Names for scalars, loops and branches need no
    name: every role runs those that its operations depend on.

    Raises
    ------
    TypeError, ValueError
        For values of other types; warps outside of the block or of two roles; more registers than
        a block has; names that are not known or are given twice; a ``T.WSSync`` within a role, or
        a pipeline that two roles fill or nobody uses.

    Example
    -------
    ``T.WSSchedule(num_warps=8, roles={"load": T.WSRole(0, 4), "mma": T.WSRole(4, 8)},
    pipelines={"ab": T.WSPipeline(3)}, scopes=[...])``
    """

    num_warps: int
    roles: Mapping[str, WSRole]
    pipelines: Mapping[str, WSPipeline]
    scopes: Sequence[WSScope] = ()

    def __post_init__(self) -> None:
        warps = _int(self.num_warps, "num_warps of T.WSSchedule")
        if warps % _WARPS_OF_GROUP or not 0 < warps <= _MOST_WARPS:
            raise ValueError(
                f"num_warps of T.WSSchedule is {warps}, wanted a multiple of {_WARPS_OF_GROUP} up "
                f"to {_MOST_WARPS}"
            )
        for kind, values, wanted in (
            ("roles", self.roles, WSRole),
            ("pipelines", self.pipelines, WSPipeline),
        ):
            if not isinstance(values, Mapping):
                raise TypeError(
                    f"{kind} of T.WSSchedule is {describe(values)}, wanted a mapping from names"
                )
            for name in values:
                _name(name, f"key of {kind} of T.WSSchedule")
            _all_are(list(values.values()), wanted, f"{kind} of T.WSSchedule")
        if not isinstance(self.scopes, Sequence):
            raise TypeError(f"scopes of T.WSSchedule is {describe(self.scopes)}, wanted a list")
        _all_are(self.scopes, WSScope, "scopes of T.WSSchedule")
        self._check_warps()
        roles_of_ops = self._check_ops()
        self._check_syncs(roles_of_ops)

    def _check_warps(self) -> None:
        for name, role in self.roles.items():
            if role.warps_hi > self.num_warps:
                raise ValueError(
                    f"role {name!r} has warps {role.warps_lo} to {role.warps_hi - 1}, wanted them "
                    f"below num_warps, {self.num_warps}"
                )
        for (a, first), (b, second) in combinations(self.roles.items(), 2):
            if first.warps_lo < second.warps_hi and second.warps_lo < first.warps_hi:
                raise ValueError(
                    f"roles {a!r} and {b!r} both have warp "
                    f"{max(first.warps_lo, second.warps_lo)}, wanted each warp in one role"
                )
        registers = sum(
            TRACED_LANES * (role.warps_hi - role.warps_lo) * (role.max_nreg or 0)
            for role in self.roles.values()
        )
        # What setmaxnreg deals out anew are those that the block's threads begin with.
        threads = TRACED_LANES * self.num_warps
        most = threads * registers_at_start(self.num_warps)
        if registers > most:
            raise ValueError(
                f"the roles have {registers} registers by max_nreg, wanted at most {most} for a "
                f"block of {threads} threads; lower max_nreg of a role"
            )

    def _check_ops(self) -> dict[str, str]:
        """Return the role of each operation."""
        roles_of_ops: dict[str, str] = {}
        bodies: list[str | None] = []
        for scope in self.scopes:
            if scope.body in bodies:
                raise ValueError(
                    f"two scopes have the body {scope.body!r}, wanted one; put their operations "
                    "together"
                )
            bodies.append(scope.body)
            for role, ops in scope.ops.items():
                _known(role, self.roles, "role")
                for op in ops:
                    if op in roles_of_ops:
                        raise ValueError(
                            f"operation {op!r} is given to role {roles_of_ops[op]!r} and to role "
                            f"{role!r}, wanted it once; name its statements apart"
                        )
                    roles_of_ops[op] = role
        for body in bodies:
            if body in roles_of_ops:
                raise ValueError(
                    f"{body!r} is the body of a scope and an operation, wanted one of them"
                )
        for role in self.roles:
            if self.scopes and role not in roles_of_ops.values():
                raise ValueError(f"role {role!r} runs no operation; give it one or leave it out")
        return roles_of_ops

    def _check_syncs(self, roles_of_ops: Mapping[str, str]) -> None:
        sources: dict[str, str] = {}
        known: list[tuple[str, str]] = []
        for sync in (sync for scope in self.scopes for sync in scope.syncs):
            _known(sync.source, roles_of_ops, "operation")
            _known(sync.target, roles_of_ops, "operation")
            _known(sync.pipeline, self.pipelines, "pipeline")
            role = roles_of_ops[sync.source]
            if role == roles_of_ops[sync.target]:
                raise ValueError(
                    f"T.WSSync found {sync.source!r} and {sync.target!r} in role {role!r}, wanted "
                    "two roles: the operations of one role run in the program's order"
                )
            if sources.setdefault(sync.pipeline, role) != role:
                raise ValueError(
                    f"pipeline {sync.pipeline!r} is filled by roles {sources[sync.pipeline]!r} and "
                    f"{role!r}, wanted one; give each a pipeline of its own"
                )
            if (sync.source, sync.target) in known:
                raise ValueError(
                    f"two T.WSSync go from {sync.source!r} to {sync.target!r}, wanted one"
                )
            known.append((sync.source, sync.target))
        for pipeline in self.pipelines:
            if self.scopes and pipeline not in sources:
                raise ValueError(f"no T.WSSync uses pipeline {pipeline!r}; use it or leave it out")

    def annotation(self, span: ir.Span) -> dict[str, Any]:
        """Return the schedule as IR, made at ``span``."""
        return {
            "span": span,
            "num_warps": self.num_warps,
            "roles": [
                {
                    "name": name,
                    "warps_lo": role.warps_lo,
                    "warps_hi": role.warps_hi,
                    "max_nreg": role.max_nreg or 0,
                }
                for name, role in self.roles.items()
            ],
            "pipelines": [{"name": n, "depth": p.depth} for n, p in self.pipelines.items()],
            "scopes": [
                {
                    "body": scope.body or "",
                    "ops": [
                        {"role": role, "name": op} for role, ops in scope.ops.items() for op in ops
                    ],
                    "syncs": [
                        {
                            "source": sync.source,
                            "target": sync.target,
                            "pipeline": sync.pipeline,
                            "kind": sync.kind.value,
                        }
                        for sync in scope.syncs
                    ],
                }
                for scope in self.scopes
            ],
        }


def _int(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is {describe(value)}, wanted an int")
    return value


def _name(value: Any, what: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {describe(value)}, wanted a name: a string")
    if not value:
        raise ValueError(f"{what} is the empty string, wanted a name")


def _all_are(values: Sequence[Any], wanted: type, what: str) -> None:
    for value in values:
        if not isinstance(value, wanted):
            raise TypeError(f"{what}: found {describe(value)}, wanted T.{wanted.__name__}")


def _known(name: str, names: Mapping[str, Any], kind: str) -> None:
    if name not in names:
        known = ", ".join(map(repr, names)) or "none"
        raise ValueError(f"the schedule has no {kind} {name!r}, wanted one of its own: {known}")


def annotate_ws_schedule(schedule: WSSchedule) -> None:
    """Let the warps of each role of ``schedule`` run the operations that it names, with mbarriers
    between them (sm_90 and later). The compiler specialises no warps of such a kernel itself.

    Operators, ``T.Parallel`` and stores have names by ``annotations={T.WSID: "name"}`` or
    ``with T.ws_op("name"):``, loops that are scopes by ``annotations``. An operation works with
    the threads of its role alone; ``threads`` of ``T.Kernel`` are those of all warps. Buffers of a
    pipeline have as many versions as it has depth, in place of ``num_stages`` of the loop.

    Parameters
    ----------
    schedule
        Roles, pipelines, and which operations run in which body.

    Raises
    ------
    TypeError
        If it is no ``T.WSSchedule``.
    ValueError
        Outside of a kernel; for a second schedule of a kernel; if the kernel has other threads than
        ``32 * num_warps`` in one dimension; when it is compiled, if names and statements do not
        fit, if roles depend on each other by other ways than the schedule's ``T.WSSync``, or for a
        chip before sm_90.

    Example
    -------
    ``T.annotate_ws_schedule(T.WSSchedule(num_warps=8, ...))``
    """
    tracer = current_tracer("T.annotate_ws_schedule")
    tracer.kernel_scope("T.annotate_ws_schedule")
    kernel = KernelLaunchFrame.Current()
    assert kernel is not None
    if not isinstance(schedule, WSSchedule):
        raise TypeError(f"T.annotate_ws_schedule found {describe(schedule)}, wanted a T.WSSchedule")
    if kernel.ws_schedule is not None or kernel.ws_roles is not None:
        raise ValueError("T.annotate_ws_schedule: the kernel has a schedule already; give it one")
    threads = TRACED_LANES * schedule.num_warps
    if kernel.get_thread_extents() != [threads, 1, 1]:
        raise ValueError(
            f"the kernel has threads {kernel.get_thread_extents()}, wanted {threads} in one "
            f"dimension for num_warps={schedule.num_warps}; write T.Kernel(.., threads={threads})"
        )
    if schedule.scopes:
        kernel.ws_schedule = schedule.annotation(tracer.span)
    else:
        kernel.ws_roles = RoleProgram(schedule, tracer.span)


def ws_op(id: str) -> Frame:
    """Give a name to the statements under ``with T.ws_op(id):`` that have none, for a
    ``T.WSSchedule``; without a schedule it says nothing.

    Raises
    ------
    TypeError
        If ``id`` is no string.
    ValueError
        Outside of a kernel; inside of ``T.Parallel``, whose iterations are one operation.

    Example
    -------
    ``with T.ws_op("scale"): ...``
    """
    tracer = current_tracer("T.ws_op")
    tracer.kernel_scope("T.ws_op")
    _name(id, "id of T.ws_op")
    if any(scope.kind in ("parallel", "vectorized") for scope in tracer.scopes):
        raise ValueError(
            f"T.ws_op({id!r}) stands in a parallel loop, wanted it around the loop: its iterations "
            "are one operation"
        )
    return BuilderFrame(tir_builder.attr(id, "tl.ws_op", 1))


def annotate_ws_pipeline_depth(depths: Mapping[Any, int]) -> None:
    """Say how many versions buffers have that the compiler lets warps of their own load, instead of
    ``num_stages`` of the loop.

    Parameters
    ----------
    depths
        Numbers of versions, by shared buffer or its name.

    Raises
    ------
    TypeError
        If it is no mapping from buffers or names to ints.
    ValueError
        Outside of a kernel; for a buffer that is not shared, or less than one version; when it is
        compiled, for a name that no buffer has, or fewer versions than the loop's ``stage`` needs.
        A kernel without such warps keeps its ``num_stages`` and is warned about.

    Example
    -------
    ``T.annotate_ws_pipeline_depth({A_shared: 4, "B_shared": 2})``
    """
    tracer = current_tracer("T.annotate_ws_pipeline_depth")
    tracer.kernel_scope("T.annotate_ws_pipeline_depth")
    kernel = KernelLaunchFrame.Current()
    assert kernel is not None
    if not isinstance(depths, Mapping):
        raise TypeError(
            f"T.annotate_ws_pipeline_depth found {describe(depths)}, wanted a mapping of buffers "
            "to numbers of versions"
        )
    for buffer, depth in depths.items():
        shared = is_buffer(buffer) and buffer.scope().startswith("shared")
        if not isinstance(buffer, str) and not is_buffer(buffer):
            raise TypeError(
                f"T.annotate_ws_pipeline_depth found {describe(buffer)}, wanted a buffer or its "
                "name"
            )
        name = buffer if isinstance(buffer, str) else buffer.name
        if not isinstance(buffer, str) and not shared:
            raise ValueError(
                f"T.annotate_ws_pipeline_depth found {name} in scope {buffer.scope()}, wanted a "
                "buffer of T.alloc_shared; others have no versions"
            )
        versions = as_int(depth)
        if versions is None or versions < 1:
            raise ValueError(
                f"T.annotate_ws_pipeline_depth found {depth!r} for {name}, wanted an int of at "
                "least 1"
            )
        entry = {"buffer": buffer, "depth": versions, "span": tracer.span}
        kernel.ws_depths.append(entry)


__all__ = [
    "WSID",
    "WSPipeline",
    "WSRole",
    "WSSchedule",
    "WSScope",
    "WSSync",
    "WSSyncKind",
    "annotate_ws_pipeline_depth",
    "annotate_ws_schedule",
    "ws_op",
]
