"""Roles that a program writes by hand in a pipelined loop: what they pass on gets versions."""

import textwrap

import pytest
import torch

import tilelang
import tilelang.language as T

TARGET = {"kind": "cuda", "arch": "sm_90a"}
TRIPS = (0, 1, 2, 5, 7)
PASSES = ("Simplify", "NarrowThreads", "PipelinePlanning")

# One role fills, one stores.
PROGRAM = """\
@T.prim_func
def main(
    A: T.Tensor((64, 512), "float16"),
    B: T.Tensor((64, 512), "float16"),
    C: T.Tensor((64, 64), "float32"),
    n: T.int32,
):
    with T.Kernel(1, threads=256):
        tx = T.get_thread_binding()
        S = T.alloc_shared((64, 64), "float16")
        X = T.alloc_shared((64, 64), "float16")
        F = T.alloc_fragment((64, 64), "float32")
        full = T.alloc_barrier(128)
        empty = T.alloc_barrier(128)
        for k in T.Pipelined(n, num_stages=3):
            with T.ws(0):
                T.barrier_wait(empty, (k & 1) ^ 1)
                T.tma_copy(A[0, k * 64], S, barrier=full)
                T.barrier_arrive(full)
            with T.ws(1):
                T.barrier_wait(full, k & 1)
                T.copy(S, B[0, k * 64])
                T.barrier_arrive(empty)
"""
IN_FRONT = "        for k in T.Pipelined"
FILL = "                T.tma_copy(A[0, k * 64], S, barrier=full)\n"
FILLED = "                T.barrier_arrive(full)\n"
FREE = "                T.barrier_wait(empty, (k & 1) ^ 1)\n"
READY = "                T.barrier_wait(full, k & 1)\n"
USE = "                T.copy(S, B[0, k * 64])\n"
USED = "                T.barrier_arrive(empty)\n"


@pytest.fixture
def program(define):
    """The program with some of its text replaced: pairs of what was there and what is."""

    def make(*changes):
        text = PROGRAM
        for old, new in changes:
            assert text.count(old) == 1
            text = text.replace(old, new)
        return define(text)["main"]

    return make


def parities(full, empty):
    return ("full, k & 1", f"full, {full}"), ("empty, (k & 1) ^ 1", f"empty, {empty}")


@pytest.mark.parametrize(
    "changes",
    [
        (),
        parities("k % 2", "1 - k % 2"),
        parities("k % 2", "(k + 1) % 2"),
        parities("k // 3 % 2", "k // 3 % 2 ^ 1"),
        parities("(k // 3) & 1", "(k // 3 + 1) & 1"),
        # Names of values, and a thread that is chosen.
        ((FREE, "                p = k % 2\n                T.barrier_wait(empty, p ^ 1)\n"),),
        (
            ("full = T.alloc_barrier(128)", "full = T.alloc_barrier(1)"),
            (FILLED, "                if tx == 77:\n                    T.barrier_arrive(full)\n"),
        ),
    ],
    ids=range(7),
)
def test_slots_and_phases(program, statements, changes):
    text = statements(
        program(*changes), *PASSES, "InjectSoftwarePipeline", "Simplify", arch="sm_90a"
    )
    loop = [line for line in text[text.index("for k in") :].splitlines() if ": T.let" not in line]
    wanted = """\
for k in range(n):
    if tx < 128:
        T.attr([0, 128], "tl.thread_range", 1)
        T.tl.mbarrier_wait(T.address_of(empty[k % 3]), k % 6 // 3 ^ 1)
        T.tl.tma_copy(A[0:64, k * 64:k * 64 + 64], S[k % 3, 0:64, 0:64], full[k % 3])
        T.tl.mbarrier_arrive(T.address_of(full[k % 3]))
    if 128 <= tx:
        T.attr([128, 128], "tl.thread_range", 1)
        T.tl.mbarrier_wait(T.address_of(full[k % 3]), k % 6 // 3)
        T.tl.copy(S[k % 3, 0:64, 0:64], B[0:64, k * 64:k * 64 + 64])
        T.tl.mbarrier_arrive(T.address_of(empty[k % 3]))"""
    by_one = wanted.replace(
        "        T.tl.mbarrier_arrive(T.address_of(full[k % 3]))\n",
        "        if tx == 77:\n            T.tl.mbarrier_arrive(T.address_of(full[k % 3]))\n",
    )
    assert "\n".join(loop) == (by_one if "tx == 77" in text else wanted)


