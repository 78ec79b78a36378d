"""Scalar operations: how each is written in a kernel, and its value with a bound on its error.

Floats are computed in float64 and rounded to their dtype; an error is what any order and any
contraction of the kernel's operations may differ by (running error analysis: Higham, Accuracy and
Stability of Numerical Algorithms, section 3.3). It is 0 where no operation has rounded, and the
kernel's result must then be equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.testing.fuzz.program import Invalid

FLOATS = {
    "float16": (11, -14, 65504.0),
    "bfloat16": (8, -126, 3.3895313892515355e38),
    "float32": (24, -126, 3.4028234663852886e38),
    "float64": (53, -1022, 1.7976931348623157e308),
    "float8_e4m3fn": (4, -6, 448.0),
    "float8_e5m2": (3, -14, 57344.0),
}
"""Digits, smallest exponent and largest value of each float dtype."""

INTS = {
    f"{prefix}int{bits}": (
        0 if prefix else -(1 << (bits - 1)),
        (1 << (bits if prefix else bits - 1)) - 1,
    )
    for prefix in ("", "u")
    for bits in (8, 16, 32, 64)
} | {"bool": (0, 1)}
INTS["uint64"] = (0, 2**63 - 1)  # what numpy's int64 holds of it


@dataclasses.dataclass(frozen=True)
class Values:
    """Elements of one dtype: float64 or int64, and the bound on their errors (0 where exact).

    A weak one is a number of the program, which has no dtype of its own.
    """

    value: np.ndarray
    error: np.ndarray | float
    dtype: str
    weak: bool = False


def unit(dtype: str) -> float:
    """The largest relative error of one rounding."""
    return float(2.0 ** -FLOATS[dtype][0])


def rounded(dtype: str, value: np.ndarray) -> np.ndarray:
    """float64 values rounded once to a float dtype, to the nearest, halves to even."""
    digits, lowest, _ = FLOATS[dtype]
    _, exponent = np.frexp(value)
    step = np.maximum(exponent - digits, lowest - digits + 1)
    return np.ldexp(np.rint(np.ldexp(value, -step)), step)


def fit(dtype: str, value: np.ndarray, error: np.ndarray | float = 0.0) -> Values:
    """What an operation gives in its dtype: rounded once if it has to be.

    Raises `Invalid` for what the dtype does not hold: programs do not overflow.
    """
    if dtype in INTS:
        low, high = INTS[dtype]
        if value.size and (value.min() < low or value.max() > high):
            raise Invalid(f"{dtype} overflows")
        return Values(value, 0.0, dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        result = rounded(dtype, value)
    if not np.all(np.abs(result) <= FLOATS[dtype][2]):
        raise Invalid(f"{dtype} overflows")
    # In float64 a rounding leaves no trace; short dyadic fractions have none.
    inexact = (
        (value * 256 != np.rint(value * 256)) | (np.abs(value) > 2.0**36)
        if dtype == "float64"
        else result != value
    )
    if np.any(inexact):
        error = error + np.where(inexact, unit(dtype) * np.abs(value), 0.0)
    return Values(result, error, dtype)


def wraps(dtype: str) -> bool:
    """Whether sums, differences and products of a dtype are modulo a power of two: of unsigned
    integers, and of those of less than 32 bits. Programs do not leave int32 and int64."""
    return dtype in INTS and dtype not in ("bool", "int32", "int64", "uint64")


def wrapped(dtype: str, value: np.ndarray) -> np.ndarray:
    """Integers modulo a power of two.

    Raises `Invalid` for uint64 that numpy's int64 does not hold.
    """
    low, high = INTS[dtype]
    if dtype == "int64" or dtype == "uint64":
        return fit(dtype, value).value
    return (value - low) % (high - low + 1) + low


def cast(dtype: str, x: Values) -> Values:
    """``T.cast``: floats to integers towards zero, integers modulo a power of two."""
    if dtype == x.dtype:
        return dataclasses.replace(x, weak=False)
    if dtype == "bool":
        return Values((exact(x) != 0).astype(np.int64), 0.0, dtype)
    if dtype in INTS and x.dtype in INTS and not x.weak:
        return Values(wrapped(dtype, x.value), 0.0, dtype)
    if dtype in INTS:
        return fit(dtype, np.trunc(exact(x)).astype(np.int64))
    return fit(dtype, x.value.astype(np.float64), x.error)


def exact(x: Values) -> np.ndarray:
    """The values, where something is decided by them."""
    if np.any(x.error):
        raise Invalid("something is decided by a rounded value")
    return x.value


def magnitude_fits(dtype: str, total: np.ndarray, *terms: np.ndarray) -> bool:
    """Whether sums of the terms, whose absolute values add up to `total`, are exact in any order:
    they are integers that the dtype holds."""
    limit = 2.0 ** FLOATS[dtype][0]
    return bool(np.all(total <= limit)) and all(bool(np.all(t == np.rint(t))) for t in terms)


@dataclasses.dataclass(frozen=True)
class Operation:
    """How it is written (`{0}` is the first operand), and what it computes.

    `compute` takes and returns values and errors of floats, or values of integers.
    """

    text: str
    compute: Callable[..., Any]
    floats: bool = True
    ints: bool = True
    result: str = ""
    """Its dtype, if not that of the operands."""


def _sum(sign: int) -> Callable[..., Any]:
    return lambda x, ex, y, ey: (x + sign * y, ex + ey)


def _product(x: Any, ex: Any, y: Any, ey: Any) -> Any:
    return x * y, np.abs(x) * ey + np.abs(y) * ex + ex * ey


def _quotient(x: Any, ex: Any, y: Any, ey: Any) -> Any:
    room = np.abs(y) - ey
    if np.any(room <= 0):
        raise Invalid("division by zero")
    quotient = x / y
    # CUDA divides float32 with 2 units in the last place where it does not round correctly.
    return quotient, (ex + np.abs(quotient) * ey) / room + 2 * unit("float32") * np.abs(quotient)


def _extremum(choose: Any) -> Callable[..., Any]:
    return lambda x, ex, y, ey: (choose(x, y), np.maximum(ex, ey))


def _function(f: Any, units: float, low: float = -np.inf, high: float = np.inf) -> Any:
    """A monotone function of floats on [low, high] whose implementations have an error of `units`
    roundings to float32."""

    def compute(x: Any, ex: Any) -> Any:
        if np.any(x - ex < low) or np.any(x + ex > high):
            raise Invalid("a function outside of its range")
        y = f(x)
        spread = np.maximum(np.abs(f(x + ex) - y), np.abs(f(x - ex) - y))
        return y, spread + units * unit("float32") * np.abs(y)

    return compute


def _compare(relation: Any) -> Callable[..., Any]:
    def compute(x: Any, ex: Any, y: Any, ey: Any) -> Any:
        if np.any((np.abs(x - y) <= ex + ey) & (ex + ey > 0)):
            raise Invalid("a comparison within the error")
        return relation(x, y).astype(np.int64), 0.0

    return compute


def _integers(f: Any, low: float = -np.inf, high: float = np.inf) -> Callable[..., Any]:
    def compute(x: Any, ex: Any, y: Any, ey: Any) -> Any:
        if np.any(y < low) or np.any(y > high):
            raise Invalid("an operand outside of its range")
        return f(x, y), 0.0

    return compute


def _divided(f: Any) -> Callable[..., Any]:
    def compute(x: Any, ex: Any, y: Any, ey: Any) -> Any:
        if np.any(y == 0):
            raise Invalid("a division by zero")
        return f(x, y), 0.0

    return compute


OPERATIONS = {
    "add": Operation("{0} + {1}", _sum(1)),
    "sub": Operation("{0} - {1}", _sum(-1)),
    "mul": Operation("{0} * {1}", _product),
    "div": Operation("{0} / {1}", _quotient, ints=False),
    "floordiv": Operation("{0} // {1}", _divided(np.floor_divide), floats=False),
    "mod": Operation("{0} % {1}", _divided(np.mod), floats=False),
    "ceildiv": Operation(
        "T.ceildiv({0}, {1})", _integers(lambda x, y: -(-x // y), low=1), floats=False
    ),
    "max": Operation("T.max({0}, {1})", _extremum(np.maximum)),
    "min": Operation("T.min({0}, {1})", _extremum(np.minimum)),
    "neg": Operation("-{0}", lambda x, ex: (-x, ex)),
    "abs": Operation("T.abs({0})", lambda x, ex: (np.abs(x), ex)),
    "exp2": Operation("T.exp2({0})", _function(np.exp2, 4, -10, 10), ints=False),
    "exp": Operation("T.exp({0})", _function(np.exp, 4, -10, 10), ints=False),
    "sqrt": Operation("T.sqrt({0})", _function(np.sqrt, 2, 0), ints=False),
    "rsqrt": Operation("T.rsqrt({0})", _function(lambda x: 1 / np.sqrt(x), 4, 0.01), ints=False),
    "log2": Operation("T.log2({0})", _function(np.log2, 4, 1.5), ints=False),
    "tanh": Operation("T.tanh({0})", _function(np.tanh, 8, -10, 10), ints=False),
    "floor": Operation("T.floor({0})", _function(np.floor, 0), ints=False),
    "bitand": Operation("{0} & {1}", _integers(np.bitwise_and), floats=False),
    "bitor": Operation("{0} | {1}", _integers(np.bitwise_or), floats=False),
    "bitxor": Operation("{0} ^ {1}", _integers(np.bitwise_xor), floats=False),
    "shl": Operation("{0} << {1}", _integers(np.left_shift, 0, 4), floats=False),
    "shr": Operation("{0} >> {1}", _integers(np.right_shift, 0, 7), floats=False),
    "lt": Operation("{0} < {1}", _compare(np.less), result="bool"),
    "le": Operation("{0} <= {1}", _compare(np.less_equal), result="bool"),
    "eq": Operation("{0} == {1}", _compare(np.equal), result="bool"),
    "ne": Operation("{0} != {1}", _compare(np.not_equal), result="bool"),
    "and": Operation("{0} and {1}", _integers(np.minimum), floats=False, result="bool"),
    "or": Operation("{0} or {1}", _integers(np.maximum), floats=False, result="bool"),
    "not": Operation("not {0}", lambda x, ex: (1 - x, 0.0), floats=False, result="bool"),
}
"""Every operation by its name in `program.Op`, but for ``select``: the interpreter reads only the
operand that is chosen."""


def common_dtype(operands: list[Values]) -> str:
    """The dtype that operands have, numbers apart.

    Raises `Invalid` if they differ: programs cast where they mix.
    """
    strong = {x.dtype for x in operands if not x.weak} or {x.dtype for x in operands}
    if len(strong) != 1:
        raise Invalid(f"mixed dtypes {sorted(strong)}")
    return strong.pop()


def apply(name: str, operands: list[Values]) -> Values:
    """The value of an operation on operands of one dtype.

    Raises `Invalid` for operations that the dtype does not have.
    """
    operation = OPERATIONS[name]
    dtype = common_dtype(operands)
    if not (operation.floats if dtype in FLOATS else operation.ints) or (
        dtype == "bool" and operation.result != "bool"
    ):
        raise Invalid(f"{name} of {dtype}")
    if dtype in INTS and any(x.dtype in FLOATS for x in operands):
        raise Invalid(f"a fraction among {dtype}")
    operands = [cast(dtype, x) for x in operands]
    parts: list[Any] = []
    for x in operands:
        parts += [x.value, x.error]
    with np.errstate(all="ignore"):
        value, error = operation.compute(*parts)
    if dtype in FLOATS and not operation.result:
        # Narrow types compute functions in float32, so that theirs are the roundings at the end.
        return fit(dtype, value, error)
    if name in ("add", "sub", "mul") and wraps(dtype):
        value = wrapped(dtype, value)
    result = fit(operation.result or dtype, value)
    weak = all(x.weak for x in operands)
    return dataclasses.replace(result, weak=weak)
