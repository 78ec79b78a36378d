"""The emulator's headers compile alone and without a warning."""

import subprocess

import pytest

from tilelang._paths import device_include_dirs
from tilelang.emulator.compiler import find_compiler


@pytest.mark.parametrize("header", ["common.h", "copy.h", "mma.h"])
def test_header(header, tmp_path):
    source = tmp_path / "header.cc"
    source.write_text(f"#include <tl/{header}>\n")
    flags = ["-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    includes = [f"-I{folder}" for folder in device_include_dirs("emu")]
    subprocess.run([*find_compiler(), *flags, *includes, str(source)], check=True)
