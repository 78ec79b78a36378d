"""What Python's operators and functions are on scalars of the program, and what is said about
operands that do not have them."""

import builtins
import itertools
import math
import operator
import re

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T

FUNCTIONS = {
    name: getattr(T, name)
    for name in (
        *("max", "pow", "floordiv", "floormod", "ceildiv", "truncdiv", "truncmod", "bitwise_and"),
        *("shift_left", "atan2", "fmod", "ldexp"),
    )
}
UNARY = [getattr(builtins, name) for name in ("abs", "int", "float", "bool", "round", "len")]
UNARY += [getattr(math, n) for n in ("exp", "log", "floor", "sqrt", "gcd", "isnan")]
UNARY += [getattr(T, n) for n in ("abs", "exp", "floor", "round", "isnan", "popcount", "likely")]
UNARY += [T.float16, T.int8, T.bool, T.float8_e4m3fn, np.exp, torch.exp]
DTYPES = ("int32", "uint8", "uint32", "int64", "bool", "float16", "bfloat16", "float32")
DTYPES += ("float8_e4m3fn", "float8_e5m2")
PYTHON = (3, 0, -3, 2**40, 2**70, 1.5, 1e30, True, None, "x", 1j, np.float32(2), torch.ones(1))
# Words of TVM, and of C++, which say nothing to a user.
RAW = re.compile(r"Check failed|TVM|tvm|kMax|BigInt|Literal value|cannot make|0x[0-9a-f]{6}")
DOCUMENTED = (TypeError, ValueError, NotImplementedError)


def combine(function, *operands):
    """Return the result of an operator, None if it is refused in words of the language."""
    try:
        result = function(*operands)
        return result.asobject() if hasattr(result, "asobject") else result
    except DOCUMENTED as refused:
        error = refused
    assert type(error) in DOCUMENTED, repr(error)
    assert not RAW.search(str(error)), repr(error)
    return None


@pytest.mark.filterwarnings("ignore:the condition is")
@pytest.mark.parametrize("part", range(4))
def test_each_operator_takes_or_refuses_each_pair_of_operands(part):
    seen = []

    @T.prim_func
    def main(n: T.int32):
        with T.Kernel(1, threads=32):
            operators = [
                lambda a, b: a + b,
                lambda a, b: a - b,
                lambda a, b: a * b,
                lambda a, b: a / b,
                lambda a, b: a // b,
                lambda a, b: a % b,
                lambda a, b: a**b,
                lambda a, b: a << b,
                lambda a, b: a >> b,
                lambda a, b: a & b,
                lambda a, b: a | b,
                lambda a, b: a ^ b,
                lambda a, b: a @ b,
                lambda a, b: a < b,
                lambda a, b: a == b,
                lambda a, b: a and b,
                lambda a, b: a if a else b,
                lambda a, b: a in (b,),
                lambda a, b: min(a, b),
                lambda a, b: pow(a, b),
                lambda a, b: divmod(a, b),
                lambda a, b: sum([a, b]),
                lambda a, b: math.hypot(a, b),
                lambda a, b: T.clamp(a, b, b),
                lambda a, b: T.if_then_else(a, a, b),
                lambda a, b: T.Select(a, a, b),
                *FUNCTIONS.values(),
            ]
            elements = [T.alloc_local((4,), d)[0] for d in DTYPES]
            fragment = T.alloc_fragment((4,), "float32")
            others = [*elements, *PYTHON, fragment[0], fragment, fragment[0:2], n == 1]
            for operator in operators[part::4]:
                for a, b in itertools.product(elements, others):
                    seen.append(combine(operator, a, b))
                    seen.append(combine(operator, b, a))

    assert main.attrs["global_symbol"] == "main"
    assert sum(result is not None for result in seen) > len(seen) / 4


@pytest.mark.filterwarnings("ignore:the condition is")
def test_each_function_takes_or_refuses_each_operand():
    seen = []

    @T.prim_func
    def main(n: T.int32):
        with T.Kernel(1, threads=32):
            operators = [lambda a: -a, lambda a: +a, lambda a: ~a, lambda a: not a]
            operators += [lambda a, f=f: f(a) for f in UNARY]
            elements = [T.alloc_local((4,), d)[0] for d in DTYPES]
            fragment = T.alloc_fragment((4,), "float32")
            for operator in operators:
                for a in [*elements, fragment[0], fragment, fragment[0:2], n == 1]:
                    seen.append(combine(operator, a))

    assert main.attrs["global_symbol"] == "main"
    assert sum(result is not None for result in seen) > len(seen) / 2


