"""The products of experts in a form for CUDA graphs: each expert has room for the same number of
rows, and how many of them it has is known on the GPU alone. In bfloat16 or in 8-bit floats with
scales for blocks. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from grouped_gemm_experts import processors

import tilelang
import tilelang.language as T
from tilelang.macros import add_scaled_products


@T.macro
def deal_masked_tiles(Counts, columns, tallest, block_M, index, blocks, body, arguments):
    """body(arguments, g, y, x) for the tiles of block `index`, in turn: of group g the row y of
    tiles, of `tallest` at most, and the column x of `columns`. A group without rows costs the load
    of its count. Tiles begin at multiples of block_M, so that TMA loads their scales, too: it could
    not where a group begins at the end of another, as in grouped_gemm_experts.py."""
    # The block's next tile, counted from the first one of the group.
    tile = T.alloc_var(T.int32)
    tile = index
    for g in T.serial(Counts.shape[0]):
        rows = T.alloc_var(T.int32)
        rows = T.ceildiv(Counts[g], block_M)
        while tile < rows * columns:
            # It is less than tallest * columns, which the compiler does not know.
            y, x = tile % rows, tile % (tallest * columns) // rows
            T.assume(0 <= y < tallest)
            T.assume(0 <= x < columns)
            body(arguments, g, y, x)
            tile += blocks
        tile -= rows * columns


@tilelang.jit
def masked_matmul(
    groups,
    most,
    N,
    K,
    dtype=T.bfloat16,
    block_M=128,
    block_N=128,
    block_K=64,
    num_stages=6,
    threads=256,
):
    """C (groups, most, N): the first Counts[g] rows of A[g] (most, K) times the transposed B[g]
    (N, K). Counts (groups,), between 0 and `most` each, is read on the GPU alone. The rows of C
    behind them are unspecified.

    The tiles of all groups are dealt to the blocks in turn, of which there is one for each
    multiprocessor. Tiles of a group with the same columns follow each other, since they read the
    same part of B.
    """
    blocks, columns, tallest = processors(), -(-N // block_N), -(-most // block_M)

    @T.macro
    def make_tile(arguments, g, y, x):
        A, B, C, A_shared, B_shared, C_local, C_shared = arguments
        first, left = y * block_M, x * block_N
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            T.copy(A[g, first : first + block_M, k * block_K], A_shared)
            T.copy(B[g, left : left + block_N, k * block_K], B_shared)
            # A warp group has all columns, so that its instructions read less of A.
            by_rows = T.GemmWarpPolicy.FullRow
            T.gemm(A_shared, B_shared, C_local, transpose_B=True, policy=by_rows)
        T.copy(C_local, C_shared)
        T.copy(C_shared, C[g, first : first + block_M, left : left + block_N])

    @T.prim_func
    def main(
        A: T.Tensor((groups, most, K), dtype),
        B: T.Tensor((groups, N, K), dtype),
        Counts: T.Tensor((groups,), T.int32),
    ):
        C = T.empty((groups, most, N), dtype)
        with T.Kernel(blocks, threads=threads) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            C_shared = T.alloc_shared((block_M, block_N), dtype)
            arguments = (A, B, C, A_shared, B_shared, C_local, C_shared)
            deal_masked_tiles(
                Counts, columns, tallest, block_M, block, blocks, make_tile, arguments
            )
        return C

    return main


@tilelang.jit
def masked_matmul_fp8(
    groups, most, N, K, block_M=128, num_stages=4, threads=256, block=128, width=128, parts=2
):
    """The same in bfloat16 of float8_e4m3fn: A has a scale for each `block` elements of a row,
    (groups, K / block, most) in float32, whose rows TMA loads if `most` is a multiple of 4; B has
    one for each square of `block`. A tile has `parts` times `width` columns, one product after the
    other. Warp groups share the rows of a tile, or the columns where there are fewer than 64 rows
    for each: then a step takes half as long, and loads wait less often for a free stage."""
    if parts * width % block:
        raise ValueError(
            f"found tiles of {parts} * {width} columns and scales for {block}, wanted a multiple "
            f"of {block}, so that a tile begins with a scale"
        )
    blocks, steps = processors(), -(-K // block)
    squares = parts * width // block
    columns, tallest = -(-N // (parts * width)), -(-most // block_M)
    by = T.GemmWarpPolicy.FullRow if threads <= 2 * block_M else T.GemmWarpPolicy.FullCol

    @T.macro
    def make_tile(arguments, g, y, x):
        operands, C, tiles, registers = arguments
        A, B, scale_A, scale_B = operands
        A_shared, B_shared, scales, C_shared = tiles
        row, square, product, C_local = registers
        first, left = y * block_M, x * parts * width
        for sums in C_local:
            T.clear(sums)
        for k in T.Pipelined(steps, num_stages=num_stages):
            T.copy(A[g, first : first + block_M, k * block], A_shared)
            T.copy(B[g, left : left + parts * width, k * block], B_shared)
            T.copy(scale_A[g, k, first : first + block_M], scales)
            # Under way during the product, as are those of the rows.
            for p in T.unroll(squares):
                square[p] = scale_B[g, x * squares + p, k]
            add_scaled_products(
                *(A_shared, B_shared, C_local, product), *(row, scales, 0, square, block, by)
            )
        for p, sums in enumerate(C_local):
            at = left + p * width
            T.copy(sums, C_shared)
            T.copy(C_shared, C[g, first : first + block_M, at : at + width])

    @T.prim_func
    def main(
        A: T.Tensor((groups, most, K), T.float8_e4m3fn),
        B: T.Tensor((groups, N, K), T.float8_e4m3fn),
        scale_A: T.Tensor((groups, steps, most), T.float32),
        scale_B: T.Tensor((groups, -(-N // block), steps), T.float32),
        Counts: T.Tensor((groups,), T.int32),
    ):
        C = T.empty((groups, most, N), T.bfloat16)
        with T.Kernel(blocks, threads=threads) as index:
            A_shared = T.alloc_shared((block_M, block), T.float8_e4m3fn)
            B_shared = T.alloc_shared((parts * width, block), T.float8_e4m3fn)
            scales = T.alloc_shared((block_M,), T.float32)
            row = T.alloc_fragment((block_M,), T.float32)
            square = T.alloc_local((squares,), T.float32)
            product = T.alloc_fragment((block_M, width), T.float32)
            C_local = [T.alloc_fragment((block_M, width), T.float32) for _ in range(parts)]
            C_shared = T.alloc_shared((block_M, width), T.bfloat16)
            operands, tiles = (A, B, scale_A, scale_B), (A_shared, B_shared, scales, C_shared)
            arguments = (operands, C, tiles, (row, square, product, C_local))
            deal_masked_tiles(
                Counts, columns, tallest, block_M, index, blocks, make_tile, arguments
            )
        return C

    return main


def inputs(counts, most, N, K, fp8=False, device="cpu"):
    """A, B, with `fp8` their scales, and counts. Rows behind the counts are NaN: a kernel that let
    one of them into a result would show it."""
    groups, steps = len(counts), -(-K // 128)
    dtype = torch.float8_e4m3fn if fp8 else torch.bfloat16
    rows = torch.tensor(counts, dtype=torch.int32, device=device)
    a = torch.randn(groups, most, K, device=device)
    a[torch.arange(most, device=device) >= rows[:, None]] = torch.nan
    a = a.to(dtype)
    b = torch.randn(groups, N, K, device=device).to(dtype)
    if not fp8:
        return a, b, rows
    scale_a = torch.rand(groups, steps, most, device=device) + 0.5
    scale_b = torch.rand(groups, -(-N // 128), steps, device=device) + 0.5
    return a, b, scale_a, scale_b, rows


def reference(a, b, *rest):
    """The rows of all groups in float64, one behind the other."""
    *scales, counts = rest
    found = []
    for g, count in enumerate(counts.tolist()):
        x, y = a[g, :count].double(), b[g].double()
        if scales:
            x = x * scales[0][g, :, :count].double().T.repeat_interleave(128, 1)[:, : x.shape[1]]
            wide = scales[1][g].double().repeat_interleave(128, 0).repeat_interleave(128, 1)
            y = y * wide[: y.shape[0], : y.shape[1]]
        found.append(x @ y.T)
    return torch.cat(found)


def valid(c, counts):
    """The rows of all groups of a result, one behind the other."""
    return torch.cat([c[g, :count] for g, count in enumerate(counts.tolist())])


def relative_error(counts, most, N, K, fp8=False, device="cpu", **tile):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    tensors = inputs(counts, most, N, K, fp8, device)
    program = masked_matmul_fp8 if fp8 else masked_matmul
    found = program(len(counts), most, N, K, **tile)(*tensors)
    wanted = reference(*tensors)
    return float((valid(found, tensors[-1]).double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", help="rows of each group")
    parser.add_argument("--most", type=int, default=512 if gpu else 132, help="room for rows")
    parser.add_argument("--size", type=int, nargs=2, default=[4096 if gpu else 144] * 2)
    arguments = parser.parse_args()
    counts = arguments.counts or ([100, 0, 512, 1, 300, 77] if gpu else [130, 0, 64, 1])
    N, K = arguments.size
    for fp8 in (False, True):
        device = "cuda" if gpu else "cpu"
        error = relative_error(counts, arguments.most, N, K, fp8, device)
        # The tensor cores of some chips keep fewer bits of a sum of 8-bit products than float32.
        bound = 1e-2 if fp8 else torch.finfo(torch.bfloat16).eps
        assert error < bound, f"relative error {error:.1e}, wanted under {bound:.1e}"
        kind = "8-bit floats" if fp8 else "bfloat16"
        print(f"{counts} of {arguments.most} rows, {N} x {K}, {kind}: relative error {error:.1e}")
