"""The cases of each operator: dtypes x extents x threads, edges of every power of two included."""

import itertools
from collections.abc import Callable, Iterator

import torch
from runner import Case

import tilelang.language as T

EXTENTS = (1, 3, 7, 8, 15, 16, 17, 24, 31, 33, 48, 60, 63, 64, 65, 96, 100, 127, 128, 129, 192, 255)
THREADS = (32, 48, 64, 96, 128, 160, 256)
FLOATS = ("float16", "bfloat16", "float32")
DTYPES = (*FLOATS, "float64", "int8", "int32", "uint8")

OPERATORS: dict[str, Callable[[], Iterator[Case]]] = {}


def operator(function: Callable[[], Iterator[Case]]) -> Callable[[], Iterator[Case]]:
    """Registers the cases under the function's name."""
    OPERATORS[function.__name__] = function
    return function


def pairs() -> Iterator[tuple[int, int]]:
    """Every extent as rows and as columns, each with a few partners."""
    for k, extent in enumerate(EXTENTS):
        for partner in (EXTENTS[(7 * k + 3) % len(EXTENTS)], 1, 64):
            yield extent, partner
            yield partner, extent


def grid() -> Iterator[tuple[int, int, str, int]]:
    """Rows, columns, dtype, threads: every pair, dtypes and threads in turn so that all meet."""
    turn = itertools.count()
    for m, n in dict.fromkeys(pairs()):
        for dtype in DTYPES:
            yield m, n, dtype, THREADS[next(turn) % len(THREADS)]


def data(dtype: str, *shape: int) -> torch.Tensor:
    """Random values of the dtype: normal floats, integers from -50 to 50."""
    torch_dtype = getattr(torch, dtype)
    if torch_dtype.is_floating_point:
        return torch.randn(*shape, dtype=torch.float64).to(torch_dtype)
    low = 0 if dtype.startswith("uint") else -50
    return torch.randint(low, 51, shape).to(torch_dtype)


def poison(dtype: str, *shape: int) -> torch.Tensor:
    """Values that no kernel computes: what is not written shows."""
    torch_dtype = getattr(torch, dtype)
    value = float("nan") if torch_dtype.is_floating_point else 77
    return torch.full(shape, value, dtype=torch_dtype)


