"""Products begin accumulators that were cleared by a statement of its own."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

pytestmark = pytest.mark.usefixtures("tensors_on_device")


def scaled(form, steps=3):
    """Sums of products, each by its own scale."""

    @T.prim_func
    def main(
        A: T.Tensor((64, steps * 64), "float16"),
        B: T.Tensor((64, steps * 64), "float16"),
        Scale: T.Tensor((steps,), "float32"),
        C: T.Tensor((2, 64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            product = T.alloc_fragment((64, 64), "float32")
            total = T.alloc_fragment((64, 64), "float32")
            T.clear(total)
            if form != "in front":
                T.clear(product)
            if form == "touched":
                T.fill(product, 1)
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(A[:, k * 64 : k * 64 + 64], a)
                T.copy(B[:, k * 64 : k * 64 + 64], b)
                if form == "in front":
                    T.clear(product)
                T.gemm(a, b, product, transpose_B=True)
                if form == "twice":
                    T.gemm(a, b, product, transpose_B=True)
                for i, j in T.Parallel(64, 64):
                    total[i, j] += product[i, j] * Scale[k]
                if form == "a part":
                    T.clear(product[:, 0:32])
                elif form == "left":
                    if Scale[k] < 0:
                        break
                    T.clear(product)
                elif form != "in front":
                    T.clear(product)
            T.copy(total, C[0, :, :])
            T.copy(product, C[1, :, :])

    return main


def wanted(form, a, b, scale):
    a, b = (t.float().view(64, -1, 64) for t in (a, b))
    product, total = torch.zeros(64, 64), torch.zeros(64, 64)
    if form == "touched":
        product += 1
    for k in range(a.shape[1]):
        if form == "in front":
            product = torch.zeros(64, 64)
        product = product + a[:, k] @ b[:, k].T * (2 if form == "twice" else 1)
        total = total + product * scale[k]
        if form == "left" and scale[k] < 0:
            break
        if form == "a part":
            product = torch.cat([torch.zeros(64, 32), product[:, 32:]], 1)
        elif form != "in front":
            product = torch.zeros(64, 64)
    return torch.stack([total, product])


@pytest.mark.parametrize(
    ("form", "folded"),
    [("behind", 1), ("in front", 1), ("twice", 1), ("touched", 0), ("a part", 0), ("left", 0)],
)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(statements, form, folded, arch):
    text = statements(scaled(form), "FoldClears", arch=arch)
    assert len(re.findall(r"T\.tl\.gemm\(.*, T\.bool\(True\)\)$", text, re.M)) == folded, text
    a, b = (torch.randint(-3, 4, (64, 192)).half() for _ in range(2))
    scale, c = torch.tensor([2.0, -1.0, 3.0]), torch.full((2, 64, 64), torch.nan)
    target = f"cuda -arch={arch}"
    tilelang.compile(scaled(form), target=target, execution_backend="auto")(a, b, scale, c)
    assert torch.equal(c, wanted(form, a, b, scale))


@pytest.mark.parametrize("factor", [1.0, -1.0])
def test_products_of_negative_zeros_are_zero(factor):
    """As with a clear of its own: a sum of -0 alone would be -0, and an H200's is 0."""
    a, b = torch.full((64, 192), -0.0), torch.full((64, 192), factor)
    a, b, c = a.half(), b.half(), torch.ones(2, 64, 64)
    tilelang.compile(scaled("in front"), target="cuda -arch=sm_90a")(a, b, torch.ones(3), c)
    assert not c[1].signbit().any()
    assert not c[1].any()


def one_step(form):
    """A clear, a product, and in each form something that keeps them apart."""
    order = {"order": [0, 1, 2, 3], "stage": [0, 0, 1, 1]} if "an ordered loop" in form else {}

    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), C: T.Tensor((64, 64), "float32"), n: T.int32):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            same = T.view(c, (64, 64), "float32")
            total = T.alloc_fragment((64, 64), "float32")
            T.clear(total)
            T.clear(c)
            for k in T.Pipelined(4, num_stages=2, **order):
                T.copy(A[0, k * 64], a)
                if form == "a negative zero":
                    T.fill(c, -0.0)
                if form == "in an ordered loop":
                    T.clear(total)
                    T.gemm(a, a, total, transpose_B=True)
                elif form == "a part of the product":
                    T.gemm(a, a[0:32, :], c[:, 0:32], transpose_B=True)
                elif form == "cleared at times":
                    T.gemm(a, a, c, transpose_B=True, clear_accum=k == 2)
                else:
                    T.gemm(a, a, c, transpose_B=True)
                if form != "in an ordered loop":
                    for i, j in T.Parallel(64, 64):
                        total[i, j] += c[i, j]
                if form != "a negative zero":
                    T.clear(c)
                if form == "used behind":
                    for i, j in T.Parallel(64, 64):
                        c[i, j] += 1
            if form == "another name":
                T.copy(same, C)
            T.copy(total, C)

            T.clear(c)
            if form == "behind an ordered loop":
                T.gemm(a, a, c, transpose_B=True)
            for k in T.serial(n):
                if form == "left in front":
                    T.clear(c)
                    if A[0, k] < 0:
                        break
                    T.gemm(a, a, c, transpose_B=True)
                elif form == "another name in front":
                    T.clear(c)
                    for i, j in T.Parallel(64, 64):
                        same[i, j] += 1
                    T.gemm(a, a, c, transpose_B=True)
            T.copy(c, C)

    return main


@pytest.mark.parametrize(
    ("form", "folded"),
    [
        ("plain", 1),
        ("an ordered loop", 0),
        ("in an ordered loop", 0),
        ("behind an ordered loop", 1),
        ("a negative zero", 0),
        ("a part of the product", 0),
        ("cleared at times", 0),
        ("used behind", 0),
        ("another name", 1),
        ("left in front", 1),
        ("another name in front", 1),
    ],
)
def test_what_is_between(statements, form, folded):
    """Of the loop's product, whose clear is behind it, and of one behind its clear."""
    text = statements(one_step(form), "FoldClears", arch="sm_90a")
    assert len(re.findall(r"T\.tl\.gemm\(.*, T\.bool\(True\)\)$", text, re.M)) == folded, text
    # Somebody reads the accumulator behind the loop.
    assert len(re.findall(r"T\.tl\.fill\(c\[", text)) >= 2
