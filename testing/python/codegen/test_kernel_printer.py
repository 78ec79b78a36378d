"""Whole kernels: signature, indices, allocations, statements; exact texts of short programs."""

import ctypes
import inspect

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

import tilelang
import tilelang.language as tl
from tilelang._ffi import get_function
from tilelang.cuda.nvrtc import compile_cubin
from tilelang.emulator.compiler import build_emulated


def intrinsic(name: str, *args: object) -> tvm.ir.Call:
    return tvm.ir.Call(tvm.ir.Op.get(name), list(args))


@T.prim_func(s_tir=True)
def copy(A: T.Buffer((64, 256), "float16"), B: T.Buffer((64, 256), "float16")):
    bx = T.launch_thread("blockIdx.x", 64)
    tx = T.launch_thread("threadIdx.x", 32)
    B[bx, T.Ramp(tx * 8, 1, 8)] = A[bx, T.Ramp(tx * 8, 1, 8)]


def test_vector_copy(emit):
    assert emit(copy) == (
        "#include <tl/common.h>\n"
        "\n"
        'extern "C" __global__ void __launch_bounds__(32) '
        "main_kernel(const half_t* __restrict__ A, half_t* __restrict__ B) {\n"
        "  const int bx = blockIdx.x;\n"
        "  const int tx = threadIdx.x;\n"
        "  tl::assume(tx < 32);\n"
        "  tl::store(B + bx * 256 + tx * 8, tl::load<half_t, 8>(A + bx * 256 + tx * 8));\n"
        "}\n"
    )


@T.prim_func(s_tir=True)
def staged(A: T.Buffer((4, 64), "float16"), B: T.Buffer((4, 64), "float32"), n: T.int32):
    bx = T.launch_thread("blockIdx.x", 1)
    tx = T.launch_thread("threadIdx.x", 8)
    with T.sblock("root"):
        S = T.sblock_alloc_buffer((2, 64), "float16", scope="shared.dyn")
        R = T.sblock_alloc_buffer((64,), "float32", scope="shared.dyn")
        C = T.sblock_alloc_buffer((8, 4), "float32", scope="local")
        count = T.sblock_alloc_buffer((1,), "int32", scope="local.var")
        with T.attr(0, "threadblock_swizzle_pattern", "rasterization2DRow<10>"):
            count[0] = 0
            for k in range(4):
                T.evaluate(
                    intrinsic(
                        "tl.cp_async_gs",
                        16,
                        T.address_of(S[k % 2, tx * 8]),
                        T.address_of(A[k, tx * 8]),
                    )
                )
                T.evaluate(intrinsic("tl.cp_async_commit"))
                T.evaluate(intrinsic("tl.cp_async_wait", 0))
                T.tvm_storage_sync("shared")
                for i in T.unroll(8):
                    C[i, k] = T.Cast("float32", S[k % 2, tx * 8 + i])
            while count[0] < n:
                count[0] = count[0] + 1
            if bx < n:
                R[tx] = C[0, 0]
            elif tx == 0:
                R[0] = T.float32(1)
            else:
                R[tx] = T.float32(2)
            B[0, tx] = R[tx]


STAGED = """\
#include <tl/common.h>
#include <tl/copy.h>

extern "C" __global__ void __launch_bounds__(8) \
main_kernel(const half_t* __restrict__ A, float* __restrict__ B, int n) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  const dim3 blockIdx = tl::rasterization2DRow<10>();
  const int bx = blockIdx.x;
  const int tx = threadIdx.x;
  tl::assume(tx < 8);
  auto S = tl::shared<half_t, 128>(buf_dyn_shmem + 0);
  auto R = tl::shared<float, 64>(buf_dyn_shmem + 256);
  alignas(16) tl::local<float, 32> C;
  int count;
  count = 0;
  for (int k = 0; k < 4; ++k) {
    tl::cp_async_gs<16>(S + k % 2 * 64 + tx * 8, A + k * 64 + tx * 8);
    tl::cp_async_commit();
    tl::cp_async_wait<0>();
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      C[i * 4 + k] = float(S[k % 2 * 64 + tx * 8 + i]);
    }
  }
  while (count < n) {
    count = tl::add(count, 1);
  }
  if (bx < n) {
    R[tx] = C[0];
  } else if (tx == 0) {
    R[0] = 1.0f;
  } else {
    R[tx] = 2.0f;
  }
  B[tx] = R[tx];
}
"""


def test_statements(emit):
    assert emit(staged) == STAGED


def test_source_is_the_same_each_time(emit):
    assert emit(staged) == emit(staged)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_accepts(emit, arch):
    usage = compile_cubin(emit(staged, arch=arch), arch, ["main_kernel"]).resource_usage
    assert usage["main_kernel"].registers > 0


