"""What SASS shows that PTX does not: whether ptxas has kept the order of the program.

Accumulators of a wgmma belong to the tensor cores until a `wgmma.wait_group` (PTX ISA,
"Asynchronous Warpgroup Level Matrix Instructions"). The SASS of CUDA 13.5 had conversions of them
to 16 bits in front of the wait, and with CUDA 13.0 the results of the same kernel were wrong. The
emulator runs no SASS, so it cannot show this.
"""

from __future__ import annotations

import re

_PRODUCT = re.compile(r"\b[A-Z]GMMA\.\S*?64x(\d+)x\S* R(\d+), ")
_WAIT = re.compile(r"\bWARPGROUP\.DEPBAR\.LE gsb0, 0x([0-9a-f]+)")
_COMMENT = re.compile(r"/\*.*?\*/")


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
