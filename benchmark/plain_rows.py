"""Rows and elements as they are written for the first time: softmax, norms, sums, transposes,
activations."""

import torch
from plain_case import BFLOAT16, FAST_MATH, Plain, Problem, normal

import tilelang.language as T

ROWS, COLUMNS = 8192, 8192
EPSILON = 1e-6


def softmax(M, N, block_M, threads, dtype):
    """A row in registers."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, N), T.float32)
            largest = T.alloc_fragment((block_M,), T.float32)
            total = T.alloc_fragment((block_M,), T.float32)
            T.copy(X[bx * block_M, 0], x)
            T.reduce_max(x, largest, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp(x[i, j] - largest[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] /= total[i]
            T.copy(x, Y[bx * block_M, 0])

    return main


def online_softmax(M, N, block_M, block_N, threads, dtype):
    """Tile by tile, the row read twice."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, block_N), T.float32)
            largest = T.alloc_fragment((block_M,), T.float32)
            before = T.alloc_fragment((block_M,), T.float32)
            tile_sum = T.alloc_fragment((block_M,), T.float32)
            total = T.alloc_fragment((block_M,), T.float32)
            T.fill(largest, -T.infinity(T.float32))
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(largest, before)
                T.reduce_max(x, largest, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.exp(x[i, j] - largest[i])
                T.reduce_sum(x, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * T.exp(before[i] - largest[i]) + tile_sum[i]
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = T.exp(x[i, j] - largest[i]) / total[i]
                T.copy(x, Y[bx * block_M, k * block_N])

    return main


def rms_norm(M, N, block_M, threads, dtype):
    """A row in registers, times weights."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, N), T.float32)
            squares = T.alloc_fragment((block_M, N), T.float32)
            total = T.alloc_fragment((block_M,), T.float32)
            T.copy(X[bx * block_M, 0], x)
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, total, dim=1)
            for i in T.Parallel(block_M):
                total[i] = T.rsqrt(total[i] / N + EPSILON)
            for i, j in T.Parallel(block_M, N):
                x[i, j] *= total[i] * W[j]
            T.copy(x, Y[bx * block_M, 0])

    return main


def layer_norm(M, N, block_M, threads, dtype):
    """A row in registers, its mean and variance."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        W: T.Tensor((N,), dtype),
        bias: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, N), T.float32)
            squares = T.alloc_fragment((block_M, N), T.float32)
            mean = T.alloc_fragment((block_M,), T.float32)
            scale = T.alloc_fragment((block_M,), T.float32)
            T.copy(X[bx * block_M, 0], x)
            T.reduce_sum(x, mean, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] -= mean[i] / N
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + EPSILON)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * scale[i] * W[j] + bias[j]
            T.copy(x, Y[bx * block_M, 0])

    return main


def row_sums(M, N, block_M, block_N, threads, dtype):
    """Sums along rows, tile by tile."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M,), T.float32)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, block_N), dtype)
            partial = T.alloc_fragment((block_M, block_N), T.float32)
            total = T.alloc_fragment((block_M,), T.float32)
            T.clear(partial)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                for i, j in T.Parallel(block_M, block_N):
                    partial[i, j] += x[i, j]
            T.reduce_sum(partial, total, dim=1)
            T.copy(total, Y[bx * block_M])

    return main


def column_sums(M, N, block_M, block_N, stages, threads, dtype):
    """Sums along columns, tiles of rows through shared memory."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
            x = T.alloc_shared((block_M, block_N), dtype)
            partial = T.alloc_fragment((block_M, block_N), T.float32)
            total = T.alloc_fragment((block_N,), T.float32)
            T.clear(partial)
            for k in T.Pipelined(T.ceildiv(M, block_M), num_stages=stages):
                T.copy(X[k * block_M, bx * block_N], x)
                for i, j in T.Parallel(block_M, block_N):
                    partial[i, j] += x[i, j]
            T.reduce_sum(partial, total, dim=0)
            T.copy(total, Y[bx * block_N])

    return main


def transpose(M, N, block, threads, dtype):
    """By a loop from tensor to tensor."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((N, M), dtype)):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=threads) as (bx, by):
            for i, j in T.Parallel(block, block):
                Y[bx * block + i, by * block + j] = X[by * block + j, bx * block + i]

    return main


def transpose_by_shared(M, N, block, threads, dtype):
    """By a tile in shared memory."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((N, M), dtype)):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=threads) as (bx, by):
            tile = T.alloc_shared((block, block), dtype)
            T.copy(X[by * block, bx * block], tile)
            for i, j in T.Parallel(block, block):
                Y[bx * block + i, by * block + j] = tile[j, i]

    return main


def cumsum(M, N, block_M, threads):
    """Of rows that fit into shared memory."""

    @T.prim_func
    def main(X: T.Tensor((M, N), T.float32), Y: T.Tensor((M, N), T.float32)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_shared((block_M, N), T.float32)
            T.copy(X[bx * block_M, 0], x)
            T.cumsum(x, dim=1)
            T.copy(x, Y[bx * block_M, 0])

    return main


def add(M, N, block_M, block_N, threads, dtype):
    """The sum of two matrices."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        Z: T.Tensor((M, N), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = X[row, column] + Z[row, column]

    return main


def add_bias(M, N, block_M, block_N, threads, dtype):
    """A row added to all rows, and GELU of it."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        bias: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            x = T.alloc_fragment((block_M, block_N), T.float32)
            b = T.alloc_fragment((block_N,), T.float32)
            T.copy(X[by * block_M, bx * block_N], x)
            T.copy(bias[bx * block_N], b)
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] += b[j]
            for i, j in T.Parallel(block_M, block_N):
                x[i, j] = 0.5 * x[i, j] * (1.0 + T.erf(x[i, j] * 0.70710678))
            T.copy(x, Y[by * block_M, bx * block_N])

    return main


