"""Gradients of attention with windows in one kernel: windows of a step and less, and refusals."""

import importlib
import pathlib

import pytest
import torch

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "attention"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("flash_attention_windows_backward")


@pytest.mark.parametrize(("heads", "window"), [(32, 1), (32, 3), (8, 15)])
def test_windows_that_are_shorter_than_a_step(example, device, heads, window):
    """A query of a step then misses keys of its own step."""
    assert example.relative_error(1, heads, 1, 21, 64, window, device) < 2e-3


def test_a_sink_that_outweighs_all_keys(example, device):
    """Behind the sequence's end LogSum is 0, and exp(sink - 0) would be infinite."""
    tensors = example.inputs(1, 32, 5, 64, 1, device=device)
    tensors.append(torch.full((32,), 100.0, device=device))
    out, log_sum = example.attention(1, 32, 5, 64, 3, 1)(*tensors)
    gradients = example.backward(tensors, log_sum, torch.ones_like(out), 3)
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(
    ("heads", "key_heads", "dim", "window"),
    [(6, 1, 64, 50), (8, 8, 64, 50), (8, 3, 64, 50), (8, 1, 128, 50), (8, 1, 64, 130)],
)
def test_what_the_walk_has_no_room_for_is_refused(example, heads, key_heads, dim, window):
    with pytest.raises(ValueError, match=r"flash_attention_windows\.backward takes others"):
        example.gradients(1, heads, 64, dim, window, key_heads)
