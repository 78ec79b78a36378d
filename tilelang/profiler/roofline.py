"""What a kernel has to do, counted in its tile program, and how long a chip takes for that at least
(S. Williams and others, "Roofline: an insightful visual performance model", 2009)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import WalkResult, structural_walk

from tilelang.carver.arch.cuda import CUDA
from tilelang.engine.device_codegen import _OPERATORS
from tilelang.engine.param import arguments
from tilelang.engine.symbols import evaluate
from tilelang.utils import dtypes

_COPIES = ("tl.tileop.copy", "tl.tileop.tma_copy", "tl.tileop.transpose", "tl.tileop.atomic")
_IMAGE_COPIES = ("tl.tileop.im2col", "tl.tileop.tma_im2col")


@dataclass(frozen=True)
class Roofline:
    """The work of a call.

    Attributes:
        flop: of products (``T.gemm``, and ``T.gemm_sp`` as if nothing were left out), by the
            operands' dtype.
        bytes: of all tensors, each once: what the memory moves at least.
        copied: bytes that ``T.copy`` and its like (``T.im2col``, ``T.atomic_add`` on tiles) move
            between global memory and the chip, most of them from the L2 cache.
        arch: the chip.
    """

    flop: Mapping[str, float]
    bytes: float
    copied: float
    arch: CUDA

    @property
    def math_milliseconds(self) -> float:
        """What the products take at the chip's peak."""
        return 1e3 * sum(n / self.arch.tensor_flops(dtype) for dtype, n in self.flop.items())

    @property
    def memory_milliseconds(self) -> float:
        """What `bytes` take at the memory's bandwidth."""
        return 1e3 * self.bytes / self.arch.bandwidth

    @property
    def milliseconds(self) -> float:
        """What a call takes at least."""
        return max(self.math_milliseconds, self.memory_milliseconds)

    @property
    def bound(self) -> str:
        """``"math"`` or ``"memory"``, which takes longer."""
        return "math" if self.math_milliseconds > self.memory_milliseconds else "memory"

    @property
    def intensity(self) -> float:
        """FLOP per byte of memory."""
        return sum(self.flop.values()) / self.bytes

    def share(self, milliseconds: float) -> float:
        """How much of the chip's limit a call reaches that takes so long, 0 to 1."""
        return self.milliseconds / milliseconds

    def __str__(self) -> str:
        flop = sum(self.flop.values())
        return (
            f"{flop:.4g} FLOP, {self.bytes:.4g} bytes ({self.copied:.4g} copied), "
            f"{self.intensity:.4g} FLOP per byte; on {self.arch.arch} at least "
            f"{self.milliseconds:.4g} ms, bound by {self.bound}"
        )


def roofline(
    kernel: Any, sizes: Mapping[str, int] | None = None, arch: CUDA | None = None
) -> Roofline:
    """The work of a `JITKernel`, or of a PrimFunc for `arch`, which is the kernel's by default.

    `sizes` gives symbolic dimensions and scalars by name. A loop whose length depends on the block
    counts with the mean of the first and the last block's, which is exact where it grows evenly, as
    in causal attention. Of branches both count; what ``T.Parallel`` computes does not.

    Raises `ValueError` where a length is not known before the run, or a size is missing,
    `TypeError` for what is no kernel and no program.

    Example: ``roofline(kernel).share(do_bench(lambda: kernel(a, b)))``
    """
    program = getattr(kernel, "prim_func", kernel)
    if not isinstance(program, tirx.PrimFunc):
        raise TypeError(
            f"roofline: expected a kernel or a PrimFunc, got {type(kernel).__name__}. Pass what "
            "tilelang.compile returns, or the function under @T.prim_func."
        )
    if arch is None:
        arch = CUDA(getattr(kernel, "target", "auto"))
    counts: Counter[str] = Counter()
    values = dict(sizes or {})
    for corner in (0, 1):
        _Counter(program, values, corner, counts).count(program.body, 1)
    tensors = [v for v in arguments(program) if isinstance(v.ty, tirx.BufferType)]
    total = sum(math.prod(_value(e, values) for e in v.shape) * _bytes(v) for v in tensors)
    flop = {k.partition(" ")[2]: n / 2 for k, n in counts.items() if k.startswith("flop ")}
    return Roofline(flop, total, counts["copied"] / 2, arch)


