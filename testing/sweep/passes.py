"""How many of the programs of a class each pass changes: ``python testing/sweep/passes.py products
--count 100``. A pass that changes none is not tested by them."""

from __future__ import annotations

import argparse
import collections

import tvm
import tvm_ffi
from classes import CLASSES, programs
from runner import TARGET

from tilelang.engine.lower import lower
from tilelang.engine.observers import observing
from tilelang.testing.batch import REFUSALS


class Changes:
    """An observer that counts the passes which change a program."""

    def __init__(self, counts: collections.Counter[str]):
        self._counts = counts
        self._names: set[str] = set()
        self._last: tvm.IRModule | None = None

    def write(self, pass_name: str, mod: tvm.IRModule) -> None:
        """Compares with the program in front of the pass."""
        if self._last is not None and not tvm_ffi.structural_equal(self._last, mod):
            self._names.add(pass_name)
        self._last = mod

    def close(self) -> None:
        """Counts a pass that runs twice once."""
        self._counts.update(self._names)


def main() -> None:
    """Prints a line a pass, rarest first, with its number for each class."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *CLASSES], help="classes; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="programs of a class")
    arguments = parser.parse_args()
    names = arguments.names or list(CLASSES)
    counts = {name: collections.Counter[str]() for name in names}
    for name in names:
        for program in programs(name, arguments.seed, arguments.count):
            with observing(lambda _: Changes(counts[name])):  # noqa: B023
                try:
                    lower(program.define(), target=TARGET)
                except REFUSALS:
                    continue
    total = sum(counts.values(), collections.Counter[str]())
    print(f"{'pass':<36}" + "".join(f"{name:>10}" for name in names))
    for pass_name, _ in sorted(total.items(), key=lambda item: item[1]):
        print(f"{pass_name:<36}" + "".join(f"{counts[name][pass_name]:>10}" for name in names))


if __name__ == "__main__":
    main()
