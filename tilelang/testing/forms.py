"""Which forms of generated code have been printed, run in the emulator, and run on a GPU:
``python -m tilelang.testing.forms FILE ...``.

A form is a line of text such as ``store local half_t [thread]``, ``cast float x4 -> half_t x4`` or
``call tl::AllReduce<tl::MaxOp>(half_t) -> half_t``: what a compiler or the device headers may have
wrong while other forms are right (src/codegen/forms.cc). Test runs add theirs to a file, by
``--forms FILE`` of pytest, of the sweep and of the fuzzer; several processes may add to one file.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tvm

from tilelang._ffi import get_function
from tilelang.engine.param import CompiledArtifact

PLACES = ("printed", "emulator", "cuda")
"""What has happened to a form: it is in some kernel's source, in one that has run in the emulator,
in one that has run on a GPU."""

REASONS: dict[str, str] = {}
"""Why no GPU has run the forms that begin with a text."""


def forms_of(device_mod: tvm.IRModule) -> set[str]:
    """The forms in the kernels of a program that is lowered for CUDA, as in
    `CompiledArtifact.device_mod`. Of other targets there are none.

    Example: ``"load global float x4" in forms_of(tilelang.lower(main).device_mod)``
    """
    functions = device_mod.functions.values()
    for_cuda = [f for f in functions if f.attrs["target"].kind.name == "cuda"]
    return set(get_function("codegen.FormsOf")(for_cuda))


class Forms:
    """A file of forms with their places, to which several processes add lines.

    Example: ``Forms("forms.txt").add(artifact.device_mod, "printed")``
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._told: set[str] = set()

    def add(self, device_mod: tvm.IRModule, place: str) -> None:
        """Notes that the forms of a program have been at one of `PLACES`."""
        lines = {f"{place}\t{form}" for form in forms_of(device_mod)} - self._told
        if not lines:
            return
        self._told |= lines
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("".join(f"{line}\n" for line in sorted(lines)))

    def read(self) -> dict[str, set[str]]:
        """The forms at each place."""
        found: dict[str, set[str]] = {place: set() for place in PLACES}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                place, _, form = line.partition("\t")
                found[place].add(form)
        return found


def appendable(path: str) -> str:
    """The type of an option ``--forms``: refused at once where no process could add to the file."""
    try:
        with open(path, "a"):
            return path
    except OSError as error:
        raise argparse.ArgumentTypeError(f"wanted a file to add to: {error}") from error


def recorder(path: str | None) -> Callable[[CompiledArtifact, str], None]:
    """What `tilelang.testing.batch.check` tells of programs; adds their forms to a file, if any."""
    if path is None:
        return lambda artifact, place: None
    forms = Forms(path)
    return lambda artifact, place: forms.add(artifact.device_mod, place)


def watch(path: str | Path) -> None:
    """From now on this process adds the forms of all that it lowers and calls to a file."""
    forms = Forms(path)
    # `tilelang.lower` and `tilelang.jit` are functions to who imports them as attributes.
    lowering: Any = importlib.import_module("tilelang.engine.lower")
    kernel: Any = importlib.import_module("tilelang.jit.kernel").JITKernel
    emit, call = lowering.emit_cuda, kernel.__call__

    def emit_and_tell(device_mod: tvm.IRModule, *given: Any, **named: Any) -> str:
        source = emit(device_mod, *given, **named)
        forms.add(device_mod, "printed")
        return source

    def call_and_tell(self: Any, /, *given: Any, **named: Any) -> Any:
        result = call(self, *given, **named)
        if not getattr(self, "_forms_are_told", False):
            self._forms_are_told = True
            place = "emulator" if self.execution_backend == "emulate" else "cuda"
            forms.add(self.artifact.device_mod, place)
        return result

    lowering.emit_cuda, kernel.__call__ = emit_and_tell, call_and_tell


def merged(files: Iterable[str | Path]) -> dict[str, set[str]]:
    """The forms at each place, of several files."""
    found: dict[str, set[str]] = {place: set() for place in PLACES}
    for file in files:
        for place, forms in Forms(file).read().items():
            found[place] |= forms
    return found


def known_on_gpu(path: str | Path) -> set[str]:
    """The forms of a list of those that a GPU has run, a line each."""
    return set(Path(path).read_text().splitlines()) if Path(path).exists() else set()


def reason(form: str) -> str:
    """Why no GPU has run the form, if `REASONS` has it."""
    return next((why for text, why in REASONS.items() if form.startswith(text)), "")


def missing_on_gpu(found: dict[str, set[str]], known: set[str]) -> list[str]:
    """The forms that no GPU has run, now or as it is known."""
    return sorted(set().union(*found.values()) - found["cuda"] - known)


def report(found: dict[str, set[str]], known: set[str]) -> str:
    """How many forms are where, and those that no GPU has run."""
    everything = set().union(*found.values())
    missing = missing_on_gpu(found, known)
    lines = [
        f"{len(everything)} forms printed, {len(found['emulator'])} run in the emulator, "
        f"{len(found['cuda'])} run on a GPU now, {len(everything) - len(missing)} at some time",
        f"{len(missing)} forms that no GPU has run" + (":" if missing else ""),
    ]
    lines += [f"  {form}" + (f": {reason(form)}" if reason(form) else "") for form in missing]
    return "\n".join(lines)


def main() -> None:
    """Prints the report of the files; status 1 if forms without a reason have not run on a GPU."""
    parser = argparse.ArgumentParser(prog="python -m tilelang.testing.forms", description=__doc__)
    parser.add_argument("files", nargs="+", help="what test runs have written")
    parser.add_argument("--known", type=Path, help="list of the forms that a GPU has run")
    parser.add_argument("--update", action="store_true", help="adds to the list what ran on a GPU")
    given = parser.parse_args()
    if given.update and given.known is None:
        parser.error("--update needs --known")
    found = merged(given.files)
    known = known_on_gpu(given.known) if given.known is not None else set()
    if given.update:
        given.known.write_text("".join(f"{form}\n" for form in sorted(known | found["cuda"])))
    print(report(found, known))
    sys.exit(any(not reason(form) for form in missing_on_gpu(found, known)))


if __name__ == "__main__":
    main()
