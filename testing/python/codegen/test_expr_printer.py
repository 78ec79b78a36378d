"""Expressions: precedence, constants, conversions, vectors, calls, and what has no form."""

import pytest
import tvm
from tvm import tirx

x, y, z = (tirx.Var(name, "int32") for name in "xyz")
w = tirx.Var("w", "int64")
b = tirx.Var("b", "int8")
u = tirx.Var("u", "uint32")
s = tirx.Var("s", "uint16")
f, g = tirx.Var("f", "float32"), tirx.Var("g", "float32")
h = tirx.Var("h", "float16")
p, q = tirx.Var("p", "bool"), tirx.Var("q", "bool")


def call(name: str, *args: object, dtype: str = "float32") -> tvm.ir.Call:
    return tvm.ir.Call(tvm.ir.Op.get(name), list(args), ret_ty=tvm.ir.PrimType(dtype))


PRECEDENCE = [
    (x + y * z, "x + y * z"),
    ((x + y) * z, "(x + y) * z"),
    (x - (y - z), "x - (y - z)"),
    (x - y - z, "x - y - z"),
    (x + (-5), "x - 5"),
    (f / (g * g), "f / (g * g)"),
    (tirx.Mod(x, y) * z, "x % y * z"),
    ((x & y) ^ (z + 1), "(x & y) ^ (z + 1)"),
    (x ^ y ^ z, "x ^ y ^ z"),
    ((x << 2) + y, "(x << 2) + y"),
    (~x, "~x"),
    (tirx.And(x < y, tirx.Or(p, q)), "x < y && (p || q)"),
    (tirx.Or(tirx.And(p, q), x == y), "(p && q) || x == y"),
    (tirx.Not(tirx.And(p, q)), "!(p && q)"),
    (tirx.Select(x < y, f, g) + f, "tl::select<float>(x < y, f, g) + f"),
    (tirx.if_then_else(p, f, tirx.if_then_else(q, g, f)), "p ? f : q ? g : f"),
    (tirx.max(x, tirx.min(y, 3)), "tl::max(x, tl::min(y, 3))"),
]

CONSTANTS = [
    (tirx.FloatImm("float32", 0.0), "0.0f"),
    (tirx.FloatImm("float32", 0.1), "0.1f"),
    (tirx.FloatImm("float32", 1e-8), "1e-08f"),
    (tirx.FloatImm("float32", 16777217.0), "16777216.0f"),
    (tirx.FloatImm("float64", 0.1), "0.1"),
    (tirx.FloatImm("float16", -0.5), "half_t(-0.5f)"),
    (tirx.FloatImm("bfloat16", 1.0), "bfloat16_t(1.0f)"),
    (tirx.FloatImm("float32", float("-inf")), "-tl::bit_cast<float>(0x7f800000u)"),
    (tirx.FloatImm("float16", float("inf")), "half_t(tl::bit_cast<float>(0x7f800000u))"),
    (tirx.FloatImm("float32", float("nan")), "tl::bit_cast<float>(0x7fc00000u)"),
    (tirx.IntImm("int32", -(2**31)), "int(-2147483647 - 1)"),
    (tirx.IntImm("int64", 7), "int64_t(7)"),
    (tirx.IntImm("uint32", 2**32 - 1), "4294967295u"),
    (tirx.IntImm("uint64", 2**63), "uint64_t(9223372036854775808u)"),
    (tirx.IntImm("int8", -3), "int8_t(-3)"),
    (tirx.IntImm("bool", 1), "true"),
    (w * 5 + 1, "w * 5 + 1"),
    (w + 2**40, "w + int64_t(1099511627776)"),
    (tirx.max(w, 0), "tl::max(w, int64_t(0))"),
    (tirx.IntImm("int64", 1) << w, "int64_t(1) << w"),
    (u + 1, "u + 1u"),
    (b + b, "int8_t(b + b)"),
]

CONVERSIONS = [
    (f.astype("float16"), "half_t(f)"),
    (h.astype("float32"), "float(h)"),
    (f.astype("int32"), "tl::cast<int>(f)"),
    (x.astype("int64"), "int64_t(x)"),
    (x.astype("float32"), "float(x)"),
    (p.astype("int32"), "int(p)"),
    (call("tirx.reinterpret", x), "tl::bit_cast<float>(x)"),
]

