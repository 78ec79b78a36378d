"""Gradients of attention for lengths whose rows of float32 TMA does not take as they are."""

import torch

import tilelang.language as T

EXAMPLE = "attention/flash_attention_backward.py"


def test_a_ragged_length_has_the_kernel_of_a_whole_one(example, monkeypatch):
    """Where threads loaded the sums of rows, all of them had 128 registers and spilled 2400 bytes:
    a third of cuDNN's speed on an H200 at a length of 2010."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    tile = {"block_M": 64, "block_N": 128, "num_stages": 3, "threads": 256}
    ragged, whole = (
        example.gradients(1, 1, length, 128, True, overlap=True, by_tma=True, **tile)
        for length in (2010, 2008)
    )
    assert ragged.n_spills == whole.n_spills < 512
    assert ragged.n_regs == whole.n_regs


def test_what_is_behind_the_last_row_does_not_count(example, monkeypatch, device):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    assert example.padded(29) == 32
    torch.manual_seed(0)
    out, d_out = (torch.randn(1, 29, 2, 64, device=device).half() for _ in range(2))
    delta = example.dot_of_rows(1, 2, 29, 64, T.float16)(out, d_out)
    wanted = (out.double() * d_out.double()).sum(3).transpose(1, 2)
    assert torch.allclose(delta[:, :, :29].double(), wanted, atol=1e-4)
    assert not delta[:, :, 29:].any()
