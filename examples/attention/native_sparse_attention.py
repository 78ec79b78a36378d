"""Native sparse attention (Yuan et al. 2025), forward: a query attends to the means of blocks of
keys, to the keys of the blocks whose means weigh most, and to the last keys; gates weigh the three
results. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from flash_attention import LOG2_E, NO_KEY, ROWS, check_heads, inputs, online_softmax
from flash_attention_backward import FAST_MATH
from flash_attention_windows import attention

import tilelang
import tilelang.language as T

BLOCK = 64


@tilelang.jit
def means(batch, key_heads, length, dim, dtype=T.float16):
    """The mean of each whole block of positions of X (batch, length, key_heads, dim)."""
    blocks = length // BLOCK

    @T.prim_func
    def main(X: T.Tensor((batch, length, key_heads, dim), dtype)):
        Means = T.empty((batch, blocks, key_heads, dim), dtype)
        with T.Kernel(blocks, key_heads, batch, threads=128) as (bx, by, bz):
            x = T.alloc_fragment((BLOCK, dim), T.float32)
            total = T.alloc_fragment((dim,), T.float32)
            T.copy(X[bz, bx * BLOCK : (bx + 1) * BLOCK, by, :], x)
            T.reduce_sum(x, total, dim=0)
            for d in T.Parallel(dim):
                Means[bz, bx, by, d] = total[d] / BLOCK
        return Means

    return main


@T.macro
def choose(worth, chosen):
    """The columns `chosen` (rows, number) of each row that are worth most, -1 where there are no
    more of worth 0 or above: one maximum after the other, of equals the first."""
    rows, columns = worth.shape
    best = T.alloc_fragment((rows,), T.float32)
    index = T.alloc_fragment((rows, columns), T.int32)
    which = T.alloc_fragment((rows,), T.int32)
    for n in T.serial(chosen.shape[1]):
        T.reduce_max(worth, best, dim=1)
        for i, j in T.Parallel(rows, columns):
            index[i, j] = T.if_then_else(worth[i, j] == best[i], j, columns)
        T.reduce_min(index, which, dim=1)
        for i, j in T.Parallel(rows, columns):
            worth[i, j] = T.if_then_else(j == which[i], -1, worth[i, j])
        for i in T.Parallel(rows):
            chosen[i, n] = T.if_then_else(best[i] >= 0, which[i], -1)


@T.macro
def score(Means, q, k, scores, first, tile, head, b, group):
    """Scores of a tile of means, for rows of `group` heads at positions from `first` on, which see
    the blocks that end before or with them."""
    rows, columns = scores.shape
    T.copy(Means[b, tile * columns : (tile + 1) * columns, head, :], k)
    T.gemm(q, k, scores, transpose_B=True, policy=ROWS, clear_accum=True)
    for i, j in T.Parallel(rows, columns):
        seen = (tile * columns + j + 1) * BLOCK <= first + i // group + 1
        scores[i, j] = T.if_then_else(seen, scores[i, j], NO_KEY)


@T.macro
def appraise(sums, worth, first, group):
    """What blocks are worth to positions from `first` on, of the sums of their weights: those that
    are selected always more than any sum, those behind the position nothing."""
    for i, t in T.Parallel(*worth.shape):
        own = (first + i) // BLOCK
        always = t == 0 or t == own or t == own - 1
        # Several weights of 1 at most, which no sum exceeds.
        worth[i, t] = T.if_then_else(t > own, -1, T.if_then_else(always, group + 1, sums[i, t]))


@tilelang.jit(pass_configs=FAST_MATH)
def attend_to_means(
    batch,
    heads,
    key_heads,
    length,
    dim,
    selected,
    dtype=T.float16,
    block_M=64,
    block_N=64,
    num_stages=2,
    threads=128,
):
    """softmax(Q K^T / sqrt(dim)) V of Q (batch, length, heads, dim) and means (batch, blocks,
    key_heads, dim) of the blocks that end before or with a query, 0 for those before the first end;
    and the blocks that a query's group of heads selects, (batch, key_heads, length, selected). A
    block is worth the sum of its weights; the first one, the query's own and the one before that
    are selected always. A block of threads has the heads of a group at some positions."""
    check_heads(heads, key_heads)
    shape, group, blocks = (batch, length, heads, dim), heads // key_heads, length // BLOCK
    if block_M % group:
        raise ValueError(f"found {group} heads in a group, wanted a divisor of block_M, {block_M}")
    mean_shape, positions = (batch, blocks, key_heads, dim), block_M // group
    tiles, scale = -(-blocks // block_N), LOG2_E / dim**0.5
    grid = T.ceildiv(length, positions), key_heads, batch

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype), K: T.Tensor(mean_shape, dtype), V: T.Tensor(mean_shape, dtype)
    ):
        Output = T.empty(shape, dtype)
        Chosen = T.empty((batch, key_heads, length, selected), T.int32)
        with T.Kernel(*grid, threads=threads) as (bx, by, bz):
            q = T.alloc_shared((block_M, dim), dtype)
            k = T.alloc_shared((block_N, dim), dtype)
            v = T.alloc_shared((block_N, dim), dtype)
            share = T.alloc_shared((block_M, block_N), T.float32)
            sums = T.alloc_shared((positions, tiles * block_N), T.float32)
            scores = T.alloc_fragment((block_M, block_N), T.float32)
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)
            worth = T.alloc_fragment((positions, -(-length // BLOCK)), T.float32)
            chosen = T.alloc_shared((positions, selected), T.int32)
            first = bx * positions
            for i, d in T.Parallel(block_M, dim):
                q[i, d] = Q[bz, first + i // group, by * group + i % group, d]
            T.clear(out)
            T.clear(row_sum)
            T.clear(sums)
            T.fill(row_max, NO_KEY)
            used = T.ceildiv((first + positions) // BLOCK, block_N)
            for n in T.Pipelined(used, num_stages=num_stages):
                score(K, q, k, scores, first, n, by, bz, group)
                online_softmax(scores, out, row_max, row_sum, scale)
                T.copy(scores, weights)
                T.copy(V[bz, n * block_N : (n + 1) * block_N, by, :], v)
                T.gemm(weights, v, out, policy=ROWS)
            for i, d in T.Parallel(block_M, dim):
                if first + i // group < length:
                    Output[bz, first + i // group, by * group + i % group, d] = T.if_then_else(
                        first + i // group + 1 >= BLOCK, out[i, d] / row_sum[i], 0
                    )
            # The weights again, now that their sums are known: those of a group are added.
            for n in T.Pipelined(used, num_stages=num_stages):
                score(K, q, k, scores, first, n, by, bz, group)
                for i, j in T.Parallel(block_M, block_N):
                    share[i, j] = T.exp2((scores[i, j] - row_max[i]) * scale) / row_sum[i]
                for i, j in T.Parallel(positions, block_N):
                    for g in T.serial(group):
                        sums[i, n * block_N + j] += share[i * group + g, j]
            appraise(sums, worth, first, group)
            choose(worth, chosen)
            T.copy(chosen, Chosen[bz, by, first : first + positions, :])
        return Output, Chosen

    return main


@tilelang.jit(out_idx=[-1], pass_configs=FAST_MATH)
def attend_to_blocks(
    batch,
    heads,
    key_heads,
    length,
    dim,
    selected,
    dtype=T.float16,
    block_H=64,
    num_stages=2,
    threads=128,
):
    """Attention to the keys of the blocks that Chosen (batch, key_heads, length, selected) names;
    its result, To_means and To_window are added, times their Gates (batch, length, heads, 3). A
    block of threads has the heads of a group at one position, at most `block_H`."""
    check_heads(heads, key_heads)
    shape, key_shape = (batch, length, heads, dim), (batch, length, key_heads, dim)
    group, scale = heads // key_heads, LOG2_E / dim**0.5
    if block_H < group:
        raise ValueError(f"block_H is {block_H}, wanted a row for each of {group} heads")

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(key_shape, dtype),
        V: T.Tensor(key_shape, dtype),
        Chosen: T.Tensor((batch, key_heads, length, selected), T.int32),
        To_means: T.Tensor(shape, dtype),
        To_window: T.Tensor(shape, dtype),
        Gates: T.Tensor((batch, length, heads, 3), T.float32),
        Output: T.Tensor(shape, dtype),
    ):
        with T.Kernel(length, key_heads, batch, threads=threads) as (position, by, bz):
            q = T.alloc_shared((block_H, dim), dtype)
            k = T.alloc_shared((BLOCK, dim), dtype)
            v = T.alloc_shared((BLOCK, dim), dtype)
            scores = T.alloc_fragment((block_H, BLOCK), T.float32)
            weights = T.alloc_fragment((block_H, BLOCK), dtype)
            out = T.alloc_fragment((block_H, dim), T.float32)
            row_max = T.alloc_fragment((block_H,), T.float32)
            row_sum = T.alloc_fragment((block_H,), T.float32)
            # Rows behind the group's are of no use.
            T.copy(Q[bz, position, by * group : by * group + block_H, :], q)
            T.clear(out)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity(T.float32))
            for n in T.Pipelined(selected, num_stages=num_stages):
                if Chosen[bz, by, position, n] >= 0:
                    begin = Chosen[bz, by, position, n] * BLOCK
                    T.copy(K[bz, begin : begin + BLOCK, by, :], k)
                    T.gemm(q, k, scores, transpose_B=True, policy=ROWS, clear_accum=True)
                    if begin + BLOCK > position:
                        for i, j in T.Parallel(block_H, BLOCK):
                            scores[i, j] = T.if_then_else(
                                begin + j <= position, scores[i, j], NO_KEY
                            )
                    online_softmax(scores, out, row_max, row_sum, scale)
                    T.copy(scores, weights)
                    T.copy(V[bz, begin : begin + BLOCK, by, :], v)
                    T.gemm(weights, v, out, policy=ROWS)
            for i, d in T.Parallel(block_H, dim):
                if i < group:
                    head = by * group + i
                    Output[bz, position, head, d] = (
                        Gates[bz, position, head, 0] * To_means[bz, position, head, d]
                        + Gates[bz, position, head, 1] * out[i, d] / row_sum[i]
                        + Gates[bz, position, head, 2] * To_window[bz, position, head, d]
                    )

    return main


def native_sparse_attention(q, k, v, gates, selected, window):
    """The result (batch, length, heads, dim), and the blocks that were selected."""
    batch, length, heads, dim = q.shape
    key_heads = k.shape[2]
    if length < BLOCK:
        raise ValueError(f"found {length} positions, wanted a block of {BLOCK}")
    mean = means(batch, key_heads, length, dim)
    to_means, chosen = attend_to_means(batch, heads, key_heads, length, dim, selected)(
        q, mean(k), mean(v)
    )
    # A sink of weight 0.
    no_sinks = torch.full((heads,), -torch.inf, device=q.device)
    to_window, _ = attention(batch, heads, length, dim, window, key_heads)(q, k, v, no_sinks)
    kernel = attend_to_blocks(batch, heads, key_heads, length, dim, selected)
    return kernel(q, k, v, chosen, to_means, to_window, gates), chosen


def attend(q, k, v, mask):
    """Attention of a group (batch, length, heads, dim) to keys (batch, keys, dim), in float64; 0
    where a row of the mask (.., length, keys) has no keys. And the weights' sums over the heads."""
    scores = torch.einsum("bihd,bjd->bhij", q, k) / q.shape[3] ** 0.5
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0)
    return torch.einsum("bhij,bjd->bihd", weights, v), weights.sum(1)


