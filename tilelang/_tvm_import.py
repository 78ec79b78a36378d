"""Makes the import of TVM cheap: 0.45 s of a core, where it takes 1.4.

TVM tries things while it is imported, and goes on where an error of C++ says that they cannot be:
the module `tvm.runtime.disco`, whose classes are in a library that `tvm.backend` loads later, names
of operators that this build does not have, a text that an operator has. The first error of C++ in a
process reads the symbols of all its libraries for the backtrace, torch's with them: 0.7 s. Here
Python raises these errors, and an import that would have cost them ends as before.

What an import makes is no garbage, so nothing is collected meanwhile: 0.2 s.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_DISCO = "tvm.runtime.disco"


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def _without_disco() -> Iterator[None]:
    sys.modules[_DISCO] = None  # type: ignore[assignment]  # "not found" to the import system
    try:
        yield
    finally:
        del sys.modules[_DISCO]


class _Operators:
    """TVM's functions for its table of operators, with errors of Python's."""

    def __init__(self, api: Any) -> None:
        self._get, self._attribute = api.GetOp, api.OpGetAttr
        self._register = api.RegisterOpAttr
        self._known = set(api.ListOpNames())

    def get(self, name: str) -> Any:
        if name not in self._known:
            raise ValueError(f"no operator {name}")
        return self._get(name)

    def register_attribute(self, op: str, attribute: str, value: Any, level: int) -> None:
        is_text = isinstance(value, str) and op in self._known
        if is_text and self._attribute(self._get(op), attribute) == value:
            return  # TVM refuses to write it again
        self._register(op, attribute, value, level)
        self._known.add(op)  # an operator that has an attribute, there is


class _TvmFinder(MetaPathFinder):
    """Is asked first while TVM is imported, and finds it as the finders behind it do."""

    def __init__(self) -> None:
        self._restore = contextlib.ExitStack()

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name == "tvm.tirx":  # behind tvm.ir, and in front of what asks it for operators
            self._raise_in_python(sys.modules["tvm.ir._ffi_api"])
        if name != "tvm":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            sys.meta_path.insert(0, self)
            with _without_collections(), _without_disco(), self._restore:
                self._restore.callback(sys.meta_path.remove, self)
                run(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _raise_in_python(self, api: Any) -> None:
        operators = _Operators(api)
        for name, function in {
            "GetOp": operators.get,
            "RegisterOpAttr": operators.register_attribute,
        }.items():
            self._restore.callback(setattr, api, name, getattr(api, name))
            setattr(api, name, function)


def make_import_cheap() -> None:
    """The first ``import tvm`` of the process, whoever writes it, is the cheap one."""
    if "tvm" not in sys.modules:
        sys.meta_path.insert(0, _TvmFinder())
