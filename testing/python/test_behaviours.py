"""Each behaviour of behaviours.txt has tests that exist."""

import ast
import functools
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LINES = (HERE / "behaviours.txt").read_text().splitlines()[1:]
ROWS = [line.partition("|") for line in LINES if line and not line.startswith("==")]


@functools.cache
def functions(file):
    tree = ast.parse((HERE / f"{file}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("row", "tests"), [(row.strip(), tests) for row, _, tests in ROWS])
def test_a_behaviour_has_tests(row, tests):
    named = [test.strip() for test in tests.split(",") if test.strip()]
    assert named, f"no test for: {row}"
    for test in named:
        file, _, function = test.partition("::")
        assert f"test_{function}" in functions(file), test


def test_no_row_stands_twice():
    rows = [row.strip() for row, _, _ in ROWS]
    assert len({*rows}) == len(rows)
