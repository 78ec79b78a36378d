"""The products of experts: rows of A, sorted by expert, times the matrices of their experts, in
bfloat16 or in 8-bit floats with scales for blocks. Groups are uneven and may be empty. Check it
against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.macros import copy_rows


def processors():
    """Multiprocessors of the GPU; a few blocks where there is none."""
    if not torch.cuda.is_available():
        return 4
    return torch.cuda.get_device_properties().multi_processor_count


@T.macro
def list_tiles(Ends, Tiles, block_M):
    """Tiles (most, 3): group, first row and end of the group for each tile of block_M rows; behind
    the last one tiles without rows. A thread has a tile and counts the groups in front of it."""
    groups, most = Ends.shape[0], Tiles.shape[0]
    with T.Kernel(T.ceildiv(most, 128), threads=128) as bx:
        ends = T.alloc_shared((groups + 1,), T.int32)
        tiles = T.alloc_shared((groups + 1,), T.int32)
        group = T.alloc_fragment((128,), T.int32)
        for g in T.Parallel(groups + 1):
            ends[g] = T.if_then_else(g > 0, Ends[T.max(g - 1, 0)], 0)
        # tiles[g]: those in front of group g.
        for g in T.Parallel(groups + 1):
            tiles[g] = T.if_then_else(g > 0, T.ceildiv(ends[g] - ends[T.max(g - 1, 0)], block_M), 0)
        T.cumsum(tiles, dim=0)
        T.clear(group)
        for g in T.serial(groups):
            for i in T.Parallel(128):
                if bx * 128 + i >= tiles[g + 1]:
                    group[i] += 1
        for i in T.Parallel(128):
            if bx * 128 + i < most:
                g = T.min(group[i], groups - 1)
                used = bx * 128 + i < tiles[groups]
                first = ends[g] + (bx * 128 + i - tiles[g]) * block_M
                Tiles[bx * 128 + i, 0] = g
                Tiles[bx * 128 + i, 1] = T.if_then_else(used, first, 0)
                Tiles[bx * 128 + i, 2] = T.if_then_else(used, ends[g + 1], 0)


@T.macro
def store_rows(C_local, C_shared, C, first, end, column):
    """The rows of a tile in front of `end`, by threads: TMA would write those behind it, too."""
    block_M, block_N = C_shared.shape
    T.copy(C_local, C_shared)
    for i, j in T.Parallel(block_M, block_N):
        if first + i < end:
            C[first + i, column + j] = C_shared[i, j]


@tilelang.jit
def grouped_matmul(
    groups,
    N,
    K,
    rows,
    dtype=T.bfloat16,
    block_M=128,
    block_N=128,
    block_K=64,
    num_stages=4,
    threads=256,
    panel=8,
):
    """C (rows, N) of A (rows, K) and B (groups, N, K): row i is multiplied by the transposed matrix
    of its group g, Ends[g - 1] <= i < Ends[g].

    A block for each multiprocessor fetches one tile after the other from `counter`. `panel` tiles
    of rows go through the columns together, so that operands are in the L2 cache. Rows of A and B
    that are no multiple of 16 bytes, which TMA does not take, are copied to longer ones first.
    """
    blocks, columns = processors(), -(-N // block_N)
    multiple = 128 // T.dtype(dtype).bits
    depth = -(-K // multiple) * multiple
    # Each group may end in a tile that is not full.
    most = -(-(-(-rows // block_M) + groups) // panel) * panel

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((groups, N, K), dtype),
        Ends: T.Tensor((groups,), T.int32),
        counter: T.Tensor((1,), T.int32),
    ):
        C = T.empty((rows, N), dtype)
        Tiles = T.alloc_global((most, 3), T.int32)
        list_tiles(Ends, Tiles, block_M)
        left, right = A, B
        if depth > K:
            A_wide = T.alloc_global((rows, depth), dtype)
            B_wide = T.alloc_global((groups, N, depth), dtype)
            copy_rows((A, A_wide), (B, B_wide))
            left, right = A_wide, B_wide
        with T.Kernel(blocks, threads=threads) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            C_shared = T.alloc_shared((block_M, block_N), dtype)
            domain = [most // panel, columns, panel]
            for above, bx, y in T.Persistent(domain, blocks, block, counter=counter):
                by = above * panel + y
                group, first, end = Tiles[by, 0], Tiles[by, 1], Tiles[by, 2]
                if first < end:
                    T.clear(C_local)
                    for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                        T.copy(left[first, k * block_K], A_shared)
                        here = bx * block_N
                        T.copy(right[group, here : here + block_N, k * block_K], B_shared)
                        # A warp group has all columns, so that its instructions read less of A.
                        by_rows = T.GemmWarpPolicy.FullRow
                        T.gemm(A_shared, B_shared, C_local, transpose_B=True, policy=by_rows)
                    store_rows(C_local, C_shared, C, first, end, bx * block_N)
        return C

    return main


@tilelang.jit
def grouped_matmul_fp8(
    groups, N, K, rows, block_M=128, num_stages=4, threads=256, panel=8, block=128, parts=2
):
    """The same in bfloat16 of float8_e4m3fn: A has a scale for each `block` elements of a row,
    (K / block, rows) in float32, whose rows TMA loads if `rows` is a multiple of 4; B has one for
    each square of `block`. TMA begins at multiples of 16 bytes, so that up to three scales in front
    of a tile's are loaded with them. A tile has `parts` times `block` columns, one product after
    the other: the wider it is, the fewer bytes come from L2, and the sums of all parts, but the
    product of one, are in registers."""
    blocks, steps = processors(), -(-K // block)
    columns = -(-N // (parts * block))
    most = -(-(-(-rows // block_M) + groups) // panel) * panel

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), T.float8_e4m3fn),
        B: T.Tensor((groups, N, K), T.float8_e4m3fn),
        scale_A: T.Tensor((steps, rows), T.float32),
        scale_B: T.Tensor((groups, -(-N // block), steps), T.float32),
        Ends: T.Tensor((groups,), T.int32),
        counter: T.Tensor((1,), T.int32),
    ):
        C = T.empty((rows, N), T.bfloat16)
        Tiles = T.alloc_global((most, 3), T.int32)
        list_tiles(Ends, Tiles, block_M)
        with T.Kernel(blocks, threads=threads) as index:
            A_shared = T.alloc_shared((block_M, block), T.float8_e4m3fn)
            B_shared = T.alloc_shared((parts * block, block), T.float8_e4m3fn)
            scales = T.alloc_shared((block_M + 32,), T.float32)
            row = T.alloc_fragment((block_M,), T.float32)
            square = T.alloc_local((parts,), T.float32)
            product = T.alloc_fragment((block_M, block), T.float32)
            C_local = [T.alloc_fragment((block_M, block), T.float32) for _ in range(parts)]
            C_shared = T.alloc_shared((block_M, block), T.bfloat16)
            domain = [most // panel, columns, panel]
            for above, bx, y in T.Persistent(domain, blocks, index, counter=counter):
                by = above * panel + y
                group, first, end = Tiles[by, 0], Tiles[by, 1], Tiles[by, 2]
                if first < end:
                    for sums in C_local:
                        T.clear(sums)
                    for k in T.Pipelined(steps, num_stages=num_stages):
                        left, behind = bx * parts * block, (bx + 1) * parts * block
                        T.copy(A[first, k * block], A_shared)
                        T.copy(B[group, left:behind, k * block], B_shared)
                        T.copy(scale_A[k, first // 4 * 4 : first // 4 * 4 + block_M + 32], scales)
                        # Under way during the product, as are those of the rows.
                        for p in T.unroll(parts):
                            square[p] = scale_B[group, bx * parts + p, k]
                        for p, sums in enumerate(C_local):
                            T.gemm(
                                A_shared,
                                B_shared[p * block : (p + 1) * block, :],
                                product,
                                transpose_B=True,
                                clear_accum=True,
                                policy=T.GemmWarpPolicy.FullRow,
                            )
                            if p == 0:
                                for i in T.Parallel(block_M):
                                    row[i] = scales[first % 4 + i]
                            for i, j in T.Parallel(block_M, block):
                                sums[i, j] += product[i, j] * (row[i] * square[p])
                    for p, sums in enumerate(C_local):
                        store_rows(sums, C_shared, C, first, end, (bx * parts + p) * block)
        return C

    return main


def inputs(sizes, N, K, fp8=False, device="cpu"):
    """A, B, with `fp8` their scales, ends of the groups, and a counter; `sizes` are the groups'
    counts of rows."""
    ends = torch.tensor(sizes, device=device).cumsum(0).int()
    dtype = torch.float8_e4m3fn if fp8 else torch.bfloat16
    a = torch.randn(sum(sizes), K, device=device).to(dtype)
    b = torch.randn(len(sizes), N, K, device=device).to(dtype)
    shapes = [(-(-K // 128), sum(sizes)), (len(sizes), -(-N // 128), -(-K // 128))]
    scales = [torch.rand(shape, device=device) + 0.5 for shape in shapes] if fp8 else []
    return a, b, *scales, ends, torch.zeros(1, dtype=torch.int32, device=device)


def reference(a, b, *rest):
    """The same in float64."""
    *scales, ends, _ = rest
    x, y = a.double(), b.double()
    if scales:
        x = x * scales[0].double().T.repeat_interleave(128, 1)[:, : x.shape[1]]
        wide = scales[1].double().repeat_interleave(128, 1).repeat_interleave(128, 2)
        y = y * wide[:, : y.shape[1], : y.shape[2]]
    parts = x.split(torch.diff(ends, prepend=ends.new_zeros(1)).tolist())
    return torch.cat([part @ matrix.T for part, matrix in zip(parts, y, strict=True)])


def relative_error(sizes, N, K, fp8=False, device="cpu", **tile):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    tensors = inputs(sizes, N, K, fp8, device)
    program = grouped_matmul_fp8 if fp8 else grouped_matmul
    found = program(len(sizes), N, K, sum(sizes), **tile)(*tensors)
    wanted = reference(*tensors)
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", help="rows of each group")
    parser.add_argument("--size", type=int, nargs=2, default=[4096 if gpu else 144] * 2)
    arguments = parser.parse_args()
    sizes = arguments.rows or ([1000, 0, 4096, 1, 700, 2048] if gpu else [130, 0, 64, 1])
    N, K = arguments.size
    for fp8 in (False, True):
        error = relative_error(sizes, N, K, fp8, "cuda" if gpu else "cpu")
        # The tensor cores of some chips keep fewer bits of a sum of 8-bit products than float32.
        bound = 1e-2 if fp8 else torch.finfo(torch.bfloat16).eps
        assert error < bound, f"relative error {error:.1e}, wanted under {bound:.1e}"
        kind = "8-bit floats" if fp8 else "bfloat16"
        print(f"{sizes} rows, {N} x {K}, {kind}: relative error {error:.1e}")
