"""Blocks of a grid of tiles take tile after tile, where one block has a multiprocessor."""

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
PASSES = ("StageResults", "SelectInstructions", "MakePersistent")


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    tilelang.set_log_level("WARNING")
    yield
    tilelang.set_log_level("INFO")


@T.macro
def barrier(order, by):
    own = T.alloc_barrier(1)
    T.mbarrier_arrive(own[0])


@T.macro
def waits(order, by):
    ready = T.alloc_var("int32")
    ready = T.atomic_load(order[0])
    while ready == 0:
        ready = T.atomic_load(order[0])


@T.macro
def old_value(order, by):
    number = T.alloc_var("int32")
    number = T.atomic_add(order[0], 1, return_prev=True)
    order[1] = number


@T.macro
def leave(order, by):
    if by > 7:
        T.thread_return()


@T.macro
def call(order, by):
    T.import_source("__device__ int block() { return blockIdx.x; }")
    order[1] = T.call_extern("int32", "block")


@T.macro
def seen(order, by):
    order[1] = T.atomic_load(order[0])


@T.macro
def numbers(order, by):
    number = order[0]
    T.assume(number > 5)
    order[1] = number


@T.macro
def row(order, by):
    number = by * 2
    T.assume(number > 5)
    order[1] = number


@T.macro
def swizzle(order, by):
    T.use_swizzle(3)


@T.macro
def chiplets(order, by):
    T.use_swizzle(3, chiplets=8)


@T.macro
def pdl(order, by):
    T.pdl_sync()


@T.macro
def blocks(order, by):
    T.annotate_min_blocks_per_sm(1)


@T.macro
def trigger(order, by):
    T.pdl_trigger()


@T.macro
def grid(order, by):
    T.sync_grid()


@T.macro
def group(order, by):
    with T.ws(0):
        T.atomic_add(order[0], 1)


@T.macro
def orders(order, by):
    T.use_swizzle(3)
    T.use_swizzle(5)


@T.macro
def schedule(order, by):
    scopes = [T.WSScope(None, {"all": ["count"]})]
    T.annotate_ws_schedule(
        T.WSSchedule(num_warps=8, roles={"all": T.WSRole(0, 8)}, pipelines={}, scopes=scopes)
    )
    T.atomic_add(order[0], 1, annotations={"name": "count"})


ORDERED = {
    "schedule": schedule,
    "seen": seen,
    "numbers": numbers,
    "row": row,
    "swizzle": swizzle,
    "chiplets": chiplets,
    "pdl": pdl,
    "blocks": blocks,
    "trigger": trigger,
    "grid": grid,
    "group": group,
    "orders": orders,
    "barrier": barrier,
    "waits": waits,
    "call": call,
    "old value": old_value,
    "return": leave,
}


def product(
    size=(4096, 4096, 4096),
    *,
    tile=(128, 256),
    stages=3,
    batch=None,
    place="",
    threads=256,
    dtype="float16",
):
    """C of A and B^T by a block for each tile; `place` says what else the program does."""
    (M, N, K), (rows, width) = size, tile

    @T.macro
    def multiply(A, B, A_shared, B_shared, total, steps, bx, by):
        first = by % 2 if place == "begins" else 0
        for k in T.Pipelined(first, first + steps, num_stages=stages):
            T.copy(A[by * rows, k * 64], A_shared)
            T.copy(B[bx * width, k * 64], B_shared)
            if place == "no products":
                for i, j in T.Parallel(rows, width):
                    total[i, j] += A_shared[i, 0] * B_shared[j, 0]
            else:
                T.gemm(A_shared, B_shared, total, transpose_B=True)
            if place == "threads compute":
                for i, j in T.Parallel(rows, width):
                    total[i, j] = T.max(total[i, j], 0)
            if place == "reduces":
                most = T.alloc_fragment((rows,), dtype)
                T.reduce_max(A_shared, most, dim=1)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((batch or 1, M, N), "float16"),
        order: T.Tensor((2,), "int32"),
    ):
        with T.Kernel(T.ceildiv(N, width), T.ceildiv(M, rows), batch or 1, threads=threads) as (
            bx,
            by,
            bz,
        ):
            A_shared = T.alloc_shared((rows, 64), dtype)
            B_shared = T.alloc_shared((width, 64), dtype)
            total = T.alloc_fragment((rows, width), "float32")
            if place == "sized":
                scales = T.alloc_shared((K,), "float32")
                T.fill(scales, 1)
            if place in ORDERED:
                ORDERED[place](order, by)
            T.clear(total)
            if place == "clears":
                for _ in T.serial(64):
                    T.fill(total, 0)
            steps = T.ceildiv(K, 64)
            if place == "causal":
                steps = T.min(steps, by + 1)
            if place == "table":
                steps = order[0]
            if place == "loop":
                for _ in T.serial(2):
                    multiply(A, B, A_shared, B_shared, total, steps, bx, by)
            elif place == "branch":
                if order[0] > by:
                    multiply(A, B, A_shared, B_shared, total, steps, bx, by)
            else:
                multiply(A, B, A_shared, B_shared, total, steps, bx, by)
            if place == "sized":
                for i, j in T.Parallel(rows, width):
                    total[i, j] *= scales[i % 8]
            if place == "add":
                T.atomic_add(order[0], 1)
            T.copy(total, C[bz, by * rows, bx * width])

    return main


