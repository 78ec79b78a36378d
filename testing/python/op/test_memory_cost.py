"""Shared tiles that nothing else places get the layout with fewest bank conflicts."""

import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang import transform
from tilelang.engine.phase import LowerAndLegalize
from tilelang.layout import memory_accesses

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def transposed(dtype, form, size=64):
    @T.prim_func
    def main(A: T.Tensor((size, size), dtype), B: T.Tensor((size, size), dtype)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((size, size), dtype)
            F = T.alloc_fragment((size, size), dtype)
            tx = T.get_thread_binding()
            T.copy(A, S)
            if form == "loop":
                for i, j in T.Parallel(size, size):
                    B[i, j] = S[j, i]
            elif form == "fragment":
                for i, j in T.Parallel(size, size):
                    F[i, j] = S[j, i]
                T.copy(F, B)
            else:
                row = tx % size
                for k in T.serial(size // 2):
                    B[tx // size * (size // 2) + k, row] = S[row, tx // size * (size // 2) + k]

    return main


def accesses(program, tile):
    """The load and the store of a shared tile."""
    target = tilelang.utils.target.determine_target("cuda -arch=sm_80", return_object=True)
    with transform.PassContext():
        mod = LowerAndLegalize(tvm.IRModule({"main": program}), target)
        mod = transform.Simplify()(transform.VectorizeLoop()(mod))
    shared = [a for a in memory_accesses(mod["main"]) if a.buffer == tile]
    return tuple(next(a for a in shared if a.op == op) for op in ("load", "store"))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("form", ["loop", "fragment", "threads"])
def test_columns_are_read_by_eight_groups_of_banks(dtype, form):
    """A swizzle of 16 bytes leaves four rows of 32 in the same banks, rows as they are 32."""
    program = transposed(dtype, form)
    load, store = accesses(program, "S")
    assert load.count().found <= 4 * load.count().least
    assert (store.width, store.count().conflicts) == (16, 0)
    x = torch.randn(64, 64, device=DEVICE).to(getattr(torch, dtype))
    assert torch.equal(tilelang.compile(program, out_idx=-1)(x), x.T)


def test_a_tile_is_not_taken_for_one_that_the_same_threads_read_otherwise():
    """What was chosen for the rows of one is not known to be right for the columns of another."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((3, 64, 64), "float32")):
        with T.Kernel(1, threads=128):
            R, S = T.alloc_shared((64, 64), "float32"), T.alloc_shared((64, 64), "float32")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, F)
            T.copy(F, B[2, :, :])
            T.copy(A, R)
            T.copy(A, S)
            for i, j in T.Parallel(64, 64):
                F[i, j] = R[i, j]
            T.copy(F, B[0, :, :])
            for i, j in T.Parallel(64, 64):
                F[i, j] = S[j, i]
            T.copy(F, B[1, :, :])

    for tile in ("R", "S"):
        load, _ = accesses(main, tile)
        assert load.count().found <= 4 * load.count().least
