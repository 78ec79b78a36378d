"""From what users write for a target to a TVM `Target`."""

from __future__ import annotations

import contextlib
import contextvars
import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
from tvm.target import Target

from tilelang._ffi import get_function
from tilelang.utils.arch import compiled_for as compiled_for
from tilelang.utils.arch import gcn_arch as gcn_arch
from tilelang.utils.arch import runs_on as runs_on

TargetLike: TypeAlias = str | dict[str, Any] | Target

KINDS = ("cuda", "hip", "c", "llvm", "metal", "webgpu")
"""Kinds of targets."""

FALLBACK_ARCH = "sm_80"
"""The architecture that is compiled for without a GPU: its instructions run on every later one."""

HIP_FALLBACK_ARCH = "gfx942"
"""The same of AMD, whose architectures run their own code only: that of the MI300."""

# What TVM fills in where it cannot find out the architecture of a cuda target.
_TVM_UNKNOWN_ARCH = "sm_50"
# What TVM calls a hip target, and fills in where it cannot find out its architecture.
_TVM_HIP, _TVM_UNKNOWN_MCPU = "rocm", "gfx900"


def cuda_arch() -> str:
    """The architecture of torch's current GPU such as ``sm_90a``, `FALLBACK_ARCH` without one.

    From compute capability 9.0 on it is the architecture-specific one (suffix ``a``; CUDA
    Programming Guide, "Feature Set Compiler Targets"), as wgmma and tcgen05 need it.
    """
    if not torch.cuda.is_available() or torch.version.hip:
        return FALLBACK_ARCH
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def hip_arch() -> str:
    """The architecture of torch's current AMD GPU such as ``gfx942``, `HIP_FALLBACK_ARCH` without
    one.
    """
    if not torch.version.hip or not torch.cuda.is_available():
        return HIP_FALLBACK_ARCH
    return gcn_arch(torch.cuda.current_device())


_traced_for: contextvars.ContextVar[Target | None] = contextvars.ContextVar(
    "traced_for", default=None
)


@contextlib.contextmanager
def tracing_for(target: Target) -> Iterator[None]:
    """What runs in the ``with`` statement makes a program that is compiled for `target`."""
    token = _traced_for.set(target)
    try:
        yield
    finally:
        _traced_for.reset(token)


def traced_for() -> Target | None:
    """The target that the program of now is compiled for; None where nothing says so yet.

    Example: ``with tracing_for(target): assert traced_for() is target``
    """
    return _traced_for.get()


def kind_of(target: Target) -> str:
    """The kind of a target as users write it: ``"hip"`` of one that TVM calls ``rocm``.

    Example: ``kind_of(determine_target("hip", return_object=True)) == "hip"``
    """
    tvm_kind = str(target.kind.name)
    return str(get_function("target.KindOf")(tvm_kind)[0]) or tvm_kind


def arch_of(target: Target) -> str:
    """The architecture of a target such as ``"sm_90a"`` or ``"gfx942"``; empty where it has none.

    Example: ``arch_of(determine_target("hip -mcpu=gfx942", return_object=True)) == "gfx942"``
    """
    attribute = str(get_function("target.KindOf")(str(target.kind.name))[1])
    return str(target.attrs.get(attribute, ""))


def determine_target(target: TargetLike = "auto", return_object: bool = False) -> str | Target:
    """The target that `target` names.

    `target` is ``"auto"`` (the TVM target scope if there is one, else hip where torch is built for
    ROCm, else cuda), the name of a kind, a name with options such as ``"cuda -arch=sm_90a"`` or
    ``"hip -mcpu=gfx942"``, JSON text, a dict such as ``{"kind": "cuda", "arch": "sm_80"}``, or a
    `Target`. A cuda or hip target without an architecture gets that of the GPU, or
    `FALLBACK_ARCH` or `HIP_FALLBACK_ARCH` where there is none. Returns TVM's JSON text, or the
    `Target` if `return_object`.

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
        if config["kind"] == _TVM_HIP and config["mcpu"] == _TVM_UNKNOWN_MCPU:
            return _hip_target({"mcpu": hip_arch()})
        return target
    if target == "auto":
        current = Target.current(allow_none=True)
        if current is None:
            return _resolve("hip" if torch.version.hip else "cuda")
        return _resolve(current)
    config = _parse(target) if isinstance(target, str) else target
    if isinstance(config, dict) and config.get("kind") in ("hip", _TVM_HIP):
        return _hip_target(config)
    if not isinstance(config, dict) or config.get("kind") not in KINDS:
        raise ValueError(
            f"unknown target {target!r}: expected auto, one of {', '.join(KINDS)}, options as in "
            "'cuda -arch=sm_90a', a dict with a kind, or a tvm.target.Target"
        )
    if config["kind"] == "cuda" and "arch" not in config:
        config = config | {"arch": cuda_arch()}
    return Target(config)


def _hip_target(config: dict[str, Any]) -> Target:
    """TVM's target for a hip one, whose texts name hip among its keys."""
    if "arch" in config:
        raise ValueError(
            f"found arch {config['arch']!r} in a hip target, wanted it as mcpu, which is TVM's "
            "name of AMD's architectures: 'hip -mcpu=gfx942'"
        )
    mcpu = config.get("mcpu") or hip_arch()
    device = get_function("target.Describe")("hip", mcpu)
    filled = {
        "device": "hip",
        "mcpu": mcpu,
        "thread_warp_size": device["warp_threads"],
        "max_shared_memory_per_block": device["shared_bytes_per_block"],
        "max_num_threads": device["threads_per_block"],
        "max_threads_per_block": device["threads_per_block"],
    }
    return _made({**filled, **config, "kind": _TVM_HIP})


def _made(config: dict[str, Any]) -> Target:
    """TVM says on every construction of such a target that it finds no ROCm; so each is one."""
    key = json.dumps(config, sort_keys=True)
    if key not in _hip_targets:
        _hip_targets[key] = Target(config)
    return _hip_targets[key]


_hip_targets: dict[str, Target] = {}


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