def _bytes(buffer: Any) -> float:
    return dtypes.bits(str(buffer.ty.dtype)) / 8


def _value(expr: Any, values: Mapping[str, int]) -> int:
    return evaluate(_plain(expr, values), values)


def _plain(expr: Any, values: Mapping[str, int]) -> Any:
    """An expression of TVM as one of `tilelang.engine.symbols`. Raises `ValueError`, which TVM's
    walk hands on, where a part of it is not known."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    if isinstance(expr, tvm.ir.Var) and expr.name in values:
        return values[expr.name]
    if isinstance(expr, tirx.Cast):
        return _plain(expr.value, values)
    operator = _OPERATORS.get(type(expr))
    if operator is None:
        raise ValueError(
            f"roofline: found `{expr}`, which is not known before the run, wanted a number; give "
            "sizes={'<name>': <value>} for symbols"
        )
    return (operator, _plain(expr.a, values), _plain(expr.b, values))


class _Counter:
    """Counts with blocks in one corner of the grid: 0 is the first, 1 the last."""

    def __init__(self, program: Any, values: Mapping[str, int], corner: int, counts: Counter[str]):
        self._tensors = {v.name for v in program.params}
        self._values = dict(values)
        self._corner = corner
        self._counts = counts

    def count(self, body: Any, weight: int) -> None:
        """Adds the work of a statement that runs `weight` times."""

        def loop(node: Any) -> Any:
            extent = _value(node.extent, self._values)
            times, at = extent, 0
            if node.thread_binding is not None:
                if str(node.thread_binding.thread_tag).startswith("threadIdx"):
                    times = 1
                at = self._corner * (extent - 1)
            self._values[node.loop_var.name] = at
            self.count(node.body, weight * times)
            return WalkResult.SKIP

        def bind(node: Any) -> None:
            try:
                self._values[node.var.name] = _value(node.value, self._values)
            except ValueError:
                self._values.pop(node.var.name, None)

        def call(node: Any) -> None:
            name = str(getattr(node.op, "name", ""))
            if name == "tl.tileop.gemm":
                self._gemm(node, weight)
            elif name == "tl.tileop.gemm_sp":
                self._gemm_sp(node, weight)
            elif name in _COPIES:
                self._copy(node, weight)
            elif name in _IMAGE_COPIES:
                # The image's region is all that a kernel may read: the tile has what is read.
                self._count_copied(node.args[1], weight)

        structural_walk(
            body, [(tirx.For, loop), (tirx.Bind, bind), (tvm.ir.Call, call)], order="pre"
        )

    def _extents(self, region: Any) -> list[int]:
        return [_value(r.extent, self._values) for r in region.region]

    def _gemm(self, call: Any, weight: int) -> None:
        a, _, c, transposed = call.args[:4]
        m, n = self._extents(c)[-2:]
        k = self._extents(a)[-2 if int(transposed) else -1]
        self._counts[f"flop {a.source.ty.dtype}"] += 2 * m * n * k * weight

    def _gemm_sp(self, call: Any, weight: int) -> None:
        a, _, b, c, _, _, transposed = call.args[:7]
        m, n = self._extents(c)[-2:]
        k = self._extents(b)[-1 if int(transposed) else -2]
        self._counts[f"flop {a.source.ty.dtype}"] += 2 * m * n * k * weight

    def _copy(self, call: Any, weight: int) -> None:
        for region in call.args[:2]:
            if isinstance(region, tvm.ir.TensorRegion) and region.source.name in self._tensors:
                self._count_copied(region, weight)
                return

    def _count_copied(self, region: Any, weight: int) -> None:
        size = math.prod(self._extents(region)) * _bytes(region.source)
        self._counts["copied"] += int(size * weight)
