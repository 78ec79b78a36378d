"""Where a kernel runs: on the GPU, or in the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from tvm.target import Target

from tilelang.utils.log import logger
from tilelang.utils.target import arch_of, compiled_for, gcn_arch, kind_of

EMULATE = "emulate"
GPU_BACKENDS = ("tvm_ffi", "cython", "nvrtc")
"""Names for the GPU. They are one backend: NVRTC or clang compiles, and the Cython adapter
launches."""

_CHOICES = ("auto", *GPU_BACKENDS, EMULATE)
_WHY_EMULATED = {
    "cuda": "torch finds no CUDA device",
    "hip": "torch finds no AMD GPU",
}


def resolve_backend(name: str, target: Target) -> str:
    """The backend that `name` stands for with `target`: ``"emulate"`` or one of `GPU_BACKENDS`.

    ``"auto"`` is the GPU where torch has one and the target is cuda, else the emulator, which the
    log says once. Raises `ValueError` for another name, and for a target of another kind.
    """
    if name not in _CHOICES:
        raise ValueError(
            f"execution_backend {name!r} is unknown: expected one of {', '.join(_CHOICES)}"
        )
    kind = kind_of(target)
    if not arch_of(target) or (name != EMULATE and kind not in _WHY_EMULATED):
        raise ValueError(
            f"target {kind} has no execution backend: expected one of {', '.join(_WHY_EMULATED)}"
        )
    if name != "auto":
        return name
    if _has_cuda_gpu() if kind == "cuda" else bool(_amd_gpus()):
        return GPU_BACKENDS[0]
    _say_emulated(_WHY_EMULATED[kind])
    return EMULATE


def _has_cuda_gpu() -> bool:
    """Whether torch finds a GPU and is built for CUDA; one for ROCm calls AMD's so, too."""
    return torch.cuda.is_available() and not torch.version.hip


def _amd_gpus() -> list[str]:
    """Architectures of the GPUs of a torch that is built for ROCm."""
    if not torch.version.hip or not torch.cuda.is_available():
        return []
    return [gcn_arch(device) for device in range(torch.cuda.device_count())]


def why_not_here(name: str, target: Target) -> str:
    """Why this machine does not run kernels for `target` with backend `name`, and a repair; empty
    where it does.
    """
    if name == EMULATE:
        return ""
    arch = arch_of(target)
    if kind_of(target) == "hip":
        gpus = _amd_gpus()
        if arch in gpus:
            return ""
        listed = ", ".join(sorted({*gpus}))
        found = f"the GPU here is {listed}" if gpus else "torch finds no AMD GPU"
        return (
            f"the kernel is compiled for {arch}, and {found}. Compile it for the GPU that runs it "
            "(AMD's run code of their own architecture only), or with execution_backend='emulate' "
            "to run it on the CPU."
        )
    if not _has_cuda_gpu():
        return (
            f"execution_backend {name!r} needs a CUDA device and torch finds none. Compile with "
            "execution_backend='emulate' to run this kernel on the CPU."
        )
    if binary_arch(arch) is not None:
        return ""
    found = ", ".join(sorted({f"sm_{major}{minor}" for major, minor in _gpus()}))
    return (
        f"the kernel is compiled for {arch}, and the GPU here is {found}, which does not run it. "
        "Compile it for this GPU by a target without an architecture, or with "
        "execution_backend='emulate' to run it on the CPU."
    )


def binary_arch(arch: str) -> str | None:
    """The architecture for which a kernel's source for `arch` is compiled to run on the GPUs here:
    `arch` where one of them runs it, else that of a later GPU, or None where no GPU here can."""
    found = [compiled_for(arch, gpu) for gpu in _gpus()]
    return arch if arch in found else next((name for name in found if name is not None), None)


def _gpus() -> list[tuple[int, int]]:
    return [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())]


@cache
def _say_emulated(why: str) -> None:
    logger.info("%s: kernels run in the emulator, on CPU tensors", why)


def normalize_out_idx(out_idx: int | Sequence[int] | None, num_params: int) -> list[int]:
    """`out_idx` as a list of indices from 0; None is the empty list.

    Raises `ValueError` for an index out of range or given twice, `TypeError` for one that is no
    int.

    Example: ``normalize_out_idx(-1, 3) == [2]``
    """
    if out_idx is None:
        return []
    indices = [out_idx] if isinstance(out_idx, int) else list(out_idx)
    for index in indices:
        if not isinstance(index, int):
            raise TypeError(
                f"out_idx is {out_idx!r}, expected an int or several: numbers of parameters, such "
                "as -1 for the last one"
            )
        if not -num_params <= index < num_params:
            raise ValueError(
                f"out_idx {index} is out of range: the kernel has {num_params} parameters, "
                f"expected {-num_params} to {num_params - 1}"
            )
    found = [index % num_params for index in indices]
    if len(set(found)) != len(found):
        raise ValueError(f"out_idx {out_idx} names a parameter twice")
    return found
