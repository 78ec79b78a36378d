"""Who issues a copy by TMA: an elected lane, or by the pass config the first thread."""

import pytest
import torch

import tilelang
import tilelang.language as T


@pytest.mark.parametrize(("stages", "specialized"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("disabled", [False, True])
def test_the_pass_config_reaches_every_copy(stages, specialized, disabled):
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((64, 256), "float16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[0, k * 64], tile, prefer_instruction="tma")
                T.copy(tile, B[0, k * 64], prefer_instruction="tma")

    kernel = tilelang.compile(
        main,
        target={"kind": "cuda", "arch": "sm_90a"},
        execution_backend="emulate",
        pass_configs={
            "tl.disable_shuffle_elect": disabled,
            "tl.disable_warp_specialized": not specialized,
        },
    )
    source = kernel.get_kernel_source()
    assert ("tl::warpgroup_reg_dealloc" in source) == specialized
    assert "tl::tma_load" in source
    assert "tl::tma_store" in source
    assert ("shuffle_elect" in source) == (not disabled)
    a, b = torch.randn(64, 256).half(), torch.zeros(64, 256).half()
    kernel(a, b)
    assert torch.equal(a, b)
