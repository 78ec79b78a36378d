"""Attention whose scores stay in registers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from tilelang.carver.cost import (
    BANDWIDTH_SHARE,
    LATENCY_CLOCKS,
    OTHER_REGISTERS,
    SHARED_BYTES_PER_CLOCK,
    STEP_CLOCKS,
    together,
)
from tilelang.carver.roller.hint import Hint
from tilelang.carver.template.base import BaseTemplate, element_bytes

QUERIES = (64, 128, 192, 256)
KEYS = (32, 64, 128, 192)
EXPONENTIALS_PER_CLOCK = 16
"""Exponentials of a multiprocessor's special function units (CUDA Programming Guide, "Arithmetic
Instructions")."""
PERSISTENT_REGISTERS = 32
"""Registers of a thread of examples/attention/flash_attention.py besides its fragments: three warp
groups with 192 x 128 scores of heads of 64 spill nothing with 160 in all."""
PART_COLUMNS = 64
"""Columns of a part of a result, at least: a row of 128 bytes, as TMA stores them."""
BARRIER_BYTES = 1024
"""For mbarriers and the number of the next tile. Assumed."""
OTHERS_PER_SCORE = 6
"""Instructions of float32 for a score beside its exponential: scale, maximum, difference, sum,
conversion. Counted in FlashAttention's formulas (T. Dao and others, 2022, algorithm 1)."""


class FlashAttentionTemplate(BaseTemplate):
    """Attention of `batch_size` x `num_heads` sequences; `block` of a hint is queries and the
    head's dimension, `rstep` keys. Keys and values have `num_kv_heads` heads, by default as many as
    queries. With `persistent` one block of each multiprocessor fetches tile after tile, the longest
    first; its results leave in `out_parts`.

    Example: ``FlashAttentionTemplate(8, 16, 128, 4096, 4096).recommend_hints(5)``
    """

    def __init__(
        self,
        batch_size: int = 1,
        num_heads: int = 1,
        head_dim: int = 128,
        seq_length: int = 1024,
        seq_kv_length: int | None = None,
        is_causal: bool = False,
        in_dtype: str = "float16",
        out_dtype: str = "float16",
        accum_dtype: str = "float32",
        persistent: bool = False,
        num_kv_heads: int | None = None,
    ):
        self.batch_size, self.num_heads, self.head_dim = batch_size, num_heads, head_dim
        self.seq_length = seq_length
        self.seq_kv_length = seq_length if seq_kv_length is None else seq_kv_length
        self.is_causal = is_causal
        self.in_dtype, self.out_dtype = str(in_dtype), str(out_dtype)
        self.accum_dtype, self.persistent = str(accum_dtype), persistent
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads

    def candidates(self) -> Iterator[Hint]:
        """See `BaseTemplate`."""
        for rows, keys, stages in itertools.product(QUERIES, KEYS, (1, 2, 3)):
            for threads in (128, 256, 384):
                if rows % (threads // 2) or (self.persistent and rows != threads // 2):
                    # Two instructions' rows leave a warp group registers for few keys: 256 x 32
                    # scores of 256 threads took 1.4 to 1.7 times as long as 128 x 128 on an H200.
                    continue
                yield Hint(
                    block=(rows, self.head_dim),
                    warp=(rows // (threads // self.arch.warp_size), self.head_dim),
                    rstep=(keys,),
                    pipeline_stage=stages,
                    use_async=stages > 1,
                    vectorize=max(1, int(16 / element_bytes(self.in_dtype))),
                    threads=threads,
                    seconds=self._seconds(rows, keys, stages, threads),
                )

    def out_parts(self, hint: Hint) -> int:
        """The fewest parts in which a tile of results goes through shared memory beside the
        operands of a `persistent` kernel; 1 where no number is enough, and without `persistent`.

        Example: ``template.out_parts(template.recommend_hints(1)[0])``
        """
        return self._shared(hint.block[0], hint.rstep[0], hint.pipeline_stage)[1]

    def _shared(self, rows: int, keys: int, stages: int) -> tuple[int, int]:
        """Bytes of a block, and in how many parts its results go through them."""
        row = self.head_dim * element_bytes(self.in_dtype)
        operands = int((rows + 2 * keys * stages) * row)
        if not self.persistent:
            return operands, 1
        # The result has its own place where the next tile's queries come before it is stored.
        parts = 1
        while (
            operands + rows * row / parts > self.arch.smem_cap - BARRIER_BYTES
            and self.head_dim % (2 * parts * PART_COLUMNS) == 0
        ):
            parts *= 2
        return int(operands + rows * row / parts), parts

    def _seconds(self, rows: int, keys: int, stages: int, threads: int) -> float:
        arch, width, dim = self.arch, element_bytes(self.in_dtype), self.head_dim
        # Scores, the same in the operand's type, and the result.
        beside = PERSISTENT_REGISTERS if self.persistent else OTHER_REGISTERS
        numbers = rows * (keys * (1 + width / 4) + dim) / threads + beside
        shared, _ = self._shared(rows, keys, stages)
        roles = 128 if arch.has_warp_groups and stages > 1 else 0
        if numbers > arch.most_registers(roles > 0):
            return math.inf
        average = (numbers * threads + 24 * roles) / (threads + roles)
        room = arch.blocks_per_sm(threads + roles, shared, math.ceil(average))
        if not room:
            return math.inf
        if self.persistent:
            room = 1
        steps = math.ceil(self.seq_kv_length / keys) * (0.5 if self.is_causal else 1.0)
        if self.is_causal:
            steps += 0.5 * math.ceil(rows / keys)  # the diagonal's tiles are computed whole
        tiles = self.batch_size * self.num_heads * math.ceil(self.seq_length / rows)
        most = math.ceil(tiles / arch.speeds.sms)
        products = 4.0 * rows * keys * dim / arch.tensor_flop_per_clock(self.in_dtype)
        exponentials = rows * keys / EXPONENTIALS_PER_CLOCK
        # What a step leaves is rescaled in the next one.
        others = rows * (OTHERS_PER_SCORE * keys + dim) / (arch.speeds.fma_flop / 2)
        groups = max(1, rows // 64)
        read = 2 * groups * keys * dim * width / SHARED_BYTES_PER_CLOCK
        softmax = exponentials + others  # of one warp, one after the other
        # Who works alone on a multiprocessor does one after the other.
        alone = room * (threads // 128) < 2
        step = products + softmax if alone else together(products, read, softmax)
        if stages == 1:
            step += LATENCY_CLOCKS / min(room, most)
        else:
            step = together(step, LATENCY_CLOCKS / (stages - 1) / min(room, most))
        total = most * steps
        if self.persistent and self.is_causal:
            # Short tiles fill what is left beside long ones, of which the longest has all keys.
            total = max(tiles / arch.speeds.sms * steps, 2 * steps)
        clocks = total * (step + STEP_CLOCKS) + LATENCY_CLOCKS * math.ceil(most / room)
        moved = 2 * self.batch_size * self.num_heads * self.seq_length * dim * width
        moved += 2 * self.batch_size * self.num_kv_heads * self.seq_kv_length * dim * width
        memory = moved / (BANDWIDTH_SHARE * arch.bandwidth)
        return together(clocks / arch.speeds.clock, memory)
