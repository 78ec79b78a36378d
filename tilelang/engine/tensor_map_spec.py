"""Tensor maps of a program: the operand ``tl.create_tma_descriptor`` of a copy, with its fields by
name. `src/op/tensor_map_spec.h` is the same in C++."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from tvm import ir

import tilelang._ffi  # noqa: F401  the operator is registered by the library
from tilelang.engine.tensor_map import Im2col

_OP = "tl.create_tma_descriptor"


@dataclass(frozen=True)
class TensorMapSpec:
    """What TMA is told about a tensor, and the box of it that one copy moves, before a call gives
    the sizes. Dimensions are innermost first.

    Attributes:
        pointer: to the first element of the tensor; the tensor itself in a launch.
        shape: extents in elements, integers or expressions over sizes of the call.
        byte_strides: of all dimensions but the innermost, which is contiguous.
        dtype, box, element_strides, swizzle, l2_promotion, oob_fill, im2col: as in
            `tilelang.engine.tensor_map.TensorMap`.
        peers: whether it is a map for each rank, and `pointer` to the table of the addresses that
            a symmetric tensor has on all ranks.

    Example: ``TensorMapSpec.from_call(call).swizzle == 128``
    """

    pointer: ir.Expr
    shape: tuple[ir.Expr, ...]
    byte_strides: tuple[ir.Expr, ...]
    dtype: str
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int
    l2_promotion: int
    oob_fill: Literal["zeros", "nan"]
    im2col: Im2col | None = None
    peers: bool = False

    @staticmethod
    def is_call(value: Any) -> bool:
        """Whether a value is a call that describes a tensor map."""
        return isinstance(value, ir.Call) and value.op.name == _OP

    def to_call(self) -> ir.Call:
        """The call: pointer, shape and strides are its arguments, the rest its attributes."""
        rest = {field.name: getattr(self, field.name) for field in fields(self)[3:]}
        attrs = {
            name: value for name, value in rest.items() if value is not None and value is not False
        }
        if self.im2col is not None:
            attrs["im2col"] = asdict(self.im2col)
        arguments = [self.pointer, *self.shape, *self.byte_strides]
        return ir.Call(ir.Op.get(_OP), arguments, attrs, ret_ty=self.pointer.ty)

    @staticmethod
    def from_call(call: ir.Call) -> TensorMapSpec:
        """What `to_call`, in Python or in C++, has made a call of."""
        rank, attrs = len(call.args) // 2, call.attrs
        pixels = attrs.get("im2col")
        return TensorMapSpec(
            pointer=call.args[0],
            shape=tuple(call.args[1 : 1 + rank]),
            byte_strides=tuple(call.args[1 + rank :]),
            dtype=str(attrs["dtype"]),
            box=tuple(attrs["box"]),
            element_strides=tuple(attrs["element_strides"]),
            swizzle=attrs["swizzle"],
            l2_promotion=attrs["l2_promotion"],
            oob_fill=str(attrs["oob_fill"]),  # type: ignore[arg-type]
            im2col=None if pixels is None else Im2col(**pixels),
            peers=bool(attrs.get("peers", False)),
        )
