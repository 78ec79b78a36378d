"""Sampling of the next token from the k most likely ones, and of these from the fewest that have a
probability of p together. Nothing is sorted: a threshold is found by bisection of the logits' bits,
into four parts at a time, so that a row is read some ten times from the L2 cache. Check it against
float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
PIVOTS = 3


@T.macro
def ordered(x):
    """Bits of a float32 as a uint32 that is larger where the number is."""
    bits = T.reinterpret(x, T.uint32)
    negative = bits >= T.uint32(0x80000000)
    return bits ^ T.if_then_else(negative, T.uint32(0xFFFFFFFF), T.uint32(0x80000000))


@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def top_k_top_p(vocabulary, block=4096, threads=1024):
    """A token for each row of Logits (batch, vocabulary) in float32. It is one of the K[row]
    largest logits, and those equal to the last of them; of these it is one of the fewest, again
    with equals, whose softmax weights are at least P[row] of these logits' together; of these it is
    the first one, in the order of the vocabulary, at which the sum of weights exceeds
    Uniform[row], 0 to 1, times all of it."""
    batch = T.dynamic("batch")
    tiles = -(-vocabulary // block)

    @T.macro
    def load(Logits, row, tile, logits):
        """A tile of a row, and what is below all logits behind its end."""
        for j in T.Parallel(block):
            logits[j] = T.if_then_else(
                tile * block + j < vocabulary,
                Logits[row, tile * block + j],
                -T.infinity(T.float32),
            )

    @T.macro
    def sums_above(Logits, row, weighted, top, state):
        """Of the keys from each pivot on: their number and, `weighted`, their softmax weights."""
        logits, weight, number, pivots, weights, numbers = state
        T.clear(weight)
        T.clear(number)
        for tile in T.serial(tiles):
            load(Logits, row, tile, logits)
            for p, j in T.Parallel(PIVOTS, block):
                if ordered(logits[j]) >= pivots[p] and tile * block + j < vocabulary:
                    number[p, j] += 1
                    if weighted:
                        weight[p, j] += T.exp2((logits[j] - top) * LOG2_E)
        if weighted:
            T.reduce_sum(weight, weights, dim=1)
        T.reduce_sum(number, numbers, dim=1)

    @T.macro
    def threshold(Logits, row, wanted, by_weight, low: T.Ref, high, top, state):
        """Raise `low` to the largest key that has enough keys from it on: their number, or
        `by_weight` their weight. There is enough from `low` on, not from `high` on."""
        _, _, _, pivots, weights, numbers = state
        behind = T.alloc_var(T.uint32, init=high)
        above = T.alloc_var(T.float32, init=0.0)
        between = T.alloc_var(T.float32, init=float(vocabulary))
        # One key, or one value, is left.
        while behind - low > T.uint32(1) and between > 1:
            step = T.max((behind - low) // T.uint32(PIVOTS + 1), T.uint32(1))
            for p in T.Parallel(PIVOTS):
                pivots[p] = T.min(low + T.cast(p + 1, T.uint32) * step, behind)
            sums_above(Logits, row, by_weight, top, state)
            enough = weights if by_weight else numbers
            between = between + above
            for p in T.unroll(PIVOTS, explicit=True):
                if enough[p] >= wanted:
                    low = pivots[p]
                    between = numbers[p]
            for p in T.unroll(PIVOTS, explicit=True):
                if enough[PIVOTS - 1 - p] < wanted and pivots[PIVOTS - 1 - p] > low:
                    behind = pivots[PIVOTS - 1 - p]
                    above = numbers[PIVOTS - 1 - p]
            between = between - above

    @T.prim_func
    def main(
        Logits: T.Tensor((batch, vocabulary), T.float32),
        K: T.Tensor((batch,), T.int32),
        P: T.Tensor((batch,), T.float32),
        Uniform: T.Tensor((batch,), T.float32),
        Token: T.Tensor((batch,), T.int32),
    ):
        with T.Kernel(batch, threads=threads) as row:
            logits = T.alloc_fragment((block,), T.float32)
            weight = T.alloc_fragment((PIVOTS, block), T.float32)
            number = T.alloc_fragment((PIVOTS, block), T.float32)
            pivots = T.alloc_fragment((PIVOTS,), T.uint32)
            # Shared: what decides about loops is the same in all threads.
            largest = T.alloc_shared((1,), T.float32)
            smallest = T.alloc_shared((1,), T.float32)
            weights = T.alloc_shared((PIVOTS,), T.float32)
            numbers = T.alloc_shared((PIVOTS,), T.float32)
            state = (logits, weight, number, pivots, weights, numbers)
            tile_sum = T.alloc_shared((1,), T.float32)
            maxima = T.alloc_fragment((block,), T.float32)
            minima = T.alloc_fragment((block,), T.float32)
            chances = T.alloc_fragment((block,), T.float32)
            prefix = T.alloc_shared((block,), T.float32)
            where = T.alloc_fragment((block,), T.int32)
            first = T.alloc_shared((1,), T.int32)

            # Threads meet once, behind the loop.
            T.fill(maxima, -T.infinity(T.float32))
            T.fill(minima, T.infinity(T.float32))
            for tile in T.serial(tiles):
                load(Logits, row, tile, logits)
                for j in T.Parallel(block):
                    maxima[j] = T.max(maxima[j], logits[j])
                    if tile * block + j < vocabulary:
                        minima[j] = T.min(minima[j], logits[j])
            T.reduce_max(maxima, largest, dim=0)
            T.reduce_min(minima, smallest, dim=0)
            top = largest[0]
            low = T.alloc_var(T.uint32, init=ordered(smallest[0]))
            high = ordered(top) + T.uint32(1)
            wanted = T.cast(T.min(K[row], vocabulary), T.float32)
            threshold(Logits, row, wanted, False, low, high, top, state)
            T.fill(pivots, low)
            sums_above(Logits, row, True, top, state)
            threshold(Logits, row, P[row] * weights[0], True, low, high, top, state)
            T.fill(pivots, low)
            sums_above(Logits, row, True, top, state)

            target = Uniform[row] * weights[0]
            before = T.alloc_var(T.float32, init=0.0)
            token = T.alloc_var(T.int32, init=-1)
            last = T.alloc_var(T.int32, init=0)  # of them all, where sums are rounded down
            for tile in T.serial(tiles):
                load(Logits, row, tile, logits)
                for j in T.Parallel(block):
                    inside = ordered(logits[j]) >= low and tile * block + j < vocabulary
                    chances[j] = T.if_then_else(inside, T.exp2((logits[j] - top) * LOG2_E), 0)
                T.reduce_sum(chances, tile_sum, dim=0)
                if tile_sum[0] > 0 and token < 0:
                    T.cumsum(chances, prefix, dim=0)
                    for j in T.Parallel(block):
                        where[j] = T.if_then_else(
                            chances[j] > 0 and before + prefix[j] > target, j, block
                        )
                    T.reduce_min(where, first, dim=0)
                    if first[0] < block:
                        token = tile * block + first[0]
                    for j in T.Parallel(block):
                        where[j] = T.if_then_else(chances[j] > 0, j, -1)
                    T.reduce_max(where, first, dim=0)
                    last = tile * block + first[0]
                before = before + tile_sum[0]
            Token[row] = T.if_then_else(token < 0, last, token)

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
    tile = {} if gpu else {"block": 128, "threads": 64}
    off = distance(batch, vocabulary, "cuda" if gpu else "cpu", **tile)
    assert off < 1e-5, f"{off:.1e} off, wanted under 1e-5"
    print(f"{batch} of {vocabulary} tokens: {off:.1e} off")
