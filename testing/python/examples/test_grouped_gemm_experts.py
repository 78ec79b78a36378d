"""The products of experts: which tiles a group's rows are made of, and how odd rows are loaded."""

import pytest
import torch

EXAMPLE = "moe/grouped_gemm_experts.py"


@pytest.mark.parametrize(
    "sizes",
    [
        # A second panel; last tiles that are whole, half or less; groups of less than a tile.
        pytest.param((300, 0, 70, 13, 256, 1), id="all kinds of tiles"),
        pytest.param((0, 0, 130), id="first groups without rows"),
        # Scales of rows that are no multiple of 16 bytes.
        pytest.param((129, 0), id="an odd number of rows"),
    ],
)
def test_rows_are_those_of_their_groups(example, monkeypatch, device, sizes):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    torch.manual_seed(0)
    tensors = example.inputs(sizes, 272, 144, True, device)
    program = example.grouped_matmul_fp8(len(sizes), 272, 144, sum(sizes), panel=2)
    assert "fetch_inc" in program.get_kernel_source()
    found = program(*tensors).double()
    wanted = example.reference(*tensors)
    for x, y in zip(found.split(sizes), wanted.split(sizes), strict=True):
        assert (x - y).norm() <= 1e-2 * y.norm()


@pytest.mark.parametrize(
    ("program", "tile"),
    [
        ("grouped_matmul", {"num_stages": 3}),
        ("grouped_matmul_fp8", {"num_stages": 2, "parts": 1}),
    ],
)
def test_tiles_of_the_readme_fit_on_sm_89(example, monkeypatch, program, tile):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_89")
    kernel = getattr(example, program)(4, 4096, 4096, 2000, **tile)
    assert all(usage.spill_stores == 0 for usage in kernel.resource_usage.values())


@pytest.mark.parametrize("padded", ["AB", "A", ""])
def test_rows_of_whole_words_need_no_copy(example, monkeypatch, device, padded):
    """TMA takes rows of 2 * 90 bytes from copies; threads load them as they are."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    sizes, tile = (5, 0, 70), {"padded": padded, "beside": 1 if padded else 2, "num_stages": 3}
    kernel = example.grouped_matmul(len(sizes), 136, 90, sum(sizes), **tile)
    source = kernel.get_kernel_source()
    found = "tma_load" in source, "cp_async_gs_conditional<4>" in source
    assert found == ("A" in padded, "B" not in padded)
    error = example.relative_error(sizes, 136, 90, device=device, **tile)
    assert error < torch.finfo(torch.bfloat16).eps


def test_odd_rows_of_weights_are_not_copied(example, monkeypatch, device):
    """Of groups of few rows: tiles of 128 rows of weights, of which the last one ends early."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    sizes = 5, 0, 17
    kernel = example.grouped_matmul_odd_rows(len(sizes), 136, 75, sum(sizes), num_stages=2)
    assert kernel.get_kernel_source().count("(B_desc") == 8 + 1  # boxes, and a prefetch
    a, b, ends = example.inputs(sizes, 136, 75, device=device)
    b[0, 64, 0] = torch.nan  # behind the end of the row in front of it
    found, wanted = kernel(a, b, ends).double(), example.reference(a, b, ends)
    assert torch.equal(found.isnan(), wanted.isnan())
    rest = wanted.nan_to_num()
    assert (found.nan_to_num() - rest).norm() < torch.finfo(torch.bfloat16).eps * rest.norm()
