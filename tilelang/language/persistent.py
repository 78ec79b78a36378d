"""``T.Persistent``: the tiles that one of the programs which share a domain works on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder.base import IRBuilderFrame
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.loops import Loop, as_bound, assume, checked_extents
from tilelang.language.math_ops import ceildiv
from tilelang.language.regions import simplify
from tilelang.language.scalars import as_dtype, as_expr, as_int, describe, is_scalar_expr
from tilelang.language.tracer import Tracer, current_tracer


class _PersistentLoop(Loop):
    """The loop over waves with what it computes from the wave's number."""

    kind = "serial"

    def __init__(
        self,
        domain: Sequence[Any],
        wave_size: Any,
        index: Any,
        group: Any,
        notes: Mapping[str, Any] | None,
    ):
        self.domain = list(domain)
        self.wave_size = wave_size
        self.index = index
        self.group = group
        self.notes = notes
        self._frames: list[IRBuilderFrame] = []

    def open(self, tracer: Tracer) -> Any:
        """Enter the loop and, if the last group is smaller, the condition that it has the tile."""
        last = self.domain[-1]
        grouped = [ceildiv(last, self.group), *self.domain[:-1], self.group]
        total = simplify(math.prod(grouped))
        waves, is_whole = self._waves(total)
        loop = tir_builder.serial(0, waves, annotations=self.notes)
        self._frames = [loop]
        wave = loop.__enter__()
        IRBuilder.name("wave", wave)
        tracer.own(wave)
        linear = tracer.let(wave * self.wave_size + self.index, "tile")
        places = []
        rest: Any = linear
        for extent in reversed(grouped[1:]):
            places.append(simplify(tirx.floormod(rest, extent)))
            rest = simplify(tirx.floordiv(rest, extent))
        inner, *outer = places
        values = [*reversed(outer), simplify(rest * self.group + inner)]
        if not is_whole:
            assume(linear < total)
        if as_int(simplify(tirx.floormod(last, self.group))) != 0:
            for frame in (tir_builder.If(as_expr(values[-1] < last)), tir_builder.Then()):
                frame.__enter__()
                self._frames.append(frame)
        names = [self._name(tracer, value) for value in values]
        return names[0] if len(names) == 1 else names

    def _waves(self, total: Any) -> tuple[Any, bool]:
        """How many tiles the program has, and whether all have as many.

        The loop ends where the tiles do, and has no condition inside: ptxas keeps what it knows to
        be the same in a warp, such as operand descriptors of products, in registers of the warp.
        """
        if as_int(simplify(tirx.floormod(total, self.wave_size))) == 0:
            return simplify(tirx.floordiv(total, self.wave_size)), True
        return simplify(ceildiv(total - self.index, self.wave_size)), False

    def _name(self, tracer: Tracer, value: Any) -> Any:
        if not is_scalar_expr(value) or isinstance(value, ir.Var | tirx.IntImm):
            return value
        var = tracer.let(value, "index")
        tracer.add_unnamed(var)
        return var

    def builder_frames(self) -> list[IRBuilderFrame]:
        """Return the loop and, if there is one, the branch in it."""
        return self._frames


def Persistent(
    domain: Sequence[Any],
    wave_size: Any,
    index: Any,
    group_size: Any = 8,
    num_stages: int = 0,
    annotations: Mapping[str, Any] | None = None,
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

    Raises
    ------
    ValueError, TypeError
        If ``domain`` has no extent or a negative one; if ``wave_size`` or ``group_size`` is not
        positive, ``num_stages`` is negative, or one of them is not an integer.

    Example
    -------
    ``for i, j in T.Persistent([m_tiles, n_tiles], 132, bx): ...``
    """
    current_tracer("T.Persistent")
    extents = checked_extents("Persistent", list(domain))
    wave_size, group_size = (
        checked_extents("Persistent", [value])[0] for value in (wave_size, group_size)
    )
    for name, value in (("wave_size", wave_size), ("group_size", group_size)):
        if value == 0:
            raise ValueError(f"{name} of T.Persistent is 0, wanted a positive integer")
    if not isinstance(num_stages, int) or num_stages < 0:
        raise ValueError(
            f"num_stages of T.Persistent is {describe(num_stages)}, wanted an int of at least 0"
        )
    place = as_bound(index, "index of T.Persistent")
    group = _smaller(group_size, extents[-1])
    notes = {**({"num_stages": num_stages} if num_stages else {}), **(annotations or {})}
    return _PersistentLoop(extents, wave_size, place, group, notes or None)


def _smaller(a: Any, b: Any) -> Any:
    return simplify(tirx.min(as_dtype(a, "int32"), as_dtype(b, "int32")))
