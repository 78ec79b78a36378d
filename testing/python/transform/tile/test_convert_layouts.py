"""Fragments that statements want in other threads: where the copies stand, and the results."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import schedule

STEPS = ("AddWrapperForSingleBufStore", "LayoutInference")


def text_of(statements, func, arch="sm_80"):
    return statements(func, *STEPS, arch=arch)


def with_accumulator(body):
    """A kernel with two products F and G and a free vector; `body` is a macro over them."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            G = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.gemm(S, S, F, clear_accum=True)
            T.gemm(S, S, G, transpose_B=True, clear_accum=True)
            body(F, G, C)

    return main


TO_SHARED, BACK = "{0}[0:64, 0:64], {0}_shared", "{0}_shared[0:64, 0:64], {0}[0:64, 0:64]"


def test_one_copy_serves_reads_up_to_the_next_change(statements):
    @T.macro
    def body(F, G, C):
        for i, j in T.Parallel(64, 64):
            F[i, j] += G[j, i]
        for i, j in T.Parallel(64, 64):
            F[i, j] *= G[63 - j, i]
        for i, j in T.Parallel(64, 64):
            G[i, j] += 1.0
        for i, j in T.Parallel(64, 64):
            C[i, j] = F[i, j] + G[j, i]

    text = text_of(statements, with_accumulator(body))
    assert text.count(TO_SHARED.format("G")) == 2
    assert "F_shared" not in text


def test_a_copy_stands_in_front_of_loops_that_do_not_change_the_fragment(statements):
    @T.macro
    def body(F, G, C):
        for _ in T.serial(3):
            for _ in T.serial(5):
                for i, j in T.Parallel(64, 64):
                    F[i, j] += G[j, i]
        T.copy(F, C)

    text = text_of(statements, with_accumulator(body))
    assert text.index(TO_SHARED.format("G")) < text.index("for ")
    assert text.count(TO_SHARED.format("G")) == 1


def test_a_copy_stays_in_a_loop_that_changes_the_fragment(statements):
    @T.macro
    def body(F, G, C):
        for _ in T.serial(3):
            T.copy(F, G)
            for i, j in T.Parallel(64, 64):
                F[i, j] += G[j, i]
        T.copy(F, C)

    text = text_of(statements, with_accumulator(body))
    assert text.index("in range(3)") < text.index(TO_SHARED.format("G"))


def test_a_fragment_lives_in_shared_memory_during_a_loop_that_wants_it_there(statements):
    @T.macro
    def body(F, G, C):
        for j in T.serial(1, 64):
            for i in T.Parallel(64):
                F[i, j] += F[i, j - 1]
        T.copy(F, C)

    text = text_of(statements, with_accumulator(body))
    into, loop, back = (
        text.index(part) for part in (TO_SHARED.format("F"), "in range(1, 64)", BACK.format("F"))
    )
    assert into < loop < back
    assert "F[" not in text[loop:back]


def test_what_only_a_loop_uses_is_not_copied_around_it(statements):
    """Nothing is there before, so that a copy would read what was never written."""

    @T.macro
    def body(F, G, C):
        for n in T.serial(1):
            H = T.alloc_fragment((64, 64), "float32")
            T.copy(G, H)
            for k in T.serial(64):
                for i, j in T.Parallel(64, 64):
                    if i > k:
                        H[i, j] -= F[i, k] * H[k, j]
            T.copy(H, C[n * 64, 0])

    text = text_of(statements, with_accumulator(body))
    assert "H_shared" in text
    assert "H[" not in text


def test_what_is_written_as_a_whole_is_not_copied_before(statements):
    @T.macro
    def body(F, G, C):
        for i, j in T.Parallel(64, 64):
            F[i, j] = 1.0
            G[j, i] = 2.0
        T.copy(G, C)

    text = text_of(statements, with_accumulator(body))
    assert TO_SHARED.format("G") not in text
    assert text.count(BACK.format("G")) == 1


def test_halves_of_a_free_fragment_lie_in_one_thread(statements):
    """The blocks of a dimension stay in the thread: nothing is converted."""

    @T.prim_func
    def main(A: T.Tensor((16, 64), "float32"), C: T.Tensor((16, 64), "float32")):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((16, 64), "float32")
            G = T.alloc_fragment((16, 64), "float32")
            T.copy(A, F)
            for i, d in T.Parallel(16, 32):
                G[i, d] = F[i, d] - F[i, d + 32]
                G[i, d + 32] = F[i, d] + F[i, d + 32]
            T.copy(G, C)

    assert "shared" not in text_of(statements, main)


