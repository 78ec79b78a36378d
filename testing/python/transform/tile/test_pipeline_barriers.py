"""T.tma_copy and mbarriers written by hand in T.Pipelined loops without warp specialisation."""

import pytest
import torch

import tilelang
import tilelang.language as T

TARGET = {"kind": "cuda", "arch": "sm_90a"}
KEPT = {"tl.disable_warp_specialized": True}


def compiled(func):
    return tilelang.compile(func, target=TARGET, execution_backend="emulate", pass_configs=KEPT)


def product(num_stages, repeats=1, arrivals=128, syncs=False):
    """C[r] = A @ B for each r, the tiles of both by TMA, with one mbarrier."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((repeats, 64, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 32), "float16")
            W = T.alloc_shared((32, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            full = T.alloc_barrier(arrivals)
            tx = T.get_thread_binding()
            for r in T.serial(repeats):
                T.clear(F)
                for k in T.Pipelined(n, num_stages=num_stages):
                    T.tma_copy(A[0, k * 32], S, barrier=full)
                    T.tma_copy(B[k * 32, 0], W, barrier=full)
                    if tx < arrivals:
                        T.mbarrier_arrive(full)
                    T.mbarrier_wait_parity(full, (r * n + k) & 1)
                    T.gemm(S, W, F)
                    if syncs:
                        T.sync_threads()
                T.copy(F, C[r, 0, 0])

    return main


@pytest.mark.parametrize(
    ("options", "versions", "barriers"),
    [
        ({"num_stages": 1}, "one of each", 1),
        ({"num_stages": 2, "arrivals": 1}, "S 2, W 2, full 2", 1),
        ({"num_stages": 3, "repeats": 3}, "S 3, W 3, full 3", 1),
        # The program's own barrier is enough.
        ({"num_stages": 3, "repeats": 2, "syncs": True}, "S 3, W 3, full 3", 1),
    ],
)
def test_loads_run_ahead(options, versions, barriers):
    kernel = compiled(product(**options))
    told = kernel.explain()
    assert f"versions of buffers: {versions}\n" in told
    assert f"barriers in a step: {barriers}\n" in told
    assert told.count("stage 0, order") == 3
    assert told.count("TMA, completes on an mbarrier") == 2
    a, b = torch.randn(64, 256).half(), torch.randn(256, 64).half()
    for n in (0, 1, 2, 5, 8):
        c = torch.empty(options.get("repeats", 1), 64, 64)
        kernel(a, b, c, n)
        wanted = a[:, : 32 * n].double() @ b[: 32 * n].double()
        torch.testing.assert_close(c.double(), wanted.expand_as(c), rtol=1e-3, atol=1e-3)


def test_the_slot_and_its_parity(statements):
    """Two mbarriers of a buffer: each has as many versions as the tiles."""

    @T.prim_func
    def main(A: T.Tensor((9, 64), "float32"), B: T.Tensor((9, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            full = T.alloc_barrier([64, 1])
            for k in T.Pipelined(1, 9, num_stages=3):
                T.tma_copy(A[k, 0], S, barrier=full[1])
                if T.get_thread_binding() == 0:
                    T.mbarrier_arrive(full[1])
                T.mbarrier_wait_parity(full[1], (k - 1) % 2)
                T.copy(S, B[k, 0])

    text = statements(main, "PipelinePlanning", "InjectSoftwarePipeline", "Simplify", arch="sm_90a")
    loop = text[text.index("for k in") :]
    assert loop == (
        """\
