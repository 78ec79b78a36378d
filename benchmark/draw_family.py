"""What a family of `draw.py` is: how its shapes are drawn, and the row of a shape."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from common import Row

ODD = 1 / 8
"""The share of sizes that are no multiple of anything."""
SMALL = 40
"""The largest size of a shape that is emulated."""
MOST_WORK = 2.0**40
"""FLOP of a call, so that a row takes milliseconds."""
MOST_BYTES = 2.0**31
"""Of all operands of a call."""

Shape = Mapping[str, Any]
Choice = TypeVar("Choice")


class Draw(random.Random):
    """Sizes of one shape, a function of the family's name, the seed and the shape's number.

    With `small` no size is above `SMALL`, for the emulator.
    """

    def __new__(cls, *_: Any, **__: Any) -> "Draw":
        return super().__new__(cls)

    def __init__(self, family: str, seed: int, index: int, small: bool = False):
        super().__init__(f"{family} {seed} {index}")
        self.small = small

    def size(self, low: int, high: int, step: int = 1, unit: int = 1) -> int:
        """A size between `low` and `high`, log-uniform: a multiple of `step`, or for `ODD` of all
        of `unit` alone, which is what the kernel's operands are made of."""
        if self.small:
            low, high = min(low, SMALL // 4), min(high, SMALL)
        value = math.exp(self.uniform(math.log(low), math.log(high)))
        if self.random() < ODD or step > high:
            step = unit
        return max(step, round(value / step) * step)

    def count(self, low: int, high: int) -> int:
        """How many of something: log-uniform; one or two where the shape is emulated."""
        return self.randint(1, 2) if self.small else self.size(low, high)

    def until(self, make: Callable[[], Choice], fits: Callable[[Choice], bool]) -> Choice:
        """The first that fits."""
        while True:
            found = make()
            if fits(found):
                return found


@dataclass(frozen=True)
class Family:
    """Shapes that are drawn, and what is claimed of them.

    `draw` makes a shape. `row` gives its `Row`, with the cost model's first configurations; a row
    without a `baseline` is measured against the time of its bytes, `work`, at the speed of a copy.
    `beside` compiles what a call needs besides the row's kernel. `median` and `worst` are what
    ratios have to reach.
    """

    draw: Callable[[Draw], dict[str, Any]]
    row: Callable[[Shape, int], Row]
    median: float = 1.0
    worst: float = 0.9
    beside: Callable[[Shape], Any] | None = None


def name_of(shape: Shape) -> str:
    """Such as ``M=16 N=4096 K=4096 dtype=float16``."""
    return " ".join(f"{name}={value}" for name, value in shape.items())


def best(
    configs: Sequence[dict[str, Any]], seconds: Callable[[dict[str, Any]], float], top: int
) -> list[dict[str, Any]]:
    """The `top` configurations that a model expects to be the fastest. Different tiles come first,
    each with the order of tiles (`panel`) that suits it best."""
    timed = [(seconds(config), number) for number, config in enumerate(configs)]
    ranked, tiles = [], dict[str, int]()
    for time, number in sorted(timed):
        if math.isfinite(time):
            tile = repr({**configs[number], "panel": None})
            tiles[tile] = tiles.get(tile, -1) + 1
            ranked.append((tiles[tile], len(ranked), configs[number]))
    return [config for *_, config in sorted(ranked, key=lambda entry: entry[:2])][:top]
