"""What is before a layer of hyper-connections (hyper_connections.py) for Hopper, with each stream
read once. A cluster of 16 blocks has all columns, each block a part of each stream's. Its part of W
stays in registers, and tiles of 16 tokens go through its shared memory. All sums of a token meet in
one of the blocks, which sends the weights of the streams back. Check it against float64.

Bytes that come from another block do not tell what it has read. So blocks arrive at each other's
mbarriers beside them: what they have read may then be overwritten. They publish nothing by that,
and `scope="cta"` is enough.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from hyper_connections import EPS, STREAMS, WEIGHTS, balance, inputs, reference

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
# Blocks of a cluster, which lie in one GPC. A block sums up one token of a tile.
BLOCKS = 16
# Multiprocessors of a GPC at most.
GPC = 18
# Tiles that a block has in shared memory.
SLOTS = 5
# Warp groups that multiply, each the same number of streams, and those that weigh the streams.
GROUPS, WEIGHERS = 2, 2
# Registers of a thread that multiplies, that weighs the streams, and of the others.
REGISTERS = 168, 48, 48
# A token's products, the sum of its squares, and what makes them whole pieces of 16 bytes.
SUMS = 28
ROWS = T.GemmWarpPolicy.FullRow


class Slots:
    """Tiles, what becomes of them, and the mbarriers that say what is there."""

    def __init__(self, columns):
        def versions(*shape, dtype="float32"):
            return T.alloc_shared((SLOTS, *shape), dtype)

        self.x = versions(STREAMS, BLOCKS, columns, dtype="bfloat16")
        # This block's sums for each token, and those of all blocks for the token of this one.
        self.part, self.parts = versions(BLOCKS, GROUPS, SUMS), versions(BLOCKS, SUMS)
        # The weights of that token's streams, and those of all tokens'.
        self.gate, self.gates = versions(STREAMS), versions(BLOCKS, STREAMS)
        # Warps that multiply, that weigh and that send free a slot.
        users = 4 * (GROUPS + WEIGHERS) + 2
        self.loaded, self.summed, self.free = (
            T.alloc_barrier([count] * SLOTS) for count in (1, 4 * GROUPS, users)
        )
        self.gathered, self.weighed = (T.alloc_barrier([1 + BLOCKS] * SLOTS) for _ in range(2))


@T.macro
def arrive(barriers, s):
    T.sync_warp()
    if T.get_lane_idx() == 0:
        T.mbarrier_arrive(barriers[s])


@T.macro
def load_weights(W, w, first, hidden):
    """Each row of W as two of bfloat16 whose sum it is, eight below each other: a thread has both
    products with them."""
    for half, tile in enumerate(w):
        for r, k in T.Parallel(*tile.shape):
            value = W[r // 16 * 8 + r % 8, first + half * hidden + k]
            rest = value - T.cast(T.cast(value, "bfloat16"), "float32")
            tile[r, k] = T.if_then_else(r // 8 % 2 == 0, value, rest)


@T.macro
def multiply(slots, w, product, squares, square, g, n):
    """Products of tile n with some streams' part of W, and sums of squares."""
    s, count, step = n % SLOTS, STREAMS // GROUPS, squares.shape[1]
    T.mbarrier_wait_parity(slots.loaded[s], n // SLOTS % 2)
    for i in T.unroll(count, explicit=True):
        tile = slots.x[s, count * g + i, :, :]
        T.wgmma_gemm(w[i], tile, product, transpose_B=True, policy=ROWS, clear_accum=i == 0)
    T.clear(squares)
    for i in T.unroll(count):
        for c in T.unroll(slots.x.shape[3] // step):
            for t, j in T.Parallel(BLOCKS, step):
                value = T.cast(slots.x[s, count * g + i, t, c * step + j], "float32")
                squares[t, j] += value * value
    T.reduce_sum(squares, square, dim=1)
    T.wait_wgmma(0)
    for i, r, t in T.Parallel(WEIGHTS // 8, 8, BLOCKS):
        slots.part[s, t, g, i * 8 + r] = product[i * 16 + r, t] + product[i * 16 + 8 + r, t]
    for t in T.Parallel(BLOCKS):
        slots.part[s, t, g, WEIGHTS] = square[t]
    arrive(slots.summed, s)
    arrive(slots.free, s)


@T.macro
def weigh(slots, Layer, layer, token, first, n):
    """The weighted sum of the streams."""
    s = n % SLOTS
    # This thread knows that the phase before has ended; one that gathers does not.
    if T.get_thread_binding() == 128 * GROUPS:
        T.mbarrier_arrive_expect_tx(slots.weighed[s], BLOCKS * STREAMS * 4)
    T.mbarrier_wait_parity(slots.loaded[s], n // SLOTS % 2)
    T.mbarrier_wait_parity(slots.weighed[s], n // SLOTS % 2)
    T.clear(layer)
    for k in T.unroll(STREAMS):
        for t, j in T.Parallel(*layer.shape):
            layer[t, j] += slots.gates[s, t, k] * slots.x[s, k, t, j]
    # The next tile need not wait for the stores.
    arrive(slots.free, s)
    T.copy(layer, Layer[token, first])


@T.macro
def load(X, slots, token, first, n):
    s, columns = n % SLOTS, slots.x.shape[3]
    T.mbarrier_wait_parity(slots.free[s], n // SLOTS % 2 ^ 1)
    for k in T.unroll(STREAMS):
        source = X[token : token + BLOCKS, k, first : first + columns]
        T.tma_copy(source, slots.x[s, k, :, :], barrier=slots.loaded[s])
    arrive(slots.loaded, s)


@T.macro
def send(slots, rank, half, n):
    """The sums of half of the tokens to their blocks, each block beginning with another one."""
    s, lane, tokens = n % SLOTS, T.get_lane_idx(), BLOCKS // 2
    T.mbarrier_wait_parity(slots.summed[s], n // SLOTS % 2)
    for i in T.unroll(tokens):
        t = half * tokens + i
        if lane <= WEIGHTS:
            for g in T.unroll(1, GROUPS):
                slots.part[s, t, 0, lane] += slots.part[s, t, g, lane]
        elif lane < SUMS:
            slots.part[s, t, 0, lane] = 0
    T.fence_proxy_async()
    T.sync_warp()
    for i in T.serial(tokens):
        to = half * tokens + (rank + i) % tokens
        T.copy_cluster(
            slots.part[s, to, 0, :],
            slots.parts[s, rank, :],
            dst_block=to,
            remote_barrier=slots.gathered[s],
        )
    # This block has read what the others sent it before.
    if lane < tokens:
        T.mbarrier_arrive(slots.gathered[s], half * tokens + lane, scope="cta")
    arrive(slots.free, s)


@T.macro
def gather(slots, tensors, bias, token, rank, n):
    """The products and the scale of this block's token, and the weights of its streams, which all
    blocks get. No block is more than `SLOTS` tiles ahead of another: it waits for all weights."""
    (X, Products, Scale), s, lane = tensors, n % SLOTS, T.get_lane_idx()
    if lane == 0:
        T.mbarrier_arrive_expect_tx(slots.gathered[s], BLOCKS * SUMS * 4)
    T.mbarrier_wait_parity(slots.gathered[s], n // SLOTS % 2)
    total = T.alloc_var("float32")
    total = T.float32(0)
    for b in T.unroll(BLOCKS):
        total += slots.parts[s, b, T.min(lane, WEIGHTS)]
    scale = T.rsqrt(T.shfl_sync(total, WEIGHTS) / (STREAMS * X.shape[2]) + EPS)
    if lane < STREAMS:
        slots.gate[s, lane] = T.sigmoid(total * scale + bias)
    T.fence_proxy_async()
    T.sync_warp()
    for i in T.serial(BLOCKS):
        T.copy_cluster(
            slots.gate[s, :],
            slots.gates[s, rank, :],
            dst_block=(rank + i) % BLOCKS,
            remote_barrier=slots.weighed[s],
        )
    if lane < BLOCKS:
        T.mbarrier_arrive(slots.weighed[s], lane, scope="cta")
    if token < X.shape[0]:
        Products[token, lane] = T.if_then_else(lane < WEIGHTS, total, 0)
        if lane == 0:
            Scale[token] = scale


@T.macro
def balance_all(Products, Scale, Bias, Post, Mix, first, weights):
    """The other weights of a tile's tokens."""
    tokens = weights.shape[0]
    mix = T.alloc_fragment((tokens, STREAMS, STREAMS), "float32")
    rows, columns = [T.alloc_fragment((tokens, STREAMS), "float32") for _ in range(2)]
    for i, j in T.Parallel(tokens, 32):
        weights[i, j] = Products[first + i, j] * Scale[first + i] + Bias[j]
    for i, s in T.Parallel(tokens, STREAMS):
        if first + i < Post.shape[0]:
            Post[first + i, s] = 2 * T.sigmoid(weights[i, STREAMS + s])
    balance(weights, mix, rows, columns, None)
    T.copy(mix, Mix[first, 0, 0])


def processors():
    """Multiprocessors of the GPU; a few where there is none."""
    if not torch.cuda.is_available():
        return GPC
    return torch.cuda.get_device_properties().multi_processor_count


def pre(hidden, clusters=None, tokens=32):
    """As hyper_connections.pre, whose product is one of tf32; W has 16 bits of mantissa here."""
    columns = hidden // BLOCKS
    if hidden % (64 * BLOCKS) or columns > 256:
        raise ValueError(
            f"found streams of {hidden}, wanted 1024, 2048, 3072 or 4096: threads have W in "
            "registers; hyper_connections.pre takes others"
        )
    clusters = clusters or processors() // GPC
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        W: T.Tensor((32, STREAMS * hidden), "float32"),
        Bias: T.Tensor((32,), "float32"),
        Layer: T.Tensor((length, hidden), "bfloat16"),
        Post: T.Tensor((length, STREAMS), "float32"),
        Mix: T.Tensor((length, STREAMS, STREAMS), "float32"),
        Products: T.Tensor((length, 32), "float32"),
        Scale: T.Tensor((length,), "float32"),
    ):
        threads = 128 * (GROUPS + WEIGHERS + 1)
        with T.Kernel(clusters * BLOCKS, threads=threads, cluster_dims=BLOCKS) as bx:
            rank, cluster = bx % BLOCKS, bx // BLOCKS
            slots, first = Slots(columns), rank * columns
            turns = T.ceildiv(T.ceildiv(length, BLOCKS) - cluster, clusters)
            with T.ws(*range(GROUPS), each=True) as g:
                T.set_max_nreg(REGISTERS[0], True)
                own = STREAMS // GROUPS
                w = [T.alloc_fragment((64, columns), "bfloat16") for _ in range(own)]
                product = T.alloc_fragment((64, BLOCKS), "float32")
                squares = T.alloc_fragment((BLOCKS, 64), "float32")
                square = T.alloc_fragment((BLOCKS,), "float32")
                load_weights(W, w, own * g * hidden + first, hidden)
                for n in T.serial(turns):
                    multiply(slots, w, product, squares, square, g, n)
            with T.ws(*range(GROUPS, GROUPS + WEIGHERS)):
                T.set_max_nreg(REGISTERS[1], False)
                layer = T.alloc_fragment((BLOCKS, columns), "float32")
                for n in T.serial(turns):
                    weigh(slots, Layer, layer, (n * clusters + cluster) * BLOCKS, first, n)
            with T.ws(GROUPS + WEIGHERS):
                T.set_max_nreg(REGISTERS[2], False)
                warp = T.get_warp_idx() % 4
                if warp == 0:
                    for n in T.serial(turns):
                        load(X, slots, (n * clusters + cluster) * BLOCKS, first, n)
                elif warp == 1:
                    for n in T.serial(turns):
                        send(slots, rank, 0, n)
                elif warp == 2:
                    for n in T.serial(turns):
                        send(slots, rank, 1, n)
                else:
                    bias = Bias[T.get_lane_idx() % STREAMS]
                    for n in T.serial(turns):
                        token = (n * clusters + cluster) * BLOCKS + rank
                        gather(slots, (X, Products, Scale), bias, token, rank, n)
        with T.Kernel(T.ceildiv(length, tokens), threads=128) as bx:
            T.pdl_sync()
            weights = T.alloc_shared((tokens, 32), "float32")
            balance_all(Products, Scale, Bias, Post, Mix, bx * tokens, weights)

    return main


def relative_error(length, hidden, device="cpu"):
    """The largest of ||ours - float64|| / ||float64|| of the layer's input, Post and Mix."""
    torch.manual_seed(0)
    x, w, bias = inputs(length, hidden, device)
    layer = torch.empty(length, hidden, dtype=x.dtype, device=device)
    shapes = (STREAMS,), (STREAMS, STREAMS), (32,), ()
    found = [layer, *(torch.empty(length, *shape, device=device) for shape in shapes)]
    tilelang.compile(pre(hidden), target=HOPPER)(x, w, bias, *found)
    pairs = zip(found[:3], reference(x, w, bias), strict=True)
    return max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=[4096, 4096] if gpu else [133, 1024])
    length, hidden = parser.parse_args().size
    error = relative_error(length, hidden, "cuda" if gpu else "cpu")
    assert error < 5e-3, f"relative error {error:.1e}, wanted under 5e-3"
    print(f"{length} x {STREAMS} x {hidden}: relative error {error:.1e}")
