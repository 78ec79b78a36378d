"""EvaluateOnce: calls that do something are made as often as the program says."""

import pytest
import torch

import tilelang
import tilelang.language as T

COUNT = 64


def square(x):
    return x * x


# What each thread stores where, with the number that it is given in turn.
FORMS = {
    "index of a store": lambda C, A, t, n: store(C, next_of(n), A[t]),
    "absolute": lambda C, A, t, n: store(C, t, abs(next_of(n))),
    "a function's operand": lambda C, A, t, n: store(C, t, square(next_of(n))),
    "index of a load": lambda C, A, t, n: store(C, t, A[next_of(n)]),
    "bound of a slice": lambda C, A, t, n: T.copy(A[next_of(n)], C[t]),
}
WANTED = {"a function's operand": [i * i for i in range(COUNT)]}


def next_of(n):
    return T.atomic_add(n[0], 1, return_prev=True)


@T.macro
def store(C, i, value):
    C[i] = value


@pytest.mark.parametrize("form", FORMS)
def test_an_atomic_operation_is_made_once(form):
    use = FORMS[form]

    @T.prim_func
    def main(
        A: T.Tensor((COUNT,), T.int32), n: T.Tensor((1,), T.int32), C: T.Tensor((COUNT,), T.int32)
    ):
        with T.Kernel(1, threads=COUNT):
            t = T.get_thread_binding()
            use(C, A, t, n)

    n, C = torch.zeros(1, dtype=torch.int32), torch.full((COUNT,), -1, dtype=torch.int32)
    tilelang.compile(main, execution_backend="emulate")(
        torch.arange(COUNT, dtype=torch.int32), n, C
    )
    assert n.item() == COUNT
    assert C.sort().values.tolist() == WANTED.get(form, list(range(COUNT)))


def test_the_place_of_an_update_is_found_once():
    @T.prim_func
    def main(n: T.Tensor((1,), T.int32), C: T.Tensor((COUNT,), T.int32)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(COUNT):
                C[T.atomic_add(n[0], 1, return_prev=True)] += i + 1

    n, C = torch.zeros(1, dtype=torch.int32), torch.zeros(COUNT, dtype=torch.int32)
    tilelang.compile(main, execution_backend="emulate")(n, C)
    assert n.item() == COUNT
    assert C.sort().values.tolist() == list(range(1, COUNT + 1))


def test_a_random_number_has_one_value():
    @T.prim_func
    def main(C: T.Tensor((COUNT, 2), T.float32)):
        with T.Kernel(1, threads=COUNT):
            t = T.get_thread_binding()
            T.rng_init(7)
            C[t, 0] = abs(T.rng_rand_float(dist="normal"))
            C[t, 1] = square(T.rng_rand_float() - 0.5)

    C = torch.zeros(COUNT, 2)
    tilelang.compile(main, execution_backend="emulate")(C)
    assert C.min() >= 0


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("while A[next_of(n)] > 3:\n    A[t] = 0", "the condition of `while`"),
        ("while abs(T.atomic_load(n[0])) < 3:\n    A[t] = 0", "the condition of `while`"),
        ("A[t] = A[next_of(n)] if t > 3 else 0", "an operand that the program may skip"),
    ],
)
def test_a_call_that_cannot_be_made_in_front_is_refused(define, statement, found):
    program = """
        @T.prim_func
        def main(A: T.Tensor((64,), T.int32), n: T.Tensor((1,), T.int32)):
            with T.Kernel(1, threads=64):
                t = T.get_thread_binding()
{}
        """.format("\n".join(" " * 16 + line for line in statement.splitlines()))
    main = define(program, next_of=next_of)["main"]
    with pytest.raises(ValueError, match=found):
        tilelang.lower(main, target="cuda -arch=sm_90a")
