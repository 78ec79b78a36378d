"""The rows that a query of sparse MLA sees (lightning indexer, DeepSeek-V3.2, 2025): each row that
is not behind it gets a score, summed over the indexer's heads, and those with the largest scores
are listed. Check both against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def index_scores(heads, dim, dtype=T.float8_e4m3fn, positions=4, block_N=128, num_stages=2):
    """Scores (queries, length) in float32: the sum over the heads of Weights (queries, heads) times
    relu(Q[query, head] . K[row]) of Q (queries, heads, dim) and K (length, dim), times the row's
    scale, (length,); queries' scales belong to the weights. Query i sees the rows up to i + length
    - queries; the scores of others are not written. A block has some `positions`."""
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
            q = [T.alloc_shared((heads, dim), dtype) for _ in range(positions)]
            k = T.alloc_shared((block_N, dim), dtype)
            weight = T.alloc_shared((positions, heads), T.float32)
            scale = T.alloc_shared((block_N,), T.float32)
            # The products of a position are added up while those of the next one are made.
            products = [T.alloc_fragment((block_N, heads), T.float32) for _ in range(2)]
            score = T.alloc_fragment((block_N,), T.float32)
            first = bx * positions
            for p, tile in enumerate(q):
                T.copy(Q[first + p, :, :], tile)
            T.copy(Weights[first, 0], weight)
            seen = T.min(length, first + positions + length - queries)
            for n in T.Pipelined(T.ceildiv(seen, block_N), num_stages=num_stages):
                T.copy(K[n * block_N, 0], k)
                T.copy(scales[n * block_N], scale)
                for p, tile in enumerate([*q, None]):
                    if tile is not None:
                        T.gemm(
                            *(k, tile, products[p % 2]),
                            transpose_B=True,
                            policy=T.GemmWarpPolicy.FullRow,
                            clear_accum=True,
                        )
                    if p > 0:
                        product, position = products[(p - 1) % 2], first + p - 1
                        for j, h in T.Parallel(block_N, heads):
                            product[j, h] = T.max(product[j, h], 0) * weight[p - 1, h]
                        T.reduce_sum(product, score, dim=1)
                        for j in T.Parallel(block_N):
                            row = n * block_N + j
                            if row <= position + length - queries and position < queries:
                                Scores[position, row] = score[j] * scale[j]

    return main


@T.macro
def ordered(x):
    """Bits of a float32 as a uint32 that is larger where the number is."""
    bits = T.reinterpret(x, T.uint32)
    negative = bits >= T.uint32(0x80000000)
    return bits ^ T.if_then_else(negative, T.uint32(0xFFFFFFFF), T.uint32(0x80000000))


@tilelang.jit(out_idx=[-1])
def top_k(k, block=2048, threads=512):
    """The `k` largest of Scores (queries, length) of the rows that each query sees, in any order,
    -1 behind them where it sees fewer. A digit of 8 bits of the k-th largest score follows from how
    many scores have each digit, given the digits before; then all that are larger are listed, and
    as many equal ones as are missing."""
    queries, length = T.dynamic("queries, length")

    @T.prim_func
    def main(
        Scores: T.Tensor((queries, length), T.float32), Chosen: T.Tensor((queries, k), T.int32)
    ):
        with T.Kernel(queries, threads=threads) as query:
            counts = T.alloc_shared((257,), T.int32)
            # The digit found last, how many of it are wanted, and how many are listed of each kind.
            found = T.alloc_shared((4,), T.int32)
            seen = query + 1 + length - queries
            tiles = T.ceildiv(seen, block)
            if seen <= k:
                for j in T.Parallel(k):
                    Chosen[query, j] = T.if_then_else(j < seen, j, -1)
            else:
                prefix = T.alloc_var(T.uint32, init=T.uint32(0))
                wanted = T.alloc_var(T.int32, init=k)
                for digit in T.unroll(4, explicit=True):
                    T.clear(counts)
                    for tile in T.serial(tiles):
                        for j in T.Parallel(block):
                            row = tile * block + j
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
                for tile in T.serial(tiles):
                    for j in T.Parallel(block):
                        row = tile * block + j
                        if row < seen:
                            key = ordered(Scores[query, row])
                            at = T.alloc_var(T.int32, init=k)
                            if key > prefix:
                                at = T.atomic_add(found[2], 1, return_prev=True)
                            if key == prefix:
                                at = k - wanted + T.atomic_add(found[3], 1, return_prev=True)
                            if at < k:
                                Chosen[query, at] = row

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
