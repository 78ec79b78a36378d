"""Data types as names, annotations and conversions."""

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.language.fp8 import determine_fp8_type, determine_torch_fp8_type


@pytest.mark.parametrize(
    "value",
    ["float16", T.float16, np.float16, np.dtype("float16"), torch.float16, T.half],
)
def test_sources_of_a_dtype(value):
    assert T.dtype(value) == T.float16 == "float16"


def test_python_types():
    assert [T.dtype(t) for t in (int, float, bool)] == ["int32", "float32", "bool"]


@pytest.mark.parametrize("value", ["float17", "nothing", 3, None])
def test_what_is_not_a_dtype(value):
    with pytest.raises(ValueError, match="is not a data type"):
        T.dtype(value)


def test_sizes():
    assert (T.float16.bits, T.float16.bytes, T.int8x4.bytes, T.float4_e2m1fn.bytes) == (16, 2, 4, 1)
    assert T.float32.with_lanes(4) == T.float32x4
    assert T.float4_e2m1fn.is_float4_e2m1fn()
    assert not T.float8_e5m2.is_float4()


def test_tfloat32_is_float32_that_products_may_round():
    assert T.dtype("tfloat32") is T.tfloat32
    assert T.tfloat32 == T.float32
    assert (repr(T.tfloat32), T.tfloat32.bits, T.tfloat32x4) == (
        "dtype('tfloat32')",
        32,
        "float32x4",
    )
    assert T.tfloat32.as_torch() is torch.float32
    assert T.tfloat32(1).ty.dtype == "float32"

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), T.tfloat32),
        B: T.Tensor((2, 32, 64), "tfloat32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 32), T.tfloat32)
            B_shared = T.alloc_shared((2, 32, 64), "tfloat32")
            B_tiles = T.reshape(B_shared, (64, 64))
            C_local = T.alloc_fragment((64, 64), "float32")
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            T.clear(C_local)
            T.gemm(A_shared, B_tiles[32:64, :], C_local)
            T.copy(C_local, C)

    kernel = tilelang.compile(main, out_idx=-1)
    assert "tfloat32_t" in kernel.get_kernel_source()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # Integers that 10 bits of mantissa hold.
    a, b = (torch.randint(-9, 9, s, device=device).float() for s in ((64, 32), (2, 32, 64)))
    assert torch.equal(kernel(a, b), a @ b[1])


def test_products_need_one_dtype():
    def main(A: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 64), "tfloat32")
            B_shared = T.alloc_shared((64, 64), "float32")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.gemm(A_shared, B_shared, C_local)

    with pytest.raises(TypeError, match="A of dtype tfloat32 and B of dtype float32, wanted one"):
        T.prim_func(main)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_extreme_floats(dtype):
    info = torch.finfo(T.dtype(dtype).as_torch())
    assert (T.max_value(dtype).value, T.min_value(dtype).value) == (info.max, info.min)
    assert T.infinity(dtype).value == float("inf")
    assert T.infinity(dtype).ty.dtype == dtype


def test_extreme_values_of_other_types():
    assert [int(f("int8").value) for f in (T.min_value, T.max_value)] == [-128, 127]
    assert [bool(f("bool").value) for f in (T.min_value, T.max_value)] == [False, True]
    for dtype in ("int32", "float8_e4m3fn"):
        with pytest.raises(ValueError, match=f"found {dtype}, which has none, wanted one of"):
            T.infinity(dtype)


def test_fp8_types_of_the_device():
    assert determine_fp8_type() == "float8_e4m3fn"
    assert determine_torch_fp8_type("e5m2") is torch.float8_e5m2
    with pytest.raises(ValueError, match="'e3m4', wanted one of e4m3, e5m2"):
        determine_fp8_type("e3m4")


def test_calls():
    x = T.dynamic("x")
    assert str(T.float16(2)) == "T.float16(2.0)"
    assert str(T.int8(x)) == 'T.Cast("int8", x)'
    assert T.int32(x).same_as(x)
    assert T.int64().ty.dtype == "int64"
    assert T.float16x2(1, x).ty.dtype == "float16x2"
    with pytest.raises(TypeError, match="takes 1 or 2 values, found 3"):
        T.float16x2(1, 2, 3)


def test_a_number_other_than_zero_is_true():
    values = [T.bool(value) for value in (-2, 2, 0.5, 0, 0.0, True)]
    assert [bool(value.value) for value in values] == [True, True, True, False, False, True]
    assert T.boolx2(0.5, 0).ty.dtype == "boolx2"


