"""TVM's own statements under their own names: what programs written for its builder use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder.base import IRBuilderFrame
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.loops import LoopNest, bounds_of
from tilelang.language.scalars import as_dtype, as_expr, as_int, describe, is_buffer, is_scalar_expr
from tilelang.language.tracer import BuilderFrame, Frame, Tracer, current_tracer


def _condition(what: str, value: Any) -> Any:
    current_tracer(what)
    value = as_expr(value)
    if isinstance(value, int):
        return tirx.const(bool(value), "bool")
    if is_scalar_expr(value) and not is_buffer(value):
        return as_dtype(value, "bool")
    raise TypeError(
        f"the condition of {what} is {describe(value)}, wanted a number or a comparison"
    )


def If(condition: Any) -> Frame:
    """Branch; the two sides are ``T.Then()`` and ``T.Else()`` in its body.

    Plain ``if`` means the same. Unlike it, a condition that Python knows is not decided while
    tracing.

    Raises
    ------
    TypeError
        If the condition is not a scalar.

    Example
    -------
    ``with T.If(i < n):`` around ``with T.Then(): A[i] = 1`` and ``with T.Else(): A[i] = 0``
    """
    return BuilderFrame(tir_builder.If(_condition("T.If", condition)), "if")


def Then() -> Frame:
    """Open the side of a ``T.If`` that runs where its condition holds.

    Raises
    ------
    RuntimeError
        If it is not directly inside of a ``T.If``.

    Example
    -------
    ``with T.If(i < n):`` around ``with T.Then(): A[i] = 1``
    """
    return _side("Then", tir_builder.Then)


def Else() -> Frame:
    """Open the side of a ``T.If`` that runs where its condition does not hold.

    Raises
    ------
    RuntimeError
        If it is not directly inside of a ``T.If``.

    Example
    -------
    ``with T.If(i < n):`` around ``with T.Then(): A[i] = 1`` and ``with T.Else(): A[i] = 0``
    """
    return _side("Else", tir_builder.Else)


def _side(name: str, make: Any) -> Frame:
    if current_tracer(f"T.{name}").scope.kind != "if":
        raise RuntimeError(
            f"T.{name} is not inside of a T.If; write `with T.If(condition):` around"
        )
    return BuilderFrame(make(), "branch")


def While(condition: Any) -> Frame:
    """Loop while the condition holds; plain ``while`` means the same.

    Raises
    ------
    TypeError
        If the condition is not a scalar.
    RuntimeError
        If it is always true.

    Example
    -------
    ``with T.While(i < n): i += 1`` with ``i = T.alloc_var(T.int32, 0)``
    """
    test = _condition("T.While", condition)
    if as_int(test):
        raise RuntimeError(
            "Infinite while loop: the condition of T.While is always true; compare a T.alloc_var"
        )
    return BuilderFrame(tir_builder.While(test), "while")


class _Let(Frame):
    """The statements in which a variable has a value."""

    def __init__(self, value: Any, var: ir.Var | None):
        self.value = value
        self.var = var

    def open(self, tracer: Tracer) -> ir.Var:
        """Bind the variable in the frame's scope."""
        var = tir_builder.Bind(self.value, var=self.var)
        if self.var is None:
            tracer.add_unnamed(var)
        tracer.own(var)
        return var

    def builder_frames(self) -> list[IRBuilderFrame]:
        """Return none: the variable is bound by a statement."""
        return []


def LetStmt(value: Any, dtype: Any = None, *, var: ir.Var | None = None) -> Frame:
    """Bind a scalar to an immutable variable for the body; plain assignment means the same.

    Parameters
    ----------
    value
        A number or a scalar expression.
    dtype
        Data type that it is cast to; its own if None.
    var
        The variable; a new one if None.

    Raises
    ------
    TypeError
        If ``value`` is not a scalar.

    Example
    -------
    ``with T.LetStmt(A[0] * 2) as x: B[0] = x + x``
    """
    current_tracer("T.LetStmt")
    value = tirx.const(value) if isinstance(value, int | float) else as_expr(value)
    if not is_scalar_expr(value) or is_buffer(value):
        raise TypeError(
            f"T.LetStmt found {describe(value)}, wanted a number or a scalar expression"
        )
    if var is not None:
        dtype = var.ty.dtype
    return _Let(value if dtype is None else as_dtype(value, str(dtype)), var)


def let(var: ir.Var, value: Any) -> Frame:
    """Bind ``var`` to a scalar for the body (see ``LetStmt``).

    Raises
    ------
    TypeError
        If ``value`` is not a scalar.

    Example
    -------
    ``x = T.float32()`` and ``with T.let(x, A[0] * 2): B[0] = x + x``
    """
    return LetStmt(value, var=var)


