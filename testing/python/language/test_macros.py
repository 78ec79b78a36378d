"""Macros are inlined; references store to the caller's places."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.jit.exceptions import JITNoBuilderError


@T.macro
def relu(x):
    return T.max(x, 0)


@T.macro
def increase(count: T.Ref, by=1):
    count += by


@T.macro
def power(x, n: int):
    if n == 0:
        return 1
    return x * power(x, n - 1)


def test_an_argument_is_evaluated_once(traced):
    assert traced("A[0, 0] = relu(A[0, 1] + 1)", relu=relu) == (
        "x: T.let[T.float32] = A[0, 1] + T.float32(1.0)\nA[0, 0] = T.max(x, T.float32(0.0))\n"
    )


def test_a_reference_to_a_variable_and_to_an_element(traced):
    text = traced(
        "v = T.alloc_var('int32')\nincrease(v)\nincrease(A[n + 1, 0], by=2)", increase=increase
    )
    assert text.endswith(
        "v[0] = v[0] + 1\n"
        "count_index: T.let[T.int32] = n + 1\n"
        "A[count_index, 0] = A[count_index, 0] + T.float32(2.0)\n"
    )


def test_a_reference_to_a_region(traced, define):
    put = define("@T.macro\ndef put(place: T.Ref):\n    place = 1")["put"]
    assert traced("put(A[0:4, :])", put=put) == "T.tl.fill(A[0:4, 0:16], T.float32(1.0))\n"


def test_a_reference_to_a_region_takes_a_region(traced, define):
    put = define("@T.macro\ndef put(place: T.Ref, x):\n    place = x")["put"]
    assert traced("put(A[0:4, :], B[4:8, :])", put=put) == "T.tl.copy(B[4:8, 0:16], A[0:4, 0:16])\n"


def test_a_reference_to_a_region_has_no_arithmetic(trace):
    with pytest.raises(RuntimeError, match=r"the region A\[0:4, 0:16\] has no in-place arithmetic"):
        trace("increase(A[0:4, :])", increase=increase)


def test_a_buffer_rebinds_a_reference(traced, define):
    put = define("@T.macro\ndef put(place: T.Ref, x):\n    place = x\n    place[0, 0] = 1")["put"]
    assert traced("put(A[1, 0], B)", put=put) == "B[0, 0] = T.float32(1.0)\n"


def test_a_reference_needs_a_place(trace):
    with pytest.raises(ValueError, match=r"parameter count .* is a T\.Ref and found 3"):
        trace("increase(3)", increase=increase)


def test_recursion_with_a_python_guard(traced):
    assert "x: T.let[T.float32] = A[0, 1]" in traced("A[0, 0] = power(A[0, 1], 2)", power=power)


@T.macro
def collatz(x: T.Ref, n: int):
    if n != 1:
        if n % 2 == 0:
            x = x // 2
            collatz(x, n // 2)
        else:
            x = 3 * x + 1
            collatz(x, 3 * n + 1)


def test_recursion_applies_the_collatz_steps_of_a_number_to_an_element():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            collatz(A[2], 27)

    values = torch.arange(1, 9, dtype=torch.int32) * 9
    kernel = tilelang.compile(main, execution_backend="auto")
    wanted, n = values.clone(), 27
    while n != 1:
        wanted[2] = wanted[2] // 2 if n % 2 == 0 else 3 * wanted[2] + 1
        n = n // 2 if n % 2 == 0 else 3 * n + 1
    assert wanted[2] == 1
    values = values.to("cuda" if torch.cuda.is_available() else "cpu")
    kernel(values)
    assert values.tolist() == wanted.tolist()


def test_recursion_that_the_program_would_have_to_end(trace, define):
    rec = define("@T.macro\ndef rec(n):\n    if n > 0:\n        rec(n - 1)")["rec"]
    with pytest.raises(RecursionError, match=r"the last one of rec; wanted[\s\S]*--> <kernel"):
        trace("rec(n)", rec=rec)


def test_several_results_and_nested_macros(traced, define):
    names = define("""
        @T.macro
        def ordered(a, b):
            return T.min(a, b), T.max(a, b)

        @T.macro
        def span(a, b, difference=lambda x, y: x - y):
            low, high = ordered(a, b)
            return difference(high, low)
    """)
    assert traced("A[0, 0] = span(A[0, 1], A[0, 2])", **names) == (
        "a: T.let[T.float32] = A[0, 1]\n"
        "b: T.let[T.float32] = A[0, 2]\n"
        "low: T.let[T.float32] = T.min(a, b)\n"
        "high: T.let[T.float32] = T.max(a, b)\n"
        "A[0, 0] = high - low\n"
    )


def test_macros_can_be_arguments_and_defaults(traced, define):
    names = define("""
        @T.macro
        def double(x):
            return x * 2

        @T.macro
        def apply(x, f=double):
            return f(f(x))
    """)
    text = traced("A[0, 0] = apply(n)\nA[0, 1] = apply(n, lambda v: v)", **names)
    assert text.splitlines()[-2:] == [
        'A[0, 0] = T.Cast("float32", x * 2)',
        'A[0, 1] = T.Cast("float32", n)',
    ]


def test_inline_has_no_variables_for_its_arguments(traced, define):
    twice = define("@T.inline\ndef twice(x):\n    return x + x")["twice"]
    assert traced("A[0, twice(n * 2)] = 0", twice=twice) == (
        "A[0, n * 2 + n * 2] = T.float32(0.0)\n"
    )
    assert twice(3) == 6


def test_inline_traces_the_programs_control_flow(traced, define):
    put = define("@T.inline\ndef put(A, x):\n    if x > 0:\n        A[0, 0] = x")["put"]
    assert traced("put(A, n)", put=put).startswith("if n > 0:\n    A[0, 0]")


COUNTER = """
    @T.meta_class
    class Counter:
        def __init__(self, start, scale=2):
            self.count = T.alloc_var(T.int32, start)
            self.scale = scale

        @property
        def scaled(self):
            return self.count * self.scale

        def step(self, by=1):
            if self.count < 100:
                self.count += by

        @staticmethod
        def clipped(x):
            return T.min(x, 7)

        def __repr__(self):
            return f"Counter({self.scale})"
