"""Kernels that were exported by `JITKernel.export`, without the compiler.

`load` needs torch and, on a GPU, the driver; neither TVM nor NVRTC. Example::

    import tilelang.runtime

    matmul = tilelang.runtime.load("matmul.tlk")
    c = matmul(a, b)
"""

from __future__ import annotations

import os
from pathlib import Path

from tilelang._paths import runtime_include_dir
from tilelang.runtime.file import KernelFileError, read_kernel
from tilelang.runtime.kernel import Kernel


def load(path: str | Path, arch: str | None = None) -> Kernel:
    """The kernel in a file that `JITKernel.export` wrote.

    `arch` chooses one of its variants, such as ``"sm_90a"``, or ``"emulate"`` for CPU tensors. By
    default it is the newest that torch's current GPU runs; without a GPU it is the emulator's.

    The binary is loaded by the driver here. The emulator's source is compiled, by the machine's C++
    compiler, at the first call.

    Raises `KernelFileError` (a `ValueError`) where the file is no kernel, damaged, cut off or of a
    newer format, `ValueError` where it has no variant `arch`, `RuntimeError` where it has none
    that this machine runs or the driver refuses the binary, `OSError` where it cannot be read.

    Example: ``tilelang.runtime.load("matmul.tlk")(a, b)``
    """
    return Kernel(read_kernel(path), os.fspath(path), arch)


def include_dir() -> Path:
    """The folder of ``tilelang_kernel.h``, for programs that call a file without Python.

    Raises `RuntimeError` where the installation has lost it.

    Example: ``python -c "import tilelang.runtime; print(tilelang.runtime.include_dir())"``
    """
    return runtime_include_dir()


__all__ = ["Kernel", "KernelFileError", "include_dir", "load"]
