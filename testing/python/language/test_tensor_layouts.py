"""T.annotate_layout on tensors in global memory: where their elements are put and found, that
vectors and guards see the right indices, and what is refused."""

import re

import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang import transform

HOPPER = "cuda -arch=sm_90a"


def by_lanes(b, p, h, d):
    """The 32 lanes of a warp add each register of an accumulator to consecutive elements."""
    return [b, p // 8, h, d // 8, d % 2, 4 * (p % 8) + d % 8 // 2]


def by_threads(b, p, h, d):
    """A thread's four registers of a 16x8 accumulator are consecutive elements."""
    return [b, p // 16, h, d // 8, (4 * (p % 8) + d % 8 // 2) * 4 + p % 16 // 8 * 2 + d % 2]


def placed(x, layout):
    """What lies in memory where the elements of `x` are put by `layout`."""
    indices = torch.meshgrid(*map(torch.arange, x.shape), indexing="ij")
    place = torch.zeros(x.shape, dtype=torch.int64)
    for coordinate in layout(*indices):
        place = place * (int(coordinate.max()) + 1) + coordinate
    out = torch.full_like(x.reshape(-1), float("nan"))
    out[place.reshape(-1)] = x.reshape(-1)
    return out.reshape(x.shape)


def adds(layout, length, depth=64, rounds=2):
    """dQ += A @ W in `rounds` rounds, as the backward pass of attention adds its dQ."""

    @T.prim_func
    def main(
        A: T.Tensor((1, length, 2, depth), "float16"),
        W: T.Tensor((depth, depth), "float16"),
        dQ: T.Tensor((1, length, 2, depth), "float32"),
    ):
        with T.Kernel(T.ceildiv(length, 64), 2, threads=128) as (bx, by):
            if not isinstance(length, int):
                T.assume(length % 16 == 0)
            rows = T.alloc_shared((64, depth), "float16")
            weights = T.alloc_shared((depth, depth), "float16")
            out = T.alloc_fragment((64, depth), "float32")
            T.annotate_layout({dQ: T.Layout(dQ.shape, layout)})
            T.copy(W, weights)
            for _ in T.Pipelined(rounds, num_stages=2):
                T.copy(A[0, bx * 64 : bx * 64 + 64, by, :], rows)
                T.gemm(rows, weights, out, clear_accum=True)
                for i, j in T.Parallel(64, depth):
                    T.atomic_add(dQ[0, bx * 64 + i, by, j], out[i, j])

    return main


def reads_back(layout, length, depth=64):
    @T.prim_func
    def main(
        dQ: T.Tensor((1, length, 2, depth), "float32"),
        out: T.Tensor((1, length, 2, depth), "float16"),
    ):
        with T.Kernel(T.ceildiv(length, 64), 2, threads=128) as (bx, by):
            if not isinstance(length, int):
                T.assume(length % 16 == 0)
            T.annotate_layout({dQ: T.Layout(dQ.shape, layout)})
            T.copy(dQ[0, bx * 64 : bx * 64 + 64, by, :], out[0, bx * 64 : bx * 64 + 64, by, :])

    return main


def emulated(func, target="cuda -arch=sm_80"):
    return tilelang.compile(func, target=target, execution_backend="emulate")


@pytest.fixture(scope="module", params=["cuda -arch=sm_80", HOPPER])
def dynamic(request):
    length = T.dynamic("length")
    writer = emulated(adds(by_lanes, length), request.param)
    return writer, emulated(reads_back(by_lanes, length), request.param)


@pytest.mark.parametrize("length", [16, 48, 64, 144])
def test_one_kernel_adds_and_another_reads_back(dynamic, length):
    writer, reader = dynamic
    a, w = torch.randn(1, length, 2, 64).half(), torch.randn(64, 64).half()
    dq, out = torch.zeros(1, length, 2, 64), torch.zeros(1, length, 2, 64).half()
    writer(a, w, dq)
    wanted = 2 * (a.float() @ w.float())
    torch.testing.assert_close(dq, placed(wanted, by_lanes), rtol=1e-3, atol=1e-3)
    reader(dq, out)
    torch.testing.assert_close(out.float(), wanted, rtol=2e-3, atol=2e-3)


def atomics(kernel):
    found = re.findall(r"tl::atomic_add<.*;", kernel.get_kernel_source())
    assert found
    return found


def test_lanes_add_to_consecutive_elements(dynamic):
    for line in atomics(dynamic[0]):
        assert re.search(r"\+ tx % 32( - \d+)?, out", line), line


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", HOPPER])
def test_what_a_thread_has_side_by_side_is_added_in_vectors(target):
    writer = emulated(adds(by_threads, 128), target)
    vectors = [line for line in atomics(writer) if "tl::load<float, 4>" in line]
    # Four floats from sm_90 on (PTX ISA, red).
    assert bool(vectors) == (target == HOPPER)
    a, w, dq = (
        torch.randn(1, 128, 2, 64).half(),
        torch.randn(64, 64).half(),
        torch.zeros(1, 128, 2, 64),
    )
    writer(a, w, dq)
    wanted = 2 * (a.float() @ w.float())
    torch.testing.assert_close(dq, placed(wanted, by_threads), rtol=1e-3, atol=1e-3)


def test_a_tensor_too_large_for_a_table():
    """Sixteen million elements, by their digits; the program shows the layout and its box."""
    mod = tvm.IRModule({"main": adds(by_lanes, 4096 * 32, depth=64)})
    target = tilelang.utils.target.determine_target(HOPPER, return_object=True)
    with transform.PassContext():
        for step in (
            transform.BindTarget(target),
            transform.HoistViews(),
            transform.MaterializeKernelLaunch(),
            transform.CheckTensorLayouts(),
        ):
            mod = step(mod)
    text = mod.script(show_meta=False)
    assert '"tensor_boxes": {dQ: [1, 16384, 2, 8, 2, 32]}' in text
    assert "Layout(i < 1, j < 131072, k < 2, l < 64) -> (0, j // 8, k, l // 8, l % 2, j % 8" in text


def swizzled(i, j):
    return [j // 8, i, j % 8]


def test_every_access_goes_through_the_layout():
    """Copies, fills, loops, scalars, atomics, what a reduction writes, a view of the tensor."""

    @T.prim_func
    def main(
        A: T.Tensor((24, 32), "float32"),
        B: T.Tensor((9, 24, 32), "float32"),
        total: T.Tensor((9, 24), "float32"),
    ):
        with T.Kernel(1, threads=64) as _:
            tx = T.get_thread_binding()
            T.annotate_layout({B: lambda n, i, j: [n, *swizzled(i, j)], total: lambda n, i: [i, n]})
            tile = T.alloc_shared((24, 32), "float32")
            part = T.alloc_fragment((24, 32), "float32")
            sums = T.alloc_fragment((24,), "float32")
            rows = T.reshape(B, (9 * 24, 32))
            T.copy(A, tile)
            T.copy(tile, B[0, :, :])
            T.copy(A, part)
            T.copy(part, B[1, :, :])
            T.fill(B[2, :, :], 3)
            for i, j in T.Parallel(24, 32):
                B[3, i, j] = A[i, j] + B[2, i, j]
            for i in T.serial(12):
                B[4, i * 2 + tx // 32, tx % 32] = A[i * 2 + tx // 32, tx % 32] * 2
            T.atomic_add(B[5, :, :], part)
            for i, j in T.Parallel(24, 32):
                T.atomic_max(B[8, i, j], A[i, j])
                rows[6 * 24 + i, j] = A[i, j] - 1
            T.copy(B[6, :, :], tile)
            for i, j in T.Parallel(24, 32):
                B[7, i, j] = tile[i, j] + T.__ldg(B[0, i, j])
            T.reduce_sum(part, sums, dim=1)
            T.copy(sums, total[3, :])

    a, b, total = torch.randn(24, 32), torch.zeros(9, 24, 32), torch.zeros(9, 24)
    emulated(main)(a, b, total)
    found = b.reshape(9, 4, 24, 8).permute(0, 2, 1, 3).reshape(9, 24, 32)
    three = torch.full_like(a, 3)
    wanted = [a, a, three, a + 3, a * 2, a, a - 1, a * 2 - 1, a.clamp(min=0)]
    torch.testing.assert_close(found, torch.stack(wanted))
    torch.testing.assert_close(total.reshape(24, 9)[:, 3], a.sum(1))


def test_no_copy_by_the_tensor_memory_access_unit():
    @T.prim_func
    def main(A: T.Tensor((256, 64), "float16"), C: T.Tensor((256, 64), "float16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            out = T.alloc_shared((64, 64), "float16")
            T.annotate_layout({A: swizzled, C: swizzled})
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64, 0], tile)
                for i, j in T.Parallel(64, 64):
                    out[i, j] = tile[i, j] * 2
                T.copy(out, C[k * 64, 0])

    kernel = emulated(main, HOPPER)
    assert "tma" not in kernel.get_kernel_source()
    # Groups of eight elements stay together: whole vectors of 16 bytes.
    assert "tl::cp_async_gs<16>" in kernel.get_kernel_source()
    a, c = torch.randn(256, 64).half(), torch.zeros(256, 64).half()
    kernel(a, c)
    assert torch.equal(c, a * 2)


# -- what is refused


def with_layout(layout, m=64, n=64, statement="T.copy(A[0, 0], S)", **names):
    text = f"""\
        @T.prim_func
        def main(A: T.Tensor((m, n), "float32")):
            with T.Kernel(1, threads=128):
                tx = T.get_thread_binding()
                S = T.alloc_shared((64, 64), "float32")
                bar = T.alloc_barrier(1)
                T.annotate_layout({{A: layout}})
                {statement}
        """
    return text, {"layout": layout, "m": m, "n": n, **names}


LARGE = 1 << 13


@pytest.mark.parametrize(
    ("layout", "m", "told"),
    [
        (by := lambda i, j: [i // 8, j, i % 8], 60, r"extent 60 of dimension 0, .*groups of 8"),
        (by, "rows", r"T\.assume\(rows % 8 == 0\)"),
        (lambda i, j: [i, j % 32], 64, "two elements in one place"),
        (lambda i, j: [i, j * 2], 64, "places without an element"),
        (lambda i, j: [i, j // 8, j % 4], 64, "two elements in one place"),
        (lambda i, j: [i, j ^ i % 8], LARGE * 4, r"coordinate .*, which is no sum of digits"),
        (lambda i, j: [i, j & i], 64, "two elements in one place"),
        (lambda i, j: [i - 1, j], 64, "a negative place"),
    ],
)
def test_layouts_that_are_no_permutation(define, layout, m, told):
    text, names = with_layout(layout, T.dynamic(m) if isinstance(m, str) else m)
    with pytest.raises(ValueError, match=rf"T\.annotate_layout: found [\s\S]*{told}[\s\S]*--> "):
        emulated(define(text, **names)["main"], HOPPER)


def test_an_xor_is_shown_by_a_small_table(define):
    text, names = with_layout(lambda i, j: [i, j ^ i % 8])
    emulated(define(text, **names)["main"], HOPPER)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("T.tma_copy(A[0, 0], S, barrier=bar[0])", "T.tma_copy: found the layout of A"),
        ('T.copy(A[0, 0], S, prefer_instruction="tma")', "T.copy: found the layout of A"),
        ("T.atomic_add(A, S, use_tma=True)", r"leave out use_tma"),
        ("T.ldg128(A[tx, 0])", "found tl.load_words on several elements of A"),
        (
            "T.atomic_addx2(A[tx // 2, 0], S[tx // 2, 0])",
            "found tl.atomic_add on several elements of A",
        ),
        ('T.copy(T.view(A, (64, 64), "int32"), S)', "in int32, another name of the memory of A"),
        (
            "T.annotate_layout({T.reshape(A, (64 * 64,)): lambda i: i})",
            "found two layouts for the memory of A",
        ),
    ],
)
def test_what_needs_the_row_major_order_is_refused(define, statement, told):
    text, names = with_layout(lambda i, j: [i, j % 2, j // 2], statement=statement)
    with pytest.raises(ValueError, match=rf"{told}[\s\S]*--> "):
        emulated(define(text, **names)["main"], HOPPER)


def test_a_pair_that_stays_together_is_added_as_one(define):
    text, names = with_layout(
        lambda i, j: [j // 2, i, j % 2], statement="T.atomic_addx2(A[tx // 2, 0], S[tx // 2, 0])"
    )
    assert "A + tx / 2 * 2" in emulated(define(text, **names)["main"], HOPPER).get_kernel_source()


def test_a_tensor_with_strides_is_refused():
    @T.prim_func
    def main(A: T.StridedTensor((64, 64), (128, 1), "float32")):
        with T.Kernel(1, threads=128):
            T.annotate_layout({A: swizzled})
            T.fill(A, 0)

    with pytest.raises(ValueError, match=r"\.py:\d+: .*: found strides and a layout"):
        emulated(main)
