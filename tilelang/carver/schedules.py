"""How the blocks of a product share its work: tiles, split K, stream K, by the cost model."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilelang.carver.arch.cuda import (
    ACROSS_LINES_BYTES_PER_CLOCK,
    ADDING_CLOCKS,
    CUDA,
    ISSUED_PER_CLOCK,
    L2_BYTES_PER_CLOCK,
    L2_LINE_BYTES,
    L2_PORT_BYTES_PER_CLOCK,
    SHARED_BYTES_PER_CLOCK,
)
from tilelang.carver.cost import (
    BANDWIDTH_SHARE,
    LATENCY_CLOCKS,
    Product,
    Tiling,
    math_clocks,
    memory_bytes,
    powered,
    registers,
    step_clocks,
    together,
    wave_of,
)
from tilelang.carver.template.base import element_bytes
from tilelang.env import env

COLUMNS = tuple(range(16, 257, 16))
SWAPPED_COLUMNS = tuple(range(16, 257, 8))
"""Where operands are swapped: rows of A then come in eights, not in whole warp groups, so that
tiles waste few of them: 300 = 2 x 152 less 4. 269 x 11648 x 12800 takes an H200 127 us by 192 x 136
swapped, and 172 by 64 x 224."""
ROWS = ((64, 128), (128, 256), (192, 384), (256, 256))
"""Rows of a tile, with the threads that multiply: a warp group for 64 rows each, or 128."""
MMA_ROWS = ((16, 64), (32, 64), (64, 128), (128, 128), (128, 256))
"""The same where products are those of warps."""
PANELS = (4, 8, 16)
STAGES, WANTED_STAGES = 12, 8
"""At most, and for which a result leaves by more parts. 64 x 80 of 8-bit floats takes an H200 24.4
us with 8 stages, and 22.0 with 11 (72 x 4928 x 9344)."""
STAGING_BYTES = 64
"""A row of a part of the result is a multiple of these, for a swizzle of TMA's that is worth it."""
CHUNK_BYTES = 16
"""Rows of a part may also be an odd number of these, as eight of these lie in different banks. But
they end in the middle of a sector of 32 bytes: 80 bytes of 256 x 160 took an H200 39.4 us, 64 bytes
35.9 (2240 x 2240 x 2240)."""
PLAIN_BYTES = 128
"""Bytes of such a row, at least. Assumed: rows of 176 bytes lose nothing."""
BARRIER_BYTES = 1024
"""Bytes for mbarriers and what is fetched. Assumed."""
ROW_BYTES = 16
"""TMA takes rows of a multiple of these (CUDA driver API, cuTensorMapEncodeTiled, globalStrides),
and for copies of 16 bytes."""
WORD_COPY_BYTES_PER_CLOCK = 32
"""Copied to shared memory where rows are whole words of 4 bytes: a thread copies one at a time.
Assumed."""
ELEMENTS_PER_CLOCK = 0.5
"""Elements that threads copy where they are not, through registers, and wait for each: 45 x 22592 x
723 in bfloat16 took an H200 186 us."""
ELEMENT_STORE_CLOCKS = 45
"""What a thread takes for each element of a result whose rows TMA does not take, in a loop: of
192 x 3145 x 1472 in 8-bit floats and of 1752 x 16807 x 384 in bfloat16 on an H200."""
STORE_CLOCKS = 100
"""The same for words of more elements: of 4720 x 18276 x 3264 in 8-bit floats."""
LAUNCH_CLOCKS = 6000
"""Between kernels of a call, and of the first loads of the second one. Assumed."""
WRITE_BACKS = 0.35
"""Bytes that L2 writes back for each that it loads, unless they evict others that are not read
again: 5094 x 128 x 5312 took an H200 27.5 us by 64 x 128, and 22.5 with rows of A so loaded; 328 x
832 x 26752 36.6, 33.8 with one operand and 32.3 with both."""
CLUSTER_GAIN = 0.97
"""The share of the time without clusters above which these are not suggested where rows are whole
lines of L2: they make slots wait, and take more power."""
MIN_STEPS = 4
"""Steps of a share, at least. Assumed: shorter ones fill no pipeline."""
BESIDE_ACCUMULATORS = 40
"""Registers of a thread at the launch, besides the accumulators of a warp group's instruction. With
16, ptxas of CUDA 13.5 refuses 64 x 224; with 32, it takes a minute for 64 x 192."""
EDGE_CLOCKS = 400
"""What a tile takes between its last product and the next tile's first: barriers, instructions that
convert and store. Assumed."""
STORE_WAIT_CLOCKS = 300
"""Until TMA has read a part of a result, besides its bytes, where the next part takes its place:
four such waits of 256 x 160 took an H200 1700 clocks (4520 x 9664 x 320)."""
FIX_UP_CLOCKS = 2 * LATENCY_CLOCKS
"""What a share takes that others wait for: its arrival, and that of what the others left.
Assumed."""
L2_HALF = 0.5
"""The share of L2 for what multiprocessors of both of its partitions use: each keeps its own copy
("NVIDIA A100 Tensor Core GPU Architecture", "A100 L2 cache")."""
SPREAD = 0.2
"""Power of the share of multiprocessors that are busy, with which the memory's speed grows. Of one
measurement: 96 blocks for 128 take 6 % longer for 32 x 8192 x 8192 on an H200."""
COLUMN_STORES = 8
"""How often as long the store of a transposed result takes: elements of 16 bits, and conflicts of
banks. Assumed."""
ODD_HEIGHT, ODD_THREADS = 128, 256
"""Rows of a tile that threads shift: 8 for each byte of 16 at which they may begin; and the threads
that multiply them."""
ODD_BANDWIDTH_SHARE, ODD_BESIDE = 0.58, 1.08
"""The share of the memory's bandwidth that loads of such rows reach, most of which lie in two lines
of L2: 36 x 8256 x 31103 in 8-bit floats takes an H200 100.5 us, 16 x 10176 x 10305 48.5. And what
it takes by two blocks of a multiprocessor instead of one: 111 us."""
ODD_COLUMNS_BESIDE = 64
"""Columns of such a tile with which a multiprocessor has registers for two blocks."""
FEW_ROWS = 8
"""Rows of A, at most, where threads load words that begin anywhere: rows of an instruction that
have one of theirs."""
ROWS_BY_THREADS = 16
"""Rows of B that a block multiplies; half as many where that leaves multiprocessors without a
block: 2 x 1600 x 2051 in bfloat16 takes an H200 10.8 us, not 13.3, and 3 x 10176 x 10306 in 8-bit
floats 66, not 53."""
THREADS_OF_FEW_ROWS = 256
WORD_BYTES = 8
WORD_INSTRUCTIONS = 40
"""To load a word that begins anywhere, to shift, convert and multiply it: counted in the SASS of a
product of 8-bit floats for sm_90a."""


