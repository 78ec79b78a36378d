"""T.ws(.., each=True): one body of code that several warp groups run, each by itself."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

TARGET = {"kind": "cuda", "arch": "sm_90a"}
ROWS, COLUMNS = 64, 64
HEAD = """\
@T.prim_func
def main(A: T.Tensor((8, 16), "float32")):
    with T.Kernel(1, threads={threads}) as bx:
        tx = T.get_thread_binding()
        S = T.alloc_shared((8, 16), "float32")
"""

pytestmark = pytest.mark.usefixtures("on_sm_90a")


def turns(groups, tiles, each):
    """Each group multiplies every other tile by itself, transposed, through shared memory. With
    `each` there is one body for all groups, else a T.ws for each group."""
    first, count = groups[0], len(groups)

    @T.macro
    def body(A, C, raw, half, s):
        product = T.alloc_fragment((ROWS, ROWS), "float32")
        for turn in T.serial((tiles - s + count - 1) // count):
            n = turn * count + s
            for i, j in T.Parallel(ROWS, COLUMNS):
                raw[s, i, j] = A[n, i, j] + s
            # By way of other threads: a barrier of the group alone.
            for i, j in T.Parallel(ROWS, COLUMNS):
                half[s, i, j] = raw[s, i, COLUMNS - 1 - j]
            T.gemm(half[s, :, :], half[s, :, :], product, transpose_B=True, clear_accum=True)
            for i, j in T.Parallel(ROWS, ROWS):
                C[n, i, j] = product[i, j]

    @T.prim_func
    def main(
        A: T.Tensor((tiles, ROWS, COLUMNS), "float16"), C: T.Tensor((tiles, ROWS, ROWS), "float32")
    ):
        with T.Kernel(1, threads=128 * (first + count + 1)):
            raw, half = [T.alloc_shared((count, ROWS, COLUMNS), "float16") for _ in range(2)]
            if each:
                with T.ws(*groups, each=True) as s:
                    body(A, C, raw, half, s)
            else:
                for s in [*range(count)]:
                    with T.ws(first + s):
                        body(A, C, raw, half, s)

    return main


def test_what_the_first_group_does_alone_stays_its_own():
    """Neighbours of one condition are joined, and this branch becomes that of both groups."""

    @T.prim_func
    def main(A: T.Tensor((2, 128), "float32"), B: T.Tensor((2, 128), "float32")):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((2, 128), "float32")
            with T.ws(1):
                for i in T.Parallel(128):
                    T.atomic_add(B[1, i], A[1, i])
            with T.ws(1, 2, each=True) as s:
                for i in T.Parallel(128):
                    S[s, i] = A[s, i]
            with T.ws(1):
                for i in T.Parallel(128):
                    T.atomic_add(B[0, i], S[0, i])

    a, b = torch.randn(2, 128), torch.zeros(2, 128)
    tilelang.compile(main, target=TARGET)(a, b)
    torch.testing.assert_close(b, a)


def filled(before, behind):
    """Two groups fill a row of S each; what stands in front of them and behind is the test's, as is
    what the second one takes from there."""

    @T.prim_func
    def main(A: T.Tensor((2, 128), "float32"), C: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((2, 128), "float32")
            tx = T.get_thread_binding()
            if before:
                with T.ws(2):
                    S[1, tx - 256] = A[1, tx - 256]
            with T.ws(1, 2, each=True) as s:
                if before:
                    if s == 1:
                        C[tx - 128] = S[s, 255 - tx]
                else:
                    S[s, tx - 128] = A[s, tx - 128]
            if behind == "threads of the first group" and tx >= 128 and tx < 256:
                C[tx - 128] = S[1, tx - 128]
            if behind == "the second group":
                with T.ws(2):
                    C[tx - 256] = S[1, 383 - tx]

    return main


@pytest.mark.parametrize(
    ("before", "behind", "turned", "barrier"),
    [
        (True, None, True, "tl::sync_threads_partial(tl::add(3, instance), 128);"),
        (False, "threads of the first group", False, "__syncthreads();"),
        (False, "the second group", True, "tl::sync_threads_partial(3, 128);"),
    ],
)
def test_others_see_what_each_group_has_written(before, behind, turned, barrier):
    """The numbers in the body are the first group's. Barriers stand by those that each group has:
    in the second one, thread 256 writes what thread 128 then reads."""
    kernel = tilelang.compile(filled(before, behind), target=TARGET)
    a, c = torch.randn(2, 128), torch.full((128,), torch.nan)
    kernel(a, c)
    assert torch.equal(c, a[1].flip(0) if turned else a[1])
    assert barrier in kernel.get_kernel_source()


def test_a_division_in_front_of_the_branch_is_of_the_groups_own_number():
    """HoistDivisions moves it out of a loop around the branch."""

    @T.prim_func
    def main(C: T.Tensor((2, 3, 128), "int32"), D: T.Tensor((3, 384), "int32"), n: T.int32):
        with T.Kernel(3, threads=384) as bx:
            tx = T.get_thread_binding()
            T.assume(n >= 1)
            for k in T.serial(4):
                D[bx, tx] += k
                with T.ws(1, 2, each=True) as s:
                    C[s, bx, tx - 128] += (tx + bx * 7) // n

    c, d = torch.zeros(2, 3, 128, dtype=torch.int32), torch.zeros(3, 384, dtype=torch.int32)
    kernel = tilelang.compile(main, target=TARGET)
    kernel(c, d, 5)
    numbers = torch.arange(128, 256) + torch.arange(3).reshape(3, 1) * 7
    assert torch.equal(c, (numbers // 5 * 4).int().expand(2, 3, 128))
    assert "quotient" in kernel.get_kernel_source()


@pytest.mark.parametrize("groups", [(0, 1), (1, 2), (1, 2, 3), (2,)])
def test_groups_run_one_body(groups):
    tiles = 5
    a = torch.randn(tiles, ROWS, COLUMNS).half() / 8
    results, sources = [], []
    for each in (True, False):
        kernel = tilelang.compile(turns(groups, tiles, each), target=TARGET)
        c = torch.full((tiles, ROWS, ROWS), torch.nan)
        kernel(a, c)
        results.append(c)
        sources.append(kernel.get_kernel_source())
    wanted = a + torch.arange(tiles).reshape(-1, 1, 1) % len(groups)
    torch.testing.assert_close(results[0], wanted.float() @ wanted.float().mT, rtol=1e-2, atol=0.1)
    assert torch.equal(*results)
    one, several = (source.count("tl::wgmma_ss<") for source in sources)
    assert (one, several) == (1, len(groups))


def test_each_group_waits_for_its_own_stores():
    """The range stands for several groups in a loop that is none of iterations: the wait for a TMA
    store is in it, at its end, and none stands at its begin."""

    @T.prim_func
    def main(A: T.Tensor((2, 32, 64), "float32"), C: T.Tensor((2, 32, 64), "float32")):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((2, 32, 64), "float32")
            with T.ws(1, 2, each=True) as s:
                T.copy(A[s, :, :], S[s, :, :])
                T.copy(S[s, :, :], C[s, :, :])

    kernel = tilelang.compile(main, target=TARGET)
    a, c = torch.randn(2, 32, 64), torch.zeros(2, 32, 64)
    kernel(a, c)
    assert torch.equal(c, a)
    source = kernel.get_kernel_source()
    assert "tl::tma_store<" in source
    assert source.count("tl::tma_store_wait<0, true>();") == 1


def test_each_group_has_barriers_of_its_own():
    source = tilelang.compile(turns((1, 2), 4, True), target=TARGET).get_kernel_source()
    ids = re.findall(r"tl::sync_threads_partial\((.*?), 128\)", source)
    assert ids
    assert all(re.fullmatch(r"\d+ \+ instance", i) for i in ids)
    assert "const int instance = warp_group - 1;" in source
    assert "warp_group >= 1 && warp_group < 3" in source


def test_barriers_of_other_ranges_leave_room():
    @T.prim_func
    def main(A: T.Tensor((3, 128), "float32"), C: T.Tensor((3, 128), "float32")):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((3, 128), "float32")
            tx = T.get_thread_binding() % 128
            with T.ws(0, 1, each=True) as s:
                S[s, tx] = A[s, tx]
                T.sync_threads(3)
                C[s, tx] = S[s, 127 - tx]
            with T.ws(2):
                for i in T.Parallel(128):
                    S[2, i] = A[2, i]
                for i in T.Parallel(128):
                    C[2, i] = S[2, 127 - i]

    kernel = tilelang.compile(main, target=TARGET)
    a, c = torch.randn(3, 128), torch.zeros(3, 128)
    kernel(a, c)
    assert torch.equal(c, a.flip(1))
    source = kernel.get_kernel_source()
    # 3 and 4 are those of the first two groups.
    assert "tl::sync_threads_partial(3 + instance, 128)" in source
    assert "tl::sync_threads_partial(5, 128)" in source


def test_barriers_of_the_first_group_alone_are_others():
    @T.prim_func
    def main(A: T.Tensor((2, 128), "float32"), C: T.Tensor((4, 128), "float32")):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((2, 128), "float32")
            with T.ws(1):
                for i in T.Parallel(128):
                    S[0, i] = A[0, i]
                for i in T.Parallel(128):
                    C[3, i] = S[0, 127 - i]
            with T.ws(1, 2, each=True) as s:
                for i in T.Parallel(128):
                    S[s, i] = A[s, i]
                for i in T.Parallel(128):
                    C[s, i] = S[s, 127 - i]

    source = tilelang.compile(main, target=TARGET).get_kernel_source()
    ids = re.findall(r"tl::sync_threads_partial\((.*?), 128\)", source)
    alone = {int(i) for i in ids if i.isdigit()}
    first = {int(re.search(r"\d+", i)[0]) for i in ids if "instance" in i}
    assert alone
    assert first
    assert not alone & {i + s for i in first for s in range(2)}


def test_a_threads_number_is_that_of_the_first_group():
    """Also what stands for it outside of the body, and what conditions say of it."""

    @T.prim_func
    def main(C: T.Tensor((2, 4), "int32")):
        with T.Kernel(1, threads=384):
            tx = T.get_thread_binding()
            warp = tx // 32
            with T.ws(1, 2, each=True) as s:
                if tx % 32 == 0 and tx < 224:
                    C[s, warp - 4] = tx + 1000 * s

    c = torch.full((2, 4), -1, dtype=torch.int32)
    tilelang.compile(main, target=TARGET)(c)
    assert c.tolist() == [[128, 160, 192, -1], [1128, 1160, 1192, -1]]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_groups_in_a_loop_pass_tiles_on(count):
    """Groups fill a ring of slots for another group, which waits for them by mbarriers."""

    @T.prim_func
    def main(A: T.Tensor((7, 128), "float32"), C: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128 * (count + 1)):
            slots = T.alloc_shared((count, 128), "float32")
            full, free = [T.alloc_barrier([128] * count) for _ in range(2)]
            tx = T.get_thread_binding() % 128
            total = T.alloc_var("float32")
            with T.ws(*range(count), each=True) as s:
                for turn in T.serial((7 - s + count - 1) // count):
                    T.mbarrier_wait_parity(free[s], turn % 2 ^ 1)
                    slots[s, tx] = A[turn * count + s, tx] * 2
                    T.mbarrier_arrive(full[s])
            with T.ws(count):
                total = 0
                for n in T.serial(7):
                    T.mbarrier_wait_parity(full[n % count], n // count % 2)
                    total += slots[n % count, 127 - tx]
                    T.mbarrier_arrive(free[n % count])
                C[tx] = total

    a, c = torch.randn(7, 128), torch.zeros(128)
    tilelang.compile(main, target=TARGET)(a, c)
    torch.testing.assert_close(c, 2 * a.flip(1).sum(0))


@pytest.mark.parametrize(
    ("threads", "statements", "message"),
    [
        (
            384,
            "with T.ws(0, 2, each=True) as s: S[s, 0] = 1",
            "T.ws with each=True found the warp groups [0, 2], wanted consecutive ones",
        ),
        (
            "(128, 3)",
            "with T.ws(0, 1, each=True) as s: S[s, 0] = 1",
            "T.ws with each=True found threads of several dimensions, wanted one",
        ),
        (
            384,
            "with T.ws(0, 1, each=True) as s:\n    R = T.alloc_shared((8,), 'float32')",
            "T.alloc_shared is in T.ws(.., each=True), whose warp groups would share",
        ),
        (
            384,
            "with T.ws(0, 1, each=True) as s:\n    R = T.alloc_barrier(1)",
            "T.alloc_barrier is in T.ws(.., each=True), whose warp groups would share",
        ),
        (
            384,
            "with T.ws(0, 1, each=True) as s: T.sync_threads(15)",
            "barrier_id of T.sync_threads is 15 in T.ws(.., each=True) of 2 warp groups",
        ),
        (
            384,
            "with T.ws(0, 1, each=True) as s: T.named_barrier_arrive(15, 128)",
            "barrier_id of T.named_barrier_arrive is 15 in T.ws(.., each=True) of 2 warp groups",
        ),
    ],
)
def test_refused_while_tracing(define, threads, statements, message):
    lines = "".join(f"        {line}\n" for line in statements.splitlines())
    with pytest.raises(ValueError, match=rf"{re.escape(message)}[\s\S]*--> "):
        define(HEAD.format(threads=threads) + lines)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            "f = T.alloc_fragment((8, 16), 'float32')\nt = T.alloc_fragment((16,), 'float32')\n"
            "with T.ws(0, 1, each=True) as s:\n"
            "    T.copy(S, f)\n    T.reduce_sum(f, t, dim=0)\n    T.copy(t, A[s, :])",
            "found an operator that takes shared memory of its own in T.ws(.., each=True)",
        ),
        (
            "with T.ws(0, 1, each=True) as s:\n    T.copy(A, S, prefer_instruction='tma')\n"
            "    A[s, 0] = S[0, 0]",
            "found an operator that takes an mbarrier of its own in T.ws(.., each=True)",
        ),
        (
            "if tx < 128:\n    with T.ws(0, 1, each=True) as s: A[s, 0] = 1",
            "found T.ws(.., each=True) inside of a branch on the thread's number",
        ),
    ],
)
def test_refused_while_compiling(define, statements, message):
    lines = "".join(f"        {line}\n" for line in statements.splitlines())
    main = define(HEAD.format(threads=384) + lines)["main"]
    with pytest.raises(ValueError, match=re.escape(message)):
        tilelang.compile(main, target=TARGET)


def test_a_chip_without_named_barriers_refuses():
    with pytest.raises(ValueError, match=r"found T\.ws\(\.\., each=True\), wanted a target with"):
        tilelang.compile(turns((0, 1), 2, True), target="hip -mcpu=gfx942")
