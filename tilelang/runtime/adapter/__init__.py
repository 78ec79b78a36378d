"""How a compiled program is called: a launch plan, a binary, and the adapter that brings them to
torch tensors.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilelang.engine.launch_plan import KernelLaunch, LaunchPlan, ScalarParam, format_expr
from tilelang.utils import dtypes

if TYPE_CHECKING:
    from tilelang.emulator.buffers import Tensor
    from tilelang.emulator.reports import Report
    from tilelang.runtime.adapter.cuda_module import CudaLibrary
    from tilelang.runtime.adapter.cython._adapter import Launcher
    from tilelang.runtime.adapter.hip_module import HipRuntime


Otherwise = Callable[[int], "Launcher"]
"""Gives the launcher of one of a plan's other variants."""


def cuda_adapter(
    plan: LaunchPlan, cubin: bytes | CudaLibrary, otherwise: Otherwise | None = None
) -> Launcher:
    """The launcher that runs `plan` with the kernels of `cubin` on CUDA tensors; `otherwise` gives
    those of its other variants.

    Raises `RuntimeError` where the driver cannot load the cubin.
    """
    from tilelang.runtime.adapter.cuda_module import CudaLibrary, CudaModule, entry_points
    from tilelang.runtime.adapter.cython._adapter import Launcher
    from tilelang.runtime.adapter.tensor_maps import encode_for_driver, encoder

    shared_bytes = [
        k.shared_bytes if isinstance(k.shared_bytes, int) else None for k in plan.kernels
    ]
    try:
        module = CudaModule(
            CudaLibrary(cubin) if isinstance(cubin, bytes) else cubin,
            [kernel.name for kernel in plan.kernels],
            shared_bytes,
            [math.prod(kernel.cluster) for kernel in plan.kernels],
        )
    except RuntimeError as error:
        raise RuntimeError(
            f"{plan.where()}: the GPU's driver refuses the compiled kernel: {error}. Compile it "
            "for this GPU: give the target without an architecture."
        ) from error
    plan = fitted(plan, module.parameter_bytes)
    encode = encoder(plan, encode_for_driver)
    return Launcher(
        plan,
        module.load,
        entry_points(),
        encode=encode,
        window_limit=module.window_limit,
        multiprocessors=module.multiprocessors,
        otherwise=otherwise,
    )


def hip_adapter(
    plan: LaunchPlan,
    code_object: bytes,
    otherwise: Otherwise | None = None,
    runtime: HipRuntime | None = None,
    device: str | None = None,
) -> Launcher:
    """The launcher that runs `plan` with the kernels of a code object on AMD's GPUs; `otherwise`
    gives those of its other variants. `runtime` and `device` are for a library that stands in for
    HIP's, and where its tensors are.

    Raises `RuntimeError` where there is no HIP, or it refuses the code object at the first call.
    """
    from tilelang.runtime.adapter.cython._adapter import Launcher
    from tilelang.runtime.adapter.hip_module import HipModule, hip_runtime

    if by_hand := [kernel.name for kernel in plan.kernels if kernel.by_hand]:
        raise ValueError(
            f"{plan.where()}: found kernel `{by_hand[0]}` of the program's own text, wanted one of "
            "the compiler: HIP does not say which parameters a text declares. Write it as a tile "
            "program"
        )
    found = runtime or hip_runtime()
    module = HipModule(found, code_object, [kernel.name for kernel in plan.kernels])

    def load(device: int) -> tuple[int, list[int]]:
        try:
            return module.load(device)
        except RuntimeError as error:
            raise RuntimeError(
                f"{plan.where()}: HIP refuses the compiled kernel: {error}. Compile it for this "
                "GPU: give the target without an architecture."
            ) from error

    return Launcher(plan, load, otherwise=otherwise, hip=found, device=device)


def fitted(plan: LaunchPlan, parameter_bytes: Callable[[str], list[int]]) -> LaunchPlan:
    """The plan with the arguments that kernels of the user's own text declare; `parameter_bytes`
    gives the sizes of a kernel's parameters.

    Raises `ValueError` where a text does not take what it gets.
    """
    kernels = [
        _fitted(plan, kernel, parameter_bytes(kernel.name)) if kernel.by_hand else kernel
        for kernel in plan.kernels
    ]
    return dataclasses.replace(plan, kernels=tuple(kernels))


def _fitted(plan: LaunchPlan, kernel: KernelLaunch, found: list[int]) -> KernelLaunch:
    params = {param.name: param for param in plan.params}
    wanted: list[tuple[str, int]] = []
    tensors = 0
    for kind, value, *dtype in kernel.args:
        if kind == "param" and not isinstance(params[value], ScalarParam):
            wanted.append((f"{value} (a pointer)", 8))
            tensors += 1
            continue
        name = dtype[0] if dtype else params[value].dtype
        text = f"{value if kind == 'param' else format_expr(value)} ({name})"
        wanted.append((text, max(1, dtypes.bits(name) // 8)))
    sizes = [size for _, size in wanted]
    if tensors <= len(found) <= len(wanted) and found == sizes[: len(found)]:
        return dataclasses.replace(kernel, args=kernel.args[: len(found)])
    raise ValueError(
        f"{plan.where()}: the text of kernel `{kernel.name}` declares {len(found)} parameters of "
        f"{_listed(found)} bytes, wanted {', '.join(text for text, _ in wanted)}, of "
        f"{_listed(sizes)} bytes. Declare these, in this order"
        + ("; the last ones that are no tensors may be left out." if len(wanted) > tensors else ".")
    )


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) or "no"


def positional(
    plan: LaunchPlan, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The inputs of a call in order. Raises `TypeError` as a Python function with these
    parameters."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [plan.params[i].name for i in plan.arguments]
    try:
        bound = inspect.Signature([inspect.Parameter(n, kind) for n in names])
        return bound.bind(*args, **kwargs).args
    except TypeError as error:
        raise TypeError(f"{plan.where()}: {error}. Pass {', '.join(names) or 'nothing'}.") from None


Explain = Callable[[str, str, "Sequence[Tensor | None]"], "list[Report]"]
"""Reports of a kernel's name, of what its launcher has written, and of its arguments."""


def emulated_adapter(
    plan: LaunchPlan,
    address: Callable[[str], int],
    explain: Explain | None = None,
    otherwise: Otherwise | None = None,
) -> Launcher:
    """The launcher that runs `plan` on CPU tensors; `address` gives the ``tl_launch_<kernel>`` of a
    kernel's name, `explain` the reports of a launch that fails, `otherwise` the launchers of
    the plan's other variants.
    """
    from tilelang.emulator.machine import MULTIPROCESSORS
    from tilelang.emulator.reports import Report
    from tilelang.runtime.adapter.cython._adapter import Launcher
    from tilelang.runtime.adapter.tensor_maps import encode_for_emulator, encoder

    functions = [address(kernel.name) for kernel in plan.kernels]

    def plain(kernel: str, text: str, arguments: Sequence[Tensor | None]) -> list[Report]:
        return [Report("failure", kernel, text)]

    encode = encoder(plan, encode_for_emulator)
    return Launcher(
        plan,
        lambda device: (0, functions),
        explain=explain or plain,
        encode=encode,
        multiprocessors=lambda device: MULTIPROCESSORS,
        otherwise=otherwise,
    )
