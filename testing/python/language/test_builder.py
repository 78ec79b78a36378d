"""TVM's own statements: the same programs as their plain forms."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_branches_loops_and_bindings_run():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            with T.If(tx < n):
                with T.Then(), T.LetStmt(tx * 2) as double:
                    A[tx] = double + double
                with T.Else(), T.sblock("rest"):
                    T.reads(A[0:4])
                    T.writes(A)
                    A[tx] = -1
            i = T.alloc_var("int32", 0)
            with T.While(i < n):
                i += 1
                with T.If(i == 5), T.Then():
                    T.loop_break()
            rows = T.decl_buffer((2, 32), "int32", data=A.data)
            for j in T.parallel(4, 8):
                rows[1, j] = i
            x = T.int32()
            with T.let(x, n + 1):
                A[63] = x

    kernel = tilelang.compile(main, execution_backend="auto")
    for n in (3, 9):
        values = torch.zeros(64, dtype=torch.int32, device=DEVICE)
        kernel(values, n)
        wanted = torch.zeros(64, dtype=torch.int32)
        wanted[:32] = torch.tensor([4 * t if t < n else -1 for t in range(32)])
        wanted[36:40] = min(n, 5)
        wanted[63] = n + 1
        assert values.tolist() == wanted.tolist()


def launched_by_frames():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32")):
        with T.launch_thread("blockIdx.x", 4) as bx, T.launch_thread("threadIdx.x", 32) as tx:
            A[bx * 32 + tx] = bx

    return main


def launched_by_loops():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32")):
        for b in T.thread_binding(4, "blockIdx.x"):
            for t in T.thread_binding(0, 32, "threadIdx.x"):
                A[b * 32 + t] = b

    return main


@pytest.mark.parametrize("program", [launched_by_frames, launched_by_loops])
def test_a_launch_without_a_kernel(program):
    values = torch.full((128,), -1, dtype=torch.int32, device=DEVICE)
    tilelang.compile(program(), execution_backend="auto")(values)
    assert values.tolist() == [i // 32 for i in range(128)]


def source(program):
    return tilelang.compile(program, execution_backend="emulate").get_kernel_source()


def test_an_assumption_removes_the_checks_that_follow_from_it():
    def program(assumed):
        @T.prim_func
        def main(A: T.Tensor((128,), "int32"), n: T.int32):
            if assumed:
                T.assume(0 <= n < 4)
            with T.Kernel(1, threads=32):
                A[T.get_thread_binding() + n] = 1

        return main

    assert "if (" not in source(program(True))
    assert "if (" in source(program(False))


def test_an_assumption_holds_to_the_end_of_its_branch():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            if tx == 0:
                T.assume(0 <= n < 4)
                A[n] = 1
            A[n + 1] = 2

    text = source(main)
    # What is said of the threads' number alone.
    assert text.count("assume") == text.count("assume(tx < 32)") == 1
    assert text.count("n <= 126") + text.count("n < 127") == 1
    assert "n < 128" not in text


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("T.assume(1 > 2)", ValueError, "T.assume found a condition that is false"),
        ("T.assume(A)", TypeError, "T.assume found the buffer A"),
        ("with T.Then():\n    pass", RuntimeError, "T.Then is not inside of a T.If"),
        ("with T.If(A):\n    pass", TypeError, "the condition of T.If is the buffer A"),
        ("with T.While(True):\n    pass", RuntimeError, "Infinite while loop"),
        ("with T.LetStmt(A) as x:\n    pass", TypeError, "T.LetStmt found the buffer A"),
        ("b = T.decl_buffer((4,), 'int32')", ValueError, "T.decl_buffer found no data"),
        ("T.reads(3)", TypeError, "T.reads found 3"),
        ("for i in T.thread_binding(1.5):\n    pass", TypeError, "stop of T.thread_binding is 1.5"),
        ("with T.LetStmt(n + 1) as x:\n    pass\nA[0, x] = 0", RuntimeError, "x is used after"),
    ],
)
def test_errors(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(statement)


def test_attributes_of_the_program():
    @T.prim_func
    def main(A: T.handle, n: T.int32):
        T.func_attr({"global_symbol": "filled", "a.note": 3})
        values = T.match_buffer(A, (64,), "int32")
        with T.Kernel(1, threads=64):
            values[T.get_thread_binding()] = n

    assert main.attrs["a.note"] == 3
    kernel = tilelang.compile(main, execution_backend="auto")
    assert "filled_kernel" in kernel.get_kernel_source()
    values = torch.zeros(64, dtype=torch.int32, device=DEVICE)
    kernel(values, 7)
    assert values.tolist() == [7] * 64


def test_attributes_are_a_mapping_from_names(trace):
    with pytest.raises(TypeError, match=r"T\.func_attr found \[1\].*wanted a dict from names"):
        trace("T.func_attr([1])")
