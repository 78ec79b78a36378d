"""Compiling generated kernel source for the CPU with the machine's C++ compiler."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilelang._paths import device_include_dirs, device_root
from tilelang.emulator.buffers import Tensor, declared_arrays
from tilelang.emulator.checks import Checks, bits_of, resolve_checks
from tilelang.emulator.machine import current_machine
from tilelang.emulator.reports import EmulationError, Memory, Report, parse_reports
from tilelang.env import env
from tilelang.utils.log import logger

# Generated code reads shared memory as several types, and its integers wrap, as on the GPU. Sums
# and products are rounded one by one. Its warnings are not the user's.
_FLAGS = (
    *("-std=c++17", "-O2", "-fPIC", "-w"),
    *("-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
    *("-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off", "-fno-math-errno"),
)
# Dynamic shared memory needs no initialisation; g++ does not see that in templates, clang++ does.
_GNU_FLAGS = ("-fno-extern-tls-init",)
# The compiler calls a function in front of each access; lines are looked up for a report. Stores of
# several lines must not become one, nor loops a call of memset.
_CHECKED_FLAGS = ("-fsanitize=thread", "-g1")
_GNU_CHECKED_FLAGS = (
    *("--param", "tsan-instrument-func-entry-exit=0"),
    *("-fno-store-merging", "-fno-tree-loop-distribute-patterns"),
)
UNKNOWN_BYTES = 2**64 - 1
_NO_MEMORY = "the kernel failed, and there was no memory to say how"
# Reports come from malloc.
_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [ctypes.c_void_p], None
_STATIC_ARRAY = re.compile(r"\b__shared__\b")


class LaunchConfig(ctypes.Structure):
    """How the emulator runs a kernel; ``tl_launch_config`` of launch.h, the adapter's
    ``LaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("dynamic_shared_bytes", ctypes.c_uint),
        ("cluster", ctypes.c_uint * 3),
        ("cooperative", ctypes.c_uint),
        ("argument_bytes", ctypes.POINTER(ctypes.c_ulong)),
        ("machine", ctypes.c_void_p),
    )


class EmulatedModule:
    """Compiled kernels of one program, loaded into this process for its lifetime.

    Attributes:
        path: the shared library.
        source: what it was compiled from.
    """

    def __init__(self, path: Path, source: str):
        self.path = path
        self.source = source
        self._library = ctypes.CDLL(str(path))

    def address(self, kernel_name: str) -> int:
        """Address of the function that launches a kernel, which is of the C type

        ``int(const tl_launch_config*, void** args, char** report)``: ``args[i]`` points to the i-th
        argument; other than 0 means that `report` is a text, which the caller frees.
        """
        launcher = self._library[f"tl_launch_{kernel_name}"]
        address = ctypes.cast(launcher, ctypes.c_void_p).value
        assert address is not None
        return address

    def launch(
        self,
        kernel_name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic_shared_bytes: int,
        args: Sequence[ctypes._SimpleCData],
        cluster: tuple[int, int, int] = (1, 1, 1),
        cooperative: bool = False,
        arrays: Sequence[np.ndarray | None] = (),
    ) -> None:
        """Runs a kernel to its end.

        Args:
            kernel_name: one of the names that the program was built with.
            grid: number of blocks along x, y and z.
            block: number of threads of a block along x, y and z.
            dynamic_shared_bytes: size of the block's dynamic shared memory.
            args: one ctypes value for each parameter; a pointer is a `ctypes.c_void_p`.
            cluster: number of blocks of a cluster along x, y and z.
            cooperative: whether all blocks run at the same time, for ``tl::sync_grid``.
            arrays: for each argument, the array that it points to, if any: what the checks know of
                global memory.

        Raises:
            EmulationError: the kernel failed, or the checks have found something.

        Example: ``module.launch("scale", (4, 1, 1), (128, 1, 1), 0, [c_void_p(x.data_ptr())])``
        """
        machine = current_machine()
        given = [*arrays, *[None] * (len(args) - len(arrays))]
        sizes = [UNKNOWN_BYTES if array is None else array.nbytes for array in given]
        config = LaunchConfig(
            *(grid, block, dynamic_shared_bytes, cluster, cooperative),
            (ctypes.c_ulong * len(args))(*sizes),
            ctypes.addressof(machine),
        )
        pointers = (ctypes.c_void_p * len(args))(*[ctypes.addressof(arg) for arg in args])
        report = ctypes.c_void_p()
        launcher = self._library[f"tl_launch_{kernel_name}"]
        failed = launcher(
            ctypes.byref(config),
            pointers,
            ctypes.byref(report),
        )
        if failed:
            tensors = [
                None if array is None else Tensor.of_array(f"argument {i}", array)
                for i, array in enumerate(given)
            ]
            raise EmulationError(self.explain(kernel_name, _taken(report), tensors))

    def parameter_bytes(self, kernel_name: str) -> list[int]:
        """The sizes of a kernel's parameters, as it declares them."""
        function = self._library[f"tl_parameters_{kernel_name}"]
        function.restype = ctypes.c_uint
        count = function(None, 0)
        sizes = (ctypes.c_uint * count)()
        function(sizes, count)
        return list(sizes)

    def explain(
        self, kernel_name: str, text: str, arguments: Sequence[Tensor | None]
    ) -> list[Report]:
        """What a launcher has written to its error buffer; `arguments` are those of the launch."""
        memory = Memory(declared_arrays(self.source, kernel_name), arguments)
        return parse_reports(text, kernel_name, memory, self.path)


