"""How the kernels of the corpus get to a GPU, with the emulator in its place."""

import pytest
import torch

from tilelang.cuda.nvrtc import compile_cubin
from tilelang.emulator.compiler import build_emulated
from tilelang.runtime.adapter import emulated_adapter
from tilelang.testing.gpu import GuardedCall

from . import gpu
from .table import CORPORA

BASES = {name: CORPORA[i].bases[name] for i, name in gpu.bases()}


@pytest.mark.parametrize("name", ["flag", "tiles", "gemm", "two phases", "cluster sum"])
def test_a_base_runs_by_its_launch_plan(name):
    """Arrays, tensor maps, a swizzle, a cooperative launch, a cluster."""
    base = BASES[name]
    module = build_emulated(base.text(), [gpu.kernel_name(base)])

    def call(plan, given):
        GuardedCall(given, "cpu").run(emulated_adapter(plan, module.address))

    gpu.run(base, call)
    with pytest.raises(AssertionError):
        gpu.run(base, lambda plan, given: None)


@pytest.mark.parametrize("name", ["vectors", "bulk", "gemm"])
def test_the_architecture_of_a_base_has_its_instructions(name):
    base = BASES[name]
    usage = compile_cubin(base.text(), base.arch, [gpu.kernel_name(base)]).resource_usage
    assert gpu.kernel_name(base) in usage


def test_bases_of_another_architecture_are_skipped(monkeypatch):
    names = [name for name in gpu.bases() if name[1] in ("gemm", "bulk")]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert [o.status for o in gpu.check(names)] == ["skipped", "skipped"]
