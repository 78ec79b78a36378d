"""Operands are evaluated from left to right, as in Python, whatever a macro among them does."""

import pytest
import torch

import tilelang

PLAIN = """
def bump(A, by=1):
    A[0] = A[0] + by
    return A[0]

def doubled(A):
    A[0] = A[0] * 2
    return A[1]
"""
STATEMENTS = [
    "A[2] = A[0] + doubled(A)",
    "A[2] = doubled(A) + A[0]",
    "A[2] = A[0] * 3 - (A[1] + bump(A)) * A[0]",
    "A[2] = (A[0] < bump(A)) + 0",
    "A[2] = (A[0] < bump(A) < 20) + 0",
    "A[2] = max(A[0], bump(A))",
    "A[2] = max(bump(A), A[0])",
    "A[bump(A)] = bump(A)",
    "A[bump(A)] = A[0]",
    "A[0] += bump(A)",
    "A[2] += A[0] - bump(A, A[0])",
    "A[0], A[2] = A[0] + bump(A), A[0]",
    "A[2] = pick(A[0] + A[1], bump(A), by=A[0] + bump(A))",
    "A[A[1]] = A[A[1] - 1] + bump(A)",
    "A[2] = pick(*(A[0] + A[1], bump(A)), **{'by': A[0]})",
]


def pick(first, second, by):
    return first * 100 + second * 10 + by


def test_statements_compute_what_python_computes(define):
    names = {"pick": pick}
    exec(PLAIN, names)
    wanted = []
    for statement in STATEMENTS:
        names["A"] = [5, 3, 7] + [0] * 9
        exec(statement, names)
        wanted.append(names["A"])
    program = """
        @T.prim_func
        def main(rows: T.Tensor((count, 12), T.int32)):
            with T.Kernel(1, threads=1):
                A = T.alloc_local((12,), T.int32)
        """
    for i, statement in enumerate(STATEMENTS):
        indent = "\n                "
        program += indent + "T.clear(A)" + indent + "A[0], A[1], A[2] = 5, 3, 7"
        program += indent + statement.replace("max(", "T.max(")
        program += indent + f"for i in range(12):{indent}    rows[{i}, i] = A[i]"
    macros = define(PLAIN.replace("def ", "@T.macro\ndef "))
    main = define(program, pick=pick, count=len(STATEMENTS), **macros)["main"]
    rows = torch.zeros((len(STATEMENTS), 12), dtype=torch.int32)
    tilelang.compile(main, execution_backend="emulate")(rows)
    for statement, row, values in zip(STATEMENTS, rows.tolist(), wanted, strict=True):
        assert row == values, statement


def test_an_atomic_operation_comes_after_what_stands_left_of_it(traced):
    add = "T.atomic_add(n_at[0], 1, return_prev=True)"
    head = "n_at = T.alloc_shared((1,), T.int32)\n"
    text = traced(f"{head}A[0, 0] = n_at[0] + {add}")
    assert "value: T.let[T.int32] = n_at[0]" in text
    text = traced(f"{head}A[0, 0] = {add} + n_at[0]")
    assert "value: T.let[T.int32] = T.tl.fetch_add(" in text
    text = traced(f"{head}A[0, 0] = 0 < {add} < 4")
    assert text.count("fetch_add") == 1


@pytest.mark.parametrize("bound", ["n", "n * 2 - 1", "LIMIT", "-LIMIT"])
def test_what_reads_nothing_may_stand_right_of_an_atomic_operation(traced, bound):
    """`while` took it for a statement that would run once."""
    text = traced(f"while T.atomic_load(A[0, 0]) < {bound}:\n    A[0, 1] = 1", LIMIT=4)
    assert text.startswith("while T.")


@pytest.mark.parametrize("sides", ["{}, 0", "0, {}"])
def test_a_choice_evaluates_a_shuffle_in_any_case(traced, sides):
    """All lanes have to come to it."""
    choice = sides.format("T.shfl_xor(n, 1)")
    text = traced(f"A[0, 0] = T.if_then_else(T.get_lane_idx() > 0, {choice})")
    assert text.startswith("value: T.let[T.int32] = T.tl.shfl_xor_sync(")


