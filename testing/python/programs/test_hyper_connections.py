"""Hyper-connections, examples/norm/hyper_connections.py, on two architectures."""

import pathlib
import runpy

import pytest
import torch

import tilelang

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "norm"
EXAMPLE = runpy.run_path(str(EXAMPLES / "hyper_connections.py"))
STREAMS = EXAMPLE["STREAMS"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    hidden, length = 72, 19
    before, after = (
        tilelang.compile(p(hidden), execution_backend="auto", target=f"cuda -arch={arch}")
        for p in (EXAMPLE["pre"], EXAMPLE["post"])
    )
    x = torch.randn(length, STREAMS, hidden, device=device).bfloat16()
    w = torch.randn(32, STREAMS * hidden, device=device) / 16
    bias = torch.randn(32, device=device)
    nan = {"fill_value": torch.nan, "device": device}
    layer = torch.full((length, hidden), dtype=torch.bfloat16, **nan)
    gate, mix = torch.full((length, STREAMS), **nan), torch.full((length, STREAMS, STREAMS), **nan)
    products, scale = torch.empty(length, 32, device=device), torch.empty(length, device=device)
    before(x, w, bias, layer, gate, mix, products, scale)
    wanted = EXAMPLE["reference"](x, w, bias)
    torch.testing.assert_close(gate.double(), wanted[1], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(mix.double(), wanted[2], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(layer.double(), wanted[0], rtol=1e-2, atol=1e-2)
    out = torch.full((length, STREAMS, hidden), dtype=torch.bfloat16, **nan)
    after(x, layer, gate, mix, out)
    wanted = EXAMPLE["reference_post"](x, layer, gate, mix)
    torch.testing.assert_close(out.double(), wanted, rtol=1e-2, atol=1e-2)


def test_streams_that_clusters_do_not_take(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    by_clusters = runpy.run_path(str(EXAMPLES / "hyper_connections_clusters.py"))
    with pytest.raises(ValueError, match="found streams of 5120, wanted 1024, 2048, 3072 or 4096"):
        by_clusters["pre"](5120)
