"""What `import tilelang` gives, and what it does not load."""

import subprocess
import sys

import tvm

import tilelang


def test_the_documented_names_are_there():
    assert {name for name in tilelang.__all__ if not hasattr(tilelang, name)} == set()
    assert tilelang.tvm is tvm
    assert tilelang.cdiv(10, 4) == 3
    assert callable(tilelang.jit)
    assert tilelang.__version__[0].isdigit()


def test_what_only_some_programs_need_is_not_loaded():
    code = (
        "import sys, torch, tvm; before = set(sys.modules); import tilelang; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "tilelang" in loaded
    assert loaded.isdisjoint({"cuda", "cloudpickle", "matplotlib", "pytest", "tqdm"})
