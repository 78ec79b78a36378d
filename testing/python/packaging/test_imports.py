"""`import tilelang` works wherever Python is started, and in whatever way."""

import importlib.util
import linecache
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
KERNEL = """
import torch
import tilelang
import tilelang.language as T

@tilelang.jit(execution_backend="emulate", target="cuda -arch=sm_90a")
def twice(A):
    A: T.Tensor[[8], T.float32]
    B = T.empty((8,), T.float32)
    with T.Kernel(1, threads=8):
        for i in T.Parallel(8):
            B[i] = A[i] * 2
    return B
"""
CALL = "assert twice(torch.ones(8)).sum() == 16\n"


def run(*arguments: str, **options) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_in_the_root_of_the_checkout(monkeypatch):
    """There Python finds the source tree, where a build has left its libraries."""
    if not os.access(ROOT / "tilelang", os.W_OK):
        pytest.skip("the checkout cannot be written to")
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    others = [p for p in paths if pathlib.Path(p).resolve() != ROOT]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(others))
    program = "import tilelang, sys; tilelang.lower; print(tilelang.__file__)"
    assert run("-c", program, cwd=ROOT).splitlines() == [str(ROOT / "tilelang" / "__init__.py")]


def test_a_build_of_the_package_leaves_its_libraries_in_the_checkout(tmp_path):
    cmake = shutil.which("cmake", path=os.path.dirname(sys.executable))
    if cmake is None:
        pytest.skip("cmake is not installed")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.26)\nproject(test LANGUAGES NONE)\n"
        + "add_executable(made IMPORTED)\n"
        + f"set_target_properties(made PROPERTIES IMPORTED_LOCATION {tmp_path}/made.so)\n"
        + function_of_cmake("install_into_source_tree")
        + "install_into_source_tree(made package/lib)\n"
    )
    (tmp_path / "made.so").write_text("binary")
    for words in (["-S", ".", "-B", "build"], ["--install", "build", "--prefix", "prefix"]):
        subprocess.run([cmake, *words], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "package" / "lib" / "made.so").read_text() == "binary"


def function_of_cmake(name: str) -> str:
    text = (ROOT / "CMakeLists.txt").read_text()
    start = text.index(f"function({name} ")
    return text[start : text.index("endfunction()", start)] + "endfunction()\n"


def test_in_a_notebook(monkeypatch):
    """A cell is compiled under a name of its own; its text is with `linecache`."""
    names = {"__name__": "__main__"}
    for number, cell in enumerate([KERNEL, CALL]):
        name = f"<ipython-input-{number}>"
        lines = cell.splitlines(keepends=True)
        monkeypatch.setitem(linecache.cache, name, (len(cell), None, lines, name))
        exec(compile(cell, name, "exec"), names)


def test_in_a_command_in_threads_and_in_a_forked_process():
    """Two threads import at once, two compile at once, and a child does so after the import."""
    program = """
import os, threading

def together(function):
    failed = []
    def attempt():
        try:
            function()
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=attempt) for _ in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    if failed: raise failed[0]

together(lambda: __import__("tilelang").jit)
"""
    children = """
def call():
    assert twice(torch.ones(8)).sum() == 16

child = os.fork()
if child == 0:
    try:
        call()
    except BaseException as error:
        print(error, flush=True)
        os._exit(1)
    os._exit(0)
together(call)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    run("-c", program + KERNEL + children)


def test_raises_no_error_of_cpp():
    """The first one in a process reads the symbols of all of torch's libraries: 0.7 s."""
    program = """
import sys
import torch

found = []

def trace(frame, event, argument):
    if event == "exception":
        error = argument[1]
        if hasattr(error, "__tvm_ffi_error__") or "object type index" in str(error):
            found.append(f"{frame.f_code.co_filename}:{frame.f_lineno}: {error}")
    return trace

sys.settrace(trace)
import tilelang.language
assert not found, found
try:
    tilelang.tvm.ir.Op.get("none")
except AttributeError:
    pass
assert found  # this trace sees such an error
"""
    run("-c", program)


def test_leaves_tvm_as_its_own_import_does():
    """Operators with the names that they print under, modules, and what finds further ones."""
    state = """
import hashlib, sys
import tvm
names = [(name, tvm.ir.Op.get(name).get_attr("TScriptPrinterName"))
         for name in tvm.ir.Op.list_op_names()]
print(hashlib.md5(repr(sorted(map(str, names))).encode()).hexdigest(), len(names))
print(*sorted(name for name in sys.modules if name.startswith("tvm.")
              and not name.startswith("tvm.runtime.disco.")))
print(tvm.runtime.disco, tvm.ir._ffi_api.GetOp, tvm.ir._ffi_api.RegisterOpAttr)
print(*(type(finder) for finder in sys.meta_path), gc.isenabled())
import tvm.runtime.disco
"""
    found, wanted = (
        run("-c", f"import gc, torch\n{first}\n{state}").splitlines()
        for first in ("import tilelang", "")
    )
    assert found == wanted


def test_of_an_archive(tmp_path, monkeypatch):
    """No system loads compiled libraries from there: that is said, with a repair."""
    archive = shutil.make_archive(str(tmp_path / "site"), "zip", ROOT, "tilelang")
    monkeypatch.setenv("PYTHONPATH", archive)
    command = [sys.executable, "-c", "import tilelang"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"ImportError: tilelang: found {archive}/tilelang, which is in an archive"
    )
    assert last.endswith("Unpack it, and name the folder in PYTHONPATH")


def test_of_a_package_that_cannot_be_written_to(tmp_path, monkeypatch):
    """Nothing is written beside the package: its content is the same after a kernel has run."""
    spec = importlib.util.find_spec("tilelang")
    assert spec is not None
    assert spec.origin is not None
    package = pathlib.Path(spec.origin).parent
    site = tmp_path / "site"
    shutil.copytree(package, site / "tilelang", ignore=shutil.ignore_patterns("__pycache__"))
    if not (package / "device").is_dir():
        # The source tree is under test.
        shutil.copytree(ROOT / "src" / "device", site / "tilelang" / "device")
        shutil.copy(ROOT / "VERSION", site)
    before = sorted(path for path in site.rglob("*"))
    for path in [*before, site]:
        path.chmod(path.stat().st_mode & ~0o222)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    # Nor is there a home to keep kernels in.
    monkeypatch.setenv("TILELANG_CACHE_DIR", "/proc/cache")
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")
    run("-c", f"{KERNEL}assert tilelang.__file__.startswith({str(site)!r})\n{CALL}", cwd=tmp_path)
    assert sorted(path for path in site.rglob("*")) == before
    for path in [site, *before]:
        path.chmod(path.stat().st_mode | 0o200)
