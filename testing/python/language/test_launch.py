"""T.Kernel: extents, variables, errors."""

import pytest

import tilelang.language as T
from tilelang.jit.exceptions import JITNoBuilderError


def launched(define, kernel, statement="pass"):
    return define(f"""
        @T.prim_func
        def main(A: T.Tensor((64,), "float32"), n: T.int32):
            {kernel}:
                {statement}
    """)["main"].script()


@pytest.mark.parametrize(
    ("kernel", "extents"),
    [
        ("with T.Kernel(threads=64)", (1, 1, 1, 64, 1, 1)),
        ("with T.Kernel(2) as bx", (2, 1, 1, 128, 1, 1)),
        ("with T.Kernel(2, 3, threads=(32, 4)) as (bx, by)", (2, 3, 1, 32, 4, 1)),
        (
            "with T.Kernel(2, 3, 4, threads=[8, 4, 2], is_cpu=False) as (a, b, c)",
            (2, 3, 4, 8, 4, 2),
        ),
    ],
)
def test_six_loops(define, kernel, extents):
    script = launched(define, kernel)
    names = ["bx", "by", "bz", "tx", "ty", "tz"]
    tags = [f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in "xyz"]
    for name, extent, tag in zip(names, extents, tags, strict=True):
        assert f'for {name} in T.thread_binding({extent}, thread="{tag}")' in script


@pytest.mark.parametrize("target", ["bx", "(bx,)", "[bx]"])
def test_one_dimension_is_a_variable_or_a_tuple(define, target):
    assert "A[bx]" in launched(define, f"with T.Kernel(64) as {target}", "A[bx] = 0")


def test_extents_may_be_expressions(define):
    assert "T.thread_binding((n + 15) // 16" in launched(define, "with T.Kernel(T.ceildiv(n, 16))")


def test_assigning_a_kernel_enters_it(define, round_trip):
    main = define("""
        @T.prim_func
        def main(A: T.Tensor((64, 2), "float32")):
            bx, by = T.Kernel(64, 2, threads=32)
            A[bx, by] = 1
    """)["main"]
    assert "A[bx, by] = T.float32(1.0)" in main.script()
    round_trip(main)


def test_bindings_and_extents(define):
    statement = (
        "A[T.get_block_binding(0) + T.get_thread_binding(1)] = "
        "T.get_thread_extent(1) + T.get_block_extent() + sum(T.get_thread_extents()) "
        "+ len(T.get_block_bindings() + T.get_thread_bindings() + T.get_block_extents()) "
        "+ T.KernelLaunchFrame.Current().num_threads"
    )
    script = launched(define, "with T.Kernel(3, threads=(4, 8))", statement)
    assert f"A[bx + ty] = T.float32({8 + 3 + 13 + 9 + 32}.0)" in script


def test_prelude_is_an_annotation_of_the_block(define):
    script = launched(define, "with T.Kernel(1, prelude='#define X 1')")
    assert 'T.sblock_attr({"pragma_import_c": "#define X 1"})' in script


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        ("with T.Kernel(1, threads=0)", ValueError, "threads must be positive"),
        ("with T.Kernel(1, threads=-1)", ValueError, "threads must be positive"),
        ("with T.Kernel(1, threads=(32, 0))", ValueError, "threads must be positive"),
        ("with T.Kernel(1, threads='32')", ValueError, "wanted an int or one to three"),
        ("with T.Kernel(1, threads=(1, 1, 1, 1))", ValueError, "wanted an int or one to three"),
        ("with T.Kernel(-1)", ValueError, "has -1 blocks, wanted 0 or more"),
        ("with T.Kernel(1, 1, 1, 1)", ValueError, "wanted at most 3"),
        ("with T.Kernel(3 / 2)", TypeError, r"T\.ceildiv"),
        ("with T.Kernel(2, 2) as bx, T.Kernel(2)", ValueError, "inside of another kernel"),
        ("with T.Kernel(2, 2) as (a, b, c)", ValueError, "found 2 values to unpack, wanted 3"),
    ],
)
def test_errors(define, kernel, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> <kernel \d+>:4:"):
        launched(define, kernel)


def test_outside_of_a_trace_and_of_a_kernel(define):
    with pytest.raises(JITNoBuilderError, match=r"T\.Kernel is only defined while"):
        T.Kernel(1)
    assert T.KernelLaunchFrame.Current() is None
    with pytest.raises(ValueError, match=r"T\.get_thread_binding is outside of a kernel"):
        launched(define, "if True", "T.get_thread_binding()")


def test_a_name_for_the_kernel_itself_does_not_launch_it_again(define):
    statement = "k = T.KernelLaunchFrame.Current(); (same,) = [k]; assert k.num_threads == 32"
    launched(define, "with T.Kernel(2, threads=32)", f"{statement} and same is k")
