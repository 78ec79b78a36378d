"""``python -m tilelang.compile`` makes the files of `kernel.export`, on a machine without a GPU."""

import importlib
import pathlib
import subprocess
import sys

import pytest
import torch

import tilelang.runtime
from tilelang.runtime.file import read_kernel

# `tilelang.compile` is the function to who imports it as an attribute.
command = importlib.import_module("tilelang.compile")
ROOT = pathlib.Path(__file__).resolve().parents[2]

PROGRAMS = """
import tilelang
import tilelang.language as T

@tilelang.jit(out_idx=-1)
def scale(columns, factor=2.0, dtype="float32"):
    rows = T.dynamic("rows")
    @T.prim_func
    def scaled(A: T.Tensor((rows, columns), dtype), C: T.Tensor((rows, columns), dtype)):
        with T.Kernel(rows, threads=columns) as row:
            for j in T.Parallel(columns):
                C[row, j] = A[row, j] * factor
    return scaled

@tilelang.jit(target="cuda")
def eager(A, block: int = 64):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=block) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] + 1
    return C

plain = scale.func
program = scale.get_tir(64)
number = 3
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "programs_to_ship.py"
    path.write_text(PROGRAMS)
    return path


def run(file, name, *words):
    return command.main([f"{file}:{name}", *words])


def test_as_a_program_with_a_module(file, tmp_path):
    arguments = ["--arg", "columns=64", "--arg", "dtype=float32", "--arg", "factor=3.0"]
    words = ["programs_to_ship:scale", *arguments, "--arch", "sm_80, sm_90a,emulate"]
    command = [sys.executable, "-m", "tilelang.compile", *words, "-o", tmp_path]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    path = tmp_path / "scaled.tlk"
    size = path.stat().st_size
    assert done.stdout == f"{path}: scaled for sm_80, sm_90a, emulate, {size} bytes\n"
    variants = {variant.arch: variant for variant in read_kernel(path).variants}
    assert [*variants] == ["sm_80", "sm_90a", "emulate"]
    assert len({variant.binary for variant in variants.values()}) == 3
    a = torch.randn(3, 64)
    assert torch.equal(tilelang.runtime.load(path, "emulate")(a), a * 3)


@pytest.mark.parametrize(
    ("name", "words", "wanted"),
    [
        ("eager", ["--arg", "N=128"], lambda a: a.flatten() + 1),
        ("plain", ["--arg", "columns=64", "--out-idx=-1"], lambda a: a * 2),
        ("program", ["--out-idx", "1"], lambda a: a * 2),
    ],
)
def test_what_it_compiles(file, tmp_path, name, words, wanted):
    path = tmp_path / "out.tlk"
    assert run(file, name, *words, "--arch", "emulate,sm_90a", "-o", str(path)) == 0
    a = torch.randn(2, 64)
    kernel = tilelang.runtime.load(path, "emulate")
    assert torch.equal(kernel(a.flatten() if name == "eager" else a), wanted(a))


@pytest.mark.parametrize(
    ("name", "words", "text"),
    [
        ("scale", ["--arch", "hopper"], "architecture 'hopper': expected a name such as sm_90a"),
        ("scale", ["--arch", "sm_90a"], "missing a required argument: 'columns'"),
        ("scale", ["--arch", "sm_90a", "--arg", "rows=3"], "missing a required argument"),
        ("none", ["--arch", "sm_90a"], "has no none"),
        ("number", ["--arch", "sm_90a"], "or a PrimFunc, got int"),
        ("program", ["--arch", "sm_90a", "--arg", "x=1"], "a PrimFunc takes no --arg, got x"),
        ("program", ["--arch", "sm_80,sm_80"], "one architecture"),
    ],
)
def test_mistakes(file, tmp_path, capsys, name, words, text):
    assert run(file, name, *words, "-o", str(tmp_path / "out.tlk")) == 1
    assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["nowhere_at_all:f", "nowhere.py:f", "scale"])
def test_places_that_are_none(name, tmp_path, capsys):
    assert command.main([name, "--arch", "sm_80", "-o", str(tmp_path)]) == 1
    assert name in capsys.readouterr().err


def test_an_argument_that_is_none(capsys):
    with pytest.raises(SystemExit):
        command.main(["a:b", "--arch", "sm_80", "-o", "x", "--arg", "M:4"])
    assert "'M:4': expected NAME=VALUE such as M=4096" in capsys.readouterr().err
