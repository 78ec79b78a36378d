"""How the blocks of a product with weights of 4 bits share its work: a model.

Threads unpack weights into registers, which are operands of matrix instructions: work beside the
tensor cores, which `tilelang.carver.cost` does not count. The model is one of sm_90, fitted to 313
measurements of 37 shapes on an H200 (2026-11-24), from which the sum differs by 9 % (root of the
mean square). The best of its first three schedules of a shape is within 1 % of the best that was
measured, on the average. What overlaps in a kernel adds up all the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilelang.carver.arch.cuda import listed_speeds

FORMS = ("int4", "mxfp4")
UNPACK_INSTRUCTIONS = {"int4": 2.2, "sums": 1.75, "mxfp4": 2.4}
"""Instructions of a warp for a weight of each of its threads; "sums": of int4 whose sums are
scaled. Counted in the machine code, and `STEP_INSTRUCTIONS` of a step beside them, and for each
other part."""
STEP_INSTRUCTIONS, PART_INSTRUCTIONS = 32, 13
FEW_COLUMNS = 24
"""An instruction of fewer columns takes as long as one of these. Assumed."""
MULTIPLYING, UNPACKING, MEMORY = 0.92, 0.87, 0.28
"""Shares of the clocks at the peak, of instructions, and of the bytes' time. Fitted."""
ALONE = 0.5
"""Clocks more that an instruction takes whose scheduler has no other warp that unpacks. Fitted to
16 x 8192 x 8192 (2026-11-30): one warp group a multiprocessor takes 19.5 us of int4 and 20.7 of
MXFP4, two take 17.0 and 17.9. Of 26 drawn shapes whose order it changes the first choice takes
0.975 of the time on the average, and 1.014 at most. Where rows are several tiles, one warp group is
faster (256 x 4096 x 4096, MXFP4: 19.6 us, two take 21.1), since products of more rows hide it."""
STEP_CLOCKS, BLOCK_CLOCKS, TILE_CLOCKS = 128, 3100, 680
"""What a step takes, the start and end of a block, and one more tile of a block that stays."""
STAY_CLOCKS, TWO_STAGES_CLOCKS = 90, 128
"""What a step takes more in a block that stays, whose tiles are beside others in L2, and with two
stages. Fitted to 42 drawn products with more than 128 rows, of which three or more schedules were
measured (2026-11-30): the first choice has 0.98 of the best one's speed on the average,
without these 0.945."""
SHARE_BYTES_PER_CLOCK, SHARES_CLOCKS = 27, 1750
"""Bytes of shares of K that a multiprocessor writes and adds up; to learn that all are there."""
APART_CLOCKS, APART_BYTES = 1600, 4 * 8 * 128
"""What the kernel that adds up apart takes; bytes of a share for one of its blocks. Fitted to seven
shapes (2026-11-28), of which it finds the faster way where they differ by more than 4 %."""
WORD_CLOCKS = 0.12
"""What a word of A takes that TMA does not load."""
COPY_SECONDS = 5.8e-6
"""What a copy of A takes."""
SHARED_BYTES, BLOCK_BYTES, BARRIER_BYTES = 228 * 1024, 1024, 256
"""Shared memory of a multiprocessor, for the tiles of its blocks; what a block takes itself (CUDA
Programming Guide, "Compute Capabilities"), and its barriers. The last is assumed."""
LONG = 128
"""Rows of A, above which there are several tiles of them."""
MOST_SPLIT = 16


@dataclass(frozen=True)
class DequantizedSchedule:
    """How A (M, K) @ B (N, K)^T with weights B of 4 bits is computed: parameters of ``matmul`` of
    ``examples/quantization/dequantize_gemm.py``.

    Attributes:
        block_M, block_N: extents of a tile. Rows of the instructions are columns of the tile: the
            weights are in registers.
        block_K: extent of a step.
        num_stages: steps of which operands are on their way.
        threads: that unpack and multiply.
        split: blocks that share K of a tile.
        parts: of a step, of which one is multiplied while the next one is unpacked.
        blocks: that take the tiles in turn; None where each tile has its own.
        min_blocks: that share a multiprocessor; None for one.
        scale_sums: whether sums of a part take the scale of their group, not its weights.
        apart: whether a second kernel adds up shares, not the last block of a tile.
        packed: whether the weights were reordered.
        padded: whether rows of A are copied to longer ones first, which TMA takes.
        seconds: what the model expects.
        whole_rows: whether four threads each load the row of weights of which they have parts.
    """

    block_M: int
    block_N: int
    block_K: int
    num_stages: int
    threads: int
    split: int = 1
    parts: int = 1
    blocks: int | None = None
    min_blocks: int | None = None
    scale_sums: bool = False
    apart: bool = False
    packed: bool = False
    padded: bool = False
    seconds: float = math.inf
    whole_rows: bool = False


