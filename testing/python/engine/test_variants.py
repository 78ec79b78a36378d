"""Under which conditions the variants of a program are compiled, and their text in launch plans."""

import dataclasses

import pytest

import tilelang
import tilelang.language as T
from tilelang.engine.launch_plan import Condition, Guard, LaunchPlan
from tilelang.engine.variants import condition_of, variants_of

m, n, k = T.dynamic("m, n, k")
GIBI = 1 << 30


def copy(shape, tile=(64, 128), dtype="float16", strides=None, fact=None):
    """C = A in tiles."""
    kind = T.Tensor(shape, dtype) if strides is None else T.StridedTensor(shape, strides, dtype)

    @T.prim_func
    def main(A: kind, C: T.Tensor(shape, dtype)):
        with T.Kernel(
            T.ceildiv(shape[-1], tile[1]), T.ceildiv(shape[-2], tile[0]), threads=128
        ) as (bx, by):
            if fact is not None:
                T.assume(fact)
            S = T.alloc_shared(tile, dtype)
            at = [0] * (len(shape) - 2)
            T.copy(A[(*at, by * tile[0], bx * tile[1])], S)
            T.copy(S, C[(*at, by * tile[0], bx * tile[1])])

    return main


def named():
    """Numbers of tiles that have names, in the kernel and as an argument of a macro."""

    @T.macro
    def clear(tiles, A):
        for t in T.serial(tiles):
            for i in T.Parallel(32):
                A[0, t * 32 + i] = 0

    @T.prim_func
    def main(A: T.Tensor((m, n), "float16")):
        with T.Kernel(1, threads=128):
            rows = T.ceildiv(m, 64)
            for t in T.serial(rows):
                for i in T.Parallel(64):
                    A[t * 64 + i, 0] = 0
            clear(T.ceildiv(n, 32), A)

    return main


def conditions(program):
    return [condition_of(variant).script() for variant in variants_of(program)]


LAST = ["any sizes", "any sizes, any address"]


@pytest.mark.parametrize(
    ("program", "guarded"),
    [
        (copy((64, 128)), []),
        (copy((m, 128)), [f"m % 64 == 0 and 1 <= m <= {GIBI // 128}"]),
        (
            copy((m, n)),
            [
                "n % 128 == 0 and m % 64 == 0 and 1 <= m <= 1048576 and 1 <= n <= 1048576"
                f" and m * n <= {GIBI}",
                "n % 8 == 0",
                "n % 4 == 0",
                "n % 2 == 0",
            ],
        ),
        (
            named(),
            [
                "n % 32 == 0 and m % 64 == 0 and 1 <= m <= 1048576 and 1 <= n <= 1048576"
                f" and m * n <= {GIBI}",
                "n % 8 == 0",
                "n % 4 == 0",
                "n % 2 == 0",
            ],
        ),
        # The row of two bytes' elements decides, then the number of rows.
        (copy((m, n * 2)), [None, "n % 4 == 0", "n % 2 == 0"]),
        (copy((m, n), dtype="float32"), [None, "n % 4 == 0", "n % 2 == 0"]),
        (
            copy((m, n), dtype="float8_e4m3fn"),
            [None, "n % 16 == 0", "n % 8 == 0", "n % 4 == 0"],
        ),
        (copy((k, m, n)), [None, "n % 8 == 0", "n % 4 == 0", "n % 2 == 0"]),
        (
            copy((m, n), strides=(k, 1)),
            [None, *(f"k % {x} == 0 and n % {x} == 0" for x in (8, 4, 2))],
        ),
        # No size makes rows of 12 bytes, or elements that are no neighbours, multiples of 16.
        (copy((m, n, 6), tile=(64, 8)), [None]),
        (copy((m, 128), strides=(k, n)), [None]),
        # What the program states is not asked again.
        (copy((m, n), fact=n % 8 == 0), [None]),
        (copy((m, n), fact=n % 4 == 0), [None, "n % 8 == 0"]),
    ],
)
def test_conditions(program, guarded):
    found = conditions(program)
    assert found[len(guarded) :] == LAST
    for text, wanted in zip(found, guarded, strict=False):
        assert wanted is None or text == wanted


