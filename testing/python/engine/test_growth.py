"""Lowering is linear in the program: eight times the program takes about eight times the time.

The time is this thread's, the least of some lowerings. The bound is three times what is linear; a
quadratic step comes to 64. benchmark/growth.py prints the exponents.
"""

import importlib.util
import pathlib
import sys
import time

import pytest

import tilelang

GROWTH = pathlib.Path(__file__).resolve().parents[3] / "benchmark" / "growth.py"
TARGET = {"kind": "cuda", "arch": "sm_90a"}


@pytest.fixture(scope="module")
def growth():
    spec = importlib.util.spec_from_file_location("growth", GROWTH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def least_seconds(program):
    least = sys.maxsize
    for _ in range(2):
        start = time.thread_time()
        tilelang.lower(program, target=TARGET)
        least = min(least, time.thread_time() - start)
    return least


@pytest.mark.parametrize(
    ("axis", "size"),
    [
        ("loops", 8),
        ("fragments", 8),
        ("reductions", 4),
        ("round_trips", 8),
        ("nested_loops", 3),
    ],
)
def test_eight_times_the_program_takes_about_eight_times_the_time(growth, axis, size):
    make = getattr(growth, axis)
    assert least_seconds(make(8 * size)) < 3 * 8 * least_seconds(make(size))
