"""Software pipelines as they run: schedules written by hand, any number of iterations, refusals."""

import pytest
import torch

import tilelang
import tilelang.language as T

TARGET = {"kind": "cuda", "arch": "sm_90a"}
BLOCK = 16


def compiled(func, **kwargs):
    return tilelang.compile(func, target=TARGET, execution_backend="emulate", **kwargs)


def attention(length, num_stages, **schedule):
    """Online softmax over blocks of keys; statements 0 to 12 of the loop's body are numbered."""

    @T.prim_func
    def main(
        Q: T.Tensor((16, 16), "float16"),
        K: T.Tensor((length, 16), "float16"),
        V: T.Tensor((length, 16), "float16"),
        R: T.Tensor((16, 16), "float32"),
        L: T.Tensor((16,), "float32"),
    ):
        with T.Kernel(1, threads=32):
            Q_shared = T.alloc_shared((16, 16), "float16")
            K_shared = T.alloc_shared((BLOCK, 16), "float16")
            V_shared = T.alloc_shared((BLOCK, 16), "float16")
            S = T.alloc_fragment((16, BLOCK), "float32")
            P = T.alloc_fragment((16, BLOCK), "float16")
            acc = T.alloc_fragment((16, 16), "float32")
            largest = T.alloc_fragment((16,), "float32")
            before = T.alloc_fragment((16,), "float32")
            scale = T.alloc_fragment((16,), "float32")
            row = T.alloc_fragment((16,), "float32")
            total = T.alloc_fragment((16,), "float32")
            T.copy(Q, Q_shared)
            T.clear(acc)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(length, BLOCK), num_stages=num_stages, **schedule):
                T.copy(K[k * BLOCK, 0], K_shared)
                T.clear(S)
                T.gemm(Q_shared, K_shared, S, transpose_B=True)
                T.copy(largest, before)
                T.reduce_max(S, largest, dim=1, clear=False)
                for i in T.Parallel(16):
                    scale[i] = T.exp(before[i] - largest[i])
                for i, j in T.Parallel(16, BLOCK):
                    S[i, j] = T.exp(S[i, j] - largest[i])
                T.reduce_sum(S, row, dim=1)
                for i in T.Parallel(16):
                    total[i] = total[i] * scale[i] + row[i]
                T.copy(S, P)
                for i, j in T.Parallel(16, 16):
                    acc[i, j] *= scale[i]
                T.copy(V[k * BLOCK, 0], V_shared)
                T.gemm(P, V_shared, acc)
            T.copy(acc, R)
            T.copy(total, L)

    return main


# S of the next iteration is issued, then O of this one, then the next softmax.
OVERLAPPED = {
    "group": [[0], [1, 2], [3, 4, 5, 6, 7, 8, 9], [10], [11], [12]],
    "order": [-1, 0, 3, 1, -1, 2],
    "stage": [-1, 0, 0, 1, -1, 1],
}
# The same, statement by statement.
EACH_STATEMENT = {
    "order": [0, 2, 3, 6, 7, 8, 9, 10, 11, 12, 4, 1, 5],
    "stage": [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 2],
}