def within(around, count):
    """A change of the program: statements around its loop, of 5 iterations then, which `count`
    counts."""
    loop = PROGRAM[PROGRAM.index(IN_FRONT) :]
    lines = [" " * (8 + 4 * i) + line + "\n" for i, line in enumerate(around)]
    inner = loop.replace("k & 1", f"({count}) & 1").replace("Pipelined(n", "Pipelined(5")
    return loop, "".join(lines) + textwrap.indent(inner, " " * 4 * len(around))


def test_what_a_loop_around_counts(program, statements):
    """The slot and its phase are those of all iterations that the kernel has run."""
    func = program(within(["for r in T.serial(3):"], "r * 5 + k"))
    text = statements(func, *PASSES, "InjectSoftwarePipeline", "Simplify", arch="sm_90a")
    assert "mbarrier_wait(T.address_of(full[(r * 5 + k) % 3]), (r * 5 + k) % 6 // 3)" in text
    assert "mbarrier_wait(T.address_of(empty[(r * 5 + k) % 3]), (r * 5 + k) % 6 // 3 ^ 1)" in text
    assert "S[(r * 5 + k) % 3, 0:64, 0:64], full[(r * 5 + k) % 3])" in text


def behind(line, statement):
    """A change of the program: a statement behind a line of a role."""
    return line, line + " " * 16 + statement + "\n"


def third_role(*statements):
    """A change of the program: a T.ws behind the others, and the threads for it."""
    text = "".join(" " * 16 + s + "\n" for s in statements)
    return ("256", "384"), (USED, USED + " " * 12 + "with T.ws(2):\n" + text)


NEITHER = "is neither that of the number of iterations before"
NOT_READ = "S is filled at line 17 without a wait for those who have read it to their end"
NOT_WAITED_FOR = NOT_READ.replace("17", "18")
NO_ROLE = "it is not a T.ws, or stands around one"
FIRST_WAIT = "not all who arrive at mbarrier full first wait for who waits there at line "
ELSEWHERE = "mbarrier full is used outside of the loop's T.ws, or under a condition"
BY_INDEX = [(line, line.replace("full", "full[k % 3]")) for line in (FILL, FILLED, READY)]

