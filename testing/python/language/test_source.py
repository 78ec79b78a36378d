"""Functions are traced where they stand: closures, text annotations, multi-line strings."""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.language.source import definition_text


def test_text_annotations_see_names_that_the_body_does_not_use():
    def build(size, dtype):
        @T.prim_func
        def main(A: T.Tensor((size, 2), dtype)):
            with T.Kernel(1):
                A[0, 0] = 1

        return main

    assert [int(s) for s in build(6, "int8").params[0].shape] == [6, 2]


def test_text_annotations_see_names_of_outer_functions():
    def build(size, dtype):
        def define():
            rows = 2

            @T.prim_func
            def main(A: T.Tensor((size, rows), dtype)):
                with T.Kernel(1):
                    A[0, 0] = 1

            return main

        return define()

    assert [int(s) for s in build(6, "int8").params[0].shape] == [6, 2]


def test_text_annotations_of_an_outer_function_that_returned_are_refused():
    def outer(size):
        def define():
            @T.prim_func
            def main(A: T.Tensor((size, 2), "float32")):
                with T.Kernel(1):
                    A[0, 0] = 1

        return define

    with pytest.raises(NameError, match=r"'size' is not defined.*name it in the body too"):
        outer(6)()


def test_text_annotations_of_macros_see_names_of_outer_functions():
    def build(kind):
        def define():
            @T.macro
            def put(place: kind):
                place = 1  # noqa: F841

            @T.prim_func
            def main(A: T.Tensor((4,), "float32")):
                with T.Kernel(1):
                    put(A[0])

            return main

        return define()

    assert "A[0] = T.float32(1.0)" in build(T.Ref).script()


def test_one_source_with_two_closures():
    def build(value):
        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.Kernel(1):
                A[0] = value

        return main.script()

    assert "T.float32(1.0)" in build(1)
    assert "T.float32(2.0)" in build(2)


def test_a_closure_variable_may_be_assigned_later():
    @T.macro
    def put(A: T.Tensor((4,), "float32")):
        A[0] = later

    later = 5

    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            put(A)

    assert "A[0] = T.float32(5.0)" in main.script()


def test_an_unassigned_closure_variable_is_a_name_error():
    with pytest.raises(NameError, match=r"later[\s\S]*--> .*test_source.py"):

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.Kernel(1):
                A[0] = later

    later = 5
    assert later == 5


def test_strings_keep_their_indentation():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            text = """a
            b"""
            A[0] = len(text)

    assert "A[0] = T.float32(15.0)" in main.script()


def test_functions_of_one_bytecode_are_told_apart(define):
    scripts = [
        define(f"""
            @T.prim_func
            def main(A: T.Tensor((4,), "float32"), n: T.int32):
                with T.Kernel(1):
                    x: T.{kind} = n + 1
                    A[0] = x
        """)["main"].script()
        for kind in ("float16", "int8")
    ]
    assert [kind in script for kind, script in zip(("float16", "int8"), scripts, strict=True)] == [
        True,
        True,
    ]


def test_definitions_end_where_their_statement_does(define):
    """In front of what is indented no deeper, but not of a bracket, a text or a comment there."""
    names = define(
        '''
    @keep(
        "main",
    )
    def main(
        A: T.Tensor((4,), "int32"),
    ):
        with T.Kernel(1, threads=32):
            words = """
    two # lines
    """
    # a comment in front of the last statement
            A[0] = (
    len(words)
            )
    # and one behind it
    after = 1
    ''',
        keep=lambda name: lambda function: function,
    )
    lines = definition_text(names["main"]).splitlines()
    assert (lines[0], lines[-1].strip()) == ("@keep(", ")")
    assert "A[0] = 13" in T.prim_func(names["main"]).script()
