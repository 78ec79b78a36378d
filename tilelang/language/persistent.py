"""``T.Persistent``: the tiles that one of the programs which share a domain works on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder.base import IRBuilderFrame
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.allocation import alloc_shared, alloc_var
from tilelang.language.launch import KernelLaunchFrame
from tilelang.language.loops import Loop, as_bound, assume, checked_extents
from tilelang.language.math_ops import ceildiv
from tilelang.language.ops import emit_tile_op
from tilelang.language.regions import full_region, region_of, simplify, store
from tilelang.language.scalars import as_dtype, as_expr, as_int, describe, is_scalar_expr
from tilelang.language.tracer import Tracer, current_tracer


class _PersistentLoop(Loop):
    """The loop over a program's tiles, with what it computes from a tile's number."""

    def __init__(self, domain: Sequence[Any], group_size: Any, programs: Any):
        self.domain = list(domain)
        self.group = group = _smaller(group_size, domain[-1])
        self.programs = programs
        # As many as there are of the smaller ones, which may have no tile at the launch.
        groups = ceildiv(domain[-1], as_dtype(group_size, "int32"))
        self.grouped = [groups, *domain[:-1], group]
        self.total = simplify(math.prod(self.grouped))
        self._frames: list[IRBuilderFrame] = []
        numbers = as_int(self.total), as_int(programs)
        if None not in numbers and sum(n for n in numbers if n) >= 2**31:
            raise ValueError(
                f"T.Persistent found {self.total} tiles and {programs} programs, wanted less than "
                "2^31 of both: their numbers are int32; take larger tiles"
            )

    def _enter(self, frame: IRBuilderFrame) -> Any:
        value = frame.__enter__()
        self._frames.append(frame)
        return value

    def _indices(self, tracer: Tracer, linear: Any) -> Any:
        """The loop's variables of a tile; if the last group is smaller, enters the condition that
        it has the tile."""
        last = self.domain[-1]
        places = []
        rest: Any = linear
        for extent in reversed(self.grouped[1:]):
            if as_int(extent) == 0:  # then there are no tiles
                extent = 1
            places.append(simplify(tirx.floormod(rest, extent)))
            rest = simplify(tirx.floordiv(rest, extent))
        inner, *outer = places
        values = [*reversed(outer), simplify(rest * self.group + inner)]
        if as_int(simplify(tirx.floormod(last, self.group))) != 0:
            self._enter(tir_builder.If(as_expr(values[-1] < last)))
            self._enter(tir_builder.Then())
        names = [self._name(tracer, value) for value in values]
        return names[0] if len(names) == 1 else names

    def _name(self, tracer: Tracer, value: Any) -> Any:
        if not is_scalar_expr(value) or isinstance(value, ir.Var | tirx.IntImm):
            return value
        var = tracer.let(value, "index")
        tracer.add_unnamed(var)
        return var

    def builder_frames(self) -> list[IRBuilderFrame]:
        """Return the loop and, if there is one, the branch in it."""
        return self._frames


class _DealtLoop(_PersistentLoop):
    """A loop over waves: the tiles of a program follow from its number."""

    kind = "serial"

    def __init__(
        self,
        domain: Sequence[Any],
        group_size: Any,
        wave_size: Any,
        index: Any,
        notes: Mapping[str, Any] | None,
    ):
        super().__init__(domain, group_size, wave_size)
        self.index = index
        self.notes = notes

    def open(self, tracer: Tracer) -> Any:
        """Enter the loop."""
        waves, is_whole = self._waves()
        wave = self._enter(tir_builder.serial(0, waves, annotations=self.notes))
        IRBuilder.name("wave", wave)
        tracer.own(wave)
        linear = tracer.let(wave * self.programs + self.index, "tile")
        if not is_whole:
            assume(linear < self.total)
        return self._indices(tracer, linear)

    def _waves(self) -> tuple[Any, bool]:
        """How many tiles the program has, and whether all have as many.

        The loop ends where the tiles do, and has no condition inside: ptxas keeps what it knows to
        be the same in a warp, such as operand descriptors of products, in registers of the warp.
        """
        if as_int(simplify(tirx.floormod(self.total, self.programs))) == 0:
            return simplify(tirx.floordiv(self.total, self.programs)), True
        return simplify(ceildiv(self.total - self.index, self.programs)), False


class _DynamicLoop(_PersistentLoop):
    """A loop that ends when no tile is left: a block's first tile is that of its number, each
    other one the next that no block has taken.

    Every tile but the first ones is fetched once, and each block that has tiles fetches once more
    in vain: as often as there are tiles, so a counter that wraps there ends where it began.
    """

    # Of its own: who jumped out would leave fetches undone.
    kind = "persistent"

    def __init__(
        self, domain: Sequence[Any], group_size: Any, blocks: Any, block: Any, counter: Any
    ):
        super().__init__(domain, group_size, blocks)
        self.block = block
        self.counter = counter

    def open(self, tracer: Tracer) -> Any:
        """Take the first tile and enter the loop."""
        self.span = tracer.span
        self.tile = alloc_var("int32")
        tracer.name("next_tile", self.tile)
        self.fetched = alloc_shared((1,), "int32")
        tracer.name("fetched", self.fetched)
        store(self.tile, 0, self.block)
        number = tirx.BufferLoad(self.tile, [0])
        self._enter(tir_builder.While(as_expr(number < self.total)))
        linear = tracer.let(number, "tile")
        assume(linear >= 0)
        assume(linear < self.total)
        return self._indices(tracer, linear)

    def close(self) -> None:
        """Fetch the next tile at the end of the loop, behind the branch in it."""
        while len(self._frames) > 1:
            self._frames.pop().__exit__(None, None, None)
        current_tracer("T.Persistent").at(self.span)
        last = as_dtype(self.total - 1, "int32")
        emit_tile_op("fetch_tile", [self.counter, full_region(self.fetched), last])
        store(self.tile, 0, tirx.BufferLoad(self.fetched, [0]) + self.programs)


def Persistent(
    domain: Sequence[Any],
    wave_size: Any,
    index: Any,
    group_size: Any = 8,
    num_stages: int = 0,
    annotations: Mapping[str, Any] | None = None,
    counter: Any = None,
) -> Loop:
    """Iterate over the tiles of ``domain`` that program ``index`` of ``wave_size`` works on.

    The last dimension is taken in groups of ``g = min(group_size, its extent)``, and tiles are
    numbered row-major over ``(ceildiv(last, g), *domain[:-1], g)``; in wave ``w`` a program gets
    tile ``w * wave_size + index``, if there is one. Programs that run at the same time so share the
    tiles' operands in the cache. The loop's variables are in the order of ``domain``.

    Parameters
    ----------
    domain
        Number of tiles in each dimension, ints or integer expressions.
    wave_size
        Number of programs, such as the number of blocks of the grid.
    index
        Which of them this one is, 0 to ``wave_size - 1``.
    group_size
        Tiles of the last dimension that are taken together.
    num_stages
        As for ``T.Pipelined``.
    counter
        An int32 in global memory, a tensor of one or an element. With it a program's first tile is
        ``index``, and each other one the next that nobody has taken, in the same order: where
        tiles take different times, no program waits for another. It has to be 0 before the kernel
        and is 0 again behind it; launches that may run at the same time need counters of their
        own. Programs are the blocks of a grid of one dimension, without clusters and without a
        ``T.annotate_ws_schedule``.

    Raises
    ------
    ValueError, TypeError
        If ``domain`` has no extent or a negative one; if ``wave_size`` or ``group_size`` is not
        positive, ``num_stages`` is negative, or one of them is not an integer; if a constant number
        of tiles and programs does not fit into int32; with ``counter``
        if that is something else, ``wave_size`` is not the number of blocks and ``index`` the
        block's, if the loop stands in a loop or branch, another one has the counter, or there are
        stages or annotations. ``break`` and ``continue`` are not supported then.

    Example
    -------
    ``for i, j in T.Persistent([m_tiles, n_tiles], 132, bx): ...``
    """
    tracer = current_tracer("T.Persistent")
    extents = [tracer.evaluated(e) for e in checked_extents("Persistent", list(domain))]
    wave_size, group_size = (
        tracer.evaluated(checked_extents("Persistent", [value])[0])
        for value in (wave_size, group_size)
    )
    for name, value in (("wave_size", wave_size), ("group_size", group_size)):
        if value == 0:
            raise ValueError(f"{name} of T.Persistent is 0, wanted a positive integer")
    if not isinstance(num_stages, int) or num_stages < 0:
        raise ValueError(
            f"num_stages of T.Persistent is {describe(num_stages)}, wanted an int of at least 0"
        )
    place = tracer.evaluated(as_bound(index, "index of T.Persistent"))
    notes = {**({"num_stages": num_stages} if num_stages else {}), **(annotations or {})}
    if counter is None:
        return _DealtLoop(extents, group_size, wave_size, place, notes or None)
    if notes:
        raise ValueError(
            f"T.Persistent found counter and {', '.join(notes)}, wanted one of them: the loop over "
            "fetched tiles is no pipeline; give the stages to a T.Pipelined in it"
        )
    return _DynamicLoop(extents, group_size, wave_size, place, _counter(counter, wave_size, place))


def _counter(counter: Any, wave_size: Any, index: Any) -> Any:
    """The counter's region, if the enclosing kernel can fetch from it."""
    tracer = current_tracer("T.Persistent")
    scope = tracer.kernel_scope("T.Persistent with counter")
    control = tracer.runtime_scope(scope)
    if control is not None:
        raise ValueError(
            f"T.Persistent with counter is in the {control.description}, wanted it in the kernel "
            "itself: each block has to fetch from it once; put the loop or branch inside"
        )
    kernel = KernelLaunchFrame.Current()
    assert kernel is not None
    blocks, *others = kernel.get_block_extents()
    one_axis = all(as_int(extent) == 1 for extent in others) and kernel.cluster_blocks == 1
    if not one_axis or as_int(simplify(wave_size - blocks)) != 0 or index is not kernel.blocks[0]:
        raise ValueError(
            f"T.Persistent with counter found wave_size {wave_size} and index {index}, wanted the "
            f"number of blocks and {kernel.blocks[0].name}, of a grid of one dimension without "
            "clusters: blocks fetch the tiles"
        )
    region = region_of(counter, "counter of T.Persistent")
    buffer = region.source
    one = all(as_int(r.extent) == 1 for r in region.region)
    if str(buffer.dtype) != "int32" or buffer.scope() != "global" or not one:
        raise ValueError(
            f"counter of T.Persistent is {describe(counter)}, wanted one int32 in global memory"
        )
    if any(buffer.same_as(other) for other in kernel.counters):
        raise ValueError(
            f"counter {buffer.name} of T.Persistent is that of another loop of the kernel, wanted "
            "one for each: blocks that are done with a loop begin with the next one"
        )
    kernel.counters.append(buffer)
    return region


def _smaller(a: Any, b: Any) -> Any:
    if as_int(a) == 1 or as_int(b) == 0:  # also of no tiles at all
        return 1
    return simplify(tirx.min(as_dtype(a, "int32"), as_dtype(b, "int32")))
