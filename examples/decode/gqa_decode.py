"""Decoding with grouped queries: one token of each sequence attends to its cached keys and values,
which lie in a row or in pages that a table names. Blocks share the keys of a sequence (Flash-
Decoding, Dao et al. 2023; PagedAttention, Kwon et al. 2023). Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math
from types import SimpleNamespace
from typing import NamedTuple

import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
# The score of what is no key: finite, so that a block without keys has a maximum, too.
NO_KEY = -(2.0**100)
MOST_SPLITS = 192
"""Blocks that share the keys of a head: the second kernel has registers for their results."""


class Form(NamedTuple):
    """What a kernel is compiled for: heads of q for a head of keys, columns of the products for
    them, and the parameters of `gqa_decode`."""

    per_group: int
    block_H: int
    block_N: int
    dim: int
    splits: int
    least: int
    num_stages: int
    listed: bool
    early: bool
    page: int | None = None
    window: int | None = None

    @property
    def part(self):
        """Rows of a copy."""
        return min(self.page or self.block_N, self.block_N)

    @property
    def copies(self):
        """How many pages a tile is of, or has a part of."""
        return self.block_N // self.part if self.page else 0

    @property
    def scale(self):
        """What scores are multiplied by, for weights that are powers of two."""
        return LOG2_E / self.dim**0.5


def grid_of(form, key_heads, batch, blocks):
    """Blocks of a kernel: of lengths, the shares that short sequences do not have come last."""
    return (key_heads, blocks, 1) if form.listed else (key_heads, batch, form.splits)


@T.macro
def share_of(form, Lengths, y, z, Q, cache):
    """What a block has to do: sequence, number of the share, tiles of a share, and keys. Of lengths
    the tiles are left open. A row of a list that does not fit the tensors ends the kernel; `cache`
    has a row of keys, or of numbers of pages, for each sequence. Warps that load do not wait for
    that: they have numbers that fit."""
    if len(Lengths.shape) == 1:
        return y, z, None, Lengths[y]
    row, batch = [Lengths[y, i] for i in range(4)], Q.shape[0]
    limits = (batch - 1, form.splits - 1, 2**30 // form.splits, 2**30 - 1)
    b, s, listed_share, length = [
        T.max(T.min(found, limit), 0) for found, limit in zip(row, limits, strict=True)
    ]
    T.device_assert(
        (b == row[0] and s == row[1] and listed_share == row[2] and length == row[3])
        and T.max(length - 1, 0) // (form.page or 1) < cache.shape[1],
        no_stack_info=True,
    )
    T.assume(b >= 0 and b < batch)
    return b, s, listed_share, length


@T.macro
def tiles_of(form, s, listed_share, length):
    """Of share s: the first of the keys that count and their tiles, as the sequence has them, tiles
    of each of its shares, the share's first tile, and how many tiles its loop has."""
    # Lengths, and what is computed of them, fit 32 bits.
    T.assume(length >= 0 and length < 2**30)
    begin = T.max(length - form.window, 0) if form.window else 0
    tiles = T.ceildiv(length, form.block_N) - begin // form.block_N
    share = (
        T.max(listed_share, 1) if form.listed else T.max(T.ceildiv(tiles, form.splits), form.least)
    )
    start = begin // form.block_N + s * share
    if form.early:
        # Tiles in turns: the first one is known before the length is.
        count = T.max(T.ceildiv(tiles - s, form.splits) - 1, 0)
    else:
        count = T.max(T.min(share, tiles - s * share), 0)
    return begin, tiles, share, start, count


@T.macro
def mark_absent(log_sums, b, first_head, per_group, block_H, shares):
    """Results from number `shares` on, which no block has, count for nothing."""
    for s, i in T.Parallel(log_sums.shape[2], block_H):
        if i < per_group and s >= shares:
            log_sums[b, first_head + i, s] = NO_KEY


def parts_of(splits, dim):
    """Of a head in `combine`: channels of a block, and threads that share a channel's results. Many
    results take the registers and the loads of many threads on several multiprocessors."""
    return (dim, 1) if splits <= 48 else (math.gcd(dim, 32), 8)


