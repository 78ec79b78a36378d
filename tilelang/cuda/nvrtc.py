"""Compiling generated CUDA source in this process; needs neither a GPU nor a CUDA toolkit.

NVRTC itself is loaded when something is compiled (`tilelang/cuda/nvrtc_library.py`), not when a
binary is taken from the cache: that costs tens of milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from tilelang._paths import device_include_dirs
from tilelang.compat.nvcc_flags import to_nvrtc
from tilelang.cuda.machine_code import spills_in_loops
from tilelang.engine.resource_usage import Advisory, ResourceUsage, select


class Cubin:
    """A compiled program: the binary for one architecture, and its kernels' resources by name.

    Attributes:
        arch: the architecture.
        cubin: the binary.
        log: what the compilers said.
    """

    def __init__(
        self,
        source: str,
        arch: str,
        kernel_names: Sequence[str],
        flags: list[str],
        location: str,
        compiled: tuple[bytes, str] | None = None,
    ):
        """Compiles, unless the binary and the log are `compiled` already."""
        self.arch = arch
        self._kernel_names = kernel_names
        self.cubin, self.log = compiled or _run(source, flags, location)

    @cached_property
    def resource_usage(self) -> dict[str, ResourceUsage]:
        """Resources by kernel. Raises `RuntimeError` where the program lacks one of the kernels."""
        found = select(parse_resource_usage(self.log), self._kernel_names)
        return {name: self._with_places(name, usage) for name, usage in found.items()}

    def _with_places(self, name: str, usage: ResourceUsage) -> ResourceUsage:
        """With the spills that are in loops, which ptxas does not tell."""
        if not usage.spill_stores + usage.spill_loads:
            return usage
        spills, count = spills_in_loops(self.cubin, name, self.arch)
        return replace(usage, spills_in_loops=spills, instructions_in_loops=count)


def compile_cubin(
    source: str,
    arch: str,
    kernel_names: Sequence[str],
    options: Sequence[str] = (),
    fast_math: bool = False,
    location: str = "",
) -> Cubin:
    """Compiles CUDA C++ to a cubin with NVRTC.

    Args:
        source: the program; its kernels are ``extern "C"``.
        arch: real architecture, such as ``"sm_80"`` or ``"sm_90a"``.
        kernel_names: the kernels whose resources are wanted.
        options: further NVRTC options, such as ``"--maxrregcount=128"``, or nvcc's
            (`tilelang.compat.nvcc_flags`).
        fast_math: approximate division, square root and functions, and flushed subnormals.
        location: ``file:line`` of the program that the source comes from, for errors.

    Raises:
        RuntimeError: the source does not compile; the text has what was found and wanted, a repair,
            the options and the compiler's log.

    Example: ``compile_cubin(source, "sm_90a", ["main_kernel"]).resource_usage["main_kernel"]``
    """
    return Cubin(source, arch, kernel_names, nvrtc_flags(arch, options, fast_math), location)


def configured(get: Callable[[str], Any]) -> dict[str, Any]:
    """The keywords of `compile_cubin` that pass configurations ask for; `get` gives the value of a
    key or None.
    """
    flags = get("tl.device_compile_flags") or []
    level = get("tl.ptxas_register_usage_level")
    return {
        "options": [
            *(flags.split() if isinstance(flags, str) else flags),
            *([] if level is None else [f"--ptxas-options=--register-usage-level={level}"]),
        ],
        "fast_math": bool(get("tl.enable_fast_math")),
    }


def compile_ptx(
    source: str,
    arch: str,
    options: Sequence[str] = (),
    fast_math: bool = False,
    location: str = "",
) -> str:
    """Compiles CUDA C++ to PTX; arguments and errors are those of `compile_cubin`.

    Example: ``compile_ptx(source, "sm_90a").startswith("//")``
    """
    flags = nvrtc_flags(arch.replace("sm_", "compute_"), options, fast_math)
    ptx, _ = _run(source, flags, location, "PTX")
    return ptx.rstrip(b"\0").decode()


def _run(source: str, flags: list[str], location: str, form: str = "CUBIN") -> tuple[bytes, str]:
    """The program in one form, and what the compiler said."""
    from tilelang.cuda.nvrtc_library import run

    # NVRTC then leaves out its declarations of what `_OMITTED` finds, which stand before a program.
    whole = _OMITTED.search(source) or any(flag.startswith(_ADDS_TEXT) for flag in flags)
    return run(source, flags if whole else [*flags, "--minimal"], location, form)


_OMITTED = re.compile(
    r"\b(cuda|tex|surf|Texture|Surface)|<<<|^\s*#\s*include\b(?! <tl/)", re.MULTILINE
)
"""NVRTC, "Supported Compile Options", --minimal: textures and surfaces, what is of CUDA's runtime,
kernel launches of the device. Texts of the user's may have them, and so may what these include."""
_ADDS_TEXT = ("-D", "--define-macro", "-include", "--pre-include")


def nvrtc_flags(arch: str, options: Sequence[str], fast_math: bool) -> list[str]:
    """All options that NVRTC is given for `arch`, ``sm_90a`` or ``compute_90a``."""
    return [
        f"--gpu-architecture={arch}",
        "--std=c++17",
        "--generate-line-info",
        "--ptxas-options=--verbose",
        # Of a binary that the driver keeps, ptxas says nothing; ours is kept with what it has said.
        "--no-cache",
        *(f"--include-path={path}" for path in device_include_dirs("cuda")),
        *(["--use_fast_math"] if fast_math else []),
        *to_nvrtc(options),
    ]


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_PROPERTIES = re.compile(r"Function properties for (\w+)")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_ADVISORY = re.compile(
    r"\((C\d+)\) Potential Performance Loss: (.*?)(?: (?:in|for) the function '(\w+)'.*)?$"
)


def parse_resource_usage(log: str) -> dict[str, ResourceUsage]:
    """Resources by kernel from the text of ``ptxas --verbose``."""
    found: dict[str, dict[str, int]] = {}
    advisories: dict[str, list[Advisory]] = {}
    entry = function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            # What names no function, in front of the first one, is about that one: most programs
            # have no other.
            if not found and "" in advisories:
                advisories.setdefault(match[1], []).extend(advisories.pop(""))
            entry = match[1]
            found[entry] = {field.name: 0 for field in fields(ResourceUsage) if field.type == "int"}
        elif match := _ADVISORY.search(line):
            # What it advises about a function stands in front of what it says of its registers.
            text = " ".join(match[2].split())
            advisories.setdefault(match[3] or entry, []).append(Advisory(match[1], text))
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif (match := _MEMORY.search(line)) and function == entry:
            stack, stores, loads = map(int, match.groups())
            found[entry].update(stack=stack, spill_stores=stores, spill_loads=loads)
        elif match := _REGISTERS.search(line):
            found[entry]["registers"] = int(match[1])
            if shared := _SHARED.search(line):
                found[entry]["static_shared"] = int(shared[1])
    return {
        name: ResourceUsage(**values, advisories=tuple(advisories.get(name, ())))
        for name, values in found.items()
    }
