"""Atomic operations: elements and tiles, in every memory and dtype, and the programs refused."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = ["float16", "bfloat16", "float32", "float64", "int32", "uint32", "int64", "uint64"]


def numbers(shape, dtype):
    """Small whole numbers: their sums are exact in every dtype, in every order."""
    return torch.randint(0, 8, shape, device=DEVICE).to(getattr(torch, dtype))


def exact(x):
    return x.to(torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements(dtype):
    n = 100

    @T.prim_func
    def main(A: T.Tensor((n,), dtype), C: T.Tensor((8,), dtype), P: T.Tensor((n,), "int64")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((2,), dtype)
            for i in T.Parallel(2):
                S[i] = 3
            for i in T.Parallel(n):
                T.atomic_add(C[i % 3], A[i])
                T.atomic_max(C[3], A[i] + i)
                T.atomic_min(C[4], A[i] + i + 5, memory_order="seq_cst")
                old = T.atomic_add(S[1], 1, return_prev=True)
                P[i] = T.cast(old, "int64")
                T.atomic_max(S[0], A[i], memory_order="acq_rel")
            C[5] = S[0]
            T.atomic_store(C[6], T.atomic_load(S[1], "relaxed"), "release")

    kernel = tilelang.compile(main)
    a, c = numbers((n,), dtype), numbers((8,), dtype).fill_(50)
    previous = torch.zeros(n, dtype=torch.int64, device=DEVICE)
    kernel(a, c, previous)
    values = exact(a)
    ramp = values + torch.arange(n, device=DEVICE)
    wanted = [50 + values[k::3].sum() for k in range(3)]
    wanted += [max(50, ramp.max()), min(50, (ramp + 5).min()), max(3, values.max()), n + 3, 50]
    assert exact(c).tolist() == [float(w) for w in wanted]
    assert sorted(previous.tolist()) == list(range(3, n + 3))


@pytest.mark.parametrize(
    ("dtype", "arch", "vector"),
    [
        ("float32", "sm_80", None),
        ("float32", "sm_90", "float, 4"),
        ("float16", "sm_80", "half_t, 2"),
        ("bfloat16", "sm_90", "bfloat16_t, 2"),
        ("float64", "sm_90", None),
        ("int32", "sm_90", None),
    ],
)
def test_shared_tile_is_added_in_the_widest_vectors(dtype, arch, vector):
    @T.prim_func
    def main(A: T.Tensor((100, 60), dtype), C: T.Tensor((60, 60), dtype)):
        with T.Kernel(2, threads=96) as bx:
            S = T.alloc_shared((50, 64), dtype)
            T.copy(A[bx * 50, 0], S)
            T.atomic_add(C[17, 0], S)

    backend = "auto" if arch == "sm_90" else "emulate"
    kernel = tilelang.compile(main, target=f"cuda -arch={arch}", execution_backend=backend)
    call = next(s for s in kernel.get_kernel_source().splitlines() if "tl::atomic_add" in s)
    assert ("tl::load<" + vector in call) if vector else "tl::load" not in call
    device = DEVICE if backend == "auto" else "cpu"
    a, c = numbers((100, 60), dtype).to(device), numbers((60, 60), dtype).to(device)
    wanted = exact(c)
    wanted[17:] += (exact(a)[:50] + exact(a)[50:])[:43]
    kernel(a, c)
    assert torch.equal(exact(c), wanted)


@pytest.mark.parametrize(("threads", "m", "n"), [(32, 3, 17), (128, 60, 64), (256, 129, 100)])
def test_fragment_tiles(threads, m, n):
    @T.prim_func
    def main(
        A: T.Tensor((m, n), "float32"),
        C: T.Tensor((m, n), "float16"),
        D: T.Tensor((m, n), "float32"),
        E: T.Tensor((n,), "int32"),
    ):
        with T.Kernel(3, threads=threads):
            F = T.alloc_fragment((m, n), "float32")
            T.copy(A, F)
            T.atomic_add(C, F)
            T.atomic_max(D, F)
            T.atomic_add(E[0:n], 2)
            T.atomic_or(E, 1)

    a, c = numbers((m, n), "float32"), numbers((m, n), "float16")
    d, e = numbers((m, n), "float32"), torch.full((n,), 16, dtype=torch.int32, device=DEVICE)
    wanted = exact(c) + 3 * exact(a)
    largest = torch.maximum(a, d)
    tilelang.compile(main)(a, c, d, e)
    assert torch.equal(exact(c), wanted)
    assert torch.equal(d, largest)
    # 16 + 2, or 1, and so on: the low bit stays in every order of the blocks' operations.
    assert torch.equal(e, torch.full_like(e, 23))


def test_vectors_of_two_and_four():
    @T.prim_func
    def main(
        A: T.Tensor((64,), "float32"),
        C: T.Tensor((66,), "float32"),
        D: T.Tensor((4,), "bfloat16"),
        P: T.Tensor((2,), "float16"),
        H: T.Tensor((2,), "float16"),
    ):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            T.atomic_addx2(C[2 * tx], A[2 * tx])
            # The last of these is not inside.
            T.atomic_addx4(C[4 * tx], A[0:4])
            T.atomic_addx4(D, T.bfloat16x4(1.0, 2.0, 3.0, 4.0))
            if tx == 0:
                old = T.atomic_addx2(H[0], T.float16x2(1.0, 2.0), return_prev=True)
                P[0] = T.extract_lane(old, 0)
                P[1] = T.extract_lane(old, 1)

    a, c, h = numbers((64,), "float32"), numbers((66,), "float32"), numbers((2,), "float16")
    d, p = torch.zeros(4, dtype=torch.bfloat16, device=DEVICE), torch.zeros_like(h)
    wanted, before = c.clone(), h.clone()
    wanted[:64] += a + a[:4].repeat(16)
    tilelang.compile(main)(a, c, d, p, h)
    assert torch.equal(c, wanted)
    assert d.tolist() == [32, 64, 96, 128]
    assert torch.equal(p, before)
    assert (h - before).tolist() == [1, 2]


def test_what_is_outside_is_left_alone_and_yields_zero():
    @T.prim_func
    def main(A: T.Tensor((40,), "int32"), P: T.Tensor((96,), "int32"), n: T.int32):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            P[tx] = T.atomic_add(A[tx - n], 1, return_prev=True)

    a, p = torch.arange(40, device=DEVICE).int(), torch.full((96,), -1, device=DEVICE).int()
    tilelang.compile(main)(a, p, 7)
    assert torch.equal(a, torch.arange(1, 41, device=DEVICE).int())
    assert p.tolist() == [0] * 7 + list(range(40)) + [0] * 49


def test_barriers_stand_between_atomics_and_plain_accesses_only():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            S = T.alloc_shared((4,), "int32")
            if tx < 4:
                S[tx] = 0
            T.atomic_add(S[tx % 3], 1)
            T.atomic_max(S[3], tx)
            T.atomic_add(S[tx % 2], 1)
            A[tx] = S[tx % 4]

    kernel = tilelang.compile(main)
    lines = [s.strip() for s in kernel.get_kernel_source().splitlines()]
    marks = [s for s in lines if s == "__syncthreads();" or ("atomic" in s and "#" not in s)]
    assert [s.startswith("__sync") for s in marks] == [True, False, False, False, True]
    a = torch.zeros(128, dtype=torch.int32, device=DEVICE)
    kernel(a)
    assert a.tolist() == [43 + 64, 43 + 64, 42, 127] * 32


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        ("T.atomic_add(A[0, 0], 1, use_tma=True)", ValueError, "wanted a tile of shared memory"),
        ("T.atomic_add(A, B, 'release', use_tma=True)", ValueError, "and order relaxed"),
        ("T.atomic_add(A, B, return_prev=True)", NotImplementedError, "T.Parallel"),
        ("T.atomic_add(A[0, 0], 1, 'weak')", ValueError, "relaxed, consume"),
        ("T.atomic_load(A[0, 0], 'release')", ValueError, "acquire, seq_cst"),
        ("T.atomic_store(A[0, 0], 1, 'acquire')", ValueError, "release, seq_cst"),
        ("T.atomic_load(A)", TypeError, "an element"),
        ("T.atomic_or(A[0, 0], 1)", ValueError, "of dtype float32"),
        ("T.atomic_add(T.alloc_local((2,), 'int32')[0], 1)", ValueError, "global or shared"),
        ("T.atomic_add(T.alloc_shared((2,), 'int8')[0], 1)", ValueError, "of dtype int8"),
        ("T.atomic_add(A, T.alloc_shared((7, 16), 'float32'))", ValueError, "equal shapes"),
        ("T.atomic_add(3, B)", TypeError, "destination of T.atomic_add is 3"),
        ("T.atomic_addx2(A[0, 0], T.float16x2(1, 2))", ValueError, "wanted a float32x2"),
        ("T.atomic_addx2(A[0, 0:4], B[0, 0])", ValueError, "2 elements"),
    ],
)
def test_refused(trace, statement, error, words):
    with pytest.raises(error, match=words) as raised:
        trace(statement)
    assert "<kernel" in str(raised.value)


def test_a_tile_prints_and_parses_back(trace, body, round_trip):
    program = trace("T.atomic_add(A[2, 0:8], B[1, 0:8], memory_order='release')")
    text = 'T.tl.atomic(A[2, 0:8], B[1, 0:8], "add", "release")'
    assert text in body(program)
    round_trip(program)


def row_values(body):
    """A kernel over a tile whose row values every thread of a row holds."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float32"),
        R: T.Tensor((64,), "float32"),
        C: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64, 64), "float32")
            r = T.alloc_fragment((64,), "float32")
            T.copy(A, F)
            T.copy(R, r)
            for i in T.Parallel(64):
                body(i, r, C)
            for i, j in T.Parallel(64, 64):
                F[i, j] = F[i, j] + r[i]
            T.copy(F, A)

    return main


