"""A target that is nobody's: 64 lanes, a matrix instruction with fragments of 32 rows, a queue of
asynchronous copies that are waited for by count. Rows and the text of functions are all that it
takes."""

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

# A copy arrives when its group is waited for, and not before: what does not wait reads old bytes.
COPIES = """
struct ToyQueue {
  struct Copy {
    char* to;
    const char* from;
    int bytes, group;
  };
  Copy copies[64];
  int begin = 0, end = 0, group = 0;
  void wait(int pending) {
    for (; begin < end && copies[begin % 64].group < group - pending; ++begin) {
      const Copy& c = copies[begin % 64];
      for (int i = 0; i < c.bytes; ++i) c.to[i] = c.from ? c.from[i] : 0;
    }
  }
};
inline ToyQueue toy_queues[1024];
static ToyQueue& toy_queue() { return toy_queues[threadIdx.x]; }
template <int bytes>
static TL_DEVICE void toy_copy(void* to, const void* from) {
  ToyQueue& queue = toy_queue();
  queue.copies[queue.end++ % 64] = {(char*)to, (const char*)from, bytes, queue.group};
}
template <int bytes>
static TL_DEVICE void toy_copy_if(void* to, const void* from, bool condition) {
  toy_copy<bytes>(to, condition ? from : nullptr);
}
static TL_DEVICE void toy_commit() { ++toy_queue().group; }
template <int pending>
static TL_DEVICE void toy_wait() { toy_queue().wait(pending); }
"""


def add_intrinsic(name, template_args, access, meets="thread", step=""):
    get_function("op.AddIntrinsic")(
        f"tl.{name}",
        name,
        "tl/warp.h",
        template_args,
        access,
        meets,
        "thread",
        "cp.async" if step else "",
        step,
    )


@pytest.fixture(scope="module", autouse=True)
def toy():
    copies = ["toy_copy", "toy_copy_if", "toy_commit", "toy_wait"]
    get_function("target.AddKind")(
        "toy",
        TARGET["kind"],
        "model",
        ARCH,
        LANES,
        SHARED_BYTES,
        [],
        [8, 16],
        [f"tl.{name}" for name in copies],
    )
    add_intrinsic("toy_copy", 1, ["async w", "r"], step="issue")
    add_intrinsic("toy_copy_if", 1, ["async w", "r", ""], step="issue")
    add_intrinsic("toy_commit", 0, [], step="commit")
    add_intrinsic("toy_wait", 1, [], step="wait")
    add_intrinsic("toy_multiply", 0, ["rw", "r", "r"], meets="lanes")
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
            T.import_source(COPIES + MULTIPLY)
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
    assert "toy_copy<16>(" in source
    assert "toy_wait<1>()" in source  # a count: copies of the tile after the next run on
    assert "cp_async" not in source
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