def is_persistent(tile_passes, program, **options):
    text = tile_passes(program, *PASSES, **{"arch": "sm_90a", **options})["main"].script()
    return "tiles_of_block" in text


def test_the_loop(statements, tile_passes):
    program = product(batch=2)
    head = tile_passes(program, *PASSES, arch="sm_90a")["main"].script(show_meta=False)
    assert 'block = T.launch_thread("blockIdx.x", 1024)' in head
    assert 'T.launch_thread("blockIdx.y", 1)' in head
    assert 'T.launch_thread("blockIdx.z", 1)' in head
    assert '"tl.takes_shared": 1' in head
    lines = statements(program, *PASSES, arch="sm_90a").splitlines()
    assert "T.assume(tiles < 1025)" in lines
    named = [line.strip().split(": T.let[T.int32] = ") for line in lines if "T.let" in line]
    assert [value for _, value in named] == [
        "T.tl.tiles_of_block(1024)",
        "T.tl.tile_of_block(wave, 1024)",
        "T.tl.tile_index(tile, 1, 16)",
        "T.tl.tile_index(tile, 16, 32)",
        "T.tl.tile_index(tile, 512, 2)",
    ]
    (_, bx), (_, by), (_, bz) = ((v, n) for n, v in named[2:])
    assert "for wave in range(tiles):" in lines
    assert lines[-1].strip() == (
        "T.tl.copy(total_result[0:128, 0:256], "
        f"C[{bz}, {by} * 128:{by} * 128 + 128, {bx} * 256:{bx} * 256 + 256])"
    )


def test_the_loop_in_another_order(statements, tile_passes):
    program = product(batch=2, place="swizzle")
    assert "use_swizzle" not in tile_passes(program, *PASSES, arch="sm_90a")["main"].script()
    lines = statements(program, *PASSES, arch="sm_90a").splitlines()
    order = '"tl::rasterization2DRow<3>"'
    assert [line.split(" = ")[1] for line in lines if "T.let" in line][2:] == [
        "T.tl.tile_index(tile, 1, 512)",
        f"T.tl.ordered_index({order}, 0, number, 16, 32, 16)",
        f"T.tl.ordered_index({order}, 1, number, 16, 32, 32)",
        "T.tl.tile_index(tile, 512, 2)",
    ]


@pytest.mark.parametrize(("place", "value"), [("numbers", "order[0]"), ("row", "* 2")])
def test_numbers_of_a_tile_are_in_the_loop(statements, place, value):
    lines = statements(product(place=place), *PASSES, arch="sm_90a").splitlines()
    at = [
        next(n for n, line in enumerate(lines) if text in line)
        for text in ("for wave in", value, "> 5)", "order[1] = ")
    ]
    assert at == sorted(at)


def test_kernels_that_spare_memory_have_a_block_for_each_tile(tile_passes):
    config = {"tl.second_choice.spare_shared": True}
    assert not is_persistent(tile_passes, product(), config=config)


@pytest.mark.parametrize(
    "place",
    [
        *("chiplets", "pdl", "blocks", "barrier", "waits", "old value", "return", "call"),
        *("seen", "trigger", "grid", "group", "orders", "begins", "schedule"),
        *("causal", "table", "loop", "branch", "no products"),
    ],
)
def test_what_stays(tile_passes, place):
    assert not is_persistent(tile_passes, product(place=place))


def test_clusters_stay(tile_passes):
    @T.prim_func
    def main(A: T.Tensor((65536, 256), "float16"), B: T.Tensor((256, 256), "float16")):
        C = T.empty((65536, 256), "float16")
        with T.Kernel(512, threads=256, cluster_dims=2) as by:
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 256), "float16")
            c = T.alloc_fragment((128, 256), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[by * 128, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 128, 0])
        return C

    assert not is_persistent(tile_passes, main)


