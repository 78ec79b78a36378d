"""Plans of pipelined loops, as values."""

import pytest
import tvm_ffi
from tvm import tirx

import tilelang.language as T

PLAN = "software_pipeline_"


@pytest.fixture
def plans(tile_passes):
    """Stages, orders and asynchronous stages of the serial loops, inner ones first; None for
    one without a plan."""

    def collect(func, **kwargs):
        found = []

        def loop(node):
            notes = node.annotations
            if node.kind != tirx.ForKind.SERIAL:
                return
            found.append(
                tuple(list(notes[PLAN + key]) for key in ("stage", "order", "async_stages"))
                if PLAN + "stage" in notes
                else None
            )

        mod = tile_passes(func, "Simplify", "PipelinePlanning", **kwargs)
        tvm_ffi.structural_walk(mod["main"].body, [(tirx.For, loop)])
        return found

    return collect


@pytest.mark.parametrize(
    ("n", "plan"),
    [
        (0, ([0, 0, 1], [1, 2, 0], [0])),
        (1, ([0, 0, 1], [1, 2, 0], [0])),
        (2, ([0, 0, 1], [0, 1, 2], [0])),
        (8, ([0, 0, 3], [0, 1, 2], [0])),
        ("dynamic", ([0, 0, 3], [0, 1, 2], [0])),
    ],
)
def test_no_more_slots_than_iterations(plans, gemm, n, plan):
    func = gemm(4, T.dynamic("n") if n == "dynamic" else n)
    assert plans(func) == [plan]


@pytest.mark.parametrize(
    ("stages", "order", "stage", "plan"),
    [
        # What the compiler places opens the step, num_stages - 1 steps ahead of its reader;
        (2, [-1, 0], [-1, 0], ([0, 0, 1], [0, 1, 2], [0])),
        (3, [-1, 0], [-1, 0], ([0, 0, 2], [0, 1, 2], [0])),
        # with one stage it ends it, because there is one slot.
        (1, [-1, 0], [-1, 0], ([0, 0, 1], [1, 2, 0], [0])),
    ],
)
def test_copies_that_the_user_leaves_to_the_compiler(plans, gemm, stages, order, stage, plan):
    func = gemm(num_stages=stages, order=order, stage=stage, group=[[0, 1], [2]])
    assert plans(func) == [plan]


@pytest.mark.parametrize(
    ("order", "stage", "plan"),
    [
        ([0, 1, 2], [0, 0, 1], ([0, 0, 1], [0, 1, 2], [0])),
        # The first stage is stage 0 whatever its number; copies of later stages whose readers are
        # later still are asynchronous too.
        ([0, 1, 2], [1, 2, 3], ([0, 1, 2], [0, 1, 2], [0, 1])),
        ([2, 0, 1], [0, 1, 1], ([0, 1, 1], [2, 0, 1], [0])),
        ([1, 2, 0], [0, 0, 1], ([0, 0, 1], [1, 2, 0], [0])),
    ],
)
def test_plans_of_the_user(plans, gemm, order, stage, plan):
    assert plans(gemm(num_stages=3, order=order, stage=stage)) == [plan]


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ({"order": [0, 1], "stage": [0, 0]}, "found 2 entries .* each of the 3 statements"),
        (
            {"order": [0, 1], "stage": [0, 0], "group": [[0, 1, 2]]},
            "found 2 entries in order and stage and 1 groups",
        ),
        (
            {"order": [0, 1], "stage": [0, 1], "group": [[0, 1], [1, 2]]},
            "found statement 1 in group, wanted each of the 3 statements of the body in one group",
        ),
        ({"order": [0], "stage": [1], "group": [[3]]}, "found statement 3 in group"),
        ({"order": [0], "stage": [1], "group": [[0, 1]]}, "number 2, that is in no group"),
        (
            {"order": [0, 0], "stage": [0, 1], "group": [[0, 1], [2]]},
            "found order 0 twice, wanted order to be a permutation",
        ),
        (
            {"order": [-1, 0], "stage": [0, 1], "group": [[0, 1], [2]]},
            "found order -1 with stage 0, wanted both to be 0 or more, or both -1",
        ),
        (
            {"order": [0, -1], "stage": [0, -1], "group": [[0, 1], [2]]},
            "found order -1, .* but it writes F, which is not shared memory; give it an order",
        ),
        (
            {"order": [-1, 0], "stage": [-1, 0], "group": [[0, 1], [2]], "num_stages": 0},
            "can run ahead, but num_stages is 0",
        ),
        (
            {"order": [-1], "stage": [-1], "group": [[0, 1, 2]]},
            "can run ahead, but nothing that has an order reads what it writes",
        ),
    ],
)
def test_refused_plans(plans, gemm, schedule, told):
    with pytest.raises(ValueError, match=rf"py:\d+: T\.Pipelined: .*{told}"):
        plans(gemm(**{"num_stages": 2} | schedule))


