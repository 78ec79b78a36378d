"""The benchmarks' own code: rows are checked, tuned and timed, without a GPU by the wall clock."""

import dataclasses
import importlib
import json
import logging
import math
import os
import pathlib
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool

import pytest
import torch

BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmark"


@pytest.fixture
def common(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    logger = logging.getLogger("tilelang")
    level = logger.level
    yield importlib.import_module("common")
    del sys.modules["common"]
    logger.setLevel(level)  # scripts change it


def row(common, bound):
    gemm = common.example("gemm")
    tile = {"block_M": 32, "block_N": 32, "block_K": 32, "threads": 64}
    return common.Row(
        name="small",
        program=gemm.matmul,
        arguments={"M": 32, "N": 32, "K": 32},
        config={**tile, "num_stages": 1},
        # The second has an extent that the instruction does not have.
        configs=[{**tile, "num_stages": 2}, {**tile, "block_M": 0}],
        inputs=lambda device: gemm.inputs(32, 32, 32, device=device),
        error=lambda ab, found: (common.norm_error(found, gemm.reference(*ab)), bound),
        work=2.0 * 32**3,
        baseline=torch.mm,
    )


def test_a_row_is_tuned_and_measured(common, monkeypatch, device):
    monkeypatch.setattr(common, "ROUNDS", 1)
    found = common.measure(row(common, 1e-3), True, device)
    assert found["error"] < 1e-3
    assert found["ratio"] == pytest.approx(found["ms"]["baseline"] / found["ms"]["ours"])
    assert [len(trial) for trial in found["trials"]] == [4, 4, 3]
    assert "failed" in found["trials"][2]
    assert found["config"] == found["trials"][0]["config"]
    assert found["registers"] > 0
    json.dumps(found)


def test_a_wrong_result_is_not_timed(common, device):
    with pytest.raises(SystemExit, match="relative error"):
        common.measure(row(common, 0.0), False, device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to time on")
def test_without_a_gpu_nothing_is_claimed():
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gemm_fp8.py")], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "found no GPU" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("name", "only"),
    [
        ("gemm_ragged", "^1 x"),
        ("attention_backward", "128 full|64 causal"),
        ("mla_limit", "float16 products( and loads)?$"),
        ("programs", "top_k"),
        ("serving", "^rms$|rope"),
    ],
)
def test_small_sizes_are_emulated(name, only):
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py"), "--emulate", "--only", only],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "relative error" in done.stdout


def test_a_program_that_fails_says_so_in_its_row(common, monkeypatch, capsys, tmp_path):
    """A wrong result and a refused program; the table goes on behind both."""
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    # What `--emulate` sets for the script's process.
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    programs = importlib.import_module("programs")
    good = programs.PROGRAMS["normalise_backward"]()

    def wrong():
        return dataclasses.replace(good, bound=0.0)

    def refused():
        return dataclasses.replace(good, parts=[lambda **_: 1 // 0])

    rows = {"wrong": wrong, "refused": refused, "good": lambda: good}
    monkeypatch.setattr(sys, "argv", ["programs.py", "--emulate"])
    with pytest.raises(SystemExit, match="failed: wrong, refused"):
        programs.main(rows, None)
    lines = [line[43:].strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith("ValueError: at a small size: relative error")
    assert lines[1].startswith("ZeroDivisionError: ")
    assert lines[2].startswith("relative error")


def test_registers_of_programs_need_no_gpu(common, monkeypatch, capsys):
    programs = importlib.import_module("programs")

    def build_here(makers, jobs):
        """Without processes, which would import torch again."""
        return {name: programs.attempt_build(make) for name, make in makers.items()}

    monkeypatch.setattr(programs, "compile_all", build_here)
    # What `--compile-only` sets for the script's process.
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", programs.TARGET)
    monkeypatch.setattr(sys, "argv", ["programs.py", "--compile-only", "--only", "by_hand"])
    programs.main(programs.PROGRAMS, None)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("GEMM")]
    lines, registers, spilled = (int(word) for word in row[43:].split()[:3])
    assert lines > 40
    assert 32 < registers < 255
    assert spilled == 0
    assert row.endswith("M=8192 N=8192 K=8192")


def test_the_limit_of_mla_is_not_one_of_registers(common):
    """Unrolled by NVVM, its loops spilled 6296 bytes."""
    limit = importlib.import_module("mla_limit")
    kernel = limit.products(1, 128, 512, "float16", True)
    assert kernel.n_spills == 0


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("gemm_shapes", [], "24 x 264 x 520 bfloat16"),
        ("tuning_run", ["--configs", "2"], "2 configurations of 64 x 64 x 64 on the emulator"),
        ("tuner_quality", [], "of 1 have a suggestion"),
    ],
    ids=["gemm_shapes", "tuning_run", "tuner_quality"],
)
def test_tuning_is_emulated(name, options, said):
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py"), "--emulate", *options],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_a_second_process_is_measured():
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "shipping.py"), "--only", "second", "--repeat", "1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert [line.partition("  ")[0] for line in done.stdout.splitlines()] == [
        "second process, imports to its first result",
        "second process, imports to a cubin of sm_90a",
    ]


@pytest.mark.usefixtures("common")
def test_a_row_behind_one_that_fails_has_a_new_process():
    apart = importlib.import_module("programs").Apart()
    first = apart.call(os.getpid)
    assert apart.call(os.getpid) == first
    with pytest.raises(ValueError, match=r"domain error|nonnegative"):
        apart.call(math.sqrt, -1)
    second = apart.call(os.getpid)
    assert second != first
    with pytest.raises(BrokenProcessPool):
        apart.call(os._exit, 3)
    assert apart.call(os.getpid) not in (first, second)
    apart.close()
