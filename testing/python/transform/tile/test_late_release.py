"""Where the consumer of a warp-specialised kernel releases the slots that its products read."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import schedule
from tilelang.layout import make_swizzled_layout

TARGET = {"kind": "cuda", "arch": "sm_90a"}
HOW = (
    {"asynchronous": "late"},
    {"order": "adversarial", "asynchronous": "early"},
    {"order": "random", "asynchronous": "random", "seed": 3},
)


def products(num_stages, inner=False):
    """The sum of the first `length` products, `outer` times; `inner`: doubled after each."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 512), "float16"),
        B: T.Tensor((64, 512), "float16"),
        C: T.Tensor((3, 64, 64), "float32"),
        outer: T.int32,
        length: T.int32,
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for i in T.serial(outer):
                T.clear(c)
                for k in T.Pipelined(length, num_stages=num_stages):
                    T.copy(A[0, k * 64], a)
                    T.copy(B[0, k * 64], b)
                    T.gemm(a, b, c, transpose_B=True)
                    if inner:
                        for x, y in T.Parallel(64, 64):
                            c[x, y] = c[x, y] * 2
                T.copy(c, C[i, 0, 0])

    return main


def two_products(length, num_stages=2, shared=False, blocks=1, rows=1, **pipeline):
    """For each 64 of 64 * `rows` rows the sum, halved before each, of products of a product, which
    is in registers or `shared` memory; the last one counts twice."""

    @T.prim_func
    def main(
        Q: T.Tensor((64 * rows, 64), "float16"),
        K: T.Tensor((64 * length, 64), "float16"),
        V: T.Tensor((64 * length, 64), "float16"),
        Out: T.Tensor((64 * rows, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            T.annotate_min_blocks_per_sm(blocks)
            q = T.alloc_shared((64, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            v = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            p_shared = T.alloc_shared((64, 64), "float16")
            if shared:
                # So that it stays there: RegisterOperands leaves tiles alone that have a layout.
                T.annotate_layout({p_shared: make_swizzled_layout(p_shared)})
            o = T.alloc_fragment((64, 64), "float32")
            for t in T.serial(rows) if rows > 1 else [0]:
                T.copy(Q[t * 64, 0], q)
                T.clear(o)
                for i in T.Pipelined(n, num_stages=num_stages, **pipeline):
                    T.copy(K[i * 64, 0], k)
                    T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                    for x, y in T.Parallel(64, 64):
                        factor = T.if_then_else(i == n - 1, 2, 1)
                        s[x, y] = s[x, y] * factor
                    for x, y in T.Parallel(64, 64):
                        o[x, y] = o[x, y] * 0.5
                    T.copy(s, p_shared if shared else p)
                    T.copy(V[i * 64, 0], v)
                    T.gemm(p_shared if shared else p, v, o)
                T.copy(o, Out[t * 64, 0])

    return main


def keys_as_values(num_stages=1, **pipeline):
    """The sum, halved before each, of (Q K^T) K for tiles of 64 rows of K, which comes in two
    pieces of 64 columns."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 128), "float16"),
        K: T.Tensor((256, 128), "float16"),
        Out: T.Tensor((64, 128), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            q = [T.alloc_shared((64, 64), "float16") for _ in "01"]
            k = [T.alloc_shared((64, 64), "float16") for _ in "01"]
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_shared((64, 64), "float16")
            o = [T.alloc_fragment((64, 64), "float32") for _ in "01"]
            for piece, tile in enumerate(q):
                T.copy(Q[0, piece * 64], tile)
                T.clear(o[piece])
            for i in T.Pipelined(n, num_stages=num_stages, **pipeline):
                T.copy(K[i * 64, 0], k[0])
                T.copy(K[i * 64, 64], k[1])
                T.gemm(q[0], k[0], s, transpose_B=True, clear_accum=True)
                T.gemm(q[1], k[1], s, transpose_B=True)
                T.copy(s, p)
                for tile in o:
                    for x, y in T.Parallel(64, 64):
                        tile[x, y] = tile[x, y] * 0.5
                T.gemm(p, k[0], o[0])
                T.gemm(p, k[1], o[1])
            T.copy(o[0], Out[0, 0])
            T.copy(o[1], Out[0, 64])

    return main


@pytest.fixture
def events(role_events):
    """What the consumer waits for and signals, with as many stages as the program has."""

    def run(func):
        with tilelang.transform.PassContext(config={"tl.second_choice.spare_shared": True}):
            return role_events(func, "i", "k")[-1]

    return run


AT_ONCE = ["for", "for", "acquire a_full", "commit", "wait 0", "release a_empty"]


@pytest.mark.parametrize("num_stages", [2, 3])
def test_one_product_is_in_flight(events, num_stages):
    loop = ["for", "acquire a_full", "commit", "wait 1", "release a_empty"]
    assert events(products(num_stages)) == ["for", *loop, "wait 0", "release a_empty"]


@pytest.mark.parametrize("options", [{"num_stages": 1}, {"num_stages": 2, "inner": True}])
def test_one_slot_or_a_use_of_the_sum_is_released_at_once(events, options):
    assert events(products(**options)) == AT_ONCE


def test_two_products_one_after_the_other_have_one_wait(events):
    first = ["for", "acquire k_full", "commit", "wait 0", "release k_empty", "release v_empty"]
    loop = [*first, "acquire v_full", "commit"]
    found = events(two_products(4, shared=True))
    assert found == ["acquire q_full", *loop, "wait 0", "release v_empty"]


OVERLAP = [
    *("acquire k_full", "commit", "acquire v_full", "commit"),
    *("wait 1", "release k_empty", "wait 0", "release v_empty"),
]


def test_two_products_at_once(events):
    begin = ["acquire q_full", "acquire k_full", "commit", "wait 0", "release k_empty"]
    end = ["acquire v_full", "commit", "wait 0", "release v_empty"]
    assert events(two_products(4)) == [*begin, "for", *OVERLAP, *end]


def test_what_a_loop_reads_is_released_in_its_last_iteration(events):
    """Behind the last product that reads it; behind a loop without iterations, too."""
    released = ["release k_empty", "release q_empty"]
    begin = ["acquire q_full", "acquire k_full", "commit", "wait 0", *released]
    loop = [*OVERLAP[:5], *released, "wait 0", "release v_empty"]
    end = ["acquire v_full", "commit", "wait 0", "release v_empty", "release q_empty"]
    assert events(two_products(4, rows=3)) == [*begin, "for", *loop, *end]
    begin = ["acquire q_full", "for", "acquire k_full", "commit", "wait 0", *released]
    end = ["release v_empty", "acquire v_full", "commit", "wait 0", "release v_empty"]
    assert events(two_products(4, rows=3, shared=True)) == [*begin, *end, "release q_empty"]


@pytest.mark.parametrize(
    "options", [{"num_stages": 1}, {"shared": True}, {"order": [*range(7)], "stage": [0] * 7}]
)
def test_when_two_products_are_not_run_at_once(events, options):
    assert "wait 1" not in events(two_products(4, **options))


SCORES = ["acquire k_0_full", "commit", "acquire k_1_full", "commit"]


def test_one_slot_is_released_behind_the_next_product(events):
    after = ["wait 0", "commit", "commit", "wait 1", "release k_0_empty"]
    found = events(keys_as_values())
    assert found == ["acquire q_0_full", "for", *SCORES, *after, "wait 0", "release k_1_empty"]


def test_slots_are_released_where_a_later_product_is_waited_for(events):
    """The scores of the next iteration; nothing is waited for twice."""
    released = ["release k_0_empty", "release k_1_empty"]
    found = events(keys_as_values(2))
    loop = ["for", *SCORES, "wait 0", *released, "commit", "commit"]
    assert found[: len(loop) + 1] == ["acquire q_0_full", *loop]


# The last products of an iteration run in front of the first ones of the next.
ROTATED = {"order": [0, 1, 4, 5, 6, 7, 8, 2, 3], "stage": [0, 0, 0, 0, 0, 0, 0, 1, 1]}


def test_slots_are_released_while_a_later_product_runs(events):
    """No product is in flight when an iteration ends: a wait for a part of them costs nothing."""
    found = events(keys_as_values(2, **ROTATED))
    loop = ["commit", "commit", *SCORES, "wait 3", "release k_0_empty", "wait 2"]
    begin = found.index("for") + 1
    assert found[begin:][: len(loop) + 1] == [*loop, "release k_1_empty"]


@pytest.mark.parametrize("options", [{}, {"num_stages": 2}, {"num_stages": 2, **ROTATED}])
def test_keys_as_values_of_any_length(options):
    func = keys_as_values(**options)
    kernel = tilelang.compile(func, target=TARGET, execution_backend="emulate")
    q, k = (torch.randint(-1, 2, (rows, 128)).half() for rows in (64, 256))
    for n in (0, 1, 2, 4):
        wanted = torch.zeros(64, 128)
        for tile in k[: 64 * n].split(64):
            wanted = wanted / 2 + ((q @ tile.T) @ tile).float()
        for how in HOW:
            out = torch.full((64, 128), -1.0)
            with schedule(**how):
                kernel(q, k, out, n)
            assert torch.equal(out, wanted)


@pytest.mark.parametrize(("blocks", "registers"), [(1, 240), (3, 136)])
def test_explained(blocks, registers):
    func = two_products(4, blocks=blocks)
    text = tilelang.compile(func, target=TARGET, execution_backend="emulate").explain()
    ahead = "1 step ahead, products of two iterations at a time"
    assert f"{ahead}, whose tiles take 80 of {registers} registers" in text


def test_blocks_that_share_the_registers_leave_too_few_for_two_products(events):
    assert "wait 1" not in events(two_products(4, blocks=4))


@pytest.mark.parametrize("num_stages", [2, 3])
def test_sums_of_any_length(num_stages):
    kernel = tilelang.compile(products(num_stages), target=TARGET, execution_backend="emulate")
    a, b = (torch.randint(-4, 5, (64, 512)).half() for _ in range(2))
    for outer, length in ((1, 0), (2, 1), (2, 2), (3, 5)):
        wanted = (a[:, : 64 * length] @ b[:, : 64 * length].T).float()
        for how in HOW:
            c = torch.full((3, 64, 64), -1.0)
            with schedule(**how):
                kernel(a, b, c, outer, length)
            assert torch.equal(c[:outer], wanted.expand(outer, -1, -1))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_two_products_of_any_length(shared, rows):
    func = two_products(4, shared=shared, rows=rows)
    kernel = tilelang.compile(func, target=TARGET, execution_backend="emulate")
    shapes = (64 * rows, 64), (256, 64), (256, 64)
    q, k, v = (torch.randint(-2, 3, shape).half() for shape in shapes)
    for n in (0, 1, 2, 4):
        wanted = torch.zeros(64 * rows, 64)
        for i in range(n):
            tile = slice(64 * i, 64 * i + 64)
            scores = (q @ k[tile].T).float() * (2 if i == n - 1 else 1)
            wanted = wanted / 2 + scores @ v[tile].float()
        for how in HOW:
            out = torch.full((64 * rows, 64), -1.0)
            with schedule(**how):
                kernel(q, k, v, out, n)
            assert torch.equal(out, wanted)
