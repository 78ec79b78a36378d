"""Writes the pages that follow from the code: ``python docs/generate.py``.

* passes.md: the passes in their order, each with the contract at the top of its C++ file.
* life-of-a-kernel.md: one GEMM after the passes that change its form.
* refusals.md: the errors that a program can meet when it is traced or compiled (refusals.py).
* targets.md, types.md, configuration.md: tables of the sources (tables.py).

A test compares the pages with what this writes.
"""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
import textwrap
from pathlib import Path

import tvm
from tvm.target import Target

import tilelang
import tilelang.language as T
from tilelang.engine import phase
from tilelang.engine.dump import Dump

DOCS = Path(__file__).parent
sys.path.append(str(DOCS))
import refusals  # noqa: E402
import tables  # noqa: E402

SOURCES = DOCS.parent / "src" / "transform"

TARGET = {"kind": "cuda", "arch": "sm_80"}


@T.prim_func
def gemm(
    A: T.Tensor((64, 128), T.float16),
    B: T.Tensor((128, 64), T.float16),
    C: T.Tensor((64, 64), T.float16),
):
    with T.Kernel(2, 2, threads=32) as (bx, by):
        A_shared = T.alloc_shared((32, 32), T.float16)
        B_shared = T.alloc_shared((32, 32), T.float16)
        C_local = T.alloc_fragment((32, 32), T.float32)
        T.clear(C_local)
        for k in T.Pipelined(4, num_stages=2):
            T.copy(A[by * 32, k * 32], A_shared)
            T.copy(B[k * 32, bx * 32], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * 32, bx * 32])


STAGES = {
    "trace": "The tracer runs the Python function once and records what it does. A tile operator "
    "is one call, and a buffer has a type and a scope. Threads appear in the launch only.",
    "MaterializeKernelLaunch": "The launch becomes `thread_extent` attributes around the body: "
    "blocks first, then threads.",
    "PipelinePlanning": "The loop over `k` has a schedule: the stage of each statement, and its "
    "place in an iteration of the steady loop. Copies may be asynchronous (`async_copy`).",
    "InjectSoftwarePipeline": "The schedule is applied. The shared tiles have a dimension for "
    "their versions. The prologue fills the first ones, the loop computes on one and fills another,"
    " and the epilogue computes on the last ones. Each iteration commits a group of copies and "
    "waits for an older one.",
    "LayoutInference": "Every tile has a layout; the statements are as before. The shared tiles "
    "are swizzled so that `ldmatrix` meets no bank conflict. The accumulator lies in registers as "
    "`mma` gives it. Expressions give the physical indices of an element, or its thread and "
    "register.",
    "LowerTileOp": "The program of one thread: the copies are loops over the thread's part, the "
    "GEMM is `ldmatrix` and `mma` on registers, and the fragment is a local buffer.",
    "VectorizeLoop": "Vectorised loops are vector expressions: 8 elements of float16 at once.",
    "LowerAsyncCopy": "Stores of what was loaded from global memory are `cp.async` of 16 bytes.",
    "PlanSharedMemory": "Each shared buffer has its offset in the block's dynamic shared memory.",
    "ThreadSync": "Barriers stand where threads read what other threads wrote.",
    "FlattenBuffer": "Every buffer has one dimension; indices are sums of products.",
}


def contract(path: Path) -> str:
    """The comment at the top of a pass's file: its parts, each of paragraphs, lists and code."""
    match = re.match(r"/\*!(.*?)\*/", path.read_text(), re.DOTALL)
    if match is None:
        raise ValueError(f"{path} does not begin with the pass's contract")
    blocks, indent = [""], None  # the indentation of the list that the last block belongs to
    for line in (re.sub(r"^\s*\* ?", "", line) for line in match[1].splitlines()):
        text, column = line.strip(), len(line) - len(line.lstrip())
        starts_item = text.startswith("- ")
        is_code = indent is None and column >= CODE_COLUMN
        if is_code:
            if not blocks[-1].startswith("```"):
                blocks.append("```text")
            blocks[-1] += "\n" + line[CODE_COLUMN:]
            continue
        if blocks[-1].startswith("```"):
            blocks[-1] += "\n```"
            blocks.append("")
        if starts_item or not text or (indent is not None and column <= indent):
            blocks.append("")
            indent = column if starts_item else None
        blocks[-1] += f" {text}"
    parts = []
    for block in (block.strip() for block in blocks if block.strip()):
        if block.startswith("```"):
            parts.append(block)
            continue
        for part, name in PARTS.items():
            block = re.sub(rf"(?<!\S)(?:{part})( \([^)]*\))?:\s+", rf"\n\n**{name}\1.** ", block)
        parts.append(block.strip())
    # An item follows the one before it without an empty line.
    return re.sub(r"(?m)^(- .*)\n\n(?=- )", r"\1\n", "\n\n".join(parts))


