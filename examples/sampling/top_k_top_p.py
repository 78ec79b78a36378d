"""Sampling of the next token from the k most likely ones, and of these from the fewest that have a
probability of p together. One pass over a row finds the largest logit of each of its parts, some
thousand. A number that at least k of these reach bounds the k largest logits from below: the parts
that reach it are read once more, and list what does, a few hundred logits, which are compared with
each other. If there are more (a large k, many equals), thresholds are found by bisection of the
logits' bits, into four parts at a time, each with a pass over the row. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import itertools

import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_fully_replicated_layout_fragment

LOG2_E = 1.44269504
PIVOTS = 3  # of a pass over the row
LIST_PIVOTS = 7
LANES = 32
VECTOR = 4
LINE = VECTOR * LANES  # the part of a row that a warp loads at once
PARTS = 8  # threads that share a sum over a list
SMALL = {"threads": 32, "loads": 1, "ranked": 64}  # for a few hundred tokens
LOWEST = 0x007FFFFF  # the key of -inf


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
    from_low = T.alloc_var(T.float32, init=T.infinity(T.float32))
    from_behind = T.alloc_var(T.float32, init=0.0)
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


def tiles_of(Logits, logits):
    """Tiles of the shape of `logits` in a row of Logits."""
    loads, block = logits.shape
    return -(-int(Logits.shape[1]) // int(loads * block))


@T.macro
def load(Logits, row, tile, logits):
    """A tile of a row, and what is below all logits behind the row's end."""
    (loads, block), vocabulary = logits.shape, Logits.shape[1]
    for u, j in T.Parallel(loads, block):
        at = (tile * loads + u) * block + j
        logits[u, j] = T.if_then_else(at < vocabulary, Logits[row, at], -T.infinity(T.float32))


@T.macro
def measure_row(source, by_weight, state):
    """Of the logits from each pivot on: their number and, `by_weight`, their weights."""
    Logits, row, top, logits, weight, number = source
    pivots, weights, numbers = state
    (loads, block), vocabulary = logits.shape, Logits.shape[1]
    T.clear(weight)
    T.clear(number)
    for tile in T.serial(tiles_of(Logits, logits)):
        load(Logits, row, tile, logits)
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
def measure_maxima(source, by_weight, state):
    """The same of parts' largest logits: their number alone."""
    values, number = source
    pivots, _, numbers = state
    T.clear(number)
    for c in T.unroll(values.shape[0], explicit=True):
        for p, j in T.Parallel(*number.shape):
            number[p, j] += T.cast(values[c, j] >= pivots[p], T.float32)
    T.reduce_sum(number, numbers, dim=1)