def sblock(name: str = "") -> Frame:
    """Open one of TVM's blocks, a name for a group of statements that changes nothing.

    Example
    -------
    ``with T.sblock("update"): T.copy(A, B)``
    """
    current_tracer("T.sblock")
    return BuilderFrame(tir_builder.sblock(name))


def reads(*regions: Any) -> None:
    """Declare what a ``T.sblock`` reads; no effect, the compiler finds it itself.

    Raises
    ------
    TypeError
        If an argument is not a region, an element or a buffer.

    Example
    -------
    ``T.reads(A[0:4, :])`` in ``with T.sblock("update"):``
    """
    _check_places("T.reads", regions)


def writes(*regions: Any) -> None:
    """Declare what a ``T.sblock`` writes; no effect, the compiler finds it itself.

    Raises
    ------
    TypeError
        If an argument is not a region, an element or a buffer.

    Example
    -------
    ``T.writes(B[0:4, :])`` in ``with T.sblock("update"):``
    """
    _check_places("T.writes", regions)


def _check_places(what: str, regions: tuple[Any, ...]) -> None:
    current_tracer(what)
    for region in regions:
        if not is_buffer(region) and not isinstance(region, ir.TensorRegion | ir.TensorLoad):
            raise TypeError(f"{what} found {describe(region)}, wanted a region such as A[0:4, :]")


def decl_buffer(
    shape: Any, dtype: Any = "float32", data: Any = None, scope: str = "global"
) -> ir.Var:
    """Return another name of the memory ``data`` points to, without allocating any.

    Parameters
    ----------
    shape, dtype
        Extents and data type of the elements, row-major.
    data
        The pointer of a buffer, ``A.data``.
    scope
        The memory that it points to.

    Raises
    ------
    ValueError
        If ``data`` is missing.

    Example
    -------
    ``rows = T.decl_buffer((4, 32), T.float32, data=A.data)``
    """
    current_tracer("T.decl_buffer")
    if data is None:
        raise ValueError(
            "T.decl_buffer found no data, wanted the pointer of a buffer, A.data; T.alloc_shared "
            "and its like allocate"
        )
    return tir_builder.decl_buffer(shape, str(dtype), data=data, scope=scope)


def thread_binding(
    start: Any,
    stop: Any = None,
    thread: str = "threadIdx.x",
    *,
    annotations: Mapping[str, Any] | None = None,
) -> LoopNest:
    """Iterate with the blocks or the threads of a launch, one iteration in each; ``T.Kernel`` is
    the usual way to make both.

    Parameters
    ----------
    start, stop
        Bounds, ``T.thread_binding(n)`` is 0 to n - 1. ``stop`` may be left out before ``thread``.
    thread
        ``blockIdx.x`` to ``threadIdx.z``.

    Raises
    ------
    TypeError
        If a bound is not an integer.

    Example
    -------
    ``for i in T.thread_binding(32, "threadIdx.x"): A[i] = 0``
    """
    if isinstance(stop, str):
        thread, stop = stop, None
    start, stop = bounds_of("thread_binding", start, stop)
    notes = dict(annotations) if annotations else None
    return LoopNest(
        "parallel", [lambda: tir_builder.thread_binding(start, stop, thread, annotations=notes)]
    )


def launch_thread(thread: str, extent: Any) -> Frame:
    """Open the statements that the blocks or threads of a launch run; the value is the index.

    Raises
    ------
    TypeError
        If ``thread`` is no name, or ``extent`` no integer.

    Example
    -------
    ``with T.launch_thread("blockIdx.x", 4) as bx:``
    """
    current_tracer("T.launch_thread")
    if not isinstance(thread, str) or (as_int(extent) is None and not is_scalar_expr(extent)):
        raise TypeError(
            f"T.launch_thread found {describe(thread)} and {describe(extent)}, wanted the name of "
            "an index, such as 'threadIdx.x', and its extent"
        )
    return BuilderFrame(tir_builder.launch_thread(thread, extent), "kernel part")


def func_attr(attributes: Mapping[str, Any]) -> None:
    """Add attributes to the program, such as ``global_symbol``, its name.

    Raises
    ------
    TypeError
        If it is no mapping from names.
    JITNoBuilderError
        Outside of a traced function.

    Example
    -------
    ``T.func_attr({"global_symbol": "gemm"})``
    """
    tracer = current_tracer("T.func_attr")
    if not isinstance(attributes, Mapping) or not all(isinstance(k, str) for k in attributes):
        raise TypeError(f"T.func_attr found {describe(attributes)}, wanted a dict from names")
    tracer.function_attrs.update(attributes)
