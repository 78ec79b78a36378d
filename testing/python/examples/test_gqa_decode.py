"""Decoding of sequences whose keys blocks share, each of them about as many."""

import importlib.util
import pathlib
import sys

import pytest
import torch

import tilelang

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


@pytest.fixture(autouse=True)
def unwritten_memory_is_nan():
    """What no block writes must not count."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("splits", "options"),
    [
        pytest.param(3, {"dependent": True}, id="a tile each"),
        pytest.param(3, {"dependent": True, "listed": True}, id="shares of a list"),
        pytest.param(1, {"listed": True, "sinks": True}, id="sequences of a list"),
        pytest.param(2, {"least": 2, "page": 64, "listed": True, "sinks": True}, id="pages"),
        pytest.param(2, {"window": 70, "listed": True}, id="windows of a list"),
        # Of the first sequence a block has two tiles, of the others some have none.
        pytest.param(2, {"early": True, "dependent": True}, id="first tiles early"),
        pytest.param(1, {"early": True, "page": 16, "sinks": True}, id="early, small pages"),
        pytest.param(3, {"early": True, "page": 128}, id="early, large pages"),
        # Of the first and the third sequence two blocks have work, of the others one or none.
        pytest.param(2, {"least": 2, "page": 64}, id="tiles of two pages"),
        pytest.param(5, {"sinks": True}, id="more blocks than tiles"),
        pytest.param(51, {"sinks": True}, id="threads share a channel's results"),
        pytest.param(57, {"listed": True}, id="threads share those of a list"),
    ],
)
def test_blocks_share_keys(example, monkeypatch, device, splits, options):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    own = example["gqa_decode"]
    assert own.relative_error(LENGTHS, 4, 1, 64, splits, device, **options) < 1e-3


@pytest.mark.parametrize(
    ("splits", "options"),
    [
        (1, {}),
        (2, {"least": 2, "block_N": 128, "dependent": True}),
        (3, {"dependent": True, "listed": True}),
        (2, {"dependent": True, "early": True}),
    ],
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
        assert 1 <= splits <= own.MOST_SPLITS
        assert splits * least >= max(tiles) or splits == 1
        blocks = 2 * sum(-(-n // least) for n in tiles)
        assert blocks <= 264 or splits == 1
    # The longest one is shared, the shortest one is not.
    assert own.shares_for([64 * 264, 64], 1) == (132, 2)
    # The second kernel puts no more than so many results together.
    assert own.shares_for([2**20], 1, blocks=2000)[0] <= own.MOST_SPLITS


@pytest.mark.parametrize(("splits", "least", "window"), [(4, 1, None), (3, 2, None), (2, 1, 70)])
def test_a_list_has_each_tile_once_and_long_shares_first(example, splits, least, window):
    lengths = [150, 0, 70, 1, 640]
    found, counts = [], []
    listed = example["gqa_decode"].list_shares(lengths, splits, least, window=window)
    for b, s, share, length in listed.tolist():
        assert length == lengths[b]
        assert 0 <= s < splits
        begin = max(length - window, 0) // 64 if window else 0
        first = begin + s * share
        tiles = range(first, min(first + share, -(-length // 64)))
        found += [(b, tile) for tile in tiles]
        counts.append(len(tiles))
    begins = [max(n - window, 0) // 64 if window else 0 for n in lengths]
    wanted = [(b, t) for b, n in enumerate(lengths) for t in range(begins[b], -(-n // 64))]
    assert sorted(found) == wanted
    assert counts == sorted(counts, reverse=True)
    # A sequence without keys has a share, which writes its result.
    assert sorted({b for b, *_ in listed.tolist()}) == list(range(len(lengths)))


@pytest.mark.parametrize("options", [{"window": 70}, {"listed": True}, {"num_stages": 1}])
def test_a_first_tile_is_early_of_lengths_and_stages(example, options):
    with pytest.raises(ValueError, match="leave early out"):
        example["gqa_decode"].gqa_decode(4, 1, 64, 2, early=True, **options)
    if "window" not in options:
        with pytest.raises(ValueError, match="leave early out"):
            example["gqa_decode_fp8"].gqa_decode_fp8(4, 1, 64, 2, early=True, **options)


def test_values_behind_an_early_share_may_be_anything(example, monkeypatch, device):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    own = example["gqa_decode"]
    tensors = own.inputs([256, 1, 0], 4, 1, 64, device=device)
    wanted = own.reference(*tensors[:5], None)
    # Behind the tile of a sequence's last key.
    for x in tensors[1:3]:
        x[1, 64:] = float("nan")
    kernel = own.gqa_decode(4, 1, 64, 4, early=True)
    assert (kernel(*tensors).double() - wanted).norm() / wanted.norm() < 1e-3


@pytest.mark.skipif(torch.cuda.is_available(), reason="a trap would end the use of the GPU")
@pytest.mark.parametrize("page", [None, 16])
@pytest.mark.parametrize(
    "row",
    [
        pytest.param((-1, 0, 1, 70), id="no sequence in front of the first"),
        pytest.param((2, 0, 1, 70), id="nor behind the last"),
        pytest.param((0, 2, 1, 70), id="more shares than splits"),
        pytest.param((0, -1, 1, 70), id="a negative share"),
        pytest.param((0, 1, 2**31 - 1, 70), id="tiles beyond 32 bits"),
        pytest.param((0, 1, -(2**31), 70), id="less than no tiles"),
        pytest.param((1, 0, 1, 2**31 - 1), id="keys beyond 32 bits"),
        pytest.param((1, 1, 2, 145), id="keys beyond the cache"),
        pytest.param((1, 0, 1, -64), id="less than no keys"),
    ],
)
def test_a_list_that_does_not_fit_the_tensors_ends_the_kernel(example, monkeypatch, page, row):
    """And nothing is accessed beyond a tensor, also by warps that only load."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    own = example["gqa_decode"]
    tensors = list(own.inputs([144, 70], 4, 1, 64, page))
    tensors[4] = own.list_shares([144, 70], 2)
    kernel = own.gqa_decode(4, 1, 64, 2, page, listed=True)
    kernel(*tensors)
    tensors[4][-1] = torch.tensor(row, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="Device assert failed"):
        kernel(*tensors)


def test_a_short_call_reads_its_numbers_in_front_of_its_tiles(example):
    """The length and the scales: ptxas moved loads of ld.global.nc behind the wait for the first
    tile, the last one to the end of the kernel, where nothing hides their latency."""
    tile = {"block_N": 128, "num_stages": 2, "min_blocks": 3, "dependent": True, "early": True}
    program = example["gqa_decode_fp8"].gqa_decode_fp8.get_tir(32, 8, splits=22, **tile)
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    (code,) = (part for part in kernel.sass.split(".text.") if "TRY_ALLOC" in part)
    consumers = code.split("TRY_ALLOC", 1)[1].splitlines()
    loads = [place for place, line in enumerate(consumers) if "LDG" in line]
    waits = [place for place, line in enumerate(consumers) if "SYNCS.PHASECHK" in line]
    assert len(loads) >= 4
    assert max(loads) < min(waits)
