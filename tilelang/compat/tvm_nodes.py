"""What kernels ask of TVM's nodes: ``x.dtype`` of every expression, and ``tirx.PrimExpr``.

TVM gives a node a dtype where it is a buffer. A plain Python helper, whose text is not rewritten,
asks the nodes themselves.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.runtime import ObjectConvertible

from tilelang.language.dtypes import dtype, dtype_of
from tilelang.language.scalars import is_buffer


def _dtype(self: Any) -> dtype:
    """The element type of a buffer, a region, an expression."""
    value = self.asobject() if isinstance(self, ObjectConvertible) else self
    ty = getattr(value, "ty", None)
    if isinstance(value, ir.TensorRegion) or is_buffer(value) or isinstance(ty, ir.PrimType):
        return dtype_of(value)
    if isinstance(ty, ir.PointerType):
        return dtype("handle")
    raise AttributeError(f"{type(value).__name__} has no dtype")


for _node in (ir.Expr, ir.Var, ObjectConvertible):
    _node.dtype = property(_dtype)

tirx.PrimExpr = ir.Expr
