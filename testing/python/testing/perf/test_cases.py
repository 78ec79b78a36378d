import pathlib
import runpy
import subprocess
import sys

import pytest

from tilelang.testing import regression
from tilelang.testing.perf import cases
from tilelang.testing.perf.cases import Case, discover


def write(folder, name, text):
    (folder / name).write_text("from tilelang.testing import process_func, regression\n" + text)


def test_files_register_in_their_text_and_in_functions(tmp_path):
    write(tmp_path, "regression_b.py", "import helper\nprocess_func(helper.run, n=3)\n")
    write(tmp_path, "helper.py", "def run(n): return n\n")
    write(
        tmp_path,
        "regression_a.py",
        "def regression_one(): process_func(lambda: 1.0, 'one')\ndef other(): 1 / 0\n",
    )
    found = discover(tmp_path)
    assert [case.name for case in found] == ["a: one", "b: run"]
    kernel, prepare = found[1].make()
    assert kernel is None
    assert prepare("cpu")() == 3
    assert [case.name for case in discover(tmp_path)] == ["a: one", "b: run"]


def test_names_are_told_apart(tmp_path):
    write(tmp_path, "regression_a.py", "process_func(len)\nprocess_func(len)\n")
    with pytest.raises(ValueError, match=r"two cases are called 'a: len'"):
        discover(tmp_path)


def test_a_folder_without_cases(tmp_path):
    with pytest.raises(ValueError, match=r"found no case in .*regression_\*\.py"):
        discover(tmp_path)


def test_what_is_no_kernel_and_no_time():
    with pytest.raises(TypeError, match="case 'text': found str, wanted a kernel"):
        Case("text", lambda: "fast", {}).make()


def test_a_pair_has_its_own_call():
    kernel, prepare = Case("pair", lambda: ("kernel", lambda device: device.upper), {}).make()
    assert kernel == "kernel"
    assert prepare("cpu")() == "CPU"


TWO = (
    "def regression_times():\n"
    "    process_func(lambda: 1.5, 'half')\n"
    "    process_func(lambda: 1 / 0, 'none')\n"
    "if __name__ == '__main__':\n"
    "    regression()\n"
)
SAID = ["some: half: 1.5000 ms", "some: none: failed: ZeroDivisionError: division by zero"]


def test_a_file_and_a_folder_run_their_cases(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cases, "_cases", {})
    write(tmp_path, "regression_some.py", TWO)
    with pytest.raises(SystemExit, match="1 of 2 cases failed"):
        runpy.run_path(str(tmp_path / "regression_some.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == SAID
    with pytest.raises(SystemExit, match="1 of 2 cases failed"):
        regression(tmp_path)
    assert capsys.readouterr().out.splitlines() == SAID


BENCHMARK = pathlib.Path(__file__).resolve().parents[4] / "benchmark"
WITH_A_GPU = """
import torch
def initialise(*_): raise RuntimeError("found a case that uses the GPU before it is asked to")
torch.cuda.is_available = lambda: True
torch.cuda._lazy_init = initialise
import pathlib, sys
from tilelang.testing.perf.cases import discover
print(len(discover(pathlib.Path(sys.argv[1]))))
"""


def test_the_rows_of_the_benchmarks_leave_the_gpu_alone():
    """A fork cannot use a GPU that its parent has used: a bot on a GPU then compares nothing."""
    found = subprocess.run(
        [sys.executable, "-c", WITH_A_GPU, BENCHMARK], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert int(found.stdout.split()[-1]) > 50
