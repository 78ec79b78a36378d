"""Schedules of a GEMM at sizes that no tile divides: the same product, however blocks share it."""

import re

import pytest
import torch

import tilelang.language as T

EXAMPLE = "gemm/gemm_any_shape.py"
SIZE = (200, 328, 520)


@pytest.mark.parametrize(
    ("size", "schedule"),
    [
        # Each block has 14 of the steps of all tiles, 9 in a tile.
        pytest.param(SIZE, {"shared_tiles": 6}, id="stream K"),
        # Two tiles are shared, and the blocks have one more each.
        pytest.param(SIZE, {"shared_tiles": 2}, id="stream K and tiles"),
        pytest.param(SIZE, {"cluster": 2, "shared_tiles": 3}, id="clusters that share"),
        # Of three columns of tiles the second cluster has one.
        pytest.param(SIZE, {"cluster": 2, "panel": 1}, id="clusters"),
        pytest.param(SIZE, {"fetch": True, "panel": 1}, id="fetched tiles"),
        pytest.param(SIZE, {"fetch": True, "shared_tiles": 6}, id="fetched shares"),
        # Five steps of each share, of which the last two are behind the end.
        pytest.param(
            (30, 328, 520),
            {"swap": True, "split": 2, "block_N": 32, "block_K": 64, "blocks": 6},
            id="swapped split K",
        ),
        pytest.param(
            (72, 131, 520), {"split": 4, "apart": True, "block_N": 96, "blocks": 8}, id="apart"
        ),
        pytest.param(
            (30, 328, 400),
            {"swap": True, "split": 3, "apart": True, "block_N": 32, "blocks": 9},
            id="apart, swapped",
        ),
        pytest.param(
            (100, 328, 520),
            {"split": 2, "cluster": 2, "block_M": 64, "block_N": 64, "threads": 128, "blocks": 8},
            id="clusters that split K",
        ),
        pytest.param(
            (30, 328, 520),
            {"swap": True, "split": 3, "apart": True, "cluster": 2, "block_N": 16, "blocks": 18},
            id="clusters, apart, swapped",
        ),
        # The third row of tiles has no other one below it.
        pytest.param(
            (300, 130, 136),
            {
                "swap": True,
                "block_M": 64,
                "block_N": 32,
                "threads": 128,
                "cluster": 2,
                "down": True,
            },
            id="clusters below each other",
        ),
        pytest.param(
            (72, 328, 520),
            {"swap": True, "split": 2, "apart": True, "cluster": 2, "down": True, "block_N": 40},
            id="clusters below each other, apart",
        ),
        pytest.param((200, 328, 200), {"block_N": 192, "parts": 3}, id="parts of a tile"),
        # Rows of 88 columns are no multiple of 64 bytes.
        pytest.param(
            (200, 328, 200), {"block_N": 176, "parts": 2, "results": 1}, id="one part at a time"
        ),
        # Rows of an odd number of elements, which TMA takes from copies with whole 16 bytes.
        pytest.param((40, 200, 195), {"padded": True}, id="padded rows"),
        # Such rows of C, and rows of words of 4 bytes, which threads store.
        pytest.param((72, 134, 200), {"parts": 2}, id="a ragged result"),
        pytest.param(
            (21, 131, 195),
            {"padded": True, "swap": True, "block_N": 32},
            id="padded and ragged, swapped",
        ),
    ],
)
def test_schedules(example, monkeypatch, device, size, schedule):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    kernel = example.matmul(*size, T.bfloat16, **schedule)
    assert "warpgroup_reg_dealloc" in kernel.get_kernel_source()
    a, b = example.inputs(*size, device=device)
    counters = example.counters(kernel, device)
    found = kernel(a, b, *counters)
    assert example.relative_error(a, b, found) < torch.finfo(torch.bfloat16).eps
    # A second call finds the counters as the first one did, and adds in the same order.
    assert torch.equal(found, kernel(a, b, *counters))
    assert not any(counter.any() for counter in counters)


@pytest.mark.parametrize(
    ("swap", "down", "common"),
    [(False, False, "A"), (True, False, "B"), (False, True, "B"), (True, True, "A")],
)
def test_a_cluster_loads_the_rows_of_its_tiles_once(example, monkeypatch, swap, down, common):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    source = example.matmul(*SIZE, cluster=2, swap=swap, down=down).get_kernel_source()
    assert re.findall(r"tma_load_multicast<[^>]*>\((\w)_desc", source) == [common]


def test_parts_divide_a_tile(example):
    with pytest.raises(ValueError, match="parts is 5, wanted a divisor of block_N, 48"):
        example.matmul.get_tir(*SIZE, block_N=48, parts=5)


@pytest.mark.parametrize(
    ("size", "schedule", "alone"),
    [
        # One column of tiles: each has rows of A for itself, or its cluster has.
        ((500, 128, 136), {}, ["A"]),
        ((500, 256, 136), {"cluster": 2}, ["A"]),
        ((500, 256, 136), {}, []),
        ((128, 500, 136), {"swap": True}, ["B"]),
        ((100, 100, 520), {"split": 2, "apart": True}, ["A", "B"]),
    ],
)
def test_rows_of_one_tile_alone_are_evicted_first(example, monkeypatch, size, schedule, alone):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    source = example.matmul(*size, **schedule).get_kernel_source()
    first = re.findall(r"tma_load(?:_multicast)?<[^>]*evict_first[^>]*>\((\w)_desc", source)
    assert sorted(first) == alone


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        # Rows begin at all bytes of a word; those behind the last of B are none; behind columns of
        # whole words are elements that threads multiply by themselves.
        pytest.param((3, 13, 1061), T.float8_e4m3fn, id="bytes"),
        pytest.param((8, 9, 1033), T.bfloat16, id="eight rows"),
        pytest.param((1, 8, 7), T.float16, id="no word"),
    ],
)
@pytest.mark.parametrize("by_threads", [8, 16])
def test_few_rows_by_threads(example, monkeypatch, device, size, dtype, by_threads):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_80")
    kernel = example.matmul(*size, dtype, T.float32, by_threads=by_threads)
    a, b = example.inputs(*size, dtype, device)
    assert example.relative_error(a, b, kernel(a, b, *example.counters(kernel, device))) < 1e-6


@pytest.mark.parametrize(
    ("size", "dtype", "split"),
    [((5, 144, 519), T.float8_e4m3fn, 2), ((9, 132, 134), T.bfloat16, 1)],
)
def test_odd_rows_of_weights(example, monkeypatch, device, size, dtype, split):
    """Loaded where they lie; the last tile of them, and the last step, end early."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    block_K = 1024 // T.dtype(dtype).bits
    tile = {"block_N": 16, "block_K": block_K, "threads": 128, "split": split, "stages": 2}
    kernel = example.matmul(*size, dtype, T.float32, odd_rows=True, **tile)
    a, b = example.inputs(*size, dtype, device)
    # Tensor cores keep fewer bits of sums of 8-bit products than float32.
    bound = 1e-2 if dtype == T.float8_e4m3fn else 1e-5
    assert example.relative_error(a, b, kernel(a, b, *example.counters(kernel, device))) < bound


def test_the_model_chooses(example, monkeypatch, device):
    """On whatever chip: here one without TMA, where a few blocks share K."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_80")
    schedule = example.schedule_of(16, 16, 8192)
    assert schedule.split > 1 or schedule.shared_tiles
    a, b = example.inputs(16, 16, 8192, device=device)
    assert example.relative_error(a, b, example.product(a, b)) < torch.finfo(torch.bfloat16).eps
