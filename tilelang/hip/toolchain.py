"""Where a clang for AMD's GPUs comes from, and the library of its mathematical functions.

ROCm's own is taken where there is one, then a clang of the system, then that of the Python package
``ziglang``, which is a whole LLVM in one wheel. All of them compile the same source by the same
options, since the device headers ask nothing of ROCm.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilelang.env import env

_VERSIONS = ("", *(f"-{version}" for version in range(25, 16, -1)))
_REPAIR = (
    "pip install ziglang, install clang and lld of LLVM 19 or later, or set ROCM_PATH to a ROCm "
    "installation"
)
_TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Toolchain:
    """A compiler and its linker.

    Attributes:
        clang: the command of clang.
        lld: the command of lld for ELF.
    """

    clang: tuple[str, ...]
    lld: tuple[str, ...]

    def version(self) -> str:
        """What clang says it is, such as ``clang version 21.1.0``."""
        return _first_line((*self.clang, "--version"))

    def archs(self) -> frozenset[str]:
        """The architectures of AMD that clang knows; none where it is built without AMDGPU."""
        return _archs(self.clang)


def rocm_root() -> Path | None:
    """ROCm's folder: ``ROCM_PATH``, or where its packages put it; None without one."""
    return env.ROCM_PATH if env.ROCM_PATH.is_dir() else None


def toolchains() -> Iterator[Toolchain]:
    """The toolchains of this machine, the one to prefer first."""
    if root := rocm_root():
        binaries = root / "llvm" / "bin"
        if (binaries / "clang++").is_file() and (binaries / "ld.lld").is_file():
            yield Toolchain((str(binaries / "clang++"),), (str(binaries / "ld.lld"),))
    for suffix in _VERSIONS:
        clang, lld = shutil.which(f"clang++{suffix}"), shutil.which(f"ld.lld{suffix}")
        if clang and lld:
            yield Toolchain((clang,), (lld,))
    package = importlib.util.find_spec("ziglang")
    for folder in (package.submodule_search_locations or ()) if package else ():
        if program := shutil.which("zig", path=folder):
            yield Toolchain((program, "clang"), (program, "ld.lld"))


def find_toolchain(arch: str) -> Toolchain:
    """The toolchain that compiles for `arch` such as ``"gfx942"``.

    Raises `RuntimeError` where there is none; the text has what was found and a repair.

    Example: ``find_toolchain("gfx942").version()``
    """
    tried = []
    for toolchain in toolchains():
        if arch in toolchain.archs():
            return toolchain
        tried.append(f"{' '.join(toolchain.clang)} ({toolchain.version()})")
    found = f"found {', '.join(tried)}, which do not have it" if tried else "found none"
    raise RuntimeError(f"code for {arch} needs a clang with that target, {found}; {_REPAIR}")


def find_math_library() -> Path | None:
    """``ocml.bc``, the mathematical functions of ROCm's device library: of ROCm, of Debian's
    package rocm-device-libs, or of the Python package triton. None without one.
    """
    places = [root / "amdgcn" / "bitcode" for root in (rocm_root(), Path("/usr/lib")) if root]
    places += sorted(Path("/usr/lib").glob("*/amdgcn/bitcode"))
    triton = importlib.util.find_spec("triton")
    for folder in (triton.submodule_search_locations or ()) if triton else ():
        places.append(Path(folder) / "backends" / "amd" / "lib")
    return next((p / "ocml.bc" for p in places if (p / "ocml.bc").is_file()), None)


def run(command: tuple[str, ...], text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command of a toolchain. Raises `RuntimeError` where it takes minutes."""
    try:
        return subprocess.run(
            command, input=text, capture_output=True, text=True,
            timeout=_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(
            f"{command[0]} took longer than {_TIMEOUT_SECONDS} seconds, wanted an end; unroll less"
        ) from error


@functools.cache
def _first_line(command: tuple[str, ...]) -> str:
    return run(command).stdout.partition("\n")[0]


@functools.cache
def _archs(clang: tuple[str, ...]) -> frozenset[str]:
    said = run((*clang, "--target=amdgcn-amd-amdhsa", "-nogpulib", "--print-supported-cpus"))
    return frozenset(re.findall(r"^\s+(gfx\w+)\s*$", said.stdout + said.stderr, re.MULTILINE))
