"""What the compiler and the cost model say of a chip is the same."""

import pathlib
import re

from tilelang.carver.arch.cuda import (
    CUDA,
    L2_PORT_BYTES_PER_CLOCK,
    SHARED_BYTES_PER_CLOCK,
)

SOURCES = pathlib.Path(__file__).resolve().parents[3] / "src"


def row():
    """The numbers of an H200, by the compiler."""
    text = (SOURCES / "target/multiprocessors.h").read_text()
    lines = re.sub(r"//.*", "", text[text.index('"sm_90a",') :]).split("}")[0]
    return [float(x) for x in re.findall(r"[\d.]+", lines.partition(",")[2])]


def test_an_h200_is_one_chip():
    speeds = CUDA("cuda -arch=sm_90a").speeds
    multiprocessors, product_bits, _, from_l2, _, of_shared = row()[:6]
    assert multiprocessors == speeds.sms
    # Multiplications and additions of 16 bits.
    assert 2 * product_bits / 16 == speeds.tensor_flop
    assert from_l2 == L2_PORT_BYTES_PER_CLOCK
    assert of_shared == SHARED_BYTES_PER_CLOCK
