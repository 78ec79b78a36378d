"""The correct kernels of the corpus on a GPU: through NVRTC, the driver and the adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tilelang.cuda.nvrtc import compile_cubin
from tilelang.engine.launch_plan import Descriptor, KernelLaunch, LaunchPlan, TensorParam
from tilelang.runtime.adapter import cuda_adapter
from tilelang.testing.gpu import DeviceLost, GuardedCall
from tilelang.testing.workers import Outcome
from tilelang.utils.target import compiled_for, cuda_arch

from .kit import KERNEL, Base, Launch, RankBase
from .table import CORPORA

Names = list[tuple[int, str]]
"""Bases: the number of a corpus, and a name in it."""


def bases() -> Names:
    """All that one of NVIDIA's GPUs runs."""
    of_warps = [(i, corpus) for i, corpus in enumerate(CORPORA) if corpus.warp_threads == 32]
    return [
        (i, name)
        for i, corpus in of_warps
        for name, base in corpus.bases.items()
        if not isinstance(base, RankBase)
    ]


def plan_of(base: Base, launch: Launch) -> tuple[LaunchPlan, list[np.ndarray]]:
    """How the adapter launches a base, and the arrays of `launch` that it takes."""
    params, args, arrays, descriptors = [], [], [], []
    for i, argument in enumerate(launch.arguments):
        name = f"argument{i}"
        if isinstance(argument, np.ndarray):
            array = argument
            args.append(("param", name))
        else:
            array = argument.array
            args.append(("descriptor", f"{name}_desc"))
            descriptors.append(_descriptor(name, argument.described))
        arrays.append(array)
        params.append(TensorParam(name, str(array.dtype), array.shape))
    kernel = KernelLaunch(
        name=kernel_name(base),
        grid=(base.grid, 1, 1),
        block=(base.block, 1, 1),
        shared_bytes=base.shared,
        args=tuple(args),
        cluster=(base.cluster, 1, 1),
        cooperative=base.cooperative,
    )
    plan = LaunchPlan(kernel.name, tuple(params), (kernel,), descriptors=tuple(descriptors))
    return plan, arrays


def kernel_name(base: Base) -> str:
    """What the source calls the kernel."""
    found = KERNEL.search(base.text())
    assert found
    return found[1]


def _descriptor(param: str, described: Any) -> Descriptor:
    size = np.dtype(described.dtype).itemsize
    return Descriptor(
        name=f"{param}_desc",
        param=param,
        dtype=described.dtype,
        shape=described.shape,
        strides=tuple(stride * size for stride in described.strides),
        box=described.box,
        element_strides=(1,) * len(described.shape),
        swizzle=described.swizzle,
    )


def run(base: Base, call: Callable[[LaunchPlan, Sequence[torch.Tensor]], None]) -> None:
    """Launches a base by `call`; `AssertionError` where it does not compute what it should."""
    launch = base.launch()
    plan, arrays = plan_of(base, launch)
    call(plan, [torch.from_numpy(array) for array in arrays])
    for found, wanted in launch.results:
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-3)


def check(names: Names) -> list[Outcome | None]:
    """The outcome of each base on torch's current GPU; None for those behind one that has taken the
    GPU from this process."""
    outcomes: list[Outcome | None] = [None] * len(names)
    for i, (corpus, name) in enumerate(names):
        try:
            outcomes[i] = _check(CORPORA[corpus].bases[name])
        except Exception as error:  # noqa: BLE001 (what it means is the outcome)
            outcomes[i] = Outcome("failed", type(error).__name__, str(error))
            if isinstance(error, DeviceLost):
                break
    return outcomes


def _check(base: Base) -> Outcome:
    if not compiled_for(base.arch, torch.cuda.get_device_capability()):
        return Outcome("skipped", f"needs {base.arch}")
    cubin = compile_cubin(base.text(), cuda_arch(), [kernel_name(base)]).cubin
    run(base, lambda plan, given: GuardedCall(given).run(cuda_adapter(plan, cubin)))
    return Outcome("equal")
