"""A step of a pipelined loop does not wait for its small loads from global memory."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

TARGETS = {"sm_90a": "mbarrier_wait", "sm_80": "cp_async_wait"}


def product(kind="scaled", K=1024, some=False):
    """C = A (scale B)^T, B in 8 bits with a scale for 64 elements along K; of `some` steps."""

    @T.prim_func
    def main(
        A: T.Tensor((64, K), "float16"),
        B: T.Tensor((64, K), "int8"),
        Scales: T.Tensor((64, T.ceildiv(K, 64)), "float16"),
        C: T.Tensor((64, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "int8")
            w = T.alloc_shared((64, 64), "float16")
            scale = T.alloc_fragment((64,), "float16")
            part = T.alloc_fragment((64, 64), "float32")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(n if some else T.ceildiv(K, 64), num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(B[0, k * 64], b)
                if kind == "behind":
                    T.copy(Scales[:, k], scale)
                    for i, j in T.Parallel(64, 64):
                        w[i, j] = b[i, j].astype("float16")
                    T.gemm(a, w, part, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(64, 64):
                        c[i, j] += part[i, j] * scale[j]
                else:
                    for i, j in T.Parallel(64, 64):
                        w[i, j] = b[i, j].astype("float16") * Scales[i, k]
                    T.gemm(a, w, c, transpose_B=True)
                if kind == "written":
                    Scales[0, k] = T.float16(1)
            T.copy(c, C)

    return main


def loop(program, arch):
    """The text in front of the loop that computes, and the loop up to its first product."""
    source = tilelang.lower(program, target=f"cuda -arch={arch}").kernel_source
    front = re.split(r"wgmma_ss<|mma_sync<", source)[0]
    return front.rsplit("for (int k = ", 1)


@pytest.mark.parametrize("arch", TARGETS)
def test_scales_are_loaded_a_step_ahead(arch):
    front, step = loop(product(), arch)
    assert "prefetched[p] = Scales[" in front
    wait, use, again = (step.index(x) for x in (TARGETS[arch], "(prefetched[", "] = Scales["))
    assert wait < use < again
    assert step.count("Scales[") == 1
    assert "if (k < 15)" in step


@pytest.mark.parametrize("leaves", [False, True])
def test_a_loop_that_may_be_left_has_no_next_element(leaves):
    @T.prim_func
    def main(A: T.Tensor((128, 16), "float32"), C: T.Tensor((128,), "float32"), n: T.int32):
        with T.Kernel(1, threads=128):
            full = T.alloc_barrier(128)
            c = T.alloc_fragment((128,), "float32")
            T.clear(c)
            for k in T.serial(16):
                T.barrier_arrive(full)
                T.barrier_wait(full, k % 2)
                if leaves and k == n:
                    break
                for i in T.Parallel(128):
                    c[i] += A[i, k] * 2
            T.copy(c, C)

    source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    assert ("prefetched" in source) == (not leaves)


@pytest.mark.parametrize("kind", ["behind", "written"])
def test_what_is_not_awaited_or_not_known_stays(kind):
    """Computed with behind the product; an element that changes."""
    front, step = loop(product(kind), "sm_80")
    assert "Scales[" in step
    assert "prefetched" not in front
    amd = tilelang.lower(product(kind), target="hip -mcpu=gfx950").kernel_source
    assert "prefetched" not in amd


def test_a_loop_may_have_no_iteration():
    front, step = loop(product(some=True), "sm_90a")
    assert re.search(r"if \(0 < n\) \{[^}]*prefetched\[p\] = Scales", front)
    assert "if (k + 1 < n)" in step


@pytest.mark.parametrize(("K", "n"), [(200, 4), (256, 4), (256, 1), (256, 0)])
def test_results_are_those_of_the_loop(K, n):
    kernel = tilelang.compile(product(K=K, some=True), execution_backend="emulate")
    a, b = torch.randn(64, K).half(), torch.randint(-9, 9, (64, K), dtype=torch.int8)
    scales, c = torch.randn(64, -(-K // 64)).half(), torch.empty(64, 64)
    kernel(a, b, scales, c, n)
    weights = (b.half() * scales.repeat_interleave(64, 1)[:, :K]).float()
    a, weights = a[:, : n * 64].float(), weights[:, : n * 64]
    torch.testing.assert_close(c, a @ weights.T, atol=1e-2, rtol=1e-3)


def test_each_warp_group_of_a_body_has_its_own_elements():
    """A loop over warp groups is no loop of any of them."""

    @T.prim_func
    def main(S: T.Tensor((128, 2), "float32"), C: T.Tensor((2, 128), "float32")):
        with T.Kernel(1, threads=384):
            full = T.alloc_barrier([128, 128])
            x = T.alloc_shared((2, 128), "float32")
            with T.ws(2):
                for g, i in T.Parallel(2, 128):
                    x[g, i] = g * 1000
                for g in T.serial(2):
                    T.mbarrier_arrive(full[g])
            with T.ws(0, 1, each=True) as g:
                T.mbarrier_wait_parity(full[g], 0)
                for i in T.Parallel(128):
                    C[g, i] = x[g, i] + S[i, g] * 3

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    s, c = torch.randn(128, 2), torch.empty(2, 128)
    kernel(s, c)
    assert torch.equal(c, torch.tensor([[0.0], [1000.0]]) + s.T * 3)


@pytest.mark.parametrize("who", ["all", "the other role"])
def test_what_another_role_waits_for_is_not_there_before(who):
    """The wait at the mbarrier stands for the kernel before this one, which may write A."""

    @T.prim_func
    def main(A: T.Tensor((128, 16), "float32"), C: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=256):
            full = T.alloc_barrier(128)
            c = T.alloc_fragment((128,), "float32")
            if who == "all":
                T.pdl_sync()
            with T.ws(1):
                if who != "all":
                    T.pdl_sync()
                for _ in T.serial(16):
                    T.mbarrier_arrive(full[0])
            with T.ws(0):
                T.clear(c)
                for k in T.serial(16):
                    T.mbarrier_wait_parity(full[0], k % 2)
                    for i in T.Parallel(128):
                        c[i] += A[i, k] * 2
                T.copy(c, C)

    source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    assert ("prefetched" in source) == (who == "all")


def waiting(kind):
    """A loop that waits at an mbarrier and adds up elements, with something in the way."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 64), "float32"),
        Other: T.Tensor((128, 64), "float32"),
        Table: T.Tensor((16,), "int32"),
        C: T.Tensor((128,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            if kind == "another name":
                T.annotate_restrict_buffers(A, Other)
            full = T.alloc_barrier(128)
            c = T.alloc_fragment((128,), "float32")
            T.clear(c)
            for k in T.serial(1 if kind == "one step" else 16):
                T.barrier_arrive(full)
                T.barrier_wait(full, k % 2)
                if kind == "in a branch":
                    if Table[0] > k:
                        for i in T.Parallel(128):
                            c[i] += A[i, k] * 2
                elif kind == "a table":
                    for i in T.Parallel(128):
                        c[i] += A[i, Table[k]] * 2
                elif kind == "one for all steps":
                    for i in T.Parallel(128):
                        c[i] += A[i, 3] * 2
                elif kind == "many":
                    for i in T.Parallel(128):
                        for n in T.serial(20):
                            c[i] += A[i, k + n] * (n + 2)
                elif kind == "behind a condition":
                    for i in T.Parallel(128):
                        if k < 9 and A[i, k] > 0:
                            c[i] += 2
                else:
                    for i in T.Parallel(128):
                        c[i] += A[i, k] * 2
                if kind in ("written", "another name"):
                    for i in T.Parallel(128):
                        (A if kind == "written" else Other)[i, k + 1] = k
                if kind == "copied":
                    T.copy(c, A[0:128, k + 1])
            T.copy(c, C)

    return main


@pytest.mark.parametrize(
    ("kind", "moved"),
    [
        ("plain", True),
        ("one step", False),
        ("another name", False),
        ("in a branch", False),
        ("a table", False),
        ("one for all steps", False),
        ("many", False),
        ("behind a condition", False),
        ("written", False),
        ("copied", False),
    ],
)
def test_loads_that_are_made_a_step_ahead(kind, moved):
    source = tilelang.lower(waiting(kind), target="cuda -arch=sm_90a").kernel_source
    assert ("prefetched" in source) == moved