REFUSED = {
    "another parity": (NEITHER, parities("k // 2 % 2", "k // 2 & 1 ^ 1")),
    "one barrier counts by versions": (NEITHER, parities("k // 3 % 2", "k % 2 ^ 1")),
    "no wait at empty": ("nothing in the loop waits at mbarrier empty", [(FREE, "")]),
    "no wait at full": ("nothing in the loop waits at mbarrier full", [(READY, "")]),
    "a wait behind the fill": (NOT_READ, [(FREE, ""), (FILL, FILL + FREE)]),
    "a wait behind the use": (
        "S is read at line 21 without a wait for those who fill it",
        [(READY, ""), (USE, USE + READY)],
    ),
    "an arrival in front of the use": (NOT_WAITED_FOR, [(USED, ""), (READY, USED + READY)]),
    "no arrival": ("empty takes 128 arrivals, and an iteration makes 0", [(USED, "")]),
    "two arrivals": (
        "mbarrier full takes 128 arrivals, and an iteration makes 256",
        [(FILLED, FILLED * 2)],
    ),
    "a role that nobody waits for": (
        FIRST_WAIT + "25",
        third_role("T.barrier_wait(full, k & 1)", "T.clear(F)"),
    ),
    "a role that waits for nobody": (
        FIRST_WAIT + "21",
        [
            ("full = T.alloc_barrier(128)", "full = T.alloc_barrier(2 * 128)"),
            *third_role("T.barrier_arrive(full)"),
        ],
    ),
    "threads that wait for nobody": (
        FIRST_WAIT + "22",
        [(FREE + FILL, f"{' ' * 16}if tx == 0:\n    {FREE}    {FILL}")],
    ),
    "an arrival in some iterations": (ELSEWHERE, [(FILLED, f"{' ' * 16}if k < 4:\n    {FILLED}")]),
    "an arrival in front of the loop": (ELSEWHERE, [(IN_FRONT, FILLED[8:] + IN_FRONT)]),
    "half of the tile": (
        "more of S is read than the loop writes",
        [(FILL, FILL.replace(", S,", ", S[0:32, :],"))],
    ),
    "a user who writes": ("a role both reads and writes S", [behind(USE, "T.fill(S, 0)")]),
    "what is loaded and stored": (
        "one role writes B, which another one uses",
        [(FILL, FILL.replace("A[", "B["))],
    ),
    "another buffer": (
        "X is read at line 20 without a wait for those who fill it",
        [behind(FILLED, "T.copy(X, A[0, 0])"), behind(USE, "T.fill(X, 0)")],
    ),
    "a use behind the loop": (
        "S is read outside of the loop",
        [(USED, USED + " " * 8 + "T.copy(S, C)\n")],
    ),
    "a branch around": (
        "the loop is in a branch in a loop",
        [within(["for r in T.serial(n):", "if r > 2:"], "r * 5 + k")],
    ),
    "a continue": (
        "a `continue` in a loop around skips iterations",
        [within([f"for r in T.serial(n):\n{' ' * 12}if r == 3: continue"], "r * 5 + k")],
    ),
    "a branch inside": (
        NO_ROLE,
        [(USED, USED + " " * 12 + "if k > 3:\n" + " " * 16 + "with T.ws(1): T.clear(F)\n")],
    ),
    "a barrier of all": (NO_ROLE, [(USED, USED + " " * 12 + "T.sync_threads()\n")]),
    "threads of both": (
        "some of its threads, not all, run another T.ws",
        [(USED, USED + " " * 12 + "with T.ws(0, 1): F[0, 0] = 0.0\n")],
    ),
    "slots of one mbarrier": (
        "mbarrier empty has one slot, mbarrier full has 3 slots",
        [("(128)\n        empty", "([128] * 3)\n        empty"), *BY_INDEX],
    ),
    "a product on its way": (NOT_WAITED_FOR, [(USE[16:-1], "T.wgmma_gemm(S, X, F)")]),
    "a store on its way": (NOT_WAITED_FOR, [(USE, USE.replace("T.copy", "T.tma_copy"))]),
}


