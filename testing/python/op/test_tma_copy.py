"""T.tma_copy, and stores by the tensor memory access unit, against torch."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_padded_layout

SM90 = {"kind": "cuda", "arch": "sm_90a"}


def build(func, **options):
    return tilelang.compile(func, target=SM90, execution_backend="emulate", **options)


def random(shape, dtype="float16"):
    torch_dtype = getattr(torch, dtype)
    if torch_dtype.is_floating_point:
        return torch.randn(shape, dtype=torch.float64).to(torch_dtype)
    return torch.randint(0, 100, shape).to(torch_dtype)


def loads(shape, tile, dtype="float16", at=None, layout=None, whole=None):
    """A kernel that brings a tile of A to B by one load."""
    at = at or [0] * len(shape)
    whole = whole or tile

    @T.prim_func
    def main(A: T.Tensor(shape, dtype), B: T.Tensor(tile, dtype)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared(whole, dtype)
            full = T.alloc_barrier(1)
            if layout is not None:
                T.annotate_layout({S: layout(S)})
            part = S[tuple(slice(0, e) for e in tile)]
            source = A[tuple(slice(b, b + e) for b, e in zip(at, tile, strict=True))]
            T.tma_copy(source, part, barrier=full)
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            T.copy(part, B, prefer_instruction="sync")

    return main


@pytest.mark.parametrize(
    ("shape", "tile", "dtype", "swizzle"),
    [
        ((256, 64), (128, 64), "float16", 128),
        ((256, 128), (128, 128), "bfloat16", 128),
        ((64, 32), (64, 32), "float16", 64),
        ((64, 16), (64, 16), "float16", 32),
        ((64, 8), (64, 8), "float16", 0),
        ((16, 32), (16, 32), "float32", 128),
        ((8, 16), (8, 16), "float64", 128),
        ((64, 128), (32, 128), "int8", 128),
        ((24, 40), (24, 40), "float16", 0),
        ((512,), (256,), "float32", 0),
        ((2, 3, 16, 64), (2, 3, 16, 64), "float16", 128),
        ((300, 64), (300, 64), "float16", 0),
    ],
)
def test_a_load_fills_the_tile(shape, tile, dtype, swizzle):
    kernel = build(loads(shape, tile, dtype))
    (descriptor,) = kernel.artifact.launch_plan.descriptors
    assert descriptor.swizzle == swizzle
    assert "tl::tma_load" in kernel.get_kernel_source()
    a, b = random(shape, dtype), torch.zeros(tile, dtype=getattr(torch, dtype))
    kernel(a, b)
    assert torch.equal(b, a[tuple(slice(0, e) for e in tile)])


def test_elements_outside_of_the_tensor_are_zero():
    kernel = build(loads((100, 72), (64, 64), at=(64, 32)))
    a, b = random((100, 72)), torch.ones((64, 64), dtype=torch.float16)
    kernel(a, b)
    wanted = torch.zeros((64, 64), dtype=torch.float16)
    wanted[:36, :40] = a[64:, 32:]
    assert torch.equal(b, wanted)


def test_a_store_is_the_default_from_shared_memory():
    @T.prim_func
    def main(A: T.Tensor((200, 128), "float16"), B: T.Tensor((200, 128), "float16")):
        with T.Kernel(4, threads=128) as b:
            S = T.alloc_shared((64, 128), "float16")
            T.copy(A[b * 64, 0], S)
            for i, j in T.Parallel(64, 128):
                S[i, j] = S[i, j] + 1
            T.copy(S, B[b * 64, 0])

    kernel = build(main)
    source = kernel.get_kernel_source()
    assert source.count("tl::tma_store<") == 1
    assert source.index("tl::fence_proxy_async()") < source.index("tl::tma_store<")
    a, b = random((200, 128)), torch.zeros((200, 128), dtype=torch.float16)
    kernel(a, b)
    assert torch.equal(b, a + 1)


def test_stages_of_a_tile_are_loaded_one_by_one():
    @T.prim_func
    def main(A: T.Tensor((4, 64, 96), "float16"), B: T.Tensor((4, 64, 96), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((2, 64, 96), "float16")
            full = T.alloc_barrier([1, 1])
            for k in T.serial(4):
                T.tma_copy(A[k, :, :], S[k % 2, :, :], barrier=full[k % 2])
                if T.get_thread_binding() == 0:
                    T.mbarrier_arrive(full[k % 2])
                T.mbarrier_wait_parity(full[k % 2], k // 2 % 2)
                for i, j in T.Parallel(64, 96):
                    B[k, i, j] = S[k % 2, i, j]
                T.sync_threads()

    kernel = build(main)
    (descriptor,) = kernel.artifact.launch_plan.descriptors
    assert (descriptor.box, descriptor.swizzle) == ((32, 64, 1), 64)
    assert "(0 ^ 0)" not in kernel.get_kernel_source()
    a, b = random((4, 64, 96)), torch.zeros((4, 64, 96), dtype=torch.float16)
    kernel(a, b)
    assert torch.equal(a, b)


def test_an_explicit_store_is_waited_for_by_the_program():
    @T.prim_func
    def main(A: T.Tensor((2, 64, 64), "float32"), B: T.Tensor((2, 64, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64, 64), "float32")
            for k in T.serial(2):
                T.copy(A[k, 0, 0], S)
                T.tma_copy(S, B[k, :, :], eviction_policy="evict_first")
                T.tma_store_wait(0)

    kernel = build(main)
    assert "tl::tma_store<tl::evict_first>(B_desc, " in kernel.get_kernel_source()
    a, b = random((2, 64, 64), "float32"), torch.zeros((2, 64, 64))
    kernel(a, b)
    assert torch.equal(a, b)


def stored(shape=(64, 64), between=lambda A, S, B: None, loops=1, **keywords):
    @T.prim_func
    def main(A: T.Tensor(shape, "float16"), B: T.Tensor(shape, "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64, 64), "float16")
            for _ in T.serial(loops):
                T.copy(A, S)
                between(A, S, B)
                T.copy(S, B[0, 0], **keywords)

    return main


def test_a_store_whose_order_matters_is_complete():
    assert "tl::tma_store_wait<0, true>()" in build(stored()).get_kernel_source()
    assert "tl::tma_store_wait<0, false>()" in build(stored(loops=2)).get_kernel_source()


@pytest.mark.parametrize(
    ("shape", "options", "keywords"),
    [
        ((64, 64), {}, {"disable_tma": True}),
        ((64, 64), {}, {"prefer_instruction": "sync"}),
        ((64, 64), {}, {"coalesced_width": 2}),
        ((64, 64), {"pass_configs": {"tl.disable_tma_lower": True}}, {}),
        ((64, 60), {}, {}),
        ((64, T.dynamic("n")), {}, {}),
    ],
)
def test_threads_store_what_tma_may_not(shape, options, keywords):
    @T.prim_func
    def main(B: T.Tensor(shape, "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64, 64), "float16")
            T.fill(S, 1)
            T.copy(S, B[0, 0], **keywords)

    kernel = build(main, **options)
    assert "tma" not in kernel.get_kernel_source()
    b = torch.zeros((64, shape[1] if isinstance(shape[1], int) else 61), dtype=torch.float16)
    kernel(b)
    assert b.eq(1).all()


def test_threads_store_to_a_tensor_that_the_kernel_reads():
    @T.macro
    def reads(A, S, B):
        for i, j in T.Parallel(64, 64):
            S[i, j] = S[i, j] + B[i, j]

    kernel = build(stored(between=reads))
    assert "tma" not in kernel.get_kernel_source()
    with pytest.raises(ValueError, match="B, which the kernel also touches"):
        build(stored(between=reads, prefer_instruction="tma"))


@pytest.mark.parametrize(
    ("why", "make"),
    [
        ("rows of 12 bytes, not a multiple of 16", lambda: loads((64, 64), (64, 6))),
        ("a stride of 120 bytes in A", lambda: loads((64, 60), (64, 48))),
        (
            "a layout of S",
            lambda: loads((64, 64), (64, 64), layout=make_padded_layout),
        ),
        ("a layout of S", lambda: loads((64, 64), (60, 64), whole=(64, 72))),
    ],
)
def test_what_tma_cannot_copy_is_refused(why, make):
    with pytest.raises(ValueError, match=rf"test_tma_copy.py:.*T.tma_copy: found {why}"):
        build(make())


def test_a_chip_without_tma_is_refused():
    with pytest.raises(ValueError, match=r"T.tma_copy: found a target without .*sm_80"):
        tilelang.compile(
            loads((64, 64), (64, 64)),
            target={"kind": "cuda", "arch": "sm_80"},
            execution_backend="emulate",
        )


def test_strides_that_only_the_call_knows_are_checked_then():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((64, n), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier(1)
            T.tma_copy(A[0, 0], S, barrier=full)
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            T.copy(S, B)

    kernel = build(main)
    b = torch.ones((64, 64), dtype=torch.float16)
    for columns in (40, 64, 72):
        a = random((64, columns))
        kernel(a, b)
        wanted = torch.zeros_like(b)
        wanted[:, :columns] = a[:, :64]
        assert torch.equal(b, wanted)
    with pytest.raises(ValueError, match=r"`main`.*tensor map of `A`: found strides of 84 bytes"):
        kernel(random((64, 42)), b)


def test_operands_that_do_not_go_together_are_refused():
    def kernel(copy):
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float16")):
            with T.Kernel(1, threads=128):
                S = T.alloc_shared((64, 64), "float16")
                full = T.alloc_barrier(1)
                copy(A, S, full)

        return main

    for copy, found in (
        (lambda A, S, full: T.tma_copy(A, S), "no barrier for a copy from global"),
        (lambda A, S, full: T.tma_copy(S, A, barrier=full), "a barrier for a copy to global"),
        (lambda A, S, full: T.tma_copy(S, A, cluster_mask=3), "a cluster_mask"),
        (lambda A, S, full: T.tma_copy(S, S), "wanted one of them in global"),
        (lambda A, S, full: T.tma_copy(A, S, barrier=full, cluster_mask=0), "cluster_mask .* is 0"),
        (lambda A, S, full: T.tma_copy(S, A, leader_scope_threads=8), "leader_scope_threads .* 8"),
        (
            lambda A, S, full: T.copy(S, A, prefer_instruction="tma", disable_tma=True),
            "prefer_instruction='tma' and disable_tma",
        ),
    ):
        with pytest.raises(ValueError, match=found):
            kernel(copy)
    with pytest.raises(TypeError, match=r"wanted a barrier of T.alloc_barrier"):
        kernel(lambda A, S, full: T.tma_copy(A, S, barrier=S))


@pytest.mark.parametrize(("stages", "loads"), [(0, 1), (2, 2)])
def test_a_pipeline_runs_copies_with_mbarriers_ahead(stages, loads):
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((64, 256), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier(1)
            for k in T.Pipelined(4, num_stages=stages):
                T.tma_copy(A[0, k * 64], S, barrier=full)
                if T.get_thread_binding() == 0:
                    T.mbarrier_arrive(full)
                T.mbarrier_wait_parity(full, k % 2)
                for i, j in T.Parallel(64, 64):
                    B[i, k * 64 + j] = S[i, j]
                T.sync_threads()

    kernel = build(main)
    assert kernel.get_kernel_source().count("tl::tma_load<") == loads
    a, b = random((64, 256)), torch.zeros((64, 256), dtype=torch.float16)
    kernel(a, b)
    assert torch.equal(a, b)
