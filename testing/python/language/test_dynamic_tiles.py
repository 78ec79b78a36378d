"""T.Persistent with a counter: blocks fetch their tiles."""

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def counts(domain, blocks, group_size):
    """How often each tile is worked on, and the block that does it."""

    @T.prim_func
    def main(
        counter: T.Tensor((1,), T.int32),
        times: T.Tensor(domain, T.int32),
        by: T.Tensor(domain, T.int32),
    ):
        with T.Kernel(blocks, threads=32) as block:
            for place in T.Persistent(domain, blocks, block, group_size, counter=counter):
                where = place if len(domain) > 1 else (place,)
                if T.get_thread_binding() == 0:
                    T.atomic_add(times[where], 1)
                    by[where] = block

    return main


@pytest.mark.parametrize(
    ("domain", "blocks", "group_size"),
    [((37,), 4, 8), ((3, 2, 8), 7, 8), ((5, 11), 3, 4), ((3,), 8, 1), ((40, 2), 1, 8)],
)
def test_every_tile_once_and_the_counter_is_zero_again(domain, blocks, group_size):
    kernel = tilelang.compile(counts(domain, blocks, group_size), execution_backend="auto")
    counter = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    for _ in range(3):
        times, by = (torch.zeros(domain, dtype=torch.int32, device=DEVICE) for _ in range(2))
        kernel(counter, times, by)
        assert (times == 1).all()
        assert int(counter) == 0
        if group_size == 1:
            # The first tiles need no drawing.
            assert by.tolist() == list(range(domain[0]))


@pytest.mark.parametrize("n", [0, 1, 5, 90])
def test_a_number_of_tiles_that_the_call_tells(n):
    @T.prim_func
    def main(counter: T.Tensor((2,), T.int32), times: T.Tensor((T.dynamic("n"),), T.int32)):
        with T.Kernel(4, threads=32) as block:
            for i in T.Persistent([times.shape[0]], 4, block, 1, counter=counter[1]):
                if T.get_thread_binding() == 0:
                    T.atomic_add(times[i], 1)

    kernel = tilelang.compile(main, execution_backend="auto")
    counter = torch.tensor([7, 0], dtype=torch.int32, device=DEVICE)
    times = torch.zeros(n, dtype=torch.int32, device=DEVICE)
    kernel(counter, times)
    assert (times == 1).all()
    assert counter.tolist() == [7, 0]


def test_a_number_of_tiles_in_64_bits():
    @T.prim_func
    def main(counter: T.Tensor((1,), T.int32), n: T.int64, times: T.Tensor((90,), T.int32)):
        with T.Kernel(4, threads=32) as block:
            for i in T.Persistent([n], 4, block, 1, counter=counter):
                if T.get_thread_binding() == 0:
                    T.atomic_add(times[i], 1)

    counter, times = (torch.zeros(n, dtype=torch.int32, device=DEVICE) for n in (1, 90))
    tilelang.compile(main, execution_backend="auto")(counter, 70, times)
    assert times.tolist() == [1] * 70 + [0] * 20
    assert int(counter) == 0