@T.prim_func
def of_integers(
    X: T.Tensor((16,), "int32"), Y: T.Tensor((16,), "uint8"), B: T.Tensor((20, 16), "float32")
):
    with T.Kernel(1, threads=16):
        for i in T.Parallel(16):
            x, y = X[i], Y[i]
            B[0, i] = x / 4
            B[1, i] = y / y
            B[2, i] = (x > 0) / y
            B[3, i] = 7 / y
            B[4, i] = abs(x)
            B[5, i] = x**2
            B[6, i] = pow(x, 3)
            B[7, i] = float(i) / 2
            B[8, i] = min(x, y, 3) + max([x, 0])
            quotient, rest = divmod(x, 3)
            B[9, i] = quotient * 100 + rest
            B[10, i] = sum([x, y, 1])
            B[11, i] = (x > 0) + (y > 3) + (y > 5)
            B[12, i] = ~(x > 0)
            B[13, i] = -(x > 0)
            B[14, i] = all([x > 0, y > 3, True]) + 2 * any(v > 5 for v in (x, y))
            B[15, i] = math.exp(x)
            B[16, i] = bool(x) and not bool(y)
            B[17, i] = sum(k * x for k in range(3))
            B[18, i] = math.floor(x) + round(x)
            B[19, i] = (x > 0) // 1 + (x > 0) * (y > 3) % 2


@T.prim_func
def of_floats(X: T.Tensor((16,), "float32"), B: T.Tensor((14, 16), "float32")):
    with T.Kernel(1, threads=16):
        for i in T.Parallel(16):
            x = X[i]
            B[0, i] = int(x)
            B[1, i] = round(x)
            B[2, i] = abs(x)
            B[3, i] = x**2 + x**2.0
            B[4, i] = max(x, 0) + min(x, 1.5)
            B[5, i] = math.floor(x) * 16 + math.ceil(x)
            B[6, i] = math.trunc(x)
            B[7, i] = math.sqrt(abs(x)) + math.pow(abs(x), 3)
            B[8, i] = math.log(abs(x) + 1, 2)
            B[9, i] = math.isnan(x)
            B[10, i] = math.copysign(2, x)
            B[11, i] = math.atan2(x, 2)
            B[12, i] = math.fabs(x) + math.pi
            B[13, i] = abs(-1) + int("3") + max(1, 2) + round(2.5)


def test_pythons_functions_and_operators_on_integers():
    x = torch.arange(-8, 8, dtype=torch.int32)
    y = torch.arange(1, 17, dtype=torch.uint8) % 9 + 1
    found = tilelang.compile(of_integers, out_idx=-1, execution_backend="emulate")(x, y)
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    rows = [
        lambda x, y: x / 4,
        lambda x, y: y / y,
        lambda x, y: (x > 0) / y,
        lambda x, y: 7 / y,
        lambda x, y: abs(x),
        lambda x, y: x**2,
        lambda x, y: pow(x, 3),
        lambda x, y: (x + 8) / 2,
        lambda x, y: min(x, y, 3) + max([x, 0]),
        lambda x, y: x // 3 * 100 + x % 3,
        lambda x, y: x + y + 1,
        lambda x, y: (x > 0) + (y > 3) + (y > 5),
        lambda x, y: not x > 0,
        lambda x, y: -(x > 0),
        lambda x, y: (x > 0 and y > 3) + 2 * (x > 5 or y > 5),
        lambda x, y: math.exp(x),
        lambda x, y: bool(x) and not bool(y),
        lambda x, y: 3 * x,
        lambda x, y: 2 * x,
        lambda x, y: (x > 0) + (x > 0) * (y > 3) % 2,
    ]
    wanted = torch.tensor([[float(row(x, y)) for x, y in pairs] for row in rows])
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)


