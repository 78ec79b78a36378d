"""Attention, its softmax kept up tile by tile of keys: compile it, check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
# The score of what is no key: finite, because a row may have no keys in a tile, and a power of two,
# so that its product with the scale is exact, rounded before the maximum is subtracted or not.
NO_KEY = -(2.0**100)
ROWS = T.GemmWarpPolicy.FullRow  # a warp has all keys of its rows


def processors():
    """Multiprocessors of the GPU; a few blocks where there is none."""
    if not torch.cuda.is_available():
        return 4
    return torch.cuda.get_device_properties().multi_processor_count


def check_heads(heads, key_heads):
    """Refuse heads that no head of keys is for."""
    if key_heads < 1 or heads % key_heads:
        raise ValueError(f"found {heads} heads for {key_heads} of keys, wanted a multiple of these")


@T.macro
def online_softmax(scores, out, row_max, row_sum, scale):
    """Make a tile's scores weights; where a row's maximum grows, rescale what earlier tiles came
    to, if there are any (`out`)."""
    rows, columns = scores.shape
    row_max_before = T.alloc_fragment((rows,), T.float32)
    rescale = T.alloc_fragment((rows,), T.float32)
    tile_sum = T.alloc_fragment((rows,), T.float32)
    T.copy(row_max, row_max_before)
    T.reduce_max(scores, row_max, dim=1, clear=False)
    for i in T.Parallel(rows):
        rescale[i] = T.exp2((row_max_before[i] - row_max[i]) * scale)
    for i, j in T.Parallel(rows, columns):
        scores[i, j] = T.exp2(scores[i, j] * scale - row_max[i] * scale)
    T.reduce_sum(scores, tile_sum, dim=1)
    for i in T.Parallel(rows):
        row_sum[i] = row_sum[i] * rescale[i] + tile_sum[i]
    if out is not None:
        for i, j in T.Parallel(*out.shape):
            out[i, j] = out[i, j] * rescale[i]


@T.macro
def mask(scores, step, here, first, length, causal, block=1):
    """Leave out keys, of which `here` is the tile's first, that are behind the end, or with
    `causal` behind the row's block of `block` positions; `first` is the tile's first row."""
    # Where some row sees only a part of the tile: behind the last key of the first row.
    if here + scores.shape[1] > (first // block * block + block - 1 if causal else length):
        for i, j in T.Parallel(*scores.shape):
            block_end = ((first + i) // block + 1) * block
            end = T.min(length, block_end) if causal else length
            scores[i, j] = T.if_then_else(here + j < end, scores[i, j], NO_KEY)


@T.macro
def attend(Q_tile, K, V, origin, head, steps, tiles, state, scale, num_stages, mask, seen):
    """Attention of a tile of rows to `steps` tiles of keys, which begin at `origin` in K and V:
    `state` becomes the weighted sums of values, the maxima of scores and the sums of weights.
    `mask`, called with what is `seen`, leaves out scores."""
    K_shared, V_shared, scores, weights = tiles
    out, row_max, row_sum = state
    *batch, start = origin
    block_N = K_shared.shape[0]
    T.clear(out)
    T.clear(row_sum)
    T.fill(row_max, -T.infinity(T.float32))
    for step in T.Pipelined(steps, num_stages=num_stages):
        # From the last keys on, so that masks stand in front of the loop.
        here = (steps - 1 - step) * block_N
        keys = (*batch, slice(start + here, start + here + block_N), head, slice(None))
        T.copy(K[keys], K_shared)
        T.gemm(Q_tile, K_shared, scores, transpose_B=True, policy=ROWS, clear_accum=True)
        mask(scores, step, here, *seen)
        online_softmax(scores, out, row_max, row_sum, scale)
        T.copy(scores, weights)
        T.copy(V[keys], V_shared)
        T.gemm(weights, V_shared, out, policy=ROWS)


@T.macro
def store(state, out_shared, Output, LogSum, batch, head, first, scale):
    """The results of a tile of rows, and if there is a `LogSum`, the logarithms of their sums."""
    out, row_max, row_sum = state
    (rows, dim), part = out.shape, out_shared.shape[1]
    for i, j in T.Parallel(rows, dim):
        out[i, j] = out[i, j] / row_sum[i]
    for here in [slice(c, c + part) for c in range(0, int(dim), int(part))]:
        T.copy(out[:, here], out_shared)
        T.copy(out_shared, Output[batch, first : first + rows, head, here])
    if LogSum is not None:
        for i in T.Parallel(rows):
            row_sum[i] = T.log2(row_sum[i]) + row_max[i] * scale
        T.copy(row_sum, LogSum[batch, head, first : first + rows])


# Fast math leaves out what exp2 does for subnormal weights.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def flash_attention(
    batch,
    heads,
    length,
    dim,
    causal,
    key_heads=None,
    log_sum=False,
    dtype=T.float16,
    block_M=128,
    block_N=64,
    num_stages=2,
    threads=256,
    hold_Q=False,
    value_dim=None,
    causal_block=1,
    out_parts=1,
):
    """softmax(Q K^T / sqrt(dim)) V of Q (batch, length, heads, dim); K and V have `key_heads`
    heads, each for as many neighbours of Q's; V's have dimension `value_dim`, if it is another.
    With `causal` a row sees the keys up to its own, or up to the end of its block of `causal_block`
    rows (block-causal attention: frames of a video, blocks of a diffusion model).
    With `log_sum` also log2 of each row's sum of exponentials, (batch, heads, length) in float32,
    from which gradients are computed. With `hold_Q` products read Q's tile from registers, where
    these suffice. Results go through shared memory in `out_parts`, which leaves more of it to keys.

    A block for each multiprocessor fetches one tile of rows after the other from `counter`, so that
    the operands of the next one are loaded while this one ends, and none waits for a longer one.
    """
    key_heads = key_heads or heads
    value_dim = value_dim or dim
    check_heads(heads, key_heads)
    if value_dim % out_parts:
        raise ValueError(f"found {out_parts} out_parts, wanted a divisor of {value_dim} columns")
    shape, key_shape = (batch, length, heads, dim), (batch, length, key_heads, dim)
    value_shape, out_shape = (*key_shape[:3], value_dim), (*shape[:3], value_dim)
    scale = LOG2_E / dim**0.5
    blocks, row_tiles = processors(), -(-length // block_M)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(key_shape, dtype),
        V: T.Tensor(value_shape, dtype),
        counter: T.Tensor((1,), T.int32),
    ):
        Output = T.empty(out_shape, dtype)
        LogSum = T.empty((batch, heads, length), T.float32) if log_sum else None
        with T.Kernel(blocks, threads=threads) as block:
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, value_dim), dtype)
            out_shared = T.alloc_shared((block_M, value_dim // out_parts), dtype)
            Q_tile = T.alloc_fragment((block_M, dim), dtype) if hold_Q else Q_shared
            scores = T.alloc_fragment((block_M, block_N), T.float32)
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, value_dim), T.float32)
            row_max, row_sum = (T.alloc_fragment((block_M,), T.float32) for _ in range(2))
            state = out, row_max, row_sum

            domain = [batch, heads, row_tiles]
            for bz, by, bx in T.Persistent(domain, blocks, block, row_tiles, counter=counter):
                head = by // (heads // key_heads)
                # The last rows have the most keys: they start first.
                first = (row_tiles - 1 - bx if causal else bx) * block_M
                T.copy(Q[bz, first : first + block_M, by, :], Q_shared)
                if hold_Q:
                    T.copy(Q_shared, Q_tile)
                # Where the last row's keys end.
                last = T.ceildiv(first + block_M, causal_block) * causal_block
                steps = T.ceildiv(T.min(length, last) if causal else length, block_N)
                attend(
                    *(Q_tile, K, V, (bz, 0), head, steps),
                    *((K_shared, V_shared, scores, weights), state),
                    *(scale, num_stages, mask, (first, length, causal, causal_block)),
                )
                store(state, out_shared, Output, LogSum, bz, by, first, scale)
        return (Output, LogSum) if log_sum else Output

    return main


def new_counter(device="cpu"):
    """What launches that do not run at the same time fetch from, one after the other."""
    return torch.zeros(1, dtype=torch.int32, device=device)


def inputs(
    batch, heads, length, dim, key_heads=None, dtype=T.float16, device="cpu", value_dim=None
):
    """Q, K and V, normally distributed."""
    heads_and_dims = (heads, dim), (key_heads or heads, dim), (key_heads or heads, value_dim or dim)
    shapes = [(batch, length, *pair) for pair in heads_and_dims]
    return [torch.randn(shape, device=device).to(dtype.as_torch()) for shape in shapes]


def reference(q, k, v, causal, causal_block=1):
    """The same in float64."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    mask = {"is_causal": causal}
    if causal and causal_block > 1:
        block = torch.arange(q.shape[2], device=q.device) // causal_block
        mask = {"attn_mask": block[:, None] >= block}
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, **mask, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out.transpose(1, 2)


