"""The gradients of attention with short windows and sinks (flash_attention_windows.py) in one
kernel: a block goes along a sequence, and what its window covers stays on the multiprocessor:
tensors are read and written about once, and nothing is added up atomically, so that a call repeats
the bits of another one. For Hopper. Check them against float64 autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import torch
from flash_attention import LOG2_E, inputs, processors
from flash_attention_backward import FAST_MATH, padded
from flash_attention_windows import attention, reference
from flash_attention_windows_forward import ROWS, TILE, check_heads, fill, schedule

import tilelang
import tilelang.language as T

# A step has two tiles, one for each of two groups of warps. One of them adds up dV of both tiles,
# the other one dK, each transposed, (dim, keys).

# Keys of the ring at most: a group has scores and slopes of a tile and its sums in registers.
MOST_KEYS = 144
# Steps whose tiles a block has: one in use, and those that are loaded ahead.
DEPTH = 3
# Registers of a thread that loads, and of one of each group.
REGISTERS = {"load": 40, "values": 232, "keys": 232}
# "tiles" has Q, dO and LogSum of a step, "ring" the keys and values. Both groups need the weights
# of the second one's tile and the slopes of the first one's.
DEPTHS = {"tiles": DEPTH, "ring": 1, "weights": 1, "slopes": 1}


@dataclass(frozen=True)
class Walk:
    """How a block goes along its part of a sequence: `rows` positions a tile, `new` a step. The
    keys of step s are in chunk s % chunks of the ring, which has all keys that the step sees."""

    packed: int
    rows: int
    new: int
    chunks: int
    window: int
    steps: int
    """Steps whose keys and queries are the block's. Behind them are queries that see its keys."""

    @staticmethod
    def of(heads, key_heads, length, window, ranges):
        packed = heads // key_heads
        rows = TILE // packed
        new = 2 * rows
        # Two, as one is filled while the products still need the others.
        chunks = max(math.ceil((window - 1) / new) + 1, 2)
        while chunks * new % 16:  # products take 16 keys at once
            chunks += 1
        return Walk(packed, rows, new, chunks, window, math.ceil(length / (new * ranges)))

    @property
    def keys(self):
        return self.chunks * self.new

    @property
    def all_steps(self):
        return self.steps + self.chunks - 1


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


@T.macro
def mask_by(walk, weights, h, newest):
    """Put 0 where row i does not see key j of the ring, whose newest keys are in that chunk."""
    for age in T.unroll(walk.chunks, explicit=True):
        column = (newest - age) % walk.chunks * walk.new
        behind = age * walk.new - walk.window  # the step's first position misses keys up to it
        if age == 0 or behind + walk.new > 0:
            for i, j in T.Parallel(TILE, walk.new):
                position = h * walk.rows + i // walk.packed
                sees = j > position + behind
                if age == 0:
                    sees = sees and j <= position
                weights[i, column + j] = T.if_then_else(sees, weights[i, column + j], 0)


@T.macro
def mask(walk, weights, h, step, begin):
    """Put 0 where a row of the tile does not see a key of the ring."""
    chunks = list(range(walk.chunks))
    at_chunk(step % walk.chunks, chunks, partial(mask_by, walk, weights, h))
    if begin + (step - walk.chunks + 1) * walk.new < 0:
        # Steps before the sequence's first one.
        for i, j in T.Parallel(TILE, walk.keys):
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
def retire(walk, sums, staged, gradient, step, factor):
    """Store and clear the sums of the keys that those of `step` overwrite."""
    chunks = list(range(walk.chunks))
    at_chunk(step % walk.chunks, chunks, partial(take, walk, sums, staged, factor))
    if step >= walk.chunks:
        T.copy(staged, gradient(step - walk.chunks))


