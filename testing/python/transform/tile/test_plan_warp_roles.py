"""PlanWarpRoles: the plan as a value; what it says, and nothing else, is emitted."""

import pytest
import tvm

import tilelang.language as T
from tilelang import transform

PASSES = ("HoistViews", "PlanWarpRoles")


def value_of(v):
    """A plan as Python values."""
    if hasattr(v, "items"):
        return {str(key): value_of(entry) for key, entry in v.items()}
    if isinstance(v, str | int):
        return v if isinstance(v, int) else str(v)
    return [value_of(entry) for entry in v]


@pytest.fixture
def plans(tile_passes):
    """The program behind the pass, and its plans."""

    def run(func, arch="sm_90a", config=None):
        mod = tile_passes(func, *PASSES, arch=arch, config=config)
        return mod, [value_of(plan) for plan in mod["main"].attrs["tl.warp_roles"]]

    return run


def applied(mod, plan):
    """The text of the program that a plan makes of it."""
    func = mod["main"].with_attr("tl.warp_roles", [plan])
    out = transform.ProducerConsumerWarpSpecialized()(tvm.IRModule({"main": func}))
    text = out["main"].script(show_meta=False)
    return text.partition('with T.sblock("tilelang_root"):\n')[2]


def gemm(num_stages=3, same_names=False):
    @T.macro
    def tile():
        S = T.alloc_shared((64, 64), "float16")
        return S  # noqa: RET504 - the name is the buffer's

    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"),
        B: T.Tensor((512, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = tile()
            W = tile() if same_names else T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(8, num_stages=num_stages):
                T.copy(A[0, k * 64], S)
                T.copy(B[k * 64, 0], W)
                T.gemm(S, W, F)
            T.copy(F, C)

    return main


def test_the_plan_of_a_gemm(plans):
    _, (plan,) = plans(gemm())
    assert plan["reason"] == ""
    assert (plan["kernel"], plan["threads"], plan["is_scheduled"]) == (0, 256, 0)
    keys = ("name", "first", "threads", "numbered_from", "one_thread", "keeps_schedule", "runs")
    # 0: clear, 1: the loop with 2, 3: copies and 4: gemm, 5: the copy of the result.
    assert [tuple(role[key] for key in keys) for role in plan["roles"]] == [
        ("producer", 0, 128, 0, 1, 0, [1, 2, 3]),
        ("consumer", 128, 128, 128, 0, 1, [0, 1, 4, 5]),
    ]
    fills = [(s["number"], s["by"], s["channel"]) for s in plan["statements"] if s["by"]]
    assert fills == [(2, "tma", 0), (3, "tma", 0)]
    (channel,) = plan["channels"]
    assert (channel["source"], channel["targets"]) == ("producer", ["consumer"])
    assert (channel["buffers"], channel["versions"], channel["blocks"]) == (["S", "W"], 3, 1)
    # The producer's one thread arrives at `full`, each of the consumer's warps at `empty`.
    assert (channel["full"], channel["empty"], channel["bytes"]) == (1, 4, [2 * 64 * 64 * 2])
    (window,) = channel["windows"]
    assert window["body"] == [1, 0]
    assert (window["first_fill"], window["last_fill"], window["last_use"]) == (0, 1, 2)
    # One MMA stays in flight: the slot is released one fill late, behind the next one's issue.
    (use,) = window["uses"]
    assert (use["role"], use["acquire"], use["release_at"], use["side"]) == ("consumer", 2, 2, 1)
    assert (use["is_deferred"], use["is_waited_for"], use["is_implied"]) == (1, 0, 0)
    assert plan["counts"] == [{"loops": [1]}]
    assert plan["schedules"] == []


@pytest.mark.parametrize("is_loop", [False, True], ids=["copy", "loop"])
@pytest.mark.parametrize(("rows", "producers"), [(8, 128), (64, 256)])
def test_a_producer_of_few_bytes_beside_tma_has_one_warp_group(plans, rows, producers, is_loop):
    """TMA does not take rows of 264 bytes: threads copy 8 of them, which are 2 KB, or 64. Of scales
    that a loop multiplies, 512 threads would have 128 registers, and their sums were spilled."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"),
        Scale: T.Tensor((8 * rows, 66), "float32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((64, 64), "float16")
            scales = T.alloc_shared((rows, 64), "float32")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[0, k * 64], S)
                if is_loop:
                    for i, j in T.Parallel(rows, 64):
                        scales[i, j] = Scale[k * rows + i, j] * 2
                else:
                    T.copy(Scale[k * rows, 0], scales)
                for i, j in T.Parallel(64, 64):
                    F[i, j] += S[i, j] * scales[i % rows, j]
            T.copy(F, C)

    _, (plan,) = plans(main)
    by = "threads" if is_loop else "cp.async"
    assert [s["by"] for s in plan["statements"] if s["by"]] == ["tma", by]
    assert [role["threads"] for role in plan["roles"]] == [producers, 256]


def test_a_loop_that_computes_with_a_tile_of_the_step_is_the_consumers(plans):
    """The producer would load the tile of weights again, by its threads, for the scales' sake."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"),
        W: T.Tensor((64, 512), "int8"),
        Scale: T.Tensor((64, 8), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            packed = T.alloc_shared((64, 64), "int8")
            weights = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[0, k * 64], S)
                T.copy(W[0, k * 64], packed)
                for i, j in T.Parallel(64, 64):
                    weights[i, j] = packed[i, j].astype("float16") * Scale[i, k]
                T.gemm(S, weights, F, transpose_B=True)
            T.copy(F, C)

    _, (plan,) = plans(main)
    assert [s["by"] for s in plan["statements"]] == ["tma", "tma", "", ""]


@pytest.mark.parametrize(
    ("first", "channels"),
    [
        # W is asked for behind S and used in front of it: its own barriers would be waited at in
        # vain.
        ("S", [["S", "W"]]),
        # Here the sum could begin before S is there.
        ("W", [["W"], ["S"]]),
    ],
)
def test_a_tile_that_is_loaded_behind_another_and_used_earlier_comes_with_it(
    plans, first, channels
):
    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"),
        B: T.Tensor((512, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            V = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(8, num_stages=3):
                if first == "S":
                    T.copy(A[0, k * 64], S)
                    T.copy(B[k * 64, 0], W)
                else:
                    T.copy(B[k * 64, 0], W)
                    T.copy(A[0, k * 64], S)
                for i, j in T.Parallel(64, 64):
                    V[i, j] = W[i, j] * T.float16(2)
                T.gemm(S, V, F)
            T.copy(F, C)

    _, (plan,) = plans(main)
    assert [channel["buffers"] for channel in plan["channels"]] == channels
    if first == "S":
        (window,) = plan["channels"][0]["windows"]
        # 2 and 3 load, 4 is the product of W with 2, 5 the MMA that reads S.
        assert (window["uses"][0]["acquire"], window["last_use"]) == (2, 3)


@pytest.mark.parametrize(
    ("beside", "channels"),
    [
        # The product uses its operands until it is added; their slot waits for nothing else.
        (True, [["S", "W", "scale"]]),
        # Here their slot is free when the product is added, and the scales are needed until then.
        (False, [["S", "W"], ["scale"]]),
    ],
)
def test_few_bytes_that_are_used_beside_a_product_come_with_its_operands(plans, beside, channels):
    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"),
        B: T.Tensor((512, 64), "float16"),
        scales: T.Tensor((8, 64), "float32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            scale = T.alloc_shared((64,), "float32")
            row = T.alloc_fragment((64,), "float32")
            F = T.alloc_fragment((64, 64), "float32")
            sums = T.alloc_fragment((64, 64), "float32")
            T.clear(sums)
            for k in T.Pipelined(8, num_stages=3):
                T.copy(A[0, k * 64], S)
                T.copy(B[k * 64, 0], W)
                T.copy(scales[k, :], scale)
                T.gemm(S, W, F, clear_accum=True)
                if beside:
                    T.copy(scale, row)
                    for i, j in T.Parallel(64, 64):
                        sums[i, j] += F[i, j] * row[i]
                else:
                    for i, j in T.Parallel(64, 64):
                        sums[i, j] += F[i, j] * scale[i]
            T.copy(sums, C)

    _, (plan,) = plans(main)
    assert [channel["buffers"] for channel in plan["channels"]] == channels


def test_one_stage_is_released_at_once(plans):
    _, (plan,) = plans(gemm(num_stages=1))
    (use,) = plan["channels"][0]["windows"][0]["uses"]
    assert (plan["channels"][0]["versions"], use["is_deferred"]) == (1, 0)


def test_a_plan_without_roles_says_why(plans):
    mod, (plan,) = plans(gemm(), config={"tl.disable_warp_specialized": True})
    assert (plan["reason"], plan["kernel"]) == ("tl.disable_warp_specialized", 0)
    assert "thread_range" not in applied(mod, mod["main"].attrs["tl.warp_roles"][0])


def test_a_target_without_tma_has_no_plans(tile_passes):
    mod = tile_passes(gemm(), *PASSES, arch="sm_80")
    assert "tl.warp_roles" not in mod["main"].attrs


def test_the_plan_alone_decides_what_is_emitted(plans):
    """Another number of versions, another place of the release, and other arrivals."""
    mod, (plan,) = plans(gemm())
    text = applied(mod, plan)
    assert "k % 3" in text
    assert "T.tl.release(S_empty[(k + 2) % 3]" in text
    (channel,) = plan["channels"]
    channel["versions"], channel["empty"] = 5, 7
    channel["windows"][0]["uses"][0]["is_deferred"] = 0
    plan["roles"][1]["first"] = plan["roles"][1]["numbered_from"] = 256
    plan["threads"] = 384
    text = applied(mod, plan)
    assert "k % 5" in text
    assert "k % 3" not in text
    assert "T.tl.release(S_empty[k % 5], S[k % 5" in text
    assert "[7, 7, 7, 7, 7]" in text
    assert "tx >= 256 and tx < 384" in text


def test_buffers_of_one_name_are_told_apart(plans):
    mod, (plan,) = plans(gemm(same_names=True))
    assert plan["channels"][0]["buffers"] == ["S#0", "S#1"]
    assert "T.tl.acquire(S_full[k % 3]" in applied(mod, plan)


def test_a_plan_of_another_program_is_a_bug(plans):
    mod, (plan,) = plans(gemm())
    plan["channels"][0]["buffers"] = ["X"]
    with pytest.raises(tvm.error.InternalError, match="no buffer of the kernel is X"):
        applied(mod, plan)


def scheduled(depth=2):
    schedule = T.WSSchedule(
        num_warps=8,
        roles={"load": T.WSRole(0, 4, max_nreg=24), "mma": T.WSRole(4, 8, max_nreg=240)},
        pipelines={"ab": T.WSPipeline(depth)},
        scopes=[
            T.WSScope(
                "k",
                {"load": ["a", "b"], "mma": ["c"]},
                [T.WSSync("a", "c", "ab"), T.WSSync("b", "c", "ab")],
            ),
            T.WSScope(None, {"mma": ["clear", "store"]}),
        ],
    )

    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            T.annotate_ws_schedule(schedule)
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            with T.ws_op("clear"):
                T.clear(F)
            for k in T.Pipelined(4, num_stages=3, annotations={T.WSID: "k"}):
                T.copy(A[0, k * 64], S, annotations={T.WSID: "a"})
                T.copy(B[k * 64, 0], W, annotations={T.WSID: "b"})
                T.gemm(S, W, F, annotations={T.WSID: "c"})
            T.copy(F, C, annotations={T.WSID: "store"})

    return main


def test_the_plan_of_a_schedule(plans):
    mod, (plan,) = plans(scheduled())
    assert plan["is_scheduled"] == 1
    keys = ("name", "first", "threads", "registers", "one_thread", "runs")
    assert [tuple(role[key] for key in keys) for role in plan["roles"]] == [
        ("load", 0, 128, 24, 1, [1, 2, 3]),
        ("mma", 128, 128, 240, 0, [0, 1, 4, 5]),
    ]
    (channel,) = plan["channels"]
    assert (channel["name"], channel["source"], channel["targets"]) == ("ab", "load", ["mma"])
    assert (channel["buffers"], channel["versions"]) == (["S", "W"], 2)
    assert [(s["number"], s["role"], s["by"]) for s in plan["statements"]] == [
        (0, "mma", ""),
        (2, "load", "tma"),
        (3, "load", "tma"),
        (4, "mma", ""),
        (5, "mma", ""),
    ]
    channel["versions"] = 4
    plan["roles"][1]["registers"] = 200
    text = applied(mod, plan)
    assert "k % 4" in text
    assert 'T.attr("mma", "tl.scheduled_role", 200)' in text


def test_overlapping_mmas_are_a_schedule_in_the_plan(plans):
    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((256, 64), "float16"),
        Out: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            v = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, q)
            T.clear(o)
            for i in T.Pipelined(4, num_stages=2):
                T.copy(K[i * 64, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.copy(s, p)
                T.copy(K[i * 64, 0], v)
                T.gemm(p, v, o)
            T.copy(o, Out)

    _, (plan,) = plans(main)
    (schedule,) = plan["schedules"]
    assert (schedule["statement"], schedule["order"], schedule["stage"]) == (
        2,
        [-1, 0, 2, -1, 1],
        [-1, 0, 0, -1, 1],
    )
    assert schedule["chosen"].startswith("products of two iterations at a time")
    loads = [c["buffers"] for c in plan["channels"]]
    assert sorted(loads) == [["k"], ["q"], ["v"]]


def scaled(columns, sums_up):
    """Products and their scales: each is scaled by itself, or all are summed up, beside scales."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"),
        B: T.Tensor((512, columns), "float16"),
        Scales: T.Tensor((8, 64), "float32"),
        C: T.Tensor((64, columns), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, columns), "float16")
            scale = T.alloc_shared((64,), "float32")
            row = T.alloc_fragment((64,), "float32")
            product = T.alloc_fragment((64, columns), "float32")
            total = T.alloc_fragment((64, columns), "float32")
            T.clear(total)
            T.clear(product)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.copy(Scales[k, :], scale)
                T.gemm(a, b, product, clear_accum=not sums_up)
                T.copy(scale, row)
                for i, j in T.Parallel(64, columns):
                    if sums_up:
                        total[i, j] += row[i]
                    else:
                        total[i, j] += product[i, j] * row[i]
            for i, j in T.Parallel(64, columns):
                if sums_up:
                    total[i, j] += product[i, j]
            T.copy(total, C)

    return main


@pytest.mark.parametrize(
    ("columns", "sums_up", "loads"),
    [
        (64, False, [["a", "b", "scale"]]),
        # A slot of all three would be kept until the product is awaited, in each step.
        (64, True, [["a", "b"], ["scale"]]),
    ],
)
def test_scales_come_with_the_product_that_they_scale(plans, columns, sums_up, loads):
    _, (plan,) = plans(scaled(columns, sums_up))
    assert [c["buffers"] for c in plan["channels"]] == loads


def test_scales_of_a_product_that_each_thread_awaits_come_by_themselves(plans):
    """A product of mma.sync has read its tiles when it is done, in front of the scales."""
    program = scaled(64, False).with_attr("tl.pass_configs", None)
    _, (plan,) = plans(program, config={"tl.disable_wgmma": True})
    assert [c["buffers"] for c in plan["channels"]] == [["a", "b"], ["scale"]]


def test_a_second_product_of_other_registers_is_none_of_the_first(plans):
    """Weights made in registers, not scores of the first product: nothing to run beside."""

    @T.prim_func
    def main(
        X: T.Tensor((64, 64), "float16"),
        W: T.Tensor((256, 64), "float16"),
        Out: T.Tensor((2, 64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            x = T.alloc_shared((64, 64), "float16")
            w = T.alloc_shared((64, 64), "float16")
            weights = T.alloc_fragment((64, 64), "float16")
            first = T.alloc_fragment((64, 64), "float32")
            second = T.alloc_fragment((64, 64), "float32")
            T.copy(X, x)
            T.clear(first)
            T.clear(second)
            for i in T.Pipelined(4, num_stages=2):
                T.copy(W[i * 64, 0], w)
                T.gemm(x, w, first, transpose_B=True)
                T.copy(w, weights)
                T.gemm(weights, x, second)
            T.copy(first, Out[0, :, :])
            T.copy(second, Out[1, :, :])

    _, (plan,) = plans(main)
    assert plan["schedules"] == []
