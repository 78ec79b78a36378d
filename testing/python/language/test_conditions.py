"""Conditions are decided while tracing where they can be."""

import time

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.engine.lower import lower


def test_conditions_in_python_fold(traced):
    assert traced("if 1 < 2 and not None:\n    A[0, 0] = 1\nelse:\n    A[0, 0] = 2") == (
        "A[0, 0] = T.float32(1.0)\n"
    )


def test_a_condition_that_is_another_object_warns(trace):
    with pytest.warns(UserWarning, match="decided while tracing"):
        trace("if [1]:\n    A[0, 0] = 1")


def test_boolean_operators_and_chains(traced):
    text = traced("if 0 <= tx < n and (n > 2 or not n == 1) and True:\n    A[0, tx] = 0")
    assert text.startswith("if tx >= 0 and tx < n and (n > 2 or not n == 1):\n")


def test_boolean_operators_of_python_values_are_pythons(traced):
    assert traced("x = None or 3\ny = x and 2\nA[x, y] = 0") == "A[3, 2] = T.float32(0.0)\n"


def test_boolean_operators_have_the_value_of_an_operand(device):
    """``a or b`` of integers was 1 where Python has ``a``; operands behind are guarded."""

    @T.prim_func
    def main(A: T.Tensor((6,), "int32"), C: T.Tensor((4, 6), "int32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((4,), "int32")
            T.copy(A[0:4], s)
            for i in T.serial(6):
                C[0, i] = A[i] and 7
                C[1, i] = A[i] or i * 10
                C[2, i] = i < 4 and s[i]
                C[3, i] = not (A[i] and i) or i - 3

    a = [0, 3, -2, 1, 5, 0]
    found = torch.zeros(4, 6, dtype=torch.int32, device=device)
    tilelang.compile(main)(torch.tensor(a, dtype=torch.int32, device=device), found)
    wanted = [[x and 7, x or i * 10, i < 4 and x, not (x and i) or i - 3] for i, x in enumerate(a)]
    assert found.T.tolist() == [[*map(int, row)] for row in wanted]


def test_ternary(traced):
    assert traced("A[0, 0] = 1 if n > 2 else A[0, 1]\nA[0, 1] = 1 if len('a') else 2") == (
        "A[0, 0] = T.if_then_else(n > 2, T.float32(1.0), A[0, 1])\nA[0, 1] = T.float32(1.0)\n"
    )


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("if A:\n    pass", TypeError, "the condition is the buffer A"),
        ("x = [i for i in (1, 2) if i == n]", TypeError, "condition of a comprehension"),
        ("if n in (1, 2):\n    pass", TypeError, "write x == a or x == b"),
    ],
)
def test_errors_name_the_place(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> <kernel \d+>:\d+:\d+\n   \|"):
        trace(statement)


def test_a_chain_of_selections_compiles_in_time(device):
    """Each in the condition of the next one: TVM alone took six times as long a link, and with
    conditions out of its sight 2.6 times, 13 s for twelve; this many would never end."""
    links = 24

    def chain(D, n, take):
        value = n
        for k in range(links):
            value = take(value + D[D[k] % 8] < D[k], n + k, D[k + 1] - n)
        return value

    @T.prim_func
    def main(D: T.Tensor((links + 1,), "int32"), C: T.Tensor((1,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            C[0] = chain(D, n, T.if_then_else)

    kernel = tilelang.compile(main)
    random = np.random.default_rng(0)
    for n in range(-4, 5):
        d = random.integers(-20, 20, links + 1).tolist()
        c = torch.zeros(1, dtype=torch.int32, device=device)
        kernel(torch.tensor(d, dtype=torch.int32, device=device), c, n)
        assert c.item() == chain(d, n, lambda condition, a, b: a if condition else b)


def test_a_chain_of_named_selections_compiles_in_time(device):
    """Each of the value of the one before, under its condition: TVM wrote the value where its name
    stands, three times in a link, so that six took half a minute."""
    links = range(8)

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), C: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                v = A[i]
                for k in list(links):
                    v = v - 3 * k if v > 5 * k else v + k
                C[i] = v

    begin = time.process_time()
    lower(main, target="cuda -arch=sm_90a")
    assert time.process_time() - begin < 20
    a = torch.arange(64, dtype=torch.int32, device=device) * 3
    c = torch.zeros_like(a)
    tilelang.compile(main)(a, c)
    for k in links:
        a = torch.where(a > 5 * k, a - 3 * k, a + k)
    assert torch.equal(c, a)


@pytest.mark.parametrize("n", [16, 64, 256])
def test_pairs_at_a_distance_of_the_run_are_exchanged_under_a_condition(n, device):
    """A bitonic sort: no thread could wait for another one under the condition of one pair."""

    @T.prim_func
    def main(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=128):
            key = T.alloc_shared((n,), "float32")
            T.copy(X, key)
            for a in T.serial(1, n.bit_length()):
                for b in T.serial(a):
                    distance = 1 << (a - 1 - b)
                    for p in T.Parallel(n // 2):
                        low = p // distance * distance * 2 + p % distance
                        high = low + distance
                        x, y = key[low], key[high]
                        if (x < y) == ((low >> a) % 2 == 0):
                            key[low] = y
                            key[high] = x
            T.copy(key, Y)

    x = torch.randn(n, device=device)
    assert torch.equal(tilelang.compile(main, out_idx=-1)(x), x.sort(descending=True).values)


def byte(value):
    return (value + 128) % 256 - 128


LINKS = {
    "quotients": (lambda e, q: (e * 3 + q) % 1000 // 2, lambda e, q: (e * 3 + q) % 1000 // 2),
    "comparisons": (
        lambda e, q: T.cast(e * 3 - q > -5, "int32") - 2,
        lambda e, q: (e * 3 - q > -5) - 2,
    ),
    "casts": (
        lambda e, q: T.cast(T.cast(e * 3 + q, "int8"), "int32"),
        lambda e, q: byte(e * 3 + q),
    ),
    "selections": (
        lambda e, q: T.if_then_else(e * 3 > q, 7 - e, 1 + e),
        lambda e, q: 7 - e if e * 3 > q else 1 + e,
    ),
}


@pytest.mark.parametrize(
    ("name", "named"),
    [*((name, True) for name in LINKS), ("quotients", False), ("comparisons", False)],
)
def test_a_chain_of_operations_compiles_in_time(device, name, named):
    """Each of what the one before gives: TVM took two to eight times as long a link, so that five
    comparisons took half a minute, and eight quotients ten seconds."""
    link, reference = LINKS[name]

    def deep(e, q):
        for _ in range(12):
            e = link(e, q)
        return e

    @T.prim_func
    def main(C: T.Tensor((32,), "int32"), q: T.int32):
        with T.Kernel(1, threads=32):
            e = T.get_thread_binding()
            if named:
                for _ in [*range(12)]:
                    e = link(e, q)
                C[T.get_thread_binding()] = e
            else:
                C[T.get_thread_binding()] = deep(e, q)

    begin = time.process_time()
    lower(main, target="cuda -arch=sm_90a")
    assert time.process_time() - begin < 20
    c = torch.zeros(32, dtype=torch.int32, device=device)
    tilelang.compile(main)(c, 7)
    wanted = range(32)
    for _ in range(12):
        wanted = [reference(e, 7) for e in wanted]
    assert c.tolist() == [*wanted]