@T.macro
def load(walk, of_step, shared):
    """What the threads that load do. `of_step` has, for each tensor, a function that returns the
    part of a number of steps from a first one on."""
    new = [T.alloc_fragment((walk.new, x.shape[1]), x.dtype) for x in (shared.K, shared.V)]
    for step in T.serial(walk.all_steps):
        T.copy(of_step.K(step), new[0])
        T.copy(of_step.V(step), new[1])
        version = T.producer_acquire("tiles")
        fill("tiles", version, of_step.Q(step), shared.Q[version, :, :, :])
        fill("tiles", version, of_step.dO(step), shared.dO[version, :, :, :])
        fill("tiles", version, of_step.LogSum(step), shared.log_sum[version, :, :])
        T.producer_commit("tiles")
        T.producer_acquire("ring")
        if step == 0:
            T.copy(of_step.K(1 - walk.chunks, walk.chunks - 1), shared.K[walk.new :, :])
            T.copy(of_step.V(1 - walk.chunks, walk.chunks - 1), shared.V[walk.new :, :])
        first = step % walk.chunks * walk.new
        T.copy(new[0], shared.K[first : first + walk.new, :])
        T.copy(new[1], shared.V[first : first + walk.new, :])
        T.producer_commit("ring")


@T.macro
def weigh(walk, scores, log_sum, weights, h, step, begin, scale):
    """Weights of the scores."""
    for i, j in T.Parallel(TILE, walk.keys):
        scores[i, j] = T.exp2(scores[i, j] * scale - log_sum[i])
    mask(walk, scores, h, step, begin)
    T.copy(scores, weights)


@T.macro
def multiply(h, walk, of_step, shared, begin, sinks, sink_sum):
    """What group h does with its tile of each step: the weights P = exp(Q K^T - LogSum), the slopes
    dS = P * (dO V^T - Delta), where Delta is a row's sum of P * dO V^T, and dQ = dS K / sqrt(dim).
    The first group adds up dV = P^T dO, the other one dK = dS^T Q / sqrt(dim), of both tiles. The
    slopes are rounded without that factor, so that fewer of them underflow in float16."""
    keys, dim, dtype = walk.keys, shared.K.shape[1], shared.K.dtype
    scale = LOG2_E / dim**0.5
    Q, dO = (T.reshape(x, (DEPTH, 2, TILE, dim)) for x in (shared.Q, shared.dO))
    given = ("weights", "slopes")[h]
    summed, rows_of = ((shared.weights, dO), (shared.slopes, Q))[h]
    gradient, factor = ((of_step.dV, 1.0), (of_step.dK, dim**-0.5))[h]
    log_sum = T.alloc_fragment((TILE,), T.float32)
    delta = T.alloc_fragment((TILE,), T.float32)
    scores = T.alloc_fragment((TILE, keys), T.float32)
    weights = T.alloc_fragment((TILE, keys), dtype)
    slopes = T.alloc_fragment((TILE, keys), T.float32)
    slopes_cast = T.alloc_fragment((TILE, keys), dtype)
    dQ_local = T.alloc_fragment((TILE, dim), T.float32)
    dQ_rows = T.reshape(shared.dQ[h], (TILE, dim))
    sums = T.alloc_fragment((dim, keys), T.float32)
    T.clear(sums)
    T.clear(sink_sum)
    for step in T.serial(walk.all_steps):
        version = T.consumer_wait("tiles")
        T.consumer_wait("ring")
        T.wgmma_gemm(
            *(Q[version, h, :, :], shared.K, scores),
            transpose_B=True,
            policy=ROWS,
            clear_accum=True,
        )
        for i in T.Parallel(TILE):
            row, head = h * walk.rows + i // walk.packed, i % walk.packed
            log_sum[i] = shared.log_sum[version, head, row]
        retire(walk, sums, shared.sums[h], gradient, step, factor)
        T.wait_wgmma(0)
        weigh(walk, scores, log_sum, weights, h, step, begin, scale)
        if h == 1:
            T.producer_acquire("weights")
        T.copy(weights, shared.weights[h])
        if h == 1:
            T.producer_commit("weights")
        T.wgmma_gemm(
            *(dO[version, h, :, :], shared.V, slopes),
            transpose_B=True,
            policy=ROWS,
            clear_accum=True,
        )
        T.wait_wgmma(0)
        for i, j in T.Parallel(TILE, keys):
            scores[i, j] = weights[i, j] * slopes[i, j]
        T.reduce_sum(scores, delta, dim=1)
        if step < walk.steps:
            for i in T.Parallel(TILE):
                # LogSum has the sink's weight, but is 0 behind the sequence's end.
                sink_sum[i] -= T.exp2(T.min(sinks[i] - log_sum[i], 0)) * delta[i]
        for i, j in T.Parallel(TILE, keys):
            slopes_cast[i, j] = weights[i, j] * T.cast(slopes[i, j] - delta[i], dtype)
        if h == 0:
            T.producer_acquire("slopes")
        T.copy(slopes_cast, shared.slopes[h])
        if h == 0:
            T.producer_commit("slopes")
        T.wgmma_gemm(slopes_cast, shared.K, dQ_local, policy=ROWS, clear_accum=True)
        T.wgmma_gemm(rows_of[version, h, :, :], summed[h], sums, transpose_A=True, policy=ROWS)
        T.consumer_wait(given)
        other = 1 - h
        T.wgmma_gemm(
            rows_of[version, other, :, :], summed[other], sums, transpose_A=True, policy=ROWS
        )
        T.wait_wgmma(2)
        T.consumer_release("ring")
        if step < walk.steps:
            for i, j in T.Parallel(TILE, dim):
                dQ_local[i, j] = dQ_local[i, j] * dim**-0.5
            T.copy(dQ_local, dQ_rows)
            T.copy(shared.dQ[h], of_step.dQ(step, h))
        T.wait_wgmma(0)
        T.consumer_release(given)
        T.consumer_release("tiles")
    retire(walk, sums, shared.sums[h], gradient, walk.all_steps, factor)


