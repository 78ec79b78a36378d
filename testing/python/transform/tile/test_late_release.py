"""Where the consumer of a warp-specialised kernel gives up the slots that its products read."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import schedule

TARGET = {"kind": "cuda", "arch": "sm_90a"}
HOW = (
    {"asynchronous": "late"},
    {"order": "adversarial", "asynchronous": "early"},
    {"order": "random", "asynchronous": "random", "seed": 3},
)


def products(num_stages, inner=False):
    """The sum of the first `length` products, `outer` times; `inner`: doubled after each."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"),
        B: T.Tensor((64, 512), "float16"),
        C: T.Tensor((3, 64, 64), "float32"),
        outer: T.int32,
        length: T.int32,
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for i in T.serial(outer):
                T.clear(c)
                for k in T.Pipelined(length, num_stages=num_stages):
                    T.copy(A[0, k * 64], a)
                    T.copy(B[0, k * 64], b)
                    T.gemm(a, b, c, transpose_B=True)
                    if inner:
                        for x, y in T.Parallel(64, 64):
                            c[x, y] = c[x, y] * 2
                T.copy(c, C[i, 0, 0])

    return main


def two_products(length, num_stages=2):
    """Weights from the first product, in registers, for the second."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((64 * length, 64), "float16"),
        V: T.Tensor((64 * length, 64), "float16"),
        Out: T.Tensor((64, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            v = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, q)
            T.clear(o)
            for i in T.Pipelined(n, num_stages=num_stages):
                T.copy(K[i * 64, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.copy(s, p)
                T.copy(V[i * 64, 0], v)
                T.gemm(p, v, o)
            T.copy(o, Out)

    return main


def events(func):
    """What the consumer waits for and says, in the order of its text; slots left out."""
    source = tilelang.lower(func, target="cuda -arch=sm_90a").kernel_source
    text = source.partition("tl::warpgroup_reg_alloc")[2]
    found = re.findall(
        r"mbarrier_wait\((\w+)|mbarrier_arrive\((\w+)|(commit)_batch|warpgroup_wait<(\d)>"
        r"|(for) \(int [ik] =",
        text,
    )
    names = ("acquire {}", "release {}", "{}", "wait {}", "{}")
    return [
        name.format(part) for row in found for name, part in zip(names, row, strict=True) if part
    ]


AT_ONCE = ["for", "for", "acquire a_full", "commit", "wait 0", "release a_empty"]


@pytest.mark.parametrize("num_stages", [2, 3])
def test_one_product_is_in_flight(num_stages):
    loop = ["for", "acquire a_full", "commit", "wait 1", "release a_empty"]
    assert events(products(num_stages)) == ["for", *loop, "wait 0", "release a_empty"]


@pytest.mark.parametrize("options", [{"num_stages": 1}, {"num_stages": 2, "inner": True}])
def test_one_slot_or_a_use_of_the_sum_is_given_up_at_once(options):
    assert events(products(**options)) == AT_ONCE


def test_two_products_have_one_wait():
    release = ["release k_empty", "release v_empty"]
    loop = ["for", "acquire k_full", "commit", "wait 0", *release, "acquire v_full", "commit"]
    assert events(two_products(4)) == ["acquire q_full", *loop, "wait 0", "release v_empty"]


@pytest.mark.parametrize("num_stages", [2, 3])
def test_sums_of_any_length(num_stages):
    kernel = tilelang.compile(products(num_stages), target=TARGET, execution_backend="emulate")
    a, b = (torch.randint(-4, 5, (64, 512)).half() for _ in range(2))
    for outer, length in ((1, 0), (2, 1), (2, 2), (3, 5)):
        wanted = (a[:, : 64 * length] @ b[:, : 64 * length].T).float()
        for how in HOW:
            c = torch.full((3, 64, 64), -1.0)
            with schedule(**how):
                kernel(a, b, c, outer, length)
            assert torch.equal(c[:outer], wanted.expand(outer, -1, -1))


def test_two_products_of_any_length():
    kernel = tilelang.compile(two_products(4), target=TARGET, execution_backend="emulate")
    q, k, v = (torch.randint(-2, 3, shape).half() for shape in ((64, 64), (256, 64), (256, 64)))
    for n in (0, 1, 4):
        scores = (q @ k[: 64 * n].T).float()
        for how in HOW:
            out = torch.full((64, 64), -1.0)
            with schedule(**how):
                kernel(q, k, v, out, n)
            assert torch.equal(out, scores @ v[: 64 * n].float())