def _is_whole(path: Path) -> bool:
    """Whether a library has all of its bytes; the loader crashes on one that is cut off."""
    with path.open("rb") as file:
        head = file.read(64)
        if len(head) < 64:
            return False
        if head[:5] != b"\x7fELF\x02":  # of 64 bits
            return True
        # The table of sections ends an ELF file (System V ABI, ELF Header).
        (start,) = struct.unpack_from("=Q", head, 0x28)
        size, count = struct.unpack_from("=HH", head, 0x3A)
        return path.stat().st_size >= start + size * count


def _taken(report: ctypes.c_void_p) -> str:
    """The text that a launcher has left, which is freed."""
    text = ctypes.string_at(report).decode(errors="replace") if report else _NO_MEMORY
    _free(report)
    return text


def build_emulated(
    source: str,
    kernel_names: Sequence[str],
    cache_dir: Path | None = None,
    checks: Checks | None = None,
) -> EmulatedModule:
    """Compiles a program for the CPU, or takes it from the cache, and loads it.

    Args:
        source: the program that would go to the GPU.
        kernel_names: its kernels that will be launched.
        cache_dir: where compiled programs are kept; by default ``emulator`` under
            ``TILELANG_CACHE_DIR``.
        checks: what its launches are watched for; see `resolve_checks`.

    Raises:
        RuntimeError: there is no C++ compiler, it rejects the source, or the cache's folder cannot
            be written to.
        ValueError: there is no such check.

    Example: ``build_emulated(kernel.get_kernel_source(), ["main_kernel"]).address("main_kernel")``
    """
    has_static_arrays = bool(_STATIC_ARRAY.search(source))
    if has_static_arrays and resolve_checks(checks):
        logger.warning(
            "the emulator's checks do not watch __shared__ arrays of %s for races or bounds; take "
            "the memory from tl::static_shared<bytes>(), as tl::shared<T, extent>(..), to have it "
            "watched",
            ", ".join(kernel_names),
        )
    static_arrays = str(has_static_arrays).lower()
    program, functions = _renamed(source, kernel_names)
    for name, function in functions.items():
        program += f"\nTL_EMU_EXPORT({name}, {function}, {static_arrays})"
    program += "\n"
    build = _Build(find_compiler(), bits_of(resolve_checks(checks)))
    folder = cache_dir or env.TILELANG_CACHE_DIR / "emulator"
    path = folder / f"{build.key(program)}.so"
    if path.is_file() and _is_whole(path):
        return EmulatedModule(path, source)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        build.library(program, path)
    except OSError as error:
        raise RuntimeError(
            f"the emulator cannot keep compiled kernels in {folder}: {error}. Name a directory "
            "that can be written to in the environment variable TILELANG_CACHE_DIR"
        ) from error
    return EmulatedModule(path, source)


