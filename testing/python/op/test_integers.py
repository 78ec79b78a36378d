"""Arithmetic of signed integers is modulo a power of two, in every operator that computes."""

import pytest
import torch

import tilelang.language as T

INTEGERS = ["int8", "int16", "int32", "int64"]


def arithmetic(dtype, n=96):
    """Sums, products, absolute values and running sums of whole ranges of a dtype."""

    @T.prim_func
    def main(
        A: T.Tensor((4, n), dtype),
        B: T.Tensor((4, n), dtype),
        out: T.Tensor((4, 4, n), dtype),
        totals: T.Tensor((3, 4), dtype),
    ):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((4, n), dtype)
            running = T.alloc_shared((4, n), dtype)
            rows = [T.alloc_fragment((4,), dtype) for _ in range(3)]
            T.copy(A, a)
            T.copy(A, running)
            for i, j in T.Parallel(4, n):
                out[0, i, j] = a[i, j] + B[i, j]
                out[1, i, j] = a[i, j] * B[i, j] - B[i, n - 1 - j]
                out[2, i, j] = T.abs(a[i, j])
            T.cumsum(running, dim=1)
            T.copy(running, out[3, 0, 0])
            T.reduce_sum(a, rows[0])
            T.reduce_abssum(a, rows[1])
            T.reduce_absmax(a, rows[2])
            for k, row in enumerate(rows):
                T.copy(row, totals[k, 0:4])

    return main


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(compiled, device, dtype):
    torch_dtype = getattr(torch, dtype)
    limits = torch.iinfo(torch_dtype)
    a, b = (torch.randint(limits.min, limits.max, (4, 96), dtype=torch_dtype) for _ in range(2))
    a[0, :3] = torch.tensor([limits.min, limits.max, -1])
    b[0, :3] = torch.tensor([-1, limits.max, limits.min])
    out, totals = compiled(arithmetic(dtype), out_idx=[2, 3])(a.to(device), b.to(device))

    def wrapped(values):
        return values.to(torch_dtype)

    absolute = wrapped(a.abs())
    expected = torch.stack([a + b, a * b - b.flip(1), absolute, wrapped(a.cumsum(1))])
    assert torch.equal(out.cpu(), expected)
    sums = [wrapped(a.sum(1)), wrapped(absolute.to(torch.int64).sum(1)), absolute.amax(1)]
    assert torch.equal(totals.cpu(), torch.stack(sums))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_extrema_of_negations(compiled, device, dtype):
    """Compilers make one instruction of two extrema, and not all of them keep the minus.

    The least number has no negation: what simplifies the program takes it for not there.
    """

    @T.prim_func
    def main(A: T.Tensor((3, 96), dtype), out: T.Tensor((4, 96), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(96):
                out[0, i] = T.max(A[0, i], T.max(A[1, i], -A[2, i]))
                out[1, i] = T.min(A[0, i], T.min(A[1, i], -A[2, i]))
                out[2, i] = T.max(A[0, i], T.max(-A[1, i], -A[2, i]))
                out[3, i] = T.max(T.max(A[0, i], 0 - A[0, i]), T.max(A[1, i], 0 - A[1, i]))

    torch_dtype = getattr(torch, dtype)
    limits = torch.iinfo(torch_dtype)
    a, b, c = x = torch.randint(limits.min + 1, limits.max, (3, 96), dtype=torch_dtype)
    found = compiled(main, out_idx=-1)(x.to(device)).cpu()
    expected = [
        torch.maximum(a, torch.maximum(b, -c)),
        torch.minimum(a, torch.minimum(b, -c)),
        torch.maximum(a, torch.maximum(-b, -c)),
        torch.maximum(torch.maximum(a, -a), torch.maximum(b, -b)),
    ]
    assert torch.equal(found, torch.stack(expected))
