"""Writes what is public, a line each: ``python testing/python/packaging/public_api.py``."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = Path(__file__).with_name("public_api.txt")
# The names of these modules are their `__all__`; of `tilelang.language` all but modules. Passes
# are no public names, only how they are configured.
MODULES: dict[str, tuple[str, ...]] = {
    "tilelang": (),
    "tilelang.autotuner": (),
    "tilelang.cache": (),
    "tilelang.carver": (),
    "tilelang.distributed": (),
    "tilelang.emulator": (),
    "tilelang.language": (),
    "tilelang.layout": (),
    "tilelang.macros": (),
    "tilelang.profiler": (),
    "tilelang.runtime": (),
    "tilelang.tools": (),
    "tilelang.torch": (),
    "tilelang.transform": ("PassConfigKey", "PassContext"),
}
# Objects that functions return: their constructors are no public names, their members are.
RETURNED = ("JITImpl", "JITKernel", "Profiler", "AutoTuneImpl", "KernelLaunchFrame", "Team")


def names(module: ModuleType) -> list[str]:
    if module.__name__ == "tilelang.language":
        found = ((n, v) for n, v in vars(module).items() if not n.startswith("_") or n[:2] == "__")
        return sorted(
            n
            for n, v in found
            if not isinstance(v, ModuleType) and not (n.startswith("__") and n.endswith("__"))
        )
    return sorted(module.__all__)


def parameters(function: Any) -> str:
    """How it is called: the names of parameters, ``=`` behind those that have a default."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "(..)"
    words = []
    for p in found:
        if p.name == "self":
            continue
        if p.kind is p.KEYWORD_ONLY and not any(word.startswith("*") for word in words):
            words.append("*")
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        words.append(star + p.name + ("" if p.default is p.empty else "="))
    return f"({', '.join(words)})"


def members(cls: type) -> Iterator[str]:
    """The members of a class of the package and of its bases there."""
    for name in dir(cls):
        owner = next((c for c in cls.__mro__ if name in vars(c)), object)
        if name.startswith("_") or not owner.__module__.startswith("tilelang"):
            continue
        value = inspect.getattr_static(cls, name)
        function = getattr(value, "__func__", value)  # of a class method, a static method
        yield f".{name}" + (parameters(function) if inspect.isfunction(function) else "")


def lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, type) and issubclass(value, enum.Enum):
        yield f"{name}: {', '.join(value.__members__)}"
    elif isinstance(value, type) and issubclass(value, BaseException):
        yield name
    elif isinstance(value, type) and value.__name__ in RETURNED:
        yield name
        yield from (name + member for member in members(value))
    elif callable(value):
        yield name + parameters(value)
    else:
        yield name


def public() -> list[str]:
    found: list[str] = []
    for module_name, listed in MODULES.items():
        module = import_module(module_name)
        for name in listed or names(module):
            found += lines(f"{module_name}.{name}", getattr(module, name))
    return found


if __name__ == "__main__":
    FILE.write_text("\n".join(public()) + "\n")
