"""The emulator's headers compile alone and without a warning."""

import subprocess

import pytest

from tilelang._paths import device_include_dirs
from tilelang.emulator.compiler import find_compiler

HEADERS = ["common.h", "copy.h", "mma.h", "tma.h", "bulk_copy.h", "warp_group.h", "wgmma_ss.h"]
BUILDS = [*((header, 32) for header in HEADERS), ("common.h", 64), ("reduce.h", 64), ("mfma.h", 64)]


@pytest.mark.parametrize(("header", "warp_threads"), BUILDS)
def test_header(header, warp_threads, tmp_path):
    source = tmp_path / "header.cc"
    source.write_text(f"#include <tl/{header}>\n")
    flags = ["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    flags.append("-Wno-attributes")  # runtime.h says why
    flags.append(f"-DTL_WARP_THREADS={warp_threads}")
    includes = [f"-I{folder}" for folder in device_include_dirs("emu")]
    subprocess.run([*find_compiler(), *flags, *includes, str(source)], check=True)
