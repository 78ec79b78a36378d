"""What may make no difference: warp specialisation, TMA, wgmma, and the number of stages."""

import importlib

import pytest
import torch

import tilelang

pytestmark = pytest.mark.filterwarnings("ignore:pass config tl.disable_tma_lower is deprecated")


@pytest.fixture
def example(monkeypatch, request):
    """The module of an example."""
    for family in ("gemm", "attention"):
        monkeypatch.syspath_prepend(request.config.rootpath / "examples" / family)
    return importlib.import_module


def run(function, sizes, tile, stages, args, *off):
    """The result of an example's kernel without what is named in `off`."""
    kernel = tilelang.compile(
        function.get_tir(*sizes, num_stages=stages, **tile),
        out_idx=-1,
        target={"kind": "cuda", "arch": "sm_90a"},
        execution_backend="emulate",
        pass_configs={f"tl.disable_{name}": True for name in off},
    )
    source = kernel.get_kernel_source()
    # What is off is out of the program, the rest is in it.
    assert ("mbarrier_wait" in source) == (not {"warp_specialized", "tma_lower"} & set(off))
    assert ("wgmma_ss<" in source) == ("wgmma" not in off)
    return kernel(*args)


def test_gemm_has_one_result(example):
    gemm = example("gemm")
    sizes, tile = (72, 64, 200), {"block_M": 64, "block_N": 64, "block_K": 64, "threads": 128}
    args = torch.randint(-4, 5, (72, 200)).half(), torch.randint(-4, 5, (200, 64)).half()
    wanted = (args[0].double() @ args[1].double()).half()
    for stages, *off in (
        (3,),
        (1, "warp_specialized"),
        (2, "tma_lower"),
        (4, "wgmma"),
        (2, "wgmma", "warp_specialized"),
    ):
        found = run(gemm.matmul, sizes, tile, stages, args, *off)
        assert torch.equal(found, wanted), (stages, off)


def test_attention_has_one_result(example):
    attention = example("block_sparse_attention")
    sizes, tile = (1, 1, 150, 64), {"threads": 128}
    q, k, v = (torch.randn(1, 150, 1, 64).half() for _ in range(3))
    mask = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1]], dtype=torch.bool).view(1, 1, 3, 3)
    args = q, k, v, mask
    function = attention.block_sparse_attention
    first = run(function, sizes, tile, 2, args)
    assert torch.isfinite(first).all()
    # The same instructions in the same order.
    assert torch.equal(run(function, sizes, tile, 1, args, "warp_specialized"), first)
    assert torch.equal(run(function, sizes, tile, 3, args, "tma_lower"), first)
    other = run(function, sizes, tile, 4, args, "wgmma")
    torch.testing.assert_close(other, first, atol=2e-3, rtol=2e-3)
