"""Indices that are negative however often loops run count from the end; others are left alone."""

import pytest
import torch

import tilelang
import tilelang.language as T


def shifted(index, blocks=1, extent=64, n=None):
    """Reads S and A at index(i, bx, n), where i < 8, and writes B there."""
    m = T.dynamic("m") if n is None else n

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((m,), "float32"), C: T.Tensor((8,))):
        with T.Kernel(blocks, threads=64) as bx:
            S = T.alloc_shared((extent,), "float32")
            for i in T.Parallel(extent):
                S[i] = i
            for i in T.Parallel(8):
                B[index(i, bx, m)] = A[index(i, bx, m)]
                C[i] = S[index(i, bx, m)]

    return main


@pytest.mark.parametrize(
    ("index", "n"),
    [
        (lambda i, bx, m: -1 - i, None),
        (lambda i, bx, m: -1 - i % 4 * 2 - i // 4, None),
        (lambda i, bx, m: i % 8 - 64, 64),
    ],
    ids=["expression", "quotients", "whole extent"],
)
def test_elements_are_those_of_python(device, caplog, index, n):
    kernel = tilelang.compile(shifted(index, n=n))
    a = torch.randn(n or 100, device=device)
    b, c = torch.zeros_like(a), torch.zeros(8, device=device)
    kernel(a, b, c)
    at = [index(i, 0, len(a)) for i in range(8)]
    wanted = torch.zeros_like(a)
    wanted[at] = a[at]
    assert torch.equal(b, wanted)
    assert c.tolist() == [range(64)[k] for k in at]
    assert "whenever it happens" not in caplog.text


@pytest.mark.parametrize(
    "index",
    [
        lambda i, bx, m: i - 3,
        lambda i, bx, m: i - 8,  # with more iterations it is not
        lambda i, bx, m: bx - 1,  # with more blocks it is not
        lambda i, bx, m: i - m,
        lambda i, bx, m: i,
    ],
    ids=["partly", "first iterations", "first block", "size", "never"],
)
def test_what_may_be_an_element_is_left_alone(tile_passes, index):
    before = tile_passes(shifted(index), "MaterializeKernelLaunch")
    after = tile_passes(shifted(index), "LegalizeNegativeIndex")
    assert str(after["main"]) == str(before["main"])


def test_a_condition_proves_it(tile_passes):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), n: T.int32):
        with T.Kernel(1, threads=64):
            if n < 4:
                A[n - 4] = 1

    assert "A[n + 60] = " in tile_passes(main, "LegalizeNegativeIndex")["main"].script()


@pytest.mark.parametrize("n", [64, 128])
def test_a_halo_reads_zeros_with_any_number_of_iterations(device, n):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            for k in T.serial(n // 64):
                B[k * 64 + tx] = A[k * 64 + tx - 64]

    a, b = torch.randn(n, device=device), torch.ones(n, device=device)
    tilelang.compile(main)(a, b)
    assert torch.equal(b, torch.cat([torch.zeros(64, device=device), a[:-64]]))
