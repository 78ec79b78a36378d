"""A kernel that was read from a file."""

from __future__ import annotations

import threading
from typing import Any

import torch

from tilelang.engine.launch_plan import LaunchPlan
from tilelang.runtime.adapter import cuda_adapter, emulated_adapter, fitted, hip_adapter
from tilelang.runtime.adapter.cython._adapter import Callee, Launcher
from tilelang.runtime.file import EMULATE, KernelFile, Variant
from tilelang.utils.arch import gcn_arch, is_amd, runs_on


class Kernel(Callee):
    """A kernel that `tilelang.runtime.load` gives: ``kernel(*inputs)`` runs it.

    A call is one of the `JITKernel` that was exported: the same inputs, outputs, checks and errors.

    Attributes:
        path: the file.
        archs: what the file has variants for.
        arch: the variant that runs.
        launch_plan: how a call is checked and launched.

    Example: ``c = tilelang.runtime.load("matmul.tlk")(a, b)``
    """

    def __init__(self, file: KernelFile, path: str, arch: str | None = None):
        self.path = path
        self.archs = file.archs
        self._variant = _chosen(file, path, arch)
        self.arch = self._variant.arch
        self.launch_plan: LaunchPlan = self._variant.plan
        self._lock = threading.Lock()
        self._adapter: Launcher | None = None
        if is_amd(self.arch):
            self._adapter = hip_adapter(self.launch_plan, self._variant.binary)
        elif self.arch != EMULATE:
            self._adapter = cuda_adapter(self.launch_plan, self._variant.binary)

    def __reduce__(self) -> tuple[Any, ...]:
        """It is pickled as the name of its file."""
        from tilelang.runtime import load

        return load, (self.path, self.arch)

    def __repr__(self) -> str:
        return f"<tilelang.runtime.Kernel {self.launch_plan.name} for {self.arch} of {self.path}>"

    @property
    def device_type(self) -> str:
        """Where the tensors of a call are: ``"cuda"``, or ``"cpu"`` for the emulator."""
        return "cpu" if self.arch == EMULATE else "cuda"

    @property
    def adapter(self) -> Launcher:
        """What a call goes to."""
        with self._lock:
            if self._adapter is None:
                self._adapter = self._emulated()
            return self._adapter

    def _emulated(self) -> Launcher:
        from tilelang.emulator.compiler import build_emulated

        plan = self.launch_plan
        names = [kernel.name for kernel in plan.kernels]
        source = self._variant.binary.decode()
        module = build_emulated(source, names, warp_threads=plan.warp_threads)
        plan = fitted(plan, module.parameter_bytes)
        return emulated_adapter(plan, module.address, module.explain)


def _chosen(file: KernelFile, path: str, arch: str | None) -> Variant:
    variants = {variant.arch: variant for variant in file.variants}
    listed = ", ".join(variants)
    if arch is not None:
        if arch not in variants:
            raise ValueError(f"kernel file {path!r}: found variants {listed}, wanted {arch!r}")
        return variants[arch]
    if not torch.cuda.is_available():
        if EMULATE in variants:
            return variants[EMULATE]
        raise RuntimeError(
            f"kernel file {path!r}: found variants {listed}, and torch finds no GPU. "
            "Export it with archs=[..., 'emulate'] to run it on the CPU."
        )
    if torch.version.hip:
        amd = gcn_arch(torch.cuda.current_device())
        if amd in variants:
            return variants[amd]
        raise RuntimeError(
            f"kernel file {path!r}: found variants {listed}, and the GPU here is {amd}. Export it "
            "with its architecture among `archs`."
        )
    gpu = torch.cuda.get_device_capability()
    of_cuda = [v for v in file.variants if v.arch != EMULATE and not is_amd(v.arch)]
    running = [v for v in of_cuda if runs_on(v.arch, gpu)]
    if not running:
        raise RuntimeError(
            f"kernel file {path!r}: found variants {listed}, and the GPU here is "
            f"sm_{gpu[0]}{gpu[1]}. Export it with its architecture among `archs`."
        )
    return max(running, key=lambda variant: _rank(variant.arch))


def _rank(arch: str) -> tuple[int, bool]:
    """The newest, and of one number that which uses more of the chip."""
    number = arch.removeprefix("sm_").rstrip("af")
    return int(number), not arch.endswith(number)