def reference(q, k, v, gates, chosen, window):
    """The result of the blocks `chosen` in float64, and how much more an unselected block is worth
    than a selected one, at most. One head of keys at a time."""
    length, group = q.shape[1], q.shape[2] // k.shape[2]
    row = torch.arange(length, device=q.device)
    own, blocks = row // BLOCK, torch.arange(-(-length // BLOCK), device=q.device)
    out, missed = torch.empty(q.shape, dtype=torch.float64, device=q.device), -torch.inf
    for h in range(k.shape[2]):
        heads = slice(h * group, (h + 1) * group)
        x, key, value = q[:, :, heads].double(), k[:, :, h].double(), v[:, :, h].double()
        whole = length // BLOCK * BLOCK
        mean = [t[:, :whole].unflatten(1, (-1, BLOCK)).mean(2) for t in (key, value)]
        seen = (blocks[: mean[0].shape[1]] + 1) * BLOCK <= row[:, None] + 1
        to_means, worth = attend(x, *mean, seen)
        # Selected or not, and what that is worth where it was a choice.
        of_blocks = (chosen[:, h, :, :, None] == blocks).any(2)
        choice = (blocks > 0) & (blocks < own[:, None] - 1)
        worth = torch.nn.functional.pad(worth, (0, len(blocks) - worth.shape[2]))
        least = worth.masked_fill(~(of_blocks & choice), torch.inf).amin(2)
        most = worth.masked_fill(of_blocks | ~choice, -torch.inf).amax(2)
        missed = max(missed, float((most - least).max()))
        always = (blocks <= own[:, None]) & ~choice
        assert (of_blocks | ~always).all(), "a block that is selected always is missing"
        mask = of_blocks[..., own] & (row[:, None] >= row)
        to_blocks, _ = attend(x, key, value, mask[:, None])
        behind = row[:, None] - row
        to_window, _ = attend(x, key, value, (behind >= 0) & (behind < window))
        results = torch.stack((to_means, to_blocks, to_window), dim=-1)
        out[:, :, heads] = (results * gates[:, :, heads, None].double()).sum(-1)
    return out, missed


