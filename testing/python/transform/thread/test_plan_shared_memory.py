"""PlanSharedMemory: offsets, and what a block may have."""

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from tilelang._ffi import get_function


def plan(func: tirx.PrimFunc, arch: str = "sm_80") -> list[tuple[str, int]]:
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    mod = tirx.transform.BindTarget(target)(tvm.IRModule({"main": func}))
    mod = get_function("transform.PlanSharedMemory")()(mod)
    found = []

    def visit(body: tirx.Stmt) -> None:
        for statement in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
            if isinstance(statement, tirx.AttrStmt):
                visit(statement.body)
            elif isinstance(statement, tirx.AllocBuffer):
                offset = statement.annotations.get("tl.shared_offset")
                found.append((statement.buffer.name, None if offset is None else int(offset)))

    visit(mod["main"].body)
    return found


def test_offsets_are_aligned_and_static_buffers_stay_alone():
    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 32)
        A = T.alloc_buffer((3, 5), "float32", scope="shared.dyn")
        B = T.alloc_buffer((7,), "float32", scope="shared")
        C = T.alloc_buffer((130,), "int8", scope="shared.dyn")
        D = T.alloc_buffer((4,), "float64", scope="shared.dyn")
        E = T.alloc_buffer((4,), "float64", scope="local")
        A[0, 0] = B[0]
        D[0] = E[0] + T.Cast("float64", C[0])

    assert plan(func) == [("A", 0), ("B", None), ("C", 128), ("D", 384), ("E", None)]


def test_each_kernel_has_an_array_of_its_own():
    @T.prim_func(s_tir=True)
    def func():
        with T.launch_thread("threadIdx.x", 32):
            A = T.alloc_buffer((64,), "float32", scope="shared.dyn")
            A[0] = T.float32(0)
        with T.launch_thread("threadIdx.x", 32):
            B = T.alloc_buffer((64,), "float32", scope="shared.dyn")
            B[0] = T.float32(0)

    assert plan(func) == [("A", 0), ("B", 0)]


@T.prim_func(s_tir=True)
def large():
    T.launch_thread("threadIdx.x", 32)
    A = T.alloc_buffer((4, 128, 128), "float16", scope="shared.dyn")
    B = T.alloc_buffer((100,), "float32", scope="shared")
    A[0, 0, 0] = T.Cast("float16", B[0])


def test_too_much_says_who_uses_what():
    with pytest.raises(ValueError, match="wanted at most") as error:
        plan(large, "sm_86")
    text = str(error.value)
    assert "test_plan_shared_memory.py:" in text
    assert "found 131472 bytes of shared memory in one block, wanted at most 101376 (sm_86)" in text
    assert "Make the tiles smaller or num_stages lower" in text
    assert "\n  131072 bytes: A, float16[4, 128, 128]" in text
    assert "\n  400 bytes: B, float32[100]" in text


def test_the_same_fits_on_a_larger_chip():
    assert plan(large, "sm_90a") == [("A", 0), ("B", None)]


def test_too_much_static_memory():
    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 32)
        A = T.alloc_buffer((12289,), "float32", scope="shared")
        A[0] = T.float32(0)

    with pytest.raises(
        ValueError, match=r"found 49156 bytes of static .* at most 49152 .*shared\.dyn"
    ):
        plan(func)


def test_symbolic_extent():
    n = tirx.Var("n", "int32")

    @T.prim_func(s_tir=True)
    def func(X: T.Buffer((n,), "float32")):
        T.launch_thread("threadIdx.x", 32)
        A = T.alloc_buffer((n,), "float32", scope="shared.dyn")
        A[0] = X[0]

    with pytest.raises(ValueError, match="symbolic extent in the shape of shared buffer A"):
        plan(func)


def test_blocks_have_to_be_gone():
    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("root"):
            A = T.sblock_alloc_buffer((8,), "float32", scope="shared.dyn")
            A[0] = T.float32(0)

    with pytest.raises(Exception, match=r"wanted LowerOpaqueBlock before \(a bug in tilelang"):
        plan(func)
