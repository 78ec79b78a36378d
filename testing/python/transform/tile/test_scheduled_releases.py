"""What the roles of a schedule say to each other when they release slots."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import schedule

TARGET = {"kind": "cuda", "arch": "sm_90a"}
HOW = (
    {"asynchronous": "late"},
    {"order": "adversarial", "asynchronous": "early"},
    {"order": "random", "asynchronous": "random", "seed": 5},
)


def syncs(pipeline, source, targets):
    return [T.WSSync(source, t, pipeline) for t in targets.split()]


def schedule_of(depth):
    """That of the program below, whose tiles have `depth` stages."""
    return T.WSSchedule(
        num_warps=12,
        roles={"load": T.WSRole(0, 4), "left": T.WSRole(4, 8), "right": T.WSRole(8, 12)},
        pipelines={"k": T.WSPipeline(depth), "r": T.WSPipeline(depth), "w": T.WSPipeline(1)},
        scopes=[
            T.WSScope(
                "step",
                {"load": ["k", "r"], "left": ["scores", "weigh"], "right": ["alone", "mix"]},
                [
                    *syncs("k", "k", "scores mix"),
                    *syncs("r", "r", "scores alone"),
                    *syncs("w", "weigh", "mix"),
                ],
            ),
            T.WSScope(None, {"left": ["begin0", "store0"], "right": ["begin1", "store1"]}),
        ],
    )


def weights_of_another_role(n, depth=1, of_scores=True, cluster=1, tallied=False, rows=64):
    """Two roles use the tiles K and R: `left` for scores, `right` R by itself and then K, for which
    it waits for weights that `left` makes `of_scores`, or of nothing. The blocks of a cluster load
    the tiles together. Adds up Q R + weights K, and the scores; `tallied`: and 1, beside the last
    product. With more than 64 `rows` of Q, it is shared, and `left` uses R first, and writes to
    the other rows."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((64 * n, 64), "float16"),
        R: T.Tensor((64 * n, 64), "float16"),
        Scores: T.Tensor((2, 64, 64), "float32"),
        Out: T.Tensor((2, 64, 64), "float32"),
    ):
        with T.Kernel(2, threads=384, cluster_dims=cluster) as block:
            T.annotate_ws_schedule(schedule_of(depth))
            k_tile = T.alloc_shared((64, 64), "float16")
            r_tile = T.alloc_shared((64, 64), "float16")
            weights = T.alloc_shared((64, 64), "float16")
            q0 = T.alloc_fragment((64, 64), "float16")
            q_rows = T.alloc_shared((rows, 64), "float16")
            q = q0 if rows == 64 else q_rows[0:64, :]
            q1 = T.alloc_fragment((64, 64), "float16")
            scores = T.alloc_fragment((64, 64), "float32")
            total = T.alloc_fragment((64, 64), "float32")
            out = T.alloc_fragment((64, 64), "float32")
            tally = T.alloc_fragment((64, 64), "float32")
            with T.ws_op("begin0"):
                T.copy(Q, q)
                T.clear(scores)
                T.clear(total)
            with T.ws_op("begin1"):
                T.copy(Q, q1)
                T.clear(out)
                T.clear(tally)
            for step in T.serial(n, annotations={T.WSID: "step"}):
                T.copy(K[step * 64, 0], k_tile, annotations={T.WSID: "k"})
                T.copy(R[step * 64, 0], r_tile, annotations={T.WSID: "r"})
                with T.ws_op("scores"):
                    first, second = (k_tile, r_tile) if rows == 64 else (r_tile, k_tile)
                    T.gemm(q, first, scores, transpose_B=True, clear_accum=of_scores)
                    T.gemm(q, second, scores, transpose_B=True)
                with T.ws_op("weigh"):
                    if rows > 64:
                        T.fill(q_rows[64:rows, :], 1)
                    if of_scores:
                        for i, j in T.Parallel(64, 64):
                            total[i, j] += scores[i, j]
                        T.copy(scores, weights)
                    else:
                        T.fill(weights, 2)
                T.gemm(q1, r_tile, out, annotations={T.WSID: "alone"})
                with T.ws_op("mix"):
                    T.gemm(weights, k_tile, out)
                    if tallied:
                        for i, j in T.Parallel(64, 64):
                            tally[i, j] += 1
            T.copy(
                total if of_scores else scores, Scores[block, 0, 0], annotations={T.WSID: "store0"}
            )
            with T.ws_op("store1"):
                for i, j in T.Parallel(64, 64):
                    out[i, j] += tally[i, j]
                T.copy(out, Out[block, 0, 0])

    return main


