"""A layer of experts: rows in the order of the experts."""

import pytest
import torch

EXAMPLE = "moe/fused_moe.py"


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")


def run(example, tensors, k):
    (tokens, hidden), (experts, inner, _) = tensors[0].shape, tensors[2].shape
    sizes = (tokens, hidden, inner, experts, k)
    return example.fused_moe(*sizes, panel=1, num_stages=2, stages_H=2)


@pytest.mark.parametrize(
    ("tokens", "k"),
    [
        # Experts of more than a tile, and the last one without rows.
        pytest.param(200, 2, id="more than a tile"),
        # In the end of `X`.
        pytest.param(5, 4, id="all experts but one"),
    ],
)
def test_rows_go_through_their_experts(example, device, tokens, k):
    torch.manual_seed(0)
    tensors = example.inputs(tokens, 136, 72, 5, device=device)
    kernel = run(example, tensors, k)
    found, wanted = kernel(*tensors).double(), example.reference(*tensors, k)
    # A row that another expert made would be wrong as a whole.
    assert ((found - wanted).norm(dim=1) <= 1.5e-2 * wanted.norm(dim=1)).all()


def test_a_token_without_largest_scores_spoils_no_other(example, device):
    tensors = example.inputs(6, 136, 72, 5, device=device)
    tensors[0][2] = torch.nan
    found = run(example, tensors, 2)(*tensors).double()
    assert found[2].isnan().all()
    others = [n for n in range(6) if n != 2]
    wanted = example.reference(tensors[0][others], *tensors[1:], 2)
    assert ((found[others] - wanted).norm(dim=1) <= 1.5e-2 * wanted.norm(dim=1)).all()
