"""The gradients of attention with short windows and sinks (flash_attention_windows.py) in one
kernel: a block goes along a range of a sequence, and what its window covers stays on the
multiprocessor: tensors are read and written about once. What a block's first queries make of keys
of the block before, a second kernel adds. Nothing is added up atomically, so that a call repeats
the bits of another one. For Hopper. Check them against float64 autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import math
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import torch
from flash_attention import LOG2_E, processors
from flash_attention_backward import FAST_MATH, padded
from flash_attention_windows import attention, case, check, largest_error, wanted_gradients
from flash_attention_windows_forward import ROWS, TILE, check_heads, fill, schedule

import tilelang
import tilelang.language as T

# A step has two tiles, one for each of two warp groups, which make weights, slopes and dQ. They are
# one role: the code of two would not fit in the instruction cache. A third group adds up dV and dK
# of both tiles, each transposed, (dim, keys).

# Rows of a step.
STEP = 2 * TILE
# Keys of the ring at most: a group has scores or slopes of a tile, or sums, in registers.
MOST_KEYS = 144
# Of a tile's keys, those whose weights are made by `polynomial_exp2`, beside the others'.
BY_POLYNOMIAL = 1 / 6
# Of 2^x for x in -1/2 to 1/2, the highest first: off by 7.5e-5 of it, where float16 rounds by up to
# 4.9e-4. Adding ROUNDER to a smaller float32 rounds it to an integer, in the lowest bits.
POLYNOMIAL = 0.05517166, 0.24261112, 0.69326099, 0.99992807
ROUNDER = 1.5 * 2**23
# Minus its square, -1e9, is added to scores of keys that a row does not see; others get 0, exactly.
UNSEEN = 2.0**15
# Registers of a thread that loads, and of one of each role.
REGISTERS = {"load": 24, "rows": 152, "sums": 184}
# "queries" has Q and LogSum of a step, "results" dO. The ring of keys is there twice, for scores
# and for dQ, so that a step's scores need not wait for dQ of the one before.
DEPTHS = {
    "queries": 2,
    "results": 2,
    "score_keys": 1,
    "values": 1,
    "keys": 1,
    "weights": 1,
    "slopes": 1,
}


@dataclass(frozen=True)
class Walk:
    """How a block goes along its part of a sequence: `new` positions a step. The
    keys of step s are in chunk s % chunks of the ring, which has all keys that the step sees."""

    packed: int
    new: int
    chunks: int
    window: int
    steps: int
    """Steps of the block. The next block's first queries see its last keys, too."""

    @staticmethod
    def of(heads, key_heads, length, window, ranges):
        packed = heads // key_heads
        new = STEP // packed
        # Two, as one is filled while the products still need the others.
        chunks = max(math.ceil((window - 1) / new) + 1, 2)
        while chunks * new % 16:  # products take 16 keys at once
            chunks += 1
        return Walk(packed, new, chunks, window, math.ceil(length / (new * ranges)))

    @property
    def keys(self):
        return self.chunks * self.new

    @property
    def depths(self):
        """Of the pipelines. Masks of 2 and of 32 heads leave room for one tile of dO."""
        return DEPTHS | ({"results": 1} if self.packed in (2, 32) else {})

    @property
    def mask_copies(self):
        """Of the masks, each a chunk further: products take rows from a multiple of 8 on."""
        return max(8 // self.new, 1)

    @property
    def mask_shape(self):
        """Of the masks: rows of a copy, and positions of a step, at least 16 for a product."""
        return -(-(2 * self.chunks - 1) * self.new // 8) * 8, max(self.new, 16)

    def first_mask(self, step):
        """Where the masks of a step's ring begin, so that its newest chunk has the newest one."""
        chunk = self.chunks - 1 - step % self.chunks
        copies = self.mask_copies
        return chunk % copies * self.mask_shape[0] + chunk // copies * (copies * self.new)

    @property
    def by_polynomial(self):
        """How many of the keys have weights by polynomials, whole columns of eight."""
        return round(self.keys * BY_POLYNOMIAL / 8) * 8

    @property
    def before(self):
        """Keys of the block before that are in the ring at first."""
        return self.keys - self.new


@T.macro
def at_chunk(chunk, chunks, body):
    """body(c) of the c in `chunks` that is `chunk`, found by bisection: registers have no address,
    so that each has code of its own."""
    middle = len(chunks) // 2
    if middle == 0:
        body(chunks[0])
    else:
        if chunk < chunks[middle]:
            at_chunk(chunk, chunks[:middle], body)
        else:
            at_chunk(chunk, chunks[middle:], body)


def polynomial_exp2(x):
    """2^x of a float32 up to 127 by additions and products, of which a multiprocessor has eight
    times as many as exponentials: 2^n of the nearest integer n by the bits of the exponent, the
    rest by a polynomial (Cody and Waite, Software Manual for the Elementary Functions). Of more
    than 127 it is any number."""
    low = T.max(x, -126.0)
    shifted = low + ROUNDER
    rest = low - (shifted - ROUNDER)
    power, *others = POLYNOMIAL
    for coefficient in others:
        power = power * rest + coefficient
    bits = T.reinterpret(power, T.int32) + (T.reinterpret(shifted, T.int32) << 23)
    return T.reinterpret(bits, T.float32)


@T.macro
def put_masks(walk, shared):
    """Fill the operands of a product that adds -UNSEEN**2 to scores of keys which a row does not
    see: `positions` says which of a step's positions a row has, `masks` which of them do not see a
    key. There are keys of twice a ring, from the oldest to the newest and again."""
    rows, depth = walk.mask_shape
    for i, j in T.Parallel(STEP, depth):
        shared.positions[i, j] = T.if_then_else(i // walk.packed == j, UNSEEN, 0)
    for copy, i, j in T.Parallel(walk.mask_copies, rows, depth):
        row = i + copy * walk.new
        age = (2 * walk.chunks - 1 - row // walk.new) % walk.chunks
        key = row % walk.new - age * walk.new
        sees = key <= j and key > j - walk.window
        shared.masks[copy * rows + i, j] = T.if_then_else(sees, 0, -UNSEEN)


@T.macro
def leave_out(walk, weights, step, begin):
    """Put 0 where a key of the ring is of a step before the sequence's first one."""
    if begin + (step - walk.chunks + 1) * walk.new < 0:
        for i, j in T.Parallel(STEP, walk.keys):
            age = (step % walk.chunks - j // walk.new + walk.chunks) % walk.chunks
            weights[i, j] = T.if_then_else(begin + (step - age) * walk.new >= 0, weights[i, j], 0)


@T.macro
def take(walk, sums, staged, factor, chunk):
    """Move the sums of a chunk, times `factor`, to `staged`."""
    for i, j in T.Parallel(sums.shape[0], walk.new):
        staged[j, i] = sums[i, chunk * walk.new + j] * factor
    for i, j in T.Parallel(sums.shape[0], walk.new):
        sums[i, chunk * walk.new + j] = 0


@T.macro
def retire(walk, sums, staged, gradient, early, step, factor):
    """Store and clear the sums of the keys that those of `step` overwrite: `gradient` of the
    block's own, `early` of those before."""
    chunks = list(range(walk.chunks))
    at_chunk(step % walk.chunks, chunks, partial(take, walk, sums, staged, factor))
    if step >= walk.chunks:
        T.copy(staged, gradient(step - walk.chunks))
    else:
        if step > 0:
            T.copy(staged, early(step - 1))


@T.macro
def store_last(walk, sums, gradient, factor):
    """Store the sums of the keys that are in the ring at the end, `gradient(step)` of a step's."""
    last = walk.steps - 1
    for i, j in T.Parallel(*sums.shape):
        step = last - (last % walk.chunks - j // walk.new + walk.chunks) % walk.chunks
        if step >= 0:
            gradient(step, j % walk.new, i, sums[i, j] * factor)


@T.macro
def put(walk, pipeline, ring, part, step):
    """Load a step's keys into a ring; at first all that are before them. TMA takes whole groups of
    8 rows of a swizzle."""
    move = partial(fill, pipeline, 0) if walk.new % 8 == 0 else T.copy
    first = step % walk.chunks * walk.new
    T.producer_acquire(pipeline)
    if step == 0:
        move(part(1 - walk.chunks, walk.chunks - 1), ring[walk.new :, :])
    move(part(step), ring[first : first + walk.new, :])
    T.producer_commit(pipeline)


@T.macro
def load_for_scores(walk, of_step, shared, step):
    """Load what the scores of a step need."""
    version = T.producer_acquire("queries")
    fill("queries", version, of_step.Q(step), shared.Q[version, :, :, :])
    fill("queries", version, of_step.LogSum(step), shared.log_sum[version, :, :])
    T.producer_commit("queries")
    put(walk, "score_keys", shared.score_K, of_step.K, step)


@T.macro
def load(walk, of_step, shared):
    """What the threads that load do. `of_step` has, for each tensor, a function that returns the
    part of a number of steps from a first one on."""
    for step in T.serial(walk.steps):
        load_for_scores(walk, of_step, shared, step)
        slot = T.producer_acquire("results")
        fill("results", slot, of_step.dO(step), shared.dO[slot, :, :, :])
        T.producer_commit("results")
        put(walk, "values", shared.V, of_step.V, step)
        put(walk, "keys", shared.K, of_step.K, step)
    # Groups begin the scores of a step before they end the one before.
    load_for_scores(walk, of_step, shared, walk.steps)


@T.macro
def begin_scores(walk, queries, shared, scores, step):
    """Begin the product of a step's tiles with the keys, and the one that masks it."""
    version = T.consumer_wait("queries")
    T.consumer_wait("score_keys")
    T.wgmma_gemm(
        *(queries[version, :, :], shared.score_K, scores),
        transpose_B=True,
        policy=ROWS,
        clear_accum=True,
    )
    first = walk.first_mask(step)
    masks = shared.masks[first : first + walk.keys, :]
    T.wgmma_gemm(shared.positions, masks, scores, transpose_B=True, policy=ROWS)


@T.macro
def hand_over(pipeline, fragment, shared):
    """Give tiles to the group that adds up."""
    T.producer_acquire(pipeline)
    T.copy(fragment, shared)
    T.producer_commit(pipeline)


@T.macro
def weigh(walk, shared, tile, step, begin):
    """Weights of the scores that have been begun, and the product dO V^T beside them."""
    dim = shared.K.shape[1]
    dO = T.reshape(shared.dO, (walk.depths["results"], STEP, dim))
    for i in T.Parallel(STEP):
        row, head = i // walk.packed, i % walk.packed
        tile.log_sum[i] = shared.log_sum[step % DEPTHS["queries"], head, row]
    T.wait_wgmma(0)
    T.consumer_release("queries")
    T.consumer_release("score_keys")
    first = walk.keys - walk.by_polynomial
    for i, j in T.Parallel(STEP, first):
        tile.scores[i, j] = T.exp2(tile.scores[i, j] * (LOG2_E / dim**0.5) - tile.log_sum[i])
    for i, j in T.Parallel(STEP, walk.by_polynomial):
        exponent = tile.scores[i, first + j] * (LOG2_E / dim**0.5) - tile.log_sum[i]
        tile.scores[i, first + j] = polynomial_exp2(exponent)
    T.copy(tile.scores, tile.weights)
    # A branch beside the product would make ptxas await it at once (C7512).
    leave_out(walk, tile.weights, step, begin)
    slot = T.consumer_wait("results")
    T.consumer_wait("values")
    T.wgmma_gemm(
        *(dO[slot, :, :], shared.V, tile.slopes),
        transpose_B=True,
        policy=ROWS,
        clear_accum=True,
    )
    hand_over("weights", tile.weights, shared.weights)
    T.wait_wgmma(0)
    T.consumer_release("results")
    T.consumer_release("values")


@T.macro
def multiply(walk, of_step, shared, begin, tile, sinks, sink_sum):
    """What both groups do with the tiles of each step: the weights P = exp(Q K^T - LogSum), the
    slopes dS = P * (dO V^T - Delta), where Delta is a row's sum of P * dO V^T, and dQ = dS K /
    sqrt(dim). The slopes are rounded without that factor, so that fewer of them underflow in
    float16."""
    keys, dim, dtype = walk.keys, shared.K.shape[1], shared.K.dtype
    Q = T.reshape(shared.Q, (DEPTHS["queries"], STEP, dim))
    dQ_rows = T.reshape(shared.dQ, (STEP, dim))
    T.clear(sink_sum)
    put_masks(walk, shared)
    begin_scores(walk, Q, shared, tile.scores, 0)
    for step in T.serial(walk.steps):
        weigh(walk, shared, tile, step, begin)
        for i, j in T.Parallel(STEP, keys):
            tile.scores[i, j] = tile.weights[i, j] * tile.slopes[i, j]
        T.reduce_sum(tile.scores, tile.delta, dim=1)
        for i in T.Parallel(STEP):
            # LogSum has the sink's weight, but is 0 behind the sequence's end.
            sink_sum[i] -= T.exp2(T.min(sinks[i] - tile.log_sum[i], 0)) * tile.delta[i]
        for i, j in T.Parallel(STEP, keys):
            slope = T.cast(tile.slopes[i, j] - tile.delta[i], dtype)
            tile.slopes_cast[i, j] = tile.weights[i, j] * slope
        T.consumer_wait("keys")
        T.wgmma_gemm(tile.slopes_cast, shared.K, tile.dQ, policy=ROWS, clear_accum=True)
        hand_over("slopes", tile.slopes_cast, shared.slopes)
        T.wait_wgmma(0)
        T.consumer_release("keys")
        begin_scores(walk, Q, shared, tile.scores, step + 1)
        for i, j in T.Parallel(STEP, dim):
            tile.dQ[i, j] = tile.dQ[i, j] * dim**-0.5
        T.copy(tile.dQ, dQ_rows)
        T.copy(shared.dQ, of_step.dQ(step))
    T.wait_wgmma(0)
    T.consumer_release("queries")
    T.consumer_release("score_keys")


@T.macro
def add_up(walk, of_step, shared):
    """What the third group does: dV = P^T dO and dK = dS^T Q / sqrt(dim), of both tiles."""
    keys, dim = walk.keys, shared.K.shape[1]
    Q, dO = (T.reshape(x, (x.shape[0], STEP, dim)) for x in (shared.Q, shared.dO))
    dK, dV = (T.alloc_fragment((dim, keys), T.float32) for _ in range(2))
    T.clear(dK)
    T.clear(dV)
    for step in T.serial(walk.steps):
        retire(walk, dV, shared.sums, of_step.dV, of_step.early_dV, step, 1.0)
        retire(walk, dK, shared.sums, of_step.dK, of_step.early_dK, step, dim**-0.5)
        slot = T.consumer_wait("results")
        version = T.consumer_wait("queries")
        T.consumer_wait("weights")
        T.wgmma_gemm(dO[slot, :, :], shared.weights, dV, transpose_A=True, policy=ROWS)
        T.consumer_wait("slopes")
        T.wait_wgmma(0)
        T.consumer_release("weights")
        T.consumer_release("results")
        T.wgmma_gemm(Q[version, :, :], shared.slopes, dK, transpose_A=True, policy=ROWS)
        T.wait_wgmma(0)
        T.consumer_release("slopes")
        T.consumer_release("queries")
    # Those whose scores the groups begin behind the last step.
    T.consumer_wait("queries")
    T.consumer_release("queries")
    store_last(walk, dV, of_step.store_dV, 1.0)
    store_last(walk, dK, of_step.store_dK, dim**-0.5)


def shared_tiles(walk, dim, dtype):
    """What a block has in shared memory."""
    step, keys, pairs = (walk.new, walk.packed, dim), (walk.keys, dim), (STEP, walk.keys)
    queries, results = DEPTHS["queries"], walk.depths["results"]
    return SimpleNamespace(
        Q=T.alloc_shared((queries, *step), dtype),
        dO=T.alloc_shared((results, *step), dtype),
        log_sum=T.alloc_shared((queries, walk.packed, walk.new), T.float32),
        score_K=T.alloc_shared(keys, dtype),
        K=T.alloc_shared(keys, dtype),
        V=T.alloc_shared(keys, dtype),
        sums=T.alloc_shared((walk.new, dim), dtype),
        dQ=T.alloc_shared(step, dtype),
        weights=T.alloc_shared(pairs, dtype),
        slopes=T.alloc_shared(pairs, dtype),
        positions=T.alloc_shared((STEP, walk.mask_shape[1]), dtype),
        masks=T.alloc_shared((walk.mask_copies * walk.mask_shape[0], walk.mask_shape[1]), dtype),
    )


@T.macro
def tile_of(walk, dim, dtype):
    """What both groups have of their tiles in registers."""
    scores = (STEP, walk.keys)
    return SimpleNamespace(
        log_sum=T.alloc_fragment((STEP,), T.float32),
        delta=T.alloc_fragment((STEP,), T.float32),
        scores=T.alloc_fragment(scores, T.float32),
        weights=T.alloc_fragment(scores, dtype),
        slopes=T.alloc_fragment(scores, T.float32),
        slopes_cast=T.alloc_fragment(scores, dtype),
        dQ=T.alloc_fragment((STEP, dim), T.float32),
    )


def checked_walk(heads, key_heads, length, dim, window, ranges):
    """The walk of `gradients`. Raises `ValueError` for shapes that it does not take."""
    other = "flash_attention_windows.backward"
    check_heads(heads, key_heads, dim, length, window, (2, 4, 8, 16, 32), other)
    walk = Walk.of(heads, key_heads, length, window, ranges)
    if ranges > 1 and walk.steps < walk.chunks:
        raise ValueError(
            f"found {ranges} ranges of {walk.steps * walk.new} positions, wanted none, or "
            f"{walk.keys} positions of each: ranges_of says how many there may be"
        )
    if walk.keys > MOST_KEYS:
        raise ValueError(
            f"found {walk.keys} keys of a step for a window of {window} where {walk.packed} heads "
            f"share keys, wanted at most {MOST_KEYS}; {other} takes others"
        )
    return walk


@tilelang.jit(target={"kind": "cuda", "arch": "sm_90a"}, pass_configs=FAST_MATH)
def gradients(batch, heads, length, dim, window, key_heads, dtype=T.float16, ranges=1):
    """dQ, dK, dV, parts of the sinks' gradients, (batch, key_heads, ranges, STEP), of rows of
    steps, and what `add_early` has to add to dK and dV. `ranges` blocks share a sequence, each
    with a part of its queries and keys; sums are in a fixed order. Rows of LogSum have
    padded(length) elements. Heads are of 64 elements, and windows of at most 65, 97, 129, 137 and
    141 keys where 2, 4, 8, 16 and 32 heads share keys. In float16, dO V^T of each query and key of
    a tile, masked ones too, has to stay under 65504: of larger ones dQ and dK are NaN."""
    walk = checked_walk(heads, key_heads, length, dim, window, ranges)
    shape, key_shape = (batch, length, heads, dim), (batch, length, key_heads, dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(key_shape, dtype),
        V: T.Tensor(key_shape, dtype),
        dO: T.Tensor(shape, dtype),
        LogSum: T.Tensor((batch, heads, padded(length)), T.float32),
        Sinks: T.Tensor((heads,), T.float32),
    ):
        dQ, dK, dV = T.empty(shape, dtype), T.empty(key_shape, dtype), T.empty(key_shape, dtype)
        dSinks = T.empty((batch, key_heads, ranges, STEP), T.float32)
        early_shape = (batch, ranges, walk.before, key_heads, dim)
        early_dK, early_dV = T.empty(early_shape, dtype), T.empty(early_shape, dtype)
        with T.Kernel(ranges, key_heads, batch, threads=512) as (bx, by, bz):
            T.annotate_ws_schedule(schedule(REGISTERS, walk.depths, {"rows": 2}))
            shared = shared_tiles(walk, dim, dtype)
            begin, head = bx * walk.steps * walk.new, by * walk.packed
            group = slice(head, head + walk.packed)

            def positions(step, steps=1):
                return slice(begin + step * walk.new, begin + (step + steps) * walk.new)

            def early(step):
                return slice(step * walk.new, (step + 1) * walk.new)

            @T.macro
            def store(tensor, step, position, element, value):
                at = begin + step * walk.new + position
                if at < length:
                    tensor[bz, at, by, element] = value

            of_step = SimpleNamespace(
                Q=lambda step: Q[bz, positions(step), group, :],
                dO=lambda step: dO[bz, positions(step), group, :],
                LogSum=lambda step: LogSum[bz, group, positions(step)],
                dQ=lambda step: dQ[bz, positions(step), group, :],
                K=lambda *steps: K[bz, positions(*steps), by, :],
                V=lambda *steps: V[bz, positions(*steps), by, :],
                dK=lambda step: dK[bz, positions(step), by, :],
                dV=lambda step: dV[bz, positions(step), by, :],
                early_dK=lambda step: early_dK[bz, bx, early(step), by, :],
                early_dV=lambda step: early_dV[bz, bx, early(step), by, :],
                store_dK=partial(store, dK),
                store_dV=partial(store, dV),
            )
            with T.ws_role("load"):
                load(walk, of_step, shared)
            with T.ws_role("sums"):
                add_up(walk, of_step, shared)
            with T.ws_role("rows"):
                sinks = T.alloc_fragment((STEP,), T.float32)
                sink_sum = T.alloc_fragment((STEP,), T.float32)
                for i in T.Parallel(STEP):
                    sinks[i] = Sinks[head + i % walk.packed] * LOG2_E
                tile = tile_of(walk, dim, dtype)
                multiply(walk, of_step, shared, begin, tile, sinks, sink_sum)
                for i in T.Parallel(STEP):
                    dSinks[bz, by, bx, i] = sink_sum[i]
        return dQ, dK, dV, dSinks, early_dK, early_dV

    return main


@tilelang.jit
def add_early(batch, length, dim, key_heads, stretch, before, ranges, dtype=T.float16):
    """Add to dK and dV, of keys in front of a range, what its queries make of them: sums of the
    `before` last keys in front of each range, (batch, ranges, before, key_heads, dim). A range has
    `stretch` positions."""
    shape, early_shape = (batch, length, key_heads, dim), (batch, ranges, before, key_heads, dim)

    @T.prim_func
    def main(
        dK: T.Tensor(shape, dtype),
        dV: T.Tensor(shape, dtype),
        early_dK: T.Tensor(early_shape, dtype),
        early_dV: T.Tensor(early_shape, dtype),
    ):
        with T.Kernel(before, ranges - 1, batch, threads=128) as (bx, by, bz):
            at = (by + 1) * stretch - before + bx
            if at < length:
                for i, j in T.Parallel(key_heads, dim):
                    dK[bz, at, i, j] += early_dK[bz, by + 1, bx, i, j]
                for i, j in T.Parallel(key_heads, dim):
                    dV[bz, at, i, j] += early_dV[bz, by + 1, bx, i, j]

    return main


def ranges_of(batch, heads, length, window, key_heads):
    """How many blocks share a sequence, so that each multiprocessor has one, and each block has
    more positions than its queries see before them."""
    walk = Walk.of(heads, key_heads, length, window, 1)
    return max(min(processors() // (batch * key_heads), walk.steps // walk.chunks), 1)


def backward(tensors, log_sum, d_out, window):
    """dQ, dK, dV and dSinks of a result whose sums are `log_sum`, and which `attention` made of
    `tensors`. The result itself is not needed."""
    q, k, v, sinks = tensors
    batch, length, heads, dim = q.shape
    key_heads = k.shape[2]
    if padded(length) > length:
        log_sum = torch.nn.functional.pad(log_sum, (0, padded(length) - length))
    ranges = ranges_of(batch, heads, length, window, key_heads)
    kernel = gradients(batch, heads, length, dim, window, key_heads, ranges=ranges)
    d_q, d_k, d_v, parts, *early = kernel(q, k, v, d_out, log_sum, sinks)
    if ranges > 1:
        walk = Walk.of(heads, key_heads, length, window, ranges)
        stretch = walk.steps * walk.new
        add_early(batch, length, dim, key_heads, stretch, walk.before, ranges)(d_k, d_v, *early)
    # Row i of a step is head i % (heads // key_heads) of its group.
    d_sinks = parts.view(batch, key_heads, -1, heads // key_heads).sum((0, 2))
    return d_q, d_k, d_v, d_sinks.view(heads)


def relative_error(batch, heads, key_heads, length, dim, window, device="cpu"):
    """The largest of ||ours - float64|| / ||float64|| of the gradients."""
    tensors, d_out = case(batch, heads, key_heads, length, dim, device)
    _, log_sum = attention(batch, heads, length, dim, window, key_heads)(*tensors)
    found = backward(tensors, log_sum, d_out, window)
    return largest_error(found, wanted_gradients(tensors, d_out, window)[1:])


if __name__ == "__main__":
    check(relative_error, __doc__, windows=([128], [50]), heads=([64, 8], [8, 1]))
