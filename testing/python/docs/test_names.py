"""The pages about the compiler name files and constants of C++ that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("src", "tilelang", "examples", "benchmark", "testing", "docs")
FILE = re.compile(r"[\w/]+\.(?:cc|h|py|cu|txt)\b")
CONSTANT = re.compile(r"\bk[A-Z]\w+")
# It is what an error message would say about a program of a user's.
OF_USERS = {"kernel.py"}


@pytest.fixture(scope="module")
def files():
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [path.relative_to(ROOT).as_posix() for path in found]


@pytest.fixture(scope="module")
def constants(files):
    sources = [ROOT / name for name in files if name.endswith((".cc", ".h"))]
    return {name for path in sources for name in CONSTANT.findall(path.read_text())}


def quoted(text):
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))


def missing(text, files, constants):
    for code in quoted(text):
        for name in {*FILE.findall(code)} - OF_USERS:
            if not any(f"/{path}".endswith(f"/{name}") for path in files):
                yield name
        yield from {*CONSTANT.findall(code)} - constants


@pytest.mark.parametrize("page", ["design.md", "measurements.md"])
def test_what_a_page_names_exists(page, files, constants):
    assert list(missing((ROOT / "docs" / page).read_text(), files, constants)) == []


def test_a_name_of_nothing_is_found(files, constants):
    text = "`src/op/gemm.h`, `gemm.h`, `mma.h` and `kRewrites`; `none.h`, `op/none.cc`, `kNoSuch`"
    assert list(missing(text, files, constants)) == ["none.h", "op/none.cc", "kNoSuch"]
