"""How a loop without fragments is dealt to threads, by the length of its rows."""

import re

import pytest
import torch

import tilelang.language as T

pytestmark = pytest.mark.usefixtures("tensors_on_device")


def copied(rows, width, threads, dtype="float16"):
    """B of A, whose rows have one element more, which leaves no words to copy."""

    @T.prim_func
    def main(A: T.Tensor((rows, width + 1), dtype), B: T.Tensor((rows, width + 1), dtype)):
        with T.Kernel(1, threads=threads):
            for i, j in T.Parallel(rows, width):
                B[i, j] = A[i, j]

    return main


@pytest.mark.parametrize(
    ("rows", "width", "threads", "divisors"),
    [
        pytest.param(8, 192, 128, {"64"}, id="two rows of 64 threads"),
        pytest.param(8, 96, 128, {"32"}, id="four rows of 32"),
        pytest.param(8, 160, 256, {"32"}, id="eight rows of 32"),
        # Rows of threads would be no whole warps.
        pytest.param(8, 144, 128, {"144"}, id="round robin: few in common"),
        # The rectangles would not cover all rows.
        pytest.param(7, 192, 128, {"192"}, id="round robin: an odd number of rows"),
        pytest.param(8, 256, 128, set(), id="rows of whole passes"),
        pytest.param(8, 64, 128, {"64"}, id="whole rows in a pass"),
    ],
)
def test_threads_divide_rows(compiled, rows, width, threads, divisors):
    kernel = compiled(copied(rows, width, threads))
    source = kernel.get_kernel_source()
    assert set(re.findall(r"t(?:hreadIdx\.)?x\b[^;,\[\]]*?/ (\d+)", source)) == divisors, source
    a, b = torch.randn(rows, width + 1).half(), torch.zeros(rows, width + 1).half()
    kernel(a, b)
    assert torch.equal(b[:, :width], a[:, :width])
    assert not b[:, width:].any()


def test_threads_of_several_outer_loops(compiled):
    @T.prim_func
    def main(A: T.Tensor((3, 4, 97), "float32"), B: T.Tensor((3, 4, 97), "float32")):
        with T.Kernel(1, threads=128):
            for g, i, j in T.Parallel(3, 4, 96):
                B[g, i, j] = A[g, i, j]

    kernel = compiled(main)
    assert "/ 32" in kernel.get_kernel_source()
    a, b = torch.randn(3, 4, 97), torch.zeros(3, 4, 97)
    kernel(a, b)
    assert torch.equal(b[..., :96], a[..., :96])


def test_rows_of_warp_groups(compiled):
    """Each of two consumers stores rows of its own."""
    rows, width, depth = 128, 192, 64

    @T.prim_func
    def main(
        A: T.Tensor((rows, depth), "float16"),
        B: T.Tensor((depth, width), "float16"),
        C: T.Tensor((rows, width + 1), "float16"),
    ):
        with T.Kernel(1, threads=256):
            A_shared = T.alloc_shared((rows, 32), "float16")
            B_shared = T.alloc_shared((32, width), "float16")
            S = T.alloc_shared((rows, width), "float16")
            sums = T.alloc_fragment((rows, width), "float32")
            T.clear(sums)
            for k in T.Pipelined(depth // 32, num_stages=2):
                T.copy(A[0, k * 32], A_shared)
                T.copy(B[k * 32, 0], B_shared)
                T.gemm(A_shared, B_shared, sums, policy=T.GemmWarpPolicy.FullRow)
            T.copy(sums, S)
            for i, j in T.Parallel(rows, width):
                C[i, j] = S[i, j]

    kernel = compiled(main, target="cuda -arch=sm_90a")
    source = kernel.get_kernel_source()
    assert "/ 192" not in source
    assert "C[tx / 128 * " in source
    a, b, c = torch.randn(rows, depth).half(), torch.randn(depth, width).half(), None
    c = torch.zeros(rows, width + 1).half()
    kernel(a, b, c)
    torch.testing.assert_close(c[:, :width].float(), a.float() @ b.float(), rtol=1e-2, atol=1e-1)
