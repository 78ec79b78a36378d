"""What `import tilelang` gives, and what it does not load."""

import subprocess
import sys

import pytest
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
        "import sys, torch, tvm; before = set(sys.modules); import tilelang; tilelang.jit; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "tilelang" in loaded
    assert loaded.isdisjoint({"cuda", "cloudpickle", "matplotlib", "pytest", "tqdm"})


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'tilelang' has no attribute 'jitt'"):
        _ = tilelang.jitt
    assert {*tilelang.__all__} <= {*dir(tilelang)}


FIRST = """
import importlib, os, torch, tvm

for name in {names!r}:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
            import tilelang
            from tilelang import env
            assert callable(tilelang.jit), tilelang.jit
            assert callable(tilelang.compile), tilelang.compile
            assert env.TILELANG_VERBOSE in (False, True)
        except BaseException as error:
            print(name, repr(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_any_module_may_be_imported_first():
    """Those that the others import, that import many others, and whose names are taken."""
    names = ["compat.conditions", "compile", "engine.phase", "env", "jit.kernel", "testing"]
    program = FIRST.format(names=[f"tilelang.{name}" for name in names])
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