@dataclass(frozen=True)
class Schedule:
    """How a product is computed, as the parameters of ``examples/gemm/gemm_any_shape.py``.

    Attributes:
        block_M, block_N: extents of a tile, whose rows are those of A, or with `swap` of B.
        block_K: extent of a step.
        stages: steps of which operands are on their way.
        threads: that multiply.
        blocks: of the grid, all of which run at the same time.
        panel: rows of tiles that are taken together.
        parts: in which a tile of the result is stored.
        results: parts that shared memory has room for: of two, one is filled while the other one is
            stored.
        swap: whether rows of tiles are rows of B.
        split: blocks that work on each tile.
        shared_tiles: tiles whose steps all blocks share equally; the others are whole.
        cluster: blocks beside each other that load what they have in common once; suggested where
            rows of operands lie across lines of L2, and where few tiles have one wave. Else L2
            serves neighbours' requests as well (docs/measurements.md, "Products of matrices").
        padded: whether operands are copied first, to rows of whole lines of L2.
        by_threads: rows of B that the threads of a block multiply by all of A, without tiles; 0
            where tiles are multiplied.
        seconds: what the model expects.
        apart: whether the sums of blocks that share a tile are added up by a second kernel, not by
            the last of them.
        down: whether the blocks of a cluster are below each other instead of beside each other.
        odd_rows: whether rows of B, which TMA does not take, are loaded where they lie and shifted
            by threads; the rows of a short A are the columns of tiles.
    """

    block_M: int
    block_N: int
    block_K: int
    stages: int
    threads: int
    blocks: int
    panel: int = 8
    parts: int = 1
    swap: bool = False
    split: int = 1
    shared_tiles: int = 0
    cluster: int = 1
    padded: bool = False
    by_threads: int = 0
    seconds: float = math.inf
    apart: bool = False
    results: int = 2
    down: bool = False
    odd_rows: bool = False

    @property
    def kind(self) -> str:
        """Such as ``split K by 4, swapped``."""
        if self.by_threads:
            text = "few rows by threads"
        elif self.split > 1:
            text = f"split K by {self.split}" + (" and added apart" if self.apart else "")
        elif self.shared_tiles:
            text = f"stream K of {self.shared_tiles} tiles"
        else:
            text = "tiles"
        clusters = f", clusters of {self.cluster}" if self.cluster > 1 else ""
        clusters += " below each other" if self.down else ""
        padded = ", padded" if self.padded else ", odd rows" if self.odd_rows else ""
        return text + (", swapped" if self.swap else "") + clusters + padded