def check_attention(kernel, length):
    q, k, v = (torch.randn(n, 16).half() for n in (16, length, length))
    out, total = torch.empty(16, 16), torch.empty(16)
    kernel(q, k, v, out, total)
    if length == 0:
        assert not out.any()
        assert not total.any()
        return
    scores = q.double() @ k.double().T
    weights = (scores - scores.amax(1, keepdim=True)).exp()
    torch.testing.assert_close(total.double(), weights.sum(1), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(out.double(), weights @ v.double(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("num_stages", "schedule"),
    [(2, OVERLAPPED), (1, OVERLAPPED), (3, OVERLAPPED), (2, EACH_STATEMENT)],
)
def test_attention_of_any_length(num_stages, schedule):
    kernel = compiled(attention(T.dynamic("length"), num_stages, **schedule))
    for iterations in (0, 1, 2, 3, 250):
        check_attention(kernel, BLOCK * iterations)


@pytest.mark.parametrize("iterations", [1, 2])
def test_attention_of_a_constant_length(iterations):
    kernel = compiled(attention(BLOCK * iterations, 2, **OVERLAPPED))
    check_attention(kernel, BLOCK * iterations)


def test_prologue_loop_and_epilogue(statements):
    """Two stages of computation: the loop has the steps in which both have an iteration."""

    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), B: T.Tensor((32, 64), "float32"), n: T.int32):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            X = T.alloc_fragment((64,), "float32")
            Y = T.alloc_fragment((64,), "float32")
            for k in T.Pipelined(n, order=[0, 1, 3, 2], stage=[0, 2, 2, 3]):
                T.copy(A[k, 0], S)
                T.copy(S, X)
                T.copy(X, Y)
                T.copy(Y, B[k, 0])

    assert statements(main, "PipelinePlanning", "InjectSoftwarePipeline", "Simplify") == (
        """\
with T.attr({"async_copy": 0 < n}):
    T.tl.copy(A[0, 0:64], S[0, 0:64])
T.tl.cp_async_commit()
with T.attr({"async_copy": 1 < n}):
    T.tl.copy(A[1, 0:64], S[1, 0:64])
T.tl.cp_async_commit()
T.tl.cp_async_wait(1)
with T.attr({"async_copy": 2 < n}):
    T.tl.copy(A[2, 0:64], S[2, 0:64])
T.tl.cp_async_commit()
if 0 < n:
    T.tl.copy(S[0, 0:64], X[0:64])
    T.tl.copy(X[0:64], Y[0:64])
for k in range(n - 1):
    T.tl.cp_async_wait(1)
    with T.attr({"async_copy": k + 3 < n}):
        T.tl.copy(A[k + 3, 0:64], S[k % 3, 0:64])
    T.tl.cp_async_commit()
    T.tl.copy(S[(k + 1) % 3, 0:64], X[0:64])
    T.tl.copy(Y[0:64], B[k, 0:64])
    T.tl.copy(X[0:64], Y[0:64])
if 1 <= n:
    T.tl.copy(Y[0:64], B[n - 1, 0:64])
T.tl.cp_async_wait(0)"""
    )


def test_a_copy_that_is_read_in_its_own_step(statements):
    """It is in a group before the wait, whatever copies follow."""

    @T.prim_func
    def main(
        A: T.Tensor((8, 64), "float32"),
        B: T.Tensor((8, 64), "float32"),
        C: T.Tensor((8, 64), "float32"),
    ):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            W = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(8, order=[0, 1, 2, 3], stage=[0, 0, 0, 1]):
                T.copy(A[k, 0], S)
                T.copy(S, B[k, 0])
                T.copy(A[k, 0], W)
                T.copy(W, C[k, 0])

    text = statements(main, "PipelinePlanning", "InjectSoftwarePipeline", "Simplify")
    loop = text[text.index("for k in") :].splitlines()[1:]
    steps = [line.split("(")[0][4:] for line in loop if line.startswith("    ")]
    assert steps == [
        "T.tl.cp_async_wait",
        "with T.attr",
        "    T.tl.copy",
        "T.tl.cp_async_commit",
        "T.tl.cp_async_wait",
        "T.tl.copy",
        "with T.attr",
        "    T.tl.copy",
        "T.tl.cp_async_commit",
        "T.tl.copy",
    ]


@pytest.mark.parametrize(
    ("order", "stage", "told"),
    [
        # the second copy reads X before the first one writes it;
        (
            [1, 0, 2],
            [0, 0, 0],
            r"found X \(local\.fragment\) read at line \d+ \(stage 0, order 0\) before it is "
            r"written at line \d+ \(stage 0, order 1\), wanted the order of the body",
        ),
        # the next iteration fills X before this one has read it.
        (
            [0, 1, 2],
            [0, 1, 1],
            r"found X \(local\.fragment\) written by the next iteration at line \d+ \(stage 0, "
            r"order 0\) before it is read at line \d+ \(stage 1, order 1\), wanted one version",
        ),
    ],
)
def test_registers_have_one_version(statements, order, stage, told):
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64):
            X = T.alloc_fragment((64,), "float32")
            Y = T.alloc_fragment((64,), "float32")
            for k in T.Pipelined(8, order=order, stage=stage):
                T.copy(A[k, 0], X)
                T.copy(X, Y)
                T.copy(Y, B[k, 0])

    with pytest.raises(ValueError, match=rf"py:\d+: T\.Pipelined: {told}"):
        statements(main, "PipelinePlanning", "InjectSoftwarePipeline")


