"""Where a cubin's machine code uses local memory: what ptxas's report of spills leaves open.

From compute capability 7.0 on an instruction has 128 bits, its operation in the lowest 12, then 4
of its predicate (Jia, Maggioni, Staiger, Scarpazza 2018, "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking", section 2). Branches are relative to the next instruction. How
they write the distance was read off nvdisasm, with which a test compares it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

from tilelang.utils.arch import check_arch

_LOAD_LOCAL, _STORE_LOCAL = 0x983, 0x387
_BRANCH, _EXIT, _RETURN = 0x947, 0x94D, 0x950
_BRANCH_OF_WARP = 0x547  # by a predicate that a warp has
_ALWAYS = 7  # the predicate PT
_STACK_POINTER = 1
_FORM = 9  # from this bit of an operation on stands what kinds its operands are of
_PRODUCTS = {
    *(0x1F0, 0x1F1, 0x1F2, 0x1F3),  # HGMMA, IGMMA, BGMMA, QGMMA: of a warp group
    *(0x03C, 0x037, 0x03F, 0x07A),  # HMMA, IMMA, DMMA, QMMA: of a warp
}
# Of Elf64_Ehdr (System V ABI) e_shoff, e_shentsize, e_shnum, e_shstrndx; of Elf64_Shdr sh_name,
# sh_offset, sh_size.
_FILE, _SECTION = struct.Struct("<40xQ10xHHH"), struct.Struct("<I20xQQ")

Instruction = tuple[int, int]
"""Its lower and its upper 64 bits."""


def spills_in_loops(cubin: bytes, kernel: str, arch: str) -> tuple[int, int]:
    """What a kernel's loops have: instructions that load or store at fixed places of a thread's
    local memory, as spilled registers are, and all instructions. A kernel without a loop counts
    whole. As soon as one loop multiplies matrices, loops without products are left out. These are
    those of warps that only load, which have few registers and spill some while they would wait,
    but also those of warps that compute, such as epilogues.

    Raises `ValueError` where the binary has no such kernel.

    Example: ``spills, instructions = spills_in_loops(compiled.cubin, "main_kernel", "sm_90a")``
    """
    code = instructions(cubin, kernel)
    targets = branch_targets(code, arch)
    loops = _loops([_next(code, targets, i) for i in range(len(code))])
    multiply = [loop for loop in loops if any(is_product(code[i]) for i in loop)]
    inside = list(itertools.chain(*(multiply or loops))) or range(len(code))
    return sum(_is_spill(code[i]) for i in inside), len(inside)


def instructions(cubin: bytes, kernel: str) -> list[Instruction]:
    """The instructions of a kernel, in the order of their addresses."""
    at, size, count, names = _FILE.unpack_from(cubin)
    sections = [_SECTION.unpack_from(cubin, at + n * size) for n in range(count)]
    text = sections[names][1]
    for name, offset, length in sections:
        if cubin.startswith(f".text.{kernel}\0".encode(), text + name):
            return list(struct.iter_unpack("<QQ", cubin[offset : offset + length]))
    raise ValueError(f"the binary has no kernel {kernel}")


def is_product(instruction: Instruction) -> bool:
    """Whether it multiplies matrices."""
    return instruction[0] & (1 << _FORM) - 1 in _PRODUCTS


def branch_targets(code: Sequence[Instruction], arch: str) -> dict[int, int]:
    """The number of the instruction that each branch goes to, by its own number."""
    found = {}
    for i, (low, high) in enumerate(code):
        if low & 0xFFF in (_BRANCH, _BRANCH_OF_WARP):
            distance = low >> 34 | (high & 0x3FFFF) << 30
            distance -= (distance >> 47) << 48
            if int(check_arch(arch)[1]) >= 9:
                distance = distance << 8 | low >> 16 & 0xFF
            found[i] = i + 1 + distance // 4
    return found


def _is_spill(instruction: Instruction) -> bool:
    low = instruction[0]
    is_local = low & 0xFFF in (_LOAD_LOCAL, _STORE_LOCAL)
    return is_local and low >> 24 & 0xFF == _STACK_POINTER


def _next(code: Sequence[Instruction], targets: dict[int, int], i: int) -> list[int]:
    operation, predicate = code[i][0] & 0xFFF, code[i][0] >> 12 & 0xF
    ends = predicate == _ALWAYS and operation in (_BRANCH, _EXIT, _RETURN)
    found = [*([] if ends else [i + 1]), *([targets[i]] if i in targets else [])]
    return [j for j in found if 0 <= j < len(code)]


def _loops(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """The strongly connected components of more than one node, of what can be reached from the
    first one (Tarjan 1972, "Depth-first search and linear graph algorithms")."""
    number, low = [0] * len(successors), [0] * len(successors)
    found: list[list[int]] = []
    stack, path = [0], [(0, iter(successors[0]))]
    number[0] = low[0] = count = 1
    open_nodes = {0}
    while path:
        node, left = path[-1]
        for other in left:
            if not number[other]:
                count += 1
                number[other] = low[other] = count
                stack.append(other)
                open_nodes.add(other)
                path.append((other, iter(successors[other])))
                break
            if other in open_nodes:
                low[node] = min(low[node], number[other])
        else:
            path.pop()
            if path:
                low[path[-1][0]] = min(low[path[-1][0]], low[node])
            if low[node] == number[node]:
                at = len(stack) - 1
                while stack[at] != node:
                    at -= 1
                component = stack[at:]
                del stack[at:]
                open_nodes.difference_update(component)
                found += [component] if len(component) > 1 else []
    return found
