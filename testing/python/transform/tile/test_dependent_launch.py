"""Kernels that wait for the kernel before them, with roles of warps."""

import pytest

import tilelang
import tilelang.language as T

PASSES = ("HoistViews", "ProducerConsumerWarpSpecialized")


def waiting(place):
    """A product that waits before everything, before its pipeline, or in it before loads of A."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            if place == "first":
                T.pdl_sync()
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            if place == "second":
                T.pdl_sync()
            for k in T.Pipelined(4, num_stages=2):
                T.copy(B[k * 64, 0], W)
                if place == "between" and k == 0:
                    T.pdl_sync()
                T.copy(A[0, k * 64], S)
                T.gemm(S, W, F)
            T.copy(F, C)

    return main


def test_a_first_wait_stands_in_front_of_the_roles(statements):
    text = statements(waiting("first"), *PASSES, arch="sm_90a")
    assert text.count("pdl_sync") == 1
    assert text.index("pdl_sync") < text.index('T.attr("producer", "tl.warp_role"')


@pytest.mark.parametrize("place", ["second", "between"])
def test_each_role_waits_at_another_place_itself(tile_passes, statements, place):
    mod = tile_passes(waiting(place), *PASSES, arch="sm_90a")
    (entry,) = mod["main"].attrs["tl.warp_roles"]
    assert not entry["reason"]
    producer, consumer = statements(waiting(place), *PASSES, arch="sm_90a").split("consumer")
    assert producer.count("pdl_sync") == consumer.count("pdl_sync") == 1
    loads = [producer.index(f"[{tensor}[") for tensor in "BA"]
    assert sum(load < producer.index("pdl_sync") for load in loads) == (place == "between")


def test_no_load_runs_ahead_of_a_wait_in_front_of_it():
    """Of a pipeline without roles, which begins with the loads of its first iterations."""
    kernel = tilelang.compile(
        waiting("between"),
        target="cuda -arch=sm_90a",
        execution_backend="emulate",
        pass_configs={tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True},
    )
    before, _, _ = kernel.get_kernel_source().partition("pdl_sync")
    assert "W_full" in before or "(W" in before
    assert "(S" not in before
    assert "A_desc, " not in before


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "hip -mcpu=gfx942"])
def test_where_kernels_do_not_overlap_waits_are_none(target):
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            A[T.get_thread_binding()] += 1.0
            T.pdl_trigger()
        with T.Kernel(1, threads=128):
            T.pdl_sync()
            A[T.get_thread_binding()] *= 2.0

    kernel = tilelang.compile(main, target=target, execution_backend="emulate")
    assert "pdl" not in kernel.get_kernel_source()
    assert not any(k.dependent for k in kernel.artifact.launch_plan.kernels)
