"""Sizes of a call: solved for, asserted, zero, of tensors that are None; buffers in front of a
kernel and at other tensors' memory; blocks that return."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def compiled(func, **options):
    return tilelang.compile(func, execution_backend="auto", **options)


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype, device=DEVICE)


@pytest.fixture(scope="module")
def solved():
    n, m = T.dynamic("n, m")

    @T.prim_func
    def main(A: T.Tensor((n * 2, m // 4), "float32"), B: T.Tensor((n + m,), "float32")):
        with T.Kernel(T.ceildiv(n, 8), threads=32) as bx:
            for i in T.Parallel(8):
                if bx * 8 + i < n:
                    B[m + bx * 8 + i] = A[2 * (bx * 8 + i), 0] + m

    return compiled(main)


@pytest.mark.parametrize(("n", "m"), [(1, 4), (13, 12)])
def test_extents_in_expressions_alone_are_solved_for(solved, n, m):
    a, b = torch.randn(2 * n, m // 4, device=DEVICE), zeros(n + m)
    solved(a, b)
    assert torch.equal(b[m:], a[::2, 0] + m)


def test_what_no_size_solves_is_refused(solved):
    with pytest.raises(ValueError, match=r"got 5 in \(5, 3\)"):
        solved(zeros(5, 3), zeros(14))
    with pytest.raises(ValueError, match=r"`B`: shape mismatch: expected 14 \(\(n \+ m\)\)"):
        solved(zeros(4, 3), zeros(15))


@tilelang.jit
def asserted(A, B, k: int):
    N = T.const("N")
    M, M_ = T.dynamic("M, M_")
    A: T.Tensor[[M, N], T.float32]
    B: T.Tensor[[M_, N], T.float32]
    assert M == M_, f"{k} tensors of one height"
    assert not (M > 8 or N * 2 < M_)  # noqa: PT018 - one condition is what is tested
    with T.Kernel(M, threads=32) as bx:
        assert M_ % 2 == 0
        for j in T.Parallel(N):
            B[bx, j] = A[bx, j] + k


def test_asserts_on_sizes_are_checked_by_the_call():
    a = torch.randn(4, 16, device=DEVICE)
    b = zeros(4, 16)
    asserted(a, b, 1)
    assert torch.equal(b, a + 1)
    for rows, other, said in (
        (4, 6, r"2 tensors of one height: expected M == M_, got 4 and 6\. Pass"),
        (10, 10, r"test_sizes_of_a_call\.py:\d+\): expected M <= 8, got 10 and 8"),
        (3, 3, r"expected \(M_ % 2\) == 0, got 1 and 0"),
    ):
        b = zeros(other, 16)
        with pytest.raises(AssertionError, match=said):
            asserted(zeros(rows, 16), b, 2)
        assert not b.any()


@pytest.mark.parametrize("condition", ["A[0] > 0", "n == 2 or n == 3", "bx == 0", "x > 1.5"])
def test_other_asserts_are_not_for_the_call(define, condition):
    text = f"""\
        @T.prim_func
        def main(A: T.Tensor((8,), "float32"), n: T.int32, x: T.float32):
            with T.Kernel(4, threads=32) as bx:
                assert {condition}
        """
    with pytest.raises(NotImplementedError, match=r"`assert .*wanted comparisons of sizes; T\.dev"):
        define(text)


def test_a_scalar_may_be_asserted():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        assert n < 8, "an index"
        with T.Kernel(1, threads=32):
            A[n] = 1

    kernel, a = compiled(main), zeros(8, dtype=torch.int32)
    kernel(a, 7)
    with pytest.raises(AssertionError, match="an index: expected n < 8, got 8 and 8"):
        kernel(a, 8)
    assert a.tolist() == [0] * 7 + [1]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("is_constant", [True, False])
def test_nothing_is_launched_for_no_blocks(arch, is_constant):
    n = 0 if is_constant else T.dynamic("n")

    @T.prim_func
    def main(
        A: T.Tensor((n, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((n, 64), "float16"),
        D: T.Tensor((4, 0), "int32"),
        E: T.Tensor((4,), "int32"),
    ):
        with T.Kernel(T.ceildiv(n, 64), threads=128) as bx:
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for _ in T.Pipelined(1, num_stages=2):
                T.copy(A[bx * 64, 0], a)
                T.copy(B, b)
                T.gemm(a, b, c)
            T.copy(c, C[bx * 64, 0])
        with T.Kernel(4, threads=32) as bx:
            for i in T.serial(D.shape[1]):
                E[bx] = D[bx, i]
            E[bx] = E[bx] + 3

    kernel = tilelang.compile(main, target=f"cuda -arch={arch}", execution_backend="emulate")
    if is_constant:
        assert kernel.cubin
    half, e = torch.zeros(0, 64).half(), torch.zeros(4, dtype=torch.int32)
    kernel(half, torch.zeros(64, 64).half(), half, torch.zeros(4, 0, dtype=torch.int32), e)
    assert e.tolist() == [3] * 4


@pytest.mark.parametrize("shape", [(8, 0), (0, 8)])
def test_loops_and_copies_over_no_elements(shape):
    """In a block that runs: the tensors have no elements, and no map of TMA."""

    @T.prim_func
    def main(
        A: T.Tensor(shape, "float32"), C: T.Tensor(shape, "float32"), D: T.Tensor((8,), "int32")
    ):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((32, 32), "float32")
            F = T.alloc_fragment((8, 8), "float32")
            T.clear(F)
            for i, j in T.Parallel(*shape):
                F[i, j] = A[i, j]
            for i, j in T.Parallel(*shape):
                C[i, j] = A[i, j] + F[i, j]
            T.copy(A, C)
            T.copy(A[0, 0], tile)
            T.copy(tile, C[0, 0])
            for i in T.Parallel(8):
                D[i] = 3

    kernel = compiled(main, target="cuda -arch=sm_90a")
    assert kernel.launch_plan.descriptors == ()
    a, d = zeros(*shape), zeros(8, dtype=torch.int32)
    kernel(a, a, d)
    assert d.tolist() == [3] * 8


def test_what_tma_writes_to_no_elements_changes_nothing():
    """A map has an element even where the tensor, here the begin of another one, has none."""
    n = T.dynamic("n")

    @T.prim_func
    def main(C: T.Tensor((n, 32), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((32, 32), "float32")
            T.fill(S, 5)
            T.copy(S, C[0, 0])

    kernel = compiled(main, target="cuda -arch=sm_90a")
    assert len(kernel.launch_plan.descriptors) == 1
    c = zeros(4, 32)
    kernel(c[:0])
    kernel(zeros(0, 32))
    assert not c.any()
    kernel(c)
    assert (c == 5).all()


def test_tma_loads_zeros_of_no_elements_whatever_it_stored_to_others():
    n, m = T.dynamic("n, m")

    @T.prim_func
    def main(
        Bias: T.Tensor((n, 32), "float32"),
        Sums: T.Tensor((m, 32), "float32"),
        C: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((32, 32), "float32")
            B = T.alloc_shared((32, 32), "float32")
            full = T.alloc_barrier(1)
            T.tma_copy(Bias[0:32, 0:32], B, barrier=full)
            if T.get_thread_binding() == 0:
                T.barrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            T.copy(B, C)
            T.fill(S, 5)
            T.copy(S, Sums[0, 0])

    kernel = compiled(main, target="cuda -arch=sm_90a")
    assert len(kernel.launch_plan.descriptors) == 3
    for _ in range(2):
        c = zeros(32, 32) + 7
        kernel(zeros(0, 32), zeros(0, 32), c)
        assert not c.any()


def test_a_negative_extent_is_refused():
    with pytest.raises(ValueError, match=r"a dimension of T\.Tensor is -1, wanted an int of 0"):
        T.Tensor((-1, 4))


@pytest.fixture(scope="module")
def with_optional_bias():
    n = T.dynamic("n")

    @T.prim_func
    def main(bias: T.Tensor((n, 8), "float32"), A: T.Tensor((n,), "float32"), has_bias: T.int32):
        with T.Kernel(n, threads=32) as bx:
            if has_bias != 0:
                A[bx] = A[bx] + bias[bx, 3]
            else:
                A[bx] = A[bx] + 1

    return compiled(main)


def test_a_tensor_that_the_path_does_not_touch_may_be_none(with_optional_bias):
    a, bias = zeros(5), torch.randn(5, 8, device=DEVICE)
    with_optional_bias(None, a, 0)
    with_optional_bias(bias, a, 1)
    assert torch.equal(a, bias[:, 3] + 1)
    with pytest.raises(TypeError, match=r"`bias`: expected a torch\.Tensor, got NoneType.*no size"):
        with_optional_bias(None, None, 0)


def test_a_tensor_that_every_launch_touches_is_not_none():
    @T.prim_func
    def main(A: T.Tensor((40,), "float32"), C: T.Tensor((40,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(40):
                C[i] = A[i] + 1

    kernel = tilelang.compile(main)
    for arguments in ((None, zeros(40)), (zeros(40), None)):
        with pytest.raises(TypeError, match=r"got NoneType.*every launch"):
            kernel(*arguments)


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU does not report it")
def test_a_tensor_that_is_touched_and_none_is_reported(with_optional_bias):
    with pytest.raises(
        tilelang.emulator.reports.EmulationError, match=r"out-of-bounds: 4 bytes at bias"
    ):
        with_optional_bias(None, zeros(5), 1)


def test_a_buffer_in_front_of_a_kernel_is_scratch_in_global_memory():
    @T.prim_func
    def main(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32")):
        scratch = T.alloc_buffer((100,), "float32")
        with T.Kernel(4, threads=32) as bx:
            own = T.alloc_fragment((2,), "float32", "local")
            local = T.alloc_buffer((2,), "float32")
            own[1] = A[bx]
            local[0] = own[1]
            assert own.scope() == local.scope() == "local"
            for i in T.Parallel(25):
                scratch[bx * 25 + i] = A[bx * 25 + i] * 2
        with T.Kernel(1, threads=32):
            for i in T.Parallel(100):
                B[i] = scratch[99 - i]

    a, b = torch.randn(100, device=DEVICE), zeros(100)
    compiled(main)(a, b)
    assert torch.equal(b, 2 * a.flip(0))


def test_whole_blocks_return_in_front_of_operators_on_tiles():
    @T.prim_func
    def main(A: T.Tensor((250,), "float32"), lengths: T.Tensor((5,), "int32"), n: T.int32):
        with T.Kernel(5, threads=64) as bx:
            S = T.alloc_shared((50,), "float32")
            if bx >= n:
                T.thread_return()
            T.copy(A[bx * 50 : (bx + 1) * 50], S)
            length = lengths[bx]
            if length == 0:
                T.thread_return()
            T.sync_threads()
            for i in T.Parallel(50):
                A[bx * 50 + i] = S[49 - i] + length

    a = torch.randn(250, device=DEVICE)
    lengths = [3, 0, 2, 1, 1]
    wanted = a.view(5, 50).clone()
    for row in (0, 2, 3):
        wanted[row] = wanted[row].flip(0) + lengths[row]
    compiled(main)(a, torch.tensor(lengths, dtype=torch.int32, device=DEVICE), 4)
    assert torch.equal(a.view(5, 50), wanted)


def test_a_tensor_at_the_memory_of_another_one():
    @T.prim_func
    def main(A: T.Tensor((2, 15, 8), "float32"), B: T.Tensor((3, 80), "int32")):
        with T.Kernel(1, threads=32):
            words = T.Tensor((12, 20), "int32", A.data)
            S = T.alloc_shared((300,), "float32")
            tile = T.Tensor((12, 20), dtype="int32", data=S.data)
            T.copy(words, tile)
            for i in T.Parallel(240):
                T.Tensor((240,), "float32", B.data)[i] = S[i]

    a, b = torch.randn(2, 15, 8, device=DEVICE), zeros(3, 80, dtype=torch.int32)
    compiled(main)(a, b)
    assert torch.equal(b.view(torch.float32).flatten(), a.flatten())


@pytest.mark.filterwarnings("ignore:x is immutable and is bound a second time")
def test_a_name_has_a_new_value_for_the_rest_of_an_iteration():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8, 4), "int32")):
        with T.Kernel(1, threads=1):
            x = A[0]
            y = A[1]
            B[0, 0] = x + y
            for i in T.serial(8):
                x = A[i]
                B[i, 1] = x
                x = x * 2
                B[i, 2] = x
                for j in T.serial(2):
                    B[i, 3] = x + j
                x = x + 1
                B[i, 0] = x + y

    a, b = torch.arange(8, dtype=torch.int32, device=DEVICE), zeros(8, 4, dtype=torch.int32)
    compiled(main)(a, b)
    assert b.tolist() == [[2 * i + 2, i, 2 * i, 2 * i + 1] for i in range(8)]
