"""Decoding with latent attention: all heads of a token share one compressed key, which is the value
too. Split over the keys if there are few tokens: check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
# The score of what is no key: finite, because a tile may have no keys at all, and a power of two,
# so that its product with the scale is exact, rounded before the maximum is subtracted or not.
NO_KEY = -(2.0**100)
COLUMNS = T.GemmWarpPolicy.FullCol  # a warp has all rows of its keys
OF_HEADS = {"transpose_B": True, "policy": COLUMNS}  # of queries and keys


@T.macro
def online_softmax(scores, weights_shared, values, out, sums, row_max, scale):
    """Make a tile's scores weights, and add the weighted `values` to `out`, both in pieces of
    columns, and the weights to `sums`, one for each key of a tile, which are added up once, at the
    end. Where a row's maximum grows, rescale what earlier tiles came to."""
    rows, keys = scores.shape
    row_max_before = T.alloc_fragment((rows,), T.float32)
    rescale = T.alloc_fragment((rows,), T.float32)
    T.copy(row_max, row_max_before)
    T.reduce_max(scores, row_max, dim=1, clear=False)
    for i in T.Parallel(rows):
        rescale[i] = T.exp2((row_max_before[i] - row_max[i]) * scale)
    for i, j in T.Parallel(rows, keys):
        scores[i, j] = T.exp2(scores[i, j] * scale - row_max[i] * scale)
    T.copy(scores, weights_shared)
    for piece in out:
        for i, j in T.Parallel(*piece.shape):
            piece[i, j] = piece[i, j] * rescale[i]
    for value, piece in zip(values, out, strict=True):
        T.gemm(weights_shared, value, piece, policy=COLUMNS)
    # Beside the products.
    for i, j in T.Parallel(rows, keys):
        sums[i, j] = sums[i, j] * rescale[i] + scores[i, j]


@T.macro
def alloc_tiles(block_H, block_N, width, rope_dim, pieces, dtype):
    """A block's operands, queries and keys in pieces of `width` columns, and what it computes: a
    tile's scores, the results in pieces, and of each row the maximum, sums of weights and their
    sum."""
    Q_shared = [T.alloc_shared((block_H, width), dtype) for _ in range(pieces)]
    Q_rope_local = T.alloc_fragment((block_H, rope_dim), dtype)
    KV_shared = [T.alloc_shared((block_N, width), dtype) for _ in range(pieces)]
    K_rope_shared = T.alloc_shared((block_N, rope_dim), dtype)
    weights_shared = T.alloc_shared((block_H, block_N), dtype)
    scores = T.alloc_fragment((block_H, block_N), T.float32)
    out = [T.alloc_fragment((block_H, width), T.float32) for _ in range(pieces)]
    row_max = T.alloc_fragment((block_H,), T.float32)
    sums = T.alloc_fragment((block_H, block_N), T.float32)
    row_sum = T.alloc_fragment((block_H,), T.float32)
    operands = Q_shared, Q_rope_local, KV_shared, K_rope_shared, weights_shared
    return operands, (scores, out, row_max, sums, row_sum)


@T.macro
def attend(Q, Q_rope, KV, K_rope, Output, LogSum, block_H, block_N, pieces, num_stages, threads):
    """The attention of each token, or with `LogSum` of each token and split of the keys."""
    dtype, (batch, heads, dim), (_, length, rope_dim) = Q.dtype, Q.shape, K_rope.shape
    scale, split = LOG2_E / int(dim + rope_dim) ** 0.5, 1 if LogSum is None else LogSum.shape[0]
    columns, steps = columns_of(int(dim), pieces), T.ceildiv(length, block_N * split)
    width = int(dim) // pieces
    with T.Kernel(T.ceildiv(heads, block_H), batch, split, threads=threads) as (bx, by, bz):
        operands, computed = alloc_tiles(block_H, block_N, width, rope_dim, pieces, dtype)
        Q_shared, Q_rope_local, KV_shared, K_rope_shared, weights_shared = operands
        scores, out, row_max, sums, row_sum = computed

        rows = slice(bx * block_H, (bx + 1) * block_H)
        for p, here in enumerate(columns):
            T.copy(Q[by, rows, here], Q_shared[p])
            T.clear(out[p])
        T.copy(Q_rope[by, rows, :], Q_rope_local)
        T.clear(sums)
        T.fill(row_max, -T.infinity(T.float32))
        for step in T.Pipelined(steps, num_stages=num_stages):
            first = (bz * steps + step) * block_N
            T.copy(K_rope[by, first : first + block_N, :], K_rope_shared)
            T.gemm(Q_rope_local, K_rope_shared, scores, clear_accum=True, **OF_HEADS)
            for p, here in enumerate(columns):
                T.copy(KV[by, first : first + block_N, here], KV_shared[p])
                T.gemm(Q_shared[p], KV_shared[p], scores, **OF_HEADS)
            if first + block_N > length:
                for i, j in T.Parallel(block_H, block_N):
                    scores[i, j] = T.if_then_else(first + j < length, scores[i, j], NO_KEY)
            online_softmax(scores, weights_shared, KV_shared, out, sums, row_max, scale)
        T.reduce_sum(sums, row_sum, dim=1)
        parts = T.view(Output, (1, batch, heads, dim)) if LogSum is None else Output
        for piece, here in zip(out, columns, strict=True):
            for i, j in T.Parallel(block_H, width):
                piece[i, j] = piece[i, j] / row_sum[i]
            T.copy(piece, parts[bz, by, rows, here])
        if LogSum is not None:
            for i in T.Parallel(block_H):
                row_sum[i] = T.log2(row_sum[i]) + row_max[i] * scale
            T.copy(row_sum, LogSum[bz, by, rows])


