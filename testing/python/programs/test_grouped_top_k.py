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
@pytest.mark.parametrize(
    ("groups", "per_group", "best_groups", "k"),
    [pytest.param(4, 8, 2, 3, id="even"), pytest.param(3, 5, 2, 10, id="odd")],
)
def test_results(device, example, groups, per_group, best_groups, k, arch):
    length = 21
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


def test_equal_scores(device, example):
    """Of equal ones the first expert comes first, as of groups. A thread scores several groups."""
    groups, per_group, best_groups, k, length = 8, 12, 3, 9, 24
    route = example["route"](groups, per_group, best_groups, k, tokens=16, threads=64)
    kernel = tilelang.compile(route)
    logits = torch.randint(-1, 2, (length, groups * per_group), device=device).float()
    weights = torch.empty(length, k, device=device)
    experts = torch.empty(length, k, dtype=torch.int32, device=device)
    kernel(logits, torch.zeros(groups * per_group, device=device), weights, experts)

    def order(values):
        return values.sort(dim=1, descending=True, stable=True).indices

    scores = logits.sigmoid().view(length, groups, per_group)
    worth = scores.topk(2, dim=2).values.sum(2)
    best = torch.zeros_like(worth, dtype=torch.bool).scatter_(
        1, order(worth)[:, :best_groups], True
    )
    left = scores.masked_fill(~best[:, :, None], -torch.inf).flatten(1)
    assert torch.equal(experts.long(), order(left)[:, :k])
