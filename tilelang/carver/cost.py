"""How long a kernel may take: the time of what is busiest, and a little of the rest.

A kernel uses the tensor cores, shared memory, the way from L2, and the memory; the busiest of them
decides (S. Williams and others, "Roofline: an insightful visual performance model", 2009), and what
is nearly as busy delays it (`together`). Tiles
come in waves: a multiprocessor works on a whole number of them. What is on its way in a pipeline of
S stages bounds the speed of loads (J. Little, "A proof for the queuing formula L = lambda W",
1961). All sizes are in bytes, all times in seconds unless a name says clocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilelang.carver.arch.cuda import CUDA, L2_BYTES_PER_CLOCK, SHARED_BYTES_PER_CLOCK

LATENCY_CLOCKS = 900
"""From the issue of a load until others have seen its tile. Assumed: some 500 clocks of the memory
itself (W. Luo and others, "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via
Microbenchmarking", 2024, table of latencies) and what barriers and TMA add."""
OTHER_REGISTERS = 48
"""Of a thread, besides its accumulators. Assumed: addresses, loop counters, descriptors."""
STREAMING_REGISTERS = 32
"""Of a thread that only moves data. Assumed."""
L2_SHARE = 0.8
"""Of the L2 cache, that inputs have. Assumed."""
BANDWIDTH_SHARE = 0.92
"""Of the memory's bandwidth, that kernels reach. Assumed: copies on A100 to H200 do."""

STEP_CLOCKS = 30
"""Of a step of a pipeline, for its barriers. Assumed."""
OVERLAP = 6
"""The exponent of `together`. Assumed: two that are equally busy take an eighth longer."""


def together(*times: float) -> float:
    """The time of work that overlaps, but not perfectly: above the longest, below the sum."""
    longest = max(times)
    if not 0 < longest < math.inf:
        return longest
    return longest * math.fsum((t / longest) ** OVERLAP for t in times) ** (1 / OVERLAP)


@dataclass(frozen=True)
class Product:
    """C (m, n) of A (m, k) and B (k, n), `batch` times.

    `operand` and `result` are bytes of an element of A and B, and of C.
    """

    m: int
    n: int
    k: int
    dtype: str
    operand: float
    result: float
    batch: int = 1


def warp_tile(m: int, n: int, warps: int, by_warp_groups: bool) -> tuple[int, int]:
    """Rows and columns that each of `warps` has of a tile: they share rows first, in sixteens."""
    rows = warps if by_warp_groups else math.gcd(warps, m // 16)
    return m // rows, n * rows // warps


@dataclass(frozen=True)
class Tiling:
    """How a product is computed: tiles of `m` x `n`, steps of `k`, `stages` of them on their way,
    by `threads`; `panel` rows of tiles are taken together. `by_warp_groups` is the instruction."""

    m: int
    n: int
    k: int
    stages: int
    threads: int
    panel: int
    by_warp_groups: bool

    def warp(self, warp_threads: int) -> tuple[int, int]:
        """Rows and columns of the tile of a warp, which has `warp_threads` threads."""
        return warp_tile(self.m, self.n, self.threads // warp_threads, self.by_warp_groups)


def shared_bytes(product: Product, tiling: Tiling) -> int:
    """Of a block: the stages of both operands; the result takes their place, or a part at a
    time."""
    step = (tiling.m + tiling.n) * tiling.k * product.operand
    return int(tiling.stages * step)


def registers(tiling: Tiling) -> int:
    """Of a thread: accumulators of 32 bits, and others."""
    return tiling.m * tiling.n // tiling.threads + OTHER_REGISTERS


def blocks_per_sm(arch: CUDA, product: Product, tiling: Tiling) -> int:
    """How many blocks run on a multiprocessor at a time; 0 where none does. A producer's warp group
    has as many registers as the others at the launch."""
    threads = tiling.threads + (128 if tiling.by_warp_groups else 0)
    # setmaxnreg gives consumers what the producer does not need (PTX ISA, setmaxnreg).
    if registers(tiling) > (240 if tiling.by_warp_groups else 255):
        return 0
    average = registers(tiling) * tiling.threads // threads + (
        24 * 128 // threads if tiling.by_warp_groups else 0
    )
    return arch.blocks_per_sm(threads, shared_bytes(product, tiling), average)


def tile_clocks(arch: CUDA, product: Product, tiling: Tiling) -> float:
    """Clocks of a multiprocessor for one tile: those of the tensor cores, or of the shared memory
    that they read.

    A warp group's instruction of 64 rows reads its A and all of B from shared memory (PTX ISA,
    wgmma); warps read the rows and columns of their tile (ldmatrix) for mma.
    """
    math_clocks = 2.0 * tiling.m * tiling.n * product.k / arch.tensor_flop_per_clock(product.dtype)
    if not tiling.by_warp_groups:
        math_clocks /= arch.speeds.mma_share
    if tiling.by_warp_groups:
        read = (tiling.m // 64) * (64 + tiling.n)
    else:
        rows, columns = tiling.warp(arch.warp_size)
        read = (tiling.threads // arch.warp_size) * (rows + columns)
    written = tiling.m + tiling.n
    shared = (read + written) * product.k * product.operand / SHARED_BYTES_PER_CLOCK
    return together(math_clocks, shared)


def memory_bytes(arch: CUDA, product: Product, tiling: Tiling, slots: int) -> float:
    """What is read from and written to the memory: each operand once where they stay in L2, else
    once for each wave of `slots` tiles that needs it."""
    rows, columns = math.ceil(product.m / tiling.m), math.ceil(product.n / tiling.n)
    once = product.batch * (product.m + product.n) * product.k * product.operand
    result = product.batch * product.m * product.n * product.result
    if once / product.batch <= L2_SHARE * arch.speeds.l2_bytes:
        return once + result
    tall = min(tiling.panel, rows)
    wide = min(columns, math.ceil(slots / tall))
    waves = math.ceil(product.batch * rows * columns / min(slots, tall * wide))
    step = (tall * tiling.m + wide * tiling.n) * product.k * product.operand
    return max(once, waves * step) + result


def product_seconds(arch: CUDA, product: Product, tiling: Tiling) -> float:
    """The time of a product; infinite where a block does not fit."""
    room = blocks_per_sm(arch, product, tiling)
    if not room:
        return math.inf
    speeds = arch.speeds
    tiles = product.batch * math.ceil(product.m / tiling.m) * math.ceil(product.n / tiling.n)
    busy = min(tiles, speeds.sms)
    beside = min(room, math.ceil(tiles / speeds.sms))
    slots = speeds.sms * room
    steps = math.ceil(product.k / tiling.k)
    step_bytes = (tiling.m + tiling.n) * tiling.k * product.operand
    result_bytes = tiling.m * tiling.n * product.result
    # Of the multiprocessor that has the most tiles.
    most = math.ceil(tiles / speeds.sms)
    computing = most * (tile_clocks(arch, product, tiling) + steps * STEP_CLOCKS)
    way = L2_BYTES_PER_CLOCK / max(busy, speeds.sms / 2)
    moving = most * (steps * step_bytes + result_bytes) / way
    # A tile's step waits for a load that was issued `stages` - 1 steps before.
    ahead = max(1, tiling.stages - 1) if tiling.stages > 1 else 0.5
    waiting = math.ceil(tiles / slots) * steps * LATENCY_CLOCKS / ahead
    # The beginning of a tile's loads, and its end: another block's work hides them.
    edges = (LATENCY_CLOCKS + result_bytes / way) * math.ceil(most / beside)
    on_chip = (together(computing, moving, waiting) + edges) / speeds.clock
    flight = busy * beside * min(tiling.stages, steps) * step_bytes
    reached = min(BANDWIDTH_SHARE * speeds.bandwidth, flight / (LATENCY_CLOCKS / speeds.clock))
    memory = memory_bytes(arch, product, tiling, slots) / reached
    return together(on_chip, memory + LATENCY_CLOCKS / speeds.clock)


def streaming_seconds(arch: CUDA, total: float, blocks: int, threads: int, vector: float) -> float:
    """The time of a kernel that moves `total` bytes, `vector` of a thread at a time."""
    speeds = arch.speeds
    room = arch.blocks_per_sm(threads, 0, STREAMING_REGISTERS)
    if not room:
        return math.inf
    resident = min(blocks, speeds.sms * room)
    flight = resident * threads * vector
    reached = min(BANDWIDTH_SHARE * speeds.bandwidth, flight / (LATENCY_CLOCKS / speeds.clock))
    # The last wave may have few blocks.
    waves = blocks / (speeds.sms * room)
    tail = math.ceil(waves) / waves if waves > 1 else 1.0
    return total / reached * min(tail, 1.5) + LATENCY_CLOCKS / speeds.clock