def test_what_reads_memory_stands_behind_an_atomic_operation(traced):
    add = "T.atomic_add(n_at[0], 1, return_prev=True)"
    head = "n_at = T.alloc_shared((1,), T.int32)\nv = T.alloc_var(T.int32, 0)\n"
    for right in ("v", "v * n", "n_at[v]", "(n + v)"):
        text = traced(f"{head}A[0, 0] = {add} < {right}")
        assert "value: T.let[T.int32] = T.tl.fetch_add(" in text, right


def test_a_mutable_scalar_is_read_before_a_macro_changes_it(define):
    names = define("""
        @T.macro
        def raise_(x: T.Ref):
            x += 1
            return x

        @T.prim_func
        def main(A: T.Tensor((2,), T.int32)):
            with T.Kernel(1, threads=1):
                v = T.alloc_var(T.int32, 10)
                A[0] = v - raise_(v)
                v += raise_(v)
                A[1] = v
    """)
    values = torch.zeros(2, dtype=torch.int32)
    tilelang.compile(names["main"], execution_backend="emulate")(values)
    assert values.tolist() == [-1, 23]


def test_an_operand_that_stands_alone_stays_an_expression(traced):
    assert traced("A[0, 0] = A[0, 1] + T.exp(B[0, 0])") == ("A[0, 0] = A[0, 1] + T.exp(B[0, 0])\n")


def test_a_place_stays_a_place(traced, define):
    text = traced(
        "S = T.alloc_shared((4, 8), 'float32')\nT.copy(A[n, 0], S, coalesced_width=two(n))",
        two=define("@T.macro\ndef two(i):\n    return 2")["two"],
    )
    assert "[A[n:n + 4, 0:8], S[0:4, 0:8]]" in text


def test_a_place_whose_index_is_shuffled_stays_a_place(traced):
    text = traced("T.atomic_add(A[T.shfl_xor(n, 1), 0], B[0, 0])")
    assert text.startswith("value: T.let[T.int32] = T.tl.shfl_xor_sync(")
    assert "A[value, 0]" in text


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("A[0, 0] = put(B) if n > 1 else 0", "`if` decides"),
        ("A[0, 0] = n > 1 and put(B) > 0", "`and` decides"),
        ("A[0, 0] = n > 1 or put(B) > 0", "`or` decides"),
        ("A[0, 0] = 0 < n < put(B)", "the comparison before decides"),
        ("while n < put(B):\n    A[0, 0] = 1", "the condition of `while` has statements"),
    ],
)
def test_statements_that_the_program_would_have_to_skip(trace, define, statement, what):
    put = define("@T.macro\ndef put(B):\n    B[0, 0] = 1\n    return B[0, 0]")["put"]
    with pytest.raises(NotImplementedError, match=rf"{what}[\s\S]*--> <kernel"):
        trace(statement, put=put)


def test_a_condition_has_what_a_macro_gets_in_place(traced, define):
    """A statement in front of it would run whatever is to the left of it."""
    twice = define("@T.macro\ndef twice(x):\n    return x * 2")["twice"]
    assert traced("A[0, 0] = n > 1 and twice(n + 1) > 4", twice=twice) == (
        'A[0, 0] = T.Cast("float32", n > 1 and (n + 1) * 2 > 4)\n'
    )


def test_stars_among_indices(define):
    """Each member of what a star unpacks is an index, also beside one that is computed."""
    program = """
        @T.macro
        def flip(A, B, at):
            for i in T.Parallel(4):
                B[(*at, i)] = A[(*at, abs(i - 3))] + 1
            T.copy(A[(*at, slice(0, 2))], B[(*at, slice(4, 6))])

        @T.prim_func
        def main(A: T.Tensor((2, 3, 4), T.int32), B: T.Tensor((2, 3, 6), T.int32)):
            with T.Kernel(1, threads=32):
                flip(A, B, (1, 2))
                flip(A, B, [0, 1])
        """
    a, b = torch.arange(24, dtype=torch.int32).reshape(2, 3, 4), torch.zeros(2, 3, 6).int()
    tilelang.compile(define(program)["main"], execution_backend="emulate")(a, b)
    wanted = torch.zeros_like(b)
    for at in ((1, 2), (0, 1)):
        wanted[at] = torch.cat([a[at].flip(0) + 1, a[at][:2]])
    assert torch.equal(b, wanted)