@tilelang.jit(target={"kind": "cuda", "arch": "sm_90a"}, pass_configs=FAST_MATH)
def gradients(batch, heads, length, dim, window, key_heads, dtype=T.float16, ranges=1):
    """dQ, dK, dV, and parts of the sinks' gradients, (2, batch, key_heads, ranges, TILE): of rows
    of tiles. `ranges` blocks share a sequence, each with a part of its queries and keys; sums are
    in a fixed order. Rows of LogSum have padded(length) elements. Heads are of 64 elements, and
    windows of at most 65, 97, 129, 137 and 141 keys where 2, 4, 8, 16 and 32 heads share keys."""
    other = "flash_attention_windows.backward"
    check_heads(heads, key_heads, dim, window, (2, 4, 8, 16, 32), other)
    walk = Walk.of(heads, key_heads, length, window, ranges)
    if walk.keys > MOST_KEYS:
        raise ValueError(
            f"found {walk.keys} keys of a step for a window of {window} where {walk.packed} heads "
            f"share keys, wanted at most {MOST_KEYS}; {other} takes others"
        )
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
        dSinks = T.empty((2, batch, key_heads, ranges, TILE), T.float32)
        with T.Kernel(ranges, key_heads, batch, threads=384) as (bx, by, bz):
            T.annotate_ws_schedule(schedule(REGISTERS, DEPTHS))
            tile, keys = (walk.rows, walk.packed, dim), (walk.keys, dim)
            shared = SimpleNamespace(
                Q=T.alloc_shared((DEPTH, 2 * walk.rows, walk.packed, dim), dtype),
                dO=T.alloc_shared((DEPTH, 2 * walk.rows, walk.packed, dim), dtype),
                log_sum=T.alloc_shared((DEPTH, walk.packed, walk.new), T.float32),
                K=T.alloc_shared(keys, dtype),
                V=T.alloc_shared(keys, dtype),
                **{
                    name: [T.alloc_shared(size, dtype) for _ in range(2)]
                    for name, size in (
                        ("dQ", tile),
                        ("weights", (TILE, walk.keys)),
                        ("slopes", (TILE, walk.keys)),
                        ("sums", (walk.new, dim)),
                    )
                },
            )
            begin, head = bx * walk.steps * walk.new, by * walk.packed

            group = slice(head, head + walk.packed)

            def positions(step, steps=1):
                return slice(begin + step * walk.new, begin + (step + steps) * walk.new)

            def of_group(step, h):
                first = begin + step * walk.new + h * walk.rows
                return slice(first, first + walk.rows)

            of_step = SimpleNamespace(
                Q=lambda step: Q[bz, positions(step), group, :],
                dO=lambda step: dO[bz, positions(step), group, :],
                LogSum=lambda step: LogSum[bz, group, positions(step)],
                dQ=lambda step, h: dQ[bz, of_group(step, h), group, :],
                K=lambda *steps: K[bz, positions(*steps), by, :],
                V=lambda *steps: V[bz, positions(*steps), by, :],
                dK=lambda step: dK[bz, positions(step), by, :],
                dV=lambda step: dV[bz, positions(step), by, :],
            )
            with T.ws_role("load"):
                load(walk, of_step, shared)
            for h, role in enumerate(("values", "keys")):
                with T.ws_role(role):
                    sinks = T.alloc_fragment((TILE,), T.float32)
                    sink_sum = T.alloc_fragment((TILE,), T.float32)
                    for i in T.Parallel(TILE):
                        sinks[i] = Sinks[head + i % walk.packed] * LOG2_E
                    multiply(h, walk, of_step, shared, begin, sinks, sink_sum)
                    for i in T.Parallel(TILE):
                        dSinks[h, bz, by, bx, i] = sink_sum[i]
        return dQ, dK, dV, dSinks

    return main


