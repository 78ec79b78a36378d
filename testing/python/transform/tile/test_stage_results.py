"""Results of MMAs that a program copies straight to a tensor go through what its loops leave."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

SIZE = (200, 264, 136)
HOPPER = {"kind": "cuda", "arch": "sm_90a"}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    tilelang.set_log_level("WARNING")
    yield
    tilelang.set_log_level("INFO")


def product(
    size=SIZE,
    *,
    dtype="float16",
    result=None,
    tile=(128, 128),
    depth=64,
    stages=2,
    place="end",
    keywords=None,
    columns=None,
    again=False,
    threads=128,
    halves=False,
    apart=False,
    swizzled=False,
):
    """C of A and B^T, its accumulators copied to C: at the end, through a tile of its own,
    in a loop or a branch. A's tile is loaded in `halves`; elements of C may lie `apart`. A layout
    of A's tile, `swizzled` as it would be, keeps the sizes of tiles."""
    M, N, K = size
    rows, width = tile
    keywords = keywords or {}
    across = N if columns is None else columns
    of_c = T.StridedTensor((M, across), (8 * across, 8), result or dtype) if apart else None

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        C: of_c or T.Tensor((M, across), result or dtype),
    ):
        with T.Kernel(T.ceildiv(N, width), T.ceildiv(M, rows), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((rows, depth), dtype)
            B_shared = T.alloc_shared((width, depth), dtype)
            total = T.alloc_fragment((rows, width), "float32")
            if swizzled:
                T.annotate_layout({A_shared: make_swizzled_layout(A_shared)})
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K, depth), num_stages=stages):
                T.copy(A[by * rows, k * depth], A_shared[: rows // 2 if halves else rows, :])
                if halves:
                    T.copy(A[by * rows + rows // 2, k * depth], A_shared[rows // 2 :, :])
                T.copy(B[bx * width, k * depth], B_shared)
                T.gemm(A_shared, B_shared, total, transpose_B=True)
            for i, j in T.Parallel(rows, width):
                total[i, j] = T.max(total[i, j], 0)
            if place == "own tile":
                total_result = T.alloc_shared((rows, width), dtype)
                T.copy(total, total_result)
                T.copy(total_result, C[by * rows, bx * width])
            elif place == "end":
                T.copy(total, C[by * rows, bx * width], **keywords)
            elif place == "sum":
                T.atomic_add(C[by * rows, bx * width], total)
            elif place == "loop":
                for _ in T.serial(2):
                    T.copy(total, C[by * rows, bx * width])
            elif place == "branch":
                first = A[0, 0]
                if first != 0:
                    T.copy(total, C[by * rows, bx * width])
            elif place == "part":
                T.copy(total[: rows // 2, :], C[by * rows, bx * width])
            elif place == "view":
                of_all = T.reshape(C, (M, across))
                T.copy(total, of_all[by * rows, bx * width])
            elif place == "roles":
                with T.ws(0):
                    total[0, 0] = 1
                T.copy(total, C[by * rows, bx * width])
            if again:
                C[0, 0] = 1

    return main


def test_the_program_with_its_tile(tile_passes):
    text = tile_passes(product(), "StageResults", arch="sm_90a")["main"].script(show_meta=False)
    lines = [line.strip() for line in text.splitlines()]
    assert [line for line in lines if "T.tl.copy(total" in line] == [
        "T.tl.copy(total[0:128, 0:128], total_result[0:128, 0:128])",
        "T.tl.copy(total_result[0:128, 0:128], "
        "C[by * 128:by * 128 + 128, bx * 128:bx * 128 + 128])",
    ]


@pytest.mark.parametrize(
    ("options", "arch"),
    [
        pytest.param({}, "sm_80", id="a target without TMA"),
        pytest.param({"result": "float32"}, "sm_90a", id="whole sectors as they are"),
        pytest.param({"columns": 265}, "sm_90a", id="rows that TMA does not take"),
        pytest.param({"columns": T.dynamic("n")}, "sm_90a", id="rows that TMA may not take"),
        pytest.param(
            {"place": "sum", "result": "float32", "stages": 4}, "sm_90a", id="sums of a lone block"
        ),
        pytest.param({"place": "sum", "columns": 265}, "sm_90a", id="sums of such rows"),
        pytest.param({"place": "loop"}, "sm_90a", id="each time in a loop"),
        pytest.param({"place": "branch"}, "sm_90a", id="in a branch"),
        pytest.param({"keywords": {"coalesced_width": 2}}, "sm_90a", id="keywords"),
        pytest.param({"again": True}, "sm_90a", id="another use of the tensor"),
        pytest.param({"apart": True}, "sm_90a", id="elements that lie apart"),
        pytest.param({"place": "part"}, "sm_90a", id="a part of the accumulators"),
        pytest.param(
            {"place": "view", "again": True}, "sm_90a", id="a use by another name of the tensor"
        ),
        pytest.param({"place": "roles"}, "sm_90a", id="threads with roles"),
        pytest.param({"threads": 100, "tile": (64, 16)}, "sm_90a", id="no whole warps"),
        pytest.param({"tile": (64, 12)}, "sm_90a", id="rows of 24 bytes"),
        pytest.param({"depth": 32, "stages": 1}, "sm_90a", id="no room"),
        pytest.param({"depth": 48, "stages": 1, "halves": True}, "sm_90a", id="no room, by halves"),
    ],
)
def test_what_stays(tile_passes, options, arch):
    text = tile_passes(product(**options), "StageResults", arch=arch)["main"].script()
    assert re.search(r"(, |\()(C|of_all)\[", text)
    assert "total_result" not in text


def test_a_view_of_the_tensor(tile_passes):
    text = tile_passes(product(place="view"), "StageResults", arch="sm_90a")["main"].script()
    assert "T.tl.copy(total_result[0:128, 0:128], of_all[by * 128:" in text


def test_all_versions_of_the_tiles_are_free_then(tile_passes):
    function = product(depth=32, stages=2)
    text = tile_passes(function, "StageResults", arch="sm_90a")["main"].script()
    assert "T.tl.copy(total_result" in text


def scaled_product(size=128, depth=64, turned=False):
    """Products of steps that are scaled and added up, element by element."""

    @T.prim_func
    def main(
        A: T.Tensor((size, size), "float16"),
        B: T.Tensor((size, size), "float16"),
        C: T.Tensor((size, size), "float16"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((size, depth), "float16")
            B_shared = T.alloc_shared((size, depth), "float16")
            step = T.alloc_fragment((size, size), "float32")
            total = T.alloc_fragment((size, size), "float32")
            T.clear(total)
            for k in T.Pipelined(size // depth, num_stages=2):
                T.copy(A[0, k * depth], A_shared)
                T.copy(B[0, k * depth], B_shared)
                T.gemm(A_shared, B_shared, step, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(size, size):
                    total[i, j] += step[i, size - 1 - j if turned else j] * (k + 1)
            T.copy(total, C)

    return main


def test_sums_of_scaled_products(device, tile_passes):
    text = tile_passes(scaled_product(), "StageResults", arch="sm_90a")["main"].script()
    assert "T.tl.copy(total[0:128, 0:128], total_result[0:128, 0:128])" in text
    kernel = tilelang.compile(scaled_product(), target=HOPPER)
    assert "tl::ptx_stmatrix_x4(total_result" in kernel.get_kernel_source()
    a, b = (torch.randn(128, 128, device=device).half() for _ in range(2))
    c = torch.full((128, 128), torch.nan, device=device, dtype=torch.float16)
    kernel(a, b, c)
    x, y = a.double(), b.double()
    wanted = x[:, :64] @ y[:, :64].T + 2 * (x[:, 64:] @ y[:, 64:].T)
    torch.testing.assert_close(c.double(), wanted, rtol=2e-3, atol=2e-2)


def test_sums_of_other_elements_stay(tile_passes):
    text = tile_passes(scaled_product(turned=True), "StageResults", arch="sm_90a")["main"].script()
    assert "total_result" not in text


def test_rows_that_the_call_decides_and_tma_takes(tile_passes):
    function = product(columns=8 * T.dynamic("n"))
    text = tile_passes(function, "StageResults", arch="sm_90a")["main"].script()
    assert "T.tl.copy(total_result" in text


@pytest.fixture(scope="module")
def kernel():
    return tilelang.compile(product(stages=3, swizzled=True), target=HOPPER)


def test_its_instructions_and_place(kernel):
    source = kernel.get_kernel_source()
    assert "tl::ptx_stmatrix_x4(total_result" in source
    assert "tl::tma_store<tl::evict_normal>(C_desc" in source
    # Two blocks have room, as they have without the tile.
    assert "__launch_bounds__(256, 2)" in source
    assert "total_result is in bytes of A_shared, behind a barrier" in str(kernel.explain())


def test_a_tile_of_the_program_costs_the_same(kernel):
    own = tilelang.compile(product(place="own tile", stages=3, swizzled=True), target=HOPPER)
    assert own.get_kernel_source() == kernel.get_kernel_source()


def test_the_result_at_the_edges(kernel, device):
    M, N, K = SIZE
    torch.manual_seed(0)
    a, b = (torch.randn(s, device=device).half() for s in ((M, K), (N, K)))
    c = torch.full((M, N), float("nan"), device=device, dtype=torch.float16)
    kernel(a, b, c)
    torch.testing.assert_close(c.double(), (a.double() @ b.double().T).relu(), rtol=2e-3, atol=2e-3)


def test_sums_are_added_by_tma(device):
    function = product(place="sum", result="float32", stages=2)
    kernel = tilelang.compile(function, target=HOPPER)
    source = kernel.get_kernel_source()
    assert "tl::tma_reduce<tl::SumOp>(C_desc" in source
    assert "atomic_add" not in source
    M, N, K = SIZE
    a, b = (torch.randn(s, device=device).half() for s in ((M, K), (N, K)))
    c = torch.ones((M, N), device=device)
    kernel(a, b, c)
    wanted = 1 + (a.double() @ b.double().T).relu()
    torch.testing.assert_close(c.double(), wanted, rtol=2e-3, atol=2e-3)


def tiles(size=(384, 384, 160), *, tile=(128, 128), stages=4, blocks=2, by_waves=False):
    """C of A and B^T by blocks that take tile behind tile, which a pipelined loop loads."""
    (M, N, K), (rows, width) = size, tile
    across, down = N // width, M // rows

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(blocks, threads=256) as block:
            A_shared = T.alloc_shared((rows, 64), "float16")
            B_shared = T.alloc_shared((width, 64), "float16")
            total = T.alloc_fragment((rows, width), "float32")
            if by_waves:
                for wave in T.serial(T.ceildiv(across * down - block, blocks)):
                    T.clear(total)
                    for k in T.Pipelined(T.ceildiv(K, 64), num_stages=stages):
                        T.copy(A[(wave * blocks + block) // across * rows, k * 64], A_shared)
                        T.copy(B[(wave * blocks + block) % across * width, k * 64], B_shared)
                        T.gemm(A_shared, B_shared, total, transpose_B=True)
                    y, x = (wave * blocks + block) // across, (wave * blocks + block) % across
                    T.copy(total, C[y * rows, x * width])
            else:
                for y, x in T.Persistent([down, across], blocks, block, group_size=1):
                    T.clear(total)
                    for k in T.Pipelined(T.ceildiv(K, 64), num_stages=stages):
                        T.copy(A[y * rows, k * 64], A_shared)
                        T.copy(B[x * width, k * 64], B_shared)
                        T.gemm(A_shared, B_shared, total, transpose_B=True)
                    T.copy(total, C[y * rows, x * width])

    return main


@pytest.mark.parametrize("by_waves", [False, True])
def test_tile_behind_tile_has_memory_of_its_own(device, by_waves):
    """A tile's store runs beside the products of the next one."""
    kernel = tilelang.compile(tiles(by_waves=by_waves), target=HOPPER)
    source = kernel.get_kernel_source()
    loop = source[source.index("tl::warpgroup_reg_alloc") :]
    store = loop.index("tl::tma_store<")
    assert loop.index("tl::ptx_stmatrix_x4(total_result") < store
    # All of a block's stores but the last are awaited in front of the next tile's stmatrix.
    assert loop.index("tl::tma_store_wait<0, true>") < loop.index("tl::ptx_stmatrix_x4")
    assert "total_result is in bytes of" not in str(kernel.explain())
    torch.manual_seed(0)
    a, b = (torch.randn(384, 160, device=device).half() for _ in range(2))
    c = torch.full((384, 384), float("nan"), device=device, dtype=torch.float16)
    kernel(a, b, c)
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"stages": 3}, id="two blocks have room without it"),
        pytest.param({"tile": (128, 192), "stages": 5}, id="one block has no room with it"),
    ],
)
def test_tile_behind_tile_without_room_stays(tile_passes, options):
    text = tile_passes(tiles((384, 384, 64), **options), "StageResults", arch="sm_90a")["main"]
    assert "total_result" not in text.script()


def results(form="", *, stages=5, loaded=64, extra=8, over_tiles=True):
    """Accumulators of 32 KiB that go to C for each of two tiles, for which a loop has loaded 512 *
    `loaded` bytes a stage; in some forms to D, too, or with another loop, of 16 KiB a stage."""

    @T.macro
    def tile(A, C, D, tiles, y):
        a, b, more, total = tiles
        T.clear(total)
        for k in T.Pipelined(512 // loaded, num_stages=stages):
            T.copy(A[0, k * loaded], a)
            T.copy(A[0, k * loaded], b)
            T.gemm(a, b, total, transpose_B=True)
        T.copy(total, C[y * 128, 0])
        if form == "two":
            for i, j in T.Parallel(128, 128):
                total[i, j] += more[0]
            T.copy(total, D[y * 128, 0])

    @T.prim_func
    def main(
        A: T.Tensor((128, 512), "float16"),
        C: T.Tensor((256, 128), "float16"),
        D: T.Tensor((256, 128), "float16"),
        Extra: T.Tensor((extra,), "float16"),
    ):
        with T.Kernel(1, threads=256):
            a, b = (T.alloc_shared((128, loaded), "float16") for _ in range(2))
            other = T.alloc_shared((128, 64), "float16")
            more = T.alloc_shared((extra,), "float16")
            total = T.alloc_fragment((128, 128), "float32")
            T.copy(Extra, more)
            if form == "a loop in front":
                for k in T.Pipelined(8, num_stages=stages):
                    T.copy(A[0, k * 64], other)
                    T.gemm(other, other, total, transpose_B=True)
            if over_tiles:
                for y in T.serial(2):
                    tile(A, C, D, (a, b, more, total), y)
            else:
                tile(A, C, D, (a, b, more, total), 0)
            if form == "a loop behind":
                for k in T.Pipelined(8, num_stages=stages):
                    T.copy(A[0, k * 64], other)
                    T.gemm(other, other, total, transpose_B=True)
            if form in ("behind", "a loop behind"):
                T.copy(total, D[0, 0])

    return main


@pytest.mark.parametrize(
    ("options", "tensors"),
    [
        pytest.param({}, "C", id="room for one"),
        pytest.param({"form": "two"}, "C", id="no room for two"),
        pytest.param({"form": "two", "stages": 4}, "CD", id="room for two"),
        pytest.param({"form": "two", "stages": 1, "over_tiles": False}, "C", id="one tile"),
        pytest.param({"stages": 7}, "", id="no room as it is"),
        pytest.param({"extra": 13824}, "C", id="all but 8 KiB"),
        pytest.param({"extra": 13825}, "", id="more than that"),
        pytest.param({"extra": T.dynamic("n")}, "", id="the call says how much"),
        pytest.param(
            {"form": "a loop in front", "loaded": 16, "stages": 2, "extra": 60000},
            "",
            id="the loop of a tile loads less",
        ),
        pytest.param({"form": "behind"}, "C", id="no loop in front"),
        pytest.param(
            {"form": "a loop behind", "stages": 2, "extra": 30000}, "CD", id="own, and the loop's"
        ),
        pytest.param({"form": "a loop behind", "stages": 2, "extra": 80000}, "D", id="the loop's"),
    ],
)
def test_results_that_have_memory(tile_passes, options, tensors):
    text = tile_passes(results(**options), "StageResults", arch="sm_90a")["main"].script()
    assert re.findall(r"_result\w*\[0:128, 0:128\], ([CD])\[", text) == list(tensors)
