"""An architecture is a number and the features of its name: sm_90 has TMA, and no wgmma."""

import functools
import importlib.util
import pathlib

import pytest

import tilelang
import tilelang.language as T

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def gemm(tiled_gemm):
    return functools.partial(tiled_gemm, 256, 256, 256, (128, 128, 64), num_stages=3, threads=256)


def product_by_hand():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.wgmma_gemm(a, a, c, clear_accum=True)
            T.wait_wgmma(0)
            T.copy(c, C)

    return main


def by_hand(statement):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            statement()
            A[0] = 1

    return main


@pytest.mark.parametrize("target", ["cuda -arch=sm_90", {"kind": "cuda", "arch": "sm_90"}])
def test_sm_90_has_tma_and_roles_without_wgmma_and_registers_that_move(target, gemm):
    kernel = tilelang.compile(gemm(), target=target)
    source = kernel.get_kernel_source()
    assert "tl::tma_load" in source
    assert "tl::mma_sync" in source
    assert "wgmma" not in source
    assert "warpgroup_reg" not in source
    assert "warp specialised: threads 0 to 127 produce" in kernel.explain()
    assert "no wgmma: needs sm_90a, found sm_90" in kernel.explain()
    assert kernel.cubin


@pytest.mark.parametrize(
    ("arch", "products"), [("sm_90a", "wgmma"), ("sm_80", "mma_sync"), ("sm_100", "mma_sync")]
)
def test_other_architectures(arch, products, gemm):
    source = tilelang.compile(gemm(), target=f"cuda -arch={arch}").get_kernel_source()
    assert ("wgmma" in source) == (products == "wgmma")
    assert ("warpgroup_reg" in source) == (products == "wgmma")


@pytest.mark.parametrize("arch", ["sm_100", "sm_100a", "sm_100f", "sm_120a"])
def test_later_architectures_compile(arch, gemm):
    assert tilelang.compile(gemm(), target=f"cuda -arch={arch}").cubin


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float8_e4m3fn"])
def test_products_of_other_types(dtype, gemm):
    kernel = tilelang.compile(gemm(dtype=dtype), target="cuda -arch=sm_90")
    assert kernel.cubin


def test_attention():
    path = ROOT / "examples" / "attention" / "flash_attention.py"
    spec = importlib.util.spec_from_file_location("flash_attention", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    kernel = tilelang.compile(
        example.flash_attention.get_tir(1, 2, 256, 64, True), target="cuda -arch=sm_90"
    )
    assert "wgmma" not in kernel.get_kernel_source()
    assert kernel.cubin


@pytest.mark.parametrize("arch", ["sm_90", "sm_100a"])
@pytest.mark.parametrize(
    ("program", "found"),
    [
        (product_by_hand(), "needs sm_90a, found {arch}"),
        (by_hand(lambda: T.set_max_nreg(40, 0)), "for {arch}, wanted sm_90a"),
        (by_hand(lambda: T.warpgroup_arrive()), "for {arch}, wanted sm_90a"),
        (by_hand(lambda: T.warpgroup_commit_batch()), "for {arch}, wanted sm_90a"),
        (by_hand(lambda: T.warpgroup_wait(0)), "for {arch}, wanted sm_90a"),
    ],
)
def test_what_only_sm_90a_has_is_refused(arch, program, found):
    with pytest.raises(ValueError, match=found.format(arch=arch)):
        tilelang.compile(program, target=f"cuda -arch={arch}")


@pytest.mark.parametrize("arch", ["sm_9", "sm_90b", "90a", "sm_90aa", "compute_90"])
def test_unknown_names(arch, gemm):
    with pytest.raises(ValueError, match="arch"):
        tilelang.compile(gemm(), target={"kind": "cuda", "arch": arch})
