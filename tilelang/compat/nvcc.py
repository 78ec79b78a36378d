"""Compute capabilities as numbers, and what such chips have: the names of
`tilelang.contrib.nvcc`.

Nothing here runs nvcc: kernels are compiled by NVRTC, in this process.
"""

from __future__ import annotations

import re

from tilelang.utils.target import TargetLike, determine_target

# CUDA C++ Programming Guide, "Features and Technical Specifications".
_FP16, _DP4A, _TENSOR_CORES = (5, 3), (6, 1), (7, 0)
_BF16, _FP8, _TMA = (8, 0), (8, 9), (9, 0)


def get_target_compute_version(target: TargetLike | None = None) -> str:
    """The compute capability of a cuda target as text, such as ``"9.0"`` for sm_90a; by default
    that of the target scope, else of the GPU.

    Raises `ValueError` where it is no cuda target.

    Example: ``get_target_compute_version("cuda -arch=sm_90a") == "9.0"``
    """
    found = determine_target("auto" if target is None else target, return_object=True)
    arch = str(getattr(found, "arch", ""))
    match = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    if match is None:
        raise ValueError(
            f"get_target_compute_version found target {target!r}, wanted a cuda target, such as "
            "'cuda -arch=sm_90a'"
        )
    return f"{match[1]}.{match[2]}"


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """The numbers of a compute capability: ``(9, 0)`` for ``"9.0"``.

    Raises `ValueError` for another text.

    Example: ``parse_compute_version("8.6") == (8, 6)``
    """
    match = re.fullmatch(r"(\d+)\.(\d+)", compute_version)
    if match is None:
        raise ValueError(
            f"parse_compute_version found {compute_version!r}, wanted a compute capability such as "
            "'9.0'"
        )
    return int(match[1]), int(match[2])


def _has(least: tuple[int, int], version: str | None, target: TargetLike | None = None) -> bool:
    return parse_compute_version(version or get_target_compute_version(target)) >= least


def have_fp16(compute_version: str) -> bool:
    """Whether such chips compute in float16.

    Example: ``have_fp16("9.0")``
    """
    return _has(_FP16, compute_version)


def have_int8(compute_version: str) -> bool:
    """Whether such chips multiply and add 8-bit integers (dp4a).

    Example: ``have_int8("9.0")``
    """
    return _has(_DP4A, compute_version)


def have_tensorcore(compute_version: str | None = None, target: TargetLike | None = None) -> bool:
    """Whether such chips have tensor cores; those of `target` where no version is given.

    Example: ``have_tensorcore(target="cuda -arch=sm_90a")``
    """
    return _has(_TENSOR_CORES, compute_version, target)


def have_bf16(compute_version: str) -> bool:
    """Whether such chips compute in bfloat16.

    Example: ``have_bf16("9.0")``
    """
    return _has(_BF16, compute_version)


def have_fp8(compute_version: str) -> bool:
    """Whether the tensor cores of such chips take 8-bit floats.

    Example: ``have_fp8("9.0")``
    """
    return _has(_FP8, compute_version)


def have_tma(target: TargetLike | None = None) -> bool:
    """Whether the chips of `target` have TMA.

    Example: ``have_tma("cuda -arch=sm_90a")``
    """
    return _has(_TMA, None, target)


def is_hopper(target: TargetLike | None = None) -> bool:
    """Whether the chips of `target` are of compute capability 9.

    Example: ``is_hopper("cuda -arch=sm_90a")``
    """
    return parse_compute_version(get_target_compute_version(target))[0] == 9


def get_cuda_version() -> tuple[int, ...]:
    """Version of the compiler, NVRTC, such as ``(13, 0)``.

    Example: ``get_cuda_version() >= (12, 8)``
    """
    from tilelang.cuda.nvrtc_library import version

    return version()
