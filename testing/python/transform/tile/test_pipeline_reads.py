"""What several versions of a shared buffer may not change: reads of what another iteration, or
another loop, has written."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_reads_of_what_another_iteration_wrote():
    """Part of a tile is copied, a tile in some iterations, and a tile read in another pipeline."""

    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), C: T.Tensor((3, 4, 8, 16), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 16), "float32")
            T.fill(S, 5)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0:4, k * 16 : k * 16 + 16], S[0:4, 0:16])
                T.copy(S, C[0, k, 0, 0])
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 16), "float32")
            for k in T.Pipelined(4, num_stages=3):
                if k % 2 == 0:
                    T.copy(A[0, k * 16], S)
                T.copy(S, C[1, k, 0, 0])
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 16), "float32")
            W = T.alloc_shared((8, 16), "float32")
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 16], S)
                T.copy(S, C[2, 3, 0, 0])
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[0, k * 16], W)
                for i, j in T.Parallel(8, 16):
                    C[2, k, i, j] = W[i, j] + S[i, j]

    a = torch.randn(8, 64, device=DEVICE)
    tiles = a.reshape(8, 4, 16).transpose(0, 1)
    wanted = torch.full((3, 4, 8, 16), 5.0, device=DEVICE)
    wanted[0, :, :4] = tiles[:, :4]
    wanted[1] = tiles[[0, 0, 2, 2]]
    wanted[2] = tiles + tiles[3]
    wanted[2, 3] = tiles[3]
    assert torch.equal(tilelang.compile(main, out_idx=-1)(a), wanted)


@pytest.mark.parametrize(
    ("read", "is_prefetched"), [("part", True), ("whole", False), ("loop", False)]
)
def test_a_region_that_is_copied_and_read(statements, read, is_prefetched):
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), C: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 20), "float32")
            F = T.alloc_fragment((8, 16), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 16], S[0:8, 0:16])
                if read == "part":
                    T.copy(S[0:8, 0:16], F)
                elif read == "whole":
                    T.copy(S[0:8, 4:20], F)
                else:
                    for i, j in T.Parallel(8, 16):
                        F[i, j] = S[i, j + 1]
                T.copy(F, C[0, k * 16])

    assert ("software_pipeline" in statements(main, "PipelinePlanning")) is is_prefetched


@pytest.mark.parametrize("by", ["index", "names", "half"])
def test_names_in_a_loop_that_fills_a_tile(statements, by):
    """Names for indices and values hide nothing: the loop fills the tile, or with `half` only some
    of it."""

    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), C: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 16), "float32")
            for k in T.Pipelined(4, num_stages=2):
                for part, i, j in T.Parallel(2, 8, 8):
                    if by == "index":
                        S[i, part * 8 + j] = A[i, k * 16 + part * 8 + j]
                    else:
                        first = part * (8 if by == "names" else 4)
                        at = first + j
                        element = A[i, k * 16 + at]
                        S[i, at] = element
                T.copy(S, C[0, k * 16])

    text = statements(main, "PipelinePlanning")
    assert ("software_pipeline" in text) is (by != "half")


def test_a_buffer_that_is_filled_again_before_it_is_read(statements):
    """A loop, a statement and a pipeline that fill the buffer first do not keep it from versions;
    one that may not fill it does."""

    def program(fills):
        @T.prim_func
        def main(A: T.Tensor((8, 64), "float32"), C: T.Tensor((8, 64), "float32")):
            with T.Kernel(1, threads=32):
                S = T.alloc_shared((8, 16), "float32")
                T.fill(S, 1)
                T.copy(S, C[0, 0])
                for k in T.Pipelined(4, num_stages=2):
                    T.copy(A[0, k * 16], S)
                    T.copy(S, C[0, k * 16])
                for k in T.serial(4):
                    if fills or k > 1:
                        for i, j in T.Parallel(8, 16):
                            S[i, j] = A[i, k * 16 + j]
                    T.copy(S, C[0, k * 16])

        return main

    assert "software_pipeline" in statements(program(True), "PipelinePlanning")
    assert "software_pipeline" not in statements(program(False), "PipelinePlanning")


@pytest.mark.parametrize(
    ("start", "outside", "told"),
    [(4, False, "has not certainly written"), (0, True, "read outside of the loop")],
)
def test_user_plans_that_read_another_version_are_refused(statements, start, outside, told):
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), C: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 20), "float32")
            for k in T.Pipelined(4, order=[0, 1], stage=[0, 1]):
                T.copy(A[0, k * 16], S[0:8, 0:16])
                T.copy(S[0:8, start : start + 16], C[0, k * 16])
            if outside:
                T.copy(S[0:8, 0:16], C[0, 0])

    with pytest.raises(ValueError, match=rf"py:\d+: T.Pipelined: found S .* {told}"):
        statements(main, "PipelinePlanning", "InjectSoftwarePipeline")


def test_a_copy_that_nobody_reads_does_not_run_ahead():
    """Two of them would be on their way to the same place at the same time."""

    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            unread = T.alloc_shared((64,), "float32")
            tile = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k, 0], unread)
                T.copy(A[k, 0], tile)
                for i in T.Parallel(64):
                    B[i] = tile[i]

    a, b = torch.randn(4, 64, device=DEVICE), torch.zeros(64, device=DEVICE)
    kernel = tilelang.compile(main)
    kernel(a, b)
    assert torch.equal(b, a[3])
    assert "nothing in the loop reads unread" in kernel.explain()


@pytest.mark.parametrize(("filled_in_range", "is_prefetched"), [(False, False), (True, True)])
def test_a_range_of_threads_that_reads_while_the_loop_runs(
    statements, filled_in_range, is_prefetched
):
    """What all threads filled before says nothing of threads that the loop runs beside."""

    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), C: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((8, 16), "float32")
            T.fill(S, 1)
            with T.ws(0):
                if filled_in_range:
                    T.fill(S, 2)
                T.copy(S, C[0, 0])
            with T.ws(1):
                for k in T.Pipelined(4, num_stages=2):
                    T.copy(A[0, k * 16], S)
                    T.copy(S, C[0, k * 16])

    assert ("software_pipeline" in statements(main, "PipelinePlanning")) is is_prefetched


def test_a_loop_that_reads_what_it_loads_is_said_to(caplog):
    """It was said that nothing reads it."""

    @T.prim_func
    def main(A: T.Tensor((64, 512), "float16"), C: T.Tensor((512, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            for i in T.Pipelined(8, num_stages=2):
                T.clear(acc)
                for k in T.Pipelined(8, num_stages=2):
                    T.copy(A[0, k * 64], S)
                    T.gemm(S, S, acc, transpose_B=True)
                T.copy(acc, C[i * 64, 0])

    with caplog.at_level("WARNING", "tilelang"):
        tilelang.compile(main, target="cuda -arch=sm_80", execution_backend="emulate")
    assert "it reads S itself" in caplog.text
    assert "nothing in the loop reads" not in caplog.text
