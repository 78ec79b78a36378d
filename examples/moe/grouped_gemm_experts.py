"""The products of experts: rows of A, sorted by expert, times the matrices of their experts, in
bfloat16 or in 8-bit floats with scales for blocks. Groups are uneven and may be empty. Check it
against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.macros import (
    OddRows,
    add_scaled_products,
    copy_rows,
    load_odd_rows,
    shift_odd_rows,
)


def processors():
    """Multiprocessors of the GPU; a few blocks where there is none."""
    if not torch.cuda.is_available():
        return 4
    return torch.cuda.get_device_properties().multi_processor_count


@T.macro
def store_tile(C_local, C_shared, C, first, end, column):
    """The rows of a tile in front of `end`: all by TMA, which would write those behind it, too, and
    fewer by threads."""
    height, width = C_shared.shape
    T.copy(C_local, C_shared)
    if first + height <= end:
        T.copy(C_shared, C[first : first + height, column : column + width])
    else:
        for i in T.serial((end - first) // 8):
            to = C[first + i * 8 : first + i * 8 + 8, column : column + width]
            T.copy(C_shared[i * 8 : i * 8 + 8, :], to, disable_tma=True)
        for i in T.serial((end - first) % 8):
            row = (end - first) // 8 * 8 + i
            T.copy(C_shared[row, :], C[first + row, column : column + width], disable_tma=True)
        # The compiler's would stand in front of each store by TMA.
        T.fence_proxy_async(tensors=True)


@T.macro
def store_rows(C_local, C_shared, C, first, end, column):
    """The same, by threads alone; the tile may be higher than C_local."""
    height, width = C_local.shape
    T.copy(C_local, C_shared[0:height, :])
    for i, j in T.Parallel(height, width):
        if first + i < end:
            C[first + i, column + j] = C_shared[i, j]


@T.macro
def deal_tiles(Ends, columns, block_M, panel, index, blocks, body, arguments):
    """body(arguments, group, first, end, x) for the tiles of block `index`: those of block_M rows
    of a group, from `first` on and in front of `end`, and of columns x of `columns`, in turn. Up to
    `panel` tiles of rows go through the columns together. A group without rows costs the load of
    its end."""
    # The block's next tile, counted from the first one of the group.
    tile = T.alloc_var(T.int32)
    begin, end = T.alloc_var(T.int32), T.alloc_var(T.int32)
    tile = index
    end = 0
    for group in T.serial(Ends.shape[0]):
        begin = end
        end = Ends[group]
        tall = T.alloc_var(T.int32)
        tall = T.ceildiv(end - begin, block_M)
        while tile < tall * columns:
            above = tile // (panel * columns) * panel
            height, first = T.alloc_var(T.int32), T.alloc_var(T.int32)
            height = T.min(panel, tall - above)
            first = begin + (above + tile % (panel * columns) % height) * block_M
            x = tile % (panel * columns) // height
            T.assume(0 <= x < columns)
            body(arguments, group, first, end, x)
            tile += blocks
        tile -= tall * columns


@T.macro
def fetch_tiles(Ends, rows, columns, block_M, panel, index, blocks, body, arguments, counter):
    """As `deal_tiles` for `rows` rows in all, but a block fetches its next tile from `counter`,
    which is 0, and 0 again behind them: who has short tiles makes more of them."""
    groups = int(Ends.shape[0])
    # The group of the block's tile, its tiles of rows, and how many tiles are in front of it.
    group, tall, before = T.alloc_var(T.int32), T.alloc_var(T.int32), T.alloc_var(T.int32)
    begin, end = T.alloc_var(T.int32), T.alloc_var(T.int32)
    group = 0
    before = 0
    begin = 0
    end = Ends[0]
    tall = T.ceildiv(end, block_M)
    # Each group has less than one tile of rows more than its rows fill.
    most = (rows // block_M + groups) * columns
    for unit in T.Persistent([most], blocks, index, counter=counter):
        while group < groups and unit >= before + tall * columns:
            before += tall * columns
            group += 1
            begin = end
            end = Ends[T.min(group, groups - 1)]
            tall = T.ceildiv(end - begin, block_M)
        if group < groups:
            tile, height, first = (T.alloc_var(T.int32) for _ in range(3))
            tile = unit - before
            above = tile // (panel * columns) * panel
            height = T.min(panel, tall - above)
            first = begin + (above + tile % (panel * columns) % height) * block_M
            x, g = tile % (panel * columns) // height, group
            T.assume(0 <= x < columns)
            T.assume(0 <= g < groups)
            body(arguments, g, first, end, x)


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
    padded="AB",
    beside=1,
):
    """C (rows, N) of A (rows, K) and B (groups, N, K): row i is multiplied by the transposed matrix
    of its group g, Ends[g - 1] <= i < Ends[g].

    Blocks, `beside` of them for each multiprocessor, take tiles in turn, a group after the other,
    so that a matrix of B is loaded once. Rows that are no multiple of 16 bytes, which TMA does not
    take, are copied first, to longer ones of whole lines of L2 (128 bytes), if their operand is
    `padded`, "AB", "A" or "". Others are loaded by threads, by words of 8 or 4 bytes, or by
    elements if K is odd: then two blocks beside each other hide each other's waits. Where groups
    have few rows, a copy of their matrices takes longer than the product.
    """
    blocks, columns = beside * processors(), -(-N // block_N)
    multiple = 1024 // T.dtype(dtype).bits
    depth = -(-K // multiple) * multiple

    @T.macro
    def make_tile(arguments, group, first, end, x):
        A, B, C, A_shared, B_shared, C_local, C_shared = arguments
        here = x * block_N
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            T.copy(A[first : first + block_M, k * block_K], A_shared)
            T.copy(B[group, here : here + block_N, k * block_K], B_shared)
            # A warp group has all columns, so that its instructions read less of A.
            by_rows = T.GemmWarpPolicy.FullRow
            T.gemm(A_shared, B_shared, C_local, transpose_B=True, policy=by_rows)
        store_tile(C_local, C_shared, C, first, end, here)

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((groups, N, K), dtype),
        Ends: T.Tensor((groups,), T.int32),
    ):
        C = T.empty((rows, N), dtype)
        left, right = A, B
        if "A" in padded and K * T.dtype(dtype).bits % 128:
            left = T.alloc_global((rows, depth), dtype)
            copies = [(A, left)]
            if "B" in padded:
                right = T.alloc_global((groups, N, depth), dtype)
                copies.append((B, right))
            copy_rows(*copies)
        with T.Kernel(blocks, threads=threads) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            C_shared = T.alloc_shared((block_M, block_N), dtype)
            arguments = (left, right, C, A_shared, B_shared, C_local, C_shared)
            deal_tiles(Ends, columns, block_M, panel, block, blocks, make_tile, arguments)
        return C

    return main


@tilelang.jit
def grouped_matmul_odd_rows(
    groups,
    N,
    K,
    rows,
    dtype=T.bfloat16,
    block_M=16,
    block_N=128,
    block_K=64,
    num_stages=8,
    threads=256,
    panel=1,
    beside=1,
):
    """The same where rows of B are no multiples of 16 bytes, for groups of few rows: B is not
    copied, but shifted on its way to the registers of products, whose rows are those of B. A is
    copied to longer rows. N is a multiple of the phases of `OddRows`, at most 8."""
    blocks, columns = beside * processors(), -(-N // block_N)
    odd, multiple = OddRows(K, dtype, block_N), 1024 // T.dtype(dtype).bits

    @T.macro
    def make_tile(arguments, group, first, end, x):
        A, B, C, A_shared, raw, B_local, local, C_shared = arguments
        here = x * block_N
        T.clear(local)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            load_odd_rows(odd, B, (group * N + here) // odd.phases, k * block_K, raw)
            T.copy(A[first, k * block_K], A_shared)
            shift_odd_rows(odd, raw, k * block_K, B_local)
            by_rows = T.GemmWarpPolicy.FullRow
            T.gemm(B_local, A_shared, local, transpose_B=True, policy=by_rows)
        for i, j in T.Parallel(block_N, block_M):
            C_shared[j, odd.place(i)] = local[i, j]
        for i, j in T.Parallel(block_M, block_N):
            if first + i < end and here + j < N:
                C[first + i, here + j] = C_shared[i, j]

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((groups, N, K), dtype),
        Ends: T.Tensor((groups,), T.int32),
    ):
        C = T.empty((rows, N), dtype)
        left = T.alloc_global((rows, -(-K // multiple) * multiple), dtype)
        copy_rows((A, left))
        with T.Kernel(blocks, threads=threads) as block:
            T.annotate_min_blocks_per_sm(beside)
            tiles = (
                T.alloc_shared((block_M, block_K), dtype),
                odd.alloc(block_K),
                T.alloc_fragment((block_N, block_K), dtype),
                T.alloc_fragment((block_N, block_M), T.float32),
                T.alloc_shared((block_M, block_N), dtype),
            )
            arguments = (left, odd.view(B), C, *tiles)
            deal_tiles(Ends, columns, block_M, panel, block, blocks, make_tile, arguments)
        return C

    return main


@T.macro
def make_scaled_tile(num_stages, operands, C, tiles, registers, group, first, end, x):
    """A tile of a group's rows in front of `end`, whose height is that of the registers."""
    A, B, scale_A, scale_B = operands
    A_shared, B_shared, scales, C_shared = tiles
    row, square, product, C_local = registers
    (block_M, block), height = A_shared.shape, row.shape[0]
    parts, left = len(C_local), x * B_shared.shape[0]
    by = T.GemmWarpPolicy.FullRow if height == block_M else T.GemmWarpPolicy.FullCol
    for sums in C_local:
        T.clear(sums)
    for k in T.Pipelined(scale_A.shape[0], num_stages=num_stages):
        T.copy(A[first : first + height, k * block], A_shared[0:height, :])
        T.copy(B[group, left : left + parts * block, k * block], B_shared)
        T.copy(scale_A[k, first // 4 * 4 : first // 4 * 4 + block_M + 32], scales)
        # Under way during the product, as are those of the rows.
        for p in T.unroll(parts):
            square[p] = scale_B[group, x * parts + p, k]
        left_tile = A_shared[0:height, :]
        add_scaled_products(
            *(left_tile, B_shared, C_local, product),
            *(row, scales, first % 4, square, block, by),
        )
    for p, sums in enumerate(C_local):
        store_rows(sums, C_shared, C, first, end, left + p * block)


@tilelang.jit
def grouped_matmul_fp8(
    groups, N, K, rows, block_M=128, num_stages=4, threads=256, panel=4, block=128, parts=2
):
    """The same in bfloat16 of float8_e4m3fn: A has a scale for each `block` elements of a row,
    (K / block, rows) in float32, whose rows TMA loads if `rows` is a multiple of 4; B has one for
    each square of `block`. TMA begins at multiples of 16 bytes, so that up to three scales in front
    of a tile's are loaded with them. A tile has `parts` times `block` columns, one product after
    the other: the wider it is, the fewer bytes come from L2, and the sums of all parts, but the
    product of one, are in registers.

    Blocks fetch the tiles, a group after the other, so that a matrix of B is loaded once. If half a
    tile is enough for the last rows of a group, its warp groups share columns instead of rows,
    which takes half of the time: who has such tiles fetches more of them.
    """
    blocks, steps = processors(), -(-K // block)
    columns = -(-N // (parts * block))

    @T.macro
    def any_tile(arguments, group, first, end, x):
        operands, C, tiles, registers = arguments
        if end - first > block_M // 2:
            make_scaled_tile(num_stages, operands, C, tiles, registers[0], group, first, end, x)
        else:
            make_scaled_tile(num_stages, operands, C, tiles, registers[1], group, first, end, x)

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), T.float8_e4m3fn),
        B: T.Tensor((groups, N, K), T.float8_e4m3fn),
        scale_A: T.Tensor((steps, rows), T.float32),
        scale_B: T.Tensor((groups, -(-N // block), steps), T.float32),
        Ends: T.Tensor((groups,), T.int32),
    ):
        C = T.empty((rows, N), T.bfloat16)
        counter = T.alloc_global((1,), T.int32)
        with T.Kernel(1, threads=32):
            T.clear(counter)
        with T.Kernel(blocks, threads=threads) as index:
            A_shared = T.alloc_shared((block_M, block), T.float8_e4m3fn)
            B_shared = T.alloc_shared((parts * block, block), T.float8_e4m3fn)
            scales = T.alloc_shared((block_M + 32,), T.float32)
            C_shared = T.alloc_shared((block_M, block), T.bfloat16)
            square = T.alloc_local((parts,), T.float32)
            registers = [
                (
                    T.alloc_fragment((height,), T.float32),
                    square,
                    T.alloc_fragment((height, block), T.float32),
                    [T.alloc_fragment((height, block), T.float32) for _ in range(parts)],
                )
                for height in (block_M, block_M // 2)
            ]
            operands, tiles = (A, B, scale_A, scale_B), (A_shared, B_shared, scales, C_shared)
            arguments = (operands, C, tiles, registers)
            fetch_tiles(
                Ends, rows, columns, block_M, panel, index, blocks, any_tile, arguments, counter
            )
        return C

    return main


def inputs(sizes, N, K, fp8=False, device="cpu"):
    """A, B, with `fp8` their scales, and ends of the groups; `sizes` are their counts of rows."""
    ends = torch.tensor(sizes, device=device).cumsum(0).int()
    dtype = torch.float8_e4m3fn if fp8 else torch.bfloat16
    a = torch.randn(sum(sizes), K, device=device).to(dtype)
    b = torch.randn(len(sizes), N, K, device=device).to(dtype)
    shapes = [(-(-K // 128), sum(sizes)), (len(sizes), -(-N // 128), -(-K // 128))]
    scales = [torch.rand(shape, device=device) + 0.5 for shape in shapes] if fp8 else []
    return a, b, *scales, ends


def reference(a, b, *rest):
    """The same in float64."""
    *scales, ends = rest
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
