"""Parts of fragments, slices, steps, flat loops, columns of a loop around, in every layout that a
fragment gets, against torch."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

RESULTS = 12


@T.macro
def use_parts(F, C, k):
    T.fill(F[3:11, :], 7)
    T.copy(F, C[0, :, :])
    for i, j in T.Parallel(20, 10):
        F[i * 3 + 2, j * 5 + 7] += 1
    T.copy(F, C[1, :, :])
    for i in T.Parallel(64):
        F[i, 63 - i] = 0
    T.copy(F, C[2, :, :])
    T.copy(F[5:50, 10:64], C[3, 5:50, 10:64])
    T.copy(F[4:52, 7:62], C[4, 4:52, 7:62])
    for t in T.Parallel(64 * 64):
        C[5, t // 64, t % 64] = F[t // 64, t % 64] * 2
    for i, j in T.Parallel(64, 64):
        C[6, i, j] = F[63 - i, 63 - j]
    for t in T.serial(8):
        for i in T.Parallel(64):
            F[i, t * 8 + 1] = F[i, t * 8 + 1] + t
    for t in T.serial(4):
        T.copy(F[:, t * 16 : t * 16 + 16], C[7, :, t * 16 : t * 16 + 16])
    for i, j in T.Parallel(8, 64):
        F[i + 8, j] *= 2
    T.copy(F, C[8, :, :])
    for j in T.Parallel(64):
        C[9, 0, j] = F[3, j]
    for i in T.Parallel(50):
        C[10, i, 0] = F[i + 3, 5]
    for j in T.Parallel(64):
        F[k, j] = 5
    T.copy(F, C[11, :, :])


def parts_of(f, k):
    """The same on a tensor."""
    c = torch.zeros(RESULTS, 64, 64, device=f.device)
    f = f.clone()
    f[3:11] = 7
    c[0] = f
    f[2:62:3, 7:57:5] += 1
    c[1] = f
    f.flip(1).fill_diagonal_(0)
    rows = torch.arange(64, device=f.device)
    f[rows, 63 - rows] = 0
    c[2] = f
    c[3, 5:50, 10:64] = f[5:50, 10:64]
    c[4, 4:52, 7:62] = f[4:52, 7:62]
    c[5] = f * 2
    c[6] = f.flip(0, 1)
    f[:, 1::8] += torch.arange(8, device=f.device)
    c[7] = f
    f[8:16] *= 2
    c[8] = f
    c[9, 0] = f[3]
    c[10, :50, 0] = f[3:53, 5]
    f[k] = 5
    c[11] = f
    return c


def check_parts(kernel, a, b, f, device):
    for k in (0, 37):
        c = torch.zeros(RESULTS, 64, 64, device=device)
        kernel(a, b, c, k)
        wanted = parts_of(f, k)
        wrong = [n for n in range(RESULTS) if not torch.equal(c[n], wanted[n])]
        assert not wrong


def small_integers(shape, device):
    return torch.randint(-3, 4, shape).to(torch.float16).to(device)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_of_an_accumulator(device, arch):
    """Held as mma and as wgmma have it."""
    if device == "cuda" and arch == "sm_90a" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the GPU is not sm_90a")

    @T.prim_func
    def func(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((RESULTS, 64, 64), "float32"),
        k: T.int32,
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, F, clear_accum=True)
            use_parts(F, C, k)

    kernel = tilelang.compile(func, execution_backend="auto", target=f"cuda -arch={arch}")
    a, b = small_integers((64, 64), device), small_integers((64, 64), device)
    check_parts(kernel, a, b, a.float() @ b.float(), device)


@pytest.mark.parametrize("threads", [96, 128])
def test_of_a_copy(compiled, device, threads):
    """Dealt in vectors; with 96 threads the last ones have nothing."""

    @T.prim_func
    def func(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((RESULTS, 64, 64), "float32"),
        k: T.int32,
    ):
        with T.Kernel(1, threads=threads):
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, F)
            for i, j in T.Parallel(64, 64):
                F[i, j] += T.cast(B[i, j], "float32")
            use_parts(F, C, k)

    a, b = small_integers((64, 64), device), small_integers((64, 64), device)
    check_parts(compiled(func), a, b, a.float() + b.float(), device)


def test_of_a_vector(compiled, device):
    """A reduction's result, of which several threads have each element, and one without a use of
    its whole."""

    @T.prim_func
    def func(
        A: T.Tensor((64, 64), "float32"),
        C: T.Tensor((3, 64), "float32"),
        D: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            X = T.alloc_fragment((64, 64), "float32")
            r = T.alloc_fragment((64,), "float32")
            part = T.alloc_fragment((8,), "float32")
            T.copy(A, X)
            T.reduce_max(X, r, dim=1)
            T.copy(r, C[0, :])
            T.fill(r[5:37], 2)
            T.copy(r, C[1, :])
            for i in T.Parallel(18):
                r[i * 3 + 7] = r[i * 3 + 7] + i
            T.copy(r[11:64], C[2, 11:64])
            for i, j in T.Parallel(64, 64):
                X[i, j] = r[i]
            T.reduce_sum(X, r, dim=1)
            T.copy(r, D)
            for i in T.Parallel(4):
                part[i + 3] = A[0, i]
            for i in T.Parallel(4):
                C[2, i] = part[i + 3]

    a = torch.randint(0, 100, (64, 64)).float().to(device)
    c, d = torch.zeros(3, 64, device=device), torch.zeros(64, device=device)
    compiled(func)(a, c, d)
    r = a.amax(1)
    wanted = torch.zeros_like(c)
    wanted[0] = r
    wanted[2, :4] = a[0, :4]
    r[5:37] = 2
    wanted[1] = r
    r[7:61:3] += torch.arange(18, device=device)
    wanted[2, 11:] = r[11:]
    assert torch.equal(c, wanted)
    assert torch.equal(d, r * 64)


@pytest.mark.parametrize(
    "form", ["first half", "second half", "row", "column", "columns in turn", "slices in turn"]
)
def test_copies_between_fragments_of_different_extents(compiled, device, form):
    """Through shared memory where other threads hold the elements."""

    @T.prim_func
    def func(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((64, 64), "float32")
            h = T.alloc_fragment((64, 32), "float32")
            q = T.alloc_fragment((64,), "float32")
            w = T.alloc_fragment((64, 16), "float32")
            T.copy(A, x)
            if form == "first half":
                T.copy(x[:, 0:32], h)
                for i, j in T.Parallel(64, 32):
                    h[i, j] += A[i, j]
                T.copy(h, x[:, 0:32])
            elif form == "second half":
                T.copy(A[:, 0:32], h)
                T.copy(h, x[:, 32:64])
            elif form == "row":
                T.copy(x[3, :], q)
                for i, j in T.Parallel(64, 64):
                    x[i, j] *= q[j]
            elif form == "column":
                T.copy(x[:, 3], q)
                for i, j in T.Parallel(64, 64):
                    x[i, j] *= q[i]
            elif form == "columns in turn":
                for t in T.serial(64):
                    T.reduce_max(x, q, dim=1)
                    for i in T.Parallel(64):
                        x[i, t] = q[i]
            else:
                for t in T.serial(4):
                    T.copy(x[:, t * 16 : t * 16 + 16], w)
                    for i, j in T.Parallel(64, 16):
                        w[i, j] += t
                    T.copy(w, x[:, 48 - t * 16 : 64 - t * 16])
            T.copy(x, C)

    a = torch.randint(0, 100, (64, 64)).float().to(device)
    c = torch.zeros_like(a)
    compiled(func)(a, c)
    wanted = a.clone()
    if form == "first half":
        wanted[:, :32] *= 2
    elif form == "second half":
        wanted[:, 32:] = a[:, :32]
    elif form == "row":
        wanted *= a[3]
    elif form == "column":
        wanted *= a[:, 3:4]
    elif form == "columns in turn":
        for t in range(64):
            wanted[:, t] = wanted.amax(1)
    else:
        for t in range(4):
            wanted[:, 48 - t * 16 : 64 - t * 16] = wanted[:, t * 16 : t * 16 + 16] + t
    assert torch.equal(c, wanted)


def test_a_fragment_that_nothing_uses(compiled, device):
    @T.prim_func
    def func(C: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=128):
            T.alloc_fragment((256,), "float32")
            F = T.alloc_fragment((16, 16), "float32")
            T.reshape(F, (256,))
            for i in T.Parallel(256):
                C[i] = i

    c = torch.zeros(256, device=device)
    compiled(func)(c)
    assert torch.equal(c, torch.arange(256, device=device).float())


CONDITIONS = {
    "idx[i] > 4": lambda idx, i, j: idx[i] > 4,
    "idx[i] == j": lambda idx, i, j: idx[i] == j,
    "j == 16": lambda idx, i, j: j == 16,
    "j < 4": lambda idx, i, j: j < 4,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_some_columns_write_the_vector(compiled, device, condition):
    """All threads that hold an element get what some of the iterations write."""

    @T.prim_func
    def main(
        x: T.Tensor((16, 32), "float32"),
        idx: T.Tensor((16,), "int32"),
        y: T.Tensor((16, 32), "float32"),
    ):
        with T.Kernel(1, threads=64):
            r = T.alloc_fragment((16,), "float32")
            T.fill(r, -1)
            for i, j in T.Parallel(16, 32):
                if CONDITIONS[condition](idx, i, j):
                    r[i] = x[i, 3]
            for i, j in T.Parallel(16, 32):
                y[i, j] = r[i] + j

    x = torch.randint(0, 9, (16, 32)).float().to(device)
    idx = torch.arange(16, device=device, dtype=torch.int32) * 2 + 3
    y = torch.zeros_like(x)
    compiled(main)(x, idx, y)
    rows, columns = (torch.arange(n, device=device) for n in (16, 32))
    taken = CONDITIONS[condition](idx, rows[:, None], columns).expand(16, 32).any(1)
    assert torch.equal(y, torch.where(taken, x[:, 3], -1.0)[:, None] + columns)


def test_a_triangle_of_registers(compiled, device):
    """An inner loop whose bounds are another's variable runs over registers, whatever they are."""

    @T.prim_func
    def main(A: T.Tensor((64, 8), "float32"), B: T.Tensor((64, 8), "float32")):
        with T.Kernel(1, threads=64):
            c = T.alloc_fragment((64, 8), "float32")
            T.copy(A, c)
            for j in T.Parallel(64):
                for k in T.serial(7):
                    for i in T.serial(k + 1, 8):
                        c[j, i] += c[j, k]
            T.copy(c, B)

    kernel = compiled(main)
    a = small_integers((64, 8), device).float()
    b = torch.full_like(a, torch.nan)
    kernel(a, b)
    wanted = a.clone()
    for k in range(7):
        wanted[:, k + 1 :] += wanted[:, k, None]
    assert torch.equal(b, wanted)
    assert "shared" not in kernel.get_kernel_source()


