"""Shapes that benchmark/draw.py draws, and what it makes of a row's result."""

import importlib

import pytest
import torch

import tilelang

BENCHMARK = "draw"
FAMILIES = [
    "gemm",
    "fp8",
    "fp8_blocks",
    "grouped",
    "convolution",
    "quantised",
    "attention",
    "attention_backward",
    "decode",
    "rows",
]


@pytest.fixture
def draw(benchmark_script):
    return benchmark_script


def test_a_shape_is_a_function_of_its_number(draw):
    assert list(draw.FAMILIES) == FAMILIES
    for family in FAMILIES:
        shapes = [draw.shape_of(family, 1, index) for index in range(20)]
        # In another order, and alone.
        assert [draw.shape_of(family, 1, index) for index in range(19, -1, -1)] == shapes[::-1]
        others = [draw.shape_of(family, 2, index) for index in range(20)]
        assert not any(a == b for a, b in zip(shapes, others, strict=True))


def test_products_are_skinny_square_and_odd(draw):
    most = importlib.import_module("draw_family").MOST_WORK
    for family in ("gemm", "fp8", "quantised"):
        shapes = [draw.shape_of(family, 1, index) for index in range(100)]
        sizes = [(s["M"], s["N"], s["K"]) for s in shapes]
        assert all(most >= 2.0 * M * N * K for M, N, K in sizes)
        assert any(M <= 64 for M, _, _ in sizes)
        assert any(M >= 1024 for M, _, _ in sizes)
        assert any(M == N == K for M, N, K in sizes)
        assert any(N % 8 for _, N, _ in sizes)
        assert any(K % 8 for _, _, K in sizes)
    assert {draw.shape_of("gemm", 1, index)["dtype"] for index in range(20)} == {
        "bfloat16",
        "float16",
    }


def test_other_families_have_odd_sizes(draw):
    def drawn(family):
        return [draw.shape_of(family, 1, index) for index in range(100)]

    for family in ("attention", "attention_backward"):
        assert any(s["length"] % 16 for s in drawn(family))
        assert {s["causal"] for s in drawn(family)} == {True, False}
    assert any(0 in s["sizes"] for s in drawn("grouped"))
    assert all(sum(s["sizes"]) == s["rows"] for s in drawn("grouped"))
    assert any(s["channels"] % 8 for s in drawn("convolution"))
    assert any(s["width"] % 8 for s in drawn("rows"))
    assert {s["kernel"] for s in drawn("rows")} == set(draw.draw_rows.KERNELS)
    assert {s["page"] for s in drawn("decode")} == set(draw.draw_attention.PAGES)
    assert any(len(set(s["lengths"])) > 1 for s in drawn("decode"))


def test_each_shape_has_configurations(draw, monkeypatch):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    for family in draw.FAMILIES:
        for index in range(3):
            row = draw.row_of(family, 1, index, 3)
            # Long products in three orders of tiles.
            assert 1 <= len(row.configs) <= 5
            assert row.config == row.configs[0]
            assert row.work > 0


def test_decoding_counts_the_blocks_that_are_left_over(draw, monkeypatch):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")

    def seconds(sequences, splits, least):
        config = {"splits": splits, "least": least, "block_N": 64, "min_blocks": 2}
        config |= {"listed": False, "early": False}
        return draw.draw_attention.decode_seconds(config, [6400] * sequences, 1, 2.0**13, 1, 2, 0.0)

    # 132 multiprocessors have room for two blocks each.
    assert seconds(265, 1, 1) > 1.3 * seconds(264, 1, 1)
    # Where four blocks share the keys of each, the last ones are short.
    assert seconds(265, 4, 25) < 0.85 * seconds(265, 1, 1)


