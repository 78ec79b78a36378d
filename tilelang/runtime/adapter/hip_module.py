"""Loads a code object for whichever AMD GPUs a kernel is called on, through HIP's C interface.

HIP Runtime API Reference, "Initialization and Version", "Device Management", "Error Handling" and
"Module Management". libamdhip64 is the one that torch has loaded, where torch is built for ROCm.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch

LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6")
"""Names of the library: of a ROCm installation, and of its versions."""

_pointer, _int = ctypes.c_void_p, ctypes.c_int
# Arguments of the functions that are called from here.
_SIGNATURES = {
    "hipInit": [ctypes.c_uint],
    "hipGetDevice": [ctypes.POINTER(_int)],
    "hipSetDevice": [_int],
    "hipModuleLoadData": [ctypes.POINTER(_pointer), ctypes.c_char_p],
    "hipModuleGetFunction": [ctypes.POINTER(_pointer), _pointer, ctypes.c_char_p],
}


def torch_stream(device: int) -> int:
    """The handle of torch's current stream on a device."""
    return int(torch.cuda.current_stream(device).cuda_stream)


class HipRuntime:
    """The functions of libamdhip64. `current_stream` gives the handle of a device's stream that
    kernels are launched on.

    Raises `OSError` where `path` is no library, `RuntimeError` where the runtime does not start.

    Example: ``HipRuntime("/opt/rocm/lib/libamdhip64.so").address("hipModuleLaunchKernel")``
    """

    def __init__(self, path: str | Path, current_stream: Callable[[int], int] = torch_stream):
        self.current_stream = current_stream
        self._library = ctypes.CDLL(str(path))
        for name, arguments in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = arguments, _int
        for name in ("hipGetErrorName", "hipGetErrorString"):
            function = getattr(self._library, name)
            function.argtypes, function.restype = [_int], ctypes.c_char_p
        self.call("hipInit", 0)

    def address(self, name: str) -> int:
        """The address of a function."""
        return ctypes.cast(getattr(self._library, name), _pointer).value or 0

    def describe(self, status: int) -> str:
        """Name and text of an error."""
        name = self._library.hipGetErrorName(status) or b"unknown"
        text = self._library.hipGetErrorString(status) or b"no description"
        return f"{name.decode()} ({text.decode()})"

    def call(self, name: str, *arguments: object) -> None:
        """Calls a function. Raises `RuntimeError` with its name where it fails."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} failed: {self.describe(status)}")


@cache
def hip_runtime() -> HipRuntime:
    """The runtime of this process.

    Raises `RuntimeError` where there is no libamdhip64.
    """
    tried = []
    for name in LIBRARIES:
        try:
            return HipRuntime(name)
        except OSError as error:
            tried.append(str(error))
    raise RuntimeError(
        f"found no libamdhip64 ({'; '.join(tried)}), wanted that of ROCm; install ROCm, or a torch "
        "that is built for it"
    )


class HipModule:
    """The kernels of a code object.

    A module is never unloaded: work that a stream still holds may run its kernels after the last
    reference is gone.
    """

    def __init__(self, runtime: HipRuntime, code_object: bytes, kernels: Sequence[str]):
        self._runtime, self._code, self._names = runtime, code_object, list(kernels)

    def load(self, device: int) -> tuple[int, list[int]]:
        """The functions on `device` as addresses, behind a 0 in the place of CUDA's context.

        Raises `RuntimeError` where the runtime refuses the code object or lacks a kernel.
        """
        call, current, module = self._runtime.call, ctypes.c_int(), ctypes.c_void_p()
        call("hipGetDevice", ctypes.byref(current))
        call("hipSetDevice", device)
        try:
            call("hipModuleLoadData", ctypes.byref(module), self._code)
            return 0, [self._function(module, name) for name in self._names]
        finally:
            call("hipSetDevice", current.value)

    def _function(self, module: ctypes.c_void_p, name: str) -> int:
        function = ctypes.c_void_p()
        self._runtime.call("hipModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function.value or 0
