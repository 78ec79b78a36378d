"""The compiler's own time, in milliseconds of the processor.

The bounds are a few times what is measured, so that a pass that became slow by its nature fails and
a slow machine does not.
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
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def milliseconds(monkeypatch):
    """Least processor time of three lowerings, the whole and each pass by its name."""

    def measure(func):
        best: dict[str, float] = {}

        def note(name, start):
            best[name] = min(best.get(name, sys.maxsize), 1e3 * (time.process_time() - start))

        def run(mod, passes, dump):
            for make in passes:
                step = make()
                start = time.process_time()
                mod = step(mod)
                note(step.info.name, start)
            return mod

        monkeypatch.setattr(phase, "_run", run)
        for _ in range(3):
            start = time.process_time()
            tilelang.lower(func, target=TARGET)
            note("all", start)
        return best

    return measure


def test_quickstart_gemm_lowers_quickly(milliseconds):
    assert (
        milliseconds(example("quickstart").matmul.get_tir(1024, 1024, 1024, 128, 128, 32))["all"]
        < 75
    )


@pytest.mark.parametrize("threads", [128, 256])
def test_attention_is_inferred_quickly(milliseconds, threads):
    attention = example("flash_attention").flash_attention
    times = milliseconds(attention.get_tir(1, 1, 4096, 128, True, threads=threads))
    assert times[transform.LayoutInference().info.name] < 50
    assert times["all"] < 300
