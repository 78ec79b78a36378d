"""How the blocks of a product of 8-bit floats with scales of blocks share its work: a model.

The sums of each group of products along K are multiplied by scales in float32. That is work of the
threads beside the tensor cores, which `tilelang.carver.cost` does not count. All times are in
clocks, fitted to measurements of an H200 (docs/measurements.md): of another chip the number of
multiprocessors and the size of shared memory are its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilelang.carver.arch.cuda import L2_BYTES_PER_CLOCK, listed_speeds
from tilelang.carver.cost import LATENCY_CLOCKS
from tilelang.carver.schedules import ROW_BYTES, SPREAD

MEMORY_BYTES_PER_CLOCK = 2200
"""What the memory gives to all multiprocessors."""
PORT_BYTES_PER_CLOCK = 40
"""What L2 gives to a multiprocessor."""
ADDING_CLOCKS = 2500
"""What a kernel that adds up shares takes besides their bytes, and a block that adds up a
tile's."""
LAUNCH_CLOCKS = 2000
"""What the launch takes, and the first loads."""
OTHER_PART_CLOCKS, SHORT_CLOCKS = 290, 300
"""What a step takes more for each part but one, and where short instructions hide none of its
waits. Fitted."""
BUSY_LATENCY_CLOCKS = 7500
"""How long a load takes where the memory is busy: what is on its way bounds the speed. Fitted."""
FEW_ROWS = 1.06
"""How much longer rows behind A's end take in a tile of which they are half or more. Fitted."""
THREE_GROUPS = 1.3
"""How much longer shares of 192 rows take. Fitted to two, four and six of 155 x 7616 x 20608."""
FEW_COLUMNS = 32
"""An instruction of fewer columns takes as long as one of these. Assumed."""
MOST_COLUMNS = 64
"""Rows of A, at most, that are columns of tiles."""
SCALED_GROUP = 128
"""Products of a sum that has a scale of its own."""
MOST_SPLIT, MOST_TAIL, LEAST_STEPS = 32, 16, 3
"""Shares of a tile, those of the last tiles, and steps of one of these."""
SHARED_BYTES, OTHER_BYTES = 227 * 1024, 256
"""Shared memory of a block (CUDA Programming Guide, "Compute Capabilities"), and what of it is for
barriers and numbers. Assumed."""