def scale_rows(M, N, block_M, block_N, threads, dtype):
    """Each row times a number of its own."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        factors: T.Tensor((M,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = X[row, column] * factors[row]

    return main


def matrix(M=ROWS, N=COLUMNS, dtype=BFLOAT16, count=1, vectors=()):
    """Matrices, and vectors of so many elements."""
    return lambda device: [
        *(normal(M, N, device=device, dtype=dtype) for _ in range(count)),
        *(normal(n, device=device, dtype=dtype) for n in vectors),
    ]


def row_cases():
    """Rows in registers."""
    sizes = {"M": ROWS, "N": COLUMNS, "dtype": "bfloat16"}
    softmaxes = Problem(matrix(), lambda x: x.softmax(1))
    for block_M, threads in [(1, 128), (1, 256), (1, 512)]:
        yield Plain(
            f"softmax {block_M} row t{threads}",
            softmaxes,
            softmax,
            {**sizes, "block_M": block_M, "threads": threads},
        )
    few = {"M": 262144, "N": 256, "dtype": "float16", "block_M": 1, "threads": 128}
    short = Problem(matrix(262144, 256, torch.float16), lambda x: x.softmax(1))
    yield Plain("softmax of 256, 1 row t128", short, softmax, few)
    online = {"block_M": 1, "block_N": 4096, "threads": 128}
    yield Plain("softmax online 1x4096 t128", softmaxes, online_softmax, {**sizes, **online})
    yield Plain(
        "softmax online 1x4096 t128, fast math",
        softmaxes,
        online_softmax,
        {**sizes, **online},
        pass_configs=FAST_MATH,
    )
    rms = Problem(
        matrix(vectors=[COLUMNS]),
        lambda x, w: torch.nn.functional.rms_norm(x, (x.shape[1],), w, EPSILON),
    )
    layer = Problem(
        matrix(vectors=[COLUMNS] * 2),
        lambda x, w, b: torch.nn.functional.layer_norm(x, (x.shape[1],), w, b, EPSILON),
        bound=1e-2,
    )
    for threads in (128, 256, 512):
        options = {**sizes, "block_M": 1, "threads": threads}
        yield Plain(f"rms norm 1 row t{threads}", rms, rms_norm, options)
        yield Plain(f"layer norm 1 row t{threads}", layer, layer_norm, options)


def sum_cases():
    """Along rows and columns, of even and odd lengths."""
    for dtype in (torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for N in (8192, 8191):
            options = {"M": ROWS, "N": N, "dtype": name}
            x = matrix(ROWS, N, dtype)
            rows = Problem(x, lambda x: x.sum(1), dtype=torch.float32)
            tile = {"block_M": 4, "block_N": 1024, "threads": 128}
            yield Plain(f"row sums {name} of {N}, 4x1024", rows, row_sums, {**options, **tile})
            columns = Problem(x, lambda x: x.sum(0), dtype=torch.float32)
            for stages in (0, 2, 3) if N == 8192 else (2,):
                tile = {"block_M": 64, "block_N": 64, "threads": 128, "stages": stages}
                yield Plain(
                    f"column sums {name} of {N}, 64x64 s{stages}",
                    columns,
                    column_sums,
                    {**options, **tile},
                )


def element_cases():
    """Transposes, running sums, elementwise."""
    for dtype in (torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        turned = Problem(matrix(dtype=dtype), lambda x: x.T.contiguous())
        for program in (transpose, transpose_by_shared):
            yield Plain(
                f"{program.__name__.replace('_', ' ')} {name} 64x64 t256",
                turned,
                program,
                {"M": ROWS, "N": COLUMNS, "block": 64, "threads": 256, "dtype": name},
            )
    for rows, width in [(65536, 1024), (8192, 8192)]:
        yield Plain(
            f"cumsum of {width}, 1 row t128",
            Problem(
                matrix(rows, width, torch.float32),
                lambda x: x.cumsum(1),
            ),
            cumsum,
            {"M": rows, "N": width, "block_M": 1, "threads": 128},
        )
    for N in (8192, 8191):
        tile = {"M": ROWS, "N": N, "block_M": 8, "block_N": 1024, "threads": 128}
        for dtype in (torch.float16, torch.float32):
            name = str(dtype).removeprefix("torch.")
            both = Problem(matrix(ROWS, N, dtype, count=2), torch.add)
            yield Plain(f"add {name} of {N}, 8x1024", both, add, {**tile, "dtype": name})
        options = {**tile, "dtype": "bfloat16"}
        biased = Problem(
            matrix(ROWS, N, vectors=[N]),
            lambda x, b: torch.nn.functional.gelu(x + b),
            bound=1e-2,
        )
        yield Plain(f"gelu(x + bias) of {N}, 8x1024", biased, add_bias, options)
        scaled = Problem(matrix(ROWS, N, vectors=[ROWS]), lambda x, f: x * f[:, None])
        yield Plain(f"x * factors[:, None] of {N}, 8x1024", scaled, scale_rows, options)


def cases():
    """All of them."""
    yield from row_cases()
    yield from sum_cases()
    yield from element_cases()
