"""What assignments bind, and which uses of a name are refused."""

import pytest


def test_an_expression_is_bound_once(traced):
    assert traced("x = A[0, 0] * 2.0\nA[1, 1] = x + x") == (
        "x: T.let[T.float32] = A[0, 0] * T.float32(2.0)\nA[1, 1] = x + x\n"
    )


def test_constants_stay_python_ints(traced):
    assert (
        traced("M, N = A.shape\nlast = M - 1\nA[last, N // 2] = 0") == "A[7, 8] = T.float32(0.0)\n"
    )


def test_rebinding_makes_a_new_variable_and_warns(traced):
    with pytest.warns(UserWarning, match=r"x is immutable.*T\.alloc_var") as warned:
        text = traced("x = n + 1\nx = x + 1\nA[0, x] = 0")
    assert warned[0].lineno == 6
    assert "x_1: T.let[T.int32] = x + 1\nA[0, x_1]" in text


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "statements",
    [
        "if scale: x = x * 2",
        "if not scale: pass\nelse: x = x * 2",
        "for u in (1, 2):\n    if u == 2:\n        x = x * 2\n        break",
    ],
)
def test_a_branch_that_python_decides_may_bind_again(traced, statements):
    assert "x_1" in traced(f"x = n + 1\n{statements}\nA[0, x] = 0", scale=True)


@pytest.mark.parametrize("jump", ["break", "continue"])
def test_behind_a_branch_that_python_decided_a_second_binding_warns(traced, jump):
    with pytest.warns(UserWarning, match="x is immutable"):
        traced(f"x = n + 1\nfor u in (1, 2):\n    if u == 2:\n        {jump}\nx = x + 1")


@pytest.mark.filterwarnings("error")
def test_a_python_loop_may_bind_again(traced):
    assert "off_1" in traced("for u in [0, 1]:\n    off = tx + u + n\n    A[0, off] = u")


def test_pure_expressions_outside_a_kernel_are_substituted(define):
    main = define("""
        @T.prim_func
        def main(A: T.Tensor((8,), "float32"), n: T.int32):
            blocks = n * 2
            with T.Kernel(blocks) as bx:
                A[bx] = 0
    """)["main"]
    assert "T.thread_binding(n * 2, thread=" in main.script()


@pytest.mark.parametrize(
    "statements",
    [
        "for i in range(4):\n    y = A[i, 0]\nA[0, 0] = y",
        "for i in range(4):\n    pass\nA[0, i] = 0",
        "for i in range(0, 8, 2):\n    pass\nA[0, i] = 0",
        "if n > 2:\n    y = 3\nA[0, y] = 0",
        "y = 1\nif n > 2:\n    y = 3\nA[0, y] = 0",
        "y = 1\nfor i in range(4):\n    y = 2\nA[0, y] = 0",
    ],
)
def test_a_value_is_not_used_after_its_scope(trace, statements):
    with pytest.raises(RuntimeError, match=r"[yi] is used after the .* at line \d+.*T\.alloc_var"):
        trace(statements)


def test_a_thread_index_is_not_used_after_its_kernel(define):
    with pytest.raises(RuntimeError, match=r"t is used after the kernel .*; move what uses"):
        define("""
            @T.prim_func
            def main(A: T.Tensor((8,), "float32")):
                with T.Kernel(1):
                    t = T.get_thread_binding()
                with T.Kernel(1):
                    A[t] = 0
        """)


def test_a_buffer_is_not_used_after_its_kernel(define):
    with pytest.raises(RuntimeError, match=r"S is used after the kernel .*; move what uses"):
        define("""
            @T.prim_func
            def main(A: T.Tensor((8,), "float32")):
                with T.Kernel(1):
                    S = T.alloc_shared(8, "float32")
                with T.Kernel(1):
                    T.copy(A, S)
        """)


@pytest.mark.parametrize("start", ["0", "A[0, 0]"])
def test_a_value_is_not_carried_from_one_iteration_to_the_next(trace, start):
    with pytest.raises(RuntimeError, match=r"x is read in the serial loop at line 6.*T\.alloc_var"):
        trace(f"x = {start}\nfor i in range(4):\n    x = x + 1")


