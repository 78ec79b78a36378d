"""Schedules of warp specialisation: the program that they make, and what it computes."""

import textwrap

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.engine.explain_roles import roles_text

SM_90 = {"kind": "cuda", "arch": "sm_90a"}
pytestmark = pytest.mark.usefixtures("on_sm_90a")
PASSES = ("HoistViews", "ProducerConsumerWarpSpecialized")


def named(name):
    return {T.WSID: name}


def syncs(pipeline, sources, targets):
    return [T.WSSync(s, t, pipeline) for s in sources.split() for t in targets.split()]


def ints(*shape, low=-4, dtype=torch.float16):
    return torch.randint(low, 5, shape).to(dtype)


@pytest.fixture
def check():
    """Compiles a program, compares what it computes, returns what is said of it.

    Sums of small integers are exact in every order.
    """

    def run(program, inputs, wanted):
        kernel = tilelang.compile(program, target=SM_90)
        found = torch.full_like(wanted, float("nan"))
        kernel(*inputs, found)
        assert torch.equal(found, wanted)
        return kernel

    return run


def gemm(n=4, depth=2):
    plan = T.WSSchedule(
        num_warps=8,
        roles={"load": T.WSRole(0, 4, max_nreg=24), "mma": T.WSRole(4, 8, max_nreg=240)},
        pipelines={"ab": T.WSPipeline(depth)},
        scopes=[
            T.WSScope("k", {"load": ["a", "b"], "mma": ["c"]}, syncs("ab", "a b", "c")),
            T.WSScope(None, {"mma": ["clear", "store"]}),
        ],
    )

    @T.prim_func
    def main(
        A: T.Tensor((64, 64 * n), "float16"),
        B: T.Tensor((64 * n, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            with T.ws_op("clear"):
                T.clear(F)
            for k in T.Pipelined(n, num_stages=3, annotations=named("k")):
                T.copy(A[0, k * 64], S, annotations=named("a"))
                T.copy(B[k * 64, 0], W, annotations=named("b"))
                T.gemm(S, W, F, annotations=named("c"))
            T.copy(F, C, annotations=named("store"))

    return main


def test_program_of_a_gemm(statements):
    text = statements(gemm(), *PASSES, arch="sm_90a")
    for found, short in (
        ('T.Call("tl.tileop.tma_copy", [', "T.tl.tma_copy("),
        ('], attrs={"elected": 1}, ret_ty="void")', ")"),
        (', annotations={"pragma_unroll_factor": 1}', ""),
        (", 0:64, 0:64]", "]"),
        (", T.bool(False), T.bool(False), 0, T.bool(False))", ")"),
    ):
        text = text.replace(found, short)
    assert text == textwrap.dedent(
        """
        if tx >= 0 and tx < 128:
            T.attr([0, 128], "tl.thread_range", 1)
            T.attr("load", "tl.scheduled_role", 24)
            if T.tl.shuffle_elect(128):
                for k in T.serial(4):
                    T.tl.acquire(S_empty[k % 2], k // 2 & 1 ^ 1, S[k % 2], W[k % 2])
                    T.tl.mbarrier_arrive_expect_tx(T.address_of(S_full[k % 2]), 16384)
                    T.tl.tma_copy(A[0:64, k * 64:k * 64 + 64], S[k % 2], S_full[k % 2])
                    T.tl.tma_copy(B[k * 64:k * 64 + 64, 0:64], W[k % 2], S_full[k % 2])
        if tx >= 128 and tx < 256:
            T.attr([128, 128], "tl.thread_range", 1)
            T.attr("mma", "tl.scheduled_role", 240)
            T.tl.fill(F[0:64, 0:64], T.float32(0.0))
            for k in range(4):
                T.tl.acquire(S_full[k % 2], k // 2 & 1, S[k % 2], W[k % 2])
                T.tl.gemm(S[k % 2], W[k % 2], F[0:64, 0:64])
                T.tl.release(S_empty[(k + 1) % 2], 0 < k, S[(k + 1) % 2], W[(k + 1) % 2])
            T.tl.release(S_empty[1], T.bool(True), S[1], W[1])
            T.tl.copy(F[0:64, 0:64], C[0:64, 0:64])
        """
    ).strip("\n")


def test_a_schedule_is_explained(tile_passes):
    mod = tile_passes(gemm(), *PASSES, arch="sm_90a")
    assert int(mod["main"].attrs["tl_tiled_ws_applied"]) == 1
    lines = [line.strip() for line in roles_text(mod["main"].attrs["tl.warp_roles"][0])]
    assert lines[0] == (
        "warp specialised by a schedule: load, threads 0 to 127 with 24 registers each; "
        "mma, threads 128 to 255 with 240 registers each"
    )
    assert [line.rpartition("): ")[2] for line in lines[1:-1]] == [
        "mma",
        "load, by TMA, channel 0",
        "load, by TMA, channel 0",
        "mma",
        "mma",
    ]
    assert lines[-1] == (
        "channel 0 (ab, load to mma): S, W, 2 versions, 16384 bytes by TMA, fill number k; "
        "full after 1, empty after 4 arrivals"
    )


@pytest.mark.parametrize(("n", "depth"), [(4, 3), (1, 1)])
def test_a_gemm(check, n, depth):
    a, b = ints(64, 64 * n), ints(64 * n, 64)
    kernel = check(gemm(n, depth), [a, b], a.float() @ b.float())
    source = kernel.get_kernel_source()
    # Both have at most the 256 registers that they start with (PTX ISA, setmaxnreg).
    assert "tl::warpgroup_reg_dealloc<24>();" in source
    assert "tl::warpgroup_reg_dealloc<240>();" in source


def dequantise(n):
    """Loads, a role that makes float16 of int8, products; the second role is target and source."""
    plan = T.WSSchedule(
        num_warps=16,
        roles={"load": T.WSRole(0, 4), "convert": T.WSRole(4, 12), "mma": T.WSRole(12, 16)},
        pipelines={"a": T.WSPipeline(3), "raw": T.WSPipeline(2), "b": T.WSPipeline(2)},
        scopes=[
            T.WSScope(
                "k",
                {"load": ["a", "raw"], "convert": ["b"], "mma": ["c"]},
                [*syncs("a", "a", "c"), *syncs("raw", "raw", "b"), *syncs("b", "b", "c")],
            ),
            T.WSScope(None, {"mma": ["clear", "store"]}),
        ],
    )

    @T.prim_func
    def main(
        A: T.Tensor((64, 64 * n), "float16"),
        B: T.Tensor((64 * n, 64), "int8"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=512):
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64, 64), "float16")
            R = T.alloc_shared((64, 64), "int8")
            W = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.fill(F, 0, annotations=named("clear"))
            for k in T.serial(n, annotations=named("k")):
                T.copy(A[0, k * 64], S, annotations=named("a"))
                T.copy(B[k * 64, 0], R, annotations=named("raw"))
                for i, j in T.Parallel(64, 64, annotations=named("b")):
                    W[i, j] = T.cast(R[i, j], "float16") * 0.5
                T.gemm(S, W, F, annotations=named("c"))
            T.copy(F, C, annotations=named("store"))

    return main


def test_a_role_converts_for_another_one(check):
    a, b = ints(64, 320), ints(320, 64, dtype=torch.int8)
    kernel = check(dequantise(5), [a, b], a.float() @ (b.float() * 0.5))
    # What threads write and the tensor cores read passes a fence; registers are not moved.
    assert kernel.get_kernel_source().count("tl::fence_proxy_async();") == 1
    assert "warpgroup_reg" not in kernel.get_kernel_source()


def halves(n):
    """Two roles multiply the halves of the tile that a third one loads."""
    plan = T.WSSchedule(
        num_warps=12,
        roles={"load": T.WSRole(8, 12, 40), "top": T.WSRole(0, 4, 232), "low": T.WSRole(4, 8, 232)},
        pipelines={"ab": T.WSPipeline(3)},
        scopes=[
            T.WSScope(
                "k",
                {"load": ["load"], "top": ["c0"], "low": ["c1"]},
                syncs("ab", "load", "c0 c1"),
            ),
            T.WSScope(None, {"top": ["clear0", "store0"], "low": ["clear1", "store1"]}),
        ],
    )

    @T.prim_func
    def main(
        A: T.Tensor((256, 64 * n), "float16"),
        B: T.Tensor((64 * n, 64), "float16"),
        C: T.Tensor((256, 64), "float32"),
    ):
        with T.Kernel(2, threads=384) as by:
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((128, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            F = [T.alloc_fragment((64, 64), "float32") for _ in range(2)]
            for half in T.unroll(2, explicit=True):
                T.fill(F[half], 0, annotations=named(f"clear{half}"))
            for k in T.Pipelined(n, annotations=named("k")):
                with T.ws_op("load"):
                    T.copy(A[by * 128, k * 64], S)
                    T.copy(B[k * 64, 0], W)
                T.gemm(S[0:64, :], W, F[0], annotations=named("c0"))
                T.gemm(S[64:128, :], W, F[1], annotations=named("c1"))
            for half in T.unroll(2, explicit=True):
                T.copy(F[half], C[by * 128 + half * 64, 0], annotations=named(f"store{half}"))

    return main


def test_two_roles_use_one_pipeline(check):
    a, b = ints(256, 256), ints(256, 64)
    kernel = check(halves(4), [a, b], a.float() @ b.float())
    source = kernel.get_kernel_source()
    assert source.count("tl::warpgroup_reg_alloc<232>();") == 2
    assert source.count("tl::warpgroup_reg_dealloc<40>();") == 1
    assert "(ab, load to top, low): S, W, 3 versions" in kernel.explain()
    assert "empty after 8 arrivals" in kernel.explain()


def persistent(tiles, blocks):
    """A block works on one tile after the other, and a role stores the tile before."""
    plan = T.WSSchedule(
        num_warps=12,
        roles={"load": T.WSRole(0, 4), "mma": T.WSRole(4, 8), "epilogue": T.WSRole(8, 12)},
        pipelines={"ab": T.WSPipeline(2), "out": T.WSPipeline(2)},
        scopes=[
            T.WSScope("k", {"load": ["load"], "mma": ["c"]}, syncs("ab", "load", "c")),
            T.WSScope(
                None,
                {"mma": ["clear", "stage"], "epilogue": ["store"]},
                syncs("out", "stage", "store"),
            ),
        ],
    )

    @T.prim_func
    def main(
        A: T.Tensor((64 * tiles, 128), "float16"),
        B: T.Tensor((128, 64), "float16"),
        C: T.Tensor((64 * tiles, 64), "float16"),
    ):
        with T.Kernel(blocks, threads=384) as block:
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            out = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            for (tile,) in T.Persistent([tiles], blocks, block):
                T.fill(F, 0, annotations=named("clear"))
                for k in T.Pipelined(2, annotations=named("k")):
                    with T.ws_op("load"):
                        T.copy(A[tile * 64, k * 64], S)
                        T.copy(B[k * 64, 0], W)
                    T.gemm(S, W, F, annotations=named("c"))
                T.copy(F, out, annotations=named("stage"))
                T.copy(out, C[tile * 64, 0], annotations=named("store"))

    return main


def test_a_role_stores_in_a_persistent_loop(check):
    a, b = ints(320, 128), ints(128, 64)
    kernel = check(persistent(5, 2), [a, b], (a.float() @ b.float()).half())
    explained = kernel.explain()
    assert "(out, mma to epilogue): out, 2 versions, fill number wave;" in explained
    # A thread writes the same elements of every version.
    assert "sync_threads_partial" not in kernel.get_kernel_source()


def mixed(n):
    """A tile that is loaded once, tiles by cp.async and by TMA, a target that writes to them."""
    once = T.WSSync("q", "c", "q", T.WSSyncKind.FULL)
    plan = T.WSSchedule(
        num_warps=12,
        roles={"load": T.WSRole(0, 8), "mma": T.WSRole(8, 12)},
        pipelines={"q": T.WSPipeline(1), "kv": T.WSPipeline(2)},
        scopes=[
            T.WSScope(None, {"load": ["q"], "mma": ["clear", "store"]}, [once]),
            T.WSScope(
                "step", {"load": ["k", "v"], "mma": ["mix", "c"]}, syncs("kv", "k v", "mix c")[:-1]
            ),
        ],
    )

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((64, 62 * n), "float16"),
        V: T.Tensor((64, 64 * n), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=384):
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            X = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.fill(F, 0, annotations=named("clear"))
            T.copy(Q, S, annotations=named("q"))
            for k in T.Pipelined(n, annotations=named("step")):
                T.copy(K[0, k * 62], W, annotations=named("k"))
                T.copy(V[0, k * 64], X, annotations=named("v"))
                for i, j in T.Parallel(64, 64, annotations=named("mix")):
                    W[i, j] = W[i, j] + X[i, j]
                T.gemm(S, W, F, annotations=named("c"))
            T.copy(F, C, annotations=named("store"))

    return main


def test_cp_async_and_tma_fill_one_pipeline_and_the_target_writes_to_it(check):
    q, k, v = ints(64, 64, low=-2), ints(64, 62 * 3), ints(64, 64 * 3)
    tiles = torch.nn.functional.pad(k, (0, 2)).unfold(1, 64, 62).permute(1, 0, 2).float()
    wanted = sum(q.float() @ (tiles[i] + v[:, i * 64 : i * 64 + 64].float()) for i in range(3))
    kernel = check(mixed(3), [q, k, v], wanted)
    assert "load, by cp.async, channel 1, not TMA: a stride of 372 bytes in K" in kernel.explain()
    assert "(q, load to mma): S, 1 version, 8192 bytes by TMA, filled once" in kernel.explain()
    assert "full after 256, empty after 4 arrivals" in kernel.explain()


def gathered(factor=None, zero=None):
    """Rows that a table names, of which some are none, and a tile of the role's stores. With `zero`
    the program itself says what stands for none."""
    plan = T.WSSchedule(
        num_warps=8,
        roles={"load": T.WSRole(0, 4), "mma": T.WSRole(4, 8)},
        pipelines={"rows": T.WSPipeline(2)},
        scopes=[
            T.WSScope("step", {"load": ["load"], "mma": ["mma"]}, syncs("rows", "load", "mma")),
            T.WSScope(None, {"mma": ["clear", "store"]}),
        ],
    )

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        X: T.Tensor((50, 64), "float16"),
        table: T.Tensor((192,), "int32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            Q = T.alloc_fragment((64, 64), "float16")
            with T.ws_op("clear"):
                T.copy(A, Q)
                T.clear(F)
            for k in T.serial(3, annotations=named("step")):
                with T.ws_op("load"):
                    for i, j in T.Parallel(64, 64):
                        row = table[k * 64 + i]
                        if zero is not None:
                            S[i, j] = T.if_then_else(row >= 0, X[row, j], T.float16(zero))
                        elif factor is None:
                            S[i, j] = X[row, j]
                        else:
                            S[i, j] = X[row, j] * factor
                with T.ws_op("mma"):
                    T.gemm(Q, S, F)
            T.copy(F, C, annotations=named("store"))

    return main


@pytest.mark.parametrize(
    ("factor", "zero", "by"),
    [(None, None, "cp.async"), (None, 0.0, "cp.async"), (2, None, "stores")],
)
def test_a_role_gathers_rows(check, factor, zero, by):
    a, x, table = ints(64, 64), ints(50, 64), torch.randint(50, (192,), dtype=torch.int32)
    table[5::9] = -1
    rows = torch.where(table[:, None] < 0, 0, x[table.long()].float()).view(3, 64, 64).sum(0)
    kernel = check(gathered(factor, zero), [a, x, table], a.float() @ rows * (factor or 1))
    source, said = kernel.get_kernel_source(), kernel.explain()
    assert ("cp_async_gs_conditional<16>(S" in source) == (by == "cp.async")
    # Each thread for its copies by cp.async, each warp for its stores.
    assert f"full after {132 if factor is None else 4}, empty after 4 arrivals" in said
    # The reader has the fence where the copies are asynchronous.
    assert source.count("fence_proxy_async()") == 1
    wait = source.index("mbarrier_wait(S_full")
    assert (source.index("fence_proxy_async()") > wait) == (factor is None)


def selected(n):
    """Tiles that a table selects; the source uses them, too, and a loop of one role is a pipeline
    of its own."""
    plan = T.WSSchedule(
        num_warps=8,
        roles={"load": T.WSRole(0, 4), "sum": T.WSRole(4, 8)},
        pipelines={"tiles": T.WSPipeline(2)},
        scopes=[
            T.WSScope(
                "step",
                {"load": ["load", "most"], "sum": ["add"]},
                syncs("tiles", "load most", "add"),
            ),
            T.WSScope(None, {"sum": ["clear", "rest"]}),
        ],
    )

    @T.prim_func
    def main(
        A: T.Tensor((64 * n, 64), "float32"),
        table: T.Tensor((n,), "int32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64, 64), "float32")
            R = T.alloc_shared((64, 64), "float32")
            most = T.alloc_shared((64,), "float32")
            M = T.alloc_fragment((64,), "float32")
            F = T.alloc_fragment((64, 64), "float32")
            used = T.alloc_var("int32", init=0)
            T.fill(F, 0, annotations=named("clear"))
            for k in T.serial(n, annotations=named("step")):
                tile = table[k]
                if tile >= 0:
                    used += 1
                    T.copy(A[tile * 64, 0], S, annotations=named("load"))
                    with T.ws_op("most"):
                        T.reduce_max(S, M, dim=1)
                        T.copy(M, most)
                    for i, j in T.Parallel(64, 64, annotations=named("add")):
                        F[i, j] += S[i, j] * used + most[i]
            with T.ws_op("rest"):
                for k in T.Pipelined(n, num_stages=2):
                    T.copy(A[k * 64, 0], R)
                    for i, j in T.Parallel(64, 64):
                        F[i, j] += R[i, j]
                T.copy(F, C)

    return main


def test_conditions_and_scalars_are_every_roles(check):
    a, table = ints(256, 64, dtype=torch.float32), torch.tensor([3, -1, 0, 2], dtype=torch.int32)
    tiles = a.split(64)
    wanted = sum(tiles)
    for used, tile in enumerate(t for t in table.tolist() if t >= 0):
        wanted = wanted + tiles[tile] * (used + 1) + tiles[tile].max(1, keepdim=True).values
    explained = check(selected(4), [a, table], wanted).explain()
    assert "not TMA: its role uses the tile itself" in explained
    assert "T.Pipelined over k" in explained
    assert "1 step ahead" in explained


def kept(n):
    """The source goes on with its tile while the other role works on it."""
    plan = T.WSSchedule(
        num_warps=12,
        roles={"all": T.WSRole(0, 4), "also": T.WSRole(8, 12)},
        pipelines={"tiles": T.WSPipeline(2)},
        scopes=[
            T.WSScope(
                "step", {"all": ["load", "first"], "also": ["then"]}, syncs("tiles", "load", "then")
            ),
            T.WSScope(None, {"all": ["clear0", "store0"], "also": ["clear1", "store1"]}),
        ],
    )

    @T.prim_func
    def main(A: T.Tensor((64 * n, 64), "float32"), C: T.Tensor((2, 64, 64), "float32")):
        with T.Kernel(1, threads=384):
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64, 64), "float32")
            F = [T.alloc_fragment((64, 64), "float32") for _ in range(2)]
            for i in T.unroll(2, explicit=True):
                T.fill(F[i], 0, annotations=named(f"clear{i}"))
            for k in T.serial(n, annotations=named("step")):
                T.copy(A[k * 64, 0], S, annotations=named("load"))
                with T.ws_op("then"):
                    V = T.reshape(S, (32, 128))
                    for i, j in T.Parallel(64, 64):
                        F[1][i, j] += V[(63 - i) // 2, (63 - i) % 2 * 64 + j]
                for i, j in T.Parallel(64, 64, annotations=named("first")):
                    F[0][i, j] += S[i, 63 - j] * k
            for i in T.unroll(2, explicit=True):
                T.copy(F[i], C[i, 0:64, 0:64], annotations=named(f"store{i}"))

    return main


def test_the_source_reads_its_tile_behind_the_target(check):
    a = ints(320, 64, dtype=torch.float32)
    tiles = a.split(64)
    wanted = [sum(k * tile.flip(1) for k, tile in enumerate(tiles)), sum(tiles).flip(0)]
    check(kept(5), [a], torch.stack(wanted))


def depths(given, stages=2, **kw):
    """A product whose tiles the compiler loads ahead."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"),
        B: T.Tensor((512, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.annotate_ws_pipeline_depth({S if key == "S" else key: n for key, n in given.items()})
            T.clear(F)
            for k in T.Pipelined(8, num_stages=stages, **kw):
                T.copy(A[0, k * 64], S)
                T.copy(B[k * 64, 0], W)
                T.gemm(S, W, F)
            T.copy(F, C)

    return main


def test_versions_of_what_the_compiler_loads(check):
    a, b = ints(64, 512), ints(512, 64)
    kernel = check(depths({"S": 4, "W": 1}), [a, b], a.float() @ b.float())
    assert "channel 0: S, 4 versions" in kernel.explain()
    assert "channel 1: W, 1 version" in kernel.explain()


def test_fewer_versions_than_stages_are_refused():
    program = depths({"S": 1}, order=[0, 1, 2], stage=[0, 0, 1])
    with pytest.raises(ValueError, match=r"found depth 1 of S .*, wanted at least 2"):
        tilelang.lower(program, target=SM_90)


@pytest.mark.parametrize(
    ("given", "stages", "arch", "why"),
    [
        ({"F": 2}, 2, "sm_90a", "no effect on F: no producer loads it"),
        ({"S": 3}, 0, "sm_90a", "no effect on S: no loop is pipelined"),
        ({"W": 3}, 2, "sm_80", "no effect on W: the chip has no TMA"),
    ],
)
def test_versions_without_an_effect_are_warned_about(caplog, given, stages, arch, why):
    with caplog.at_level("WARNING", "tilelang"):
        tilelang.lower(depths(given, stages), target={"kind": "cuda", "arch": arch})
    assert why in caplog.text


def test_versions_of_a_name_that_no_buffer_has():
    with pytest.raises(ValueError, match="for a name that no buffer of the kernel has"):
        tilelang.lower(depths({"Z": 2}), target=SM_90)
