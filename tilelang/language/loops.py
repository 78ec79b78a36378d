"""Loops: ``for i in T.serial(n)`` and its kinds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder.base import IRBuilderFrame
from tvm.tirx.script.builder import ir as tir_builder

from tilelang._ffi import get_function
from tilelang.language.advice import passes_on
from tilelang.language.regions import simplify
from tilelang.language.rewrite import HOOKS
from tilelang.language.scalars import (
    as_dtype,
    as_expr,
    as_int,
    describe,
    in_signed,
    is_scalar_expr,
    unwrap,
)
from tilelang.language.tracer import LOOP_KINDS, Frame, Tracer, current_tracer
from tilelang.layout import Fragment

_MakeLoop = Callable[[], IRBuilderFrame]


class Loop(Frame):
    """What ``for`` enters."""

    def __iter__(self) -> Iterator[Any]:
        """Refuse a loop that is not the rewritten ``for`` of a traced function, which enters the
        frame."""
        code = sys._getframe(1).f_code
        if HOOKS in code.co_freevars or passes_on(code):
            raise TypeError(
                f"the {self.description} is not iterable by Python's own functions and "
                "comprehensions; write a `for` statement over the loop itself"
            )
        raise TypeError(
            f"the {self.description} is iterated over by Python in {code.co_name} at "
            f"{code.co_filename}:{sys._getframe(1).f_lineno}, a plain function, whose `for` is not "
            "the program's; put @T.macro above it"
        )


class LoopNest(Loop):
    """Loops around one body, outermost first; the value is the loops' variables (one: the
    variable)."""

    def __init__(
        self,
        kind: str,
        make: Sequence[_MakeLoop],
        value: Callable[[ir.Var], Any] = lambda var: var,
    ):
        self.kind = kind
        self._make = make
        self._value = value
        self._frames: list[IRBuilderFrame] = []

    def open(self, tracer: Tracer) -> Any:
        """Enter the loops."""
        self._frames = [make() for make in self._make]
        variables = [frame.__enter__() for frame in self._frames]
        for var in variables:
            tracer.add_unnamed(var)
            tracer.own(var)
        values = [self._value(var) for var in variables]
        return values[0] if len(values) == 1 else values

    def builder_frames(self) -> list[IRBuilderFrame]:
        """Return TVM's loops."""
        return self._frames


def as_bound(value: Any, what: str) -> Any:
    """Return a loop bound as an int or an integer expression."""
    constant = as_int(value)
    if constant is not None:
        return constant
    value = as_expr(value)
    if is_scalar_expr(value) and value.ty.dtype.startswith(("int", "uint")):
        return value
    repair = "; T.ceildiv(a, b) divides to an integer" if isinstance(value, float) else ""
    raise TypeError(f"{what} is {describe(value)}, wanted an integer{repair}")


def checked_extents(name: str, extents: Sequence[Any]) -> list[Any]:
    """Return the extents of ``T.<name>`` as ints or expressions of int32 and int64.

    Raises
    ------
    ValueError, TypeError
        If there is none or one is negative; if one is not an integer.
    """
    if not extents:
        raise ValueError(f"T.{name} has no extent, wanted at least one")
    checked = [in_signed(as_bound(e, f"extent {d} of T.{name}")) for d, e in enumerate(extents)]
    for d, extent in enumerate(checked):
        if isinstance(extent, int) and extent < 0:
            raise ValueError(f"extent {d} of T.{name} is {extent}, wanted it not to be negative")
    return checked


def serial(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    annotations: Mapping[str, Any] | None = None,
) -> LoopNest:
    """Iterate from ``start`` to before ``stop``, one iteration after the other in each thread.

    ``T.serial(n)`` is 0 to n - 1, as is Python's ``range``, which means this loop in a kernel.

    Raises
    ------
    ValueError, TypeError
        If ``step`` is zero; if a bound is not an integer.

    Example
    -------
    ``for i in T.serial(0, n, 4): ...``
    """
    return _one_loop("serial", tir_builder.serial, start, stop, step, annotations)


Serial = serial


def _one_loop(
    kind: str,
    make: Callable[..., IRBuilderFrame],
    start: Any,
    stop: Any,
    step: Any,
    annotations: Mapping[str, Any] | None,
) -> LoopNest:
    start, stop = bounds_of(kind, start, stop)
    notes = dict(annotations) if annotations else None
    step = 1 if step is None else as_bound(step, f"step of T.{kind}")
    step = current_tracer(f"T.{kind}").evaluated(step)
    if isinstance(step, int) and step == 1:
        return LoopNest(kind, [lambda: make(start, stop, annotations=notes)])
    dtype = _unsigned(start, stop, step)
    first, last, step = (in_signed(bound) for bound in (start, stop, step))
    trips = _trips(kind, first, last, step)
    if not isinstance(trips, int):
        # Its parts may leave the type of the bounds, where it does not: FlattenBuffer.
        notes = {**(notes or {}), "tl.exact_extent": 1}

    def value(var: ir.Var) -> Any:
        element = first + var * step
        return unwrap(element if dtype is None else as_dtype(element, dtype))

    return LoopNest(kind, [lambda: make(0, trips, annotations=notes)], value)


