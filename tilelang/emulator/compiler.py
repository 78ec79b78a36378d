"""Compiling generated kernel source for the CPU with the machine's C++ compiler."""

from __future__ import annotations

import atexit
import collections
import ctypes
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import uuid
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilelang._paths import device_include_dirs, device_root
from tilelang.cache import store as default_store
from tilelang.cache.cubins import reads_other_files
from tilelang.cache.store import Entry, Store, key_of
from tilelang.cache.versions import environment, headers_digest
from tilelang.emulator.buffers import Tensor, declared_arrays
from tilelang.emulator.checks import Checks, bits_of, resolve_checks
from tilelang.emulator.machine import current_machine
from tilelang.emulator.reports import EmulationError, Memory, Report, parse_reports
from tilelang.env import env
from tilelang.utils.log import logger

# Generated code reads shared memory as several types, and its integers wrap, as on the GPU. Sums
# and products are rounded one by one. Its warnings are not the user's.
_FLAGS = (
    *("-std=c++17", "-fPIC", "-w"),
    *("-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
    *("-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off", "-fno-math-errno"),
)
# Dynamic shared memory needs no initialisation; g++ does not see that in templates, clang++ does.
# A frame larger than a stack touches its pages in order, so that it meets the page that guards the
# stack, and not the memory in front of it.
_GNU_FLAGS = ("-fno-extern-tls-init", "-fstack-clash-protection")
# The compiler calls a function in front of each access; lines are looked up for a report. Stores of
# several lines must not become one, nor loops a call of memset.
_CHECKED_FLAGS = ("-fsanitize=thread", "-g1")
_GNU_CHECKED_FLAGS = (
    *("--param", "tsan-instrument-func-entry-exit=0"),
    *("-fno-store-merging", "-fno-tree-loop-distribute-patterns"),
)
# The emulator itself is compiled once for all programs, and its loops are where launches take long.
_RUNTIME_LEVEL = "-O2"
_COMPILER_VARIABLES = (
    *("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
    *("GCC_EXEC_PREFIX", "COMPILER_PATH", "COMPILER_OPTIONS"),
)
"""Environment variables that g++ and clang++ read."""
# These are where the compiler looks, which its version and the environment tell.
_SYSTEM_HEADERS = re.compile(r"^\s*#\s*include\s*<(?![/.])[^>]*>", re.MULTILINE)
KIND = "emulator"
_COMMON = "tl/common.h"
SOURCE, LIBRARY = "kernel.cu", "kernel.so"
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


_runtimes: dict[str, bytes] = {}
"""The objects of runtime.cc that this process has compiled or found, by key: it takes a second, and
a store of one program, or one that cannot be written to, does not keep it."""
_built: collections.Counter[str] = collections.Counter()
"""How many programs this process has built, by their flags."""
_PRECOMPILED_FROM = 3
_loaded: weakref.WeakValueDictionary[str, EmulatedModule] = weakref.WeakValueDictionary()


def loaded_module(path: str) -> EmulatedModule | None:
    """The module of a library that this process has loaded, while somebody holds it."""
    return _loaded.get(path)


class EmulatedModule:
    """Compiled kernels of one program, loaded into this process for its lifetime.

    Attributes:
        path: the shared library.
        source: what it was compiled from.
        warp_threads: lanes of a warp.
    """

    def __init__(self, path: Path, source: str, warp_threads: int):
        self.path = path
        self.source = source
        self.warp_threads = warp_threads
        self._library = ctypes.CDLL(str(path))
        _loaded[str(path)] = self

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
        self.launch_ranks(
            *(kernel_name, grid, block, dynamic_shared_bytes),
            *([args], cluster, cooperative, [arrays]),
        )

    def launch_ranks(
        self,
        kernel_name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic_shared_bytes: int,
        args: Sequence[Sequence[ctypes._SimpleCData]],
        cluster: tuple[int, int, int] = (1, 1, 1),
        cooperative: bool = False,
        arrays: Sequence[Sequence[np.ndarray | None]] = (),
    ) -> None:
        """Runs a kernel on several ranks to its end, as `launch`; `args` and `arrays` are those of
        each rank."""
        machine = current_machine()
        given = [[*row, *[None] * (len(args[0]) - len(row))] for row in arrays or [[]] * len(args)]
        configs, pointers = [], []
        for values, known in zip(args, given, strict=True):
            sizes = [UNKNOWN_BYTES if array is None else array.nbytes for array in known]
            configs.append(
                LaunchConfig(
                    *(grid, block, dynamic_shared_bytes, cluster, cooperative),
                    (ctypes.c_ulong * len(values))(*sizes),
                    ctypes.addressof(machine),
                )
            )
            pointers.append((ctypes.c_void_p * len(values))(*map(ctypes.addressof, values)))
        text = self.join(
            kernel_name, [*map(ctypes.addressof, configs)], [*map(ctypes.addressof, pointers)]
        )
        if text is None:
            return
        tensors = [
            None
            if array is None
            else Tensor.of_array(f"argument {i}", array, f" of rank {r}" if len(args) > 1 else "")
            for r, row in enumerate(given)
            for i, array in enumerate(row)
        ]
        raise EmulationError(self.explain(kernel_name, text, tensors))

    def join(self, kernel_name: str, configs: Sequence[int], args: Sequence[int]) -> str | None:
        """Runs the launches of all ranks as one; `configs` and `args` are the addresses of what
        each passes. Returns the report of a failure."""
        count = len(configs)
        report = ctypes.c_void_p()
        launcher = self._library[f"tl_launch_ranks_{kernel_name}"]
        of_all = ((ctypes.c_void_p * count)(*configs), (ctypes.c_void_p * count)(*args))
        return _taken(report) if launcher(*of_all, count, ctypes.byref(report)) else None

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
    warp_threads: int = 32,
) -> EmulatedModule:
    """Compiles a program for the CPU, or takes it from the cache, and loads it.

    Args:
        source: the program that would go to the GPU.
        kernel_names: its kernels that will be launched.
        cache_dir: where compiled programs are kept; by default ``TILELANG_CACHE_DIR``. What cannot
            be kept there is built for this process alone, which a warning says.
        checks: what its launches are watched for; see `resolve_checks`.
        warp_threads: lanes of a warp of the target that the program is for: 32, or 64.

    Raises:
        RuntimeError: there is no C++ compiler, or it rejects the source.
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
    store = Store(cache_dir, env.TILELANG_CACHE_MAX_SIZE) if cache_dir else default_store()
    compiler = find_compiler()
    once = {}
    if reads_other_files(program, (*compiler[1:], *_FLAGS), _SYSTEM_HEADERS):
        # What these have now is not in the key.
        once, store = {"once": uuid.uuid4().hex}, _store_of(os.getpid())
    for find_version in (_remembered_version, _version):
        version = find_version(tuple(compiler), store)
        build = _Build(compiler, version, bits_of(resolve_checks(checks)), warp_threads, store)
        parts = {**build.parts(program, ", ".join(kernel_names), build.level), **once}
        entry = store.get(KIND, parts)
        if entry is not None:
            break
    else:
        files = build.library(program, store.path(KIND, parts) / SOURCE)
        entry = store.put(KIND, parts, files) or _put_here(parts, files)
    try:
        return EmulatedModule(entry.path / LIBRARY, source, warp_threads)
    except OSError:
        if (entry.path / LIBRARY).exists():
            raise
        # Another process has made room since.
        return EmulatedModule(_put_here(parts, entry.files).path / LIBRARY, source, warp_threads)


def _put_here(parts: Mapping[str, Any], files: Mapping[str, bytes]) -> Entry:
    """Keeps a program for this process alone."""
    own = _store_of(os.getpid())
    entry = own.get(KIND, parts) or own.put(KIND, parts, files)
    if entry is None:
        raise RuntimeError(
            f"the emulator cannot write compiled kernels, neither to the cache nor to {own.root}. "
            "Name a directory that can be written to in the environment variable TMPDIR"
        )
    return entry


@functools.cache
def _store_of(process: int) -> Store:
    folder = tempfile.mkdtemp(prefix="tilelang-emulator-")

    def remove() -> None:
        if os.getpid() == process:  # and not one that was forked from it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Store(Path(folder))


def _renamed(source: str, kernel_names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The program with other names for its kernels, and these names: beside C's library and C++'s
    rules a kernel called `exp`, `read` or `main` would not be what is called."""
    functions = {name: name for name in kernel_names}

    def rename(declared: re.Match[str]) -> str:
        name = declared[2]
        functions[name] = f"tl_kernel_{name}"
        return declared[1] + functions[name]

    names = "|".join(re.escape(name) for name in kernel_names) or "(?!)"
    source = re.sub(rf"(\b__global__\b[^;{{}}]*?\b)({names})(?=\s*\()", rename, source)
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


def _remembered_version(compiler: tuple[str, ...], store: Store) -> str:
    """As `_version`; what the same executable has said to an earlier process counts, too.

    To start it takes milliseconds, and many where others want the processors. Behind a wrapper as
    ccache, which stays the same, a newer compiler is seen by the next program that is compiled.
    """
    entry = store.get("stamp", _stamp(compiler))
    return _version(compiler, store) if entry is None else entry.files["version"].decode()


def _version(compiler: tuple[str, ...], store: Store) -> str:
    """What a compiler says that it is, which is kept for `_remembered_version`."""
    version, parts = _asked_version(compiler), _stamp(compiler)
    entry = store.get("stamp", parts)
    if entry is None or entry.files["version"] != version.encode():
        store.remove("stamp", parts)
        store.put("stamp", parts, {"version": version.encode()})
    return version


def _stamp(compiler: tuple[str, ...]) -> dict[str, Any]:
    s = os.stat(compiler[0])
    changed = [s.st_ino, s.st_dev, s.st_size, s.st_mtime_ns, s.st_ctime_ns]
    return {"compiler": [*compiler], "executable": changed}


@functools.cache
def _asked_version(compiler: tuple[str, ...]) -> str:
    done = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"`{shlex.join(compiler)} --version` fails: {done.stderr.strip() or done.returncode}. "
            "Name a working C++ compiler in the environment variable CXX."
        )
    return done.stdout


