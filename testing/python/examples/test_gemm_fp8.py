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


def test_a_rule_chooses_configurations_that_have_work_for_all_shares(example, monkeypatch):
    monkeypatch.setattr(example, "processors", lambda: 132)
    for size in ((1, 256, 128), (7, 512, 22621), (4096, 4096, 7168)):
        configurations = example.configurations(*size)
        groups = -(-size[2] // 128)
        for c in configurations:
            assert -(-groups // c["split"]) * (c["split"] - 1) < groups
            assert c["num_stages"] >= 2
            assert c["padded"] == (size[2] % 16 != 0)
        few_rows = size[0] <= 64
        assert (configurations[0]["block_M"] == 64) == few_rows
