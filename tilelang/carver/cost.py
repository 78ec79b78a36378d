"""How long a kernel may take: the time of what is busiest, and a little of the rest.

A kernel uses the tensor cores, shared memory, the way from L2, and the memory; the busiest of them
decides (S. Williams and others, "Roofline: an insightful visual performance model", 2009), and what
is nearly as busy delays it (`together`). Tiles
come in waves: a multiprocessor works on a whole number of them. What is on its way in a pipeline of
S stages bounds the speed of loads (J. Little, "A proof for the queuing formula L = lambda W",
1961). A large chip that multiplies all the time wants more power than it may have, and its clock
falls (`powered`). All sizes are in bytes, all times in seconds unless a name says clocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilelang.carver.arch.cuda import (
    CUDA,
    L2_PORT_BYTES_PER_CLOCK,
    SHARED_BYTES_PER_CLOCK,
)

LATENCY_CLOCKS = 900
"""How long it takes from the issue of a load until others have seen its tile. Assumed: some 500
clocks of the memory itself (W. Luo and others, "Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture via Microbenchmarking", 2024, table of latencies) and what barriers and TMA add."""
HANDSHAKE_CLOCKS = 300
"""What a slot of a pipeline with a producer takes besides its load: consumers give it up, the
producer wakes up, and so do they. With it, and with the time that the bytes take, GEMMs of two
stages take what an H200 needs: 1740 to 2040 clocks a step of 32 to 48 KiB."""
CLUSTER_CLOCKS = 450
"""More where blocks of a cluster load for each other: the slot has to be free in all of them. Of
192 x 176 x 64 on an H200, three stages take a fifth longer than four (4104 x 4104 x 4104)."""
OTHER_REGISTERS = 48
"""Registers of a thread besides its accumulators. Assumed: addresses, loop counters,
descriptors."""
STREAMING_REGISTERS = 32
"""Registers of a thread that only moves data. Assumed."""
L2_SHARE = 0.8
"""The share of the L2 cache that inputs have. Assumed."""
BANDWIDTH_SHARE = 0.92
"""The share of the memory's bandwidth that kernels reach. Assumed: copies on A100 to H200 do."""

WRITE_SHARE = 0.5
"""How long writes to shared memory by TMA and cp.async take, of the time of a read of as many
bytes. Assumed: with 1 the order of the 70 fastest of 1300 measured GEMMs agrees less (0.45,
0.65)."""
STEP_CLOCKS = 30
"""What the barriers of a step of a pipeline take. Assumed."""
TENSOR_CORES = 4
"""Tensor cores of a multiprocessor, one for each of its schedulers ("NVIDIA H100 Tensor Core GPU
Architecture")."""
OVERLAP = 8
"""The exponent of `together`. Assumed: two that are equally busy take a tenth longer."""


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
    """Rows and columns that each of `warps` has of a tile: they share rows first, in sixteens.
    Warp groups have 64 rows each where there are as many, else they share columns, too."""
    unit, step = (64, 4) if by_warp_groups else (16, 1)
    rows = step * math.gcd(warps // step, m // unit)
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
    """Shared memory of a block: the stages of both operands; the result takes their place, or a
    part at a time."""
    step = (tiling.m + tiling.n) * tiling.k * product.operand
    return int(tiling.stages * step)


def registers(arch: CUDA, tiling: Tiling) -> int:
    """Registers of a thread: accumulators of 32 bits, operands of an mma, and others."""
    accumulators = tiling.m * tiling.n // tiling.threads
    if tiling.by_warp_groups:
        return accumulators + OTHER_REGISTERS
    # Of a step of 16 along K, two in a register (PTX ISA, mma.m16n8k16).
    operands = 16 * sum(tiling.warp(arch.warp_size)) // (2 * arch.warp_size)
    return accumulators + operands + OTHER_REGISTERS


def blocks_per_sm(arch: CUDA, product: Product, tiling: Tiling) -> int:
    """How many blocks run on a multiprocessor at a time; 0 where none does. A producer's warp group
    has as many registers as the others at the launch."""
    threads = tiling.threads + (128 if tiling.by_warp_groups else 0)
    # setmaxnreg gives consumers what the producer does not need (PTX ISA, setmaxnreg).
    if registers(arch, tiling) > arch.most_registers(tiling.by_warp_groups):
        return 0
    average = registers(arch, tiling) * tiling.threads // threads + (
        24 * 128 // threads if tiling.by_warp_groups else 0
    )
    return arch.blocks_per_sm(threads, shared_bytes(product, tiling), average)


def math_clocks(arch: CUDA, product: Product, tiling: Tiling) -> float:
    """Clocks of a multiprocessor's tensor cores for one tile, at their peak."""
    return 2.0 * tiling.m * tiling.n * product.k / arch.tensor_flop_per_clock(product.dtype)


