"""The chunk scan by roles: shares that end inside of sequences, short ones, gates, refusals."""

import pytest
import torch

import tilelang

EXAMPLE = "linear_attention/chunk_scan_roles.py"


def rest(example):
    """chunk_scan.py."""
    return example.check.__globals__


def assert_right(example, tensors, blocks):
    found = example.by_roles(*tensors, blocks=blocks)
    for result, wanted in zip(found, rest(example)["reference"](*tensors), strict=True):
        assert (result.double() - wanted).norm() <= 5e-3 * wanted.norm()


def inputs(example, length, heads, d_state, device):
    torch.manual_seed(0)
    return rest(example)["inputs"](length, heads, d_state, device=device)


@pytest.mark.parametrize(
    ("length", "heads", "d_state", "blocks"),
    [
        # Of three groups, each block takes one and a half; the last group has one head.
        (260, 7, 64, 2),
        # A block for each group, of which the first one lacks a head.
        (70, 2, 128, 5),
        # A share of four chunks, where five blocks would have two.
        (200, 6, 64, 5),
        # The last blocks have nothing to do.
        (5, 13, 64, 4),
    ],
)
def test_sizes(example, device, length, heads, d_state, blocks):
    assert_right(example, inputs(example, length, heads, d_state, device), blocks)


@pytest.mark.parametrize("step", [1e-3, 0, 30])
def test_time_steps_at_their_ends(example, device, step):
    """Small factors, no steps, and decays whose inverses are infinite."""
    x, dt, a, b, c = inputs(example, 70, 3, 64, device)
    assert_right(example, (x, dt * step, a * 4, b, c), 1)


def test_no_rows(example, device):
    y, last = example.by_roles(*inputs(example, 0, 4, 64, device))
    assert y.shape == (0, 4, 64)
    assert not last.any()


def test_counts_are_zero_behind_a_launch(example, device):
    """Two launches with the same ones: the second waits for states as the first does."""
    tensors = inputs(example, 70, 9, 64, device)
    x, dt, a, b, c = tensors
    _, scores, y, last = rest(example)["prepare"](*tensors)
    kernel = tilelang.compile(example.chunk_scan_by_roles(9, 2, 64), target=example.HOPPER)
    counts = torch.zeros(3, example.HEADS, dtype=torch.int32, device=device)
    wanted = rest(example)["reference"](*tensors)
    for _ in range(2):
        y.fill_(torch.nan)
        last.fill_(torch.nan)
        kernel(x, dt, a, b, c, scores, y, last, counts)
        assert not counts.any()
        assert (y.double() - wanted[0]).norm() <= 5e-3 * wanted[0].norm()
        assert (last.double() - wanted[1]).norm() <= 5e-3 * wanted[1].norm()


@pytest.mark.parametrize(("d_state", "width"), [(32, 64), (256, 64), (128, 32)])
def test_other_sizes_are_refused(example, d_state, width):
    with pytest.raises(ValueError, match=r"chunk_scan\.forward takes others"):
        example.chunk_scan_by_roles(3, 1, d_state, width)


@pytest.mark.parametrize(("heads", "blocks"), [(0, 1), (3, 0)])
def test_nothing_to_do_is_refused(example, heads, blocks):
    with pytest.raises(ValueError, match="wanted at least one of each"):
        example.chunk_scan_by_roles(heads, blocks)


def test_registers(example, monkeypatch):
    """Of the benchmark's sizes: no product serialised, nothing spilled."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    program = example.chunk_scan_by_roles(640, 132)
    (usage,) = tilelang.compile(program, execution_backend="emulate").resource_usage.values()
    assert usage.advisories == ()
    assert usage.spill_stores == 0
