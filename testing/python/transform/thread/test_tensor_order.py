"""Order in tensors that a kernel writes: what a block writes, its threads read behind a barrier."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import tvm
from tvm.script import tirx as S

import tilelang
import tilelang.language as T
from tilelang.emulator import EmulationError, schedule

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SEEDS = range(3)
Test = tuple[Any, Callable[[list[torch.Tensor]], list[torch.Tensor]]]


def shapes(*sizes):
    return [T.Tensor(s, "float32") for s in sizes]


def replicated_vector() -> Test:
    R, C = shapes((64,), (64, 64))

    @T.prim_func
    def main(A: C, V: R, B: C):
        with T.Kernel(1, threads=128):
            r, f = T.alloc_fragment((64,), "float32"), T.alloc_fragment((64, 64), "float32")
            T.copy(A, f)
            T.copy(V, r)
            for i, j in T.Parallel(64, 64):
                f[i, j] += r[i]
            for i in T.Parallel(64):
                r[i] += 1.0
            T.copy(r, V)
            T.copy(f, B)

    return main, lambda x: [x[0], x[1] + 1, x[0] + x[1][:, None]]


def transposed() -> Test:
    (M,) = shapes((64, 64))

    @T.prim_func
    def main(A: M, C: M, D: M):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((64, 64), "float32")
            T.copy(A, f)
            T.copy(f, C)
            for i, j in T.Parallel(64, 64):
                D[i, j] = C[j, i]

    return main, lambda x: [x[0], x[0], x[0].T]


def reduced_into_what_is_loaded() -> Test:
    V, M = shapes((64,), (64, 64))

    @T.prim_func
    def main(A: M, R: V):
        with T.Kernel(1, threads=128):
            f, r = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64,), "float32")
            T.copy(A, f)
            T.copy(R, r)
            T.reduce_max(f, r, dim=1, clear=False)
            T.copy(r, R)

    return main, lambda x: [x[0], torch.maximum(x[0].amax(1), x[1])]


def workspace() -> Test:
    (M,) = shapes((64, 64))

    @T.prim_func
    def main(A: M, C: M):
        with T.Kernel(1, threads=128):
            W = T.alloc_global((64, 64), "float32")
            f = T.alloc_fragment((64, 64), "float32")
            T.copy(A, f)
            T.copy(f, W)
            for i, j in T.Parallel(64, 64):
                C[i, j] = W[63 - i, j]

    return main, lambda x: [x[0], x[0].flip(0)]


def cleared_in_another_layout() -> Test:
    (M,) = shapes((64, 64))

    @T.prim_func
    def main(A: M, C: M):
        with T.Kernel(1, threads=128):
            T.clear(C)
            for j, i in T.Parallel(64, 64):
                C[i, j] = A[i, j]

    return main, lambda x: [x[0], x[0]]


def rounds() -> Test:
    (V,) = shapes((256,))

    @T.prim_func
    def main(A: V):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((256,), "float32")
            for _ in T.serial(3):
                for i in T.Parallel(256):
                    f[i] = A[(i + 1) % 256]
                T.copy(f, A)

    return main, lambda x: [x[0].roll(-3)]


def pipelined_rows() -> Test:
    (M,) = shapes((5, 1024))

    @T.prim_func
    def main(A: M):
        with T.Kernel(1, threads=128):
            row = T.alloc_shared((1024,), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k, :], row)
                for i in T.Parallel(1024):
                    A[k + 1, i] = row[1023 - i] + 1.0

    def want(x):
        rows = [x[0][0]]
        for _ in range(4):
            rows.append(rows[-1].flip(0) + 1)
        return [torch.stack(rows)]

    return main, want


def one_thread_for_all() -> Test:
    (V,) = shapes((64,))

    @T.prim_func
    def main(A: V, C: V):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if tx == 0:
                A[0] = A[1] * 2.0
            for i in T.Parallel(64):
                C[i] = A[0] + i

    def want(x):
        a = x[0].clone()
        a[0] = 2 * a[1]
        return [a, a[0] + torch.arange(64, device=a.device)]

    return main, want


def two_names() -> Test:
    (V,) = shapes((256,))

    @T.prim_func
    def main(A: V, C: V):
        with T.Kernel(1, threads=128):
            flat = T.reshape(A, (16, 16))
            for i in T.Parallel(256):
                A[i] = A[i] + 1.0
            for i, j in T.Parallel(16, 16):
                C[i * 16 + j] = flat[j, i]

    return main, lambda x: [x[0] + 1, (x[0] + 1).view(16, 16).T.flatten()]


FORMS = [
    replicated_vector,
    transposed,
    reduced_into_what_is_loaded,
    workspace,
    cleared_in_another_layout,
    rounds,
    pipelined_rows,
    one_thread_for_all,
    two_names,
]


def arguments(kernel) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = [[int(n) for n in p.shape] for p in kernel.params]
    return [torch.randn(s, generator=generator).to(DEVICE) for s in sizes]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_operators_of_a_block_happen_one_after_the_other(form):
    main, want = form()
    kernel = tilelang.compile(main)
    for seed in SEEDS:
        given = arguments(kernel)
        wanted = want([x.clone() for x in given])
        with schedule("random", seed=seed):
            kernel(*given)
        for found, expected in zip(given, wanted, strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.skipif(DEVICE == "cuda", reason="the emulator's checks")
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_without_the_barrier_the_emulator_reports_a_race(form):
    main, _ = form()
    config = {"tl.disable_thread_storage_sync": True}
    kernel = tilelang.compile(main, pass_configs=config, checks=True)
    reports = []
    for seed in SEEDS:
        with schedule("random", seed=seed), pytest.raises(EmulationError) as caught:
            kernel(*arguments(kernel))
        reports.append(str(caught.value))
    assert all("race" in text or "barrier" in text for text in reports)


@pytest.fixture
def barriers(statements):
    def count(func, **kw):
        return statements("ThreadSync", func, **kw).count('tvm_storage_sync("shared")')

    return count


def indexed(first: str, second: str, shape: str = "(n, 256)", loop: str = "range(4)"):
    """A write of `first` and a read of `second` in a loop over k, in block b of a tensor A whose
    extents are symbols."""
    source = f"""
