"""Functions whose body is the kernel: declarations, outputs, what is constant, errors."""

from typing import Any

import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang.jit import impl
from tilelang.jit.exceptions import EagerJITBuildError, JITNoBuilderError

pytestmark = pytest.mark.usefixtures("tensors_on_device")


@tilelang.jit
def add(A, B, block: int = 64, bias=0):
    """C = A + B + bias."""
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] + B[bx * block + i] + bias
    return C


@pytest.fixture
def compilations(monkeypatch):
    """The parameters' shapes of each kernel that is compiled while a test runs."""
    found = []
    real = impl.compile

    def counted(func, **options):
        kernel = real(func, **options)
        found.append([param.shape for param in kernel.params])
        return kernel

    monkeypatch.setattr(impl, "compile", counted)
    return found


def test_a_call_compiles_runs_and_returns_the_output():
    a, b = torch.randn(100), torch.randn(100)
    assert torch.equal(add(a, b), a + b)
    assert torch.equal(add(B=b, A=a), a + b)
    assert (add.mode, add.is_lazy_mode(), add.__name__) == ("eager", False, "add")
    assert add.func.__doc__ == add.__doc__ == "C = A + B + bias."


def test_several_outputs_come_in_the_order_of_the_return():
    @tilelang.jit
    def minmax(A, B):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        B: T.Tensor[[N], T.float32]
        low = T.empty(N)
        high = T.empty((N,), dtype=T.float32)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                low[i] = T.min(A[i], B[i])
                high[i] = T.max(A[i], B[i])
        return high, low

    a, b = torch.randn(32), torch.randn(32)
    high, low = minmax(a, b)
    assert torch.equal(high, torch.maximum(a, b))
    assert torch.equal(low, torch.minimum(a, b))
    assert minmax.compile(N=32).out_idx == [3, 2]


def test_a_kernel_in_place_returns_nothing():
    @tilelang.jit
    def negate(A, n: T.int32):
        N = T.dynamic("N")
        A: T.Tensor[[N], T.float32]
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for i in T.Parallel(32):
                if bx * 32 + i < n:
                    A[bx * 32 + i] = -A[bx * 32 + i]

    a = torch.randn(50)
    expected = torch.cat([-a[:40], a[40:]])
    assert negate(a, 40) is None
    assert torch.equal(a, expected)


def test_a_kernel_without_arguments_of_the_run():
    @tilelang.jit
    def iota(n, step=1.0):
        C = T.empty((n,))
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                C[i] = i * step
        return C

    assert iota(5).tolist() == [0, 1, 2, 3, 4]
    assert iota(3, step=0.5).tolist() == [0, 0.5, 1]


def test_a_declaration_may_depend_on_a_constant_argument():
    @tilelang.jit
    def scale(A, factor=None, with_factor: bool = False):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        if with_factor:
            factor: T.float32
        C = T.empty((N,))
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                C[i] = A[i] * factor if with_factor else A[i]
        return C

    a = torch.randn(32)
    assert torch.equal(scale(a), a)
    assert torch.equal(scale(a, 2.5, True), a * 2.5)
    assert torch.equal(scale(a, factor=0.5, with_factor=True), a * 0.5)
    assert len({id(kernels) for kernels in scale._eager._kernels.values()}) == 2


# What a kernel is compiled for.


def test_a_compile_time_value_that_changes_is_compiled_and_nothing_else(compilations):
    @tilelang.jit(execution_backend="emulate")
    def pad(A, dtype="float32", value=0, table=(), n: T.int32 = 1):
        M = T.const("M")
        K = T.dynamic("K")
        A: T.Tensor[[M, K], dtype]
        with T.Kernel(1, threads=32):
            A[0, 0] = value + len(table)

    seen = []
    for args, kwargs in [
        ((torch.zeros(4, 8),), {}),
        ((torch.zeros(4, 16),), {}),  # the size of the run differs
        ((torch.zeros(4, 8),), {"n": 7}),  # the scalar of the run differs
        ((torch.zeros(4, 8), "float32", 0), {}),
        ((torch.zeros(5, 8),), {}),
        ((torch.zeros(4, 8, dtype=torch.float16), "float16"), {}),
        ((torch.zeros(4, 8),), {"value": 1}),
        ((torch.zeros(4, 8),), {"value": True}),
        ((torch.zeros(4, 8),), {"table": [1, 2]}),
        ((torch.zeros(4, 8),), {"table": [1, 2]}),  # equal by its repr
        ((torch.zeros(4, 8),), {"table": [1, 3]}),
    ]:
        pad.compile(*args, **kwargs)
        seen.append(len(compilations))
    assert seen == [1, 1, 1, 1, 2, 3, 4, 5, 6, 6, 7]


