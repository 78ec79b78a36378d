"""Routing of tokens to experts, examples/moe/routing.py, on two architectures."""

import pathlib
import runpy

import pytest
import torch

import tilelang

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "moe"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return runpy.run_path(str(EXAMPLES / "routing.py"))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, example, arch):
    groups, per_group, best_groups, k, length = 4, 8, 2, 3, 21
    kernel = tilelang.compile(
        example["route"](groups, per_group, best_groups, k),
        execution_backend="auto",
        target=f"cuda -arch={arch}",
    )
    logits = torch.randn(length, groups * per_group, device=device)
    bias = torch.randn(groups * per_group, device=device) / 4
    weights = torch.full((length, k), torch.nan, device=device)
    experts = torch.full((length, k), -1, dtype=torch.int32, device=device)
    kernel(logits, bias, weights, experts)
    wanted, order = example["reference"](logits, bias, groups, best_groups, k)
    assert torch.equal(experts.long(), order)
    torch.testing.assert_close(weights.double(), wanted, rtol=1e-5, atol=1e-6)
