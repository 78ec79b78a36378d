"""The programs of benchmark/plain.py lower, and its table says what is wrong."""

import importlib
import sys

import pytest
import torch

import tilelang
from tilelang.transform import PassContext

BENCHMARK = "plain"
FAMILIES = ("plain_products", "plain_weights", "plain_attention", "plain_rows")


@pytest.fixture
def plain(benchmark_script):
    return benchmark_script


def lowered(plain, case):
    with PassContext(config=dict(case.pass_configs)):
        return tilelang.lower(case.make(), target=plain.TARGET)


def test_names_differ(plain):
    names = [case.name for case in plain.CASES]
    assert len(names) == len(set(names))
    assert len(names) > 100


@pytest.mark.parametrize(
    "name",
    [
        "GEMM 128x128x32 serial t128",
        "GEMV, a row a thread 128x128 s2 t128",
        "softmax 1 row t256",
        "transpose float16 64x64 t256",
    ],
)
def test_a_program_lowers(plain, name):
    (case,) = [case for case in plain.CASES if case.name == name]
    assert "__global__" in lowered(plain, case).kernel_source


@pytest.mark.parametrize("family", FAMILIES)
def test_all_programs_lower(plain, family):
    cases = list(importlib.import_module(family).cases())
    assert {case.name for case in cases} <= {case.name for case in plain.CASES}
    for case in cases:
        assert "__global__" in lowered(plain, case).kernel_source, case.name


def sums(plain, call):
    """A small case, and torch's call for it."""
    rows = plain.plain_rows
    options = {"M": 8, "N": 32, "block_M": 4, "block_N": 32, "threads": 32, "dtype": "float32"}
    problem = plain.plain_rows.Problem(rows.matrix(8, 32, torch.float32, count=2), call)
    return rows.Plain("sums", problem, rows.add, options)


def test_a_line_of_the_table(plain, device):
    case = sums(plain, torch.add)
    (kernel,) = plain.compile_all([case]).values()
    found = plain.attempt(case, kernel, (1e9, 1e6), device)
    assert found["error"] < 1e-7
    assert found["ratio"] == pytest.approx(found["torch"] / found["ours"])
    # Three matrices of 1024 bytes.
    assert found["of_limit"] == pytest.approx(3 * 1024 / 1e6 / (1e-3 * found["ours"]))
    words = plain.line(case.name, found).split()
    assert words[0] == "sums"
    assert len(words) == 7


def test_what_is_wrong_stands_in_its_line(plain, device):
    case = sums(plain, torch.sub)
    (kernel,) = plain.compile_all([case]).values()
    wrong = plain.attempt(case, kernel, (1e9, 1e6), device)
    assert wrong["failed"].startswith("ValueError: relative error")
    assert wrong["failed"] in plain.line(case.name, wrong)
    refused = plain.attempt(case, KeyError("no kernel"), (1e9, 1e6), device)
    assert refused == {"failed": "KeyError: 'no kernel'"}


def test_a_serial_loop_and_one_of_stages(plain):
    case = importlib.import_module("plain_case")
    assert case.named("x", (1, 2), None, 32) == "x 1x2 serial t32"
    assert case.named("x", (1, 2), 0, 32, "B^T") == "x 1x2 s0 t32 B^T"


def test_the_list_needs_no_gpu(plain, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plain.py", "--list", "--only", "^cumsum"])
    plain.main(plain.CASES, None)
    assert capsys.readouterr().out.split("\n") == [
        "cumsum of 1024, 1 row t128",
        "cumsum of 8192, 1 row t128",
        "",
    ]
    monkeypatch.setattr(sys, "argv", ["plain.py", "--only", "no such program"])
    with pytest.raises(SystemExit, match="no program's name matches"):
        plain.main(plain.CASES, None)
