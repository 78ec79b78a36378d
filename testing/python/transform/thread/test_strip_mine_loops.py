"""Serial loops along neighbours in memory run in strips of a vector."""

import pytest
import torch

import tilelang
import tilelang.language as T


def rows(columns=128, dtype="float16", kind="sum", threads=64):
    """Sums of the rows of a tile, a row for each thread."""

    @T.prim_func
    def main(A: T.Tensor((threads, columns), dtype), C: T.Tensor((threads,), "float32")):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_shared((threads, columns), dtype)
            total = T.alloc_local((1,), "float32")
            tx = T.get_thread_binding()
            T.copy(A, tile)
            T.clear(total)
            if kind == "columns":
                for k in T.serial(threads):
                    total[0] += tile[k, tx].astype("float32")
            elif kind == "odd":
                for k in T.serial(columns - 8):
                    total[0] += tile[tx, k + 1].astype("float32")
            elif kind == "written":
                for k in T.serial(columns):
                    tile[tx, k] += 1
                    total[0] += tile[tx, k].astype("float32")
            else:
                for k in T.serial(columns):
                    total[0] += tile[tx, k].astype("float32")
            C[tx] = total[0]

    return main


@pytest.mark.parametrize(("dtype", "strip"), [("float16", 8), ("float32", 4), ("int8", 16)])
def test_a_strip_is_a_vector(dtype, strip):
    source = tilelang.lower(rows(dtype=dtype), target="cuda -arch=sm_90a").kernel_source
    assert f"for (int k = 0; k < {128 // strip}; ++k)" in source
    assert f"for (int v = 0; v < {strip}; ++v) {{\n      total = total + " in source


@pytest.mark.parametrize(
    ("kind", "columns"), [("columns", 64), ("odd", 128), ("written", 128), ("sum", 100)]
)
def test_other_loops_stay(kind, columns):
    """No neighbours, no multiples of a vector in place or number, memory of other threads."""
    program = rows(columns, kind=kind)
    source = tilelang.lower(program, target="cuda -arch=sm_90a").kernel_source
    extent = {"columns": 64, "odd": 120}.get(kind, columns)
    assert f"for (int k = 0; k < {extent}; ++k)" in source


def test_results_are_those_of_the_loop():
    kernel = tilelang.compile(rows(), execution_backend="emulate")
    a, c = torch.randn(64, 128).half(), torch.empty(64)
    kernel(a, c)
    torch.testing.assert_close(c, a.float().sum(1))
