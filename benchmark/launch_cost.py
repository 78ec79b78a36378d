"""What a launch costs the host: microseconds of a call, beside torch's and Triton's.

``python benchmark/launch_cost.py`` prints a table: a kernel of two tensors; one that allocates its
output; one with guards on its sizes, and the same for sizes that the last variant takes; the same
through its factory, ``f(64)(a)``, and in eager style, ``f(a)``; of torch ``add_``,
``add`` and ``torch.empty``; and of Triton, where it is installed, a kernel of two tensors. The row
"driver" is the call of cuLaunchKernelEx alone with what the kernel of two tensors gives it, in a
loop in C: what no launch can be faster than.

The kernels are small, so that the GPU keeps up with the host; each time is the best of several
means, for which all take turns. Without a GPU a driver that does nothing stands in for CUDA's
(testing/driver/libcuda.c), on CPU tensors: what is measured then is our part of a launch, without
the driver's own.
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


RECORDER = """
#include <string.h>

typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  void* attributes;
  unsigned count;
} Config;
typedef int (*Launch)(const Config*, void*, void**, void**);

static Config config;
static void* function;
static long long values[8];
static void* arguments[8];
static int count;

void expect(int arguments) { count = arguments; }

/* In the place of cuLaunchKernelEx: keeps the launch, whose arguments have 8 bytes or less. */
int record(const Config* given, void* kernel, void** args, void** extra) {
  config = *given;
  function = kernel;
  for (int i = 0; i < count; ++i) {
    memcpy(&values[i], args[i], 8);
    arguments[i] = &values[i];
  }
  return given->count || extra != 0;
}

int repeat(Launch launch, long times) {
  for (long i = 0; i < times; ++i) {
    const int status = launch(&config, function, arguments, 0);
    if (status) return status;
  }
  return 0;
}
"""


class Recorder:
    """One launch of a kernel, which C repeats."""

    def __init__(self, folder: str, kernel: JITKernel, inputs: list[torch.Tensor], driver: Any):
        """`driver` has the addresses that launchers call, and `load` as a launcher takes it."""
        source, path = Path(folder, "recorder.c"), Path(folder, "recorder.so")
        source.write_text(RECORDER)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", path], check=True)
        self._library = ctypes.CDLL(str(path))
        (launched,) = kernel.launch_plan.kernels
        self._library.expect(len(launched.args))
        record = ctypes.cast(self._library.record, ctypes.c_void_p).value
        self._launch = ctypes.c_void_p(driver.addresses[0])
        launcher = Launcher(
            kernel.launch_plan,
            driver.load,
            driver=[record, *driver.addresses[1:]],
            device=inputs[0].device.type,
        )
        launcher(*inputs)

    def launch(self, times: int) -> None:
        """The launch, some times."""
        assert self._library.repeat(self._launch, ctypes.c_long(times)) == 0


class Cuda:
    """The driver, as launchers call it."""

    def __init__(self, kernel: JITKernel):
        from tilelang.runtime.adapter.cuda_module import CudaLibrary, CudaModule, entry_points

        names = [launched.name for launched in kernel.launch_plan.kernels]
        self.load = CudaModule(CudaLibrary(kernel.cubin), names, [0], [1]).load
        self.addresses = list(entry_points())


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
        names = ("cuLaunchKernelEx", "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
        self.addresses = [self._address(name) for name in names]

    def _address(self, name: str) -> int:
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0

    def load(self, device: int) -> tuple[int | None, list[int | None]]:
        """The context and the one kernel of a program."""
        return self._context.value, [self._kernel.value]

    def take(self, kernel: JITKernel) -> None:
        """Has the calls of a kernel, and of its variants, go to this driver."""
        kernel._adapter = self._launcher(kernel, lambda i: self._launcher(kernel.other_variant(i)))

    def _launcher(
        self, kernel: JITKernel, otherwise: Callable[[int], Launcher] | None = None
    ) -> Launcher:
        return Launcher(
            kernel.launch_plan,
            self.load,
            driver=self.addresses,
            device="cpu",
            otherwise=otherwise,
        )


def microseconds(calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """For each call the best of its ten means over `repeat` calls, which take turns, so that a
    moment in which the host is slow does not fall on one; the device is idle before each mean."""
    setup = torch.cuda.synchronize if torch.cuda.is_available() else "pass"
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(10):
        for name, call in calls.items():
            times[name].append(timeit.timeit(call, setup, number=repeat))
    return {name: min(found) / repeat * 1e6 for name, found in times.items()}


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
    driver: Cuda | StandIn
    if device.type == "cpu":
        driver = StandIn(folder)
        for kernel in (two, one, eager, sized):
            driver.take(kernel)
    else:
        driver = Cuda(two)
    recorder = Recorder(folder, two, [a, c], driver)

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
    driver_alone = {"driver": lambda: recorder.launch(repeat)}
    return {
        "driver": microseconds(driver_alone, 1)["driver"] / repeat,
        **microseconds(calls, repeat),
    }


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
