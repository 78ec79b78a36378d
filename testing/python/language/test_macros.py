"""Macros are inlined; references store to the caller's places."""

import pytest

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


def test_a_reference_needs_a_place(trace):
    with pytest.raises(ValueError, match=r"parameter count .* is a T\.Ref and found 3"):
        trace("increase(3)", increase=increase)


def test_recursion_with_a_python_guard(traced):
    assert "x: T.let[T.float32] = A[0, 1]" in traced("A[0, 0] = power(A[0, 1], 2)", power=power)


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
