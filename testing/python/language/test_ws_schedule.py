"""Schedules of warp specialisation: what their values take, and programs that they do not fit."""

import os
import re

import pytest
import torch

import tilelang
import tilelang.language as T

SM_90 = {"kind": "cuda", "arch": "sm_90a"}
ROLES = {"load": T.WSRole(0, 4), "mma": T.WSRole(4, 8)}
PIPELINES = {"ab": T.WSPipeline(depth=2)}
LOOP = T.WSScope(
    "k",
    {"load": ["load_a", "load_b"], "mma": ["product"]},
    [T.WSSync("load_a", "product", "ab"), T.WSSync("load_b", "product", "ab")],
)
KERNEL = T.WSScope(None, {"mma": ["clear", "store"]})
LOADS = [("load_a", "product"), ("load_b", "product")]


def named(name):
    return {T.WSID: name}


def schedule(**changed):
    fields = {"num_warps": 8, "roles": ROLES, "pipelines": PIPELINES, "scopes": [LOOP, KERNEL]}
    return T.WSSchedule(**{**fields, **changed})


def gemm(plan, threads=256, loop="k", clear="clear", extra=lambda S, W, F: None, **pipelined):
    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "float16"),
        B: T.Tensor((128, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.fill(F, 0, annotations=named(clear) if clear else None)
            for k in T.Pipelined(2, annotations=named(loop), **pipelined):
                T.copy(A[0, k * 64], S, annotations=named("load_a"))
                T.copy(B[k * 64, 0], W, annotations=named("load_b"))
                T.gemm(S, W, F, annotations=named("product"))
            extra(S, W, F)
            T.copy(F, C, annotations=named("store"))

    return main


@pytest.fixture
def refused():
    """What is said of a program when it is lowered, without its place."""

    def run(program, target=SM_90):
        with pytest.raises(ValueError, match=r"test_ws_schedule\.py:\d+: ") as caught:
            tilelang.lower(program, target=target)
        text = str(caught.value).partition("\n")[0].replace(os.path.dirname(__file__) + "/", "")
        return re.sub(r"[^\s(]*test_ws_schedule\.py:\d+:? ?", "", text)

    return run


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: T.WSRole(0.5, 4),
            TypeError,
            "warps_lo of T.WSRole is 0.5 of type float, wanted an int",
        ),
        (lambda: T.WSRole(0, 6), ValueError, "warps_hi of T.WSRole is 6, wanted a multiple of 4"),
        (lambda: T.WSRole(4, 4), ValueError, "found warps 4 to 4, wanted 0 <= warps_lo"),
        (lambda: T.WSRole(0, 36), ValueError, "a block has at most 32 warps"),
        (lambda: T.WSRole(0, 4, 28), ValueError, "is 28, wanted a multiple of 8 from 24 to 240"),
        (lambda: T.WSPipeline(0), ValueError, "depth of T.WSPipeline is 0, wanted at least 1"),
        (
            lambda: T.WSPipeline(True),
            TypeError,
            "depth of T.WSPipeline is True of type bool, wanted an int",
        ),
        (lambda: T.WSSync("a", 1, "p"), TypeError, "target of T.WSSync is 1 of type int, wanted"),
        (lambda: T.WSSync("a", "", "p"), ValueError, "target of T.WSSync is the empty string"),
        (lambda: T.WSSync("a", "b", "p", "full"), TypeError, "wanted a T.WSSyncKind"),
        (lambda: T.WSScope("k", ["a"]), TypeError, "wanted a mapping of roles"),
        (lambda: T.WSScope("k", {"r": "a"}), TypeError, "operations of role 'r' are 'a'"),
        (lambda: T.WSScope("k", {}, [1]), TypeError, "syncs of T.WSScope: found 1"),
        (lambda: schedule(num_warps=6), ValueError, "num_warps of T.WSSchedule is 6"),
        (lambda: schedule(num_warps=4), ValueError, "role 'mma' has warps 4 to 7, wanted them"),
        (lambda: schedule(roles={"load": 1}), TypeError, "roles of T.WSSchedule: found 1"),
        (lambda: schedule(scopes=LOOP), TypeError, "scopes of T.WSSchedule is"),
        (
            lambda: schedule(roles={**ROLES, "mma": T.WSRole(0, 8)}),
            ValueError,
            "roles 'load' and 'mma' both have warp 0",
        ),
        (
            lambda: schedule(
                num_warps=16, roles={"load": T.WSRole(0, 8, 240), "mma": T.WSRole(8, 16, 240)}
            ),
            ValueError,
            "the roles have 122880 registers by max_nreg, wanted at most 65536 for a block of 512",
        ),
        (
            lambda: schedule(
                num_warps=12, roles={"load": T.WSRole(0, 4, 32), "mma": T.WSRole(4, 12, 240)}
            ),
            ValueError,
            "the roles have 65536 registers by max_nreg, wanted at most 64512 for a block of 384",
        ),
        (lambda: schedule(scopes=[LOOP, LOOP]), ValueError, "two scopes have the body 'k'"),
        (
            lambda: schedule(scopes=[LOOP, T.WSScope(None, {"load": ["product"]})]),
            ValueError,
            "operation 'product' is given to role 'mma' and to role 'load'",
        ),
        (
            lambda: schedule(scopes=[LOOP, T.WSScope(None, {"store": ["store"]})]),
            ValueError,
            "the schedule has no role 'store', wanted one of its own: 'load', 'mma'",
        ),
        (
            lambda: schedule(scopes=[LOOP, T.WSScope(None, {"mma": ["k"]})]),
            ValueError,
            "'k' is the body of a scope and an operation",
        ),
        (
            lambda: schedule(num_warps=12, roles={**ROLES, "idle": T.WSRole(8, 12)}),
            ValueError,
            "role 'idle' runs no operation",
        ),
        (
            lambda: schedule(pipelines={**PIPELINES, "c": T.WSPipeline(1)}),
            ValueError,
            "no T.WSSync uses pipeline 'c'",
        ),
        (
            lambda: schedule(pipelines={}),
            ValueError,
            "the schedule has no pipeline 'ab', wanted one of its own: none",
        ),
        (
            lambda: schedule(scopes=[LOOP, with_syncs(("load_a", "load_b"))]),
            ValueError,
            "found 'load_a' and 'load_b' in role 'load', wanted two roles",
        ),
        (
            lambda: schedule(scopes=[LOOP, with_syncs(("product", "load_a"))]),
            ValueError,
            "pipeline 'ab' is filled by roles 'load' and 'mma'",
        ),
        (
            lambda: schedule(scopes=[LOOP, with_syncs(("load_a", "product"))]),
            ValueError,
            "two T.WSSync go from 'load_a' to 'product'",
        ),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(make, error, text):
    with pytest.raises(error, match=re.escape(text)):
        make()


def with_syncs(*ends):
    return T.WSScope(None, KERNEL.ops, [T.WSSync(*pair, "ab") for pair in ends])


def test_values_compare_and_do_not_change():
    assert schedule() == schedule()
    assert LOOP.syncs[0].kind is T.WSSyncKind.FULL_EMPTY
    with pytest.raises(AttributeError):
        ROLES["load"].warps_lo = 8


def test_a_kernel_takes_one_schedule_for_its_threads():
    with pytest.raises(ValueError, match=r"threads \[128, 1, 1\], wanted 256 in one dimension"):
        gemm(schedule(), threads=128)
    with pytest.raises(ValueError, match="the kernel has a schedule already"):
        gemm(schedule(), extra=lambda S, W, F: T.annotate_ws_schedule(schedule()))
    with pytest.raises(TypeError, match=r"found \{\} of type dict, wanted a T.WSSchedule"):
        gemm({})
    with pytest.raises(TypeError, match=r"id of T.ws_op is 3 of type int, wanted a name"):
        gemm(schedule(), extra=lambda S, W, F: T.ws_op(3))


def test_a_name_stands_around_a_parallel_loop():
    with pytest.raises(ValueError, match=r"T.ws_op\('x'\) stands in a parallel loop"):

        @T.prim_func
        def main(A: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=128):
                for i in T.Parallel(64):
                    with T.ws_op("x"):
                        A[i] = 0.0


def test_a_name_is_a_string():
    with pytest.raises(TypeError, match=r"found T.WSID that is no string, wanted the name of"):
        tilelang.lower(gemm(schedule(), clear=3), target=SM_90)


def test_chips_before_sm_90_are_refused(refused):
    text = refused(gemm(schedule()), {"kind": "cuda", "arch": "sm_80"})
    assert text.startswith("found T.annotate_ws_schedule for sm_80, wanted sm_90 or later")


def test_names_say_nothing_without_a_schedule():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            for _ in T.serial(2, annotations=named("loop")):
                with T.ws_op("load"):
                    T.copy(A, S)
                T.copy(S, A, annotations=named("store"))

    for arch in ("sm_80", "sm_90a"):
        source = tilelang.lower(main, target={"kind": "cuda", "arch": arch}).kernel_source
        assert "mbarrier" not in source


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (
            gemm(schedule(), loop="other"),
            "found the name 'other', which the schedule does not know, wanted one of 'load_a', "
            "'load_b', 'product', 'clear', 'store'; add it to a scope",
        ),
        (
            gemm(schedule(), clear=None),
            "found a statement that no role runs, wanted the name of an operation of the schedule; "
            'give it annotations={T.WSID: "name"}, or put it under T.ws_op("name")',
        ),
        (
            gemm(schedule(scopes=[LOOP, T.WSScope(None, {"mma": ["clear", "store", "more"]})])),
            "found no statement with the name 'more' of an operation, wanted one; leave the "
            "operation out",
        ),
        (
            gemm(
                schedule(scopes=[LOOP, KERNEL, T.WSScope("j", {})]),
            ),
            "found no loop with the name 'j' of a scope, wanted annotations={T.WSID: 'j'} on one",
        ),
        (
            gemm(
                schedule(
                    scopes=[
                        T.WSScope("k", {**LOOP.ops, "mma": ["product", "store"]}, LOOP.syncs),
                        T.WSScope(None, {"mma": ["clear"]}),
                    ]
                )
            ),
            "found operation 'store' in the kernel's scope, wanted it in the scope of 'k', which "
            "lists it; list it where it stands",
        ),
        (
            gemm(schedule(scopes=[T.WSScope("k", LOOP.ops, LOOP.syncs[:1]), KERNEL])),
            "found operation 'product' of role 'mma' reading W, which operation 'load_b' of role "
            "'load' writes at , wanted a T.WSSync between them, or one role for both",
        ),
        (
            gemm(schedule(scopes=[LOOP, T.WSScope(None, {"load": ["clear"], "mma": ["store"]})])),
            "found operation 'product' of role 'mma' writing F, which operation 'clear' of role "
            "'load' writes at , wanted one role for both: threads have registers of their own; "
            "pass it on in shared memory",
        ),
        (
            gemm(
                schedule(
                    scopes=[LOOP, T.WSScope(None, KERNEL.ops, [T.WSSync("load_a", "store", "ab")])]
                )
            ),
            "found T.WSSync('load_a', 'store', 'ab') without shared memory that the first writes "
            "and the second uses, wanted it to order something; leave it out",
        ),
        (
            gemm(schedule(), order=[0, 1, 2], stage=[0, 0, 1]),
            "found order and stage of T.Pipelined in a kernel with a schedule, wanted the order of "
            "the program, in which each role runs its operations; leave them out",
        ),
        (
            gemm(
                schedule(
                    scopes=[
                        T.WSScope(
                            "k",
                            LOOP.ops,
                            [LOOP.syncs[0], T.WSSync("load_b", "product", "ab", T.WSSyncKind.FULL)],
                        ),
                        KERNEL,
                    ]
                )
            ),
            "found T.WSSync('load_b', 'product', 'ab') of kind FULL where its source runs several "
            "times, wanted FULL_EMPTY: the source would overwrite what the target reads; leave the "
            "kind out",
        ),
        (
            gemm(schedule(), extra=lambda S, W, F: T.sync_threads()),
            "found a statement that a schedule does not take: it synchronises threads itself "
            "(tirx.tvm_storage_sync); leave it or the schedule out",
        ),
    ],
)
def test_a_program_that_a_schedule_does_not_fit_is_refused(refused, program, text):
    assert refused(program) == text