def _unsigned(*bounds: Any) -> str | None:
    """Return the type of a loop's values if that is unsigned, and no other one has them all."""
    types = {bound.ty.dtype for bound in bounds if not isinstance(bound, int)}
    only = types.pop() if len(types) == 1 else None
    return only if only in ("uint32", "uint64") else None


def bounds_of(name: str, start: Any, stop: Any) -> tuple[Any, Any]:
    """Return the bounds of ``T.<name>(start, stop)``, where one bound alone is the end. They are
    evaluated once, in front of the loop, as those of Python's ``range``.

    Raises
    ------
    TypeError
        If a bound is not an integer.
    """
    tracer = current_tracer(f"T.{name}")
    if stop is None:
        start, stop = 0, start
    start, stop = as_bound(start, f"start of T.{name}"), as_bound(stop, f"stop of T.{name}")
    if {_may_be_negative(start), _may_be_negative(stop)} == {False, True}:
        start, stop = in_signed(start), in_signed(stop)
    return tracer.evaluated(start), tracer.evaluated(stop)


def _may_be_negative(bound: Any) -> bool | None:
    """Return whether a bound may be less than 0 by its type; None for what any type has."""
    if isinstance(bound, int):
        return True if bound < 0 else None
    return not bound.ty.dtype.startswith("uint")


