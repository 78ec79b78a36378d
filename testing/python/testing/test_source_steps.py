"""Smaller texts of programs."""

import ast

import pytest

from tilelang.testing.source_steps import measure, smaller

PROGRAM = """\
import os

@f(a=1)
@g
def main(x):
    y = 300
    for i in T.Parallel(8):
        with T.ws(0):
            z = x + 2 * y if x else 300
    return [x, y]
"""


def test_each_text_is_smaller_and_comes_once():
    texts = list(smaller(PROGRAM))
    assert len(set(texts)) == len(texts) > 40
    assert all(measure(text) < measure(PROGRAM) for text in texts)


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        ("a()\nb()\nc()\n", "c()\n"),
        ("a()\nb()\nc()\n", "a()\nc()\n"),
        ("def f():\n    a()\n", "def f():\n    pass\n"),
        ("for i, j in x:\n    a(i)\n", "i = 0\nj = 0\na(i)\n"),
        ("if x:\n    a()\nelse:\n    b()\n", "b()\n"),
        ("with x as y:\n    a()\n", "a()\n"),
        ("try:\n    a()\nfinally:\n    b()\n", "a()\n"),
        ("@f\ndef g(): a()", "def g():\n    a()\n"),
        ("a(1, x=2)", "a(1)\n"),
        ("a = [b, c]", "a = [c]\n"),
        ("a = b[c] + 1", "a = b[c]\n"),
        ("a = b[c] + 1", "a = b + 1\n"),
        ("a = b[c] + 1", "a = 0 + 1\n"),
        ("a[b] = c if d else e", "a[b] = c\n"),
        ("a(64, 64, 8)", "a(16, 16, 8)\n"),
        ("a(64, 64, 8)", "a(64, 16, 8)\n"),
    ],
)
def test_steps(program, wanted):
    assert wanted in list(smaller(program))


def test_what_is_stored_to_stays_a_place():
    for text in smaller("a[b + 1] = c\n"):
        ast.parse(text)
