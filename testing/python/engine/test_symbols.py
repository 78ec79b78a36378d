"""Symbols that sizes of a call are solved for."""

import itertools

import pytest

from tilelang.engine.symbols import evaluate, solved, variables

N, K = ("var", "n"), ("var", "k")


@pytest.mark.parametrize(
    "expr",
    [
        N,
        ("*", N, 2),
        ("*", 3, N),
        ("+", ("*", N, 4), 3),
        ("-", N, 1),
        ("-", 100, ("*", N, 3)),
        ("*", ("+", N, K), 5),
        ("+", ("*", N, K), K),
        ("+", N, ("*", N, 2)),
        ("-", ("*", 2, N), ("*", 7, N)),
        ("-", ("+", N, K), ("*", N, 3)),
        ("*", ("-", ("*", 5, N), N), 2),
    ],
)
def test_the_solution_is_what_the_expression_was_made_of(expr):
    for n, k in itertools.product((0, 1, 5, 12), (1, 3)):
        extent = evaluate(expr, {"n": n, "k": k})
        solution = solved(expr, "n", ("var", "extent"))
        assert evaluate(solution, {"extent": extent, "k": k}) == n


@pytest.mark.parametrize("operator", ["//", "ceildiv"])
def test_a_quotient_is_of_a_multiple(operator):
    solution = solved(("+", (operator, ("*", N, 3), 4), 1), "n", ("var", "extent"))
    assert [evaluate(solution, {"extent": e}) for e in (1, 4, 7)] == [0, 4, 8]


@pytest.mark.parametrize(
    "expr",
    [
        5,
        K,
        ("%", N, 4),
        ("min", N, 4),
        ("max", K, N),
        ("*", N, N),
        ("-", N, N),
        ("//", 8, N),
        ("+", ("//", N, 2), N),
        ("*", ("+", N, 1), ("+", N, K)),
    ],
)
def test_what_is_not_affine_has_no_solution(expr):
    assert solved(expr, "n", 8) is None


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (("//", ("-", 0, N), 2), -4),
        (("%", ("-", 0, N), 4), 1),
        (("ceildiv", N, 4), 2),
        (("min", N, 3), 3),
        (("max", N, 3), 7),
    ],
)
def test_values(expr, value):
    assert evaluate(expr, {"n": 7}) == value
    assert list(variables(("+", expr, K))) == ["n", "k"]
