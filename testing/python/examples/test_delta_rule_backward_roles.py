"""The gradients of the gated delta rule by roles: sizes, gates and beta at their ends, refusals,
registers."""

import pytest
import torch

import tilelang

EXAMPLE = "linear_attention/delta_rule_backward_roles.py"


@pytest.mark.parametrize(
    # Each slot is filled twice; less than a chunk; whole chunks.
    ("heads", "length", "key"),
    [(2, 450, 64), (1, 5, 128), (1, 128, 64)],
)
def test_sizes(gradient_errors, device, heads, length, key):
    found = gradient_errors(heads, length, (key, 128), device=device)
    assert max(found) < 1e-2, found


@pytest.mark.parametrize("gates", [0, 20])
def test_gates_at_their_ends(gradient_errors, device, gates):
    """No decay; decays whose inverses are infinite."""
    gate = -torch.rand(70, 1, device=device) * gates
    found = gradient_errors(1, 70, (64, 128), gate, device=device)
    assert max(found) < 1e-2, found


def test_gates_that_forget_all(gradient_errors, device):
    """As between sequences that are packed behind each other."""
    gate = -torch.rand(140, 1, device=device) / 8
    gate[3], gate[20], gate[64], gate[66], gate[100] = (
        -1e9,
        -torch.inf,
        -torch.inf,
        -1e9,
        -torch.inf,
    )
    found = gradient_errors(1, 140, (64, 128), gate, device=device)
    assert max(found) < 1e-2, found


@pytest.mark.parametrize("value", [0.0, -1e-12, -0.5, 1e-5])
def test_betas_of_any_sign(gradient_errors, device, value):
    beta = torch.rand(140, 1, device=device) * 1.9
    beta[::3] = value
    found = gradient_errors(1, 140, (64, 128), beta=beta, device=device)
    assert max(found) < 1e-2, found


def test_no_rows(example, device):
    kernels = example.kernels_of(1, 64, 64, 128)
    rows = [torch.zeros(0, 1, size, dtype=torch.bfloat16, device=device) for size in (64, 128)]
    gate = torch.zeros(0, 1, device=device)
    found = example.backward(rows[0], *rows, gate, gate, rows[1], kernels)
    assert [x.shape[0] for x in found] == [0] * 5


@pytest.mark.parametrize(("key", "value"), [(32, 128), (192, 128), (128, 64), (64, 256)])
def test_other_sizes_are_refused(example, key, value):
    with pytest.raises(ValueError, match=r"delta_rule_backward\.kernels_of takes others"):
        example.states(1, key, value)


def test_other_chunks_are_refused(example):
    with pytest.raises(ValueError, match="found chunks of 32 rows, wanted 64"):
        example.kernels_of(1, 32)


@pytest.mark.parametrize(("kernel", "spilled"), [("states", 0), ("gradients", 20)])
def test_registers(example, monkeypatch, kernel, spilled):
    """Of the benchmark's sizes: no product serialised, few bytes a thread spilled (20 by NVRTC
    13.5, 12 by 13.0)."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    program = getattr(example, kernel)(256)
    (usage,) = tilelang.compile(program, execution_backend="emulate").resource_usage.values()
    assert usage.advisories == ()
    assert usage.spill_stores <= spilled
