"""What programs contain, counted: a feature that no program has shows as 0."""

from __future__ import annotations

import collections
from collections.abc import Iterable

from tilelang.testing.fuzz.operations import OPERATIONS
from tilelang.testing.fuzz.program import (
    Atomic,
    AtomicTile,
    Bind,
    Buffer,
    Cast,
    Copy,
    For,
    Gemm,
    If,
    Jump,
    Kernel,
    Load,
    Num,
    Op,
    Parallel,
    Program,
    Reduce,
    Ref,
    Scan,
    Store,
    Tensor,
    Tile,
    Warps,
    walk,
)

_KINDS = ("sum", "abssum", "max", "absmax", "min", "bitand", "bitor", "bitxor")
_DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
)
_DIVISIONS = ("floordiv", "mod")
FEATURES: tuple[str, ...] = (
    *(f"dtype {d}" for d in _DTYPES),
    *(f"memory {s}" for s in ("shared", "fragment", "local", "var", "reducer", "view")),
    *("copy of a whole tile", "copy at an element", "copy of a region", "copy that casts"),
    *("fill", "transpose", "parallel", "threads", "if of the block", "if of an iteration"),
    *("for with a start", "for with a step", "for downwards", "while", "break", "continue"),
    *(
        "persistent",
        "annotated layout",
        "for serial",
        "for unroll",
        "for in for",
        "store to a tensor",
        "load of a tensor",
    ),
    *(f"pipelined with {n} stages" for n in range(5)),
    *(f"gemm {o}" for o in ("transpose_A", "transpose_B", "FullRow", "FullCol", "clear_accum")),
    *(f"gemm {a} x {b}" for a in ("shared", "fragment") for b in ("shared", "fragment")),
    *(f"reduce {k}" for k in _KINDS),
    *("reduce clear=False", "reduce of shared", "cumsum", "cummax", "scan reverse"),
    *(f"atomic {form} {k}" for form in ("tile", "element") for k in ("add", "max", "min", "or")),
    *("warps", "warps with others", "warp groups", "bind", "bind again", "macro", "unused buffer"),
    *("sum over a warp", "sum over a partial warp", "far index", "divisor of any sign"),
    *("scratch in a tensor", "part of a fragment", "part of a length of the run"),
    *(f"registers of {d}" for d in ("float16", "bfloat16", "int8", "uint8", "int16")),
    *("atomic on shared", "reducer sum", "reducer max", "reducer min"),
    *(f"operation {name}" for name in (*OPERATIONS, "select", "cast")),
    *(
        "several kernels",
        "several blocks",
        "a plane of a tensor",
        "dynamic size",
        "rasterised blocks",
    ),
    "rounded values",
    *(f"threads run {order}" for order in ("round_robin", "random", "adversarial")),
    *(f"asynchronous copies run {moment}" for moment in ("late", "early", "random")),
)
"""Every feature that is counted."""


def features(program: Program, is_rounded: bool) -> set[str]:
    """The features of a program; `is_rounded`: whether a result has an error."""
    found = {"rounded values"} if is_rounded else set()
    found |= {"several kernels"} if len(program.kernels) > 1 else set()
    found |= {"dynamic size"} if any(s.dynamic for s in program.sizes) else set()
    tensors = {t.name for t in program.tensors}
    for kernel in program.kernels:
        buffers = {t.name: t for t in program.tensors} | {b.name: b for b in kernel.buffers}
        found |= _of_kernel(kernel.threads, bool(kernel.grid), kernel.swizzle)
        found |= _of_corners(kernel, {t.name: t for t in program.tensors})
        for node in walk(kernel):
            found |= _of_node(node, buffers, tensors)
        for node in walk(kernel.body):
            inside = [n for body in ("body",) if hasattr(node, body) for n in walk(node.body)]
            if isinstance(node, For) and any(isinstance(n, For) for n in inside):
                found.add("for in for")
            if isinstance(node, Parallel) and any(isinstance(n, If) for n in inside):
                found.add("if of an iteration")
        found |= {"if of the block" for s in kernel.body if isinstance(s, If)}
    found |= {f"dtype {t.dtype}" for t in program.tensors}
    if any(len(t.shape) == 3 and t.low <= t.high for t in program.tensors):
        found.add("a plane of a tensor")
    found.add(f"threads run {program.schedule.order}")
    found.add(f"asynchronous copies run {program.schedule.asynchronous}")
    return found


