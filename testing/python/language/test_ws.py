"""T.ws: warp groups with programs of their own, and what is said of their registers."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

TARGET = {"kind": "cuda", "arch": "sm_90a"}
HEAD = """\
@T.prim_func
def main(A: T.Tensor((8, 16), "float32")):
    with T.Kernel(1, threads=384) as bx:
        tx = T.get_thread_binding()
        S = T.alloc_shared((8, 16), "float32")
"""


@pytest.fixture
def program(define):
    """Statements in a kernel of 384 threads over A and S: float32[8, 16]."""
    return lambda statements: define(
        HEAD + "".join(f"        {line}\n" for line in statements.splitlines())
    )["main"]


@pytest.mark.parametrize(
    ("statement", "printed"),
    [
        (
            "with T.ws(0): T.copy(A, S)",
            "if tx >= 0 and tx < 128:\n"
            '    T.attr([0, 128], "tl.thread_range", 1)\n'
            "    T.tl.copy(A[0:8, 0:16], S[0:8, 0:16])\n",
        ),
        (
            "with T.ws(2, 1): S[0, 0] = 1",
            "if tx >= 128 and tx < 384:\n"
            '    T.attr([128, 256], "tl.thread_range", 1)\n'
            "    S[0, 0] = T.float32(1.0)\n",
        ),
        (
            "with T.ws(0, 2): S[tx // 128, 0] = 1",
            "if tx >= 0 and tx < 128 or tx >= 256 and tx < 384:\n"
            '    T.attr([0, 128, 256, 128], "tl.thread_range", 1)\n'
            "    S[tx // 128, 0] = T.float32(1.0)\n",
        ),
        ("with T.ws(1): T.sync_threads(4)", "    T.tl.sync_threads_partial(4, 128)\n"),
        (
            "T.annotate_producer_reg_dealloc(40)\nT.annotate_consumer_reg_alloc()\nS[0, 0] = 1",
            'T.attr({"tl.producer_registers": 40, "tl.consumer_registers": 240})\n',
        ),
        ("T.no_set_max_nreg()\nS[0, 0] = 1", 'T.attr({"tl.no_set_max_nreg": 1})\n'),
        ("T.disable_warp_group_reg_alloc()\nS[0, 0] = 1", 'T.attr({"tl.no_set_max_nreg": 1})\n'),
    ],
)
def test_statements(program, body, round_trip, statement, printed):
    func = program(statement)
    assert printed in body(func)
    round_trip(func)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("with T.ws(): T.copy(A, S)", "found warp groups (), wanted different ints of the 3 whole"),
        ("with T.ws(3): T.copy(A, S)", "found warp groups (3,), wanted different ints of the 3"),
        ("with T.ws(1, 1): T.copy(A, S)", "found warp groups (1, 1), wanted different ints"),
        ("with T.ws(bx): T.copy(A, S)", "found warp groups (bx,), wanted different ints"),
        ("with T.ws(0):\n    with T.ws(0): T.copy(A, S)", "T.ws is inside of the T.ws at line"),
        ("for i in T.Parallel(8):\n    with T.ws(0): S[i, 0] = 1", "inside of the parallel loop"),
        (
            "T.annotate_producer_reg_dealloc(30)",
            "found 30 registers, wanted a multiple of 8 from",
        ),
        (
            "T.annotate_consumer_reg_alloc(248)",
            "found 248 registers, wanted a multiple of 8 from",
        ),
        (
            "with T.ws(1): T.print(S, warp_group_id=2)",
            "thread 256, which does not run the statement in T.ws; wanted one of the groups [1]",
        ),
    ],
)
def test_errors(program, statement, message):
    with pytest.raises(ValueError, match=rf"{re.escape(message)}[\s\S]*--> "):
        program(statement)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            "with T.ws(0, 2): T.copy(A, S)",
            "found a tile operator or T.Parallel that threads 0 to 127 and 256 to 383 run, wanted "
            "consecutive threads",
        ),
        (
            "F = T.alloc_fragment((8, 16), 'float32')\n"
            "with T.ws(0): T.copy(A, F)\n"
            "with T.ws(1, 2): T.copy(F, A)",
            "found fragment F in a statement of threads 128 to 383 and in one of threads 0 to 127",
        ),
        (
            "F = T.alloc_fragment((8, 16), 'float32')\n"
            "with T.ws(0, 1): T.copy(A, F)\n"
            "with T.ws(1, 2): T.copy(F, A)",
            "found fragment F in a statement of threads 128 to 383 and in one of threads 0 to 255",
        ),
        (
            "F = T.alloc_fragment((8, 16), 'float32')\nT.clear(F)\nwith T.ws(0): T.copy(F, A)",
            "found fragment F in a statement of threads 0 to 127 and in one of threads 0 to 383",
        ),
        ("with T.ws(0): T.sync_threads()", "found a barrier in a region"),
        ("with T.ws(1): S[tx // 128 + 7, 0] = 1", "found index 8 of S in dimension 0"),
    ],
)
def test_refused_programs(program, statements, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tilelang.lower(program(statements), target=TARGET)


def compiled(func, out_idx):
    return tilelang.compile(func, target=TARGET, execution_backend="emulate", out_idx=out_idx)


def test_a_softmax_and_a_product_at_once():
    """Sums over threads of several warps and pipelines in 128 and in 256 threads."""
    K = 64

    @T.prim_func
    def main(
        X: T.Tensor((4, 1000), "float32"),
        A: T.Tensor((64, K), "float16"),
        B: T.Tensor((K, 64), "float16"),
        Y: T.Tensor((4, 1000), "float32"),
        C: T.Tensor((64, 64), "float32"),
        R: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=384):
            with T.ws(0):
                x = T.alloc_fragment((4, 1000), "float32")
                row = T.alloc_fragment((4,), "float32")
                T.copy(X, x)
                T.reduce_max(x, row, dim=1)
                for i, j in T.Parallel(4, 1000):
                    x[i, j] = T.exp(x[i, j] - row[i])
                T.reduce_sum(x, row, dim=1)
                for i, j in T.Parallel(4, 1000):
                    Y[i, j] = x[i, j] / row[i]
            with T.ws(1, 2):
                A_shared = T.alloc_shared((64, 16), "float16")
                B_shared = T.alloc_shared((16, 64), "float16")
                c = T.alloc_fragment((64, 64), "float32")
                sums = T.alloc_fragment((64,), "float32")
                T.clear(c)
                for k in T.Pipelined(K // 16, num_stages=2):
                    T.copy(A[0, k * 16], A_shared)
                    T.copy(B[k * 16, 0], B_shared)
                    T.gemm(A_shared, B_shared, c, policy=T.GemmWarpPolicy.FullCol)
                T.reduce_sum(c, sums, dim=1)
                T.copy(c, C)
                T.copy(sums, R)

    kernel = compiled(main, [-3, -2, -1])
    source = kernel.get_kernel_source()
    assert "sync_threads_partial(3, 128)" in source
    assert "sync_threads_partial(4, 256)" in source
    assert "__syncthreads()" not in source
    x = torch.randn(4, 1000)
    a, b = torch.randint(-4, 5, (64, K)).half(), torch.randint(-4, 5, (K, 64)).half()
    y, c, r = kernel(x, a, b)
    torch.testing.assert_close(y, torch.softmax(x.double(), 1).float(), rtol=1e-5, atol=1e-6)
    assert torch.equal(c, a.float() @ b.float())
    assert torch.equal(r, c.sum(1))


def test_operators_of_one_range():
    """Scans, transposes, reducers, single elements and moves between layouts, by threads that do
    not begin at 0, beside threads that do the same."""

    @T.prim_func
    def main(
        A: T.Tensor((2, 16, 32), "int32"),
        P: T.Tensor((2, 16, 32), "int32"),
        Q: T.Tensor((2, 32, 16), "int32"),
        R: T.Tensor((2, 17), "int32"),
    ):
        with T.Kernel(1, threads=(64, 4)):
            for g in (0, 1):
                with T.ws(g):
                    S = T.alloc_shared((16, 32), "int32")
                    W = T.alloc_shared((32, 16), "int32")
                    F = T.alloc_fragment((16, 32), "int32")
                    one = T.alloc_fragment((1,), "int32")
                    acc = T.alloc_reducer((16,), "int32")
                    T.copy(A[g, 0:16, 0:32], S)
                    T.transpose(S, W)
                    T.copy(W, Q[g, 0:32, 0:16])
                    T.cumsum(S, dim=1)
                    T.copy(S, F)
                    T.copy(F, P[g, 0:16, 0:32])
                    T.reducer_init(acc, 3)
                    for i, j in T.Parallel(16, 32):
                        T.reducer_update(acc[i], A[g, i, j])
                    T.finalize_reducer(acc)
                    one[0] = 5 + g
                    for i in T.Parallel(16):
                        R[g, i] = acc[i] + one[0]
                    if T.shuffle_elect(128):
                        R[g, 16] = T.get_thread_binding(1)

    a = torch.randint(-9, 10, (2, 16, 32), dtype=torch.int32)
    p, q, r = compiled(main, [-3, -2, -1])(a)
    assert torch.equal(p, a.cumsum(2).int())
    assert torch.equal(q, a.transpose(1, 2))
    wanted = a.sum(2).int() + 3 + torch.tensor([[5], [6]])
    assert r[:, 16].tolist() == [0, 2]
    assert torch.equal(r[:, :16], wanted.int())


def test_ranges_in_a_loop_and_loops_in_ranges():
    """The program orders ranges by barriers of all threads; a counter of a range's threads is the
    same in all of them, so that barriers in a loop on it are found."""

    @T.prim_func
    def main(A: T.Tensor((4, 128), "float32"), B: T.Tensor((4, 128), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((128,), "float32")
            U = T.alloc_shared((128,), "float32")
            steps = T.alloc_var("int32", 0)
            for k in T.serial(4):
                with T.ws(0):
                    T.copy(A[k, 0:128], S)
                T.sync_threads()
                with T.ws(1):
                    steps = 0
                    while steps < k:
                        for i in T.Parallel(128):
                            U[i] = S[127 - i]
                        for i in T.Parallel(128):
                            S[i] = U[i] + 1.0
                        steps = steps + 1
                    for i in T.Parallel(128):
                        B[k, i] = S[127 - i]
                T.sync_threads()

    kernel = compiled(main, -1)
    source = kernel.get_kernel_source()
    assert source.count("__syncthreads()") == 2
    a = torch.randn(4, 128)
    wanted = []
    for k in range(4):
        s = a[k]
        for _ in range(k):
            s = s.flip(0) + 1.0
        wanted.append(s.flip(0))
    assert torch.equal(kernel(a), torch.stack(wanted))


@pytest.mark.emulator_alone
@pytest.mark.parametrize("others", [1, 2])
def test_two_warp_groups_read_what_one_has_written(others):
    """The third one is waited for by the first one, and does not come to their barrier."""

    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((384,), "float32")):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((128,), "float32")
            arrived = T.alloc_barrier(128)
            tx = T.get_thread_binding()
            with T.ws(0):
                S[tx] = A[tx]
                T.barrier_wait(arrived, 0)
            with T.ws(0, others):
                B[tx] = S[127 - tx % 128]
            with T.ws(3 - others):
                T.barrier_arrive(arrived)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.arange(128, dtype=torch.float32, device=device)
    found = torch.zeros(3, 128, device=device)
    tilelang.compile(main, target=TARGET)(a, found.view(-1))
    wanted = torch.zeros_like(found)
    wanted[[0, others]] = a.flip(0)
    assert torch.equal(found, wanted)


def test_a_thread_of_the_range_prints(capfd):
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=256), T.ws(1):
            F = T.alloc_fragment((4,), "float32")
            T.copy(A, F)
            T.print(F, msg="here")

    compiled(main, None)(torch.arange(4.0))
    printed = [line for line in capfd.readouterr().out.splitlines() if "msg='here'" in line]
    assert len(printed) == 4
    assert all("ThreadIdx=(128, 0, 0)" in line for line in printed)


def test_a_kernel_that_moves_registers_says_how_many_it_starts_with():
    """PTX ISA, setmaxnreg: without ``__launch_bounds__(threads, blocks)`` it has no effect."""

    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=384):
            with T.ws(0), T.attr("producer", "tl.warp_role", 1):
                T.sync_warp()
            with T.ws(1, 2), T.attr("consumer", "tl.warp_role", 1):
                T.copy(A, B)

    kernel = compiled(main, -1)
    source = kernel.get_kernel_source()
    assert "__launch_bounds__(384, 3)" in source
    assert "tl::warpgroup_reg_dealloc<24>();" in source
    assert "tl::warpgroup_reg_alloc<72>();" in source
    a = torch.randn(256)
    assert torch.equal(kernel(a), a)
