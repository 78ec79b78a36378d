"""The first product of a loop begins the accumulators of the loop."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

pytestmark = pytest.mark.usefixtures("tensors_on_device")


def sums(form, first=0, last=3):
    """Products of steps first..last (dynamic in some forms) added up; what stands between the clear
    and the products depends on the form."""
    order = {"order": [0, 1, 2], "stage": [0, 0, 1]} if form == "an ordered loop" else {}
    dynamic = form in ("any number", "serial, any number")
    stages = 0 if "serial" in form else 2

    @T.prim_func
    def main(
        A: T.Tensor((64, 4 * 64), "float16"),
        B: T.Tensor((64, 4 * 64), "float16"),
        Steps: T.Tensor((2,), "int32"),
        C: T.Tensor((2, 64, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            d = T.alloc_fragment((64, 64), "float32")
            same = T.view(c, (64, 64), "float32")
            T.clear(c)
            T.clear(d)
            if form == "touched by another name":
                T.fill(same, 1)
            end = n if dynamic else last
            if form == "a number in memory":
                end = Steps[0]
            for k in T.Pipelined(first, end, num_stages=stages, **order):
                T.copy(A[:, k * 64 : k * 64 + 64], a)
                T.copy(B[:, k * 64 : k * 64 + 64], b)
                if form == "left" and Steps[1] == k:
                    break
                if form == "read in front":
                    for i, j in T.Parallel(64, 64):
                        d[i, j] += c[i, j]
                if form == "under a condition":
                    if k % 2 == 1:
                        T.gemm(a, b, c, transpose_B=True)
                else:
                    T.gemm(a, b, c, transpose_B=True)
                if form == "two accumulators":
                    T.gemm(b, a, d, transpose_B=True)
                if form == "two products":
                    T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[0, :, :])
            T.copy(d, C[1, :, :])

    return main


def wanted(form, a, b, steps):
    a, b = (t.float().view(64, -1, 64) for t in (a, b))
    c, d = torch.zeros(64, 64), torch.zeros(64, 64)
    if "touched" in form:
        c += 1
    for k in steps:
        product = a[:, k] @ b[:, k].T
        if form == "read in front":
            d += c
        if form != "under a condition" or k % 2 == 1:
            c = c + product * (2 if form == "two products" else 1)
        if form == "two accumulators":
            d = d + product.T
    return torch.stack([c, d])


# How many products begin what they add to, and how many clears are gone and wait for a condition.
FORMS = {
    "plain": (1, 1, 0),
    "serial": (1, 1, 0),
    "two accumulators": (2, 2, 0),
    "two products": (1, 1, 0),
    "any number": (1, 0, 1),
    "serial, any number": (1, 0, 1),
    "touched by another name": (0, 0, 0),
    "read in front": (0, 0, 0),
    "under a condition": (0, 0, 0),
    "left": (0, 0, 0),
    "a number in memory": (1, 0, 1),
    "an ordered loop": (1, 1, 0),
}
PASSES = ("SelectInstructions", "BeginAccumulators")
BEGINS = r"T\.tl\.gemm\(.*, k == \d+\)"


@pytest.mark.parametrize("form", FORMS)
def test_forms(statements, form):
    begins, gone, waiting = FORMS[form]
    before = statements(sums(form), *PASSES[:1], arch="sm_90a")
    after = statements(sums(form), *PASSES, arch="sm_90a")
    assert len(re.findall(BEGINS, after)) == begins, after
    fill = r"T\.tl\.fill\("
    assert len(re.findall(fill, before)) - len(re.findall(fill, after)) == gone, after
    assert len(re.findall(r"if \w+ < 1:\s*T\.tl\.fill", after)) == waiting, after


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_other_instructions_keep_their_clear(statements, arch):
    assert not re.findall(BEGINS, statements(sums("plain"), *PASSES, arch=arch))


@pytest.mark.parametrize("ordered", [False, True])
def test_statements_that_the_program_counts_stay(statements, ordered):
    order = {"order": [0, 1, 2, 3], "stage": [0, 1, 1, 1]} if ordered else {}

    @T.prim_func
    def main(A: T.Tensor((4, 64, 64), "float16"), C: T.Tensor((4, 64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for o in T.Pipelined(4, num_stages=2, **order):
                T.copy(A[o, 0, 0], a)
                T.clear(c)
                for _ in T.serial(3):
                    T.gemm(a, a, c)
                T.copy(c, C[o, 0, 0])

    text = statements(main, *PASSES, arch="sm_90a")
    assert len(re.findall(r"T\.tl\.fill\(", text)) == ordered, text


@pytest.mark.parametrize("form", FORMS)
def test_results(form):
    a, b = (torch.randint(-3, 4, (64, 256)).half() for _ in range(2))
    found = torch.full((2, 64, 64), torch.nan)
    steps = torch.tensor([3, 2], dtype=torch.int32)
    kernel = tilelang.compile(sums(form), target="cuda -arch=sm_90a", execution_backend="auto")
    kernel(a, b, steps, found, 3)
    assert torch.equal(found, wanted(form, a, b, range(2 if form == "left" else 3)))


@pytest.mark.parametrize("form", ["any number", "serial, any number"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("last", [-1, 0, 1, 2, 4])
def test_loops_of_any_number_of_iterations(form, first, last):
    a, b = (torch.randint(-3, 4, (64, 256)).half() for _ in range(2))
    found = torch.full((2, 64, 64), torch.nan)
    kernel = tilelang.compile(sums(form, first), target="cuda -arch=sm_90a")
    kernel(a, b, torch.zeros(2, dtype=torch.int32), found, last)
    assert torch.equal(found, wanted(form, a, b, range(first, last)))
