"""How long configurations of `dequantize_gemm` may take: a model, fitted to measurements on an
H200."""

import math

from tilelang.carver.arch.cuda import listed_speeds

H200 = listed_speeds(90)
"""Of the table, and not of the GPU that is here: rows are made where no GPU may be asked."""
UNPACK_INSTRUCTIONS = {"int4": 2.2, "sums": 1.75, "mxfp4": 2.4}
"""Of a warp, for a weight of each of its threads; "sums": of int4 whose sums are scaled. Counted in
the machine code, and `STEP_INSTRUCTIONS` of a step beside them, and for each other part."""
STEP_INSTRUCTIONS, PART_INSTRUCTIONS = 32, 13
FEW_COLUMNS = 24
"""Of an instruction, which fewer do not make faster. Assumed."""
# Fitted to 313 measurements of 37 shapes on an H200 (2026-11-24), from which the sum differs by 9 %
# (root of the mean square). The best of its first three configurations of a shape is within 1 % of
# the best that was measured, on the average. What overlaps in a kernel adds up all the same.
MULTIPLYING, UNPACKING, MEMORY = 0.92, 0.87, 0.28
"""Shares of the clocks at the peak, of instructions, and of the bytes' time."""
STEP_CLOCKS, BLOCK_CLOCKS, TILE_CLOCKS = 128, 3100, 680
"""Of a step, of the start and end of a block, and of one more tile of a block that stays."""
SHARE_BYTES_PER_CLOCK, SHARES_CLOCKS = 27, 1750
"""Of shares of K that a multiprocessor writes and adds up, and to learn that all are there."""
APART_CLOCKS, APART_BYTES = 1600, 4 * 8 * 128
"""Of the kernel that adds up apart, and of a share for one of its blocks. Fitted to seven shapes
(2026-11-28), of which it finds the faster way where they differ by more than 4 %."""
WORD_CLOCKS = 0.12
"""Of a word of A that TMA does not load."""
COPY_SECONDS = 5.8e-6
"""Of a copy of A."""


def seconds(form, M, N, K, config):
    """What a configuration may take: a sum of what its blocks do, fitted to measurements."""
    split = config["split"]
    m, n, k = (config[name] for name in ("block_M", "block_N", "block_K"))
    each = math.ceil(math.ceil(M / m) * math.ceil(N / n) * split / H200.sms)
    beside = math.ceil(each / config.get("min_blocks", 1))
    steps, parts = math.ceil(K / (k * split)), config.get("parts", 1)
    # Each scheduler has one warp of each warp group of 64 rows, and a warp 16 of them.
    groups, sums = n // 64, bool(config.get("scale_sums"))
    instructions = STEP_INSTRUCTIONS + PART_INSTRUCTIONS * (parts - 1)
    instructions += UNPACK_INSTRUCTIONS["sums" if sums else form] * k / 2
    instructions += 0.6 * m * parts if sums else 0.0
    products = 2.0 * max(m, FEW_COLUMNS) * 64 * k / H200.tensor_flop
    clocks = each * steps * groups * (MULTIPLYING * products + UNPACKING * instructions)
    clocks += beside * steps * STEP_CLOCKS
    clocks += each * TILE_CLOCKS if config.get("blocks") else beside * BLOCK_CLOCKS
    if split > 1 and config.get("apart"):
        adding = math.ceil(math.ceil(N / 128) * math.ceil(M / 8) / H200.sms) * split * APART_BYTES
        clocks += APART_CLOCKS + (4.0 * m * n * each + adding) / SHARE_BYTES_PER_CLOCK
    elif split > 1:
        # Of the shares of a multiprocessor, and of those that the last block of a tile reads.
        shares = each + (split if split > 2 else 1)
        clocks += SHARES_CLOCKS + 4.0 * m * n * shares / SHARE_BYTES_PER_CLOCK
    if K % 8 and M > 1 and not config.get("padded"):
        clocks += each * steps * m * k / 2 * WORD_CLOCKS
    moved = N * K / 2 + 2.0 * M * (K + N)
    copied = COPY_SECONDS if config.get("padded") else 0.0
    return clocks / H200.clock + MEMORY * moved / H200.bandwidth + copied