@T.macro
def combine(Parts, LogSum, Output):
    """Output (batch, heads, dim) from the results of splits, weighted by their sums."""
    split, batch, heads, dim = Parts.shape
    with T.Kernel(heads, batch, threads=128) as (bx, by):
        total = T.alloc_fragment((dim,), T.float32)
        log_max = T.alloc_var(T.float32, init=-T.infinity(T.float32))
        weight_sum = T.alloc_var(T.float32, init=0.0)
        T.clear(total)
        for s in T.serial(split):
            log_max = T.max(log_max, LogSum[s, by, bx])
        for s in T.serial(split):
            weight = T.exp2(LogSum[s, by, bx] - log_max)
            weight_sum += weight
            for j in T.Parallel(dim):
                total[j] += weight * Parts[s, by, bx, j]
        for j in T.Parallel(dim):
            Output[by, bx, j] = total[j] / weight_sum


def columns_of(dim, pieces):
    """The columns of each piece."""
    if dim % pieces:
        raise ValueError(f"pieces is {pieces}, wanted a divisor of dim, {dim}")
    return [slice(first, first + dim // pieces) for first in range(0, dim, dim // pieces)]


# Fast math leaves out what exp2 does for subnormal weights.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def mla_decode(
    batch,
    heads,
    length,
    dim=512,
    rope_dim=64,
    split=1,
    dtype=T.float16,
    block_H=64,
    block_N=64,
    num_stages=1,
    pieces=4,
    threads=256,
):
    """softmax((Q KV^T + Q_rope K_rope^T) / sqrt(dim + rope_dim)) KV.

    Q (batch, heads, dim), Q_rope (batch, heads, rope_dim), KV (batch, length, dim) and K_rope
    (batch, length, rope_dim), which has the rotated part of the keys. `split` blocks share the keys
    of a tile of heads; then the kernel takes a `workspace` too.

    The keys of a step come in `pieces` along `dim`: each is loaded again while the others are in
    use, so that one buffer for each will do, and a step has twice the keys.
    """
    q_shape, q_rope_shape = (batch, heads, dim), (batch, heads, rope_dim)
    kv_shape, k_rope_shape = (batch, length, dim), (batch, length, rope_dim)
    out_shape, tile = (batch, heads, dim), (block_H, block_N, pieces, num_stages, threads)

    @T.prim_func
    def whole(
        Q: T.Tensor(q_shape, dtype),
        Q_rope: T.Tensor(q_rope_shape, dtype),
        KV: T.Tensor(kv_shape, dtype),
        K_rope: T.Tensor(k_rope_shape, dtype),
    ):
        Output = T.empty(out_shape, dtype)
        attend(Q, Q_rope, KV, K_rope, Output, None, *tile)
        return Output

    @T.prim_func
    def parts(
        Q: T.Tensor(q_shape, dtype),
        Q_rope: T.Tensor(q_rope_shape, dtype),
        KV: T.Tensor(kv_shape, dtype),
        K_rope: T.Tensor(k_rope_shape, dtype),
        Parts: T.Tensor((split, *out_shape), T.float32),
        LogSum: T.Tensor((split, batch, heads), T.float32),
    ):
        Output = T.empty(out_shape, dtype)
        attend(Q, Q_rope, KV, K_rope, Parts, LogSum, *tile)
        combine(Parts, LogSum, Output)
        return Output

    return whole if split == 1 else parts


def workspace(batch, heads, dim, split, device="cpu"):
    """What a split kernel takes besides its inputs."""
    if split == 1:
        return []
    return [torch.empty(split, batch, heads, *d, device=device) for d in ((dim,), ())]


def inputs(batch, heads, length, dim=512, rope_dim=64, dtype=T.float16, device="cpu"):
    """Q, Q_rope, KV and K_rope, normally distributed."""
    shapes = [(batch, n, d) for n in (heads, length) for d in (dim, rope_dim)]
    return [torch.randn(shape, device=device).to(dtype.as_torch()) for shape in shapes]


def reference(q, q_rope, kv, k_rope):
    """The same in float64."""
    q, q_rope, kv, k_rope = (x.double() for x in (q, q_rope, kv, k_rope))
    scores = q @ kv.transpose(1, 2) + q_rope @ k_rope.transpose(1, 2)
    return (scores / (q.shape[2] + q_rope.shape[2]) ** 0.5).softmax(-1) @ kv


def relative_error(kernel, batch, heads, length, dim=512, rope_dim=64, split=1, device="cpu"):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    tensors = inputs(batch, heads, length, dim, rope_dim, device=device)
    found = kernel(*tensors, *workspace(batch, heads, dim, split, device))
    wanted = reference(*tensors)
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=132 if gpu else 1)
    parser.add_argument("--length", type=int, default=8192 if gpu else 200, help="of the context")
    parser.add_argument("--split", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    batch, length = arguments.batch, arguments.length
    heads, device = (128, "cuda") if gpu else (64, "cpu")
    for split in arguments.split:
        kernel = mla_decode(batch, heads, length, split=split)
        error = relative_error(kernel, batch, heads, length, split=split, device=device)
        assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
        print(f"batch {batch}, context {length}, split {split}: relative error {error:.1e}")