def test_pythons_functions_and_operators_on_floats():
    x = torch.tensor([-7.5, -2.5, -1.5, -0.5, 0, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4.5, 6, 9])
    found = tilelang.compile(of_floats, out_idx=-1, execution_backend="emulate")(x)
    rows = [
        int,
        round,
        abs,
        lambda x: 2 * x**2,
        lambda x: max(x, 0) + min(x, 1.5),
        lambda x: math.floor(x) * 16 + math.ceil(x),
        math.trunc,
        lambda x: math.sqrt(abs(x)) + abs(x) ** 3,
        lambda x: math.log2(abs(x) + 1),
        math.isnan,
        lambda x: math.copysign(2, x),
        lambda x: math.atan2(x, 2),
        lambda x: abs(x) + math.pi,
        lambda x: 8,
    ]
    wanted = torch.tensor([[float(row(v)) for v in x.tolist()] for row in rows])
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_float64_keeps_its_digits():
    names = ("abs", "floor", "ceil", "trunc", "nearbyint")

    @T.prim_func
    def main(
        X: T.Tensor((16,), "float64"),
        Y: T.Tensor((16,), "float8_e4m3fn"),
        B: T.Tensor((6, 16), "float64"),
    ):
        with T.Kernel(1, threads=16):
            for i in T.Parallel(16):
                for row, name in enumerate(names):
                    B[row, i] = getattr(T, name)(X[i])
                B[5, i] = X[i] + Y[i]

    x = (torch.arange(-8, 8, dtype=torch.float64) + 0.3) * (2.0**40 + 1 / 3)
    y = torch.arange(16).to(torch.float8_e4m3fn)
    found = tilelang.compile(main, out_idx=-1, execution_backend="emulate")(x, y)
    wanted = [x.abs(), x.floor(), x.ceil(), x.trunc(), x.round(), x + y.double()]
    assert torch.equal(found, torch.stack(wanted))


def test_halves_of_two_kinds_meet_in_float32():
    results = []

    @T.prim_func
    def main(n: T.int32):
        with T.Kernel(1):
            h, b = T.alloc_local((4,), "float16"), T.alloc_local((4,), "bfloat16")
            results.extend([h[0] + b[0], T.max(b[1], h[1]), h[0] / b[0]])

    assert main.attrs["global_symbol"] == "main"
    assert [str(r.ty.dtype) for r in results] == ["float32"] * 3


@T.prim_func
def hashes(X: T.Tensor((16,), "uint32"), B: T.Tensor((4, 16), "uint32")):
    with T.Kernel(1, threads=16):
        for i in T.Parallel(16):
            x = X[i]
            B[0, i] = (x * 0x9E3779B1) >> 13
            B[1, i] = (0x9E3779B1 + x) // 3
            B[2, i] = (x * 0x9E3779B1) % 0x9E3779B5
            B[3, i] = x < 0x9E3779B1


def test_numbers_beside_uint32_do_not_widen_it(device):
    values = [(k * 0x01234567) % 2**32 for k in range(16)]
    x = torch.tensor(values).to(torch.uint32).to(device)
    found = tilelang.compile(hashes, out_idx=-1)(x).cpu().to(torch.int64).tolist()
    mixed = [v * 0x9E3779B1 % 2**32 for v in values]
    assert found == [
        [m >> 13 for m in mixed],
        [(v + 0x9E3779B1) % 2**32 // 3 for v in values],
        [m % 0x9E3779B5 for m in mixed],
        [int(v < 0x9E3779B1) for v in values],
    ]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_bits_of_numbers_that_a_narrow_type_does_not_hold(dtype, device):
    """As sums do, `&` widens: x & 255 of an int8 is its bits."""
    numbers = [255, 40000, 70000, 2**31 - 1]

    @T.prim_func
    def main(X: T.Tensor((4,), dtype), B: T.Tensor((3, len(numbers), 4), "int32")):
        with T.Kernel(1, threads=4):
            x = X[T.get_thread_binding()]
            for k, number in enumerate(numbers):
                B[0, k, T.get_thread_binding()] = x & number
                B[1, k, T.get_thread_binding()] = number | x
                B[2, k, T.get_thread_binding()] = x ^ number

    x = torch.tensor([0, 5, 77, 127 if "u" in dtype else -128]).to(getattr(torch, dtype)).to(device)
    found = tilelang.compile(main, out_idx=-1)(x).cpu()
    for bits, operation in zip(
        found.tolist(), [operator.and_, operator.or_, operator.xor], strict=True
    ):
        assert bits == [[operation(v, number) for v in x.tolist()] for number in numbers]


def test_the_length_of_a_tensor_is_its_first_extent(traced):
    text = traced("S = T.alloc_shared((4, 2), 'float32')\nA[0, 0] = len(A) + len(S)")
    assert "A[0, 0] = T.float32(12.0)" in text


def test_what_is_likely_is_a_condition(trace):
    """An integer was an internal error of TVM's when the program was lowered."""
    mod = trace("if T.likely(n):\n    A[0, 0] = 1")
    assert 'if T.likely(T.Cast("bool", n)):' in mod.script()
    assert "if (bool(n))" in tilelang.lower(mod, target="cuda -arch=sm_80").kernel_source
