"""Shared memory of a kernel: which bytes each buffer has, and from which statement to which it is
used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, tirx
from tvm_ffi import structural_walk

from tilelang.tools import page
from tilelang.utils import dtypes

_COLUMN, _HEIGHT, _LEFT, _TOP = 24, 300, 78, 30


@dataclass
class SharedBuffer:
    """A buffer at a known offset.

    Attributes:
        first, bytes: where it is in the dynamic shared memory of its kernel.
        uses: numbers of the moments at which it is accessed.
    """

    name: str
    first: int
    bytes: int
    uses: list[int] = field(default_factory=list)


@dataclass
class SharedMemory:
    """Attributes:
    buffers: in the order of their allocation.
    lines: of each moment the line of the kernel's source. A moment is a row of statements of
        one line, in the program's order.
    spans: loops and ranges of threads: name, first and last moment.
    """

    buffers: list[SharedBuffer] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    spans: list[tuple[str, int, int]] = field(default_factory=list)


def shared_memory(kernel: Any) -> SharedMemory:
    """The buffers of a kernel's body behind `PlanSharedMemory`. Those whose size the launch decides
    are left out.

    Example: ``shared_memory(function.body).buffers[0].first``
    """
    found = SharedMemory()
    buffers: dict[Any, SharedBuffer] = {}
    names: dict[Any, list[Any]] = {}  # of descriptors and addresses, and what they point to

    def visit(node: Any) -> None:
        if isinstance(node, tirx.AllocBuffer):
            _allocate(node, buffers)
        if isinstance(node, tirx.Bind):
            names[node.var] = _accessed(node.value, names)
        if isinstance(node, tirx.Evaluate | tirx.BufferStore):
            line = 0 if node.span is None else int(node.span.line)
            if not found.lines or found.lines[-1] != line:
                found.lines.append(line)
            for buffer in _accessed(node, names):
                known = buffers.get(buffer)
                moment = len(found.lines) - 1
                if known is not None and (not known.uses or known.uses[-1] != moment):
                    known.uses.append(moment)
            return
        first = len(found.lines)
        for part in _parts(node):
            visit(part)
        name = _name(node)
        if name and len(found.lines) > first:
            found.spans.append((name, first, len(found.lines) - 1))

    visit(kernel)
    found.buffers = [buffer for buffer in buffers.values() if buffer.uses]
    return found


def _allocate(node: Any, buffers: dict[Any, SharedBuffer]) -> None:
    offset = node.annotations.get("tl.shared_offset")
    extents = list(node.buffer.shape)
    if offset is None or not all(isinstance(e, int | tirx.IntImm) for e in [offset, *extents]):
        return
    bits = math.prod(map(int, extents)) * dtypes.bits(str(node.buffer.dtype))
    name = str(node.buffer.name)
    buffers[node.buffer] = SharedBuffer(name, int(offset), bits // 8)


def _parts(node: Any) -> Iterator[Any]:
    if isinstance(node, tirx.SeqStmt):
        yield from node.seq
    for key in ("body", "then_case", "else_case"):
        part = getattr(node, key, None)
        if part is not None:
            yield part


def _name(node: Any) -> str:
    if isinstance(node, tirx.For | tirx.While):
        variable = getattr(node, "loop_var", None)
        return f"for {variable.name}" if variable is not None else "while"
    if isinstance(node, tirx.AttrStmt) and node.attr_key == "tl.thread_range":
        first, threads = (int(n) for n in list(node.node)[:2])
        role = node.body
        known = isinstance(role, tirx.AttrStmt) and role.attr_key == "tl.warp_role"
        return f"{role.node if known else 'threads'} {first}-{first + threads - 1}"
    return ""


def _accessed(node: Any, names: dict[Any, list[Any]]) -> list[Any]:
    found = [node.buffer] if isinstance(node, tirx.BufferStore) else []

    def variable(named: Any) -> None:
        found.extend(names.get(named, ()))

    handlers = [(ir.TensorLoad, lambda load: found.append(load.source)), (ir.Var, variable)]
    structural_walk(node, handlers)
    return found


def memory_picture(memory: SharedMemory, total: int) -> str:
    """Buffers as boxes: bytes downwards, moments to the right; `total` bytes in all.

    Example: ``page.page("main", [memory_picture(shared_memory(body), 98304)])``
    """
    if not memory.buffers:
        return "<p>The kernel has no dynamic shared memory of a constant size.</p>"
    drawing = page.Drawing()
    spans = [span for span in memory.spans if span[2] > span[1]]
    depth = [sum(o[1] <= s[1] and s[2] <= o[2] and o != s for o in spans) for s in spans]
    top: float = _TOP + 18 * (max(depth, default=0) + 1 if spans else 0)
    scale = _HEIGHT / max(total, 1)
    for (name, first, last), level in zip(spans, depth, strict=True):
        left, width = _LEFT + first * _COLUMN, (last - first + 1) * _COLUMN
        y = 4 + 18 * level
        drawing.rect(left + 1, y, width - 2, 15, "var(--soft)", name, stroke="var(--line)", rx="3")
        if 6.3 * len(name) < width:
            drawing.label(left + 5, y + 11.5, name)
    for moment, line in enumerate(memory.lines):
        x = _LEFT + (moment + 0.5) * _COLUMN
        drawing.line(x, top, x, top + _HEIGHT, opacity="0.5")
        if line and (moment == 0 or memory.lines[moment - 1] != line):
            drawing.label(x, top - 6, str(line), "middle", "faint")
    drawing.label(_LEFT - 6, top - 6, "line", "end", "faint")
    for byte in _marks(total):
        drawing.label(_LEFT - 6, top + byte * scale + 4, str(byte), "end", "faint")
        drawing.line(
            _LEFT, top + byte * scale, _LEFT + len(memory.lines) * _COLUMN, top + byte * scale
        )
    for number, buffer in enumerate(memory.buffers):
        _draw(drawing, buffer, number, top, scale)
    return drawing.svg("shared memory") + (
        '<p class="faint">A box is a buffer from its first to its last use, in the order of the '
        "program's statements; marks are uses. Numbers above are lines of the kernel's source, "
        "those on the left bytes. What a loop uses is needed in all of it.</p>"
    )


def _draw(
    drawing: page.Drawing, buffer: SharedBuffer, number: int, top: float, scale: float
) -> None:
    first, last = buffer.uses[0], buffer.uses[-1]
    x, width = _LEFT + first * _COLUMN, (last - first + 1) * _COLUMN
    y, height = top + buffer.first * scale, max(buffer.bytes * scale, 2)
    end = buffer.first + buffer.bytes
    title = f"{buffer.name}: bytes {buffer.first} to {end}"
    drawing.rect(
        *(x + 1, y, width - 2, height, page.color(number), title),
        fill_opacity="0.85",
        stroke="#00000055",
    )
    for use in buffer.uses:
        at = _LEFT + (use + 0.5) * _COLUMN
        drawing.rect(at - 1.5, y + height - min(5, height), 3, min(5, height), "#00000099")
    if height >= 14:
        if 6.3 * len(buffer.name) + 8 < width:
            drawing.label(x + 5, y + 12, buffer.name, "start", "cell")
        else:
            drawing.label(x + width + 4, y + 12, buffer.name)


def _marks(total: int) -> list[int]:
    step = 1 << max(0, (max(total, 1) - 1).bit_length() - 3)
    return [*range(0, total + 1, step)]