def test_strides_are_constants_where_they_are_declared_so(compilations):
    @tilelang.jit(execution_backend="emulate")
    def clear(A):
        M, N, lda = T.const("M, N, lda")
        A: T.StridedTensor[[M, N], [lda, 1], T.float32]
        with T.Kernel(1, threads=32):
            A[0, 0] = 0

    clear.compile(torch.zeros(4, 8))
    clear.compile(torch.zeros(4, 8)[:, :])
    clear.compile(torch.zeros(4, 10)[:, :8])
    assert len(compilations) == 2


def test_the_key_is_equal_for_the_same_kernel():
    a = torch.zeros(64)
    assert add.parse_cache_key(a, a) == add.parse_cache_key(A=a, B=torch.ones(64), block=64)
    assert add.parse_cache_key(a, a) != add.parse_cache_key(a, a, 32)
    assert add.parse_cache_key(a, a) != add.parse_cache_key(torch.zeros(65), torch.zeros(65))
    assert len({add.parse_cache_key(N=64), add.parse_cache_key(N=65)}) == 2


def test_ways_to_compile_without_running(compilations):
    a = torch.zeros(48)
    shapes = [(48,)] * 3
    assert isinstance(add.get_tir(a, a), tvm.tirx.PrimFunc)
    assert compilations == []
    kernel = add.compile(T.Tensor((48,), T.float32), T.Tensor((48,), T.float32))
    assert add.compile(a, a) is kernel
    assert "add_kernel" in add.get_kernel_source(a, a)
    assert add.compile(T.Tensor((48,), T.float32)) is kernel
    by_name = add.compile(N=48, block=64)
    assert add.compile(N=48) is by_name
    assert add.compile(N=48, __tune_params={"block": 64}) is by_name
    assert compilations == [shapes, shapes]
    assert torch.equal(by_name(a + 1, a), a + 1)


def test_several_configurations_are_traced_and_then_compiled_in_parallel(monkeypatch):
    import tqdm

    titles = []
    monkeypatch.setattr(tqdm, "tqdm", lambda items, desc, **_: titles.append(desc) or items)
    kernels = add.par_compile([{"N": 96, "block": block} for block in (16, 32)], num_workers=2)
    assert titles == ["Elaborating", "Parallel Compiling"]
    a = torch.randn(96)
    assert [torch.equal(kernel(a, a), a + a) for kernel in kernels] == [True, True]
    assert kernels[1] is add.compile(N=96, block=32)
    ok, failed = add.par_compile([{"N": 96, "block": 16}, {"block": 16}], ignore_error=True)
    assert ok is kernels[0]
    assert isinstance(failed, RuntimeError)


def test_two_elements_of_four_bits_are_one_of_the_tensor():
    @tilelang.jit
    def widen(A):
        M, N = T.const("M N")
        A: T.Tensor[[M, N], T.int4]
        C = T.empty((M, N), T.int8)
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((M, N), T.int4)
            T.copy(A, tile)
            for i, j in T.Parallel(M, N):
                C[i, j] = tile[i, j]
        return C

    found = widen(torch.full((4, 16), 0x21, dtype=torch.int8))
    assert found.tolist() == [[1, 2] * 16] * 4
    assert widen.compile(T.Tensor((4, 32), T.int4)).params[0].shape == (4, 32)

    @tilelang.jit
    def any_dtype(A: T.Tensor[[int, int], Any]):
        with T.Kernel(1, threads=32):
            T.copy(A, T.alloc_shared(A.shape, A.dtype))

    packed = torch.zeros(4, 16, dtype=torch.uint8)
    if hasattr(torch, "float4_e2m1fn_x2"):
        any_dtype(packed.view(torch.float4_e2m1fn_x2))
        assert any_dtype.compile(T.Tensor((4, 32), T.float4_e2m1fn)) is any_dtype.compile(
            packed.view(torch.float4_e2m1fn_x2)
        )
    any_dtype(packed)
    assert any_dtype.compile(packed).params[0].shape == (4, 16)


# Errors.


def test_arguments_that_do_not_fit_are_a_type_error():
    a = torch.zeros(4)
    with pytest.raises(TypeError, match="missing a required argument: 'B'"):
        add(a)
    with pytest.raises(TypeError, match="too many positional arguments"):
        add(a, a, 64, 0, 1)
    with pytest.raises(TypeError, match="multiple values for argument 'A'"):
        add(a, A=a)
    with pytest.raises(TypeError, match="unexpected keyword argument 'blok'"):
        add(a, a, blok=3)
    with pytest.raises(TypeError, match="blok='x': expected an int"):
        add(a, a, blok="x")
    with pytest.raises(TypeError, match=r"`A`: expected a torch.Tensor, got list"):
        add([1], a)