def test_replicas_operate_on_memory_once_and_on_their_registers_each():
    @T.macro
    def body(i, r, C):
        r[i] = r[i] + 1.0
        T.atomic_add(C[i], r[i])

    a, r, c = (numbers(s, "float32") for s in ((64, 64), (64,), (64,)))
    wanted = a + r[:, None] + 1, c + r + 1
    tilelang.compile(row_values(body))(a, r, c)
    assert torch.equal(a, wanted[0])
    assert torch.equal(c, wanted[1])


def test_old_values_for_several_replicas_are_refused():
    @T.macro
    def body(i, r, C):
        r[i] = T.atomic_add(C[i], 1.0, return_prev=True)

    with pytest.raises(ValueError, match="several threads run for each element"):
        tilelang.compile(row_values(body))


@pytest.mark.parametrize(
    ("dtype", "call"),
    [
        ("float32", "tl::atomic_add<tl::relaxed>(C + o * 128 + tx, A[o * 128 + tx])"),
        ("float16", "(C + o * 256 + tx * 2, tl::load<half_t, 2>(A + o * 256 + tx * 2))"),
    ],
)
def test_loops_of_elements_give_neighbours_to_neighbouring_threads(dtype, call):
    @T.prim_func
    def main(A: T.Tensor((32, 64), dtype), C: T.Tensor((32, 64), dtype)):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(32, 64):
                T.atomic_add(C[i, j], A[i, j])

    assert call in tilelang.lower(main, target="cuda -arch=sm_80").kernel_source


