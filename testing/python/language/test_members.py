"""What a loop or a branch of the program, which is traced once, may do to Python's containers and
objects."""

import array
import functools
import random
from collections import defaultdict, deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tilelang.language as T


class Stage:
    """An object of a user's class."""

    made = 0

    def __init__(self, index=0):
        self.index = index
        self.tiles = []

    def grow(self):
        self.tiles.append(self.index)

    def advance(self):
        self.index += 1

    def count(self):
        self.index += 1
        return self.index

    def restart(self):
        self.index = 7
        return self.index


class Rows(list):
    """A list of a user's class."""

    width = 8


def add(container, member):
    container.append(member)


def total(container):
    return sum(container)


@T.macro
def kept(member, members=[]):  # noqa: B006
    members.append(member)
    return len(members)


GLOBAL = [0]
NAMES = {
    "OUTER": GLOBAL,
    "Rows": Rows,
    "SPACE": SimpleNamespace(x=0),
    "Stage": Stage,
    "add": add,
    "defaultdict": defaultdict,
    "deque": deque,
    "kept": kept,
    "total": total,
}
LIST = "c = [1]\nfor i in T.serial(4):\n    c.append(2)\n"
DICT = "c = {}\nif n > 3:\n    c['x'] = 1\n"
STAGE = "c = Stage()\nfor i in T.serial(4):\n    "


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (LIST + "A[0, 0] = c[-1]", "a list is used after the serial loop at line"),
        (LIST + "A[0, 0] = c[1]", "member 1 of a list"),
        (LIST + "A[0, 0] = len(c)", "a list"),
        (LIST + "A[0, 0] = sum(c)", "a list"),
        (LIST + "A[0, 0] = total(c)", "member 1 of a list"),
        (LIST + "for x in c: A[0, 0] = x", "a list"),
        (LIST + "A[0, 0] = T.max(*[x for x in c])", "a list"),
        (LIST + "A[0, 0] = T.max(*c)", "a list"),
        (LIST + "A[0, 0] = (c + [3])[0]", "a list"),
        (LIST + "a, b = c", "a list"),
        (LIST + "if 2 in c: A[0, 0] = 1", "a list"),
        (LIST + "if c: A[0, 0] = 1", "a list"),
        (LIST + "A[0, 0] = c.pop()", "a list"),
        (LIST.replace("c.append", "add(c, ").replace("(2", "2") + "A[0, 0] = c[-1]", "a list"),
        (
            LIST.replace("for", "push = c.append\nfor").replace("    c.append", "    push")
            + "A[0, 0] = c[-1]",
            "a list",
        ),
        ("for i in T.serial(4):\n    add(OUTER, 1)\nA[0, 0] = OUTER[-1]", "a list"),
        (LIST.replace("2", "i") + "A[0, 0] = c[1]", "member 1 of a list"),
        ("c = [0]\nif A[0, 0] > 3:\n    c[-1] = 5\nA[0, 0] = c[0]", "member 0 of a list"),
        ("c = [0]\nif n > 3:\n    c[0] = 5\nelse:\n    A[0, 0] = c[0]", "member 0 of a list"),
        (DICT + "A[0, 0] = c['x']", "member 'x' of a dict is used after the branch"),
        (DICT + "A[0, 0] = c.get('x', 0)", "member 'x' of a dict"),
        (DICT + "if 'x' in c: A[0, 0] = 1", "a dict"),
        ("c = set()\nif n > 3:\n    c.add(1)\nA[0, 0] = len(c)", "a set"),
        (STAGE + "c.index = 3\nA[0, 0] = c.index", "attribute index of Stage"),
        (STAGE + "setattr(c, 'index', 2)\nA[0, 0] = getattr(c, 'index')", "attribute index"),
        (STAGE + "c.grow()\nA[0, 0] = c.tiles[-1]", "a list"),
        (LIST.replace("[1]", "Rows([1])") + "A[0, 0] = c[-1]", "a Rows"),
        (
            DICT.replace("{}", "defaultdict(int)") + "A[0, 0] = c['x']",
            "member 'x' of a defaultdict",
        ),
        ("if n > 3:\n    SPACE.x = 1\nA[0, 0] = SPACE.x", "attribute x of SimpleNamespace"),
        ("if n > 3:\n    Rows.width = 1\nA[0, 0] = Rows.width", "attribute width of Rows"),
        (STAGE + "c.tiles.append(2)\nA[0, 0] = c.tiles[-1]", "a list"),
    ],
)
def test_what_a_loop_or_a_branch_has_changed_is_not_used_after_it(traced, statements, told):
    with pytest.raises(RuntimeError, match=rf"^{told}.*has ended; keep it in a T.alloc_var"):
        traced(statements, **NAMES)