@S.prim_func(s_tir=True)
def func(a: S.handle, D: S.Buffer((4096,), "float32"), n: S.int32, t: S.Buffer((64,), "int32")):
    A = S.match_buffer(a, {shape}, "float32")
    b = S.launch_thread("blockIdx.x", 8)
    tx = S.launch_thread("threadIdx.x", 128)
    with S.sblock("tilelang_root"):
        for k in {loop}:
            A[{first}] = S.float32(1)
            D[tx] = A[{second}]
"""
    return tvm.script.from_source(source, extra_vars={"S": S})


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        ("b * 4 + k, tx", "b * 4 + k, tx", 0),
        # The next iteration has another row.
        ("b * 4 + k, tx", "b * 4 + k, 127 - tx", 1),
        ("k * n + b, tx", "k * n + b, tx", 0),
        # Another tile, of which the same thread has the same element.
        ("t[k] * 4 + tx // 32, tx % 32", "t[k + 1] * 4 + tx // 32, tx % 32", 0),
        ("t[k] * 4 + tx // 32, tx % 32", "t[k + 1] * 3 + tx // 32, tx % 32", 2),
        ("t[k], tx", "t[b], tx", 0),
        ("t[k], tx // 2", "t[b], tx // 2", 2),
        ("b, k * 32 + tx // 4", "b, k * 32 + tx // 4", 1),
        ("b, tx * 2", "b, tx * 2 + 1", 0),
        ("0, tx", "1, 127 - tx", 0),
    ],
)
def test_only_elements_of_several_threads_need_a_barrier(barriers, first, second, count):
    assert barriers(indexed(first, second)) == count
    # With a number of iterations of the run, too.
    assert barriers(indexed(first, second, loop="range(n)")) == count


@pytest.mark.parametrize(
    ("written", "read", "count"),
    [("tx * 4 + p", "tx * 4 + 3 - p", 0), ("tx * 4 + p", "tx * 4 + 4 - p", 1)],
)
def test_a_loop_too_long_to_go_over_leaves_the_short_one_its_iterations(
    barriers, written, read, count
):
    source = f"""
@S.prim_func(s_tir=True)
def func(A: S.Buffer((65536 * 512 + 512,), "float32"), B: S.Buffer((128,), "float32")):
    tx = S.launch_thread("threadIdx.x", 128)
    with S.sblock("tilelang_root"):
        for k in range(65536):
            for p in range(4):
                A[k * 512 + {written}] = S.float32(1)
        for k in range(65536):
            for p in range(4):
                B[tx] = A[k * 512 + {read}]
"""
    assert barriers(tvm.script.from_source(source, extra_vars={"S": S})) == count


@pytest.mark.parametrize(("written_in", "count"), [("front", 0), ("the loop", 1)])
def test_a_variable_that_keeps_its_value_is_no_matter(barriers, written_in, count):
    source = f"""
