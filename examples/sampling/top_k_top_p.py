"""Sampling of the next token from the k most likely ones, and of these from the fewest that have a
probability of p together. A sample of the row tells a number that at least k logits reach, as good
as certainly, and few more. One pass, through a ring of bulk copies, lists those that do, some
hundred. Sums over bins of these, of their logits and then of their places, tell what is in front of
each: no list is sorted. If the list has fewer than k, no room (a large k, many equals), or, where k
is all tokens, less than p of the row's weight, thresholds are found from the logits' bits, eleven
at a time, each time with a pass over the row. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
from types import SimpleNamespace

import torch

import tilelang
import tilelang.language as T
from tilelang.carver.arch import auto_infer_current_arch

LOG2_E = 1.44269504
UNITS = 256  # of a weight of 1, each of 32 binary digits
LANES = 32
VECTOR = 4
LINE = VECTOR * LANES  # the part of a row that a warp loads at once
BINS = 512  # of a list
GROUP = 2  # threads that share a part of the sample
SMALL = {"threads": 32, "loads": 1, "ranked": 64}  # for a few hundred tokens
OTHER_BYTES = 1024  # of shared memory: barriers, sums of groups, single numbers
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


def tiles_of(Logits, logits):
    """Tiles of the shape of `logits` in a row of Logits."""
    loads, block = logits.shape
    return -(-int(Logits.shape[1]) // int(loads * block))


@T.macro
def load(Logits, row, first, logits):
    """A tile of a row from `first` on, and what is below all logits behind the row's end."""
    (loads, block), vocabulary = logits.shape, Logits.shape[1]
    for u, j in T.Parallel(loads, block):
        at = first + u * block + j
        logits[u, j] = T.if_then_else(at < vocabulary, Logits[row, at], -T.infinity(T.float32))


@T.macro
def shift_of(low, behind, parts):
    """By how many bits a key between is moved, so that there are no more than `parts` of them."""
    shift = T.alloc_var(T.uint32, init=0)
    while ((behind - T.uint32(1) - low) >> shift) >= T.uint32(parts):
        shift += T.uint32(1)
    return shift


@T.macro
def add_to(counts, part, logit, top, by_weight):
    """Count a logit, or add its weight, in units of 2 ** -40 as an integer of 64 bits: sums of
    integers do not depend on their order."""
    low, high = counts
    if by_weight:
        units = weight_of(logit, top) * T.float32(UNITS)
        whole = T.floor(units)
        digits = T.cast((units - whole) * T.float32(2.0**32), T.uint32)
        before = T.atomic_add(low[part], digits, return_prev=True)
        carried = T.cast(whole, T.uint32) + T.cast(before + digits < before, T.uint32)
        if carried > T.uint32(0):
            T.atomic_add(high[part], carried)
    else:
        T.atomic_add(high[part], T.uint32(UNITS))


@T.macro
def measure(Logits, row, top, by_weight, low, behind, shift, logits, counts):
    """Of the logits of each part of the keys from `low` on: their number or weight."""
    (loads, block), vocabulary = logits.shape, Logits.shape[1]
    T.clear(counts[0])
    T.clear(counts[1])
    for tile in T.serial(tiles_of(Logits, logits)):
        load(Logits, row, tile * loads * block, logits)
        for u, j in T.Parallel(loads, block):
            key = ordered(logits[u, j])
            inside = (tile * loads + u) * block + j < vocabulary
            if inside and key >= low and key < behind:
                part = T.cast((key - low) >> shift, T.int32)
                add_to(counts, part, logits[u, j], top, by_weight)


@T.macro
def units_from(g, i, sums, until):
    """What all parts from number `i` of group `g` on have together."""
    groups = until.shape[0]
    return sums[g, i] + T.if_then_else(g + 1 < groups, until[T.min(g + 1, groups - 1)], 0)