def two_roles(body, more=(), pipelines=(), depth=2):
    """A loop whose role `load` fills S, and whose role `use` reads it."""
    plan = T.WSSchedule(
        num_warps=8,
        roles={"load": T.WSRole(0, 4), "use": T.WSRole(4, 8)},
        pipelines={name: T.WSPipeline(depth) for name in ("p", *pipelines)},
        scopes=[
            T.WSScope(
                "step",
                {"load": ["load"], "use": ["use"]},
                [T.WSSync("load", "use", "p")],
            ),
            *more,
        ],
    )

    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float32"),
        B: T.Tensor((64, 64), "float32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64, 64), "float32")
            F = T.alloc_fragment((64, 64), "float32")
            body(A, B, C, S, F)

    return main


@T.macro
def used_before(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        T.copy(S, F, annotations=named("use"))
        T.copy(A[k * 64, 0], S, annotations=named("load"))


@T.macro
def some_threads(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        if T.get_thread_binding() % 64 < 32:
            T.copy(A[k * 64, 0], S, annotations=named("load"))
            T.copy(S, F, annotations=named("use"))


@T.macro
def value_of_a_thread(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        if T.get_thread_binding() % 64 < 32:
            with T.ws_op("load"):
                S[T.get_thread_binding() % 64, 0] = A[k * 64, 0]
            with T.ws_op("use"):
                C[T.get_thread_binding() % 64, 0] = S[T.get_thread_binding() % 64, 0]


@T.macro
def half_of_it(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        T.copy(A[k * 64 : k * 64 + 32, 0:64], S[0:32, :], annotations=named("load"))
        T.copy(S, F, annotations=named("use"))


@T.macro
def left(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        T.copy(A[k * 64, 0], S, annotations=named("load"))
        with T.ws_op("use"):
            if B[k, 0] > 0:
                T.loop_break()
            T.copy(S, F)


@T.macro
def waits_itself(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        T.async_copy(A[k * 64, 0], S, annotations=named("load"))
        T.copy(S, F, annotations=named("use"))


@T.macro
def by_hand(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        with T.ws_op("load"):
            T.ptx_cp_async(S[0, T.get_thread_binding() % 16 * 4], A[k, 0], 16)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
        T.copy(S, F, annotations=named("use"))


@T.macro
def through_a_tensor(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        T.copy(A[k * 64, 0], S, annotations=named("load"))
        with T.ws_op("use"):
            T.copy(S, F)
            T.copy(F, A[k * 64, 0])


@T.macro
def value_of_a_tile(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        T.copy(A[k * 64, 0], S, annotations=named("load"))
        x = S[0, 0]
        for i, j in T.Parallel(64, 64, annotations=named("use")):
            F[i, j] = x


@T.macro
def value_of_a_role(A, B, C, S, F):
    count = T.alloc_var("int32", init=0)
    for k in T.serial(4, annotations=named("step")):
        with T.ws_op("load"):
            T.copy(A[k * 64, 0], S)
            count += 1
        with T.ws_op("use"):
            T.copy(S, F)
            B[0, 0] = count


@T.macro
def elsewhere(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        T.copy(A[k * 64, 0], S, annotations=named("load"))
        T.copy(S, F, annotations=named("use"))
    T.copy(S, C, annotations=named("later"))


@T.macro
def around(A, B, C, S, F):
    T.copy(B, S, annotations=named("first"))
    for k in T.serial(4, annotations=named("step")):
        T.copy(A[k * 64, 0], S, annotations=named("load"))
        T.copy(S, F, annotations=named("use"))
    T.copy(S, C, annotations=named("later"))


@T.macro
def two_loops(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        T.copy(A[k * 64, 0], S, annotations=named("load"))
        T.copy(S, F, annotations=named("use"))
    for k in T.serial(4, annotations=named("other")):
        T.copy(A[k * 64, 0], S, annotations=named("again"))


@T.macro
def no_tma(A, B, C, S, F):
    for k in T.serial(4, annotations=named("step")):
        if k > 1:
            T.copy(A[k * 64, 0], S, prefer_instruction="tma", annotations=named("load"))
        T.copy(S, F, annotations=named("use"))


AROUND = [("first", "later", "p"), ("first", "use", "p"), ("load", "later", "p")]


def kernel_scope(load, use, links):
    return T.WSScope(None, {"load": load, "use": use}, [T.WSSync(*link) for link in links])


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (two_roles(used_before), "found role 'use' using a buffer of pipeline 'p', which role"),
        (
            two_roles(some_threads),
            "found T.copy in a branch () that 128 threads that do not follow each other of 256",
        ),
        (
            two_roles(value_of_a_thread),
            "found a statement that role 'load' depends on and cannot run for itself: it depends "
            "on the thread's number; make it part of the one operation that needs it",
        ),
        (
            two_roles(half_of_it),
            "found a statement that reads more of S than statements before it have written in "
            "the same iteration, wanted that for the 2 versions of pipeline 'p'; give it depth=1",
        ),
        (two_roles(left), "found a jump out of a body whose roles wait for each other"),
        (
            two_roles(waits_itself),
            "found copies in operation 'load' that the program waits for itself, where pipeline "
            "'p' is to signal them, wanted T.copy",
        ),
        (
            two_roles(by_hand, depth=1),
            "found copies in operation 'load' that the program waits for itself",
        ),
        (
            two_roles(through_a_tensor),
            "found operation 'use' of role 'use' writing A, which operation 'load' of role 'load' "
            "reads at , wanted one role for both, or regions that are provably apart",
        ),
        (
            two_roles(value_of_a_tile),
            "found a statement that role 'use' depends on and cannot run for itself: it depends "
            "on S in shared memory",
        ),
        (
            two_roles(value_of_a_role),
            "found a statement that role 'use' depends on and cannot run for itself: it sets "
            "count, which another role reads",
        ),
        (
            two_roles(elsewhere, [kernel_scope([], ["later"], [("load", "later", "q")])], ["q"]),
            "found S in the pipelines 'p' and 'q', wanted one; write what the second role makes "
            "of it to another buffer",
        ),
        (
            two_roles(around, [kernel_scope(["first"], ["later"], AROUND)], depth=1),
            "found pipeline 'p' in a body and in one inside of it, wanted bodies apart; give each "
            "a pipeline of its own",
        ),
        (
            two_roles(two_loops, [T.WSScope("other", {"load": ["again"]})], depth=1),
            "found operation 'again' of role 'load' writing S, which operation 'use' of role 'use' "
            "reads at , wanted a T.WSSync between them, or one role for both",
        ),
        (
            gemm(schedule(scopes=[T.WSScope("k", LOOP.ops), with_syncs(*LOADS)])),
            "found 'load_a' and what pipeline 'ab' connects it with in another body than that of "
            "the scope which lists the T.WSSync; list it in the scope that has both",
        ),
        (
            two_roles(no_tma, depth=1),
            "found prefer_instruction=\"tma\" in operation 'load', where TMA makes no copy: it "
            "stands in a loop or a branch of its own; leave it out",
        ),
    ],
)
def test_a_dependence_that_a_schedule_does_not_keep_is_refused(refused, program, text):
    assert refused(program).startswith(text)


def stores_of_two_roles(offset):
    """Two roles write 64 of 128 rows each in every iteration, one of them from row `offset` on."""

    @T.macro
    def body(A, B, C, S, F):
        G = T.alloc_fragment((64, 64), "float32")
        for k in T.serial(2, annotations=named("step")):
            with T.ws_op("load"):
                T.copy(B, S)
                T.copy(B, G)
                T.copy(G, A[k * 128 + offset, 0])
            with T.ws_op("use"):
                T.copy(S, F)
                T.copy(F, A[k * 128 + 64, 0])

    return two_roles(body)


def test_regions_of_a_tensor_that_are_apart_in_any_two_iterations(refused):
    assert "tl::store" in tilelang.lower(stores_of_two_roles(0), target=SM_90).kernel_source
    text = refused(stores_of_two_roles(32))
    assert text.startswith("found operation 'use' of role 'use' writing A, which operation 'load'")


@T.macro
def adds_a_tile(C, F):
    T.atomic_add(C, F)


@T.macro
def adds_elements(C, F):
    for i, j in T.Parallel(64, 64):
        T.atomic_add(C[i, j], F[i, j])


@T.macro
def raises(C, F):
    T.atomic_max(C, F)


@T.macro
def adds_integers(C, F):
    V = T.view(C, C.shape, "int32")
    for i, j in T.Parallel(64, 64):
        T.atomic_add(V[i, j], 1)


@T.macro
def publishes(C, F):
    T.atomic_add(C, F, "release")


@T.macro
def numbers(C, F):
    for i, j in T.Parallel(64, 64):
        F[i, j] = T.atomic_add(C[i, j], 1, return_prev=True)


@T.macro
def reads(C, F):
    T.copy(C, F)


def updates_of_two_roles(first, second):
    """Two roles update the same elements of C."""

    @T.macro
    def body(A, B, C, S, F):
        G = T.alloc_fragment((64, 64), "float32")
        for _k in T.serial(2, annotations=named("step")):
            with T.ws_op("load"):
                T.copy(B, S)
                T.copy(B, G)
                first(C, G)
            with T.ws_op("use"):
                T.copy(S, F)
                second(C, F)

    return two_roles(body)


@pytest.mark.parametrize("first", [adds_a_tile, adds_elements])
@pytest.mark.parametrize("second", [adds_a_tile, adds_elements])
def test_two_roles_may_add_to_the_same_elements(first, second):
    program = updates_of_two_roles(first, second)
    assert "tl::atomic_add" in tilelang.lower(program, target=SM_90).kernel_source
    a, b = torch.zeros(256, 64), torch.arange(64 * 64.0).reshape(64, 64)
    c = torch.zeros(64, 64)
    tilelang.compile(program, target=SM_90)(a, b, c)
    assert torch.equal(c, 4 * b)


@pytest.mark.parametrize("second", [raises, adds_integers, publishes, numbers, reads])
def test_updates_of_two_roles_whose_order_counts(refused, second):
    text = refused(updates_of_two_roles(adds_a_tile, second))
    assert text.startswith("found operation 'use' of role 'use'")
    assert "wanted one role for both, or regions that are provably apart" in text


def test_roles_of_512_threads_have_all_registers():
    plan = T.WSSchedule(
        num_warps=16,
        roles={"load": T.WSRole(0, 4, 32), "mma": T.WSRole(4, 16, 160)},
        pipelines={"p": T.WSPipeline(1)},
        scopes=[
            T.WSScope("step", {"load": ["load"], "mma": ["use"]}, [T.WSSync("load", "use", "p")])
        ],
    )

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=512):
            T.annotate_ws_schedule(plan)
            S = T.alloc_shared((64, 64), "float32")
            for _k in T.serial(2, annotations=named("step")):
                T.copy(A, S, annotations=named("load"))
                T.copy(S, B, annotations=named("use"))

    source = tilelang.lower(main, target=SM_90).kernel_source
    assert "warpgroup_reg_dealloc<32>" in source
    assert "warpgroup_reg_alloc<160>" in source
