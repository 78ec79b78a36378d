"""Other names of versioned buffers, and variables of loops that are none of the kernel."""

import pytest
import torch

import tilelang.language as T

SIZE = 64
STEPS = 5


@T.macro
def reshaped(S, F, k):
    flat = T.reshape(S, (SIZE * SIZE,))
    for i, j in T.Parallel(SIZE, SIZE):
        F[i, j] += flat[i * SIZE + j]


@T.macro
def viewed(S, F, k):
    bits = T.view(S, (SIZE, SIZE), "uint16")
    for i, j in T.Parallel(SIZE, SIZE):
        F[i, j] += T.reinterpret(bits[i, j], "float16")


@T.macro
def of_one_body(S, F, k):
    scale = T.alloc_var("float32", 1.0)
    if k % 2 == 1:
        scale = -1.0
    for i, j in T.Parallel(SIZE, SIZE):
        F[i, j] += S[i, j] * scale


def sum_of_tiles(add, num_stages=2):
    @T.prim_func
    def main(A: T.Tensor((SIZE, STEPS * SIZE), "float16"), C: T.Tensor((SIZE, SIZE), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((SIZE, SIZE), "float16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            T.clear(F)
            for k in T.Pipelined(STEPS, num_stages=num_stages):
                T.copy(A[0, k * SIZE], S)
                add(S, F, k)
            T.copy(F, C)

    return main


@pytest.mark.parametrize("add", [reshaped, viewed])
@pytest.mark.parametrize("stages", [1, 3])
def test_views_of_a_versioned_buffer(build, integers, add, stages):
    kernel = build(sum_of_tiles(add, stages))
    assert kernel.fills == ["tma"]
    a = integers(SIZE, STEPS * SIZE)
    kernel.check(a, wanted=a.double().view(SIZE, STEPS, SIZE).sum(1))


def test_variable_of_a_body_is_no_parameter(build, integers):
    kernel = build(sum_of_tiles(of_one_body))
    assert kernel.parameters == {"A_desc", "C"}
    assert "scale" not in kernel.producer.buffers
    assert "scale" in kernel.consumer.buffers
    a = integers(SIZE, STEPS * SIZE)
    signs = torch.tensor([1, -1, 1, -1, 1]).double()[:, None]
    kernel.check(a, wanted=(a.double().view(SIZE, STEPS, SIZE) * signs).sum(1))


def test_variable_that_places_a_load_is_of_both_roles(build, integers):
    @T.prim_func
    def main(
        A: T.Tensor((SIZE, STEPS * SIZE), "float16"),
        steps: T.Tensor((STEPS,), "int32"),
        C: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((SIZE, SIZE), "float16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            at = T.alloc_var("int32", 0)
            T.clear(F)
            for k in T.Pipelined(STEPS, num_stages=2):
                step = steps[k]
                at += step
                T.copy(A[0, at * SIZE], S)
                for i, j in T.Parallel(SIZE, SIZE):
                    F[i, j] += S[i, j] * (at + 1)
            T.copy(F, C)

    kernel = build(main)
    assert kernel.fills == ["tma"]
    assert kernel.parameters == {"A_desc", "C", "steps"}
    a = integers(SIZE, STEPS * SIZE)
    steps = torch.tensor([1, 2, -2, 3, -4], dtype=torch.int32)
    at = steps.cumsum(0)
    tiles = a.double().view(SIZE, STEPS, SIZE)[:, at] * (at.double() + 1)[:, None]
    kernel.check(a, steps, wanted=tiles.sum(1))


def test_pipelined_loop_in_a_pipelined_loop(build, integers):
    @T.prim_func
    def main(
        A: T.Tensor((STEPS * SIZE, SIZE), "float16"),
        B: T.Tensor((STEPS * SIZE, SIZE), "float16"),
        C: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((SIZE, SIZE), "float16")
            W = T.alloc_shared((SIZE, SIZE), "float16")
            F = T.alloc_fragment((SIZE, SIZE), "float32")
            T.clear(F)
            for k in T.Pipelined(STEPS, num_stages=2):
                T.copy(A[k * SIZE, 0], S)
                for n in T.Pipelined(k, num_stages=3):
                    T.copy(B[n * SIZE, 0], W)
                    T.gemm(S, W, F)
            T.copy(F, C)

    kernel = build(main)
    assert kernel.fills == ["tma", "tma"]
    a, b = integers(STEPS * SIZE, SIZE, low=-1, high=2), integers(STEPS * SIZE, SIZE)
    x, y = a.double().view(STEPS, SIZE, SIZE), b.double().view(STEPS, SIZE, SIZE)
    wanted = sum(x[k] @ y[n] for k in range(STEPS) for n in range(k))
    kernel.check(a, b, wanted=wanted)


@pytest.mark.parametrize(("stages", "fill"), [(1, "tma"), (2, "cp.async")])
def test_second_slot_that_does_not_begin_where_tma_writes(build, integers, stages, fill):
    """65 rows of 64 bytes: the tile itself begins at a multiple of 128 bytes."""

    @T.prim_func
    def main(
        A: T.Tensor((SIZE, STEPS * SIZE), "float16"),
        B: T.Tensor((65, STEPS * 32), "float16"),
        C: T.Tensor((SIZE, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((SIZE, SIZE), "float16")
            W = T.alloc_shared((65, 32), "float16")
            F = T.alloc_fragment((SIZE, 32), "float32")
            T.clear(F)
            for k in T.Pipelined(STEPS, num_stages=stages):
                T.copy(A[0, k * SIZE], S)
                T.copy(B[0, k * 32], W)
                for i, j in T.Parallel(SIZE, 32):
                    F[i, j] += S[i, j] + W[i + 1, j]
            T.copy(F, C)

    kernel = build(main)
    assert kernel.fills == ["tma", fill]
    a, b = integers(SIZE, STEPS * SIZE), integers(65, STEPS * 32)
    wanted = a.double().view(SIZE, STEPS, SIZE)[:, :, :32] + b.double().view(65, STEPS, 32)[1:]
    kernel.check(a, b, wanted=wanted.sum(1))
