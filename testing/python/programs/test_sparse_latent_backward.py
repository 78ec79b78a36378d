"""Backward of attention over chosen rows of a latent cache, examples/mla/sparse_mla_backward.py, on
two architectures, with an accumulator that is stored in parts."""

import pathlib
import runpy

import pytest
import torch

import tilelang

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "mla"
HEADS, LATENT, ROTATED, BLOCK = 64, 64, 32, 64


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return runpy.run_path(str(EXAMPLES / "sparse_mla_backward.py"))


@pytest.mark.parametrize(("arch", "parts"), [("sm_80", 2), ("sm_90a", 2), ("sm_90a", 4)])
def test_results(device, example, arch, parts):
    queries, length, chosen = 3, 90, 77
    program = example["sparse_mla_backward"](
        HEADS, LATENT, ROTATED, "float16", parts=parts, pieces=1
    )
    kernel = tilelang.compile(program, execution_backend="auto", target=f"cuda -arch={arch}")
    q = torch.randn(queries, HEADS, LATENT + ROTATED).half().to(device)
    kv = torch.randn(length, LATENT + ROTATED).half().to(device)
    do = torch.randn(queries, HEADS, LATENT).half().to(device)
    lists = [torch.randperm(length)[:chosen] for _ in range(queries)]
    indices = torch.stack(lists).int().to(device)
    indices[1, 5:60:7] = -1
    out, log_sum = example["reference"](q.double(), kv.double(), indices, LATENT)
    delta = (out * do.double()).sum(-1)
    wanted_dq, wanted_dkv = example["gradients"](q, kv, indices, do)
    dq, dkv = torch.full_like(q, torch.nan), torch.zeros(kv.shape, device=device)
    kernel(q, kv, do, indices, log_sum.float(), delta.float(), dq, dkv)
    torch.testing.assert_close(dq.double(), wanted_dq, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(dkv.double(), wanted_dkv, rtol=1e-2, atol=2e-2)


def test_the_parts_of_an_accumulator_stay_in_their_threads(example):
    program = example["sparse_mla_backward"](HEADS, LATENT, ROTATED, parts=2, pieces=1)
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a")
    assert "dkv: copied to shared memory" not in kernel.explain()
