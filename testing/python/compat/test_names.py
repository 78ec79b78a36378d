"""Names and forms that kernels and their scripts use beside the language's own."""

import importlib
import sys
from pathlib import Path

import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang.compat import device_properties
from tilelang.contrib import nvcc
from tilelang.jit.adapter.base import BaseKernelAdapter

MODULES = {
    "tilelang.contrib.nvcc": "get_target_compute_version parse_compute_version have_fp16 have_int8 "
    "have_tensorcore have_bf16 have_fp8 have_tma is_hopper get_cuda_version",
    "tilelang.carver.arch.driver": "get_num_sms get_shared_memory_per_block "
    "get_max_dynamic_shared_size_bytes get_device_name",
    "tilelang.utils.device": "get_current_device",
    "tilelang.jit.adapter.base": "BaseKernelAdapter",
    "tilelang.language": "And Or Not DataType PrimExpr",
    "tilelang.backend.target": "determine_target",
    "tilelang.tileop": "GemmWarpPolicy",
    "tilelang.tileop.base": "GemmWarpPolicy",
    "tilelang.testing": "requires_rocm requires_metal requires_llvm requires_cdna requires_gfx950 "
    "requires_cuda_or_cdna requires_cuda_compute_version",
}


@pytest.mark.parametrize(
    ("module", "name"), [(m, n) for m, names in MODULES.items() for n in names.split()]
)
def test_a_name_is_where_users_look_for_it(module, name):
    assert getattr(importlib.import_module(module), name).__doc__


def test_importing_tilelang_is_enough_for_the_modules():
    apart = ("tilelang.jit.adapter", "tilelang.backend", "tilelang.tileop")
    assert {m for m in MODULES if not m.startswith(apart)} <= {*sys.modules}
    assert tilelang.carver.arch.driver.get_num_sms is device_properties.get_num_sms
    assert tilelang.tvm.tirx.PrimExpr is T.PrimExpr
    assert tilelang.DataType is T.DataType is T.dtype


def test_packages_are_attributes_without_an_import_of_their_own():
    folder = Path(tilelang.__file__).parent
    packages = {p.parent.name for p in folder.glob("[a-z]*/__init__.py")} - {"compat", "jit"}
    assert "tileop" in packages
    assert packages - tilelang._SUBMODULES == set()


@pytest.mark.parametrize("name", ["cuda", "rocm"])
def test_a_dialect_is_the_language(name):
    assert importlib.import_module(f"tilelang.{name}.language") is T
    assert getattr(tilelang, name).language is T


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        *(("float", "float32"), ("double", "float64"), ("half", "float16"), ("int", "int32")),
        *(("uint", "uint32"), ("long", "int64"), ("short", "int16"), ("char", "int8")),
        *(("uchar", "uint8"), ("byte", "uint8"), ("floatx4", "float32x4")),
    ],
)
def test_a_dtype_of_c_is_taken_everywhere(name, wanted):
    seen = {}

    @T.prim_func
    def main(A: T.Tensor((64,), name), p: T.ptr, x: T.dtype(name)):
        V = T.match_buffer(p, (64,), name, align=16)
        with T.Kernel(1, threads=64):
            S, F = T.alloc_shared((64,), name), T.alloc_fragment((64,), name)
            L, W = T.alloc_local((64,), name), T.alloc_global((64,), name)
            seen.update(
                tensor=A.dtype, scalar=x.dtype, pointer=V.dtype, shared=S.dtype, fragment=F.dtype,
                local=L.dtype, workspace=W.dtype, variable=T.alloc_var(name).dtype,
                buffer=T.alloc_buffer((64,), name).dtype, view=T.view(A, (64,), name).dtype,
                extern=T.call_extern(name, "f").dtype,
                extern_by_name=T.call_extern("f", dtype=name).dtype,
            )  # fmt: skip
            if "x" not in name:
                seen["cast"] = T.cast(x, name).dtype
                seen["Cast"] = T.Cast(name, x).dtype
                seen["bits"] = T.reinterpret(x, name).dtype
                seen["extreme"] = T.max_value(name).dtype
                if "float" in wanted:
                    seen["infinity"] = T.infinity(name).dtype

    assert {str(found) for found in seen.values()} == {wanted}, seen


def of_a_plain_helper(*values):
    return [value.dtype for value in values]