@pytest.mark.parametrize(("told", "changes"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_understood_has_one_version(program, tile_passes, said, told, changes):
    """The loop is the program's, and a warning says why."""
    mod = tile_passes(program(*changes), *PASSES, arch="sm_90a")
    (entry,) = mod["main"].attrs["tl.pipelines"]
    (reason,) = (str(s["reason"]) for s in entry["statements"] if s["reason"])
    assert told in reason
    (warning,) = (text for text in said if "num_stages=3" in text)
    assert reason in warning
    assert "tl_pipeline_handshakes" not in mod.script()


# Three slots of the tile and of each mbarrier, by hand.
RING = [
    ("S = T.alloc_shared((64, 64)", "S = T.alloc_shared((3, 64, 64)"),
    ("full = T.alloc_barrier(128)", "full = T.alloc_barrier([128] * 3)"),
    ("empty = T.alloc_barrier(128)", "empty = T.alloc_barrier([128] * 3)"),
    (FREE, FREE.replace("empty, (k & 1) ^ 1", "empty[k % 3], k // 3 % 2 ^ 1")),
    (FILL, FILL.replace("S, barrier=full", "S[k % 3, :, :], barrier=full[k % 3]")),
    (FILLED, FILLED.replace("full", "full[k % 3]")),
    (READY, READY.replace("full, k & 1", "full[k % 3], (k // 3) & 1")),
    (USE, USE.replace("(S", "(S[k % 3, :, :]")),
    (USED, USED.replace("empty", "empty[k % 3]")),
]


def ring(*changes):
    """The program with slots by hand, and some of its text replaced, as one change."""
    text = PROGRAM
    for old, new in (*RING, *changes):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return PROGRAM, text


def ring_in_a_loop():
    _, text = ring()
    head, loop = text[: text.index(IN_FRONT)], text[text.index(IN_FRONT) :]
    for old, new in (("(n, ", "(5, "), ("k %", "(r * 5 + k) %"), ("k //", "(r * 5 + k) //")):
        loop = loop.replace(old, new)
    return PROGRAM, f"{head}        for r in T.serial(2):\n{textwrap.indent(loop, ' ' * 4)}"


RINGS = {
    "as versions": ring(),
    "a name for the slot": ring(
        (RING[6][1], " " * 16 + "slot = k % 3\n" + RING[6][1].replace("full[k % 3]", "full[slot]"))
    ),
    "a loop around": ring_in_a_loop(),
}


@pytest.mark.parametrize("change", RINGS.values(), ids=RINGS)
def test_slots_by_hand_need_no_versions(program, tile_passes, said, change):
    mod = tile_passes(program(change), *PASSES, "InjectSoftwarePipeline", arch="sm_90a")
    (entry,) = mod["main"].attrs["tl.pipelines"]
    assert dict(entry["slots"]) == {"S": 3, "full": 3, "empty": 3}
    assert not entry["versions"]
    assert not [text for text in said if "num_stages" in text]
    assert "S = T.sblock_alloc_buffer((3, 64, 64)" in mod.script()


def test_slots_by_hand_run_ahead(program):
    kernel = compiled(program(ring()))
    assert "slots that the program has itself: S 3, empty 3, full 3" in kernel.explain()
    a = torch.randn(64, 512).half()
    for n in TRIPS:
        b = torch.zeros_like(a)
        kernel(a, b, torch.zeros(64, 64), n)
        assert torch.equal(b[:, : 64 * n], a[:, : 64 * n])
        assert not b[:, 64 * n :].any()


NO_RINGS = {
    "another slot": (
        "the index of mbarrier full is neither a constant nor the number of iterations",
        ring(("T.barrier_wait(full[k % 3]", "T.barrier_wait(full[(k + 1) % 3]")),
    ),
    "another phase": (
        "is not that of the number of iterations before, divided by the 3 slots",
        ring(("(k // 3) & 1", "k & 1")),
    ),
    "one slot of the tile": (
        "its mbarriers have 3 slots, S has one",
        ring(("(3, 64, 64)", "(64, 64)"), ("S[k % 3, :, :], b", "S, b"), ("(S[k % 3, :, :]", "(S")),
    ),
    "more slots of one mbarrier": (
        "mbarrier empty has 4 slots, mbarrier full has 3 slots",
        ring(
            ("empty = T.alloc_barrier([128] * 3)", "empty = T.alloc_barrier([128] * 4)"),
            ("empty[k % 3], k // 3", "empty[k % 4], k // 4"),
            ("arrive(empty[k % 3]", "arrive(empty[k % 4]"),
        ),
    ),
    "different arrivals": (
        "the mbarriers of full take different numbers of arrivals",
        ring(("full = T.alloc_barrier([128] * 3)", "full = T.alloc_barrier([128, 1, 128])")),
    ),
    "a slot behind the loop": (
        "S is used outside of the loop",
        ring((RING[-1][1], RING[-1][1] + " " * 8 + "T.copy(S[0, :, :], C)\n")),
    ),
    "no wait at empty": ("nothing in the loop waits at mbarrier empty", ring((RING[3][1], ""))),
}


@pytest.mark.parametrize(("told", "change"), NO_RINGS.values(), ids=NO_RINGS)
def test_slots_that_are_not_understood(program, tile_passes, said, told, change):
    mod = tile_passes(program(change), *PASSES, arch="sm_90a")
    (warning,) = (text for text in said if "num_stages=3" in text)
    assert told in warning
    assert "tl_pipeline_handshakes" not in mod.script()


def late(use="", condition="k > 0", slot="k - 1", wait=""):
    """The ring whose user releases a slot an iteration later, by another use and wait."""
    used = f"{' ' * 16}if {condition}:\n{' ' * 20}T.barrier_arrive(empty[({slot}) % 3])\n"
    changes = [(RING[-1][1], "".join(" " * 16 + t + "\n" for t in (wait,) if t) + used)]
    if use:
        changes.append((RING[-2][1], f"{' ' * 16}{use}\n"))
    return ring(*changes)


PRODUCT = "T.wgmma_gemm(S[k % 3, :, :], X, F)"


@pytest.mark.parametrize(
    "change",
    [
        late(),
        late(condition="k >= 1", slot="k + 2"),
        late(PRODUCT, wait="T.wait_wgmma(1)"),
        late(PRODUCT, wait="T.wait_wgmma(0)"),
    ],
    ids=range(4),
)
def test_slots_that_are_released_late(program, tile_passes, said, change):
    mod = tile_passes(program(change), *PASSES, "InjectSoftwarePipeline", arch="sm_90a")
    (entry,) = mod["main"].attrs["tl.pipelines"]
    assert entry["late"]
    assert not [text for text in said if "num_stages" in text]


@pytest.mark.parametrize(
    ("told", "change"),
    [
        (NOT_READ.replace("17", "18"), late(PRODUCT)),
        (NOT_READ.replace("17", "18"), late(PRODUCT, wait="T.wait_wgmma(2)")),
        ("the index of mbarrier empty is neither", late(condition="k > 1")),
        ("the index of mbarrier empty is neither", late(slot="k - 2")),
    ],
    ids=["no wait", "two on their way", "another condition", "another slot"],
)
def test_slots_that_may_be_in_use(program, tile_passes, said, told, change):
    tile_passes(program(change), *PASSES, arch="sm_90a")
    (warning,) = (text for text in said if "num_stages=3" in text)
    assert told in warning


def again(
    condition="k > 0", last="t * n + n - 1", when="n > 0", groups="1", wait="T.wait_wgmma(0)"
):
    """The late ring in a loop around it: what the last iteration lacks stands behind it."""
    return f"""\
@T.prim_func
def main(
    A: T.Tensor((64, 512), "float16"),
    B: T.Tensor((64, 512), "float16"),
    C: T.Tensor((3, 64, 64), "float32"),
    n: T.int32,
):
    with T.Kernel(1, threads=256):
        S = T.alloc_shared((3, 64, 64), "float16")
        X = T.alloc_shared((64, 64), "float16")
        F = T.alloc_fragment((64, 64), "float32")
        full = T.alloc_barrier([128] * 3)
        empty = T.alloc_barrier([128] * 3)
        T.copy(B[0, 0], X)
        for t in T.serial(3):
            with T.ws(1):
                T.clear(F)
            for k in T.Pipelined(n, num_stages=3):
                with T.ws(0):
                    T.barrier_wait(empty[(t * n + k) % 3], (t * n + k) // 3 % 2 ^ 1)
                    T.tma_copy(
                        A[0, k * 64], S[(t * n + k) % 3, :, :], barrier=full[(t * n + k) % 3]
                    )
                    T.barrier_arrive(full[(t * n + k) % 3])
                with T.ws(1):
                    T.barrier_wait(full[(t * n + k) % 3], (t * n + k) // 3 % 2)
                    T.wgmma_gemm(S[(t * n + k) % 3, :, :], X, F)
                    T.wait_wgmma(1)
                    if {condition}:
                        T.barrier_arrive(empty[(t * n + k - 1) % 3])
            with T.ws({groups}):
                {wait}
                if {when}:
                    T.barrier_arrive(empty[({last}) % 3])
            with T.ws(1):
                T.copy(F, C[t, :, :])
"""


@pytest.mark.parametrize("last", ["t * n + n - 1", "(t + 1) * n + 2"])
def test_the_last_arrival_stands_behind_the_loop(define, tile_passes, said, last):
    mod = tile_passes(define(again(last=last))["main"], *PASSES, arch="sm_90a")
    assert "tl_pipeline_handshakes" in mod.script()
    assert not [text for text in said if "num_stages" in text]


def test_results_of_a_loop_with_its_last_arrival_behind_it(define):
    kernel = compiled(define(again())["main"])
    assert "released an iteration late" in kernel.explain()
    a, b = torch.randn(64, 512).half(), torch.randn(64, 512).half()
    for n in (0, 1, 2, 5):
        c = torch.full((3, 64, 64), torch.nan)
        kernel(a, b, c, n)
        wanted = sum(a[:, 64 * k : 64 * k + 64].double() @ b[:, :64].double() for k in range(n))
        wanted = torch.zeros(64, 64).double() + wanted
        torch.testing.assert_close(c.double(), wanted.expand(3, 64, 64), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"last": "t * n + n - 2"},
        {"when": "n > 1"},
        {"when": "t >= 0"},
        {"groups": "0", "wait": "pass"},
        {"wait": "T.wait_wgmma(1)"},
        {"condition": "t * n + k > 0"},
    ],
    ids=lambda change: str(change),
)
def test_last_arrivals_that_are_others(define, tile_passes, said, change):
    """Another slot, another condition, of another role, before its products have ended, one too
    many."""
    mod = tile_passes(define(again(**change))["main"], *PASSES, arch="sm_90a")
    assert "tl_pipeline_handshakes" not in mod.script()
    (warning,) = (text for text in said if "num_stages=3" in text)
    assert "mbarrier" in warning or "the arrivals behind the loop" in warning


