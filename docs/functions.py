"""Writes functions.md, the docstrings of what is public, for Sphinx: `make docs` alone needs it."""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import tilelang.language as T

PACKAGE = {
    "Compiling": "compile jit autotune lower par_compile JITKernel",
    "Profiling": "profiler.Profiler profiler.do_bench profiler.compare profiler.roofline",
    "Emulator": "emulator.schedule emulator.Schedule emulator.EmulationError",
    "Shipping": "runtime.load torch.register",
    "Layouts": "tools.plot_layout layout.Layout layout.Fragment",
    "Environment": "set_log_level enable_cache disable_cache clear_cache PassConfigKey",
}


def sections() -> dict[str, list[str]]:
    """The public names of T by the module that defines them."""
    found: dict[str, list[str]] = {}
    for name, value in sorted(vars(T).items()):
        if name.startswith("_") or isinstance(value, ModuleType | T.dtype):
            continue
        module = str(getattr(value, "__module__", ""))
        if module.startswith("tilelang.language."):
            found.setdefault(module, []).append(name)
    return found


def title(module: str) -> str:
    """The first sentence at the top of a module."""
    text = " ".join((inspect.getdoc(sys.modules[module]) or "").split())
    return re.split(r"[.:;](?= |$)", text.replace("``", "`"))[0]


def _directive(path: str, value: object) -> list[str]:
    is_class = inspect.isclass(value)
    lines = [f".. {'autoclass' if is_class else 'autofunction'}:: {path}"]
    return [*lines, "   :members:", ""] if is_class else [*lines, ""]


def page() -> str:
    """The text of the page."""
    lines = [
        "# Functions",
        "",
        "The docstrings of what programs call. Names under *T* are those of `tilelang.language`;"
        " data types are in [types](../types.md). Those of the package follow at the end.",
    ]
    for module, names in sections().items():
        lines += ["", f"## {title(module)}", "", "```{eval-rst}"]
        for name in names:
            value = getattr(T, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                lines += _directive(f"tilelang.language.{name}", value)
        lines.append("```")
    for heading, names in PACKAGE.items():
        lines += ["", f"## {heading}", "", "```{eval-rst}"]
        for path in names.split():
            module, _, name = f"tilelang.{path}".rpartition(".")
            lines += _directive(f"tilelang.{path}", getattr(import_module(module), name))
        lines.append("```")
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """Writes the page to a folder."""
    (folder / "functions.md").write_text(page())