def relative_error(
    batch, heads, length, dim, causal, device="cpu", key_heads=None, dtype=T.float16, **tile
):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    value_dim = tile.get("value_dim")
    q, k, v = inputs(batch, heads, length, dim, key_heads, dtype, device, value_dim)
    kernel = flash_attention(batch, heads, length, dim, causal, key_heads, dtype=dtype, **tile)
    wanted = reference(q, k, v, causal, tile.get("causal_block", 1))
    return float((kernel(q, k, v, new_counter(device)).double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, help="positions of a sequence")
    parser.add_argument("--key-heads", type=int, help="heads of keys and values")
    parser.add_argument("--dim", type=int, nargs="+", default=[64, 128], help="of a head")
    parser.add_argument("--value-dim", type=int, help="of a head of values")
    parser.add_argument("--causal-block", type=int, default=1560 if gpu else 24, help="positions")
    arguments = parser.parse_args()
    batch, heads, length = (4, 16, 4096) if gpu else (1, 2, 200)
    length = arguments.length or length
    for dim in arguments.dim:
        for causal, block in ((False, 1), (True, 1), (True, arguments.causal_block)):
            error = relative_error(
                *(batch, heads, length, dim, causal, "cuda" if gpu else "cpu"),
                key_heads=arguments.key_heads,
                value_dim=arguments.value_dim,
                causal_block=block,
            )
            assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
            shape = f"{batch} x {length} x {heads} x {dim}"
            name = f"{causal}, blocks of {block}" if block > 1 else causal
            print(f"{shape}, causal {name}: relative error {error:.1e}")