def test_each_loop_has_its_own_versions():
    """A buffer of two pipelines and of one that only reads it; and of a pipeline in a pipeline."""

    @T.prim_func
    def main(
        A: T.Tensor((8, 64), "float32"),
        B: T.Tensor((8, 64), "float32"),
        C: T.Tensor((8, 64), "float32"),
        D: T.Tensor((8, 5, 64), "float32"),
    ):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            W = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(8, num_stages=3):
                T.copy(A[k, 0], S)
                T.copy(S, B[k, 0])
            T.copy(A[5, 0], S)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[k, 0], W)
                for i in T.Parallel(64):
                    C[k, i] = W[i] + S[i]
            for k in T.Pipelined(8, num_stages=3):
                T.copy(A[k, 0], S)
                for m in T.Pipelined(5, num_stages=2):
                    T.copy(A[m, 0], W)
                    for i in T.Parallel(64):
                        D[k, m, i] = W[i] + S[i]

    a = torch.randn(8, 64)
    b, c, d = torch.empty(8, 64), torch.empty(8, 64), torch.empty(8, 5, 64)
    compiled(main)(a, b, c, d)
    assert torch.equal(b, a)
    assert torch.equal(c, a + a[5])
    assert torch.equal(d, a[:, None] + a[None, :5])


def test_bodies_of_every_kind():
    """A statement that fills two buffers and computes, a view of a versioned buffer, names of what
    the loop writes, and a condition, in loops of 0, 1, 2 and 250 iterations inside `while`."""

    @T.prim_func
    def main(
        A: T.Tensor((250, 64), "float32"),
        N: T.Tensor((4,), "int32"),
        B: T.Tensor((4, 250, 64), "float32"),
        C: T.Tensor((4, 250, 64), "float32"),
        sums: T.Tensor((4, 8), "float32"),
    ):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            W = T.alloc_shared((64,), "float32")
            X = T.alloc_shared((64,), "float32")
            tile = T.view(X, (8, 8))
            total = T.alloc_fragment((8,), "float32")
            part = T.alloc_fragment((8, 8), "float32")
            n = T.alloc_var("int32", init=0)
            count = T.alloc_var("int32", init=0)
            while n < 4:
                T.clear(total)
                for k in T.Pipelined(N[n], num_stages=3):
                    row = n
                    for i in T.Parallel(64):
                        S[i] = A[k, i] * 2
                        W[i] = A[k, 63 - i]
                    T.copy(A[k, 0], X)
                    T.copy(tile, part)
                    if k % 3 == 1:
                        for i in T.Parallel(64):
                            B[row, k, i] = S[i] + W[i]
                    T.reduce_sum(part, total, dim=1, clear=False)
                for k in T.Pipelined(N[n], num_stages=2):
                    before = count
                    count = count + 1
                    T.copy(A[k, 0], X)
                    for i in T.Parallel(64):
                        C[n, k, i] = X[i] + before
                T.copy(total, sums[n, 0])
                n = n + 1

    a = torch.randint(-8, 8, (250, 64)).float()
    lengths = [2, 0, 250, 1]
    b, c, sums = torch.zeros(4, 250, 64), torch.zeros(4, 250, 64), torch.zeros(4, 8)
    kernel = compiled(main)
    assert "versions of buffers: S 3, W 3, X 3" in kernel.explain()
    assert "it keeps what count was, which is written before" in kernel.explain()
    kernel(a, torch.tensor(lengths, dtype=torch.int32), b, c, sums)
    for n, length in enumerate(lengths):
        done = torch.arange(250) < length
        wanted = torch.where(done[:, None], 2 * a + a.flip(1), 0)
        wanted[torch.arange(250) % 3 != 1] = 0
        assert torch.equal(b[n], wanted)
        count = torch.arange(250.0)[:, None] + sum(lengths[:n])
        assert torch.equal(c[n], torch.where(done[:, None], a + count, 0))
        assert torch.equal(sums[n], a[:length].reshape(-1, 8, 8).sum((0, 2)))


