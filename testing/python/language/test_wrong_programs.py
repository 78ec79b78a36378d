"""What is said about wrong programs: class, message, place, the line of source and a caret."""

import builtins
import linecache
import re
import sys
import textwrap
from pathlib import Path

import pytest

import tilelang
import tilelang.language as T
from tilelang.engine.errors import SharedMemoryError

HEAD = """\
@T.prim_func
def main(A: T.Tensor((8, 16), "float32"), B: T.Tensor((8, 16), "float32"), n: T.int32):
    with T.Kernel(4, threads=128) as bx:
"""
FILE = "kernel.py"


def lower(text):
    """Trace and lower a program as if it stood in kernel.py; return the program's lines."""
    if not text.startswith("@"):
        text = HEAD + textwrap.indent(text, " " * 8) + "\n"
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    names = {"T": T}
    exec(builtins.compile(text, FILE, "exec"), names)
    tilelang.lower(names["main"], target="cuda -arch=sm_80")


def wrong_programs():
    """The mistakes of wrong_programs.txt: a name, the program, all that is said about it.

    A program stands in a kernel of four blocks of 128 threads over A, B: float32[8, 16] and n:
    int32, or is a definition of its own.
    """
    text = Path(__file__).with_name("wrong_programs.txt").read_text()
    for section in text.removeprefix("== ").split("\n== "):
        mistake, program, said = re.fullmatch(
            r"(.*)\n([\s\S]*)\n--\n([\s\S]*?)\n*", section
        ).groups()
        yield pytest.param(program, said, id=mistake)


@pytest.mark.parametrize(("program", "wanted"), list(wrong_programs()))
def test_what_is_said(program, wanted):
    kind = wanted.partition(":")[0]
    with pytest.raises(getattr(builtins, kind, SharedMemoryError)) as raised:
        lower(program)
    said = f"{type(raised.value).__name__}: {raised.value}"
    if sys.version_info < (3, 11):
        # Python does not know the place of an expression yet: the column is the statement's.
        said, wanted = (re.sub(r":\d+\n.*\n.*\^$", "", text) for text in (said, wanted))
    assert said == wanted


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python tells columns from 3.11 on")
def test_tabs_and_wide_characters_keep_the_caret_under_its_column():
    with pytest.raises(IndexError) as raised:
        lower('@T.prim_func\ndef main(A: T.Tensor((8,), "float32")):\n\tß = A[1, 1]\n')
    assert str(raised.value).endswith("kernel.py:3:6\n   | \tß = A[1, 1]\n   | \t    ^")


IN_A_PASS = "S = T.alloc_shared((8,), 'float32')\nfor i in T.serial(9):\n    S[i] = 1"


@pytest.mark.parametrize("program", ["A[0] = 1", IN_A_PASS])
def test_places_can_be_turned_off(monkeypatch, program):
    monkeypatch.setenv("TILELANG_ENABLE_IR_SPAN", "0")
    with pytest.raises((IndexError, ValueError)) as raised:
        lower(program)
    assert "kernel.py" not in str(raised.value)


def test_source_that_cannot_be_read_leaves_the_place():
    assert tilelang._snippet.snippet("gone.py", 3, 5) == "\n  --> gone.py:3:5"


def test_an_unknown_target():
    with pytest.raises(ValueError, match=r"unknown target 'cudaa': expected auto, one of"):
        tilelang.utils.target.determine_target("cudaa")


def test_an_unknown_configuration():
    with pytest.raises(ValueError, match=r"tl\.no_such_option"):
        tilelang.transform.PassContext(config={"tl.no_such_option": True})