def test_an_index_that_the_body_loads(compiled, device):
    @T.prim_func
    def main(
        A: T.Tensor((64, 8), "float32"),
        N: T.Tensor((64,), "int32"),
        B: T.Tensor((64, 8), "float32"),
    ):
        with T.Kernel(1, threads=64):
            c = T.alloc_fragment((64, 8), "float32")
            T.copy(A, c)
            for j in T.Parallel(64):
                n = N[j]
                c[j, n] += 1
                for i in T.serial(n):
                    c[j, i] += 2
            T.copy(c, B)

    a = small_integers((64, 8), device).float()
    n = torch.arange(64, device=device).int() % 8
    b = torch.full_like(a, torch.nan)
    compiled(main)(a, n, b)
    columns = torch.arange(8, device=device)
    assert torch.equal(b, a + (columns == n[:, None]) + 2.0 * (columns < n[:, None]))


def test_sums_of_vectors(compiled, device):
    """A loop of a sum's terms leaves accesses of memory as wide as they are without it, and a
    fragment whose rows it goes through has neighbours of a row in neighbouring registers."""

    @T.prim_func
    def main(
        A: T.Tensor((3, 1024), "float16"),
        W: T.Tensor((2, 3), "float32"),
        B: T.Tensor((2, 1024), "float16"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((3, 1024), "float32")
            b = T.alloc_fragment((2, 1024), "float32")
            T.copy(A, a)
            for i, j in T.Parallel(2, 1024):
                b[i, j] = 0
                for k in T.serial(3):
                    b[i, j] += W[i, k] * a[k, j]
            T.copy(b, B)

    kernel = compiled(main)
    a, w = small_integers((3, 1024), device), small_integers((2, 3), device).float()
    b = torch.full((2, 1024), torch.nan, dtype=torch.float16, device=device)
    kernel(a, w, b)
    assert torch.equal(b.float(), w @ a.float())
    source = kernel.get_kernel_source()
    assert "tl::load<half_t, 8>(A" in source
    assert "tl::cast<half_t>(tl::load<float, 8>(b" in source


@pytest.mark.parametrize("known_to", ["the run", "a loop"])
def test_a_register_that_only_the_run_knows_is_warned_of_once(known_to, caplog):
    """Each thread goes through the registers of a column, and takes the one."""

    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), C: T.Tensor((8, 64), "float32"), n: T.int32):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((8, 64), "float32")
            T.copy(A, F)
            if known_to == "a loop":
                for k in T.serial(8):
                    for i in T.Parallel(64):
                        C[k, i] = F[k, i]
            else:
                for i in T.Parallel(64):
                    C[n, i] = F[n, i]

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    warned = [r for r in caplog.records if "found F with an index that is known" in r.message]
    assert len(warned) == (known_to == "the run")
    a, c = torch.randn(8, 64), torch.zeros(8, 64)
    kernel(a, c, 3)
    torch.testing.assert_close(c[3], a[3], rtol=0, atol=0)