class _Build:
    """Compilations with one compiler, one set of checks, the bits of TL_EMU_CHECKS, and one number
    of lanes."""

    def __init__(
        self, compiler: list[str], version: str, checks: int, warp_threads: int, store: Store
    ):
        self.checks = checks
        self.store = store
        self.version = version
        self.gnu = "Free Software Foundation" in self.version
        # Of programs: what all share has a level of its own, with whatever program it is built.
        self.level = f"-O{env.TILELANG_EMULATE_OPTIMIZATION}"
        self.command = [*compiler, *_FLAGS, *(_GNU_FLAGS if self.gnu else ())]
        self.command += [f"-DTL_EMU_CHECKS={checks}", f"-DTL_WARP_THREADS={warp_threads}"]

    def parts(self, program: str, name: str, level: str) -> dict[str, Any]:
        """The parts of the key of a program, compiled at a level: all that it depends on."""
        return {
            "name": name,
            "source": hashlib.sha256(program.encode()).hexdigest(),
            "compiler": self.version,
            "command": [*self.command, level, *_CHECKED_FLAGS, *_GNU_CHECKED_FLAGS],
            "headers": headers_digest("emu", self.store),
            # Reports tell a kernel's lines from the headers' by where these are.
            "headers_at": str(device_root()),
            "machine": platform.machine(),
            "environment": environment(_COMPILER_VARIABLES),
        }

    def library(self, program: str, place: Path) -> dict[str, bytes]:
        """Compiles a program to a shared library, whose reports name lines of `place`."""
        with tempfile.TemporaryDirectory(prefix="tilelang-build-") as folder:
            source, result = Path(folder, SOURCE), Path(folder, LIBRARY)
            source.write_text(program)
            # Reports name what stays: lines that no Python stands for are the source's.
            places = f"-ffile-prefix-map={source}={place}"
            runtime = self._runtime(Path(folder))
            if not self.checks:
                self._run(self.level, "-shared", places, runtime, "-x", "c++", source, "-o", result)
            else:
                flags = [self.level, *_CHECKED_FLAGS, *(_GNU_CHECKED_FLAGS if self.gnu else ())]
                precompiled = self._precompiled(flags)
                # The user's files are named from here, but not the headers, which may lie below.
                flags += [f"-fdebug-prefix-map={Path.cwd()}=.", places]
                flags.append(f"-fdebug-prefix-map={device_root()}={device_root()}")
                observed = Path(folder, "kernel.o")
                self._run(*precompiled, *flags, "-c", "-x", "c++", source, "-o", observed)
                # Linked without -fsanitize: the runtime has the functions that the flag calls.
                self._run("-shared", runtime, observed, "-o", result)
            return {SOURCE: program.encode(), LIBRARY: result.read_bytes()}

    def _precompiled(self, flags: Sequence[str]) -> list[str]:
        """The option for a folder where g++ finds the header of all programs precompiled: to read
        it takes a third of the time of a small program. A process makes one, for itself, when it
        builds its third program with these flags."""
        root = device_root()
        key = hashlib.sha256(repr((self.command, self.version, flags, root)).encode()).hexdigest()
        _built[key] += 1
        if not self.gnu or _built[key] < _PRECOMPILED_FROM:
            return []
        folder = _store_of(os.getpid()).root / "precompiled" / key
        header = folder / f"{_COMMON}.gch"
        if not header.exists():
            header.parent.mkdir(parents=True, exist_ok=True)
            # Another thread may do the same.
            unfinished = header.with_name(uuid.uuid4().hex)
            self._run(*flags, "-x", "c++-header", root / "include" / _COMMON, "-o", unfinished)
            unfinished.replace(header)
        return [f"-I{folder}"]

    def _runtime(self, folder: Path) -> Path:
        """What all programs share."""
        source, result = device_root() / "emu" / "runtime.cc", folder / "runtime.o"
        parts = self.parts(source.read_text(), "runtime", _RUNTIME_LEVEL)
        key = key_of(parts)
        entry = None if key in _runtimes else self.store.get(KIND, parts)
        if entry is not None:
            _runtimes[key] = entry.files[result.name]
        elif key not in _runtimes:
            self._run(_RUNTIME_LEVEL, "-c", source, "-o", result)
            _runtimes[key] = result.read_bytes()
            self.store.put(KIND, parts, {result.name: _runtimes[key]})
        result.write_bytes(_runtimes[key])
        return result

    def _run(self, *arguments: str | Path) -> None:
        # Behind the folder of a precompiled header, which is read only if it is found first.
        includes = [f"-I{folder}" for folder in device_include_dirs("emu")]
        words = [*self.command, *map(str, arguments), *includes]
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
