"""The classic GEMM as a program, and what T.prim_func asks of a function."""

import linecache

import pytest
import tvm_ffi
from tvm import tirx

import tilelang.language as T


def matmul(M, N, K, block_M, block_N, block_K, dtype=T.float16, accum_dtype=T.float32):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.use_swizzle(10)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[ko * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = T.max(C_local[i, j], 0)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


GEMM_BODY = """\
T.reads()
T.writes()
A_shared = T.sblock_alloc_buffer((128, 32), "float16", scope="shared.dyn")
B_shared = T.sblock_alloc_buffer((32, 128), "float16", scope="shared.dyn")
C_local = T.sblock_alloc_buffer((128, 128), scope="local.fragment")
T.attr({"threadblock_swizzle_pattern": "rasterization2DRow<10>"})
T.tl.fill(C_local[0:128, 0:128], T.float32(0.0))
for ko in T.serial(16, annotations={"num_stages": 3}):
    T.tl.copy(A[by * 128:by * 128 + 128, ko * 32:ko * 32 + 32], A_shared[0:128, 0:32])
    T.tl.copy(B[ko * 32:ko * 32 + 32, bx * 128:bx * 128 + 128], B_shared[0:32, 0:128])
    T.tl.gemm(A_shared[0:128, 0:32], B_shared[0:32, 0:128], C_local[0:128, 0:128], \
T.bool(False), T.bool(False), 0, T.bool(False))
for i in T.parallel(128):
    for j in T.parallel(128):
        C_local[i, j] = T.max(C_local[i, j], T.float32(0.0))
T.tl.copy(C_local[0:128, 0:128], C[by * 128:by * 128 + 128, bx * 128:bx * 128 + 128])
"""


def test_gemm_prints_as_it_was_written(body):
    assert body(matmul(512, 512, 512, 128, 128, 32)) == GEMM_BODY


def test_gemm_parses_back(round_trip):
    round_trip(matmul(1000, 777, 333, 128, 128, 32))


def test_gemm_with_dynamic_sizes_parses_back(round_trip):
    m, n, k = T.dynamic("m, n, k")
    round_trip(matmul(m, n, k, 128, 128, 32))


def test_every_statement_has_the_span_of_its_line():
    func = matmul(512, 512, 512, 128, 128, 32)
    spans = []
    kinds = (tirx.For, tirx.BufferStore, tirx.Evaluate, tirx.AttrStmt)
    tvm_ffi.structural_walk(func, [(kinds, lambda node: spans.append(node.span))])
    assert all(s.source_name.name == __file__ and s.column > 0 for s in spans)
    lines = {linecache.getline(__file__, s.line).strip().split("(")[0] for s in spans}
    assert {"T.clear", "T.copy", "T.gemm", "T.use_swizzle", "with T.Kernel"} <= lines


def test_name_and_scalar_parameters():
    @T.prim_func
    def scale(A: T.Tensor((4,), "float32"), n: T.int32, x: T.float16):
        with T.Kernel(1, threads=1):
            A[n] = x

    assert scale.attrs["global_symbol"] == "scale"
    assert [str(p.ty.dtype) for p in scale.params] == ["float32", "int32", "float16"]


def test_parentheses_are_optional():
    @T.prim_func()
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            A[0] = 1

    assert isinstance(main, tirx.PrimFunc)


def test_annotations_as_text_see_the_enclosing_function():
    def build(size):
        @T.prim_func
        def main(A: "T.Tensor((size, 2), T.float16)"):
            with T.Kernel(1):
                A[0, 0] = 1

        return main

    assert [int(s) for s in build(6).params[0].shape] == [6, 2]


def test_function_of_an_expression_defined_later():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            A[0] = LATER

    assert "T.float32(7.0)" in main.script()


LATER = 7


@pytest.mark.parametrize(
    ("definition", "error", "message"),
    [
        ("def f(A): pass", ValueError, "parameter A of f has no annotation"),
        ("def f(A: T.int32, /): pass", TypeError, "parameter A of f is positional-only"),
        ("def f(*A: T.int32): pass", TypeError, "variadic positional"),
        ("def f(A: T.int32 = 1): pass", TypeError, "has a default value"),
        ("def f(A: 'list'): pass", TypeError, "is annotated with"),
    ],
)
def test_parameters_are_checked(define, definition, error, message):
    with pytest.raises(error, match=message) as raised:
        T.prim_func(define(definition)["f"])
    assert "--> " in str(raised.value)


def test_source_that_cannot_be_read():
    namespace = {"T": T}
    exec("def f(A: T.int32):\n    pass", namespace)
    with pytest.raises(OSError, match="cannot read the source of f, defined in <string>"):
        T.prim_func(namespace["f"])


def test_lambdas_and_builtins_are_refused():
    with pytest.raises(TypeError, match="wanted a function written in Python"):
        T.prim_func(len)


def test_a_value_cannot_be_returned():
    with pytest.raises(
        RuntimeError,
        match=r"a program returns tensors of T.empty only[\s\S]*--> .*test_function.py:\d+:",
    ):

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            return A


def test_two_kernels_follow_each_other(round_trip):
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1) as bx:
            A[bx] = 1
        with T.Kernel(2) as bx:
            A[bx] = 2

    assert main.script().count('thread="blockIdx.x"') == 2
    round_trip(main)
