"""The product that tests of many folders begin with, and what makes TVM cheap in tests."""

import inspect
import linecache
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import tilelang.language as T  # imports TVM, which costs a second more without it

if TYPE_CHECKING:
    from tvm import tirx


class CheapStack:
    """Python's `inspect` for the parser of TVM's script.

    ``@T.prim_func`` of TVM asks for the stack, and reads a line of its third frame: the one that
    the definition stands in. `inspect.stack` finds the source of all of them, of which pytest has
    sixty: that is 25 of the 30 ms that a small program takes.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    @staticmethod
    def stack() -> list[inspect.FrameInfo]:
        """The frames from the caller's on, the first three with their lines."""
        found: list[inspect.FrameInfo] = []
        frame = sys._getframe(1)
        while frame is not None:
            file, number, name = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
            line = linecache.getline(file, number, frame.f_globals) if len(found) < 3 else ""
            found.append(inspect.FrameInfo(frame, file, number, name, [line] if line else None, 0))
            frame = frame.f_back
        return found


def pytest_configure() -> None:
    from tvm.tirx.script.parser import entry

    entry.inspect = CheapStack()


@pytest.fixture(scope="session")
def tiled_gemm() -> Callable[..., "tirx.PrimFunc"]:
    """C (M, N) = A B in tiles, a block each, whose extents along M, N and K are `tile`. With room
    for several blocks asked for, there may be none for more stages."""

    def make(
        M: Any,
        N: Any,
        K: Any,
        tile: tuple[int, int, int] = (64, 64, 32),
        *,
        transpose_A: bool = False,
        num_stages: int = 2,
        threads: int = 128,
        dtype: str = "float16",
        out_dtype: str = "float32",
        blocks: int = 1,
    ) -> "tirx.PrimFunc":
        rows, columns, step = tile

        @T.prim_func
        def gemm(
            A: T.Tensor((K, M) if transpose_A else (M, K), dtype),
            B: T.Tensor((K, N), dtype),
            C: T.Tensor((M, N), out_dtype),
        ):
            with T.Kernel(T.ceildiv(N, columns), T.ceildiv(M, rows), threads=threads) as (bx, by):
                A_shared = T.alloc_shared((step, rows) if transpose_A else (rows, step), dtype)
                B_shared = T.alloc_shared((step, columns), dtype)
                C_local = T.alloc_fragment((rows, columns), "float32")
                if blocks > 1:
                    T.annotate_min_blocks_per_sm(blocks)
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, step), num_stages=num_stages):
                    if transpose_A:
                        T.copy(A[k * step, by * rows], A_shared)
                    else:
                        T.copy(A[by * rows, k * step], A_shared)
                    T.copy(B[k * step, bx * columns], B_shared)
                    T.gemm(A_shared, B_shared, C_local, transpose_A=transpose_A)
                T.copy(C_local, C[by * rows, bx * columns])

        return gemm

    return make
