"""Causal attention in which a query sees the last `window` keys, with a sink: a logit of each head
that has no value (gpt-oss, OpenAI 2025); and its gradients. Check them against float64 autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math

import torch
from flash_attention import LOG2_E, NO_KEY, ROWS, check_heads, inputs, online_softmax, processors
from flash_attention_backward import FAST_MATH

import tilelang
import tilelang.language as T

# Of a product of which both operands have elements of a head side by side.
OF_HEADS = {"transpose_B": True, "policy": ROWS, "clear_accum": True}


@T.macro
def mask(tile, first, here, packed, window, otherwise):
    """Put `otherwise` into a tile where row i, of position first + i // packed, does not see key
    here + j: in the columns, and only in tiles, where some row does and another one does not."""
    rows, keys = tile.shape
    # Tiles of keys end with the last position: if one has all positions, only the last has them.
    newest = min(rows // packed, keys)
    if here + keys > first + 1:
        for i, j in T.Parallel(rows, newest):
            column = keys - newest + j
            seen = here + column <= first + i // packed
            tile[i, column] = T.if_then_else(seen, tile[i, column], otherwise)
    # If all keys that a position sees are in this tile, the oldest are its first.
    oldest = max(-(-(keys - window) // 8) * 8, 8) if keys >= rows // packed + window - 1 else keys
    if here < first + rows // packed - window:
        for i, j in T.Parallel(rows, oldest):
            seen = here + j > first + i // packed - window
            tile[i, j] = T.if_then_else(seen, tile[i, j], otherwise)
    if here < 0:
        for i, j in T.Parallel(rows, keys):
            tile[i, j] = T.if_then_else(here + j >= 0, tile[i, j], otherwise)


@T.macro
def divide(out, row_sum, row_max, sinks, head, packed, scale):
    """Divide a tile's result by the sums of its rows, with the sink; leave their logarithms."""
    for i in T.Parallel(row_sum.shape[0]):
        sink = sinks[head + i % packed] * LOG2_E
        row_sum[i] += T.exp2(sink - row_max[i] * scale)
    for i, j in T.Parallel(*out.shape):
        out[i, j] = out[i, j] / row_sum[i]
    for i in T.Parallel(row_sum.shape[0]):
        row_sum[i] = T.log2(row_sum[i]) + row_max[i] * scale


