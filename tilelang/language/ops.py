"""The tile operators in IR, and how a printed program reads them back.

The operators themselves are registered by the C++ library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.tracer import current_tracer

_VOID = ir.PrimType("void")


def tile_op(name: str) -> ir.Op:
    """Return the operator ``tl.tileop.<name>``."""
    return ir.Op.get(f"tl.tileop.{name}")


def tile_call(name: str, arguments: list[Any], attrs: dict[str, Any] | None = None) -> ir.Call:
    """Return a call of ``tl.tileop.<name>``; ``attrs`` holds the keywords that were given."""
    args = [_argument(a) for a in arguments]
    return ir.Call(tile_op(name), args, attrs or None, ret_ty=_VOID)


def device_call(name: str, arguments: list[Any]) -> ir.Call:
    """Return a call of the thread program's intrinsic ``tl.<name>``, which returns nothing."""
    args = [_argument(a) for a in arguments]
    return ir.Call(ir.Op.get(f"tl.{name}"), args, ret_ty=_VOID)


def emit_device_op(name: str, arguments: list[Any]) -> None:
    """Add the statement ``tl.<name>(arguments)`` to the kernel that is being traced.

    Raises
    ------
    ValueError
        If there is no enclosing ``T.Kernel``.
    """
    current_tracer(f"T.{name}").kernel_scope(f"T.{name}")
    tir_builder.evaluate(device_call(name, arguments))


def emit_tile_op(name: str, arguments: list[Any], attrs: dict[str, Any] | None = None) -> None:
    """Add the statement ``tl.tileop.<name>(arguments)`` to the kernel that is being traced.

    Raises
    ------
    ValueError
        If there is no enclosing ``T.Kernel``.
    """
    current_tracer(f"T.{name}").kernel_scope(f"T.{name}")
    tir_builder.evaluate(tile_call(name, arguments, attrs))


def intrinsic_call(name: str, dtype: str, arguments: list[Any]) -> ir.Call:
    """Return a call of ``tl.<name>``; strings among the arguments are words of C++ in ``tl::``."""
    args = [ir.StringImm(f"tl::{a}") if isinstance(a, str) else a for a in arguments]
    return ir.Call(ir.Op.get(f"tl.{name}"), args, ret_ty=ir.PrimType(dtype))


def _argument(value: Any) -> Any:
    if isinstance(value, bool):
        return tirx.const(value, "bool")
    if isinstance(value, int):
        return tirx.const(value, "int32")
    if isinstance(value, str):
        return ir.StringImm(value)
    return value


class _ScriptNamespace:
    """``T.tl`` in printed programs: builds the calls that the printer wrote."""

    @staticmethod
    def copy(*arguments: Any) -> ir.Call:
        return tile_call("copy", list(arguments))

    @staticmethod
    def tma_copy(*arguments: Any) -> ir.Call:
        return tile_call("tma_copy", list(arguments))

    @staticmethod
    def copy_cluster(*arguments: Any) -> ir.Call:
        return tile_call("copy_cluster", list(arguments))

    @staticmethod
    def fill(*arguments: Any) -> ir.Call:
        return tile_call("fill", list(arguments))

    @staticmethod
    def atomic(*arguments: Any) -> ir.Call:
        return tile_call("atomic", list(arguments))

    @staticmethod
    def transpose(*arguments: Any) -> ir.Call:
        return tile_call("transpose", list(arguments))

    @staticmethod
    def im2col(*arguments: Any) -> ir.Call:
        return tile_call("im2col", list(arguments))

    @staticmethod
    def gemm(*arguments: Any) -> ir.Call:
        return tile_call("gemm", list(arguments))

    @staticmethod
    def reduce(*arguments: Any) -> ir.Call:
        return tile_call("reduce", list(arguments))

    @staticmethod
    def scan(*arguments: Any) -> ir.Call:
        return tile_call("scan", list(arguments))

    @staticmethod
    def fetch_tile(*arguments: Any) -> ir.Call:
        return tile_call("fetch_tile", list(arguments))

    @staticmethod
    def reducer_init(*arguments: Any) -> ir.Call:
        return tile_call("reducer_init", list(arguments))

    @staticmethod
    def reducer_finalize(*arguments: Any) -> ir.Call:
        return tile_call("reducer_finalize", list(arguments))

    def __getattr__(self, name: str) -> Callable[..., ir.Call]:
        """The thread program's intrinsics that return nothing. None begins with an underscore: by
        such names TVM and Python ask what else the namespace is."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: device_call(name, list(arguments))


tir_builder.register_script_namespace("tl", _ScriptNamespace())
