"""Compiling generated HIP source to a code object; needs neither an AMD GPU nor ROCm."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tilelang._paths import device_include_dirs
from tilelang.engine.resource_usage import ResourceUsage, select
from tilelang.hip.compile_error import explain_failure
from tilelang.hip.toolchain import Toolchain, find_math_library, find_toolchain, run

_REGISTER_BYTES = 4
# With the registers of two wavefronts of a SIMD, 256 a lane on CDNA, MFMA may have its accumulators
# in any of them. With more, accumulators are in registers that only MFMA and moves take
# (v_accvgpr_read), so that each element that other instructions want is copied.
_TWO_WAVES = ("-DTL_WAVES_OF_SIMD=2",)


class CodeObject:
    """A compiled program: the binary for one architecture, and its kernels' resources by name.

    Attributes:
        arch: the architecture.
        cubin: the binary, an ELF file that hipModuleLoadData takes. All targets' binaries have this
            name.
        assembly: its text.
        log: what the compiler said.
    """

    def __init__(
        self, arch: str, kernel_names: Sequence[str], cubin: bytes, assembly: str, log: str
    ):
        self.arch, self.cubin, self.assembly, self.log = arch, cubin, assembly, log
        self._kernel_names = kernel_names

    @cached_property
    def resource_usage(self) -> dict[str, ResourceUsage]:
        """Resources by kernel. Raises `RuntimeError` where the program lacks one of the kernels."""
        return select(parse_resource_usage(self.assembly), self._kernel_names)


def compile_code_object(
    source: str,
    arch: str,
    kernel_names: Sequence[str],
    options: Sequence[str] = (),
    fast_math: bool = False,
    location: str = "",
) -> CodeObject:
    """Compiles HIP C++ to a code object, for two wavefronts of a SIMD where that spills no
    register.

    Args:
        source: the program; its kernels are ``extern "C"``.
        arch: such as ``"gfx942"``.
        kernel_names: the kernels whose resources are wanted.
        options: further options of clang.
        fast_math: approximate division and square root, and flushed subnormals.
        location: ``file:line`` of the program that the source comes from, for errors.

    Raises:
        RuntimeError: there is no compiler for `arch`, or the source does not compile; the text has
            what was found and wanted, a repair, the options and the compiler's log.

    Example: ``compile_code_object(source, "gfx942", ["main_kernel"]).cubin``
    """
    toolchain = find_toolchain(arch)
    flags = clang_flags(arch, options, fast_math)
    build = _Build(toolchain, arch, location)
    assembly, log = build.assembly(source, [*flags, *_TWO_WAVES])
    if functions := sorted(set(re.findall(r"__ocml_(\w+)_f(?:32|64)\b", assembly))):
        flags = [*flags, *_math_library_flags(functions, location)]
        assembly, log = build.assembly(source, [*flags, *_TWO_WAVES])
    if any(usage.spill_stores for usage in parse_resource_usage(assembly).values()):
        assembly, log = build.assembly(source, flags)
    return CodeObject(arch, kernel_names, build.link(assembly), assembly, log)


def configured(get: Callable[[str], Any]) -> dict[str, Any]:
    """The keywords of `compile_code_object` that pass configurations ask for; `get` gives the value
    of a key or None.
    """
    flags = get("tl.device_compile_flags") or []
    return {
        "options": flags.split() if isinstance(flags, str) else list(flags),
        "fast_math": bool(get("tl.enable_fast_math")),
    }


def clang_flags(arch: str, options: Sequence[str], fast_math: bool) -> list[str]:
    """All options that clang is given for `arch`."""
    fast = ["-fgpu-flush-denormals-to-zero", "-fno-hip-fp32-correctly-rounded-divide-sqrt"]
    return [
        f"--offload-arch={arch}",
        *("-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-std=c++17", "-O3"),
        "-fdeclspec",
        # Kernels read and write one memory as several types.
        "-fno-strict-aliasing",
        # Instructions for the addition of floats, which memory of the device takes.
        "-munsafe-fp-atomics",
        "-mcode-object-version=5",
        # What it would have unrolled otherwise is no error of the program.
        "-Wno-pass-failed",
        *(f"-I{path}" for path in device_include_dirs("hip")),
        *(fast if fast_math else []),
        *options,
    ]


def _math_library_flags(functions: Sequence[str], location: str) -> list[str]:
    library = find_math_library()
    if library is None:
        where = f"{location}: " if location else ""
        raise RuntimeError(
            f"{where}found {', '.join(functions)} in the kernel, wanted ROCm's device library "
            "(ocml.bc), which has these functions; install ROCm, or Debian's package "
            "rocm-device-libs, or the Python package triton"
        )
    linked = ("-mlink-builtin-bitcode", str(library))
    return ["-include", "tl/ocml.h", *(word for part in linked for word in ("-Xclang", part))]


class _Build:
    """The steps of a compilation."""

    def __init__(self, toolchain: Toolchain, arch: str, location: str):
        self.toolchain, self.arch, self.location = toolchain, arch, location

    def assembly(self, source: str, flags: Sequence[str]) -> tuple[str, str]:
        """The assembly of a source, and what clang says of it."""
        with tempfile.TemporaryDirectory(prefix="tilelang-") as directory:
            linked = self._bitcode_flags(source, Path(directory))
            command = (*self.toolchain.clang, *flags, *linked, "-S", "-o", "-", "-")
            result = run(command, source)
        if result.returncode:
            self._refuse(result.stderr, flags)
        return result.stdout, result.stderr

    def _bitcode_flags(self, source: str, directory: Path) -> list[str]:
        """What gives clang the functions of headers that are partly in LLVM's own language:
        ``tl/x.gfx950.ll`` beside ``tl/x.h``."""
        headers = device_include_dirs("hip")[1]
        flags = []
        for name in re.findall(r"^#include <tl/(\w+)\.h>", source, re.MULTILINE):
            text, bitcode = headers / "tl" / f"{name}.{self.arch}.ll", directory / f"{name}.bc"
            if not text.is_file():
                continue
            command = (
                *self.toolchain.clang,
                *("--target=amdgcn-amd-amdhsa", f"-mcpu={self.arch}", "-nogpulib"),
                *("-x", "ir", "-c", "-emit-llvm", "-o", str(bitcode), str(text)),
            )
            result = run(command)
            if result.returncode:
                self._refuse(result.stderr, command[1:])
            flags += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(bitcode)]
        return flags

    def link(self, assembly: str) -> bytes:
        """The code object. Undefined functions, as of a program's own text, are errors."""
        with tempfile.TemporaryDirectory(prefix="tilelang-") as directory:
            file, linked = Path(directory) / "kernel.o", Path(directory) / "kernel.co"
            target = ("--target=amdgcn-amd-amdhsa", f"-mcpu={self.arch}", "-nogpulib")
            clang, lld = self.toolchain.clang, self.toolchain.lld
            for command, text in (
                ((*clang, *target, "-c", "-x", "assembler", "-o", str(file), "-"), assembly),
                ((*lld, "-m", "elf64_amdgpu", "-shared", "--no-undefined", str(file),
                  "-o", str(linked)), None),
            ):  # fmt: skip
                result = run(command, text)
                if result.returncode:
                    self._refuse(result.stderr, command[1:])
            return linked.read_bytes()

    def _refuse(self, log: str, flags: Sequence[str]) -> None:
        compiler = self.toolchain.version()
        raise RuntimeError(
            f"{explain_failure(log, self.location, compiler)}\n{compiler}\n"
            f"options: {' '.join(flags)}\n{log}"
        )


_KERNELS = re.compile(r"^amdhsa\.kernels:\n(.*?)^amdhsa\.", re.DOTALL | re.MULTILINE)
_KERNEL = re.compile(r"^  - ", re.MULTILINE)
_FIELD = re.compile(r"^    \.(\w+): +(\S+)$", re.MULTILINE)


def parse_resource_usage(assembly: str) -> dict[str, ResourceUsage]:
    """Resources by kernel from the metadata of an assembly (LLVM, "User Guide for AMDGPU Backend",
    "Code Object V5 Metadata")."""
    kernels = _KERNELS.search(assembly)
    found = {}
    for kernel in _KERNEL.split(kernels[1])[1:] if kernels else ():
        fields = dict(_FIELD.findall(f"    {kernel}"))
        spilled = int(fields["vgpr_spill_count"]) * _REGISTER_BYTES
        found[fields["name"]] = ResourceUsage(
            registers=int(fields["vgpr_count"]),
            spill_stores=spilled,
            spill_loads=spilled,
            stack=int(fields["private_segment_fixed_size"]),
            static_shared=int(fields["group_segment_fixed_size"]),
        )
    return found