def test_decoding_prefers_more_blocks_a_multiprocessor(draw, monkeypatch):
    """Where the model sees no difference: 240 equal shares have room either way."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    configs = draw.row_of("decode", 2, 0, 100).configs
    shares = [config["min_blocks"] for config in configs if config["splits"] == 15]
    assert shares == [4, 2]


@pytest.mark.parametrize("family", [*FAMILIES])
def test_a_small_shape_is_right(draw, monkeypatch, device, family):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    row = draw.row_of(family, 1, 0, 1, small=True)
    draw.checked(row, row.kernel(row.config), row.inputs(device), row.config)


@pytest.mark.parametrize("family", ["rows", "quantised"])
def test_a_row_is_timed(draw, monkeypatch, device, family):
    """Beside torch, or against its bytes."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    monkeypatch.setattr(draw, "TURN_MS", 0.01)
    monkeypatch.setattr(draw, "ROUNDS", 1)
    # A byte in a nanosecond, and a microsecond for a launch.
    found = draw.measure(family, 1, 0, 2, [0, 1], (1e9, 1e6, 1e-3), device, small=True)
    assert found["base"] == ("torch" if family == "rows" else "bytes")
    assert found["ratio"] == found["base_ms"] / min(found["all_ms"].values())
    assert set(found["all_ms"]) == {"0", "1"}
    if family == "quantised":
        work = draw.row_of(family, 1, 0, 2, small=True).work
        assert found["base_ms"] == pytest.approx(work * 1e-6 + 1e-3)
        assert found["bytes_ratio"] < found["ratio"]


@pytest.mark.parametrize("family", ["fp8", "grouped"])
def test_a_product_that_torch_pads_is_timed_with_and_without(draw, monkeypatch, device, family):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    monkeypatch.setattr(draw, "TURN_MS", 0.01)
    monkeypatch.setattr(draw, "ROUNDS", 1)
    products, given = draw.draw_products, []
    # torch's own are for GPUs.
    result = torch.zeros(1, 1, device=device)
    monkeypatch.setattr(products, "scaled_mm", lambda a, b: given.append(a) or result)
    monkeypatch.setattr(torch, "_grouped_mm", lambda a, b, offs: given.append(a) or result)
    index = next(i for i in range(99) if draw.shape_of(family, 1, i, small=True)["K"] % 8)
    found = draw.measure(family, 1, index, 1, [0], (1e9, 1e6, 1e-3), device, small=True)
    assert found["padded_ratio"] == found["padded_ms"] / found["ms"]
    assert found["padded_ms"] != found["base_ms"]
    row = draw.row_of(family, 1, index, 1, small=True)
    a = row.inputs(device)[0]
    row.padded_baseline([a], [given[0], torch.zeros(1, 1, 1), None])
    wide = given[-1]
    assert wide.shape == given[0].shape
    assert torch.equal(wide[: a.shape[0], : a.shape[1]].view(torch.uint8), a.view(torch.uint8))
    draw.print_row({**made_row(draw, **found), "verdict": ""})