@S.prim_func(s_tir=True)
def func(A: S.Buffer((4096,), "float32"), t: S.Buffer((64,), "int32")):
    b = S.launch_thread("blockIdx.x", 8)
    tx = S.launch_thread("threadIdx.x", 128)
    with S.sblock("tilelang_root"):
        first = S.sblock_alloc_buffer((1,), "int32", scope="local.var")
        first[0] = t[b]
        for k in range(4):
            {"first[0] = t[b + k]" if written_in == "the loop" else ""}
            A[first[0] + k * 128 + tx] = S.float32(1)
"""
    assert barriers(tvm.script.from_source(source, extra_vars={"S": S})) == count


@pytest.mark.parametrize(
    ("value", "bound_in", "count"),
    [
        ("t[b]", "front", 0),
        ("t[b + k]", "the loop", 1),  # another one in each iteration
        ("t[tx % 64]", "front", 1),  # another one in each thread
    ],
)
def test_a_name_that_is_bound_once_to_what_was_loaded_is_no_matter(
    barriers, value, bound_in, count
):
    source = f"""
@S.prim_func(s_tir=True)
def func(A: S.Buffer((4096,), "float32"), t: S.Buffer((64,), "int32")):
    b = S.launch_thread("blockIdx.x", 8)
    tx = S.launch_thread("threadIdx.x", 128)
    with S.sblock("tilelang_root"):
        {f"first: S.let = {value}" if bound_in == "front" else ""}
        for k in range(4):
            {f"first: S.let = {value}" if bound_in == "the loop" else ""}
            A[first + k * 128 + tx] = S.float32(1)
