"""A layer of experts in one call: a router picks k experts for each token; rows are sorted by
expert; SiLU(X gate) * (X up) and the product with the second matrix follow for each expert's rows,
and the results of a token are added by its weights. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from grouped_gemm_experts import deal_tiles, processors, store_tile

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504


@T.macro
def route(X, Router, Chosen, Weights, Counts, k):
    """The k experts of each token with the largest products of the token and the expert's row of
    Router, and the softmax of these. Counts (2, experts) gets the tokens of each expert."""
    (tokens, hidden), (experts, _) = X.shape, Router.shape
    rows, step = 64, 128
    with T.Kernel(T.ceildiv(tokens, rows), threads=128) as bx:
        x = T.alloc_shared((rows, step), X.dtype)
        w = T.alloc_shared((experts, step), X.dtype)
        scores = T.alloc_fragment((rows, experts), T.float32)
        index = T.alloc_fragment((rows, experts), T.int32)
        best = T.alloc_fragment((rows,), T.float32)
        which = T.alloc_fragment((rows,), T.int32)
        first = T.alloc_fragment((rows,), T.float32)
        total = T.alloc_fragment((rows,), T.float32)
        values = T.alloc_shared((rows, k), T.float32)
        # Additions to few places of the memory are made one after the other.
        counts = T.alloc_shared((experts,), T.int32)
        T.clear(counts)
        T.clear(scores)
        for n in T.Pipelined(T.ceildiv(hidden, step), num_stages=4):
            T.copy(X[bx * rows, n * step], x)
            T.copy(Router[0, n * step], w)
            T.gemm(x, w, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
        T.clear(total)
        for n in T.serial(k):
            T.reduce_max(scores, best, dim=1)
            for i, e in T.Parallel(rows, experts):
                # One that is there, where all are NaN.
                index[i, e] = T.if_then_else(scores[i, e] == best[i], e, experts - 1)
            T.reduce_min(index, which, dim=1)
            for i, e in T.Parallel(rows, experts):
                if e == which[i]:
                    scores[i, e] = -T.infinity(T.float32)
            for i in T.Parallel(rows):
                first[i] = T.if_then_else(n == 0, best[i], first[i])
                total[i] += T.exp2((best[i] - first[i]) * LOG2_E)
                values[i, n] = T.exp2((best[i] - first[i]) * LOG2_E)
                if bx * rows + i < tokens:
                    Chosen[bx * rows + i, n] = which[i]
                    T.atomic_add(counts[which[i]], 1)
        for i, n in T.Parallel(rows, k):
            if bx * rows + i < tokens:
                Weights[bx * rows + i, n] = values[i, n] / total[i]
        for e in T.Parallel(experts):
            T.atomic_add(Counts[0, e], counts[e])


@T.macro
def sort(Chosen, Counts, Ends, Places, Rows, k):
    """Rows of an expert are neighbours: Places (tokens * k,) has for each the token's number times
    k plus the number of its choice, Rows (tokens, k) the inverse, and Ends the end of each expert's
    rows. Threads of a block count among themselves first."""
    (_, experts), (tokens, _) = Counts.shape, Chosen.shape
    with T.Kernel(1, threads=256):
        ends = T.alloc_shared((experts,), T.int32)
        T.copy(Counts[0, :], ends)
        T.cumsum(ends, dim=0)
        T.copy(ends, Ends)
    with T.Kernel(T.ceildiv(tokens * k, 256), threads=256) as bx:
        counts = T.alloc_shared((experts,), T.int32)
        begins = T.alloc_shared((experts,), T.int32)
        chosen = T.alloc_fragment((256,), T.int32)
        before = T.alloc_fragment((256,), T.int32)
        T.clear(counts)
        for i in T.Parallel(256):
            place = bx * 256 + i
            if place < tokens * k:
                chosen[i] = Chosen[place // k, place % k]
                before[i] = T.atomic_add(counts[chosen[i]], 1, return_prev=True)
        # The second row of counts: rows that have their place.
        for e in T.Parallel(experts):
            taken = T.atomic_add(Counts[1, e], counts[e], return_prev=True)
            begins[e] = Ends[e] - Counts[0, e] + taken
        for i in T.Parallel(256):
            place = bx * 256 + i
            if place < tokens * k:
                row = begins[chosen[i]] + before[i]
                Places[row] = place
                Rows[place // k, place % k] = row


@T.macro
def permute(X, Rows, Sorted, k):
    """Sorted (rows, hidden): each row of X at the rows of its experts."""
    (tokens, hidden), width = X.shape, 2048
    with T.Kernel(T.ceildiv(hidden, width), tokens, threads=256) as (bx, token):
        x = T.alloc_fragment((width,), X.dtype)
        T.copy(X[token, bx * width], x)
        for n in T.unroll(k):
            row = Rows[token, n]
            for j in T.Parallel(width):
                if bx * width + j < hidden:
                    Sorted[row, bx * width + j] = x[j]


@T.macro
def first_tile(arguments, e, first, end, bx):
    """SiLU(x Gate[e]^T) * (x Up[e]^T) for rows of one expert."""
    Sorted, Gate, Up, H, x, both, sums, act, h, num_stages = arguments
    (block_M, block_K), block_N = x.shape, h.shape[1]
    T.clear(sums)
    for n in T.Pipelined(T.ceildiv(Sorted.shape[1], block_K), num_stages=num_stages):
        left = bx * block_N
        T.copy(Sorted[first : first + block_M, n * block_K], x)
        T.copy(Gate[e, left : left + block_N, n * block_K], both[0:block_N, :])
        T.copy(Up[e, left : left + block_N, n * block_K], both[block_N : 2 * block_N, :])
        # A warp group has all columns of both, so that its instructions read less of A.
        T.gemm(x, both, sums, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
    for i, j in T.Parallel(block_M, block_N):
        # H has less digits than the approximations.
        sigmoid = T.fast_rcp(1 + T.__exp(-sums[i, j]))
        act[i, j] = sums[i, j] * sigmoid * sums[i, block_N + j]
    store_tile(act, h, H, first, end, bx * block_N)


@T.macro
def second_tile(arguments, e, first, end, bx):
    """The product with Down[e]^T for rows of one expert."""
    H, Down, Y, h, down, y_local, y, num_stages = arguments
    (block_M, block_K), (block_H, _) = h.shape, down.shape
    T.clear(y_local)
    for n in T.Pipelined(T.ceildiv(H.shape[1], block_K), num_stages=num_stages):
        left = bx * block_H
        T.copy(H[first : first + block_M, n * block_K], h)
        T.copy(Down[e, left : left + block_H, n * block_K], down)
        by_rows = T.GemmWarpPolicy.FullRow
        T.gemm(h, down, y_local, transpose_B=True, policy=by_rows)
    store_tile(y_local, y, Y, first, end, bx * block_H)


@T.macro
def combine(Y, Rows, Weights, Output):
    """The sum of a token's rows, times their weights."""
    (tokens, hidden), width = Output.shape, 1024
    with T.Kernel(T.ceildiv(hidden, width), tokens, threads=128) as (bx, token):
        total = T.alloc_fragment((width,), T.float32)
        T.clear(total)
        for n in T.unroll(Rows.shape[1]):
            row, weight = Rows[token, n], Weights[token, n]
            for j in T.Parallel(width):
                if bx * width + j < hidden:
                    total[j] += Y[row, bx * width + j] * weight
        T.copy(total, Output[token, bx * width])


