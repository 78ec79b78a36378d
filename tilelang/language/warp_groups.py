"""Warp groups with programs of their own, and the registers that their threads have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder.base import IRBuilderFrame
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.launch import enclosing_kernel
from tilelang.language.scalars import as_int
from tilelang.language.tracer import BuilderFrame, Frame, Tracer, current_tracer

_GROUP = 128
_REGISTERS = range(24, 241, 8)


class WarpGroupFrame(Frame):
    """An open ``T.ws``: the branch that some warp groups of the block take.

    Example
    -------
    ``with T.ws(0): ...``
    """

    kind = "branch"

    def __init__(self, groups: Sequence[int], each: bool = False):
        self.groups = list(groups)
        """Numbers of the warp groups whose threads' numbers the body has, ascending."""
        self.instances = 1
        """How many groups run the body each by itself, with the numbers of the first one."""
        if each:
            self.instances, self.groups = len(self.groups), self.groups[:1]
        self._each = each
        self._frames: list[IRBuilderFrame] = []

    @property
    def description(self) -> str:
        """What the frame is, for an error message."""
        return "T.ws"

    def open(self, tracer: Tracer) -> Any:
        """Enter the branch and the attribute that names its threads, and the loop over groups that
        run the body each by itself, whose variable is returned."""
        kernel = enclosing_kernel("T.ws")
        thread = kernel.linear_thread_index()
        inside: ir.Expr | None = None
        numbers: list[int] = []
        for first, threads in _ranges(self.groups):
            taken = tirx.And(first <= thread, thread < first + threads)
            inside = taken if inside is None else tirx.Or(inside, taken)
            numbers += [first, threads]
        for frame in (
            tir_builder.If(inside),
            tir_builder.Then(),
            tir_builder.attr(numbers, "tl.thread_range", 1),
        ):
            frame.__enter__()
            self._frames.append(frame)
        if not self._each:
            return None
        loop = tir_builder.serial(0, self.instances, annotations={"tl.instances": self.groups[0]})
        instance = loop.__enter__()
        tracer.add_unnamed(instance)
        tracer.own(instance)
        self._frames.append(loop)
        return instance

    def builder_frames(self) -> list[IRBuilderFrame]:
        """Return TVM's branch, attribute and loop."""
        return self._frames


def _ranges(groups: Sequence[int]) -> list[tuple[int, int]]:
    """Return first thread and number of threads of each run of consecutive groups."""
    ranges: list[tuple[int, int]] = []
    for group in groups:
        if ranges and sum(ranges[-1]) == group * _GROUP:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + _GROUP)
        else:
            ranges.append((group * _GROUP, _GROUP))
    return ranges


def running_groups() -> list[int] | None:
    """Return the warp groups of the ``T.ws`` around the statement that is traced, None outside of
    one."""
    frame = _running_frame()
    return frame.groups if frame is not None else None


def running_instances() -> int:
    """Return how many warp groups run the statement that is traced each by itself (``T.ws`` with
    ``each``), 1 outside."""
    frame = _running_frame()
    return frame.instances if frame is not None else 1


def _running_frame() -> WarpGroupFrame | None:
    frames = (scope.frame for scope in current_tracer("T.ws").scopes)
    return next((f for f in frames if isinstance(f, WarpGroupFrame)), None)