@dataclass(frozen=True)
class Staging:
    """What shared memory has room for: `stages` of operands, and `results` of the `parts` of a
    tile's result."""

    stages: int
    parts: int
    results: int


def schedules_of(
    M: int,
    N: int,
    K: int,
    in_dtype: str = "bfloat16",
    out_dtype: str | None = None,
    arch: CUDA | None = None,
) -> list[Schedule]:
    """All schedules that are considered for A (M, K) @ B (N, K)^T, the fastest first, as the model
    sees it: the same for the same chip. `arch` is by default the chip that is compiled for here.

    Raises `ValueError` for an extent below 1.

    Example: ``schedules_of(256, 4096, 7168)[0].kind``
    """
    if min(M, N, K) < 1:
        raise ValueError(f"found a product of {M} x {N} x {K}, wanted extents of at least 1")
    return list(
        _ranked(
            *(M, N, K, str(in_dtype), str(out_dtype or in_dtype)),
            arch or CUDA(env.TILELANG_DEFAULT_TARGET),
        )
    )


@functools.lru_cache(maxsize=1024)
def _ranked(
    M: int, N: int, K: int, in_dtype: str, out_dtype: str, arch: CUDA
) -> tuple[Schedule, ...]:
    width, result = element_bytes(in_dtype), element_bytes(out_dtype)
    found: list[Schedule] = []
    for swap in (False, True):
        rows, columns = (N, M) if swap else (M, N)
        product = Product(rows, columns, K, in_dtype, width, result)
        for tiling, staging in _tilings(arch, product, swap):
            found += _shared_out(arch, product, tiling, staging, swap)
        if K * width % ROW_BYTES:
            found += _padded(arch, product, swap)
    if N * result % ROW_BYTES:
        found = list(_of_ragged_results(arch, M, N, result, found))
    if K * width % ROW_BYTES and width in (1, 2):
        product = Product(M, N, K, in_dtype, width, result)
        found += _of_odd_rows(arch, product)
        if M <= FEW_ROWS:
            found.append(_by_threads(arch, product))
    return tuple(sorted(found, key=lambda schedule: schedule.seconds))


