"""A suggested configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelang.carver.roller.rasterization import NoRasterization, Rasterization


@dataclass(frozen=True)
class Hint:
    """What a kernel could be written with.

    Attributes:
        block: extents of a block's tile of the result.
        warp: extents of a warp's part of it, for products.
        thread: threads of the block along each extent of `block`, for others.
        rstep: how much of each reduced dimension is taken in a step.
        reduce_thread: threads that share each reduced dimension.
        pipeline_stage: versions of the tiles that are loaded.
        use_async: whether they are loaded while others are used.
        vectorize: elements that a thread loads at a time.
        rasterization_plan: the order of the tiles.
        threads: of a block, warp specialisation's own not counted.
        seconds: what the model expects.
    """

    block: tuple[int, ...]
    warp: tuple[int, ...] = ()
    thread: tuple[int, ...] = ()
    rstep: tuple[int, ...] = ()
    reduce_thread: tuple[int, ...] = ()
    pipeline_stage: int = 1
    use_async: bool = False
    vectorize: int = 1
    rasterization_plan: Rasterization = field(default_factory=NoRasterization)
    threads: int = 128
    seconds: float = 0.0
