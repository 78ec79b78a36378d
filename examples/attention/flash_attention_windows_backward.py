"""The gradients of attention with short windows and sinks (flash_attention_windows.py) in one
kernel: a block goes along a sequence, and what its window covers stays on the multiprocessor, so
that all tensors are read and written once. For Hopper. Check them against float64 autograd.

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

import tilelang
import tilelang.language as T

ROWS = T.GemmWarpPolicy.FullRow
# Rows of a tile: few positions of all heads that share keys. Two groups of warps take tiles in
# turn; one adds up dV of all tiles, the other dK, each transposed, (dim, keys).
TILE = 64
# Keys of the ring at most: a group has scores and slopes of a tile and its sums in registers.
MOST_KEYS = 144


def schedule():
    """Threads that load, and two groups that take tiles in turn. "tile" has Q, dO and LogSum, and
    "out" a group's Out; "ring" is the keys and values of a tile that is new in the ring. What both
    groups need are the weights of the second one's tiles and the slopes of the first one's."""
    depths = {"tile": 4, "out0": 1, "out1": 1, "ring": 2, "weights": 1, "slopes": 1}
    return T.WSSchedule(
        num_warps=12,
        roles={
            "load": T.WSRole(warps_lo=0, warps_hi=4, max_nreg=40),
            "values": T.WSRole(warps_lo=4, warps_hi=8, max_nreg=232),
            "keys": T.WSRole(warps_lo=8, warps_hi=12, max_nreg=232),
        },
        pipelines={name: T.WSPipeline(depth) for name, depth in depths.items()},
    )


@dataclass(frozen=True)
class Walk:
    """How a block goes along its part of a sequence, in tiles of `rows` positions. The keys of tile
    t are in chunk t % chunks of the ring. A tile sees the keys of `seen` tiles, its own the newest;
    the next tile's keys overwrite a chunk that it does not see."""

    packed: int
    rows: int
    seen: int
    chunks: int
    window: int
    tiles: int
    """Tiles whose keys and queries are the block's; of queries behind them it needs the windows."""

    @staticmethod
    def of(heads, key_heads, length, window, ranges):
        packed = heads // key_heads
        rows = TILE // packed
        seen = math.ceil((window - 1) / rows) + 1
        chunks = next(c for c in range(seen + 1, seen + 18) if c * rows % 16 == 0)
        tiles = math.ceil(length / (rows * ranges))
        return Walk(packed, rows, seen, chunks, window, tiles + tiles % 2)

    @property
    def keys(self):
        return self.chunks * self.rows

    @property
    def pairs(self):
        return (self.tiles + self.seen) // 2 + 1

    def chunk(self, tile):
        return (tile + self.chunks) % self.chunks


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
def mask_by(walk, weights, newest):
    """Put 0 where row i does not see key j of the ring, whose newest keys are in that chunk."""
    rows = walk.rows
    for age in T.unroll(walk.chunks, explicit=True):
        column = (newest - age) % walk.chunks * rows
        behind = age * rows - walk.window  # of its keys, row 0 misses those up to this one
        if age >= walk.seen:
            for i, j in T.Parallel(TILE, rows):
                weights[i, column + j] = 0
        elif age == 0 or behind + rows > 0:
            for i, j in T.Parallel(TILE, rows):
                position = i // walk.packed
                sees = j <= position if age == 0 else j > position + behind
                weights[i, column + j] = T.if_then_else(sees, weights[i, column + j], 0)