def test_tensors_that_do_not_fit_are_a_value_error():
    with pytest.raises(ValueError, match="`A`: rank mismatch: expected 1 dimensions, got 0"):
        add(torch.tensor(1.0), torch.zeros(1))
    with pytest.raises(ValueError, match=r"test_eager.py:\d+\): parameter `B`: shape mismatch"):
        add(torch.zeros(64), torch.zeros(65))
    with pytest.raises(ValueError, match="parameter `A`: dtype mismatch: expected float32"):
        add(torch.zeros(64, dtype=torch.int32), torch.zeros(64))


def test_a_constant_without_a_value_is_a_runtime_error():
    @tilelang.jit
    def missing(A):
        N, M = T.const("N, M")
        A: T.Tensor[[N * M], T.float32]
        with T.Kernel(1):
            A[0] = 0

    with pytest.raises(RuntimeError, match=r"T.const 'N' a value[\s\S]*--> .*test_eager.py:\d+"):
        missing(torch.zeros(4))
    with pytest.raises(RuntimeError, match=r"T.const 'M' a value"):
        missing.compile(N=2)
    assert missing.compile(N=2, M=3).params[0].shape == (6,)


def test_a_tensor_is_declared():
    @tilelang.jit
    def undeclared(A, B: T.Tensor[[int], T.float32]):
        with T.Kernel(1):
            B[0] = A[0]

    with pytest.raises(TypeError, match=r"undeclared.*: parameter `A` is passed a tensor"):
        undeclared(torch.zeros(4), torch.zeros(4))


def test_out_idx_does_not_go_with_it():
    @tilelang.jit(out_idx=-1)
    def bad(A, B):
        with T.Kernel(1):
            B[0] = A[0]

    with pytest.raises(ValueError, match=r"`bad` \(.*test_eager.py:\d+\): out_idx=-1 is given"):
        bad(1, 2)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("C", "does not return the buffer D"),
        ("(C, D, C)", "returns a tensor twice"),
        ("(C, D, A)", "returns the buffer A"),
        ("(C, D, 3)", "returns 3 of type int"),
    ],
)
def test_exactly_the_outputs_are_returned(result, text):
    @tilelang.jit
    def outputs(A, choice):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        C = T.empty(N)
        D = T.empty(N)
        with T.Kernel(1, threads=32):
            C[0] = D[0]
        return {"C": C, "(C, D, C)": (C, D, C), "(C, D, A)": (C, D, A), "(C, D, 3)": (C, D, 3)}[
            choice
        ]

    with pytest.raises(RuntimeError, match=text):
        outputs.get_tir(choice=result, N=32)


def test_constants_and_outputs_have_their_place():
    with pytest.raises(JITNoBuilderError, match=r"T.const is only defined"):
        T.const("N")
    with pytest.raises(JITNoBuilderError, match=r"T.empty is only defined"):
        T.empty(4)
    with pytest.raises(JITNoBuilderError, match=r"T.const is only defined in a function under"):

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            T.const("N")

    @tilelang.jit
    def inside(A: T.Tensor[[int], T.float32]):
        with T.Kernel(1):
            T.empty(4)

    with pytest.raises(ValueError, match=r"T.empty is in a kernel"):
        inside.get_tir(torch.zeros(4))


def test_what_comes_before_the_declarations_depends_on_no_constant():
    @tilelang.jit
    def early(A):
        N = T.const("N")
        if N > 4:
            A: T.Tensor[[N], T.float32]
        with T.Kernel(1):
            A[0] = 0

    with pytest.raises(EagerJITBuildError, match="put the declarations of all parameters first"):
        early.get_tir(torch.zeros(4))


def test_a_parameter_is_declared_before_its_use():
    @tilelang.jit
    def late(A):
        N = A.shape[0]
        A: T.Tensor[[N], T.float32]
        with T.Kernel(1):
            A[0] = 0

    with pytest.raises(TypeError, match=r"A.shape is used before A is declared"):
        late.get_tir(torch.zeros(4))

    @tilelang.jit
    def wrong(A):
        A: T.Kernel
        with T.Kernel(1):
            A[0] = 0

    with pytest.raises(TypeError, match=r"parameter A is declared as .*wanted T.Tensor"):
        wrong.get_tir(torch.zeros(4))
