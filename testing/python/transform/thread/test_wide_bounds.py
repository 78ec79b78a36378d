"""Indices and their guards are mathematical integers, whatever they are computed from."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator.reports import EmulationError

N = 1024
EDGES = [0, 1, -1, 7, -7, 64, 2**20, 2**24, 2**25, 2**25 + 1, 2**26, -(2**25), 2**28, 2**30]
EDGES += [2**31 - 1, 2**31 - 128, -(2**31), 1 - 2**31, 65536, 46341, -65536]
# An index of an unknown x and a thread's number i. Each is written as Python computes it.
FORMS = {
    "sum": lambda x, i: x + i,
    "difference": lambda x, i: x - i,
    "reverse": lambda x, i: i - x,
    "negated": lambda x, i: -x + i,
    "row": lambda x, i: x * 128 + i,
    "negative row": lambda x, i: i - x * 128,
    "stride": lambda x, i: i * x,
    "square": lambda x, i: x * x + i,
    "cancelled": lambda x, i: (x * 128 + i) - x * 127,
    "parts": lambda x, i: x * 64 + x * 64 + i,
    "shift": lambda x, i: (x << 7) + i,
    "shifts": lambda x, i: ((x << 3) >> 3) + i,
    "quotient of a product": lambda x, i: x * 128 // 64 + i,
    "remainder of a product": lambda x, i: x * 1000003 % 1024 + i * 0,
    "remainder of a sum": lambda x, i: (x + i) % 1000,
    "remainder of a negative": lambda x, i: (i - x) % 1000,
    "rounded down": lambda x, i: x // 128 * 128 + i,
    "bits": lambda x, i: (x * 9 & 1023) + i * 0,
    "inverted": lambda x, i: ~x + i,
}
DIVISIONS = {
    "by x": lambda x, i: (i * 5 - 17) // x + 20,
    "rest by x": lambda x, i: (i * 5 - 17) % x,
    "group": lambda x, i: i // x * x,
    "ceiling": lambda x, i: -(-i // x),
    "x by sums": lambda x, i: x // (i + 1) + x % (i + 1),
}
THREADS = 32


def element(index):
    return index + 1 if 0 <= index < N else 0


def program(forms, source, dtype="int32"):
    """Reads A and writes W at each form's index of `source`."""
    count = len(forms)

    @T.prim_func
    def main(
        A: T.Tensor((N,), "int32"),
        L: T.Tensor((THREADS,), dtype),
        C: T.Tensor((count, THREADS), "int32"),
        W: T.Tensor((count, THREADS, N), "int8"),
        k: T.int32,
    ):
        with T.Kernel(1, threads=THREADS):
            i = T.get_thread_binding()
            v = T.alloc_var(dtype)
            v = L[i]
            name = L[i]
            for n, form in enumerate(forms):
                if source == "scalar":
                    index = form(k, i)
                elif source == "element":
                    index = form(L[i], i)
                elif source == "variable":
                    index = form(v, i)
                elif source == "name":
                    index = form(name, i)
                C[n, i] = A[index]
                W[n, i, index] = T.int8(1)

    return tilelang.compile(main, execution_backend="emulate")