def ws(*warp_group_ids: int, each: bool = False) -> WarpGroupFrame:
    """Let some warp groups of the block run the ``with`` body, and the others skip it.

    A warp group is 128 threads of consecutive numbers (PTX ISA, "Warpgroup"). Tile operators in
    the body work with the threads of these groups alone, and the compiler places the barriers that
    they need among themselves. What threads of different groups do is in no order but that of
    barriers in the program. The compiler then gives no loop of the kernel a producer of its own.

    Parameters
    ----------
    warp_group_ids
        Numbers of groups, from 0 on. Where they do not follow each other, the body may be code of
        single threads only.
    each
        Each of the groups, which follow each other, runs the body by itself, as if it stood in a
        ``T.ws`` of its own: the code stands once, and ``with .. as s`` gives the group's number
        among them, from 0 on. In the body, threads have the numbers of the first group's, and the
        barriers of ``T.sync_threads`` and ``T.named_barrier_arrive`` are those of the first group,
        that of group s is s further. Tiles and mbarriers come from outside, with a place for each
        group. For targets with named barriers.

    Raises
    ------
    ValueError
        Outside of a kernel, inside of another ``T.ws`` or of ``T.Parallel``; if the ids are not
        different ints of whole groups that the block has, or with ``each`` do not follow each
        other; ``each`` where threads have two dimensions, or inside of a branch on the thread's
        number.

    Example
    -------
    ``with T.ws(0): T.copy(A, A_shared)``
    """
    tracer = current_tracer("T.ws")
    kernel = enclosing_kernel("T.ws")
    for scope in tracer.scopes:
        if scope.kind == "parallel" or isinstance(scope.frame, WarpGroupFrame):
            raise ValueError(
                f"T.ws is inside of the {scope.description}; end that one before, or use "
                "`if` on the thread's index"
            )
    groups = [as_int(group) for group in warp_group_ids]
    count = kernel.num_threads // _GROUP
    known = [group for group in groups if group is not None and 0 <= group < count]
    if not known or len(known) != len(groups) or len(set(known)) != len(known):
        raise ValueError(
            f"T.ws found warp groups {warp_group_ids!r}, wanted different ints of the {count} "
            f"whole groups of {_GROUP} threads of the block; give T.Kernel more threads, or fewer "
            "ids"
        )
    if each:
        _check_each(sorted(known), kernel.threads_have_one_dimension())
    return WarpGroupFrame(sorted(known), each)


def _check_each(groups: Sequence[int], has_one_dimension: bool) -> None:
    if len(_ranges(groups)) > 1:
        raise ValueError(
            f"T.ws with each=True found the warp groups {list(groups)}, wanted consecutive ones; "
            "give the others a T.ws of their own"
        )
    if not has_one_dimension:
        raise ValueError(
            "T.ws with each=True found threads of several dimensions, wanted one; give T.Kernel "
            "one number of threads"
        )


def _annotate(name: str, key: str, registers: Any) -> None:
    tracer = current_tracer(name)
    tracer.kernel_scope(name)
    count = as_int(registers)
    if count not in _REGISTERS:
        raise ValueError(
            f"{name} found {registers!r} registers, wanted a multiple of 8 from "
            f"{_REGISTERS[0]} to {_REGISTERS[-1]}"
        )
    tracer.enter(BuilderFrame(tir_builder.attr(0, key, count)), rest=True)


def annotate_producer_reg_dealloc(reg_count: int = 24) -> None:
    """Leave ``reg_count`` registers to each thread that only copies, in a kernel that the compiler
    gives producers and consumers of their own.

    Registers move where the target has ``setmaxnreg`` (PTX ISA, sm_90a); a kernel without
    producers keeps its own and is warned about.

    Parameters
    ----------
    reg_count
        24 to 240, a multiple of 8.

    Raises
    ------
    ValueError
        Outside of a kernel; for another number; when it is compiled, if all threads together are to
        have more registers than the block has for them.

    Example
    -------
    ``T.annotate_producer_reg_dealloc(40)``
    """
    _annotate("T.annotate_producer_reg_dealloc", "tl.producer_registers", reg_count)


def annotate_consumer_reg_alloc(reg_count: int = 240) -> None:
    """Let each thread that computes have ``reg_count`` registers, in a kernel that the compiler
    gives producers and consumers of their own (see ``annotate_producer_reg_dealloc``).

    Parameters
    ----------
    reg_count
        24 to 240, a multiple of 8.

    Raises
    ------
    ValueError
        Outside of a kernel; for another number; when it is compiled, if all threads together are to
        have more registers than the block has for them.

    Example
    -------
    ``T.annotate_consumer_reg_alloc(216)``
    """
    _annotate("T.annotate_consumer_reg_alloc", "tl.consumer_registers", reg_count)


def no_set_max_nreg() -> None:
    """Let all threads of the kernel keep the registers that they start with.

    Raises
    ------
    ValueError
        Outside of a kernel.

    Example
    -------
    ``T.no_set_max_nreg()``
    """
    tracer = current_tracer("T.no_set_max_nreg")
    tracer.kernel_scope("T.no_set_max_nreg")
    tracer.enter(BuilderFrame(tir_builder.attr(0, "tl.no_set_max_nreg", 1)), rest=True)


def disable_warp_group_reg_alloc() -> None:
    """Do what ``no_set_max_nreg()`` does.

    Example
    -------
    ``T.disable_warp_group_reg_alloc()``
    """
    no_set_max_nreg()


__all__ = [
    "annotate_consumer_reg_alloc",
    "annotate_producer_reg_dealloc",
    "disable_warp_group_reg_alloc",
    "no_set_max_nreg",
    "ws",
]