def _of_corners(kernel: Kernel, tensors: dict[str, Tensor]) -> set[str]:
    """What only `corners` writes."""
    nodes = list(walk(kernel.body))
    used = {getattr(n, "buffer", None) for n in nodes} | {getattr(n, "name", None) for n in nodes}
    used |= {b.detail for b in kernel.buffers}
    found = {"unused buffer" for b in kernel.buffers if b.name not in used}
    names = [n.name for n in nodes if isinstance(n, Bind)]
    found |= {"bind again"} if len(set(names)) < len(names) else set()
    found |= {"warps with others" for n in nodes if isinstance(n, Warps) and n.otherwise}
    found |= {"warp groups" for n in nodes if isinstance(n, Warps) and n.groups}
    local = {b.name: b for b in kernel.buffers if b.scope == "local"}
    found |= {f"registers of {b.dtype}" for b in local.values()}
    tall = {t.name for t in tensors.values() if t.name.startswith("W")}
    found |= {"scratch in a tensor" for n in nodes if getattr(n, "buffer", None) in tall}
    if any(isinstance(n, Op) and n.name == "warp_sum" for n in nodes):
        found.add("sum over a partial warp" if kernel.threads[0] % 32 else "sum over a warp")
    fragments = {b.name for b in kernel.buffers if b.scope == "fragment"}
    parts = [n for n in nodes if isinstance(n, Tile) and n.extents is not None]
    found |= {"part of a fragment" for t in parts if t.buffer in fragments}
    lengths = [t.extents for t in parts if len(t.extents or ()) == 1]
    found |= {"part of a length of the run" for e in lengths if isinstance((e or ())[0], Ref)}
    for node in nodes:
        if isinstance(node, Load) and node.buffer in tensors:
            inside = [n for n in walk(node.indices) if isinstance(n, Load)]
            found |= {"far index" for n in inside if getattr(tensors.get(n.buffer), "sentinel", 0)}
            signed = [n for n in walk(node.indices) if isinstance(n, Op) and n.name in _DIVISIONS]
            found |= {"divisor of any sign" for n in signed if not isinstance(n.args[1], Num)}
    return found


def _of_kernel(threads: tuple[int, ...], blocks: bool, swizzle: int) -> set[str]:
    found = {"several blocks"} if blocks else set()
    found |= {"rasterised blocks"} if swizzle else set()
    found |= {"threads of two dimensions"} if len(threads) > 1 else set()
    return found | (
        {"threads no multiple of 32"} if threads[0] % 32 and len(threads) == 1 else set()
    )


def _of_node(node: object, buffers: dict[str, Tensor | Buffer], tensors: set[str]) -> set[str]:
    def scope(tile: Tile) -> str:
        return getattr(buffers[tile.buffer], "scope", "global")

    if isinstance(node, Buffer):
        reducer = {f"reducer {node.detail}"} if node.scope == "reducer" else set()
        annotated = {"annotated layout"} if node.scope == "shared" and node.detail else set()
        return {f"memory {node.scope}", f"dtype {node.dtype}"} | reducer | annotated
    if isinstance(node, Op):
        return {f"operation {node.name}"}
    if isinstance(node, Cast):
        return {"operation cast"}
    if isinstance(node, Copy):
        casts = buffers[node.src.buffer].dtype != buffers[node.dst.buffer].dtype
        return {_way(node.src), _way(node.dst)} | ({"copy that casts"} if casts else set())
    if isinstance(node, For):
        return _of_loop(node)
    if isinstance(node, Jump):
        return {node.kind}
    if isinstance(node, Gemm):
        options = {"transpose_A": node.transpose_a, "transpose_B": node.transpose_b}
        options |= {node.policy: True, "clear_accum": node.clear is not None}
        found = {f"gemm {name}" for name, on in options.items() if on}
        return found | {f"gemm {scope(node.a)} x {scope(node.b)}"}
    if isinstance(node, Reduce):
        found = {f"reduce {node.kind}"} | (set() if node.clear else {"reduce clear=False"})
        return found | ({"reduce of shared"} if scope(node.src) == "shared" else set())
    if isinstance(node, Scan):
        return {node.kind} | ({"scan reverse"} if node.reverse else set())
    if isinstance(node, Store | Load):
        word = "store to" if isinstance(node, Store) else "load of"
        return {f"{word} a tensor"} if node.buffer in tensors else set()
    if isinstance(node, AtomicTile):
        return {f"atomic tile {node.kind}"}
    if isinstance(node, Atomic):
        on_chip = set() if node.buffer in tensors else {"atomic on shared"}
        return {f"atomic element {node.kind}"} | on_chip
    return {type(node).__name__.lower()}


def _of_loop(loop: For) -> set[str]:
    pipelined = f"pipelined with {loop.stages} stages"
    found = {pipelined if loop.kind == "pipelined" else f"for {loop.kind}"}
    found |= set() if loop.start == Num(0) else {"for with a start"}
    if loop.step != Num(1):
        found.add("for downwards" if loop.step == Num(-1) else "for with a step")
    return found


def _way(tile: Tile) -> str:
    if tile.starts is None:
        return "copy of a whole tile"
    return "copy at an element" if tile.extents is None else "copy of a region"


def count(found: Iterable[set[str]]) -> collections.Counter[str]:
    """How many programs have each of `FEATURES`, 0 included."""
    counts = collections.Counter(dict.fromkeys(FEATURES, 0))
    for names in found:
        counts.update(names & set(FEATURES))
    return counts