def _trips(kind: str, start: Any, stop: Any, step: Any) -> Any:
    """Return the number of iterations from ``start`` to ``stop``."""
    if not isinstance(step, int):
        current_tracer(f"T.{kind}").warn(
            f"the step of T.{kind} is {describe(step)}, whose sign only the run knows, and so is "
            "the order of the loop's values; use a constant"
        )
        return simplify(0 - (start - stop) // step)
    if step == 0:
        raise ValueError(f"the step of T.{kind} is 0, wanted another number")
    distance = stop - start if step > 0 else start - stop
    trips = simplify((distance + abs(step) - 1) // abs(step))
    return max(trips, 0) if isinstance(trips, int) else trips


def unroll(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    explicit: bool = False,
    unroll_factor: int | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> LoopNest | range:
    """Iterate like ``serial`` in an unrolled loop.

    The C++ compiler unrolls it, ``unroll_factor`` iterations at a time if given; it may ``break``
    and ``continue``. ``explicit=True`` writes every iteration out in IR; the loop's variable is
    then a Python int and the bounds are Python ints, and so is the condition of a jump.

    Raises
    ------
    ValueError, TypeError
        If ``explicit`` and ``unroll_factor`` are both given; if bounds are not integers (constant
        if explicit).

    Example
    -------
    ``for i in T.unroll(8, unroll_factor=4): total += A[i]``
    """
    if explicit and unroll_factor is not None:
        raise ValueError("T.unroll found explicit=True and unroll_factor, wanted one of them")
    if explicit:
        current_tracer("T.unroll")
        bounds = (0, start, 1 if step is None else step)
        if stop is not None:
            bounds = (start, stop, bounds[2])
        constants = [as_int(b) for b in bounds]
        if None in constants:
            raise ValueError(
                "T.unroll(explicit=True) found bounds that are not constant; leave explicit out"
            )
        return range(*constants)  # type: ignore[arg-type]
    notes = dict(annotations or {})
    if unroll_factor is not None:
        if not isinstance(unroll_factor, int) or unroll_factor < 1:
            raise ValueError(
                f"unroll_factor of T.unroll is {unroll_factor!r}, wanted a positive int"
            )
        notes["pragma_unroll_factor"] = unroll_factor
    return _one_loop("unrolled", tir_builder.unroll, start, stop, step, notes)


Unroll = unroll


def vectorized(
    start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None
) -> LoopNest:
    """Iterate over the lanes of one vector operation; the number of lanes is constant.

    Raises
    ------
    ValueError
        If the extent is not a constant.

    Example
    -------
    ``for v in T.vectorized(4): B[4 * i + v] = A[4 * i + v]``
    """
    extent = simplify(as_expr(start) if stop is None else as_expr(stop) - as_expr(start))
    if not isinstance(extent, int):
        raise ValueError(f"the extent of T.vectorized is {extent}, wanted a constant; use T.serial")
    return _one_loop("vectorized", tir_builder.vectorized, start, stop, None, annotations)


Vectorized = vectorized


def parallel(
    start: Any, stop: Any = None, *, annotations: Mapping[str, Any] | None = None
) -> LoopNest:
    """Iterate from ``start`` to before ``stop`` with the threads of the block, as ``Parallel`` with
    one extent does; TVM's name of the loop.

    Raises
    ------
    TypeError
        If a bound is not an integer.

    Example
    -------
    ``for i in T.parallel(128): A[i] = 0``
    """
    return _one_loop("parallel", tir_builder.parallel, start, stop, None, annotations)


def loop_break() -> ir.Call:
    """Leave the innermost loop; as a statement this is plain ``break``.

    Raises
    ------
    NotImplementedError
        In a ``T.Persistent`` with ``counter``, whose fetches have to be done.
    ValueError
        Outside of loops.

    Example
    -------
    ``with T.If(x > 3):`` around ``with T.Then(): T.loop_break()``
    """
    tracer = current_tracer("T.loop_break")
    loop = next((s for s in reversed(tracer.scopes) if s.kind in LOOP_KINDS), None)
    if loop is None:
        raise ValueError(
            "found T.loop_break outside of loops, wanted it in the loop that it leaves"
        )
    if loop.kind == "persistent":
        raise NotImplementedError(
            "T.loop_break in the persistent loop is not supported; guard with `if`"
        )
    return tirx.break_loop()


def assume(condition: Any) -> None:
    """State what holds from here to the end of the enclosing body; no code, but checks that follow
    from it are left out.

    A condition that is false when the kernel runs makes its accesses out of bounds undefined. In
    front of the kernel's other statements it may also state that strides are multiples of 16 bytes,
    so that TMA can copy; a call with other strides then raises `ValueError`. Programs with dynamic
    extents are compiled in variants for sizes with such facts (docs/dynamic-shapes.md): what is
    assumed here holds in all of them.

    Raises
    ------
    ValueError
        If the condition is false while tracing.
    TypeError
        If it is not a scalar.

    Example
    -------
    ``T.assume(n % 128 == 0)``
    """
    current_tracer("T.assume")
    condition = unwrap(condition)
    if isinstance(condition, bool | int):
        if not condition:
            raise ValueError("T.assume found a condition that is false; wanted one that can hold")
        return
    if not is_scalar_expr(condition):
        raise TypeError(f"T.assume found {describe(condition)}, wanted a comparison")
    tir_builder.evaluate(tirx.assume(as_dtype(condition, "bool")))


def grid(*extents: Any) -> LoopNest:
    """Iterate over all of ``extents``, nested serial loops, the last one innermost. The extents are
    evaluated once, in front of the outermost loop.

    Example
    -------
    ``for i, j in T.grid(8, 4): ...``
    """
    tracer = current_tracer("T.grid")
    checked = [tracer.evaluated(extent) for extent in checked_extents("grid", extents)]
    return LoopNest("serial", [partial(tir_builder.serial, 0, e) for e in checked])


def Parallel(
    *extents: Any,
    coalesced_width: int | None = None,
    loop_layout: Any = None,
    prefer_async: bool | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> LoopNest | range:
    """Iterate over all of ``extents`` with the threads of the block; iterations are independent.
    The extents are evaluated once, in front of the loop.

    Parameters
    ----------
    extents
        Number of iterations of each loop.
    coalesced_width
        Vector width of each thread, in elements.
    loop_layout
        Fragment of the loops' extents: the thread that runs an iteration, and when. Each iteration
        needs a thread and register of its own.
    prefer_async
        Whether stores to shared memory of what was loaded from global memory may be cp.async,
        which ends with the loop (sm_80; PTX ISA, cp.async). Inside ``T.Pipelined`` the pipeline
        decides. What is not a plain copy, or is read in the same loop, is stored as without it.

    Raises
    ------
    ValueError, TypeError
        Outside of a kernel; if there is no extent or one is negative; if an extent is not an
        integer; if ``loop_layout`` is not a Fragment or ``coalesced_width`` is given too.

    Example
    -------
    ``for i, j in T.Parallel(128, 64): C[i, j] = T.max(C[i, j], 0)``
    """
    tracer = current_tracer("T.Parallel")
    tracer.kernel_scope("T.Parallel")
    checked = [tracer.evaluated(extent) for extent in checked_extents("Parallel", extents)]
    given = {
        "coalesced_width": coalesced_width,
        "prefer_async": None if prefer_async is None else int(prefer_async),
    }
    notes = {k: v for k, v in given.items() if v is not None}
    notes |= loop_layout_notes("T.Parallel", loop_layout, coalesced_width) | dict(annotations or {})
    if 0 in checked:  # The size of a tensor without elements: the body runs for nothing.
        return range(0)
    outer = partial(tir_builder.parallel, 0, checked[0], annotations=notes or None)
    return LoopNest(
        "parallel", [outer, *(partial(tir_builder.parallel, 0, e) for e in checked[1:])]
    )


def loop_layout_notes(what: str, loop_layout: Any, coalesced_width: Any) -> dict[str, Any]:
    """Return the annotations for the keyword ``loop_layout`` of the construct ``what``.

    Raises
    ------
    ValueError, TypeError
        If it is not a Fragment; if ``coalesced_width`` is given too.
    """
    if loop_layout is None:
        return {}
    if not isinstance(loop_layout, Fragment):
        raise TypeError(f"loop_layout of {what} is {describe(loop_layout)}, wanted a T.Fragment")
    if coalesced_width is not None:
        raise ValueError(
            f"{what} found loop_layout and coalesced_width, wanted one of them: consecutive "
            "registers of the layout are the vectors"
        )
    return dict(get_function("LoopLayoutAnnotations")(loop_layout))


def Pipelined(
    start: Any,
    stop: Any = None,
    num_stages: int | None = None,
    order: Sequence[int] | None = None,
    stage: Sequence[int] | None = None,
    sync: Any = None,
    group: Sequence[Sequence[int]] | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> LoopNest:
    """Iterate like ``serial``; copies of later iterations overlap with the computation of earlier
    ones.

    A loop with ``break`` or ``continue`` is a plain one, whose copies do not overlap: a step of a
    pipeline works on several iterations. ``kernel.explain()`` says so.

    In a loop of ``T.ws`` the statements keep their order. Tiles that one ``T.ws`` fills and another
    one reads get versions, with the mbarriers between them: wait for the phase before, fill and
    arrive in one, wait, read and arrive in the other. The parities of waits count the iterations
    that the kernel has run, ``k % 2``, or all of them ``k // num_stages % 2``.

    Parameters
    ----------
    num_stages
        Versions of each shared buffer that is filled in the loop; 0 is a plain loop, whatever
        the target. Where it is left out, the compiler chooses, as for ``T.serial``. With
        ``order`` it counts for what has -1 there. From one on, a loop without ``order`` and
        outside of ``T.ws`` may get more, where loads are few bytes, or products of two iterations
        can overlap, and shared memory is left for as many blocks;
        ``T.annotate_min_blocks_per_sm`` says how many blocks need room.
    order, stage
        The schedule, instead of the compiler's: for each statement of the body its position in a
        step and its pipeline stage. In step ``t`` a statement of stage ``s`` works on iteration
        ``t - s``; copies of stage 0 to shared memory are asynchronous. Entries of names for scalar
        values do not count.
    sync
        No effect.
    group
        Lists of statement numbers, bindings counted; ``order`` and ``stage`` then have one entry
        for each group. -1 in both is for copies that the compiler places: ``num_stages - 1``
        steps ahead of their first reader.

    Raises
    ------
    ValueError, TypeError
        If ``num_stages`` is negative, or ``order``, ``stage`` and ``group`` do not fit together
        or the body; if bounds are no integers. When compiling: if a statement would run before
        another one on whose result it depends, or a fragment would be overwritten before it is
        read.

    Example
    -------
    ``for k in T.Pipelined(T.ceildiv(K, 32), num_stages=3): ...``
    """
    if num_stages is not None and (not isinstance(num_stages, int) or num_stages < 0):
        raise ValueError(
            f"num_stages of T.Pipelined is {num_stages!r}, wanted an int of at least 0"
        )
    stages = {} if num_stages is None else {"num_stages": num_stages}
    notes: dict[str, Any] = {
        **stages,
        **_schedule(order, stage, group),
        **(annotations or {}),
    }
    return _one_loop("pipelined", tir_builder.serial, start, stop, None, notes)


def _schedule(
    order: Sequence[int] | None, stage: Sequence[int] | None, group: Sequence[Sequence[int]] | None
) -> dict[str, Any]:
    notes: dict[str, Any] = {} if group is None else {"tl_pipeline_group": [list(g) for g in group]}
    if order is None and stage is None:
        if group is not None:
            raise ValueError("T.Pipelined found group without order and stage, wanted all three")
        return notes
    if order is None or stage is None:
        raise ValueError("T.Pipelined found only one of order and stage, wanted both or none")
    if len(order) != len(stage):
        raise ValueError(
            f"T.Pipelined found {len(order)} entries in order and {len(stage)} in stage, wanted "
            "one for each statement of the body, or for each group"
        )
    scheduled = sorted(o for o in order if o != -1)
    if group is None and (-1 in order or min(stage, default=0) < 0):
        raise ValueError(
            "T.Pipelined found -1 in order or stage without group; schedule every statement"
        )
    if group is None and scheduled != list(range(len(order))):
        raise ValueError(
            f"order of T.Pipelined is {list(order)}, wanted each of 0 to {len(order) - 1} once"
        )
    return notes | {"tl_pipeline_order": list(order), "tl_pipeline_stage": list(stage)}