@T.macro
def combine(partial, log_sums, Sinks, Output, dependent, listed=False):
    """Output (batch, heads, dim) from the results of splits, weighted by their sums. Each thread
    loads all of its results at a time, and finds the weights by itself: it waits for no other,
    unless these share the results of a channel. If shares are `listed`, there is nothing in memory
    for those without keys."""
    batch, heads, splits, dim = partial.shape
    # Of few splits a thread has registers for four channels, which are one load.
    rows = 4 if splits <= 8 and heads % 4 == 0 else 1
    width, parts = parts_of(splits, dim)
    # As many for each thread; those behind the last one count for nothing.
    shares = -(-splits // parts) * parts
    with T.Kernel(heads // rows, batch, dim // width, threads=width * parts) as (hs, b, piece):
        # Registers for all loads: fewer blocks at a time than would fit are fast enough.
        T.annotate_min_blocks_per_sm(4)
        if dependent:
            T.pdl_sync()
        values = T.alloc_fragment((shares, rows, width), T.float32)
        weights = T.alloc_fragment((shares, rows, width), T.float32)
        top = T.alloc_fragment((rows, width), T.float32)
        total = T.alloc_fragment((rows, width), T.float32)
        out = T.alloc_fragment((rows, width), T.float32)
        for s, h, d in T.Parallel(shares, rows, width):
            if s < splits:
                values[s, h, d] = partial[b, hs * rows + h, s, piece * width + d]
                weights[s, h, d] = log_sums[b, hs * rows + h, s]
            else:
                values[s, h, d] = 0
                weights[s, h, d] = NO_KEY
        T.reduce_max(weights, top, dim=0)
        if Sinks is not None:
            for h, d in T.Parallel(rows, width):
                top[h, d] = T.max(top[h, d], Sinks[hs * rows + h] * LOG2_E)
        for s, h, d in T.Parallel(shares, rows, width):
            if listed:
                values[s, h, d] = T.if_then_else(weights[s, h, d] > NO_KEY, values[s, h, d], 0)
            weights[s, h, d] = T.exp2(weights[s, h, d] - top[h, d])
            values[s, h, d] *= weights[s, h, d]
        T.reduce_sum(weights, total, dim=0)
        if Sinks is not None:
            for h, d in T.Parallel(rows, width):
                total[h, d] += T.exp2(Sinks[hs * rows + h] * LOG2_E - top[h, d])
        T.reduce_sum(values, out, dim=0)
        for h, d in T.Parallel(rows, width):
            Output[b, hs * rows + h, piece * width + d] = out[h, d] / total[h, d]


def heads_of_a_group(heads, key_heads, block_H):
    """How many heads a head of keys is for, and columns of the products for them, by default the
    least multiple of 8."""
    if heads % key_heads:
        raise ValueError(f"found {heads} heads for {key_heads} of keys, wanted a multiple of these")
    per_group = heads // key_heads
    block_H = block_H or -(-per_group // 8) * 8
    if block_H < per_group:
        raise ValueError(f"block_H is {block_H}, wanted a column for each of {per_group} heads")
    return per_group, block_H


def form_of(heads, key_heads, block_H, *options):
    """The form of a kernel for so many heads, and the parameters behind block_H."""
    form = Form(*heads_of_a_group(heads, key_heads, block_H), *options)
    if form.early and (form.window or form.listed or form.num_stages < 2):
        raise ValueError(
            f"found early with window={form.window}, listed={form.listed}, "
            f"num_stages={form.num_stages}, wanted neither a window nor a list, and two stages or "
            "more; leave early out"
        )
    page, block_N = form.page, form.block_N
    if page and page % block_N and block_N % page:
        raise ValueError(f"page is {page}, wanted a divisor or a multiple of block_N, {block_N}")
    return form


@T.macro
def online_softmax(own, scale):
    """Make a tile's scores weights; what earlier tiles came to is rescaled."""
    block_N, block_H = own.scores.shape
    dim = own.out.shape[0]
    T.copy(own.row_max, own.row_max_before)
    T.reduce_max(own.scores, own.row_max, dim=0, clear=False)
    for i in T.Parallel(block_H):
        own.rescale[i] = T.exp2((own.row_max_before[i] - own.row_max[i]) * scale)
    for j, i in T.Parallel(block_N, block_H):
        own.scores[j, i] = T.exp2(own.scores[j, i] * scale - own.row_max[i] * scale)
        own.sums[j, i] = own.sums[j, i] * own.rescale[i] + own.scores[j, i]
    T.copy(own.scores, own.weights)
    for d, i in T.Parallel(dim, block_H):
        own.out[d, i] = own.out[d, i] * own.rescale[i]


@T.macro
def step(own, K_tile, V_tile, first, length, begin, scale, masked):
    """What a block does with a tile of keys from `first` on. Where it is `masked`, it may have keys
    behind the last one; with a window it may have keys in front of `begin`."""
    block_N, block_H = own.scores.shape
    T.gemm(K_tile, own.Q, own.scores, transpose_B=True, clear_accum=True)
    if masked:
        for j, i in T.Parallel(block_N, block_H):
            own.scores[j, i] = T.if_then_else(first + j < length, own.scores[j, i], NO_KEY)
    if own.too_old is not None:
        for i in T.Parallel(1):
            own.too_old[i] = begin - first
        if own.too_old[0] > 0:
            for j, i in T.Parallel(block_N, block_H):
                own.scores[j, i] = T.if_then_else(j >= own.too_old[0], own.scores[j, i], NO_KEY)
    online_softmax(own, scale)
    T.gemm(V_tile, own.weights, own.out, transpose_A=True)


@T.macro
def load_queries(form, Q, own, b, g, place=lambda d: d):
    """Column d of the tile is channel `place(d)`."""
    for i, d in T.Parallel(form.block_H, form.dim):
        channel = place(d)
        own.Q[i, d] = T.if_then_else(i < form.per_group, Q[b, g * form.per_group + i, channel], 0)


@T.macro
def begin_softmax(own):
    """No keys yet."""
    T.clear(own.out)
    T.clear(own.sums)
    T.fill(own.row_max, NO_KEY)


@T.macro
def end_softmax(form, own):
    """Add the sums up."""
    T.reduce_sum(own.sums, own.row_sum, dim=0)
    if form.early:
        # Scores of a share without keys count for nothing, and its values may be any.
        for i in T.Parallel(form.block_H):
            own.row_sum[i] = T.if_then_else(own.row_max[i] > NO_KEY, own.row_sum[i], 0)
        for d, i in T.Parallel(form.dim, form.block_H):
            own.out[d, i] = T.if_then_else(own.row_max[i] > NO_KEY, own.out[d, i], 0)


def mean(own, d, i, factor):
    """An element of the result of a block's keys; without keys 0."""
    value = own.out[d, i] if factor is None else own.out[d, i] * factor
    return value / T.max(own.row_sum[i], 1e-30)


@T.macro
def add_sinks(form, own, Sinks, g):
    """Logits without a value."""
    for i in T.Parallel(form.block_H):
        if i < form.per_group:
            sink = Sinks[g * form.per_group + i] * LOG2_E
            own.row_sum[i] += T.exp2(sink - own.row_max[i] * form.scale)


@T.macro
def leave_result(form, own, Output, b, g, Sinks=None, place=lambda d: d, factor=None):
    """The result of all keys of a sequence. Row d of `out` is channel `place(d)`, and takes the
    factor, if there is one."""
    if Sinks is not None:
        add_sinks(form, own, Sinks, g)
    for d, i in T.Parallel(form.dim, form.block_H):
        if i < form.per_group:
            Output[b, g * form.per_group + i, place(d)] = mean(own, d, i, factor)


@T.macro
def leave_share(form, own, results, b, g, s, span, scale, place=lambda d: d, factor=None):
    """The result of share s for a second kernel. The first share marks those that no block has."""
    partial, log_sums = results
    _, tiles, share, _, _ = span
    for d, i in T.Parallel(form.dim, form.block_H):
        if i < form.per_group:
            partial[b, g * form.per_group + i, s, place(d)] = mean(own, d, i, factor)
    for i in T.Parallel(form.block_H):
        if i < form.per_group:
            # No keys: a weight of 0.
            log_sums[b, g * form.per_group + i, s] = T.if_then_else(
                own.row_sum[i] > 0, T.log2(own.row_sum[i]) + own.row_max[i] * scale, NO_KEY
            )
    if form.listed and s == 0:
        shares = T.max(T.ceildiv(tiles, share), 1)
        mark_absent(log_sums, b, g * form.per_group, form.per_group, form.block_H, shares)


@T.macro
def state_of(form, dtype):
    """What a block keeps. Products are transposed: there are few heads, and columns of a product
    may be few."""
    Q_shared = T.alloc_shared((form.block_H, form.dim), dtype)
    K_shared = T.alloc_shared((form.block_N, form.dim), dtype)
    V_shared = T.alloc_shared((form.block_N, form.dim), dtype)
    if form.early:
        K_first = T.alloc_shared((form.block_N, form.dim), dtype)
        V_first = T.alloc_shared((form.block_N, form.dim), dtype)
    scores = T.alloc_fragment((form.block_N, form.block_H), T.float32)
    weights = T.alloc_shared((form.block_N, form.block_H), dtype)
    out = T.alloc_fragment((form.dim, form.block_H), T.float32)
    # A sum for each key of a tile: they are added up once, at the end.
    sums = T.alloc_fragment((form.block_N, form.block_H), T.float32)
    row_max = T.alloc_fragment((form.block_H,), T.float32)
    row_sum = T.alloc_fragment((form.block_H,), T.float32)
    return SimpleNamespace(
        Q=Q_shared,
        tiles=(K_shared, V_shared),
        first_tiles=(K_first, V_first) if form.early else None,
        scores=scores,
        weights=weights,
        out=out,
        sums=sums,
        row_max=row_max,
        row_sum=row_sum,
        row_max_before=T.alloc_fragment((form.block_H,), T.float32),
        rescale=T.alloc_fragment((form.block_H,), T.float32),
        too_old=T.alloc_fragment((1,), T.int32) if form.window else None,
    )


@T.macro
def load(form, X, numbers, tile, b, g, first):
    """Rows of X from `first` on, of the pages of these numbers if it has pages."""
    if form.page:
        part = form.part
        for n in T.unroll(form.copies, explicit=True):
            row = first % form.page if form.page > form.block_N else 0
            page = X[numbers[n], row : row + part, g, :]
            T.copy(page, tile[n * part : (n + 1) * part, :])
    else:
        T.copy(X[b, first : first + form.block_N, g, :], tile)


@T.macro
def attend_early(form, cache, numbers, last, own, b, g, s, length, begin):
    """Attend to the first tile of share s, which is loaded beside the length."""
    K, V, Table = cache
    block_N, page = form.block_N, form.page
    K_first, V_first = own.first_tiles
    for n in T.unroll(form.copies, explicit=True):
        begun = s * block_N // form.part + n if page < block_N else s * block_N // page
        numbers[n] = Table[b, T.min(begun, Table.shape[1] - 1)]
    for n in T.unroll(form.copies, explicit=True):
        if n > 0:
            numbers[n] = T.if_then_else(
                s * block_N // form.part + n <= last, numbers[n], numbers[0]
            )
    load(form, K, numbers, K_first, b, g, s * block_N)
    load(form, V, numbers, V_first, b, g, s * block_N)
    behind = (s + 1) * block_N > length
    step(own, K_first, V_first, s * block_N, length, begin, form.scale, behind)


@T.macro
def attend(form, cache, Q, own, b, g, s, length, span):
    """Attend to the tiles of share s."""
    K, V, Table = cache
    block_N, page = form.block_N, form.page
    K_shared, V_shared = own.tiles
    begin, _, _, start, count = span
    numbers = T.alloc_local((block_N // form.part,), T.int32)
    early_numbers = T.alloc_local((block_N // form.part,), T.int32)
    if page:
        last = T.max(length - 1, 0) // page
        if form.listed:
            last = T.min(last, Table.shape[1] - 1)
        T.assume(last < Table.shape[1])
    load_queries(form, Q, own, b, g)
    begin_softmax(own)
    if form.early:
        last_page = last if page else None
        attend_early(form, cache, early_numbers, last_page, own, b, g, s, length, begin)
    stages = form.num_stages - 1 if form.early else form.num_stages
    for t in T.Pipelined(count, num_stages=stages):
        # From the last keys on, so that their mask stands in front of the loop.
        tile = s + (t + 1) * form.splits if form.early else start + count - 1 - t
        first = tile * block_N
        T.assume(tile >= 0)
        for n in T.unroll(form.copies, explicit=True):
            # What is behind the last page is masked: that page again.
            place = tile * (block_N // form.part) + n if page < block_N else first // page
            numbers[n] = Table[b, T.min(place, last)]
        load(form, K, numbers, K_shared, b, g, first)
        load(form, V, numbers, V_shared, b, g, first)
        masked = first + block_N > length if form.early else t == 0
        step(own, K_shared, V_shared, first, length, begin, form.scale, masked)


# Fast math leaves out what exp2 does for subnormal weights.
@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def gqa_decode(
    heads,
    key_heads,
    dim=128,
    splits=1,
    page=None,
    window=None,
    sinks=False,
    dtype=T.float16,
    block_H=None,
    block_N=64,
    num_stages=3,
    threads=128,
    least=1,
    min_blocks=2,
    dependent=False,
    listed=False,
    early=False,
):
    """softmax(q K^T / sqrt(dim)) V of q (batch, heads, dim), a token of each sequence, after
    `Lengths` (batch,) keys. K and V are (batch, longest, key_heads, dim), or with `page` (pages,
    page, key_heads, dim), of which row b of `Table` (batch, most) names those of sequence b. What
    lies behind a sequence's last key in its tile has to be finite.

    Each head of keys is for heads / key_heads neighbours of q's, which are the first of the
    products' block_H columns, by default the least multiple of 8. With `window` the last so many
    keys count. With `sinks` each head has a logit without a value. `splits` blocks share the keys
    of a head, `least` tiles of block_N each or more, so that blocks of short sequences have as much
    to do as those of long ones; then their results are combined by a second kernel, which, if it is
    `dependent`, is launched while the first one ends (from sm_90 on). `min_blocks` are to share a
    multiprocessor.

    If `listed`, `Lengths` is what `list_shares` makes of them for the same `splits`, `least`,
    `block_N` and `window`: then no block starts that has no keys, and the longest start first. It
    is the same for all layers of a model. A list for other tensors ends the kernel by a trap.

    If `early`, which takes no window and no list, shares have tiles in turns, so that the first one
    is loaded beside the sequence's length; blocks without keys load one, too. It has one of the
    `num_stages`, of which there are two or more. It pays where all shares have a few tiles.
    """
    batch, longest, pages, most, blocks = T.dynamic("batch, longest, pages, most, blocks")
    form = form_of(
        *(heads, key_heads, block_H, block_N, dim, splits, least),
        *(num_stages, listed, early, page, window),
    )
    cached = (pages, page, key_heads, dim) if page else (batch, longest, key_heads, dim)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor(cached, dtype),
        V: T.Tensor(cached, dtype),
        Table: T.Tensor((batch, most), T.int32),
        Lengths: T.Tensor((blocks, 4) if listed else (batch,), T.int32),
        Sinks: T.Tensor((heads,), T.float32),
    ):
        Output = T.empty((batch, heads, dim), dtype)
        if splits > 1:
            partial = T.alloc_global((batch, heads, splits, dim), T.float32)
            log_sums = T.alloc_global((batch, heads, splits), T.float32)
        with T.Kernel(*grid_of(form, key_heads, batch, blocks), threads=threads) as (g, y, z):
            # One loads while the other one waits for its products.
            T.annotate_min_blocks_per_sm(min_blocks)
            if page:
                # Who looks pages up and loads them has addresses to keep.
                T.annotate_producer_reg_dealloc(40)
            own = state_of(form, dtype)
            b, s, listed_share, length = share_of(form, Lengths, y, z, Q, Table if page else K)
            span = tiles_of(form, s, listed_share, length)
            attend(form, (K, V, Table), Q, own, b, g, s, length, span)
            end_softmax(form, own)
            if splits > 1:
                leave_share(form, own, (partial, log_sums), b, g, s, span, form.scale)
            else:
                leave_result(form, own, Output, b, g, Sinks if sinks else None)
        if splits > 1:
            combine(partial, log_sums, Sinks if sinks else None, Output, dependent, listed)
        return Output

    return main


def splits_for(batch, key_heads, length, blocks=264, block_N=64):
    """How many blocks share the keys of a head, so that about `blocks` have work: two for each
    multiprocessor of an H200, whose loads hide each other's latency."""
    return max(1, min(blocks // (batch * key_heads), length // (2 * block_N), MOST_SPLITS))


def shares_for(lengths, key_heads, waves=1, blocks=264, block_N=64):
    """`splits` and `least` with which blocks have equal shares of all sequences' keys, as many as
    `waves` times `blocks` run, or fewer."""
    tiles = [-(-length // block_N) for length in lengths]
    least = max(1, sum(tiles) * key_heads // (waves * blocks), -(-max(tiles) // MOST_SPLITS))
    while sum(-(-n // least) for n in tiles) * key_heads > waves * blocks and least < max(tiles):
        least += 1
    splits = -(-max(tiles) // least)
    return splits, least if splits > 1 else 1


def list_shares(lengths, splits=1, least=1, block_N=64, window=None, device="cpu"):
    """The shares that have keys, and of sequences without keys one: (shares, 4) of sequence, number
    of the share, tiles of each of the sequence's shares, and its length. Those with the most tiles
    come first."""
    shares = []
    for b, length in enumerate(lengths):
        begin = max(length - window, 0) // block_N if window else 0
        tiles = -(-length // block_N) - begin
        share = max(-(-tiles // splits), least)
        shares += [
            (min(share, tiles - s * share), (b, s, share, length))
            for s in range(max(-(-tiles // share), 1))
        ]
    shares.sort(key=lambda share: -share[0])
    return torch.tensor([share for _, share in shares], dtype=torch.int32, device=device)


def inputs(lengths, heads, key_heads, dim, page=None, dtype=T.float16, device="cpu"):
    """q, keys, values, table of pages, lengths and sinks; pages are in no order."""
    torch_dtype, batch, longest = dtype.as_torch(), len(lengths), max(max(lengths), 1)
    most = -(-longest // page) if page else 1
    cached = (batch * most, page) if page else (batch, longest)
    q = torch.randn(batch, heads, dim, device=device).to(torch_dtype)
    k, v = (
        torch.randn(*cached, key_heads, dim, device=device, dtype=torch_dtype) for _ in range(2)
    )
    table = torch.randperm(batch * most, device=device).int().view(batch, most)
    return (
        q,
        k,
        v,
        table,
        torch.tensor(lengths, dtype=torch.int32, device=device),
        torch.randn(heads, device=device),
    )


def reference(q, k, v, table, lengths, sinks, page=None, window=None):
    """The same in float64; `sinks` may be None."""
    found = []
    for b, length in enumerate(lengths.tolist()):
        keys, values = (x[table[b].long()].flatten(0, 1) if page else x[b] for x in (k, v))
        begin = max(length - window, 0) if window else 0
        keys, values = (
            x[begin:length].double().repeat_interleave(q.shape[1] // x.shape[1], dim=1)
            for x in (keys, values)
        )
        scores = torch.einsum("hd,lhd->hl", q[b].double(), keys) / q.shape[2] ** 0.5
        if sinks is not None:
            scores = torch.cat((scores, sinks.double()[:, None]), dim=1)
        weights = scores.softmax(1)[:, : length - begin]
        found.append(torch.einsum("hl,lhd->hd", weights, values))
    return torch.stack(found)


def relative_error(lengths, heads, key_heads, dim, splits, device="cpu", **options):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    page, dtype = options.get("page"), options.get("dtype", T.float16)
    tensors = inputs(lengths, heads, key_heads, dim, page, dtype, device)
    kernel = gqa_decode(heads, key_heads, dim, splits, **options)
    sinks = tensors[5] if options.get("sinks") else None
    wanted = reference(*tensors[:5], sinks, page, options.get("window"))
    if options.get("listed"):
        cut = {name: options[name] for name in ("least", "block_N", "window") if name in options}
        shares = list_shares(lengths, splits, **cut, device=device)
        tensors = (*tensors[:4], shares, tensors[5])
    return float((kernel(*tensors).double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", help="keys of each sequence")
    parser.add_argument("--heads", type=int, nargs=2, default=[32, 8] if gpu else [6, 2])
    parser.add_argument("--dim", type=int, default=128 if gpu else 64, help="of a head")
    parser.add_argument("--page", type=int, default=64 if gpu else 16)
    parser.add_argument("--splits", type=int, help="blocks that share the keys of a head")
    arguments = parser.parse_args()
    lengths = arguments.lengths or ([8192, 1, 777, 4096] * 8 if gpu else [150, 1])
    splits = arguments.splits or splits_for(len(lengths), arguments.heads[1], max(lengths))
    window = max(lengths) // 2 + 1
    for page, options in (
        (None, {}),
        (arguments.page, {}),
        (arguments.page, {"window": window, "sinks": True, "dtype": T.bfloat16}),
    ):
        error = relative_error(
            *(lengths, *arguments.heads, arguments.dim, splits, "cuda" if gpu else "cpu"),
            page=page,
            **options,
        )
        bound = torch.finfo(options.get("dtype", T.float16).as_torch()).eps
        assert error < bound, f"relative error {error:.1e}, wanted under {bound:.1e}"
        form = "pages" if page else "rows"
        print(f"{form} {options}: relative error {error:.1e}")
