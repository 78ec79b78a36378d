"""The wheel as a user gets it: built, installed into a clean prefix, used from there.

Dependencies are those of the running environment, which pip finds satisfied, or refuses.
"""

import os
import subprocess
import sys
import sysconfig
import textwrap
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys
from pathlib import Path

import torch

import tilelang
import tilelang.language as T

prefix = Path(sys.prefix).resolve()
assert Path(tilelang.__file__).resolve().is_relative_to(prefix), tilelang.__file__


@T.prim_func
def double(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=32):
        x = T.alloc_shared((64,), "float32")
        T.copy(A, x)
        for i in T.Parallel(64):
            B[i] = x[i] * 2


a = torch.randn(64)
for arch in ("sm_80", "sm_90a"):
    kernel = tilelang.compile(
        double, out_idx=-1, target=f"cuda -arch={arch}", execution_backend="emulate", checks=True
    )
    assert torch.equal(kernel(a), a * 2)
kernel.export("double.tlk", archs=["sm_90a", "emulate"])
assert torch.equal(tilelang.runtime.load("double.tlk")(a), a * 2)
print(tilelang.__version__)
"""


def run(*command, **options):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=3600, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(folder):
    """In the build folder of `make wheel`, whose objects stay valid from one run to the next."""
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    settings = f"--config-settings=build-dir={ROOT / 'build' / 'wheel'}"
    run(*pip, "--quiet", "--wheel-dir", folder, settings, ROOT)
    (found,) = folder.glob("*.whl")
    return found


def make_prefix(folder):
    """A virtual environment with the packages of this one, as links, but for tilelang."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    # venv's own, before Python 3.12, may be too old for torch.
    run(python, "-m", "pip", "uninstall", "--yes", "-q", "setuptools")
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", query).strip())
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith("tilelang") and not (site / package.name).exists():
            (site / package.name).symlink_to(package)
    return python


def environment(home):
    """What a user's shell has, without the variables of this one."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return kept | {"HOME": str(home)}


# One test, so that one process builds.
def test_a_kernel_is_compiled_run_and_shipped(tmp_path):
    wheel = build_wheel(tmp_path)
    assert "-cp310-abi3-linux_" in wheel.name

    python = make_prefix(tmp_path / "a prefix")
    install = [python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", "-q"]
    run(*install, "--force-reinstall", "--no-deps", wheel)
    # With dependencies: nothing can be fetched, so all are there, in versions that fit.
    run(*install, wheel)

    home = tmp_path / "home"
    home.mkdir()
    outside = {"cwd": home, "env": environment(home)}
    (home / "program.py").write_text(textwrap.dedent(PROGRAM))
    printed = run(python, "program.py", **outside)
    assert printed.split()[-1] == (ROOT / "VERSION").read_text().strip()
    for module in ("cache", "compile", "autodd"):
        assert "usage:" in run(python, "-m", f"tilelang.{module}", "--help", **outside)

    run(python, "-m", "pip", "uninstall", "--yes", "-q", "tilelang")
    left = (tmp_path / "a prefix").rglob("tilelang*")
    assert [p for p in left if "__pycache__" not in p.parts] == []
