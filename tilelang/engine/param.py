"""What lowering returns: the compiled program and its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import tvm
from tvm.target import Target

from tilelang.engine.launch_plan import LaunchPlan
from tilelang.utils import dtypes

if TYPE_CHECKING:
    from tilelang.cuda.nvrtc import Cubin
    from tilelang.hip.compile import CodeObject


def arguments(function: tvm.tirx.PrimFunc) -> list[tvm.ir.Var]:
    """The parameters of a traced function that a caller knows of: without its workspaces, and
    without what tells it of other ranks."""
    attrs = function.attrs or {}
    hidden = int(attrs.get("tilelang_workspaces", 0)) + int(attrs.get("tilelang_team", 0))
    return list(function.params)[: len(function.params) - hidden]


@dataclass(frozen=True)
class KernelParam:
    """One parameter of a kernel: its dtype, and its shape, empty for a scalar.

    A dimension is an int, or an expression where it is symbolic.
    """

    dtype: str
    shape: tuple[int | tvm.ir.Expr, ...]
    scalar: bool = False

    @staticmethod
    def of(variable: tvm.ir.Var) -> KernelParam:
        """The parameter for a parameter of a PrimFunc."""
        if isinstance(variable.ty, tvm.tirx.BufferType):
            return KernelParam.from_buffer(variable)
        return KernelParam.from_var(variable)

    @staticmethod
    def from_buffer(buffer: tvm.ir.Var) -> KernelParam:
        """The parameter for a buffer, which in TVM is a variable of a buffer type."""
        shape = (int(dim) if isinstance(dim, tvm.tirx.IntImm) else dim for dim in buffer.shape)
        return KernelParam(str(buffer.dtype), tuple(shape))

    @staticmethod
    def from_var(var: tvm.ir.Var) -> KernelParam:
        """The parameter for a scalar variable, or a pointer (``handle``)."""
        is_pointer = isinstance(var.ty, tvm.ir.PointerType)
        return KernelParam("handle" if is_pointer else str(var.ty.dtype), (), scalar=True)

    def is_scalar(self) -> bool:
        """Whether the parameter is a number and not a tensor."""
        return self.scalar

    def is_unsigned(self) -> bool:
        """Whether the dtype is an unsigned integer."""
        return self.dtype.startswith("uint")

    def is_float8(self) -> bool:
        """Whether the dtype is a floating point format of 8 bits."""
        return self.dtype.startswith("float8")

    def is_float4(self) -> bool:
        """Whether the dtype is a floating point format of 4 bits."""
        return self.dtype.startswith("float4")

    def is_boolean(self) -> bool:
        """Whether the dtype is bool."""
        return self.dtype == "bool"

    def torch_dtype(self) -> torch.dtype:
        """The dtype of a tensor for this parameter. Raises `ValueError` where torch has none."""
        return dtypes.torch_dtype(self.dtype)


@dataclass
class CompiledArtifact:
    """A lowered program: TVM modules of host and device, the device source, and how to launch it.

    `rt_mod` is the binary for the GPU where `tilelang.lower` was asked for it. A launch plan takes
    the place of a host module (docs/design.md, section 6).
    """

    host_mod: tvm.IRModule
    device_mod: tvm.IRModule
    params: list[KernelParam]
    kernel_source: str
    launch_plan: LaunchPlan
    target: Target
    target_host: Target | None = None
    rt_mod: Cubin | CodeObject | None = None
