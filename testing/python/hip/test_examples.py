"""Examples for AMD, but for their tiles unchanged: right in the emulator, without spills."""

import pathlib
import runpy

import pytest
import torch

from tilelang.hip.compile import compile_code_object
from tilelang.utils.target import determine_target

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLE = runpy.run_path(str(ROOT / "examples" / "attention" / "flash_attention.py"))


def attention(arch, dim, causal, block_M, block_N):
    with determine_target(f"hip -mcpu={arch}", return_object=True):
        return EXAMPLE["flash_attention"](
            1, 2, 160, dim, causal, block_M=block_M, block_N=block_N, threads=256
        )


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_attention_is_compiled_without_spills(arch):
    source = attention(arch, 64, True, 128, 64).get_kernel_source()
    code = compile_code_object(source, arch, ["main_kernel"])
    (usage,) = code.resource_usage.values()
    assert (usage.spill_stores, usage.stack) == (0, 0)
    assert "v_mfma_f32_32x32x" in code.assembly


@pytest.mark.parametrize(
    ("arch", "dim", "causal", "block_M", "block_N"),
    [("gfx942", 64, True, 128, 64), ("gfx90a", 128, False, 64, 32)],
)
def test_attention(arch, dim, causal, block_M, block_N):
    kernel = attention(arch, dim, causal, block_M, block_N)
    q, k, v = (torch.randn(1, 160, 2, dim).half() for _ in range(3))
    found = kernel(q, k, v, EXAMPLE["new_counter"]())
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *(x.float().transpose(1, 2) for x in (q, k, v)), is_causal=causal
    )
    torch.testing.assert_close(found.float(), wanted.transpose(1, 2), rtol=1e-2, atol=1e-2)
