"""A tile program as a Python source file that defines ``main``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilelang.testing.fuzz.operations import OPERATIONS
from tilelang.testing.fuzz.program import (
    Accumulate,
    Atomic,
    AtomicTile,
    Bind,
    Buffer,
    Cast,
    Copy,
    Expr,
    Fill,
    FinishReducer,
    For,
    Gemm,
    If,
    Jump,
    Kernel,
    Load,
    Macro,
    Num,
    Op,
    Parallel,
    Persistent,
    Program,
    Reduce,
    Ref,
    Scan,
    Size,
    StartReducer,
    Stmt,
    Store,
    Threads,
    Tile,
    Transpose,
    Warps,
    While,
    rewrite,
    walk,
)
from tilelang.testing.fuzz.warps import GROUP

_FUNCTIONS = {"select": "T.if_then_else", "warp_sum": "T.warp_reduce_sum"}
"""Operations that the interpreter knows by itself."""


def emit(program: Program) -> str:
    """The text of the program: imports, sizes, and ``main``, a function of all tensors in order."""
    lines = ["import tilelang.language as T"]
    if any(is_annotated(buffer) for kernel in program.kernels for buffer in kernel.buffers):
        lines.append("from tilelang import layout")
    lines.append("")
    lines += [_size(size) for size in program.sizes]
    sizes = {size.name for size in program.sizes}
    for node in walk(program.kernels):
        if isinstance(node, Macro):
            lines += _macro(node, _parameters(node, sizes))
    lines += ["", "", "@T.prim_func", "def main("]
    for t in program.tensors:
        lines.append(f'    {t.name}: T.Tensor({_tuple(t.shape)}, "{t.dtype}"),')
    lines.append("):")
    for kernel in rewrite(program.kernels, lambda node: _called(node, sizes)):
        lines += ["    " + line for line in _kernel(kernel)]
    return "\n".join(lines) + "\n"


@dataclasses.dataclass(frozen=True)
class _Call:
    """The call of a macro that is defined in front of the program."""

    name: str
    arguments: tuple[str, ...]


def _called(node: Any, sizes: set[str]) -> Any:
    is_macro = isinstance(node, Macro)
    return _Call(node.name, tuple(_parameters(node, sizes))) if is_macro else node


def _macro(macro: Macro, parameters: Sequence[str]) -> list[str]:
    """The definition of a macro, behind another one of the same name, which it replaces."""
    head = ["", "", "@T.macro", f"def {macro.name}({', '.join(parameters)}):"]
    return [*head, "    T.device_assert(False)", *head, *_block(macro.body)]


def _parameters(macro: Macro, sizes: set[str]) -> list[str]:
    """What the body of a macro uses and neither the module nor the body defines."""
    nodes = list(walk(macro.body))
    used = dict.fromkeys(n.name for n in nodes if isinstance(n, Ref))
    used |= dict.fromkeys(n.buffer for n in nodes if hasattr(n, "buffer"))
    bound = {n.variable for n in nodes if hasattr(n, "variable")} | sizes
    bound |= {v for n in nodes if hasattr(n, "variables") for v in n.variables}
    bound |= {n.name for n in nodes if isinstance(n, Bind)}
    return [name for name in used if name not in bound]


def _size(size: Size) -> str:
    value = f'T.dynamic("{size.name}")  # {size.value}' if size.dynamic else str(size.value)
    return f"{size.name} = {value}"


def _kernel(kernel: Kernel) -> list[str]:
    threads = str(kernel.threads[0]) if len(kernel.threads) == 1 else repr(kernel.threads)
    arguments = [*map(expression, kernel.grid), f"threads={threads}"]
    names = [f"b{axis}" for axis, _ in zip("xyz", kernel.grid, strict=False)]
    bound = names[0] if len(names) == 1 else f"({', '.join(names)})"
    lines = [f"with T.Kernel({', '.join(arguments)})" + (f" as {bound}:" if names else ":")]
    if kernel.swizzle:
        lines.append(f"    T.use_swizzle({kernel.swizzle})")
    lines += ["    " + _buffer(buffer) for buffer in kernel.buffers]
    layouts = [
        f"{b.name}: layout.make_{b.detail}_layout({b.name})"
        for b in kernel.buffers
        if is_annotated(b)
    ]
    if layouts:
        lines.append(f"    T.annotate_layout({{{', '.join(layouts)}}})")
    lines += _block(kernel.body)
    return lines


def is_annotated(buffer: Buffer) -> bool:
    """Whether the program names the buffer's layout."""
    return buffer.scope == "shared" and bool(buffer.detail)


