"""Emulated kernels written in C, as the emulator's compiler would export them."""

import ctypes
import subprocess

import pytest

from tilelang.engine.launch_plan import KernelLaunch, LaunchPlan
from tilelang.runtime.adapter import emulated_adapter

SOURCE = r"""
#include <string.h>
typedef struct {
  unsigned grid[3], block[3], dynamic_shared_bytes, cluster[3], cooperative;
  const unsigned long* argument_bytes;
  const void* machine;
} Config;
#define KERNEL(name) int tl_launch_##name(const Config* config, void** args, char** report)
static int calls;
int count_calls(void) { return calls; }

KERNEL(add) { /* C[i] = A[i] + 1 for i < m */
  const float* A = *(const float**)args[0];
  float* C = *(float**)args[1];
  int m = *(int*)args[2];
  for (int i = 0; i < m; ++i) C[i] = A[i] + 1;
  ++calls;
  return 0;
}
KERNEL(record) { /* what it was launched with, and its first scalar's bytes */
  long long* out = *(long long**)args[0];
  for (int i = 0; i < 3; ++i) { out[i] = config->grid[i]; out[3 + i] = config->block[i]; }
  out[6] = config->dynamic_shared_bytes;
  memcpy(out + 7, args[1], 8);
  ++calls;
  return 0;
}
KERNEL(fail) { *report = strdup("thread 3 waits"); ++calls; return 1; }
"""


class Kernels:
    """The C kernels; `launcher` makes a callable of a plan's parts, `calls` counts what has run."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))

    def address(self, name):
        return ctypes.cast(getattr(self.library, f"tl_launch_{name}"), ctypes.c_void_p).value

    def calls(self):
        return self.library.count_calls()

    def launcher(self, params, kernels=(), outputs=(), writes=None):
        launches = tuple(
            KernelLaunch(name, grid, (128, 1, 1), 64, args, writes=writes)
            for name, grid, args in kernels
        )
        return emulated_adapter(
            LaunchPlan("main", params, launches, outputs, "gemm.py:7"), self.address
        )


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.c").write_text(SOURCE)
    command = ["cc", "-shared", "-fPIC", "-o", folder / "kernels.so", folder / "kernels.c"]
    subprocess.run(command, check=True)
    return Kernels(folder / "kernels.so")
