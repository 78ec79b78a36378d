"""Forms of generated code: what they tell apart, where they are noted, and what is missing."""

import argparse
import subprocess
import sys

import pytest

import tilelang
import tilelang.language as T
from tilelang.testing import forms
from tilelang.testing.forms import Forms, forms_of, merged, missing_on_gpu, report


def registers(dtype, loop, width=1, thread=False):
    """Stores to an array of each thread, by an index of a thread or of a loop."""

    @T.prim_func
    def main(A: T.Tensor((32, 16), dtype), B: T.Tensor((32, 16), dtype)):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            memory = T.alloc_local((16,), dtype)
            T.clear(memory)
            for k in loop(16 // width):
                for v in T.vectorized(width):
                    at = (tx if thread else k) % (16 // width) * width + v
                    memory[at] = T.max(memory[at], A[tx, at])
            for k in T.unroll(16):
                B[tx, k] = memory[k]

    return forms_of(tilelang.lower(main, target="cuda -arch=sm_90a").device_mod)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("float16", T.unroll), "update local half_t [unrolled] by Max"),
        (("float64", T.serial, 2), "update local double x2 [loop] by Max"),
        (("float16", T.serial, 1, True), "update local half_t [thread] by Max"),
        (("bfloat16", T.serial, 1, True), "store local bfloat16_t [thread]"),
        (("int8", T.serial, 4, True), "load local int8_t x4 [thread]"),
        (("int8", T.serial, 8), "max int8_t x8"),
    ],
)
def test_an_index_and_a_type_make_a_form(given, wanted):
    assert wanted in registers(*given)


def test_forms_of_products_and_casts():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    hopper = forms_of(tilelang.lower(main, target="cuda -arch=sm_90a").device_mod)
    ampere = forms_of(tilelang.lower(main, target="cuda -arch=sm_80").device_mod)
    assert any(f.startswith("call tl::wgmma_ss<64, 16, half_t, half_t, float") for f in hopper)
    assert any(f.startswith("call tl::mma_sync<16, 8, 16, half_t, half_t, float>") for f in ampere)
    assert not any("wgmma" in f for f in ampere)
    assert any(f.startswith("cast float x2 -> half_t x2") for f in ampere)


def fill():
    @T.prim_func
    def main(B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            T.fill(B, 3)

    return main


def test_what_is_printed_and_what_runs(tmp_path):
    """In a process of its own, as the watch stays."""
    file = tmp_path / "forms"
    code = (
        "import sys, torch; sys.path.insert(0, sys.argv[2])\n"
        "from tilelang.testing.forms import watch; watch(sys.argv[1])\n"
        "import tilelang, test_forms\n"
        "kernel = tilelang.compile(test_forms.fill(), execution_backend='emulate')\n"
        "print(open(sys.argv[1]).read().count('emulator'))\n"
        "kernel(B=torch.zeros(64))\n"
    )
    folder = __file__.rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-c", code, str(file), folder], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "0"
    found = Forms(file).read()
    assert found["printed"] == found["emulator"] >= {"store global float x2"}
    assert found["cuda"] == set()


def test_forms_that_no_gpu_has_run(tmp_path, monkeypatch):
    for name, lines in {"a": ["printed\tx", "cuda\tx", "printed\ty"], "b": ["printed\tz"]}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    found = merged([tmp_path / "a", tmp_path / "b"])
    assert missing_on_gpu(found, set()) == ["y", "z"]
    assert missing_on_gpu(found, {"z"}) == ["y"]
    monkeypatch.setattr(forms, "REASONS", {"y": "no such GPU"})
    lines = report(found, set()).splitlines()
    assert lines == [
        "3 forms printed, 0 run in the emulator, 1 run on a GPU now, 1 at some time",
        "2 forms that no GPU has run:",
        "  y: no such GPU",
        "  z",
    ]


def test_the_list_of_forms_that_a_gpu_has_run_grows(tmp_path, monkeypatch, capsys):
    (tmp_path / "new").write_text("printed\tx\ncuda\tx\n")
    (tmp_path / "known").write_text("y\n")
    arguments = [str(tmp_path / "new"), "--known", str(tmp_path / "known"), "--update"]
    monkeypatch.setattr(sys, "argv", ["forms", *arguments])
    with pytest.raises(SystemExit) as status:
        forms.main()
    assert not status.value.code
    assert (tmp_path / "known").read_text() == "x\ny\n"


def test_a_folder_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(argparse.ArgumentTypeError, match=r"wanted a file to add to: .*directory"):
        forms.appendable(str(tmp_path))
    assert forms.appendable(str(tmp_path / "new")) == str(tmp_path / "new")
