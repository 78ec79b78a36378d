"""Functions that are not traced, and compute with the program's scalars."""

import dataclasses
import math

import pytest
import torch

import tilelang
import tilelang.language as T


def if_zero(i, j):
    if i == 0:
        return 1.0
    return 2.0


def unless_zero(i, j):
    return 1.0 if i != 0 else 2.0


def one_of_two(i, j):
    return 1.0 if i == 0 or i == 1 else 2.0


def not_equal(i, j):
    return T.if_then_else(not (i == 0), 1.0, 2.0)  # noqa: SIM201


def in_numbers(i, j):
    return 1.0 if i in (0, 1) else 2.0


def equal_pairs(i, j):
    return 1.0 if (i, j) == (0, 0) else 2.0


def equal_names(i, j):
    return 1.0 if i == j else 2.0


@dataclasses.dataclass
class Pair:
    index: object
    number: int


def equal_objects(i, j):
    return 1.0 if Pair(i, 1) == Pair(j, 1) else 2.0


def as_a_bool(i, j):
    return float(bool(i == 0))


def any_equal(i, j):
    return 1.0 if any(x == i for x in (j,)) else 2.0


def all_unequal(i, j):
    return 1.0 if all([i != j]) else 2.0


def equal_names_as_a_bool(i, j):
    return float(bool(i == j))


def filtered(i, j):
    return float(len([*filter(lambda x: x == i, (i, j))]))


ASKING = [
    if_zero,
    unless_zero,
    one_of_two,
    not_equal,
    in_numbers,
    equal_pairs,
    equal_names,
    equal_objects,
    as_a_bool,
    any_equal,
    all_unequal,
    equal_names_as_a_bool,
    filtered,
]


@pytest.mark.parametrize("function", ASKING, ids=lambda f: f.__name__)
def test_a_comparison_is_not_taken_for_one_of_objects(function):
    """TVM's `i == 0` is false where Python asks."""
    refuse(function)


def refuse(function):
    wanted = rf"the plain function {function.__name__}, at .*is true\)"
    with pytest.raises(TypeError, match=wanted) as error:

        @T.prim_func
        def main(C: T.Tensor((8, 8), "float32")):
            with T.Kernel(1, threads=32):
                for i, j in T.Parallel(8, 8):
                    C[i, j] = function(i, j)

    assert str(error.value).count("put @T.macro above it") == 1


def test_a_folder_beside_ours_is_not_ours():
    """Of a package tilelang_kernels, for one, which is installed where tilelang is."""
    names = {}
    path = f"{tilelang.__path__[0]}_kernels/epilogue.py"
    exec(compile("def of_zero(i, j): return 1.0 if i == 0 else 2.0", path, "exec"), names)
    refuse(names["of_zero"])


NUMBERS = {0, 1}


def in_a_set(i):
    return 1.0 if i in {0, 1} else 2.0


def not_in_a_dict(i):
    return 1.0 if i not in {0: "a", 1: "b"} else 2.0


def in_a_set_with_a_name(i):
    return 1.0 if i in NUMBERS else 2.0


def got_of_a_dict(i):
    return {0: 1.0, 1: 1.0}.get(i, 2.0)


TABLE = {0: 1.0, 1: 1.0}


def got_of_a_name(i):
    return TABLE.get(i) or 2.0


def popped_of_a_copy(i):
    rest = dict(TABLE)
    return rest.pop(i, max(2.0, 1.0))


class Tables:
    rows = TABLE


def got_of_an_attribute(i, tables=Tables):
    return tables.rows.get(i, 2.0) if i is not None else tables.rows[0]


@T.macro
def compared(i):
    return 1.0 if i == 0 or i == 1 else 2.0


