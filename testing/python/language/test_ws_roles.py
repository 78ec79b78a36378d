"""Schedules by roles: the example's product with acquire, commit, wait and release in the bodies,
and programs whose roles do not fit each other."""

import pathlib
import re
import runpy

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import schedule

ROOT = pathlib.Path(__file__).resolve().parents[3]
SM_90 = {"kind": "cuda", "arch": "sm_90a"}
ROLES = {
    "load": T.WSRole(0, 4, 24),
    "store": T.WSRole(4, 8, 40),
    "upper": T.WSRole(8, 12, 216),
    "lower": T.WSRole(12, 16, 216),
}
PIPELINES = {name: T.WSPipeline(depth) for name, depth in (("ab", 3), ("c0", 1), ("c1", 1))}


def matmul(M, N, K, blocks, block_N=128, block_K=64):
    """The example's C = A B, whose bodies of roles are the program's."""
    steps = T.ceildiv(K, block_K)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(blocks, threads=512) as block:
            T.annotate_ws_schedule(T.WSSchedule(16, ROLES, PIPELINES))
            a = T.alloc_shared((3, 128, block_K), "float16")
            b = T.alloc_shared((3, block_K, block_N), "float16")
            c = [T.alloc_shared((64, block_N), "float16") for _ in range(2)]
            acc = [T.alloc_fragment((64, block_N), "float32") for _ in range(2)]
            with T.ws_role("load"):
                for by, bx in T.Persistent([M // 128, T.ceildiv(N, block_N)], blocks, block):
                    for k in T.serial(steps):
                        v = T.producer_acquire("ab")
                        T.tma_copy(
                            A[by * 128, k * block_K],
                            a[v, :, :],
                            barrier=T.producer_barrier("ab", v),
                        )
                        T.tma_copy(
                            B[k * block_K, bx * block_N],
                            b[v, :, :],
                            barrier=T.producer_barrier("ab", v),
                        )
                        T.producer_commit("ab")
            for i, role in enumerate(("upper", "lower")):
                with T.ws_role(role):
                    for _by, _bx in T.Persistent([M // 128, T.ceildiv(N, block_N)], blocks, block):
                        T.clear(acc[i])
                        for _ in T.serial(steps):
                            v = T.consumer_wait("ab")
                            T.gemm(a[v, i * 64 : i * 64 + 64, :], b[v, :, :], acc[i])
                            T.consumer_release("ab")
                        T.producer_acquire(f"c{i}")
                        T.copy(acc[i], c[i])
                        T.producer_commit(f"c{i}")
            with T.ws_role("store"):
                for by, bx in T.Persistent([M // 128, T.ceildiv(N, block_N)], blocks, block):
                    for i in T.unroll(2, explicit=True):
                        T.consumer_wait(f"c{i}")
                        T.copy(c[i], C[by * 128 + i * 64, bx * block_N])
                        T.consumer_release(f"c{i}")

    return main


@pytest.fixture(scope="module")
def kernel():
    return tilelang.compile(
        matmul(256, 200, 264, 2), out_idx=[-1], target=SM_90, execution_backend="auto"
    )


@pytest.fixture(scope="module")
def operands():
    torch.manual_seed(0)
    return torch.randn(256, 264).half(), torch.randn(264, 200).half()


def test_the_example_by_roles(kernel, operands, device):
    a, b = (x.to(device) for x in operands)
    by_edges = runpy.run_path(str(ROOT / "examples" / "by_hand" / "ws_schedule.py"))["matmul"]
    found = kernel(a, b)
    assert torch.equal(found, by_edges(256, 200, 264, 2)(a, b))
    torch.testing.assert_close(found.double(), a.double() @ b.double(), rtol=2e-3, atol=2e-2)


def test_every_schedule(kernel, operands, device):
    if device == "cuda":
        pytest.skip("schedules are the emulator's")
    results = []
    for seed in range(10):
        with schedule(seed=seed):
            results.append(kernel(*operands))
    assert all(torch.equal(c, results[0]) for c in results)


def pair(load, use, roles=None, pipelines=None, steps=6, shape=384):
    """Rows of 64 go from A through a pipeline of two versions to B; `load` and `use` are macros."""
    roles = roles or {"load": T.WSRole(0, 4), "use": T.WSRole(4, 8)}
    plan = T.WSSchedule(8, roles, pipelines or {"ab": T.WSPipeline(2)})

    @T.prim_func
    def main(A: T.Tensor((shape,), "float32"), B: T.Tensor((shape,), "float32"), n: T.int32):
        with T.Kernel(1, threads=256):
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((2, 64), "float32")
            with T.ws_role("load"):
                load(A, S, n)
            with T.ws_role("use"):
                use(B, S, n)

    return main


@T.macro
def load_all(A, S, n):
    for k in T.serial(n):
        v = T.producer_acquire("ab")
        T.copy(A[k * 64], S[v, :])
        T.producer_commit("ab")


@T.macro
def use_all(B, S, n):
    for k in T.serial(n):
        v = T.consumer_wait("ab")
        T.copy(S[v, :], B[k * 64])
        T.consumer_release("ab")


@T.macro
def use_all_but_late(B, S, n):
    """The first version is released in the second iteration."""
    v = T.consumer_wait("ab")
    T.copy(S[v, :], B[0])
    for k in T.serial(1, n):
        w = T.consumer_wait("ab")
        T.copy(S[w, :], B[k * 64])
        T.consumer_release("ab")
    T.consumer_release("ab")


@T.macro
def use_by_a_view(B, S, n):
    """A view is declared between a version's wait and its release."""
    v = T.consumer_wait("ab")
    rows = T.reshape(S, (2, 2, 32))
    for i, j in T.Parallel(2, 32):
        B[i * 32 + j] = rows[v, i, j]
    T.consumer_release("ab")
    for k in T.serial(1, n):
        w = T.consumer_wait("ab")
        T.copy(S[w, :], B[k * 64])
        T.consumer_release("ab")


@T.macro
def load_even(A, S, n):
    for k in T.serial(n):
        if k % 2 == 0:
            v = T.producer_acquire("ab")
            T.copy(A[k * 64], S[v, :])
            T.producer_commit("ab")


@T.macro
def use_even(B, S, n):
    for step in T.serial(n):
        if step % 2 == 0:
            v = T.consumer_wait("ab")
            T.copy(S[v, :], B[step * 64])
            T.consumer_release("ab")


@T.macro
def load_some(A, S, n):
    """The third row is left out, and the last one."""
    for k in T.serial(n):
        row = k * 1
        if row == 2:
            continue
        if row + 1 == n:
            break
        v = T.producer_acquire("ab")
        T.copy(A[k * 64], S[v, :])
        T.producer_commit("ab")


@T.macro
def use_some(B, S, n):
    for k in T.serial(n):
        if k == 2:
            continue
        if k + 1 == n:
            break
        v = T.consumer_wait("ab")
        T.copy(S[v, :], B[k * 64])
        T.consumer_release("ab")


@T.macro
def use_until(B, S, n):
    for k in T.serial(n):
        if k + 1 == n:
            break
        v = T.consumer_wait("ab")
        T.copy(S[v, :], B[k * 64])
        T.consumer_release("ab")


@T.macro
def break_in_use(B, S, n):
    for k in T.serial(n):
        v = T.consumer_wait("ab")
        T.copy(S[v, :], B[k * 64])
        if k == 3:
            break
        T.consumer_release("ab")


@pytest.mark.parametrize(
    ("load", "use", "rows"),
    [
        (load_all, use_all, range(6)),
        (load_all, use_all_but_late, range(6)),
        (load_all, use_by_a_view, range(6)),
        (load_even, use_even, range(0, 6, 2)),
        (load_some, use_some, [0, 1, 3, 4]),
    ],
)
def test_what_threads_fill(load, use, rows, device):
    kernel = tilelang.compile(pair(load, use), target=SM_90, execution_backend="auto")
    a, b = torch.randn(384, device=device), torch.zeros(384, device=device)
    kernel(a, b, 6)
    wanted = torch.zeros(6, 64, device=device)
    wanted[list(rows)] = a.reshape(6, 64)[list(rows)]
    assert torch.equal(b.reshape(6, 64), wanted)


@T.macro
def forgets_to_commit(A, S, n):
    for k in T.serial(n):
        v = T.producer_acquire("ab")
        T.copy(A[k * 64], S[v, :])


@T.macro
def forgets_to_release(B, S, n):
    for k in T.serial(n):
        v = T.consumer_wait("ab")
        T.copy(S[v, :], B[k * 64])


@T.macro
def releases_twice(B, S, n):
    for k in T.serial(n):
        v = T.consumer_wait("ab")
        T.copy(S[v, :], B[k * 64])
        T.consumer_release("ab")
        T.consumer_release("ab")


@T.macro
def releases_first(B, S, n):
    for k in T.serial(n):
        T.consumer_release("ab")
        v = T.consumer_wait("ab")
        T.copy(S[v, :], B[k * 64])


@T.macro
def waits_for_all_first(B, S, n):
    for _ in T.serial(n):
        T.consumer_wait("ab")
    for _ in T.serial(n):
        T.consumer_release("ab")


@T.macro
def loads_three(A, S, n):
    for _ in T.serial(3):
        T.producer_acquire("ab")
        T.producer_commit("ab")


@T.macro
def waits_for_three_first(B, S, n):
    for _ in T.serial(3):
        T.consumer_wait("ab")
    for _ in T.serial(3):
        T.consumer_release("ab")


@T.macro
def uses_one_less(B, S, n):
    use_all(B, S, n - 1)


@T.macro
def commits_alone(A, S, n):
    for _ in T.serial(n):
        T.producer_commit("ab")


@T.macro
def idles(B, S, n):
    B[0] = 1.0


@T.macro
def other_pipeline(A, S, n):
    T.producer_acquire("c")


@pytest.mark.parametrize(
    ("load", "use", "text"),
    [
        (
            forgets_to_commit,
            use_all,
            r"found T\.producer_acquire\('ab'\) in role 'load', which never calls "
            r"T\.producer_commit\('ab'\), wanted both: .*; write T\.producer_commit\('ab'\) behind",
        ),
        (
            load_all,
            forgets_to_release,
            r"found T\.consumer_wait\('ab'\) in role 'use', which never calls T\.consumer_release",
        ),
        (
            load_all,
            releases_twice,
            r"found T\.consumer_wait\('ab'\) n times in role 'use' and "
            r"T\.consumer_release\('ab'\) n \* 2 times, wanted as many; put them into the same",
        ),
        (
            load_all,
            releases_first,
            r"T\.consumer_release\('ab'\) in role 'use' with no .* in front",
        ),
        (
            load_all,
            uses_one_less,
            r"found T\.consumer_wait\('ab'\) n - 1 times in role 'use', where role 'load' "
            r"commits n times \(line \d+\), wanted as many; let both roles have the same loops",
        ),
        (load_all, waits_for_all_first, r"found a number that a run knows versions of pipeline"),
        (
            loads_three,
            waits_for_three_first,
            r"found up to 3 versions of pipeline 'ab' in use by role 'use' at once, wanted at most "
            r"its depth, 2, .* for ever; end the use of a version before",
        ),
        (load_even, use_all, r"n times in role 'use', where role 'load' commits under conditions"),
        (load_some, use_all, r"n times in role 'use', where role 'load' commits under conditions"),
        (load_some, use_until, r"under conditions in role 'use', where role 'load' commits under"),
        (load_all, use_until, r"under conditions in role 'use', where role 'load' commits n times"),
        (load_all, break_in_use, r"found T\.consumer_wait\('ab'\) under .*, wanted as many"),
        (commits_alone, use_all, r"T\.producer_commit\('ab'\) in role 'load' with no T\.producer_"),
        (load_all, idles, r"pipeline 'ab' filled by 'load' and used by nobody, wanted one role"),
        (other_pipeline, use_all, r"the schedule has no pipeline 'c', wanted one of its own: 'ab'"),
    ],
)
def test_bodies_that_do_not_fit(load, use, text):
    with pytest.raises(ValueError, match=rf"(?s){text}.*test_ws_roles\.py:\d+"):
        pair(load, use)


@pytest.fixture
def trace_roles(define):
    """Trace statements in a kernel with a schedule."""

    def run(statements, plan):
        lines = ["@T.prim_func", 'def main(A: T.Tensor((64,), "float32")):']
        lines += ["    with T.Kernel(1, threads=256):", "        T.annotate_ws_schedule(plan)"]
        lines += [f"        {line}" for line in statements.splitlines()]
        return define("\n".join(lines), plan=plan)["main"]

    return run


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("T.producer_acquire('ab')", "T.producer_acquire is outside of a role, wanted it under"),
        (
            "with T.ws_role('x'): pass",
            "the schedule has no role 'x', wanted one of its own: 'load'",
        ),
        (
            "with T.ws_role('load'):\n    with T.ws_role('use'): pass",
            "T.ws_role('use') is inside of the T.ws_role('load') at line",
        ),
        ("with T.ws_role('load'): T.producer_acquire('ab')", "found no body of role 'use', wanted"),
    ],
)
def test_refused(trace_roles, statement, text):
    plan = T.WSSchedule(8, {"load": T.WSRole(0, 4), "use": T.WSRole(4, 8)}, {"ab": T.WSPipeline(2)})
    with pytest.raises(ValueError, match=re.escape(text)):
        trace_roles(statement, plan)


def test_a_kernel_without_a_schedule_by_roles():
    with pytest.raises(ValueError, match="found no schedule by roles, wanted T"):

        @T.prim_func
        def main(A: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=128), T.ws_role("load"):
                A[0] = 1.0


@pytest.mark.parametrize("where", ["first", "in the loop", "in a branch"])
def test_roles_read_what_all_threads_have_written(where, device):
    """All threads meet in front of the roles, of which the first one waits for the other two."""
    roles = {"load": T.WSRole(0, 4), "one": T.WSRole(4, 8), "two": T.WSRole(8, 12)}
    plan = T.WSSchedule(12, roles, {"ab": T.WSPipeline(2)})

    @T.macro
    def add(tile, row, total):
        for j in T.Parallel(64):
            total[j] += tile[row, j]

    @T.prim_func
    def main(A: T.Tensor((384,), "float32"), B: T.Tensor((2, 64), "float32"), n: T.int32):
        with T.Kernel(1, threads=384):
            T.annotate_ws_schedule(plan)
            begin = T.alloc_shared((1, 64), "float32")
            S = T.alloc_shared((2, 64), "float32")
            T.fill(begin, 8)
            with T.ws_role("load"):
                load_all(A, S, n)
            for i, role in enumerate(("one", "two")):
                with T.ws_role(role):
                    total = T.alloc_fragment((64,), "float32")
                    T.clear(total)
                    if where == "first":
                        add(begin, 0, total)
                    for k in T.serial(n):
                        v = T.consumer_wait("ab")
                        add(S, v, total)
                        if where == "in the loop":
                            add(begin, 0, total)
                        if where == "in a branch" and k == 3:
                            add(begin, 0, total)
                        T.consumer_release("ab")
                    T.copy(total, B[i, :])

    a = torch.arange(384, dtype=torch.float32, device=device)
    found = torch.empty(2, 64, device=device)
    tilelang.compile(main, target=SM_90, execution_backend="auto")(a, found, 6)
    wanted = a.view(6, 64).sum(0) + (48 if where == "in the loop" else 8)
    assert torch.equal(found, wanted.expand(2, 64))
