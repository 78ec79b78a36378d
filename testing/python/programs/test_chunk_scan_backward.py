"""The gradients of Mamba-2's chunk scan, examples/linear_attention/chunk_scan_backward.py."""

import importlib
import pathlib

import pytest
import torch

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "linear_attention"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("chunk_scan_backward")


def assert_right(example, tensors):
    """A block has both heads of these tensors."""
    d_y = torch.randn_like(tensors[0])
    d_last = torch.randn(2, 64, example.WIDTH, device=d_y.device)
    found = example.backward(*tensors, d_y, d_last, group=2)
    leaves = [t.double().requires_grad_() for t in tensors]
    results = example.reference(*leaves)
    wanted = torch.autograd.grad(results, leaves, (d_y.double(), d_last.double()))
    for name, ours, exact in zip(("x", "dt", "A", "B", "C"), found, wanted, strict=True):
        error = (ours.double() - exact).norm() / exact.norm()
        assert error < 3e-3, f"d{name}"


def test_chunks_and_heads_of_a_block(device, example):
    # Two blocks of heads add to dB and dC, and each has more heads than tiles. Of three chunks the
    # last one has rows behind the end.
    errors = example.relative_errors(2 * example.CHUNK + 11, 6, 64, device=device, group=3)
    for name, error in zip(("x", "dt", "A", "B", "C"), errors, strict=True):
        assert error < 3e-3, f"d{name}"


def test_gradients_of_decays_that_are_nearly_zero(device, example):
    # exp(l[i]) underflows within a chunk, and exp(l[i] - l[j]) with j > i overflows.
    torch.manual_seed(0)
    x, dt, a, b, c = example.inputs(example.CHUNK + 3, 2, 64, device=device)
    assert_right(example, (x, dt, 40 * (a - 1), b, c))


def test_time_steps_of_zero(device, example):
    # Their gradients are not zero, though these rows add nothing to the states.
    torch.manual_seed(0)
    x, dt, a, b, c = example.inputs(70, 2, 64, device=device)
    dt[3:66:3] = 0
    assert_right(example, (x, dt, a, b, c))


def test_no_rows(device, example):
    tensors = example.inputs(0, 2, 64, device=device)
    d_last = torch.ones(2, 64, example.WIDTH, device=device)
    for gradient in example.backward(*tensors, torch.empty_like(tensors[0]), d_last):
        assert not gradient.any()


def test_nothing_is_read_before_it_is_written(device, example):
    # Sums are made by atomic additions: the first kernel clears them.
    torch.manual_seed(0)
    tensors = example.inputs(example.PAIR + 5, 2, 64, device=device)
    d_y, d_last = torch.randn_like(tensors[0]), torch.randn(2, 64, example.WIDTH, device=device)

    def nothing(*shape, device, dtype):
        return torch.full(shape, torch.nan, device=device, dtype=dtype)

    room = example.room_of(tensors[0], tensors[4], 1, nothing)
    results = [torch.full_like(t, torch.nan) for t in tensors[:2]]
    results += [torch.full_like(t, torch.nan, dtype=torch.float32) for t in tensors[2:]]
    example.run(example.kernels_of(2, 1, 2, 64), tensors, d_y, d_last, room, results)
    for ours, wanted in zip(results, example.backward(*tensors, d_y, d_last), strict=True):
        assert (ours - wanted).norm() <= 1e-3 * wanted.norm()


def test_heads_that_groups_do_not_divide(example):
    with pytest.raises(ValueError, match="found 6 heads, wanted a multiple of group, 4"):
        example.weights(6, 4)


def test_other_sizes_are_refused(example):
    with pytest.raises(ValueError, match="found states of 32 by 64, wanted 64 or 128 by 64"):
        example.reverse_scan(2, 1, 32)
