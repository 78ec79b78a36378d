"""What a loop or a branch of the program, which is traced once, may do to Python's containers and
objects."""

from collections import deque

import pytest


class Stage:
    """An object of a user's class."""

    def __init__(self):
        self.index = 0
        self.tiles = []

    def advance(self):
        self.index += 1


def add(container, member):
    container.append(member)


def total(container):
    return sum(container)


GLOBAL = [0]
NAMES = {"Stage": Stage, "add": add, "total": total, "deque": deque, "OUTER": GLOBAL}
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
        (STAGE + "c.advance()\nA[0, 0] = c.index", "attribute index of Stage"),
        (STAGE + "setattr(c, 'index', 2)\nA[0, 0] = getattr(c, 'index')", "attribute index"),
        (STAGE + "c.tiles.append(2)\nA[0, 0] = c.tiles[-1]", "a list"),
    ],
)
def test_what_a_loop_or_a_branch_has_changed_is_not_used_after_it(traced, statements, told):
    with pytest.raises(RuntimeError, match=rf"^{told}.*has ended; keep it in a T.alloc_var"):
        traced(statements, **NAMES)


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
        (LIST.replace("c.append", "A[0, i] = c[-1]\n    c.append"), "a list is read in the serial"),
        ("c = deque([1])\nfor i in T.serial(4):\n    A[0, i] = c.popleft()", "a deque"),
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


@pytest.mark.parametrize(
    "statements",
    [
        # Containers and objects that the iteration has made.
        "for i in T.serial(4):\n    c = [i]\n    c.append(2)\n    A[0, i] = c[-1] + len(c)",
        "for i in T.serial(4):\n    c = {'x': [0]}\n    c['x'][0] += i\n    A[0, i] = c['x'][0]",
        "for i in T.serial(4):\n    c = Stage()\n    c.index += i\n    A[0, i] = c.index",
        # Members that the loop did not change, or that are set again behind it.
        LIST + "A[0, 0] = c[0]",
        DICT + "c['x'] = 2\nA[0, 0] = c['x']",
        STAGE + "c.index = i\n    A[0, c.index] = 1\nc.index = 0\nA[0, c.index] = 1",
        # Set, read and set again in one iteration.
        "for i in T.serial(4):\n    OUTER[0] = i\n    A[0, OUTER[0]] = 1\n    OUTER[0] = i + 1",
        # Nobody reads it in the program.
        "for i in T.serial(4):\n    add(OUTER, 'a note')",
        # Python repeats its own loop.
        "c = []\nfor u in [1, 2]:\n    c.append(u)\nA[0, 0] = sum(c) + c[-1]",
    ],
)
def test_what_has_one_value_for_each_iteration_is_accepted(traced, statements):
    GLOBAL[:] = [0]
    traced(statements, **NAMES)
