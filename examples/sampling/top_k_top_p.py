"""Sampling of the next token from the k most likely ones, and of these from the fewest that have a
probability of p together. A sample of a row tells a number that at least k logits reach; one pass
lists those that do, a few thousand at most, and all else is about the list. If there are more (a
large k, many equals), thresholds are found by bisection of the logits' bits, into four parts at a
time, each with a pass over the row. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_fully_replicated_layout_fragment

LOG2_E = 1.44269504
PIVOTS = 3  # of a pass over the row
LIST_PIVOTS = 7
LANES = 32
VECTOR = 4
PARTS = 8  # threads that share a sum over a list
SMALL = {"threads": 32, "loads": 1, "listed": 96, "ranked": 64}  # for a few hundred tokens
LOWEST = 0x007FFFFF  # the key of -inf
BEHIND = 0xFF800001  # behind that of inf


@T.macro
def ordered(x):
    """Bits of a float32 as a uint32 that is larger where the number is."""
    bits = T.reinterpret(x, T.uint32)
    negative = bits >= T.uint32(0x80000000)
    return bits ^ T.if_then_else(negative, T.uint32(0xFFFFFFFF), T.uint32(0x80000000))


@T.macro
def number_of(key):
    """The float32 whose `ordered` bits these are."""
    negative = key < T.uint32(0x80000000)
    bits = key ^ T.if_then_else(negative, T.uint32(0xFFFFFFFF), T.uint32(0x80000000))
    return T.reinterpret(bits, T.float32)


@T.macro
def weight_of(logit, top):
    """A softmax weight, of the largest one 1."""
    return T.if_then_else(logit == top, T.float32(1), T.exp2((logit - top) * LOG2_E))


@T.macro
def threshold(measure, source, wanted, by_weight, low: T.Ref, high, most, state):
    """Raise `low` to the largest key that has enough logits from it on, their number or,
    `by_weight`, their weight; or to one with no more than `most` of them. There is enough from
    `low` on, not from `high` on."""
    pivots, weights, numbers = state
    count = pivots.shape[0]
    behind = T.alloc_var(T.uint32, init=high)
    from_low = T.alloc_var(T.int32, init=2147483647)
    from_behind = T.alloc_var(T.int32, init=0)
    while behind - low > T.uint32(1) and from_low > most and from_low - from_behind > 1:
        begin = T.alloc_var(T.uint32, init=low)
        end = T.alloc_var(T.uint32, init=behind)
        step = T.max((end - begin) // T.uint32(count + 1), T.uint32(1))
        for p in T.Parallel(count):
            pivots[p] = number_of(T.min(begin + T.cast(p + 1, T.uint32) * step, end))
        measure(source, by_weight, state)
        for p in T.unroll(count, explicit=True):
            pivot = T.min(begin + T.uint32(p + 1) * step, end)
            enough = (weights if by_weight else numbers)[p] >= wanted
            if enough:
                low = pivot
                from_low = numbers[p]
            if not enough and pivot < behind:
                behind = pivot
                from_behind = numbers[p]


@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def top_k_top_p(vocabulary, threads=512, loads=8, listed=4096, ranked=1024):
    """A token for each row of Logits (batch, vocabulary) in float32. It is one of the K[row]
    largest logits, and those equal to the last of them; of these it is one of the fewest, again
    with equals, whose softmax weights are at least P[row] of these logits' together; of these it is
    the first one, in the order of the vocabulary, at which the sum of weights exceeds
    Uniform[row], 0 to 1, times all of it. A thread has `loads` vectors of a row in flight; up to
    `listed` logits are listed, up to `ranked` of them ordered."""
    batch = T.dynamic("batch")
    block = VECTOR * threads
    blocks = -(-vocabulary // block)
    tiles = -(-blocks // loads)
    apart = max(1, blocks // loads)  # blocks of the sample
    lines = ranked // LANES
    warps, width = threads // LANES, VECTOR * LANES
    chunks = listed // threads
    apiece = threads // PARTS

    @T.macro
    def load(Logits, row, first, apart, logits):
        """Blocks of a row from `first` on, `apart` from each other, and what is below all logits
        behind the row's end."""
        for u, j in T.Parallel(logits.shape[0], block):
            at = (first + u * apart) * block + j
            logits[u, j] = T.if_then_else(at < vocabulary, Logits[row, at], -T.infinity(T.float32))

    @T.macro
    def measure_row(source, by_weight, state):
        """Of the logits from each pivot on: their number and, `by_weight`, their weights."""
        Logits, row, top, logits, weight, number = source
        pivots, weights, numbers = state
        T.clear(weight)
        T.clear(number)
        for tile in T.serial(tiles):
            load(Logits, row, tile * loads, 1, logits)
            for u in T.unroll(loads, explicit=True):
                for p, j in T.Parallel(PIVOTS, block):
                    if logits[u, j] >= pivots[p] and (tile * loads + u) * block + j < vocabulary:
                        number[p, j] += 1
                        if by_weight:
                            weight[p, j] += weight_of(logits[u, j], top)
        if by_weight:
            T.reduce_sum(weight, weights, dim=1)
        T.reduce_sum(number, numbers, dim=1)

    @T.macro
    def measure_list(source, by_weight, state):
        """The same of a list, of which the first `size` are logits: their number alone."""
        values, size, number = source
        pivots, _, numbers = state
        T.clear(number)
        for c in T.unroll(values.shape[0], explicit=True):
            if c * threads < size:
                for p, j in T.Parallel(LIST_PIVOTS, threads):
                    if values[c, j] >= pivots[p] and c * threads + j < size:
                        number[p, j] += 1
        T.reduce_sum(number, numbers, dim=1)

    @T.macro
    def weight_from(Logits, row, low, top, logits, total: T.Ref, weights):
        """The weights of all logits from `low` on, of the whole row and of each of its tiles."""
        of_tiles, of_warps = weights
        line = T.alloc_fragment((warps, width), T.float32)
        line_sums = T.alloc_fragment((warps,), T.float32)
        tile_lines = T.alloc_fragment((tiles, warps), T.float32)
        for tile in T.serial(tiles):
            load(Logits, row, tile * loads, 1, logits)
            T.clear(line)
            for u in T.unroll(loads, explicit=True):
                for w, i in T.Parallel(warps, width):
                    j = w * width + i
                    if logits[u, j] >= low and (tile * loads + u) * block + j < vocabulary:
                        line[w, i] += weight_of(logits[u, j], top)
            # Within a warp, so that none waits for another one before the next tile.
            T.reduce_sum(line, line_sums, dim=1)
            T.copy(line_sums, of_warps[tile, :])
        T.copy(of_warps, tile_lines)
        T.reduce_sum(tile_lines, of_tiles, dim=1)
        total = 0.0
        for tile in T.serial(tiles):
            total += of_tiles[tile]

    @T.macro
    def by_passes(Logits, row, k, p, uniform, Token, logits, sums, state):
        """Any row."""
        weight = T.alloc_fragment((PIVOTS, block), T.float32)
        number = T.alloc_fragment((PIVOTS, block), T.int32)
        largest = T.alloc_shared((1,), T.float32)
        block_sum = T.alloc_shared((1,), T.float32)
        prefix = T.alloc_shared((warps, width), T.float32)
        line_sums = T.alloc_shared((warps,), T.float32)
        one = T.alloc_fragment((1, block), T.float32)
        where = T.alloc_fragment((block,), T.int32)
        first = T.alloc_shared((1,), T.int32)
        total = T.alloc_var(T.float32, init=0.0)
        of_tiles = T.alloc_shared((tiles,), T.float32)
        weights_of = (of_tiles, T.alloc_shared((tiles, warps), T.float32))

        T.fill(sums, -T.infinity(T.float32))
        for tile in T.serial(tiles):
            load(Logits, row, tile * loads, 1, logits)
            T.reduce_max(logits, sums, dim=0, clear=False)
        T.reduce_max(sums, largest, dim=0)
        top = largest[0]
        high = ordered(top) + T.uint32(1)
        source = (Logits, row, top, logits, weight, number)
        low = T.alloc_var(T.uint32, init=T.uint32(LOWEST))
        if k < vocabulary:
            threshold(measure_row, source, k, False, low, high, 0, state)
        weight_from(Logits, row, number_of(low), top, logits, total, weights_of)
        # All weights together are all of them, however sums are rounded.
        if p < 1:
            threshold(measure_row, source, p * total, True, low, high, 0, state)
            weight_from(Logits, row, number_of(low), top, logits, total, weights_of)

        target = T.alloc_var(T.float32, init=uniform * total)
        # The tile in which the sum exceeds the target, or the last one that adds to it.
        begin = T.alloc_var(T.int32, init=0)
        before = T.alloc_var(T.float32, init=0.0)
        until = T.alloc_var(T.float32, init=0.0)
        for tile in T.serial(tiles):
            if until <= target and of_tiles[tile] > 0:
                begin = tile * loads
                before = until
                until += of_tiles[tile]
        token = T.alloc_var(T.int32, init=-1)
        last = T.alloc_var(T.int32, init=0)  # of them all, where sums are rounded down
        for b in T.serial(blocks):
            if token < 0 and b >= begin:
                load(Logits, row, b, 1, one)
                for j in T.Parallel(block):
                    inside = one[0, j] >= number_of(low) and b * block + j < vocabulary
                    sums[j] = T.if_then_else(inside, weight_of(one[0, j], top), 0)
                T.reduce_sum(sums, block_sum, dim=0)
                if block_sum[0] > 0:
                    for j in T.Parallel(block):
                        where[j] = T.if_then_else(sums[j] > 0, j, -1)
                    T.reduce_max(where, first, dim=0)
                    last = b * block + first[0]
                if before + block_sum[0] > target:
                    for j in T.Parallel(block):
                        prefix[j // width, j % width] = sums[j]
                    T.cumsum(prefix, dim=1)
                    for i in T.Parallel(warps):
                        line_sums[i] = prefix[i, width - 1]
                    T.cumsum(line_sums, dim=0)
                    for j in T.Parallel(block):
                        lines_before = T.if_then_else(
                            j < width, 0, line_sums[T.max(j // width - 1, 0)]
                        )
                        exceeds = before + lines_before + prefix[j // width, j % width] > target
                        where[j] = T.if_then_else(sums[j] > 0 and exceeds, j, block)
                    T.reduce_min(where, first, dim=0)
                    token = T.if_then_else(first[0] < block, b * block + first[0], last)
                before = before + block_sum[0]
        Token[row] = T.if_then_else(token < 0, last, token)

    @T.macro
    def by_ranks(order, kept, k, p, uniform, row, Token):
        """Of a list that has the `k` largest logits: these with places in the vocabulary, as keys
        of 64 bits."""
        value = T.alloc_shared((ranked,), T.float32)
        place = T.alloc_shared((ranked,), T.int32)
        weight = T.alloc_shared((ranked,), T.float32)
        prefix = T.alloc_shared((lines, LANES), T.float32)
        line_sums = T.alloc_shared((lines,), T.float32)
        where = T.alloc_fragment((ranked,), T.int32)
        first = T.alloc_shared((1,), T.int32)
        count = T.alloc_shared((1,), T.int32)

        larger = T.alloc_fragment((apiece, PARTS), T.int32)
        rank = T.alloc_fragment((apiece,), T.int32)
        # Of weights: of those up to a token in the vocabulary, and of all.
        up_to = T.alloc_fragment((apiece, PARTS), T.float32)
        of_all = T.alloc_fragment((apiece, PARTS), T.float32)
        until = T.alloc_fragment((apiece,), T.float32)
        total = T.alloc_fragment((apiece,), T.float32)

        # Largest first; of equals, the first in the vocabulary. So sums do not depend on the order
        # in which threads found the logits.
        for step in T.serial(T.ceildiv(kept, apiece)):
            T.clear(larger)
            for i, part in T.Parallel(apiece, PARTS):
                j = step * apiece + i
                if j < kept:
                    for n in T.serial(T.ceildiv(kept - part, PARTS)):
                        if order[n * PARTS + part] > order[j]:
                            larger[i, part] += 1
            T.reduce_sum(larger, rank, dim=1)
            for i in T.Parallel(apiece):
                j = step * apiece + i
                if j < kept:
                    value[rank[i]] = number_of(T.cast(order[j] >> T.uint64(32), T.uint32))
                    place[rank[i]] = T.cast(~T.cast(order[j], T.uint32), T.int32)
        for j in T.Parallel(ranked, coalesced_width=1):
            weight[j] = 0
            if j < kept and value[j] >= value[T.max(k - 1, 0)]:
                weight[j] = weight_of(value[j], value[0])
            prefix[j // LANES, j % LANES] = weight[j]
        T.cumsum(prefix, dim=1)
        for i in T.Parallel(lines):
            line_sums[i] = prefix[i, LANES - 1]
        T.cumsum(line_sums, dim=0)
        for j in T.Parallel(ranked, coalesced_width=1):
            lines_before = T.if_then_else(j < LANES, 0, line_sums[T.max(j // LANES - 1, 0)])
            enough = lines_before + prefix[j // LANES, j % LANES] >= p * line_sums[lines - 1]
            where[j] = T.if_then_else(enough and j < kept, j, kept - 1)
        T.reduce_min(where, first, dim=0)
        for j in T.Parallel(ranked, coalesced_width=1):
            where[j] = T.if_then_else(j < kept and value[j] >= value[first[0]], 1, 0)
        T.reduce_sum(where, count, dim=0)
        size = T.alloc_var(T.int32, init=count[0])
        for i in T.Parallel(1):
            first[i] = 2147483647
        for step in T.serial(T.ceildiv(size, apiece)):
            T.clear(up_to)
            T.clear(of_all)
            for i, part in T.Parallel(apiece, PARTS):
                j = step * apiece + i
                if j < size:
                    for n in T.serial(T.ceildiv(size - part, PARTS)):
                        of_all[i, part] += weight[n * PARTS + part]
                        if place[n * PARTS + part] <= place[j]:
                            up_to[i, part] += weight[n * PARTS + part]
            T.reduce_sum(of_all, total, dim=1)
            T.reduce_sum(up_to, until, dim=1)
            for i in T.Parallel(apiece):
                j = step * apiece + i
                # The last one of the vocabulary has until == total.
                is_last = until[i] == total[i] and weight[j] > 0
                if j < size and (until[i] > uniform * total[i] or is_last):
                    T.atomic_min(first[0], place[j])
        Token[row] = first[0]

    @T.prim_func
    def main(
        Logits: T.Tensor((batch, vocabulary), T.float32),
        K: T.Tensor((batch,), T.int32),
        P: T.Tensor((batch,), T.float32),
        Uniform: T.Tensor((batch,), T.float32),
        Token: T.Tensor((batch,), T.int32),
    ):
        with T.Kernel(batch, threads=threads) as row:
            logits = T.alloc_fragment((loads, block), T.float32)
            sums = T.alloc_fragment((block,), T.float32)
            pivots = T.alloc_fragment((PIVOTS,), T.float32)
            # Shared: what decides about loops is the same in all threads.
            weights = T.alloc_shared((PIVOTS,), T.float32)
            numbers = T.alloc_shared((PIVOTS,), T.int32)
            state = (pivots, weights, numbers)
            # The same for lists.
            list_pivots = T.alloc_fragment((LIST_PIVOTS,), T.float32)
            list_state = (list_pivots, None, T.alloc_shared((LIST_PIVOTS,), T.int32))
            # Each thread compares with all of them.
            T.annotate_layout(
                {list_pivots: make_fully_replicated_layout_fragment(list_pivots, threads)}
            )
            number = T.alloc_fragment((LIST_PIVOTS, threads), T.int32)
            maxima = T.alloc_fragment((1, threads), T.float32)
            smallest = T.alloc_shared((1,), T.float32)
            largest = T.alloc_shared((1,), T.float32)
            values = T.alloc_shared((listed,), T.float32)
            places = T.alloc_shared((listed,), T.int32)
            found = T.alloc_shared((2,), T.int32)
            inside = T.alloc_fragment((chunks, threads), T.float32)
            order = T.alloc_shared((ranked,), T.uint64)

            k = T.min(K[row], vocabulary)
            done = T.alloc_var(T.bool, init=False)
            # Of so many logits, a few blocks tell a number beyond which there are not too many.
            tries = T.alloc_var(T.int32, init=T.if_then_else(k * tiles <= listed // 2, 0, 1))
            if k > ranked // 2:
                tries = 2
            while not done and tries < 2:
                whole = tries > 0
                T.fill(sums, -T.infinity(T.float32))
                stride = T.if_then_else(whole, 1, apart)
                for tile in T.serial(T.if_then_else(whole, tiles, 1)):
                    load(Logits, row, tile * loads, stride, logits)
                    T.reduce_max(logits, sums, dim=0, clear=False)
                for i in T.Parallel(threads):
                    maxima[0, i] = T.max(
                        T.max(sums[i * VECTOR], sums[i * VECTOR + 1]),
                        T.max(sums[i * VECTOR + 2], sums[i * VECTOR + 3]),
                    )
                T.reduce_min(maxima, smallest, dim=1)
                T.reduce_max(maxima, largest, dim=1)
                # At least k maxima reach it, and no more than half more, unless there are equals.
                floor = T.alloc_var(T.uint32, init=T.uint32(LOWEST))
                if k <= threads:
                    floor = ordered(smallest[0])
                behind_all = ordered(largest[0]) + T.uint32(1)
                found_in = (maxima, threads, number)
                threshold(
                    measure_list, found_in, k, False, floor, behind_all, k + k // 2, list_state
                )
                for i in T.Parallel(2):
                    found[i] = 0
                lowest = number_of(floor)
                for tile in T.serial(tiles):
                    load(Logits, row, tile * loads, 1, logits)
                    for u, j in T.Parallel(loads, block):
                        if logits[u, j] >= lowest:
                            at = T.atomic_add(found[0], 1, return_prev=True)
                            if at < listed:
                                values[at] = logits[u, j]
                                places[at] = (tile * loads + u) * block + j
                size = found[0]
                # -inf is also what stands behind the end of the row.
                if lowest > -T.infinity(T.float32) and size >= k and size <= listed:
                    T.fill(maxima, -T.infinity(T.float32))
                    for c in T.unroll(chunks, explicit=True):
                        for j in T.Parallel(threads):
                            if c * threads + j < size:
                                inside[c, j] = values[c * threads + j]
                                maxima[0, j] = T.max(maxima[0, j], inside[c, j])
                    T.reduce_max(maxima, largest, dim=1)
                    cut = T.alloc_var(T.uint32, init=floor)
                    behind = ordered(largest[0]) + T.uint32(1)
                    found_in = (inside, size, number)
                    threshold(
                        measure_list,
                        found_in,
                        k,
                        False,
                        cut,
                        behind,
                        k + k // 2 + LANES,
                        list_state,
                    )
                    least = number_of(cut)
                    for c, j in T.Parallel(chunks, threads):
                        if c * threads + j < size and inside[c, j] >= least:
                            at = T.atomic_add(found[1], 1, return_prev=True)
                            if at < ranked:
                                key = T.cast(ordered(inside[c, j]), T.uint64) << T.uint64(32)
                                place = ~T.cast(places[c * threads + j], T.uint32)
                                order[at] = key | T.cast(place, T.uint64)
                    if found[1] <= ranked:
                        by_ranks(order, found[1], k, P[row], Uniform[row], row, Token)
                        done = True
                    else:
                        tries = 2
                tries = tries + 1
            if not done:
                by_passes(Logits, row, k, P[row], Uniform[row], Token, logits, sums, state)

    return main


def inputs(batch, vocabulary, device="cpu"):
    """Logits, k, p and uniform numbers; the first rows take all tokens, one token, and have
    equals."""
    logits = 3 * torch.randn(batch, vocabulary, device=device)
    k = torch.randint(2, min(vocabulary, 200), (batch,), device=device).int()
    p = 0.1 + 0.85 * torch.rand(batch, device=device)
    k[0], p[0] = vocabulary, 1
    if batch > 2:
        k[1] = 1
        logits[2] = logits[2].round()
    return logits, k, p, torch.rand(batch, device=device)


def sums(logits, k, p):
    """For each row, in float64: sums of weights up to each token, and which tokens may be taken."""
    weights = logits.double().softmax(1)
    ranked, order = weights.sort(1, descending=True)
    kth = ranked.gather(1, k.long()[:, None] - 1)
    weights = torch.where(weights >= kth, weights, 0)
    weights = weights / weights.sum(1, keepdim=True)
    ranked = weights.gather(1, order)
    enough = (ranked.cumsum(1) >= p.double()[:, None] - 1e-7).int().argmax(1, keepdim=True)
    weights = torch.where(weights >= ranked.gather(1, enough), weights, 0)
    weights = weights / weights.sum(1, keepdim=True)
    return weights.cumsum(1), weights > 0


def distance(batch, vocabulary, device="cpu", **tile):
    """How far the uniform numbers are from the tokens' parts of the probability, at most."""
    torch.manual_seed(0)
    logits, k, p, uniform = inputs(batch, vocabulary, device)
    token = top_k_top_p(vocabulary, **tile)(logits, k, p, uniform).long()[:, None]
    total, allowed = sums(logits, k, p)
    assert allowed.gather(1, token).all(), "found a token that is not one of the likely ones"
    end = total.gather(1, token)
    begin = torch.where(token > 0, total.gather(1, (token - 1).clamp(min=0)), 0)
    outside = torch.maximum(begin - uniform[:, None], uniform[:, None] - end)
    return float(outside.max().clamp(min=0))


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--size", type=int, nargs=2, default=[64, 128256] if gpu else [4, 300], help="rows, tokens"
    )
    batch, vocabulary = parser.parse_args().size
    tile = {} if gpu else SMALL
    off = distance(batch, vocabulary, "cuda" if gpu else "cpu", **tile)
    assert off < 1e-5, f"{off:.1e} off, wanted under 1e-5"
    print(f"{batch} of {vocabulary} tokens: {off:.1e} off")