def test_instructions_are_those_of_the_memory():
    """One on a generic address is slower, and of floats a branch and a loop besides."""

    @T.prim_func
    def main(A: T.Tensor((256,), "int32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=256):
            counts = T.alloc_shared((64,), "int32")
            T.clear(counts)
            for j in T.Parallel(256):
                T.atomic_add(counts[A[j] % 64], 1)
                T.atomic_add(C[A[j] % 64], 1.0)
                A[j] = T.atomic_max(counts[A[j] % 32], 7, return_prev=True)

    sass = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="tvm_ffi").sass
    found = set(re.findall(r"\b(?:ATOM|RED)\w*", sass))
    assert found == {"ATOMS", "REDG"}


@pytest.mark.parametrize("dtype", ["int32", "uint64"])
def test_loads_and_stores_are_those_of_the_memory(dtype):
    @T.prim_func
    def main(A: T.Tensor((256,), "int32"), C: T.Tensor((256,), dtype)):
        with T.Kernel(1, threads=256):
            places = T.alloc_shared((256,), dtype)
            for j in T.Parallel(256):
                T.atomic_store(places[A[j] % 256], T.cast(j, dtype), "relaxed")
            for j in T.Parallel(256):
                T.atomic_store(C[j], T.atomic_load(places[A[j] % 256], "relaxed"), "relaxed")

    sass = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="tvm_ffi").sass
    found = set(re.findall(r"\b(?:LD|ST)(?!C)[A-Z]?\b", sass))
    assert found == {"LDG", "LDS", "STG", "STS"}
