"""The compiler's own time, as a multiple of what a fixed piece of Python takes beside it.

Both are slow on a slow machine, and on a loaded one. The bounds are a few times what is measured,
so that only a pass that became slow by its nature fails; benchmark/compile_time.py prints times.
"""

import importlib.util
import pathlib
import sys
import time

import pytest

import tilelang
from tilelang import transform
from tilelang.engine import phase

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
TARGET = {"kind": "cuda", "arch": "sm_90a"}


def example(name):
    (file,) = EXAMPLES.glob(f"**/{name}.py")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def work_of_python():
    """Takes 8 ms where lowering the GEMM of the quickstart takes 24."""
    sorted(str(i) for i in range(100000))


@pytest.fixture
def times(monkeypatch):
    """Least time of this thread in three lowerings, the whole and each pass by its name, over the
    time of `work_of_python`."""

    def measure(func):
        best: dict[str, float] = {}

        def note(name, start):
            best[name] = min(best.get(name, sys.maxsize), time.thread_time() - start)

        def run(mod, passes, dump, lowered=False):
            for make in passes:
                step = make()
                start = time.thread_time()
                mod = step(mod)
                note(step.info.name, start)
            return mod

        monkeypatch.setattr(phase, "_run", run)
        for _ in range(3):
            start = time.thread_time()
            tilelang.lower(func, target=TARGET)
            note("all", start)
            start = time.thread_time()
            work_of_python()
            note("unit", start)
        return {name: seconds / best["unit"] for name, seconds in best.items()}

    return measure


def test_quickstart_gemm_lowers_quickly(times):
    func = example("quickstart").matmul.get_tir(1024, 1024, 1024, 128, 128, 32)
    assert times(func)["all"] < 10


@pytest.mark.parametrize("threads", [128, 256])
def test_attention_is_inferred_quickly(times, threads):
    attention = example("flash_attention").flash_attention
    found = times(attention.get_tir(1, 1, 4096, 128, True, threads=threads))
    assert found[transform.LayoutInference().info.name] < 12
    assert found["all"] < 35
