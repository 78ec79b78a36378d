"""How a compiled program is called: a launch plan, a binary, and the adapter that brings them to
torch tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilelang.engine.launch_plan import LaunchPlan

if TYPE_CHECKING:
    from tilelang.emulator.buffers import Tensor
    from tilelang.emulator.reports import Report
    from tilelang.jit.adapter.cython._adapter import Launcher


def cuda_adapter(plan: LaunchPlan, cubin: bytes) -> Launcher:
    """The launcher that runs `plan` with the kernels of `cubin` on CUDA tensors.

    Raises `RuntimeError` where the driver cannot load the cubin.
    """
    from tilelang.jit.adapter.cuda_module import CudaModule, entry_points
    from tilelang.jit.adapter.cython._adapter import Launcher
    from tilelang.jit.adapter.tensor_maps import encode_for_driver, encoder

    shared_bytes = [
        k.shared_bytes if isinstance(k.shared_bytes, int) else None for k in plan.kernels
    ]
    try:
        module = CudaModule(
            cubin,
            [kernel.name for kernel in plan.kernels],
            shared_bytes,
            [math.prod(kernel.cluster) for kernel in plan.kernels],
        )
    except RuntimeError as error:
        raise RuntimeError(
            f"{plan.where()}: the GPU's driver refuses the compiled kernel: {error}. Compile it "
            "for this GPU: give the target without an architecture."
        ) from error
    encode = encoder(plan, encode_for_driver)
    return Launcher(
        plan, module.load, entry_points(), encode=encode, window_limit=module.window_limit
    )


Explain = Callable[[str, str, "Sequence[Tensor | None]"], "list[Report]"]
"""Reports of a kernel's name, of what its launcher has written, and of its arguments."""


def emulated_adapter(
    plan: LaunchPlan, address: Callable[[str], int], explain: Explain | None = None
) -> Launcher:
    """The launcher that runs `plan` on CPU tensors; `address` gives the ``tl_launch_<kernel>`` of a
    kernel's name, `explain` the reports of a launch that fails.
    """
    from tilelang.emulator.reports import Report
    from tilelang.jit.adapter.cython._adapter import Launcher
    from tilelang.jit.adapter.tensor_maps import encode_for_emulator, encoder

    functions = [address(kernel.name) for kernel in plan.kernels]

    def plain(kernel: str, text: str, arguments: Sequence[Tensor | None]) -> list[Report]:
        return [Report("failure", kernel, text)]

    encode = encoder(plan, encode_for_emulator)
    return Launcher(plan, lambda device: (0, functions), explain=explain or plain, encode=encode)
