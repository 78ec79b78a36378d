"""Hooks on generated source: ``func(code, target) -> code``, one for each kind of target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.target import Target

from tilelang.utils.target import kind_of

PostProcess = Callable[[str, Target], str]

_registered: dict[str, PostProcess] = {}
_hooks: tuple[tuple[str, PostProcess], ...] = ()


def _register(kind: str, func: PostProcess | None, override: bool) -> Any:
    if func is None:
        _registered.pop(kind, None)
    elif kind in _registered and not override:
        raise ValueError(
            f"a hook on {kind} source is registered already; pass override=True to replace it, or "
            f"remove it by register_{kind}_postproc(None)"
        )
    else:
        _registered[kind] = func
    global _hooks
    _hooks = tuple(_registered.items())
    return func


def register_cuda_postproc(func: PostProcess | None, override: bool = True) -> Any:
    """Lets `func` change the CUDA source of every kernel that is lowered from now on.

    `func` takes the source and the target and returns the source that is compiled, for the GPU and
    for the emulator. None removes the hook. Returns `func`. Raises `ValueError` where there is one
    and not `override`.

    Example: ``register_cuda_postproc(lambda code, target: code.replace("__restrict__", ""))``
    """
    return _register("cuda", func, override)


def register_hip_postproc(func: PostProcess | None, override: bool = True) -> Any:
    """As `register_cuda_postproc`, for targets of the kind hip.

    Example: ``register_hip_postproc(lambda code, target: "// mine\\n" + code)``
    """
    return _register("hip", func, override)


def register_c_postproc(func: PostProcess | None, override: bool = True) -> Any:
    """As `register_cuda_postproc`, for targets of the kind c.

    Example: ``register_c_postproc(None)``
    """
    return _register("c", func, override)


def _decorator(kind: str, func: PostProcess | None, override: bool) -> Any:
    if func is None:
        return lambda function: _register(kind, function, override)
    return _register(kind, func, override)


def register_cuda_postproc_callback(
    func: PostProcess | None = None, *, override: bool = True
) -> Any:
    """`register_cuda_postproc` as a decorator, with or without ``(override=...)``."""
    return _decorator("cuda", func, override)


def register_hip_postproc_callback(
    func: PostProcess | None = None, *, override: bool = True
) -> Any:
    """`register_hip_postproc` as a decorator, with or without ``(override=...)``."""
    return _decorator("hip", func, override)


def register_c_postproc_callback(func: PostProcess | None = None, *, override: bool = True) -> Any:
    """`register_c_postproc` as a decorator, with or without ``(override=...)``."""
    return _decorator("c", func, override)


def registered_postproc() -> tuple[tuple[str, PostProcess], ...]:
    """The hooks that there are, each behind the kind of its targets."""
    return _hooks


def has_postproc(target: Target) -> bool:
    """Whether there is a hook for the target's kind."""
    return kind_of(target) in _registered


def postprocess(code: str, target: Target) -> str:
    """The source that is compiled: `code` after the hook for the target's kind.

    Raises `TypeError` where the hook returns something else than text.
    """
    hook = _registered.get(kind_of(target))
    if hook is None:
        return code
    changed = hook(code, target)
    if not isinstance(changed, str):
        raise TypeError(
            f"the hook on {kind_of(target)} source returned {type(changed).__name__}, wanted the "
            "source text; end it with `return code`"
        )
    return changed
