"""Layouts as nested shapes and strides, and their algebra (CUTLASS documentation, "CuTe Layout
Algebra").

A layout maps coordinates of its shape to the sum of their products with the strides. A whole number
is a coordinate, too: its digits, the first dimension's varying fastest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilelang.layout.arguments import found as found_in_words
from tilelang.layout.arguments import of_class
from tilelang.layout.layout import Layout

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"
Mode: TypeAlias = tuple[int, int]
"""A shape and a stride, both ints."""


def _map(function: Callable[..., Any], *trees: Any) -> Any:
    if not isinstance(trees[0], tuple):
        return function(*trees)
    return tuple(_map(function, *parts) for parts in zip(*trees, strict=True))


def flatten(value: IntTuple) -> tuple[int, ...]:
    """Return the ints of a nested tuple, in order.

    Example: ``flatten((4, (2, 3))) == (4, 2, 3)``
    """
    if isinstance(value, int):
        return (value,)
    return tuple(n for part in value for n in flatten(part))


def _is_congruent(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_congruent, a, b))
    return isinstance(a, int) and isinstance(b, int)


@dataclass(frozen=True)
class CuteLayout:
    """``shape`` and ``stride``, ints or nested tuples of one structure.

    Raises `ValueError` for two structures, and a shape that is not positive.

    Example: ``CuteLayout((4, (2, 3)), (2, (1, 8)))((3, (1, 0))) == 7``
    """

    shape: IntTuple
    stride: IntTuple

    def __post_init__(self) -> None:
        if not _is_congruent(self.shape, self.stride):
            raise ValueError(
                f"a layout found shape {self.shape} and stride {self.stride}, wanted ints or "
                "tuples of one structure"
            )
        if any(n < 1 for n in flatten(self.shape)):
            raise ValueError(f"the shape of a layout is {self.shape}, wanted positive ints")

    def __call__(self, *coordinate: IntTuple) -> int:
        """Return the place of a coordinate: one int for all dimensions, or one for each."""
        given = coordinate[0] if len(coordinate) == 1 else coordinate
        return _place(given, self.shape, self.stride)

    def __str__(self) -> str:
        return f"{self.shape}:{self.stride}".replace(" ", "")

    def __len__(self) -> int:
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    def __getitem__(self, dimension: int) -> CuteLayout:
        if isinstance(self.shape, tuple) and isinstance(self.stride, tuple):
            return CuteLayout(self.shape[dimension], self.stride[dimension])
        return (self,)[dimension]

    @property
    def modes(self) -> list[Mode]:
        """The flat shapes and strides."""
        return list(zip(flatten(self.shape), flatten(self.stride), strict=True))


def _place(coordinate: IntTuple, shape: IntTuple, stride: IntTuple) -> int:
    if isinstance(coordinate, tuple):
        if not (isinstance(shape, tuple) and isinstance(stride, tuple)):
            raise ValueError(f"found coordinate {coordinate} of shape {shape}, wanted an int")
        if len(coordinate) != len(shape):
            raise ValueError(f"found coordinate {coordinate} of shape {shape}, wanted {len(shape)}")
        return sum(map(_place, coordinate, shape, stride))
    place = 0
    modes = list(zip(flatten(shape), flatten(stride), strict=True))
    for i, (extent, step) in enumerate(modes):
        is_last = i + 1 == len(modes)
        place += (coordinate if is_last else coordinate % extent) * step
        coordinate //= extent
    return place


def _checked(value: Any, what: str) -> CuteLayout:
    return of_class(value, CuteLayout, what, "make one by make_layout(shape, stride)")


def size(layout: CuteLayout) -> int:
    """Return the number of coordinates.

    Example: ``size(make_layout((4, 2))) == 8``
    """
    _checked(layout, "layout of size")
    return math.prod(flatten(layout.shape))


def cosize(layout: CuteLayout) -> int:
    """Return the largest place, and one.

    Example: ``cosize(make_layout(4, 3)) == 10``
    """
    _checked(layout, "layout of cosize")
    return 1 + sum((n - 1) * abs(d) for n, d in layout.modes)


def make_layout(shape: Any, stride: Any = None, *more: CuteLayout) -> CuteLayout:
    """Return the layout of a shape and its strides, by default the dense ones whose first dimension
    varies fastest; or one whose dimensions are the given layouts.

    Example: ``make_layout((4, 2)) == make_layout((4, 2), (1, 4))``
    """
    if isinstance(shape, CuteLayout):
        parts = (shape, *(p for p in (stride, *more) if isinstance(p, CuteLayout)))
        return CuteLayout(tuple(p.shape for p in parts), tuple(p.stride for p in parts))
    if stride is not None:
        return CuteLayout(shape, stride)
    if not _is_congruent(shape, shape):
        raise ValueError(
            f"make_layout found {found_in_words(shape)}, wanted an int, a nested tuple of ints, or "
            "layouts; write the shape as in make_layout((4, (2, 3)))"
        )
    step = 1

    def next_step(extent: int) -> int:
        nonlocal step
        step, this = step * extent, step
        return this

    return CuteLayout(shape, _map(next_step, shape))


def _of_modes(modes: Sequence[Mode]) -> CuteLayout:
    if len(modes) == 1:
        return CuteLayout(*modes[0])
    return CuteLayout(tuple(n for n, _ in modes), tuple(d for _, d in modes))


def coalesce(layout: CuteLayout) -> CuteLayout:
    """Return the flat layout of the same places with the fewest dimensions.

    Example: ``str(coalesce(make_layout((2, (1, 6)), (1, (6, 2))))) == "12:1"``
    """
    _checked(layout, "layout of coalesce")
    modes: list[Mode] = []
    for extent, step in layout.modes:
        if extent == 1:
            continue
        if modes and modes[-1][0] * modes[-1][1] == step:
            modes[-1] = (modes[-1][0] * extent, modes[-1][1])
        else:
            modes.append((extent, step))
    return _of_modes(modes or [(1, 0)])


def composition(outer: CuteLayout, inner: Any) -> CuteLayout:
    """Return the layout with ``composition(outer, inner)(c) == outer(inner(c))``, which has the
    coordinates of ``inner``; of a tuple of layouts, one for each dimension of ``outer``.

    Raises `ValueError` where no shape and stride are that.

    Example: ``str(composition(make_layout((6, 2), (8, 2)), make_layout((4, 3), (3, 1))))`` is
    ``"((2,2),3):((24,2),8)"``
    """
    _checked(outer, "outer of composition")
    if isinstance(inner, tuple):
        parts = [composition(outer[i], part) for i, part in enumerate(inner)]
        return make_layout(*parts, *(outer[i] for i in range(len(parts), len(outer))))
    _checked(inner, "inner of composition")
    modes = coalesce(outer).modes

    def places(extent: int, step: int) -> tuple[IntTuple, IntTuple]:
        found = _of_modes(_take(modes, extent, step)) if step else CuteLayout(extent, 0)
        if size(found) != extent or any(found(i) != outer(i * step) for i in range(extent)):
            raise ValueError(f"{outer} has no layout at {extent}:{step}, wanted sizes that divide")
        return found.shape, found.stride

    pairs = _map(lambda n, d: CuteLayout(*places(n, d)), inner.shape, inner.stride)
    return CuteLayout(_map(lambda p: p.shape, pairs), _map(lambda p: p.stride, pairs))


def _take(modes: list[Mode], extent: int, step: int) -> list[Mode]:
    """Every ``step``-th of the coordinates that modes have, ``extent`` of them: modes that the step
    passes over count no more, and the next one is taken in larger steps."""
    taken: list[Mode] = []
    for i, (of_mode, stride) in enumerate(modes):
        is_last = i + 1 == len(modes)
        count = extent if is_last else min(max(1, of_mode // step), extent)
        if count > 1:
            taken.append((count, step * stride))
        extent = -(-extent // count)
        step = -(-step // of_mode)
    return taken or [(1, 0)]


def complement(layout: CuteLayout, extent: int = 1) -> CuteLayout:
    """Return the layout of the smallest steps between copies of ``layout`` that reach up to
    ``extent`` places without meeting.

    Raises `ValueError` where copies of ``layout`` leave gaps that no layout fills.

    Example: ``str(complement(make_layout(4, 2), 24)) == "(2,3):(1,8)"``
    """
    _checked(layout, "layout of complement")
    modes: list[Mode] = []
    dense = 1
    for of_mode, step in sorted(layout.modes, key=lambda mode: mode[1]):
        if step == 0 or of_mode == 1:
            continue
        if step % dense:
            raise ValueError(
                f"{layout} has no complement: step {step} is no multiple of {dense}, wanted steps "
                "of which each is a multiple of what the ones below it fill"
            )
        modes.append((step // dense, dense))
        dense = of_mode * step
    return coalesce(_of_modes([*modes, (max(1, -(-extent // dense)), dense)]))


def right_inverse(layout: CuteLayout) -> CuteLayout:
    """Return the layout with ``layout(right_inverse(layout)(i)) == i`` for as many places from 0 on
    as ``layout`` has dense.

    Example: ``str(right_inverse(make_layout((4, 8), (8, 1)))) == "(8,4):(4,1)"``
    """
    _checked(layout, "layout of right_inverse")
    first, modes = 1, []
    for extent, step in layout.modes:
        modes.append((step, extent, first))
        first *= extent
    found: list[Mode] = []
    dense = 1
    for step, extent, number in sorted(modes):
        if extent == 1 or step < dense:
            continue
        if step > dense:
            break
        found.append((extent, number))
        dense *= extent
    return coalesce(_of_modes(found or [(1, 0)]))


def left_inverse(layout: CuteLayout) -> CuteLayout:
    """Return the layout with ``left_inverse(layout)(layout(i)) == i`` for each coordinate, where
    ``layout`` puts no two in one place.

    Raises `ValueError` as ``complement``.

    Example: ``left_inverse(make_layout(4, 2))(6) == 3``
    """
    _checked(layout, "layout of left_inverse")
    return right_inverse(make_layout(layout, complement(layout)))


def logical_divide(layout: CuteLayout, tiler: Any) -> CuteLayout:
    """Return two dimensions: the elements that ``tiler`` names, and where its copies begin; of a
    tuple of tilers, so for each dimension of ``layout``.

    Raises `ValueError` as ``composition`` and ``complement``.

    Example: ``str(logical_divide(make_layout(16), make_layout(4, 2)))`` is
    ``"(4,(2,2)):(2,(1,8))"``
    """
    _checked(layout, "layout of logical_divide")
    if isinstance(tiler, tuple):
        parts = [logical_divide(layout[i], part) for i, part in enumerate(tiler)]
        return make_layout(*parts, *(layout[i] for i in range(len(parts), len(layout))))
    of_tile = CuteLayout(tiler, 1) if isinstance(tiler, int) else tiler
    return composition(layout, make_layout(of_tile, complement(of_tile, size(layout))))


def logical_product(layout: CuteLayout, tiler: Any) -> CuteLayout:
    """Return two dimensions: ``layout``, and the copies of it that ``tiler`` counts.

    Raises `ValueError` as ``composition`` and ``complement``.

    Example: ``str(logical_product(make_layout(4), make_layout(3))) == "(4,3):(1,4)"``
    """
    _checked(layout, "layout of logical_product")
    copies = CuteLayout(tiler, 1) if isinstance(tiler, int) else tiler
    room = complement(layout, size(layout) * cosize(copies))
    return make_layout(layout, composition(room, copies))


def to_layout(layout: CuteLayout) -> Layout:
    """Return the layout of a buffer with as many dimensions as ``layout``: each index is a whole
    number, the result a place.

    Example: ``to_layout(make_layout((4, 8), (8, 1))).addresses() == list(range(32))``
    """
    _checked(layout, "layout of to_layout")
    dimensions = [layout[d] for d in range(len(layout))]

    def forward(*indices: Any) -> Any:
        place: Any = 0
        for part, index in zip(dimensions, indices, strict=True):
            rest = index
            for i, (extent, step) in enumerate(part.modes):
                digit = rest if i + 1 == len(part.modes) else rest % extent
                place, rest = place + digit * step, rest // extent
        return place

    return Layout([size(part) for part in dimensions], forward)


def from_layout(layout: Layout) -> CuteLayout:
    """Return shape and strides of a layout: each dimension's digits, as many as it needs.

    Raises `ValueError` where places are no sums of them, as in a swizzle.

    Example: ``from_layout(to_layout(make_layout((4, 8), (8, 1)))) == make_layout((4, 8), (8, 1))``
    """
    of_class(layout, Layout, "layout of from_layout", "make one by T.Layout(shape, function)")
    shape = [int(extent) for extent in layout.get_input_shape()]
    places = layout.addresses()
    dimensions: list[CuteLayout] = []
    for d, extent in enumerate(shape):
        row_major = math.prod(shape[d + 1 :])
        along = [places[i * row_major] - places[0] for i in range(extent)]
        dimensions.append(_of_modes(_digits(along)))
    found = dimensions[0] if len(dimensions) == 1 else make_layout(*dimensions)
    of_numbers = to_layout(found).addresses()
    if [p - places[0] for p in places] != of_numbers or places[0] != 0:
        raise ValueError(
            f"found a layout that is no shape and stride, such as a swizzle: {layout}; use it as "
            "a T.Layout"
        )
    return found


def _digits(places: list[int]) -> list[Mode]:
    """Shapes and strides of a dimension: the longest run of one stride, then that of its ends."""
    modes: list[Mode] = []
    while len(places) > 1:
        step, run = places[1], 1
        while run < len(places) and places[run] == run * step:
            run += 1
        while len(places) % run:
            run -= 1
        if run == 1:
            raise ValueError(
                "found a layout that is no shape and stride: no stride divides it; use it as a "
                "T.Layout"
            )
        modes.append((run, step))
        places = places[::run]
    return modes or [(1, 0)]
