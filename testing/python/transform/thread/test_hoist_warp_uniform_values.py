"""HoistWarpUniformValues: which warp group it is, descriptors of wgmma ask once."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
pytestmark = pytest.mark.usefixtures("on_sm_90a")


def gemm(threads, policy, block=(128, 64), groups=None):
    """A product of all warp groups, or of `groups`."""
    m, n = block

    @T.prim_func
    def main(
        A: T.Tensor((m, 64), T.float16),
        B: T.Tensor((64, n), T.float16),
        C: T.Tensor((m, n), T.float32),
    ):
        with T.Kernel(1, threads=threads):
            A_shared = T.alloc_shared((m, 64), T.float16)
            B_shared = T.alloc_shared((64, n), T.float16)
            C_local = T.alloc_fragment((m, n), T.float32)
            with T.ws(*(groups or range(threads // 128))):
                T.copy(A, A_shared)
                T.copy(B, B_shared)
                T.gemm(A_shared, B_shared, C_local, policy=policy, clear_accum=True)
                T.copy(C_local, C)

    return main


def descriptors(source):
    return [line.strip() for line in source.splitlines() if "wgmma_descriptor<" in line]


@pytest.mark.parametrize(
    ("threads", "policy", "block", "name", "value"),
    [
        (256, "FullRow", (128, 64), "warp_group", "tx / 128"),
        (256, "FullCol", (64, 128), "warp_group", "tx / 128"),
        (512, "FullRow", (128, 64), "of_warp", "tx % 256 / 128"),
    ],
)
def test_descriptors_use_a_name(threads, policy, block, name, value):
    program = gemm(threads, T.GemmWarpPolicy[policy], block)
    kernel = tilelang.compile(program, target=HOPPER)
    source = kernel.get_kernel_source()
    assert f"const int {name} = tl::shfl_sync(4294967295u, {value}, 0, 32);" in source
    assert any(name in line for line in descriptors(source))
    assert not any("tx" in line for line in descriptors(source))
    m, n = block
    a, b, c = torch.randn(m, 64).half(), torch.randn(64, n).half(), torch.zeros(m, n)
    kernel(a, b, c)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("threads", "groups", "condition"),
    [
        (256, (0,), "warp_group < 1"),
        (384, (1, 2), "1 <= warp_group"),
        (512, (1, 2), "1 <= warp_group && warp_group < 3"),
    ],
)
def test_branches_of_warp_groups_ask_for_the_name(threads, groups, condition):
    rows = 64 * len(groups)
    program = gemm(threads, T.GemmWarpPolicy.FullRow, (rows, 64), groups)
    kernel = tilelang.compile(program, target=HOPPER)
    source = kernel.get_kernel_source()
    assert f"if ({condition}) {{" in source
    assert not re.search(r"if \(.*tx.*128", source)
    a, b, c = torch.randn(rows, 64).half(), torch.randn(64, 64).half(), torch.zeros(rows, 64)
    kernel(a, b, c)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-4, atol=1e-3)


def test_branches_of_threads_and_kernels_without_wgmma_ask_for_the_thread():
    @T.prim_func
    def main(A: T.Tensor((256,), T.float32)):
        with T.Kernel(1, threads=256):
            x = T.alloc_shared((256,), T.float32)
            with T.ws(1):
                T.fill(x, 2.0)
            T.copy(x, A)

    source = tilelang.compile(main, target=HOPPER).get_kernel_source()
    assert "if (128 <= tx)" in source
    assert "int warp_group" not in source
    few = gemm(256, T.GemmWarpPolicy.FullRow)
    source = tilelang.compile(few, target=HOPPER).get_kernel_source()
    assert "warp_group <" not in source


def test_one_warp_group_needs_none():
    source = tilelang.compile(
        gemm(128, T.GemmWarpPolicy.FullRow, (64, 64)), target=HOPPER
    ).get_kernel_source()
    assert descriptors(source)
    assert "shfl_sync" not in source


def test_a_block_that_ends_within_a_warp_is_not_asked():
    # A shuffle of all lanes would wait for lanes that are not there.
    program = gemm(264, T.GemmWarpPolicy.FullRow, groups=(0, 1))
    kernel = tilelang.compile(program, target=HOPPER)
    assert any("tx / 128" in line for line in descriptors(kernel.get_kernel_source()))
    assert "shfl_sync" not in kernel.get_kernel_source()
    a, b, c = torch.randn(128, 64).half(), torch.randn(64, 64).half(), torch.zeros(128, 64)
    kernel(a, b, c)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-4, atol=1e-3)
