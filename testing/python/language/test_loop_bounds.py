"""Bounds of loops that read memory."""

import pytest
import torch

import tilelang
import tilelang.language as T


def test_bounds_are_evaluated_once(device):
    """As those of Python's range: the body may change what they were made of."""

    @T.prim_func
    def main(n: T.Tensor((1,), "int32"), C: T.Tensor((5,), "int32")):
        with T.Kernel(1, threads=32):
            end = T.alloc_var("int32")
            runs = T.alloc_var("int32")
            end = n[0]
            runs = 0
            for _ in T.serial(end):
                end = end - 1
                runs = runs + 1
            C[0] = runs
            C[1] = end
            end = n[0]
            for i in range(0, end, 2):
                end = end + 2
                C[2] = i
            C[3] = end
            end = 3
            runs = 0
            for _, _ in T.grid(2, end):
                end = 5
                runs = runs + 1
            C[4] = runs

    kernel = tilelang.compile(main, execution_backend="auto")
    c = torch.zeros(5, dtype=torch.int32, device=device)
    kernel(torch.tensor([10], dtype=torch.int32, device=device), c)
    assert c.tolist() == [10, 0, 8, 20, 6]


LOW, HIGH = -(2**31), 2**31 - 1


def stepping(step, start):
    """Counts up to six iterations and keeps the last value, from a start that the compiler knows,
    or from what is read."""

    @T.prim_func
    def main(bounds: T.Tensor((2,), "int32"), C: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=32):
            first = bounds[0] if start is None else start
            runs = T.alloc_var("int32")
            runs = 0
            if T.get_thread_binding() == 0:
                for i in range(first, bounds[1], step):
                    runs = runs + 1
                    C[0] = runs
                    C[1] = i
                    if runs == 6:
                        break

    return tilelang.compile(main, execution_backend="auto")


@pytest.mark.parametrize(
    ("step", "start", "bounds"),
    [
        (4, 0, [(0, HIGH), (0, 9), (0, -1), (0, LOW)]),
        (2**30, 0, [(0, HIGH), (0, 2**30), (0, 2**30 + 1)]),
        (2**31 - 1, None, [(0, HIGH), (LOW, HIGH)]),
        (2**30, None, [(LOW, HIGH), (HIGH, LOW)]),
        (4, None, [(HIGH - 9, HIGH), (5, LOW), (HIGH, LOW)]),
        (-4, None, [(LOW + 9, LOW), (LOW, HIGH), (HIGH, LOW)]),
        (-(2**30), None, [(HIGH, LOW)]),
    ],
)
def test_steps_up_to_the_ends_of_int32(step, start, bounds, device):
    """The number of iterations, (n + 3) // 4, has parts that int32 does not have."""
    kernel = stepping(step, start)
    for first, last in bounds:
        c = torch.zeros(2, dtype=torch.int32, device=device)
        kernel(torch.tensor([first, last], dtype=torch.int32, device=device), c)
        runs = range(first, last, step)[:6]
        assert c.tolist() == ([len(runs), runs[-1]] if runs else [0, 0]), (first, last)


