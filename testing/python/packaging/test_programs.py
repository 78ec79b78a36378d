"""The programs that the README names do what it says."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]


def run(*arguments: str) -> str:
    """What a program prints that is run as by users: its kernels run for longer than g++ does, and
    at the tests' level the quickstart takes three times as long."""
    environment = {n: v for n, v in os.environ.items() if n != "TILELANG_EMULATE_OPTIMIZATION"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart_prints_its_error_and_its_source():
    output = run("examples/quickstart.py", "--source")
    assert "relative error" in output
    assert "__global__" in output
    if not torch.cuda.is_available():
        readme = (ROOT / "README.md").read_text()
        shown = readme[readme.index("#include <tl/") : readme.index("... (--source")]
        assert shown in output, "the README shows another source"


@pytest.mark.parametrize("example", ["reduction/softmax", "norm/rms_norm", "gemm/eager"])
def test_example_checks_itself(example: str):
    assert "roundings off" in run(f"examples/{example}.py")


def test_readme_shows_the_quickstart():
    example = (ROOT / "examples" / "quickstart.py").read_text()
    kernel = example[example.index("@tilelang.jit") : example.index("def relative_error")].strip()
    assert kernel in (ROOT / "README.md").read_text()


def test_benchmark_measures_every_row():
    rows = json.loads(run("benchmark/quickstart.py", "--json", "--repeat", "1"))
    assert len(rows) >= 5
    assert all(row["measured"] >= 0 and row["wanted"] for row in rows)


def test_source_tree_is_not_tested_by_accident(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    # `python -m` puts the current directory, hence the source tree, ahead of the installed package.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "testing/python/packaging"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "source tree" in done.stderr