@T.macro
def mask(walk, weights, tile, chunks, begin):
    """Put 0 where a row of the tile does not see a key of the ring."""
    at_chunk(tile % walk.chunks, chunks, partial(mask_by, walk, weights))
    if begin + (tile - walk.seen + 1) * walk.rows < 0:
        # Tiles before the sequence's first one.
        for i, j in T.Parallel(TILE, walk.keys):
            first = begin + (tile - walk.chunk(tile % walk.chunks - j // walk.rows)) * walk.rows
            weights[i, j] = T.if_then_else(first >= 0, weights[i, j], 0)


@T.macro
def take(walk, sums, staged, factor, newest):
    """Move the sums of two chunks, up to that one, to `staged`."""
    for h in T.unroll(2, explicit=True):
        column = (newest - 1 + h) % walk.chunks * walk.rows
        for i, j in T.Parallel(sums.shape[0], walk.rows):
            staged[h * walk.rows + j, i] = sums[i, column + j] * factor
        for i, j in T.Parallel(sums.shape[0], walk.rows):
            sums[i, column + j] = 0


@T.macro
def retire(walk, sums, staged, gradient, tile, chunks, factor):
    """Store and clear the sums of the keys that `tile` and the one before it overwrite."""
    at_chunk(tile % walk.chunks, chunks, partial(take, walk, sums, staged, factor))
    old = tile - walk.chunks
    if old >= 0 and old < walk.tiles:
        T.copy(staged[walk.rows :, :], gradient(old))
    if old >= 1:
        T.copy(staged[: walk.rows, :], gradient(old - 1))


@T.macro
def fill(pipeline, version, source, tile):
    """Ask TMA for a tile."""
    T.tma_copy(source, tile, barrier=T.producer_barrier(pipeline, version))


@T.macro
def load(walk, of_tile, shared):
    """What the threads that load do. `of_tile` has, for each tensor, a function that returns the
    part of a number of tiles from a first one on."""
    rows = walk.rows
    new = [T.alloc_fragment((rows, x.shape[1]), x.dtype) for x in (shared.K, shared.V)]
    # Of the tile before the block's first one, which is multiplied by weights of 0.
    version = T.producer_acquire("tile")
    fill("tile", version, of_tile.Q(-1), shared.Q[version, :, :, :])
    fill("tile", version, of_tile.dO(-1), shared.dO[version, :, :, :])
    T.producer_commit("tile")
    for pair in T.serial(walk.pairs):
        for h in T.unroll(2, explicit=True):
            tile = 2 * pair + h
            T.copy(of_tile.K(tile), new[0])
            T.copy(of_tile.V(tile), new[1])
            version = T.producer_acquire("tile")
            fill("tile", version, of_tile.Q(tile), shared.Q[version, :, :, :])
            fill("tile", version, of_tile.dO(tile), shared.dO[version, :, :, :])
            fill("tile", version, of_tile.LogSum(tile), shared.log_sum[version, :, :])
            T.producer_commit("tile")
            out = T.producer_acquire(f"out{h}")
            fill(f"out{h}", out, of_tile.Out(tile), shared.Out[h])
            T.producer_commit(f"out{h}")
            T.producer_acquire("ring")
            if h == 0 and pair == 0:
                T.copy(of_tile.K(1 - walk.chunks, walk.chunks - 1), shared.K[rows:, :])
                T.copy(of_tile.V(1 - walk.chunks, walk.chunks - 1), shared.V[rows:, :])
            first = tile % walk.chunks * rows
            T.copy(new[0], shared.K[first : first + rows, :])
            T.copy(new[1], shared.V[first : first + rows, :])
            T.producer_commit("ring")


@T.macro
def weigh(walk, scores, log_sum, weights, tile, chunks, begin, scale):
    """Weights of the scores."""
    for i, j in T.Parallel(TILE, walk.keys):
        scores[i, j] = T.exp2(scores[i, j] * scale - log_sum[i])
    mask(walk, scores, tile, chunks, begin)
    T.copy(scores, weights)


@T.macro
def row_values(walk, shared, h, version, product, delta, log_sum):
    """Delta, the sums of Out * dO over a head, and LogSum of a tile."""
    for i, j in T.Parallel(*product.shape):
        row, head = i // walk.packed, i % walk.packed
        out = T.cast(shared.Out[h][row, head, j], T.float32)
        product[i, j] = out * shared.dO[version, row, head, j]
    T.reduce_sum(product, delta, dim=1)
    for i in T.Parallel(TILE):
        log_sum[i] = shared.log_sum[version, i % walk.packed, i // walk.packed]


@T.macro
def multiply(h, walk, of_tile, shared, begin, sinks, sink_sum):
    """What group h does with every other tile: the weights P = exp(Q K^T - LogSum), the slopes
    dS = P * (dO V^T - Delta) and dQ = dS K. The first group adds up dV = P^T dO, the other one
    dK = dS^T Q: of its tile and of the one before, which is the other group's."""
    # Where the keys of this group's tiles are in the ring.
    chunks = list(range(h, walk.chunks, 2) if walk.chunks % 2 == 0 else range(walk.chunks))
    keys, dim, dtype = walk.keys, shared.K.shape[1], shared.K.dtype
    scale = LOG2_E / dim**0.5
    Q, dO = (T.reshape(x, (4, TILE, dim)) for x in (shared.Q, shared.dO))
    made, given = (("slopes", "weights"), ("weights", "slopes"))[h]
    summed, rows_of = ((shared.weights, dO), (shared.slopes, Q))[h]
    gradient, factor = ((of_tile.dV, 1.0), (of_tile.dK, dim**-0.5))[h]
    product = T.alloc_fragment((TILE, dim), T.float32)
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
    before = T.alloc_var("int32", T.consumer_wait("tile"))
    if h == 1:
        T.consumer_release("tile")
        # Weights of the tile before the block's first one are 0.
        T.producer_acquire("weights")
        T.producer_commit("weights")
    for pair in T.serial(walk.pairs):
        tile = 2 * pair + h
        if h == 1:
            before = T.consumer_wait("tile")
            T.consumer_wait("ring")
            T.consumer_release("ring")
        own = T.consumer_wait("tile")
        T.consumer_wait("ring")
        T.wgmma_gemm(
            Q[own, :, :], shared.K, scores, transpose_B=True, policy=ROWS, clear_accum=True
        )
        T.consumer_wait(f"out{h}")
        row_values(walk, shared, h, own, product, delta, log_sum)
        T.consumer_release(f"out{h}")
        if tile < walk.tiles:
            for i in T.Parallel(TILE):
                sink_sum[i] -= T.exp2(sinks[i] - log_sum[i]) * delta[i]
        retire(walk, sums, shared.sums[h], gradient, tile, chunks, factor)
        T.wait_wgmma(0)
        weigh(walk, scores, log_sum, weights, tile, chunks, begin, scale)
        if h == 1:
            T.producer_acquire(made)
        T.copy(weights, shared.weights[h])
        if h == 1:
            T.producer_commit(made)
        T.wgmma_gemm(
            *(dO[own, :, :], shared.V, slopes), transpose_B=True, policy=ROWS, clear_accum=True
        )
        T.consumer_wait(given)
        T.wgmma_gemm(rows_of[before, :, :], summed[1 - h], sums, transpose_A=True, policy=ROWS)
        T.wait_wgmma(1)
        for i, j in T.Parallel(TILE, keys):
            slopes_cast[i, j] = weights[i, j] * (slopes[i, j] - delta[i])
        if h == 0:
            T.producer_acquire(made)
        T.copy(slopes_cast, shared.slopes[h])
        if h == 0:
            T.producer_commit(made)
        T.wgmma_gemm(slopes_cast, shared.K, dQ_local, policy=ROWS, clear_accum=True)
        T.wgmma_gemm(rows_of[own, :, :], summed[h], sums, transpose_A=True, policy=ROWS)
        T.wait_wgmma(1)
        T.consumer_release("ring")
        if h == 0:
            T.consumer_wait("ring")
            T.consumer_release("ring")
        T.consumer_release(given)
        T.consumer_release("tile")
        if tile < walk.tiles:
            for i, j in T.Parallel(TILE, dim):
                dQ_local[i, j] = dQ_local[i, j] * dim**-0.5
            T.copy(dQ_local, dQ_rows)
            T.copy(shared.dQ[h], of_tile.dQ(tile))
        T.wait_wgmma(0)
        T.consumer_release("tile")
        if h == 0:
            before = T.consumer_wait("tile")
    if h == 0:
        # Weights of queries behind those that see the block's keys.
        T.consumer_wait("weights")
        T.consumer_release("weights")
        T.consumer_release("tile")
        retire(walk, sums, shared.sums[h], gradient, 2 * walk.pairs, chunks, factor)


@tilelang.jit(target={"kind": "cuda", "arch": "sm_90a"}, pass_configs=FAST_MATH)
def gradients(batch, heads, length, dim, window, key_heads=None, dtype=T.float16, ranges=1):
    """dQ, dK, dV, and parts of the sinks' gradients, (2, batch, key_heads, ranges, TILE): of rows
    of tiles. `ranges` blocks share a sequence, each with a part of its queries and keys; sums are
    in a fixed order. Rows of LogSum have padded(length) elements."""
    key_heads = key_heads or heads
    walk = Walk.of(heads, key_heads, length, window, ranges)
    if walk.keys > MOST_KEYS:
        raise ValueError(f"a tile sees {walk.keys} keys, wanted at most {MOST_KEYS}")
    shape, key_shape = (batch, length, heads, dim), (batch, length, key_heads, dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(key_shape, dtype),
        V: T.Tensor(key_shape, dtype),
        Out: T.Tensor(shape, dtype),
        dO: T.Tensor(shape, dtype),
        LogSum: T.Tensor((batch, heads, padded(length)), T.float32),
        Sinks: T.Tensor((heads,), T.float32),
    ):
        dQ, dK, dV = T.empty(shape, dtype), T.empty(key_shape, dtype), T.empty(key_shape, dtype)
        dSinks = T.empty((2, batch, key_heads, ranges, TILE), T.float32)
        with T.Kernel(ranges, key_heads, batch, threads=384) as (bx, by, bz):
            T.annotate_ws_schedule(schedule())
            tile, keys = (walk.rows, walk.packed, dim), (walk.keys, dim)
            shared = SimpleNamespace(
                Q=T.alloc_shared((4, *tile), dtype),
                dO=T.alloc_shared((4, *tile), dtype),
                log_sum=T.alloc_shared((4, walk.packed, walk.rows), T.float32),
                K=T.alloc_shared(keys, dtype),
                V=T.alloc_shared(keys, dtype),
                **{
                    name: [T.alloc_shared(size, dtype) for _ in range(2)]
                    for name, size in (
                        ("Out", tile),
                        ("dQ", tile),
                        ("weights", (TILE, walk.keys)),
                        ("slopes", (TILE, walk.keys)),
                        ("sums", (2 * walk.rows, dim)),
                    )
                },
            )
            begin, head = bx * walk.tiles * walk.rows, by * walk.packed

            def positions(tile, tiles=1):
                return slice(begin + tile * walk.rows, begin + (tile + tiles) * walk.rows)

            group = slice(head, head + walk.packed)
            of_tile = SimpleNamespace(
                LogSum=lambda tile: LogSum[bz, group, positions(tile)],
                **{
                    name: lambda tile, x=x: x[bz, positions(tile), group, :]
                    for name, x in (("Q", Q), ("dO", dO), ("Out", Out), ("dQ", dQ))
                },
                **{
                    name: lambda *tiles, x=x: x[bz, positions(*tiles), by, :]
                    for name, x in (("K", K), ("V", V), ("dK", dK), ("dV", dV))
                },
            )
            T.clear(shared.weights[1])
            T.sync_threads()
            with T.ws_role("load"):
                load(walk, of_tile, shared)
            for h, role in enumerate(("values", "keys")):
                with T.ws_role(role):
                    sinks = T.alloc_fragment((TILE,), T.float32)
                    sink_sum = T.alloc_fragment((TILE,), T.float32)
                    for i in T.Parallel(TILE):
                        sinks[i] = Sinks[head + i % walk.packed] * LOG2_E
                    multiply(h, walk, of_tile, shared, begin, sinks, sink_sum)
                    for i in T.Parallel(TILE):
                        dSinks[h, bz, by, bx, i] = sink_sum[i]
        return dQ, dK, dV, dSinks

    return main


def ranges_of(batch, key_heads):
    """How many blocks share a sequence, so that each multiprocessor has one."""
    return max(processors() // (batch * key_heads), 1)


def backward(tensors, out, log_sum, d_out, window):
    """dQ, dK, dV and dSinks of `out` and `log_sum`, which `attention` made of `tensors`."""
    q, k, v, sinks = tensors
    batch, length, heads, dim = q.shape
    key_heads = k.shape[2]
    if padded(length) > length:
        log_sum = torch.nn.functional.pad(log_sum, (0, padded(length) - length))
    sizes = (batch, heads, length, dim, window, key_heads)
    kernel = gradients(*sizes, ranges=ranges_of(batch, key_heads))
    d_q, d_k, d_v, parts = kernel(q, k, v, out, d_out, log_sum, sinks)
    # Row i of a tile is head i % (heads // key_heads) of its group.
    d_sinks = parts.view(2, batch, key_heads, -1, heads // key_heads).sum((0, 1, 3))
    return d_q, d_k, d_v, d_sinks.view(heads)


def relative_error(batch, heads, key_heads, length, dim, window, device="cpu"):
    """The largest of ||ours - float64|| / ||float64|| of the gradients."""
    torch.manual_seed(0)
    tensors = inputs(batch, heads, length, dim, key_heads, device=device)
    tensors.append(torch.randn(heads, device=device))
    d_out = torch.randn_like(tensors[0])
    out, log_sum = attention(batch, heads, length, dim, window, key_heads)(*tensors)
    found = backward(tensors, out, log_sum, d_out, window)
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
    length, window, heads = arguments.length, arguments.window, arguments.heads
    error = relative_error(1, *heads, length, 64, window, "cuda" if gpu else "cpu")
    assert error < 2e-3, f"relative error {error:.1e}, wanted under 2e-3"
    print(f"length {length}, window {window}: relative error {error:.1e}")
