"""The emulator's headers compile alone and without a warning."""

import subprocess

import pytest

from tilelang._paths import device_include_dirs
from tilelang.emulator.compiler import find_compiler

HEADERS = ["common.h", "copy.h", "mma.h", "tma.h", "bulk_copy.h", "warp_group.h", "wgmma_ss.h"]


@pytest.mark.parametrize("header", HEADERS)
def test_header(header, tmp_path):
    source = tmp_path / "header.cc"
    source.write_text(f"#include <tl/{header}>\n")
    flags = ["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    flags.append("-Wno-attributes")  # runtime.h says why
    includes = [f"-I{folder}" for folder in device_include_dirs("emu")]
    subprocess.run([*find_compiler(), *flags, *includes, str(source)], check=True)
