"""What the installed package consists of and what it asks of the machine."""

import ast
import importlib.metadata
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Distributions that are not called as their module is, and those that no Python of ours imports.
MODULE_OF = {"apache-tvm": "tvm", "apache-tvm-ffi": "tvm_ffi", "cuda-bindings": "cuda"}
# A library that cuda-bindings loads, programs, and an executor that the user makes.
NOT_IMPORTED = {"nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm", "ziglang", "distributed"}
ONLY_FOR_TESTS = {"pytest"}  # tilelang.testing imports it where it is used


@pytest.fixture
def package() -> pathlib.Path:
    spec = importlib.util.find_spec("tilelang")
    assert spec is not None
    assert spec.origin is not None
    return pathlib.Path(spec.origin).parent


@pytest.fixture
def installed(package: pathlib.Path) -> importlib.metadata.Distribution:
    if package == ROOT / "tilelang":
        pytest.skip("the source tree is under test, which is no distribution")
    return importlib.metadata.distribution("tilelang")


def required(distribution: importlib.metadata.Distribution) -> set[str]:
    """What the package needs, always or for one of its extras."""
    others = "extra == .(dev|docs|browser)"  # tools of the tests and pages
    lines = [r for r in distribution.requires or [] if not re.search(others, r)]
    return {re.split(r"[^\w-]", line, maxsplit=1)[0] for line in lines}


def imported_modules(package: pathlib.Path) -> set[str]:
    found = set()
    for path in [*package.rglob("*.py"), *package.rglob("*.pyi")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"tilelang", "__future__"}


def test_a_source_tree_that_is_not_built_says_so(tmp_path):
    shutil.copytree(
        ROOT / "tilelang",
        tmp_path / "tilelang",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    done = subprocess.run(
        [sys.executable, "-c", "import tilelang"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: tilelang: found {tmp_path / 'tilelang'}, which has no ")
    assert last.endswith("another directory, or build the source tree by `make dev`")


def test_what_is_imported_is_what_is_required(installed, package):
    names = required(installed) - NOT_IMPORTED
    modules = imported_modules(package) - ONLY_FOR_TESTS
    assert {MODULE_OF.get(name, name) for name in names} == modules


def test_one_wheel_serves_every_python(installed, package):
    assert "Tag: cp310-abi3-linux_" in (installed.read_text("WHEEL") or "")
    assert [p.name for p in package.rglob("_adapter*.so")] == ["_adapter.abi3.so"]


def test_version_is_written_once(installed):
    import tilelang

    assert tilelang.__version__ == installed.version == (ROOT / "VERSION").read_text().strip()


def test_type_hints_are_announced(package):
    assert (package / "py.typed").is_file()


def test_headers_are_shipped(installed, package):
    def headers(folder: pathlib.Path) -> dict[str, bytes]:
        files = (p for p in folder.rglob("*") if p.is_file())
        return {str(p.relative_to(folder)): p.read_bytes() for p in files}

    assert headers(package / "device") == headers(ROOT / "src" / "device") != {}
    assert headers(package / "include") == headers(ROOT / "src" / "runtime") != {}


def test_library_links_nothing_but_tvm_ffi_and_the_c_runtime(package):
    library = package / "lib" / "libtilelang.so"
    text = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"NEEDED.*\[(.+)\]", text.stdout))
    runtime = {"libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6", "libpthread.so.0"}
    assert "libtvm_ffi.so" in needed
    assert {n for n in needed if not n.startswith("ld-linux")} <= runtime | {"libtvm_ffi.so"}


def test_build_does_not_need_torch():
    text = (ROOT / "pyproject.toml").read_text()
    build = text[: text.index("[project]")]
    assert "apache-tvm-ffi" in build
    assert "torch>" not in build
    assert '"torch' not in build


def test_every_outside_package_has_its_row():
    rows = (ROOT / "3rdparty" / "README.md").read_text()
    text = (ROOT / "pyproject.toml").read_text()
    named = set(re.findall(r'^  "([\w-]+)', text, re.MULTILINE)) - {"Operating", "Programming"}
    assert {"torch", "ruff", "cython"} <= named
    assert {name for name in named if f"`{name}`" not in rows} == set()
