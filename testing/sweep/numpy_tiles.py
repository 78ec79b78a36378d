"""``T`` of a drawn program as NumPy: the text of a program runs with it, block after block, and
gives what the kernel must give.

Tiles are arrays. Elements of types that NumPy lacks are float32: drawn values are small whole
numbers, exact in every type.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]
_WITHOUT = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_FILLS = 8
"""More than a ring of a drawn program has."""
_NAMES = {"sum": np.add, "max": np.maximum, "min": np.minimum}
"""Operations by the end of the name of a reduction, a scan or an atomic."""


def dtype_of(name: str) -> Any:
    """The NumPy type that stands for a type."""
    return np.dtype("float32" if name in _WITHOUT else name)


class _Place:
    """A part of an array, by its region or first element; it may reach beyond the array."""

    def __init__(self, array: Array, index: tuple[Any, ...]):
        self.array = array
        self.index = tuple(int(i.start if isinstance(i, slice) else i) for i in index)
        stops = [int(i.stop) if isinstance(i, slice) else None for i in index]
        self.extents = [
            None if stop is None else stop - start
            for start, stop in zip(self.index, stops, strict=True)
        ]

    def shape(self, other: Sequence[int]) -> tuple[int, ...]:
        """The extents of a copy whose other side has this shape; as many leading extents are 1 as
        the array has more."""
        if any(extent is not None for extent in self.extents):
            return tuple(1 if extent is None else extent for extent in self.extents)
        return (1,) * (self.array.ndim - len(other)) + tuple(other)

    def _sides(self, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """What exists of the part: where in the array, and where in the part."""
        there, here = [], []
        for i, extent, size in zip(self.index, shape, self.array.shape, strict=True):
            end = max(0, min(size, i + extent))
            start = min(max(0, i), end)
            there.append(slice(start, end))
            here.append(slice(start - i, end - i))
        return tuple(there), tuple(here)

    def read(self, other: Sequence[int]) -> Array:
        """The part, with zeros beyond the array."""
        shape = self.shape(other)
        found = np.zeros(shape, self.array.dtype)
        there, here = self._sides(shape)
        found[here] = self.array[there]
        return found

    def write(self, values: Array) -> None:
        """The values, but those beyond the array."""
        shape = self.shape(values.shape)
        there, here = self._sides(shape)
        self.array[there] = values.reshape(shape)[here].astype(self.array.dtype)


class _AsNumpy(ast.NodeTransformer):
    """Parts of arrays that are arguments of functions of tiles are places, not values."""

    _OF = ("copy", "tma_copy", "atomic_add", "atomic_max", "atomic_min")

    def visit_If(self, branch: ast.If) -> ast.AST | list[ast.stmt]:
        """Of a condition on the thread's number both sides run."""
        self.generic_visit(branch)
        names = {part.id for part in ast.walk(branch.test) if isinstance(part, ast.Name)}
        return [*branch.body, *branch.orelse] if "tx" in names else branch

    def visit_With(self, part: ast.With) -> ast.AST:
        """A body that each of some warp groups runs is a loop over them."""
        self.generic_visit(part)
        call, number = part.items[0].context_expr, part.items[0].optional_vars
        if not isinstance(call, ast.Call) or number is None:
            return part
        if not any(keyword.arg == "each" for keyword in call.keywords):
            return part
        groups = ast.Call(ast.Name("range", ast.Load()), [ast.Constant(len(call.args))], [])
        return ast.For(number, groups, part.body, [])

    def visit_Assign(self, assign: ast.Assign) -> ast.Assign:
        """A ring, whose name begins with R, has a slot for each fill."""
        self.generic_visit(assign)
        name, value = assign.targets[0], assign.value
        if isinstance(name, ast.Name) and name.id.startswith("R") and isinstance(value, ast.Call):
            shape = value.args[0]
            assert isinstance(shape, ast.Tuple)
            shape.elts[0] = ast.Constant(_FILLS)
        return assign

    def visit_Subscript(self, part: ast.Subscript) -> ast.Subscript:
        self.generic_visit(part)
        if isinstance(part.value, ast.Name) and part.value.id.startswith("R"):
            assert isinstance(part.slice, ast.Tuple)
            slot = part.slice.elts[0]
            assert isinstance(slot, ast.BinOp)
            part.slice.elts[0] = slot.left
        return part

    def visit_Call(self, call: ast.Call) -> ast.expr:
        self.generic_visit(call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "if_then_else":
            # What is not taken may be outside of a tensor.
            return ast.IfExp(*call.args)
        if isinstance(call.func, ast.Attribute) and call.func.attr in self._OF:
            arguments = call.args if call.func.attr.endswith("copy") else call.args[:1]
            for k, argument in enumerate(arguments):
                if isinstance(argument, ast.Subscript):
                    module = ast.Name("T", ast.Load())
                    place = ast.Attribute(module, "place", ast.Load())
                    index = ast.Attribute(module, "index", ast.Load())
                    given = ast.Subscript(index, argument.slice, ast.Load())
                    call.args[k] = ast.Call(place, [argument.value, given], [])
        return call


class NumpyTiles:
    """The functions of `tilelang.language` that drawn programs call."""

    float32, int32 = "float32", "int32"

    index = np.s_

    def __init__(self, block: int | tuple[int, ...], sizes: dict[str, int]):
        self._block, self._sizes = block, sizes

    @staticmethod
    def prim_func(function: Callable[..., None]) -> Callable[..., None]:
        return function

    macro = prim_func

    @staticmethod
    def Tensor(*_: object) -> None:
        return None

    def dynamic(self, name: str) -> int:
        return self._sizes[name]

    @contextlib.contextmanager
    def Kernel(self, *_: object, **__: object) -> Iterator[int | tuple[int, ...]]:
        yield self._block

    @staticmethod
    def alloc_shared(shape: tuple[int, ...], dtype: str) -> Array:
        return np.zeros(shape, dtype_of(dtype))

    alloc_fragment = alloc_shared

    @staticmethod
    def ws(*_: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @staticmethod
    def get_thread_binding() -> None:
        return None

    @staticmethod
    def use_swizzle(*_: int, **__: str) -> None:
        """In which order blocks run."""

    @staticmethod
    def alloc_barrier(arrivals: list[int]) -> list[int]:
        return arrivals

    @staticmethod
    def mbarrier_arrive(*_: object) -> None:
        """Roles run one after the other, the producer first."""

    mbarrier_wait_parity = mbarrier_arrive

    @staticmethod
    def alloc_var(dtype: str, init: Any = 0) -> Any:
        return dtype_of(dtype).type(init)

    @staticmethod
    def view(array: Array, shape: tuple[int, ...], dtype: str) -> Array:
        return array.reshape(-1).view(dtype_of(dtype)).reshape(shape)

    @staticmethod
    def reshape(array: Array, shape: tuple[int, ...]) -> Array:
        return array.reshape(shape)

    @staticmethod
    def Parallel(*extents: int) -> Any:
        return np.ndindex(*extents) if len(extents) > 1 else range(*extents)

    @staticmethod
    def serial(*bounds: int) -> range:
        return range(*bounds)

    unroll = serial

    @staticmethod
    def Pipelined(*bounds: int, num_stages: int) -> range:
        return range(*bounds)

    @staticmethod
    def Persistent(
        domain: list[int], blocks: int, block: int, group_size: int, counter: Array | None = None
    ) -> Iterator[tuple[int, ...]]:
        """The tiles of a block. With a counter, which blocks share as they come, the first block
        has all."""
        tiles = list(itertools.product(*map(range, domain)))
        return iter(tiles[block::blocks] if counter is None else tiles if block == 0 else [])

    @staticmethod
    def place(array: Array, index: Any) -> _Place:
        return _Place(array, index if isinstance(index, tuple) else (index,))

    @staticmethod
    def copy(source: Array | _Place, target: Array | _Place) -> None:
        if isinstance(source, _Place):
            source = source.read(target.shape if isinstance(target, np.ndarray) else ())
        if isinstance(target, _Place):
            target.write(source)
        else:
            target[...] = source.reshape(target.shape).astype(target.dtype)

    @classmethod
    def tma_copy(cls, source: Array | _Place, target: Array | _Place, barrier: object) -> None:
        cls.copy(source, target)

    @staticmethod
    def fill(target: Array, value: Any) -> None:
        target[...] = value

    @staticmethod
    def clear(target: Array) -> None:
        target[...] = 0

    @staticmethod
    def And(*conditions: bool) -> bool:
        return all(conditions)

    @staticmethod
    def Or(*conditions: bool) -> bool:
        return any(conditions)

    @staticmethod
    def Not(condition: bool) -> bool:
        return not condition

    @staticmethod
    def transpose(source: Array, target: Array) -> None:
        target[...] = source.T

    @staticmethod
    def ceildiv(a: int, b: int) -> int:
        return -(-a // b)

    class GemmWarpPolicy:
        Square, FullRow, FullCol = range(3)

    @staticmethod
    def gemm(
        a: Array,
        b: Array,
        c: Array,
        transpose_A: bool = False,
        transpose_B: bool = False,
        policy: int = 0,
        clear_accum: bool = False,
    ) -> None:
        if clear_accum:
            c[...] = 0
        c += (a.T if transpose_A else a).astype(c.dtype) @ (b.T if transpose_B else b).astype(
            c.dtype
        )

    max = staticmethod(max)
    min = staticmethod(min)

    @staticmethod
    def clamp(value: Any, low: Any, high: Any) -> Any:
        return min(max(value, low), high)

    @staticmethod
    def cast(value: Any, dtype: str) -> Any:
        return np.asarray(value).astype(dtype_of(dtype))[()]

    @staticmethod
    def annotate_restrict_buffers(*tensors: Array) -> None:
        """Nothing: arrays are what they are."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        kind, _, operation = name.partition("_")
        if kind == "reduce":
            return lambda *a, **k: _reduce(operation, *a, **k)
        if kind == "atomic":
            return lambda place, value, use_tma=False: _atomic(operation, place, value)
        if name in ("cumsum", "cummax"):
            return lambda *a, **k: _scan(name[3:], *a, **k)
        raise AttributeError(name)


def _reduce(operation: str, source: Array, target: Array, dim: int, clear: bool = True) -> None:
    source = abs(source) if operation.startswith("abs") else source
    function = _NAMES[operation.removeprefix("abs")]
    found = function.reduce(source.astype(target.dtype), axis=dim).reshape(target.shape)
    target[...] = found if clear else function(target, found)


def _scan(
    operation: str, source: Array, target: Array | None = None, dim: int = 0, reverse: bool = False
) -> None:
    turned = np.flip(source, dim) if reverse else source
    found = _NAMES[operation].accumulate(turned, axis=dim, dtype=source.dtype)
    (source if target is None else target)[...] = np.flip(found, dim) if reverse else found


def _atomic(operation: str, place: _Place | Array, value: Any) -> None:
    function = _NAMES[{"add": "sum"}.get(operation, operation)]
    if isinstance(place, _Place) and isinstance(value, np.ndarray):
        place.write(function(place.read(value.shape), value.reshape(place.shape(value.shape))))
    elif isinstance(place, _Place):
        if any(not 0 <= i < n for i, n in zip(place.index, place.array.shape, strict=True)):
            return
        place.array[place.index] = function(place.array[place.index], value)
    else:
        place[...] = function(place, value)


def run(
    text: str,
    grid: int | tuple[int, ...],
    sizes: dict[str, int],
    tensors: Sequence[torch.Tensor],
) -> list[Any]:
    """The tensors after the program's text has run; copies of those given. One that is given twice
    is one."""
    copies: dict[int, Array] = {}
    arrays = [copies.setdefault(id(tensor), _array(tensor)) for tensor in tensors]
    tree = _AsNumpy().visit(ast.parse(text))
    tree.body = [part for part in tree.body if not isinstance(part, ast.Import)]
    code = compile(ast.fix_missing_locations(tree), "<numpy>", "exec")
    # Integers wrap, in kernels as here.
    with np.errstate(over="ignore"):
        blocks = itertools.product(*map(range, grid)) if isinstance(grid, tuple) else range(grid)
        for block in blocks:
            names: dict[str, Any] = {"T": NumpyTiles(block, sizes)}
            exec(code, names)
            names["main"](*arrays)
    return [
        torch.from_numpy(array).to(tensor.dtype)
        for array, tensor in zip(arrays, tensors, strict=True)
    ]


def _array(tensor: torch.Tensor) -> Array:
    name = str(tensor.dtype).removeprefix("torch.")
    return (tensor.float() if name in _WITHOUT else tensor.clone()).numpy()