def check(forms, source, values, dtype="int32"):
    kernel = program(list(forms.values()), source, dtype)
    numbers = torch.arange(1, N + 1, dtype=torch.int32)
    kind = getattr(torch, dtype)
    runs = [[v] * THREADS for v in values]
    if source != "scalar":  # all edges in a few launches
        many = (values * THREADS)[: -(-len(values) // THREADS) * THREADS]
        runs = [many[a : a + THREADS] for a in range(0, len(many), THREADS)] + runs[:1]
    for run in runs:
        found = torch.full((len(forms), THREADS), -1, dtype=torch.int32)
        written = torch.zeros(len(forms), THREADS, N, dtype=torch.int8)
        k = run[0] if source == "scalar" else 0
        kernel(numbers, torch.tensor(run, dtype=kind), found, written, k)
        for n, (name, form) in enumerate(forms.items()):
            wanted = [form(x, i) for i, x in enumerate(run)]
            assert found[n].tolist() == [element(w) for w in wanted], (name, run)
            places = [[w] if 0 <= w < N else [] for w in wanted]
            assert [row.nonzero().flatten().tolist() for row in written[n]] == places, (name, run)


SOURCES = ["scalar", "element", "variable", "name"]


@pytest.mark.parametrize("source", SOURCES)
def test_indices_of_unknown_int32(source):
    check(FORMS, source, EDGES)


@pytest.mark.parametrize("source", SOURCES)
def test_divisors_of_unknown_sign(source):
    # The least number by -1 is one that int32 does not have, and outside of every int32 extent.
    check(DIVISIONS, source, [v for v in EDGES if v])


def test_indices_of_unknown_int64():
    forms = {n: FORMS[n] for n in ("sum", "difference", "reverse", "row", "stride", "square")}
    edges = [*EDGES, 2**57, 2**56 + 1, -(2**57), 2**62, 2**63 - 1, -(2**63), 2**32, -(2**40)]
    check(forms, "element", edges, "int64")
    check({**forms, **DIVISIONS}, "variable", [e for e in edges if e], "int64")


def test_a_name_is_its_expression_in_an_index_and_wraps_as_a_value():
    @T.prim_func
    def main(
        A: T.Tensor((N,), "int32"),
        L: T.Tensor((THREADS,), "int32"),
        C: T.Tensor((4, THREADS), "int32"),
        k: T.int32,
    ):
        with T.Kernel(1, threads=THREADS):
            i = T.get_thread_binding()
            q = k * 64
            r = L[i] * 64
            s = r + q
            C[0, i] = A[q + i]
            C[1, i] = A[r + i]
            C[2, i] = A[s + i]
            C[3, i] = r

    kernel = tilelang.compile(main, execution_backend="emulate")
    numbers = torch.arange(1, N + 1, dtype=torch.int32)
    values = (EDGES * 2)[:THREADS]
    for k in EDGES:
        found = torch.zeros(4, THREADS, dtype=torch.int32)
        kernel(numbers, torch.tensor(values, dtype=torch.int32), found, k)
        at = list(enumerate(values))
        assert found[0].tolist() == [element(k * 64 + i) for i, _ in at]
        assert found[1].tolist() == [element(x * 64 + i) for i, x in at]
        assert found[2].tolist() == [element(x * 64 + k * 64 + i) for i, x in at]
        assert found[3].tolist() == [(x * 64 + 2**31) % 2**32 - 2**31 for x in values]


def test_division_by_zero_is_a_report():
    kernel = program([lambda x, i: i // x], "scalar")
    arguments = [torch.zeros(N, dtype=torch.int32), torch.zeros(THREADS, dtype=torch.int32)]
    arguments += [torch.zeros(1, THREADS, dtype=torch.int32)]
    arguments += [torch.zeros(1, THREADS, N, dtype=torch.int8)]
    with pytest.raises(EmulationError, match=r"(?s)test_wide_bounds.py:\d+.*division by zero"):
        kernel(*arguments, 0)
    kernel(*arguments, 1)


BIG = 2**31 + 2**14


def test_tensors_of_more_than_int32():
    @T.prim_func
    def main(
        A: T.Tensor((BIG,), "int8"),
        L: T.Tensor((8,), "int32"),
        C: T.Tensor((4, 8, 128), "int8"),
        k: T.int32,
    ):
        with T.Kernel(8, threads=128) as bx:
            tx = T.get_thread_binding()
            C[0, bx, tx] = A[L[bx] * 128 + tx]
            C[1, bx, tx] = A[(k + bx) * 128 + tx]
            row = L[bx] * 128
            C[2, bx, tx] = A[row + tx]
            T.copy(A[L[bx] * 128 : L[bx] * 128 + 128], C[3, bx, :])

    kernel = tilelang.compile(main, execution_backend="emulate", checks=False)
    rows = [0, 2**24, 2**24 + 127, 2**24 + 128, -1, 2**25, -(2**31), 2**31 - 1]
    a = torch.zeros(BIG, dtype=torch.int8)  # pages that nobody touches are not there
    a[2**31 :] = torch.arange(2**14).to(torch.int8)
    a[:128] = 5

    def row(r):
        return a[r * 128 : r * 128 + 128] if 0 <= r * 128 < BIG else torch.zeros(128).to(torch.int8)

    found = torch.full((4, 8, 128), 99, dtype=torch.int8)
    kernel(a, torch.tensor(rows, dtype=torch.int32), found, 2**24 - 4)
    wanted = torch.stack([row(r) for r in rows])
    assert torch.equal(found[0], wanted)
    assert torch.equal(found[1], torch.stack([row(2**24 - 4 + b) for b in range(8)]))
    assert torch.equal(found[2], wanted)
    assert torch.equal(found[3], wanted)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("stages", [0, 2])
def test_tiles_that_begin_beyond_int32(arch, stages):
    """Vectors, cp.async and TMA: what lies outside reads zeros and is not written."""

    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float16"),
        L: T.Tensor((8,), "int32"),
        C: T.Tensor((8, 16, 64), "float16"),
        W: T.Tensor((256, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((16, 64), "float16")
            for b in T.Pipelined(8, num_stages=stages):
                T.copy(A[L[b] * 16, 0], S)
                T.copy(S, C[b, :, :])
            for b in T.serial(8):
                T.copy(C[b, :, :], W[L[b] * 16 : L[b] * 16 + 16, :])

    kernel = tilelang.compile(main, target=f"cuda -arch={arch}", execution_backend="emulate")
    rows = [3, 2**28, 2**28 + 3, -(2**28), 15, 16, 2**27, -(2**31)]
    a = torch.randn(256, 64).to(torch.float16)
    found, written = torch.zeros(8, 16, 64).to(torch.float16), torch.zeros(256, 64).half()
    kernel(a, torch.tensor(rows, dtype=torch.int32), found, written)
    inside = [r for r in rows if 0 <= r < 16]
    for b, r in enumerate(rows):
        wanted = a[r * 16 : r * 16 + 16] if r in inside else torch.zeros(16, 64).half()
        assert torch.equal(found[b], wanted), r
    for r in range(16):
        wanted = a[r * 16 : r * 16 + 16] if r in inside else torch.zeros(16, 64).half()
        assert torch.equal(written[r * 16 : r * 16 + 16], wanted), r


# An index, the value of x for which int32 would wrap into the tensor, and one that is inside.
PLANTED = {
    "sentinel in a table of rows": (lambda x, i: x * 128 + i, 2**25, 3),
    "sentinel below": (lambda x, i: x * 128 + i, -(2**25) + 1, 1),
    "page and offset": (lambda x, i: (x * 16 + 3) * 8 + i, 2**26, 2),
    "stride of a run": (lambda x, i: i * x, 2**29, 33),
    "square": (lambda x, i: x * x + i, 65536, 5),
    "shift": (lambda x, i: (x << 6) + i, 2**26, 4),
    "two parts": (lambda x, i: x * 32 + x * 32 + i, 2**26, 9),
    "backwards": (lambda x, i: 64 - x * 256 + i, 2**24, -1),
    "twice": (lambda x, i: x + x + i, 2**31 - 1, 9),
    "rounded": (lambda x, i: (x * 4 + 3) // 4 * 4 + i, 2**30, 3),
}


@pytest.mark.parametrize("source", ["scalar", "element"])
def test_what_int32_would_bring_back_into_the_tensor(source):
    def wrapped(n):
        return (n + 2**31) % 2**32 - 2**31

    for form, wrong, _ in PLANTED.values():
        index = form(wrong, 8)
        assert not 0 <= index < N
        assert 0 <= wrapped(index) < N
    for name, (form, wrong, inside) in PLANTED.items():
        check({name: form}, source, [wrong])
        assert 0 <= form(inside, 8) < N
        check({name: form}, source, [inside])


def test_a_comparison_is_of_the_integers_that_the_access_has():
    """The condition proves the bounds, so it may not wrap where the index does not."""

    @T.prim_func
    def main(A: T.Tensor((N,), "int32"), C: T.Tensor((2, THREADS), "int32"), k: T.int32):
        with T.Kernel(1, threads=THREADS):
            i = T.get_thread_binding()
            if k * 128 + i >= 0 and k * 128 + i < N:
                C[0, i] = A[k * 128 + i]
            if k + 100 > i:
                C[1, i] = 1

    kernel = tilelang.compile(main, execution_backend="emulate")
    numbers = torch.arange(1, N + 1, dtype=torch.int32)
    for k in EDGES:
        found = torch.zeros(2, THREADS, dtype=torch.int32)
        kernel(numbers, found, k)
        assert found[0].tolist() == [element(k * 128 + i) for i in range(THREADS)]
        assert found[1].tolist() == [int(k + 100 > i) for i in range(THREADS)]


@pytest.mark.parametrize("k", [1, 2, 3, 8, 100])
def test_divisors_in_loops_and_regions(k):
    """A scalar divides an index of a tile, and says how long a loop and a slice are."""

    @T.prim_func
    def main(
        A: T.Tensor((8, 64), "int32"),
        L: T.Tensor((1,), "int32"),
        C: T.Tensor((8, 4, 64), "int32"),
        k: T.int32,
    ):
        with T.Kernel(8, threads=32) as bx:
            f = T.alloc_fragment((64,), "int32")
            T.copy(A[(bx // k) * k % 8, 0:64], f)
            T.copy(f, C[bx, 0, :])
            T.copy(A[bx, 0:k], C[bx, 1, 0:k])
            for i, j in T.Parallel(1, k):
                C[bx, 2 + i, j] = A[bx // L[0], j]
            tx = T.get_thread_binding()
            C[bx, 3, tx] = A[T.ceildiv(bx, k), tx % L[0]]

    kernel = tilelang.compile(main, execution_backend="emulate")
    a = torch.arange(512, dtype=torch.int32).reshape(8, 64)
    found = torch.zeros(8, 4, 64, dtype=torch.int32)
    kernel(a, torch.tensor([k], dtype=torch.int32), found, k)
    columns = torch.arange(32)
    for b in range(8):
        assert torch.equal(found[b, 0], a[b // k * k % 8])
        assert torch.equal(found[b, 1, :k], a[b, :k])
        assert torch.equal(found[b, 2, :k], a[b // k, :k])
        assert torch.equal(found[b, 3, :32], a[-(-b // k), columns % k])
