"""Hints to the compiler that hold for the rest of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, sym, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang._ffi import get_function
from tilelang.language.launch import enclosing_kernel
from tilelang.language.scalars import as_dtype, as_int, describe, is_buffer, is_number
from tilelang.language.thread_reductions import ReduceScope
from tilelang.language.tracer import BuilderFrame, Frame, current_tracer
from tilelang.layout import Fragment, Layout
from tilelang.layout.layout import tensor_shape

_LayoutOf = Layout | Callable[..., Any]
_ORDERS = {"row": "Row", "column": "Column", "mlx": "MLX"}


def use_swizzle(
    panel_size: int, order: str = "row", enable: bool = True, chiplets: int = 1
) -> None:
    """Visit the blocks of a 2-D grid in panels, so that neighbours in time share operands in L2.

    Parameters
    ----------
    panel_size
        Number of rows (columns) of blocks of a panel.
    order
        ``row`` or ``column``, whose panels are walked to and fro, or ``mlx``: rows, all walked
        forwards.
    enable
        False: no effect.
    chiplets
        Chiplets with an L2 cache each, to which the chip deals blocks in turn: 8 of an MI300 or
        MI350 (XCDs; those that its partition mode leaves). The panels are divided among them, so
        that the blocks of a chiplet are neighbours.

    Raises
    ------
    ValueError
        Outside of a kernel; if ``panel_size`` or ``chiplets`` is not positive, or ``order`` is
        another word.

    Example
    -------
    ``T.use_swizzle(10)``
    """
    tracer = current_tracer("T.use_swizzle")
    tracer.kernel_scope("T.use_swizzle")
    if order not in _ORDERS:
        raise ValueError(f"order of T.use_swizzle is {order!r}, wanted 'row', 'column' or 'mlx'")
    panel = as_int(panel_size)
    if panel is None or panel < 1:
        raise ValueError(f"panel_size of T.use_swizzle is {panel_size!r}, wanted a positive int")
    dealt = as_int(chiplets)
    if dealt is None or dealt < 1:
        raise ValueError(f"chiplets of T.use_swizzle is {chiplets!r}, wanted a positive int")
    if enable:
        sizes = f"{panel}" if dealt == 1 else f"{panel}, {dealt}"
        pattern = f"rasterization2D{_ORDERS[order]}<{sizes}>"
        frame = tir_builder.attr(0, "threadblock_swizzle_pattern", pattern)
        tracer.enter(BuilderFrame(frame), rest=True)


def annotate_layout(layouts: Mapping[ir.Var, _LayoutOf]) -> None:
    """Say where the elements of buffers live; the compiler chooses for the buffers not named.

    Parameters
    ----------
    layouts
        For each buffer of ``T.alloc_shared`` and each tensor in global memory a ``T.Layout``, for
        each buffer of ``T.alloc_fragment`` a ``T.Fragment``, of the buffer's shape. A function
        ``(i, j) -> coordinates`` stands for the ``T.Layout`` of it.

        A tensor's layout permutes its elements: this kernel puts and finds them at these places,
        whatever accesses them. A kernel that is to read what another one wrote gives the same
        layout; the tensor's shape, and what is in bounds, stay what they are. Extents may be
        symbols. The coordinates are sums of ``index // constant % constant`` times constants (any
        expressions for up to a million elements), and what the layout divides has to be a multiple.

    Raises
    ------
    TypeError
        If a key is no buffer, or a value no layout.
    ValueError
        Outside of a kernel; if a buffer is memory of one thread, or is named twice; if the layout
        has another shape, puts two elements in one place, or needs more threads than the block
        has. When it is compiled, if a tensor's layout is not shown to be a permutation of its
        elements; if the tensor has strides; if a copy of it by TMA is demanded.

    Example
    -------
    ``T.annotate_layout({A_shared: tilelang.layout.make_swizzled_layout(A_shared)})``
    """
    kernel = enclosing_kernel("T.annotate_layout")
    memory = current_tracer("T.annotate_layout").memory
    for buffer, given in layouts.items():
        layout = _checked_layout(buffer, given, kernel.num_threads)
        for other in [*kernel.layouts, *kernel.tensor_layouts]:
            # Two names of a tensor are for CheckTensorLayouts, which names both statements.
            is_name = buffer.scope() != "global" and memory.get(other, other).same_as(
                memory.get(buffer, buffer)
            )
            if other.same_as(buffer) or is_name:
                also = "" if other.same_as(buffer) else f" as {other.name}, a name of its memory"
                raise ValueError(
                    f"T.annotate_layout: {buffer.name} has a layout already{also}; give it one only"
                )
        if buffer.scope() == "global":
            span = current_tracer("T.annotate_layout").span
            kernel.tensor_layouts[buffer] = layout
            kernel.tensor_layout_places[buffer] = tirx.const(span.line, "int32", span)
        else:
            kernel.layouts[buffer] = layout


def _checked_layout(buffer: Any, given: Any, threads: int) -> Layout:
    if not is_buffer(buffer):
        raise TypeError(f"T.annotate_layout: found {describe(buffer)}, wanted a buffer as key")
    scope = buffer.scope()
    if scope not in ("local.fragment", "global") and not scope.startswith("shared"):
        raise ValueError(
            f"T.annotate_layout: {buffer.name} is in scope {scope}, wanted a buffer of "
            "T.alloc_shared or T.alloc_fragment, or a tensor; memory of one thread is row-major"
        )
    wanted = Fragment if scope == "local.fragment" else Layout
    shape = tensor_shape(buffer.shape)
    if not isinstance(given, Layout) and callable(given) and wanted is Layout:
        given = Layout(shape, given)
    if not isinstance(given, wanted) or (wanted is Layout and isinstance(given, Fragment)):
        raise TypeError(
            f"T.annotate_layout: found {given!r} for {buffer.name} in scope {scope}, wanted a "
            f"T.{wanted.__name__}"
        )
    if not _is_same_shape(given.get_input_shape(), shape):
        raise ValueError(
            f"T.annotate_layout: found a layout of shape {tuple(given.get_input_shape())} for "
            f"{buffer.name}, wanted the buffer's shape {tuple(shape)}"
        )
    # A tensor may be too large for a table: the compiler looks at its layout.
    found = scope != "global" and get_function("LayoutDefect")(given)
    if found:
        raise ValueError(
            f"T.annotate_layout: found {found} in the layout of {buffer.name}, wanted a place of "
            f"its own for each element\n  {given}"
        )
    if isinstance(given, Fragment) and given.get_thread_size() > threads:
        raise ValueError(
            f"T.annotate_layout: the layout of {buffer.name} needs {given.get_thread_size()} "
            f"threads, wanted at most {threads}, the threads of the block"
        )
    return given


def _is_same_shape(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    def is_same(a: Any, b: Any) -> bool:
        if isinstance(a, int) or isinstance(b, int):
            return isinstance(a, int) and isinstance(b, int) and a == b
        return sym.Analyzer().can_prove_equal(a, b)

    return len(found) == len(wanted) and all(map(is_same, found, wanted))


def annotate_restrict_buffers(*buffers: Any) -> None:
    """Say that tensors may share memory with others: the kernel's pointers are passed without
    ``__restrict__``, and its accesses of these tensors keep their order.

    Parameters
    ----------
    buffers
        Tensors that the function takes.

    Raises
    ------
    ValueError
        Outside of a kernel; if one is not a global tensor.

    Example
    -------
    ``T.annotate_restrict_buffers(A, B)`` where a call may pass one tensor for both
    """
    tracer = current_tracer("T.annotate_restrict_buffers")
    tracer.kernel_scope("T.annotate_restrict_buffers")
    for buffer in buffers:
        if not is_buffer(buffer) or buffer.scope() != "global":
            raise ValueError(
                f"T.annotate_restrict_buffers found {describe(buffer)}, wanted a global tensor; "
                "other memory has no pointer that a call passes"
            )
        frame = tir_builder.attr(0, "tl.aliased_buffer", buffer.name)
        tracer.enter(BuilderFrame(frame), rest=True)


def annotate_min_blocks_per_sm(blocks: int) -> None:
    """Ask for registers to be so few that ``blocks`` blocks fit on a multiprocessor.

    It is the second argument of ``__launch_bounds__`` (CUDA C++ Programming Guide, "Launch
    Bounds"). More than the target has room for, by its threads and the kernel's shared memory, is
    lowered to what it has, with a warning that says so.

    Raises
    ------
    ValueError
        Outside of a kernel; if ``blocks`` is not a positive int.

    Example
    -------
    ``T.annotate_min_blocks_per_sm(2)``
    """
    tracer = current_tracer("T.annotate_min_blocks_per_sm")
    tracer.kernel_scope("T.annotate_min_blocks_per_sm")
    count = as_int(blocks)
    if count is None or count < 1:
        raise ValueError(
            f"T.annotate_min_blocks_per_sm found {blocks!r}, wanted a positive int of blocks"
        )
    tracer.enter(BuilderFrame(tir_builder.attr(0, "tl.min_blocks_per_sm", count)), rest=True)


def annotate_l2_hit_ratio(ratios: Any, ratio: Any = None) -> None:
    """Ask for a share of a tensor to stay in the L2 cache while the kernel runs: the launch has an
    access policy window over it (CUDA C++ Programming Guide, "L2 Policy for Persisting Accesses").

    The window begins where the tensor does and is at most as large as the device allows. The first
    such launch on a device sets a part of the cache aside for persisting accesses, unless the
    program has done that. The emulator has no cache: there it changes nothing.

    Parameters
    ----------
    ratios
        A dict of one tensor that the function takes to its share, above 0 and at most 1; or the
        tensor, whose share is ``ratio``.

    Raises
    ------
    ValueError
        Outside of a kernel; for what is no global tensor, no such share, or a second tensor of the
        kernel; when it is compiled, for a tensor that is no parameter.

    Example
    -------
    ``T.annotate_l2_hit_ratio({A: 0.5})``
    """
    tracer = current_tracer("T.annotate_l2_hit_ratio")
    tracer.kernel_scope("T.annotate_l2_hit_ratio")
    pairs = dict(ratios) if isinstance(ratios, Mapping) else {ratios: ratio}
    for buffer, share in pairs.items():
        if not is_buffer(buffer) or buffer.scope() != "global":
            raise ValueError(
                f"T.annotate_l2_hit_ratio found {describe(buffer)}, wanted a global tensor; other "
                "memory is not cached in L2"
            )
        if not is_number(share) or not 0 < share <= 1:
            raise ValueError(
                f"T.annotate_l2_hit_ratio found {share!r} for {buffer.name}, wanted a share above "
                "0 and at most 1; leave it out for none"
            )
        frame = tir_builder.attr(buffer.name, "tl.l2_hit_ratio", tirx.const(share, "float32"))
        tracer.enter(BuilderFrame(frame), rest=True)


def annotate_compile_flags(*flags: str | Sequence[str]) -> None:
    """Add options of the CUDA compiler for this function; those of ``tilelang.compile`` follow
    them.

    Parameters
    ----------
    flags
        Options, or lists of them; a string is split at white space.

    Raises
    ------
    TypeError
        If one is not a string.

    Example
    -------
    ``T.annotate_compile_flags("-use_fast_math")``
    """
    tracer = current_tracer("T.annotate_compile_flags")
    given: list[Any] = [
        f for flag in flags for f in (flag if isinstance(flag, list | tuple) else [flag])
    ]
    for flag in given:
        if not isinstance(flag, str):
            raise TypeError(f"T.annotate_compile_flags found {describe(flag)}, wanted strings")
    known = tracer.function_attrs.setdefault("tilelang_compile_flags", [])
    known.extend(word for flag in given for word in flag.split())


def annotate_pass_configs(configs: Mapping[Any, Any]) -> None:
    """Set pass configurations for this function; those of ``tilelang.compile`` override them.

    Parameters
    ----------
    configs
        Values by ``tilelang.PassConfigKey`` or its string.

    Raises
    ------
    TypeError
        If it is not a mapping.

    Example
    -------
    ``T.annotate_pass_configs({tilelang.PassConfigKey.TL_DISABLE_DATA_RACE_CHECK: True})``
    """
    tracer = current_tracer("T.annotate_pass_configs")
    if not isinstance(configs, Mapping):
        raise TypeError(
            f"T.annotate_pass_configs found {describe(configs)}, wanted a mapping of keys to values"
        )
    known = tracer.function_attrs.setdefault("tilelang_pass_configs", {})
    known.update({str(getattr(key, "value", key)): value for key, value in configs.items()})


def import_source(source: str | None = None) -> None:
    """Put C++ text before the kernel; ``T.call_extern`` calls what it defines.

    Parameters
    ----------
    source
        Functions, types, macros, after the device headers; None for nothing.

    Raises
    ------
    ValueError, TypeError
        Outside of a kernel; if it is not a string.

    Example
    -------
    ``T.import_source("__device__ float twice(float x) { return x + x; }")``
    """
    kernel = enclosing_kernel("T.import_source")
    if source is None:
        return
    if not isinstance(source, str):
        raise TypeError(f"T.import_source found {describe(source)}, wanted C++ text")
    if source not in kernel.preludes:
        kernel.preludes.append(source)


def attr(node: Any, key: str, value: Any) -> Frame:
    """Give statements an attribute: ``with T.attr(node, key, value): ...``.

    Attributes are how passes talk to each other. One that nothing reads is refused when the kernel
    is printed. ``reduce_scope`` says how ``T.tvm_thread_allreduce`` combines. In an
    ``async_scope`` of value 1, stores to shared memory of what is loaded from global memory are
    cp.async where they have 4, 8 or 16 bytes (PTX ISA, cp.async), plain stores elsewhere: the
    program commits and waits (``T.ptx_commit_group``, ``T.ptx_wait_group``) and meets at a barrier.

    Raises
    ------
    TypeError
        If the node of a ``reduce_scope`` is no ``T.comm_reducer``.
    ValueError
        If the value of an ``async_scope`` is not 1.

    Example
    -------
    ``with T.attr(0, "pragma_unroll_factor", 4): ...`` around a loop
    """
    current_tracer("T.attr")
    if key == "reduce_scope":
        return ReduceScope(node)
    if key == "async_scope":
        if as_int(value) != 1:
            raise ValueError(
                f"T.attr: found async_scope of value {value!r}, wanted 1; leave the scope out "
                "for plain stores"
            )
        return BuilderFrame(tir_builder.attr("", "async_copy", tirx.const(True, "bool")))
    return BuilderFrame(tir_builder.attr(node, key, value))


def annotate_safe_value(values: Any, value: Any = None) -> None:
    """Say what reads of global tensors give where they are out of bounds, instead of zero.

    Parameters
    ----------
    values
        A mapping from tensors to scalars, or one tensor.
    value
        The scalar, if ``values`` is one tensor.

    Raises
    ------
    ValueError
        Outside of a kernel; if a key is not a global tensor.
    TypeError
        If a value is not a scalar.

    Example
    -------
    ``T.annotate_safe_value({A: -T.infinity(T.float32)})``
    """
    kernel = enclosing_kernel("T.annotate_safe_value")
    pairs = dict(values) if isinstance(values, Mapping) else {values: value}
    for buffer in pairs:
        if not is_buffer(buffer) or buffer.scope() != "global":
            raise ValueError(
                f"T.annotate_safe_value found {describe(buffer)}, wanted a global tensor; other "
                "memory is never read out of bounds"
            )
        kernel.safe_values[buffer] = as_dtype(pairs[buffer], str(buffer.dtype))
