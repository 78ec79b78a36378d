"""Building a program for the CPU: cache, compilers, errors."""

import collections
import ctypes
import math
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tilelang._paths import device_root
from tilelang.cache.store import Store
from tilelang.emulator import EmulationError, compiler
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
    source = "#include <tl/common.h>\n#include <tl/exponential.h>\n" + "".join(
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
    assert list(folder.rglob("*.so")) == [module.path]


def test_programs_of_a_process_share_the_compiled_runtime(tmp_path, monkeypatch):
    """It takes a second, and who builds many programs may keep each in a folder of its own. The
    level of the programs is not the runtime's."""
    compiled = []
    run = compiler._Build._run
    monkeypatch.setattr(
        compiler._Build, "_run", lambda self, *words: (compiled.append(words), run(self, *words))
    )
    monkeypatch.setattr(compiler, "_runtimes", {})
    for level in ("0", "1"):
        monkeypatch.setenv("TILELANG_EMULATE_OPTIMIZATION", level)
        build_emulated(SOURCE, NAMES, tmp_path / level)
    assert len([words for words in compiled if "runtime.cc" in str(words)]) == 1


def test_programs_are_built_at_a_level_and_the_runtime_at_its_own(tmp_path, monkeypatch):
    compiled = {}
    run = compiler._Build._run

    def note(self, *words):
        run(self, *words)
        levels = [w for w in map(str, (*self.command, *words)) if w.startswith("-O")]
        if "-c" in words:  # what is linked has no level
            compiled["runtime.cc" if "runtime.cc" in str(words) else "program"] = levels

    monkeypatch.setattr(compiler._Build, "_run", note)
    monkeypatch.setattr(compiler, "_runtimes", {})
    monkeypatch.setenv("TILELANG_EMULATE_OPTIMIZATION", "1")
    build_emulated(SOURCE, NAMES, tmp_path)
    assert compiled == {"runtime.cc": ["-O2"], "program": ["-O1"]}


def test_the_third_program_reads_the_common_header_precompiled(tmp_path, monkeypatch):
    """By g++; a header that it does not accept is not an error, and has no "!" in its list."""
    run, read = subprocess.run, []

    def note(words, **options):
        is_program = "-c" in words and "runtime.cc" not in str(words)
        done = run([*words, "-H"] if is_program else words, **options)
        if is_program:
            read.append("! " in done.stderr and "common.h.gch" in done.stderr)
        return done

    monkeypatch.setattr(subprocess, "run", note)
    monkeypatch.setattr(compiler, "_built", collections.Counter())
    for n in range(4):
        source = SOURCE.replace("*= 2", f"*= {n}")
        module = build_emulated(source, NAMES, tmp_path)
        values = (ctypes.c_int * 1)(7)
        pointer = ctypes.c_void_p(ctypes.addressof(values))
        module.launch("double_kernel", (1, 1, 1), (1, 1, 1), 0, [pointer])
        assert values[0] == 7 * n
    if "Free Software Foundation" in compiler._asked_version(tuple(find_compiler())):
        assert read == [False, False, True, True]


def test_installations_share_no_programs(monkeypatch, tmp_path, built):
    """Reports know the headers of an installation by their place."""
    copy = shutil.copytree(device_root(), tmp_path / "device")
    monkeypatch.setattr("tilelang.emulator.compiler.device_root", lambda: copy)
    folder = shutil.copytree(built[0], tmp_path / "programs")
    assert build_emulated(SOURCE, NAMES, folder).path.parent.name != built[1].path.parent.name


def test_a_failed_build_leaves_nothing_behind(built):
    folder, module = built
    with pytest.raises(RuntimeError, match="other_kernel"):
        build_emulated(SOURCE, ["other_kernel"], folder)
    left = sorted(p.name for p in folder.rglob("*.[cs][uo]"))
    assert left == [module.path.with_suffix(".cu").name, module.path.name]


def test_a_program_that_is_cut_off_is_built_again(tmp_path, built):
    """The loader ends the process for a library that is cut off."""
    folder = shutil.copytree(built[0], tmp_path / "programs")
    path = folder / built[1].path.relative_to(built[0])
    path.write_bytes(path.read_bytes()[:1000])
    assert build_emulated(SOURCE, NAMES, folder).path == path
    assert path.stat().st_size > 1000


def test_a_cache_that_cannot_be_written_to_is_done_without(tmp_path, said):
    file = tmp_path / "file"
    file.write_text("")
    paths = {build_emulated(SOURCE, NAMES, file / "programs").path for _ in range(2)}
    assert len(paths) == 1
    assert paths.pop().is_file()
    (warning,) = said
    assert re.search(r"cannot keep what is compiled in .*TILELANG_CACHE_DIR", warning)


def test_a_program_that_another_process_removes_is_loaded(tmp_path, built, monkeypatch):
    folder = shutil.copytree(built[0], tmp_path / "programs")

    class Removing(Store):
        def get(self, kind, parts):
            entry = super().get(kind, parts)
            if entry is not None and self.root == folder:
                shutil.rmtree(entry.path)
            return entry

    monkeypatch.setattr("tilelang.emulator.compiler.Store", Removing)
    module = build_emulated(SOURCE, NAMES, folder)
    assert folder not in module.path.parents
    assert module.address("set_kernel")


def test_a_program_that_includes_the_users_files_is_built_each_time(tmp_path):
    header = tmp_path / "mine.h"
    source = f'#include <cstdint>\n#include "{header}"\n{SOURCE}'
    for value in (1, 2):
        text = f'extern "C" __attribute__((visibility("default"))) int mine() {{ return {value}; }}'
        header.write_text(text)
        module = build_emulated(source, NAMES, tmp_path / "cache")
        assert module._library.mine() == value


def test_reports_name_a_source_that_stays(tmp_path):
    source = """#include <tl/common.h>
#include <tl/sync.h>
extern "C" __global__ void stuck() { if (threadIdx.x < 32) tl::sync_threads_partial(1, 64); }
"""
    module = build_emulated(source, ["stuck"], tmp_path)
    with pytest.raises(EmulationError) as error:
        module.launch("stuck", (1, 1, 1), (64, 1, 1), 0, [])
    place = re.search(r"wait at (\S+):3 for barrier 1", str(error.value))
    assert place
    assert "stuck" in Path(place[1]).read_text()


def test_a_report_of_any_length(tmp_path):
    """As many rows as there are threads, each with a long name of its file."""
    name = "x" * 3000
    source = f'''#include <tl/common.h>
#include <tl/sync.h>
#line 1 "{name}.py"
extern "C" __global__ void stuck() {{
  if (threadIdx.x % 64 < 32) tl::sync_threads_partial(threadIdx.x / 32 % 16, 1024);
}}
'''
    module = build_emulated(source, ["stuck"], tmp_path)
    with pytest.raises(EmulationError) as error:
        module.launch("stuck", (1, 1, 1), (1024, 1, 1), 0, [])
    rows = str(error.value).splitlines()
    assert sum(f"{name}.py:2 for barrier" in row for row in rows) == 8
    assert all("of 1024 threads have arrived" in row for row in rows if "for barrier" in row)


def test_the_default_cache_is_the_variable(monkeypatch, tmp_path, built):
    copy = shutil.copytree(built[0], tmp_path / "cache")
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(copy))
    assert build_emulated(SOURCE, NAMES).path == copy / built[1].path.relative_to(built[0])


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


def test_a_compiler_is_asked_for_its_version_where_something_is_compiled(monkeypatch, tmp_path):
    told, asked = tmp_path / "told", tmp_path / "asked"
    wrapper = tmp_path / "wrapper++"
    wrapper.write_text(
        f"""#!/bin/sh
if [ "$*" = --version ]; then echo >> {asked}; exec cat {told}; fi
exec {shlex.join(find_compiler())} "$@"
"""
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", str(wrapper))

    def library_of_another_process(source):
        compiler._asked_version.cache_clear()
        return Path(build_emulated(source, NAMES, tmp_path / "cache").path)

    def times_asked():
        return len(asked.read_text().splitlines())

    told.write_text("1")
    first = library_of_another_process(SOURCE)
    assert times_asked() == 1
    assert library_of_another_process(SOURCE) == first
    assert times_asked() == 1
    # Another compiler behind the same wrapper.
    told.write_text("2")
    assert library_of_another_process(SOURCE) == first
    library_of_another_process(SOURCE.replace("*= 2", "*= 3"))
    assert times_asked() == 2
    second = library_of_another_process(SOURCE)
    assert second != first
    assert library_of_another_process(SOURCE) == second
    assert times_asked() == 3


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