def relying_on_alignment():
    @T.prim_func
    def loads(A: T.Tensor((64, 4), "float32"), C: T.Tensor((64, 4), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            T.stg128(C[tx, 0], T.ldg128(A[tx, 0]))

    @T.prim_func
    def views(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            # An operator on a tile of wider elements than the tensor has.
            T.copy(T.view(A, (32,), "float64"), T.view(C, (32,), "float64"))

    @T.prim_func
    def packed(A: T.Tensor((64,), "int4"), C: T.Tensor((64,), "int4")):
        with T.Kernel(1, threads=32):
            T.copy(A, C)

    @T.prim_func
    def pointers(A: T.ptr, n: T.int32):
        with T.Kernel(1, threads=32):
            B = T.make_tensor(A, (n,), "float32")
            B[0] = 1

    return [loads, views, packed, pointers]


@pytest.mark.parametrize("program", relying_on_alignment(), ids=lambda p: p.attrs["global_symbol"])
def test_what_may_rely_on_alignment_has_no_variant_for_any_address(program):
    assert not any(text.endswith("any address") for text in conditions(program))


def test_the_plan_holds_the_guards():
    _, strides, *_, last, anywhere = variants_of(copy((m, n)))
    plan = tilelang.lower(strides, target="cuda -arch=sm_90a").launch_plan
    assert "    guard n % 8 == 0\n" in plan.script()
    assert plan.guards == (Guard(("n",), 8, 0, 0),)
    plan = dataclasses.replace(plan, others=(condition_of(last), condition_of(anywhere)))
    assert (
        "    else the variant for any sizes\n    else the variant for any sizes, any address"
        in (plan.script())
    )
    assert LaunchPlan.from_json(plan.to_json()) == plan
    plan = tilelang.lower(anywhere, target="cuda -arch=sm_90a").launch_plan
    assert "A: Tensor((m, n), float16, offset=A_offset)" in plan.script()
    assert LaunchPlan.from_json(plan.to_json()) == plan
    with pytest.raises(ValueError, match="symbolic dimension `z`"):
        dataclasses.replace(plan, others=(Condition((Guard(("z",), least=1),)),))


@pytest.mark.parametrize(
    ("guard", "text", "inside", "outside"),
    [
        (Guard(("m",), 8, 0, 0), "m % 8 == 0", [{"m": 0}, {"m": 16}], [{"m": 15}]),
        (Guard(("m",), least=1), "1 <= m", [{"m": 1}], [{"m": 0}]),
        (Guard(("m",), 0, 1, 4), "1 <= m <= 4", [{"m": 4}], [{"m": 5}]),
        (Guard(("m", "n"), most=6), "m * n <= 6", [{"m": 2, "n": 3}], [{"m": 7, "n": 1}]),
    ],
)
def test_a_guard_is_its_text(guard, text, inside, outside):
    assert guard.script() == text
    assert all(guard.holds(values) for values in inside)
    assert not any(guard.holds(values) for values in outside)


@pytest.mark.parametrize("variables", [(), ("a",) * 6])
def test_bad_guards_are_refused(variables):
    with pytest.raises(ValueError, match="is no guard, wanted 1 to 5 variables"):
        Guard(variables, most=1)


@pytest.mark.parametrize(
    ("number", "wide", "guarded", "tma"), [(0, 0, 0, 1), (1, 1, 1, 1), (2, 1, 1, 0)]
)
def test_what_guards_are_good_for(number, wide, guarded, tma):
    source = tilelang.lower(
        variants_of(copy((m, n)))[number], target="cuda -arch=sm_90a"
    ).kernel_source
    assert ("int64_t" in source) == bool(wide)
    assert ("< n" in source) == bool(guarded)
    assert ("tl::tma_store" in source) == bool(tma)


def test_tiles_without_a_rest_have_no_predicates():
    @T.prim_func
    def main(A: T.Tensor((m, n), "float16"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, 256), T.ceildiv(m, 8), threads=128) as (bx, by):
            for i, j in T.Parallel(8, 256):
                C[by * 8 + i, bx * 256 + j] = A[by * 8 + i, bx * 256 + j] + 1

    sources = [
        tilelang.lower(variant, target="cuda -arch=sm_90a").kernel_source
        for variant in variants_of(main)
    ]
    found = [("if (" in s, "int64_t" in s) for s in sources]
    assert found == [(False, False), *[(True, True)] * 5]
    widths = [[w for w in (8, 4, 2) if f" tl::load<half_t, {w}>" in s][:1] for s in sources]
    assert widths == [[8], [8], [4], [2], [], []]
