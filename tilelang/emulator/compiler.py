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
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilelang._paths import device_include_dirs
from tilelang.emulator.machine import current_machine
from tilelang.env import env

# Generated code reads shared memory as several types, and its integers wrap, as on the GPU. Sums
# and products are rounded one by one. Its warnings are not the user's.
_FLAGS = (
    *("-x", "c++", "-std=c++17", "-O2", "-fPIC", "-shared", "-w"),
    *("-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"),
    *("-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off", "-fno-math-errno"),
)
# Dynamic shared memory needs no initialisation; g++ does not see that in templates, clang++ does.
_GNU_FLAGS = ("-fno-extern-tls-init",)
_ERROR_BYTES = 8192
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
        ("machine", ctypes.c_void_p),
    )


class EmulatedModule:
    """Compiled kernels of one program, loaded into this process for its lifetime.

    Attributes:
        path: the shared library.
    """

    def __init__(self, path: Path):
        self.path = path
        self._library = ctypes.CDLL(str(path))

    def address(self, kernel_name: str) -> int:
        """Address of the function that launches a kernel, which is of the C type

        ``int(const tl_launch_config*, void** args, char* error, unsigned long error_size)``:
        ``args[i]`` points to the i-th argument; other than 0 means that `error` has the report.
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

        Raises:
            RuntimeError: the kernel failed; the text says where and why.

        Example: ``module.launch("scale", (4, 1, 1), (128, 1, 1), 0, [c_void_p(x.data_ptr())])``
        """
        machine = current_machine()
        config = LaunchConfig(
            grid, block, dynamic_shared_bytes, cluster, cooperative, ctypes.addressof(machine)
        )
        pointers = (ctypes.c_void_p * len(args))(*[ctypes.addressof(arg) for arg in args])
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        launcher = self._library[f"tl_launch_{kernel_name}"]
        failed = launcher(
            ctypes.byref(config),
            pointers,
            error,
            ctypes.c_ulong(_ERROR_BYTES),
        )
        if failed:
            raise RuntimeError(error.value.decode(errors="replace"))


def build_emulated(
    source: str, kernel_names: Sequence[str], cache_dir: Path | None = None
) -> EmulatedModule:
    """Compiles a program for the CPU, or takes it from the cache, and loads it.

    Args:
        source: the program that would go to the GPU.
        kernel_names: its kernels that will be launched.
        cache_dir: where compiled programs are kept; by default ``emulator`` under
            ``TILELANG_CACHE_DIR``.

    Raises:
        RuntimeError: there is no C++ compiler, or it rejects the source.

    Example: ``build_emulated(kernel.get_kernel_source(), ["main_kernel"]).address("main_kernel")``
    """
    static_arrays = str(bool(_STATIC_ARRAY.search(source))).lower()
    exports = [f"\nTL_EMU_EXPORT({name}, {static_arrays})" for name in kernel_names]
    program = source + "".join(exports) + "\n"
    compiler = find_compiler()
    folder = cache_dir or env.TILELANG_CACHE_DIR / "emulator"
    path = folder / f"{_key(program, compiler)}.so"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(program, compiler, path)
    return EmulatedModule(path)


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


def _command(compiler: list[str]) -> list[str]:
    gnu = "Free Software Foundation" in _version(tuple(compiler))
    return [*compiler, *_FLAGS, *(_GNU_FLAGS if gnu else ())]


def _key(program: str, compiler: list[str]) -> str:
    digest = hashlib.sha256()
    version = _version(tuple(compiler))
    for text in (program, version, platform.machine(), *_command(compiler)):
        digest.update(text.encode() + b"\0")
    for folder in device_include_dirs("emu"):
        for header in sorted(folder.rglob("*.h")):
            digest.update(header.read_bytes())
    return digest.hexdigest()


def _compile(program: str, compiler: list[str], path: Path) -> None:
    includes = [f"-I{folder}" for folder in device_include_dirs("emu")]
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as folder:
        source, library = Path(folder, "kernel.cu"), Path(folder, "kernel.so")
        source.write_text(program)
        command = [*_command(compiler), *includes, str(source), "-o", str(library)]
        limit = env.TILELANG_COMPILE_TIMEOUT_SECONDS or None
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(
                f"the emulator's compiler takes more than {limit} s, which "
                f"TILELANG_COMPILE_TIMEOUT_SECONDS allows\ncommand: {shlex.join(command)}"
            ) from error
        if done.returncode != 0:
            raise RuntimeError(
                f"the kernel does not compile for the emulator\ncommand: {shlex.join(command)}\n"
                f"{done.stderr.strip()}"
            )
        # Another process may compile the same program: whoever is last replaces equals by equals.
        os.replace(library, path)