def ranges_of(batch, key_heads):
    """How many blocks share a sequence, so that each multiprocessor has one."""
    return max(processors() // (batch * key_heads), 1)


def backward(tensors, log_sum, d_out, window):
    """dQ, dK, dV and dSinks of a result whose sums are `log_sum`, and which `attention` made of
    `tensors`. The result itself is not needed."""
    q, k, v, sinks = tensors
    batch, length, heads, dim = q.shape
    key_heads = k.shape[2]
    if padded(length) > length:
        log_sum = torch.nn.functional.pad(log_sum, (0, padded(length) - length))
    sizes = (batch, heads, length, dim, window, key_heads)
    kernel = gradients(*sizes, ranges=ranges_of(batch, key_heads))
    d_q, d_k, d_v, parts = kernel(q, k, v, d_out, log_sum, sinks)
    # Row i of a tile is head i % (heads // key_heads) of its group.
    d_sinks = parts.view(2, batch, key_heads, -1, heads // key_heads).sum((0, 1, 3))
    return d_q, d_k, d_v, d_sinks.view(heads)


def relative_error(batch, heads, key_heads, length, dim, window, device="cpu"):
    """The largest of ||ours - float64|| / ||float64|| of the gradients."""
    torch.manual_seed(0)
    tensors = inputs(batch, heads, length, dim, key_heads, device=device)
    tensors.append(torch.randn(heads, device=device))
    d_out = torch.randn_like(tensors[0])
    _, log_sum = attention(batch, heads, length, dim, window, key_heads)(*tensors)
    found = backward(tensors, log_sum, d_out, window)
    leaves = [x.double().requires_grad_() for x in tensors]
    wanted = torch.autograd.grad(reference(*leaves, window), leaves, d_out.double())
    pairs = zip(found, wanted, strict=True)
    return max(float((x.double() - y).norm() / y.norm()) for x, y in pairs)


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=2048 if gpu else 150)
    parser.add_argument("--window", type=int, default=128 if gpu else 50)
    parser.add_argument("--heads", type=int, nargs=2, default=[64, 8] if gpu else [8, 1])
    arguments = parser.parse_args()
    length, window, (heads, key_heads) = arguments.length, arguments.window, arguments.heads
    error = relative_error(1, heads, key_heads, length, 64, window, "cuda" if gpu else "cpu")
    assert error < 2e-3, f"relative error {error:.1e}, wanted under 2e-3"
    print(f"length {length}, window {window}: relative error {error:.1e}")