VECTORS = [
    (tirx.Broadcast(f, 4), "tl::broadcast<float, 4>(f)"),
    (tirx.Ramp(x, 2, 4), "tl::ramp<int, 4>(x, 2)"),
    (tirx.Ramp(x, 1, 4).astype("float32x4"), "tl::cast<float>(tl::ramp<int, 4>(x, 1))"),
    (
        tirx.Select(
            tirx.Ramp(x, 1, 2) < tirx.Broadcast(y, 2), tirx.Broadcast(f, 2), tirx.Broadcast(g, 2)
        ),
        "tl::select(tl::ramp<int, 2>(x, 1) < tl::broadcast<int, 2>(y), "
        "tl::broadcast<float, 2>(f), tl::broadcast<float, 2>(g))",
    ),
    (
        tirx.if_then_else(p, tirx.Broadcast(f, 4), tirx.Broadcast(g, 4)),
        "p ? tl::broadcast<float, 4>(f) : tl::broadcast<float, 4>(g)",
    ),
    (tirx.Shuffle([tirx.Broadcast(f, 4)], [2]), "tl::broadcast<float, 4>(f)[2]"),
    (tirx.Shuffle([f, g], [1, 0]), "tl::vec<float, 2>{g, f}"),
]

CALLS = [
    (tirx.exp(f), "tl::exp(f)"),
    (tirx.rsqrt(h), "tl::rsqrt(h)"),
    (tirx.log2(f), "tl::log2(f)"),
    (tirx.abs(f), "tl::abs(f)"),
    (tirx.ceil(f), "tl::ceil(f)"),
    (tirx.call_extern("float32", "mine", f, x), "mine(f, x)"),
    (tirx.Let(x, y + z, x * x), "(y + z) * (y + z)"),
]


@pytest.mark.parametrize(("value", "text"), PRECEDENCE + CONSTANTS + CONVERSIONS + VECTORS + CALLS)
def test_expression(expression, value, text):
    assert expression(value, x, y, z, w, b, u, f, g, h, p, q) == text


def test_division_of_what_may_be_negative_rounds_down(expression):
    assert expression(x // 6, x) == "tl::floordiv(x, 6)"
    assert expression(x % 6, x) == "tl::floormod(x, 6)"
    assert expression(tirx.max(x, 0) // 8, x) == "tl::max(x, 0) / 8"
    assert expression(u // tirx.const(8, "uint32"), u) == "u / 8u"


def test_bits_round_down(expression):
    """Quotients and remainders of a power of two are bits, of integers that are not promoted."""
    assert expression((x + 1) // 8, x) == "(x + 1) >> 3"
    assert expression(x % 8 + x // 8, x) == "(x & 7) + (x >> 3)"
    assert expression(x // 1024 % 16, x) == "(x >> 10) & 15"
    assert expression(w % 2**40, w) == "w & int64_t(1099511627775)"
    assert expression(x // -8, x) == "tl::floordiv(x, -8)"
    assert expression(b // tirx.const(8, "int8"), b) == "tl::floordiv(b, int8_t(8))"


def test_division_by_what_may_be_negative_rounds_down(expression):
    assert expression(tirx.max(x, 0) % y, x, y) == "tl::floormod(tl::max(x, 0), y)"


def test_dimensions_are_not_negative(expression):
    tensor = tirx.decl_buffer((x,), "float32", name="A")
    assert expression(x // 8, x, tensor) == "x / 8"


def test_type_without_a_form_is_refused(expression):
    with pytest.raises(ValueError, match=r"found type float8_e3m4, .* Use a type"):
        expression(f.astype("float8_e3m4"), f)


def test_call_without_a_form_is_refused(expression):
    repaired = r"found a call of tirx\.q_multiply_shift, .* T\.call_extern"
    with pytest.raises(ValueError, match=repaired):
        expression(tirx.q_multiply_shift(x, y, x, y), x, y)


def test_variable_out_of_scope_is_a_bug_of_ours(expression):
    with pytest.raises(
        Exception, match=r"variable y used outside of its scope \(a bug in tilelang, in EmitCuda"
    ):
        expression(x + y, x)


A = tirx.decl_buffer((64,), "int32", name="A")
B = tirx.decl_buffer((64,), "int8", name="B")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (x + y * z, "tl::add(x, tl::mul(y, z))"),
        (0 - x, "tl::sub(0, x)"),
        (w * 3, "tl::mul(w, int64_t(3))"),
        (A[x + y] + A[2] * 3, "tl::add(A[x + y], tl::mul(A[2], 3))"),
        (A[x] - tirx.Select(x + y < z, 1, 2), "tl::sub(A[x], tl::select<int>(x + y < z, 1, 2))"),
        (tirx.Select(A[x] + 1 < y, f, g), "tl::select<float>(tl::add(A[x], 1) < y, f, g)"),
        (B[x].astype("int32") * B[y].astype("int32"), "int(B[x]) * int(B[y])"),
        (u * u, "u * u"),
        (b * b, "int8_t(b * b)"),
        (s * s, "tl::mul(s, s)"),
        (f + g, "f + g"),
    ],
)
def test_values_wrap_unless_they_are_known_to_be_small(stored, value, text):
    assert stored(value, x, y, z, w, b, u, s, f, g, A, B) == text


def test_what_was_loaded_is_a_value(expression):
    assert expression(A[x] + 1, x, A) == "tl::add(A[x], 1)"