def _buffer(buffer: Buffer) -> str:
    shape, dtype = _tuple(buffer.shape), f'"{buffer.dtype}"'
    if buffer.scope == "view":
        return f"{buffer.name} = T.view({buffer.detail}, {shape}, {dtype})"
    if buffer.scope == "var":
        return f"{buffer.name} = T.alloc_var({dtype})"
    more = f', "{buffer.detail}"' if buffer.scope == "reducer" else ""
    return f"{buffer.name} = T.alloc_{buffer.scope}({shape}, {dtype}{more})"


def _block(body: Sequence[Stmt]) -> list[str]:
    return ["    " + line for s in body for line in _statement(s)] or ["    pass"]


def _statement(s: Stmt) -> list[str]:
    if isinstance(s, Parallel):
        extents = ", ".join(map(expression, s.extents))
        return [f"for {', '.join(s.variables)} in T.Parallel({extents}):", *_block(s.body)]
    if isinstance(s, Threads):
        return [f"{s.variable} = T.get_thread_binding()", *(line[4:] for line in _block(s.body))]
    if isinstance(s, Warps):
        return _warps(s)
    if isinstance(s, Bind):
        return [f"{s.name} = {expression(s.value)}"]
    if isinstance(s, _Call):
        return [_call(s.name, *s.arguments)]
    if isinstance(s, For):
        return [f"for {s.variable} in {_loop(s)}:", *_block(s.body)]
    if isinstance(s, While):
        return [f"while {expression(s.condition)}:", *_block(s.body)]
    if isinstance(s, Jump):
        return [s.kind]
    if isinstance(s, Persistent):
        domain = ", ".join(map(expression, s.domain))
        words = [f"[{domain}]", expression(s.wave), expression(s.index), f"group_size={s.group}"]
        return [
            f"for {', '.join(s.variables)} in {_call('T.Persistent', *words)}:",
            *_block(s.body),
        ]
    if isinstance(s, If):
        lines = [f"if {expression(s.condition)}:", *_block(s.then)]
        return [*lines, "else:", *_block(s.otherwise)] if s.otherwise else lines
    if isinstance(s, Store):
        return [f"{_element(s.buffer, s.indices)} = {expression(s.value)}"]
    return [f"T.{_operator(s)}"]


def _warps(s: Warps) -> list[str]:
    if s.groups:
        ids = [g for g in range(s.groups) if s.first <= g * GROUP < s.stop]
        others = [g for g in range(s.groups) if g not in ids]
        lines = [f"with {_call('T.ws', *map(str, ids))}:", *_block(s.then)]
        lines += [f"with {_call('T.ws', *map(str, others))}:"] * bool(s.otherwise)
        return lines + _block(s.otherwise) * bool(s.otherwise)
    parts = [f"{s.variable} >= {s.first}"] * (s.first > 0) + [f"{s.variable} < {s.stop}"]
    lines = [f"{s.variable} = T.get_thread_binding()", f"if {' and '.join(parts)}:"]
    lines += _block(s.then)
    return [*lines, "else:", *_block(s.otherwise)] if s.otherwise else lines


def _loop(s: For) -> str:
    words = [expression(s.stop)]
    if s.start != Num(0) or s.step != Num(1):
        words.insert(0, expression(s.start))
    if s.step != Num(1):
        words.append(expression(s.step))
    if s.kind == "pipelined":
        words.append(f"num_stages={s.stages}")
    return _call("T.Pipelined" if s.kind == "pipelined" else f"T.{s.kind}", *words)


