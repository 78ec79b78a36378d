"""Pipelined loops inside of others, and of any length."""

import pytest
import torch

import tilelang.language as T

SIZE = 64


@T.macro
def product(A, B, S, W, F, row, n):
    """F += A[row] (SIZE, SIZE n) times B (SIZE, SIZE n) transposed."""
    for k in T.Pipelined(n, num_stages=2):
        T.copy(A[row * SIZE, k * SIZE], S)
        T.copy(B[0, k * SIZE], W)
        T.gemm(S, W, F, transpose_B=True)


def rows_of_tiles(schedule, rows=4, n=3, programs=1):
    """The tiles of C (SIZE rows, SIZE) in the order of `schedule`."""

    @T.prim_func
    def main(
        A: T.Tensor((SIZE * rows, SIZE * n), "float16"),
        B: T.Tensor((SIZE, SIZE * n), "float16"),
        C: T.Tensor((SIZE * rows, SIZE), "float32"),
    ):
        with T.Kernel(programs, threads=128) as bx:
            S = T.alloc_shared((SIZE, SIZE), "float16")
            W = T.alloc_shared((SIZE, SIZE), "float16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            schedule(A, B, C, S, W, F, bx)

    return main


@T.macro
def while_rows_are_left(A, B, C, S, W, F, bx):
    row = T.alloc_var("int32", 0)
    while row < 4:
        T.clear(F)
        product(A, B, S, W, F, row, 3)
        T.copy(F, C[row * SIZE, 0])
        row += 1


@T.macro
def persistent(A, B, C, S, W, F, bx):
    for row, _ in T.Persistent([4, 1], 3, bx):
        T.clear(F)
        product(A, B, S, W, F, row, 3)
        T.copy(F, C[row * SIZE, 0])


@T.macro
def some_left_out(A, B, C, S, W, F, bx):
    for row in T.serial(4):
        T.clear(F)
        if row == 1:
            T.copy(F, C[row * SIZE, 0])
            continue
        product(A, B, S, W, F, row, 3)
        T.copy(F, C[row * SIZE, 0])


@T.macro
def some_not_reached(A, B, C, S, W, F, bx):
    for half in T.serial(2):
        for i in T.serial(2):
            T.clear(F)
            if half * 2 + i == 1:
                T.copy(F, C[SIZE, 0])
                break
            product(A, B, S, W, F, half * 2 + i, 3)
            T.copy(F, C[(half * 2 + i) * SIZE, 0])


@T.macro
def of_growing_length(A, B, C, S, W, F, bx):
    for row in T.serial(4):
        T.clear(F)
        product(A, B, S, W, F, row, row)
        T.copy(F, C[row * SIZE, 0])


@pytest.mark.parametrize(
    ("order", "programs", "number"),
    [(while_rows_are_left, 1, "a running count"), (persistent, 3, "wave * 3 + k")],
    ids=["while", "persistent"],
)
def test_loop_inside_of_a_loop(build, integers, order, programs, number):
    kernel = build(rows_of_tiles(order, programs=programs))
    assert kernel.channels[0]["count"] == number
    a, b = integers(SIZE * 4, SIZE * 3), integers(SIZE, SIZE * 3)
    kernel.check(a, b, wanted=a.double() @ b.double().T)


@pytest.mark.parametrize("order", [some_left_out, some_not_reached], ids=["continue", "break"])
def test_loop_inside_of_a_loop_that_jumps_over_it(build, integers, order):
    """Fills that do not happen are not counted."""
    kernel = build(rows_of_tiles(order))
    assert kernel.channels[0]["count"] == "a running count"
    a, b = integers(SIZE * 4, SIZE * 3), integers(SIZE, SIZE * 3)
    wanted = a.double() @ b.double().T
    wanted[SIZE : SIZE * 2] = 0
    kernel.check(a, b, wanted=wanted)


def test_inner_loop_of_another_length_each_time(build, integers):
    kernel = build(rows_of_tiles(of_growing_length))
    a, b = integers(SIZE * 4, SIZE * 3), integers(SIZE, SIZE * 3)
    wanted = torch.stack(
        [
            a[r * SIZE : (r + 1) * SIZE, : r * SIZE].double() @ b[:, : r * SIZE].double().T
            for r in range(4)
        ]
    ).reshape(4 * SIZE, SIZE)
    kernel.check(a, b, wanted=wanted)


@T.macro
def one_step(A, B, C, S, W, F, bx):
    T.clear(F)
    product(A, B, S, W, F, bx, 1)
    T.copy(F, C[bx * SIZE, 0])


def test_single_iteration(build, integers):
    kernel = build(rows_of_tiles(one_step, n=1, programs=4))
    a, b = integers(SIZE * 4, SIZE), integers(SIZE, SIZE)
    kernel.check(a, b, wanted=a.double() @ b.double().T)


@pytest.fixture(scope="module")
def dynamic():
    n = T.dynamic("n")

    @T.prim_func
    def main(
        A: T.Tensor((SIZE, SIZE), "float16"),
        starts: T.Tensor((n,), "int32"),
        B: T.Tensor((SIZE * 4, SIZE), "float16"),
        C: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((SIZE, SIZE), "float16")
            W = T.alloc_shared((SIZE, SIZE), "float16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            T.clear(F)
            T.copy(A, S)
            for k in T.Pipelined(n, num_stages=3):
                T.copy(B[starts[k] * SIZE, 0], W)
                T.gemm(S, W, F)
            T.copy(F, C)

    return main


@pytest.mark.parametrize("length", [0, 1, 250])
def test_dynamic_length(build, integers, dynamic, length):
    kernel = build(dynamic)
    a, b = integers(SIZE, SIZE, low=-1, high=2), integers(SIZE * 4, SIZE, low=-1, high=2)
    starts = torch.randint(0, 4, (length,), dtype=torch.int32)
    tiles = b.double().view(4, SIZE, SIZE)[starts.long()].sum(0)
    kernel.check(a, starts, b, wanted=a.double() @ tiles)