def _renamed(source: str, kernel_names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The program with other names for its kernels, and these names: beside C's library and C++'s
    rules a kernel called `exp`, `read` or `main` would not be what is called."""
    functions = {name: name for name in kernel_names}
    for name in kernel_names:
        declared = re.compile(rf"(\b__global__\b[^;{{}}]*?\b){re.escape(name)}(?=\s*\()")
        source, count = declared.subn(rf"\g<1>tl_kernel_{name}", source)
        if count:
            functions[name] = f"tl_kernel_{name}"
    return source, functions


def find_compiler() -> list[str]:
    """The command that compiles C++: the environment's CXX, else c++, g++ or clang++.

    Raises:
        RuntimeError: none of them is there.
    """
    asked_for = shlex.split(os.environ.get("CXX", ""))
    for command in [asked_for] if asked_for else [["c++"], ["g++"], ["clang++"]]:
        executable = shutil.which(command[0])
        if executable:
            return [executable, *command[1:]]
    wanted = f"CXX={asked_for[0]}" if asked_for else "c++, g++ or clang++"
    raise RuntimeError(
        f"the emulator compiles kernels with the machine's C++ compiler, and {wanted} is not in "
        "PATH. Install one (on Debian: apt install g++) or name it in the environment variable CXX."
    )


@functools.cache
def _version(compiler: tuple[str, ...]) -> str:
    done = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"`{shlex.join(compiler)} --version` fails: {done.stderr.strip() or done.returncode}. "
            "Name a working C++ compiler in the environment variable CXX."
        )
    return done.stdout


class _Build:
    """Compilations with one compiler and one set of checks, the bits of TL_EMU_CHECKS."""

    def __init__(self, compiler: list[str], checks: int):
        self.checks = checks
        self.version = _version(tuple(compiler))
        self.gnu = "Free Software Foundation" in self.version
        self.command = [*compiler, *_FLAGS, *(_GNU_FLAGS if self.gnu else ())]
        self.command.append(f"-DTL_EMU_CHECKS={checks}")

    def key(self, program: str) -> str:
        """The name of a compiled program: of all that it depends on."""
        digest = hashlib.sha256(f"{platform.machine()}\0{_headers_digest()}".encode())
        flags = (*self.command, *_CHECKED_FLAGS, *_GNU_CHECKED_FLAGS)
        # Reports tell a kernel's lines from the headers' by where these are.
        for text in (program, self.version, str(device_root()), *flags):
            digest.update(text.encode() + b"\0")
        return digest.hexdigest()

    def library(self, program: str, path: Path) -> None:
        """Compiles a program to a shared library."""
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as folder:
            source, result = Path(folder, "kernel.cu"), Path(folder, "kernel.so")
            source.write_text(program)
            # Reports name what stays: lines that no Python stands for are the source's.
            kept = path.with_suffix(".cu")
            places = f"-ffile-prefix-map={source}={kept}"
            runtime = self._runtime(Path(folder))
            if not self.checks:
                self._run("-shared", places, runtime, "-x", "c++", source, "-o", result)
            else:
                flags = [*_CHECKED_FLAGS, *(_GNU_CHECKED_FLAGS if self.gnu else ())]
                # The user's files are named from here, but not the headers, which may lie below.
                flags += [f"-fdebug-prefix-map={Path.cwd()}=.", places]
                flags.append(f"-fdebug-prefix-map={device_root()}={device_root()}")
                observed = Path(folder, "kernel.o")
                self._run(*flags, "-c", "-x", "c++", source, "-o", observed)
                # Linked without -fsanitize: the runtime has the functions that the flag calls.
                self._run("-shared", runtime, observed, "-o", result)
            # Another process may compile the same program: the last one replaces equals by equals.
            os.replace(source, kept)
            os.replace(result, path)

    def _runtime(self, folder: Path) -> Path:
        """What all programs share."""
        source = device_root() / "emu" / "runtime.cc"
        path = folder.parent / f"{self.key(source.read_text())}.o"
        if not path.is_file():
            result = folder / "runtime.o"
            self._run("-c", source, "-o", result)
            os.replace(result, path)
        return path

    def _run(self, *arguments: str | Path) -> None:
        includes = [f"-I{folder}" for folder in device_include_dirs("emu")]
        words = [*self.command, *includes, *map(str, arguments)]
        limit = env.TILELANG_COMPILE_TIMEOUT_SECONDS or None
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=limit)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(
                f"the emulator's compiler takes more than {limit} s, which "
                f"TILELANG_COMPILE_TIMEOUT_SECONDS allows\ncommand: {shlex.join(words)}"
            ) from error
        if done.returncode != 0:
            raise RuntimeError(
                f"the kernel does not compile for the emulator\ncommand: {shlex.join(words)}\n"
                f"{done.stderr.strip()}"
            )


def _headers_digest() -> str:
    digest = hashlib.sha256()
    for folder in device_include_dirs("emu"):
        for path in sorted([*folder.rglob("*.h"), *folder.rglob("*.cc")]):
            digest.update(path.read_bytes())
    return digest.hexdigest()
