"""What SASS shows that PTX does not: whether ptxas has kept the order of the program, and how many
instructions a loop has.

Accumulators of a wgmma belong to the tensor cores until a `wgmma.wait_group` (PTX ISA,
""Asynchronous Warpgroup Level Matrix Instructions"). The SASS of CUDA 13.0 to 13.5 had conversions
of them to 16 bits in front of the wait. It also lacked a product where another one followed in the
same accumulators. Results were wrong on a GPU. The emulator runs no SASS, so it cannot show this.
``pytest --sass`` looks at each kernel with a wgmma that a test calls.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

_PRODUCT = re.compile(r"\b[A-Z]GMMA\.\S*?64x(\d+)x\S* R(\d+), ")
_WAIT = re.compile(r"\bWARPGROUP\.DEPBAR\.LE gsb0, 0x([0-9a-f]+)")
_COMMENT = re.compile(r"/\*.*?\*/")
_LABEL = re.compile(r"(\.L\S+):")
_INSTRUCTION = re.compile(r"(?:@!?U?P\S+ )?[A-Z][A-Z0-9_.]*\b.*;")
_DELETED = re.compile(r"\b[A-Z]GMMA\.\S* RZ, gdesc\[URZ\]")
_BRANCH = re.compile(r"\bBRA\b.*?(\.L[\w.]+)")


def uses_in_flight(sass: str) -> list[str]:
    """The instructions that use an accumulator of a wgmma that may be running, in the order of the
    text: across branches backwards nothing is known.

    Accumulators are 32 bits wide: 64 x N numbers of a warp group are N / 2 registers of a thread.

    Example: ``assert uses_in_flight(kernel.sass) == []``
    """
    found: list[str] = []
    groups: list[set[int]] = []
    issued: set[int] = set()
    for text in sass.splitlines():
        line = _COMMENT.sub("", text).strip()
        if product := _PRODUCT.search(line):
            columns, first = int(product[1]), int(product[2])
            issued |= set(range(first, first + columns // 2))
            if "gsb0" in line:  # the last of a group
                groups.append(issued)
                issued = set()
        elif wait := _WAIT.search(line):
            left = int(wait[1], 16)
            groups = groups[-left:] if left else []
        else:
            running = issued.union(*groups)
            if any(int(number) in running for number in re.findall(r"\bR(\d+)\b", line)):
                found.append(line)
    return found


def deleted_products(sass: str) -> int:
    """How many groups of wgmmas have no product. ptxas commits a product of nothing where it has
    deleted those of the program, because nobody uses them, or, in CUDA 13.0 to 13.5, because it
    takes them for the next ones in the same accumulators.

    Example: ``assert deleted_products(kernel.sass) == 0``
    """
    return len(_DELETED.findall(sass))


def loop_with(sass: str, instruction: str) -> list[str]:
    """The instructions of the shortest loop with one whose text has `instruction`: from where a
    branch leads back to, to the branch. What is behind an exit of threads, such as the rare part of
    a wait, is of no loop. Raises `ValueError` if there is none.

    Example: ``len(loop_with(kernel.sass, "HGMMA"))``
    """
    code: list[str] = []
    labels: dict[str, int] = {}
    loops: list[list[str]] = []
    for text in sass.splitlines():
        line = _COMMENT.sub("", text).strip()
        if label := _LABEL.match(line):
            labels[label[1]] = len(code)
        elif _INSTRUCTION.match(line):
            code.append(line)
            branch = _BRANCH.search(line)
            if branch and branch[1] in labels:
                loops.append(code[labels[branch[1]] :])
    found = [
        loop
        for loop in loops
        if any(instruction in line for line in loop) and not any("EXIT" in line for line in loop)
    ]
    if not found:
        raise ValueError(f"found no loop with {instruction}, wanted one")
    return min(found, key=len)


def watch() -> None:
    """From now on a call of a kernel with a wgmma raises `AssertionError` where its SASS uses
    accumulators that may be in flight, or lacks products. Needs no GPU, but NVRTC and nvdisasm.

    Example: ``watch()``, then what is to be checked
    """
    kernels: Any = importlib.import_module("tilelang.jit.kernel").JITKernel
    call = kernels.__call__
    seen: set[str] = set()

    def check_and_call(self: Any, *given: Any, **named: Any) -> Any:
        source = self.artifact.kernel_source
        if "wgmma" in source and source not in seen:
            seen.add(source)
            found = uses_in_flight(self.sass)
            if found:
                raise AssertionError(f"{self.launch_plan.where()}: {found[:4]} .. use accumulators")
            if deleted := deleted_products(self.sass):
                raise AssertionError(f"{self.launch_plan.where()}: {deleted} groups lack products")
        return call(self, *given, **named)

    kernels.__call__ = check_and_call
