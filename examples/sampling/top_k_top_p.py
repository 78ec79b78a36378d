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

LOG2_E = 1.44269504
PIVOTS = 3
LANES = 32
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
def threshold(measure, source, wanted, by_weight, low: T.Ref, high, spare, state):
    """Raise `low` to the largest key that has enough logits from it on, their number or,
    `by_weight`, their weight; or to one with no more than `spare` logits between the two. There is
    enough from `low` on, not from `high` on."""
    pivots, weights, numbers = state
    behind = T.alloc_var(T.uint32, init=high)
    from_low = T.alloc_var(T.int32, init=2147483647)
    from_behind = T.alloc_var(T.int32, init=0)
    while behind - low > T.uint32(1) and from_low - from_behind > spare:
        begin = T.alloc_var(T.uint32, init=low)
        end = T.alloc_var(T.uint32, init=behind)
        step = T.max((end - begin) // T.uint32(PIVOTS + 1), T.uint32(1))
        for p in T.Parallel(PIVOTS):
            pivots[p] = number_of(T.min(begin + T.cast(p + 1, T.uint32) * step, end))
        measure(source, by_weight, state)
        for p in T.unroll(PIVOTS, explicit=True):
            pivot = T.min(begin + T.uint32(p + 1) * step, end)
            enough = (weights if by_weight else numbers)[p] >= wanted
            if enough:
                low = pivot
                from_low = numbers[p]
            if not enough and pivot < behind:
                behind = pivot
                from_behind = numbers[p]


@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def top_k_top_p(vocabulary, threads=1024, loads=4, listed=4096, ranked=1024):
    """A token for each row of Logits (batch, vocabulary) in float32. It is one of the K[row]
    largest logits, and those equal to the last of them; of these it is one of the fewest, again
    with equals, whose softmax weights are at least P[row] of these logits' together; of these it is
    the first one, in the order of the vocabulary, at which the sum of weights exceeds
    Uniform[row], 0 to 1, times all of it. A thread has `loads` vectors of a row in flight; up to
    `listed` logits are listed, up to `ranked` of them ordered."""
    batch = T.dynamic("batch")
    block = 4 * threads
    blocks = -(-vocabulary // block)
    tiles = -(-blocks // loads)
    apart = max(1, blocks // loads)  # blocks of the sample
    lines = ranked // LANES

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
        for p, j in T.Parallel(PIVOTS, values.shape[0]):
            number[p, j] = T.if_then_else(values[j] >= pivots[p] and j < size, 1, 0)
        T.reduce_sum(number, numbers, dim=1)

    @T.macro
    def weight_from(Logits, row, low, top, logits, sums, total):
        """The weight of all logits from `low` on."""
        T.clear(sums)
        for tile in T.serial(tiles):
            load(Logits, row, tile * loads, 1, logits)
            for u in T.unroll(loads, explicit=True):
                for j in T.Parallel(block):
                    if logits[u, j] >= low and (tile * loads + u) * block + j < vocabulary:
                        sums[j] += weight_of(logits[u, j], top)
        T.reduce_sum(sums, total, dim=0)

    @T.macro
    def by_passes(Logits, row, k, p, uniform, Token, logits, sums, state):
        """Any row."""
        weight = T.alloc_fragment((PIVOTS, block), T.float32)
        number = T.alloc_fragment((PIVOTS, block), T.int32)
        largest = T.alloc_shared((1,), T.float32)
        total = T.alloc_shared((1,), T.float32)
        prefix = T.alloc_shared((threads // LANES, block * LANES // threads), T.float32)
        line_sums = T.alloc_shared((threads // LANES,), T.float32)
        one = T.alloc_fragment((1, block), T.float32)
        where = T.alloc_fragment((block,), T.int32)
        first = T.alloc_shared((1,), T.int32)
        line = block * LANES // threads

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
            threshold(measure_row, source, k, False, low, high, 1, state)
        weight_from(Logits, row, number_of(low), top, logits, sums, total)
        # All weights together are all of them, however sums are rounded.
        if p < 1:
            threshold(measure_row, source, p * total[0], True, low, high, 1, state)
            weight_from(Logits, row, number_of(low), top, logits, sums, total)

        target = uniform * total[0]
        before = T.alloc_var(T.float32, init=0.0)
        token = T.alloc_var(T.int32, init=-1)
        last = T.alloc_var(T.int32, init=0)  # of them all, where sums are rounded down
        for b in T.serial(blocks):
            if token < 0:
                load(Logits, row, b, 1, one)
                for j in T.Parallel(block):
                    inside = one[0, j] >= number_of(low) and b * block + j < vocabulary
                    sums[j] = T.if_then_else(inside, weight_of(one[0, j], top), 0)
                T.reduce_sum(sums, total, dim=0)
                if total[0] > 0:
                    for j in T.Parallel(block):
                        where[j] = T.if_then_else(sums[j] > 0, j, -1)
                    T.reduce_max(where, first, dim=0)
                    last = b * block + first[0]
                if before + total[0] > target:
                    for j in T.Parallel(block):
                        prefix[j // line, j % line] = sums[j]
                    T.cumsum(prefix, dim=1)
                    for i in T.Parallel(threads // LANES):
                        line_sums[i] = prefix[i, line - 1]
                    T.cumsum(line_sums, dim=0)
                    for j in T.Parallel(block):
                        lines_before = T.if_then_else(
                            j < line, 0, line_sums[T.max(j // line - 1, 0)]
                        )
                        exceeds = before + lines_before + prefix[j // line, j % line] > target
                        where[j] = T.if_then_else(sums[j] > 0 and exceeds, j, block)
                    T.reduce_min(where, first, dim=0)
                    token = T.if_then_else(first[0] < block, b * block + first[0], last)
                before = before + total[0]
        Token[row] = T.if_then_else(token < 0, last, token)

    @T.macro
    def by_ranks(order, kept, p, uniform, row, Token):
        """Of a list: its logits with places in the vocabulary, as keys of 64 bits."""
        value = T.alloc_shared((ranked,), T.float32)
        place = T.alloc_shared((ranked,), T.int32)
        weight = T.alloc_shared((ranked,), T.float32)
        prefix = T.alloc_shared((lines, LANES), T.float32)
        line_sums = T.alloc_shared((lines,), T.float32)
        where = T.alloc_fragment((ranked,), T.int32)
        first = T.alloc_shared((1,), T.int32)
        count = T.alloc_shared((1,), T.int32)

        # Largest first; of equals, the first in the vocabulary. So sums do not depend on the order
        # in which threads found the logits.
        for j in T.Parallel(ranked, coalesced_width=1):
            if j < kept:
                rank = T.alloc_var(T.int32, init=0)
                for other in T.serial(kept):
                    if order[other] > order[j]:
                        rank += 1
                value[rank] = number_of(T.cast(order[j] >> T.uint64(32), T.uint32))
                place[rank] = T.cast(~T.cast(order[j], T.uint32), T.int32)
        for j in T.Parallel(ranked, coalesced_width=1):
            weight[j] = 0
            if j < kept:
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
        for j in T.Parallel(ranked, coalesced_width=1):
            where[j] = 2147483647
            if j < count[0]:
                total = T.alloc_var(T.float32, init=0.0)
                until = T.alloc_var(T.float32, init=0.0)
                for other in T.serial(count[0]):
                    total += weight[other]
                    if place[other] <= place[j]:
                        until += weight[other]
                # The last one of the vocabulary has until == total.
                if until > uniform * total or (until == total and weight[j] > 0):
                    where[j] = place[j]
        T.reduce_min(where, first, dim=0)
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
            sample = T.alloc_fragment((PIVOTS, block), T.int32)
            largest = T.alloc_shared((1,), T.float32)
            values = T.alloc_shared((listed,), T.float32)
            places = T.alloc_shared((listed,), T.int32)
            found = T.alloc_shared((2,), T.int32)
            inside = T.alloc_fragment((listed,), T.float32)
            flags = T.alloc_fragment((PIVOTS, listed), T.int32)
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
                # At least k maxima reach it, and no more than a quarter more.
                floor = T.alloc_var(T.uint32, init=T.uint32(LOWEST))
                spare = T.max(k // 4, 4)
                found_in = (sums, block, sample)
                threshold(measure_list, found_in, k, False, floor, T.uint32(BEHIND), spare, state)
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
                    for j in T.Parallel(listed):
                        inside[j] = T.if_then_else(j < size, values[j], -T.infinity(T.float32))
                    T.reduce_max(inside, largest, dim=0)
                    cut = T.alloc_var(T.uint32, init=floor)
                    behind = ordered(largest[0]) + T.uint32(1)
                    found_in = (inside, size, flags)
                    threshold(measure_list, found_in, k, False, cut, behind, 1, state)
                    least = number_of(cut)
                    for j in T.Parallel(listed):
                        if j < size and inside[j] >= least:
                            at = T.atomic_add(found[1], 1, return_prev=True)
                            if at < ranked:
                                key = T.cast(ordered(inside[j]), T.uint64) << T.uint64(32)
                                place = T.cast(~T.cast(places[j], T.uint32), T.uint64)
                                order[at] = key | place
                    if found[1] <= ranked:
                        by_ranks(order, found[1], P[row], Uniform[row], row, Token)
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
