"""Fragments that several threads hold: row and column values in loops over tiles."""

import pytest
import torch

import tilelang
import tilelang.language as T


def scale_rows(m, n, threads):
    @T.prim_func
    def main(
        A: T.Tensor((m, n), "float32"), s: T.Tensor((m,), "float32"), B: T.Tensor((m, n), "float32")
    ):
        with T.Kernel(1, threads=threads):
            row = T.alloc_fragment((m,), "float32")
            F = T.alloc_fragment((m, n), "float32")
            T.copy(s, row)
            T.copy(A, F)
            for i, j in T.Parallel(m, n):
                F[i, j] = F[i, j] * row[i]
            T.copy(F, B)

    return main


@pytest.mark.parametrize(
    ("m", "n", "threads"), [(48, 64, 128), (17, 3, 32), (1, 129, 96), (100, 60, 256), (7, 1, 48)]
)
def test_value_of_a_row(m, n, threads):
    a, s = torch.randn(m, n), torch.randn(m)
    kernel = tilelang.compile(scale_rows(m, n, threads), out_idx=-1, execution_backend="emulate")
    assert torch.equal(kernel(a, s), a * s[:, None])


def test_row_value_is_held_by_the_threads_of_its_row(tile_passes, layouts):
    placed, _ = layouts(tile_passes(scale_rows(48, 64, 128), "LayoutInference"))
    assert placed["row"].num_replicas == 16
    assert placed["row"].thread_table()[:18] == [*range(16), 16, 17]


def test_value_of_a_column():
    @T.prim_func
    def main(
        A: T.Tensor((33, 64), "float16"),
        s: T.Tensor((64,), "float16"),
        B: T.Tensor((33, 64), "float16"),
    ):
        with T.Kernel(1, threads=64):
            column = T.alloc_fragment((64,), "float16")
            F = T.alloc_fragment((33, 64), "float16")
            T.copy(A, F)
            T.copy(s, column)
            for i, j in T.Parallel(33, 64):
                F[i, j] = F[i, j] + column[j]
            T.copy(F, B)

    a, s = torch.randn(33, 64).half(), torch.randn(64).half()
    kernel = tilelang.compile(main, out_idx=-1, execution_backend="emulate")
    assert torch.equal(kernel(a, s), a + s)


def test_serial_loop_inside_keeps_its_row_in_one_thread():
    @T.prim_func
    def main(A: T.Tensor((48, 5), "float32"), B: T.Tensor((48,), "float32")):
        with T.Kernel(1, threads=32):
            total = T.alloc_fragment((48,), "float32")
            F = T.alloc_fragment((48, 5), "float32")
            for i in T.Parallel(48):
                total[i] = 0.0
                for j in T.serial(5):
                    F[i, j] = A[i, j] * 2.0
                    total[i] += F[i, j]
            T.copy(total, B)

    a = torch.randn(48, 5)
    kernel = tilelang.compile(main, out_idx=-1, execution_backend="emulate")
    assert torch.allclose(kernel(a), 2 * a.sum(1), atol=1e-5)


def test_first_operator_need_not_choose(tile_passes, layouts):
    """A fill of row values comes first, but the loop over the tile decides where they live."""

    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), B: T.Tensor((32, 64), "float32")):
        with T.Kernel(1, threads=64):
            row = T.alloc_fragment((32,), "float32")
            F = T.alloc_fragment((32, 64), "float32")
            T.fill(row, 3.0)
            T.copy(A, F)
            for i, j in T.Parallel(32, 64):
                F[i, j] = F[i, j] + row[i]
            T.copy(F, B)

    placed, _ = layouts(tile_passes(main, "LayoutInference"))
    assert placed["row"].num_replicas == 16
    a = torch.randn(32, 64)
    kernel = tilelang.compile(main, out_idx=-1, execution_backend="emulate")
    assert torch.equal(kernel(a), a + 3)


def test_replicas_write_memory_once():
    @T.prim_func
    def main(
        A: T.Tensor((32, 64), "float32"),
        s: T.Tensor((32,), "float32"),
        C: T.Tensor((32,), "float32"),
    ):
        with T.Kernel(1, threads=64):
            row = T.alloc_fragment((32,), "float32")
            F = T.alloc_fragment((32, 64), "float32")
            T.copy(A, F)
            T.copy(s, row)
            for i, j in T.Parallel(32, 64):
                F[i, j] = F[i, j] + row[i]
            for i in T.Parallel(32):
                C[i] = C[i] + row[i]

    a, s, c = torch.randn(32, 64), torch.randn(32), torch.zeros(32)
    tilelang.compile(main, execution_backend="emulate")(a, s, c)
    assert torch.equal(c, s)


def ones_by_turns(bounds):
    """G, which all threads hold, is written in iterations (i, j) that name element i + j, by n."""

    @T.prim_func
    def main(n: T.int32, B: T.Tensor((32, 4), "float32")):
        with T.Kernel(1, threads=32):
            G = T.alloc_fragment((4,), "float32")
            F = T.alloc_fragment((32, 4), "float32")
            T.annotate_layout(
                {
                    G: T.Fragment((4,), forward_fn=lambda i, r: (r, i), replicate=32),
                    F: T.Fragment((32, 4), lambda i, j: (i, j)),
                }
            )
            T.fill(G, 0)
            for i in T.Parallel(32, loop_layout=T.Fragment((32,), lambda i: (i, 0))):
                for j in T.serial(*bounds(n)):
                    G[(i + j) % 4] = 1.0
            for i, j in T.Parallel(32, 4):
                F[i, j] = G[j]
            T.copy(F, B)

    return main


@pytest.mark.parametrize(
    "bounds",
    [lambda n: (1, 4), lambda n: (3, 5), lambda n: (0, T.min(n, 4)), lambda n: (T.max(n, 0), 4)],
)
def test_loop_that_leaves_out_elements_writes_them_in_some_threads_alone(bounds):
    """A thread would keep the old value of the element that no iteration of its own names."""
    with pytest.raises(ValueError, match="a write of G that runs in some of the threads"):
        tilelang.compile(ones_by_turns(bounds), out_idx=-1, execution_backend="emulate")


@pytest.mark.parametrize("first", [-2, 0, 1, 2])
def test_loop_that_names_all_elements_writes_them_in_all_threads(first):
    main = ones_by_turns(lambda n: (first, first + 4))
    kernel = tilelang.compile(main, out_idx=-1, execution_backend="emulate")
    assert torch.equal(kernel(0), torch.ones(32, 4))