@pytest.mark.parametrize("family", ["fp8", "fp8_blocks", "grouped"])
@pytest.mark.parametrize("pads", [False, True])
def test_a_call_that_returns_what_ours_returns_is_timed(
    draw, monkeypatch, capsys, device, family, pads
):
    """Rows of torch's longer result are copied, and A is padded if it has to be."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    monkeypatch.setattr(draw, "TURN_MS", 0.01)
    monkeypatch.setattr(draw, "ROUNDS", 1)
    products, given = draw.draw_products, []

    def longer(a, b, offs=None):
        given.append(a)
        return torch.arange(len(a) * b.shape[-1 if b.ndim == 3 else 0], device=device).view(
            len(a), -1
        )

    monkeypatch.setattr(products, "scaled_mm", longer)
    monkeypatch.setattr(torch, "_grouped_mm", longer)
    unit, (M, N, K) = (8 if family == "grouped" else products.UNIT), (10, 20, 40 if pads else 48)
    K = K - 1 if family == "grouped" and pads else K
    own = {"rows": M, "groups": 2, "sizes": [4, 6]} if family == "grouped" else {"M": M}
    shape = {**own, "N": N, "K": K, "out_dtype": "bfloat16"}
    row = getattr(products, family)(shape, 1)
    ours, others = row.inputs(device), row.baseline_inputs(device)
    assert (row.padded_baseline is not None) == pads
    result = row.contiguous_baseline(ours, others)
    assert result.shape == (M, N)
    assert result.is_contiguous()
    assert given[-1].shape[1] == -(-K // unit) * unit
    if not pads:
        assert given[-1] is ours[0]
    wide = -(-N // unit) * unit
    assert torch.equal(result[:, 0], wide * torch.arange(M, device=device))
    aligned = getattr(products, family)({**shape, "N": 32}, 1)
    assert aligned.contiguous_baseline is None
    monkeypatch.setattr(draw, "row_of", lambda *_, **__: row)
    monkeypatch.setattr(draw, "checked", lambda *_: 0.0)
    found = draw.measure(family, 1, 0, 1, [0], (1e9, 1e6, 1e-3), device, small=True)
    assert found["contiguous_ratio"] == found["contiguous_ms"] / found["ms"]
    draw.print_row({**made_row(draw, **found), "verdict": ""})
    said = "A padded and the result made contiguous" if pads else "us with the result made"
    assert said in capsys.readouterr().out


def test_results_are_poisoned_first(draw, device):
    with draw.poisoned():
        assert torch.empty(3, device=device).isnan().all()
        assert (torch.empty(3, dtype=torch.int32, device=device) == 2**31 - 1).all()


def made_row(draw, **found):
    shape = draw.described("gemm", 1, 0, 2)
    return {**shape, "compiled": {"0": {"registers": 1}, "1": {"registers": 1}}, **found}


def test_what_failed_counts(draw, capsys):
    good = {"ms": 1.0, "base_ms": 1.2, "base": "torch", "ratio": 1.2, "first_ratio": 1.1}
    rows = [
        made_row(draw, **good, fastest=1),
        made_row(draw, **{**good, "ratio": 0.95}, fastest=0),
        made_row(draw, wrong={0: "ValueError: relative error 1"}, **good),
        made_row(draw, compiled={"0": {"refused": "X: no"}, "1": {"refused": "X: no"}}),
        made_row(draw, failed="BrokenProcessPool: ended"),
        made_row(draw, compiled={"0": {"refused": "X: no"}, "1": {}}, **good, fastest=1),
    ]
    for row in rows:
        row["verdict"] = draw.verdict_of(row)
    assert [bool(row["verdict"]) for row in rows] == [False, False, True, True, True, False]
    (line,) = draw.print_summary(rows, True)
    assert (line["rows"], line["failed"], line["worst"], line["median"]) == (6, 3, 0.95, 1.2)
    said = capsys.readouterr().out
    assert "refused: X: no" in said
    assert "below" in said


def row_of_few_weights(draw, columns):
    row = {"M": 1, "N": 17, "K": columns, "form": "int4"}
    return draw.draw_products.quantised(row, 2)


def test_a_row_of_few_weights_is_multiplied_by_threads(draw, monkeypatch):
    """Where all loads of a warp are under way at once; it has no counters of shares."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    few, most, more = [row_of_few_weights(draw, columns).config for columns in (1216, 4096, 4098)]
    assert few == {"warps": 5, "ahead": 1}
    assert most == {"warps": 8, "ahead": 2}
    assert "warps" not in more


def test_every_schedule_of_a_row_of_few_weights_is_right(draw, monkeypatch, device):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    row = row_of_few_weights(draw, 4096)
    for config in row.configs:
        draw.checked(row, row.kernel(config), row.inputs(device), config)


def test_configurations_that_scale_sums_have_registers_for_them(draw, monkeypatch):
    """Else ptxas lets products wait for each other (C7512): 20 us of 17."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    shape = {"form": "int4", "M": 16, "N": 8192, "K": 8192}
    row = draw.draw_products.quantised(shape, 72)
    program = draw.draw_products.example("dequantize_gemm").matmul
    sums = [config for config in row.configs if config.get("scale_sums")]
    # In a block, and in the blocks of a multiprocessor, as many rows of weights.
    largest = {
        (config["block_N"], config.get("min_blocks", 1)): config
        for config in sorted(sums, key=lambda config: config["block_K"])
    }
    assert row.config in sums
    assert len(largest) == 6
    for config in largest.values():
        tir = program.get_tir(*shape.values(), **config)
        kernel = tilelang.compile(tir, target="cuda -arch=sm_90a", execution_backend="emulate")
        (usage, *_) = kernel.resource_usage.values()
        assert usage.advisories == ()
