"""Data types: ``T.float16`` and its like are names, annotations and conversions at once."""

from __future__ import annotations

import builtins
import difflib
import re
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from tilelang.language.scalars import as_dtype, is_number

_PYTHON_TYPES: dict[type, str] = {
    builtins.int: "int32",
    builtins.float: "float32",
    builtins.bool: "bool",
}

# C's names, as torch and published programs use them.
_ALIASES = {
    "byte": "uint8",
    "char": "int8",
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    "uchar": "uint8",
    "uint": "uint32",
}
# Other names that people try.
_MISNAMED = {
    "bf16": "bfloat16",
    "boolean": "bool",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8": "float8_e4m3fn",
    "i8": "int8",
    "tf32": "tfloat32",
}

# TVM checks the names of the small floats, and takes any number of bits of the others.
_NAME = re.compile(
    r"(handle|bool|u?int(4|8|16|32|64)|bfloat16|float(16|32|64)|float[468]_[a-z0-9_]+?)(x[1-9]\d*)?"
)


NO_UNPACKED = (
    "found 4-bit floats in a byte each, which only tcgen05.mma (sm_100) takes, wanted a chip up to "
    "sm_90; T.float4_e2m1fn has two in a byte"
)
"""What is said about float4_e2m1_unpacked."""


def is_bits_dtype(name: str) -> builtins.bool:
    """Whether the scalar type ``name`` is an integer of whole bytes or bool."""
    return re.fullmatch(r"bool|u?int(8|16|32|64)", name) is not None


def is_number_dtype(name: str) -> builtins.bool:
    """Whether the target computes in the scalar type ``name``: integers of whole bytes and floats
    of 16 bits or more."""
    return re.fullmatch(r"u?int(8|16|32|64)|b?float(16|32|64)", name) is not None


class dtype(tvm_ffi.dtype):
    """A data type; it equals its name and C's (``T.float16 == "float16"``, ``"half"``), and the
    same type of torch, numpy and Python (``A.dtype == torch.float16``).

    Its hash is that of its name, which torch's and numpy's types and C's names do not share: a dict
    with keys of these does not find it, and ``{"float16": x}[A.dtype]`` does.

    Made from a name, a TVM or numpy or torch dtype, or Python's ``int`` (int32), ``float``
    (float32), ``bool``; ``T.ptr`` is an address, int64. Names may be C's: ``half``, ``float``,
    ``double``, ``char`` (int8), ``short``, ``int``, ``long`` (int64), ``byte`` (uint8), ``uchar``,
    ``uint``.

    Raises
    ------
    ValueError
        If there is no such data type.

    Example
    -------
    ``T.dtype("float16").bits == 16``; ``T.float32(1)`` is a constant; ``T.float16(x)`` converts
    ``x``.
    """

    __slots__ = ()

    def __new__(cls, value: Any) -> dtype:
        """Return ``value`` as a data type."""
        if isinstance(value, dtype):
            return value
        name = _name(value)
        scalar, lanes = re.fullmatch(r"(.*?)(x[1-9]\d*)?", name, re.DOTALL).groups()  # type: ignore[union-attr]
        name = _ALIASES.get(scalar, scalar) + (lanes or "")
        if name == "tfloat32":
            return tfloat32
        if name.startswith("float4_e2m1_unpacked"):
            raise ValueError(f"{name}: {NO_UNPACKED}")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{value!r} is not a data type; {_suggestion(name)}")
        return super().__new__(cls, name)

    def __eq__(self, other: object) -> builtins.bool:
        """Whether ``other`` is this type, or a name of it."""
        if str.__eq__(self, other) is True:
            return True
        name = other if isinstance(other, str) else _name(other) if _is_elsewhere(other) else ""
        return str.__eq__(self, _ALIASES.get(name, name))

    def __ne__(self, other: object) -> builtins.bool:
        """Whether ``other`` is something else."""
        return not self == other

    __hash__ = tvm_ffi.dtype.__hash__

    def __call__(self, *values: Any) -> ir.Expr:
        """Convert: no value gives a fresh variable, a number a constant, an expression a cast.

        A vector type takes one value for each lane and packs them.

        Raises
        ------
        TypeError
            If the number of values is neither 0, 1 nor the number of lanes.
        """
        if not values:
            return tirx.Var("", builtins.str(self))
        if len(values) == 1:
            return as_dtype(values[0], self)
        if len(values) != self.lanes:
            raise TypeError(
                f"{self} takes 1 or {self.lanes} values, found {len(values)}; give one for all "
                "lanes, or one for each"
            )
        scalar = self.with_lanes(1)
        return tirx.Shuffle([as_dtype(v, scalar) for v in values], list(range(len(values))))

    def with_lanes(self, lanes: builtins.int) -> dtype:
        """Return the vector type of ``lanes`` elements of this type."""
        return type(self)(super().with_lanes(lanes))

    @property
    def bytes(self) -> builtins.int:
        """Size in bytes; a size that is not whole is rounded up."""
        return (self.bits * self.lanes + 7) // 8

    def is_float4(self) -> builtins.bool:
        """Whether this is a 4-bit float."""
        return self.startswith("float4_")

    def is_float4_e2m1_unpacked(self) -> builtins.bool:
        """Whether this is a 4-bit float in a byte of its own: no, there is no such dtype here."""
        return False

    def is_float4_e2m1fn(self) -> builtins.bool:
        """Whether this is the 4-bit float of OCP MX, two of them in a byte."""
        return self.startswith("float4_e2m1fn")

    def as_torch(self) -> Any:
        """Return the torch dtype of a tensor of this type, None for ``handle``.

        Types that torch lacks map to what holds their bits: ``int4``, 4-bit floats and 6-bit ones
        (`tilelang.utils.float6`) to a byte type. ``float8_e4m3`` and ``float8_e5m2`` are the
        variant that the device of this torch build computes with.

        Raises
        ------
        ValueError
            If torch has no such type.
        """
        import torch

        if self == "handle":
            return None
        if self in ("int4", "uint4"):
            return torch.int8 if self == "int4" else torch.uint8
        if self == "float4_e2m1fn":
            return getattr(torch, "float4_e2m1fn_x2", torch.int8)
        if self in ("float6_e2m3fn", "float6_e3m2fn"):
            return torch.uint8
        name = builtins.str(self)
        if self in ("float8_e4m3", "float8_e5m2") and torch.version.hip:
            name += "fnuz"
        elif self == "float8_e4m3":
            name += "fn"
        found = getattr(torch, name, None)
        if not isinstance(found, torch.dtype):
            raise ValueError(f"torch has no dtype for {self}; use a scalar type that it has")
        return found


