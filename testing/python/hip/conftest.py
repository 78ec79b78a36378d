"""Products for AMD's chips, their plans, and runs under several schedules of the emulator."""

import pytest
import torch

import tilelang.language as T
from tilelang.emulator import schedule
from tilelang.engine.lower import lower
from tilelang.layout import make_swizzled_layout
from tilelang.utils.target import determine_target


@pytest.fixture
def gemm():
    """A product of matrices that are transposed or not, in tiles of a block's M, N and K."""

    def program(
        *size,
        dtype="float16",
        other=None,
        accumulator="float32",
        trans_a=False,
        trans_b=True,
        block=(64, 64, 32),
        stages=2,
        threads=256,
    ):
        (m, n, k), (rows, columns, depth) = size, block
        of_a, of_b = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)
        tile_a = (depth, rows) if trans_a else (rows, depth)
        tile_b = (columns, depth) if trans_b else (depth, columns)

        @T.prim_func
        def main(
            A: T.Tensor(of_a, dtype),
            B: T.Tensor(of_b, other or dtype),
            C: T.Tensor((m, n), accumulator),
        ):
            with T.Kernel(T.ceildiv(n, columns), T.ceildiv(m, rows), threads=threads) as (bx, by):
                A_shared = T.alloc_shared(tile_a, dtype)
                B_shared = T.alloc_shared(tile_b, other or dtype)
                C_local = T.alloc_fragment((rows, columns), accumulator)
                T.clear(C_local)
                for ko in T.Pipelined(T.ceildiv(k, depth), num_stages=stages):
                    if trans_a:
                        T.copy(A[ko * depth, by * rows], A_shared)
                    else:
                        T.copy(A[by * rows, ko * depth], A_shared)
                    if trans_b:
                        T.copy(B[bx * columns, ko * depth], B_shared)
                    else:
                        T.copy(B[ko * depth, bx * columns], B_shared)
                    T.gemm(A_shared, B_shared, C_local, trans_a, trans_b)
                T.copy(C_local, C[by * rows, bx * columns])

        return main

    return program


@pytest.fixture
def product():
    """The sum of A[p] @ B.T over the planes of A, by tiles of 64 x 32 of each; `asked` is the
    instruction that copies ask for."""

    def program(stages, k, planes=1, asked=None, annotate=False):
        @T.prim_func
        def main(
            A: T.Tensor((planes, 60, k), "float16"),
            B: T.Tensor((64, k), "float16"),
            C: T.Tensor((60, 64), "float32"),
        ):
            with T.Kernel(1, threads=128):
                A_shared = T.alloc_shared((planes, 64, 32), "float16")
                B_shared = T.alloc_shared((64, 32), "float16")
                F = T.alloc_fragment((64, 64), "float32")
                if annotate:
                    T.annotate_layout({B_shared: make_swizzled_layout(B_shared)})
                T.clear(F)
                for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=stages):
                    T.copy(A[0, 0, ko * 32], A_shared, prefer_instruction=asked)
                    T.copy(B[0, ko * 32], B_shared, prefer_instruction=asked)
                    for p in range(planes):
                        T.gemm(A_shared[p, :, :], B_shared, F, transpose_B=True)
                T.copy(F, C[0, 0])

        return main

    return program


@pytest.fixture
def numbers():
    """Random numbers of a shape and a type."""

    def draw(shape, dtype):
        if dtype in ("int8", "uint8"):
            least = -128 if dtype == "int8" else 0
            return torch.randint(least, least + 256, shape, dtype=getattr(torch, dtype))
        wanted = getattr(torch, dtype)
        return torch.randn(shape, dtype=wanted if dtype == "float64" else None).to(wanted)

    return draw


@pytest.fixture
def plan_of():
    """Stages, orders and versions of a program's one pipeline, on a chip."""

    def plan(program, arch):
        target = determine_target(f"hip -mcpu={arch}", return_object=True)
        (function,) = lower(program, target=target).device_mod.functions.values()
        (entry,) = function.attrs["tl.pipelines"]
        versions = {str(name): int(count) for name, count in entry["versions"].items()}
        return list(entry["stage"]), list(entry["order"]), versions

    return plan


@pytest.fixture
def checked():
    """Holds a kernel's result to what is wanted, under so many schedules."""

    def check(kernel, inputs, wanted, seeds=5):
        for seed in range(seeds):
            with schedule(seed=seed):
                torch.testing.assert_close(kernel(*inputs), wanted, rtol=1e-3, atol=1e-2)

    return check
