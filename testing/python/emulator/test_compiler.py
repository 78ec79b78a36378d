"""Building a program for the CPU: cache, compilers, errors."""

import ctypes
import math
import os
import shutil
import subprocess

import pytest

from tilelang._paths import device_root
from tilelang.emulator.compiler import build_emulated, find_compiler

SOURCE = """#include <tl/common.h>
extern "C" __global__ void set_kernel(int* out, int value) { out[threadIdx.x] = value; }
extern "C" __global__ void double_kernel(int* out) { out[threadIdx.x] *= 2; }
"""
NAMES = ["set_kernel", "double_kernel"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("emulator")
    return folder, build_emulated(SOURCE, NAMES, folder)


def test_kernels_of_one_program(built):
    _, module = built
    out = (ctypes.c_int * 4)()
    pointer = ctypes.c_void_p(ctypes.addressof(out))
    module.launch("set_kernel", (1, 1, 1), (4, 1, 1), 0, [pointer, ctypes.c_int(21)])
    module.launch("double_kernel", (1, 1, 1), (3, 1, 1), 0, [pointer])
    assert list(out) == [42, 42, 42, 21]


def test_kernels_may_be_called_like_functions_of_c(tmp_path):
    names = ["exp", "read", "main", "memcpy"]
    source = "#include <tl/common.h>\n" + "".join(
        f'extern "C" __global__ void __launch_bounds__(4) {name}(float* out) '
        f"{{ out[threadIdx.x] = tl::exp(float(threadIdx.x)) * {factor}; }}\n"
        for factor, name in enumerate(names, 1)
    )
    module = build_emulated(source, names, tmp_path)
    for factor, name in enumerate(names, 1):
        out = (ctypes.c_float * 4)()
        pointer = ctypes.c_void_p(ctypes.addressof(out))
        module.launch(name, (1, 1, 1), (4, 1, 1), 0, [pointer])
        assert list(out) == pytest.approx([math.exp(i) * factor for i in range(4)])


def test_the_address_is_that_of_the_launcher(built):
    _, module = built
    addresses = {module.address(name) for name in NAMES}
    assert len(addresses) == 2
    with pytest.raises(AttributeError):
        module.address("other_kernel")


def test_a_built_program_is_taken_from_the_cache(built):
    folder, module = built
    before = module.path.stat().st_mtime_ns
    again = build_emulated(SOURCE, NAMES, folder).path
    assert again == module.path
    assert again.stat().st_mtime_ns == before
    assert [p.name for p in folder.glob("*.so")] == [module.path.name]


def test_installations_share_no_programs(monkeypatch, tmp_path, built):
    """Reports know the headers of an installation by their place."""
    copy = shutil.copytree(device_root(), tmp_path / "device")
    monkeypatch.setattr("tilelang.emulator.compiler.device_root", lambda: copy)
    folder = shutil.copytree(built[0], tmp_path / "programs")
    assert build_emulated(SOURCE, NAMES, folder).path.name != built[1].path.name


def test_a_failed_build_leaves_nothing_behind(built):
    folder, module = built
    with pytest.raises(RuntimeError, match="other_kernel"):
        build_emulated(SOURCE, ["other_kernel"], folder)
    assert [p.name for p in folder.iterdir() if p.suffix != ".o"] == [module.path.name]


def test_the_default_cache_is_under_the_variable(monkeypatch, tmp_path, built):
    _, module = built
    (tmp_path / "emulator").mkdir()
    copy = tmp_path / "emulator" / module.path.name
    copy.write_bytes(module.path.read_bytes())
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))
    assert build_emulated(SOURCE, NAMES).path == copy


def test_a_compile_error_has_the_line_and_the_command(tmp_path):
    source = '#line 7 "user.py"\nextern "C" void k() { undefined(); }\n'
    with pytest.raises(RuntimeError) as error:
        build_emulated(source, [], tmp_path)
    assert "user.py:7:" in str(error.value)
    assert "-std=c++17" in str(error.value)


def test_a_build_that_takes_too_long_is_given_up(monkeypatch, tmp_path):
    monkeypatch.setenv("TILELANG_COMPILE_TIMEOUT_SECONDS", "0.001")
    with pytest.raises(RuntimeError, match=r"more than 0.001 s, which TILELANG_COMPILE_TIMEOUT"):
        build_emulated(SOURCE, NAMES, tmp_path)


def test_the_compiler_is_asked_for_or_found(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "")
    (found,) = find_compiler()
    assert os.access(found, os.X_OK)
    monkeypatch.setenv("CXX", f"{found} -DNDEBUG")
    assert find_compiler() == [found, "-DNDEBUG"]
    subprocess.run([*find_compiler(), "--version"], check=True, capture_output=True)


@pytest.mark.parametrize("cxx", ["", "no-such-compiler"])
def test_no_compiler_is_an_error_that_says_what_to_do(monkeypatch, tmp_path, cxx):
    monkeypatch.setenv("CXX", cxx)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"is not in PATH\. Install one"):
        build_emulated(SOURCE, NAMES, tmp_path)


def test_a_broken_compiler_is_an_error(monkeypatch, tmp_path):
    broken = tmp_path / "broken++"
    broken.write_text("#!/bin/sh\necho no licence >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(RuntimeError, match="--version` fails: no licence"):
        build_emulated(SOURCE, NAMES, tmp_path)
