"""T.tma_copy, and stores by the tensor memory access unit, against torch."""

import pytest
import torch

import tilelang
import tilelang.language as T

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
            T.tma_copy(A[tuple(slice(b, b + e) for b, e in zip(at, tile, strict=True))], part, barrier=full)
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