@pytest.fixture
def events(role_events):
    """What a role waits for and signals."""

    def run(role, **kw):
        *_, left, right = role_events(weights_of_another_role(3, **kw), "step")
        return left if role == "left" else right

    return run


@pytest.fixture
def arrivals(tile_passes):
    """How many free a slot of each pipeline, from the plan."""

    def run(**kw):
        func = weights_of_another_role(3, **kw)
        mod = tile_passes(func, "HoistViews", "PlanWarpRoles", arch="sm_90a")
        (plan,) = mod["main"].attrs["tl.warp_roles"]
        return [int(channel["empty"]) for channel in plan["channels"]]

    return run


def test_who_is_waited_for_by_the_last_user_does_not_arrive(events, arrivals):
    """`right` waits for weights of scores with K, so it gives K up for both; R it uses before."""
    assert arrivals() == [4, 8, 4]
    loop = ["acquire k_tile_full", "commit", "acquire r_tile_full", "commit", "wait 0"]
    signalled = ["release r_tile_empty", "acquire weights_empty", "release weights_full"]
    assert events("left") == ["for", *loop, *signalled]
    ends = [e for e in events("right") if e.startswith("release")]
    assert ends == ["release k_tile_empty", "release r_tile_empty", "release weights_empty"]


def test_who_does_not_arrive_waits(events):
    """The rows that `left` writes to are not those that its product with K still reads."""
    found = events("left", of_scores=False, rows=128)
    assert "release k_tile_empty" not in found
    assert "wait 0" in found[: found.index("release weights_full")]


@pytest.mark.parametrize("depth", [1, 2])
def test_who_signals_something_else_arrives(depth, arrivals):
    """Weights of nothing say nothing of the products with K."""
    assert arrivals(depth=depth, of_scores=False) == [8, 8, 4]


def test_a_signal_waits_for_no_other_product(events):
    found = events("left", depth=2, of_scores=False)
    signalled = found.index("release weights_full")
    last = signalled - found[signalled::-1].index("commit")
    assert [e for e in found[last:signalled] if e.startswith("wait")] == ["wait 1"]
    # With the scores it hands over what is made of them.
    found = events("left", depth=2)
    assert "wait 0" in found[found.index("commit") : found.index("release weights_full")]


def test_an_operation_is_over_when_all_of_it_is():
    """What stands behind its last product runs beside that one, and then the slots are released."""
    source = tilelang.lower(
        weights_of_another_role(3, tallied=True), target="cuda -arch=sm_90a"
    ).kernel_source
    loop = source[source.index("if (2 <= warp_group") :]
    last = loop.index("wgmma_ss")
    tallied, waited = loop.index("tally", last), loop.index("warpgroup_wait<0>", last)
    assert loop.index("_commit_batch", last) < tallied < waited
    assert waited < loop.index("k_tile_empty", last) < loop.index("weights_empty", last)


def test_arrivals_at_a_cluster_stand_behind_the_signal(events, arrivals):
    assert arrivals(cluster=2) == [8, 16, 4]
    found = events("left", cluster=2)
    assert found[-3:] == [
        "acquire weights_empty",
        "release weights_full",
        "release r_tile_empty of all",
    ]


def check(kw, **compiling):
    n = 4
    q, k, r = (torch.randint(-2, 3, (rows, 64)).half() for rows in (64, 64 * n, 64 * n))
    tiles = list(zip(k.float().split(64), r.float().split(64), strict=True))
    scores = [q.float() @ (a + b).T for a, b in tiles]
    weights = scores if kw.get("of_scores", True) else [torch.full((64, 64), 2.0)] * n
    wanted = sum(q.float() @ b + w @ a for (a, b), w in zip(tiles, weights, strict=True))
    kernel = tilelang.compile(weights_of_another_role(n, **kw), target=TARGET, **compiling)
    found = [torch.full((2, 64, 64), float("nan")) for _ in "so"]
    kernel(q, k, r, *found)
    assert torch.equal(found[0], sum(scores).expand(2, -1, -1))
    assert torch.equal(found[1], (wanted + n * kw.get("tallied", False)).expand(2, -1, -1))


CASES = pytest.mark.parametrize(
    "kw",
    [
        {},
        {"depth": 2},
        {"depth": 2, "of_scores": False},
        {"of_scores": False},
        {"cluster": 2},
        {"tallied": True},
        {"of_scores": False, "rows": 128},
    ],
    ids=str,
)


@CASES
@pytest.mark.usefixtures("on_sm_90a")
def test_results(kw):
    check(kw)


@CASES
@pytest.mark.parametrize("how", HOW, ids=str)
def test_results_in_other_orders(kw, how):
    with schedule(**how):
        check(kw, execution_backend="emulate")