def _copy(path: str, m: int, n: int, dtype: str, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(A: T.Tensor((m, n), dtype), B: T.Tensor((m, n), dtype)):
            with T.Kernel(1, threads=threads):
                source = A
                for scope in path:
                    alloc = T.alloc_shared if scope == "s" else T.alloc_fragment
                    buffer = alloc((m, n), dtype)
                    T.copy(source, buffer)
                    source = buffer
                T.copy(source, B)

        return main

    return define


@operator
def copy() -> Iterator[Case]:
    """Global memory to itself directly and through shared memory and fragments."""
    for m, n, dtype, threads in grid():
        for path in ("", "s", "f", "sf", "fs", "sfs"):
            yield Case(
                f"copy g{path}g {m}x{n} {dtype} {threads} threads",
                _copy(path, m, n, dtype, threads),
                (data(dtype, m, n), poison(dtype, m, n)),
                lambda a, b: (None, a),
            )


def _region(
    m: int, n: int, begin: tuple[int, int], dtype: str, staged: bool
) -> Callable[[], object]:
    """Tiles of 16 x 32 from any place, which the first tile's columns depend on, to any place."""

    def define() -> object:
        @T.prim_func
        def main(
            A: T.Tensor((2 * m, n), dtype), W: T.Tensor((2,), "int32"), B: T.Tensor((m, n), dtype)
        ):
            with T.Kernel(1, threads=128):
                S = T.alloc_shared((m - begin[0], n - begin[1]), dtype)
                total = T.alloc_fragment((m - begin[0], n - begin[1]), dtype)
                T.clear(total)
                for k in T.Pipelined(2, num_stages=2 if staged else 0):
                    T.copy(A[k * m + begin[0] : (k + 1) * m, W[k] : W[k] + n - begin[1]], S)
                    for i, j in T.Parallel(m - begin[0], n - begin[1]):
                        total[i, j] += S[i, j]
                T.copy(total, S)
                T.copy(S, B[begin[0] : m, begin[1] : n])

        return main

    return define


def _region_wanted(begin: tuple[int, int], a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (y, x), m = begin, len(b)
    wanted = b.clone()
    wanted[y:, x:] = a[y:m, x:] + a[m + y :, : b.shape[1] - x]
    return wanted


@operator
def regions() -> Iterator[Case]:
    """Regions that begin anywhere, at columns that a tensor tells or that are known, through a
    pipeline or not: what the copy units reach and what they do not."""
    for (y, x), dtype, staged in itertools.product(
        itertools.product((0, 1, 5), (0, 1, 2, 3, 4, 6, 8, 12, 16)), DTYPES, (False, True)
    ):
        m, n = 16, 48
        yield Case(
            f"region {m}x{n} from {y}, {x} {dtype}{' staged' if staged else ''}",
            _region(m, n, (y, x), dtype, staged),
            (data(dtype, 2 * m, n), torch.tensor([x, 0], dtype=torch.int32), poison(dtype, m, n)),
            lambda a, w, b, begin=(y, x): (None, None, _region_wanted(begin, a, b)),
        )


def _tiles(m: int, n: int, bm: int, bn: int, dtype: str, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(A: T.Tensor((m, n), dtype), B: T.Tensor((n, m), dtype)):
            with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
                S = T.alloc_shared((bm, bn), dtype)
                T.copy(A[by * bm, bx * bn], S)
                for i, j in T.Parallel(bn, bm):
                    B[bx * bn + i, by * bm + j] = S[j, i]

        return main

    return define


@operator
def transpose_by_tiles() -> Iterator[Case]:
    """Tiles that stick out of the tensor on both sides, written along the other axis."""
    for m, n, dtype, threads in grid():
        yield Case(
            f"transpose {m}x{n} in 32x16 {dtype} {threads} threads",
            _tiles(m, n, 32, 16, dtype, threads),
            (data(dtype, m, n), poison(dtype, n, m)),
            lambda a, b: (None, a.T),
        )


def _elementwise(m: int, n: int, dtype: str, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(
            A: T.Tensor((m, n), dtype),
            r: T.Tensor((m,), dtype),
            c: T.Tensor((n,), dtype),
            B: T.Tensor((m, n), dtype),
        ):
            with T.Kernel(1, threads=threads):
                F = T.alloc_fragment((m, n), dtype)
                row = T.alloc_fragment((m,), dtype)
                column = T.alloc_fragment((n,), dtype)
                T.copy(A, F)
                T.copy(r, row)
                T.copy(c, column)
                for i, j in T.Parallel(m, n):
                    F[i, j] = T.max(F[i, j], row[i]) + column[j]
                T.copy(F, B)

        return main

    return define


@operator
def elementwise() -> Iterator[Case]:
    """Fragments with row and column values: replication in both directions."""
    for m, n, dtype, threads in grid():
        yield Case(
            f"elementwise {m}x{n} {dtype} {threads} threads",
            _elementwise(m, n, dtype, threads),
            (data(dtype, m, n), data(dtype, m), data(dtype, n), poison(dtype, m, n)),
            lambda a, r, c, b: (None, None, None, torch.maximum(a, r[:, None]) + c),
        )


def _fill(scope: str, m: int, n: int, dtype: str, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(B: T.Tensor((m, n), dtype)):
            with T.Kernel(1, threads=threads):
                alloc = T.alloc_shared if scope == "shared" else T.alloc_fragment
                buffer = alloc((m, n), dtype)
                T.fill(buffer, 3)
                T.copy(buffer, B)

        return main

    return define


@operator
def fill() -> Iterator[Case]:
    """Shared memory and fragments filled whole."""
    for m, n, dtype, threads in grid():
        for scope in ("shared", "fragment"):
            yield Case(
                f"fill {scope} {m}x{n} {dtype} {threads} threads",
                _fill(scope, m, n, dtype, threads),
                (poison(dtype, m, n),),
                lambda b: (torch.full_like(b, 3),),
            )


def _cast(m: int, n: int, source: str, target: str, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(A: T.Tensor((m, n), source), B: T.Tensor((m, n), target)):
            with T.Kernel(1, threads=threads):
                F = T.alloc_fragment((m, n), target)
                T.copy(A, F)
                T.copy(F, B)

        return main

    return define


@operator
def cast() -> Iterator[Case]:
    """Copies between dtypes."""
    turn = itertools.count()
    for source, target in itertools.permutations(
        ("float16", "bfloat16", "float32", "int8", "int32"), 2
    ):
        for m, n in dict.fromkeys(pairs()):
            threads = THREADS[next(turn) % len(THREADS)]
            yield Case(
                f"cast {source} to {target} {m}x{n} {threads} threads",
                _cast(m, n, source, target, threads),
                (data(source, m, n), poison(target, m, n)),
                lambda a, b: (None, a.to(b.dtype)),
            )


def _reduce(m: int, n: int, dtype: str, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(
            A: T.Tensor((m, n), dtype), rows: T.Tensor((m,), dtype), columns: T.Tensor((n,), dtype)
        ):
            with T.Kernel(1, threads=threads):
                F = T.alloc_fragment((m, n), dtype)
                row = T.alloc_fragment((m,), dtype)
                column = T.alloc_fragment((n,), dtype)
                T.copy(A, F)
                T.reduce_max(F, row, dim=1)
                T.copy(row, rows)
                T.copy(columns, column)
                for i, j in T.Parallel(m, n):
                    F[i, j] = F[i, j] - row[i]
                T.reduce_min(F, column, dim=0, clear=False)
                T.copy(column, columns)

        return main

    return define


@operator
def reduce() -> Iterator[Case]:
    """Rows and columns of one fragment; the row's result is read in a loop over the tile."""
    for m, n, dtype, threads in grid():
        yield Case(
            f"reduce {m}x{n} {dtype} {threads} threads",
            _reduce(m, n, dtype, threads),
            (data(dtype, m, n), poison(dtype, m), data(dtype, n)),
            lambda a, r, c: (
                None,
                a.amax(1),
                torch.minimum((a - a.amax(1, keepdim=True)).amin(0), c),
            ),
        )


def _scan(m: int, n: int, dim: int, dtype: str, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(A: T.Tensor((m, n), dtype), B: T.Tensor((m, n), dtype)):
            with T.Kernel(1, threads=threads):
                S = T.alloc_shared((m, n), dtype)
                T.copy(A, S)
                T.cummax(S, dim=dim)
                T.copy(S, B)

        return main

    return define


@operator
def scan() -> Iterator[Case]:
    """Running maxima along both dimensions, in place."""
    for m, n, dtype, threads in grid():
        for dim in (0, 1):
            yield Case(
                f"scan {m}x{n} dim {dim} {dtype} {threads} threads",
                _scan(m, n, dim, dtype, threads),
                (data(dtype, m, n), poison(dtype, m, n)),
                lambda a, b, dim=dim: (None, a.cummax(dim).values),
            )


def _gemm(m: int, n: int, k: int, stages: int, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(
            A: T.Tensor((m, k), "float16"),
            B: T.Tensor((k, n), "float16"),
            C: T.Tensor((m, n), "float32"),
        ):
            with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=threads) as (bx, by):
                S = T.alloc_shared((64, 32), "float16")
                W = T.alloc_shared((32, 64), "float16")
                F = T.alloc_fragment((64, 64), "float32")
                T.clear(F)
                for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=stages):
                    T.copy(A[by * 64, ko * 32], S)
                    T.copy(B[ko * 32, bx * 64], W)
                    T.gemm(S, W, F)
                T.copy(F, C[by * 64, bx * 64])

        return main

    return define


@operator
def gemm() -> Iterator[Case]:
    """The pipelined GEMM at sizes that its tiles do not divide."""
    turn = itertools.count()
    for m, n in dict.fromkeys(pairs()):
        for stages in (0, 1, 2, 3):
            step = next(turn)
            k, threads = EXTENTS[step % len(EXTENTS)], (32, 64, 128, 256)[step % 4]
            yield Case(
                f"gemm {m}x{n}x{k} stages {stages} {threads} threads",
                _gemm(m, n, k, stages, threads),
                (data("float16", m, k), data("float16", k, n), poison("float32", m, n)),
                lambda a, b, c: (None, None, a.double() @ b.double()),
                tolerance=1e-5,
            )


def _gemm_form(
    tile: tuple[int, int, int], dtype: str, accum: str, form: str, threads: int
) -> Callable[[], object]:
    m, n, k = tile
    shape_a = (k, m) if form[0].isupper() else (m, k)
    shape_b = (n, k) if form[1].isupper() else (k, n)

    def define() -> object:
        @T.prim_func
        def main(
            A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((m, n), accum)
        ):
            with T.Kernel(1, threads=threads):
                alloc = {"s": T.alloc_shared, "f": T.alloc_fragment}
                a = alloc[form[0].lower()](shape_a, dtype)
                b = alloc[form[1].lower()](shape_b, dtype)
                c = T.alloc_fragment((m, n), accum)
                T.copy(A, a)
                T.copy(B, b)
                T.clear(c)
                T.gemm(a, b, c, form[0].isupper(), form[1].isupper())
                T.copy(c, C)

        return main

    return define


@operator
def gemm_forms() -> Iterator[Case]:
    """One gemm by dtype, memories and transposes of the operands; whole numbers, so exact."""
    turn = itertools.count()
    types = (("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"))
    types += (("float32", "float32"), ("float64", "float64"), ("int8", "int32"), ("uint8", "int32"))
    for (dtype, accum), (m, n) in itertools.product(
        types, ((16, 8), (33, 24), (64, 48), (60, 100))
    ):
        for form in ("ss", "Ss", "sS", "SS", "fs", "Fs", "sf", "sF", "ff", "FF"):
            step = next(turn)
            k, threads = (8, 16, 17, 32, 50, 64)[step % 6], THREADS[step % len(THREADS)]
            a, b = (
                torch.randint(0, 4, shape).to(getattr(torch, dtype)) for shape in ((m, k), (k, n))
            )
            stored_a = a.T.contiguous() if form[0].isupper() else a
            stored_b = b.T.contiguous() if form[1].isupper() else b
            yield Case(
                f"gemm {form} {m}x{n}x{k} {dtype} {accum} {threads} threads",
                _gemm_form((m, n, k), dtype, accum, form, threads),
                (stored_a, stored_b, poison(accum, m, n)),
                lambda x, y, c, a=a, b=b: (None, None, a.double() @ b.double()),
            )


def _atomic(op: str, m: int, n: int, dtype: str, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(
            A: T.Tensor((m, n), dtype),
            whole: T.Tensor((m, n), dtype),
            columns: T.Tensor((n,), dtype),
        ):
            with T.Kernel(2, threads=threads):
                F = T.alloc_fragment((m, n), dtype)
                T.copy(A, F)
                atomic = {"add": T.atomic_add, "max": T.atomic_max, "min": T.atomic_min}[op]
                atomic(whole, F)
                for i, j in T.Parallel(m, n):
                    atomic(columns[j], F[i, j])

        return main

    return define


@operator
def atomic() -> Iterator[Case]:
    """Tiles and elements, from two blocks; whole numbers, so the order makes no difference."""
    turn = itertools.count()
    for m, n in dict.fromkeys(pairs()):
        for dtype in (*FLOATS, "float64", "int32"):
            step = next(turn)
            op, threads = ("add", "max", "min")[step % 3], THREADS[step % len(THREADS)]
            if op == "add" and dtype in ("float16", "bfloat16") and m > 16:
                op = "max"  # sums beyond 256 would round
            a, whole, columns = (
                torch.randint(-3, 4, shape).to(getattr(torch, dtype))
                for shape in ((m, n), (m, n), (n,))
            )
            wanted = {
                "add": lambda a, w, c: (None, w + 2 * a, c + 2 * a.sum(0)),
                "max": lambda a, w, c: (None, torch.maximum(w, a), torch.maximum(c, a.amax(0))),
                "min": lambda a, w, c: (None, torch.minimum(w, a), torch.minimum(c, a.amin(0))),
            }
            yield Case(
                f"atomic {op} {m}x{n} {dtype} {threads} threads",
                _atomic(op, m, n, dtype, threads),
                (a, whole, columns),
                wanted[op],
            )


def _transpose(m: int, n: int, dtype: str, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(A: T.Tensor((m, n), dtype), B: T.Tensor((n, m), dtype)):
            with T.Kernel(1, threads=threads):
                S, V = T.alloc_shared((m, n), dtype), T.alloc_shared((n, m), dtype)
                T.copy(A, S)
                T.transpose(S, V)
                T.copy(V, B)

        return main

    return define


@operator
def transpose() -> Iterator[Case]:
    """T.transpose of whole tiles in shared memory."""
    for m, n, dtype, threads in grid():
        yield Case(
            f"transpose {m}x{n} {dtype} {threads} threads",
            _transpose(m, n, dtype, threads),
            (data(dtype, m, n), poison(dtype, n, m)),
            lambda a, b: (None, a.T),
        )


def _reducer(m: int, n: int, dtype: str, threads: int) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(
            A: T.Tensor((m, n), dtype), rows: T.Tensor((m,), dtype), columns: T.Tensor((n,), dtype)
        ):
            with T.Kernel(1, threads=threads):
                row = T.alloc_reducer((m,), dtype, "sum")
                column = T.alloc_reducer((n,), dtype, "max")
                r, c = T.alloc_fragment((m,), dtype), T.alloc_fragment((n,), dtype)
                T.reducer_init(row)
                T.reducer_init(column)
                for i, j in T.Parallel(m, n):
                    T.reducer_update(row[i], A[i, j])
                    T.reducer_update(column[j], A[i, j])
                T.finalize_reducer(row, r)
                T.finalize_reducer(column, c)
                T.copy(r, rows)
                T.copy(c, columns)

        return main

    return define


@operator
def reducer() -> Iterator[Case]:
    """Sums of rows and maxima of columns gathered in one loop."""
    for m, n, dtype, threads in grid():
        if dtype == "int8" or dtype == "uint8":
            continue  # sums wrap, torch's do not
        yield Case(
            f"reducer {m}x{n} {dtype} {threads} threads",
            _reducer(m, n, dtype, threads),
            (
                torch.randint(-1, 2, (m, n)).to(getattr(torch, dtype)),
                poison(dtype, m),
                poison(dtype, n),
            ),
            lambda a, r, c: (None, a.sum(1), a.amax(0)),
        )


def _im2col(size: int, channels: int, kernel: int, stride: int, pad: int, dtype: str, threads: int):
    out = (size + 2 * pad - kernel) // stride + 1
    rows, depth = out * out, kernel * kernel * channels

    def define() -> object:
        @T.prim_func
        def main(A: T.Tensor((1, size, size, channels), dtype), B: T.Tensor((rows, depth), dtype)):
            with T.Kernel(T.ceildiv(depth, 16), T.ceildiv(rows, 32), threads=threads) as (bx, by):
                S = T.alloc_shared((32, 16), dtype)
                T.im2col(A, S, by, bx, kernel, stride, 1, pad)
                T.copy(S, B[by * 32, bx * 16])

        return main

    return define


@operator
def im2col() -> Iterator[Case]:
    """Convolution windows of images of odd sizes, tile by tile."""
    turn = itertools.count()
    for size, kernel, stride, pad in itertools.product((5, 8, 11), (1, 3), (1, 2), (0, 1)):
        for channels, dtype in itertools.product((1, 3, 8, 16), ("float16", "float32", "int8")):
            threads = THREADS[next(turn) % len(THREADS)]
            image = data(dtype, 1, size, size, channels)
            out = (size + 2 * pad - kernel) // stride + 1
            padded = torch.nn.functional.pad(image.double(), (0, 0, pad, pad, pad, pad))
            windows = padded.unfold(1, kernel, stride).unfold(2, kernel, stride)
            wanted = windows[0].permute(0, 1, 3, 4, 2).reshape(out * out, -1)
            yield Case(
                f"im2col {size} x {channels}, kernel {kernel}, stride {stride}, pad {pad}, "
                f"{dtype} {threads} threads",
                _im2col(size, channels, kernel, stride, pad, dtype, threads),
                (image, poison(dtype, out * out, kernel * kernel * channels)),
                lambda a, b, wanted=wanted: (None, wanted),
            )