def _operator(s: Stmt) -> str:
    if isinstance(s, Copy):
        return _call("copy", tile(s.src), tile(s.dst), *(f"{k}={v!r}" for k, v in s.options))
    if isinstance(s, Fill):
        if s.value.value == 0:
            return _call("clear", tile(s.dst))
        return _call("fill", tile(s.dst), expression(s.value))
    if isinstance(s, Gemm):
        words = [tile(s.a), tile(s.b), tile(s.c)]
        words += ["transpose_A=True"] * s.transpose_a + ["transpose_B=True"] * s.transpose_b
        words += [f"policy=T.GemmWarpPolicy.{s.policy}"] * (s.policy != "Square")
        words += [] if s.clear is None else [f"clear_accum={_truth(s.clear)}"]
        return _call("gemm", *words)
    if isinstance(s, Reduce):
        words = [tile(s.src), tile(s.dst), f"dim={s.dim}"] + ["clear=False"] * (not s.clear)
        return _call(f"reduce_{s.kind}", *words)
    if isinstance(s, Scan):
        words = [tile(s.src), *([tile(s.dst)] if s.dst else []), f"dim={s.dim}"]
        return _call(s.kind, *words, *["reverse=True"] * s.reverse)
    if isinstance(s, Transpose):
        return _call("transpose", tile(s.src), tile(s.dst))
    if isinstance(s, AtomicTile):
        value = expression(s.value) if isinstance(s.value, Num) else tile(s.value)
        return _call(f"atomic_{s.kind}", tile(s.dst), value)
    if isinstance(s, Atomic):
        return _call(f"atomic_{s.kind}", _element(s.buffer, s.indices), expression(s.value))
    if isinstance(s, Accumulate):
        return _call("reducer_update", _element(s.buffer, s.indices), expression(s.value))
    if isinstance(s, StartReducer):
        return _call("reducer_init", s.buffer, *([expression(s.value)] if s.value else []))
    assert isinstance(s, FinishReducer)
    return _call("finalize_reducer", s.buffer, *([tile(s.dst)] if s.dst else []))


def _truth(expr: Expr) -> str:
    return str(bool(expr.value)) if isinstance(expr, Num) else expression(expr)


def _call(name: str, *arguments: str) -> str:
    return f"{name}({', '.join(arguments)})"


def _tuple(items: Sequence[Expr]) -> str:
    texts = [expression(i) for i in items]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _element(buffer: str, indices: Sequence[Expr]) -> str:
    return f"{buffer}[{', '.join(map(expression, indices))}]" if indices else buffer


def tile(t: Tile) -> str:
    """A tile operand."""
    if t.starts is None:
        return t.buffer
    if t.extents is None:
        return _element(t.buffer, t.starts)
    ranges = []
    for start, extent in zip(t.starts, t.extents, strict=True):
        begin = expression(start)
        if extent == Num(1):
            ranges.append(begin)
        elif start == Num(0):
            ranges.append(f"0:{expression(extent)}")
        else:
            ranges.append(f"{begin} : {begin} + {_operand(extent)}")
    # With an index in every dimension it would be an element.
    if not any(":" in r for r in ranges):
        ranges[-1] = f"{ranges[-1]} : {ranges[-1]} + 1"
    return f"{t.buffer}[{', '.join(ranges)}]"


def expression(expr: Expr) -> str:
    """An expression as Python."""
    if isinstance(expr, Num):
        return repr(expr.value)
    if isinstance(expr, Ref):
        return expr.name
    if isinstance(expr, Load):
        return _element(expr.buffer, expr.indices)
    if isinstance(expr, Cast):
        return f'T.cast({expression(expr.value)}, "{expr.dtype}")'
    if expr.name in _FUNCTIONS:
        return _call(_FUNCTIONS[expr.name], *map(expression, expr.args))
    text = OPERATIONS[expr.name].text
    write = expression if text.startswith("T.") else _operand
    return text.format(*(write(a) for a in expr.args))


def _operand(expr: Expr) -> str:
    text = expression(expr)
    is_infix = isinstance(expr, Op) and expr.name not in _FUNCTIONS
    is_infix = is_infix and not OPERATIONS[expr.name].text.startswith("T.")  # type: ignore[union-attr]
    is_negative = isinstance(expr, Num) and expr.value < 0
    return f"({text})" if is_infix or is_negative else text
