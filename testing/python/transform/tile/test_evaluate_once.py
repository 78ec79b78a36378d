"""EvaluateOnce: calls that do something are made as often as the program says."""

import collections
from collections import UserList

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


@pytest.mark.emulator_alone  # The GPU's threads find places in another order.
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


MEMBERS = {
    "list": "t = [A[0], A[1]]",
    "tuple": "t = (A[0], A[1])",
    "comprehension": "t = [A[i] for i in (0, 1)]",
    "dict": "t = {0: A[0], 1: A[1]}",
    "append": "t = []\nt.append(A[0])\nt.append(A[1])",
    "insert": "t = [A[1]]\nt.insert(0, A[0])",
    "record": "t = Pair(A[0], A[1])",
    "plain function": "t = pair_of(A)",
    "place of a table": "v = T.alloc_var(T.int32, 0)\nt = [A[v], A[v + 1]]\nv = 5",
}


@pytest.mark.parametrize("members", MEMBERS)
def test_a_member_of_a_container_has_the_value_of_when_it_got_there(define, members):
    """It was read where it was used, behind what the program had written since."""
    lines = "\n".join(" " * 12 + line for line in MEMBERS[members].splitlines())
    main = define(
        f"""
    @T.prim_func
    def main(A: T.Tensor((8,), T.int32)):
        with T.Kernel(1, threads=1):
{lines}
            A[0] = t[1] * 2
            A[1] = t[0]
    """,
        Pair=collections.namedtuple("Pair", "first second"),
        pair_of=lambda A: [A[0], A[1]],
    )["main"]
    A = torch.arange(3, 11, dtype=torch.int32)
    tilelang.compile(main, execution_backend="emulate")(A)
    assert A.tolist() == [8, 3, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("statements", "wanted"),
    [("t = [X[0]]\nY[0] = 5\nZ[0] = t[0]", 3), ("T.fill(X, Y[0] + 1)\nZ[0] = X[63]", 4)],
)
def test_a_tensor_of_two_names_is_written_by_both(define, statements, wanted):
    """The value was read again behind the store by the other name."""
    lines = "\n".join(" " * 12 + line for line in statements.splitlines())
    main = define(f"""
    @T.prim_func
    def main(X: T.Tensor((64,), T.int32), Y: T.Tensor((64,), T.int32), Z: T.Tensor((1,), T.int32)):
        with T.Kernel(1, threads=1):
            T.annotate_restrict_buffers(X, Y)
{lines}
    """)["main"]
    A, Z = torch.full((64,), 3, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    tilelang.compile(main, execution_backend="emulate")(A, A, Z)
    assert Z.tolist() == [wanted]


def test_a_member_of_a_container_is_a_place():
    @T.prim_func
    def main(A: T.Tensor((64,), T.int32), B: T.Tensor((64,), T.int32)):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((32,), T.int32)
            places = [(A[0], B[32]), (A[32], B[0])]
            for source, target in places:
                T.copy(source, tile)
                T.copy(tile, target)

    A, B = torch.randint(0, 99, (64,), dtype=torch.int32), torch.empty(64, dtype=torch.int32)
    kernel = tilelang.compile(main, execution_backend="emulate")
    kernel(A, B)
    assert torch.equal(B, torch.cat([A[32:], A[:32]]))
    assert "value" not in kernel.get_kernel_source()


def test_a_member_from_a_loop_is_refused_behind_it(define):
    """Where the trace has not seen it: the members of a `UserList` are those of its `data`."""
    main = define(
        """
    @T.prim_func
    def main(A: T.Tensor((8,), T.int32)):
        with T.Kernel(1, threads=1):
            t = UserList()
            for i in T.serial(2):
                t.append(A[0])
            A[0] = 5
            A[1] = t[0]
    """,
        UserList=UserList,
    )["main"]
    with pytest.raises(ValueError, match=r"element of A that a container got in a loop"):
        tilelang.lower(main, target="cuda -arch=sm_90a")


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("T.copy(A[S[0] : S[0] + 8], S)", list(range(13, 21))),
        ("T.copy(A[R[0] : R[0] + 8], S)", list(range(13, 21))),
        ("T.fill(S, S[0] + 1)", [4] * 8),
        ("T.atomic_add(S[S[0] : S[0] + 2], S[1])", [3, 3, 3, 6, 6, 3, 3, 3]),
    ],
)
def test_an_operator_does_not_change_its_own_operands(define, statement, wanted):
    """Elements read them as others had been written: a race, or another place."""
    main = define(f"""
    @T.prim_func
    def main(A: T.Tensor((64,), T.int32), B: T.Tensor((8,), T.int32)):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8,), T.int32)
            R = T.reshape(S, (8,))
            T.fill(S, 3)
            {statement}
            T.copy(S, B)
    """)["main"]
    A, B = torch.arange(10, 74, dtype=torch.int32), torch.empty(8, dtype=torch.int32)
    tilelang.compile(main, execution_backend="emulate")(A, B)
    assert B.tolist() == wanted