def tile_clocks(arch: CUDA, product: Product, tiling: Tiling, beside: int = 1) -> float:
    """Clocks of a multiprocessor for one tile, of `beside` that it works on: those of the tensor
    cores, or of the shared memory that they read.

    A warp group's instruction of 64 rows reads its A and its B from shared memory (PTX ISA,
    wgmma); warps read the rows and columns of their tile (ldmatrix) for mma. A warp's mma runs on
    one of the four tensor cores.
    """
    multiplying = math_clocks(arch, product, tiling)
    warps = tiling.threads // arch.warp_size
    rows, columns = tiling.warp(arch.warp_size)
    if tiling.by_warp_groups:
        read = tiling.m * (tiling.n // columns) + tiling.m // 64 * tiling.n
    else:
        multiplying /= arch.speeds.mma_share * min(1.0, warps * beside / TENSOR_CORES)
        read = warps * (rows + columns)
    written = WRITE_SHARE * (tiling.m + tiling.n)
    shared = (read + written) * product.k * product.operand / SHARED_BYTES_PER_CLOCK
    return together(multiplying, shared)


def step_clocks(
    arch: CUDA,
    product: Product,
    tiling: Tiling,
    beside: int = 1,
    way: float = L2_PORT_BYTES_PER_CLOCK,
    cluster: int = 1,
) -> float:
    """Clocks of a multiprocessor for a step of one tile, of `beside` that it works on; `way` is
    what it receives from L2 in a clock, `cluster` how many blocks load together."""
    steps = math.ceil(product.k / tiling.k)
    step_bytes = (tiling.m + tiling.n) * tiling.k * product.operand
    # A tile's step waits for a load that was issued `stages` - 1 steps before.
    ahead = tiling.stages - 1 if tiling.stages > 1 else 0.5
    latency = LATENCY_CLOCKS + beside * step_bytes / way
    if tiling.by_warp_groups:
        latency += HANDSHAKE_CLOCKS
    if cluster > 1:
        latency += CLUSTER_CLOCKS
    return together(
        tile_clocks(arch, product, tiling, beside) / steps + STEP_CLOCKS,
        step_bytes / way,
        latency / ahead / beside,
    )


def powered(arch: CUDA, clocks: float, multiplying: float) -> float:
    """Clocks at the full rate that work takes as long as it does at the rate that the limit of
    power allows, if tensor cores are busy for `multiplying` of its `clocks`.

    The power of a busy chip grows about with the square of its clock, since the voltage grows
    with it, and with the share of the time for which tensor cores are busy.
    """
    return max(clocks, math.sqrt(clocks * multiplying) / arch.power_share)


def wave_of(product: Product, tiling: Tiling, slots: int) -> tuple[int, int]:
    """Rows and columns of tiles that `slots` blocks work on at a time."""
    rows, columns = math.ceil(product.m / tiling.m), math.ceil(product.n / tiling.n)
    # More rows where a panel has fewer tiles than there are blocks.
    tall = min(rows, max(tiling.panel, math.ceil(slots / columns)))
    return tall, min(columns, math.ceil(slots / tall))


def memory_bytes(arch: CUDA, product: Product, tiling: Tiling, slots: int) -> float:
    """What is read from and written to the memory: each operand once where they stay in L2, else
    once for each wave of `slots` tiles that needs it."""
    rows, columns = math.ceil(product.m / tiling.m), math.ceil(product.n / tiling.n)
    once = product.batch * (product.m + product.n) * product.k * product.operand
    result = product.batch * product.m * product.n * product.result
    if once / product.batch <= L2_SHARE * arch.speeds.l2_bytes:
        return once + result
    tall, wide = wave_of(product, tiling, slots)
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
    beside = min(room, math.ceil(tiles / speeds.sms))
    slots = speeds.sms * room
    steps = math.ceil(product.k / tiling.k)
    step_bytes = (tiling.m + tiling.n) * tiling.k * product.operand
    # The beginning of a tile's loads, and its end: another block's work hides them.
    stored = tiling.m * tiling.n * product.result
    edge = LATENCY_CLOCKS + stored / L2_PORT_BYTES_PER_CLOCK
    work = steps * step_clocks(arch, product, tiling, beside)
    tile = max(work, (work + edge) / beside)
    multiplying = math_clocks(arch, product, tiling)
    # Waves in which all multiprocessors have a tile, and the last one, in which a few do.
    whole, rest = divmod(tiles, speeds.sms)
    clocks = whole * powered(arch, tile, multiplying)
    if rest:
        clocks += powered(arch, tile, multiplying * rest / speeds.sms)
    on_chip = (clocks + edge) / speeds.clock
    flight = min(tiles, speeds.sms) * beside * min(tiling.stages, steps) * step_bytes
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