def test_parts_of_a_sum_lie_as_those_of_a_product():
    """What has the indices of a placed fragment gets its layout, also where a loop around tells
    which part: no copy through shared memory."""
    m, n, parts = 64, 192, 3

    @T.prim_func
    def main(
        A: T.Tensor((m, 64), "float16"),
        B: T.Tensor((n, 64), "float16"),
        scale: T.Tensor((2, parts), "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((m, 64), "float16")
            b = T.alloc_shared((n, 64), "float16")
            product = T.alloc_fragment((m, n), "float32")
            total = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(total)
            for k in T.serial(2):
                T.gemm(a, b, product, transpose_B=True, clear_accum=True)
                for g in T.unroll(parts):
                    for i, j in T.Parallel(m, n // parts):
                        at = g * (n // parts) + j
                        total[i, at] += product[i, at] * scale[k, g]
            T.copy(total, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    assert "total_shared" not in kernel.get_kernel_source()
    a, b, scale = torch.randn(m, 64).half(), torch.randn(n, 64).half(), torch.rand(2, parts)
    found = torch.zeros(m, n)
    kernel(a, b, scale, found)
    wanted = a.double() @ b.double().T * scale.double().sum(0).repeat_interleave(n // parts)
    assert (found - wanted).norm() / wanted.norm() < 1e-5


@pytest.mark.parametrize("dtype", ["int16", "float32"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 4), (3, 2)])
def test_a_part_that_moves_is_written_from_the_beginning_of_another(dtype, rows, columns):
    """The loop over all of F has iterations for which R has no element: a layout after R's put
    them into negative threads, which broke the compiler's heap."""

    @T.prim_func
    def main(A: T.Tensor((12, 16), "int32"), B: T.Tensor((12, 16), dtype)):
        with T.Kernel(1, threads=64):
            R = T.alloc_fragment((12, 16), "int32")
            F = T.alloc_fragment((12, 16), dtype)
            T.copy(A, R)
            T.clear(F)
            for p in T.serial(5):
                for i, j in T.Parallel(rows, columns):
                    F[i + p, j + 4] = T.cast(R[i, j], dtype) + T.cast(p, dtype)
            T.copy(F, B)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.randint(-9, 9, (12, 16), dtype=torch.int32, device=device)
    b = torch.full((12, 16), 77, dtype=getattr(torch, dtype), device=device)
    tilelang.compile(main)(a, b)
    wanted = torch.zeros_like(b)
    for p in range(5):
        wanted[p : p + rows, 4 : 4 + columns] = a[:rows, :columns] + p
    assert torch.equal(b, wanted)


def test_a_part_begins_at_a_number_of_64_bits(device):
    """The loop's coordinates are int32, and their difference to an int64 was an error of TVM's."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int8"), at: T.Tensor((2,), "int64"), B: T.Tensor((64,), "int8")):
        with T.Kernel(1, threads=128):
            F, G = T.alloc_fragment((64,), "int8"), T.alloc_fragment((64,), "int8")
            T.copy(A, F)
            T.copy(A, G)
            T.copy(F[at[0] : at[0] + 30], G[1:31])
            T.copy(F[2:12], G[at[1] : at[1] + 10])
            T.copy(G, B)

    a = torch.arange(64, dtype=torch.int8, device=device)
    b = torch.zeros_like(a)
    tilelang.compile(main)(a, torch.tensor([33, 50], device=device), b)
    wanted = a.clone()
    wanted[1:31], wanted[50:60] = a[33:63], a[2:12]
    assert torch.equal(b, wanted)


def test_an_element_of_a_small_fragment_places_no_large_one(device):
    """Where block b copies S[b, b] to G[b], the loop over all of G followed S beyond its rows: G
    lay in 568 threads of 32, and most of it was not there."""

    @T.prim_func
    def main(
        A: T.Tensor((2, 64), "int32"), S: T.Tensor((2, 8), "int32"), B: T.Tensor((2, 64), "int32")
    ):
        with T.Kernel(2, threads=32) as b:
            F, G = T.alloc_fragment((2, 8), "int32"), T.alloc_fragment((64,), "int32")
            T.copy(S, F)
            T.copy(A[b, 0:64], G)
            T.copy(F[b : b + 1, b : b + 1], G[b : b + 1])
            T.copy(G, B[b, 0:64])

    a = torch.arange(128, dtype=torch.int32, device=device).reshape(2, 64)
    s = -torch.arange(16, dtype=torch.int32, device=device).reshape(2, 8) - 1
    out = torch.full_like(a, 99)
    tilelang.compile(main)(a, s, out)
    wanted = a.clone()
    wanted[0, 0], wanted[1, 1] = s[0, 0], s[1, 1]
    assert torch.equal(out, wanted)


@pytest.mark.parametrize("threads", [32, 64])
def test_rotations_are_copies(threads, device):
    """Of (i + c) % n no thread can be told its iterations, so the loop has a layout of its own and
    the fragment is copied; it was refused."""

    @T.prim_func
    def main(A: T.Tensor((7, 33), "float32"), B: T.Tensor((2, 7, 33), "float32")):
        with T.Kernel(1, threads=threads):
            F, S = T.alloc_fragment((7, 33), "float32"), T.alloc_shared((7, 33), "float32")
            T.copy(A, F)
            for i, j in T.Parallel(7, 33):
                S[i, j] = F[(i + 3) % 7, j] * 2
            T.copy(S, B[0, :, :])
            for i, j in T.Parallel(7, 33):
                F[(i + 2) % 7, (j + 32) % 33] = S[i, j] + 1
            T.copy(F, B[1, :, :])

    a = torch.randn(7, 33, device=device)
    b = torch.zeros(2, 7, 33, device=device)
    tilelang.compile(main)(a, b)
    first = a.roll(-3, 0) * 2
    assert torch.equal(b, torch.stack([first, (first + 1).roll((2, -1), (0, 1))]))


@pytest.mark.usefixtures("tensors_on_device")
@pytest.mark.parametrize("place", [0, 1])
def test_a_loop_over_one_element_of_a_row_has_registers_without_gaps(compiled, place):
    """What it writes had a register for each element of the row, and a reduction of it went
    through shared memory."""

    @T.prim_func
    def main(A: T.Tensor((16, 4, 2), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            rows = T.alloc_fragment((16, 4, 2), "float32")
            ones = T.alloc_fragment((16, 4), "float32")
            best = T.alloc_fragment((16,), "float32")
            T.copy(A, rows)
            for i, p in T.Parallel(16, 4):
                ones[i, p] = rows[i, p, place] * 2
            T.reduce_max(ones, best, dim=1)
            T.copy(best, B)

    kernel = compiled(main)
    assert re.search(r"float, 2> ones;", kernel.get_kernel_source())
    assert "shared" not in kernel.get_kernel_source()
    a, b = torch.randn(16, 4, 2), torch.full((16,), torch.nan)
    kernel(a, b)
    assert torch.equal(b, a[:, :, place].amax(1) * 2)
