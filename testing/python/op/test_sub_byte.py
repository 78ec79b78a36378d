"""int4, uint4 and float4_e2m1fn: two elements in a byte, in every scope."""

import pytest
import torch

import tilelang
import tilelang.language as T

DTYPES = ["int4", "uint4", "float4_e2m1fn"]
SM90 = {"kind": "cuda", "arch": "sm_90a"}


def random_bytes(device, *shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "threads"), [(4, 64, 32), (3, 6, 64)])
def test_elements_survive_every_scope_and_are_cast(
    compiled, device, unpacked, dtype, m, n, threads
):
    @T.prim_func
    def func(
        A: T.Tensor((m, n), dtype), B: T.Tensor((m, n), dtype), C: T.Tensor((m, n), "float16")
    ):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((m, n), dtype)
            F = T.alloc_fragment((m, n), dtype)
            T.copy(A, S)
            T.copy(S, F)
            T.copy(F, B)
            for i, j in T.Parallel(m, n):
                C[i, j] = T.cast(F[i, j], "float16") * 2

    a, b = random_bytes(device, m, n // 2), random_bytes(device, m, n // 2)
    c = torch.zeros(m, n, dtype=torch.float16, device=device)
    compiled(func)(a, b, c)
    assert torch.equal(a, b)
    assert torch.equal(c.double(), 2 * unpacked(a, dtype))


EDGES = {
    "int4": [(-9.5, -8), (-1.9, -1), (7.9, 7), (100.0, 7), (float("nan"), 0), (0.9, 0)],
    "uint4": [(-3.0, 0), (15.9, 15), (16.0, 15), (float("inf"), 15), (3.5, 3), (0.0, 0)],
    "float4_e2m1fn": [
        *((0.25, 0), (0.75, 1), (1.25, 1), (1.75, 2), (2.5, 2), (3.5, 4), (5.0, 4), (5.01, 6)),
        *((-0.26, -0.5), (1e9, 6), (-7.0, -6), (float("nan"), 6)),
    ],
}


@pytest.mark.parametrize("source", ["float32", "float16"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_round_and_saturate(compiled, device, unpacked, dtype, source):
    n = len(EDGES[dtype])

    @T.prim_func
    def func(A: T.Tensor((n,), source), B: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32):
            T.copy(A, B)

    b = random_bytes(device, n // 2)
    given, wanted = zip(*EDGES[dtype], strict=True)
    compiled(func)(torch.tensor(given, dtype=getattr(torch, source), device=device), b)
    assert unpacked(b, dtype).tolist() == list(wanted)


def test_integers_wrap_and_widen(compiled, device, unpacked):
    @T.prim_func
    def func(A: T.Tensor((32,), "int32"), B: T.Tensor((32,), "int4"), C: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            T.copy(A, B)
            for i in T.Parallel(32):
                C[i] = T.cast(T.cast(A[i], "uint4"), "int32")

    a, b = torch.arange(-16, 16, dtype=torch.int32), random_bytes("cpu", 16)
    a, b, c = a.to(device), b.to(device), torch.zeros(32, dtype=torch.int32, device=device)
    compiled(func)(a, b, c)
    assert unpacked(b, "int4").tolist() == [((v + 8) & 15) - 8 for v in range(-16, 16)]
    assert c.tolist() == [v & 15 for v in range(-16, 16)]


def test_a_symbolic_last_dimension_counts_elements(compiled, device):
    n = T.dynamic("n")

    @T.prim_func
    def func(
        A: T.Tensor((3, n * 2), "int4"), B: T.Tensor((3, n * 2), "int4"), L: T.Tensor((n,), "int8")
    ):
        with T.Kernel(T.ceildiv(n * 2, 64), threads=32) as bx:
            S = T.alloc_shared((3, 64), "int4")
            T.copy(A[0, bx * 64], S)
            T.copy(S, B[0, bx * 64])

    kernel = compiled(func)
    for size in (1, 17, 96):
        a, b = random_bytes(device, 3, size), random_bytes(device, 3, size)
        kernel(a, b, torch.zeros(size, dtype=torch.int8, device=device))
        assert torch.equal(a, b)


def test_outputs_are_allocated_packed(compiled, device):
    @T.prim_func
    def func(A: T.Tensor((4, 32), "float4_e2m1fn"), B: T.Tensor((4, 32), "float4_e2m1fn")):
        with T.Kernel(1, threads=32):
            T.copy(A, B)

    a = random_bytes(device, 4, 16)
    kernel = compiled(func, out_idx=-1)
    b = kernel(a)
    assert b.dtype == torch.float4_e2m1fn_x2
    assert torch.equal(b.view(torch.uint8), a)
    assert torch.equal(kernel(a.view(torch.float4_e2m1fn_x2)).view(torch.uint8), a)
    with pytest.raises(ValueError, match=r"expected 32, two float4_e2m1fn in a byte, at index 1"):
        kernel(random_bytes(device, 4, 32))


def test_a_fill_sets_both_halves(compiled, device, unpacked):
    @T.prim_func
    def func(B: T.Tensor((64,), "float4_e2m1fn"), C: T.Tensor((64,), "int4")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((64,), "float4_e2m1fn")
            T.fill(S, 1.5)
            T.copy(S, B)
            T.fill(C, -3)

    b, c = random_bytes(device, 32), random_bytes(device, 32)
    compiled(func)(b, c)
    assert unpacked(b, "float4_e2m1fn").tolist() == [1.5] * 64
    assert unpacked(c, "int4").tolist() == [-3.0] * 64


def test_half_a_byte_of_shared_memory_is_not_stored():
    @T.prim_func
    def func(A: T.Tensor((8, 6), "int4")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((6, 16), "int4")
            for i, j in T.Parallel(6, 8):
                S[i, 2 * j] = A[j, i]

    with pytest.raises(ValueError, match=r"py:\d+: found a store of one int4 element of S"):
        tilelang.lower(func)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
def test_neighbours_that_come_from_anywhere_are_stored_together(compiled, device, unpacked, dtype):
    n = T.dynamic("n")

    @T.prim_func
    def func(
        X: T.Tensor((n, 64), "float32"),
        order: T.Tensor((64,), "int32"),
        B: T.Tensor((n, 64), dtype),
    ):
        with T.Kernel(T.ceildiv(n, 4), threads=128) as bx:
            S = T.alloc_shared((4, 64), dtype)
            for i, j in T.Parallel(4, 64):
                S[i, j] = 0
                if bx * 4 + i < n:
                    S[i, j] = X[bx * 4 + i, order[j]] * (j // 32 + 1)
            for i, j in T.Parallel(4, 64):
                if bx * 4 + i < n:
                    B[bx * 4 + i, j] = S[i, 63 - j]

    rows = 7
    x = torch.randint(0, 4, (rows, 64), device=device).float()
    order = torch.randperm(64, device=device, dtype=torch.int32)
    b = random_bytes(device, rows, 32)
    compiled(func)(x, order, b)
    scale = torch.tensor([1, 2], device=device).repeat_interleave(32)
    wanted = (x[:, order.long()] * scale).double()
    assert torch.equal(unpacked(b, dtype), wanted.flip(1))


def test_arithmetic_needs_a_cast():
    @T.prim_func
    def func(A: T.Tensor((64,), "int4"), B: T.Tensor((64,), "int8")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                B[i] = T.cast(A[i] + A[i], "int8")

    with pytest.raises(ValueError, match=r"py:\d+: found arithmetic in int4.*Cast to int8"):
        tilelang.lower(func)


def test_an_odd_row_of_a_tensor_is_refused():
    with pytest.raises(ValueError, match=r"last dimension of a T\.Tensor of int4 is 7"):
        T.Tensor((4, 7), "int4")


@pytest.mark.parametrize("threads", [64, 128])
def test_threads_have_whole_bytes_though_a_loop_has_one_element_of_each(
    compiled, device, unpacked, threads
):
    """The loop against the order of memory would deal single elements; the store wants pairs."""

    @T.prim_func
    def func(A: T.Tensor((64,), "int4"), B: T.Tensor((64,), "int4")):
        with T.Kernel(1, threads=threads):
            f = T.alloc_fragment((64,), "int4")
            for i in T.Parallel(64):
                f[i] = A[63 - i]
            T.copy(f, B)

    a, b = random_bytes(device, 32), random_bytes(device, 32)
    compiled(func)(a, b)
    assert torch.equal(unpacked(b, "int4"), unpacked(a, "int4").flip(0))


PLACES = {  # of element j in a row, in registers
    "side by side": lambda j: j,
    "four apart": lambda j: j // 8 * 8 + j % 2 * 4 + j % 8 // 2,
    "two apart": lambda j: j // 4 * 4 + j % 2 * 2 + j % 4 // 2,
    "backwards": lambda j: 47 - j,
}


@pytest.mark.parametrize("wide", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_casts_of_words_have_each_element_in_each_place(compiled, device, unpacked, dtype, wide):
    """Of words, pairs of a word, and parts of words, bit for bit: -0 stays -0. A name for an
    element changes nothing."""
    rows, n, part = 64, 48, 6

    @T.prim_func
    def func(
        A: T.Tensor((rows, n), dtype),
        B: T.Tensor((rows * n // part, part), dtype),
        C: T.Tensor((4, rows, n), wide),
        D: T.Tensor((rows * n // part, part), wide),
    ):
        with T.Kernel(1, threads=rows):
            # A row is a thread's.
            R = T.alloc_local((n,), dtype)
            t = T.get_thread_binding(0)
            for j in T.serial(n):
                R[j] = A[t, j]
            for k, place in enumerate(PLACES.values()):
                for pair in T.unroll(n // 2):
                    for v in T.vectorized(2):
                        if k % 2:
                            element = R[place(pair * 2 + v)]
                            C[k, t, pair * 2 + v] = T.cast(element, wide)
                        else:
                            C[k, t, pair * 2 + v] = T.cast(R[place(pair * 2 + v)], wide)
            F = T.alloc_fragment((rows * n // part, part), dtype)
            T.copy(B, F)
            for i, j in T.Parallel(rows * n // part, part):
                D[i, j] = T.cast(F[i, j], wide)

    a, b = random_bytes(device, rows, n // 2), random_bytes(device, rows * n // part, part // 2)
    dtypes = {"dtype": getattr(torch, wide), "device": device}
    c, d = torch.zeros(4, rows, n, **dtypes), torch.zeros(rows * n // part, part, **dtypes)
    kernel = compiled(func)
    assert kernel.get_kernel_source().count("tl::cast_lanes") == 4
    kernel(a, b, c, d)
    given = unpacked(a, dtype)
    for found, place in zip(c, PLACES.values(), strict=True):
        wanted = given[:, [place(j) for j in range(n)]].to(found.dtype)
        assert torch.equal(found.view(torch.int16), wanted.view(torch.int16))
    assert torch.equal(d.view(torch.int16), unpacked(b, dtype).to(d.dtype).view(torch.int16))


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_element_of_a_view_is_read(compiled, device, unpacked, dtype):
    @T.prim_func
    def func(A: T.Tensor((32, 16), "uint8"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=32):
            R = T.alloc_local((16,), "uint8")
            V = T.view(R, (32,), dtype)
            t = T.get_thread_binding(0)
            for j in T.serial(16):
                R[j] = A[t, j]
            for j in T.serial(32):
                C[t, j] = T.cast(V[31 - j], "float32")

    a, c = random_bytes(device, 32, 16), torch.zeros(32, 32, device=device)
    compiled(func)(a, c)
    assert torch.equal(c.double(), unpacked(a, dtype).flip(1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_thread_decides_which_elements_of_its_words_it_takes(unpacked, dtype):
    """The words stay in registers, since which of them it is does not depend on the thread."""

    @T.prim_func
    def func(A: T.Tensor((32, 32), dtype), C: T.Tensor((32, 8), "float16")):
        with T.Kernel(1, threads=32):
            R = T.alloc_local((32,), dtype)
            t = T.get_thread_binding(0)
            for j in T.vectorized(32):
                R[j] = A[t, j]
            for word in T.unroll(4):
                for v in T.vectorized(2):
                    C[t, word * 2 + v] = T.cast(R[word * 8 + t % 4 * 2 + v], "float16")

    kernel = tilelang.compile(func, target=SM90, execution_backend="emulate")
    assert [usage.stack for usage in kernel.resource_usage.values()] == [0]
    a, c = random_bytes("cpu", 32, 16), torch.zeros(32, 8, dtype=torch.float16)
    kernel(a, c)
    words = unpacked(a, dtype).view(32, 4, 4, 2)
    wanted = torch.stack([words[t, :, t % 4] for t in range(32)]).view(32, 8)
    assert torch.equal(c.double(), wanted.double())
