"""``T.PersistentTileScheduler``: which tiles a block of a persistent kernel works on."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.language.allocation import alloc_var
from tilelang.language.math_ops import min as minimum
from tilelang.language.regions import store
from tilelang.language.scalars import as_int
from tilelang.language.tracer import current_tracer


class PersistentTileScheduler:
    """Deals the tiles of a matrix to workers, tile ``i`` to worker ``i % num_workers``.

    Tiles are numbered along the first dimension (``column_major``) or the second one, in bands of
    ``swizzle_size`` columns (rows): the tiles of a band come before those of the next one, and
    neighbours in time share operands in the L2 cache.

    Parameters
    ----------
    num_m_tiles, num_n_tiles
        Tiles in each dimension: ints or expressions, evaluated here.
    num_workers
        Blocks, or clusters of blocks, that share the tiles; by default as many as the GPU has
        multiprocessors, divided by ``cluster_size``.
    swizzle_size
        Width of a band in tiles.
    column_major
        Whether tile 1 is below tile 0, and not beside it.
    cluster_size
        Blocks of a worker.
    stateful
        Whether the scheduler keeps its place; without it only ``coord`` is there.
    name
        Prefix of the names of its variables.

    Raises
    ------
    ValueError
        If a size is not positive; if there is no GPU to take the number of workers from.

    Example
    -------
    ``scheduler.init(bx)``, then ``while scheduler.valid():`` work on ``scheduler.m_idx`` and
    ``scheduler.n_idx`` and call ``scheduler.next_tile()``
    """

    def __init__(
        self,
        num_m_tiles: Any,
        num_n_tiles: Any,
        num_workers: Any = None,
        swizzle_size: int = 1,
        column_major: bool = True,
        cluster_size: int = 1,
        stateful: bool = True,
        name: str | None = None,
    ):
        tracer = current_tracer("T.PersistentTileScheduler")
        sizes = {"num_m_tiles": num_m_tiles, "num_n_tiles": num_n_tiles}
        sizes |= {"swizzle_size": swizzle_size, "cluster_size": cluster_size}
        for what, value in sizes.items():
            _check_positive(what, value)
        if num_workers is None:
            num_workers = _multiprocessors() // cluster_size
        _check_positive("num_workers", num_workers)
        num_m_tiles, num_n_tiles, num_workers = map(
            tracer.evaluated, (num_m_tiles, num_n_tiles, num_workers)
        )
        self.num_tiles = num_m_tiles * num_n_tiles
        """Number of all tiles."""
        self.num_workers = num_workers
        """Number of workers."""
        self._tiles = (num_m_tiles, num_n_tiles)
        self._swizzle_size = swizzle_size
        self._column_major = column_major
        self._stateful = stateful
        self._prefix = f"{name}_" if name else ""
        self._place: ir.Var | None = None
        self._iteration: ir.Var | None = None

    def init(self, worker_id: Any) -> None:
        """Start at the first tile of a worker, 0 to ``num_workers`` - 1."""
        self._check_stateful("init")
        tracer = current_tracer("T.PersistentTileScheduler.init")
        if self._place is None or self._iteration is None:
            self._place, self._iteration = alloc_var("int32"), alloc_var("int32")
            tracer.name(f"{self._prefix}tile", self._place)
            tracer.name(f"{self._prefix}iteration", self._iteration)
        store(self._place, 0, worker_id)
        store(self._iteration, 0, 0)

    def next_tile(self) -> None:
        """Go on to the worker's next tile."""
        place, iteration = self._state("next_tile")
        store(place, 0, tirx.BufferLoad(place, [0]) + self.num_workers)
        store(iteration, 0, tirx.BufferLoad(iteration, [0]) + 1)

    def valid(self) -> Any:
        """Return whether there is such a tile."""
        return tirx.BufferLoad(self._state("valid")[0], [0]) < self.num_tiles

    def coord(self, tile: Any) -> tuple[Any, Any]:
        """Return the coordinates (m, n) of a tile by its number."""
        m_tiles, n_tiles = self._tiles
        length, across = (m_tiles, n_tiles) if self._column_major else (n_tiles, m_tiles)
        if self._swizzle_size == 1:
            band, along = tile // length, tile % length
        else:
            first = tile // (length * self._swizzle_size) * self._swizzle_size
            # The last band may be narrower.
            width = minimum(across - first, self._swizzle_size)
            rest = tile % (length * self._swizzle_size)
            band, along = first + rest % width, rest // width
        return (along, band) if self._column_major else (band, along)

    @property
    def m_idx(self) -> Any:
        """First coordinate of the current tile."""
        return self.coord(tirx.BufferLoad(self._state("m_idx")[0], [0]))[0]

    @property
    def n_idx(self) -> Any:
        """Second coordinate of the current tile."""
        return self.coord(tirx.BufferLoad(self._state("n_idx")[0], [0]))[1]

    @property
    def current_iter(self) -> Any:
        """How many tiles the worker has done."""
        return tirx.BufferLoad(self._state("current_iter")[1], [0])

    def _check_stateful(self, what: str) -> None:
        if not self._stateful:
            raise ValueError(
                f"{what} of a T.PersistentTileScheduler with stateful=False is not there; use "
                "coord(tile), or leave stateful out"
            )

    def _state(self, what: str) -> tuple[ir.Var, ir.Var]:
        self._check_stateful(what)
        if self._place is None or self._iteration is None:
            raise ValueError(
                f"{what} of a T.PersistentTileScheduler is used before init(worker_id); call that "
                "first"
            )
        return self._place, self._iteration


def _check_positive(what: str, value: Any) -> None:
    constant = as_int(value)
    if constant is None and isinstance(value, ir.Expr):
        return
    if constant is None or constant < 1:
        raise ValueError(
            f"{what} of T.PersistentTileScheduler is {value!r}, wanted a positive integer"
        )


def _multiprocessors() -> int:
    import torch

    if not torch.cuda.is_available():
        raise ValueError(
            "num_workers of T.PersistentTileScheduler is the number of multiprocessors by default, "
            "and there is no GPU; give num_workers"
        )
    return int(torch.cuda.get_device_properties().multi_processor_count)
