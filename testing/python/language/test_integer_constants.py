"""Values that the compiler knows are converted, subtracted and compared as C does it at run time:
modulo 2^n, and where nothing reaches a division by zero, there is none."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
CONSTANTS = [-5, 300, -70000, 2**31 - 10, 2**32 + 7, -(2**40) - 1]


def wrapped(value, dtype):
    bits = int(dtype.lstrip("uint"))
    value %= 2**bits
    return value - 2**bits if dtype[0] == "i" and value >= 2 ** (bits - 1) else value


def numbers(function, dtype, n, device):
    out = torch.zeros(n, dtype=getattr(torch, dtype), device=device)
    tilelang.compile(function)(out)
    return out.tolist()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_casts_of_what_becomes_a_constant(dtype, device):
    """Of one block the number is 0; steps of unrolled loops are constants, too."""

    @T.prim_func
    def main(out: T.Tensor((len(CONSTANTS) + 6,), dtype)):
        with T.Kernel(1, threads=32) as bx:
            for i, constant in enumerate(CONSTANTS):
                out[i] = T.cast(T.cast(bx, "int64") + T.int64(constant), dtype)
            for i in T.unroll(3):
                out[len(CONSTANTS) + i] = T.cast(i * 1000 - 1500, dtype)
            tile = T.alloc_fragment((32,), dtype)
            T.fill(tile, bx - 6)
            out[len(CONSTANTS) + 3] = tile[0]
            number = T.alloc_var(dtype, init=bx - 7)
            out[len(CONSTANTS) + 4] = number
            number = bx + 1000
            out[len(CONSTANTS) + 5] = number

    values = [*CONSTANTS, -1500, -500, 500, -6, -7, 1000]
    wanted = [wrapped(value, dtype) for value in values]
    assert numbers(main, dtype, len(values), device) == wanted


@pytest.mark.parametrize("dtype", INTEGERS)
def test_differences_and_comparisons(dtype, device):
    @T.prim_func
    def main(out: T.Tensor((6,), dtype)):
        with T.Kernel(1, threads=32) as bx:
            zero = T.cast(bx, dtype)
            seven = T.cast(7, dtype)
            x = out[5]
            out[0] = zero - seven
            out[1] = T.cast(zero < seven, dtype)
            out[2] = T.cast(zero - seven < seven, dtype)
            out[3] = T.cast(x < x + T.cast(1, dtype), dtype)
            out[4] = T.cast(x + T.cast(3, dtype) > x, dtype)

    # A difference has its operands' type, also of 8 bits, where C would compute with int.
    less = dtype[0] == "i"
    assert numbers(main, dtype, 6, device) == [wrapped(-7, dtype), 1, less, 1, 1, 0]


def test_a_remainder_of_a_narrow_value(device):
    """int32(6 y + 2^32 + 2) is 6 y + 2, and that has another remainder by 6 than the sum."""

    @T.prim_func
    def main(out: T.Tensor((3,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.serial(3):
                wide = T.cast(out[i], "int64") * 6 + 2**32 + 2
                out[i] = T.cast(wide, "int32") % 6

    assert numbers(main, "int32", 3, device) == [2, 2, 2]


def test_casts_between_integers_and_floats(device):
    @T.prim_func
    def main(out: T.Tensor((5,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            out[0] = T.cast(bx + 70000, "float16")
            out[1] = T.cast(bx + 500, "float8_e4m3fn")
            out[2] = T.cast(T.cast(bx - 3, "float32") * 100.0, "int8")
            out[3] = T.cast(T.cast(bx - 3, "float32"), "uint8")
            out[4] = T.cast(bx + 5, "bool")

    assert numbers(main, "float32", 5, device) == [float("inf"), 448.0, -128.0, 0.0, 1.0]


def test_what_is_not_reached(device):
    @T.prim_func
    def main(out: T.Tensor((4,), "uint32")):
        with T.Kernel(1, threads=32) as bx:
            out[0] = T.if_then_else(bx > 0, T.cast(bx - 1, "uint32"), T.cast(9, "uint32"))
            out[1] = T.if_then_else(bx > 0, T.cast(7 // bx, "uint32"), T.cast(8, "uint32"))
            if bx > 0:
                out[2] = T.cast(7 % bx, "uint32")
            for i in range(bx):
                out[3] = T.cast(i, "uint32")
            for i in range(0):
                out[3] = T.cast(i, "uint32")

    assert numbers(main, "uint32", 4, device) == [9, 8, 0, 0]


N = 64
WIDE = [2**32 - 1, 3, 2**31, 2**32 - 16, 15, 0, 2**31 + 5, 7] * (N // 8)
NARROW = [250, 3, 128, 255, 15, 0, 127, 9] * (N // 8)


def element(n):
    return 1000 + n if 0 <= n < 16 else -1


def test_bounds_of_what_wraps(device):
    """Values that were taken for nonnegative, or for smaller than they are: an index of them was
    that of another element, and a quotient that of the absolute value."""

    @T.prim_func
    def main(
        U: T.Tensor((N,), "uint32"),
        V: T.Tensor((N,), "uint8"),
        table: T.Tensor((16,), "int32"),
        out: T.Tensor((8, N), "int32"),
    ):
        with T.Kernel(1, threads=N) as bx:
            tx = T.get_thread_binding()
            signed = T.cast(U[tx], "int32")
            positive = T.abs(bx + signed)
            out[0, tx] = T.if_then_else(positive < 16 and positive >= 0, table[positive], -1)
            largest = T.max(tx | signed, tx)
            out[1, tx] = T.if_then_else(largest < 16 and largest >= 0, table[largest], -1)
            out[2, tx] = (tx * tx) // T.if_then_else(signed == 0, 1, signed)
            product = V[tx] * T.cast(3, "uint8")
            out[3, tx] = T.if_then_else(product < T.cast(16, "uint8"), table[product], -1)
            narrow = T.cast(V[tx], "int8")
            total = narrow + T.cast(100, "int8")
            out[4, tx] = T.if_then_else(total >= 0 and total < 16, table[total], -1)
            wide = T.cast(T.cast(narrow, "uint64"), "int64") - bx
            out[5, tx] = T.if_then_else(wide < 16 and wide >= 0, table[wide], -1)
            half = T.cast(T.cast(narrow, "uint16"), "int32")
            out[6, tx] = half // 2
            out[7, tx] = tx % (-(2**31))

    signed = [wrapped(u, "int32") for u in WIDE]
    narrow = [wrapped(v, "int8") for v in NARROW]
    lanes = range(N)
    wanted = [
        [element(wrapped(abs(s), "int32")) for s in signed],
        [element(max(i | s, i)) for i, s in zip(lanes, signed, strict=True)],
        [i * i // (s or 1) for i, s in zip(lanes, signed, strict=True)],
        [element(v * 3 % 256) for v in NARROW],
        [element(wrapped(n + 100, "int8")) for n in narrow],
        [element(n) for n in narrow],
        [n % 2**16 // 2 for n in narrow],
        [i % -(2**31) for i in lanes],
    ]
    tensors = [
        torch.tensor(WIDE, dtype=torch.uint32),
        torch.tensor(NARROW, dtype=torch.uint8),
        torch.arange(1000, 1016, dtype=torch.int32),
        torch.zeros(8, N, dtype=torch.int32),
    ]
    tensors = [tensor.to(device) for tensor in tensors]
    tilelang.compile(main)(*tensors)
    assert tensors[-1].tolist() == wanted


@pytest.mark.parametrize("dtype", INTEGERS)
def test_casts_in_vectors(dtype, device):
    """A vector of a loop's variable is a number and a step: neither was of the type."""

    @T.prim_func
    def main(out: T.Tensor((256,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(256):
                out[i] = T.cast(i * (-5) + 64, dtype)

    assert numbers(main, dtype, 256, device) == [wrapped(i * -5 + 64, dtype) for i in range(256)]


def test_threads_behind_a_cast_that_wraps(device):
    """The threads that reach a statement were those of the condition without its casts: a correct
    guard was none, and an index of 8 bits was out of bounds."""

    @T.prim_func
    def main(out: T.Tensor((2, 64), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            tile = T.alloc_shared((64,), "int32")
            tile[tx] = tx
            T.sync_threads()
            out[0, tx] = -1
            if T.cast(tx - 40, "uint32") < 3:
                out[0, tx] = tile[tx - 40]
            bytes_ = T.alloc_shared((256,), "int32")
            for i in T.Parallel(256):
                bytes_[T.cast(i * 7, "uint8")] = i
            out[1, tx] = bytes_[tx * 4]

    out = torch.zeros(2, 64, dtype=torch.int32, device=device)
    tilelang.compile(main)(out)
    inverse = {i * 7 % 256: i for i in range(256)}
    found = out.tolist()
    assert found[0] == [i - 40 if 40 <= i < 43 else -1 for i in range(64)]
    assert found[1] == [inverse[i * 4] for i in range(64)]


def test_a_remainder_by_a_large_number(device):
    """x * -2 % c is x * (c - 2) % c of numbers without ends, and leaves int32."""

    @T.prim_func
    def main(out: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            out[tx] = (tx * (-2)) % T.max(2**31 - 1, tx)

    assert numbers(main, "int32", 64, device) == [i * -2 % (2**31 - 1) for i in range(64)]


ENDS = [-(2**31), -(2**31) + 1, -9, 0, 5, 2**31 - 2, 2**31 - 1]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_least_integer(dtype, device):
    """It has no negative: TVM took x == -2^31 for x - 2^31 == 0, which no int32 fulfils."""
    least = -(2**31) if dtype == "int32" else -(2**63)

    @T.prim_func
    def main(values: T.Tensor((32,), dtype), out: T.Tensor((6, 32), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            x = values[tx]
            out[0, tx] = T.if_then_else(x == least, 1, 0)
            out[1, tx] = T.if_then_else(x != least, 1, 0)
            out[2, tx] = T.if_then_else(x <= least, 1, 0)
            out[3, tx] = T.if_then_else(least < x, 1, 0)
            out[4, tx] = 0
            if x == least:
                out[4, tx] = 1
            out[5, tx] = T.if_then_else(T.max(x, least) == x, 1, 0)

    numbers = [least, least + 1, -1, 0, 1, -least - 1, *range(26)]
    values = torch.tensor(numbers, dtype=getattr(torch, dtype), device=device)
    out = torch.zeros(6, 32, dtype=torch.int32, device=device)
    tilelang.compile(main)(values, out)
    equal = [int(x == least) for x in numbers]
    unequal = [1 - x for x in equal]
    assert out.tolist() == [equal, unequal, equal, unequal, equal, [1] * 32]


def test_differences_stay_in_their_type(device):
    """Max(x, y) - y is never far from y's end; TVM's max(x - y, 0) left int32, and so did the
    x + 2 that it made of x - 3 below a remainder by 5."""

    @T.prim_func
    def main(
        X: T.Tensor((7,), "int32"), Y: T.Tensor((7,), "int32"), out: T.Tensor((8, 49), "int32")
    ):
        with T.Kernel(1, threads=49):
            tx = T.get_thread_binding()
            x = X[tx // 7]
            y = Y[tx % 7]
            out[0, tx] = T.max(x, y) - y
            out[1, tx] = x - T.min(y, x)
            named = T.max(x, 8) - 8
            out[2, tx] = named
            out[3, tx] = (T.max(x, -(2**31) + 3) - 3) % 5
            count = T.alloc_var("int32", init=T.min(x, 0) - x)
            out[4, tx] = count
            # A name that is compared, too.
            left = (T.max(x, 3) - 3) % 5
            if left < 2:
                out[5, tx] = left
            out[6, tx] = T.if_then_else(y < 0, T.min(x, 7) - 7, 1)
            T.atomic_add(out[7, tx], T.max(y, 8) - 8)

    def expected(x, y):
        left = (max(x, 3) - 3) % 5
        return [
            max(x, y) - y,
            x - min(y, x),
            max(x, 8) - 8,
            (max(x, -(2**31) + 3) - 3) % 5,
            min(x, 0) - x,
            left if left < 2 else 0,
            min(x, 7) - 7 if y < 0 else 1,
            max(y, 8) - 8,
        ]

    ends = torch.tensor(ENDS, dtype=torch.int32, device=device)
    out = torch.zeros(8, 49, dtype=torch.int32, device=device)
    tilelang.compile(main)(ends, ends, out)
    for i, (x, y) in enumerate((x, y) for x in ENDS for y in ENDS):
        for found, wanted in zip(out[:, i].tolist(), expected(x, y), strict=True):
            assert found == wanted or not -(2**31) <= wanted < 2**31
    # As before where no end is near: a sum of a thread's number and a loop's is one number.
    assert "tl::" not in source_of_sums()


def source_of_sums():
    @T.prim_func
    def main(out: T.Tensor((128,), "int32")):
        with T.Kernel(4, threads=32) as bx:
            tx = T.get_thread_binding()
            out[bx * 32 + tx] = (bx * 32 + tx + 7) - 5

    source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    return source.partition("tl::assume(tx < 32);")[2]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_operations_of_two_constants(dtype, device):
    """TVM refuses 0 - 7 of unsigned integers, and what a shift to the left does not hold."""
    bits = int(dtype.lstrip("uint"))
    most = 2**bits - 1 if dtype[0] == "u" else 2 ** (bits - 1) - 1

    @T.prim_func
    def main(out: T.Tensor((5,), dtype)):
        with T.Kernel(1, threads=32):
            out[0] = T.cast(0, dtype) - T.cast(7, dtype)
            out[1] = T.cast(most, dtype) << T.cast(1, dtype)
            out[2] = T.cast(most, dtype) + T.cast(most, dtype)
            out[3] = T.cast(most, dtype) * T.cast(3, dtype)
            out[4] = -T.cast(5, dtype)

    wanted = [wrapped(value, dtype) for value in (-7, 2 * most, 2 * most, 3 * most, -5)]
    assert numbers(main, dtype, 5, device) == wanted


@pytest.mark.parametrize("form", ["int64", "uint32", "narrow", "named"])
def test_factors_of_what_wraps(form, device):
    """What is cast or wraps is a multiple of a power of two as before: its elements are loaded in
    vectors, and of 48 it is one of 16 alone."""
    factor = 48 if form == "narrow" else 64

    @T.prim_func
    def main(
        A: T.Tensor((4096,), "float16"),
        out: T.Tensor((1024,), "float16"),
        wide: T.int64,
        unsigned: T.uint32,
    ):
        with T.Kernel(1, threads=128):
            first = T.cast(wide * factor, "int32")
            if form == "uint32":
                first = T.cast(unsigned * T.uint32(factor), "int32")
            if form == "narrow":
                first = T.cast(T.cast(wide * factor, "int16"), "int32")
            for i in T.Parallel(1024):
                if form == "int64":
                    out[i] = A[T.cast(wide * factor, "int32") + i]
                else:
                    out[i] = A[first + i]

    kernel = tilelang.compile(main)
    assert re.search(r"tl::(load<half_t, 8>|buffer_load(_if)?<8>)\(A", kernel.get_kernel_source())
    values = torch.arange(4096, dtype=torch.float16, device=device)
    out = torch.empty(1024, dtype=torch.float16, device=device)
    wide = 2**12 + 3 if form == "narrow" else 2**26 + 3
    first = wrapped(wide * factor, "int16" if form == "narrow" else "int32")
    kernel(values, out, wide, 2**26 + 3)
    assert out.tolist() == values[first : first + 1024].tolist()


def test_a_sum_of_64_bits_that_wraps(device):
    """A uint64 has no bound, so a sum of one is no more than its other part, which made -8 * c a
    number of int32."""

    @T.prim_func
    def main(out: T.Tensor((2,), "int32"), u: T.uint64):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            behind = T.cast(T.min(u + T.uint64(8), T.uint64(10)) - T.uint64(8), "int32")
            out[0] = behind
            out[1] = T.if_then_else(behind * 300000000 < tx - 100, 1, 0)

    out = torch.zeros(2, dtype=torch.int32, device=device)
    tilelang.compile(main)(out, 2**64 - 8)
    assert out.tolist() == [-8, 1]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_comparisons_of_large_constants(dtype, device):
    """TVM brought them to one side, where their sum or product was no integer of the type: it
    raised, or found -2^63 // 7 to be less than 1 - 2^63."""
    most = 2 ** (int(dtype.lstrip("int")) - 1) - 1

    @T.prim_func
    def main(values: T.Tensor((32,), dtype), out: T.Tensor((6, 32), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            x = values[tx]
            out[0, tx] = T.if_then_else(T.min(x, -2) + most >= 100 - most, 1, 0)
            out[1, tx] = T.if_then_else(T.max(x, 1) - most == 1 - most, 1, 0)
            out[2, tx] = T.if_then_else(x // 7 > 1 - most, 1, 0)
            out[3, tx] = 0
            if T.max(x, 0) - most < -100:
                out[3, tx] = 1
            out[4, tx] = 0
            T.assume(T.max(x, 0) - most <= 0)
            if T.max(x, 0) - most > 2 - most:
                out[4, tx] = 1
            out[5, tx] = T.if_then_else(T.min(T.max(x, 0), 1) * (-most - 1) < -most, 1, 0)

    def expected(x):
        return [
            min(x, -2) + most >= 100 - most,
            max(x, 1) == 1,
            x // 7 > 1 - most,
            max(x, 0) - most < -100,
            max(x, 0) > 2,
            x > 0,
        ]

    numbers = [-most - 1, -most, -most + 100, -1, 0, 1, most, most - 99, *range(24)]
    values = torch.tensor(numbers, dtype=getattr(torch, dtype), device=device)
    out = torch.zeros(6, 32, dtype=torch.int32, device=device)
    tilelang.compile(main)(values, out)
    for i, x in enumerate(numbers):
        assert [bool(n) for n in out[:, i].tolist()] == expected(x)


BEYOND = [2**40 + 5, -(2**40) - 3, 2**62, 2**63 - 1, -(2**63), 2**31, -(2**31) - 1]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_bits_of_numbers_beyond_int32(dtype, device):
    """TVM takes their low 32 bits."""

    @T.prim_func
    def main(A: T.Tensor((4,), dtype), B: T.Tensor((5, len(BEYOND), 4), "int64")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                for k in [*range(len(BEYOND))]:
                    B[0, k, i] = A[i] & BEYOND[k]
                    B[1, k, i] = BEYOND[k] | A[i]
                    B[2, k, i] = A[i] ^ BEYOND[k]
                    B[3, k, i] = A[i] < BEYOND[k]
                    B[4, k, i] = T.max(A[i] & 7, A[i] & BEYOND[k])

    a = torch.tensor([5, -7, 2**31 - 1, -(2**31)], dtype=getattr(torch, dtype), device=device)
    b = torch.zeros(5, len(BEYOND), 4, dtype=torch.int64, device=device)
    tilelang.compile(main, execution_backend="auto")(a, b)
    x = a.tolist()
    assert b.tolist() == [
        [[v & w for v in x] for w in BEYOND],
        [[v | w for v in x] for w in BEYOND],
        [[v ^ w for v in x] for w in BEYOND],
        [[int(v < w) for v in x] for w in BEYOND],
        [[max(v & 7, v & w) for v in x] for w in BEYOND],
    ]


def test_a_cast_to_a_wider_type_is_of_the_sum_that_wrapped(device):
    """TVM added the casts, so that the bits above the sum's type were those of the mathematical
    one: 2^31 for -2^31."""

    @T.prim_func
    def main(A: T.Tensor((3,), "int32"), out: T.Tensor((4, 3), "int64")):
        with T.Kernel(1, threads=32):
            for i in T.serial(3):
                total = A[i] + 1
                out[0, i] = T.cast(total, "int64")
                out[1, i] = T.cast(A[i] - 1, "uint64")
                out[2, i] = A[i] - A[2 - i]
                out[3, i] = T.cast(A[i] + A[i], "int64") + 1

    a = [2**31 - 1, -7, -(2**31)]
    found = torch.zeros(4, 3, dtype=torch.int64, device=device)
    tilelang.compile(main)(torch.tensor(a, dtype=torch.int32, device=device), found)
    wanted = [
        [x + 1 for x in a],
        [x - 1 for x in a],
        [x - y for x, y in zip(a, a[::-1], strict=True)],
    ]
    narrow = [[wrapped(x, "int32") for x in row] for row in wanted]
    assert found.tolist() == [*narrow, [wrapped(2 * x, "int32") + 1 for x in a]]