def test_a_package_is_the_user_s_that_is_named_like_a_library(traced, monkeypatch):
    monkeypatch.setattr(Stage, "__module__", "torch_kernels.stages")
    with pytest.raises(RuntimeError, match=r"^attribute index of Stage"):
        traced(STAGE + "c.index = 3\nA[0, 0] = c.index", **NAMES)


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        ("c = [0]\nfor i in range(4):\n    c[0] += 1", "member 0 of a list"),
        (
            "c = {'x': A[0, 0]}\nfor i in range(4):\n    A[i, 1] = c['x']\n    c['x'] = A[i, 0]",
            "member 'x' of a dict",
        ),
        ("for i in T.serial(4):\n    A[0, i] = OUTER[0]\n    OUTER[0] = i", "member 0 of a list"),
        (STAGE + "c.index += 1", "attribute index of Stage"),
        (STAGE + "A[0, c.index] = 1\n    c.advance()", "attribute index of Stage"),
        (STAGE + "c.advance()", "attribute index of Stage"),
        (LIST.replace("c.append", "A[0, i] = c[-1]\n    c.append"), "a list is read in the serial"),
        ("c = [1, 2]\nfor i in T.serial(2):\n    A[0, i] = c.pop()", "a list"),
        ("c = deque([1])\nfor i in T.serial(4):\n    A[0, i] = c.popleft()", "a deque"),
        ("for i in T.serial(4):\n    OUTER.append(i)\n    A[0, i] = len(OUTER)", "a list"),
        ("c = []\nfor i in T.serial(4):\n    c.append(i)\n    A[0, i] = c[0]", "a list"),
        ("for i in T.serial(4):\n    A[0, 0] = kept(i)", "a list"),
        ("for i in T.serial(4):\n    Stage.made += 1", "attribute made of Stage"),
        ("c = iter([1, 2, 3])\nfor i in T.serial(3):\n    A[0, i] = next(c)", "a list_iterator"),
        ("c = (u for u in (1, 2))\nif n > 3:\n    for u in c: A[0, u] = 1", "a generator"),
        (
            "c = [T.alloc_local((4,), 'float32') for _ in range(2)]\n"
            "for i in T.serial(4):\n    A[0, i] = c[0][i]\n    c[0], c[1] = c[1], c[0]",
            r"member 0 of a list.*buf\[i % 2, j\]",
        ),
    ],
)
def test_what_the_next_iteration_would_not_see_is_refused(traced, statements, told):
    GLOBAL[:] = [0]
    with pytest.raises(RuntimeError, match=f"^{told}"):
        traced(statements, **NAMES)


ARRAYS = {
    "bytearray": lambda: bytearray(4),
    "array": lambda: array.array("i", [0, 0]),
    "ndarray": lambda: np.zeros(2, np.int32),
    "ndarray of objects": lambda: np.array([0, 0], object),
    "Tensor": lambda: torch.zeros(2, dtype=torch.int32),
}


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize(
    ("statements", "told"),
    [
        ("c[0] += 1\n    A[0, i] = int(c[0])", "is read in the serial loop"),
        ("A[0, i] = bump(c)", "is read in the serial loop"),
        ("c[0] = 5\nA[0, 0] = int(c[0])", "is used after the serial loop"),
        ("c[0] = 5\nA[0, 0] = bump(c)", "is used after the serial loop"),
        ("c[0] = 5\nA[0, 0] = sum(c)", "is used after the serial loop"),
    ],
)
def test_arrays_are_followed(traced, kind, statements, told):
    def bump(array):
        array[0] += 1
        return int(array[0])

    name = kind.partition(" ")[0]
    with pytest.raises(RuntimeError, match=f"^the state of {name} {told}"):
        traced(f"c = made()\nfor i in T.serial(4):\n    {statements}", made=ARRAYS[kind], bump=bump)


def counter():
    count, counts, space = 0, [0], SimpleNamespace(count=0)

    def of_variable():
        nonlocal count
        count += 1
        return count

    def of_list():
        counts[0] += 1
        return counts[0]

    def of_attribute():
        space.count += 1
        return space.count

    def of_function():
        of_function.count += 1
        return of_function.count

    of_function.count = 0
    drawn = random.Random(0)
    return {
        "of_variable": of_variable,
        "through_another": lambda: of_variable(),
        "of_module": lambda: of_module(),
        "of_list": of_list,
        "of_attribute": of_attribute,
        "of_function": of_function,
        "of_method": Stage().count,
        "random": lambda: drawn.randint(0, 1000),
        "drawn": drawn.random,
    }


