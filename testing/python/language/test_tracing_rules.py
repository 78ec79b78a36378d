"""The rules of tracing, as programs that run and as programs that are refused."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def ran(program, *scalars, size=8):
    values = torch.zeros(size, dtype=torch.int32, device=DEVICE)
    tilelang.compile(program, execution_backend="auto")(values, *scalars)
    return values.tolist()


def helper_of_python(values):
    return [2 * v for v in values if v % 2]


def test_1_python_around_the_program_runs_once():
    table = {"scale": 3}
    calls = []

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        calls.append(1)
        with T.Kernel(1, threads=1):
            for place, value in enumerate(helper_of_python(range(6))):
                A[place] = value * table["scale"] + len(f"{place}")

    assert ran(main) == [7, 19, 31, 0, 0, 0, 0, 0]
    assert calls == [1]


def test_3_mutable_scalars_store_and_a_second_allocation_is_a_new_one():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            a = T.alloc_var("int32", 1)
            b = T.alloc_var("int32", 2)
            a, b = b, a
            A[0] = a * 10 + b
            copy = a
            a += 5
            A[1] = copy
            A[2] = a
            first = [a]
            a = T.alloc_var("int32", 9)
            A[3] = first[0]
            A[4] = a
            A[0], A[4] = A[4], A[0]
            narrow: T.int8 = A[2] + 254
            later: T.int32  # noqa: F842 - means nothing
            A[-1] = narrow

    assert ran(main) == [9, 2, 7, 7, 21, 0, 0, 5]


def test_3b_sizes_before_the_kernel_are_expressions():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "int32")):
        half = n // 2
        blocks = T.max(half, 1)
        with T.Kernel(blocks, threads=1) as bx:
            A[bx] = half

    assert ran(main) == [4, 4, 4, 4, 0, 0, 0, 0]


def test_3c_a_frame_that_is_assigned_lasts_to_the_end_of_its_scope():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        bx, by = T.Kernel(2, 2, threads=1)
        i = T.serial(2)
        A[4 * bx + 2 * by + i] = 100 * bx + 10 * by + i

    assert ran(main) == [0, 1, 10, 11, 100, 101, 110, 111]


def test_6_conditions_of_the_program():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, threads=8):
            i = T.get_thread_binding()
            A[i] = 1 if (1 < i <= n and not i == 3) or i == 7 else 0  # noqa: SIM201

    assert ran(main, 5) == [0, 0, 1, 0, 1, 1, 0, 1]


def test_7_loops_and_jumps():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, threads=1):
            total = T.alloc_var("int32", 0)
            for i in range(8):
                if i == 6:
                    break
                if i % 2 == 0:
                    continue
                total += i
                A[i] = total
            k = T.alloc_var("int32", 0)
            while k < n:
                k += 2
                if k == 4:
                    continue
                A[k] = k
            for place in (0, 4):
                A[place] = A[place] - 1
            for i in range(7, 5, -1):
                A[i] = 10 * i

    assert ran(main, 5) == [-1, 1, 2, 4, -1, 9, 60, 70]


@T.macro
def bumped(x: T.Ref):
    x += 1
    return x


def test_values_in_containers_and_results_are_those_of_their_time():
    class Holder:
        pass

    holder = Holder()

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            x = T.alloc_var("int32", 5)
            listed = [x + k for k in range(2)]
            listed.append(x * 2)
            named = {"x": x}
            holder.x = x + 3
            pair = (x, x)
            x = 1
            A[0] = listed[1] * 100 + listed[2]
            A[1] = named["x"] * 100 + holder.x
            A[2] = pair[1]
            A[3] = bumped(x) * 10 + bumped(x)
            A[4] = bumped(A[7]) * 10 + bumped(A[7])

    assert ran(main) == [610, 508, 5, 23, 12, 0, 0, 2]


def test_an_element_in_a_container_is_a_place_too(traced):
    text = traced("""
        S = T.alloc_shared((4, 4), "float32")
        for source in [A[0, 0], B[n, 4]]:
            T.copy(source, S)
    """)
    assert [line for line in text.splitlines() if "copy" in line] == [
        "T.tl.copy(A[0:4, 0:4], S[0:4, 0:4])",
        "T.tl.copy(B[n:n + 4, 4:8], S[0:4, 0:4])",
    ]


@pytest.mark.parametrize(
    ("statements", "error", "told"),
    [
        ("x: T.int8 = 300", ValueError, "found 300 for a value of type int8, wanted -128 to 127"),
        (
            "A[0, 0] = T.uint8(-1)",
            ValueError,
            "found -1 for a value of type uint8",
        ),
        ("x: T.int32 = A", TypeError, "found the buffer A .* annotated with int32"),
        ("A[0, :, 0] = 1", IndexError, "A has rank 2, found 3 indices"),
        ("A[-9, 0] = 1", IndexError, "index 0 of A is -9, wanted -8 to 7"),
        ("x = A[0:4]", IndexError, "A has rank 2, found 1 indices"),
        ("T.copy(A[0:8:2, :], B[0:4, :])", TypeError, "slice 0 of A has step 2, wanted 1"),
        ("B.name = 'C'", NotImplementedError, "attribute name of the buffer B"),
        ("if B: pass", TypeError, "the condition is the buffer B"),
        ("if n > 0:\n    return", NotImplementedError, "`return` in the branch"),
        ("for i in range(4):\n    return", NotImplementedError, "`return` in the serial loop"),
        ("while 1 < 2: pass", RuntimeError, "Infinite while loop"),
        ("return n", RuntimeError, "a program returns tensors of T.empty only"),
        ("B += 1", RuntimeError, "the buffer B .* has no in-place arithmetic"),
        (
            "for i in T.Parallel(8):\n    continue",
            NotImplementedError,
            "`continue` in the",
        ),
        ("i = n\nfor i in range(4):\n    pass\nA[0, i] = 0", RuntimeError, "i is used after"),
        ("i = T.serial(4)\nT.Kernel(1)", TypeError, "a kernel does nothing as a statement"),
    ],
)
def test_refused(trace, statements, error, told):
    with pytest.raises(error, match=rf"{told}[\s\S]*--> <kernel \d+>:\d+:\d+\n   \|"):
        trace(statements)


def test_negative_indices_count_from_the_end(traced):
    assert traced("A[-1, -16] = B[n, -1]\nA[-2:, 0:-8] = 0\nA[:-7, 3] = 1") == (
        "A[7, 0] = B[n, 15]\n"
        "T.tl.fill(A[6:8, 0:8], T.float32(0.0))\n"
        "T.tl.fill(A[0, 3], T.float32(1.0))\n"
    )


def test_rebinding_to_a_buffer_is_an_alias_and_not_a_store(traced):
    text = traced("v = T.alloc_var('float32', 0)\nv = A\nv[0, 0] = 1")
    assert text.splitlines()[-1] == "A[0, 0] = T.float32(1.0)"
