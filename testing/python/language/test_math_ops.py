"""Scalar functions on Python numbers and on expressions."""

import inspect
import math

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.language import elementwise, scalars

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

X = T.dynamic("x")
H = T.float16()


def test_python_numbers_stay_python_numbers():
    assert (T.ceildiv(1000, 128), T.floordiv(-7, 2), T.floormod(-7, 2)) == (8, -4, 1)
    assert (T.max(1, 2.5), T.min(3, 2), T.if_then_else(True, 1, 2)) == (2.5, 2, 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (T.ceildiv(X, 4), "(x + 4 - 1) // 4"),
        # It was (x - 4 - 1) // -4, which is 1 too many of 7.
        (T.ceildiv(X, -4), "(x * -1 + 4 - 1) // 4"),
        (T.floordiv(X, 4), "x // 4"),
        (T.floormod(X, 4), "x % 4"),
        (T.max(X, 0), "T.max(x, 0)"),
        (T.min(1, X), "T.min(1, x)"),
        (T.if_then_else(X > 1, X, 0), "T.if_then_else(x > 1, x, 0)"),
        (T.Select(X > 1, X, 0), "T.Select(x > 1, x, 0)"),
        (T.cast(X, "float16"), 'T.Cast("float16", x)'),
        (T.Cast("float16", 1), "T.float16(1.0)"),
        (-T.infinity(T.float32), 'T.float32("-inf")'),
        (T.max_value("int8"), "T.int8(127)"),
        (T.min_value(T.int8), "T.int8(-128)"),
        (T.align_up(X, 8), "(x + 8 - 1) // 8 * 8"),
        (T.linear_index(X, 3, 10), "x * 10 + 3"),
        (T.exp2(T.float32(X)), 'T.exp2(T.Cast("float32", x))'),
        (T.shift_left(X, 2), "x << 2"),
    ],
)
def test_expressions(value, text):
    assert str(value) == text


@pytest.mark.parametrize("function", [T.max, T.min, lambda a, b: T.if_then_else(X > 0, a, b)])
def test_a_python_number_takes_the_other_operands_type(function):
    assert function(H, 0.5).ty.dtype == "float16"
    assert function(1, H).ty.dtype == "float16"


def test_places_in_arrays():
    assert (T.align_up(100, 32), T.linear_index(1, 2, 3, 4, 5)) == (128, (1 * 4 + 2) * 5 + 3)
    assert T.index_to_coordinates(33, (2, 4, 5)) == [1, 2, 3]
    assert [str(c) for c in T.index_to_coordinates(X, (9, 4))] == ["x // 4", "x % 4"]
    with pytest.raises(TypeError, match="found 2 values, wanted n coordinates"):
        T.linear_index(X, 3)


