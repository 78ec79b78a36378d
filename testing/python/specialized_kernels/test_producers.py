"""Who loads a tile, and what stays out of the way of those who do."""

import pytest
import tvm_ffi
from tvm import ir

import tilelang.language as T

SIZE = 64


def gemm(load_a, load_b, stages, threads=128, n=4, init=None):
    """C of A (64, 64 n) and B (64, 64 n), stored transposed; `init` is the accumulator's."""
    begin = init or T.clear

    @T.prim_func
    def main(
        A: T.Tensor((SIZE, SIZE * n), "float16"),
        B: T.Tensor((SIZE, SIZE * n), "float16"),
        C: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((SIZE, SIZE), "float16")
            W = T.alloc_shared((SIZE, SIZE), "float16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            begin(F)
            for k in T.Pipelined(n, num_stages=stages):
                load_a(A, S, k)
                load_b(B, W, k)
                T.gemm(S, W, F, transpose_B=True)
            T.copy(F, C)

    return main


@T.macro
def by_tma(source, tile, k):
    T.copy(source[0, k * SIZE], tile)


@T.macro
def by_cp_async(source, tile, k):
    T.copy(source[0, k * SIZE], tile, disable_tma=True)


@T.macro
def by_stores(source, tile, k):
    for i, j in T.Parallel(SIZE, SIZE):
        tile[i, j] = source[i, k * SIZE + j] * T.float16(2)


@T.macro
def rows_of_numbers(F):
    for i, j in T.Parallel(SIZE, SIZE):
        F[i, j] = T.cast(i, "float32")


def test_one_stage_of_tma_alone_keeps_its_specialisation(build, integers):
    own_stages = {"tl.second_choice.spare_shared": True}
    kernel = build(gemm(by_tma, by_tma, stages=1), own_stages)
    assert kernel.channels[0]["versions"] == 1
    assert kernel.consumer.calls.count("tl.wgmma_ss") == 1
    a, b = integers(SIZE, 4 * SIZE), integers(SIZE, 4 * SIZE)
    kernel.check(a, b, wanted=a.double() @ b.double().T)


def test_tma_and_cp_async_share_the_barriers_of_a_stage(build, integers):
    kernel = build(gemm(by_tma, by_cp_async, stages=3))
    assert kernel.fills == ["tma", "cp.async"]
    (channel,) = kernel.channels
    assert (channel["full"], channel["empty"]) == (128, 4)
    # The arrivals of the threads are those of their copies, at the barrier of the bytes by TMA.
    at = kernel.producer.events.index("tl.cp_async_mbarrier_arrive_noinc")
    assert kernel.producer.events[at + 1 :] == ["tirx.address_of", "S_full"]
    a, b = integers(SIZE, 4 * SIZE), integers(SIZE, 4 * SIZE)
    kernel.check(a, b, wanted=a.double() @ b.double().T)


def test_copy_by_threads_uses_all_of_the_producer(build, integers):
    kernel = build(gemm(by_tma, by_stores, stages=2, threads=256))
    assert kernel.fills == ["tma", "threads"]
    assert (kernel.channels[0]["full"], kernel.channels[0]["empty"]) == (8, 8)
    assert [(r["name"], r["first"], r["threads"]) for r in kernel.plan["roles"]] == [
        ("producer", 0, 256),
        ("consumer", 256, 256),
    ]
    a, b = integers(SIZE, 4 * SIZE), integers(SIZE, 4 * SIZE)
    kernel.check(a, b, wanted=a.double() @ b.double().T * 2)


def test_initialisation_of_the_consumer_stays_out_of_the_producer(build, integers):
    kernel = build(gemm(by_tma, by_tma, stages=2, init=rows_of_numbers))
    assert "F" not in kernel.producer.buffers
    events = kernel.consumer.events
    assert events.index("F") < events.index("tl.mbarrier_wait")
    a, b = integers(SIZE, 4 * SIZE), integers(SIZE, 4 * SIZE)
    rows = a.new_tensor(range(SIZE)).double()[:, None]
    kernel.check(a, b, wanted=a.double() @ b.double().T + rows)


COLUMNS = 250
"""Rows end two elements behind the last 16 bytes of one."""


def gemm_of_strided_rows(options):
    """C of A (64, 250) and B (64, 250), where a row of A begins at a multiple of 16 bytes."""

    @T.prim_func
    def main(
        A: T.StridedTensor((SIZE, COLUMNS), (4 * COLUMNS, 1), "float16"),
        B: T.Tensor((SIZE, 256), "float16"),
        C: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((SIZE, SIZE), "float16")
            W = T.alloc_shared((SIZE, SIZE), "float16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            T.clear(F)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * SIZE], S, **options)
                T.copy(B[0, k * SIZE], W)
                T.gemm(S, W, F, transpose_B=True)
            T.copy(F, C)

    return main


@pytest.mark.parametrize("options", [{"disable_tma": True}, {"prefer_instruction": "cp_async"}])
def test_rows_that_cut_16_bytes_are_by_cp_async_of_fewer(build, integers, options):
    kernel = build(gemm_of_strided_rows(options))
    assert kernel.fills == ["cp.async", "tma"]
    assert bytes_of_copies(kernel) == {16, 4}
    rows, b = integers(SIZE, 4 * COLUMNS), integers(SIZE, 256)
    a = rows[:, :COLUMNS]
    kernel.check(a, b, wanted=a.double() @ b[:, :COLUMNS].double().T)


def bytes_of_copies(kernel):
    found = set()

    def call(node):
        if node.op.name.startswith("tl.cp_async_gs"):
            found.add(int(node.args[0]))

    tvm_ffi.structural_walk(kernel.function.body, [(ir.Call, call)])
    return found


def test_without_vectors_no_copy_of_narrow_elements_is_cp_async(build, integers):
    kernel = build(gemm(by_tma, by_cp_async, stages=2), {"tirx.disable_vectorize": True})
    assert kernel.fills == ["tma", "threads"]
    a, b = integers(SIZE, 4 * SIZE), integers(SIZE, 4 * SIZE)
    kernel.check(a, b, wanted=a.double() @ b.double().T)