@dataclass(frozen=True)
class _Weights:
    """The product and the chip that schedules are for."""

    form: str
    M: int
    N: int
    K: int
    speeds = listed_speeds(90)

    def tiles(self, schedule: DequantizedSchedule) -> int:
        """Tiles of the result."""
        return -(-self.M // schedule.block_M) * -(-self.N // schedule.block_N)


def dequantized_schedules_of(
    form: str, M: int, N: int, K: int, packed: bool = False
) -> list[DequantizedSchedule]:
    """Schedules for A (M, K) @ B (N, K)^T on an H200, the fastest first, as the model sees it. The
    `form` of weights is "int4", of which each 128 along K have a scale, or "mxfp4". `packed`
    weights were reordered.

    Raises `ValueError` for another form, and for an extent below 1.

    Example: ``dequantized_schedules_of("int4", 16, 8192, 8192)[0].block_N``
    """
    if form not in FORMS:
        raise ValueError(f"found weights {form!r}, wanted one of {', '.join(FORMS)}")
    if min(M, N, K) < 1:
        raise ValueError(f"found a product of {M} x {N} x {K}, wanted extents of at least 1")
    weights = _Weights(form, M, N, K)
    found = []
    # Packed words are a thread's own; of MXFP4, whole rows take more instructions than bytes.
    whole_rows = form == "int4" and not packed and M <= LONG
    for schedule in _long(weights) if M > LONG else _short(weights):
        schedule = replace(schedule, packed=packed, whole_rows=whole_rows)
        for padded in _paddings(weights):
            schedule = replace(schedule, padded=padded)
            found.append(replace(schedule, seconds=_seconds(weights, schedule)))
    return sorted(found, key=lambda schedule: schedule.seconds)


def _paddings(weights: _Weights) -> list[bool]:
    """Whether rows of A are copied to longer ones: not those that TMA takes, nor a single one, and
    of those that it does not, few may also be loaded by words."""
    if weights.M == 1 or weights.K % 8 == 0:
        return [False]
    return [True] if weights.M > LONG else [True, False]


def _with_stages(
    weights: _Weights, schedule: DequantizedSchedule, most: int
) -> Iterator[DequantizedSchedule]:
    """As many stages as there is room for, steps, or `most`; none where two do not fit, or three of
    several parts, of which one in flight keeps its stage: two take twice the time."""
    m, n, k = schedule.block_M, schedule.block_N, schedule.block_K
    steps = math.ceil(math.ceil(weights.K / k) / schedule.split)
    # Rows of single bytes that begin anywhere in a chunk take twice theirs.
    scales = n * k // (16 if weights.form == "mxfp4" and weights.N % 16 else 32)
    stage, result = (2 * m + n // 2) * k + scales, 2 * m * n
    room = SHARED_BYTES // (schedule.min_blocks or 1) - result - BLOCK_BYTES - BARRIER_BYTES
    stages = min(most, room // stage, max(steps, 3))
    if stages >= (3 if schedule.parts > 1 else 2):
        yield replace(schedule, num_stages=stages)


def _heights(M: int) -> list[int]:
    """Rows of tiles of A, of several ranges the one that leaves fewest of the last tile empty."""
    found = []
    for least, most in ((64, 88), (96, 136), (144, 184), (192, 200), (208, 256)):
        fit = range(least, most + 1, 8)
        found.append(min(fit, key=lambda m: (-(-M // m) * m, -m)))
    return found


def _shares(weights: _Weights, tiles: int, steps: int, room: int, least: int) -> list[int]:
    """Numbers of blocks that share a tile's K: one, and those with which 1 to `room` of all blocks
    are on each multiprocessor; each has `least` steps."""
    most = max(min(steps // least, MOST_SPLIT), 1)
    sms = weights.speeds.sms
    wanted = {1, *(min(sms * beside // tiles, most) for beside in range(1, room + 1))}
    return sorted(wanted - {0})


def _long(weights: _Weights) -> Iterator[DequantizedSchedule]:
    """Schedules for an A with many rows. Blocks share K where the result has few tiles, and stay
    where it has many: the loads of the next tile run beside the end of one."""
    shapes = [
        (128, 128, 256, 1),
        (128, 128, 256, 2),
        (128, 256, 256, 2),
        (64, 128, 128, 2),
        (64, 256, 128, 2),
    ]
    for m, (n, k, threads, parts) in itertools.product(_heights(weights.M), shapes):
        # The smallest tile that is worth its loads.
        if m * n < 64 * 128:
            continue
        plain = DequantizedSchedule(m, n, k, 0, threads, parts=parts)
        tiles = weights.tiles(plain)
        for split in _shares(weights, tiles, -(-weights.K // k), 2, 4):
            for schedule in _with_stages(weights, replace(plain, split=split), 5):
                yield schedule
                if split == 1 and tiles > weights.speeds.sms:
                    yield replace(schedule, blocks=weights.speeds.sms)


def _has_sums(schedule: DequantizedSchedule) -> bool:
    """Has a thread registers for the sums of parts, too? Where 128 rows of two blocks share a
    multiprocessor it has 80, and ptxas else lets all products wait for each other (C7512)."""
    used = schedule.block_M // 2 * (1 + schedule.parts) + schedule.block_K // 4
    return used <= (80 if schedule.block_N == 128 and schedule.min_blocks == 2 else 128)


def _short(weights: _Weights) -> Iterator[DequantizedSchedule]:
    """Schedules for a few rows of A, in one tile of as many columns of the instruction. Several
    blocks of them share a multiprocessor, whose threads unpack while others wait."""
    # An instruction's columns are multiples of 8.
    columns = -(-weights.M // 8) * 8
    found: list[DequantizedSchedule] = []
    for (n, threads, most), (k, parts) in itertools.product(
        [(64, 128, 4), (128, 256, 2)], [(128, 1), (128, 2), (256, 2)]
    ):
        plain = DequantizedSchedule(columns, n, k, 0, threads, parts=parts)
        tiles = weights.tiles(plain)
        for split in _shares(weights, tiles, -(-weights.K // k), most, 2):
            found += itertools.islice(_beside(weights, replace(plain, split=split), most), 1)
    if weights.form == "int4" and columns <= 32:
        found += [replace(s, scale_sums=True) for s in found if _has_sums(s)]
    yield from found
    yield from (replace(s, apart=True) for s in found if s.split > 1)


def _beside(
    weights: _Weights, schedule: DequantizedSchedule, most: int
) -> Iterator[DequantizedSchedule]:
    """With as many blocks as share a multiprocessor, `most` or as many as there are, and fewer."""
    blocks = weights.tiles(schedule) * schedule.split
    for room in range(min(most, -(-blocks // weights.speeds.sms)), 0, -1):
        # Registers: accumulators, and the weights of all parts, beside a producer's warps.
        most_registers = {1: 128, 2: 128 if schedule.block_N == 64 else 72, 3: 96, 4: 64}[room]
        if schedule.block_M // 2 + schedule.block_K // 4 <= most_registers:
            beside = replace(schedule, min_blocks=room if room > 1 else None)
            yield from _with_stages(weights, beside, 8)


def _seconds(weights: _Weights, schedule: DequantizedSchedule) -> float:
    """What a schedule may take: a sum of what its blocks do."""
    speeds, split, parts = weights.speeds, schedule.split, schedule.parts
    M, N, K = weights.M, weights.N, weights.K
    m, n, k = schedule.block_M, schedule.block_N, schedule.block_K
    each = math.ceil(weights.tiles(schedule) * split / speeds.sms)
    beside = math.ceil(each / (schedule.min_blocks or 1))
    steps = math.ceil(K / (k * split))
    # Each scheduler has one warp of each warp group of 64 rows, and a warp 16 of them.
    groups, sums = n // 64, schedule.scale_sums
    instructions: float = STEP_INSTRUCTIONS + PART_INSTRUCTIONS * (parts - 1)
    instructions += UNPACK_INSTRUCTIONS["sums" if sums else weights.form] * k / 2
    instructions += 0.6 * m * parts if sums else 0.0
    products = 2.0 * max(m, FEW_COLUMNS) * 64 * k / speeds.tensor_flop
    is_alone = m >= M and groups * min(schedule.min_blocks or 1, each) == 1
    unpacking = (UNPACKING + (ALONE if is_alone else 0.0)) * instructions
    clocks: float = each * steps * groups * (MULTIPLYING * products + unpacking)
    waiting = STEP_CLOCKS + (STAY_CLOCKS if schedule.blocks else 0)
    # Others work meanwhile where several blocks share a multiprocessor.
    waiting += TWO_STAGES_CLOCKS if schedule.num_stages == 2 and not schedule.min_blocks else 0
    clocks += beside * steps * waiting
    clocks += each * TILE_CLOCKS if schedule.blocks else beside * BLOCK_CLOCKS
    if split > 1 and schedule.apart:
        adding = math.ceil(math.ceil(N / 128) * math.ceil(M / 8) / speeds.sms) * split * APART_BYTES
        clocks += APART_CLOCKS + (4.0 * m * n * each + adding) / SHARE_BYTES_PER_CLOCK
    elif split > 1:
        # Of the shares of a multiprocessor, and of those that the last block of a tile reads.
        shares = each + (split if split > 2 else 1)
        clocks += SHARES_CLOCKS + 4.0 * m * n * shares / SHARE_BYTES_PER_CLOCK
    if K % 8 and M > 1 and not schedule.padded:
        clocks += each * steps * m * k / 2 * WORD_CLOCKS
    moved = N * K / 2 + 2.0 * M * (K + N)
    copied = COPY_SECONDS if schedule.padded else 0.0
    return clocks / speeds.clock + MEMORY * moved / speeds.bandwidth + copied