MADE = 0


def of_module():
    global MADE
    MADE += 1
    return MADE


@pytest.mark.parametrize("name", counter())
def test_a_function_that_counts_its_calls_is_refused_in_a_loop(traced, name):
    """It was called once, and each iteration had the same."""
    traced("A[0, 0] = c() + c()", c=counter()[name])
    with pytest.raises(RuntimeError, match="in the serial loop at line"):
        traced("for i in T.serial(4):\n    A[0, i] = c()", c=counter()[name])


def test_the_attribute_of_a_function_is_followed(traced):
    body = "def f(): pass\nf.k = 0\nfor i in T.serial(4):\n    f.k += 1\n    A[0, i] = f.k"
    with pytest.raises(RuntimeError, match=r"^attribute k of .* is read in the serial loop"):
        traced(body)


@pytest.mark.parametrize(
    "statements",
    [
        # Containers and objects that the iteration has made.
        "for i in T.serial(4):\n    c = [i]\n    c.append(2)\n    A[0, i] = c[-1] + len(c)",
        "c = [5]\nfor i in T.serial(4):\n    c.append(i)\n    A[0, i] = c[-1] + c[0]",
        "for i in T.serial(4):\n    c = iter([1, 2])\n    A[0, i] = next(c) + next(c)",
        "for i in T.serial(4):\n    c = {'x': [0]}\n    c['x'][0] += i\n    A[0, i] = c['x'][0]",
        "for i in T.serial(4):\n    c = Stage()\n    c.index += i\n    A[0, i] = c.index",
        "c = []\nfor i in T.serial(4):\n    c.append(i)\n    A[0, i] = c.pop()",
        "c = []\nfor i in T.serial(4):\n    c.clear()\n    c.append(i)\n    A[0, i] = sum(c)",
        # Members that the loop did not change, or that are set again behind it.
        LIST + "A[0, 0] = c[0]",
        DICT + "c['x'] = 2\nA[0, 0] = c['x']",
        STAGE + "c.index = i\n    A[0, c.index] = 1\nc.index = 0\nA[0, c.index] = 1",
        # Set, read and set again in one iteration.
        "for i in T.serial(4):\n    OUTER[0] = i\n    A[0, OUTER[0]] = 1\n    OUTER[0] = i + 1",
        # Arrays that the iteration has made, that nobody changes, or that are the same again.
        "for i in T.serial(4):\n    c = bytearray(2)\n    c[0] += 1\n    A[0, i] = c[0]",
        "c = bytearray(2)\nfor i in T.serial(4):\n    A[0, i] = c[0] + len(c)",
        "c = bytearray(2)\nc[0] = 5\nA[0, 0] = c[0]",
        # An attribute that a method sets before it reads it.
        "c = Stage()\nfor i in T.serial(4):\n    A[0, i] = c.restart()",
        # Nobody reads it in the program.
        "for i in T.serial(4):\n    add(OUTER, 'a note')",
        # Python repeats its own loop.
        "c = []\nfor u in [1, 2]:\n    c.append(u)\nA[0, 0] = sum(c) + c[-1]",
    ],
)
def test_what_has_one_value_for_each_iteration_is_accepted(traced, statements):
    GLOBAL[:] = [0]
    traced(statements, **NAMES)


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("[A[0, k] + 1 for k in range(1)]", "kept[0]"),
        ("list(map(lambda k: A[0, k] + 1, [0]))", "kept[0]"),
        ("dict(x=A[0, 0] + 1)", "kept['x']"),
        ("functools.partial(lambda x, y: x * y, A[0, 0] + 1)", "kept(1)"),
        ("lambda x=A[0, 0] + 1: x", "kept()"),
        ("listed(A)", "kept[0]"),
        ("listed(A)", "kept[1]['x']"),
        ("Stage(A[0, 0] + 1)", "kept.index"),
    ],
)
def test_what_plain_code_keeps_has_the_value_of_then(traced, made, used):
    """It was loaded where it was used, after the store."""
    text = traced(
        f"kept = {made}\nA[0, 0] = 100\nB[0, 0] = {used}",
        functools=functools,
        listed=lambda A: [A[0, 0] + 1, {"x": A[0, 0] + 1}],
        **NAMES,
    )
    bound, _, used = text.partition("A[0, 0] = T.float32(100.0)")
    assert "T.let[T.float32] = A[0, 0]" in bound
    assert "A[0, 0]" not in used