# Where code stands in such a comment; text is in front of it.
CODE_COLUMN = 7
PARTS = {
    "In|Input": "In",
    "Out|Output": "Out",
    "Establishes": "Establishes",
    "Left alone": "Left alone",
    "Refuses": "Refuses",
    "Warns": "Warns",
}


def pass_files() -> dict[str, Path]:
    """The C++ file of each pass of ours."""
    found = {}
    for path in sorted(SOURCES.rglob("*.cc")):
        for name in re.findall(r'(?:RegisterPass\("|TL_REGISTER_PASS\()(\w+)', path.read_text()):
            found[name] = path
    return found


def pass_order() -> list[str]:
    """The passes in the order in which phase.py runs them; each once."""
    source = inspect.getsource(phase.LowerAndLegalize) + inspect.getsource(phase.OptimizeForTarget)
    names = re.findall(r"transform\.([A-Z]\w+)(?=[,\])]|\(target)", source)
    return list(dict.fromkeys(name for name in names if name != "Pass"))


def passes_page() -> str:
    """docs/passes.md."""
    files = pass_files()
    page = [
        "# Passes",
        "",
        "In the order of `tilelang/engine/phase.py`. The two program forms that they take and give"
        " are those of [design.md](design.md); the text of each is the top of its C++ file."
        " `python docs/generate.py` writes this page.",
    ]
    for name in pass_order():
        if name not in files:
            page += ["", f"## {name}", "", "TVM's."]
            continue
        path = files[name].relative_to(DOCS.parent)
        page += ["", f"## {name}", "", f"[{path}](../{path})", "", _wrapped(contract(files[name]))]
    return "\n".join(page) + "\n"


def life_page() -> str:
    """docs/life-of-a-kernel.md."""
    page = [
        "# Life of a kernel",
        "",
        _wrapped(
            "A GEMM of 64 x 64 x 128 for sm_80, with tiles of 32 x 32 x 32, two stages and one"
            " warp, after each pass that changes its form. `TILELANG_DUMP_IR=1` writes the program"
            " after every pass. `python docs/generate.py` writes this page."
        ),
    ]
    for name, text in programs().items():
        page += ["", f"## {name}", "", _wrapped(STAGES[name]), "", "```text", text, "```"]
    source = tilelang.lower(gemm, target=Target(TARGET)).kernel_source
    kernel = source[source.index('extern "C"') :].strip()
    page += ["", "## CUDA", "", _wrapped(PRINTED), "", "```cuda", kernel, "```"]
    return "\n".join(page) + "\n"


PRINTED = (
    "The printer writes what it finds. The functions in namespace `tl` are those of the device "
    "headers (src/device), each with a second body for the emulator."
)


def programs() -> dict[str, str]:
    """The program after each pass of `STAGES`."""
    with tempfile.TemporaryDirectory() as folder:
        dump = Dump(Path(folder), "gemm")
        mod = tvm.IRModule({"main": gemm})
        dump.write("trace", mod)
        mod = phase.LowerAndLegalize(mod, Target(TARGET), dump)
        phase.OptimizeForTarget(mod, dump)
        found = {}
        for path in sorted((Path(folder) / "gemm").iterdir()):
            name = path.stem.partition("_")[2]
            if name in STAGES:
                found[name] = _body(path.read_text())
    return found


def _body(text: str) -> str:
    """The statements of the kernel, without the function's head; its layouts, where they stand."""
    layouts = re.search(r'"layouts": \{(.*?)\}', text)
    if layouts:
        return "\n".join(re.findall(r'\w+: "[^"]*"', layouts[1]))
    lines = [line for line in text.splitlines() if not re.match(r"\s*T\.(reads|writes)\(\)", line)]
    starts = (i for i, line in enumerate(lines) if re.search("thread_binding|launch_thread", line))
    return textwrap.dedent("\n".join(lines[next(starts) :])).strip()


def _wrapped(text: str) -> str:
    lines, in_code = [], False
    for line in text.split("\n"):
        in_code ^= line.startswith("```")
        hanging = "  " if line.startswith("- ") else ""
        is_text = not in_code and not line.startswith("```")
        lines.append(textwrap.fill(line, 110, subsequent_indent=hanging) if is_text else line)
    return "\n".join(lines)


PAGES = {
    "passes.md": passes_page,
    "life-of-a-kernel.md": life_page,
    "refusals.md": refusals.page,
    "targets.md": tables.targets_page,
    "types.md": tables.types_page,
    "configuration.md": tables.configuration_page,
}


if __name__ == "__main__":
    for page, text in PAGES.items():
        (DOCS / page).write_text(text())