"""


def test_methods_of_a_meta_class_are_traced(traced, define):
    text = traced(
        "c = Counter(5)\nc.step()\nA[0, c.clipped(n + 1)] = c.scaled\nc.count = 7\nt = f'{c}'",
        **define(COUNTER),
    )
    assert text == (
        'count = T.sblock_alloc_buffer((1,), "int32", scope="local.var")\n'
        "count[0] = 5\n"
        "if count[0] < 100:\n"
        "    count[0] = count[0] + 1\n"
        "value: T.let[T.int32] = count[0] * 2\n"
        "x: T.let[T.int32] = n + 1\n"
        'A[0, T.min(x, 7)] = T.Cast("float32", value)\n'
        "count[0] = 7\n"
    )


def test_an_object_of_a_meta_class_is_made_while_tracing(define):
    with pytest.raises(JITNoBuilderError, match=r"the macro Counter\.__init__ is only defined"):
        define(COUNTER)["Counter"](1)


def test_callables_can_be_passed(traced):
    text = traced("def apply(f, x=3):\n    return f(x)\nA[0, apply(lambda v: v + 1)] = 0")
    assert text == "A[0, 4] = T.float32(0.0)\n"


def test_return_under_a_runtime_condition(trace, define):
    early = define("@T.macro\ndef early(x):\n    if x > 1:\n        return 1\n    return 2")[
        "early"
    ]
    with pytest.raises(NotImplementedError, match="`return` in the branch"):
        trace("A[0, early(n)] = 0", early=early)


def test_outside_of_a_trace():
    with pytest.raises(JITNoBuilderError, match="the macro relu is only defined while"):
        relu(1)


def test_the_span_after_a_call_is_the_callers(trace, body):
    main = trace("A[0, 0] = relu(A[0, 1])", relu=relu)
    store = main.body
    while hasattr(store, "body") or hasattr(store, "block"):
        store = store.block.body if hasattr(store, "block") else store.body
    assert store[-1].span.line == 5


def test_t_var_is_the_deprecated_spelling(define):
    with pytest.warns(DeprecationWarning, match=r"use T\.Ref"):
        define("@T.macro\ndef put(place: T.Var):\n    place = 1")
