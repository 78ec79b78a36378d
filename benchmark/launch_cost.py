"""What a launch costs the host: microseconds of a call, beside torch's and Triton's.

``python benchmark/launch_cost.py`` prints a table: a kernel of two tensors; one that allocates its
output; one with guards on its sizes, and the same for sizes that the last variant takes; the same
through its factory, ``f(64)(a)``, and in eager style, ``f(a)``; of torch ``add_``,
``add`` and ``torch.empty``; and of Triton, where it is installed, a kernel of two tensors.

The kernels are small, so that the GPU keeps up with the host; each time is the best of several
means. Without a GPU a driver that does nothing stands in for CUDA's (testing/driver/libcuda.c), on
CPU tensors: what is measured then is our part of a launch, without the driver's own.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import runpy
import subprocess
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tilelang
import tilelang.language as T
from tilelang.jit.kernel import JITKernel
from tilelang.runtime.adapter.cython._adapter import Launcher

ROWS, COLUMNS = 4, 64
STAND_IN = Path(__file__).resolve().parents[1] / "testing" / "driver" / "libcuda.c"


@tilelang.jit
def copied(A, block: int = COLUMNS):
    """C = A in eager style."""
    M = T.dynamic("M")
    N = T.const("N")
    A: T.Tensor[[M, N], T.float32]
    C = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=block) as row:
        for j in T.Parallel(N):
            C[row, j] = A[row, j]
    return C


def program(columns: int):
    """C = A."""
    m = T.dynamic("m")

    @T.prim_func
    def copy(A: T.Tensor((m, columns), "float32"), C: T.Tensor((m, columns), "float32")):
        with T.Kernel(m, threads=columns) as row:
            for j in T.Parallel(columns):
                C[row, j] = A[row, j]

    return copy


@tilelang.jit
def guarded():
    """C = A of two sizes that the compiler does not know."""
    m, n = T.dynamic("m, n")

    @T.prim_func
    def copy(A: T.Tensor((m, n), "float32"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, COLUMNS), T.ceildiv(m, ROWS), threads=COLUMNS) as (bx, by):
            for i, j in T.Parallel(ROWS, COLUMNS):
                C[by * ROWS + i, bx * COLUMNS + j] = A[by * ROWS + i, bx * COLUMNS + j]

    return copy


into = tilelang.jit(program)
returned = tilelang.jit(out_idx=-1)(program)


class StandIn:
    """A driver that launches nothing, as the launchers of kernels call it."""

    def __init__(self, folder: str):
        path = Path(folder, "libcuda.so")
        command = ["cc", "-O2", "-shared", "-fPIC", STAND_IN, "-o", path]
        subprocess.run(command, check=True)
        self._library = ctypes.CDLL(str(path))
        self._context, self._kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self._library.cuCtxGetCurrent(ctypes.byref(self._context))
        self._library.cuLibraryGetKernel(ctypes.byref(self._kernel), None, b"kernel")

    def _address(self, name: str) -> int:
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0

    def take(self, kernel: JITKernel) -> None:
        """Has the calls of a kernel, and of its variants, go to this driver."""
        kernel._adapter = self._launcher(kernel, lambda i: self._launcher(kernel.other_variant(i)))

    def _launcher(
        self, kernel: JITKernel, otherwise: Callable[[int], Launcher] | None = None
    ) -> Launcher:
        names = ("cuLaunchKernelEx", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
        functions = [self._kernel.value] * len(kernel.launch_plan.kernels)
        return Launcher(
            kernel.launch_plan,
            lambda device: (self._context.value, functions),
            driver=[self._address(name) for name in names],
            device="cpu",
            otherwise=otherwise,
        )


def microseconds(function: Callable[[], Any], repeat: int) -> float:
    """The best of ten means over `repeat` calls; the device is idle before each."""
    setup = torch.cuda.synchronize if torch.cuda.is_available() else "pass"
    return min(timeit.repeat(function, setup, number=repeat, repeat=10)) / repeat * 1e6


TRITON = """
import triton
import triton.language as tl

@triton.jit
def copy(a, c, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(c + at, tl.load(a + at, mask=at < size), mask=at < size)
"""


def triton_copy(folder: str) -> Callable[..., Any] | None:
    """A kernel of two tensors in Triton, None where it is not installed or finds no GPU."""
    if importlib.util.find_spec("triton") is None or not torch.cuda.is_available():
        return None
    path = Path(folder, "triton_copy.py")  # Triton reads the function's file
    path.write_text(TRITON)
    kernel = runpy.run_path(str(path))["copy"]
    return lambda a, c: kernel[(ROWS,)](a, c, ROWS * COLUMNS, block=COLUMNS)


def measure(repeat: int, folder: str) -> dict[str, float]:
    """Microseconds of each kind of call."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    a, c = (torch.zeros(ROWS, COLUMNS, device=device) for _ in range(2))
    odd = [torch.zeros(ROWS, COLUMNS - 1, device=device) for _ in range(2)]
    two, one, eager, sized = into(COLUMNS), returned(COLUMNS), copied.compile(a), guarded()
    copied(a)
    if device.type == "cpu":
        stand_in = StandIn(folder)
        for kernel in (two, one, eager, sized):
            stand_in.take(kernel)

    def empty() -> torch.Tensor:
        return torch.empty((ROWS, COLUMNS), dtype=torch.float32, device=device)

    calls: dict[str, Callable[[], Any]] = {
        "two tensors": lambda: two(a, c),
        "two tensors, guards": lambda: sized(a, c),
        "two tensors, last variant": lambda: sized(*odd),
        "two tensors, factory": lambda: into(COLUMNS)(a, c),
        "one output": lambda: one(a),
        "one output, factory": lambda: returned(COLUMNS)(a),
        "one output, eager": lambda: copied(a),
        "eager, by keywords": lambda: copied(A=a, block=COLUMNS),
        "torch.empty": empty,
        "torch add_": lambda: c.add_(a),
        "torch add": lambda: a + c,
    }
    other = triton_copy(folder)
    if other is not None:
        other(a, c)
        calls["Triton, two tensors"] = lambda: other(a, c)
    for call in calls.values():
        call()
    return {name: microseconds(call, repeat) for name, call in calls.items()}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5000, help="calls of one measurement")
    repeat = parser.parse_args().repeat
    on = torch.cuda.get_device_name() if torch.cuda.is_available() else "a stand-in of the driver"
    print(f"microseconds of a call, on {on}")
    with tempfile.TemporaryDirectory() as folder:
        for name, found in measure(repeat, folder).items():
            print(f"{name:<25} {found:6.2f}")


if __name__ == "__main__":
    main()