def test_emulator_runs_the_same_source(emit):
    a = np.random.default_rng(0).random((4, 64)).astype(np.float16)
    b = np.zeros((4, 64), np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b)]
    module = build_emulated(emit(staged), ["main_kernel"])
    module.launch("main_kernel", (1, 1, 1), (8, 1, 1), 512, [*pointers, ctypes.c_int(3)])
    np.testing.assert_array_equal(b[0, :8], a[0, ::8].astype(np.float32))


def test_line_directives_name_the_python_line(emit):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float16"), B: T.Buffer((64,), "float16")):
        tx = T.launch_thread("threadIdx.x", 8)
        B[tx] = A[tx]

    line = inspect.currentframe().f_lineno - 2
    text = emit(func, line_directives=True)
    assert text.endswith(f'#line {line} "{__file__}"\n  B[tx] = A[tx];\n}}\n')


def test_rows_that_threads_do_not_divide_are_loaded_without_guards():
    """All vectors of a row but the last are inside whatever the thread: one load is predicated."""

    @tl.prim_func
    def main(A: tl.Tensor((64, 4544), "float16"), B: tl.Tensor((64, 4544), "float32")):
        with tl.Kernel(64, threads=128) as bx:
            row = tl.alloc_fragment((4544,), "float16")
            tl.copy(A[bx, :], row)
            tl.copy(row, B[bx, :])

    sass = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="tvm_ffi").sass
    loads = [line.split("*/")[1].split() for line in sass.splitlines() if "LDG" in line]
    assert len(loads) > 4
    assert sum(words[0].startswith("@") for words in loads) == 1, loads


def test_names_are_legal_and_unique(body):
    @T.prim_func(s_tir=True)
    def func(double: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        for i in range(2):
            for j in range(3):
                double[tx + i + j] = T.float32(0)
        for i in range(4):
            double[i + tx] = T.float32(1)

    lines = body(func)
    assert lines[0] == "for (int i = 0; i < 2; ++i) {"
    assert "for (int i = 0; i < 4; ++i) {" in lines
    assert "  v_double[i + tx] = 1.0f;" in lines


def test_a_name_in_use_gets_a_number():
    outer, inner = tirx.Var("i", "int32"), tirx.Var("i", "int32")
    buffer = tirx.decl_buffer((8,), "int32", name="A")
    store = tirx.BufferStore(buffer, outer + inner, [0])
    loops = tirx.For(outer, 0, 2, 0, tirx.For(inner, 0, 3, 0, store))
    kernel = tirx.PrimFunc([buffer], loops).with_attrs(
        {"global_symbol": "k", "tl.block": [1, 1, 1]}
    )
    text = get_function("codegen.EmitCuda")([kernel], False)
    assert "for (int i_1 = 0; i_1 < 3; ++i_1) {\n      A[0] = i + i_1;" in text


def test_static_shared_memory_and_small_locals(body):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        with T.sblock("root"):
            S = T.sblock_alloc_buffer((8,), "float32", scope="shared")
            F = T.sblock_alloc_buffer((3,), "float16", scope="local")
            F[1] = T.float16(0)
            S[tx] = T.Cast("float32", F[1])
            A[tx] = S[tx]

    assert body(func)[:3] == [
        "unsigned char* buf_shmem = tl::static_shared<32>();",
        "auto S = tl::shared<float, 8>(buf_shmem + 0);",
        "alignas(4) tl::local<half_t, 3> F;",
    ]


@pytest.mark.parametrize(
    ("dtype", "scope", "line"),
    [
        ("float16", "local", "tl::convert<half_t, 4>(F + 4, G + 8);"),
        ("bfloat16", "local", "tl::convert<bfloat16_t, 4>(F + 4, G + 8);"),
        ("int32", "local", "tl::store(F + 4, tl::cast<int>(tl::load<float, 4>(G + 8)));"),
        ("float16", "shared", "tl::store(F + 4, tl::cast<half_t>(tl::load<float, 4>(G + 8)));"),
    ],
)
def test_registers_are_converted_without_vectors(body, dtype, scope, line):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((16,), "float32")):
        T.launch_thread("threadIdx.x", 1)
        with T.sblock("root"):
            G = T.sblock_alloc_buffer((16,), "float32", scope="local")
            F = T.sblock_alloc_buffer((16,), dtype, scope=scope)
            F[T.Ramp(4, 1, 4)] = T.Cast(f"{dtype}x4", G[T.Ramp(8, 1, 4)])
            A[0] = T.Cast("float32", F[4])

    assert body(func)[-2] == line


