"""What the compiler and the cost model say of a chip is the same."""

import pathlib
import re

from tilelang.carver.arch.cuda import CUDA

SOURCES = pathlib.Path(__file__).resolve().parents[3] / "src"


def number(path, pattern):
    found = re.findall(pattern, (SOURCES / path).read_text())
    assert len(found) == 1
    return int(found[0])


def test_an_h200_is_one_chip():
    speeds = CUDA("cuda -arch=sm_90a").speeds
    assert number("target/multiprocessors.h", r"kWgmma\) \? (\d+) : 0") == speeds.sms
    assert number("transform/tile/make_persistent.cc", r"kFlop = (\d+)") == speeds.tensor_flop