LATER = {
    "a region with a name": "t = A[v : v + 2]\nv = 4\nT.copy(t, B[0:2])",
    "regions in a list": "t = [A[v + 4 : v + 6], A[v : v + 2]]\nv = 4\nT.copy(t[1], B[0:2])",
    "a macro's region": "move(A[v : v + 2], v, B)",
    "a macro's arguments": "both(B, A[v], A[v + 1])",
    "the place of an update": "B[v] += 10 + raise_(v)\nB[0] = B[1] - 1\nB[1] = 12",
}


@pytest.mark.parametrize("form", LATER)
def test_what_changes_later_does_not_count(define, form):
    """It was evaluated where it was used, behind the change."""
    lines = "\n".join(" " * 12 + line for line in LATER[form].splitlines())
    main = define(f"""
    @T.macro
    def move(source, v: T.Ref, B):
        v = 4
        T.copy(source, B[0:2])

    @T.macro
    def both(B, *values):
        B[0], B[1] = 0, 0
        for i, value in enumerate(values):
            B[i] = value

    @T.macro
    def raise_(v: T.Ref):
        v += 1
        return v

    @T.prim_func
    def main(A: T.Tensor((8,), T.int32), B: T.Tensor((8,), T.int32)):
        with T.Kernel(1, threads=1):
            v = T.alloc_var(T.int32, 1)
{lines}
    """)["main"]
    A, B = torch.arange(10, 18, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    tilelang.compile(main, execution_backend="emulate")(A, B)
    assert B.tolist() == [11, 12, 0, 0, 0, 0, 0, 0]


ATOMIC = "T.atomic_add(A[0, 0], 1, return_prev=True)"


@pytest.mark.parametrize(
    "statement",
    [
        "B[0, 0] = {} * 0",
        "B[0, 0] = -({} * 0)",
        "B[0, 0] = T.int32({}) & 0",
        "B[0, 0] = T.Select({} > 1, 0, 0)",
        "B[0, 0] = T.max(T.int32({}), 2147483647)",
        "B[0, 0] = max({} * 0, 3)",
        "B[0, 0] = T.clamp({} * 0, 1, 1)",
        "B[0, T.int32({}) % 1] = 1",
        "x = {} - {} * 0",
        "x = {} ** 0",
        "x = 1 if {} > 3 else 1",
        "x = [{} * 0, 1][1]",
        "x = zero({})",
        "if {} > 3: pass",
        "if {}: pass",
        "{} * 0",
        "for i in range(T.int32({}) * 0): pass",
    ],
)
def test_an_operator_does_not_lose_what_its_operand_does(trace, statement):
    """TVM folds `x * 0`, and drops what decides nothing."""
    program = trace(statement.replace("{}", ATOMIC), zero=lambda x: x * 0)
    lowered = tilelang.lower(program, target="cuda -arch=sm_80", enable_device_compile=False)
    calls = lowered.kernel_source.split('extern "C"')[-1].count("fetch_add")
    assert calls == statement.count("{}")


def test_what_a_condition_does_stays_where_the_program_decides(traced):
    text = traced(f"while {ATOMIC} < 3:\n    pass\nif n > 2 and {ATOMIC} > 1: B[0, 0] = 1")
    assert "while" in text
    assert "x:" not in text
    assert "value:" not in text


@pytest.mark.parametrize(
    "statement",
    [
        "x = n > 2 and T.int32({}) * 0 == 0",
        "x = T.int32({}) * 0 if n > 2 else 1",
        "while T.int32({}) % 1 > 0: pass",
    ],
)
def test_what_cannot_stay_in_a_condition_is_refused(trace, statement):
    with pytest.raises(NotImplementedError, match="loses what a call in it does; call it in a"):
        trace(statement.replace("{}", ATOMIC))