@T.macro
def threshold(Logits, row, top, wanted, by_weight, low: T.Ref, high, logits, state):
    """Raise `low` to the largest key that has enough logits from it on, their number or,
    `by_weight`, their weight. There is enough from `low` on, not from `high` on. Each pass over the
    row finds as many more bits of the key as tell the parts apart."""
    *counts, sums, until, chosen = state
    groups = until.shape[0]
    behind = T.alloc_var(T.uint32, init=high)
    above = T.alloc_var(T.float32, init=0.0)  # from `behind` on
    while behind - low > T.uint32(1):
        shift = shift_of(low, behind, groups * LANES)
        measure(Logits, row, top, by_weight, low, behind, shift, logits, counts)
        for g, i in T.Parallel(groups, LANES):
            part = g * LANES + i
            sums[g, i] = T.cast(counts[1][part], T.float32) + T.cast(
                counts[0][part], T.float32
            ) * T.float32(2.0**-32)
        T.cumsum(sums, dim=1, reverse=True)
        for g in T.Parallel(groups):
            until[g] = sums[g, 0]
        T.cumsum(until, dim=0, reverse=True)
        T.clear(chosen)
        for g, i in T.Parallel(groups, LANES):
            if above + units_from(g, i, sums, until) / UNITS >= wanted:
                T.atomic_max(chosen[0], g * LANES + i)
        part = T.alloc_var(T.int32, init=chosen[0])
        if part + 1 < groups * LANES:
            above += units_from((part + 1) // LANES, (part + 1) % LANES, sums, until) / UNITS
        low += T.cast(part, T.uint32) << shift
        behind = low + T.min(behind - low, T.uint32(1) << shift)


@T.macro
def weigh_tile(logits, low, first, apart, vocabulary, of_lines):
    """Of each line of a tile the largest logit, and the weights beside it of those from `low` on.
    The tile is what of the row is at `first`, and every `apart` logits behind it."""
    tops, weights, _ = of_lines
    loads, block = logits.shape
    warps = block // LINE
    tile_tops = T.alloc_fragment((loads, warps), T.float32)
    tile_weights = T.alloc_fragment((loads, warps), T.float32)
    in_lines = T.reshape(logits, (loads, warps, LINE))
    # Within a warp, so that none waits for another one before the next tile.
    T.reduce_max(in_lines, tile_tops, dim=2)
    for u, w, i in T.Parallel(loads, warps, LINE):
        inside = first + u * apart + w * LINE + i < vocabulary
        in_lines[u, w, i] = T.if_then_else(
            inside and in_lines[u, w, i] >= low,
            weight_of(in_lines[u, w, i], tile_tops[u, w]),
            0,
        )
    T.reduce_sum(in_lines, tile_weights, dim=2)
    for u, w in T.Parallel(loads, warps):
        line = (first + u * apart) // LINE + w
        tops[line // LANES, line % LANES] = tile_tops[u, w]
        weights[line // LANES, line % LANES] = tile_weights[u, w]


@T.macro
def weigh(Logits, row, low, logits, of_lines):
    """`weigh_tile` of a row."""
    loads, block = logits.shape
    for tile in T.serial(tiles_of(Logits, logits)):
        load(Logits, row, tile * loads * block, logits)
        weigh_tile(logits, low, tile * loads * block, block, Logits.shape[1], of_lines)


@T.macro
def sum_up(of_lines, top, until):
    """The lines' weights become those beside the `top` of them all, and each the sum of its
    group up to it; `until` becomes that of the groups."""
    tops, weights, own = of_lines
    groups = until.shape[0]
    T.reduce_max(T.reshape(tops, (groups * LANES,)), top, dim=0)
    for g, i in T.Parallel(groups, LANES):
        weights[g, i] = weights[g, i] * weight_of(tops[g, i], top[0])
        own[g, i] = weights[g, i]
    T.cumsum(weights, dim=1)
    for g in T.Parallel(groups):
        until[g] = weights[g, LANES - 1]
    T.cumsum(until, dim=0)


@T.macro
def key_of(at, adds, exceeds):
    """Of the keys of many, the least one is that of the first that exceeds a target, or where none
    does, of the last that adds to the sum."""
    none = T.max_value(T.int32)
    return T.if_then_else(adds, T.if_then_else(exceeds, at, none - 1 - at), none)


@T.macro
def place_of(key):
    """The place whose key this is; the first one, if none adds anything."""
    none = T.max_value(T.int32)
    return T.if_then_else(key < 2**30, key, T.max(none - 1 - key, 0))


@T.macro
def draw(Logits, row, low, uniform, of_lines, top, until, Token):
    """The token, of sums of weights from `low` on."""
    _, weights, own = of_lines
    groups, vocabulary = until.shape[0], Logits.shape[1]
    key_of_line = T.alloc_fragment((groups, LANES), T.int32)
    key = T.alloc_fragment((LINE,), T.int32)
    first = T.alloc_fragment((1,), T.int32)
    of_tokens = T.alloc_fragment((LINE,), T.float32)
    line_weights = T.alloc_shared((1, LINE), T.float32)
    target = uniform * until[groups - 1]
    # The first line at which the sum exceeds the target, or the last one that adds to it.
    for g, i in T.Parallel(groups, LANES):
        before = T.if_then_else(g > 0, until[T.max(g - 1, 0)], 0)
        exceeds = before + weights[g, i] > target
        key_of_line[g, i] = key_of(g * LANES + i, own[g, i] > 0, exceeds)
    T.reduce_min(T.reshape(key_of_line, (groups * LANES,)), first, dim=0)
    line = T.alloc_var(T.int32, init=place_of(first[0]))
    before = T.alloc_var(T.float32, init=0.0)
    if line >= LANES:
        before = until[line // LANES - 1]
    if line % LANES > 0:
        before += weights[line // LANES, line % LANES - 1]
    for i in T.Parallel(LINE):
        of_tokens[i] = 0
        if line * LINE + i < vocabulary:
            logit = Logits[row, line * LINE + i]
            of_tokens[i] = T.if_then_else(logit >= low, weight_of(logit, top[0]), 0)
        line_weights[0, i] = of_tokens[i]
    T.cumsum(line_weights, dim=1)
    for i in T.Parallel(LINE):
        exceeds = before + line_weights[0, i] > target
        key[i] = key_of(line * LINE + i, of_tokens[i] > 0, exceeds)
    T.reduce_min(key, first, dim=0)
    Token[row] = place_of(first[0])


@T.macro
def by_passes(Logits, row, weighed, k, p, uniform, Token, logits, of_lines, top, until, state):
    """Any row, whose lines may have been `weighed` and summed up."""
    vocabulary, groups = Logits.shape[1], of_lines[0].shape[0]
    low = T.alloc_var(T.uint32, init=T.uint32(LOWEST))
    if not weighed:
        weigh(Logits, row, number_of(low), logits, of_lines)
        sum_up(of_lines, top, until)
    high = ordered(top[0]) + T.uint32(1)
    if k < vocabulary:
        threshold(Logits, row, top[0], k, False, low, high, logits, state)
        weigh(Logits, row, number_of(low), logits, of_lines)
        sum_up(of_lines, top, until)
    # All weights together are all of them, however sums are rounded.
    if p < 1:
        wanted = T.max(p * until[groups - 1], 1e-30)
        # All of lower ones together weigh less than 1 - p, since the largest one weighs 1.
        least = top[0] - (T.log(vocabulary / (1 - p)) + 1)
        low = T.max(low, ordered(least))
        threshold(Logits, row, top[0], wanted, True, low, high, logits, state)
        weigh(Logits, row, number_of(low), logits, of_lines)
        sum_up(of_lines, top, until)
    draw(Logits, row, number_of(low), uniform, of_lines, top, until, Token)


@T.macro
def find_lowest(sample, wanted, lowest: T.Ref):
    """`lowest` becomes a number that at least `wanted` of the sample reach, and few more: the
    `wanted`-th largest of the largest ones of its parts."""
    block = sample.shape[1]
    groups = block // VECTOR // GROUP
    of_block = T.alloc_fragment((block,), T.float32)
    own = T.alloc_fragment((groups,), T.float32)
    maxima = T.alloc_shared((groups,), T.float32)
    number = T.alloc_fragment((groups, GROUP), T.float32)
    larger = T.alloc_fragment((groups,), T.float32)
    smallest = T.alloc_shared((1,), T.float32)
    T.reduce_max(sample, of_block, dim=0)
    T.reduce_max(T.reshape(of_block, (groups, block // groups)), own, dim=1)
    T.copy(own, maxima)
    T.clear(number)
    for n in T.serial(groups // (GROUP * VECTOR)):
        for v in T.unroll(VECTOR, explicit=True):
            for g, part in T.Parallel(groups, GROUP):
                other = (n * GROUP + part) * VECTOR + v
                # 0 or 1, which one instruction gives, and another one adds.
                number[g, part] += T.cast(maxima[other] > maxima[g], T.float32)
    T.reduce_sum(number, larger, dim=1)
    for g in T.Parallel(groups):
        own[g] = T.if_then_else(larger[g] < wanted, maxima[g], T.infinity(T.float32))
    T.reduce_min(own, smallest, dim=0)
    # -inf is also what stands behind the end of the row.
    lowest = T.max(smallest[0], lowest)


@T.macro
def append(value, place, found, listed):
    """Add a logit to a list. What the list has no room for is counted alone."""
    values, places, extremes = listed
    at = T.atomic_add(found[0], 1, return_prev=True)
    T.atomic_max(extremes[0], ordered(value))
    T.atomic_max(extremes[1], ~ordered(value))
    if at < values.shape[0]:
        # Places in the list differ, so that stores need no order: no barriers.
        T.atomic_store(values[at], value, memory_order="relaxed")
        T.atomic_store(places[at], place, memory_order="relaxed")


@T.macro
def list_tile(logits, first, apart, lowest, found, listed):
    """Append the logits of a tile from `lowest` on, and their places."""
    loads, block = logits.shape
    for u, j in T.Parallel(loads, block):
        if logits[u, j] >= lowest:
            append(logits[u, j], first + u * apart + j, found, listed)


@T.macro
def take(logits, first, apart, vocabulary, ways, lowest, found, listed, of_lines):
    """A tile of a row: list what reaches `lowest`, weigh its lines, or both."""
    lists, weighs = ways
    if lists:
        list_tile(logits, first, apart, lowest, found, listed)
    if weighs:
        weigh_tile(logits, number_of(T.uint32(LOWEST)), first, apart, vocabulary, of_lines)


@T.macro
def scale_of(top, least):
    """What `bin_of` multiplies distances by."""
    return T.if_then_else(top > least, T.min((BINS - 1) / (top - least), 1e30), T.float32(0))


@T.macro
def bin_of(value, top, scale):
    """Of larger numbers a smaller one; those that are far away are in the last one."""
    distance = (top - value) * scale
    return T.cast(T.if_then_else(distance < BINS - 1, distance, T.float32(BINS - 1)), T.int32)


def by_steps(*tiles):
    """What a thread has of each step is in its registers."""
    shape = tuple(int(extent) for extent in tiles[0].shape)
    layout = tilelang.layout.Fragment(shape, lambda step, i: (i, step))
    T.annotate_layout(dict.fromkeys(tiles, layout))


def bins_of(listed):
    """What `sums_in_front` has of bins. A list that is in registers leaves its memory to their
    order."""
    shape = (BINS // LANES, LANES)
    return SimpleNamespace(
        number=T.alloc_shared(shape, T.int32),
        weight=T.alloc_shared(shape, T.uint32),
        number_until=T.alloc_shared(shape, T.int32),
        weight_until=T.alloc_shared(shape, T.uint32),
        numbers=T.alloc_shared((shape[0],), T.int32),
        weights=T.alloc_shared((shape[0],), T.uint32),
        most=T.alloc_shared(shape, T.uint32),
        least=T.alloc_shared(shape, T.uint32),
        keys=T.view(listed[0], listed[0].shape, T.uint32),
        units=T.view(listed[1], listed[1].shape, T.uint32),
    )


def by_warps(threads, *tiles):
    """A warp has rows of LANES elements, a lane one of each."""
    shape, warps = tuple(int(extent) for extent in tiles[0].shape), threads // LANES
    layout = tilelang.layout.Fragment(shape, lambda row, i: (row % warps * LANES + i, row // warps))
    T.annotate_layout(dict.fromkeys(tiles, layout))


@T.macro
def scan(bins, threads):
    """The numbers and weights of bins become sums: of each up to it in its group, and of groups.
    Shuffles of both are in flight together."""
    groups = BINS // LANES
    number = T.alloc_fragment((groups, LANES), T.int32)
    weight = T.alloc_fragment((groups, LANES), T.uint32)
    by_warps(threads, number, weight)
    for g, i in T.Parallel(groups, LANES):
        number[g, i] = bins.number[g, i]
        weight[g, i] = bins.weight[g, i]
    for distance in (1, 2, 4, 8, 16):
        for g, i in T.Parallel(groups, LANES):
            one = T.shfl_up(number[g, i], distance)
            other = T.shfl_up(weight[g, i], distance)
            number[g, i] += T.if_then_else(i >= distance, one, 0)
            weight[g, i] += T.if_then_else(i >= distance, other, T.uint32(0))
    for g, i in T.Parallel(groups, LANES):
        bins.number_until[g, i] = number[g, i]
        bins.weight_until[g, i] = weight[g, i]
    for g in T.Parallel(groups):
        bins.numbers[g] = bins.number_until[g, LANES - 1]
        bins.weights[g] = bins.weight_until[g, LANES - 1]
    T.cumsum(bins.numbers, dim=0)
    T.cumsum(bins.weights, dim=0)


@T.macro
def sums_in_front(bin, key, unit, k, bins, number, weight):
    """The number and weight, in integers, of those in front of each of a list, which have a larger
    key; where the number is `k` or more, it may be less, but not less than `k`. Keys of a bin in
    front of another one are larger than its keys. What has no weight is left out. A thread has
    some, by steps: their time is that of the bin with the most different keys."""
    steps, threads = bin.shape
    slot = T.alloc_fragment((steps, threads), T.int32)
    first = T.alloc_fragment((steps, threads), T.int32)
    by_steps(slot, first)
    for numbers in (bins.number, bins.weight, bins.most, bins.least):
        T.clear(numbers)
    for step, i in T.Parallel(steps, threads):
        slot[step, i] = 0
        if unit[step, i] > T.uint32(0):
            g, lane = bin[step, i] // LANES, bin[step, i] % LANES
            slot[step, i] = T.atomic_add(bins.number[g, lane], 1, return_prev=True)
            T.atomic_add(bins.weight[g, lane], unit[step, i])
            T.atomic_max(bins.most[g, lane], key[step, i])
            T.atomic_max(bins.least[g, lane], ~key[step, i])
    scan(bins, threads)
    for step, i in T.Parallel(steps, threads):
        number[step, i] = 0
        weight[step, i] = 0
        first[step, i] = 0
        if unit[step, i] > T.uint32(0):
            g, lane = bin[step, i] // LANES, bin[step, i] % LANES
            number[step, i] = bins.number_until[g, lane] - bins.number[g, lane]
            weight[step, i] = bins.weight_until[g, lane] - bins.weight[g, lane]
            if g > 0:
                number[step, i] += bins.numbers[g - 1]
                weight[step, i] += bins.weights[g - 1]
            first[step, i] = number[step, i]
            # Places differ: no barriers.
            at = first[step, i] + slot[step, i]
            T.atomic_store(bins.keys[at], key[step, i], memory_order="relaxed")
            T.atomic_store(bins.units[at], unit[step, i], memory_order="relaxed")
    for step, i in T.Parallel(steps, threads):
        if unit[step, i] > T.uint32(0) and first[step, i] < k:
            g, lane = bin[step, i] // LANES, bin[step, i] % LANES
            differ = bins.most[g, lane] != ~bins.least[g, lane]
            for j in T.serial(T.if_then_else(differ, bins.number[g, lane], 0)):
                other = first[step, i] + j
                is_larger = bins.keys[other] > key[step, i]
                number[step, i] += T.cast(is_larger, T.int32)
                weight[step, i] += T.cast(is_larger, T.uint32) * bins.units[other]


@T.macro
def by_list(listed, size, k, p, total, uniform, vocabulary, steps, threads, row, Token):
    """Of a list of logits that has the `k` largest and those equal to the last of them. If there is
    a `total` of weights, these have to be p of it. Returns whether they are, else there is no
    token. Weights are integers, of which all together have 32 bits: sums of integers do not depend
    on their order."""
    values, places, extremes = listed
    bins = bins_of(listed)
    bin, place, number = (T.alloc_fragment((steps, threads), T.int32) for _ in range(3))
    key, unit, weight = (T.alloc_fragment((steps, threads), T.uint32) for _ in range(3))
    by_steps(bin, place, number, key, unit, weight)
    together = T.alloc_shared((1,), T.uint32)
    top, least = number_of(extremes[0]), number_of(~extremes[1])
    scale = T.float32(2.0**32 - 2.0**12) / size
    bin_scale = scale_of(top, least)
    for step, i in T.Parallel(steps, threads):
        bin[step, i] = 0
        key[step, i] = 0
        unit[step, i] = 0
        place[step, i] = 0
        if step * threads + i < size:
            value = values[step * threads + i]
            place[step, i] = places[step * threads + i]
            bin[step, i] = bin_of(value, top, bin_scale)
            # Zeros of both signs are equal.
            key[step, i] = ordered(T.if_then_else(value == 0, T.float32(0), value))
            # To the nearest: of many the errors make up for each other.
            unit[step, i] = T.cast(weight_of(value, top) * scale + 0.5, T.uint32)
    sums_in_front(bin, key, unit, k, bins, number, weight)
    for step, i in T.Parallel(steps, threads):
        if number[step, i] >= k:
            unit[step, i] = 0
    T.reduce_sum(T.reshape(unit, (steps * threads,)), together, dim=0)
    have = T.cast(together[0], T.float32)
    wanted = T.max(p * T.if_then_else(total > 0, total * scale, have), 1)
    suffices = T.alloc_var(T.bool, init=have >= wanted)
    if suffices:
        # All weights together are all of them, however sums are rounded.
        enough = T.alloc_var(T.uint32, init=T.uint32(0xFFFFFFFF))
        if p < 1:
            enough = T.cast(T.ceil(wanted), T.uint32)
        for step, i in T.Parallel(steps, threads):
            if weight[step, i] >= enough:
                unit[step, i] = 0
            # The first ones of the vocabulary in front.
            key[step, i] = ~T.cast(place[step, i], T.uint32)
            share = T.cast(place[step, i], T.float32) * T.float32((BINS - 1) / vocabulary)
            bin[step, i] = T.cast(share, T.int32)
        sums_in_front(bin, key, unit, size, bins, number, weight)
        kept = bins.weights[BINS // LANES - 1]
        # Below all of it, so that a sum exceeds it.
        target = T.min(T.cast(uniform * T.cast(kept, T.float32), T.uint32), kept - T.uint32(1))
        for step, i in T.Parallel(steps, threads):
            # Of one alone: sums are exact.
            if weight[step, i] <= target and target < weight[step, i] + unit[step, i]:
                Token[row] = place[step, i]
    return suffices


def split_of(vocabulary, block, pieces, wide):
    """How tiles of a row, `whole` ones, are read: `pieces` as a sample, `apart` from each other,
    `wide` ones in each of `steps`, and what is `left`."""
    whole = vocabulary // block
    pieces = max(min(pieces, whole // 4), min(whole, 1))
    apart = whole // max(pieces, 1)
    wide = min(wide, max(apart - 1, 1))
    apart = 1 + (apart - 1) // wide * wide
    steps = (whole - pieces) // wide
    return SimpleNamespace(
        block=block,
        whole=whole,
        pieces=pieces,
        apart=apart,
        wide=wide,
        steps=steps,
        left=whole - pieces - steps * wide,
    )


@T.macro
def begin(found, listed, of_lines):
    """Nothing is listed or weighed."""
    T.clear(found)
    T.clear(listed[2])
    T.fill(of_lines[0], -T.infinity(T.float32))
    for weights in of_lines[1:]:
        T.clear(weights)


@T.macro
def read_row(Logits, row, few, ways, split, stages, found, listed, of_lines):
    """List the largest logits, some more than `few`, or weigh lines, or both. Each logit is loaded
    once. Near the end the list is tightened, while the copies of what is left are under way."""
    block, vocabulary, apart, wide = split.block, Logits.shape[1], split.apart, split.wide
    sample = T.alloc_fragment((max(split.pieces, 1), block), T.float32)
    rest = T.alloc_fragment((split.left + 1, block), T.float32)
    ring = T.alloc_shared((wide * block,), T.float32)
    tile = T.alloc_fragment((wide, block), T.float32)
    lowest = T.alloc_var(T.float32, init=-T.max_value(T.float32))
    # What is no whole tile, and the sample.
    load(Logits, row, (split.whole - split.left) * block, rest)
    if split.pieces:
        for s, j in T.Parallel(split.pieces, block):
            sample[s, j] = Logits[row, s * apart * block + j]
        # So many more than the sample's share that hardly ever too few reach the number.
        share = T.cast(few, T.float32) * (split.pieces * block / vocabulary)
        wanted = share + 4 * T.sqrt(share) + 1
        if ways[0] and wanted <= block // VECTOR // GROUP:
            find_lowest(sample, wanted, lowest)
    lists = (found, listed, of_lines)
    take(rest, (split.whole - split.left) * block, block, vocabulary, ways, lowest, *lists)
    if split.pieces:
        take(sample, 0, apart * block, vocabulary, ways, lowest, *lists)
    if split.steps:
        for n in T.Pipelined(split.steps, num_stages=stages):
            steps_apart = max((apart - 1) // wide, 1)
            first = (n * wide + T.min(n // steps_apart + 1, split.pieces)) * block
            T.copy(Logits[row, first], ring)
            T.copy(T.reshape(ring, (wide, block)), tile)
            take(tile, first, block, vocabulary, ways, lowest, *lists)


def stages_for(stage_bytes, ranked, lines):
    """As many stages as shared memory has room for beside a block's lists and its sums of lines:
    up to 4, which keep the memory busy, and at least 1."""
    words = 2 * 2 * ranked + 7 * BINS + 3 * lines  # of the list, the bins and the lines
    room = auto_infer_current_arch().smem_cap - 4 * words - OTHER_BYTES
    return max(1, min(4, room // stage_bytes))


@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def top_k_top_p(vocabulary, threads=512, loads=8, ranked=1024, pieces=2, stages=None, wide=3):
    """A token for each row of Logits (batch, vocabulary) in float32. It is one of the K[row]
    largest logits, and those equal to the last of them; of these it is one of the fewest, again
    with equals, whose softmax weights are at least P[row] of these logits' together; of these it is
    the first one, in the order of the vocabulary, at which the sum of weights exceeds
    Uniform[row], 0 to 1, times all of it. K[row] below 1 is 1, and P[row] below 0, or NaN, is 0:
    the largest logit, with equals. A tile is a vector of each thread; `pieces` of a row's tiles are
    the sample, `stages` times `wide` of the others are in flight, by default as many as shared
    memory has room for. A list has room for twice `ranked` logits, half of `ranked` are wanted of
    one at most. Where a row is read by passes, a thread has `loads` vectors in flight."""
    if ranked % threads:
        raise ValueError(f"ranked is {ranked}, wanted a multiple of {threads} threads")
    batch = T.dynamic("batch")
    block = VECTOR * threads
    room = 2 * ranked
    # Of a warp's vectors each, those of the last tile too, which may have no logits.
    tiles = max(-(-vocabulary // (loads * block)) * loads, vocabulary // block + 1)
    groups = -(-tiles * (block // LINE) // LANES)
    split = split_of(vocabulary, block, pieces, wide)
    stages = stages or stages_for(4 * split.wide * block, ranked, groups * LANES)

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
            found = T.alloc_shared((1,), T.int32)
            # Logits, their places, and keys of the largest and, inverted, of the least one.
            listed = (
                *(T.alloc_shared((room,), T.float32), T.alloc_shared((room,), T.int32)),
                T.alloc_shared((2,), T.uint32),
            )
            # Where the list is not taken, its memory has the numbers of a pass.
            state = (
                T.view(listed[0], (room,), T.uint32),
                T.view(listed[1], (room,), T.uint32),
                T.view(listed[0], (room // LANES, LANES), T.float32),
                T.alloc_shared((room // LANES,), T.float32),
                T.alloc_shared((1,), T.int32),
            )
            of_lines = tuple(T.alloc_shared((groups, LANES), T.float32) for _ in range(3))

            # Loaded together.
            k = T.max(T.min(K[row], vocabulary), 1)
            p, uniform = T.max(P[row], 0), Uniform[row]
            few = T.min(k, ranked // 2)
            # Of all tokens the likely ones may be few, too.
            weighs = k > few
            ways = (not weighs or (k == vocabulary and p < 1), weighs)
            top = T.alloc_shared((1,), T.float32)
            until = T.alloc_shared((groups,), T.float32)
            total = T.alloc_var(T.float32, init=0.0)
            begin(found, listed, of_lines)
            read_row(Logits, row, few, ways, split, stages, found, listed, of_lines)
            if weighs:
                sum_up(of_lines, top, until)
                total = until[groups - 1]
            done = T.alloc_var(T.bool, init=False)
            if ways[0] and found[0] >= few and found[0] <= room:
                own = (listed, found[0], few, p, total, uniform, vocabulary)
                done = by_list(*own, room // threads, threads, row, Token)
            if not done:
                weighed = (weighs, k, p, uniform, Token, logits, of_lines, top, until)
                by_passes(Logits, row, *weighed, state)

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