class TensorFloat32(dtype):
    """The type of ``T.tfloat32``: float32 in memory and in arithmetic, so that it equals
    ``T.float32``.

    What makes it another type is ``T.gemm``: on tensor cores it rounds operands that were allocated
    with it to 10 bits of mantissa, as with ``annotations={"allow_tf32": True}``.

    Example
    -------
    ``A_shared = T.alloc_shared((128, 32), T.tfloat32)``
    """

    __slots__ = ()

    def __new__(cls) -> TensorFloat32:
        """Return the one object of this type."""
        return tvm_ffi.dtype.__new__(cls, "float32")

    def with_lanes(self, lanes: builtins.int) -> dtype:
        """Return the vector type of float32."""
        return float32.with_lanes(lanes)

    def __repr__(self) -> str:
        return "dtype('tfloat32')"


def _is_elsewhere(value: Any) -> builtins.bool:
    """Whether ``value`` is a data type of torch, numpy or Python."""
    if isinstance(value, type):
        return value in _PYTHON_TYPES or issubclass(value, np.generic)
    return isinstance(value, np.dtype) or builtins.str(type(value)) == "<class 'torch.dtype'>"


def _name(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    if isinstance(value, ir.PrimType):
        return builtins.str(value.dtype)
    text = builtins.str(value)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    if _is_pointer(value):
        return "int64"
    if isinstance(value, np.dtype | type):
        return np.dtype(value).name
    return text


def _suggestion(name: str) -> str:
    """Return what to write instead of a name that is no data type."""
    meant = _MISNAMED.get(name.lower())
    if meant is None:
        close = difflib.get_close_matches(name.lower(), _SCALARS, n=1)
        meant = close[0] if close else None
    if meant is None:
        return "use a name such as 'float16' or 'int8x4'"
    return f"did you mean {meant!r}?"


def _is_pointer(value: Any) -> builtins.bool:
    # Imported here because pointers.py builds on this file.
    from tilelang.language.pointers import ptr

    return value is ptr or isinstance(value, ptr)


def dtype_of(value: Any) -> dtype:
    """Return the data type of a buffer, an expression or a number."""
    if is_number(value):
        return dtype(type(value) if type(value) in _PYTHON_TYPES else np.asarray(value).dtype)
    if isinstance(value, ir.TensorRegion):
        return dtype_of(value.source)
    ty = value.ty
    return dtype(ty.dtype if isinstance(ty, tirx.BufferType) else ty)


int4 = dtype("int4")
int8 = dtype("int8")
int16 = dtype("int16")
int32 = dtype("int32")
int64 = dtype("int64")
uint4 = dtype("uint4")
uint8 = dtype("uint8")
uint16 = dtype("uint16")
uint32 = dtype("uint32")
uint64 = dtype("uint64")
bool = dtype("bool")
float16 = dtype("float16")
bfloat16 = dtype("bfloat16")
float32 = dtype("float32")
float64 = dtype("float64")
tfloat32 = TensorFloat32()
float8_e4m3 = dtype("float8_e4m3")
float8_e4m3fn = dtype("float8_e4m3fn")
float8_e4m3fnuz = dtype("float8_e4m3fnuz")
float8_e4m3b11fnuz = dtype("float8_e4m3b11fnuz")
float8_e3m4 = dtype("float8_e3m4")
float8_e5m2 = dtype("float8_e5m2")
float8_e5m2fnuz = dtype("float8_e5m2fnuz")
float8_e8m0fnu = dtype("float8_e8m0fnu")
float6_e2m3fn = dtype("float6_e2m3fn")
float6_e3m2fn = dtype("float6_e3m2fn")
float4_e2m1fn = dtype("float4_e2m1fn")

_SCALARS = [name for name, value in vars().items() if isinstance(value, dtype)]

short, int, long, uint = int16, int32, int64, uint32
half, float, double = float16, float32, float64
