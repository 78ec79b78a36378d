"""HoistViews: declarations of views stand in front of a kernel's statements."""

import tvm

import tilelang.language as T
from tilelang import transform


def test_views_in_loops_and_behind_statements_move_to_the_front():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((64,), "float32")
            for _ in T.serial(2):
                square = T.reshape(tile, (8, 8))
                T.copy(T.reshape(A, (8, 8)), square)
            T.copy(T.reshape(tile, (4, 16)), T.reshape(B, (4, 16)))

    lines = transform.HoistViews()(tvm.IRModule({"main": main})).script().splitlines()
    body = [
        line.strip() for line in lines[1 + next(i for i, s in enumerate(lines) if "alloc" in s) :]
    ]
    views = [".view(" in line or "decl_buffer" in line for line in body]
    assert sum(views) == 4
    assert views == sorted(views, reverse=True)