def test_bounds_in_variables_are_those_of_a_pipeline_with_roles():
    """Whose two products overlap over iterations: slots are counted by the loop's variable."""

    @T.prim_func
    def main(
        Q: T.Tensor((128, 64), "float16"),
        K: T.Tensor((512, 64), "float16"),
        n: T.Tensor((2,), "int32"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            Q_shared = T.alloc_shared((128, 64), "float16")
            K_shared = T.alloc_shared((64, 64), "float16")
            S = T.alloc_fragment((128, 64), "float32")
            P = T.alloc_fragment((128, 64), "float16")
            acc = T.alloc_fragment((128, 64), "float32")
            begin = T.alloc_var("int32")
            end = T.alloc_var("int32")
            T.copy(Q, Q_shared)
            T.clear(acc)
            begin = n[0] // 64
            end = n[1] // 64
            for k in T.Pipelined(begin, end, num_stages=2):
                T.copy(K[k * 64, 0], K_shared)
                T.gemm(Q_shared, K_shared, S, transpose_B=True, clear_accum=True)
                T.copy(S, P)
                T.gemm(P, K_shared, acc)
            T.copy(acc, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    assert "tma_load" in kernel.get_kernel_source()
    q, k = torch.randint(-2, 3, (128, 64)).half(), torch.randint(-1, 2, (512, 64)).half()
    for begin, end in ((0, 512), (128, 200), (64, 64)):
        c = torch.full((128, 64), torch.nan)
        kernel(q, k, torch.tensor([begin, end], dtype=torch.int32), c)
        rows = k[begin // 64 * 64 : end // 64 * 64].double()
        assert torch.equal(c.double(), (q.double() @ rows.T) @ rows)


def ran(program, *shape, first=5):
    """What a program makes of the int `first`."""
    made = torch.zeros(shape, dtype=torch.int32)
    kernel = tilelang.compile(program, target="cuda", execution_backend="emulate")
    kernel(torch.tensor([first], dtype=torch.int32), made)
    return made.tolist()


def test_sizes_of_a_persistent_loop_are_evaluated_once():
    """Domain, programs, this program's number and the width of a group."""

    @T.prim_func
    def main(n: T.Tensor((1,), "int32"), C: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=32):
            last = T.alloc_var("int32")
            programs = T.alloc_var("int32")
            program = T.alloc_var("int32")
            group = T.alloc_var("int32")
            runs = T.alloc_var("int32")
            last = n[0]
            programs = 2
            program = 1
            group = 2
            runs = 0
            for i, j in T.Persistent([2, last], programs, program, group_size=group):
                C[runs] = i * 10 + j
                last = last + 3
                programs = 1
                program = 0
                group = 1
                runs = runs + 1

    # Tiles 1, 3, .. of 0,0 0,1 1,0 1,1 | 0,2 0,3 1,2 1,3 | 0,4 - 1,4 -
    assert ran(main, 16) == [1, 11, 3, 13, *[0] * 12]


def test_sizes_of_a_tile_scheduler_are_evaluated_once():
    @T.prim_func
    def main(n: T.Tensor((1,), "int32"), C: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=1):
            rows = T.alloc_var("int32")
            workers = T.alloc_var("int32")
            rows = n[0]
            workers = 1
            scheduler = T.PersistentTileScheduler(rows, 2, workers)
            scheduler.init(0)
            while scheduler.valid():
                C[0] = C[0] + 1
                C[1] = C[1] + scheduler.m_idx * 2 + scheduler.n_idx
                if C[0] < 40:
                    rows = rows + 1
                    workers = 2
                scheduler.next_tile()

    assert ran(main, 2) == [10, 45]


def test_extents_of_parallel_loops_are_evaluated_once():
    """The body may write the element that an extent was read from."""

    @T.prim_func
    def main(n: T.Tensor((1,), "int32"), C: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.Parallel(n[0]):
                C[i] = 1
                n[0] = 0

    assert sum(ran(main, 64, first=40)) == 40


def test_bounds_of_unrolled_and_vector_loops_are_evaluated_once():
    @T.prim_func
    def main(n: T.Tensor((1,), "int32"), C: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            end = T.alloc_var("int32")
            end = n[0]
            for _ in T.unroll(0, end, 2):
                end = end + 1
                C[0] = C[0] + 1
            end = n[0]
            for i in T.vectorized(end, end + 2):
                C[i] = i
                end = 0

    assert ran(main, 8) == [3, 0, 0, 0, 0, 5, 6, 0]


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(lambda: T.serial(0), id="serial"),
        pytest.param(lambda: T.unroll(0), id="unroll"),
        pytest.param(lambda: T.Pipelined(0, num_stages=2), id="Pipelined"),
    ],
)
def test_a_loop_without_iterations_has_no_range(device, loop):
    """Its last value would be -1, which is no unsigned integer."""

    @T.prim_func
    def main(A: T.Tensor((32,), "int32"), B: T.Tensor((32,), "uint32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = 7
            for step in loop():
                for i in T.Parallel(32):
                    at = T.cast(T.cast(step * 32 + i, T.uint32), T.uint64)
                    if A[i] > 3:
                        B[T.cast(at, T.int32)] = T.cast(at, T.uint32)

    found = tilelang.compile(main, out_idx=[1])(torch.full((32,), 5, dtype=torch.int32).to(device))
    assert found.tolist() == [7] * 32


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32", "int64", "uint64"])
def test_bounds_of_every_type(dtype, device):
    """Their distance may be one that their type has not."""

    kind = T.dtype(dtype)

    @T.prim_func
    def main(a: kind, b: kind, n: kind, C: T.Tensor((7, 2), "int32"), D: T.Tensor((8, 8), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                for j in T.serial(n):
                    D[i, j] = T.cast(i, "int32") * 8 + T.cast(j, "int32")
            for i, j in T.Parallel(1, n):
                D[7, j] = D[6, j] + i
            for row in T.serial(7):
                C[row, 0] = 0
                C[row, 1] = 0
            for k in T.serial(a, b):
                C[0, 0] += 1
                C[0, 1] = T.cast(k, "int32")
            for k in T.serial(a, b, 3):
                C[1, 0] += 1
                C[1, 1] = T.cast(k, "int32")
            for _ in T.serial(b, a):
                C[2, 0] += 1
            for _ in T.serial(b, a, 2):
                C[3, 0] += 1
            for k in T.serial(b, a, -1):
                C[4, 0] += 1
                C[4, 1] = T.cast(k, "int32")
            for _ in T.serial(-3, n, 2):
                C[5, 0] += 1
            for _ in T.serial(-3, n):
                C[6, 0] += 1

    a, b = (3, 250) if dtype == "uint8" else (-100, 120) if dtype == "int8" else (5, 30)
    c = torch.zeros(7, 2, dtype=torch.int32, device=device)
    d = torch.zeros(8, 8, dtype=torch.int32, device=device)
    tilelang.compile(main)(a, b, 7, c, d)
    ranges = [range(a, b), range(a, b, 3), range(0), range(0), range(b, a, -1)]
    wanted = [[len(r), r[-1] if r else 0] for r in ranges]
    assert c.tolist() == [*wanted, [5, 0], [10, 0]]
    square = torch.arange(64, dtype=torch.int32).reshape(8, 8)
    square[7], square[:, 7] = square[6], 0
    assert torch.equal(d.cpu(), square)


def test_lengths_of_every_type(device):
    """Of a tensor with a dimension of int64, and of slices."""
    n = T.dynamic("n", "int64")

    @T.prim_func
    def main(
        A: T.Tensor((n,), "int32"), m: T.uint32, k: T.uint8, h: T.int64, B: T.Tensor((n,), "int32")
    ):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((64,), "int32")
            T.fill(S[0:n], 3)
            T.copy(A[0:m], S[0:m])
            T.fill(S[k : k + 2], 7)
            T.fill(S[h : h + 1], 8)
            for i, j in T.Parallel(2, n // 2):
                B[j * 2 + i] = S[j * 2 + 1 - i]
            T.atomic_add(B[0:n], A[0:n])

    a = torch.arange(50, dtype=torch.int32, device=device)
    b = torch.zeros_like(a)
    tilelang.compile(main)(a, 20, 30, 40, b)
    wanted = torch.where(a < 20, a, 3)
    wanted[30:32], wanted[40] = 7, 8
    assert torch.equal(b, wanted.reshape(25, 2).flip(1).reshape(-1) + a)


def test_a_quotient_rounded_up_in_int64_has_no_end_of_int32():
    """In int32 its sum wraps beyond 2**31 - b, as the docstring of T.ceildiv says."""
    block = 1 << 20

    @T.prim_func
    def main(C: T.Tensor((2,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            count = T.alloc_var("int32", init=0)
            C[0] = T.ceildiv(T.cast(n, "int64"), block)
            for _ in T.serial(T.ceildiv(T.cast(n, "int64"), block)):
                count += 1
            C[1] = count

    device = "cuda" if torch.cuda.is_available() else "cpu"
    kernel = tilelang.compile(main)
    for n in (0, 5, 2**31 - block, 2**31 - block + 1, 2**31 - 1):
        c = torch.zeros(2, dtype=torch.int32, device=device)
        kernel(c, n)
        assert c.tolist() == [-(-n // block)] * 2
