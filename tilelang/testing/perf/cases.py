"""What is compared: cases, which the ``regression_*.py`` of a folder register."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "regression_"


@dataclass(frozen=True)
class Case:
    """A name and the call that makes what is measured."""

    name: str
    func: Callable[..., Any]
    arguments: Mapping[str, Any]

    def make(self) -> tuple[Any, Callable[[str], Callable[[], Any]]]:
        """The kernel, None where the case times itself, and what makes a call of it for a device.

        Raises `TypeError` where `func` returns something else, and what `func` raises.
        """
        found = self.func(**self.arguments)
        if isinstance(found, tuple) and len(found) == 2 and callable(found[1]):
            return found
        if hasattr(found, "get_profiler"):
            return found, lambda device: _on_generated_inputs(found)
        if isinstance(found, int | float):
            return None, lambda device: lambda: self.func(**self.arguments)
        raise TypeError(
            f"case {self.name!r}: found {type(found).__name__}, wanted a kernel, a pair of a kernel"
            " and a function of the device that returns the call to time, or milliseconds. Return "
            "one of them from the function that is given to process_func."
        )


_cases: dict[str, Case] = {}


def process_func(func: Callable[..., Any], name: str | None = None, **kwargs: Any) -> None:
    """Registers a case: what ``func(**kwargs)`` returns is compared between commits.

    It returns a kernel, which is timed on generated inputs; or a pair of a kernel and a function
    that makes inputs on the device that it is given and returns the call to time; or milliseconds
    that it has measured itself. Called in a ``regression_*.py``, in its text or in one of its
    functions called ``regression_*``. The case is called after the file and `name`, by default the
    function's. Raises `ValueError` where another case has the name.

    Example: ``process_func(matmul, "GEMM", M=4096, N=4096, K=4096)``, `matmul` under `tilelang.jit`
    """
    caller = Path(sys._getframe(1).f_code.co_filename).stem.removeprefix(PREFIX)
    name = f"{caller}: {name or func.__name__}"
    if name in _cases:
        raise ValueError(f"two cases are called {name!r}; give one of them another name")
    _cases[name] = Case(name, func, kwargs)


def discover(folder: Path) -> list[Case]:
    """The cases of a folder's ``regression_*.py``, which are imported in order of their names.

    Raises `ValueError` where there are none, and what a file raises.
    """
    with _registry() as found:
        for path in sorted(folder.glob(f"{PREFIX}*.py")):
            if str(path.parent) not in sys.path:
                sys.path.insert(0, str(path.parent))  # as if the file was run
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = module
            spec.loader.exec_module(module)
            _call_functions(vars(module))
        if not found:
            raise ValueError(f"found no case in {folder}, wanted a {PREFIX}*.py that registers one")
        return list(found.values())


def regression(folder: str | Path | None = None) -> None:
    """Runs the cases of a folder, or of the file that calls it, and prints what each takes.

    On a GPU it prints milliseconds, without one what the compiled kernel costs. Raises `SystemExit`
    at the end where a case has failed.

    Example: the last line of a ``regression_*.py``, under ``if __name__ == "__main__":``
    """
    import torch

    from .worker import summary

    if folder is None:
        _call_functions(sys._getframe(1).f_globals)
        cases = list(_cases.values())
    else:
        cases = discover(Path(folder).resolve())
    failed = 0
    for case in cases:
        try:
            text = summary(case, torch.cuda.is_available())
        except Exception as error:  # noqa: BLE001 (the others are run and the status tells)
            failed, text = failed + 1, f"failed: {type(error).__name__}: {error}"
        print(f"{case.name}: {text}", flush=True)
    if failed:
        raise SystemExit(f"{failed} of {len(cases)} cases failed")


def _call_functions(names: Mapping[str, Any]) -> None:
    """Calls the functions of a module that register cases."""
    for name, value in list(names.items()):
        if name.startswith(PREFIX) and inspect.isfunction(value):
            value()


@contextmanager
def _registry() -> Iterator[dict[str, Case]]:
    """An empty list of cases; the former one comes back."""
    former = dict(_cases)
    _cases.clear()
    try:
        yield _cases
    finally:
        _cases.clear()
        _cases.update(former)


def _on_generated_inputs(kernel: Any) -> Callable[[], Any]:
    inputs = kernel.get_profiler()._get_inputs()
    return lambda: kernel(*inputs)