for k in range(8):
    T.tvm_storage_sync("shared")
    if k < 6:
        T.tl.tma_copy(A[k + 3, 0:64], S[(k + 2) % 3, 0:64], full[(k + 2) % 3 * 2 + 1])
        if tx == 0:
            T.tl.mbarrier_arrive(T.address_of(full[(k + 2) % 3 * 2 + 1]))
    T.tl.mbarrier_wait(T.address_of(full[k % 3 * 2 + 1]), k % 6 // 3)
    T.tl.copy(S[k % 3, 0:64], B[k + 1, 0:64])"""
    )


def by_hand(how):
    """Loops whose mbarrier has one version, for `how`."""

    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            full = T.alloc_barrier([64, 64])
            phase = T.alloc_var("int32", init=0)
            i = T.alloc_var("int32", init=0)
            while i < 2:
                if how == "while":
                    for k in T.Pipelined(4, num_stages=2):
                        T.tma_copy(A[i * 4 + k, 0], S, barrier=full[0])
                        T.mbarrier_arrive(full[0])
                        T.mbarrier_wait_parity(full[0], k % 2)
                        T.copy(S, B[i * 4 + k, 0], prefer_instruction="sync")
                        T.sync_threads()
                i = i + 1
            if how != "while":
                for k in T.Pipelined(8, num_stages=2):
                    at = k % 2 if how == "index" else 0
                    T.tma_copy(A[k, 0], S, barrier=full[at])
                    T.mbarrier_arrive(full[at])
                    if how == "parity":
                        T.mbarrier_wait_parity(full[0], phase)
                        phase = 1 - phase
                    elif how == "index":
                        T.mbarrier_wait_parity(full[at], k // 2 % 2)
                    else:
                        T.mbarrier_wait_parity(full[0], k % 2)
                    T.copy(S, B[k, 0], prefer_instruction="sync")
                    T.sync_threads()
                if how == "outside":
                    T.mbarrier_arrive(full[0])

    return main


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("while", "the loop is in a `while` loop"),
        ("parity", "a wait's parity is not that of the number of iterations before"),
        ("index", "its index is no constant"),
        ("outside", "it is used elsewhere too"),
    ],
)
def test_what_the_program_counts_by_hand_stays(how, told):
    """In the order of the program, which is right."""
    kernel = compiled(by_hand(how))
    text = kernel.explain()
    assert "a plain loop, because nothing can run ahead" in text
    assert f"mbarrier full has one version: {told}" in text
    a, b = torch.randn(8, 64), torch.empty(8, 64)
    kernel(a, b)
    assert torch.equal(a, b)


def test_a_load_that_cannot_run_ahead_keeps_the_others():
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            W = T.alloc_shared((64,), "float32")
            full = T.alloc_barrier(64)
            for k in T.Pipelined(8, num_stages=2):
                T.tma_copy(A[k, 0], S, barrier=full)
                T.tma_copy(B[k, 0], W, barrier=full)
                T.mbarrier_arrive(full)
                T.mbarrier_wait_parity(full, k % 2)
                for j in T.Parallel(64):
                    B[k, j] = S[j] + W[j]
                T.sync_threads()

    kernel = compiled(main)
    text = kernel.explain()
    assert "T.tma_copy(B[k, 0], W, barrier=full): the loop writes B, which it reads" in text
    assert text.count("another statement at mbarrier full cannot run ahead") == 2
    a, b = torch.randn(8, 64), torch.randn(8, 64)
    wanted = a + b
    kernel(a, b)
    assert torch.equal(b, wanted)


@pytest.mark.parametrize(
    ("stage", "order", "told"),
    [
        ([0, 0, 1], [0, 1, 2], r"at an mbarrier that order and stage move past line \d+"),
        ([0, 0, 0], [0, 2, 1], r"at an mbarrier that order and stage move past line \d+"),
        ([0, 0, 0], [0, 1, 2], None),
    ],
)
def test_a_schedule_leaves_mbarriers_where_they_are(stage, order, told):
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            ready = T.alloc_barrier(64)
            for k in T.Pipelined(8, stage=stage, order=order):
                T.copy(A[k, 0], S)
                T.mbarrier_arrive(ready)
                T.copy(S, B[k, 0])

    if told:
        with pytest.raises(ValueError, match=rf"py:\d+: T\.Pipelined: found a statement {told}"):
            compiled(main)
        return
    a, b = torch.randn(8, 64), torch.empty(8, 64)
    compiled(main)(a, b)
    assert torch.equal(a, b)


@pytest.mark.parametrize(("num_stages", "repeats"), [(1, 1), (3, 2)])
def test_copies_by_tma_have_an_mbarrier_of_the_compilers(num_stages, repeats):
    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((repeats, 64, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 32), "float16")
            W = T.alloc_shared((32, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            for r in T.serial(repeats):
                T.clear(F)
                for k in T.Pipelined(n, num_stages=num_stages):
                    T.copy(A[0, k * 32], S, prefer_instruction="tma")
                    T.copy(B[k * 32, 0], W, prefer_instruction="tma")
                    T.gemm(S, W, F)
                T.copy(F, C[r, 0, 0])

    kernel = compiled(main)
    source, told = kernel.get_kernel_source(), kernel.explain()
    assert source.count("tl::mbarrier_arrive_expect_tx(S_full") == num_stages + (num_stages == 1)
    assert "cp_async" not in source
    assert "barriers in a step: 1\n" in told
    versions = "one of each" if num_stages == 1 else "S 3, S_full 3, W 3"
    assert f"versions of buffers: {versions}\n" in told
    a, b = torch.randn(64, 256).half(), torch.randn(256, 64).half()
    for n in (0, 1, 2, 5, 8):
        c = torch.empty(repeats, 64, 64)
        kernel(a, b, c, n)
        wanted = a[:, : 32 * n].double() @ b[: 32 * n].double()
        torch.testing.assert_close(c.double(), wanted.expand_as(c), rtol=1e-3, atol=1e-3)
