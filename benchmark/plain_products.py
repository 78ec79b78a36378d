"""Products as they are written for the first time: GEMM, batches, parts of K, experts, gated
layers, convolutions."""

import itertools

import torch
from gemm_fp8 import scaled_mm
from plain_case import BFLOAT16, Plain, Problem, named, normal, steps

import tilelang.language as T

SIZE = 4096
BLOCKS = 132
HALF = "bfloat16"


def gemm(
    M,
    N,
    K,
    tile,
    stages,
    threads,
    dtype=HALF,
    out_dtype=HALF,
    transpose_B=False,
    through_shared=False,
    swizzle=False,
):
    """C = A B, or A B^T."""
    block_M, block_N, block_K = tile
    shape = (block_N, block_K) if transpose_B else (block_K, block_N)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K) if transpose_B else (K, N), dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared(shape, dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            if swizzle:
                T.use_swizzle(10)
            T.clear(C_local)
            for k in steps(T.ceildiv(K, block_K), stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                if transpose_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=transpose_B)
            if through_shared:
                C_shared = T.alloc_shared((block_M, block_N), out_dtype)
                T.copy(C_local, C_shared)
                T.copy(C_shared, C[by * block_M, bx * block_N])
            else:
                T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def square(dtype=BFLOAT16, transpose_B=False, size=SIZE, **options):
    """The problem of a square GEMM."""
    return Problem(
        lambda device: [normal(size, size, device=device, dtype=dtype) for _ in range(2)],
        lambda a, b: a @ (b.T if transpose_B else b),
        2.0 * size**3,
        **options,
    )


def gemm_cases():
    """By tiles, stages and threads, the result straight to C and through shared memory."""
    sizes = {"M": SIZE, "N": SIZE, "K": SIZE}

    def case(tile, stages, threads, more="", what="GEMM", problem=None, **options):
        if what == "GEMM" and not problem:
            problem = square(transpose_B=options.get("transpose_B", False))
        return Plain(
            named(what, tile, stages, threads, more),
            problem,
            gemm,
            {**sizes, "tile": tile, "stages": stages, "threads": threads, **options},
        )

    small, middle, deep = (64, 64, 32), (128, 128, 32), (128, 128, 64)
    wide, tall = (128, 256, 64), (256, 128, 64)
    yield from (case(small, s, 128) for s in (0, 1, 2, 3, 4))
    yield from (case(middle, s, 128) for s in (None, 0, 1, 2, 3, 4))
    yield from (case(deep, s, t) for s, t in [(None, 128), (0, 128), (2, 128), (3, 128), (4, 128)])
    yield from (case(deep, s, 256) for s in (None, 0, 1, 2, 3, 4))
    yield from (case(wide, s, 256) for s in (None, 0, 1, 2, 3))
    yield case((128, 192, 64), 3, 256)
    yield case(tall, 3, 256)
    yield case(tall, 0, 256)
    for tile, stages, threads in [(middle, 3, 128), (deep, 3, 256), (wide, 3, 256)]:
        yield case(tile, stages, threads, "shared", through_shared=True)
        yield case(tile, stages, threads, "swizzle", swizzle=True)
        yield case(tile, stages, threads, "shared swizzle", through_shared=True, swizzle=True)
    yield case(deep, 3, 128, "B^T", transpose_B=True)
    yield case(middle, 0, 128, "B^T", transpose_B=True)
    half = square(torch.float16)
    yield case(deep, 3, 256, "float16", problem=half, dtype="float16", out_dtype="float16")
    eights = Problem(
        lambda device: [
            normal(SIZE, SIZE, device=device, dtype=torch.float8_e4m3fn) for _ in range(2)
        ],
        scaled_mm,
        2.0 * SIZE**3,
        1e-2,
        2.0,
        reference=lambda a, b: a.double() @ b.double().T,
    )
    for tile, stages in [((128, 128, 64), 3), ((128, 128, 128), 3), ((128, 128, 128), 0)]:
        fp8 = {"dtype": "float8_e4m3fn", "transpose_B": True}
        yield case(tile, stages, 256, what="fp8 GEMM", problem=eights, **fp8)


def batched(batch, size, tile, stages, threads, dtype=HALF):
    """C[b] = A[b] B[b]."""
    block_M, block_N, block_K = tile
    shape = (batch, size, size)

    @T.prim_func
    def main(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype), C: T.Tensor(shape, dtype)):
        with T.Kernel(size // block_N, size // block_M, batch, threads=threads) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(C_local)
            for k in steps(size // block_K, stages):
                T.copy(A[bz, by * block_M, k * block_K], A_shared)
                T.copy(B[bz, k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[bz, by * block_M, bx * block_N])

    return main


def batched_cases():
    """64 products of 512^3."""
    batch, size = 64, 512
    problem = Problem(
        lambda device: [normal(batch, size, size, device=device, dtype=BFLOAT16) for _ in "ab"],
        torch.bmm,
        2.0 * batch * size**3,
    )
    for tile, stages in [((128, 128, 64), 3), ((128, 128, 32), 3), ((128, 128, 32), 0)]:
        options = {"batch": batch, "size": size, "tile": tile, "stages": stages, "threads": 128}
        yield Plain(named("64 x 512^3", tile, stages, 128), problem, batched, options)


def split_k(M, N, K, split, tile, stages, threads, dtype=HALF):
    """C += A B by `split` blocks a tile."""
    block_M, block_N, block_K = tile
    count = K // (block_K * split)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), T.float32)
    ):
        with T.Kernel(N // block_N, M // block_M, split, threads=threads) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(C_local)
            for k in steps(count, stages):
                T.copy(A[by * block_M, (bz * count + k) * block_K], A_shared)
                T.copy(B[(bz * count + k) * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                T.atomic_add(C[by * block_M + i, bx * block_N + j], C_local[i, j])

    return main


def stream_k(M, N, K, tile, stages, threads, dtype=HALF):
    """C += A B by as many blocks as there are multiprocessors, each of as many steps."""
    block_M, block_N, block_K = tile
    across, count = N // block_N, K // block_K
    tiles = M // block_M * across
    share = -(-tiles * count // BLOCKS)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), T.float32)
    ):
        with T.Kernel(BLOCKS, threads=threads) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            first = block * share
            last = T.min(first + share, tiles * count)
            for t in T.serial(-(-share // count) + 1):
                tile = first // count + t
                begin = T.max(first, tile * count)
                end = T.min(last, (tile + 1) * count)
                by, bx = tile // across, tile % across
                if begin < end:
                    T.clear(C_local)
                    for k in T.Pipelined(end - begin, num_stages=stages):
                        here = (begin - tile * count + k) * block_K
                        T.copy(A[by * block_M, here], A_shared)
                        T.copy(B[here, bx * block_N], B_shared)
                        T.gemm(A_shared, B_shared, C_local)
                    T.atomic_add(C[by * block_M, bx * block_N], C_local)

    return main


def adding_cases():
    """Blocks that share K."""

    def problem(M, N, K):
        return Problem(
            lambda device: [
                normal(M, K, device=device, dtype=BFLOAT16),
                normal(K, N, device=device, dtype=BFLOAT16),
            ],
            torch.mm,
            2.0 * M * N * K,
            dtype=torch.float32,
        )

    few, tile = {"M": 512, "N": 4096, "K": 4096}, (128, 128, 64)
    for stages in (3, 0):
        yield Plain(
            named("split K 4, 512 x 4096^2", tile, stages, 128),
            problem(**few),
            split_k,
            {**few, "split": 4, "tile": tile, "stages": stages, "threads": 128},
            adds=True,
        )
    sizes = {"M": SIZE, "N": SIZE, "K": SIZE}
    for threads in (128, 256):
        yield Plain(
            named("stream K", tile, 3, threads),
            problem(**sizes),
            stream_k,
            {**sizes, "tile": tile, "stages": 3, "threads": threads},
            adds=True,
        )


def experts(rows, groups, tiles, N, K, tile, stages, threads, dtype=HALF):
    """Rows of a group by the group's matrix; tables say which rows a block has."""
    block_M, block_N, block_K = tile

    @T.prim_func
    def main(
        A: T.Tensor((rows, K), dtype),
        B: T.Tensor((groups, N, K), dtype),
        group_of: T.Tensor((tiles,), T.int32),
        first_of: T.Tensor((tiles,), T.int32),
        end_of: T.Tensor((tiles,), T.int32),
        C: T.Tensor((rows, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), tiles, threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            group, first = group_of[by], first_of[by]
            T.clear(C_local)
            for k in steps(K // block_K, stages):
                T.copy(A[first, k * block_K], A_shared)
                T.copy(B[group, bx * block_N, k * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                if first + i < end_of[by]:
                    C[first + i, bx * block_N + j] = C_local[i, j]

    return main


def expert_cases():
    """16 groups of 300 to 1755 rows."""
    sizes = [300 + 97 * i for i in range(16)]
    N, K, block_M = 4096, 4096, 128
    ends = list(itertools.accumulate(sizes))
    tiles = [
        (group, first, end)
        for group, (size, end) in enumerate(zip(sizes, ends, strict=True))
        for first in range(end - size, end, block_M)
    ]

    def inputs(device):
        tables = torch.tensor(tiles, dtype=torch.int32, device=device).T.contiguous()
        a = normal(ends[-1], K, device=device, dtype=BFLOAT16)
        return [a, normal(len(sizes), N, K, device=device, dtype=BFLOAT16), *tables]

    def others(a, b, *_):
        return [a, b.transpose(1, 2), torch.tensor(ends, dtype=torch.int32, device=a.device)]

    def reference(a, b, *_):
        parts = a.double().split(sizes)
        return torch.cat([x @ y.double().T for x, y in zip(parts, b, strict=True)])

    problem = Problem(
        inputs,
        lambda a, b, ends: torch._grouped_mm(a, b, offs=ends),
        2.0 * ends[-1] * N * K,
        others=others,
        reference=reference,
    )
    for tile, stages in [((128, 128, 64), 2), ((128, 128, 64), 3), ((128, 128, 64), 0)]:
        options = {"rows": ends[-1], "groups": len(sizes), "tiles": len(tiles), "N": N, "K": K}
        options |= {"tile": tile, "stages": stages, "threads": 128}
        yield Plain(named("experts", tile, stages, 128), problem, experts, options)


def gated(M, N, K, tile, stages, threads, dtype=HALF):
    """silu(A G) * (A U)"""
    block_M, block_N, block_K = tile

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        G: T.Tensor((K, N), dtype),
        U: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(N // block_N, M // block_M, threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            G_shared = T.alloc_shared((block_K, block_N), dtype)
            U_shared = T.alloc_shared((block_K, block_N), dtype)
            gate = T.alloc_fragment((block_M, block_N), T.float32)
            up = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(gate)
            T.clear(up)
            for k in steps(K // block_K, stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(G[k * block_K, bx * block_N], G_shared)
                T.copy(U[k * block_K, bx * block_N], U_shared)
                T.gemm(A_shared, G_shared, gate)
                T.gemm(A_shared, U_shared, up)
            for i, j in T.Parallel(block_M, block_N):
                up[i, j] = up[i, j] * gate[i, j] / (1.0 + T.exp(-gate[i, j]))
            T.copy(up, C[by * block_M, bx * block_N])

    return main


def gated_cases():
    """A layer of 4096 x 4096 weights, twice."""
    sizes = {"M": SIZE, "N": SIZE, "K": SIZE}
    problem = Problem(
        # Products of about 1, as a layer has them.
        lambda device: [
            normal(SIZE, SIZE, device=device, dtype=BFLOAT16),
            *(normal(SIZE, SIZE, device=device, dtype=BFLOAT16) / 64 for _ in "gu"),
        ],
        lambda a, g, u: torch.nn.functional.silu(a @ g) * (a @ u),
        4.0 * SIZE**3,
        2e-2,
    )
    for tile, stages, threads in [
        ((64, 64, 32), 2, 128),
        ((64, 64, 64), 3, 128),
        ((128, 128, 64), 2, 256),
        ((128, 128, 64), 0, 256),
    ]:
        options = {**sizes, "tile": tile, "stages": stages, "threads": threads}
        yield Plain(named("gated layer", tile, stages, threads), problem, gated, options)


def convolution(batch, side, channels, filters, tile, stages, threads, gathered, dtype="float16"):
    """3 x 3 windows of an image, whose edge is padded by zeros; pixels by T.im2col or a loop."""
    block_M, block_N, block_K = tile
    M, K = batch * side * side, 9 * channels

    @T.prim_func
    def main(
        image: T.Tensor((batch, side, side, channels), dtype),
        weight: T.Tensor((3, 3, channels, filters), dtype),
        output: T.Tensor((batch, side, side, filters), dtype),
    ):
        with T.Kernel(filters // block_N, M // block_M, threads=threads) as (bx, by):
            window = T.alloc_shared((block_M, block_K), dtype)
            weight_shared = T.alloc_shared((block_K, block_N), dtype)
            out_local = T.alloc_fragment((block_M, block_N), T.float32)
            weight_matrix = T.view(weight, (K, filters))
            output_matrix = T.view(output, (M, filters))
            T.clear(out_local)
            for k in steps(K // block_K, stages):
                if gathered:
                    for i, j in T.Parallel(block_M, block_K):
                        pixel, tap = by * block_M + i, (k * block_K + j) // channels
                        row = pixel // side % side + tap // 3 - 1
                        column = pixel % side + tap % 3 - 1
                        inside = row >= 0 and row < side and column >= 0 and column < side
                        window[i, j] = T.if_then_else(
                            inside,
                            image[
                                pixel // (side * side), row, column, (k * block_K + j) % channels
                            ],
                            0,
                        )
                else:
                    T.im2col(image, window, by, k, 3, 1, 1, 1)
                T.copy(weight_matrix[k * block_K, bx * block_N], weight_shared)
                T.gemm(window, weight_shared, out_local)
            T.copy(out_local, output_matrix[by * block_M, bx * block_N])

    return main


def convolution_cases():
    """64 images of 56 x 56, 128 to 128 channels."""
    sizes = {"batch": 64, "side": 56, "channels": 128, "filters": 128}

    def inputs(device):
        image = normal(64, 56, 56, 128, device=device)
        return [image, normal(3, 3, 128, 128, device=device) / 32]

    def others(x, w):
        w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        return [x.permute(0, 3, 1, 2), w]

    def conv(x, w):
        return torch.nn.functional.conv2d(x, w, padding=1).permute(0, 2, 3, 1)

    def reference(x, w):
        # In float32 and of the first and last image, since convolutions in float64 take seconds.
        with torch.backends.cudnn.flags(allow_tf32=False):
            return conv(*(t.float() for t in others(x[[0, -1]], w))).double()

    problem = Problem(
        inputs,
        conv,
        2.0 * 64 * 56 * 56 * 9 * 128 * 128,
        others=others,
        reference=reference,
        part=lambda found: found[[0, -1]],
    )
    for gathered, tile, stages, threads in [
        (False, (128, 128, 32), 3, 256),
        (False, (128, 128, 64), 3, 128),
        (True, (128, 128, 32), 3, 128),
        (True, (128, 128, 32), 0, 128),
    ]:
        options = {**sizes, "tile": tile, "stages": stages, "threads": threads}
        what = "convolution, gathered" if gathered else "convolution, im2col"
        yield Plain(
            named(what, tile, stages, threads),
            problem,
            convolution,
            {**options, "gathered": gathered},
        )


def tf32_cases():
    """Products of float32 that may be rounded to tf32."""

    def product(a, b):
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return a @ b
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    def problem(transpose_B):
        return Problem(
            lambda device: [normal(SIZE, SIZE, device=device, dtype=torch.float32) for _ in "ab"],
            lambda a, b: product(a, b.T if transpose_B else b),
            2.0 * SIZE**3,
            rate=0.5,
        )

    sizes = {"M": SIZE, "N": SIZE, "K": SIZE, "dtype": "tfloat32", "out_dtype": "float32"}
    for tile, stages, threads, transpose_B in [
        ((128, 128, 32), 3, 256, True),
        ((128, 128, 32), 3, 128, False),
        ((128, 128, 32), 0, 128, True),
    ]:
        options = {"tile": tile, "stages": stages, "threads": threads, "transpose_B": transpose_B}
        name = named("tf32 GEMM", tile, stages, threads, "B^T" if transpose_B else "")
        yield Plain(name, problem(transpose_B), gemm, {**sizes, **options})


def cases():
    """All of them."""
    for family in (
        *(gemm_cases, batched_cases, adding_cases, expert_cases),
        *(gated_cases, convolution_cases, tf32_cases),
    ):
        yield from family()
