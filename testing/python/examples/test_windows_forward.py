"""Attention with short windows by a schedule: numbers of heads, ends of sequences, and refusals."""

import importlib

import pytest

EXAMPLE = "attention/flash_attention_windows_forward.py"


@pytest.mark.parametrize(
    ("batch", "heads", "key_heads", "length", "window"),
    [(1, 8, 1, 21, 1), (2, 8, 2, 75, 121), (1, 4, 2, 130, 105), (1, 16, 2, 200, 129)],
)
def test_heads_and_windows(example, device, batch, heads, key_heads, length, window):
    """The longest window of each number of heads, sequences of less than a stretch and of several,
    whose blocks take more than one."""
    assert example.relative_error(batch, heads, key_heads, length, 64, window, device) < 2e-3


def test_sums_are_those_of_the_other_program(example, device):
    tensors, _ = example.case(1, 8, 1, 70, 64, device)
    other = importlib.import_module("flash_attention_windows")
    sums = [m.attention(1, 8, 70, 64, 30, 1)(*tensors)[1] for m in (example, other)]
    assert (sums[0] - sums[1]).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("heads", "key_heads", "dim", "window"),
    [(6, 1, 64, 50), (8, 8, 64, 50), (8, 3, 64, 50), (16, 1, 64, 50), (8, 1, 128, 50)],
)
def test_other_heads_are_refused(example, heads, key_heads, dim, window):
    with pytest.raises(ValueError, match=r"flash_attention_windows\.attention takes others"):
        example.attention(1, heads, 64, dim, window, key_heads)


@pytest.mark.parametrize("module", ["flash_attention_windows", "flash_attention_windows_forward"])
def test_a_window_without_keys_is_refused(example, module):
    with pytest.raises(ValueError, match="found a window of 0, wanted at least 1"):
        importlib.import_module(module).attention(1, 8, 64, 64, 0, 1)


@pytest.mark.parametrize(("heads", "window"), [(8, 130), (4, 122), (2, 106)])
def test_longer_windows_are_refused(example, heads, window):
    with pytest.raises(ValueError, match=r"flash_attention_windows\.attention takes others"):
        example.attention(1, heads, 64, 64, window, 1)