def triangle(n, blocks, transposed=False, num_stages=2):
    """The lower triangle of A in tiles, times B: tiles of a row of tiles of different lengths."""

    @T.prim_func
    def main(
        A: T.Tensor((n, n), T.float16),
        B: T.Tensor((n, n), T.float16),
        C: T.Tensor((n, n), T.float16),
        counter: T.Tensor((1,), T.int32),
    ):
        with T.Kernel(blocks, threads=128) as block:
            A_shared = T.alloc_shared((64, 64), T.float16)
            B_shared = T.alloc_shared((64, 64), T.float16)
            C_shared = T.alloc_shared((64, 64), T.float16)
            C_local = T.alloc_fragment((64, 64), T.float32)
            tiles = n // 64
            for i, j in T.Persistent([tiles, tiles], blocks, block, counter=counter):
                T.clear(C_local)
                for k in T.Pipelined(i + 1, num_stages=num_stages):
                    T.copy(A[i * 64, k * 64], A_shared)
                    if transposed:
                        for r, c in T.Parallel(64, 64):
                            B_shared[r, c] = B[j * 64 + c, k * 64 + r]
                    else:
                        T.copy(B[k * 64, j * 64], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                T.copy(C_local, C_shared)
                T.copy(C_shared, C[i * 64, j * 64])

    return main


def check_triangle(kernel, n, transposed=False):
    torch.manual_seed(0)
    a, b = (torch.randn(n, n, device=DEVICE).half() for _ in range(2))
    counter = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    places = torch.arange(n, device=DEVICE) // 64
    lower = torch.where(places[:, None] >= places, a, 0).double()
    wanted = lower @ (b.T if transposed else b).double()
    for _ in range(2):
        c = torch.full_like(a, float("nan"))
        kernel(a, b, c, counter)
        assert (c.double() - wanted).norm() < 1e-3 * wanted.norm()
        assert int(counter) == 0


@pytest.mark.parametrize("num_stages", [1, 2, 3])
def test_the_producer_fetches_for_all(num_stages, on_sm_90a):
    kernel = tilelang.compile(triangle(256, 3, num_stages=num_stages), target=HOPPER)
    text = kernel.explain()
    assert "producer, by one thread from a counter" in text
    assert "fetched, 1 version, fill number a running count" in text
    source = kernel.get_kernel_source()
    # It fetches and tells the consumer; nobody else does, and it is one thread, without barriers.
    producer, consumer = source.split("tl::warpgroup_reg_alloc<")
    assert producer.count("tl::fetch_inc<tl::relaxed>(counter, 15)") == 1
    assert "warpgroup_reg_dealloc<" in producer
    assert "sync" not in producer.partition("shuffle_elect")[2]
    assert "fetch_inc" not in consumer
    # What the assumption about the tile tells: each has steps.
    branches = [line.strip() for line in consumer.splitlines() if "if (" in line]
    assert {line.partition(" {")[0] for line in branches} <= {
        "if (tl::shuffle_elect<128>())",
        "if (0 < k)",  # releases a slot of the step before
    }
    # To fetch is no signal, so the store ends beside the next tile.
    assert consumer.index("tma_store_wait<0, true>") < consumer.index("tma_store<")
    check_triangle(kernel, 256)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_without_roles_all_threads_wait_for_the_draw(arch, monkeypatch):
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    config = {tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True}
    target = {"kind": "cuda", "arch": arch}
    kernel = tilelang.compile(triangle(128, 2), target=target, pass_configs=config)
    assert "warp_group < 1" not in kernel.get_kernel_source()
    torch.manual_seed(0)
    if DEVICE == "cpu":
        check_triangle(kernel, 128)


def test_threads_that_load_do_not_draw(on_sm_90a):
    """One lane's fetch would have to reach all threads of the producer."""
    kernel = tilelang.compile(triangle(128, 2, transposed=True), target=HOPPER)
    assert "one thread fetches tiles, and several load them" in kernel.explain()
    check_triangle(kernel, 128, transposed=True)


def refused(statements, define, error, message):
    head = """
@T.prim_func
def main(counter: T.Tensor((4,), T.int32), wide: T.Tensor((1,), T.int64)):
    with T.Kernel(4, {grid}threads=32) as {names}:
        local = T.alloc_fragment((1,), T.int32)
"""
    two = "bx, by" in statements
    text = head.format(grid="2, " if two else "", names="(bx, by)" if two else "bx")
    body = "\n".join("        " + line for line in statements.splitlines() if line != "bx, by")
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        define(text + body)


ONE = "for i in T.Persistent([9], 4, bx, counter=counter[0]):\n    pass"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (ONE.replace("counter[0]", "counter"), "counter of T.Persistent is"),
        (ONE.replace("counter[0]", "wide"), "wanted one int32 in global memory"),
        (ONE.replace("counter[0]", "local"), "wanted one int32 in global memory"),
        (ONE.replace("4, bx", "3, bx"), "found wave_size 3 and index bx, wanted the number of"),
        (ONE.replace("4, bx", "4, 3 - bx"), "wanted the number of blocks and bx"),
        ("bx, by\n" + ONE, "of a grid of one dimension"),
        (ONE.replace("counter=", "num_stages=2, counter="), "found counter and num_stages"),
        (f"{ONE}\n{ONE}", "is that of another loop of the kernel"),
        (
            "for _ in T.serial(2):\n    " + ONE.replace("\n", "\n    "),
            "with counter is in the serial loop",
        ),
        ("if bx == 1:\n    " + ONE.replace("\n", "\n    "), "with counter is in the branch"),
    ],
)
def test_refused(statements, message, define):
    refused(statements, define, ValueError, message)


def test_blocks_of_a_cluster(define):
    """They would have to work on one tile together."""
    text = f"""
@T.prim_func
def main(counter: T.Tensor((4,), T.int32)):
    with T.Kernel(4, threads=32, cluster_dims=2) as bx:
        {ONE.replace("    pass", "            pass")}
"""
    with pytest.raises(ValueError, match="of a grid of one dimension without clusters"):
        define(text)


@pytest.mark.parametrize("jump", ["break", "continue", "T.loop_break()"])
def test_jumps_out_of_a_tile(jump, define):
    statements = ONE.replace("pass", f"if i == 3:\n        {jump}")
    refused(statements, define, NotImplementedError, "in the persistent loop.* is not supported")


def test_a_schedule_of_the_programs_own(monkeypatch):
    """Its roles know the tiles by their numbers."""
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    roles = {"load": T.WSRole(0, 4), "store": T.WSRole(4, 8)}
    scopes = [T.WSScope(None, {"load": ["in"], "store": ["out"]}, [T.WSSync("in", "out", "s")])]
    plan = T.WSSchedule(num_warps=8, roles=roles, pipelines={"s": T.WSPipeline(1)}, scopes=scopes)

    @T.prim_func
    def main(
        A: T.Tensor((4, 64), T.float32),
        C: T.Tensor((4, 64), T.float32),
        counter: T.Tensor((1,), T.int32),
    ):
        with T.Kernel(2, threads=256) as block:
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64,), T.float32)
            for i in T.Persistent([4], 2, block, counter=counter):
                T.copy(A[i, :], S, annotations={T.WSID: "in"})
                T.copy(S, C[i, :], annotations={T.WSID: "out"})

    with pytest.raises(ValueError, match=r"found T\.Persistent with counter in a kernel"):
        tilelang.compile(main, target=HOPPER)


def test_nothing_to_load_ahead(on_sm_90a):
    """A fetch alone makes no producer."""

    @T.prim_func
    def main(A: T.Tensor((4, 64), T.float32), counter: T.Tensor((1,), T.int32)):
        with T.Kernel(2, threads=128) as block:
            for i in T.Persistent([4], 2, block, counter=counter):
                for _ in T.Pipelined(2, num_stages=2):
                    for j in T.Parallel(64):
                        A[i, j] += 1

    kernel = tilelang.compile(main, target=HOPPER)
    assert "no pipelined loop copies tiles to shared memory" in kernel.explain()
    a, counter = torch.zeros(4, 64, device=DEVICE), torch.zeros(1, dtype=torch.int32, device=DEVICE)
    kernel(a, counter)
    assert (a == 2).all()
    assert int(counter) == 0