def test_unroll_factor_step_break_and_bind(body):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 8)
        for i in T.serial(n, annotations={"pragma_unroll_factor": 4}):
            half = T.bind(i // 2)
            if half > 6:
                break
            A[tx] = half

    assert body(func) == [
        "#pragma unroll 4",
        "for (int i = 0; i < n; ++i) {",
        "  const int half = i / 2;",
        "  if (half > 6) {",
        "    break;",
        "  }",
        "  A[tx] = half;",
        "}",
    ]


def test_known_sign_inside_a_condition(body):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "int32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 8)
        if n >= 0:
            A[tx] = n // 4
        else:
            A[tx] = n // 4

    assert body(func)[1::2] == ["  A[tx] = n / 4;", "  A[tx] = n >> 2;"]


def test_min_blocks_and_aliasing_parameters(emit):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        with T.attr(0, "tl.min_blocks_per_sm", 2), T.attr(0, "tl.aliased_buffer", "B"):
            B[tx] = A[tx]

    assert "__launch_bounds__(8, 2)" in emit(func)
    # B may be one with tensors that are reached by other pointers.
    assert "(const float* A, float* B)" in emit(func)
    assert "(const float* A, float* B)" in emit(func.with_attr("tirx.noalias", False))


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("colour", "red", "found the attribute colour.*Leave it out"),
        (
            "threadblock_swizzle_pattern",
            "hilbert",
            r'found rasterization pattern "hilbert".*T\.use_swizzle',
        ),
    ],
)
def test_unknown_attributes_are_refused(emit, key, value, told):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        with T.attr(0, key, value):
            A[tx] = T.float32(0)

    with pytest.raises(ValueError, match=told):
        emit(func)


def test_pointer_passed_on_is_not_const(emit):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        T.call_extern("void", "mine", T.address_of(A[tx]), B[tx])

    # What the function does with A is not known: it may write and load.
    assert "(float* A, const float* __restrict__ B)" in emit(func)


def test_error_names_the_line_of_the_statement(emit):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "int32")):
        tx = T.launch_thread("threadIdx.x", 8)
        A[tx] = T.q_multiply_shift(A[tx], A[tx], 31, 1)

    with pytest.raises(
        ValueError, match=r"test_kernel_printer\.py:\d+: found a call of tirx\.q_multiply"
    ):
        emit(func)


def test_loop_that_should_be_gone_is_a_bug_of_ours(emit):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "float32")):
        T.launch_thread("threadIdx.x", 1)
        for i in T.vectorized(8):
            A[i] = T.float32(0)

    with pytest.raises(
        Exception, match=r"neither serial nor unrolled \(a bug in tilelang, in EmitCuda"
    ):
        emit(func)


def test_prelude_stands_before_the_kernel(emit):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        with T.sblock("root"):
            T.sblock_attr({"pragma_import_c": "__device__ float mine() { return 1.0f; }"})
            A[tx] = T.call_extern("float32", "mine")

    text = emit(func)
    # The text may call any function.
    names = ["common", "exponential", "floor", "number_bits", "trigonometric"]
    includes = "".join(f"#include <tl/{name}.h>\n" for name in names)
    assert includes + "\n__device__ float mine() { return 1.0f; }\n\nextern" in text
    assert "  A[tx] = mine();\n" in text


@pytest.mark.parametrize(
    ("function", "headers"),
    [
        (lambda x: T.exp2(x), ["exponential"]),
        (lambda x: T.sin(T.sqrt(x)), ["exponential", "trigonometric"]),
        (lambda x: T.max(x, T.fabs(x)), ["math"]),
        (lambda x: T.floor(x), ["floor"]),
        (lambda x: T.Select(T.isnan(x), T.float32(0), x), ["number_bits"]),
    ],
)
def test_functions_are_included_where_they_are_called(emit, function, headers):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        A[tx] = function(A[tx])

    text = emit(func)
    includes = [line for line in text.splitlines() if line.startswith("#include")]
    assert includes == [f"#include <tl/{name}.h>" for name in ["common", *headers]]
    compile_cubin(text, "sm_80", ["main_kernel"])


def test_a_loaded_condition_is_not_remembered(body):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "int32")):
        tx = T.launch_thread("threadIdx.x", 8)
        if A[tx] >= 0:
            A[tx] = -5
            A[tx] = A[tx] // 4

    assert body(func)[2] == "  A[tx] = A[tx] >> 2;"


@pytest.mark.parametrize("value", ["T.Cast('float32', x)", "x", "x + 1"])
def test_a_value_that_nobody_uses_declares_nothing(emit, value):
    """`float(x);` declared another x, of float."""
    program = tvm.script.from_source(f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4,), "int32")):
    tx = T.launch_thread("threadIdx.x", 4)
    x: T.let[T.int32] = A[tx]
    T.evaluate({value})
    A[tx] = x
""")
    assert "  (void)(" in emit(program)
