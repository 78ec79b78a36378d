"""The chunk scan of Mamba-2 (chunk_scan.py) by a schedule of roles, for Hopper: a group of warps
loads and sums up time steps, and three groups go from chunk to chunk with a head each. They share
the tiles of B, of C and of the scores. All blocks have equal shares of all chunks, one block for
each multiprocessor. Where a share ends inside of a sequence, the block stores the state in `Last`,
and the next block goes on with it. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import torch
from chunk_scan import CHUNK, FAST_MATH, LOG2_E, check, chunk_scores

import tilelang
import tilelang.language as T

# Heads of a block, which go from chunk to chunk beside each other.
HEADS = 3
GROUPS = tuple(f"head{g}" for g in range(HEADS))
# Versions of tiles. Scores are read early in a step, so that the next ones come in time.
DEPTHS = {"tiles": 2, "scores": 1}
# Of a head's decays: what a chunk leaves of the state in front of it.
WHOLE = 2, CHUNK - 1
ROWS = T.GemmWarpPolicy.FullRow
# Of float16.
LARGEST = 65504
HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def schedule():
    roles = {"load": T.WSRole(warps_lo=0, warps_hi=4, max_nreg=32)}
    for g, name in enumerate(GROUPS, 1):
        roles[name] = T.WSRole(warps_lo=4 * g, warps_hi=4 * g + 4, max_nreg=160)
    return T.WSSchedule(
        num_warps=4 * HEADS + 4,
        roles=roles,
        pipelines={name: T.WSPipeline(depth) for name, depth in DEPTHS.items()},
    )


class Tiles:
    """What the heads share, and what each has of its own, in as many versions as its pipeline. But
    for the scores all tiles of a chunk come together: pipelines for each take an eighth of all
    instructions more."""

    def __init__(self, d_state, width):
        def versions(*shape, pipeline="tiles", dtype="float16"):
            return T.alloc_shared((DEPTHS[pipeline], *shape), dtype)

        self.c, self.b = [versions(CHUNK, d_state) for _ in "cb"]
        self.scores = versions(CHUNK, CHUNK, pipeline="scores")
        self.x = [versions(CHUNK, width) for _ in GROUPS]
        self.decays = [versions(4, CHUNK, dtype="float32") for _ in GROUPS]


@T.macro
def ask_for_steps(dt, rate, first, n, steps):
    """Time steps of two rows of chunk n a lane: a warp has a head, the first warp has none."""
    length, heads = dt.shape
    h, row = first + T.get_warp_idx() - 1, n * CHUNK + T.get_lane_idx() * 2
    is_head = h >= first and h < heads
    for i in T.unroll(2):
        # Rows behind the end are zero: they take no time.
        steps[i] = T.if_then_else(is_head and row + i < length, dt[row + i, h], 0)
    steps[2] = T.if_then_else(is_head, LOG2_E * rate[h], 0)


@T.macro
def sum_up(steps, sums):
    """Of the two rows: what `chunk_decays` in chunk_scan.py has, what they make of the state in
    front of the chunk, and what their x are multiplied by in the state behind it."""
    lane = T.get_lane_idx()
    last = T.alloc_var("float32")
    last = steps[2] * (steps[0] + steps[1])
    for power in T.unroll(5):
        before = T.shfl_up(last, 1 << power)
        last += T.if_then_else(lane >= 1 << power, before, 0)
    sums[0, 0] = T.if_then_else(lane > 0, T.shfl_up(last, 1), 0) + steps[2] * steps[0]
    sums[0, 1] = last
    total = T.shfl_sync(last, 31)
    for i in T.unroll(2):
        sums[1, i] = sums[0, i] - T.log2(steps[i])
        sums[2, i] = T.exp2(sums[0, i])
        sums[3, i] = steps[i] * T.exp2(total - sums[0, i])


@T.macro
def load(tensors, tiles, own, first, n, sum_up=sum_up):
    """Ask for what the heads from `first` on take of chunk n, in the order in which they do."""
    (X, dt, A, B, C, Scores), (steps, sums) = tensors, own
    rows = slice(n * CHUNK, (n + 1) * CHUNK)
    ask_for_steps(dt, A, first, n, steps)
    v = T.producer_acquire("tiles")
    sources = [C[rows, :], *(X[rows, first + g, :] for g in range(HEADS)), B[rows, :]]
    for source, tile in zip(sources, (tiles.c, *tiles.x, tiles.b), strict=True):
        T.tma_copy(source, tile[v, :, :], barrier=T.producer_barrier("tiles", v))
    sum_up(steps, sums)
    for g, decays in enumerate(tiles.decays):
        if T.get_warp_idx() == g + 1:
            for part in T.unroll(4):
                for i in T.vectorized(2):
                    decays[v, part, T.get_lane_idx() * 2 + i] = sums[part, i]
    T.producer_commit("tiles")
    s = T.producer_acquire("scores")
    T.tma_copy(Scores[rows, :], tiles.scores[s, :, :], barrier=T.producer_barrier("scores", s))
    T.producer_commit("scores")


@T.macro
def keep(state, state_shared):
    """A copy of the state, no longer transposed."""
    turned = T.alloc_fragment(state_shared.shape, "float16")
    for p, s in T.Parallel(*state.shape):
        turned[s, p] = state[p, s]
    T.copy(turned, state_shared)


@T.macro
def step(g, tiles, own, fragments, target, whole):
    """A chunk of a head, as `scan_rows` in chunk_scan.py. The weights are made beside the product
    that makes the next state. `whole` is the place of what the state is multiplied by in the head's
    decays. The state is transposed: then one product of 64 rows by 128 columns adds to it, which
    reads less of shared memory than two of 64 by 64."""
    (scaled, y_shared, state_shared), (state, y, weights) = own, fragments
    width, d_state = state.shape
    v = T.consumer_wait("tiles")
    c, b, x = tiles.c[v, :, :], tiles.b[v, :, :], tiles.x[g]
    decays = tiles.decays[g]
    T.wgmma_gemm(c, state_shared, y, policy=ROWS, clear_accum=True)
    for i, p in T.Parallel(CHUNK, width):
        scaled[i, p] = x[v, i, p] * decays[v, 3, i]
    for p, s in T.Parallel(width, d_state):
        state[p, s] *= decays[(v, *whole)]
    T.wait_wgmma(0)
    T.tma_store_wait(0)
    # One barrier for all of these: rows are scaled, no warp's product reads `state_shared` any
    # more, and no store `y_shared`.
    T.sync_threads(8 + g, 128)
    T.wgmma_gemm(scaled, b, state, transpose_A=True, policy=ROWS)
    in_scores = T.consumer_wait("scores")
    for i, j in T.Parallel(CHUNK, CHUNK):
        # Where j > i the decay has no bound, and the score is zero.
        decay = T.cast(T.exp2(decays[v, 0, i] - decays[v, 1, j]), "float16")
        weights[i, j] = tiles.scores[in_scores, i, j] * T.min(decay, T.float16(LARGEST))
    T.consumer_release("scores")
    for i, p in T.Parallel(CHUNK, width):
        y[i, p] *= decays[v, 2, i]
    T.wgmma_gemm(weights, x[v, :, :], y, policy=ROWS)
    T.wait_wgmma(1)
    keep(state, state_shared)
    T.wait_wgmma(0)
    T.consumer_release("tiles")
    T.copy(y, y_shared)
    T.tma_copy(y_shared, target)


@T.macro
def hand_over(counts, block, g):
    """Say that the warps of a group have stored the state."""
    T.sync_warp()
    if T.get_lane_idx() == 0:
        T.atomic_add(counts[block, g], 1, memory_order="release")


@T.macro
def take_over(counts, block, g):
    """Wait for the four warps that store the state. The last one that waits clears the count, for
    the next launch."""
    if T.get_lane_idx() == 0:
        while T.atomic_load(counts[block, g], "acquire") < 4:
            pass
        if T.atomic_add(counts[block, g], 1, return_prev=True) == 7:
            T.atomic_store(counts[block, g], 0, memory_order="relaxed")
    T.sync_warp()


def share_of(block, blocks, groups, chunks):
    """A block's share of the chunks of all groups of heads: the first one, the one behind the last,
    chunks of a sequence; and the number of its parts."""
    # At least a sequence: a state is handed over once at most.
    size = T.max(T.ceildiv(groups * chunks, blocks), chunks)
    first = block * size
    end = T.min(first + size, groups * chunks)
    # A sequence that goes on in the next block comes first, one that another block has begun comes
    # last.
    return (first, end, chunks), T.max(T.ceildiv(end, chunks) - first // chunks, 0)


def part_of(share, k):
    """Of the k-th part of a block's share: its group of heads, the first chunk, and the one behind
    the last."""
    begin, end, chunks = share
    group = T.ceildiv(end, chunks) - 1 - k
    before = group * chunks
    return group, T.max(begin - before, 0), T.min(end - before, chunks)


@T.macro
def begin(state, h, Last):
    """The state in front of a sequence."""
    T.clear(state)


@T.macro
def target(Y, state_shared, h, n, chunks):
    """Where rows of y of chunk n go."""
    return Y[n * CHUNK : (n + 1) * CHUNK, h, :]


@T.macro
def scan(g, share, parts, block, tiles, Y, Last, Counts, begin=begin, target=target, whole=WHOLE):
    """What a group does: a head of each group of heads in the block's share. By `begin` a head's
    state begins, and `target` says where its chunks' rows go."""
    heads, d_state, width = Last.shape
    scaled, y_shared = [T.alloc_shared((CHUNK, width), "float16") for _ in "xy"]
    state_shared = T.alloc_shared((d_state, width), "float16")
    state = T.alloc_fragment((width, d_state), "float32")
    y = T.alloc_fragment((CHUNK, width), "float32")
    weights = T.alloc_fragment((CHUNK, CHUNK), "float16")
    for k in T.serial(parts):
        group, first, end = part_of(share, k)
        h = group * HEADS + g
        begin(state, h, Last)
        if first > 0 and h < heads:
            take_over(Counts, block, g)
            for p, s in T.Parallel(width, d_state):
                state[p, s] = Last[h, s, p]
        keep(state, state_shared)
        for n in T.serial(first, end):
            place = target(Y, state_shared, h, n, share[2])
            own, fragments = (scaled, y_shared, state_shared), (state, y, weights)
            step(g, tiles, own, fragments, place, whole)
        if h < heads:
            for p, s in T.Parallel(width, d_state):
                Last[h, s, p] = state[p, s]
            if end < share[2]:
                hand_over(Counts, block + 1, g)
    T.tma_store_wait(0)


