"""The rows that the indexer chooses, of scores with equals and infinities: lists and passes."""

import math

import pytest
import torch

EXAMPLE = "mla/lightning_indexer.py"
LENGTH, QUERIES, CHOSEN = 700, 6, 40
FORMS = {
    "any": lambda x: x,
    "positive": lambda x: x.abs() + 1,
    "negative": lambda x: -x.abs(),
    "equals": lambda x: (2 * x).round(),
    "all are equal": lambda x: 0 * x,
    "zeros of both signs": lambda x: torch.where(x > 0, 0.0, -0.0),
    "few are finite": lambda x: x.masked_fill(torch.arange(LENGTH) > 20, -math.inf),
    "some are infinite": lambda x: x.masked_fill(torch.arange(LENGTH) % 50 == 0, math.inf),
    "close to each other": lambda x: 1 + x * 1e-6,
    # More than are compared with each other, and fit in a list.
    "the last ones are equal": lambda x: torch.where(x > 2, x, torch.where(x > 1, 1.5, 0.0)),
    # As a GPU makes them: their key is the largest number.
    "some are no numbers": lambda x: torch.where(
        torch.arange(LENGTH) % 12 == 0,
        torch.tensor(2**31 - 1, dtype=torch.int32),
        x.view(torch.int32),
    ).view(torch.float32),
}


@pytest.fixture(scope="module", params=[64, 512])
def kernel(request, example):
    return example.top_k(CHOSEN, threads=64, loads=2, listed=request.param)


@pytest.mark.parametrize("form", FORMS)
def test_the_largest_are_chosen(kernel, device, form):
    torch.manual_seed(0)
    scores = FORMS[form](torch.randn(QUERIES, LENGTH)).to(device)
    rows = kernel(scores).long()
    assert all(len(set(r.tolist())) == CHOSEN for r in rows), "a row is listed twice"
    seen = torch.arange(LENGTH - QUERIES, LENGTH, device=device)[:, None]
    assert ((rows >= 0) & (rows <= seen)).all(), "a row that the query does not see"
    hidden = scores.masked_fill(torch.arange(LENGTH, device=device) > seen, -math.inf)
    wanted = hidden.topk(CHOSEN).values
    found = scores.gather(1, rows).sort(1, descending=True).values
    assert torch.equal(found.nan_to_num(math.inf), wanted.nan_to_num(math.inf))


@pytest.mark.parametrize("form", ["too few", "too many"])
def test_a_sample_that_misleads_is_not_used(kernel, device, form):
    """The sample has parts of 256 scores every 768; by it too few scores reach the number that it
    tells, or more than the list has room for."""
    torch.manual_seed(0)
    scores, places = torch.randn(1, 2000), torch.arange(2000)
    sampled = (places % 768 < 256) & (places < 1536)
    scores[0] += 100.0 * (sampled & (places < 25) if form == "too few" else ~sampled)
    rows = kernel(scores.to(device)).long().cpu()
    wanted = scores.topk(CHOSEN).values
    assert scores.gather(1, rows).sort(1, descending=True).values.equal(wanted)


@pytest.mark.parametrize("heads", [4, 20])
def test_other_heads_are_refused(example, heads):
    """Sums go by 8 heads: what is left of them would be left out."""
    with pytest.raises(ValueError, match=f"found {heads} heads, wanted a multiple of 8"):
        example.index_scores(heads, 64)