@tilelang.jit
def fused_moe(
    tokens,
    hidden,
    inner,
    experts,
    k,
    dtype=T.bfloat16,
    block_M=128,
    block_N=128,
    block_K=64,
    num_stages=4,
    threads=256,
    panel=8,
    block_H=256,
    stages_H=3,
):
    """Of X (tokens, hidden): the sum over a token's k experts e, by weights, of
    (SiLU(x Gate[e]^T) * (x Up[e]^T)) Down[e]^T, of Gate and Up (experts, inner, hidden) and Down
    (experts, hidden, inner). Router is (experts, hidden); a weight is the softmax over the k
    largest products of the token with it. Tiles of Y have `block_H` columns: two operands of 128
    bring more bytes to shared memory than it moves while they are multiplied."""
    rows, blocks = tokens * k, processors()

    @T.macro
    def first_products(Sorted, Gate, Up, Ends, H):
        """H (rows, inner), in the order of Sorted."""
        with T.Kernel(blocks, threads=threads) as block:
            x = T.alloc_shared((block_M, block_K), dtype)
            both = T.alloc_shared((2 * block_N, block_K), dtype)
            sums = T.alloc_fragment((block_M, 2 * block_N), T.float32)
            act = T.alloc_fragment((block_M, block_N), T.float32)
            h = T.alloc_shared((block_M, block_N), dtype)
            arguments = (Sorted, Gate, Up, H, x, both, sums, act, h, num_stages)
            columns = -(-inner // block_N)
            deal_tiles(Ends, columns, block_M, panel, block, blocks, first_tile, arguments)

    @T.macro
    def second_product(H, Down, Ends, Y):
        """Y (rows, hidden), in the order of H."""
        with T.Kernel(blocks, threads=threads) as block:
            h = T.alloc_shared((block_M, block_K), dtype)
            down = T.alloc_shared((block_H, block_K), dtype)
            y_local = T.alloc_fragment((block_M, block_H), T.float32)
            y = T.alloc_shared((block_M, block_H), dtype)
            arguments = (H, Down, Y, h, down, y_local, y, stages_H)
            columns = -(-hidden // block_H)
            deal_tiles(Ends, columns, block_M, panel, block, blocks, second_tile, arguments)

    @T.prim_func
    def main(
        X: T.Tensor((tokens, hidden), dtype),
        Router: T.Tensor((experts, hidden), dtype),
        Gate: T.Tensor((experts, inner, hidden), dtype),
        Up: T.Tensor((experts, inner, hidden), dtype),
        Down: T.Tensor((experts, hidden, inner), dtype),
    ):
        Output = T.empty((tokens, hidden), dtype)
        Chosen = T.alloc_global((tokens, k), T.int32)
        Weights = T.alloc_global((tokens, k), T.float32)
        Counts = T.alloc_global((2, experts), T.int32)
        Ends = T.alloc_global((experts,), T.int32)
        Places = T.alloc_global((rows,), T.int32)
        Rows = T.alloc_global((tokens, k), T.int32)
        Sorted = T.alloc_global((rows, hidden), dtype)
        H = T.alloc_global((rows, inner), dtype)
        Y = T.alloc_global((rows, hidden), dtype)
        with T.Kernel(1, threads=256):
            T.clear(Counts)
        route(X, Router, Chosen, Weights, Counts, k)
        sort(Chosen, Counts, Ends, Places, Rows, k)
        permute(X, Rows, Sorted, k)
        first_products(Sorted, Gate, Up, Ends, H)
        second_product(H, Down, Ends, Y)
        combine(Y, Rows, Weights, Output)
        return Output

    return main


def inputs(tokens, hidden, inner, experts, dtype=T.bfloat16, device="cpu"):
    """X, Router, Gate, Up and Down. The first experts get few tokens, the last none."""
    shapes = [(tokens, hidden), (experts, hidden)]
    shapes += [(experts, inner, hidden)] * 2 + [(experts, hidden, inner)]
    x, router, *matrices = (torch.randn(shape, device=device) for shape in shapes)
    router[-1] = 0
    x[:, 0] = router[:, 0] = 1
    router[-1, 0] = -100
    tensors = [x, router, *(m / m.shape[2] ** 0.5 for m in matrices)]
    return [t.to(dtype.as_torch()) for t in tensors]


def reference(x, router, gate, up, down, k):
    """The same in float64, expert by expert."""
    x, router = x.double(), router.double()
    best, chosen = (x @ router.T).topk(k, dim=1)
    weights, out = best.softmax(1), torch.zeros_like(x)
    for e, matrices in enumerate(zip(gate, up, down, strict=True)):
        token, place = (chosen == e).nonzero(as_tuple=True)
        g, u, d = (m.double() for m in matrices)
        h = torch.nn.functional.silu(x[token] @ g.T) * (x[token] @ u.T)
        out.index_add_(0, token, (h @ d.T) * weights[token, place, None])
    return out


def relative_error(tokens, hidden, inner, experts, k, device="cpu", **tile):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    tensors = inputs(tokens, hidden, inner, experts, device=device)
    found = fused_moe(tokens, hidden, inner, experts, k, **tile)(*tensors)
    wanted = reference(*tensors, k)
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=4096 if gpu else 21)
    parser.add_argument(
        "--size",
        type=int,
        nargs=2,
        default=[4096, 1536] if gpu else [136, 72],
        help="hidden, inner",
    )
    parser.add_argument("--experts", type=int, nargs=2, default=[64, 6] if gpu else [8, 2])
    arguments = parser.parse_args()
    shape = (arguments.tokens, *arguments.size, *arguments.experts)
    device = "cuda" if gpu else "cpu"
    tile = {} if gpu else {"block_M": 64, "block_N": 64, "block_H": 128, "threads": 128, "panel": 2}
    error = relative_error(*(*shape, device), **tile)
    assert error < 8e-3, f"relative error {error:.1e}, wanted under 8e-3"
    print(f"{shape}: relative error {error:.1e}")