def test_expressions_have_a_dtype_in_a_plain_helper():
    seen = []

    @T.prim_func
    def main(A: T.Tensor((64,), "uint8"), n: T.int64):
        with T.Kernel(1, threads=64) as bx:
            v = T.alloc_var("uint8", 0)
            load = A[bx]
            seen.extend(
                of_a_plain_helper(
                    A, A[0], A[0:4], v, load, A[bx] + A[0], T.max(A[0], A[1]),
                    T.call_extern("uint8", "f"), T.uint8(3),
                    n, bx, A[0] > 1, A[0] == 1, T.exp(T.float16(A[0])), T.address_of(A[0]),
                )
            )  # fmt: skip

    assert all(d == T.uint8 and d == "uint8" and d.bits == 8 for d in seen[:9]), seen
    assert seen[9:] == ["int64", "int32", "bool", "bool", "float16", "handle"]
    for other in (T.evaluate, tvm.ir.Range(0, 4), tvm.tirx.Evaluate(0)):
        assert not hasattr(other, "dtype")


def statements(func):
    return [line.strip() for line in func.script().splitlines()]


def test_keywords_under_their_other_names():
    @T.prim_func
    def named(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            bar = T.alloc_barrier(128)
            T.mbarrier_arrive(mbarrier=bar)
            T.mbarrier_wait_parity(mbarrier=bar, parity=0)
            T.mbarrier_expect_tx(mbarrier=bar, bytes=16)
            A[0] = T.clamp(A[1], min_val=0.0, max_val=1.0)
            A[1] = T.call_extern("f", A[0], dtype="float32")

    @T.prim_func
    def plain(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            bar = T.alloc_barrier(128)
            T.mbarrier_arrive(bar=bar)
            T.mbarrier_wait_parity(bar, 0)
            T.mbarrier_expect_tx(bar, 16)
            A[0] = T.clamp(A[1], lo=0.0, hi=1.0)
            A[1] = T.call_extern("float32", "f", A[0])

    assert statements(named)[5:] == statements(plain)[5:]
    with pytest.raises(TypeError, match=r"T\.clamp found min_val and lo, which are one parameter"):
        T.clamp(1, min_val=0, lo=0, max_val=3)


def test_hints_of_products_are_taken():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S, C = T.alloc_shared((64, 64), "float16"), T.alloc_fragment((64, 64), "float32")
            T.gemm(S, S, C, k_pack=2, mbar=None, wg_wait=-1)
            T.gemm(S, S, C)

    first, second = (line for line in statements(main) if "gemm" in line)
    assert first == second


def test_a_barrier_of_a_product_is_of_another_chip():
    with pytest.raises(NotImplementedError, match=r"mbar=.* tcgen05.mma .* leave it out"):

        @T.prim_func
        def main(A: T.Tensor((64, 64), "float16")):
            with T.Kernel(1, threads=128):
                S, C = T.alloc_shared((64, 64), "float16"), T.alloc_fragment((64, 64), "float32")
                bar = T.alloc_barrier(1)
                T.gemm(S, S, C, mbar=bar)


def test_and_or_not_are_pythons():
    operands = [True, False, 0, 2.5, "n", "n > 1", "x"]

    def chosen(values):
        return [eval(v, values) if isinstance(v, str) else v for v in operands]

    @T.prim_func
    def main(A: T.Tensor((7, 7, 3), "int32"), n: T.int32, x: T.float32):
        with T.Kernel(1, threads=1):
            values = chosen({"n": n, "x": x})
            for i, a in enumerate(values):
                for j, b in enumerate(values):
                    A[i, j, 0] = T.And(a, b)
                    A[i, j, 1] = T.Or(a, b)
                    A[i, j, 2] = T.Not(a)

    kernel = tilelang.compile(main, execution_backend="auto")
    device = tilelang.utils.device.get_current_device()
    for n, x in ((0, 0.0), (1, 0.5), (2, 0.0)):
        found = torch.empty((7, 7, 3), dtype=torch.int32, device=device)
        kernel(found, n, x)
        values = [bool(v) for v in chosen({"n": n, "x": x})]
        assert found.tolist() == [[[a and b, a or b, not a] for b in values] for a in values]
    assert (T.And(True, 2), T.Or(0, False), T.Not(0.0)) == (True, False, True)


def test_and_of_a_tile_is_refused(trace_error):
    assert trace_error("T.And(A, True)") == (
        "TypeError: T.And found the buffer A of shape (8, 16), wanted a scalar, such as buf[i] != 0"
    )


OPERATORS = [
    "T.copy(A, S{})", "T.copy(S, F{})", "T.fill(S, 1{})", "T.clear(S{})", "T.transpose(S, R{})",
    "T.reduce(F, r, 'max', dim=1{})", "T.gemm(S, R, C{})", "T.cumsum(S, S{})", "T.cummax(S, S{})",
    *(f"T.reduce_{op}(F, r, dim=1{{}})" for op in ("sum", "max", "min", "absmax", "abssum")),
    *(f"T.reduce_{op}(I, i, dim=1{{}})" for op in ("bitand", "bitor", "bitxor")),
    "T.atomic_add(A, S{})", "T.reducer_init(acc{})", "T.finalize_reducer(acc{})",
    "T.atomic_max(A, S{})", "T.atomic_min(A, S{})", "T.async_copy(A, S{})",
]  # fmt: skip


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_keeps_its_annotations(define, operator):
    allocations = """
        S, R = T.alloc_shared((8, 16), "float32"), T.alloc_shared((16, 8), "float32")
        F, r = T.alloc_fragment((8, 16), "float32"), T.alloc_fragment((8,), "float32")
        I, i = T.alloc_fragment((8, 16), "int32"), T.alloc_fragment((8,), "int32")
        C, acc = T.alloc_fragment((8, 8), "float32"), T.alloc_reducer((8,), "float32")
    """
    func = define(
        '@T.prim_func\ndef main(A: T.Tensor((8, 16), "float32")):\n'
        + "    with T.Kernel(1, threads=32):"
        + allocations + "    " + operator.format(', annotations={"note": 7}')
    )["main"]  # fmt: skip
    assert func.script().count("note") == 1


@pytest.mark.parametrize(
    ("arch", "text", "has"),
    [
        ("sm_90a", "9.0", "fp16 int8 tensorcore bf16 fp8"),
        ("sm_89", "8.9", "fp16 int8 tensorcore bf16 fp8"),
        ("sm_80", "8.0", "fp16 int8 tensorcore bf16"),
        ("sm_75", "7.5", "fp16 int8 tensorcore"),
        ("sm_100a", "10.0", "fp16 int8 tensorcore bf16 fp8"),
    ],
)
def test_compute_capabilities(arch, text, has):
    target = f"cuda -arch={arch}"
    assert nvcc.get_target_compute_version(target) == text
    assert nvcc.parse_compute_version(text) == tuple(map(int, text.split(".")))
    names = ("fp16", "int8", "tensorcore", "bf16", "fp8")
    assert " ".join(n for n in names if getattr(nvcc, f"have_{n}")(text)) == has
    assert nvcc.have_tensorcore(target=target)
    assert nvcc.have_tma(target) == (text >= "9.0" or text == "10.0")
    assert nvcc.is_hopper(target) == (text == "9.0")


def test_compute_capabilities_of_nothing():
    with pytest.raises(ValueError, match="found target 'c', wanted a cuda target"):
        nvcc.get_target_compute_version("c")
    with pytest.raises(ValueError, match=r"found '9', wanted a compute capability such as '9\.0'"):
        nvcc.parse_compute_version("9")
    assert nvcc.get_cuda_version() >= (12, 8)


def test_properties_of_a_gpu(monkeypatch):
    class Properties:
        multi_processor_count = 132
        shared_memory_per_block = 48 * 1024
        shared_memory_per_block_optin = 227 * 1024

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: Properties)
    driver = tilelang.carver.arch.driver
    assert driver.get_num_sms() == 132
    assert driver.get_shared_memory_per_block(format="kb") == 48
    assert driver.get_max_dynamic_shared_size_bytes() == 232448
    assert tilelang.utils.device.get_current_device() == torch.device("cuda", 1)
    with pytest.raises(ValueError, match="format of get_shared_memory_per_block is 'gb', wanted"):
        driver.get_shared_memory_per_block(format="gb")


def test_properties_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    driver = tilelang.carver.arch.driver
    assert driver.get_num_sms() >= 1
    assert driver.get_shared_memory_per_block() == 49152
    assert driver.get_max_dynamic_shared_size_bytes() == 163 * 1024
    assert driver.get_device_name() == "emulator"
    assert tilelang.utils.device.get_current_device() == torch.device("cpu")


def test_launchers_are_adapters():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            A[0] = 1

    assert isinstance(tilelang.compile(main).adapter, BaseKernelAdapter)
    assert not isinstance(main, BaseKernelAdapter)


@pytest.mark.parametrize("name", MODULES["tilelang.testing"].split()[:5])
def test_tests_for_other_targets_are_skipped(name):
    @getattr(tilelang.testing, name)
    def test():
        pass

    assert [mark.args for mark in test.pytestmark] == [(True,)]