@pytest.mark.parametrize(
    ("options", "arch"),
    [
        pytest.param({}, "sm_80", id="a target without a producer"),
        pytest.param({"size": (2048, 2048, 64)}, "sm_90a", id="one wave"),
        pytest.param({"size": (T.dynamic("m"), 4096, 64)}, "sm_90a", id="perhaps one wave"),
        pytest.param({"size": (1536, 2816, 64)}, "sm_90a", id="132 tiles"),
        pytest.param({"size": (2304, 2304, 4096)}, "sm_90a", id="few long tiles"),
        pytest.param({"place": "reduces"}, "sm_90a", id="threads reduce"),
        pytest.param(
            {"size": (4096, 4096, 8 * T.dynamic("k")), "place": "threads compute"},
            "sm_90a",
            id="threads compute any number of times",
        ),
        pytest.param({"place": "threads compute"}, "sm_90a", id="threads compute"),
        pytest.param({"tile": (128, 128)}, "sm_90a", id="room for two blocks"),
        pytest.param({"stages": 4}, "sm_90a", id="no room for the result"),
        pytest.param({"stages": 0}, "sm_90a", id="no pipeline"),
        pytest.param(
            {"size": (4096, 4096, 8 * T.dynamic("k")), "place": "sized"}, "sm_90a", id="size"
        ),
        pytest.param({"threads": 192}, "sm_90a", id="no producer"),
    ],
)
def test_shapes_that_stay(tile_passes, options, arch):
    assert not is_persistent(tile_passes, product(**options), arch=arch)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="products"),
        pytest.param({"stages": 2}, id="registers for one block"),
        pytest.param({"place": "add"}, id="sums of all blocks"),
        pytest.param({"place": "swizzle"}, id="another order"),
        pytest.param({"size": (4096, 4096, 8 * T.dynamic("k"))}, id="any number of steps"),
        pytest.param({"size": (1536, 2817, 64)}, id="a tile more than 132"),
        pytest.param({"size": (2304, 2304, 1024)}, id="few short tiles"),
        pytest.param({"size": (2304, 2304, 1024), "place": "clears"}, id="a loop in front"),
        pytest.param(
            {"size": (2304, 2304, 3072), "dtype": "float8_e4m3fn", "stages": 5},
            id="few tiles of bytes",
        ),
        pytest.param({"size": (2304, 2304, 1024), "place": "threads compute"}, id="short tiles"),
    ],
)
def test_what_takes_tile_after_tile(tile_passes, options):
    assert is_persistent(tile_passes, product(**options))


def test_a_tile_s_store_runs_beside_the_loads_of_the_next_one():
    kernel = tilelang.compile(product(), target=HOPPER)
    source = kernel.get_kernel_source()
    assert "persistent" in kernel.get_host_source()
    text = str(kernel.explain())
    assert "grid (512, 1, 1) of tiles, which a block for each multiprocessor takes" in text
    assert "total_result is in bytes of" not in text
    consumer = source[source.index("tl::warpgroup_reg_alloc") :]
    store = consumer.index("tl::tma_store<")
    # The last tile's store is awaited behind the loop, another one in front of the next stmatrix.
    assert (
        consumer.index("tl::tma_store_wait<0, true>") < consumer.index("tl::ptx_stmatrix") < store
    )
    assert consumer.index("tl::tma_store_wait<0, true>", store)


def test_a_kernel_that_ptxas_spills_has_a_block_for_each_tile():
    with tilelang.transform.PassContext(config={"tl.second_choice.one_tile": True}):
        plan = tilelang.lower(product(), target=HOPPER).launch_plan
    assert not plan.kernels[0].persistent
    assert plan.kernels[0].grid == (16, 32, 1)


@pytest.mark.parametrize("place", ["", "swizzle"])
def test_the_result(device, place):
    """Of a grid of 9 x 8 x 2 tiles, of which the last ones are parts."""
    M, N, K = 575, 504, 136
    shape = {"tile": (64, 64), "stages": 8, "threads": 128, "batch": 2}
    kernel = tilelang.compile(product((M, N, K), place=place, **shape), target=HOPPER)
    assert kernel.artifact.launch_plan.kernels[0].persistent
    torch.manual_seed(0)
    a, b = torch.randn(M, K, device=device).half(), torch.randn(N, K, device=device).half()
    c = torch.full((2, M, N), torch.nan, device=device, dtype=torch.float16)
    kernel(a, b, c, torch.zeros(2, device=device, dtype=torch.int32))
    wanted = (a.double() @ b.double().T).expand(2, M, N)
    torch.testing.assert_close(c.double(), wanted, rtol=2e-3, atol=2e-2)
