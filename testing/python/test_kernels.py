"""Whole kernels that mix features: what a part's own tests do not meet."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=DEVICE).to(dtype)


def run(func, *inputs):
    return tilelang.compile(func, out_idx=-1)(*inputs)


def test_two_pipelines_over_the_same_buffers():
    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 32), "float16")
            W = T.alloc_shared((32, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 32], S)
                T.copy(B[k * 32, 0], W)
                T.gemm(S, W, F)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, 128 + k * 32], S)
                T.copy(B[128 + k * 32, 0], W)
                T.gemm(S, W, F)
            T.copy(F, C)

    a, b = normal(64, 256, dtype=torch.float16), normal(256, 64, dtype=torch.float16)
    assert torch.allclose(run(main, a, b).double(), a.double() @ b.double(), atol=1e-3)


def test_pipeline_inside_a_loop_over_tiles():
    @T.prim_func
    def main(
        A: T.Tensor((128, 128), "float16"),
        B: T.Tensor((128, 128), "float16"),
        C: T.Tensor((128, 128), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 32), "float16")
            W = T.alloc_shared((32, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            for t in T.serial(4):
                T.clear(F)
                for k in T.Pipelined(4, num_stages=3):
                    T.copy(A[t // 2 * 64, k * 32], S)
                    T.copy(B[k * 32, t % 2 * 64], W)
                    T.gemm(S, W, F)
                T.copy(F, C[t // 2 * 64, t % 2 * 64])

    a, b = normal(128, 128, dtype=torch.float16), normal(128, 128, dtype=torch.float16)
    assert torch.allclose(run(main, a, b).double(), a.double() @ b.double(), atol=1e-3)


def test_branches_on_blocks_and_elements():
    @T.prim_func
    def main(A: T.Tensor((100, 64), "float32"), B: T.Tensor((100, 64), "float32")):
        with T.Kernel(T.ceildiv(100, 32), threads=64) as bx:
            S = T.alloc_shared((32, 64), "float32")
            total = T.alloc_var("int32", init=0)
            for i in T.serial(3):
                if i != 1:
                    total += i
            if bx % 2 == 0:
                T.copy(A[bx * 32, 0], S)
            else:
                T.fill(S, 5.0)
            for i, j in T.Parallel(32, 64):
                if i > j:
                    S[i, j] = S[i, j] * 2 + total
                elif i == j:
                    S[i, j] = -1.0
            T.copy(S, B[bx * 32, 0])

    a = normal(100, 64)
    row, column = torch.arange(100, device=DEVICE)[:, None], torch.arange(64, device=DEVICE)
    tile = torch.where(row // 32 % 2 == 0, a, torch.tensor(5.0, device=DEVICE))
    wanted = torch.where(row % 32 > column, tile * 2 + 2, tile)
    wanted[(row % 32 == column).expand_as(wanted)] = -1.0
    assert torch.equal(run(main, a), wanted)


def test_two_dimensional_block_of_threads():
    @T.prim_func
    def main(A: T.Tensor((40, 40), "float32"), B: T.Tensor((40, 40), "float32")):
        with T.Kernel(2, 2, threads=(16, 8)) as (bx, by):
            F = T.alloc_fragment((20, 20), "float32")
            T.copy(A[by * 20 : by * 20 + 20, bx * 20 : bx * 20 + 20], F)
            for i, j in T.Parallel(20, 20):
                F[i, j] = F[i, j] * 2
            T.copy(F, B[by * 20 : by * 20 + 20, bx * 20 : bx * 20 + 20])

    a = normal(40, 40)
    assert torch.equal(run(main, a), a * 2)


def test_two_kernels_in_order():
    @T.prim_func
    def main(
        A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")
    ):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = A[i] + 1
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                C[bx * 32 + i] = B[63 - bx * 32 - i] * 2

    a, b = normal(64), normal(64)
    assert torch.equal(run(main, a, b), (a + 1).flip(0) * 2)


def test_memory_and_loops_of_one_thread():
    @T.prim_func
    def main(A: T.Tensor((64, 8), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding(0)
            L = T.alloc_local((8,), "float32")
            total = T.alloc_var("float32", init=0.0)
            steps = T.alloc_var("int32", init=0)
            for j in T.serial(8):
                L[j] = A[tx, j]
            for j in T.unroll(8):
                total += L[7 - j] * j
            while steps < 5:
                total += 1.0
                steps += 1
            B[tx] = total

    a = normal(64, 8)
    weights = torch.arange(7, -1, -1, device=DEVICE, dtype=torch.float64)
    assert torch.allclose(run(main, a).double(), a.double() @ weights + 5, atol=1e-5)


def test_gather_from_shared_memory():
    @T.prim_func
    def main(
        A: T.Tensor((256,), "int32"), B: T.Tensor((256,), "float32"), C: T.Tensor((256,), "float32")
    ):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((256,), "float32")
            T.copy(B, S)
            for i in T.Parallel(256):
                C[i] = S[A[i]]

    index, b = torch.randperm(256, device=DEVICE, dtype=torch.int32), normal(256)
    assert torch.equal(run(main, index, b), b[index.long()])


def test_regions_that_start_anywhere():
    @T.prim_func
    def main(A: T.Tensor((64, 70), "float16"), B: T.Tensor((64, 70), "float16")):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((64, 64), "float16")
            T.copy(A[0:64, 3:67], S)
            T.copy(S[8:16, :], B[0:8, 5:69])

    a = normal(64, 70, dtype=torch.float16)
    b = torch.zeros_like(a)
    tilelang.compile(main)(a, b)
    wanted = torch.zeros_like(a)
    wanted[0:8, 5:69] = a[8:16, 3:67]
    assert torch.equal(b, wanted)


@pytest.mark.parametrize(("shape", "threads"), [((15, 33), 64), ((64, 60), 128), ((3, 5, 7), 32)])
def test_fragments_of_any_extents_the_other_way_round(shape, threads):
    """A layout that counts elements in rows, ragged at the end, in a loop over columns."""

    @T.prim_func
    def main(A: T.Tensor(shape, "float32"), B: T.Tensor(shape[::-1], "float32")):
        with T.Kernel(1, threads=threads):
            F = T.alloc_fragment(shape, "float32")
            T.copy(A, F)
            if len(shape) == 2:
                for i, j in T.Parallel(*shape[::-1]):
                    B[i, j] = F[j, i]
            else:
                for i, j, k in T.Parallel(*shape[::-1]):
                    B[i, j, k] = F[k, j, i]

    a = normal(*shape)
    assert torch.equal(run(main, a), a.permute(*reversed(range(len(shape)))))


@pytest.mark.parametrize("scope", ["shared", "fragment"])
def test_transposition_of_what_a_pipeline_loads(scope):
    @T.prim_func
    def main(A: T.Tensor((16, 96), "float32"), B: T.Tensor((96, 16), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((16, 24), "float32")
            W = T.alloc_shared((24, 16), "float32")
            F = T.alloc_fragment((24, 16), "float32")
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 24], S)
                if scope == "shared":
                    T.transpose(S, W)
                    T.copy(W, B[k * 24, 0])
                else:
                    T.transpose(S, F)
                    T.copy(F, B[k * 24, 0])

    a = normal(16, 96)
    assert torch.equal(run(main, a), a.T)


def test_one_value_for_a_tile_whose_rows_are_no_digits():
    @T.prim_func
    def main(A: T.Tensor((4, 9), "float32"), B: T.Tensor((4, 9), "float32")):
        with T.Kernel(1, threads=32):
            F = T.alloc_fragment((4, 9), "float32")
            total = T.alloc_reducer((1,), "float32", "max")
            top = T.alloc_fragment((1,), "float32")
            T.copy(A, F)
            T.reducer_init(total, -T.infinity("float32"))
            for i, j in T.Parallel(4, 9):
                T.reducer_update(total[0], F[i, j])
            T.finalize_reducer(total, top)
            for i, j in T.Parallel(4, 9):
                F[i, j] = F[i, j] - top[0]
            T.copy(F, B)

    a = normal(4, 9)
    assert torch.equal(run(main, a), a - a.max())