def _padded(arch: CUDA, product: Product, swap: bool) -> Iterator[Schedule]:
    """Schedules of copies of the operands: what the copies take comes in front."""
    multiple = int(L2_LINE_BYTES / product.operand)
    wide = replace(product, k=-(-product.k // multiple) * multiple)
    elements = (product.m + product.n) * (product.k + wide.k)
    bandwidth = BANDWIDTH_SHARE * arch.speeds.bandwidth
    copies = elements * product.operand / bandwidth + LAUNCH_CLOCKS / arch.speeds.clock
    for tiling, staging in _tilings(arch, wide, swap):
        for schedule in _shared_out(arch, wide, tiling, staging, swap):
            yield replace(schedule, padded=True, seconds=schedule.seconds + copies)


def _of_odd_rows(arch: CUDA, product: Product) -> Iterator[Schedule]:
    """Schedules that read B once, where it lies, for a short A, which is copied."""
    phases = ROW_BYTES // math.gcd(int(product.k * product.operand), ROW_BYTES)
    columns = max(16, -(-product.m // 8) * 8)
    if not arch.has_warp_groups or columns > SWAPPED_COLUMNS[-1] or product.n % phases:
        return
    speeds, width = arch.speeds, L2_LINE_BYTES
    tiles, steps = -(-product.n // ODD_HEIGHT), math.ceil(product.k * product.operand / width)
    step_bytes = ODD_HEIGHT * (width + ROW_BYTES) + columns * width
    # Each word of the tile is loaded twice, and each of two warp groups reads all rows of A.
    shared = 2 * ODD_HEIGHT * width + 2 * columns * width
    step = together(shared / SHARED_BYTES_PER_CLOCK, step_bytes / L2_PORT_BYTES_PER_CLOCK)
    copied = product.m * product.k * product.operand
    for beside in (2, 1) if columns <= ODD_COLUMNS_BESIDE else (1,):
        for split in range(1, max(1, beside * speeds.sms // tiles) + 1):
            sums = ODD_HEIGHT * columns * (4 if split > 1 else product.result)
            room = arch.smem_cap // beside - BARRIER_BYTES - sums
            stages = min(STAGES, int(room // step_bytes))
            share = math.ceil(steps / split)
            blocks = tiles * split
            if (
                stages < 2
                or (split > 1 and share < MIN_STEPS)
                or blocks <= (beside - 1) * speeds.sms
            ):
                continue
            rounds = math.ceil(blocks / speeds.sms)
            busy = min(1.0, blocks / speeds.sms)
            moved = product.n * product.k * product.operand / ODD_BANDWIDTH_SHARE
            moved = moved * (ODD_BESIDE if blocks > speeds.sms else 1) + 3 * copied
            clocks = rounds * share * step + 2 * LATENCY_CLOCKS + LAUNCH_CLOCKS
            if split > 1:
                clocks += (
                    LAUNCH_CLOCKS
                    + ADDING_CLOCKS
                    + 8 * split * product.m * product.n / L2_BYTES_PER_CLOCK
                )
            memory = moved / speeds.bandwidth / busy
            yield Schedule(
                ODD_HEIGHT,
                columns,
                int(width / product.operand),
                stages,
                ODD_THREADS,
                blocks,
                swap=True,
                split=split,
                apart=split > 1,
                odd_rows=True,
                seconds=together(clocks / speeds.clock, memory),
            )


def _by_threads(arch: CUDA, product: Product) -> Schedule:
    """Threads load words of 8 bytes of B, and of all rows of A, for instructions of a warp."""
    size = product.n * product.k * product.operand
    instructions = size / WORD_BYTES / arch.warp_size * WORD_INSTRUCTIONS
    clocks = instructions / (ISSUED_PER_CLOCK * arch.speeds.sms) + 2 * LATENCY_CLOCKS
    rows = ROWS_BY_THREADS
    if product.n <= rows * (arch.speeds.sms - 1):
        rows //= 2
    return Schedule(
        rows,
        rows,
        int(WORD_BYTES / product.operand),
        1,
        THREADS_OF_FEW_ROWS,
        -(-product.n // rows),
        by_threads=rows,
        seconds=together(
            clocks / arch.speeds.clock, size / BANDWIDTH_SHARE / arch.speeds.bandwidth
        ),
    )


def _of_ragged_results(
    arch: CUDA, M: int, N: int, result: float, schedules: list[Schedule]
) -> Iterator[Schedule]:
    """Each with what threads take to store it."""
    together = math.gcd(int(N * result), ROW_BYTES) / result  # elements that a thread stores
    clocks = ELEMENT_STORE_CLOCKS if together == 1 else STORE_CLOCKS
    for s in schedules:
        rows, columns = (N, M) if s.swap else (M, N)
        tiles = math.ceil(rows / s.block_M) * math.ceil(columns / s.block_N)
        stores = math.ceil(tiles / s.blocks) * s.block_M * s.block_N / s.threads / together
        yield replace(s, seconds=s.seconds + stores * clocks / arch.speeds.clock)


def _way(product: Product) -> float:
    """Bytes of operands that a multiprocessor receives in a clock."""
    row = product.k * product.operand
    if row % ROW_BYTES == 0:
        return L2_PORT_BYTES_PER_CLOCK
    return WORD_COPY_BYTES_PER_CLOCK if row % 4 == 0 else ELEMENTS_PER_CLOCK * product.operand


def _tilings(arch: CUDA, product: Product, swap: bool) -> Iterator[tuple[Tiling, Staging]]:
    """Tiles with as many stages as there is room for, and how their results are staged."""
    by_groups = arch.has_warp_groups
    for m, threads in ROWS if by_groups else MMA_ROWS:
        if m >= 2 * max(product.m, 64 if by_groups else 16):
            continue
        for n in SWAPPED_COLUMNS if swap and by_groups else COLUMNS:
            if n >= 2 * max(product.n, 16) or (not by_groups and n > 128):
                continue
            depths = (128, 256) if m + n <= 128 else (128,)
            for depth in depths:
                k = int(depth / product.operand)
                for staging in _stagings(arch, product, m, n, k, swap):
                    tiling = Tiling(m, n, k, staging.stages, threads, 1, by_groups)
                    if staging.stages >= 2 and _fits(arch, tiling):
                        yield _in_panels(arch, product, tiling), staging


def _fits(arch: CUDA, tiling: Tiling) -> bool:
    """Whether threads have registers for their accumulators."""
    if not tiling.by_warp_groups:
        rows, columns = tiling.warp(arch.warp_size)
        whole = tiling.n % 16 == 0 and rows >= 16 and columns >= 8 and columns % 8 == 0
        return whole and registers(arch, tiling) <= arch.most_registers(False)
    # At the launch the producer's warp group has as many registers as the others.
    at_launch = arch.reg_cap // (tiling.threads + 128)
    fits = registers(arch, tiling) <= arch.most_registers(True)
    return fits and tiling.n // 2 + BESIDE_ACCUMULATORS <= at_launch


def _parts(n: int, result: float, swap: bool) -> list[int]:
    """In which a tile of `n` columns may be stored: swizzled ones first, the fewest first."""
    swizzled, plain = [1], []
    for parts in range(2, 1 if swap else n // 16 + 1):
        row = n // parts * result
        if n % parts == 0 and row % STAGING_BYTES == 0:
            swizzled.append(parts)
        elif n % parts == 0 and row % (2 * CHUNK_BYTES) == CHUNK_BYTES and row >= PLAIN_BYTES:
            plain.append(parts)
    return swizzled + plain


def _stagings(
    arch: CUDA, product: Product, m: int, n: int, k: int, swap: bool
) -> Iterator[Staging]:
    """As many stages as fit, and the first parts of the result that leave room for them; the same
    with one part at a time, where that leaves room for more."""
    room = arch.smem_cap - BARRIER_BYTES
    # Threads that load elements wait for them: more stages only unroll more copies.
    useful = 2 if product.k * product.operand % 4 else STAGES
    # Of a short tile's steps all are under way while the one before is stored: more stages are
    # worth no more parts. 817 x 6656 x 192 by 128 x 192 took an H200 12.9 us in six parts with five
    # stages, and 11.2 in one part with four.
    wanted = min(WANTED_STAGES, math.ceil(product.k / k) + 1)
    most = 0
    for results in (2, 1):
        best = Staging(most, 1, results)
        for parts in _parts(n, product.result, swap):
            staging = min(parts, results) * m * n // parts * product.result
            stages = min(STAGES, int((room - staging) // ((m + n) * k * product.operand)))
            if stages > best.stages and best.stages < wanted:
                best = Staging(stages, parts, results)
        best = replace(best, stages=min(best.stages, useful))
        if best.stages > most:
            yield best
        most = best.stages


def _in_panels(arch: CUDA, product: Product, tiling: Tiling) -> Tiling:
    """With the panel that reads the least memory, and of those one whose last panel is as high as
    the others, if there is one: another height takes divisions by a variable, of each tile."""
    rows = math.ceil(product.m / tiling.m)

    def read(panel: int) -> tuple[float, bool]:
        used = replace(tiling, panel=panel)
        return memory_bytes(arch, product, used, arch.speeds.sms), rows % min(panel, rows) != 0

    return replace(tiling, panel=min(PANELS, key=read))


def _shared_out(
    arch: CUDA, product: Product, tiling: Tiling, staging: Staging, swap: bool
) -> Iterator[Schedule]:
    """The ways to share out the tiles of a tiling."""
    sms = arch.speeds.sms
    rows, columns = math.ceil(product.m / tiling.m), math.ceil(product.n / tiling.n)
    tiles = rows * columns
    steps = math.ceil(product.k / tiling.k)
    ways = [(1, 0)]
    splits = [n for n in range(2, sms // tiles + 1) if math.ceil(steps / n) >= MIN_STEPS]
    ways += [(n, 0) for n in splits]
    left = tiles % sms
    if left and tiles > sms:
        ways += [(1, shared) for shared in (left, left + sms) if shared * steps >= sms * MIN_STEPS]
    elif left and sms % tiles and tiles * steps >= sms * MIN_STEPS:
        ways.append((1, left))
    every = [(split, False, shared) for split, shared in ways]
    # What a second kernel adds up leaves without shared memory: one way to stage it is enough.
    every += [(n, True, 0) for n in splits if staging.results > 1]
    step = int((tiling.m + tiling.n) * tiling.k * product.operand)
    deep = replace(tiling, stages=min(STAGES, (arch.smem_cap - BARRIER_BYTES) // step))
    by_tma = product.k * product.operand % ROW_BYTES == 0
    for split, apart, shared in every:
        used = deep if apart and by_tma else tiling
        alone = _schedule(used, staging, swap, split, apart, shared)
        alone = replace(alone, blocks=sms if shared else min(sms, tiles * split))
        alone = replace(alone, seconds=_seconds(arch, product, used, alone))
        yield alone
        if shared or not by_tma or not arch.has_clusters:
            continue
        pairs = []
        # Below each other, each block loads half of the columns: whole eights for a swizzle.
        for down in (False,) if tiling.n % 16 else (False, True):
            whole = _padded_tiles(rows, columns, 2, down)
            if split == 1 or whole * split <= sms:
                pair = replace(alone, cluster=2, down=down, blocks=min(sms // 2 * 2, whole * split))
                pairs.append(replace(pair, seconds=_seconds(arch, product, used, pair)))
        best = min(pairs, key=lambda pair: pair.seconds, default=alone)
        worth = 1.0 if _lies_across_lines(product) else CLUSTER_GAIN
        if best.seconds < worth * alone.seconds:
            yield best


def _schedule(
    tiling: Tiling, staging: Staging, swap: bool, split: int, apart: bool, shared: int
) -> Schedule:
    """Without clusters and its time."""
    return Schedule(
        tiling.m,
        tiling.n,
        tiling.k,
        tiling.stages,
        tiling.threads,
        0,
        tiling.panel,
        staging.parts,
        swap,
        split,
        shared,
        apart=apart,
        results=staging.results,
    )


def _padded_tiles(rows: int, columns: int, cluster: int, down: bool) -> int:
    """Tiles of whole clusters."""
    if down:
        return -(-rows // cluster) * cluster * columns
    return -(-columns // cluster) * cluster * rows


def _read_again(product: Product, tiling: Tiling, schedule: Schedule) -> float:
    """Bytes of operands that more than one cluster loads."""
    cluster, down = schedule.cluster, schedule.down
    rows = math.ceil(product.m / tiling.m / (cluster if down else 1))
    columns = math.ceil(product.n / tiling.n / (1 if down else cluster))
    extents = product.m * (columns > 1) + product.n * (rows > 1)
    return extents * product.k * product.operand


def _lies_across_lines(product: Product) -> bool:
    """Whether TMA loads rows of operands of which most lie in two lines of L2 for each of one."""
    row = product.k * product.operand
    return row % ROW_BYTES == 0 and row % L2_LINE_BYTES != 0


def _seconds(arch: CUDA, product: Product, tiling: Tiling, schedule: Schedule) -> float:
    """The time of the block that has the most to do, and that of the memory."""
    speeds, cluster = arch.speeds, schedule.cluster
    swap, split, shared = schedule.swap, schedule.split, schedule.shared_tiles
    sms = speeds.sms // cluster * cluster
    tiles = _padded_tiles(
        math.ceil(product.m / tiling.m), math.ceil(product.n / tiling.n), cluster, schedule.down
    )
    steps = math.ceil(product.k / tiling.k)
    step_bytes = (tiling.m + tiling.n) * tiling.k * product.operand
    way, busy = _way(product), min(sms, tiles * split)
    from_l2: float = L2_BYTES_PER_CLOCK
    # Blocks of a cluster receive rows that one of them loads.
    alone, common = (tiling.m, tiling.n) if schedule.down else (tiling.n, tiling.m)
    received, once = way, (tiling.m + tiling.n) / (alone + common / cluster)
    if _lies_across_lines(product):
        from_l2 = ACROSS_LINES_BYTES_PER_CLOCK
        received = min(way, from_l2 / busy * once)
    step = step_clocks(arch, product, tiling, way=received, cluster=cluster)
    multiplying = math_clocks(arch, product, tiling) / steps
    # The tensor cores wait while a tile's result goes to shared memory, and from there on the
    # next tile's loads run beside it.
    # Shares that a second kernel adds up leave from registers.
    stored = 0.0 if schedule.apart else tiling.m * tiling.n * product.result
    store = EDGE_CLOCKS + 2 * stored / SHARED_BYTES_PER_CLOCK * (COLUMN_STORES if swap else 1)
    if schedule.results == 1:
        waits = schedule.parts - 1
        store += waits * (STORE_WAIT_CLOCKS + stored / schedule.parts / L2_PORT_BYTES_PER_CLOCK)

    def part(count: int, of_step: float, share: float = 1.0) -> float:
        """Steps and the store of a tile, by a share of the multiprocessors."""
        return powered(arch, count * of_step + store, count * multiplying * share)

    ends, sharers = 0, 0
    if split > 1:
        # Blocks of different shares want different steps: L2 serves each by itself. Of 328 x 832 x
        # 26752, three splits received 35 to 42 bytes a clock on an H200.
        again = _read_again(product, tiling, schedule)
        from_l2 /= 1 + WRITE_BACKS * again / ((product.m + product.n) * product.k * product.operand)
        received = min(way, from_l2 / busy * once)
        step = step_clocks(arch, product, tiling, way=received, cluster=cluster)
        # Who is last of two has its own share, else it reads all of them in their order.
        ends, sharers = 1, split if split > 2 else 1
        clocks = part(math.ceil(steps / split), step, busy / sms)
    else:
        clocks = (tiles - shared) // sms * part(steps, step)
        if shared:
            # No two neighbours are at the same step: each has its own request of L2, and of the
            # memory if L2 does not hold all that is in use, at all steps.
            way = min(way, from_l2 / sms)
            tall, wide = wave_of(product, tiling, min(sms, shared))
            held = (tall * tiling.m + wide * tiling.n) * product.k * product.operand
            bandwidth = BANDWIDTH_SHARE * speeds.bandwidth / speeds.clock
            missed = sms * step_bytes / bandwidth if held > L2_HALF * speeds.l2_bytes else 0.0
            share = math.ceil(shared * steps / sms)
            clocks += part(share, together(step_clocks(arch, product, tiling, way=way), missed))
            # A share ends in the middle of a tile, and may begin there.
            ends = 1 + math.ceil(share / steps)
            sharers = 1 + math.ceil(steps / share)
            busy = sms
        elif tiles % sms:
            clocks += part(steps, step, tiles % sms / sms)
    partial = 4 * tiling.m * tiling.n / way
    # One share is read behind the other.
    fix_up = (ends + sharers) * (partial + LATENCY_CLOCKS) + FIX_UP_CLOCKS if ends else 0
    if schedule.apart:
        # L2 takes the sums of all blocks at a time, and gives them to the second kernel.
        sums = 2 * tiles * split * 4 * tiling.m * tiling.n
        fix_up = LATENCY_CLOCKS + ADDING_CLOCKS + sums / L2_BYTES_PER_CLOCK
    # What comes behind the last load, for which the memory has nothing to do.
    tail = stored / way + fix_up + 2 * LATENCY_CLOCKS
    reached = min(
        BANDWIDTH_SHARE * speeds.bandwidth * (busy / sms) ** SPREAD,
        busy * min(tiling.stages, steps) * step_bytes / (LATENCY_CLOCKS / speeds.clock),
    )
    evicting = WRITE_BACKS * _read_again(product, tiling, schedule)
    memory = (memory_bytes(arch, product, tiling, sms) + evicting) / reached
    return together(clocks / speeds.clock, memory) + tail / speeds.clock
