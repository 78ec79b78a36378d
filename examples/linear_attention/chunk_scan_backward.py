"""The gradients of Mamba-2's chunk scan (Dao and Gu 2024, "Transformers are SSMs", section 6: the
chunks of the forward pass, in reverse). States go through memory, and are as large as all rows of
x for 128 of them: so they are stored for pairs of chunks. Check them against float64 autograd.

Of a head in a chunk, with rows i and j from 0, a[i] = A dt[i], the running sum l of a, and its last
element t, the forward pass is

    y[i] = exp(l[i]) c[i]^T S + sum over j <= i of exp(l[i] - l[j]) (c[i] . b[j]) dt[j] x[j],
    S'   = exp(t) S + sum over j of exp(t - l[j]) dt[j] b[j] x[j]^T.

Let G be the gradient of S', and P[i, j] = dy[i] . x[j]. With M[i, j] = exp(l[i] - l[j]) for j <= i,
else 0, and s[i, j] = c[i] . b[j], the product rule gives

    gradient of S:  exp(t) G + sum over i of exp(l[i]) c[i] dy[i]^T,
    z[j]  = exp(t - l[j]) G^T b[j] + sum over i of M[i, j] s[i, j] dy[i],
    dx[j] = dt[j] z[j],
    dc[i] = sum over heads of exp(l[i]) S dy[i] + sum over j of W[i, j] b[j],
    db[j] = sum over heads of exp(t - l[j]) dt[j] G x[j] + sum over i of W[i, j] c[i],
    W[i, j] = sum over heads of M[i, j] P[i, j] dt[j].

l[i] is in exponents alone, so its gradient is what these exponents multiply:

    dl[i] = dy[i] . y[i] - dt[i] x[i] . z[i], and <G, S'> more for the last row,
    da[i] = sum over k >= i of dl[k],
    d_dt[i] = x[i] . z[i] + A da[i],  dA = sum over all rows of dt[i] da[i].

What rows i and j of a chunk give to both terms of dl is the sum of the same products, by rows and
by columns: in da most of it cancels, which it would not with another rounding of z. So the terms
are made where P is: dy[i] . y[i] = exp(l[i]) c[i] . (S dy[i]) + sum over j of M s P dt, and
x[j] . z[j] = exp(t - l[j]) b[j] . (G x[j]) + sum over i of M s P.

`prepare` makes decays and scores. Three kernels follow. `chunk_states` goes through the chunks and
stores S, and `reverse_scan` goes back and stores G and dx: it is the forward scan of dy, with B and
C in each other's place. `weights` takes a pair of chunks, many heads and a half of the states, and
has the sums over heads in registers. `time_gradients` and `sum_weights` do what is left of pairs of
chunks, beside each other. Each kernel may be launched while the one in front of it ends, and waits
for it. For Hopper.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
from functools import partial

import chunk_scan_roles as roles
import torch
from chunk_scan import CHUNK, FAST_MATH, WIDTH, inputs, reference, sum_up_steps

import tilelang
import tilelang.language as T

HOPPER = roles.HOPPER
# States of a pair of chunks are stored. Two blocks share a pair, each with a half of the states.
PAIR, HALVES = 2 * CHUNK, 2
ROWS = T.GemmWarpPolicy.FullRow
DEPTH = 4
# A product with a state has these parts, one at a time: registers.
PARTS = 2
# A half of the products of rows has all columns of one chunk and half of the other's.
COLUMNS = CHUNK + CHUNK // 2


def prepare(heads, d_state=128, group=64):
    """What the other kernels begin with: decays as those of `chunk_decays`; Back[t, j], b[t] . c[s]
    of row s = s0 + j >= t of the chunk that begins at s0, else 0; Scores[t, j], c[t] . b[s] of row
    s = s0 + j <= t of the pair of chunks that begins at s0, else 0; and sums that are zero."""
    length, chunks, pairs = T.dynamic("length, chunks, pairs")

    @T.prim_func
    def main(
        dt: T.Tensor((length, heads), "float32"),
        A: T.Tensor((heads,), "float32"),
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        Decays: T.Tensor((chunks, heads, 2, CHUNK), "float32"),
        Back: T.Tensor((length, CHUNK), "float16"),
        Scores: T.Tensor((length, PAIR), "float16"),
        Weights: T.Tensor((pairs, 3, CHUNK, CHUNK), "float32"),
        dB: T.Tensor((length, d_state), "float32"),
        dC: T.Tensor((length, d_state), "float32"),
    ):
        groups = T.ceildiv(heads, group)
        with T.Kernel(groups + 1, T.ceildiv(length, CHUNK), threads=256) as (bx, n):
            T.pdl_trigger()
            if bx < groups:
                sum_up_steps(dt, A, Decays, n, bx * group, group)
            else:
                c, own = [T.alloc_shared((CHUNK, d_state), "float16") for _ in range(2)]
                b = T.alloc_shared((PAIR, d_state), "float16")
                scores = T.alloc_fragment((CHUNK, PAIR), "float32")
                back = T.alloc_fragment((CHUNK, CHUNK), "float32")
                row = n * CHUNK
                T.copy(C[row, 0], c)
                T.copy(B[row, 0], own)
                T.copy(B[n // 2 * PAIR, 0], b)
                T.gemm(c, b, scores, transpose_B=True, clear_accum=True)
                T.gemm(own, c, back, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(CHUNK, PAIR):
                    scores[i, j] = T.if_then_else(n % 2 * CHUNK + i >= j, scores[i, j], 0)
                for i, j in T.Parallel(CHUNK, CHUNK):
                    back[i, j] = T.if_then_else(j >= i, back[i, j], 0)
                T.copy(scores, Scores[row, 0])
                T.copy(back, Back[row, 0])
                T.clear(dB[row : row + CHUNK, :])
                T.clear(dC[row : row + CHUNK, :])
                if n % 2 == 0:
                    T.clear(Weights[n // 2, :, :, :])

    return main


def chunk_states(heads, d_state=128, width=WIDTH, threads=128):
    """The state in front of each pair of chunks. Decays are those of `chunk_decays`. A block has a
    head."""
    length, chunks, pairs = T.dynamic("length, chunks, pairs")

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, width), "float16"),
        Decays: T.Tensor((chunks, heads, 2, CHUNK), "float32"),
        B: T.Tensor((length, d_state), "float16"),
        States: T.Tensor((pairs, heads, d_state, width), "float16"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, threads=threads) as h:
            T.pdl_sync()
            T.pdl_trigger()
            x = T.alloc_shared((CHUNK, width), "float16")
            b = T.alloc_shared((CHUNK, d_state), "float16")
            decays = T.alloc_shared((2, CHUNK), "float32")
            scaled = T.alloc_shared((CHUNK, width), "float16")
            state_shared = T.alloc_shared((d_state, width), "float16")
            state = T.alloc_fragment((d_state, width), "float32")
            T.annotate_min_blocks_per_sm(3)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(136)
            T.clear(state)
            for n in T.Pipelined(chunks, num_stages=2):
                T.copy(Decays[n, h, :, :], decays)
                T.copy(X[n * CHUNK : (n + 1) * CHUNK, h, :], x)
                T.copy(B[n * CHUNK, 0], b)
                if n % 2 == 0:
                    T.copy(state, state_shared)
                    T.copy(state_shared, States[n // 2, h, :, :])
                total = decays[0, CHUNK - 1]
                for j, p in T.Parallel(CHUNK, width):
                    scaled[j, p] = x[j, p] * T.exp2(total - decays[1, j])
                for s, p in T.Parallel(d_state, width):
                    state[s, p] *= T.exp2(total)
                T.gemm(b, scaled, state, transpose_A=True)

    return main


@T.macro
def sum_up_reverse(steps, sums):
    """As `sum_up` of chunk_scan_roles.py, of the scan of dy: exponents of row j and of row i, what
    row j makes of the gradient of the state behind the chunk, and row i adds to that in front."""
    lane = T.get_lane_idx()
    last = T.alloc_var("float32")
    last = steps[2] * (steps[0] + steps[1])
    for power in T.unroll(5):
        before = T.shfl_up(last, 1 << power)
        last += T.if_then_else(lane >= 1 << power, before, 0)
    total = T.shfl_sync(last, 31)
    log = T.alloc_local((2,), "float32")
    log[0] = T.if_then_else(lane > 0, T.shfl_up(last, 1), 0) + steps[2] * steps[0]
    log[1] = last
    for i in T.unroll(2):
        sums[0, i] = total - log[i] + T.log2(steps[i])
        sums[1, i] = total - log[i]
        sums[2, i] = steps[i] * T.exp2(total - log[i])
        sums[3, i] = T.exp2(log[i])


@T.macro
def begin_reverse(Initial, state, h, Last):
    """The gradient of the last state, transposed."""
    T.clear(state)
    if h < Last.shape[0]:
        for p, s in T.Parallel(*state.shape):
            state[p, s] = Initial[h, s, p]


@T.macro
def target_reverse(Behind, X, state_shared, h, step, chunks):
    """Where rows of dx go; `state_shared` is stored if a pair of chunks ends here."""
    n = chunks - 1 - step
    if n % 2 == 1 or step == 0:
        T.tma_copy(state_shared, Behind[n // 2, h, :, :])
    return X[n * CHUNK : (n + 1) * CHUNK, h, :]


def reverse_scan(heads, blocks, d_state=128, width=WIDTH):
    """dX and the gradient of the state behind each pair of chunks, of the last one, Initial. First
    is the gradient of the one in front of all chunks. Scores are those of `chunk_scores` of C and B
    in reverse order. As `chunk_scan_by_roles` for the rest."""
    roles.check_sizes(heads, blocks, d_state, width)
    length, pairs = T.dynamic("length, pairs")
    groups = -(-heads // roles.HEADS)
    blocks = min(blocks, groups)

    @T.prim_func
    def main(
        dY: T.Tensor((length, heads, width), "float16"),
        dt: T.Tensor((length, heads), "float32"),
        A: T.Tensor((heads,), "float32"),
        C: T.Tensor((length, d_state), "float16"),
        B: T.Tensor((length, d_state), "float16"),
        Scores: T.Tensor((length, CHUNK), "float16"),
        Initial: T.Tensor((heads, d_state, width), "float32"),
        Behind: T.Tensor((pairs, heads, d_state, width), "float16"),
        dX: T.Tensor((length, heads, width), "float16"),
        First: T.Tensor((heads, d_state, width), "float32"),
        Counts: T.Tensor((blocks + 1, roles.HEADS), "int32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        chunks = T.ceildiv(length, CHUNK)
        with T.Kernel(T.min(blocks, groups * chunks), threads=128 * (roles.HEADS + 1)) as block:
            T.pdl_sync()
            T.pdl_trigger()
            T.annotate_ws_schedule(roles.schedule())
            tiles = roles.Tiles(d_state, width)
            share, parts = roles.share_of(block, blocks, groups, chunks)
            with T.ws_role("load"):
                own = T.alloc_local((3,), "float32"), T.alloc_local((4, 2), "float32")
                tensors = dY, dt, A, C, B, Scores
                for k in T.serial(parts):
                    group, first, behind = roles.part_of(share, k)
                    for step in T.serial(first, behind):
                        n = chunks - 1 - step
                        roles.load(tensors, tiles, own, group * roles.HEADS, n, sum_up_reverse)
            begin, target = partial(begin_reverse, Initial), partial(target_reverse, Behind)
            whole = 3, CHUNK - 1
            for g, name in enumerate(roles.GROUPS):
                with T.ws_role(name):
                    of = begin, target, whole
                    roles.scan(g, share, parts, block, tiles, dX, First, Counts, *of)

    return main


def schedule():
    """Warps that load, and a group for each sum."""
    names = "load", "rows", "columns", "weights"
    return T.WSSchedule(
        num_warps=16,
        roles={
            name: T.WSRole(warps_lo=4 * g, warps_hi=4 * g + 4, max_nreg=160 if g else 24)
            for g, name in enumerate(names)
        },
        pipelines={"tiles": T.WSPipeline(DEPTH)},
    )


class Tiles:
    """Of a pair of chunks of a head: rows of dy and x, a half of the state in front of them and of
    the gradient of that behind them, decays of both chunks, and the sums that the groups make of
    these, in versions."""

    def __init__(self, part, width):
        self.dy, self.x = [T.alloc_shared((DEPTH, PAIR, width), "float16") for _ in "yx"]
        self.state, self.behind = [T.alloc_shared((DEPTH, part, width), "float16") for _ in "sg"]
        self.decays = T.alloc_shared((DEPTH, 2, 2, CHUNK), "float32")
        self.sums = T.alloc_shared((DEPTH, 4, PAIR), "float32")
        self.done = T.alloc_barrier(3 * 128)


@T.macro
def load(tensors, tiles, Sums, place, k):
    """Ask for the tiles of the k-th head, in the place of those of DEPTH heads before, whose sums
    are stored: the groups make no addresses for them, and wait for no stores."""
    (dY, X, States, Behind, Decays), (pair, half, first) = tensors, place
    part, h = tiles.state.shape[1], first + k
    rows, states = slice(pair * PAIR, (pair + 1) * PAIR), slice(half * part, (half + 1) * part)
    v = T.producer_acquire("tiles")
    if k >= DEPTH:
        T.tma_copy(tiles.sums[v, :, :], Sums[pair, h - DEPTH, half, :, :])
    for source, tile in (
        (Decays[2 * pair : 2 * pair + 2, h, :, :], tiles.decays[v, :, :, :]),
        (dY[rows, h, :], tiles.dy[v, :, :]),
        (States[pair, h, states, :], tiles.state[v, :, :]),
        (X[rows, h, :], tiles.x[v, :, :]),
        (Behind[pair, h, states, :], tiles.behind[v, :, :]),
    ):
        T.tma_copy(source, tile, barrier=T.producer_barrier("tiles", v))
    T.tma_store_wait(0)
    T.producer_commit("tiles")


@T.macro
def store_last_sums(tiles, Sums, place, group):
    """Store the sums whose places no tiles follow in, when the groups have made them."""
    pair, half, first = place
    T.mbarrier_wait_parity(tiles.done, 0)
    for d in T.serial(DEPTH):
        k = group - DEPTH + d
        if k >= 0:
            T.tma_copy(tiles.sums[k % DEPTH, :, :], Sums[pair, first + k, half, :, :])
    T.tma_store_wait(0)


@T.macro
def end_sums(tiles):
    """Say that this group has made all its sums."""
    T.fence_proxy_async()
    T.mbarrier_arrive(tiles.done)


def wait_for_tiles():
    """The version that is full. The value of a lane is known to be a warp's: descriptors of
    products are made once for it, in uniform registers."""
    return T.shfl_sync(T.consumer_wait("tiles"), 0)


@T.macro
def factors_by_rows(decays, v, second, factors):
    """exp(l), for rows of dy of one of two chunks."""
    before = decays[v, 0, 0, CHUNK - 1] if second else 0
    for i in T.Parallel(CHUNK):
        factors[i] = T.exp2(decays[v, second, 0, i] + before)


@T.macro
def factors_by_columns(decays, v, second, factors):
    """exp(t - l) dt, for rows of x of one of two chunks."""
    total = decays[v, 1, 0, CHUNK - 1] + (0 if second else decays[v, 0, 0, CHUNK - 1])
    for j in T.Parallel(CHUNK):
        factors[j] = T.exp2(total - decays[v, second, 1, j])


@T.macro
def by_state(v, tile, state, decays, keys, sums, make_factors, Sums, at):
    """What a pair of chunks of a head adds to dc, or to db: rows of `tile` by `state`, times
    factors, a part of the columns at a time. Sums of rows, of these times `keys`, go to
    Sums[at]."""
    columns = sums[0][0].shape[1]
    product, by_keys = [T.alloc_fragment((CHUNK, columns), "float32") for _ in range(2)]
    factors, of_rows = [T.alloc_fragment((CHUNK,), "float32") for _ in range(2)]
    for second in [0, 1]:
        rows = slice(second * CHUNK, (second + 1) * CHUNK)
        for n in [*range(PARTS)]:
            T.wgmma_gemm(
                *(tile[v, rows, :], state[v, n * columns : (n + 1) * columns, :], product),
                transpose_B=True,
                policy=ROWS,
                clear_accum=True,
            )
            if n == 0:
                make_factors(decays, v, second, factors)
            T.wait_wgmma(0)
            for i, s in T.Parallel(CHUNK, columns):
                sums[second][n][i, s] += factors[i] * product[i, s]
                by_keys[i, s] = product[i, s] * keys[second][n][i, s]
            T.reduce_sum(by_keys, of_rows, dim=1, clear=n == 0)
        for i in T.Parallel(CHUNK):
            of_rows[i] *= factors[i]
        T.copy(of_rows, Sums[(*at, rows)])


@T.macro
def of_states(v, state, behind, result):
    """<G, S> of a half of the states, by 16 rows."""
    _, part, width = state.shape
    both, sums = T.alloc_fragment((16, width), "float32"), T.alloc_fragment((16,), "float32")
    T.clear(both)
    for n in T.unroll(part // 16):
        for s, p in T.Parallel(16, width):
            both[s, p] += T.cast(state[v, n * 16 + s, p], "float32") * behind[v, n * 16 + s, p]
    T.reduce_sum(both, sums, dim=1)
    T.copy(sums, result)


@T.macro
def by_rows_and_columns(product, scores, exponent, of_heads, parts, place, first):
    """What a head adds to W, of P, and the sums of s times that by rows, which go to `place`. Those
    by columns, of the rows that a thread has, go to `parts`."""
    rows, columns = product.shape
    of_rows = T.alloc_fragment((rows,), "float32")
    of_columns = T.alloc_fragment((4, 8, columns), "float32")
    by_scores = T.alloc_fragment((rows, columns), "float32")
    for i, j in T.Parallel(rows, columns):
        product[i, j] *= T.exp2(exponent(i, j))
        of_heads[i, j] += product[i, j]
        by_scores[i, j] = product[i, j] * scores[i, j]
    T.reduce_sum(by_scores, of_rows, dim=1)
    T.copy(of_rows, place)
    T.reduce_sum(T.reshape(by_scores, (4, 2, 8, columns)), of_columns, dim=1)
    for warp, row, j in T.Parallel(4, 8, columns):
        parts[warp * 8 + row, first + j] = of_columns[warp, row, j]


@T.macro
def weights_of_head(v, half, tiles, scores, of_heads):
    """A half of P of a pair of chunks: the square of one chunk, and of its rows of the second chunk
    by those of the first one a half of the columns."""
    parts = T.alloc_shared((32, COLUMNS + 8), "float32")
    square, rest = [T.alloc_fragment((CHUNK, n), "float32") for n in (CHUNK, CHUNK // 2)]
    dy, x, decays = tiles.dy, tiles.x, tiles.decays
    mine, begin = slice(half * CHUNK, (half + 1) * CHUNK), half * (CHUNK // 2)
    options = {"transpose_B": True, "policy": ROWS, "clear_accum": True}
    T.wgmma_gemm(dy[v, mine, :], x[v, mine, :], square, **options)
    T.wait_wgmma(0)
    # Where j > i the exponent has no bound, the score is zero, and the sum is not used.
    by_rows_and_columns(
        *(square, scores[0]),
        lambda i, j: T.min(decays[v, half, 0, i] - decays[v, half, 1, j], 100),
        *(of_heads[0], parts, tiles.sums[v, 2, :CHUNK], 0),
    )
    T.wgmma_gemm(dy[v, CHUNK:, :], x[v, begin : begin + CHUNK // 2, :], rest, **options)
    total = decays[v, 0, 0, CHUNK - 1]
    T.wait_wgmma(0)
    by_rows_and_columns(
        *(rest, scores[1]),
        lambda i, j: decays[v, 1, 0, i] + total - decays[v, 0, 1, begin + j],
        *(of_heads[1], parts, tiles.sums[v, 2, CHUNK:], CHUNK),
    )
    column = T.get_thread_binding() % 128
    if column < COLUMNS:
        # Four sums: each addition to one waits for the one in front of it.
        four = T.alloc_local((4,), "float32")
        for n in T.unroll(4):
            four[n] = parts[n, column]
        for row in T.unroll(7):
            for n in T.unroll(4):
                four[n] += parts[row * 4 + 4 + n, column]
        tiles.sums[v, 3, column] = (four[0] + four[1]) + (four[2] + four[3])


@T.macro
def sum_by_states(which, tiles, place, group, Keys, Result):
    """What a block's heads add to dc, or to db where `which` is 1, by states."""
    (pair, half, _), (_, part, _) = place, tiles.state.shape
    tile, state = (tiles.x, tiles.behind) if which else (tiles.dy, tiles.state)
    make_factors = factors_by_columns if which else factors_by_rows
    columns = part // PARTS
    # In float32, which is not made of others in each step, and leaves room for a part of a product.
    sums, keys = [
        [[T.alloc_fragment((CHUNK, columns), "float32") for _ in range(PARTS)] for _ in range(2)]
        for _ in range(2)
    ]
    places = [
        (second, n, pair * PAIR + second * CHUNK, half * part + n * columns)
        for second in range(2)
        for n in range(PARTS)
    ]
    for second, n, row, column in places:
        T.copy(Keys[row, column], keys[second][n])
        T.clear(sums[second][n])
    if which:
        # Stored with the rest, and read by nobody.
        T.clear(tiles.sums[:, 3, COLUMNS + 16 :])
    for _ in T.serial(group):
        v = wait_for_tiles()
        at = tiles.sums, (v, which)
        by_state(v, tile, state, tiles.decays, keys, sums, make_factors, *at)
        if which:
            of_states(v, tiles.state, tiles.behind, tiles.sums[v, 3, COLUMNS : COLUMNS + 16])
        T.consumer_release("tiles")
    end_sums(tiles)
    for second, n, row, column in places:
        T.atomic_add(Result[row, column], sums[second][n])


