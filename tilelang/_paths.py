"""Where the compiled library is, the headers that generated kernels include, and that of C++."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parent


def library() -> Path:
    """The compiled library. Raises `ImportError` where the package has none."""
    path = _PACKAGE / "lib" / "libtilelang.so"
    if not _PACKAGE.is_dir():
        raise ImportError(
            f"tilelang: found {_PACKAGE}, which is in an archive, wanted a folder: compiled "
            "libraries cannot be loaded from one. Unpack it, and name the folder in PYTHONPATH"
        )
    if not path.is_file():
        raise ImportError(
            f"tilelang: found {_PACKAGE}, which has no compiled library "
            "(lib/libtilelang.so), wanted an installed or a built package. A source tree hides the "
            "installed package where it is the current directory or in PYTHONPATH: start Python in "
            "another directory, or build the source tree by `make dev`"
        )
    return path


def device_root() -> Path:
    """The folder of the device headers: inside the installed package, or of the source checkout.

    Raises:
        RuntimeError: the installation has lost them.
    """
    installed, checkout = _PACKAGE / "device", _PACKAGE.parent / "src" / "device"
    for root in (installed, checkout):
        if (root / "include" / "tl" / "common.h").is_file():
            return root
    raise RuntimeError(
        f"tilelang's device headers are neither in {installed} nor in {checkout}; "
        "repair: install tilelang again"
    )


def runtime_include_dir() -> Path:
    """The folder of the header with which C and C++ call exported kernels.

    Raises:
        RuntimeError: the installation has lost it.
    """
    installed, checkout = _PACKAGE / "include", _PACKAGE.parent / "src" / "runtime"
    for folder in (installed, checkout):
        if (folder / "tilelang_kernel.h").is_file():
            return folder
    raise RuntimeError(
        f"tilelang_kernel.h is neither in {installed} nor in {checkout}; "
        "repair: install tilelang again"
    )


def device_include_dirs(body: Literal["cuda", "hip", "emu"]) -> list[Path]:
    """Include directories of a kernel: what all targets share, the bodies for one of them, those
    that GPUs share, and those that AMD's GPUs share with the emulator of them.

    Example: ``[f"-I{path}" for path in device_include_dirs("cuda")]``.
    """
    others = {"cuda": ["gpu"], "hip": ["gpu", "amd"], "emu": ["amd"]}
    folders = ["include", body, *others[body]]
    return [device_root() / folder for folder in folders]
