"""From what users write for a target to a TVM `Target`."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import torch
from tvm.target import Target

from tilelang.utils.arch import runs_on as runs_on

TargetLike: TypeAlias = str | dict[str, Any] | Target

KINDS = ("cuda", "c", "llvm", "metal", "webgpu")
"""Kinds of targets that this TVM knows."""

FALLBACK_ARCH = "sm_80"
"""The architecture that is compiled for without a GPU: its instructions run on every later one."""

# What TVM fills in where it cannot find out the architecture of a cuda target.
_TVM_UNKNOWN_ARCH = "sm_50"


def cuda_arch() -> str:
    """The architecture of torch's current GPU such as ``sm_90a``, `FALLBACK_ARCH` without one.

    From compute capability 9.0 on it is the architecture-specific one (suffix ``a``; CUDA
    Programming Guide, "Feature Set Compiler Targets"), as wgmma and tcgen05 need it.
    """
    if not torch.cuda.is_available():
        return FALLBACK_ARCH
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def determine_target(target: TargetLike = "auto", return_object: bool = False) -> str | Target:
    """The target that `target` names.

    `target` is ``"auto"`` (the TVM target scope if there is one, else cuda), the name of a kind, a
    name with options such as ``"cuda -arch=sm_90a"``, JSON text, a dict such as ``{"kind": "cuda",
    "arch": "sm_80"}``, or a `Target`. A cuda target without an architecture gets that of the GPU,
    or `FALLBACK_ARCH` where there is none. Returns TVM's JSON text, or the `Target` if
    `return_object`.

    Raises `ValueError` where `target` is none of these.

    Example: ``determine_target("cuda", return_object=True).arch``
    """
    found = _resolve(target)
    return found if return_object else str(found)


def _resolve(target: TargetLike) -> Target:
    if isinstance(target, Target):
        config = dict(target.export())
        if config["kind"] == "cuda" and config["arch"] == _TVM_UNKNOWN_ARCH:
            return Target(config | {"arch": cuda_arch()})
        return target
    if target == "auto":
        current = Target.current(allow_none=True)
        return _resolve("cuda") if current is None else _resolve(current)
    config = _parse(target) if isinstance(target, str) else target
    if not isinstance(config, dict) or config.get("kind") not in KINDS:
        raise ValueError(
            f"unknown target {target!r}: expected auto, one of {', '.join(KINDS)}, options as in "
            "'cuda -arch=sm_90a', a dict with a kind, or a tvm.target.Target"
        )
    if config["kind"] == "cuda" and "arch" not in config:
        config = config | {"arch": cuda_arch()}
    return Target(config)


def _parse(text: str) -> Any:
    """The options of target `text`, which is JSON or ``kind -option=value ...``."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"target {text!r} is not valid JSON: {error}") from error
    kind, *options = text.split() or [""]
    config: dict[str, Any] = {"kind": kind}
    for option in options:
        name, separator, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not separator:
            raise ValueError(
                f"target {text!r}: expected an option such as -arch=sm_90a, got {option!r}"
            )
        config[name] = int(value) if value.isdecimal() else value
    return config
