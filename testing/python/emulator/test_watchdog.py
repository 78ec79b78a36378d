"""Threads that run on and on: the launch ends with the line, and the next one runs."""

import time

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import EmulationError

SPIN = """
extern "C" __global__ void wait_for(int* flag, int* out) {
  out[threadIdx.x] = 1;
  __syncthreads();
  while (threadIdx.x == 0 && *(volatile int*)flag == 0);
}
"""


def waiting(source=SPIN, blocks=1):
    @T.prim_func
    def main(F: T.Tensor((1,), "int32"), Out: T.Tensor((32,), "int32")):
        with T.CUDASourceCodeKernel(
            blocks, threads=32, source_code_or_path=source, entry_name="wait_for"
        ):
            pass

    return main


@pytest.mark.parametrize("checks", [False, True])
def test_a_loop_that_polls_plain_memory_ends_the_launch(monkeypatch, checks):
    kernel = tilelang.compile(
        waiting(), target="cuda -arch=sm_90a", execution_backend="emulate", checks=checks
    )
    kernel.build()
    monkeypatch.setenv("TILELANG_EMULATE_PATIENCE", "0.05")
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    start = time.process_time()
    with pytest.raises(EmulationError, match=r"runs for 0\.05 s without waiting.*T\.atomic_load"):
        kernel(flag, out)
    assert time.process_time() - start < 5
    # Nothing is left of it for the next launch.
    flag.fill_(1)
    out.zero_()
    kernel(flag, out)
    assert out.eq(1).all()


def test_threads_that_take_long_together_are_let_run(monkeypatch):
    source = """
    extern "C" __global__ void wait_for(int* flag, int* out) {
      unsigned x = threadIdx.x;
      for (int i = 0; i < flag[0]; ++i) x = x * 1664525u + 1013904223u;
      out[threadIdx.x] = x != 0;
    }
    """
    kernel = tilelang.compile(
        waiting(source, 8), target="cuda -arch=sm_90a", execution_backend="emulate", checks=False
    )
    kernel.build()
    monkeypatch.setenv("TILELANG_EMULATE_PATIENCE", "0.05")
    steps, out = torch.tensor([1 << 20], dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    start = time.process_time()
    kernel(steps, out)
    assert time.process_time() - start > 0.1
    assert out.eq(1).all()
