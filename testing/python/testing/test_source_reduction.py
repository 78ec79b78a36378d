"""Programs that fail, made smaller: runs in processes of their own, the search, the command."""

import re
import sys
from pathlib import Path

import pytest

from tilelang import autodd
from tilelang.testing.source_reduction import Runner, reduce

HERE = Path(__file__).parent
KERNEL = """\
import tilelang, tilelang.language as T

@T.prim_func
def main(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        S = T.alloc_shared((8,), "float32")
        T.copy(A, S)
        S[9] = 1

tilelang.lower(main, target="cuda -arch=sm_90a")
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys; print(sys.argv[1:]); sys.exit('the end')", r"\['-x'\]\nthe end"),
        ("import os; os.write(2, b'seen'); os.kill(os.getpid(), 11)", "^seen"),
        ("print('seen', flush=True)\nwhile True: pass", "^seen"),
        ("import numbered; print(numbered.__file__)", r"numbered\.py"),
        (KERNEL, r"IndexError: index 0 of S is 9, .*program\.py:8:9"),
    ],
    ids=["error", "exit", "crash", "hang", "import", "kernel"],
)
def test_what_a_program_prints(program, printed):
    output = Runner(HERE, ["-x"], seconds=4).output(program)
    assert re.search(printed, output, re.DOTALL)


class Texts(Runner):
    """A program 'prints' itself."""

    def output(self, text):
        return text


def test_the_text_stays_and_what_is_not_needed_goes():
    program = "import a\nfor i in range(100):\n    b(i, 7)\n    if i:\n        bug(c + 1)\nd()\n"
    told = []
    found = reduce(program, "bug(", Texts(HERE), 60, jobs=2, tell=told.append)
    assert found == told[-1] == "bug()\n"


def test_a_program_that_does_not_fail_so_is_refused():
    with pytest.raises(ValueError, match=r"does not print 'other', .* it ends with:\nbug\(\)"):
        reduce("bug()", "other", Texts(HERE), 60)


def test_the_command(tmp_path, monkeypatch, capsys):
    file = tmp_path / "fails.py"
    file.write_text("import os\n# why\nx = [1, 2]\nprint(os.sep)\nprint(x[5])\n")
    arguments = [str(file), "--error", "IndexError: list index", "--jobs", "2", "--timeout", "20"]
    monkeypatch.setattr(sys, "argv", ["autodd", *arguments])
    autodd.main()
    reduced = (tmp_path / "fails_reduced.py").read_text()
    assert reduced == "x = []\nx[1]\n"
    assert "IndexError: list index" in Runner(tmp_path).output(reduced)
    assert "fails_reduced.py: 2 of 5 lines" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["autodd", str(file), "--error", "KeyError"])
    with pytest.raises(SystemExit, match="does not print 'KeyError'"):
        autodd.main()
