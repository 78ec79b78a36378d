"""Where a kernel runs: on the GPU, or in the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from tvm.target import Target

from tilelang.utils.log import logger
from tilelang.utils.target import runs_on

EMULATE = "emulate"
GPU_BACKENDS = ("tvm_ffi", "cython", "nvrtc")
"""Names for the GPU. They are one backend: NVRTC compiles, and the Cython adapter launches."""

_CHOICES = ("auto", *GPU_BACKENDS, EMULATE)


def resolve_backend(name: str, target: Target) -> str:
    """The backend that `name` stands for with `target`: ``"emulate"`` or one of `GPU_BACKENDS`.

    ``"auto"`` is the GPU where torch has one, else the emulator, which the log says once.
    Raises `ValueError` for another name, and for a target that is not cuda.
    """
    if name not in _CHOICES:
        raise ValueError(
            f"execution_backend {name!r} is unknown: expected one of {', '.join(_CHOICES)}"
        )
    if target.kind.name != "cuda":
        raise ValueError(
            f"target {target.kind.name} has no execution backend yet: expected the target cuda"
        )
    if name != "auto":
        return name
    if torch.cuda.is_available():
        return GPU_BACKENDS[0]
    _say_emulated()
    return EMULATE


def why_not_here(name: str, arch: str) -> str:
    """Why this machine does not run kernels for `arch` with backend `name`, and a repair; empty
    where it does.
    """
    if name == EMULATE:
        return ""
    if not torch.cuda.is_available():
        return (
            f"execution_backend {name!r} needs a CUDA device and torch finds none. Compile with "
            "execution_backend='emulate' to run this kernel on the CPU."
        )
    gpus = [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())]
    if any(runs_on(arch, gpu) for gpu in gpus):
        return ""
    found = ", ".join(sorted({f"sm_{major}{minor}" for major, minor in gpus}))
    return (
        f"the kernel is compiled for {arch}, and the GPU here is {found}, which does not run it. "
        "Compile it for this GPU by a target without an architecture, or with "
        "execution_backend='emulate' to run it on the CPU."
    )


@cache
def _say_emulated() -> None:
    logger.info("torch finds no CUDA device: kernels run in the emulator, on CPU tensors")


def normalize_out_idx(out_idx: int | Sequence[int] | None, num_params: int) -> list[int]:
    """`out_idx` as a list of indices from 0; None is the empty list.

    Raises `ValueError` for an index out of range or given twice.

    Example: ``normalize_out_idx(-1, 3) == [2]``
    """
    if out_idx is None:
        return []
    indices = [out_idx] if isinstance(out_idx, int) else list(out_idx)
    for index in indices:
        if not -num_params <= index < num_params:
            raise ValueError(
                f"out_idx {index} is out of range: the kernel has {num_params} parameters, "
                f"expected {-num_params} to {num_params - 1}"
            )
    found = [index % num_params for index in indices]
    if len(set(found)) != len(found):
        raise ValueError(f"out_idx {out_idx} names a parameter twice")
    return found
