"""The products of experts whose numbers of rows only the GPU knows."""

import pytest
import torch

EXAMPLE = "moe/grouped_gemm_masked.py"
FP8 = pytest.mark.parametrize("fp8", [False, True], ids=["bfloat16", "8 bits"])


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")


@pytest.mark.parametrize(
    ("counts", "most"),
    [
        pytest.param((0, 129, 0, 0, 3), 132, id="empty groups and odd counts"),
        pytest.param((68, 68), 68, id="full groups"),
        # Rows of scales that are no multiple of 16 bytes.
        pytest.param((1, 66), 67, id="an odd room"),
    ],
)
@FP8
def test_rows_behind_the_counts_are_in_no_result(example, device, counts, most, fp8):
    # They are NaN. There are more tiles than blocks.
    tile = {"block_M": 64, "threads": 128, "num_stages": 2}
    error = example.relative_error(counts, most, 264, 144, fp8, device, **tile)
    assert error < (1e-2 if fp8 else torch.finfo(torch.bfloat16).eps)


def test_warp_groups_share_columns(example, device):
    tile = {"block_M": 64, "threads": 256, "width": 256, "parts": 1, "num_stages": 2}
    source = example.masked_matmul_fp8(3, 132, 400, 144, **tile).get_kernel_source()
    assert "wgmma_ss<64, 128, 32," in source
    assert example.relative_error((70, 0, 5), 132, 400, 144, True, device, **tile) < 1e-2


def test_tiles_begin_with_a_scale(example):
    with pytest.raises(ValueError, match=r"found tiles of 1 \* 192 columns and scales for 128"):
        example.masked_matmul_fp8(3, 64, 136, 144, width=192, parts=1)


@FP8
def test_a_compiled_kernel_takes_other_counts(example, device, fp8):
    a, b, *scales, _ = example.inputs((64, 64, 64), 64, 136, 144, fp8, device)
    program = example.masked_matmul_fp8 if fp8 else example.masked_matmul
    kernel = program(3, 64, 136, 144, block_M=64, threads=128, num_stages=2)
    for counts in ((0, 0, 0), (64, 0, 5)):
        tensors = (a, b, *scales, torch.tensor(counts, dtype=torch.int32, device=device))
        found = example.valid(kernel(*tensors), tensors[-1]).double()
        assert len(found) == sum(counts)
        wanted = example.reference(*tensors)
        assert (found - wanted).norm() <= 1e-2 * wanted.norm()


@FP8
def test_tiles_of_the_readme_fit_on_sm_89(example, monkeypatch, fp8):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_89")
    program = example.masked_matmul_fp8 if fp8 else example.masked_matmul
    tile = {"num_stages": 2, "parts": 1} if fp8 else {"num_stages": 3}
    kernel = program(4, 512, 4096, 4096, **tile)
    assert all(usage.spill_stores == 0 for usage in kernel.resource_usage.values())