"""
    assert barriers(tvm.script.from_source(source, extra_vars={"S": S})) == count


def test_what_nobody_writes_needs_none_and_atomics_need_none(statements):
    @S.prim_func(s_tir=True)
    def func(A: S.Buffer((64,), "int32"), C: S.Buffer((64,), "int32")):
        tx = S.launch_thread("threadIdx.x", 64)
        with S.sblock("tilelang_root"):
            C[tx] = A[63 - tx]
            C[tx] = C[tx] + A[(tx + 1) % 64]

    assert "sync" not in statements("ThreadSync", func)


def test_threads_that_meet_nowhere_get_a_warning(caplog, statements):
    @S.prim_func(s_tir=True)
    def func(A: S.Buffer((64,), "int32")):
        tx = S.launch_thread("threadIdx.x", 64)
        with S.sblock("tilelang_root"):
            if tx < 16:
                A[tx] = 1
                A[tx] = A[tx] + A[15 - tx]

    with caplog.at_level("WARNING", logger="tilelang"):
        assert "sync" not in statements("ThreadSync", func)
    assert "found an access of tensor A after an access of it by other threads" in caplog.text


def test_a_barrier_of_the_grid_is_one_of_the_block():
    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), C: T.Tensor((256,), "float32")):
        with T.Kernel(2, threads=128) as bx:
            tx = T.get_thread_binding()
            A[bx * 128 + tx] = 1.0
            T.sync_grid()
            C[bx * 128 + tx] = A[255 - bx * 128 - tx]

    source = tilelang.compile(main, target="cuda -arch=sm_80").get_kernel_source()
    assert "__syncthreads" not in source


@pytest.mark.parametrize("several", [True, False])
def test_tensors_that_may_be_one_are_ordered(several):
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), C: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            if several:
                T.annotate_restrict_buffers(A, C)
            tx = T.get_thread_binding()
            C[tx] = 1.0
            C[tx] = A[127 - tx] + 1.0

    source = tilelang.compile(main, target="cuda -arch=sm_80").get_kernel_source()
    assert ("__syncthreads" in source) is several


def test_threads_tell_the_engine_what_they_wrote():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64, 64), "float16")
            for i, j in T.Parallel(64, 64):
                A[i, j] = A[i, j] + 1.0
            T.copy(A, s, prefer_instruction="tma")
            T.copy(s, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    source = kernel.get_kernel_source()
    fence = source.index("tl::fence_proxy_async_all()")
    assert fence < source.index("__syncthreads()", fence) < source.index("tl::tma_load")
    for seed in SEEDS:
        a, c = torch.randn(64, 64).half(), torch.zeros(64, 64).half()
        wanted = a + 1
        with schedule("random", seed=seed):
            kernel(a, c)
        assert c.equal(wanted)


@pytest.mark.parametrize("own", [True, False])
def test_a_fence_of_the_program_spares_the_loop_one(own):
    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float16"),
        N: T.Tensor((4,), "int32"),
        C: T.Tensor((256, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((64, 64), "float16")
            s = T.alloc_shared((64, 64), "float16")
            for k in T.serial(4):
                T.copy(A[k * 64, 0], f)
                T.copy(f, s)
                if N[k] > 0:
                    T.copy(s, C[k * 64, 0])
                else:
                    T.copy(s, C[k * 64, 0], disable_tma=True)
                    if own:
                        T.fence_proxy_async(tensors=True)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    source = kernel.get_kernel_source()
    assert source.count("tl::fence_proxy_async_all()") == 1
    # In front of the store of each iteration, or behind the stores of threads alone.
    fence, store = source.index("tl::fence_proxy_async_all()"), source.index("tl::tma_store<")
    assert (store < fence) is own
    for seed in SEEDS:
        a, c = torch.randn(256, 64).half(), torch.zeros(256, 64).half()
        with schedule("random", seed=seed):
            kernel(a, torch.tensor([0, 1, 0, 1], dtype=torch.int32), c)
        assert c.equal(a)


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "hip -mcpu=gfx942"])
def test_where_there_is_one_proxy_a_fence_is_none(target):
    @T.prim_func
    def main(C: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            C[T.get_thread_binding()] = 1
            T.fence_proxy_async()
            T.fence_proxy_async(tensors=True)

    kernel = tilelang.compile(main, target=target, execution_backend="emulate")
    assert "fence" not in kernel.get_kernel_source()
    c = torch.zeros(64, dtype=torch.int32)
    kernel(c)
    assert c.min() == 1


@pytest.mark.parametrize("leaves", ["", "continue"])
def test_the_condition_of_a_while_reads_what_the_body_writes(leaves):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), C: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            flag, s = T.alloc_shared((1,), "int32"), T.alloc_shared((64,), "int32")
            T.copy(A, s)
            if tx == 0:
                flag[0] = 0
            while flag[0] < 5:
                for i in T.Parallel(64):
                    s[i] = s[i] + flag[0]
                if tx == 0:
                    flag[0] = flag[0] + 1
                if leaves and flag[0] == 3:
                    continue
                for i in T.Parallel(64):
                    s[i] = s[i] + 1
            T.copy(s, C)

    kernel = tilelang.compile(main)
    for seed in SEEDS:
        a = torch.arange(64, dtype=torch.int32, device=DEVICE)
        c = torch.zeros_like(a)
        with schedule("random", seed=seed):
            kernel(a, c)
        assert c.equal(a + 10 + (4 if leaves else 5))


def test_pairs_that_are_apart_exchange_their_elements():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "float32")
            T.copy(A, s)
            for size in T.serial(6):
                for step in T.serial(size + 1):
                    for i in T.Parallel(64):
                        p = i ^ (1 << (size - step))
                        if p > i and (s[i] > s[p]) == ((i & (2 << size)) == 0):
                            low = s[p]
                            s[p] = s[i]
                            s[i] = low
            T.copy(s, C)

    kernel = tilelang.compile(main)
    for seed in SEEDS:
        a = torch.randn(64, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
        c = torch.zeros_like(a)
        with schedule("random", seed=seed):
            kernel(a, c)
        assert c.equal(a.sort().values)


@pytest.mark.parametrize("form", ["a load ahead", "a store by TMA", "a sum by TMA"])
@pytest.mark.parametrize("several", [True, False])
def test_what_runs_beside_tensors_that_may_be_one(several, form):
    """A step loads by one name what the step before stored by the other."""

    @T.prim_func
    def main(X: T.Tensor((5, 32, 64), "float32"), Y: T.Tensor((5, 32, 64), "float32")):
        with T.Kernel(1, threads=128):
            if several:
                T.annotate_restrict_buffers(X, Y)
            x = T.alloc_shared((32, 64), "float32")
            y = T.alloc_shared((32, 64), "float32")
            for t in T.Pipelined(4, num_stages=2 if form == "a load ahead" else 0):
                T.copy(X[t, 0:32, 0:64], x)
                for i, j in T.Parallel(32, 64):
                    if form == "a load ahead":
                        Y[t + 1, 31 - i, j] = x[i, j] + 1.0
                    else:
                        y[i, j] = x[31 - i, j] + 1.0
                if form == "a store by TMA":
                    T.copy(y, Y[t + 1, 0:32, 0:64])
                if form == "a sum by TMA":
                    T.atomic_add(Y[t + 1, 0:32, 0:64], y, use_tma=True)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    source = kernel.get_kernel_source()
    beside = {
        "a load ahead": "mbarrier" in source,
        "a store by TMA": "tl::tma_store" in source,
        "a sum by TMA": source.count("tl::tma_store_wait<0, true>()") == source.count("_wait<"),
    }
    assert beside[form] is not several