@pytest.mark.filterwarnings("ignore:.*bound a second time")
@pytest.mark.parametrize(
    "statements",
    [
        "for i in range(4):\n    x = A[i, 0]\n    A[i, 1] = x\n    x = x + 1\n    A[i, 2] = x",
        "x = n\nfor i in range(4):\n    x = i\n    A[i, 0] = x\n    x = x + 1\n    A[i, 1] = x",
        "for i in range(4):\n    x = A[i, 0]\n    for j in range(4):\n        A[i, j] = x\n"
        "    x = x + 1\n    A[i, 5] = x",
        "x = n\nfor i in range(4):\n    for j in range(4):\n        x = j\n        A[i, x] = 0\n"
        "    x = i\n    A[i, x] = 0",
        "x = n\nfor i in range(4):\n    A[i, 0] = x\n    if i > 1:\n        x = i\n"
        "        A[i, 1] = x\n        break",
        "x = n\nfor i in range(4):\n    A[i, 0] = x\n    if i > 1:\n        x = i\n    break",
    ],
    ids=["own", "bound first", "a loop inside", "loops of their own", "the last", "the only one"],
)
def test_a_rebinding_counts_for_the_rest_of_an_iteration(trace, statements):
    trace(statements)


@pytest.mark.parametrize(
    "statements",
    [
        "for i in range(4):\n    A[i, 0] = x\n    for j in range(4):\n        if j > 1:\n"
        "            x = j\n            break",
        "for i in range(4):\n    for u in (1, 2):\n        A[u, 0] = x\n        x = u\n"
        "        break",
        "for i in range(4):\n    A[i, 0] = x\n    if i > 1:\n        for j in range(2):\n"
        "            A[i, j] = x\n            x = j\n        break",
    ],
    ids=["a loop inside", "Python's loop", "in front of it"],
)
def test_a_break_of_another_loop_is_not_the_last_iteration(trace, statements):
    with pytest.raises(RuntimeError, match=r"which the next iteration would not see"):
        trace(f"x = n\n{statements}")


def test_python_carries_values_through_its_own_loops(traced):
    assert (
        traced("x = 0\nfor u in (1, 2, 3):\n    x += u\nA[0, x] = 0")
        == "A[0, 6] = T.float32(0.0)\n"
    )


def test_swapped_scalars_are_read_before_they_are_written(traced):
    assert traced("A[0, 0], A[0, 1] = A[0, 1], A[0, 0]") == (
        "value: T.let[T.float32] = T.tl.element(A[0, 1])\n"
        "value_1: T.let[T.float32] = T.tl.element(A[0, 0])\n"
        "A[0, 0] = value\n"
        "A[0, 1] = value_1\n"
    )


def test_a_chained_assignment_evaluates_its_value_once(traced):
    assert traced("A[0, 0] = A[0, 1] = A[0, 0] + 1").startswith("value: T.let[T.float32] = A[0, 0]")


def test_starred_assignment(traced):
    assert traced("first, *rest = [1, 2, 3]\nA[first, rest[1]] = len(rest)") == (
        "A[1, 3] = T.float32(2.0)\n"
    )


def test_an_annotation_with_a_value_casts(traced):
    assert traced("x: T.float16 = A[0, 0]\ny: int = 3\nA[0, y] = x") == (
        'x: T.let[T.float16] = T.Cast("float16", A[0, 0])\nA[0, 3] = T.Cast("float32", x)\n'
    )


def test_augmented_assignment_of_an_element(traced):
    assert traced("A[n, 0] *= 2") == "A[n, 0] = A[n, 0] * T.float32(2.0)\n"


def test_augmented_assignment_of_a_python_object_is_pythons(traced):
    assert traced("xs = [1]\nys = xs\nxs += [2]\nA[0, len(ys)] = 0") == "A[0, 2] = T.float32(0.0)\n"


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("A += 1", RuntimeError, "the buffer A of shape .* has no in-place arithmetic"),
        ("a, b = n", TypeError, "cannot unpack the expression n"),
        ("a, b = 1, 2, 3", ValueError, "found 3 values to unpack, wanted 2"),
        ("A[0, 0] = undefined", NameError, "undefined"),
    ],
)
def test_errors_name_the_place(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> <kernel \d+>:\d+:\d+\n   \|"):
        trace(statement)


def test_a_pure_call_outside_a_kernel_is_substituted_and_a_load_is_not(define):
    script = define("""
        @T.prim_func
        def main(A: T.Tensor((8,), "int32"), n: T.int32):
            blocks = T.if_then_else(n > 1, n, 1)
            first = A[0]
            with T.Kernel(blocks) as bx:
                A[bx] = first
    """)["main"].script()
    assert 'T.thread_binding(T.if_then_else(1 < n, n, 1), thread="blockIdx.x")' in script
    assert "first: T.let[T.int32] = A[0]" in script


def test_members_of_one_iteration_may_change(traced):
    text = traced(
        "kept = [T.alloc_var('float32', 0.0)]\n"
        "for i in range(4):\n    c = [A[i, 0], 1]\n    c[0] = c[0] + 1\n    c[1] = 2\n"
        "    A[i, 1] = c[0] * c[1]\n    kept[0] = kept[0] + 1\nA[0, 0] = kept[0]"
    )
    assert "* T.float32(2.0)" in text
