"""The launch plan in binary form, ``calls.bin`` of a kernel file, for readers without Python.

`src/runtime/tilelang_kernel.h` reads it. All numbers are 64-bit integers, little end first; a text
is its number of bytes and the bytes, padded with zeros to a multiple of 8; an expression is a
number of instructions, and for each an opcode and an operand, in postfix order. Parameters are
numbered in the plan's order, variables in that of their definitions, -1 is none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilelang.engine.launch_plan import (
    COMPARISONS,
    Descriptor,
    KernelLaunch,
    LaunchPlan,
    Param,
    PointerParam,
    ScalarParam,
    TensorParam,
)
from tilelang.engine.symbols import OPERATORS, Expr
from tilelang.runtime.adapter.tensor_maps import describe_least
from tilelang.utils import dtypes

MAGIC = b"TLCALLS1"
_CONST, _VAR, _FIRST_OPERATOR = 0, 1, 2
_TENSOR, _SCALAR, _POINTER = 0, 1, 2
_INPUT, _OUTPUT, _WORKSPACE = 0, 1, 2
_SIGNED, _UNSIGNED, _FLOAT = 0, 1, 2
_PARAM, _VALUE, _DESCRIPTOR = 0, 1, 2
_PERSISTENT = 2  # a kernel; 1 is one by hand, 0 any other
_SWIZZLES, _PROMOTIONS = (0, 32, 64, 128), (0, 64, 128, 256)


def encode_calls(plan: LaunchPlan) -> bytes:
    """The binary form of a plan. Raises `ValueError` for a parameter that no call can pass."""
    return _Writer(plan).encode()


class _Writer:
    def __init__(self, plan: LaunchPlan):
        self.plan = plan
        self.out = bytearray(MAGIC)
        sources = plan.sources
        self.variables = {n: i for i, n in enumerate((*sources.definitions, *sources.solutions))}
        self.defined: dict[tuple[int, str, int], int] = {
            (d.param, d.kind, d.dim): self.variables[n] for n, d in sources.definitions.items()
        }
        self.params = {param.name: i for i, param in enumerate(plan.params)}
        self.maps = {descriptor.name: i for i, descriptor in enumerate(plan.descriptors)}

    def encode(self) -> bytes:
        plan = self.plan
        self.text(plan.name)
        self.text(plan.location)
        self.ints(len(self.variables), len(plan.params))
        for index, param in enumerate(plan.params):
            self.param(index, param)
        self.ints(len(plan.sources.solutions))
        for name, expr in plan.sources.solutions.items():
            self.ints(self.variables[name])
            self.expr(expr)
        self.ints(len(plan.requirements))
        for requirement in plan.requirements:
            self.ints(list(COMPARISONS).index(requirement.comparison))
            self.exprs((requirement.left, requirement.right))
            self.text(requirement.message)
        self.ints(len(plan.descriptors))
        for descriptor in plan.descriptors:
            self.descriptor(descriptor)
        self.ints(len(plan.kernels))
        for kernel in plan.kernels:
            self.kernel(kernel)
        return bytes(self.out)

    def ints(self, *values: int) -> None:
        self.out += struct.pack(f"<{len(values)}q", *values)

    def text(self, text: str) -> None:
        content = text.encode()
        self.ints(len(content))
        self.out += content.ljust(-(-len(content) // 8) * 8, b"\0")

    def exprs(self, exprs: Iterable[Expr]) -> None:
        for expr in exprs:
            self.expr(expr)

    def expr(self, expr: Expr) -> None:
        code = list(_postfix(expr, self.variables))
        self.ints(len(code))
        for instruction in code:
            self.ints(*instruction)

    def param(self, index: int, param: Param) -> None:
        plan = self.plan
        role = _OUTPUT if index in plan.outputs else _WORKSPACE
        role = role if index in plan.allocated else _INPUT
        self.text(param.name)
        if isinstance(param, TensorParam):
            self.ints(_TENSOR, role)
            self.types(index, param.dtype)
            self.ints(dtypes.packing(param.dtype), len(param.shape), param.strides is None)
            for dim, expr in enumerate(param.shape):
                self.place((index, "shape", dim), expr)
            for dim, expr in enumerate(param.strides or ()):
                self.place((index, "stride", dim), expr)
        elif isinstance(param, ScalarParam):
            kind = _SIGNED if param.dtype.startswith("int") else _UNSIGNED
            kind = _FLOAT if "float" in param.dtype else kind
            size = 8 if param.dtype == "handle" else -(-dtypes.bits(param.dtype) // 8)
            self.ints(_SCALAR, role, kind, size, self.defined.get((index, "scalar", 0), -1))
        else:
            self.ints(_POINTER, role)
            if isinstance(param, PointerParam) and param.pointee is not None:
                self.types(index, param.pointee)
            else:
                self.ints(0)

    def place(self, place: tuple[int, str, int], expr: Expr) -> None:
        """A dimension or a stride, and the variable that it defines."""
        self.ints(self.defined.get(place, -1))
        self.expr(expr)

    def types(self, index: int, dtype: str) -> None:
        """What a tensor may have, as DLPack's code, bits and lanes."""
        found = dtypes.accepted_types(dtype)
        if not found:
            raise ValueError(
                f"{self.plan.where()}: dtype {dtype} of parameter `{self.plan.params[index].name}` "
                "cannot be passed to a kernel"
            )
        self.ints(len(found), *(number for each in found for number in each))

    def descriptor(self, descriptor: Descriptor) -> None:
        rank = len(descriptor.shape)
        described = describe_least(descriptor)
        self.ints(self.params[descriptor.param], described.data_type, rank)
        self.exprs((*descriptor.shape, *descriptor.strides))
        self.ints(*descriptor.element_strides, _SWIZZLES.index(descriptor.swizzle))
        self.ints(_PROMOTIONS.index(descriptor.l2_promotion), descriptor.oob_fill == "nan")
        im2col = descriptor.im2col
        self.ints(im2col is not None)
        if im2col is None:
            self.ints(*descriptor.box)
        else:
            self.ints(*im2col.lower, *im2col.upper, im2col.channels, im2col.pixels)
        # What stands for a tensor without elements.
        self.ints(*described.shape)

    def kernel(self, kernel: KernelLaunch) -> None:
        self.text(kernel.name)
        self.exprs((*kernel.grid, *kernel.block, kernel.shared_bytes))
        kind = _PERSISTENT if kernel.persistent else int(kernel.by_hand)
        self.ints(*kernel.cluster, kernel.cooperative, kernel.dependent, kind)
        window, ratio = kernel.l2_hit_ratio or ("", 0.0)
        self.ints(self.params.get(window, -1), *struct.unpack("<q", struct.pack("<d", ratio)))
        self.ints(len(kernel.args))
        for arg in kernel.args:
            self.argument(arg)

    def argument(self, arg: Sequence[Any]) -> None:
        if arg[0] == "param":
            self.ints(_PARAM, self.params[arg[1]])
        elif arg[0] == "descriptor":
            self.ints(_DESCRIPTOR, self.maps[arg[1]])
        else:
            low, high = dtypes.integer_range(arg[2])
            self.ints(_VALUE, max(1, dtypes.bits(arg[2]) // 8), low, min(high, 2**63 - 1))
            self.expr(arg[1])


def _postfix(expr: Expr, variables: Mapping[str, int]) -> Iterable[tuple[int, int]]:
    if isinstance(expr, int):
        yield _CONST, expr
    elif expr[0] == "var":
        yield _VAR, variables[expr[1]]
    else:
        yield from _postfix(expr[1], variables)
        yield from _postfix(expr[2], variables)
        yield _FIRST_OPERATOR + OPERATORS.index(expr[0]), 0