def relative_error(batch, heads, key_heads, length, dim, selected, window, device="cpu"):
    """||ours - reference|| / ||reference|| for the blocks that ours selects, which are checked."""
    torch.manual_seed(0)
    q, k, v = inputs(batch, heads, length, dim, key_heads, device=device)
    gates = torch.rand(batch, length, heads, 3, device=device)
    found, chosen = native_sparse_attention(q, k, v, gates, selected, window)
    wanted, missed = reference(q, k, v, gates, chosen, window)
    assert missed < 1e-2, f"a block worth {missed:.3f} more than a selected one was left out"
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096 if gpu else 330, help="positions")
    parser.add_argument("--heads", type=int, nargs=2, default=[64, 4] if gpu else [16, 1])
    parser.add_argument("--dim", type=int, default=128 if gpu else 64, help="of a head")
    parser.add_argument("--selected", type=int, default=16 if gpu else 4, help="blocks")
    parser.add_argument("--window", type=int, default=512 if gpu else 70, help="positions")
    arguments = parser.parse_args()
    heads, key_heads = arguments.heads
    sizes = 1, heads, key_heads, arguments.length, arguments.dim
    device = "cuda" if gpu else "cpu"
    error = relative_error(*sizes, arguments.selected, arguments.window, device)
    assert error < 2e-3, f"relative error {error:.1e}, wanted under 2e-3"
    print(f"length {arguments.length}: relative error {error:.1e}")