def test_plans_are_made_in_every_kind_of_loop(plans):
    """In `while`, in a persistent loop, and in another pipeline, which has its own plan."""

    @T.prim_func
    def main(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 8, 64), "float32")):
        with T.Kernel(2, threads=64) as b:
            S = T.alloc_shared((64,), "float32")
            W = T.alloc_shared((64,), "float32")
            n = T.alloc_var("int32", init=0)
            while n < 3:
                for k in T.Pipelined(8, num_stages=2):
                    T.copy(A[k, 0], S)
                    T.copy(S, B[n, k, 0])
                n = n + 1
            for i in T.Persistent([8], 2, b):
                for k in T.Pipelined(8, num_stages=3):
                    T.copy(A[k, 0], S)
                    T.copy(S, B[i, k, 0])
            for i in T.Pipelined(8, num_stages=3):
                T.copy(A[i, 0], W)
                for k in T.Pipelined(8, num_stages=2):
                    T.copy(A[k, 0], S)
                    for j in T.Parallel(64):
                        B[i, k, j] = S[j] + W[j]

    two, three = ([0, 1], [0, 1], [0]), ([0, 2], [0, 1], [0])
    assert plans(main) == [two, three, None, two, three]


def test_loops_that_stay_plain(plans):
    """Because a name keeps what a variable was, and because an iteration can be left."""

    @T.prim_func
    def kept(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            n = T.alloc_var("int32", init=0)
            for k in T.Pipelined(8, num_stages=2):
                m = n + 1
                n = m
                T.copy(A[k, 0], S)
                T.copy(S, B[m - 1, 0])

    @T.prim_func
    def left(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[k, 0], S)
                with T.If(k > 5), T.Then():
                    T.evaluate(T.loop_break())
                T.copy(S, B[k, 0])

    assert plans(kept) == [None]
    assert plans(left) == [None]


def test_a_name_that_nobody_changes_goes_to_its_users(plans):
    """Of memory that is filled before the loop, and of a copy earlier in the same iteration."""

    @T.prim_func
    def main(
        A: T.Tensor((8, 64), "float32"),
        R: T.Tensor((8, 4), "int32"),
        B: T.Tensor((8, 64), "float32"),
    ):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            rows = T.alloc_shared((4,), "int32")
            for k in T.Pipelined(8, num_stages=3):
                T.copy(R[k, 0], rows)
                row = rows[0]
                T.copy(A[k, 0], S)
                T.copy(S, B[row, 0])

    assert plans(main) == [([0, 0, 2], [0, 1, 2], [0])]


@pytest.mark.parametrize(("written", "plan"), [(False, ([0, 1], [0, 1], [0])), (True, None)])
def test_a_variable_is_an_index_that_the_loop_leaves_alone(plans, written, plan):
    @T.prim_func
    def main(
        A: T.Tensor((8, 8, 64), "float32"),
        R: T.Tensor((8,), "int32"),
        B: T.Tensor((8, 64), "float32"),
    ):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            v = T.alloc_var("int32", init=1)
            for k in T.Pipelined(8, num_stages=2):
                row = R[k]
                T.copy(A[v, row, 0], S)
                T.copy(S, B[k, 0])
                if written:
                    v = v + 1

    assert plans(main) == [plan]
