"""What the result of a tuning run depends on, as plain data: the key that it is kept by.

A function counts by its bytecode and by that of every function that it may call, with the values
that they read (`tilelang.jit.reads`): comments and line breaks do not matter. Results say nothing
about other sizes, other GPUs, or other versions of the compiler.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tilelang.cache.store import Store
from tilelang.cache.versions import compiler_versions, nvrtc_version
from tilelang.jit.cache_key import hashable
from tilelang.jit.reads import Reads, _Same, _unwrapped

KIND = "tuning"


def structure(
    function: Callable[..., Any], arguments: Mapping[str, Any], local: Mapping[str, Any] | None
) -> str:
    """The digest of a function, and of what it reads when it is called with `arguments`."""
    root = _unwrapped(function)
    reads = Reads(function, {k: v for k, v in arguments.items() if not _is_tensor(v)}, local or {})
    return _digest((_stable(_Same(root)), _stable(root.__defaults__), _stable(reads.key)))


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _stable(value: Any) -> Any:
    """`value` in numbers, texts and tuples, the same in each process."""
    if isinstance(value, _Same):
        held = value._value
        inner = _unwrapped(held)
        if isinstance(inner, types.FunctionType):
            return ("function", inner.__qualname__, _code(inner.__code__))
        if isinstance(held, type | types.ModuleType | types.BuiltinFunctionType):
            return (getattr(held, "__module__", ""), getattr(held, "__qualname__", held.__name__))
        return ("object", type(held).__qualname__)
    if isinstance(value, types.CodeType):
        return _code(value)
    if isinstance(value, tuple | list):
        return (type(value).__name__, *map(_stable, value))
    if isinstance(value, frozenset | set):
        return ("set", *sorted(repr(_stable(v)) for v in value))
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, bool | int | float | str | bytes | None):
        return value
    found = repr(value)
    return found if " at 0x" not in found else ("object", type(value).__qualname__)


def _code(code: types.CodeType) -> tuple[Any, ...]:
    """Bytecode, without the places in the source that it is from."""
    constants = tuple(map(_stable, code.co_consts))
    return (code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def described(value: Any) -> Any:
    """An argument of a call as JSON: a tensor by dtype, shape and strides."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), list(value.stride()), value.device.type]
    return repr(_stable(hashable(value)))


def result_parts(
    name: str,
    function: str,
    arguments: Mapping[str, Any],
    configs: Sequence[Mapping[str, Any]],
    inputs: Sequence[Any] | None,
    options: Mapping[str, Any],
    store: Store,
) -> dict[str, Any]:
    """The parts of a result's key.

    `function` is the digest of `structure`, `inputs` what it is tuned on if the user gives it,
    `options` what else is asked for, target and device among it, in plain values.
    """
    tried = [{k: described(v) for k, v in config.items()} for config in configs]
    return {
        "name": name,
        "function": function,
        "arguments": {k: described(v) for k, v in arguments.items()},
        "configs": _digest([sorted(config.items()) for config in tried]),
        "number": len(tried),
        "inputs": None if inputs is None else [described(v) for v in inputs],
        **options,
        **compiler_versions(store),
        "nvrtc": nvrtc_version(),
    }
