"""A target that is nobody's: 64 lanes, a matrix instruction with fragments of 32 rows, copies that
are waited for by count. Rows and the text of one function are all that it takes."""

import re

import pytest
import torch
from tvm.target import Target

import tilelang
import tilelang.language as T
from tilelang._ffi import get_function

ARCH, LANES, SHARED_BYTES = "toy64", 64, 64 * 1024
TARGET = {"kind": "ext_dev", "model": ARCH}

# A and B: lane l has row l % 32 and elements 4 (l / 32) to 4 (l / 32) + 3 along K. C: lane l has
# column l % 32 and rows 16 (l / 32) to 16 (l / 32) + 15. Digits are (coordinate, extent, divisor).
OPERAND = [[[0, 32, 1], [1, 2, 4]], [[1, 4, 1]]]
SUM = [[[1, 32, 1], [0, 2, 16]], [[0, 16, 1]]]

MULTIPLY = """
template <typename C, typename A, typename B>
static TL_DEVICE void toy_multiply(C&& c, A&& a, B&& b) {
  const auto all = ~uint64_t(0);
  const int column = threadIdx.x % 32, rows = threadIdx.x % 64 / 32 * 16;
  for (int r = 0; r < 16; ++r) {
    for (int k = 0; k < 8; ++k) {
      const float x = tl::shfl_sync(all, float(a[k % 4]), rows + r + k / 4 * 32, 64);
      c[r] += x * tl::shfl_sync(all, float(b[k % 4]), column + k / 4 * 32, 64);
    }
  }
}
"""


@pytest.fixture(scope="module", autouse=True)
def toy():
    get_function("target.AddKind")(
        "toy", TARGET["kind"], "model", ARCH, LANES, SHARED_BYTES, ["cp.async"]
    )
    get_function("op.AddIntrinsic")(
        "tl.toy_multiply", "toy_multiply", "tl/warp.h", 0, ["rw", "r", "r"], "lanes", "thread"
    )
    get_function("target.AddMatrixInstruction")(
        "toy",
        "toy.32x32x8",
        [32, 32, 8],
        "float16",
        "float32",
        [OPERAND, OPERAND, SUM],
        "tl.toy_multiply",
        [],
    )


def compiled(program):
    return tilelang.compile(program, out_idx=-1, target=Target(TARGET), execution_backend="emulate")


def test_gemm():
    m, n, k = 64, 96, 64

    @T.prim_func
    def gemm(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=2 * LANES):
            T.import_source(MULTIPLY)
            A_shared = T.alloc_shared((m, 16), "float16")
            B_shared = T.alloc_shared((16, n), "float16")
            C_local = T.alloc_fragment((m, n), "float32")
            T.clear(C_local)
            for i in T.Pipelined(k // 16, num_stages=3):
                T.copy(A[0, i * 16], A_shared)
                T.copy(B[i * 16, 0], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C)

    kernel = compiled(gemm)
    source = kernel.get_kernel_source()
    assert "toy_multiply(" in source
    assert "cp_async_wait<1>" in source  # a count: copies of the tile after the next run on
    a, b = torch.randn(m, k).half(), torch.randn(k, n).half()
    torch.testing.assert_close(kernel(a, b), a.float() @ b.float(), rtol=1e-5, atol=1e-4)


def test_softmax():
    m, n = 8, 200

    @T.prim_func
    def softmax(X: T.Tensor((m, n), "float32"), Y: T.Tensor((m, n), "float32")):
        with T.Kernel(m, threads=LANES) as row:
            x = T.alloc_fragment((1, n), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[row : row + 1, :], x)
            T.reduce_max(x, largest, dim=1)
            for i, j in T.Parallel(1, n):
                x[i, j] = T.exp(x[i, j] - largest[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(1, n):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[row : row + 1, :])

    kernel = compiled(softmax)
    assert re.search(r"AllReduce\w*<[^>]*\b64\b", kernel.get_kernel_source())
    x = torch.randn(m, n)
    torch.testing.assert_close(kernel(x), torch.softmax(x, 1), rtol=1e-5, atol=1e-6)