@T.macro
def weigh(Logits, row, low, logits, of_lines):
    """Of each line the largest logit, and the weights beside it of the logits from `low` on."""
    tops, weights, _ = of_lines
    (loads, block), vocabulary = logits.shape, Logits.shape[1]
    warps = block // LINE
    tile_tops = T.alloc_fragment((loads, warps), T.float32)
    tile_weights = T.alloc_fragment((loads, warps), T.float32)
    in_lines = T.reshape(logits, (loads, warps, LINE))
    for tile in T.serial(tiles_of(Logits, logits)):
        load(Logits, row, tile, logits)
        # Within a warp, so that none waits for another one before the next tile.
        T.reduce_max(in_lines, tile_tops, dim=2)
        for u, w, i in T.Parallel(loads, warps, LINE):
            inside = ((tile * loads + u) * warps + w) * LINE + i < vocabulary
            in_lines[u, w, i] = T.if_then_else(
                inside and in_lines[u, w, i] >= low,
                weight_of(in_lines[u, w, i], tile_tops[u, w]),
                0,
            )
        T.reduce_sum(in_lines, tile_weights, dim=2)
        for u, w in T.Parallel(loads, warps):
            line = (tile * loads + u) * warps + w
            tops[line // LANES, line % LANES] = tile_tops[u, w]
            weights[line // LANES, line % LANES] = tile_weights[u, w]


@T.macro
def sum_up(of_lines, top, until):
    """The lines' weights become those beside the `top` of them all, and each the sum of its
    group up to it; `until` becomes that of the groups."""
    tops, weights, own = of_lines
    groups = until.shape[0]
    largest = T.alloc_fragment((groups,), T.float32)
    T.reduce_max(tops, largest, dim=1)
    T.reduce_max(largest, top, dim=0)
    for g, i in T.Parallel(groups, LANES):
        weights[g, i] = weights[g, i] * weight_of(tops[g, i], top[0])
        own[g, i] = weights[g, i]
    T.cumsum(weights, dim=1)
    for g in T.Parallel(groups):
        until[g] = weights[g, LANES - 1]
    T.cumsum(until, dim=0)


@T.macro
def draw(Logits, row, low, uniform, of_lines, top, until, Token):
    """The token, of sums of weights from `low` on."""
    _, weights, own = of_lines
    groups, vocabulary = until.shape[0], Logits.shape[1]
    first = T.alloc_shared((1,), T.int32)
    last = T.alloc_shared((1,), T.int32)
    line_weights = T.alloc_shared((1, LINE), T.float32)
    of_tokens = T.alloc_shared((LINE,), T.float32)
    target = uniform * until[groups - 1]
    for i in T.Parallel(1):
        first[i] = 2147483647
        last[i] = 0
    # The first line at which the sum exceeds the target, or the last one that adds to it.
    for g, i in T.Parallel(groups, LANES):
        before = T.if_then_else(g > 0, until[T.max(g - 1, 0)], 0)
        if own[g, i] > 0:
            T.atomic_max(last[0], g * LANES + i)
            if before + weights[g, i] > target:
                T.atomic_min(first[0], g * LANES + i)
    line = T.alloc_var(T.int32, init=T.min(first[0], last[0]))
    before = T.alloc_var(T.float32, init=0.0)
    if line >= LANES:
        before = until[line // LANES - 1]
    if line % LANES > 0:
        before += weights[line // LANES, line % LANES - 1]
    for i in T.Parallel(1):
        first[i] = 2147483647
        last[i] = 0
    for i in T.Parallel(LINE):
        at = line * LINE + i
        line_weights[0, i] = 0
        if at < vocabulary and Logits[row, at] >= low:
            line_weights[0, i] = weight_of(Logits[row, at], top[0])
    for i in T.Parallel(LINE):
        of_tokens[i] = line_weights[0, i]
        if line_weights[0, i] > 0:
            T.atomic_max(last[0], line * LINE + i)
    T.cumsum(line_weights, dim=1)
    for i in T.Parallel(LINE):
        adds = of_tokens[i] > 0
        if adds and before + line_weights[0, i] > target:
            T.atomic_min(first[0], line * LINE + i)
    Token[row] = T.min(first[0], last[0])


@T.macro
def by_passes(Logits, row, k, p, uniform, Token, logits, state):
    """Any row."""
    (loads, block), vocabulary = logits.shape, Logits.shape[1]
    # Of 32 lines, each a warp's part of a block.
    groups = -(-tiles_of(Logits, logits) * loads * (block // LINE) // LANES)
    weight = T.alloc_fragment((PIVOTS, block), T.float32)
    number = T.alloc_fragment((PIVOTS, block), T.float32)
    line_tops = T.alloc_shared((groups, LANES), T.float32)
    line_weights = T.alloc_shared((groups, LANES), T.float32)
    line_own = T.alloc_shared((groups, LANES), T.float32)
    T.clear(line_own)
    of_lines = (line_tops, line_weights, line_own)
    top = T.alloc_shared((1,), T.float32)
    until = T.alloc_shared((groups,), T.float32)
    T.fill(line_tops, -T.infinity(T.float32))
    T.clear(line_weights)

    low = T.alloc_var(T.uint32, init=T.uint32(LOWEST))
    weigh(Logits, row, number_of(low), logits, of_lines)
    sum_up(of_lines, top, until)
    high = ordered(top[0]) + T.uint32(1)
    source = (Logits, row, top[0], logits, weight, number)
    if k < vocabulary:
        threshold(measure_row, source, k, False, low, high, 0, state)
        weigh(Logits, row, number_of(low), logits, of_lines)
        sum_up(of_lines, top, until)
    # All weights together are all of them, however sums are rounded.
    if p < 1:
        wanted = T.max(p * until[groups - 1], 1e-30)
        threshold(measure_row, source, wanted, True, low, high, 0, state)
        weigh(Logits, row, number_of(low), logits, of_lines)
        sum_up(of_lines, top, until)
    draw(Logits, row, number_of(low), uniform, of_lines, top, until, Token)


@T.macro
def sort_by_place(listed, size, ordered_list, number, rank):
    """Put a list in the order of the vocabulary, so that sums do not depend on the order in which
    threads found the logits."""
    values, places = listed
    value, place = ordered_list
    apiece = rank.shape[0]
    T.fill(value, -T.infinity(T.float32))
    for step in T.serial(T.ceildiv(size, apiece)):
        T.clear(number)
        for n in T.serial(T.ceildiv(size, PARTS * VECTOR)):
            for v in T.unroll(VECTOR, explicit=True):
                for i, part in T.Parallel(apiece, PARTS):
                    other = (n * PARTS + part) * VECTOR + v
                    # The sign of a difference, which is shifted and added by one instruction.
                    distance = places[other] - places[step * apiece + i]
                    number[i, part] += T.cast(T.cast(distance, T.uint32) >> T.uint32(31), T.int32)
        T.reduce_sum(number, rank, dim=1)
        for i in T.Parallel(apiece):
            if step * apiece + i < size:
                value[rank[i]] = values[step * apiece + i]
                place[rank[i]] = places[step * apiece + i]


@T.macro
def sum_larger(value, weight, size, k, larger, number, rank, above, sum_above):
    """`larger` of each of the `k` largest logits: the sum of the weights of larger ones."""
    apiece = rank.shape[0]
    for step in T.serial(T.ceildiv(size, apiece)):
        T.clear(number)
        T.clear(above)
        for n in T.serial(T.ceildiv(size, PARTS * VECTOR)):
            for v in T.unroll(VECTOR, explicit=True):
                for i, part in T.Parallel(apiece, PARTS):
                    other = (n * PARTS + part) * VECTOR + v
                    # 0 or 1, which one instruction gives, and another one adds; all weights are
                    # loaded, in vectors.
                    is_larger = T.cast(value[other] > value[step * apiece + i], T.float32)
                    number[i, part] += is_larger
                    above[i, part] += is_larger * weight[other]
        T.reduce_sum(number, rank, dim=1)
        T.reduce_sum(above, sum_above, dim=1)
        for i in T.Parallel(apiece):
            if step * apiece + i < size and rank[i] < k:
                larger[step * apiece + i] = sum_above[i]


@T.macro
def by_comparison(listed, size, apiece, top, k, p, uniform, row, Token):
    """Of a list of logits that has the `k` largest and those equal to the last of them. All threads
    compare `apiece` logits at a time, each with a part of the list."""
    (ranked,) = listed[0].shape
    lines = ranked // LANES
    value = T.alloc_shared((ranked,), T.float32)
    place = T.alloc_shared((ranked,), T.int32)
    weight = T.alloc_shared((ranked,), T.float32)
    larger = T.alloc_shared((ranked,), T.float32)
    prefix = T.alloc_shared((lines, LANES), T.float32)
    line_sums = T.alloc_shared((lines,), T.float32)
    first = T.alloc_shared((2,), T.int32)
    number = T.alloc_fragment((apiece, PARTS), T.int32)
    rank = T.alloc_fragment((apiece,), T.int32)
    larger_ones = T.alloc_fragment((apiece, PARTS), T.float32)
    value_rank = T.alloc_fragment((apiece,), T.float32)
    above = T.alloc_fragment((apiece, PARTS), T.float32)
    sum_above = T.alloc_fragment((apiece,), T.float32)
    total = T.alloc_shared((1,), T.float32)
    of_all = T.alloc_fragment((ranked,), T.float32)

    sort_by_place(listed, size, (value, place), number, rank)
    for j in T.Parallel(ranked, coalesced_width=1):
        weight[j] = T.if_then_else(j < size, weight_of(value[j], top), 0)
        larger[j] = T.infinity(T.float32)
    sum_larger(value, weight, size, k, larger, larger_ones, value_rank, above, sum_above)
    for j in T.Parallel(ranked, coalesced_width=1):
        of_all[j] = T.if_then_else(larger[j] < T.infinity(T.float32), weight[j], 0)
    T.reduce_sum(of_all, total, dim=0)
    # All weights together are all of them, however sums are rounded.
    enough = T.if_then_else(p < 1, T.max(p * total[0], 1e-30), T.max_value(T.float32))
    for j in T.Parallel(ranked, coalesced_width=1):
        weight[j] = T.if_then_else(larger[j] < enough, weight[j], 0)
        prefix[j // LANES, j % LANES] = weight[j]
    T.cumsum(prefix, dim=1)
    for i in T.Parallel(lines):
        line_sums[i] = prefix[i, LANES - 1]
    T.cumsum(line_sums, dim=0)
    for i in T.Parallel(2):
        first[i] = T.if_then_else(i == 0, ranked, 0)
    # The first one that exceeds the target, or the last one that adds to the sum.
    for j in T.Parallel(ranked, coalesced_width=1):
        if weight[j] > 0:
            before = T.if_then_else(j < LANES, 0, line_sums[T.max(j // LANES - 1, 0)])
            T.atomic_max(first[1], j)
            if before + prefix[j // LANES, j % LANES] > uniform * line_sums[lines - 1]:
                T.atomic_min(first[0], j)
    Token[row] = place[T.min(first[0], first[1])]


@T.macro
def find_maxima(Logits, row, logits, of_tile, maxima):
    """The largest logit of each part of a row. A part is what a thread has of a tile."""
    tiles, threads = maxima.shape
    for tile in T.unroll(tiles, explicit=True):
        load(Logits, row, tile, logits)
        T.reduce_max(logits, of_tile, dim=0)
        for i in T.Parallel(threads):
            maxima[tile, i] = T.max(
                T.max(of_tile[i * VECTOR], of_tile[i * VECTOR + 1]),
                T.max(of_tile[i * VECTOR + 2], of_tile[i * VECTOR + 3]),
            )


@T.macro
def list_parts(maxima, lowest, loads, parts, found):
    """`parts`, in any order: the first vectors of those whose maximum is `lowest` or more."""
    tiles, threads = maxima.shape
    for tile, i in T.Parallel(tiles, threads):
        if maxima[tile, i] >= lowest:
            at = T.atomic_add(found[0], 1, return_prev=True)
            parts[at] = tile * loads * threads + i


@T.macro
def list_logits(Logits, row, lowest, parts, found, logits, vectors, listing, listed):
    """List the logits from `lowest` on, which are in `parts`: `loads` vectors each, read once
    more. `vectors`: the number of each, `listing`: how many logits a thread lists, and then the
    place of its next one. What the list has no room for is counted alone."""
    values, places = listed
    (loads, block), (threads,), vocabulary = logits.shape, listing.shape, Logits.shape[1]
    behind = -(-vocabulary // VECTOR)
    for step in T.serial(T.ceildiv(found[0], threads)):
        for u, i in T.Parallel(loads, threads):
            n = (step * loads + u) * (threads // loads) + i // loads
            vectors[u, i] = T.if_then_else(n < found[0], parts[n] + i % loads * threads, behind)
        for u, j in T.Parallel(loads, block):
            vector = T.max(vectors[u, j // VECTOR], 0)
            at = vector * VECTOR + j % VECTOR
            # In vectors, if the row has no part of one.
            inside = at < vocabulary if vocabulary % VECTOR else vector < vocabulary // VECTOR
            logits[u, j] = T.if_then_else(inside, Logits[row, at], -T.infinity(T.float32))
        T.clear(listing)
        for u, v in itertools.product(range(loads), range(VECTOR)):
            for i in T.Parallel(threads):
                if logits[u, i * VECTOR + v] >= lowest:
                    listing[i] += 1
        for i in T.Parallel(threads):
            listing[i] = T.atomic_add(found[1], listing[i], return_prev=True)
        for u, v in itertools.product(range(loads), range(VECTOR)):
            for i in T.Parallel(threads):
                if logits[u, i * VECTOR + v] >= lowest and listing[i] < values.shape[0]:
                    # Places differ, so that stores need no order: no barriers.
                    logit, at = logits[u, i * VECTOR + v], vectors[u, i] * VECTOR + v
                    T.atomic_store(values[listing[i]], logit, memory_order="relaxed")
                    T.atomic_store(places[listing[i]], at, memory_order="relaxed")
                    listing[i] += 1


@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def top_k_top_p(vocabulary, threads=512, loads=8, ranked=1024):
    """A token for each row of Logits (batch, vocabulary) in float32. It is one of the K[row]
    largest logits, and those equal to the last of them; of these it is one of the fewest, again
    with equals, whose softmax weights are at least P[row] of these logits' together; of these it is
    the first one, in the order of the vocabulary, at which the sum of weights exceeds
    Uniform[row], 0 to 1, times all of it. A thread has `loads` vectors of a row in flight, a tile;
    up to `ranked` logits are listed."""
    batch = T.dynamic("batch")
    block = VECTOR * threads
    tiles = -(-vocabulary // (loads * block))
    apiece = min(4 * threads // PARTS, ranked)  # logits that all threads compare with others

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
            pivots = T.alloc_fragment((PIVOTS,), T.float32)
            # Shared: what decides about loops is the same in all threads. Numbers are floats, exact
            # up to 2 ** 24: one instruction compares, another one adds.
            weights = T.alloc_shared((PIVOTS,), T.float32)
            numbers = T.alloc_shared((PIVOTS,), T.float32)
            state = (pivots, weights, numbers)
            # The same for the parts.
            list_pivots = T.alloc_fragment((LIST_PIVOTS,), T.float32)
            list_state = (list_pivots, None, T.alloc_shared((LIST_PIVOTS,), T.float32))
            # Each thread compares with all of them.
            T.annotate_layout(
                {list_pivots: make_fully_replicated_layout_fragment(list_pivots, threads)}
            )
            number = T.alloc_fragment((LIST_PIVOTS, threads), T.float32)
            maxima = T.alloc_fragment((tiles, threads), T.float32)
            of_tile = T.alloc_fragment((block,), T.float32)
            of_thread = T.alloc_fragment((threads,), T.float32)
            smallest = T.alloc_shared((1,), T.float32)
            largest = T.alloc_shared((1,), T.float32)
            parts = T.alloc_shared((tiles * threads,), T.int32)
            found = T.alloc_shared((2,), T.int32)
            vectors = T.alloc_fragment((loads, threads), T.int32)
            listing = T.alloc_fragment((threads,), T.int32)
            values = T.alloc_shared((ranked,), T.float32)
            places = T.alloc_shared((ranked,), T.int32)

            # Loaded together.
            k, p, uniform = T.min(K[row], vocabulary), P[row], Uniform[row]
            done = T.alloc_var(T.bool, init=False)
            if k <= ranked // 2:
                find_maxima(Logits, row, logits, of_tile, maxima)
                T.reduce_max(maxima, of_thread, dim=0)
                T.reduce_min(of_thread, smallest, dim=0)
                T.reduce_max(of_thread, largest, dim=0)
                # At least k maxima reach it, and no more than half more, unless there are equals.
                floor = T.alloc_var(T.uint32, init=T.uint32(LOWEST))
                if k <= threads:
                    floor = ordered(smallest[0])
                high = ordered(largest[0]) + T.uint32(1)
                found_in = (maxima, number)
                threshold(measure_maxima, found_in, k, False, floor, high, k + k // 2, list_state)
                for i in T.Parallel(2):
                    found[i] = 0
                T.fill(places, vocabulary)  # where the list has ended, behind all others
                # -inf is also what stands behind the end of the row.
                lowest = T.max(number_of(floor), -T.max_value(T.float32))
                list_parts(maxima, lowest, loads, parts, found)
                listed = (values, places)
                list_logits(Logits, row, lowest, parts, found, logits, vectors, listing, listed)
                if found[1] >= k and found[1] <= ranked:
                    by_comparison(listed, found[1], apiece, largest[0], k, p, uniform, row, Token)
                    done = True
            if not done:
                by_passes(Logits, row, k, p, uniform, Token, logits, state)

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
