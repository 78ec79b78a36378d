"""A producer reads tables of pages before it waits for the slots of tiles, and once."""

import pytest
import torch

import tilelang
import tilelang.language as T

SM90 = {"kind": "cuda", "arch": "sm_90a"}


def producer(program):
    """The body of the producer's loop, as CUDA."""
    source = tilelang.compile(program, target=SM90).get_kernel_source()
    return source.partition("reg_dealloc")[2].partition("for (int t")[2].partition("1 <= warp_")[0]


def paged(named=False, by_step=True):
    """Two tiles of a page in each step, multiplied."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((32, 64, 128), "float16"),
        Table: T.Tensor((8,), "int32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = [T.alloc_shared((64, 64), "float16") for _ in range(2)]
            k = [T.alloc_shared((64, 64), "float16") for _ in range(2)]
            out = T.alloc_fragment((64, 64), "float32")
            for half in [0, 1]:
                T.copy(Q, q[half])
            T.clear(out)
            for t in T.Pipelined(8, num_stages=2):
                for half in [0, 1]:
                    columns = slice(half * 64, half * 64 + 64)
                    if named:
                        page = Table[t]
                        T.copy(K[page, :, columns], k[half])
                    else:
                        T.copy(K[Table[t if by_step else half], :, columns], k[half])
                    T.gemm(q[half], k[half], out, transpose_B=True)
            T.copy(out, C)

    return main


@pytest.mark.parametrize("named", [False, True])
def test_a_number_is_read_once_and_before_the_waits(named):
    loop = producer(paged(named))
    assert loop.count("Table[") == 1
    assert loop.index("Table[") < loop.index("mbarrier_wait") < loop.index("tma_load")
    assert loop.count("number") == 3, "its name is bound, and both loads have it"


def test_different_numbers_have_names_of_their_own():
    loop = producer(paged(by_step=False))
    assert loop.count("Table[") == 2
    assert loop.rindex("Table[") < loop.index("mbarrier_wait")
    assert "number_1" in loop


def test_a_tensor_of_integers_is_loaded_by_its_address():
    """Its elements are no coordinates."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "int8"),
        K: T.Tensor((512, 64), "int8"),
        C: T.Tensor((64, 64), "int32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "int8")
            k = T.alloc_shared((64, 64), "int8")
            out = T.alloc_fragment((64, 64), "int32")
            T.copy(Q, q)
            T.clear(out)
            for t in T.Pipelined(8, num_stages=2):
                T.copy(K[t * 64, 0], k)
                T.gemm(q, k, out, transpose_B=True)
            T.copy(out, C)

    loop = producer(main)
    assert "tma_load" in loop
    assert "number" not in loop


@pytest.mark.parametrize("kind", ["conditional", "in a loop"])
def test_what_may_not_be_read_in_each_iteration_stays(kind):
    """Table has no element -1, and none behind its end."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((32, 64, 64), "float16"),
        Table: T.Tensor((8,), "int32"),
        C: T.Tensor((64, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            q, k = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            out = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, q)
            T.clear(out)
            for t in T.Pipelined(8, num_stages=2):
                if kind == "conditional":
                    some = T.And(t >= 1, T.popcount(n >> t) > 0)
                    T.copy(K[T.if_then_else(some, Table[t - 1], 3), :, :], k)
                else:
                    for row in T.serial(T.min(n, 64)):
                        T.copy(K[Table[t], row : row + 1, :], k[row : row + 1, :])
                T.gemm(q, k, out)
            T.copy(out, C)

    assert "number" not in producer(main)


@pytest.mark.parametrize(("kind", "moved"), [(T.Tensor, True), (T.SymmetricTensor, False)])
def test_what_another_rank_may_write_is_read_behind_the_wait(kind, moved):
    """The other role may have waited for the signal that a row of the table is there."""

    @T.prim_func
    def main(
        K: T.Tensor((32, 64, 64), "float16"),
        Table: kind((8,), "int32"),
        Ready: kind((8,), "uint32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            k = T.alloc_shared((64, 64), "float16")
            full, empty = T.alloc_barrier(1), T.alloc_barrier(128)
            with T.ws(0):
                if T.get_thread_binding() == 0:
                    for t in T.serial(8):
                        T.barrier_wait(empty, t & 1)
                        T.tma_copy(K[Table[t], :, :], k, barrier=full)
                        T.barrier_arrive(full)
            with T.ws(1):
                out = T.alloc_fragment((64, 64), "float32")
                T.clear(out)
                for t in T.serial(8):
                    if kind is T.SymmetricTensor:
                        T.signal_wait_until(Ready[t], "ge", 1)
                    T.barrier_arrive(empty)
                    T.barrier_wait(full, t & 1)
                    for i, j in T.Parallel(64, 64):
                        out[i, j] += k[i, j]
                T.copy(out, C)

    source = tilelang.compile(main, target=SM90).get_kernel_source()
    loop = source.partition("for (int t")[2].partition("tma_load")[0]
    assert ("number = Table[t]" in loop.partition("mbarrier_wait")[0]) == moved


def by_half_a_table(kind):
    """C += a page in each of eight steps; Table has the numbers of four."""

    def chosen(Table, t, n):
        """Not moved whole, because of a call."""
        return T.if_then_else(T.And(t < 4, T.popcount(n >> t) > 0), Table[t], 9)

    @T.prim_func
    def main(
        K: T.Tensor((32, 8, 64), "float32"),
        Table: T.Tensor((4,), "int32"),
        C: T.Tensor((8, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=256):
            k = T.alloc_shared((8, 64), "float32")
            full, empty = T.alloc_barrier(1), T.alloc_barrier(128)
            with T.ws(0):
                if T.get_thread_binding() == 0:
                    for t in T.serial(8):
                        T.barrier_wait(empty, t & 1)
                        if kind == "rows":
                            for i in T.serial(T.max(4 - t, 0)):
                                row = slice(i, i + 1)
                                T.tma_copy(K[Table[t], row, :], k[row, :], barrier=full)
                        elif kind == "written":
                            T.tma_copy(K[Table[t % 4], :, :], k, barrier=full)
                        elif kind == "condition":
                            page = T.if_then_else(t < 4, Table[t], 9)
                            T.tma_copy(K[page, :, :], k, barrier=full)
                        else:
                            T.tma_copy(K[chosen(Table, t, n), :, :], k, barrier=full)
                        T.barrier_arrive(full)
            with T.ws(1):
                out = T.alloc_fragment((8, 64), "float32")
                T.copy(C, out)
                for t in T.serial(8):
                    if kind == "written" and T.get_thread_binding() == 128:
                        Table[t % 4] = n + t
                    T.barrier_arrive(empty)
                    T.barrier_wait(full, t & 1)
                    for i, j in T.Parallel(8, 64):
                        if kind != "rows" or i < 4 - t:
                            out[i, j] += k[i, j]
                T.copy(out, C)

    return main


@pytest.mark.parametrize(
    ("kind", "pages"),
    [
        ("condition", [30, 20, 10, 0, 9, 9, 9, 9]),
        ("half a condition", [30, 20, 9, 9, 9, 9, 9, 9]),
        ("rows", [30, 20, 10, 0]),
        ("written", [3, 4, 5, 6, 7, 8, 9, 10]),
    ],
)
def test_pages_are_those_of_the_program(kind, pages):
    """Table has no more elements, and those that another role writes are there behind the wait."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    K = torch.randn(32, 8, 64, device=device)
    table = torch.tensor([30, 20, 10, 0], dtype=torch.int32, device=device)
    C, wanted = torch.zeros(2, 8, 64, device=device)
    for t, page in enumerate(pages):
        rows = 4 - t if kind == "rows" else 8
        wanted[:rows] += K[page, :rows]
    tilelang.compile(by_half_a_table(kind), target=SM90)(K, table, C, 3)
    torch.testing.assert_close(C, wanted)