@dataclass(frozen=True)
class ScaledSchedule:
    """How A (M, K) @ B (N, K)^T with scales is computed: parameters of ``scaled_matmul`` of
    ``examples/gemm/gemm_fp8.py``.

    Attributes:
        M, N, K: of the product.
        block_M, block_N: rows of a tile, and columns of a part of it.
        num_stages: steps of which operands are on their way.
        group: products of a sum that has a scale of its own; a step of K.
        panel: rows of tiles that go through the columns together.
        parts: products beside each other of which a tile consists. The wider it is, the fewer bytes
            come from L2; the sums of all parts, and the product of one, are in registers.
        wide: columns of tiles with all parts, all columns without it. Tiles of one part follow, for
            the blocks that would have none in the last round.
        cluster: blocks below each other, each of which loads a part of B's tile for all.
        split: shares of K that are units of their own.
        apart: whether a second kernel adds up shares, not the last block of a tile.
        tail: shares of K of the tiles behind the last whole round, which the second kernel adds up.
        swap: whether rows of tiles are rows of B: instructions have 64 rows or more, and as few
            columns as a short A has rows.
        padded: whether operands are copied first, to rows of whole lines of L2: TMA takes rows of
            whole 16 bytes, but reads those that lie across lines more slowly.
    """

    M: int
    N: int
    K: int
    block_M: int = 128
    block_N: int = 128
    num_stages: int = 4
    group: int = SCALED_GROUP
    panel: int = 8
    parts: int = 1
    wide: int | None = None
    cluster: int = 1
    split: int = 1
    apart: bool = False
    tail: int = 1
    swap: bool = False
    padded: bool = False

    @property
    def extents(self) -> tuple[int, int]:
        """Rows and columns of what tiles cover: C, or with `swap` its transpose."""
        return (self.N, self.M) if self.swap else (self.M, self.N)

    @property
    def width(self) -> int:
        """Columns of a tile of all parts."""
        return self.parts * self.block_N

    @property
    def adds_up(self) -> bool:
        """Whether the last block that arrives at a tile adds up its shares."""
        return self.split > 1 and not self.apart

    @property
    def groups(self) -> int:
        """Groups of a row of A."""
        return -(-self.K // self.group)

    @property
    def steps(self) -> int:
        """Groups of a share of K; the last one may have less."""
        return -(-self.groups // self.split)

    @property
    def rows(self) -> int:
        """Tiles of clusters below each other."""
        return -(-self.extents[0] // (self.cluster * self.block_M))

    @property
    def columns(self) -> tuple[int, int]:
        """Columns of tiles with all parts, and of those with one part."""
        across = self.extents[1]
        wide = -(-across // self.width) if self.wide is None else self.wide
        return wide, max(0, -(-across // self.block_N) - wide * self.parts)

    @property
    def skips(self) -> bool:
        """Whether rows of scales begin elsewhere than at multiples of 16 bytes, where TMA begins:
        then up to three scales in front of a tile's come along."""
        return self.M % 4 != 0

    @property
    def room_for_scales(self) -> int:
        """Scales of A's rows that a step has room for."""
        rows = self.width if self.swap else self.block_M
        return rows + 32 if self.skips else rows


def scaled_schedules_of(M: int, N: int, K: int, blocks: int | None = None) -> list[ScaledSchedule]:
    """Schedules for A (M, K) @ B (N, K)^T in 8-bit floats with a scale for each 128 elements of a
    row of A and each 128 x 128 of B, the fastest first, as the model sees it; of similar ones the
    best. `blocks` are the chip's multiprocessors, by default those of an H200.

    Raises `ValueError` for an extent below 1.

    Example: ``scaled_schedules_of(4096, 4096, 7168)[0].block_M``
    """
    if min(M, N, K) < 1:
        raise ValueError(f"found a product of {M} x {N} x {K}, wanted extents of at least 1")
    blocks = blocks or listed_speeds(90).sms
    best: dict[tuple[object, ...], tuple[float, ScaledSchedule]] = {}
    for tile in itertools.chain(_swapped_tiles(M, N, K), _tiles_of_rows(M, N, K, blocks)):
        schedule = replace(tile, panel=16, padded=K % ROW_BYTES != 0)
        schedule = replace(schedule, num_stages=_stages(schedule))
        time = float(_Clocks(schedule, blocks))
        # Of those that differ in the share of tiles that are wide, or in how many shares the last
        # tiles have, the best one.
        kind = (
            *(schedule.block_M, schedule.block_N, schedule.parts, schedule.split),
            *(schedule.apart, schedule.swap, schedule.wide is None, schedule.tail > 1),
        )
        if kind not in best or time < best[kind][0]:
            best[kind] = time, schedule
    found = list(best.values())
    for time, schedule in best.values():
        whole = schedule.split == 1 and schedule.wide is None and not schedule.swap
        if whole and M > schedule.block_M == 128 and (M + N) * K > 50 * 2**20:
            # Less comes from L2 and the memory, but blocks wait for each other.
            found.append((time * 1.001, replace(schedule, cluster=2, panel=8)))
    return [schedule for _, schedule in sorted(found, key=lambda entry: entry[0])]


def _stages(schedule: ScaledSchedule) -> int:
    """Stages that shared memory has room for beside a part of the result in 16 bits."""
    stage = (schedule.block_M + schedule.width) * SCALED_GROUP + (schedule.room_for_scales + 32) * 4
    left = SHARED_BYTES - schedule.block_M * schedule.block_N * 2 - OTHER_BYTES
    return min(12 if schedule.swap else 8, left // stage)


def _swapped_tiles(M: int, N: int, K: int) -> Iterator[ScaledSchedule]:
    """Tiles of rows of B and columns of a short A."""
    width, groups = max(16, -(-M // 8) * 8), -(-K // SCALED_GROUP)
    for block_M, split in itertools.product((64, 128), range(1, MOST_SPLIT + 1)):
        if M <= MOST_COLUMNS and -(-groups // split) * (split - 1) < groups:
            yield ScaledSchedule(M, N, K, block_M, width, split=split, swap=True, apart=split > 1)


def _tiles_of_rows(M: int, N: int, K: int, blocks: int) -> Iterator[ScaledSchedule]:
    """Tiles of rows of A, or shares of them."""
    groups = -(-K // SCALED_GROUP)
    for block_M, (block_N, parts) in itertools.product(
        (64, 128, 192), ((64, 1), (128, 1), (192, 1), (128, 2))
    ):
        if block_M == 192 and (block_N, parts) != (128, 1):
            continue  # three warp groups have less registers each
        tile = ScaledSchedule(M, N, K, block_M, block_N, parts=parts)
        for split, apart in itertools.product(range(1, MOST_SPLIT + 1), (False, True)):
            if -(-groups // split) * (split - 1) >= groups or (apart and split == 1):
                continue  # the last share would have nothing
            # Shares of three warp groups have no registers to be added up by the last block.
            if split == 1 or block_M < 192 or (apart and 128 < M <= block_M):
                yield replace(tile, split=split, apart=apart)
        if parts > 1:
            yield from (replace(tile, wide=w) for w in range(1, (N - 1) // tile.width + 1))
        tiles = -(-M // block_M) * -(-N // tile.width)
        if tiles > blocks and tiles % blocks:
            shares = range(2, min(MOST_TAIL, groups // LEAST_STEPS) + 1)
            yield from (replace(tile, tail=n) for n in shares if -(-groups // n) * (n - 1) < groups)


@dataclass(frozen=True)
class _Clocks:
    """What a schedule may take, by counts of clocks: a step of a warp group is a chain of its
    products (four m64nNk32 of N / 2 clocks), of their additions and of waits; warp groups share
    tensor cores and shared memory."""

    schedule: ScaledSchedule
    blocks: int

    @property
    def share(self) -> int:
        """Bytes of sums of a tile."""
        return 4 * self.schedule.block_M * self.schedule.width

    def tiles(self, parts: int) -> int:
        """Tiles of blocks, with all parts or with one."""
        schedule = self.schedule
        return schedule.rows * schedule.cluster * schedule.columns[parts != schedule.parts]

    def step(self, parts: int) -> float:
        """Clocks of one step, without those of the memory."""
        schedule = self.schedule
        groups, wide = schedule.block_M // 64, max(schedule.block_N, FEW_COLUMNS)
        chain = parts * (2 * wide + 1.05 * schedule.block_N + 70) + 110 * groups
        chain += OTHER_PART_CLOCKS * (parts - 1) + SHORT_CLOCKS * schedule.swap
        products = 1.12 * groups * 2 * parts * wide
        return max(chain, products, self.received(parts) * schedule.group / PORT_BYTES_PER_CLOCK)

    def loading(self, active: int, parts: int, steps: int) -> float:
        """Clocks of the memory for so many steps of so many blocks, if each operand comes once: for
        its bytes, and for a block's pipeline behind its first fill."""
        schedule = self.schedule
        narrow = self.tiles(1) / schedule.parts if schedule.columns[1] else 0
        tiles = self.tiles(schedule.parts) + narrow
        loaded = (schedule.M + schedule.N) * schedule.K / (tiles * schedule.groups)
        moved = active * loaded / (MEMORY_BYTES_PER_CLOCK * (active / self.blocks) ** SPREAD)
        share = min(1.0, loaded / (self.received(parts) * schedule.group))
        waits = share * BUSY_LATENCY_CLOCKS / schedule.num_stages
        return max(steps * moved, (steps - schedule.num_stages) * waits)

    def received(self, parts: int) -> int:
        """Rows of both operands that a block receives in a step."""
        height, breadth = self.schedule.extents
        return min(height, self.schedule.block_M) + min(breadth, parts * self.schedule.block_N)

    def wave(self, active: int, parts: int, steps: int) -> float:
        """Clocks of so many steps of so many blocks at a time, and of storing their sums."""
        if not active:
            return 0.0
        stored = 600 + 8 * parts * self.schedule.block_N + self.adding
        return max(steps * self.step(parts) + stored, self.loading(active, parts, steps))

    @property
    def adding(self) -> float:
        """Clocks in which the last one of a tile's shares adds them up, one behind the other; of
        two it adds the other one alone."""
        split, each = self.schedule.split, self.share / PORT_BYTES_PER_CLOCK
        if not self.schedule.adds_up:
            return each if split > 1 else 0.0
        return ADDING_CLOCKS + each + (split if split > 2 else 1) * (each + LATENCY_CLOCKS)

    def added_apart(self, units: int) -> float:
        """Clocks of the second kernel, for so many shares."""
        return ADDING_CLOCKS + units * self.share / L2_BYTES_PER_CLOCK

    def of_shares(self) -> float:
        """Clocks of whole rounds, and then of the last tiles' shares."""
        schedule, blocks = self.schedule, self.blocks
        rounds, last = divmod(self.tiles(schedule.parts), blocks)
        steps, units = -(-schedule.groups // schedule.tail), last * schedule.tail
        waves = rounds * self.wave(blocks, schedule.parts, schedule.groups)
        for active in units // blocks * [blocks] + [units % blocks]:
            stored = self.share / PORT_BYTES_PER_CLOCK if active else 0
            waves += self.wave(active, schedule.parts, steps) + stored
        return waves + self.added_apart(units)

    def of_units(self) -> float:
        """Clocks of tiles, or of shares of all of them."""
        schedule, blocks, parts = self.schedule, self.blocks, self.schedule.parts
        units = self.tiles(parts) * schedule.split
        last, narrow = units % blocks, self.tiles(1) if schedule.columns[1] else 0
        whole = units // blocks * self.wave(blocks, parts, schedule.steps)
        rounds = -(-narrow // (blocks - last))
        behind = max(
            self.wave(last, parts, schedule.steps), rounds * self.wave(blocks, 1, schedule.steps)
        )
        shares = self.added_apart(units) if schedule.split > 1 and schedule.apart else 0
        return whole + behind + shares

    def __float__(self) -> float:
        schedule = self.schedule
        clocks = LAUNCH_CLOCKS + (self.of_shares() if schedule.tail > 1 else self.of_units())
        is_empty = not schedule.swap and schedule.block_M > 2 * schedule.M
        if schedule.block_M == 192 and schedule.split > 1:
            clocks *= THREE_GROUPS
        return clocks * (FEW_ROWS if is_empty else 1.0)