def test_a_product_releases_slots_late():
    """Beside the next one, in a ring of three."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 448), "float16"),
        B: T.Tensor((448, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((3, 64, 64), "float16")
            W = T.alloc_shared((3, 64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            full = T.alloc_barrier([128] * 3)
            empty = T.alloc_barrier([128] * 3)
            with T.ws(1):
                T.clear(F)
            for k in T.Pipelined(n, num_stages=3):
                slot = k % 3
                with T.ws(0):
                    T.barrier_wait(empty[slot], k // 3 % 2 ^ 1)
                    T.tma_copy(A[0, k * 64], S[slot, :, :], barrier=full[slot])
                    T.tma_copy(B[k * 64, 0], W[slot, :, :], barrier=full[slot])
                    T.barrier_arrive(full[slot])
                with T.ws(1):
                    T.barrier_wait(full[slot], k // 3 % 2)
                    T.wgmma_gemm(S[slot, :, :], W[slot, :, :], F)
                    T.wait_wgmma(1)
                    if k > 0:
                        T.barrier_arrive(empty[(k - 1) % 3])
            with T.ws(1):
                T.wait_wgmma(0)
                T.copy(F, C)

    kernel = compiled(main)
    told = (
        "slots that the program has itself: S 3, W 3, empty 3, full 3, released an iteration late"
    )
    assert told in kernel.explain()
    a, b = torch.randn(64, 448).half(), torch.randn(448, 64).half()
    for n in TRIPS:
        c = torch.empty(64, 64)
        kernel(a, b, c, n)
        wanted = a[:, : 64 * n].double() @ b[: 64 * n].double()
        torch.testing.assert_close(c.double(), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("wait", "use"),
    [
        ("T.wait_wgmma(0)", "T.wgmma_gemm(S, X, F)"),
        ("T.tma_store_wait()", "T.tma_copy(S, B[0, k * 64]); T.tma_store_arrive()"),
    ],
)
def test_an_engine_that_is_waited_for(program, tile_passes, wait, use):
    func = program((USE, f"                {use}\n                {wait}\n"))
    assert "tl_pipeline_handshakes" in tile_passes(func, *PASSES, arch="sm_90a").script()


@pytest.mark.parametrize("understood", [True, False])
def test_one_stage_is_one_version(program, tile_passes, said, understood):
    """As the program says it: nothing to warn of."""
    stage = ("num_stages=3", "num_stages=1")
    func = program(stage) if understood else program(stage, (USED, ""))
    mod = tile_passes(func, *PASSES, "InjectSoftwarePipeline", arch="sm_90a")
    (entry,) = mod["main"].attrs["tl.pipelines"]
    assert not entry["versions"] if understood else "versions" not in entry
    assert "T.address_of(full[0]), k & 1)" in mod.script()
    assert not [text for text in said if "num_stages" in text]


def compiled(func):
    return tilelang.compile(func, target=TARGET, execution_backend="emulate")


def test_a_product_of_three_roles_again_and_again():
    """One thread fills, a product and a sum use the tiles, in a loop around."""

    @T.prim_func
    def main(
        A: T.Tensor((3, 64, 224), "float16"),
        B: T.Tensor((224, 64), "float16"),
        C: T.Tensor((3, 64, 64), "float32"),
        D: T.Tensor((3, 64, 32), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((64, 32), "float16")
            W = T.alloc_shared((32, 64), "float16")
            staged = T.alloc_shared((64, 64), "float32")
            F = T.alloc_fragment((64, 64), "float32")
            G = T.alloc_fragment((64, 32), "float32")
            bars = T.alloc_barrier([1, 256])
            for r in T.serial(3):
                with T.ws(1):
                    T.clear(F)
                with T.ws(2):
                    T.clear(G)
                for k in T.Pipelined(n, num_stages=4):
                    phase = (r * n + k) // 4 % 2
                    with T.ws(0):
                        if T.shuffle_elect(128):
                            T.barrier_wait(bars[1], phase ^ 1)
                            T.tma_copy(A[r, 0, k * 32], S, barrier=bars[0])
                            T.tma_copy(B[k * 32, 0], W, barrier=bars[0])
                            T.barrier_arrive(bars[0])
                    with T.ws(1):
                        T.barrier_wait(bars[0], phase)
                        T.gemm(S, W, F)
                        T.barrier_arrive(bars[1])
                    with T.ws(2):
                        T.barrier_wait(bars[0], phase)
                        for i, j in T.Parallel(64, 32):
                            G[i, j] += S[i, j]
                        T.barrier_arrive(bars[1])
                with T.ws(1):
                    T.copy(F, staged)
                    T.copy(staged, C[r, 0, 0])
                with T.ws(2):
                    T.copy(G, D[r, 0, 0])

    kernel = compiled(main)
    assert "versions of buffers: S 4, W 4, bars 4\n    barriers in a step: 0\n" in kernel.explain()
    a, b = torch.randn(3, 64, 224).half(), torch.randn(224, 64).half()
    for n in TRIPS:
        c, d = torch.empty(3, 64, 64), torch.empty(3, 64, 32)
        kernel(a, b, c, d, n)
        wanted = a[:, :, : 32 * n].double() @ b[: 32 * n].double()
        torch.testing.assert_close(c.double(), wanted, rtol=1e-3, atol=1e-3)
        sums = a[:, :, : 32 * n].reshape(3, 64, n, 32).float().sum(2)
        torch.testing.assert_close(d, sums, rtol=1e-3, atol=1e-3)


def test_a_chain_of_roles():
    """Threads fill, others compute the next tile, which an engine stores; the role in the middle
    reads one tile and fills another."""

    @T.prim_func
    def main(A: T.Tensor((7, 64, 64), "float16"), B: T.Tensor((7, 64, 64), "float16"), n: T.int32):
        with T.Kernel(1, threads=384):
            X = T.alloc_shared((64, 64), "float16")
            Y = T.alloc_shared((64, 64), "float16")
            x_full = T.alloc_barrier(128)
            x_empty = T.alloc_barrier(128)
            y_full = T.alloc_barrier(128)
            y_empty = T.alloc_barrier(128)
            for k in T.Pipelined(n, num_stages=3):
                with T.ws(0):
                    T.barrier_wait(x_empty, (k & 1) ^ 1)
                    T.copy(A[k, 0, 0], X)
                    T.barrier_arrive(x_full)
                with T.ws(1):
                    T.barrier_wait(x_full, k & 1)
                    T.barrier_wait(y_empty, (k & 1) ^ 1)
                    for i, j in T.Parallel(64, 64):
                        Y[i, j] = X[i, j] + X[i, j]
                    T.barrier_arrive(x_empty)
                    T.barrier_arrive(y_full)
                with T.ws(2):
                    T.barrier_wait(y_full, k & 1)
                    T.copy(Y, B[k, 0, 0])
                    T.barrier_arrive(y_empty)

    kernel = compiled(main)
    told = kernel.explain()
    assert "versions of buffers: X 3, Y 3, x_empty 3, x_full 3, y_empty 3, y_full 3\n" in told
    a = torch.randn(7, 64, 64).half()
    for n in TRIPS:
        b = torch.zeros_like(a)
        kernel(a, b, n)
        assert torch.equal(b[:n], 2 * a[:n])
        assert not b[n:].any()