def test_powers_and_rounding():
    @T.prim_func
    def main(
        A: T.Tensor((64,), "float32"), N: T.Tensor((64,), "int32"), B: T.Tensor((6, 64), "float32")
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                B[0, i] = T.pow(A[i], 5)
                B[1, i] = T.pow(T.abs(A[i]), 2.5)
                B[2, i] = T.pow(N[i], 3)
                B[3, i] = T.pow(A[i], 0) + T.pow(A[i], 1)
                B[4, i] = T.round(A[i])
                B[5, i] = T.round(A[i], "ties-away-from-zero")

    a, n = torch.arange(-32, 32) / 4, torch.arange(-32, 32, dtype=torch.int32)
    found = tilelang.compile(main, out_idx=-1)(a.to(DEVICE), n.to(DEVICE)).cpu()
    away = torch.sign(a) * torch.floor(a.abs() + 0.5)
    exact = torch.stack([a.double() ** 5, n**3, 1 + a, torch.round(a), away]).float()
    assert torch.equal(found[[0, 2, 3, 4, 5]], exact)
    torch.testing.assert_close(found[1], a.abs() ** 2.5)


UNARY = ["exp", "exp2", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid", "sin", "cos"]
UNARY += ["tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "atanh", "erf", "abs"]
UNARY += ["floor", "ceil", "trunc", "round", "nearbyint", "exp10", "acosh", "isnan", "isinf"]
UNARY += ["isfinite"]
BINARY = ["atan2", "hypot", "copysign", "fmod", "pow", "max", "min", "nextafter"]
REFERENCES = {
    "exp10": lambda x: 10.0**x,
    "nearbyint": torch.round,
    "max": torch.fmax,
    "min": torch.fmin,
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_functions(dtype):
    @T.prim_func
    def main(
        A: T.Tensor((2, 64), dtype),
        U: T.Tensor((len(UNARY), 64), dtype),
        B: T.Tensor((len(BINARY), 64), dtype),
    ):
        with T.Kernel(1, threads=16):
            for i in T.Parallel(64):
                for row, name in enumerate(UNARY):
                    # acosh is of numbers from 1 on.
                    U[row, i] = T.cast(getattr(T, name)(A[0, i] + (name == "acosh")), dtype)
                for row, name in enumerate(BINARY):
                    B[row, i] = getattr(T, name)(A[0, i], A[1, i])

    torch_dtype = getattr(torch, dtype)
    a = torch.stack([torch.linspace(0.01, 0.99, 64), torch.linspace(-2, 3, 64)]).to(torch_dtype)
    unary, binary = tilelang.compile(main, out_idx=[1, 2])(a.to(DEVICE))
    x, y = a.double()
    wide = (x + 1).to(torch_dtype).double()
    wanted = [REFERENCES.get(name) or getattr(torch, name) for name in [*UNARY, *BINARY]]
    exact = [f(wide if n == "acosh" else x) for n, f in zip(UNARY, wanted, strict=False)]
    exact += [f(x, y) for f in wanted[len(UNARY) :]]
    found = torch.cat([unary, binary]).cpu().double()
    eps = torch.finfo(torch_dtype).eps
    torch.testing.assert_close(
        found, torch.stack([e.double() for e in exact]), rtol=16 * eps, atol=4 * eps
    )


def test_every_function_of_floats_is_compiled_here():
    """A public name whose call has no form in the device headers is seen by nobody else."""
    public = {n for n in vars(elementwise) if n in vars(T) and inspect.isfunction(vars(T)[n])}
    public -= {"as_dtype", "reinterpret", "cast"} | set(vars(scalars))
    assert public - set(UNARY) - set(BINARY) == {"ldexp", "likely"}


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("float32", "int32"), ("float64", "int64"), ("float16", "int16"), ("bfloat16", "int16")],
)
def test_neighbours_and_exponents(dtype, bits):
    @T.prim_func
    def main(A: T.Tensor((40,), dtype), N: T.Tensor((40,), "int8"), B: T.Tensor((5, 40), dtype)):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(40):
                B[0, i] = T.nextafter(A[i], T.cast(0.5, dtype))
                B[1, i] = T.ldexp(A[i], N[i])
                B[2, i] = T.ldexp(A[i], -3)
                B[3, i] = T.nextafter(T.cast(1, dtype), T.cast(2, dtype))
                B[4, i] = T.ldexp(1.5, 3)

    kind, bits = getattr(torch, dtype), getattr(torch, bits)
    special = [0.0, -0.0, math.nan, 0.5, math.inf, -math.inf, torch.finfo(kind).max, -0.5]
    a = torch.cat([torch.tensor(special, dtype=kind), torch.randn(32).to(kind)])
    n = torch.randint(-30, 31, (40,), dtype=torch.int8)
    found = tilelang.compile(main, out_idx=-1)(a.to(DEVICE), n.to(DEVICE)).cpu()
    assert torch.equal(found[1:3].nan_to_num(7), torch.stack([ldexp(a, n), a / 8]).nan_to_num(7))
    assert (found[3].double() == 1 + torch.finfo(kind).eps).all()
    assert (found[4] == 12).all()
    beside = found[0]
    assert beside[:2].view(bits).tolist() == [1, 1]
    assert beside[2].isnan()
    assert beside[3] == 0.5
    a, beside = a[4:], beside[4:]
    assert ((beside.view(bits) - a.view(bits)).abs() == 1).all()
    assert ((beside > a) == (a < 0.5)).all()


def ldexp(a, n):
    """What `T.ldexp` gives: the exact product, rounded once."""
    return (a.double() * 2.0 ** n.double()).to(a.dtype)


def test_bits_and_division_as_in_c():
    two = [
        (T.bitwise_and, lambda x, y: x & y),
        (T.bitwise_or, lambda x, y: x | y),
        (T.bitwise_xor, lambda x, y: x ^ y),
        (T.shift_right, lambda x, y: x >> (y % 8)),
        (T.truncdiv, lambda x, y: int(x / y)),
        (T.truncmod, lambda x, y: x - y * int(x / y)),
    ]
    one = [
        (T.bitwise_not, lambda x: ~x),
        (T.popcount, lambda x: (x % 2**32).bit_count()),
        (T.clz, lambda x: 32 - (x % 2**32).bit_length()),
    ]

    @T.prim_func
    def main(A: T.Tensor((2, 64), "int32"), B: T.Tensor((9, 64), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                for row, (function, _) in enumerate(two):
                    y = A[1, i] % 8 if function is T.shift_right else A[1, i]
                    B[row, i] = function(A[0, i], y)
                for row, (function, _) in enumerate(one):
                    B[len(two) + row, i] = function(A[0, i])

    x = [(i - 32) * 37 for i in range(64)]
    y = [-9 + i % 9 if i % 2 else 1 + i % 11 for i in range(64)]
    a = torch.tensor([x, y], dtype=torch.int32, device=DEVICE)
    wanted = [[f(*pair) for pair in zip(x, y, strict=True)] for _, f in two]
    wanted += [[f(value) for value in x] for _, f in one]
    assert tilelang.compile(main, out_idx=-1)(a).tolist() == wanted


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_bits_of_narrow_integers_are_those_of_their_type(dtype):
    """int8 of -1 had 32 bits, copies of its sign."""

    @T.prim_func
    def main(A: T.Tensor((4,), dtype), B: T.Tensor((2, 4), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                B[0, i] = T.popcount(A[i])
                B[1, i] = T.clz(A[i])

    bits = getattr(torch, dtype).itemsize * 8
    numbers = [2**bits - 1, 0, 6, 2 ** (bits - 1)]
    a = torch.tensor([n - 2**16 * (n >= 2**15) for n in numbers], dtype=torch.int16)
    found = tilelang.compile(main, out_idx=-1)(a.to(getattr(torch, dtype)).to(DEVICE))
    wanted = [[n.bit_count() for n in numbers], [bits - n.bit_length() for n in numbers]]
    assert found.tolist() == wanted


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: T.pow(X, 0.5), TypeError, "wanted a float, or a constant integer power"),
        (lambda: T.pow("a", 2), TypeError, "T.pow found 'a'"),
        (lambda: T.round(H, "up"), ValueError, "'up', wanted one of ties-to-even, ties-away"),
        (lambda: T.round([1]), TypeError, "wanted a scalar expression"),
    ],
)
def test_errors_of_powers_and_rounding(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_errors():
    with pytest.raises(ValueError, match="by zero"):
        T.ceildiv(X, 0)
    with pytest.raises(TypeError, match=r"T\.ceildiv found 1\.5"):
        T.ceildiv(1.5, 2)
    with pytest.raises(TypeError, match="wanted a number or a scalar"):
        T.max("a", X)
    with pytest.raises(TypeError, match="where a scalar of type float16"):
        T.cast("a", "float16")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_a_number_wins_against_not_a_number_unless_it_is_kept(dtype):
    @T.prim_func
    def main(A: T.Tensor((8,), dtype), B: T.Tensor((5, 8), dtype)):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                x = A[i]
                B[0, i] = T.max(x, 0)
                B[1, i] = T.min(0, x)
                B[2, i] = T.clamp(x, -2, 2)
                B[3, i] = T.if_then_else(T.isnan(x), x, T.clamp(x, -2, 2))
                B[4, i] = T.max(x, x)

    nan = float("nan")
    a = torch.tensor([nan, 1, -1, 5, -5, 0, nan, 3]).to(getattr(torch, dtype))
    found = tilelang.compile(main, out_idx=-1)(a.to(DEVICE)).cpu().double()
    x = a.double()
    clamped = torch.where(x.isnan(), -2.0, x.clamp(-2, 2))
    wanted = [
        torch.where(x.isnan(), 0.0, f(x)) for f in (lambda x: x.clip(0), lambda x: x.clip(max=0))
    ]
    wanted = torch.stack([*wanted, clamped, x.clamp(-2, 2), x])
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=0, atol=0)


def test_float8_e5m2_saturates_and_keeps_not_a_number():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[i] = T.cast(T.cast(A[i], "float8_e5m2"), "float32")

    inf, nan = float("inf"), float("nan")
    a = torch.tensor([inf, -inf, nan, 1e9, -60000.0, 57344, 2, 0])
    found = tilelang.compile(main, out_idx=-1)(a.to(DEVICE)).cpu()
    wanted = torch.tensor([57344, -57344, nan, 57344, -57344, 57344, 2, 0])
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floor_division_of_floats(dtype):
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), B: T.Tensor((64,), dtype), C: T.Tensor((3, 64), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                C[0, i] = T.floordiv(A[i], B[i])
                C[1, i] = T.floormod(A[i], B[i])
                C[2, i] = T.floormod(A[i], -0.75)

    kind = getattr(torch, dtype)
    exact = kind if kind == torch.float64 else torch.float32
    a = torch.tensor([7.5, -7.5, 0.0, 6.0, -6.0, 0.1, 1.0, -1.0, 5.0, -5.0, 1e4]).repeat(6)[:64]
    b = torch.tensor([2.0, -2.0, 3.0, 0.3, 0.1, -0.1, 0.0, float("inf")]).repeat(8)
    a, b = a.to(kind), b.to(kind)
    found = torch.zeros(3, 64, dtype=kind, device=DEVICE)
    tilelang.compile(main)(a.to(DEVICE), b.to(DEVICE), found)
    x, y = a.to(exact), b.to(exact)
    wanted = [torch.floor_divide(x, y), torch.remainder(x, y), torch.remainder(x, x * 0 - 0.75)]
    for row, numbers in zip(found.cpu(), wanted, strict=True):
        torch.testing.assert_close(row, numbers.to(kind), rtol=0, atol=0, equal_nan=True)


def test_floor_division_of_python_floats():
    assert (T.floordiv(-7.5, 2), T.floormod(-7.5, 2)) == (-4.0, 0.5)
    assert T.floordiv(H, 2).ty.dtype == T.floormod(1, H).ty.dtype == "float16"
    with pytest.raises(ValueError, match="by zero"):
        T.floordiv(1.5, 0.0)
    with pytest.raises(TypeError, match=r"T\.floormod found 'a'"):
        T.floormod(H, "a")