def test_a_schedule_over_several_buffers_of_one_stage():
    """Loads into registers an iteration ahead, and a tile that late stages write and read."""

    @T.prim_func
    def main(A: T.Tensor((250, 64), "float32"), B: T.Tensor((250, 64), "float32"), n: T.int32):
        with T.Kernel(1, threads=64):
            X = T.alloc_fragment((64,), "float32")
            S = T.alloc_shared((64,), "float32")
            # The load of the next iteration starts when its registers have been stored.
            for k in T.Pipelined(n, order=[2, 0, 1], stage=[0, 1, 2]):
                T.copy(A[k, 0], X)
                for i in T.Parallel(64):
                    S[i] = X[i] + 1
                for i in T.Parallel(64):
                    B[k, i] = S[63 - i]

    kernel = compiled(main)
    a = torch.randn(250, 64)
    for n in (0, 1, 2, 3, 250):
        b = torch.zeros(250, 64)
        kernel(a, b, n)
        assert torch.equal(b[:n], (a[:n] + 1).flip(1))
        assert not b[n:].any()


def block_sparse(scope):
    """A product over the blocks of a mask."""

    @T.prim_func
    def main(
        A: T.Tensor((16, 160), "float16"),
        B: T.Tensor((160, 16), "float16"),
        mask: T.Tensor((10,), "int32"),
        C: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((16, 16), "float16")
            W = T.alloc_shared((16, 16), "float16")
            F = T.alloc_fragment((16, 16), "float32")
            own = T.alloc_local((10,), "int32")
            for i in T.serial(10):
                own[i] = mask[i]
            T.clear(F)
            for k in T.Pipelined(10, num_stages=3):
                wanted = own[k] if scope == "local" else mask[k]
                if wanted > 0:
                    start = k * 16
                    T.copy(A[0, start], S)
                    T.copy(B[start, 0], W)
                    T.gemm(S, W, F)
            T.copy(F, C)

    return main


@pytest.mark.parametrize("scope", ["local", "global"])
def test_copies_leave_a_branch(scope):
    kernel = compiled(block_sparse(scope), out_idx=-1)
    assert "versions of buffers: S 3, W 3" in kernel.explain()
    for mask in ([0, 1, 1, 0, 0, 1, 0, 0, 0, 1], [0] * 10, [1] * 10):
        mask = torch.tensor(mask, dtype=torch.int32)
        a, b = torch.randint(-4, 4, (16, 160)).half(), torch.randint(-4, 4, (160, 16)).half()
        wanted = (a.float() * mask.repeat_interleave(16)) @ b.float()
        assert torch.equal(kernel(a, b, mask), wanted)


def test_a_branch_that_changes_its_condition_stays_whole(statements):
    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            n = T.alloc_var("int32", init=0)
            for k in T.Pipelined(8, num_stages=2):
                if n < 4:
                    n = n + 1
                    T.copy(A[k, 0], S)
                    T.copy(S, B[k, 0])

    assert statements(main, "IfStmtBinding").count("if ") == 1


def test_a_branch_with_names(statements):
    text = statements(block_sparse("local"), "IfStmtBinding")
    assert text.count("if wanted > 0:") == 3
    kept = {"tl.if_stmt_binding_inline_replayable_binds": False}
    assert statements(block_sparse("local"), "IfStmtBinding", config=kept).count("if ") == 1


def test_persistent_tiles_are_a_pipeline():
    """Tiles of a block with a guard, an index by the tile, and a rasterised grid."""

    @T.prim_func
    def main(A: T.Tensor((10, 64), "float32"), B: T.Tensor((10, 64), "float32")):
        with T.Kernel(3, threads=64) as b:
            T.use_swizzle(2)
            S = T.alloc_shared((64,), "float32")
            for i in T.Persistent([10], 3, b, group_size=4, num_stages=2):
                T.copy(A[i, 0], S)
                for j in T.Parallel(64):
                    B[i, j] = S[63 - j]

    kernel = compiled(main, out_idx=-1)
    assert "versions of buffers: S 2" in kernel.explain()
    a = torch.randn(10, 64)
    assert torch.equal(kernel(a), a.flip(1))


@pytest.mark.parametrize("checked", [True, False])
def test_a_table_of_blocks_is_read_within_its_bounds(checked):
    """Copies run ahead of the last iteration, where the table ends."""

    @T.prim_func
    def main(
        A: T.Tensor((4, 64), "float32"),
        blocks: T.Tensor((2, 8), "int32"),
        B: T.Tensor((2, 8, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(2, threads=64) as b:
            S = T.alloc_shared((64,), "float32")
            row = T.alloc_var("int32", init=b)
            for k in T.Pipelined(n, num_stages=3):
                block = blocks[row, k]
                T.copy(A[block, 0], S)
                for j in T.Parallel(64):
                    B[b, k, j] = S[63 - j]

    options = {"tl.disable_safe_memory_legalize": not checked, "tl.disable_warp_specialized": True}
    kernel = compiled(main, pass_configs=options)
    assert "versions of buffers: S 3" in kernel.explain()
    a, blocks = torch.randn(4, 64), torch.randint(0, 4, (2, 8), dtype=torch.int32)
    for n in (0, 1, 8):
        out = torch.zeros(2, 8, 64)
        kernel(a, blocks, out, n)
        assert torch.equal(out[:, :n], a[blocks[:, :n].long()].flip(2))
        assert not out[:, n:].any()


@pytest.mark.parametrize("tiles", ["scheduler", "persistent"])
def test_a_persistent_product(tiles):
    """The pipeline starts anew for each tile, in the versions that the last one has left."""
    m, n, k = 96, 64, 96

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(2, threads=32) as b:
            T.use_swizzle(2)
            A_shared = T.alloc_shared((32, 16), "float16")
            B_shared = T.alloc_shared((16, 32), "float16")
            acc = T.alloc_fragment((32, 32), "float32")
            if tiles == "scheduler":
                scheduler = T.PersistentTileScheduler(m // 32, n // 32, 2, swizzle_size=2)
                scheduler.init(b)
                while scheduler.valid():
                    i, j = scheduler.m_idx, scheduler.n_idx
                    T.clear(acc)
                    for ko in T.Pipelined(k // 16, num_stages=4):
                        T.copy(A[i * 32, ko * 16], A_shared)
                        T.copy(B[ko * 16, j * 32], B_shared)
                        T.gemm(A_shared, B_shared, acc)
                    T.copy(acc, C[i * 32, j * 32])
                    scheduler.next_tile()
            else:
                for i, j in T.Persistent([m // 32, n // 32], 2, b, group_size=2):
                    T.clear(acc)
                    for ko in T.Pipelined(k // 16, num_stages=4):
                        T.copy(A[i * 32, ko * 16], A_shared)
                        T.copy(B[ko * 16, j * 32], B_shared)
                        T.gemm(A_shared, B_shared, acc)
                    T.copy(acc, C[i * 32, j * 32])

    kernel = compiled(main, pass_configs={"tl.disable_warp_specialized": True})
    text = kernel.explain()
    assert "3 steps ahead" in text
    assert "versions of buffers: A_shared 4, B_shared 4" in text
    assert "barriers in a step: 1" in text
    a, b, c = torch.randn(m, k).half(), torch.randn(k, n).half(), torch.empty(m, n)
    kernel(a, b, c)
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-3, atol=1e-3)
