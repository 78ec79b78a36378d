"""The scaled product of 8-bit floats at sizes and configurations of few rows and long sums."""

import pytest

EXAMPLE = "gemm/gemm_fp8.py"


@pytest.mark.parametrize(
    ("size", "config"),
    [
        # Rows of 23 scales, which TMA loads with those in front of them.
        pytest.param((23, 200, 640), {"block_M": 64, "split": 2}, id="two shares"),
        # Shares of three steps, of nine: the last one has none.
        pytest.param((66, 72, 1100), {"split": 4}, id="a share of nothing"),
        pytest.param((66, 75, 640), {"split": 3, "apart": True}, id="shares added apart"),
        # Rows of an odd number of elements, which TMA takes from copies with whole 16 bytes.
        pytest.param((9, 200, 1037), {"block_M": 64, "split": 3, "padded": True}, id="padded rows"),
        pytest.param((264, 520, 400), {"parts": 2, "cluster": 2}, id="clusters"),
        # Two columns of tiles of 256, and one of 128 for who has none of the last round.
        pytest.param((264, 640, 400), {"parts": 2, "wide": 2}, id="tiles of one part"),
        pytest.param((520, 330, 272), {"parts": 2, "wide": 1, "cluster": 2}, id="and clusters"),
        pytest.param((264, 640, 400), {"parts": 2, "wide": 2, "split": 2}, id="and shares"),
        pytest.param((400, 330, 272), {"block_M": 192}, id="three warp groups"),
        # Nine tiles for four blocks: the last one in two shares, of two steps and of one.
        pytest.param((150, 330, 272), {"block_M": 64, "tail": 2}, id="shares of the last tile"),
        pytest.param(
            (320, 288, 272), {"block_M": 64, "block_N": 96, "tail": 2}, id="narrow last tiles"
        ),
        pytest.param((580, 700, 400), {"parts": 2, "tail": 3, "cluster": 2}, id="of clusters"),
        # A round of tiles and none behind it.
        pytest.param((256, 256, 256), {"tail": 2}, id="no last tiles"),
        # Rows of 7 and 24 scales, which columns of tiles need.
        pytest.param((7, 330, 400), {"block_N": 16, "swap": True}, id="swapped"),
        pytest.param(
            (24, 330, 1037),
            {"block_M": 64, "block_N": 24, "swap": True, "split": 3, "apart": True, "padded": True},
            id="swapped shares",
        ),
        # Panels of three of five rows of tiles.
        pytest.param((580, 72, 144), {"panel": 4}, id="a short panel"),
    ],
)
def test_configurations_have_one_result(example, monkeypatch, device, size, config):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    assert example.scaled_relative_error(*size, device, **config) < 1e-2


@pytest.mark.parametrize("config", [{"cluster": 2}, {"block_N": 32}])
def test_shares_that_have_no_counters_of_their_own_are_refused(example, config):
    with pytest.raises(ValueError, match="found 2 shares that the last block adds up"):
        example.scaled_matmul.get_tir(264, 330, 400, split=2, **config)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"tail": 2, "split": 2}, "found 2 shares of the last tiles"),
        ({"tail": 2, "parts": 2, "wide": 1}, "found 2 shares of the last tiles"),
        ({"swap": True, "split": 2}, "found swapped tiles"),
        ({"swap": True, "rows_of_B": True}, "found swapped tiles"),
        ({"swap": True, "block_M": 192}, "found swapped tiles"),
    ],
)
def test_what_does_not_go_together_is_refused(example, config, said):
    with pytest.raises(ValueError, match=said):
        example.scaled_matmul.get_tir(264, 330, 400, **config)


def test_last_tiles_are_shared_where_a_round_would_be_nearly_empty(example, monkeypatch):
    monkeypatch.setattr(example, "processors", lambda: 132)
    # 425 tiles of 192 x 128: three rounds and 29 tiles.
    first = example.configurations(928, 10816, 7488)[0]
    assert first["tail"] > 2
    plan = example.Plan(928, 10816, 7488, **first)
    assert plan.last_tiles * plan.tail <= 132
