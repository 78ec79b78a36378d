"""KDA in one kernel by roles (examples/linear_attention/kda_roles.py)."""

import runpy
from pathlib import Path

import pytest
import torch

import tilelang

FOLDER = Path(__file__).parents[3] / "examples" / "linear_attention"


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return {
        name: runpy.run_path(str(FOLDER / f"{name}.py")) for name in ("delta_rule", "kda_roles")
    }


@pytest.mark.parametrize(
    ("heads", "length", "key", "value"),
    [(1, 1, 64, 64), (2, 64, 64, 128), (1, 200, 128, 64), (1, 65, 128, 256)],
)
def test_sizes(examples, device, heads, length, key, value):
    """Of a block's values, chunks and slots, with a last chunk that is not whole."""
    error = examples["delta_rule"]["relative_error"](
        *(examples["kda_roles"]["by_roles"], heads, length, device),
        sizes=(64, key, value),
        channels=True,
    )
    assert error < 1e-2


def test_no_rows(examples, device):
    """A block ends without a load in flight."""
    rows = torch.zeros(0, 1, 64, device=device)
    q, k, v = (rows.bfloat16() for _ in range(3))
    out = examples["kda_roles"]["by_roles"](q, k, v, rows, rows[:, :, 0], 64)
    assert out.shape == (0, 1, 64)


@pytest.mark.parametrize("gates", [0.01, 3.0])
def test_gates_and_systems(examples, device, gates):
    """Gates near the limit of a half's sum, and keys that are alike, with large betas."""
    rule, heads, length = examples["delta_rule"], 1, 130
    torch.manual_seed(0)
    q, k, v, beta = rule["inputs"](heads, length, 64, 64, device)
    k = torch.nn.functional.normalize(
        k.float() + torch.randn(64, device=device) / 3, dim=-1
    ).bfloat16()
    gate = -torch.rand(length, heads, 64, device=device) * gates
    out = examples["kda_roles"]["by_roles"](q, k, v, gate, 1 + beta, 64)
    wanted = rule["reference"](q, k, v, gate, 1 + beta)
    assert (out.double() - wanted).norm() < 2e-2 * wanted.norm()


@pytest.mark.parametrize(
    "sizes", [(32, 128, 128), (64, 32, 128), (64, 96, 128), (64, 128, 32), (64, 128, 192)]
)
def test_refused(examples, sizes):
    chunk, key, value = sizes
    wanted = f"found chunks of {chunk}, keys of {key} and values of {value}, wanted chunks of 64"
    with pytest.raises(ValueError, match=wanted):
        examples["kda_roles"]["kda"](2, key, value, chunk)


@pytest.mark.parametrize(("key", "value"), [(128, 128), (64, 128), (128, 64)])
def test_registers(examples, monkeypatch, key, value):
    """By ptxas, (128, 128) at the benchmark's sizes: no product is serialised, nothing spilled."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    program = examples["kda_roles"]["kda"](256, key, value)
    (usage,) = tilelang.compile(program, execution_backend="emulate").resource_usage.values()
    assert usage.advisories == ()
    assert usage.spill_stores == usage.spill_loads == 0
