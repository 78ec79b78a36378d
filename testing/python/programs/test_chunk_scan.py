"""The chunk scan of Mamba-2, examples/linear_attention/chunk_scan.py, on two architectures."""

import pathlib
import runpy

import pytest
import torch

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "linear_attention"
EXAMPLE = runpy.run_path(str(EXAMPLES / "chunk_scan.py"))
CHUNK = EXAMPLE["CHUNK"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    heads = 2
    options = {"execution_backend": "auto", "target": f"cuda -arch={arch}"}
    for length in (5, 2 * CHUNK + 11):
        tensors = EXAMPLE["inputs"](length, heads, device=device)
        y, last = EXAMPLE["forward"](*tensors, **options)
        wanted, state = EXAMPLE["reference"](*tensors)
        torch.testing.assert_close(y.double(), wanted, rtol=5e-3, atol=1e-2)
        torch.testing.assert_close(last.double(), state, rtol=5e-3, atol=1e-2)