def test_what_a_loop_walks_lies_in_one_thread(statements):
    """Who owns `F[k, i]` does not depend on k where nothing else places F: nothing is converted."""

    @T.prim_func
    def main(A: T.Tensor((3, 8), "float32"), C: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((3, 8), "float32")
            top = T.alloc_fragment((8,), "float32")
            total = T.alloc_fragment((8,), "float32")
            T.copy(A, F)
            T.fill(top, -T.infinity("float32"))
            T.clear(total)
            for k in T.serial(3):
                for i in T.Parallel(8):
                    top[i] = T.max(top[i], F[k, i])
                    total[i] += top[i]
            T.copy(total, C)

    assert "shared" not in text_of(statements, main)


def test_a_column_that_the_run_knows_is_written_from_elements_of_other_threads(statements):
    """The loop visits all of G for it, but reads what the statement says."""

    @T.macro
    def body(F, G, C):
        row = T.alloc_fragment((64,), "float32")
        T.reduce_sum(F, row, dim=1)
        for n in T.serial(64):
            for i in T.Parallel(64):
                G[i, n] = row[63 - i]
        T.copy(G, C)

    text = text_of(statements, with_accumulator(body))
    assert text.count("row[0:64], row_shared") == 1
    assert "= row_shared[63 - i]" in text


def test_one_element_in_all_threads_does_not_put_all_elements_there(statements):
    """Registers have no addresses: a thread that had all of `row` could not find its own."""

    @T.macro
    def body(F, G, C):
        row = T.alloc_fragment((64,), "float32")
        T.copy(C[0, :], row)
        last = row[63]
        for i, j in T.Parallel(64, 64):
            F[i, j] *= last - row[i]
        T.copy(F, C)

    text = text_of(statements, with_accumulator(body))
    assert "row[0:64], row_shared" in text
    assert "* (last - row[i])" in text


@T.prim_func
def of_one_warp(A: T.Tensor((16, 16), "float16"), C: T.Tensor((4, 16, 16), "float32")):
    with T.Kernel(1, threads=32):
        S = T.alloc_shared((16, 16), "float16")
        F = T.alloc_fragment((16, 16), "float32")
        H = T.alloc_fragment((16, 16), "float32")
        row = T.alloc_fragment((16,), "float32")
        T.copy(A, S)
        T.gemm(S, S, F, clear_accum=True)
        T.reduce_sum(F, row, dim=1)
        for _ in T.serial(3):
            for i, j in T.Parallel(16, 16):
                H[i, j] = F[i, j] + row[j] * 2
            T.copy(H, C[0, :, :])
        for i, j in T.Parallel(16, 16):
            H[i, j] = F[i, j] + F[j, i]
        T.copy(H, C[1, :, :])
        for i in T.Parallel(16):
            row[i] += 1.0
        for i, j in T.Parallel(16, 16):
            H[i, j] = F[i, j] + row[j] * row[i]
        T.copy(H, C[2, :, :])
        for i, j in T.Parallel(16, 16):
            H[i, j] = F[15 - i, j] + F[j, i]
        T.copy(H, C[3, :, :])


@pytest.fixture(scope="module")
def kernel_of_one_warp():
    return tilelang.compile(of_one_warp, target="cuda -arch=sm_80", execution_backend="auto")


def test_what_a_warp_holds_is_shuffled(statements):
    """In front of the loops that do not change it, once for all statements up to the next change;
    what goes to shared memory for one element of a statement, goes there for all."""
    text = text_of(statements, of_one_warp)
    assert text.index("row[0:16], row_lanes") < text.index("in range(3)")
    assert text.count("row[0:16], row_lanes") == 2
    assert text.count("F[0:16, 0:16], F_lanes[0:16, 0:16]") == 1
    assert text.count("F[0:16, 0:16], F_shared[0:16, 0:16]") == 1
    assert "row_shared" not in text


def test_results_of_shuffles(kernel_of_one_warp, device):
    a = torch.randint(-3, 4, (16, 16)).to(torch.float16)
    f, c = a.float() @ a.float(), torch.full((4, 16, 16), torch.nan, device=device)
    kernel_of_one_warp(a.to(device), c)
    row = f.sum(1)
    assert torch.equal(c[0].cpu(), f + 2 * row[None])
    assert torch.equal(c[1].cpu(), f + f.T)
    assert torch.equal(c[2].cpu(), f + (row[None] + 1) * (row[:, None] + 1))
    assert torch.equal(c[3].cpu(), f.flip(0) + f.T)
    told = kernel_of_one_warp.explain()
    assert told.count("T.copy row to row_lanes: by shuffles in a warp: 4 shfl") == 2
    assert "F to F_lanes: by shuffles in a warp: 8 shfl, because other lanes hold" in told


def test_shuffles_under_every_schedule(kernel_of_one_warp, device):
    if device == "cuda":
        pytest.skip("schedules are the emulator's")
    a = torch.randn(16, 16).half()
    results = []
    for seed in range(10):
        results.append(torch.full((4, 16, 16), torch.nan))
        with schedule(seed=seed):
            kernel_of_one_warp(a, results[-1])
    assert not results[0].isnan().any()
    assert all(torch.equal(c, results[0]) for c in results)


def test_both_layouts_of_the_users_are_refused():
    by_row = T.Fragment([64], forward_thread_fn=lambda i: i, forward_index_fn=lambda i: 0)
    turned = T.Fragment([64], forward_thread_fn=lambda i: 63 - i, forward_index_fn=lambda i: 0)

    @T.prim_func
    def main(C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((64,), "float32")
            T.annotate_layout({F: by_row})
            T.clear(F)
            for i in T.Parallel(64, loop_layout=turned):
                C[i] = F[i]

    with pytest.raises(ValueError, match=r"(?s)\.py:\d+: found an access of F from .*held as .*"):
        tilelang.lower(main, target="cuda -arch=sm_80")


FORMS = {
    "transposed read": lambda f, g, n: f + g.T,
    "rows as columns": lambda f, g, n: f.sum(1)[None] * 2 + f.sum(1)[:, None],
    "running sum": lambda f, g, n: f.cumsum(1),
    "neighbours by xor": lambda f, g, n: f + f[:, torch.arange(64) ^ 8],
    "an element of all": lambda f, g, n: f + f[3, 5],
    "an element that the run knows": lambda f, g, n: f + f[n, 63 - n],
    "gather": lambda f, g, n: f[(torch.arange(64) * 5 + n) % 64],
    "transposed write": lambda f, g, n: g.T,
    "one element written": lambda f, g, n: f.index_put(
        (torch.tensor([n]), torch.tensor([2])), torch.tensor(7.0)
    ),
    "condition": lambda f, g, n: f + (f[:4, 0] > 0).sum(),
    "while": lambda f, g, n: f + torch.arange(64)[f[0] > 0].sum() * 0,
    "vector of another owner": lambda f, g, n: f + (f.amax(1) + f.amax(0))[:, None],
}


@T.macro
def use_elsewhere(F, G, H, row, column, C, n):
    for i, j in T.Parallel(64, 64):
        H[i, j] = F[i, j] + G[j, i]
    T.copy(H, C[0, :, :])
    T.reduce_sum(F, row, dim=1)
    for i, j in T.Parallel(64, 64):
        H[i, j] = row[j] * 2 + row[i]
    T.copy(H, C[1, :, :])
    T.copy(F, H)
    for j in T.serial(1, 64):
        for i in T.Parallel(64):
            H[i, j] += H[i, j - 1]
    T.copy(H, C[2, :, :])
    for i, j in T.Parallel(64, 64):
        H[i, j] = F[i, j] + F[i, j ^ 8]
    T.copy(H, C[3, :, :])
    x = F[3, 5]
    for i, j in T.Parallel(64, 64):
        H[i, j] = F[i, j] + x
    T.copy(H, C[4, :, :])
    y = F[n, 63 - n]
    for i, j in T.Parallel(64, 64):
        H[i, j] = F[i, j] + y
    T.copy(H, C[5, :, :])
    for i, j in T.Parallel(64, 64):
        H[i, j] = F[(i * 5 + n) % 64, j]
    T.copy(H, C[6, :, :])
    for i, j in T.Parallel(64, 64):
        H[j, i] = G[i, j]
    T.copy(H, C[7, :, :])
    T.copy(F, H)
    H[n, 2] = 7.0
    T.copy(H, C[8, :, :])
    T.copy(F, H)
    for k in T.serial(4):
        if F[k, 0] > 0:
            for i, j in T.Parallel(64, 64):
                H[i, j] += 1
    T.copy(H, C[9, :, :])
    T.copy(F, H)
    k = T.alloc_var("int32", init=0)
    while k < 64 and F[0, k] <= 0:
        k += 1
    for i, j in T.Parallel(64, 64):
        H[i, j] += k * 0
    T.copy(H, C[10, :, :])
    T.reduce_max(F, row, dim=1)
    T.reduce_max(F, column, dim=0)
    for i in T.Parallel(64):
        row[i] += column[i]
    for i, j in T.Parallel(64, 64):
        H[i, j] = F[i, j] + row[i]
    T.copy(H, C[11, :, :])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    """Of accumulators as mma and as wgmma have them."""
    if device == "cuda" and arch == "sm_90a" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the GPU is not sm_90a")

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        C: T.Tensor((len(FORMS), 64, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            G = T.alloc_fragment((64, 64), "float32")
            H = T.alloc_fragment((64, 64), "float32")
            row = T.alloc_fragment((64,), "float32")
            column = T.alloc_fragment((64,), "float32")
            T.copy(A, S)
            T.gemm(S, S, F, clear_accum=True)
            T.gemm(S, S, G, transpose_B=True, clear_accum=True)
            use_elsewhere(F, G, H, row, column, C, n)

    kernel = tilelang.compile(main, execution_backend="auto", target=f"cuda -arch={arch}")
    a = torch.randint(-3, 4, (64, 64)).to(torch.float16)
    f, g = a.float() @ a.float(), a.float() @ a.float().T
    for n in (0, 41):
        c = torch.full((len(FORMS), 64, 64), torch.nan, device=device)
        kernel(a.to(device), c, n)
        wrong = [
            form
            for form, found in zip(FORMS, c.cpu(), strict=True)
            if not torch.equal(found, FORMS[form](f, g, n))
        ]
        assert not wrong
    assert "copied to shared memory" in kernel.explain()


def test_a_mask_in_a_fragment_steers_a_pipeline(device):
    """Its elements decide about copies that run ahead, and about products."""
    blocks, rows = 6, 32

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((blocks * rows, 64), "float16"),
        mask: T.Tensor((blocks,), "int32"),
        C: T.Tensor((64, rows), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "float16")
            k = T.alloc_shared((rows, 64), "float16")
            m = T.alloc_fragment((blocks,), "int32")
            acc = T.alloc_fragment((64, rows), "float32")
            T.copy(Q, q)
            T.copy(mask, m)
            T.clear(acc)
            for b in T.Pipelined(blocks, num_stages=2):
                if m[b] != 0:
                    T.copy(K[b * rows, 0], k)
                    T.gemm(q, k, acc, transpose_B=True)
            T.copy(acc, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_80", execution_backend="auto")
    assert "1 step ahead" in kernel.explain()
    q, k = (torch.randint(-3, 4, (n, 64)).to(torch.float16) for n in (64, blocks * rows))
    mask = torch.tensor([0, 1, 1, 0, 0, 1], dtype=torch.int32)
    c = torch.full((64, rows), torch.nan, device=device)
    kernel(q.to(device), k.to(device), mask.to(device), c)
    kept = k.reshape(blocks, rows, 64)[mask != 0].float().sum(0)
    assert torch.equal(c.cpu(), q.float() @ kept.T)


def test_a_condition_on_a_fragment_is_asked_again_after_a_continue(device):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((64,), "float32")
            T.copy(A, F)
            steps = T.alloc_var("int32", init=0)
            odd = T.alloc_var("int32", init=0)
            while F[steps] > 0:
                steps += 1
                if steps % 2 == 0:
                    continue
                odd += 1
            B[0] = steps
            B[1] = odd

    a = torch.ones(64)
    a[6] = -1
    b = torch.zeros(2, dtype=torch.int32, device=device)
    tilelang.compile(main)(a.to(device), b)
    assert b.tolist() == [6, 3]


@pytest.fixture(scope="module")
def rows_in_turn():
    """A loop walks the rows of an accumulator, and has vectors of its own."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            weight = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.copy(A, S)
            T.gemm(S, S, F, clear_accum=True)
            T.clear(total)
            for k in T.serial(64):
                for i in T.Parallel(64):
                    weight[i] = T.exp(F[k, i] * 0.01)
                    total[i] += weight[i]
            T.copy(total, C)

    return main


def test_a_loop_runs_as_it_is_written_where_that_converts_less(statements, rows_in_turn):
    """The loop over all of F would write vectors that other threads have, in each iteration."""
    text = text_of(statements, rows_in_turn)
    assert text.index(TO_SHARED.format("F")) < text.index("in range(64)")
    assert "total_shared" not in text
    assert "weight_shared" not in text


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_rows_in_turn(rows_in_turn, device, arch):
    if device == "cuda" and arch == "sm_90a" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the GPU is not sm_90a")
    kernel = tilelang.compile(rows_in_turn, execution_backend="auto", target=f"cuda -arch={arch}")
    a = torch.randint(-3, 4, (64, 64)).to(torch.float16)
    c = torch.full((64,), torch.nan, device=device)
    kernel(a.to(device), c)
    torch.testing.assert_close(c.cpu(), torch.exp((a.float() @ a.float()) * 0.01).sum(0))


@pytest.fixture(scope="module")
def weighted_sum():
    """Parts are added to an accumulator, one after the other."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        P: T.Tensor((4, 64, 64), "float32"),
        W: T.Tensor((4, 64), "float32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            parts = T.alloc_fragment((4, 64, 64), "float32")
            weights = T.alloc_fragment((4, 64), "float32")
            weight = T.alloc_fragment((64,), "float32")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.copy(P, parts)
            T.copy(W, weights)
            T.gemm(S, S, acc, clear_accum=True)
            for k in T.serial(4):
                for i in T.Parallel(64):
                    weight[i] = weights[k, i] * 2
                for i, d in T.Parallel(64, 64):
                    acc[i, d] += weight[i] * parts[k, i, d]
            T.copy(acc, C)

    return main


def test_a_dimension_that_the_accumulator_does_not_have_lies_in_one_thread(
    statements, weighted_sum
):
    """The loop runs where `acc` is; a thread has all parts of its elements."""
    assert "_shared" not in text_of(statements, weighted_sum)


def test_weighted_sum(device, weighted_sum):
    kernel = tilelang.compile(weighted_sum, execution_backend="auto", target="cuda -arch=sm_80")
    a = torch.randint(-3, 4, (64, 64)).to(torch.float16)
    parts, weights = (
        torch.randint(-3, 4, (4, 64, 64)).float(),
        torch.randint(-3, 4, (4, 64)).float(),
    )
    c = torch.full((64, 64), torch.nan, device=device)
    kernel(a.to(device), parts.to(device), weights.to(device), c)
    added = (2 * weights[:, :, None] * parts).sum(0)
    assert torch.equal(c.cpu(), a.float() @ a.float() + added)


def test_a_fragment_that_is_a_tile_during_a_loop_is_told():
    @T.macro
    def body(F, G, C):
        for j in T.serial(1, 64):
            for i in T.Parallel(64):
                F[i, j] += F[i, j - 1]
        T.copy(F, C)

    func = with_accumulator(body)
    mod = tilelang.lower(func, target="cuda -arch=sm_80").device_mod
    (notes,) = ([str(n) for n in f.attrs["tl.notes"]] for f in mod.functions.values())
    resident = [n for n in notes if "F: in shared memory during the loop, 16384 bytes" in n]
    assert len(resident) == 1
    assert any("F: copied to shared memory, 16384 bytes" in n for n in notes)
    assert any("F: copied back, 16384 bytes" in n for n in notes)


@pytest.mark.parametrize("leaves", [False, True])
def test_stores_of_a_loop_inside_make_the_elements_of_before_unneeded(statements, leaves):
    """Each thread of four has four columns in a row; the accumulator is written as a whole, unless
    the loop may leave some of it as it was."""

    @T.macro
    def body(F, G, C):
        for j in T.Parallel(16):
            for i in T.serial(64):
                for v in T.serial(4):
                    if leaves and v == 3:
                        T.loop_break()
                    F[i, j * 4 + v] = i
        for i, j in T.Parallel(64, 64):
            C[i, j] = F[i, j] + G[i, j]

    text = text_of(statements, with_accumulator(body))
    assert text.count("F_shared") > 1
    assert text.count(TO_SHARED.format("F")) == leaves
