"""mbarriers, the fences that go with them, clusters: the calls, their errors, and kernels whose
threads order their accesses by them alone."""

import re
from pathlib import Path

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import EmulationError

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


@pytest.mark.parametrize(
    ("statement", "printed"),
    [
        ("T.mbarrier_wait_parity(bars[n], n % 2)", "mbarrier_wait({n}, n % 2)"),
        ("T.barrier_wait(bar, 1)", "mbarrier_wait({0}, 1)"),
        ("T.mbarrier_arrive(bars[2])", "mbarrier_arrive({2})"),
        ("T.barrier_arrive(bar)", "mbarrier_arrive({0})"),
        ("T.mbarrier_arrive(bars[0], n)", "mbarrier_arrive_remote({0s}, n)"),
        (
            'T.mbarrier_arrive(bars[0], n, scope="cta")',
            "mbarrier_arrive_remote_cta({0s}, n)",
        ),
        ("T.ptx_arrive_cluster_barrier(bar, 0)", "mbarrier_arrive_remote({0}, 0)"),
        ("T.mbarrier_expect_tx(bar, 4096)", "mbarrier_expect_tx({0}, 4096)"),
        ("T.mbarrier_arrive_expect_tx(bar, n * 4)", "mbarrier_arrive_expect_tx({0}, n * 4)"),
        ("T.cp_async_barrier_noinc(bar)", "cp_async_mbarrier_arrive_noinc({0})"),
        ("T.fence_proxy_async()", "fence_proxy_async()"),
        ("T.tma_store_arrive()", "tma_store_arrive()"),
        ("T.tma_store_wait()", 'tma_store_wait(0, "true")'),
        ("T.tma_store_wait(2, read=False)", 'tma_store_wait(2, "false")'),
        ("T.cluster_arrive()", "cluster_arrive()"),
        ("T.cluster_arrive_relaxed()", "cluster_arrive_relaxed()"),
        ("T.cluster_wait()", "cluster_wait()"),
        ("T.cluster_sync()", "cluster_sync()"),
        ("T.set_max_nreg(232, True)", "warpgroup_reg_alloc(232)"),
        ("T.inc_max_nreg(240)", "warpgroup_reg_alloc(240)"),
        ("T.dec_max_nreg(24)", "warpgroup_reg_dealloc(24)"),
        ("T.pdl_trigger()", "pdl_trigger()"),
        ("T.pdl_sync()", "pdl_sync()"),
    ],
)
def test_statements(trace, body, round_trip, statement, printed):
    func = trace(
        f"bars = T.alloc_barrier([1, 2, 3])\nbar = T.alloc_cluster_barrier(4)\n{statement}"
    )
    places = {"n": "bars[n]", "0": "bar[0]", "2": "bars[2]", "0s": "bars[0]"}
    for place, element in places.items():
        printed = printed.replace(f"{{{place}}}", f"T.address_of({element})")
    assert body(func).splitlines()[-1] == f"T.tl.{printed}"
    assert '"barrier_init": {bars: [1, 2, 3], bar: [4]}' in func.script()
    if "bar" not in statement:  # TVM does not parse what it prints of such an annotation
        round_trip(trace(statement))


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("T.alloc_barrier(0)", ValueError, "arrive_count of T.alloc_barrier is 0, wanted 1 to"),
        ("T.alloc_barrier(2**20)", ValueError, "is 1048576, wanted 1 to 1048575 arrivals"),
        ("T.alloc_barrier([])", ValueError, r"is \[\], wanted a constant int or a list"),
        ("T.alloc_cluster_barrier(n)", ValueError, "of T.alloc_cluster_barrier is n, wanted a c"),
        ("T.mbarrier_arrive(A[0, 0])", TypeError, "found the expression .* wanted a barrier of"),
        ("T.mbarrier_arrive(3)", TypeError, "found 3 of type int, wanted a barrier"),
        ("T.mbarrier_arrive(bars)", TypeError, r"found bars, which has 2 barriers, .* bars\[i\]"),
        ("T.mbarrier_arrive(bars[2])", IndexError, "index 0 of bars is 2, wanted -2 to 1"),
        ("T.mbarrier_arrive(bars[0], 1)", ValueError, "cta_id of T.mbarrier_arrive is 1, wanted 0"),
        (
            'T.mbarrier_arrive(bars[0], 0, scope="gpu")',
            ValueError,
            "scope of T.mbarrier_arrive is 'gpu', wanted 'cta' or 'cluster'",
        ),
        (
            'T.mbarrier_arrive(bars[0], scope="cta")',
            ValueError,
            "found the scope 'cta' without cta_id, wanted the rank of the block",
        ),
        ("T.barrier_wait(bars[0], 2)", ValueError, "parity of .* is 2, wanted 0 to 1"),
        ("T.barrier_wait(bars[0], 0.5)", TypeError, "parity of .* is 0.5 of type float, wanted an"),
        ("T.mbarrier_expect_tx(bars[0], -4)", ValueError, "bytes of .* is -4, wanted 0 to 1048575"),
        ("T.tma_store_wait(n)", ValueError, "count of T.tma_store_wait is n, wanted a constant"),
        ("T.inc_max_nreg(20)", ValueError, "reg_count of T.inc_max_nreg is 20, wanted a constant"),
        ("T.dec_max_nreg(100)", ValueError, "is 100, wanted a constant multiple of 8 from 24 to 2"),
    ],
)
def test_errors(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(f"bars = T.alloc_barrier([1, 1])\n{statement}")


def compiled(func):
    return tilelang.compile(func, out_idx=-1, target=HOPPER, execution_backend="emulate")


def ring(stages, tiles, first_full=0):
    """Threads 0 to 127 copy tiles, threads 128 to 255 reverse them, `stages` tiles apart at
    most."""

    @T.prim_func
    def main(A: T.Tensor((tiles, 128), "float32"), B: T.Tensor((tiles, 128), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            S = T.alloc_shared((stages, 128), "float32")
            full = T.alloc_barrier([128] * stages)
            empty = T.alloc_barrier([128] * stages)
            if tx < 128:
                for k in range(tiles):
                    T.mbarrier_wait_parity(empty[k % stages], k // stages % 2 ^ 1)
                    S[k % stages, tx] = A[k, tx]
                    T.mbarrier_arrive(full[k % stages])
            else:
                for k in range(tiles):
                    T.mbarrier_wait_parity(full[k % stages], k // stages % 2 ^ first_full)
                    B[k, tx - 128] = S[k % stages, 255 - tx]
                    T.mbarrier_arrive(empty[k % stages])

    return main


@pytest.mark.parametrize("stages", [1, 3])
def test_halves_of_a_block_hand_tiles_over(stages):
    kernel = compiled(ring(stages, 7))
    a = torch.randn(7, 128)
    assert torch.equal(kernel(a), a.flip(1))
    source = kernel.get_kernel_source()
    assert source.count("__syncthreads()") == 1  # after the initialisation
    assert ("tl::mbarrier_init(full + i, 128);" if stages > 2 else "tl::mbarrier_init(") in source


def test_a_wait_for_the_wrong_phase_is_found():
    with pytest.raises(EmulationError, match=r"test_barriers\.py:\d+") as error:
        compiled(ring(2, 4, first_full=1))(torch.randn(4, 128))
    assert "race" in str(error.value) or "deadlock" in str(error.value)


def test_one_lane_arrives_for_a_warp_whose_lanes_have_passed_a_fence():
    """An engine refills a tile that all lanes have read."""

    @T.prim_func
    def main(A: T.Tensor((6, 128), "float32"), B: T.Tensor((6, 128), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            S = T.alloc_shared((1, 128), "float32")
            full = T.alloc_barrier(1)
            empty = T.alloc_barrier(4)
            with T.ws(0):
                for k in T.serial(6):
                    T.mbarrier_wait_parity(empty[0], (k + 1) % 2)
                    T.tma_copy(A[k : k + 1, :], S, barrier=full[0])
                    if tx == 0:
                        T.mbarrier_arrive(full[0])
            with T.ws(1):
                for k in T.serial(6):
                    T.mbarrier_wait_parity(full[0], k % 2)
                    B[k, tx - 128] = S[0, tx - 128] * 2.0
                    T.sync_warp()
                    if tx % 32 == 0:
                        T.mbarrier_arrive(empty[0])

    kernel = compiled(main)
    assert (
        "      tl::fence_proxy_async();\n"
        "      tl::sync_warp(4294967295u);\n"
        "      if (tx % 32 == 0) {\n"
        "        tl::mbarrier_arrive(empty);\n"
    ) in kernel.get_kernel_source()
    a = torch.randn(6, 128)
    assert torch.equal(kernel(a), 2 * a)


def test_a_lost_arrival_is_a_deadlock_that_names_the_barrier():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            done = T.alloc_barrier(64)
            if tx != 5:
                T.mbarrier_arrive(done)
            T.barrier_wait(done, 0)
            A[tx] = 1.0

    lines = Path(__file__).read_text().splitlines()
    place = rf"{re.escape(__file__)}:{1 + lines.index(' ' * 12 + 'done = T.alloc_barrier(64)')}"
    with pytest.raises(EmulationError) as error:
        compiled(main)()
    assert re.search(
        rf"deadlock.* Arrivals are missing at done\[0\], which was initialised at {place}: "
        r"let 1 more threads arrive in phase 0, or initialise it for the 63 arrivals that come",
        str(error.value),
    )
    assert "63 of 64 arrivals" in str(error.value)


def test_cp_async_arrives_when_it_is_complete():
    @T.prim_func
    def main(A: T.Tensor((4, 1024), "float32"), B: T.Tensor((4, 1024), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((2, 1024), "float32")
            landed = T.alloc_barrier([128, 128])
            T.async_copy(A[0, 0:1024], S[0, 0:1024])
            T.cp_async_barrier_noinc(landed[0])
            for k in range(4):
                if k < 3:
                    T.async_copy(A[k + 1, 0:1024], S[(k + 1) % 2, 0:1024])
                    T.cp_async_barrier_noinc(landed[(k + 1) % 2])
                T.mbarrier_wait_parity(landed[k % 2], k // 2 % 2)
                for i in T.Parallel(1024):
                    B[k, i] = S[k % 2, 1023 - i]

    kernel = compiled(main)
    a = torch.randn(4, 1024)
    assert torch.equal(kernel(a), a.flip(1))
    assert "tl::cp_async_wait" not in kernel.get_kernel_source()


@pytest.mark.parametrize("allocate", ["alloc_barrier", "alloc_cluster_barrier"])
def test_blocks_of_a_cluster_arrive_at_each_others_barriers(allocate):
    """Each block waits until all have written a tensor, and reads what its successor wrote."""

    @T.prim_func
    def main(A: T.Tensor((8, 32), "int32"), B: T.Tensor((8, 32), "int32")):
        with T.Kernel(8, threads=32, cluster_dims=4) as bx:
            tx = T.get_thread_binding()
            written = getattr(T, allocate)(128)
            A[bx, tx] = bx * 100 + tx
            for rank in range(4):
                T.mbarrier_arrive(written, rank)
            T.mbarrier_wait_parity(written, 0)
            B[bx, tx] = A[bx // 4 * 4 + (T.block_rank_in_cluster() + 1) % 4, tx]

    kernel = compiled(main)
    blocks, a = torch.arange(8), torch.zeros((8, 32), dtype=torch.int32)
    wanted = (blocks // 4 * 4 + (blocks + 1) % 4)[:, None] * 100 + torch.arange(32)
    assert torch.equal(kernel(a), wanted.to(torch.int32))
    source = kernel.get_kernel_source()
    assert source.count("tl::cluster_sync()") == 2
    assert "mbarrier_wait_cluster" in source
    assert "__syncthreads" not in source


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("bar = T.alloc_barrier(1); T.mbarrier_arrive(bar)", r"bar in memory 'shared\.barrier'"),
        ("T.tma_store_arrive()", "tl::tma_store_arrive"),
        ("T.tma_store_wait(0)", "tl::tma_store_wait"),
        ("T.cluster_sync()", "tl::cluster_sync"),
        ("A[0, 0] = T.cast(T.block_rank_in_cluster(), 'float32')", "tl::block_rank_in_cluster"),
    ],
)
def test_chips_before_hopper(trace, statement, found):
    message = rf"<kernel \d+>:\d+: found {found} for sm_89, wanted sm_90 or later"
    with pytest.raises(ValueError, match=message):
        tilelang.compile(trace(statement), target="cuda -arch=sm_89", execution_backend="emulate")


def test_warp_groups_pass_registers_on():
    @T.prim_func
    def main(A: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            if tx < 128:
                T.dec_max_nreg(40)
                A[tx] = 1.0
            else:
                T.set_max_nreg(232, True)
                A[tx] = 2.0

    kernel = compiled(main)
    assert torch.equal(kernel(), torch.tensor([1.0, 2.0]).repeat_interleave(128))
    assert "__launch_bounds__(256, 1)" in kernel.get_kernel_source()


def of_three_groups(*bodies):
    """A kernel of 384 threads, which begin with 168 registers each, by what its groups do: pairs of
    registers and whether they are more than before. One for both groups that follow each other."""

    @T.macro
    def steps(numbers):
        for registers, takes in numbers:
            T.set_max_nreg(registers, takes)

    @T.prim_func
    def main(A: T.Tensor((384,), "float32")):
        with T.Kernel(1, threads=384):
            if len(bodies) == 2:
                with T.ws(0):
                    steps(bodies[0])
                with T.ws(1, 2, each=True):
                    steps(bodies[1])
            else:
                for group, numbers in [*enumerate(bodies)]:
                    with T.ws(group):
                        steps(numbers)
            A[T.get_thread_binding()] = 1.0

    return main


GIVES_24, TAKES_240, TURNS = [(24, False)], [(240, True)], [(240, True), (24, False)]


@pytest.mark.parametrize(
    ("bodies", "found", "repaired"),
    [
        (
            [[(224, True)], [(224, True)], [(80, False)]],
            r"224 registers for each thread of warp group 1, .* would hold 224, 224 and 80 for "
            r"each thread, 67584 in all, wanted at most the 64512 .*; take at most 200 here",
            [[(224, True)], [(200, True)], [(80, False)]],
        ),
        (
            [[(40, False)], TAKES_240],
            r"240 registers for each thread of warp group 2, .* hold 40, 240 and 240 .* 66560 in",
            [GIVES_24, TAKES_240],
        ),
        (
            [TAKES_240, [], []],
            r"hold 240, 168 and 168 .*; let another group give back more by T\.dec_max_nreg",
            [TAKES_240, [(96, False)], []],
        ),
        # Two that each wait for what the other gives back later.
        ([TURNS, TURNS, []], "hold 240, 168 and 168", [TURNS, GIVES_24 + TAKES_240, []]),
    ],
)
def test_a_group_that_would_wait_for_registers_for_ever(bodies, found, repaired):
    target = {"kind": "cuda", "arch": "sm_90a"}
    with pytest.raises(ValueError, match=rf"test_barriers\.py:\d+: found .*{found}") as e:
        tilelang.compile(of_three_groups(*bodies), target=target)
    assert "which waits for ever" in str(e.value)
    tilelang.compile(of_three_groups(*repaired), target=target)


def test_who_asks_for_registers_is_not_always_known():
    @T.prim_func
    def main(A: T.Tensor((384,), "float32"), n: T.int32):
        with T.Kernel(1, threads=384):
            with T.ws(0):
                if n > 3:
                    T.inc_max_nreg(240)
            for _ in T.serial(n):
                T.inc_max_nreg(240)
            A[T.get_thread_binding()] = 1.0

    source = tilelang.compile(
        main, target={"kind": "cuda", "arch": "sm_90a"}, execution_backend="emulate"
    ).get_kernel_source()
    assert source.count("tl::warpgroup_reg_alloc<240>") == 2


def test_a_kernel_that_waits_for_the_one_before_is_launched_early():
    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(2, threads=128) as bx:
            B[bx * 128 + T.get_thread_binding()] = A[bx * 128 + T.get_thread_binding()] + 1.0
            T.pdl_trigger()
        with T.Kernel(2, threads=128) as bx:
            T.pdl_sync()
            B[bx * 128 + T.get_thread_binding()] *= 2.0

    kernel = compiled(main)
    a = torch.randn(256)
    assert torch.equal(kernel(a), (a + 1) * 2)
    assert [k.dependent for k in kernel.artifact.launch_plan.kernels] == [False, True]
    assert kernel.get_host_source().count(" dependent\n") == 1
    assert "__restrict__" not in kernel.get_kernel_source()


def test_a_kernel_whose_warps_have_roles_triggers_the_next_one():
    """Any thread's trigger is its block's; the kernel once had no roles with one."""

    @T.prim_func
    def main(A: T.Tensor((256, 64), "float16"), B: T.Tensor((64,), "float32")):
        partial = T.alloc_global((64,), "float32")
        with T.Kernel(1, threads=128):
            T.pdl_trigger()
            S = T.alloc_shared((64, 64), "float16")
            sums = T.alloc_fragment((64, 64), "float32")
            row = T.alloc_fragment((64,), "float32")
            T.clear(sums)
            for t in T.Pipelined(4, num_stages=2):
                T.copy(A[t * 64 : t * 64 + 64, :], S)
                for i, j in T.Parallel(64, 64):
                    sums[i, j] += S[i, j]
            T.reduce_sum(sums, row, dim=0)
            T.copy(row, partial)
        with T.Kernel(1, threads=64):
            T.pdl_sync()
            for i in T.Parallel(64):
                B[i] = partial[i] * 2.0

    kernel = tilelang.compile(main, target=HOPPER, execution_backend="emulate")
    assert "warp specialised: threads 0 to 127 produce" in kernel.explain()
    source = kernel.get_kernel_source()
    assert source.count("tl::pdl_trigger()") == 1
    a, b = torch.randn(256, 64).half(), torch.zeros(64)
    kernel(a, b)
    torch.testing.assert_close(b, a.float().sum(0) * 2, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("A[0, 0] = T.cast(bars[0], 'float32')", "found bars, an mbarrier, as a value"),
        ("bars[1] = 0", "found bars, an mbarrier, as a value"),
        ("T.clear(bars)", "found bars, an mbarrier, as a value"),
        ("T.copy(bars, C)", "found bars, an mbarrier, as a value"),
        ("T.mbarrier_arrive(bars[tx % 3])", "found index 2 of bars in dimension 0 at tx = 2"),
    ],
)
def test_an_mbarrier_is_no_number_and_has_neighbours(trace, statement, message):
    func = trace(f"bars = T.alloc_barrier([1, 1])\nC = T.alloc_shared((2,), 'uint64')\n{statement}")
    with pytest.raises(ValueError, match=rf"<kernel \d+>:\d+: .*{message}"):
        tilelang.compile(func, target=HOPPER, execution_backend="emulate")
