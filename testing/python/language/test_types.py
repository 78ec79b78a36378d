"""Type checkers accept programs as they are written, and still find what is wrong in them."""

import importlib.util
import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(__file__).with_name("typed_programs.py")
EXAMPLES = [*ROOT.glob("examples/*.py"), *ROOT.glob("examples/*/*.py")]
CHECKED = [PROGRAMS, *(path for path in EXAMPLES if path.parent.name not in ("distributed", "cpp"))]
# What a user's own settings would be, but for libraries that take a minute to read. A folder of
# examples may have the name of a file in it.
SETTINGS = """
[mypy]
namespace_packages = False
[mypy-torch.*,tvm.*,tvm_ffi.*,cuda.*,tqdm.*,matplotlib.*,numpy.*]
follow_imports = skip
ignore_missing_imports = True
"""
WRONG = """
import tilelang
import tilelang.language as T

@T.prim_func
def main(A: T.Tensor((8,), T.float32)):
    with T.Kernel(1):
        A[0] = 1

source: int = tilelang.compile(main).get_kernel_source()
vector = T.float16x3
T.Kernel(1, thread=128)
"""


def mypy(directory, *files):
    settings = directory / "mypy.ini"
    settings.write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir"]
    done = subprocess.run(
        [*command, str(ROOT / ".mypy_cache" / "programs"), *map(str, files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    file = tmp_path_factory.mktemp("wrong") / "wrong.py"
    file.write_text(textwrap.dedent(WRONG))
    return file


def test_mypy_accepts_programs(tmp_path):
    pytest.importorskip("mypy")
    status, told = mypy(tmp_path, *CHECKED)
    assert status == 0, told


def test_mypy_finds_mistakes(tmp_path, wrong):
    pytest.importorskip("mypy")
    status, told = mypy(tmp_path, wrong)
    assert status == 1, told
    assert [line.split(":")[1] for line in told.splitlines() if "error:" in line] == [
        "10",
        "11",
        "12",
    ], told


def pyright(directory, *files):
    """Its errors in copies of files, (file, line, text): it reads no others than a project's."""
    program = shutil.which("pyright") or shutil.which("basedpyright")
    if program is None:
        pytest.skip("pyright is not installed")
    for file in files:
        shutil.copy(file, directory)
    settings = directory / "pyrightconfig.json"
    settings.write_text(f'{{"typeCheckingMode": "standard", "extraPaths": ["{ROOT}"]}}')
    done = subprocess.run(
        [program, "--project", str(settings), "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(files)
    return [
        (Path(d["file"]).name, d["range"]["start"]["line"] + 1, d["message"])
        for d in found["generalDiagnostics"]
        if d["severity"] == "error"
    ]


def test_pyright_accepts_programs(tmp_path):
    assert pyright(tmp_path, *CHECKED) == []


def test_pyright_finds_mistakes(tmp_path, wrong):
    found = pyright(tmp_path, wrong)
    assert [line for _, line, _ in found] == [10, 11, 12], found


@pytest.fixture(scope="module")
def programs():
    spec = importlib.util.spec_from_file_location("typed_programs", PROGRAMS)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_programs_run(programs):
    values = torch.tensor([3, 11, 3, 8], dtype=torch.int32)
    counts = torch.zeros(8, dtype=torch.int32)
    strided = torch.zeros(4, 8, dtype=torch.float32)[:, ::2]
    programs.compiled(values, counts, strided, 2.5)
    assert counts.tolist() == torch.bincount(values % 8, minlength=8).tolist()
    assert strided[0, 0] == 2.5
    assert programs.matmul.get_tir(64, 64, 64).attrs["global_symbol"] == "main"
