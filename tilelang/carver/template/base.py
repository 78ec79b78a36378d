"""What all templates share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypeVar

from tilelang.carver.arch.cuda import CUDA
from tilelang.carver.roller.hint import Hint
from tilelang.env import env
from tilelang.utils import dtypes

Self = TypeVar("Self", bound="BaseTemplate")


def element_bytes(dtype: str) -> float:
    """Bytes of an element, below 1 where several share one."""
    return dtypes.bits(str(dtype)) / 8


class BaseTemplate(ABC):
    """A kind of kernel with its sizes, for a chip: by default the one compiled for here."""

    _arch: CUDA | None = None

    def with_arch(self: Self, arch: CUDA) -> Self:
        """Suggests for another chip. Returns the template."""
        self._arch = arch
        return self

    @property
    def arch(self) -> CUDA:
        """The chip."""
        return self._arch or CUDA(env.TILELANG_DEFAULT_TARGET)

    @abstractmethod
    def candidates(self) -> Iterator[Hint]:
        """All configurations that are considered, with the model's time."""

    def recommend_hints(self, topk: int = 10) -> list[Hint]:
        """The `topk` configurations that the model expects to be the fastest, fewer where there are
        not as many. Different tiles come first, each with what else suits it best: between those
        of one tile the model's differences are smaller than its errors.

        Example: ``MatmulTemplate(4096, 4096, 4096).recommend_hints(10)``
        """
        found = [hint for hint in self.candidates() if math.isfinite(hint.seconds)]
        found.sort(key=lambda hint: hint.seconds)
        tiles: dict[object, int] = {}
        ranks = []
        for hint in found:
            tile = (hint.block, hint.threads, hint.reduce_thread)
            ranks.append(tiles.setdefault(tile, 0))
            tiles[tile] += 1
        # Sorting keeps the order of equal ranks.
        order = sorted(range(len(found)), key=lambda i: ranks[i])
        return [found[i] for i in order[:topk]]
