"""nvcc's options in NVRTC's words."""

import pytest

from tilelang.compat.nvcc_flags import to_nvrtc
from tilelang.cuda.nvrtc import compile_cubin
from tilelang.utils.log import logger

# An option, what NVRTC gets; nothing where the log names it.
OPTIONS = [
    ("-O3", None),
    ("--optimize=2", None),
    ("-lineinfo", []),
    ("--use_fast_math", ["--use_fast_math"]),
    ("-use_fast_math", ["--use_fast_math"]),
    ("-Wno-deprecated-gpu-targets", None),
    ("-Wall", None),
    ("-Werror=all-warnings", None),
    ("-w", ["--disable-warnings"]),
    ("--expt-relaxed-constexpr", None),
    ("--expt-extended-lambda", None),
    ("-Xptxas=-v,--warn-on-spills", ["--ptxas-options=-v", "--ptxas-options=--warn-on-spills"]),
    ("-Xptxas -v", ["--ptxas-options=-v"]),
    ("--ptxas-options -O2,-v", ["--ptxas-options=-O2", "--ptxas-options=-v"]),
    ("-Xcompiler -fPIC", None),
    ("-Xcompiler=-Wall,-O2", None),
    ("-gencode arch=compute_90a,code=sm_90a", None),
    ("-gencode=arch=compute_90a,code=sm_90a", None),
    ("-arch=sm_80", None),
    ("-std=c++20", ["--std=c++20"]),
    ("-std c++20", ["--std=c++20"]),
    ("-std=c++14", None),
    ("-I/usr/share", ["--include-path=/usr/share"]),
    ("-I /usr/share", ["--include-path=/usr/share"]),
    ("-isystem /usr/share", ["--include-path=/usr/share"]),
    ("-DN=3", ["--define-macro=N=3"]),
    ("-D N", ["--define-macro=N"]),
    ("--define-macro=N=3", ["--define-macro=N=3"]),
    ("-UN", ["--undefine-macro=N"]),
    ("--threads 4", None),
    ("--threads=4", None),
    ("-t 0", None),
    ("-maxrregcount=64", ["--maxrregcount=64"]),
    ("-fmad=false", ["--fmad=false"]),
    ("-diag-suppress=177", ["--diag-suppress=177"]),
    ("-g", None),
    ("-lcuda", None),
    ("--shared", None),
    ("--restrict", ["--restrict"]),
]


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(logger, "info", lambda text, *values: lines.append(text % values))
    return lines


@pytest.mark.parametrize(("option", "wanted"), OPTIONS)
@pytest.mark.parametrize("in_one_item", [True, False])
def test_an_option(said, option, wanted, in_one_item):
    assert to_nvrtc([option] if in_one_item else option.split()) == (wanted or [])
    assert [line.partition("no use for ")[2] for line in said] == (
        [] if wanted is not None else [option]
    )


def test_one_line_names_all_that_is_dropped(said):
    assert to_nvrtc(["-O3", "-DN=1", "-Xcompiler", "-fPIC"]) == ["--define-macro=N=1"]
    assert len(said) == 1
    assert "-O3, -Xcompiler -fPIC" in said[0]


def test_what_nvrtc_gets_it_takes():
    flags = [word for option, wanted in OPTIONS if wanted for word in option.split()]
    source = 'extern "C" __global__ void k(int* a) { a[0] = N; }'
    assert compile_cubin(source, "sm_80", ["k"], [*flags, "-D", "N=1"]).cubin


def test_an_option_without_its_value():
    with pytest.raises(ValueError, match="-Xptxas: found no value, wanted -Xptxas=value"):
        to_nvrtc(["-Xptxas"])
