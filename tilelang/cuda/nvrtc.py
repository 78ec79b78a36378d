"""Compiling generated CUDA source in this process; needs neither a GPU nor a CUDA toolkit.

NVRTC itself is loaded when something is compiled (`tilelang/cuda/nvrtc_library.py`), not when a
binary is taken from the cache: that costs tens of milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

from tilelang._paths import device_include_dirs
from tilelang.compat.nvcc_flags import to_nvrtc
from tilelang.engine.resource_usage import ResourceUsage, select


class Cubin:
    """A compiled program: the binary for one architecture, and its kernels' resources by name.

    Attributes:
        arch: the architecture.
        cubin: the binary.
        log: what the compilers said; nothing of ptxas where the driver's cache had the binary.
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
        self._source, self._kernel_names, self._flags = source, kernel_names, flags
        self._location = location
        self.cubin, self.log = compiled or _run(source, flags, location)

    @cached_property
    def resource_usage(self) -> dict[str, ResourceUsage]:
        """Resources by kernel. Raises `RuntimeError` where the program lacks one of the kernels."""
        usage = parse_resource_usage(self.log)
        if not usage:
            # The driver's cache had the binary, so ptxas did not run and said nothing.
            flags = [*self._flags, "--no-cache"]
            usage = parse_resource_usage(_run(self._source, flags, self._location)[1])
        return select(usage, self._kernel_names)


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
        *(f"--include-path={path}" for path in device_include_dirs("cuda")),
        *(["--use_fast_math"] if fast_math else []),
        *to_nvrtc(options),
    ]


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_PROPERTIES = re.compile(r"Function properties for (\w+)")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_resource_usage(log: str) -> dict[str, ResourceUsage]:
    """Resources by kernel from the text of ``ptxas --verbose``."""
    found: dict[str, dict[str, int]] = {}
    entry = function = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
            found[entry] = {field.name: 0 for field in fields(ResourceUsage)}
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif (match := _MEMORY.search(line)) and function == entry:
            stack, stores, loads = map(int, match.groups())
            found[entry].update(stack=stack, spill_stores=stores, spill_loads=loads)
        elif match := _REGISTERS.search(line):
            found[entry]["registers"] = int(match[1])
            if shared := _SHARED.search(line):
                found[entry]["static_shared"] = int(shared[1])
    return {name: ResourceUsage(**values) for name, values in found.items()}
