"""Causal attention over vertical and slash lines (MInference, Jiang et al. 2024): a head sees keys
at some positions, and keys some distances before a query. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from flash_attention import LOG2_E, NO_KEY, inputs, online_softmax
from flash_attention_backward import FAST_MATH

import tilelang
import tilelang.language as T

BLOCK = 64
ROWS = T.GemmWarpPolicy.FullRow


@tilelang.jit(out_idx=[-1], pass_configs=FAST_MATH)
def vertical_slash(
    batch, heads, length, dim, verticals, slashes, dtype=T.float16, num_stages=2, threads=128
):
    """softmax(Q K^T / sqrt(dim)) V of tensors (batch, length, heads, dim). A slash becomes the
    tiles that it passes through, which lie at the same distances from every tile of queries:
    Distances (heads, slashes) has these in tiles, upwards from 0, filled up with the number of
    tiles; By_slash (heads, tiles) says which there are. Verticals (heads, verticals) has positions:
    their keys are gathered, but for those in tiles of a slash."""
    shape, tiles = (batch, length, heads, dim), -(-length // BLOCK)
    scale = LOG2_E / dim**0.5

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        Verticals: T.Tensor((heads, verticals), T.int32),
        Distances: T.Tensor((heads, slashes), T.int32),
        By_slash: T.Tensor((heads, tiles), T.bool),
        Output: T.Tensor(shape, dtype),
    ):
        with T.Kernel(tiles, heads, batch, threads=threads) as (bx, by, bz):
            q = T.alloc_shared((BLOCK, dim), dtype)
            k = T.alloc_shared((BLOCK, dim), dtype)
            v = T.alloc_shared((BLOCK, dim), dtype)
            k_gathered = T.alloc_shared((BLOCK, dim), dtype)
            v_gathered = T.alloc_shared((BLOCK, dim), dtype)
            place = T.alloc_shared((BLOCK,), T.int32)
            scores = T.alloc_fragment((BLOCK, BLOCK), T.float32)
            weights = T.alloc_fragment((BLOCK, BLOCK), dtype)
            out = T.alloc_fragment((BLOCK, dim), T.float32)
            row_max = T.alloc_fragment((BLOCK,), T.float32)
            row_sum = T.alloc_fragment((BLOCK,), T.float32)
            first = bx * BLOCK
            T.copy(Q[bz, first : first + BLOCK, by, :], q)
            T.clear(out)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity(T.float32))
            # The diagonal comes first: every row has a key from then on.
            for n in T.Pipelined(slashes, num_stages=num_stages):
                if Distances[by, n] <= bx:
                    begin = (bx - Distances[by, n]) * BLOCK
                    T.copy(K[bz, begin : begin + BLOCK, by, :], k)
                    T.gemm(q, k, scores, transpose_B=True, policy=ROWS, clear_accum=True)
                    if begin == first:
                        for i, j in T.Parallel(BLOCK, BLOCK):
                            scores[i, j] = T.if_then_else(i >= j, scores[i, j], NO_KEY)
                    online_softmax(scores, out, row_max, row_sum, scale)
                    T.copy(scores, weights)
                    T.copy(V[bz, begin : begin + BLOCK, by, :], v)
                    T.gemm(weights, v, out, policy=ROWS)
            for n in T.serial(T.ceildiv(verticals, BLOCK)):
                for j in T.Parallel(BLOCK):
                    at = T.alloc_var(T.int32, init=length)
                    if n * BLOCK + j < verticals:
                        at = Verticals[by, n * BLOCK + j]
                    # No key where it is in a tile of a slash, or not before the tile of queries.
                    behind = bx - at // BLOCK
                    place[j] = T.if_then_else(behind > 0 and not By_slash[by, behind], at, -1)
                for j, d in T.Parallel(BLOCK, dim):
                    k_gathered[j, d] = K[bz, place[j], by, d]
                for j, d in T.Parallel(BLOCK, dim):
                    v_gathered[j, d] = V[bz, place[j], by, d]
                T.gemm(q, k_gathered, scores, transpose_B=True, policy=ROWS, clear_accum=True)
                for i, j in T.Parallel(BLOCK, BLOCK):
                    scores[i, j] = T.if_then_else(place[j] >= 0, scores[i, j], NO_KEY)
                online_softmax(scores, out, row_max, row_sum, scale)
                T.copy(scores, weights)
                T.gemm(weights, v_gathered, out, policy=ROWS)
            for i, d in T.Parallel(BLOCK, dim):
                out[i, d] = out[i, d] / row_sum[i]
            T.copy(out, Output[bz, first : first + BLOCK, by, :])

    return main


def tiles_of(slashes, tiles):
    """Distances and By_slash of slashes (heads, number), distances in positions with a 0 for each
    head. A slash passes through one or two tiles of keys beside each tile of queries."""
    heads = torch.arange(len(slashes), device=slashes.device)[:, None]
    by_slash = torch.zeros(len(slashes), tiles + 1, dtype=torch.bool, device=slashes.device)
    for distance in (slashes // BLOCK, -(-slashes // BLOCK)):
        by_slash[heads, distance.clamp(max=tiles)] = True
    by_slash = by_slash[:, :tiles].contiguous()
    order = torch.arange(tiles, device=slashes.device).where(by_slash, tiles)
    most = int(by_slash.sum(1).max())
    return order.sort(1).values[:, :most].int().contiguous(), by_slash


def inputs_of_lines(batch, heads, length, dim, verticals, slashes, device="cpu"):
    """Q, K and V, positions and distances; the first position and the diagonal are among them."""
    lines = [
        torch.rand(heads, length, device=device).argsort(1)[:, : min(n, length)].sort(1).values
        for n in (verticals, slashes)
    ]
    for line in lines:
        line[:, 0] = 0
    return *inputs(batch, heads, length, dim, device=device), *lines


def reference(q, k, v, verticals, slashes):
    """The same in float64."""
    length = q.shape[1]
    row = torch.arange(length, device=q.device)
    distance = row[:, None] // BLOCK - row // BLOCK
    tiles = torch.cat((slashes // BLOCK, -(-slashes // BLOCK)), dim=1)
    mask = (distance == tiles[:, :, None, None]).any(1)
    mask |= (row == verticals[:, :, None]).any(1)[:, None]
    mask &= row[:, None] >= row
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.transpose(1, 2)


def relative_error(batch, heads, length, dim, verticals, slashes, device="cpu", **tile):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    *tensors, columns, lines = inputs_of_lines(
        batch, heads, length, dim, verticals, slashes, device
    )
    distances, by_slash = tiles_of(lines, -(-length // BLOCK))
    kernel = vertical_slash(batch, heads, length, dim, columns.shape[1], distances.shape[1], **tile)
    found = kernel(*tensors, columns.int(), distances, by_slash).double()
    # Head by head: the masks of all are large.
    wanted = [
        reference(*(x[:, :, h : h + 1] for x in tensors), columns[h : h + 1], lines[h : h + 1])
        for h in range(heads)
    ]
    wanted = torch.cat(wanted, dim=2)
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=8192 if gpu else 300, help="positions")
    parser.add_argument("--verticals", type=int, default=1000 if gpu else 70)
    parser.add_argument("--slashes", type=int, default=20 if gpu else 2)
    parser.add_argument("--dim", type=int, default=128 if gpu else 64, help="of a head")
    arguments = parser.parse_args()
    batch, heads = (1, 32) if gpu else (1, 2)
    error = relative_error(
        *(batch, heads, arguments.length, arguments.dim),
        *(arguments.verticals, arguments.slashes, "cuda" if gpu else "cpu"),
    )
    assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
    print(f"length {arguments.length}: relative error {error:.1e}")
