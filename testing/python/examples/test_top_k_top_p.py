"""Sampling: rows whose largest logits are in few parts, with equals, infinities and any k and p."""

import math

import pytest
import torch

import tilelang
from tilelang.transform import PassContext

EXAMPLE = "sampling/top_k_top_p.py"
TOKENS = 300
ANY = torch.arange(TOKENS)
# Logits, k and p.
ROWS = {
    "few of many": (lambda x: x, 5, 0.9),
    "the largest": (lambda x: 100 * x, 1, 0.5),
    "all, by probability": (lambda x: x, TOKENS, 0.5),
    "all, nearly all of the probability": (lambda x: x, TOKENS, 0.9999),
    "all, of which few have nearly all": (lambda x: 5 * x, TOKENS, 0.99),
    "all, equals without an end": (lambda x: 0 * x, TOKENS, 0.9),
    "half, by probability": (lambda x: x, TOKENS // 2, 0.9),
    "more than there are": (lambda x: x, 10 * TOKENS, 1.0),
    "all are equal": (lambda x: 0 * x, 5, 0.9),
    "the last of k has equals": (lambda x: x.round(), 12, 1.0),
    "zeros of both signs": (lambda x: torch.where(ANY % 2 == 0, 0.0, -0.0), 2, 1.0),
    "more than are possible": (lambda x: x.masked_fill(ANY < TOKENS - 7, -math.inf), 20, 1.0),
    "every other one is impossible": (lambda x: x.masked_fill(ANY % 2 == 0, -math.inf), 3, 0.9),
    # The largest logits are next to each other.
    "increasing": (lambda x: ANY / 60.0, 10, 0.8),
    "decreasing": (lambda x: ANY / -60.0, 10, 0.8),
    "the first one alone": (lambda x: x.round(), 10 * TOKENS, 0.0),
    "equals without a share of the weight": (lambda x: 0 * x, TOKENS, 0.0),
    "far below zero": (lambda x: x - 1e6, 9, 0.9),
    # All others are alike, seen from it.
    "one far above": (lambda x: torch.where(ANY == 40, 1e30, x), 9, 1.0),
    # The sample is what the row begins with, and every so many tiles.
    "the sample has the largest": (lambda x: torch.where(ANY < 30, x + 100, x), 12, 0.9),
    "the sample has none of them": (lambda x: torch.where(ANY < 256, x - 100, x), 12, 0.9),
}


@pytest.fixture(scope="module", params=["small lists", "lists of the row"])
def run(request, example):
    """A function of logits, k, p and uniform numbers, by lists that few rows and all fit in."""
    tile = example.SMALL
    if request.param == "lists of the row":
        tile = {"threads": 64, "loads": 2, "ranked": 1024}
    return example.top_k_top_p(TOKENS, **tile)


def test_the_token_is_that_of_the_uniform_number(example, run, device):
    torch.manual_seed(0)
    uniform = torch.tensor([0.0, 0.3, 0.8, 1 - 2**-24])
    rows = [(name, form, k, p, u) for name, (form, k, p) in ROWS.items() for u in uniform]
    logits = torch.stack([form(3 * torch.randn(TOKENS)) for _, form, *_ in rows]).to(device)
    k = torch.tensor([k for *_, k, _, _ in rows], device=device).int()
    p, u = (
        torch.tensor(x, device=device) for x in zip(*((p, u) for *_, p, u in rows), strict=True)
    )
    token = run(logits, k, p, u).long()[:, None]
    total, allowed = example.sums(logits, k.clamp(max=TOKENS), p)
    end = total.gather(1, token)[:, 0]
    begin = torch.where(token > 0, total.gather(1, (token - 1).clamp(min=0)), 0)[:, 0]
    off = torch.maximum(begin - u, u - end)
    for (name, *_), ok, distance in zip(rows, allowed.gather(1, token)[:, 0], off, strict=True):
        assert ok, f"{name}: a token that is not one of the likely ones"
        assert distance < 1e-5, name


def test_a_token_without_weight_is_not_drawn(run, device):
    """Sums of the same weights in another order differ by their rounding."""
    torch.manual_seed(5)
    rows = 24
    logits = 3 * torch.randn(rows, TOKENS)
    logits[:, 0] = -50.0
    k, p, uniform = torch.full((rows,), TOKENS), torch.ones(rows), 1 - 2**-24
    given = (x.to(device) for x in (logits, k.int(), p, torch.full((rows,), uniform)))
    assert (run(*given) > 0).all()


def test_what_has_no_probabilities_has_a_token(run, device):
    """Of +inf alone, of -inf alone, and with NaN."""
    logits = torch.randn(5, TOKENS, device=device)
    logits[0, 5] = math.inf
    logits[1:3] = -math.inf
    logits[3, 5] = logits[4] = math.nan
    k = torch.tensor([3, 3, TOKENS, 3, TOKENS], device=device).int()
    some = torch.full((5,), 0.5, device=device)
    token = run(logits, k, some, some)
    assert token[0] == 5
    assert ((token >= 0) & (token < TOKENS)).all()


def test_less_than_one_token_or_than_no_probability_is_the_largest(run, device):
    """Thresholds above all logits had the first token drawn, or any."""
    logits = torch.randn(6, TOKENS, device=device)
    k = torch.tensor([0, -5, 0, TOKENS // 2, TOKENS, TOKENS], device=device).int()
    p = torch.tensor([0.5, 0.5, 1.0, -1e9, -math.inf, math.nan], device=device)
    token = run(logits, k, p, torch.full((6,), 0.5, device=device))
    assert torch.equal(token.long(), logits.argmax(1))


def test_likely_tokens_that_share_bins(example, device):
    """Bins have four places each, and here the likely ones are next to each other."""
    torch.manual_seed(0)
    rows, tokens = 32, 4 * example.BINS
    logits = torch.randn(rows, tokens)
    logits[:, 700:740] += 9
    logits, uniform = logits.to(device), torch.linspace(0.05, 0.95, rows, device=device)
    k, p = torch.full((rows,), 30, device=device).int(), torch.full((rows,), 0.9, device=device)
    run = example.top_k_top_p(tokens, threads=32, loads=1, ranked=256)
    token = run(logits, k, p, uniform).long()[:, None]
    total, allowed = example.sums(logits, k, p)
    end = total.gather(1, token)[:, 0]
    assert allowed.gather(1, token).all()
    assert (end >= uniform - 1e-6).all()
    assert (total.gather(1, token - 1)[:, 0] <= uniform + 1e-6).all()


@pytest.mark.parametrize("tokens", [5, 100, 128, 131, 512, 1021])
def test_rows_of_any_length(example, device, tokens):
    """Of less than a tile, of tiles alone, and of a pipeline's with and without a rest."""
    assert example.distance(4 if tokens > 5 else 1, tokens, device, **example.SMALL) < 1e-5


@pytest.mark.parametrize("tokens", [4096, 8192])
def test_rows_of_whole_tiles(example, tokens, monkeypatch):
    """The last tile begins behind their end, and its lines were behind those of the row: 4096 did
    not compile, 8192 wrote there where a row is read by passes."""
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    monkeypatch.setenv("TILELANG_EMULATE_CHECKS", "1")
    torch.manual_seed(0)
    logits = torch.randn(1, tokens)
    k, p = torch.tensor([tokens], dtype=torch.int32), torch.tensor([1.0])
    token = example.top_k_top_p(tokens, **example.SMALL)(logits, k, p, torch.tensor([0.5]))
    weights = logits[0].double().softmax(0)
    before = float(weights[: int(token)].sum())
    assert before <= 0.5 + 1e-5 <= before + float(weights[int(token)]) + 2e-5


def test_lists_that_threads_do_not_divide_are_refused(example):
    with pytest.raises(ValueError, match="ranked is 100, wanted a multiple of 32 threads"):
        example.top_k_top_p.get_tir(300, threads=32, ranked=100)


STAGES = {"gfx942": 1, "gfx950": 4, "sm_75": 1, "sm_80": 4, "sm_86": 2, "sm_90a": 4}


@pytest.mark.parametrize("arch", STAGES)
def test_the_pipeline_has_as_many_stages_as_a_chip_has_room_for(example, arch, monkeypatch):
    """64, 160, 64, 163, 99 and 227 KB of shared memory. Four stages had no room in 64 and 99."""
    target = f"hip -mcpu={arch}" if arch.startswith("gfx") else f"cuda -arch={arch}"
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", target)
    assert example.stages_for(24 * 1024, 1024, 1056) == STAGES[arch]
    if STAGES[arch] < 4:
        program = example.top_k_top_p.get_tir(128256)
        with PassContext(config=example.top_k_top_p.pass_configs):
            (kernel,) = tilelang.lower(program, target=target).launch_plan.kernels
        assert kernel.shared_bytes <= example.auto_infer_current_arch().smem_cap


def test_tokens_are_right_on_amd(example, monkeypatch):
    """Where 64 lanes are a warp."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "hip -mcpu=gfx942")
    assert example.distance(6, 1021, threads=64, loads=1, ranked=128) < 1e-5
