"""Programs for AMD's GPUs in the emulator, of wavefronts of 64 and of 32 lanes.

``pytest --target "hip -mcpu=gfx942" testing/python/language`` runs all of the language for one.
"""

import pytest
import torch

import tilelang.language as T
from tilelang.testing.batch import Batch, lower_one

ROWS, COLUMNS = 6, 200


@T.prim_func
def reverse(A: T.Tensor((4, 160), "float32"), B: T.Tensor((4, 160), "float32")):
    with T.Kernel(4, threads=160) as row:
        tile = T.alloc_shared((160,), "float32")
        T.copy(A[row, 0], tile)
        for i in T.Parallel(160):
            B[row, i] = tile[159 - i]


@T.prim_func
def softmax(A: T.Tensor((ROWS, COLUMNS), "float32"), B: T.Tensor((ROWS, COLUMNS), "float32")):
    with T.Kernel(ROWS, threads=128) as row:
        x = T.alloc_fragment((1, COLUMNS), "float32")
        peak, total = T.alloc_fragment((1,), "float32"), T.alloc_fragment((1,), "float32")
        T.copy(A[row, 0], x)
        T.reduce_max(x, peak, dim=1)
        for i, j in T.Parallel(1, COLUMNS):
            x[i, j] = T.exp(x[i, j] - peak[i])
        T.reduce_sum(x, total, dim=1)
        for i, j in T.Parallel(1, COLUMNS):
            B[row, j] = x[i, j] / total[i]


@T.prim_func
def running_sums(A: T.Tensor((ROWS, 96), "float32"), B: T.Tensor((ROWS, 96), "float32")):
    with T.Kernel(ROWS, threads=128) as row:
        tile = T.alloc_shared((1, 96), "float32")
        T.copy(A[row, 0], tile)
        T.cumsum(tile, dim=1)
        T.copy(tile, B[row, 0])


@T.prim_func
def product(
    A: T.Tensor((64, 96), "float16"),
    B: T.Tensor((96, 64), "float16"),
    C: T.Tensor((64, 64), "float32"),
):
    with T.Kernel(1, threads=128):
        a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.clear(c)
        for k in T.Pipelined(3, num_stages=2):
            T.copy(A[0, k * 32], a)
            T.copy(B[k * 32, 0], b)
            T.gemm(a, b, c)
        T.copy(c, C)


@T.prim_func
def histogram(A: T.Tensor((512,), "int32"), B: T.Tensor((8,), "int32")):
    with T.Kernel(2, threads=256) as block:
        for i in T.Parallel(256):
            T.atomic_add(B[A[block * 256 + i] % 8], 1)


def counts(a: torch.Tensor) -> torch.Tensor:
    return torch.bincount(a % 8, minlength=8).int()


PROGRAMS = {
    "reverse": (reverse, lambda a: a.flip(1)),
    "softmax": (softmax, lambda a: a.softmax(1)),
    "running sums": (running_sums, lambda a: a.cumsum(1)),
    "product": (product, lambda a, b: a.float() @ b.float()),
    "histogram": (histogram, counts),
}
ARGUMENTS = {
    "reverse": lambda: [torch.randn(4, 160)],
    "softmax": lambda: [torch.randn(ROWS, COLUMNS)],
    "running sums": lambda: [torch.randint(-9, 9, (ROWS, 96)).float()],
    "product": lambda: [torch.randint(-3, 4, s).half() for s in ((64, 96), (96, 64))],
    "histogram": lambda: [torch.randint(0, 1000, (512,), dtype=torch.int32)],
}


@pytest.fixture(scope="module", params=["gfx942", "gfx1100"])
def batch(request):
    """All programs as one library."""
    target = f"hip -mcpu={request.param}"
    functions = [function for function, _ in PROGRAMS.values()]
    return Batch([lower_one(function, i, target) for i, function in enumerate(functions)])


@pytest.mark.parametrize("name", PROGRAMS)
def test_result(batch, name):
    given = ARGUMENTS[name]()
    wanted = PROGRAMS[name][1](*given)
    found = torch.zeros_like(wanted)
    batch.run(list(PROGRAMS).index(name), [*given, found])
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_reduction_is_over_64_lanes():
    sources = [
        lower_one(softmax, 0, f"hip -mcpu={arch}").kernel_source for arch in ("gfx942", "gfx1100")
    ]
    assert "tl::AllReduce<tl::MaxOp, 64, 1>" in sources[0]
    assert "tl::AllReduce<tl::MaxOp, 32, 1>" in sources[1]
