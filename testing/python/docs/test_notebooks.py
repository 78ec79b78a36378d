"""The notebooks run, cell by cell, in the emulator."""

import json
import linecache
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[3] / "docs" / "notebooks").glob("*.ipynb"))


def cells(path):
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    return [c for c in notebook["cells"] if c["cell_type"] == "code"]


def run(path):
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(cells(path)):
        text = "".join(cell["source"])
        file = f"<{path.stem} {number}>"  # functions are traced from their source, as in IPython
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), namespace)


@pytest.fixture(autouse=True)
def emulated(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    # Notebooks set the level of the log, which is the process's.
    monkeypatch.setattr("tilelang.set_log_level", lambda level: None)


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["inspection", "lazy-jit"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path):
    run(path)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_is_kept_without_outputs(path):
    assert all(c["outputs"] == [] and c["execution_count"] is None for c in cells(path))


def test_a_failing_cell_is_found(tmp_path):
    cell = {"cell_type": "code", "source": ["assert False"]}
    path = tmp_path / "bad.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "cells": [cell]}))
    with pytest.raises(AssertionError):
        run(path)