def test_short_names():
    assert [T.short, T.int, T.long, T.uint] == ["int16", "int32", "int64", "uint32"]
    assert [T.half, T.float, T.double] == ["float16", "float32", "float64"]
    assert T.bfloat16x2(1, 2).ty.dtype == "bfloat16x2"


def test_as_torch():
    same = ["float16", "bfloat16", "float32", "float64", "int8", "int64", "uint8", "bool"]
    assert all(T.dtype(name).as_torch() is getattr(torch, name) for name in same)
    assert T.float8_e4m3fn.as_torch() is torch.float8_e4m3fn
    assert T.int4.as_torch() is torch.int8
    assert T.float6_e2m3fn.as_torch() is T.float6_e3m2fn.as_torch() is torch.uint8
    assert T.dtype("handle").as_torch() is None
    with pytest.raises(ValueError, match="torch has no dtype for float16x2"):
        T.float16x2.as_torch()


# As many bits as their names say; the GPU has no arithmetic for them, nor have our headers.
STORED = [T.float8_e4m3b11fnuz, T.float8_e3m4]


@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_types_that_the_target_does_not_have(dtype):
    assert dtype.bits == 8

    @T.prim_func
    def main(A: T.Tensor((8,), dtype), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            B[tx] = T.cast(A[tx], "float32")

    with pytest.raises(ValueError, match=rf"found type {dtype}, which has no form"):
        tilelang.lower(main, target={"kind": "cuda", "arch": "sm_90a"})


@pytest.mark.parametrize("dtype", [T.float8_e4m3fnuz, T.float8_e5m2fnuz], ids=str)
def test_every_code_of_a_fnuz_float_is_kept(dtype):
    @T.prim_func
    def main(
        A: T.Tensor((256,), dtype), B: T.Tensor((256,), "float32"), C: T.Tensor((256,), dtype)
    ):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(256):
                B[i] = T.cast(A[i], "float32")
                C[i] = T.cast(B[i], dtype)

    a = torch.arange(256).to(torch.uint8).view(dtype.as_torch())
    b, c = torch.zeros(256), torch.zeros(256, dtype=torch.uint8)
    tilelang.compile(main, execution_backend="emulate")(a, b, c.view(a.dtype))
    torch.testing.assert_close(b, a.float(), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(c, a.view(torch.uint8))


def test_every_type_has_vectors():
    names = "int4 uint4 int16 uint8 bool float16 float64 tfloat32 float8_e4m3fn float8_e5m2fnuz"
    for name in [*names.split(), "float4_e2m1fn", "bfloat16", "uint32"]:
        for lanes in (2, 4, 8, 16, 32, 64):
            vector = getattr(T, f"{name}x{lanes}")
            assert (vector.bits, vector.lanes) == (getattr(T, name).bits, lanes)
    assert T.float32x8(*range(8)).ty.dtype == "float32x8"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *[("float", "float32"), ("half", "float16"), ("double", "float64"), ("int", "int32")],
        *[("uint", "uint32"), ("long", "int64"), ("short", "int16"), ("char", "int8")],
        *[("byte", "uint8"), ("bool", "bool"), ("halfx2", "float16x2"), ("intx4", "int32x4")],
    ],
)
def test_names_of_c_are_names_of_types(name, meant):
    found = []
    assert T.dtype(name) == meant

    @T.prim_func
    def main(A: T.Tensor((8,), name)):
        with T.Kernel(1, threads=32):
            F = T.alloc_fragment((8,), name)
            T.copy(A, F)
            found.append(str(F.dtype))

    assert main.attrs["global_symbol"] == "main"
    assert found == [meant]


@pytest.mark.parametrize(
    ("name", "meant"), [("fp16", "float16"), ("bf16", "bfloat16"), ("flaot32", "float32")]
)
def test_a_name_that_is_none_is_told_what_was_meant(name, meant):
    with pytest.raises(ValueError, match=f"'{name}' is not a data type; did you mean '{meant}'"):
        T.dtype(name)


def test_integers_of_four_bits_without_a_sign():
    assert (T.uint4, T.uint4.bits, T.uint4.as_torch()) == ("uint4", 4, torch.uint8)


def test_a_dtype_equals_that_of_another_library():
    """`if A.dtype == torch.float16:` took the other branch without a word."""
    for same in (torch.float32, np.float32, np.dtype("float32"), float, "float", T.float):
        assert T.float32 == same
        assert not T.float32 != same  # noqa: SIM202
        assert T.float16 != same
        assert same == T.float32 or isinstance(same, str)
    assert T.bfloat16 in (torch.float16, torch.bfloat16)
    assert {T.float16: 1}["float16"] == 1
    for other in (None, 32, "f32", object, torch.ones(1), []):
        assert T.float32 != other
