"""``kernel.explain(format="html")``: what became of a program, as a page.

All that is shown are values that passes leave: function attributes (roles, pipelines, waits,
notes), layouts and instructions of operators, offsets of shared buffers.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import tvm
from tvm import ir, tirx
from tvm_ffi import structural_walk

from tilelang.engine.explain_roles import source_line
from tilelang.tools import layout_picture, page
from tilelang.tools.inferred_layouts import inferred_layouts
from tilelang.tools.lower_trace import Trace
from tilelang.tools.schedule_picture import schedule_picture
from tilelang.tools.shared_memory_picture import memory_picture, shared_memory
from tilelang.tools.tile_schedule import kernels_of, tile_schedule


def explain_page(trace: Trace, text: str) -> str:
    """The page of one lowering; `text` is what ``kernel.explain()`` says.

    Example: ``explain_page(traces[0], kernel.explain())``
    """
    tiles, planned = trace.after("LayoutInference").mod, trace.after("ThreadSync").mod
    devices = _device_functions(trace.steps[-1].mod)
    body = [f"<h1>{page.text(trace.name)}</h1>"]
    (planned_function,) = planned.functions.values()
    for number, (device, kernel) in enumerate(
        zip(devices, kernels_of(planned_function.body), strict=True)
    ):
        body += _kernel(number, device, kernel, tiles)
    body += ["<h2>Instructions</h2>", *_instructions(tiles)]
    body += _texts("Notes", "tl.notes", devices, "What operators became, and what that costs.")
    body += _texts(
        *("Waits for asynchronous work", "tl.async_waits", devices),
        "Each wait that the compiler has placed: how many groups may still be in flight, where, "
        "and what would be wrong without it.",
    )
    body += ["<h2>Layouts</h2>", *map(layout_picture.picture, inferred_layouts(tiles))]
    body += ["<h2>In words</h2>", f'<pre class="scroll">{page.text(text)}</pre>']
    return page.page(
        f"{trace.name}: explanation", body, layout_picture.STYLE, layout_picture.SCRIPT
    )


def _device_functions(mod: tvm.IRModule) -> list[Any]:
    """In the order of their launches."""
    functions = [f for f in mod.functions.values() if "tl.grid" in f.attrs]
    return sorted(functions, key=lambda f: int(f.attrs["tl.kernel_number"]))


def _kernel(number: int, device: Any, kernel: Any, tiles: tvm.IRModule) -> Iterator[str]:
    attrs = device.attrs
    grid, block, cluster = (
        " x ".join(map(str, attrs[key])) for key in ("tl.grid", "tl.block", "tl.cluster")
    )
    shared = attrs["tl.dyn_shared_bytes"]
    turns = " (persistent)" if attrs["tl.persistent"] else ""
    memory = f"{shared} bytes of dynamic shared memory"
    facts = f"grid {grid}{turns}, block {block}, cluster {cluster}, {memory}"
    yield f"<h2>Kernel {page.text(attrs['global_symbol'])}</h2><p>{page.text(facts)}</p>"
    if "tl.source" in attrs:
        yield "<p>Its source is the program's own.</p>"
        return
    yield "<h3>Schedule</h3>"
    for entry in attrs.get("tl.warp_roles") or []:
        if int(entry["kernel"]) == number and entry["reason"]:
            reason = str(entry["reason"]).partition("\n")[0].rstrip(":")
            yield f"<p>Not warp specialised: {page.text(reason)}.</p>"
    yield schedule_picture(tile_schedule(tiles, number))
    yield from _pipelines(device)
    if isinstance(shared, int | tirx.IntImm):
        yield "<h3>Shared memory</h3>"
        yield memory_picture(shared_memory(kernel), int(shared))


def _pipelines(device: Any) -> Iterator[str]:
    """For each T.Pipelined of the kernel its plan: statements downwards, steps to the right."""
    lines = _lines(device.body)
    for entry in device.attrs.get("tl.pipelines") or []:
        statements = entry["statements"]
        own = {int(line) for statement in statements for line in statement["lines"]}
        if not own & lines:
            continue
        head = f"T.Pipelined over {entry['variable']} (line {int(entry['line'])})"
        yield f"<h3>{page.text(head)}</h3>"
        if "stage" in entry:
            yield _steps(entry)
        reasons = [
            (source_line(str(entry["file"]), s), s["reason"]) for s in statements if s["reason"]
        ]
        if reasons:
            yield page.table(["does not run ahead", "because"], reasons)


def _steps(entry: Any) -> str:
    """In step t a statement of stage s works on iteration t - s."""
    drawing = page.Drawing()
    stages = [int(s) for s in entry["stage"]]
    order = [int(o) for o in entry["order"]]
    shown = max(stages) + 4
    left, cell = 330, 46
    for step in range(shown):
        drawing.label(left + (step + 0.5) * cell, 12, f"step {step}", "middle", "faint")
    rows = sorted(range(len(stages)), key=lambda i: order[i])
    for y, i in enumerate(rows):
        statement = source_line(str(entry["file"]), entry["statements"][i])
        drawing.label(left - 8, 33 + y * 24, statement[:52], "end")
        for step in range(stages[i], shown):
            iteration = step - stages[i]
            x = left + step * cell
            title = f"step {step}: iteration {iteration} of {statement}"
            drawing.rect(x + 1, 19 + y * 24, cell - 2, 20, page.color(iteration), title, rx="3")
            drawing.label(x + cell / 2, 33 + y * 24, str(iteration), "middle", "cell")
    versions = ", ".join(f"{name} {n}" for name, n in sorted(entry["versions"].items()))
    return (
        drawing.svg("steps of the pipeline")
        + '<p class="faint">Numbers are iterations. Versions of buffers: '
        + f"{page.text(versions or 'one of each')}.</p>"
    )


def _lines(body: Any) -> set[int]:
    lines: set[int] = set()

    def statement(node: tirx.Evaluate | tirx.BufferStore) -> None:
        if node.span is not None:
            lines.add(int(node.span.line))

    structural_walk(body, [((tirx.Evaluate, tirx.BufferStore), statement)])
    return lines


def _instructions(tiles: tvm.IRModule) -> Iterator[str]:
    """A row for each operator: what was chosen, and what was refused and why."""
    rows: dict[tuple[str, ...], None] = {}

    def statement(node: tirx.Evaluate) -> None:
        call = node.value
        attrs = (call.attrs if isinstance(call, ir.Call) else None) or {}
        # A load that a role or a pipeline runs ahead is TMA by its name.
        given = attrs.get("instruction", ("tma",) if "tma" in attrs else ())
        if not given:
            return
        names = [str(one) if isinstance(one, str) else str(next(iter(one))) for one in given]
        rejected = [f"{name}: {why}" for name, why in (attrs.get("rejected") or {}).items()]
        name = "T." + str(call.op.name).rpartition(".")[2]
        line = 0 if node.span is None else int(node.span.line)
        file = "" if node.span is None else str(node.span.source_name.name)
        place = linecache.getline(file, line).strip() if file else ""
        where = f"line {line}, {place}" if line else "made by the compiler"
        rows[where, name, ", ".join(names), "; ".join(rejected)] = None

    for function in tiles.functions.values():
        structural_walk(function.body, [(tirx.Evaluate, statement)])
    if not rows:
        yield "<p>No operator had a choice of instructions.</p>"
        return
    yield page.table(["statement", "operator", "instructions", "refused"], rows)
    yield (
        '<p class="faint">Of several instructions the first does what it can of the tile, and the '
        "next the rest.</p>"
    )


def _texts(title: str, attribute: str, devices: list[Any], what: str) -> Iterator[str]:
    lines = dict.fromkeys(str(line) for d in devices for line in d.attrs.get(attribute) or [])
    if not lines:
        return
    items = "".join(f"<li>{page.text(line)}</li>" for line in lines)
    yield f'<h2>{title}</h2><p class="faint">{what}</p><ul>{items}</ul>'