@pytest.mark.parametrize(
    "function",
    [
        *(in_a_set, not_in_a_dict, in_a_set_with_a_name, got_of_a_dict, got_of_a_name),
        *(popped_of_a_copy, got_of_an_attribute),
    ],
)
def test_a_value_is_not_looked_for_among_the_hashes_of_numbers(function):
    def kernel(value):
        @T.prim_func
        def main(C: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(4):
                    C[i] = value(i)

        return main

    wanted = rf"{function.__name__}, at .*among numbers, .*; write x == a or x == b, and put @T"
    with pytest.raises(TypeError, match=wanted):
        kernel(function)
    c = torch.zeros(4)
    tilelang.compile(kernel(compared), execution_backend="emulate")(c)
    assert c.tolist() == [1.0, 1.0, 2.0, 2.0]


MEMBERS = [True, False, 1, 2, False, True, 2, True, True, 4]


def objects(i, j):
    names = {i: 1, j: 2}
    one, three = T.int64(1), T.int64(3)
    found = [i in [j, i], i in [j], [j, i].index(i), names[j], i is None]
    found += [i not in (j,), [j, i, j].count(j), Pair(i, 1) == Pair(i, 1)]
    compared = [i == i, j == None, one == 1, one == three, one != three]  # noqa: E711
    memo = {0: "number", i: "value"}
    found += [i in memo and memo.get(i) == "value", names.get(i + 1, 4)]
    return [*found, *map(bool, compared), three in (1, 3), i in names, i + 1 in names]


def test_objects_and_constants_are_compared():
    found = []

    @T.prim_func
    def main(C: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(8, 8):
                C[i, j] = 0.0
                found.append(objects(i, j))

    assert found[0] == [*MEMBERS, True, False, True, False, True, True, True, False]


def functions(x, i):
    quotient, rest = divmod(i - 3, 2)
    back = divmod(7, i + 1)
    whole = [round(x), math.floor(x), math.ceil(x), math.trunc(x), abs(x), pow(x, 2)]
    return [*whole, abs(i - 2), quotient, rest, back[0] * 10 + back[1]]


def test_functions_of_python_that_ask_the_class(device):
    """Only traced functions had ``abs`` and the like."""

    @T.prim_func
    def main(X: T.Tensor((4,), "float32"), C: T.Tensor((10, 4), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                for k, value in enumerate(functions(X[i], i)):
                    C[k, i] = value

    x = torch.tensor([1.5, -0.25, -2.75, 3.0])
    found = torch.empty(10, 4, device=device)
    tilelang.compile(main)(x.to(device), found)
    wanted = torch.tensor([functions(v, i) for i, v in enumerate(x.tolist())]).T
    assert torch.equal(found.cpu(), wanted)


@pytest.mark.parametrize(
    ("function", "words"),
    [(lambda x: pow(x, 2, 3), "pow found three arguments"), (lambda x: round(x, 2), "2 digits")],
)
def test_what_these_functions_do_not_take(function, words):
    """The third argument of ``pow`` made it the power of the operands in the other order."""
    with pytest.raises(TypeError, match=words):

        @T.prim_func
        def main(X: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(4):
                    X[i] = function(X[i])


def floats(x, h, b):
    zero = T.float32(0.0)
    return [x * 0.0, 0.0 / x, zero / zero, x - T.float32(-0.0), T.float16(0.1) * x, h + b, h * h]


def test_floats_are_those_of_traced_code(device):
    @T.prim_func
    def main(
        X: T.Tensor((4,), "float32"),
        H: T.Tensor((4,), "float16"),
        B: T.Tensor((4,), "bfloat16"),
        C: T.Tensor((7, 4), "float32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                for k, value in enumerate(floats(X[i], H[i], B[i])):
                    C[k, i] = value

    inf = float("inf")
    x = torch.tensor([1.0, -0.0, inf, float("nan")])
    h, b = (
        torch.tensor([1.0, 2.0, 300.0, 1.0]).half(),
        torch.tensor([1.0, 1e30, 1.0, 1.0]).bfloat16(),
    )
    found = torch.empty(7, 4, device=device)
    tilelang.compile(main)(x.to(device), h.to(device), b.to(device), found)
    tenth = torch.tensor(0.1).half().float()
    rows = [x * 0, 0 / x, x * float("nan"), x - torch.tensor(-0.0), tenth * x]
    wanted = torch.stack([*rows, h.float() + b.float(), (h * h).float()])
    assert torch.equal(found.cpu().isnan(), wanted.isnan())
    bits = [y.cpu().nan_to_num(7.0, posinf=inf).view(torch.int32) for y in (found, wanted)]
    assert torch.equal(*bits)


def integers(i, n):
    wide = T.Cast("int64", n)
    numbers = [i % 3, 7 // (i + 1), i << 2, 64 >> i, i & 6, 5 | i, i ^ 3, (i + 1) ** 2]
    return [*numbers, (wide | 2**62) >> 60, (2**40 + 5) & wide, wide ^ -(2**40)]


def remainders(x):
    return [x % 2.0, 2.0 % x, x // 2.0, x**2]


def test_arithmetic_is_that_of_traced_code(device):
    @T.prim_func
    def main(
        X: T.Tensor((4,), "float32"), C: T.Tensor((11, 4), "int64"), D: T.Tensor((4, 4), "float32")
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                for k, value in enumerate(integers(i, i - 7)):
                    C[k, i] = value
                for k, value in enumerate(remainders(X[i])):
                    D[k, i] = value

    x = torch.tensor([1.0, -3.0, 2.5, 7.0])
    c = torch.zeros(11, 4, dtype=torch.int64, device=device)
    d = torch.zeros(4, 4, device=device)
    tilelang.compile(main, execution_backend="auto")(x.to(device), c, d)
    lanes = range(4)
    wanted = [
        [f(i, i - 7) for i in lanes]
        for f in [
            lambda i, n: i % 3,
            lambda i, n: 7 // (i + 1),
            lambda i, n: i << 2,
            lambda i, n: 64 >> i,
            lambda i, n: i & 6,
            lambda i, n: 5 | i,
            lambda i, n: i ^ 3,
            lambda i, n: (i + 1) ** 2,
            lambda i, n: (n | 2**62) >> 60,
            lambda i, n: (2**40 + 5) & n,
            lambda i, n: n ^ -(2**40),
        ]
    ]
    assert c.tolist() == wanted
    assert d.tolist() == [
        [v % 2 for v in x.tolist()],
        [2 % v for v in x.tolist()],
        [v // 2 for v in x.tolist()],
        [v**2 for v in x.tolist()],
    ]


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda i: i % 0, ValueError, "divides the expression i by zero"),
        (lambda i: i + 2**63, ValueError, r"`\+` found 9223372036854775808 beside"),
        (lambda i: i & 3.0, TypeError, "`&` found 3.0 of type float, wanted integers"),
        (lambda i: 2**i, TypeError, "T.pow found .* cast it with T.cast"),
        (lambda i: i / 2, TypeError, "it divides integers by `/`.*put @T.macro above it"),
        (lambda i: T.uint8(i) / 2, TypeError, "it divides integers by `/`.*put @T.macro above it"),
        (lambda i: 2 / (i > 1), TypeError, "it divides integers by `/`.*put @T.macro above it"),
    ],
)
def test_errors_are_those_of_traced_code(function, error, message):
    with pytest.raises(error, match=message):

        @T.prim_func
        def main(C: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(4):
                    C[i] = function(i)


def test_signs_are_those_of_traced_code():
    """TVM has no -x of an unsigned number, and ~x of a bool was -1 or -2."""
    forms = (lambda x: -x, lambda x: ~x, lambda x: ~(x > 2), lambda x: -(x > 2))

    @T.prim_func
    def main(A: T.Tensor((4,), "uint8"), B: T.Tensor((4, 4), "int32")):
        with T.Kernel(1, threads=4):
            t = T.get_thread_binding()
            for i, form in enumerate(forms):
                B[i, t] = form(A[t])

    given, found = torch.arange(1, 5, dtype=torch.uint8), torch.empty(4, 4, dtype=torch.int32)
    tilelang.compile(main, execution_backend="emulate")(given, found)
    assert found.tolist() == [
        [-1, -2, -3, -4],
        [254, 253, 252, 251],
        [1, 1, 0, 0],
        [0, 0, -1, -1],
    ]
