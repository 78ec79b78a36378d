"""Whose an architecture is, and which GPUs run what was compiled for it."""

from __future__ import annotations

import re

import torch


def check_arch(arch: str) -> re.Match[str]:
    """The parts of an architecture's name: major and minor number, suffix. Raises `ValueError`
    where it is none.
    """
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
    if not found:
        raise ValueError(f"architecture {arch!r}: expected a name such as sm_90a")
    return found


def is_amd(arch: str) -> bool:
    """Whether an architecture is AMD's.

    Example: ``is_amd("gfx942") and not is_amd("sm_90a")``
    """
    return arch.startswith("gfx")


def gcn_arch(device: int) -> str:
    """The architecture of an AMD GPU of torch's.

    Example: ``gcn_arch(0) == "gfx942"``
    """
    # "gfx942:sramecc+:xnack-": the architecture, and settings of the machine.
    name: str = torch.cuda.get_device_properties(device).gcnArchName
    return name.partition(":")[0]


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether a GPU of this compute capability runs a cubin for `arch`.

    It runs those of its major number up to its minor one; of architecture-specific code (suffix
    ``a``) only its own, of family-specific code (``f``) as of plain code (CUDA C++ Programming
    Guide, "Binary Compatibility" and "Family-Specific Features"). Raises `ValueError` where `arch`
    is not the name of an architecture.

    Example: ``runs_on("sm_80", (8, 6)) and not runs_on("sm_80", (9, 0))``
    """
    found = check_arch(arch)
    wanted = int(found[1]), int(found[2])
    return wanted == capability or (
        wanted[0] == capability[0] and wanted[1] < capability[1] and found[3] != "a"
    )


def compiled_for(arch: str, capability: tuple[int, int]) -> str | None:
    """The architecture to compile CUDA C++ for `arch` for, so that a GPU of this compute capability
    runs it: `arch` where the GPU runs that, the GPU's own where it is a later one, None where it
    lacks what the source may use. Only plain architectures are kept by later GPUs (CUDA C++
    Programming Guide, "Feature Set Compiler Targets").

    Example: ``compiled_for("sm_80", (9, 0)) == "sm_90"`` and
    ``compiled_for("sm_90a", (10, 0)) is None``
    """
    if runs_on(arch, capability):
        return arch
    found = check_arch(arch)
    if found[3] or (int(found[1]), int(found[2])) > capability:
        return None
    return f"sm_{capability[0]}{capability[1]}"
