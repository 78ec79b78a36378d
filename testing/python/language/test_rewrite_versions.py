"""The rewriting of functions means the same under every version of Python that is here."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("rewritten_python.py")
REWRITE = Path(__file__).parents[3] / "tilelang" / "language" / "rewrite.py"


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_rewritten_functions_compute_the_same(version):
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = sys.executable if version == this else shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"no Python {version}")
    done = subprocess.run(
        [python, "-W", "error", "-I", str(SCRIPT), str(REWRITE)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "pyenv: " in done.stderr and done.returncode == 127:
        pytest.skip(f"no Python {version}")
    assert done.returncode == 0, done.stderr
    wanted = 5 if tuple(map(int, version.split("."))) >= (3, 12) else 4
    assert done.stdout == f"{wanted} programs agree\n"