@T.macro
def sum_products(tiles, place, group, Scores, Weights):
    """What a block's heads add to W: a half of the products of a pair's rows."""
    (pair, half, _), some = place, CHUNK // 2
    shapes = (CHUNK, CHUNK), (CHUNK, some)
    of_heads = [T.alloc_fragment(shape, "float32") for shape in shapes]
    scores = [T.alloc_fragment(shape, "float16") for shape in shapes]
    T.copy(Scores[pair * PAIR + half * CHUNK, half * CHUNK], scores[0])
    T.copy(Scores[pair * PAIR + CHUNK, half * some], scores[1])
    for of_part in of_heads:
        T.clear(of_part)
    for _ in T.serial(group):
        v = wait_for_tiles()
        weights_of_head(v, half, tiles, scores, of_heads)
        T.consumer_release("tiles")
    end_sums(tiles)
    T.atomic_add(Weights[pair, half, :, :], of_heads[0])
    T.atomic_add(Weights[pair, 2, 0, half * some], of_heads[1])


def weights(heads, group, d_state=128, width=WIDTH):
    """What all heads add to dB and dC by states, to W of pairs of chunks, and what a head's
    decays are made of. A block has a pair of chunks, a half of the states and `group` heads, which
    has to divide them. Of half h, Sums (pairs, heads, HALVES, 4, PAIR) have by rows c . (S dy)
    exp(l) and b . (G x) exp(t - l) dt, then sums of M s P dt by rows: those of chunk h, and of the
    second chunk by the first one's columns of half h. Then by columns: those of chunk h, of half h
    of the first one, and 16 parts of <G, S>. Weights (pairs, 3, CHUNK, CHUNK) are W of the first
    chunk, of the second, and of the second by the first one; above the diagonal is anything."""
    if heads % group:
        raise ValueError(f"found {heads} heads, wanted a multiple of group, {group}")
    length, chunks, pairs = T.dynamic("length, chunks, pairs")
    part = d_state // HALVES

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, width), "float16"),
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        dY: T.Tensor((length, heads, width), "float16"),
        Decays: T.Tensor((chunks, heads, 2, CHUNK), "float32"),
        Scores: T.Tensor((length, PAIR), "float16"),
        States: T.Tensor((pairs, heads, d_state, width), "float16"),
        Behind: T.Tensor((pairs, heads, d_state, width), "float16"),
        Sums: T.Tensor((pairs, heads, HALVES, 4, PAIR), "float32"),
        Weights: T.Tensor((pairs, 3, CHUNK, CHUNK), "float32"),
        dB: T.Tensor((length, d_state), "float32"),
        dC: T.Tensor((length, d_state), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(HALVES, heads // group, pairs, threads=512) as (half, bx, pair):
            T.pdl_sync()
            T.pdl_trigger()
            T.annotate_ws_schedule(schedule())
            tiles = Tiles(part, width)
            place = pair, half, bx * group
            with T.ws_role("load"):
                for k in T.serial(group):
                    load((dY, X, States, Behind, Decays), tiles, Sums, place, k)
                store_last_sums(tiles, Sums, place, group)
            for which, (name, Keys, Result) in enumerate((("rows", C, dC), ("columns", B, dB))):
                with T.ws_role(name):
                    sum_by_states(which, tiles, place, group, Keys, Result)
            with T.ws_role("weights"):
                sum_products(tiles, place, group, Scores, Weights)

    return main


def sum_weights(d_state=128):
    """What W of pairs of chunks (`weights`) adds to dB and dC."""
    length, pairs = T.dynamic("length, pairs")

    @T.prim_func
    def main(
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        Weights: T.Tensor((pairs, 3, CHUNK, CHUNK), "float32"),
        dB: T.Tensor((length, d_state), "float32"),
        dC: T.Tensor((length, d_state), "float32"),
    ):
        with T.Kernel(3, pairs, threads=128) as (which, pair):
            T.pdl_sync()
            # The next kernel reads what the one in front of this one wrote, and nothing of this.
            T.pdl_trigger()
            # Rows are of the second chunk but for the first part, columns of the first one but for
            # the second part.
            rows = pair * PAIR + T.if_then_else(which > 0, CHUNK, 0)
            columns = pair * PAIR + T.if_then_else(which == 1, CHUNK, 0)
            b, c = [T.alloc_shared((CHUNK, d_state), "float16") for _ in "bc"]
            of_heads = T.alloc_shared((CHUNK, CHUNK), "float16")
            sums = T.alloc_fragment((CHUNK, d_state), "float32")
            T.copy(B[columns, 0], b)
            T.copy(C[rows, 0], c)
            for i, j in T.Parallel(CHUNK, CHUNK):
                is_seen = i >= j or which == 2
                of_heads[i, j] = T.if_then_else(is_seen, Weights[pair, which, i, j], 0)
            T.gemm(of_heads, b, sums, clear_accum=True)
            T.atomic_add(dC[rows, 0], sums)
            T.gemm(of_heads, c, sums, transpose_A=True, clear_accum=True)
            T.atomic_add(dB[columns, 0], sums)

    return main


def time_gradients(heads, group=8):
    """d_dt, and what is added to dA, of the Sums of `weights`. A block has a pair of chunks of
    `group` heads."""
    length, chunks, pairs = T.dynamic("length, chunks, pairs")
    some = CHUNK // 2

    @T.prim_func
    def main(
        A: T.Tensor((heads,), "float32"),
        Decays: T.Tensor((chunks, heads, 2, CHUNK), "float32"),
        Sums: T.Tensor((pairs, heads, HALVES, 4, PAIR), "float32"),
        d_dt: T.Tensor((length, heads), "float32"),
        dA: T.Tensor((heads,), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(T.ceildiv(heads, group), pairs, threads=256) as (bx, pair):
            first = bx * group
            d_log, x_z = [T.alloc_shared((group, PAIR), "float32") for _ in range(2)]
            # A column more: the banks of a column's elements differ.
            of_dt = T.alloc_shared((PAIR, group + 1), "float32")
            ends, of_rows = [T.alloc_fragment((group, PAIR), "float32") for _ in range(2)]
            parts = T.alloc_fragment((group, 16), "float32")
            whole, of_state, da = [T.alloc_fragment((group,), "float32") for _ in range(3)]
            for k, i in T.Parallel(group, PAIR):
                h, second, row = first + k, i // CHUNK, i % CHUNK
                ends[k, i] = Sums[pair, h, 0, 1, i] + Sums[pair, h, 1, 1, i]
                # Those of the second chunk by the first one, by rows and by columns.
                rest = Sums[pair, h, 0, 2, i] + Sums[pair, h, 1, 2, i]
                by_columns = Sums[pair, h, row // some, 3, CHUNK + row % some]
                of_both = Sums[pair, h, second, 2, row] + T.if_then_else(second > 0, rest, 0)
                y_dy = Sums[pair, h, 0, 0, i] + Sums[pair, h, 1, 0, i] + of_both
                of_x = Sums[pair, h, second, 3, row] + T.if_then_else(second > 0, 0, by_columns)
                x_z[k, i] = ends[k, i] + of_x
                d_log[k, i] = y_dy - x_z[k, i]
            # <G, S'>.
            for k, n in T.Parallel(group, 16):
                place = COLUMNS + n
                parts[k, n] = (
                    Sums[pair, first + k, 0, 3, place] + Sums[pair, first + k, 1, 3, place]
                )
            T.reduce_sum(parts, whole, dim=1)
            T.reduce_sum(ends, of_state, dim=1)
            for k in T.Parallel(group):
                last = [Decays[2 * pair + n, first + k, 0, CHUNK - 1] for n in range(2)]
                of_state[k] += T.exp2(last[0] + last[1]) * whole[k]
            T.cumsum(d_log, dim=1, reverse=True)
            for k, i in T.Parallel(group, PAIR):
                h, n, row = first + k, 2 * pair + i // CHUNK, i % CHUNK
                d_log[k, i] += of_state[k]
                step = T.exp2(Decays[n, h, 0, row] - Decays[n, h, 1, row])
                # A chunk that is not there takes no time.
                of_rows[k, i] = T.if_then_else(n < chunks, step, 0) * d_log[k, i]
                x_z[k, i] *= T.exp2(Decays[n, h, 1, row] - Decays[n, h, 0, row])
            T.reduce_sum(of_rows, da, dim=1)
            T.atomic_add(dA[first : first + group], da)
            for i, k in T.Parallel(PAIR, group):
                of_dt[i, k] = x_z[k, i] + A[first + k] * d_log[k, i]
            T.copy(of_dt[:, :group], d_dt[pair * PAIR, first])
            # So that what follows this kernel follows `sum_weights`, too.
            T.pdl_sync()

    return main


def kernels_of(heads, blocks, group, d_state=128, width=WIDTH, **options):
    """All kernels, in their order; `blocks` of them go back through the chunks, and a block of the
    last ones has `group` heads. `options` are those of tilelang.compile."""
    programs = (
        prepare(heads, d_state),
        chunk_states(heads, d_state, width),
        reverse_scan(heads, blocks, d_state, width),
        weights(heads, group, d_state, width),
        sum_weights(d_state),
        time_gradients(heads),
    )
    return [tilelang.compile(program, **{"target": HOPPER, **options}) for program in programs]


def room_of(x, c, blocks, empty=torch.empty):
    """What kernels pass on: decays, scores, states, sums of heads, and counts, which are zero."""
    (length, heads, width), d_state = x.shape, c.shape[1]
    chunks, pairs = -(-length // CHUNK), -(-length // PAIR)

    def like(*shape, dtype=torch.float32):
        return empty(*shape, device=x.device, dtype=dtype)

    return (
        like(chunks, heads, 2, CHUNK),
        *(like(length, size, dtype=x.dtype) for size in (CHUNK, PAIR)),
        *(like(pairs, heads, d_state, width, dtype=x.dtype) for _ in range(2)),
        like(heads, d_state, width),
        like(pairs, heads, HALVES, 4, PAIR),
        like(pairs, 3, CHUNK, CHUNK),
        torch.zeros(blocks + 1, roles.HEADS, device=x.device, dtype=torch.int32),
    )


def run(kernels, tensors, d_y, d_last, room, results):
    """The gradients by `kernels_of` and `room_of`, to results: dX, d_dt, dA, dB and dC."""
    (x, dt, a, b, c), (d_x, d_dt, *sums) = tensors, results
    decays, back, scores, states, behind, first, of_rows, of_heads, counts = room
    # An empty sequence has no chunks, whose blocks could clear it.
    sums[0].zero_()
    kernels[0](dt, a, b, c, decays, back, scores, of_heads, *sums[1:])
    kernels[1](x, decays, b, states)
    kernels[2](d_y, dt, a, c, b, back, d_last, behind, d_x, first, counts)
    kernels[3](x, b, c, d_y, decays, scores, states, behind, of_rows, of_heads, *sums[1:])
    kernels[4](b, c, of_heads, *sums[1:])
    kernels[5](a, decays, of_rows, d_dt, sums[0])
    return results


def backward(x, dt, a, b, c, d_y, d_last, group=1, blocks=None):
    """dX, d_dt, dA, dB and dC of dY and of the gradient of the last state."""
    (_, heads, width), d_state = x.shape, b.shape[1]
    blocks = min(roles.processors() if blocks is None else blocks, -(-heads // roles.HEADS))
    results = [torch.empty_like(t) for t in (x, dt)]
    results += [torch.empty_like(t, dtype=torch.float32) for t in (a, b, c)]
    kernels = kernels_of(heads, blocks, group, d_state, width)
    return run(kernels, (x, dt, a, b, c), d_y, d_last, room_of(x, c, blocks), results)


def relative_errors(length, heads, d_state, device="cpu", **options):
    """||ours - float64|| / ||float64|| of the gradients of x, dt, A, B and C."""
    torch.manual_seed(0)
    tensors = inputs(length, heads, d_state, device=device)
    d_y = torch.randn_like(tensors[0])
    d_last = torch.randn(heads, d_state, WIDTH, device=device)
    found = backward(*tensors, d_y, d_last, **options)
    leaves = [t.double().requires_grad_() for t in tensors]
    wanted = torch.autograd.grad(reference(*leaves), leaves, (d_y.double(), d_last.double()))
    return [float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)]


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096 if gpu else 140)
    parser.add_argument("--heads", type=int, default=16 if gpu else 2)
    parser.add_argument("--state", type=int, default=128 if gpu else 64)
    arguments = parser.parse_args()
    errors = relative_errors(
        *(arguments.length, arguments.heads, arguments.state, "cuda" if gpu else "cpu"),
        group=16 if arguments.heads % 16 == 0 else 1,
    )
    for name, error in zip(("x", "dt", "A", "B", "C"), errors, strict=True):
        assert error < 5e-3, f"relative error of d{name} {error:.1e}, wanted under 5e-3"
    print(f"length {arguments.length}, {arguments.heads} heads: relative error {max(errors):.1e}")