def check_sizes(heads, blocks, d_state, width):
    """Raise ValueError for what the scan by roles does not take."""
    if d_state not in (64, 128) or width != 64:
        raise ValueError(
            f"found states of {d_state} by {width}, wanted 64 or 128 by 64; chunk_scan.forward "
            "takes others"
        )
    if heads < 1 or blocks < 1:
        raise ValueError(f"found {heads} heads and {blocks} blocks, wanted at least one of each")


def chunk_scan_by_roles(heads, blocks, d_state=128, width=64):
    """The chunk scan of chunk_scan.py by at most `blocks` blocks, of dt and A where that one has
    decays. It may be launched while the kernel in front of it ends. Counts are zero in front of a
    launch and behind it. An empty sequence leaves `Last` as it is. A block waits
    for nothing but the block in front of it, and not before it has done what the block behind it
    waits for."""
    check_sizes(heads, blocks, d_state, width)
    length = T.dynamic("length")
    groups = -(-heads // HEADS)
    blocks = min(blocks, groups)

    @T.prim_func
    def main(
        X: T.Tensor((length, heads, width), "float16"),
        dt: T.Tensor((length, heads), "float32"),
        A: T.Tensor((heads,), "float32"),
        B: T.Tensor((length, d_state), "float16"),
        C: T.Tensor((length, d_state), "float16"),
        Scores: T.Tensor((length, CHUNK), "float16"),
        Y: T.Tensor((length, heads, width), "float16"),
        Last: T.Tensor((heads, d_state, width), "float32"),
        Counts: T.Tensor((blocks + 1, HEADS), "int32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        chunks = T.ceildiv(length, CHUNK)
        # None for an empty sequence.
        grid = T.min(blocks, groups * chunks)
        with T.Kernel(grid, threads=128 * (HEADS + 1)) as block:
            T.pdl_sync()
            T.annotate_ws_schedule(schedule())
            tiles = Tiles(d_state, width)
            share, parts = share_of(block, blocks, groups, chunks)
            with T.ws_role("load"):
                steps, sums = T.alloc_local((3,), "float32"), T.alloc_local((4, 2), "float32")
                tensors, own = (X, dt, A, B, C, Scores), (steps, sums)
                for k in T.serial(parts):
                    group, first, behind = part_of(share, k)
                    for n in T.serial(first, behind):
                        load(tensors, tiles, own, group * HEADS, n)
            for g, name in enumerate(GROUPS):
                with T.ws_role(name):
                    scan(g, share, parts, block, tiles, Y, Last, Counts)

    return main


def processors():
    """Multiprocessors of the GPU; a few blocks where there is none."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_properties().multi_processor_count
    return 2


def by_roles(x, dt, a, b, c, blocks=None):
    """As chunk_scan.forward; chunks have 64 rows. Without `blocks`, one for each multiprocessor."""
    (length, heads, width), d_state = x.shape, b.shape[1]
    blocks = min(processors() if blocks is None else blocks, -(-heads // HEADS))
    kernel = tilelang.compile(chunk_scan_by_roles(heads, blocks, d_state, width), target=HOPPER)
    scores = torch.empty(length, CHUNK, device=x.device, dtype=x.dtype)
    y, last = torch.empty_like(x), torch.zeros(heads, d_state, width, device=x.device)
    counts = torch.zeros(blocks + 1, HEADS, dtype=torch.int32, device=x.device)
    tilelang.compile(chunk_scores(CHUNK, d_state))(b, c, scores)
    kernel(x, dt, a, b, c, scores, y, last, counts)
    return y, last


if __name__ == "__main__":
    check(by_roles, __doc__, state=64, heads=4)
