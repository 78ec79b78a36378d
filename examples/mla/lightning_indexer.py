"""The rows that a query of sparse MLA sees (lightning indexer, DeepSeek-V3.2, 2025): each row that
is not behind it gets a score, summed over the indexer's heads, and those with the largest scores
are listed. Check both against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import itertools

import torch

import tilelang
import tilelang.language as T

LANES = 32
DIGITS = 2048
NEAR = 64  # keys that are compared with each other
HIGH = T.uint32(2**16)


@T.macro
def sum_heads(products, weight, p, sums, score):
    """The score of each row: its products with the heads, a multiple of 8, where positive, times
    the heads' weights. Each of four lanes adds up two of every 8 products, as wgmma leaves them.
    Twice a maximum is x + |x|, and a multiprocessor's units for sums are others than for maxima."""
    block_N, heads = products.shape
    maxima, doubled = sums
    T.clear(maxima)
    T.clear(doubled)
    for b in [*range(heads // 8)]:
        for j, c in T.Parallel(block_N, 4):
            maxima[j, c] += T.max(products[j, b * 8 + c * 2], 0) * weight[p, b * 8 + c * 2]
        for j, c in T.Parallel(block_N, 4):
            x = products[j, b * 8 + c * 2 + 1]
            doubled[j, c] += (x + T.abs(x)) * weight[p, b * 8 + c * 2 + 1]
    for j, c in T.Parallel(block_N, 4):
        maxima[j, c] += doubled[j, c] * 0.5
    T.reduce_sum(maxima, score, dim=1)


@tilelang.jit(out_idx=[-1])
def index_scores(heads, dim, dtype=T.float8_e4m3fn, positions=4, block_N=128, num_stages=1):
    """Scores (queries, length) in float32: the sum over the heads of Weights (queries, heads) times
    relu(Q[query, head] . K[row]) of Q (queries, heads, dim) and K (length, dim), times the row's
    scale, (length,); queries' scales belong to the weights. Query i sees the rows up to i + length
    - queries; the scores of others are not written. A block has some `positions`. Heads are a
    multiple of 8."""
    if heads < 8 or heads % 8:
        raise ValueError(f"found {heads} heads, wanted a multiple of 8; add heads of weight 0")
    queries, length = T.dynamic("queries, length")

    @T.prim_func
    def main(
        Q: T.Tensor((queries, heads, dim), dtype),
        K: T.Tensor((length, dim), dtype),
        scales: T.Tensor((length,), T.float32),
        Weights: T.Tensor((queries, heads), T.float32),
        Scores: T.Tensor((queries, length), T.float32),
    ):
        with T.Kernel(T.ceildiv(queries, positions), threads=block_N) as bx:
            # One sums while the others multiply.
            T.annotate_min_blocks_per_sm(3)
            q = [T.alloc_shared((heads, dim), dtype) for _ in range(positions)]
            k = T.alloc_shared((block_N, dim), dtype)
            weight = T.alloc_shared((positions, heads), T.float32)
            scale = T.alloc_shared((block_N,), T.float32)
            # The products of all positions have these rows as their first operand: read once from
            # shared memory, whose bandwidth two operands of 64 columns take up, and whose one stage
            # is free for the next tile from then on.
            rows = T.alloc_fragment((block_N, dim), dtype)
            row_scale = T.alloc_fragment((block_N,), T.float32)
            products = T.alloc_fragment((block_N, heads), T.float32)
            sums = [T.alloc_fragment((block_N, 4), T.float32) for _ in range(2)]
            score = T.alloc_fragment((block_N,), T.float32)
            of_tile = T.alloc_shared((positions, block_N), T.float32)
            # Those that see most rows first: the last blocks to end are short.
            first = (T.ceildiv(queries, positions) - 1 - bx) * positions
            for p, tile in enumerate(q):
                T.copy(Q[first + p, :, :], tile)
            T.copy(Weights[first, 0], weight)
            seen = T.min(length, first + positions + length - queries)
            for n in T.Pipelined(T.ceildiv(seen, block_N), num_stages=num_stages):
                T.copy(K[n * block_N, 0], k)
                T.copy(scales[n * block_N], scale)
                T.copy(k, rows)
                T.copy(scale, row_scale)
                for p, tile in enumerate(q):
                    T.gemm(
                        *(rows, tile, products),
                        transpose_B=True,
                        policy=T.GemmWarpPolicy.FullRow,
                        clear_accum=True,
                    )
                    sum_heads(products, weight, p, sums, score)
                    for j in T.Parallel(block_N):
                        of_tile[p, j] = score[j] * row_scale[j]
                # In vectors, and once for all positions.
                for p, j in T.Parallel(positions, block_N):
                    row = n * block_N + j
                    if row <= first + p + length - queries and first + p < queries:
                        Scores[first + p, row] = of_tile[p, j]

    return main


@T.macro
def ordered(x):
    """Bits of a float32 as a uint32 that is larger where the number is."""
    bits = T.reinterpret(x, T.int32)
    return T.reinterpret(bits ^ (bits >> 31 | -(2**31)), T.uint32)


@T.macro
def find_digit(counts, wanted, found):
    """The digit of the `wanted`-th largest key, of how many keys have each digit, some of which are
    a thread's: `found` becomes that digit, how many of it are wanted, and how many have it."""
    threads, each = counts.shape
    own = T.alloc_fragment((threads,), T.int32)
    # From a thread's digits to the end of its warp's.
    lines = T.alloc_shared((threads // LANES, LANES), T.int32)
    T.clear(own)
    for digit in range(each):
        for i in T.Parallel(threads):
            own[i] += counts[i, digit]
    for i in T.Parallel(threads):
        lines[i // LANES, i % LANES] = own[i]
    T.cumsum(lines, dim=1, reverse=True)
    for i in T.Parallel(threads):
        larger = T.alloc_var(T.int32, init=lines[i // LANES, i % LANES] - own[i])
        for line in T.unroll(1, threads // LANES):
            if line > i // LANES:
                larger += lines[line, 0]
        if larger < wanted and wanted <= larger + own[i]:
            digit = T.alloc_var(T.int32, init=each - 1)
            while larger + counts[i, digit] < wanted:
                larger += counts[i, digit]
                digit -= 1
            found[0] = i * each + digit
            found[1] = wanted - larger
            found[2] = counts[i, digit]


@T.macro
def by_passes(Scores, Chosen, query, seen, block):
    """Any row, by five passes, `block` scores at a time."""
    k = Chosen.shape[1]
    counts = T.alloc_shared((257,), T.int32)
    # The digit found last, how many of it are wanted, and how many are listed of each kind.
    found = T.alloc_shared((4,), T.int32)
    prefix = T.alloc_var(T.uint32, init=T.uint32(0))
    wanted = T.alloc_var(T.int32, init=k)
    for digit in T.unroll(4, explicit=True):
        T.clear(counts)
        for step in T.serial(T.ceildiv(seen, block)):
            for j in T.Parallel(block):
                row = step * block + j
                if row < seen:
                    key = ordered(Scores[query, row])
                    if digit == 0 or key >> T.uint32(32 - 8 * digit) == prefix:
                        bin = key >> T.uint32(24 - 8 * digit) & T.uint32(255)
                        T.atomic_add(counts[bin], 1)
        # As many have this digit or a larger one.
        T.cumsum(counts, dim=0, reverse=True)
        for j in T.Parallel(256):
            if counts[j] >= wanted and counts[j + 1] < wanted:
                found[0] = j
                found[1] = wanted - counts[j + 1]
        prefix = prefix << T.uint32(8) | T.cast(found[0], T.uint32)
        wanted = found[1]
    for j in T.Parallel(2):
        found[2 + j] = 0
    for step in T.serial(T.ceildiv(seen, block)):
        for j in T.Parallel(block):
            row = step * block + j
            if row < seen:
                key = ordered(Scores[query, row])
                at = T.alloc_var(T.int32, init=k)
                if key > prefix:
                    at = T.atomic_add(found[2], 1, return_prev=True)
                if key == prefix:
                    at = k - wanted + T.atomic_add(found[3], 1, return_prev=True)
                if at < k:
                    Chosen[query, at] = row


@T.macro
def load(Scores, query, seen, first, apart, guarded, keys):
    """The keys of a tile, of which each warp has `width` of `loads` vectors of its lanes, from
    `first` and its number times `apart` on; where `guarded`, 0, which no number has, of what is not
    seen."""
    loads, warps, width = keys.shape
    # All loads first, so that they are in flight together.
    scores = T.alloc_fragment((loads, warps, width), T.float32)
    for u, w, i in T.Parallel(loads, warps, width):
        row = first + w * apart + u * width + i
        scores[u, w, i] = Scores[query, row]
    for u, w, i in T.Parallel(loads, warps, width):
        row = first + w * apart + u * width + i
        seeing = row < seen if guarded else True
        keys[u, w, i] = T.if_then_else(seeing, ordered(scores[u, w, i]), T.uint32(0))


@T.macro
def load_step(Scores, query, step, apart, keys):
    """The keys of a whole tile of a row, that many steps behind the first one."""
    loads, warps, width = keys.shape
    scores = T.alloc_fragment((loads, warps, width), T.float32)
    for u, w, i in T.Parallel(loads, warps, width):
        row = step * loads * width + w * apart + u * width + i
        # Since a warp's part of a row has `apart` scores.
        T.assume(row < Scores.shape[1])
        scores[u, w, i] = Scores[query, row]
    for u, w, i in T.Parallel(loads, warps, width):
        keys[u, w, i] = ordered(scores[u, w, i])


@T.macro
def count_digits(keys, counts):
    """Count the keys of a tile by their upper 11 bits."""
    each = counts.shape[1]
    for u, w, i in T.Parallel(*keys.shape):
        digit = T.cast(keys[u, w, i] >> T.uint32(21), T.int32)
        T.atomic_add(counts[digit // each, digit % each], 1)


@T.macro
def append(keys, place, least, state):
    """Append the keys from `least` on to the list, if there is room; `place` is the row of a
    thread's first one."""
    kept, number, at, ends = state
    (loads, _, width), (threads,) = keys.shape, number.shape
    listed = kept.shape[0] - 4 * loads
    T.clear(number)
    for u, v in itertools.product(range(loads), range(4)):
        for i in T.Parallel(threads):
            if keys[u, i // LANES, i % LANES * 4 + v] >= least:
                number[i] += T.uint32(1)
    for i in T.Parallel(threads):
        at[i] = T.min(T.atomic_add(ends[0], number[i], return_prev=True), T.uint32(listed))
    for u, v in itertools.product(range(loads), range(4)):
        for i in T.Parallel(threads):
            key = keys[u, i // LANES, i % LANES * 4 + v]
            if key >= least:
                row = place[i] + u * width + v
                low = T.cast(T.cast(row, T.uint32), T.uint64)  # no sign to extend
                both = T.cast(key, T.uint64) << T.uint64(32) | low
                # Places differ, so that stores need no order: no barriers between tiles.
                T.atomic_store(kept[at[i]], both, memory_order="relaxed")
                at[i] += T.uint32(1)


@T.macro
def count_row(Scores, query, seen, tries, keys, counts):
    """Count the digits of a row's first tile, the sample, or at the second try those of the row;
    `keys` are those of the first tile then."""
    loads, warps, width = keys.shape
    tile = loads * warps * width
    whole = seen // tile
    apart = whole * loads * width
    T.clear(counts)
    load(Scores, query, seen, 0, apart, False, keys)
    for step in T.serial(T.if_then_else(tries == 0, 1, whole)):
        count_digits(keys, counts)
        if tries > 0 and step + 1 < whole:
            load_step(Scores, query, step + 1, apart, keys)
    if tries > 0:
        load(Scores, query, seen, whole * tile, loads * width, True, keys)
        count_digits(keys, counts)
        load(Scores, query, seen, 0, apart, False, keys)


@T.macro
def list_row(Scores, query, seen, least, keys, place, state):
    """List the keys of a row from `least` on; `keys` are those of its first tile."""
    (loads, warps, width), (threads,) = keys.shape, place.shape
    tile = loads * warps * width
    whole = seen // tile
    apart = whole * loads * width
    T.clear(state[3])
    for i in T.Parallel(threads):
        place[i] = i // LANES * apart + i % LANES * 4
    for step in T.serial(whole):
        append(keys, place, least, state)
        for i in T.Parallel(threads):
            place[i] += loads * width
        if step + 1 < whole:
            load_step(Scores, query, step + 1, apart, keys)
    if whole * tile < seen:
        load(Scores, query, seen, whole * tile, loads * width, True, keys)
        for i in T.Parallel(threads):
            place[i] = whole * tile + i // LANES * loads * width + i % LANES * 4
        append(keys, place, least, state)


@T.macro
def find_in_list(kept, size, k, least, above, counts, found):
    """`find_digit` of how far the keys of a list are above `least`, divided by DIGITS; or of the
    remainders of those whose quotient is `above`."""
    threads, each = counts.shape
    block = 4 * threads
    T.clear(counts)
    for step in T.serial(T.ceildiv(size, block)):
        for j in T.Parallel(block, coalesced_width=1):
            n = step * block + j
            if n < size:
                key = T.cast(kept[n] >> T.uint64(32), T.uint32) - least
                if above is None or key // T.uint32(DIGITS) == above:
                    value = key // T.uint32(DIGITS) if above is None else key % T.uint32(DIGITS)
                    digit = T.cast(T.min(value, T.uint32(DIGITS - 1)), T.int32)
                    T.atomic_add(counts[digit // each, digit % each], 1)
    find_digit(counts, k, found)


@T.macro
def choose_near(state, size, least, digit, wanted, query, Chosen):
    """What of a list has a larger digit than its k-th key, and the `wanted` largest of those that
    have the same `digit`, up to `NEAR`, which are compared with each other."""
    kept, number, _, ends = state
    k, (threads,) = Chosen.shape[1], number.shape
    rows = T.alloc_shared((k,), T.int32)
    near = T.alloc_shared((NEAR,), T.uint64)
    T.clear(ends)
    for step in T.serial(T.ceildiv(size, threads)):
        for i in T.Parallel(threads):
            if step * threads + i < size:
                both = kept[step * threads + i]
                own = (T.cast(both >> T.uint64(32), T.uint32) - least) // T.uint32(DIGITS)
                if own > digit:
                    place = T.atomic_add(ends[0], T.uint32(1), return_prev=True)
                    T.atomic_store(rows[place], T.cast(both, T.int32), memory_order="relaxed")
                elif own == digit:
                    place = T.atomic_add(ends[1], T.uint32(1), return_prev=True)
                    T.atomic_store(near[place], both, memory_order="relaxed")
    for i in T.Parallel(NEAR):
        if i < T.cast(ends[1], T.int32):
            rank = T.alloc_var(T.int32, init=0)
            for n in T.serial(T.cast(ends[1], T.int32)):
                if near[n] > near[i]:
                    rank += 1
            if rank < wanted:
                rows[k - wanted + rank] = T.cast(near[i], T.int32)
    # In vectors.
    T.copy(rows, Chosen[query, 0])


@T.macro
def choose(state, size, kth, wanted, query, Chosen):
    """What is larger than the k-th key of a list, and as many equal ones as are wanted."""
    kept, number, at, ends = state
    k, threads = Chosen.shape[1], number.shape[0]
    rows = T.alloc_shared((k,), T.int32)
    T.clear(ends)
    T.clear(number)
    # Larger ones, and equal ones in the upper half of a number.
    for step in T.serial(T.ceildiv(size, threads)):
        for i in T.Parallel(threads):
            if step * threads + i < size:
                key = T.cast(kept[step * threads + i] >> T.uint64(32), T.uint32)
                number[i] += T.if_then_else(key > kth, 1, T.if_then_else(key == kth, HIGH, 0))
    for i in T.Parallel(threads):
        at[i] = T.atomic_add(ends[0], number[i], return_prev=True)
    for step in T.serial(T.ceildiv(size, threads)):
        for i in T.Parallel(threads):
            if step * threads + i < size:
                both = kept[step * threads + i]
                key = T.cast(both >> T.uint64(32), T.uint32)
                place = T.alloc_var(T.uint32, init=T.uint32(k))
                if key > kth:
                    place = at[i] % HIGH
                    at[i] += T.uint32(1)
                if key == kth:
                    place = T.cast(k - wanted, T.uint32) + at[i] // HIGH
                    at[i] += HIGH
                if place < T.uint32(k):
                    T.atomic_store(rows[place], T.cast(both, T.int32), memory_order="relaxed")
    # In vectors.
    T.copy(rows, Chosen[query, 0])


@tilelang.jit(out_idx=[-1])
def top_k(k, threads=256, loads=3, listed=4096):
    """The `k` largest of Scores (queries, length) of the rows that each query sees, in any order,
    -1 behind them where it sees fewer. A sample of the scores tells a number that at least k reach,
    by its upper 11 bits; one pass lists those that do, up to `listed`. If they turn out to be too
    few or too many, all scores tell that number. How many keys of the list have each value of 11
    bits tells those of the k-th one: what has more is chosen, and what has the same is compared
    with each other, or, if there is much of it, counted by the next 11 bits. Where there are too
    many for the list, a digit of 8 bits at a time is found by a pass over the row. A tile of the
    pass has `loads` vectors of each thread; the first one, of which each warp has what its part of
    the row begins with, is the sample."""
    queries, length = T.dynamic("queries, length")
    block = 4 * threads
    tile = loads * block
    warps, width, each = threads // LANES, 4 * LANES, DIGITS // threads

    @T.prim_func
    def main(
        Scores: T.Tensor((queries, length), T.float32), Chosen: T.Tensor((queries, k), T.int32)
    ):
        with T.Kernel(queries, threads=threads) as query:
            # 48 registers: what a tile loads is in flight together, and five blocks have room.
            T.annotate_min_blocks_per_sm(1280 // threads)
            keys = T.alloc_fragment((loads, warps, width), T.uint32)
            place = T.alloc_fragment((threads,), T.int32)
            counts = T.alloc_shared((threads, each), T.int32)
            found = T.alloc_shared((3,), T.int32)
            # Of each a key in the upper half, its row in the lower one; a thread that finds no room
            # stores behind `listed`.
            kept = T.alloc_shared((listed + 4 * loads,), T.uint64)
            # How many scores of a tile each thread takes, and the place of the next one.
            number = T.alloc_fragment((threads,), T.uint32)
            at = T.alloc_fragment((threads,), T.uint32)
            ends = T.alloc_shared((2,), T.uint32)
            state = (kept, number, at, ends)
            seen = query + 1 + length - queries
            if seen <= k:
                for j in T.Parallel(k):
                    Chosen[query, j] = T.if_then_else(j < seen, j, -1)
            else:
                # Under way beside the sample; the pass finds the row in L2.
                if T.get_thread_binding() == 0:
                    T.prefetch_l2(Scores[query, 0], 4 * seen)
                done = T.alloc_var(T.bool, init=False)
                kth = T.alloc_var(T.uint32, init=T.uint32(0))
                least = T.alloc_var(T.uint32, init=T.uint32(0))
                wanted = T.alloc_var(T.int32, init=0)
                near = T.alloc_var(T.int32, init=0)
                size = T.alloc_var(T.int32, init=0)
                tries = T.alloc_var(T.int32, init=T.if_then_else(seen > tile, 0, 1))
                while not done and tries < 2:
                    # So many more that the number is hardly too large.
                    share = T.cast(k, T.float32) * tile / T.cast(seen, T.float32)
                    likely = T.min(T.cast(share + 3 * T.sqrt(share), T.int32) + 1, tile)
                    wanted = T.if_then_else(tries == 0, likely, k)
                    count_row(Scores, query, seen, tries, keys, counts)
                    find_digit(counts, wanted, found)
                    least = T.cast(found[0], T.uint32) << T.uint32(21)
                    list_row(Scores, query, seen, least, keys, place, state)
                    size = T.cast(ends[0], T.int32)
                    # The least digit is that of NaN alone, and of what is not seen.
                    if least > 0 and size >= k and size <= listed:
                        find_in_list(kept, size, k, least, None, counts, found)
                        done = found[0] < DIGITS - 1
                        kth = T.cast(found[0], T.uint32)
                        near = found[2]
                        wanted = found[1]
                    tries = tries + 1
                if done and near > NEAR:
                    find_in_list(kept, size, wanted, least, kth, counts, found)
                    kth = kth * T.uint32(DIGITS) + T.cast(found[0], T.uint32) + least
                    choose(state, size, kth, found[1], query, Chosen)
                elif done:
                    choose_near(state, size, least, kth, wanted, query, Chosen)
                else:
                    by_passes(Scores, Chosen, query, seen, block)

    return main


def inputs(queries, length, heads, dim, dtype=T.float8_e4m3fn, device="cpu"):
    """Q, K, the rows' scales and the heads' weights. Some rows are equal."""
    q, k = (torch.randn(n, device=device) for n in ((queries, heads, dim), (length, dim)))
    scales = torch.rand(length, device=device) + 0.5
    same = torch.arange(length, device=device) // 4 * 4
    q, k = (x.to(dtype.as_torch()) for x in (q, k[same]))
    return q, k, scales[same], torch.randn(queries, heads, device=device)


def reference(q, k, scales, weights):
    """The scores in float64, -inf where a query does not see a row."""
    queries, length = len(q), len(k)
    products = torch.einsum("qhd,kd->qhk", q.double(), k.double()).relu()
    scores = torch.einsum("qhk,qh->qk", products, weights.double()) * scales.double()
    row = torch.arange(length, device=q.device)
    behind = torch.arange(queries, device=q.device)[:, None] + length - queries < row
    return scores.masked_fill(behind, -torch.inf)


def missed(scores, chosen):
    """How much larger than the least of the chosen scores another one is, at most, in float64; the
    lists have different rows, as many as there are."""
    rows, none = chosen.clamp(min=0).long(), chosen < 0
    assert none.sum(1).eq((chosen.shape[1] - scores.isfinite().sum(1)).clamp(min=0)).all()
    listed = torch.zeros_like(scores, dtype=torch.int32)
    listed.scatter_add_(1, rows, (~none).int())
    assert listed.max() == 1, "a row is listed twice"
    assert scores[listed > 0].isfinite().all(), "a row that the query does not see"
    least = scores.gather(1, rows).masked_fill(none, torch.inf).amin(1)
    return float((scores.masked_fill(listed > 0, -torch.inf).amax(1) - least).max())


def relative_error(queries, length, heads, dim, chosen, device="cpu"):
    """||ours - reference|| / ||reference|| of the scores; the lists are checked."""
    torch.manual_seed(0)
    tensors = inputs(queries, length, heads, dim, device=device)
    found = index_scores(heads, dim)(*tensors)
    lists = top_k(chosen)(found)
    wanted = reference(*tensors)
    seen = wanted.isfinite()
    beyond = missed(wanted, lists)
    largest = float(wanted[seen].abs().max())
    assert beyond < 1e-3 * largest, f"a score {beyond:.1e} larger than a chosen one was left out"
    return float((found.double() - wanted)[seen].norm() / wanted[seen].norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1024 if gpu else 9)
    parser.add_argument("--length", type=int, default=8192 if gpu else 150, help="rows")
    parser.add_argument("--chosen", type=int, default=2048 if gpu else 147, help="rows of a query")
    parser.add_argument("--heads", type=int, default=64 if gpu else 32)
    parser.add_argument("--dim", type=int, default=128 if gpu else 64)
    arguments = parser.parse_args()
    error = relative_error(
        *(arguments.queries, arguments.length, arguments.heads, arguments.dim),
        *(arguments.chosen, "cuda" if gpu else "cpu"),
    )
    # The tensor cores of some chips keep fewer bits of a sum of 8-bit products than float32.
    assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
    shape = f"{arguments.queries} queries, {arguments.chosen} of {arguments.length} rows"
    print(f"{shape}: relative error {error:.1e}")