@T.macro
def put_rows(tensor, values, batch, head, first, packed):
    """Write one value of each row of a tile into a tensor (batch, heads, length): row i has
    position first + i // packed and head + i % packed."""
    for i in T.Parallel(values.shape[0]):
        if first + i // packed < tensor.shape[2]:
            tensor[batch, head + i % packed, first + i // packed] = values[i]


@T.macro
def weigh(tile, log_sum, scale, first, here, packed, window):
    """The scores of a tile become weights, 0 of what a row does not see."""
    for i, j in T.Parallel(*tile.shape):
        tile[i, j] = T.exp2(tile[i, j] * scale - log_sum[i])
    mask(tile, first, here, packed, window, 0)


@T.macro
def delta_of(out, d_out, packed, product, delta):
    """Sums of out * d_out over a head, of tiles (positions, packed, dim)."""
    for i, j in T.Parallel(*product.shape):
        value = T.cast(out[i // packed, i % packed, j], T.float32)
        product[i, j] = value * d_out[i // packed, i % packed, j]
    T.reduce_sum(product, delta, dim=1)


@T.macro
def mask_queries(tile, first, here, window):
    """Put 0 into a tile where query first + j does not see key here + i, if it has such a pair."""
    keys, rows = tile.shape
    if first < here + keys - 1:
        for i, j in T.Parallel(keys, rows):
            tile[i, j] = T.if_then_else(first + j >= here + i, tile[i, j], 0)
    if first + rows > here + window:
        for i, j in T.Parallel(keys, rows):
            tile[i, j] = T.if_then_else(first + j < here + i + window, tile[i, j], 0)


@T.macro
def scale_to(tile, shared, factor):
    """Put a tile, times `factor`, into shared memory."""
    for i, j in T.Parallel(*tile.shape):
        tile[i, j] = tile[i, j] * factor
    T.copy(tile, shared)


def check_sizes(heads, key_heads, length, window):
    """Refuse windows and sequences without a key, and heads that no head of keys is for."""
    for what, found in (("a window", window), ("a sequence", length)):
        if found < 1:
            raise ValueError(f"found {what} of {found}, wanted at least 1")
    check_heads(heads, key_heads)


def tiles(rows, length, window, block_N):
    """How many tiles of `rows` positions there are; the keys of a tile, and how many of these have
    all keys that the positions see. Without `block_N` they share them, with at most 80 each."""
    seen = rows + min(window, length) - 1
    block_N = block_N or -(-seen // -(-seen // 80) // 16) * 16
    return -(-length // rows), block_N, -(-seen // block_N)


@tilelang.jit(pass_configs=FAST_MATH)
def attention(
    batch,
    heads,
    length,
    dim,
    window,
    key_heads=None,
    dtype=T.float16,
    block_M=128,
    block_N=None,
    num_stages=2,
    threads=256,
    per_processor=1,
):
    """softmax(Q K^T / sqrt(dim)) V over the keys i - window < j <= i of query i and a sink, of
    Q (batch, length, heads, dim) and K and V of `key_heads` heads; and log2 of each row's sum of
    exponentials, (batch, heads, length) in float32. Blocks take tiles of rows in turn. Exponentials
    are relative to a row's largest score without the sink: where the sink is more than 88 above it,
    the sum is infinite.

    Rows of a tile are few positions of all heads that share keys, so that it needs hardly more
    keys than a row sees. Without `block_N`, tiles share them, with at most 80 each."""
    key_heads = key_heads or heads
    check_sizes(heads, key_heads, length, window)
    shape, key_shape = (batch, length, heads, dim), (batch, length, key_heads, dim)
    scale, blocks = LOG2_E / dim**0.5, processors() * per_processor
    packed = math.gcd(heads // key_heads, block_M)
    rows = block_M // packed  # positions of a tile
    row_tiles, block_N, key_tiles = tiles(rows, length, window, block_N)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(key_shape, dtype),
        V: T.Tensor(key_shape, dtype),
        Sinks: T.Tensor((heads,), T.float32),
    ):
        Output, LogSum = T.empty(shape, dtype), T.empty((batch, heads, length), T.float32)
        with T.Kernel(blocks, threads=threads) as block:
            T.annotate_min_blocks_per_sm(per_processor)
            Q_shared = T.alloc_shared((rows, packed, dim), dtype)
            K_shared, V_shared = (T.alloc_shared((block_N, dim), dtype) for _ in range(2))
            out_shared = T.alloc_shared((block_M, dim), dtype)
            # Positions and heads are rows of products.
            Q_rows = T.reshape(Q_shared, (block_M, dim))
            out_tile = T.reshape(out_shared, (rows, packed, dim))
            scores = T.alloc_fragment((block_M, block_N), T.float32)
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), T.float32)
            row_max, row_sum = (T.alloc_fragment((block_M,), T.float32) for _ in range(2))
            sinks = T.alloc_shared((heads,), T.float32)

            T.copy(Sinks, sinks)
            domain = [batch, heads // packed, row_tiles]
            for bz, by, bx in T.Persistent(domain, blocks, block, row_tiles):
                key_head = by * packed // (heads // key_heads)
                first, head = bx * rows, by * packed
                T.copy(Q[bz, first : first + rows, head : head + packed, :], Q_shared)
                if key_tiles > 1:
                    T.clear(out)
                T.clear(row_sum)
                T.fill(row_max, -T.infinity(T.float32))
                steps = T.min(T.ceildiv(first + rows, block_N), key_tiles)
                for step in T.Pipelined(steps, num_stages=num_stages):
                    # From the last keys on, so that masks of the newest stand in front of the loop.
                    here = first + rows - (step + 1) * block_N
                    T.copy(K[bz, here : here + block_N, key_head, :], K_shared)
                    T.gemm(Q_rows, K_shared, scores, **OF_HEADS)
                    mask(scores, first, here, packed, window, NO_KEY)
                    online_softmax(scores, out if key_tiles > 1 else None, row_max, row_sum, scale)
                    T.copy(scores, weights)
                    T.copy(V[bz, here : here + block_N, key_head, :], V_shared)
                    T.gemm(weights, V_shared, out, policy=ROWS, clear_accum=key_tiles == 1)
                divide(out, row_sum, row_max, sinks, head, packed, scale)
                T.copy(out, out_shared)
                T.copy(out_tile, Output[bz, first : first + rows, head : head + packed, :])
                put_rows(LogSum, row_sum, bz, head, first, packed)
        return Output, LogSum

    return main


@tilelang.jit(pass_configs=FAST_MATH)
def gradient_of_queries(
    batch,
    heads,
    length,
    dim,
    window,
    key_heads=None,
    dtype=T.float16,
    block_M=64,
    block_N=None,
    num_stages=2,
    threads=128,
    per_processor=2,
):
    """dQ, and Delta, the sums of Out * dO over a head, (batch, heads, length) in float32. A block
    has tiles of rows as in `attention` and goes through the keys that they see, so that dQ needs no
    atomics: with short windows, weights computed twice cost less."""
    key_heads = key_heads or heads
    check_sizes(heads, key_heads, length, window)
    shape, key_shape = (batch, length, heads, dim), (batch, length, key_heads, dim)
    row_shape = (batch, heads, length)
    scale, blocks = LOG2_E / dim**0.5, processors() * per_processor
    packed = math.gcd(heads // key_heads, block_M)
    rows = block_M // packed  # positions of a tile
    row_tiles, block_N, key_tiles = tiles(rows, length, window, block_N)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(key_shape, dtype),
        V: T.Tensor(key_shape, dtype),
        Out: T.Tensor(shape, dtype),
        dO: T.Tensor(shape, dtype),
        LogSum: T.Tensor(row_shape, T.float32),
    ):
        dQ, Delta = T.empty(shape, dtype), T.empty(row_shape, T.float32)
        with T.Kernel(blocks, threads=threads) as block:
            T.annotate_min_blocks_per_sm(per_processor)
            tile = (rows, packed, dim)
            Q_shared, Out_shared, dO_shared = (T.alloc_shared(tile, dtype) for _ in range(3))
            dQ_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared, V_shared = (T.alloc_shared((block_N, dim), dtype) for _ in range(2))
            log_sum_shared = T.alloc_shared((packed, rows), T.float32)
            # Positions and heads are rows of products.
            Q_rows, dO_rows = (T.reshape(x, (block_M, dim)) for x in (Q_shared, dO_shared))
            dQ_tile = T.reshape(dQ_shared, tile)
            log_sum, delta = (T.alloc_fragment((block_M,), T.float32) for _ in range(2))
            weights, slope = (T.alloc_fragment((block_M, block_N), T.float32) for _ in range(2))
            slope_cast = T.alloc_fragment((block_M, block_N), dtype)
            product, dQ_local = (T.alloc_fragment((block_M, dim), T.float32) for _ in range(2))

            domain = [batch, heads // packed, row_tiles]
            for bz, by, bx in T.Persistent(domain, blocks, block, row_tiles):
                key_head = by * packed // (heads // key_heads)
                first, head = bx * rows, by * packed
                T.copy(Q[bz, first : first + rows, head : head + packed, :], Q_shared)
                T.copy(dO[bz, first : first + rows, head : head + packed, :], dO_shared)
                T.copy(LogSum[bz, head : head + packed, first : first + rows], log_sum_shared)
                T.copy(Out[bz, first : first + rows, head : head + packed, :], Out_shared)
                for i in T.Parallel(block_M):
                    log_sum[i] = log_sum_shared[i % packed, i // packed]
                delta_of(Out_shared, dO_shared, packed, product, delta)
                put_rows(Delta, delta, bz, head, first, packed)
                T.clear(dQ_local)
                steps = T.min(T.ceildiv(first + rows, block_N), key_tiles)
                for step in T.Pipelined(steps, num_stages=num_stages):
                    here = first + rows - (step + 1) * block_N
                    T.copy(K[bz, here : here + block_N, key_head, :], K_shared)
                    T.gemm(Q_rows, K_shared, weights, **OF_HEADS)
                    T.copy(V[bz, here : here + block_N, key_head, :], V_shared)
                    T.gemm(dO_rows, V_shared, slope, **OF_HEADS)
                    weigh(weights, log_sum, scale, first, here, packed, window)
                    for i, j in T.Parallel(block_M, block_N):
                        slope_cast[i, j] = weights[i, j] * (slope[i, j] - delta[i])
                    T.gemm(slope_cast, K_shared, dQ_local, policy=ROWS)
                scale_to(dQ_local, dQ_shared, dim**-0.5)
                T.copy(dQ_tile, dQ[bz, first : first + rows, head : head + packed, :])
        return dQ, Delta

    return main


@tilelang.jit(pass_configs=FAST_MATH)
def gradients_of_keys(
    batch,
    heads,
    length,
    dim,
    window,
    key_heads=None,
    dtype=T.float16,
    block_M=64,
    block_N=64,
    num_stages=4,
    threads=128,
    per_processor=2,
):
    """dK and dV. A block has `block_N` keys and goes through the queries that see them, of all
    heads that share them. Products are transposed, (keys, queries), so that weights and slopes are
    the first operands of the next products in registers."""
    key_heads = key_heads or heads
    check_sizes(heads, key_heads, length, window)
    shape, key_shape = (batch, length, heads, dim), (batch, length, key_heads, dim)
    row_shape, per_group = (batch, heads, length), heads // key_heads
    scale = LOG2_E / dim**0.5

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(key_shape, dtype),
        V: T.Tensor(key_shape, dtype),
        dO: T.Tensor(shape, dtype),
        LogSum: T.Tensor(row_shape, T.float32),
        Delta: T.Tensor(row_shape, T.float32),
    ):
        dK, dV = T.empty(key_shape, dtype), T.empty(key_shape, dtype)
        with T.Kernel(T.ceildiv(length, block_N), key_heads, batch, threads=threads) as (
            bx,
            by,
            bz,
        ):
            T.annotate_min_blocks_per_sm(per_processor)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            dO_shared = T.alloc_shared((block_M, dim), dtype)
            log_sum, delta = (T.alloc_shared((block_M,), T.float32) for _ in range(2))
            tile = (block_N, block_M)
            weights, slope = (T.alloc_fragment(tile, T.float32) for _ in range(2))
            weights_cast, slope_cast = (T.alloc_fragment(tile, dtype) for _ in range(2))
            dK_local, dV_local = (T.alloc_fragment((block_N, dim), T.float32) for _ in range(2))

            here = bx * block_N
            T.copy(K[bz, here : here + block_N, by, :], K_shared)
            T.copy(V[bz, here : here + block_N, by, :], V_shared)
            T.clear(dK_local)
            T.clear(dV_local)
            before = here // block_M
            steps = T.ceildiv(T.min(length, here + block_N + window - 1), block_M) - before
            for step in T.Pipelined(per_group * steps, num_stages=num_stages):
                head = by * per_group + step % per_group
                first = (before + step // per_group) * block_M
                T.copy(Q[bz, first : first + block_M, head, :], Q_shared)
                T.copy(LogSum[bz, head, first : first + block_M], log_sum)
                T.gemm(K_shared, Q_shared, weights, **OF_HEADS)
                T.copy(dO[bz, first : first + block_M, head, :], dO_shared)
                T.copy(Delta[bz, head, first : first + block_M], delta)
                T.gemm(V_shared, dO_shared, slope, **OF_HEADS)
                for i, j in T.Parallel(block_N, block_M):
                    weights[i, j] = T.exp2(weights[i, j] * scale - log_sum[j])
                mask_queries(weights, first, here, window)
                T.copy(weights, weights_cast)
                for i, j in T.Parallel(block_N, block_M):
                    slope_cast[i, j] = weights[i, j] * (slope[i, j] - delta[j])
                T.gemm(weights_cast, dO_shared, dV_local, policy=ROWS)
                T.gemm(slope_cast, Q_shared, dK_local, policy=ROWS)
            scale_to(dK_local, K_shared, dim**-0.5)
            T.copy(dV_local, V_shared)
            T.copy(V_shared, dV[bz, here : here + block_N, by, :])
            T.copy(K_shared, dK[bz, here : here + block_N, by, :])
        return dK, dV

    return main


@tilelang.jit(out_idx=[-1], pass_configs=FAST_MATH)
def gradient_of_sinks(batch, heads, length, block=4096, threads=1024):
    """(heads,): a sink of weight p has no value, so that its gradient is -p * Delta of each row."""
    row_shape = (batch, heads, length)

    @T.prim_func
    def main(
        Sinks: T.Tensor((heads,), T.float32),
        LogSum: T.Tensor(row_shape, T.float32),
        Delta: T.Tensor(row_shape, T.float32),
        dSinks: T.Tensor((heads,), T.float32),
    ):
        with T.Kernel(heads, threads=threads) as head:
            part = T.alloc_fragment((block,), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            T.clear(part)
            for b, step in T.grid(batch, T.ceildiv(length, block)):
                for j in T.Parallel(block):
                    row = step * block + j
                    if row < length:
                        weight = T.exp2(Sinks[head] * LOG2_E - LogSum[b, head, row])
                        part[j] -= weight * Delta[b, head, row]
            T.reduce_sum(part, total, dim=0)
            T.copy(total, dSinks[head])

    return main


def backward(tensors, out, log_sum, d_out, window, **query_tile):
    """dQ, dK, dV and dSinks of `out` and `log_sum`, which `attention` made of `tensors`, with the
    tile of `gradient_of_queries`."""
    q, k, v, sinks = tensors
    batch, length, heads, dim = q.shape
    sizes = (batch, heads, length, dim, window, k.shape[2])
    d_q, delta = gradient_of_queries(*sizes, **query_tile)(q, k, v, out, d_out, log_sum)
    d_k, d_v = gradients_of_keys(*sizes)(q, k, v, d_out, log_sum, delta)
    return d_q, d_k, d_v, gradient_of_sinks(batch, heads, length)(sinks, log_sum, delta)


def reference(q, k, v, sinks, window):
    """The same in float64."""
    per_group, length = q.shape[2] // k.shape[2], q.shape[1]
    k, v = (x.repeat_interleave(per_group, dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[3] ** 0.5
    row = torch.arange(length, device=q.device)
    behind = row[:, None] - row
    scores = scores.masked_fill((behind < 0) | (behind >= window), -torch.inf)
    sink = sinks[None, :, None, None].expand(*scores.shape[:3], 1)
    weights = torch.cat((scores, sink), dim=3).softmax(3)[..., :length]
    return torch.einsum("bhij,bjhd->bihd", weights, v)


def case(batch, heads, key_heads, length, dim, device):
    """Tensors for `attention` and the gradient of its result."""
    torch.manual_seed(0)
    tensors = inputs(batch, heads, length, dim, key_heads, device=device)
    tensors.append(torch.randn(heads, device=device))
    return tensors, torch.randn_like(tensors[0])


def wanted_gradients(tensors, d_out, window):
    """The result and the gradients by float64 autograd."""
    leaves = [x.double().requires_grad_() for x in tensors]
    out = reference(*leaves, window)
    return out.detach(), *torch.autograd.grad(out, leaves, d_out.double())


def largest_error(found, wanted):
    """The largest of ||ours - float64|| / ||float64||."""
    pairs = zip(found, wanted, strict=True)
    return max(float((x.double() - y).norm() / y.norm()) for x, y in pairs)


def relative_error(batch, heads, key_heads, length, dim, window, device="cpu"):
    """The largest one of the result and the gradients."""
    tensors, d_out = case(batch, heads, key_heads, length, dim, device)
    out, log_sum = attention(batch, heads, length, dim, window, key_heads)(*tensors)
    found = backward(tensors, out, log_sum, d_out, window)
    return largest_error((out, *found), wanted_gradients(tensors, d_out, window))


def check(relative_error, description, windows, heads):
    """The script of a program with windows: `windows` and `heads` are for the GPU and for the
    emulator if the command line does not say."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--length", type=int, default=2048 if gpu else 150)
    parser.add_argument("--window", type=int, nargs="+", default=windows[not gpu])
    parser.add_argument("--heads", type=int, nargs=2, default=heads[not gpu])
    parser.add_argument("--dim", type=int, default=64, help="of a head")
    arguments = parser.parse_args()
    length, device = arguments.length, "cuda" if gpu else "cpu"
    for window in arguments.window:
        error = relative_error(1, *arguments.heads, length, arguments.dim, window, device)
        assert error < 2e-3, f"relative error {error:.1e}, wanted under 2e-3"
        print(f"length {length}, window {window}: relative error {error:.1e}")


if __name__ == "__main__":
    check(relative_error, __doc__, windows=([128, 4096], [70]), heads=([16, 2], [2, 1]))
