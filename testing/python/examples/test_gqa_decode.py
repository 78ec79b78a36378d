"""Decoding of sequences whose keys blocks share, each of them about as many."""

import importlib.util
import pathlib
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "decode"
LENGTHS = [150, 0, 70, 1]


@pytest.fixture(scope="module")
def example():
    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    names = ("gqa_decode", "gqa_decode_fp8")
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield {name: load(name) for name in names}
    for name in names:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.parametrize(
    ("splits", "options"),
    [
        pytest.param(3, {"dependent": True}, id="a tile each"),
        # Of the first and the third sequence two blocks have work, of the others one or none.
        pytest.param(2, {"least": 2, "page": 64}, id="tiles of two pages"),
        pytest.param(5, {"sinks": True}, id="more blocks than tiles"),
    ],
)
def test_blocks_share_keys(example, monkeypatch, device, splits, options):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    own = example["gqa_decode"]
    assert own.relative_error(LENGTHS, 4, 1, 64, splits, device, **options) < 1e-3


@pytest.mark.parametrize(
    ("splits", "options"), [(1, {}), (2, {"least": 2, "block_N": 128, "dependent": True})]
)
def test_blocks_share_keys_of_8_bits(example, monkeypatch, device, splits, options):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    own = example["gqa_decode_fp8"]
    assert own.relative_error(LENGTHS, 4, 1, 64, splits, device, **options) < 2e-3


def test_shares_are_as_many_as_blocks(example):
    own = example["gqa_decode"]
    for lengths in ([22326, 100, 8000], [493] * 71, [5200, 4292], [122700] * 14, [1], [300] * 400):
        splits, least = own.shares_for(lengths, 2)
        tiles = [-(-length // 64) for length in lengths]
        assert 1 <= splits <= 64
        assert splits * least >= max(tiles) or splits == 1
        blocks = 2 * sum(-(-n // least) for n in tiles)
        assert blocks <= 264 or splits == 1
    # The longest one is shared, the shortest one is not.
    assert own.shares_for([64 * 264, 64], 1) == (53, 5)
