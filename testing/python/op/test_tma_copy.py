"""T.tma_copy, and stores by TMA, against torch."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_padded_layout, make_swizzled_layout

SM90 = {"kind": "cuda", "arch": "sm_90a"}


def build(func, **options):
    return tilelang.compile(func, target=SM90, execution_backend="emulate", **options)


def random(shape, dtype="float16"):
    torch_dtype = getattr(torch, dtype)
    if torch_dtype.is_floating_point:
        return torch.randn(shape, dtype=torch.float64).to(torch_dtype)
    return torch.randint(0, 100, shape).to(torch_dtype)


def loads(shape, tile, dtype="float16", at=None, layout=None, whole=None):
    """A kernel that brings a tile of A to B by one load."""
    at = at or [0] * len(shape)
    whole = whole or tile

    @T.prim_func
    def main(A: T.Tensor(shape, dtype), B: T.Tensor(tile, dtype)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared(whole, dtype)
            full = T.alloc_barrier(1)
            if layout is not None:
                T.annotate_layout({S: layout(S)})
            part = S[tuple(slice(0, e) for e in tile)]
            source = A[tuple(slice(b, b + e) for b, e in zip(at, tile, strict=True))]
            T.tma_copy(source, part, barrier=full)
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            T.copy(part, B, prefer_instruction="sync")

    return main


@pytest.mark.parametrize(
    ("shape", "tile", "dtype", "swizzle"),
    [
        ((256, 64), (128, 64), "float16", 128),
        ((256, 128), (128, 128), "bfloat16", 128),
        ((64, 32), (64, 32), "float16", 64),
        ((64, 16), (64, 16), "float16", 32),
        ((64, 16), (64, 8), "float16", 0),
        ((16, 32), (16, 32), "float32", 128),
        ((8, 16), (8, 16), "float64", 128),
        ((64, 128), (32, 128), "int8", 128),
        ((24, 48), (24, 40), "float16", 0),
        ((2, 3, 16, 64), (2, 3, 16, 64), "float16", 128),
        ((300, 128), (300, 64), "float16", 0),
    ],
)
def test_a_load_fills_the_tile(shape, tile, dtype, swizzle):
    kernel = build(loads(shape, tile, dtype))
    (descriptor,) = kernel.artifact.launch_plan.descriptors
    assert descriptor.swizzle == swizzle
    assert "tl::tma_load" in kernel.get_kernel_source()
    a, b = random(shape, dtype), torch.zeros(tile, dtype=getattr(torch, dtype))
    kernel(a, b)
    assert torch.equal(b, a[tuple(slice(0, e) for e in tile)])


def test_elements_outside_of_the_tensor_are_zero():
    kernel = build(loads((100, 72), (64, 64), at=(64, 32)))
    a, b = random((100, 72)), torch.ones((64, 64), dtype=torch.float16)
    kernel(a, b)
    wanted = torch.zeros((64, 64), dtype=torch.float16)
    wanted[:36, :40] = a[64:, 32:]
    assert torch.equal(b, wanted)


def test_a_store_is_the_default_from_shared_memory():
    @T.prim_func
    def main(A: T.Tensor((200, 128), "float16"), B: T.Tensor((200, 128), "float16")):
        with T.Kernel(4, threads=128) as b:
            S = T.alloc_shared((64, 128), "float16")
            T.copy(A[b * 64, 0], S)
            for i, j in T.Parallel(64, 128):
                S[i, j] = S[i, j] + 1
            T.copy(S, B[b * 64, 0])

    kernel = build(main)
    source = kernel.get_kernel_source()
    assert source.count("tl::tma_store<") == 1
    assert source.index("tl::fence_proxy_async()") < source.index("tl::tma_store<")
    a, b = random((200, 128)), torch.zeros((200, 128), dtype=torch.float16)
    kernel(a, b)
    assert torch.equal(b, a + 1)


def test_stages_of_a_tile_are_loaded_one_by_one():
    @T.prim_func
    def main(A: T.Tensor((4, 64, 96), "float16"), B: T.Tensor((4, 64, 96), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((2, 64, 96), "float16")
            full = T.alloc_barrier([1, 1])
            for k in T.serial(4):
                T.tma_copy(A[k, :, :], S[k % 2, :, :], barrier=full[k % 2])
                if T.get_thread_binding() == 0:
                    T.mbarrier_arrive(full[k % 2])
                T.mbarrier_wait_parity(full[k % 2], k // 2 % 2)
                for i, j in T.Parallel(64, 96):
                    B[k, i, j] = S[k % 2, i, j]
                T.sync_threads()

    kernel = build(main)
    (descriptor,) = kernel.artifact.launch_plan.descriptors
    assert (descriptor.box, descriptor.swizzle) == ((32, 64, 1), 64)
    assert "(0 ^ 0)" not in kernel.get_kernel_source()
    a, b = random((4, 64, 96)), torch.zeros((4, 64, 96), dtype=torch.float16)
    kernel(a, b)
    assert torch.equal(a, b)


def test_an_explicit_store_is_waited_for_by_the_program():
    @T.prim_func
    def main(A: T.Tensor((2, 64, 64), "float32"), B: T.Tensor((2, 64, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64, 64), "float32")
            for k in T.serial(2):
                T.copy(A[k, 0, 0], S)
                T.tma_copy(S, B[k, :, :], eviction_policy="evict_first")
                T.tma_store_wait(0)

    kernel = build(main)
    assert "tl::tma_store<tl::evict_first>(B_desc, " in kernel.get_kernel_source()
    a, b = random((2, 64, 64), "float32"), torch.zeros((2, 64, 64))
    kernel(a, b)
    assert torch.equal(a, b)


def stored(shape=(64, 64), between=lambda A, S, B: None, loops=1, **keywords):
    @T.prim_func
    def main(A: T.Tensor(shape, "float16"), B: T.Tensor(shape, "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64, 64), "float16")
            for _ in T.serial(loops):
                T.copy(A, S)
                between(A, S, B)
                T.copy(S, B[0, 0], **keywords)

    return main


def test_a_store_whose_order_matters_is_complete():
    assert "tl::tma_store_wait<0, true>()" in build(stored()).get_kernel_source()
    assert "tl::tma_store_wait<0, false>()" in build(stored(loops=2)).get_kernel_source()


@pytest.mark.parametrize(
    ("shape", "options", "keywords"),
    [
        ((64, 64), {}, {"disable_tma": True}),
        ((64, 64), {}, {"prefer_instruction": "sync"}),
        ((64, 64), {}, {"coalesced_width": 2}),
        ((64, 64), {"pass_configs": {"tl.disable_tma_lower": True}}, {}),
        ((64, 60), {}, {}),
        ((64, T.dynamic("n")), {}, {}),
    ],
)
def test_threads_store_what_tma_may_not(shape, options, keywords):
    @T.prim_func
    def main(B: T.Tensor(shape, "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64, 64), "float16")
            T.fill(S, 1)
            T.copy(S, B[0, 0], **keywords)

    kernel = build(main, **options).for_any_sizes
    assert "tma" not in kernel.get_kernel_source()
    b = torch.zeros((64, shape[1] if isinstance(shape[1], int) else 61), dtype=torch.float16)
    kernel(b)
    assert b.eq(1).all()


def test_threads_store_to_a_tensor_that_the_kernel_reads():
    @T.macro
    def reads(A, S, B):
        for i, j in T.Parallel(64, 64):
            S[i, j] = S[i, j] + B[i, j]

    kernel = build(stored(between=reads))
    assert "tma" not in kernel.get_kernel_source()
    with pytest.raises(ValueError, match="B, which the kernel also touches"):
        build(stored(between=reads, prefer_instruction="tma"))


@pytest.mark.parametrize(
    ("why", "make"),
    [
        ("rows of 12 bytes, not a multiple of 16", lambda: loads((64, 64), (64, 6))),
        ("a stride of 120 bytes in A", lambda: loads((64, 60), (64, 48))),
        (
            r"a region of A that begins at element 4 of a row, not at a multiple of 8 \(16 bytes\)",
            lambda: loads((64, 64), (64, 32), at=(0, 4)),
        ),
        (
            "a layout of S",
            lambda: loads((64, 64), (64, 64), layout=make_padded_layout),
        ),
        ("a layout of S", lambda: loads((64, 64), (60, 64), whole=(64, 72))),
    ],
)
def test_what_tma_cannot_copy_is_refused(why, make):
    with pytest.raises(ValueError, match=rf"test_tma_copy.py:.*T.tma_copy: found {why}"):
        build(make())


def test_a_dimension_of_one_element_has_any_stride():
    """A row of 200 bytes has a map with rows of 208: no coordinate but 0 is inside. With two rows
    there is none."""
    kernel = build(loads((1, 100), (2, 96)))
    (descriptor,) = [d for d in kernel.launch_plan.descriptors if d.param == "A"]
    assert descriptor.strides == (208,)
    a, b = random((1, 100)), torch.zeros(2, 96, dtype=torch.float16)
    kernel(a, b)
    assert b[:1].equal(a[:, :96])
    assert not b[1].any()
    with pytest.raises(ValueError, match="a stride of 104 bytes in A, not a multiple of 16"):
        build(loads((3, 1, 52), (2, 1, 48)))


@pytest.mark.parametrize("unit", [1, 2, 4])
def test_rows_that_begin_anywhere_are_not_loaded_by_tma(unit):
    """A box whose innermost coordinate is no multiple of 16 bytes is an illegal instruction."""
    n, width = 64, 32

    @T.prim_func
    def main(
        A: T.Tensor((4, n), "float32"), W: T.Tensor((1,), "int32"), B: T.Tensor((4, n), "float32")
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((width,), "float32")
            begin = W[0]
            T.assume(begin % unit == 0)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k, begin : begin + width], S)
                T.copy(S, B[k, begin : begin + width])

    kernel = build(main)
    source = kernel.get_kernel_source()
    assert ("tl::tma_load" in source) == (unit == 4)
    assert ("tl::tma_store" in source) == (unit == 4)
    a, b = random((4, n), "float32"), torch.zeros(4, n)
    begin = torch.tensor([3 * unit], dtype=torch.int32)
    kernel(a, begin, b)
    wanted = torch.zeros(4, n)
    wanted[:, 3 * unit : 3 * unit + width] = a[:, 3 * unit : 3 * unit + width]
    assert torch.equal(b, wanted)


def test_the_emulator_finds_boxes_that_begin_in_between():
    """What the program promises of a coordinate, the call breaks."""

    @T.prim_func
    def main(
        A: T.Tensor((4, 64), "float32"), W: T.Tensor((1,), "int32"), B: T.Tensor((32,), "float32")
    ):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((32,), "float32")
            full = T.alloc_barrier(1)
            begin = W[0]
            T.assume(begin % 4 == 0)
            T.tma_copy(A[1, begin : begin + 32], S, barrier=full)
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            T.copy(S, B)

    kernel = build(main)
    given = random((4, 64), "float32"), torch.tensor([6], dtype=torch.int32), torch.zeros(32)
    with pytest.raises(RuntimeError, match=r"innermost coordinate 6 .* Use a multiple of 4"):
        kernel(*given)


def part_of_rows(columns, adds=False, explicit=False, inside=False):
    """A tile goes to the first columns of 61 rows of 128 float16, or is added there."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        W: T.Tensor((1,), "int32"),
        B: T.StridedTensor((61, columns), (128, 1), "float16"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            T.copy(A, S)
            first = 0
            if inside:
                first = W[0]
                T.assume(first % 8 == 0)
                T.assume(first + 64 <= columns)
            if adds:
                T.atomic_add(B[0, first], S, use_tma=True)
            elif explicit:
                T.sync_threads()
                T.tma_copy(S, B[0, first])
                T.tma_store_wait(0)
            else:
                T.copy(S, B[0, first])

    return main


@pytest.mark.parametrize(
    ("columns", "adds", "by_tma"),
    [
        (33, False, False),
        (36, False, False),
        (39, False, False),
        (40, False, True),
        (40, True, True),
    ],
)
def test_what_lies_behind_a_row_stays_as_it_is(columns, adds, by_tma):
    """A store by TMA writes the whole chunk of 16 bytes in which a row ends."""
    kernel = build(part_of_rows(columns, adds))
    source = kernel.get_kernel_source()
    assert ("tl::tma_store" in source or "tl::tma_reduce" in source) == by_tma
    a, rows = random((64, 64), "int32").half(), torch.full((61, 128), 7).half()
    wanted = rows.clone()
    wanted[:, :columns] = a[:61, :columns] + (7 if adds else 0)
    kernel(a, torch.zeros(1, dtype=torch.int32), rows[:, :columns])
    assert torch.equal(rows, wanted)


@pytest.mark.parametrize("kind", ["adds", "explicit"])
def test_a_row_that_ends_within_a_chunk_is_no_target_of_the_unit(kind):
    with pytest.raises(
        ValueError,
        match=r"found rows of B that end behind 36 elements, not at a multiple of 8 \(16 bytes\)",
    ):
        build(part_of_rows(36, **{kind: True}))


def rows_of_any_length(shape, how):
    """A tile goes to the first elements of rows of a length that only the call knows."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor(shape, "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            T.copy(A, S)
            T.sync_threads()
            if how == "add":
                T.atomic_add(B[(0,) * len(shape)], S, use_tma=True)
            elif how == "prefer":
                T.copy(S, B[(0,) * len(shape)], prefer_instruction="tma")
            else:
                T.tma_copy(S, B[(0,) * len(shape)])
                T.tma_store_wait(0)

    return main


@pytest.mark.parametrize("how", ["explicit", "add", "prefer"])
@pytest.mark.parametrize("outer", [(1,), (1, 1)])
def test_a_single_row_of_any_length_is_no_target_of_the_unit(outer, how):
    """The launch cannot check where it ends: no row behind it has a stride. A variant for lengths
    that are multiples of 8 knows."""
    kernel = build(rows_of_any_length((*outer, T.dynamic("n")), how))
    a, row = random((64, 64)), torch.zeros(*outer, 40).half()
    kernel(a, row)
    assert torch.equal(row.reshape(40), a[0, :40])
    with pytest.raises(ValueError, match=r"found rows of B that end anywhere, not provably at a"):
        kernel(a, row.reshape(-1)[:36].view(*outer, 36))


@pytest.mark.parametrize("outer", [(61,), (T.dynamic("rows"),), (61, 1), (T.dynamic("rows"), 1)])
def test_rows_behind_each_other_end_where_the_launch_checks_it(outer):
    kernel = build(rows_of_any_length((*outer, T.dynamic("n")), "explicit"))
    a = random((64, 64))
    for columns in (40, 36):
        rows = torch.full((61, *outer[1:], columns), 7).half()
        if columns == 36:
            with pytest.raises(ValueError, match=r"strides of .* bytes, wanted multiples of 16"):
                kernel(a, rows)
            continue
        kernel(a, rows)
        filled = 64 if len(outer) == 1 else 1
        assert torch.equal(rows[:filled].reshape(-1, 40), a[: min(filled, 61), :40])


def test_the_emulator_finds_rows_that_end_in_between():
    """What the program promises of a region's end, the call breaks."""
    kernel = build(part_of_rows(68, explicit=True, inside=True))
    a, rows, begin = random((64, 64)), torch.zeros(61, 128).half(), torch.tensor([8])
    with pytest.raises(RuntimeError, match="ends 8 bytes behind a multiple of 16"):
        kernel(a, begin.int(), rows[:, :68])


def test_a_chip_without_tma_is_refused():
    with pytest.raises(ValueError, match=r"T.tma_copy: found a target without .*sm_80"):
        tilelang.compile(
            loads((64, 64), (64, 64)),
            target={"kind": "cuda", "arch": "sm_80"},
            execution_backend="emulate",
        )


def test_strides_that_only_the_call_knows_are_checked_then():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((64, n), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier(1)
            T.tma_copy(A[0, 0], S, barrier=full)
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            T.copy(S, B)

    kernel = build(main)
    b = torch.ones((64, 64), dtype=torch.float16)
    for columns in (40, 64, 72):
        a = random((64, columns))
        kernel(a, b)
        wanted = torch.zeros_like(b)
        wanted[:, :columns] = a[:, :64]
        assert torch.equal(b, wanted)
    with pytest.raises(ValueError, match=r"`main`.*tensor map of `A`: found strides of 84 bytes"):
        kernel(random((64, 42)), b)


def product_of_assumed_strides(first=(), later=()):
    """A @ B + 1 of any sizes; dimensions in `first` are assumed to be multiples of 8 in front of
    the kernel's statements, those in `later` behind the first of them."""
    sizes = {name: T.dynamic(name) for name in "mnk"}
    m, n, k = sizes.values()

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            O_shared = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            for name in first:
                T.assume(sizes[name] % 8 == 0)
            T.fill(F, 1)
            for name in later:
                T.assume(sizes[name] % 8 == 0)
            for i in T.Pipelined(T.ceildiv(k, 64), num_stages=2):
                T.copy(A[by * 64, i * 64], S)
                T.copy(B[i * 64, bx * 64], W)
                T.gemm(S, W, F)
            T.copy(F, O_shared)
            T.copy(O_shared, C[by * 64, bx * 64])

    return main


@pytest.mark.parametrize(
    ("first", "later", "loads", "stores"),
    [("", "", 0, 0), ("nk", "", 2, 1), ("n", "", 1, 1), ("k", "", 1, 0), ("", "nk", 0, 0)],
)
def test_strides_that_are_assumed_are_those_of_tma(first, later, loads, stores):
    source = tilelang.lower(
        product_of_assumed_strides(first, later), target="cuda -arch=sm_90a"
    ).kernel_source
    assert (source.count("tl::tma_load<"), source.count("tl::tma_store<")) == (loads, stores)


def test_a_tensor_that_breaks_what_is_assumed_is_refused():
    kernel = build(product_of_assumed_strides("nk"))
    a, b, c = random((40, 72)), random((72, 136)), torch.empty(40, 136, dtype=torch.float16)
    kernel(a, b, c)
    assert torch.allclose(c.double(), a.double() @ b.double(), rtol=2**-10, atol=1e-2)
    with pytest.raises(ValueError, match=r"tensor map of `A`: found strides of 136 bytes"):
        kernel(random((40, 68)), random((68, 136)), c)


def test_operands_that_do_not_go_together_are_refused():
    def kernel(copy):
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float16")):
            with T.Kernel(1, threads=128):
                S = T.alloc_shared((64, 64), "float16")
                full = T.alloc_barrier(1)
                copy(A, S, full)

        return main

    for copy, found in (
        (lambda A, S, full: T.tma_copy(A, S), "no barrier for a copy from global"),
        (lambda A, S, full: T.tma_copy(S, A, barrier=full), "a barrier for a copy to global"),
        (lambda A, S, full: T.tma_copy(S, A, cluster_mask=3), "a cluster_mask"),
        (lambda A, S, full: T.tma_copy(S, S), "wanted one of them in global"),
        (lambda A, S, full: T.tma_copy(A, S, barrier=full, cluster_mask=0), "cluster_mask .* is 0"),
        (lambda A, S, full: T.tma_copy(S, A, leader_scope_threads=0), "leader_scope_threads .* 0"),
        (
            lambda A, S, full: T.copy(S, A, prefer_instruction="tma", disable_tma=True),
            "prefer_instruction='tma' and disable_tma",
        ),
    ):
        with pytest.raises(ValueError, match=found):
            kernel(copy)
    with pytest.raises(TypeError, match=r"wanted a barrier of T.alloc_barrier"):
        kernel(lambda A, S, full: T.tma_copy(A, S, barrier=S))


def test_a_thread_of_part_of_a_warp_does_not_issue():
    def kernel(threads):
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
            with T.Kernel(1, threads=128):
                S = T.alloc_shared((64, 64), "float16")
                T.copy(A, S)
                T.tma_copy(S, C, leader_scope_threads=threads)
                T.tma_store_wait(0)

        return tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")

    with pytest.raises(ValueError, match=r"is 40, wanted a multiple of the 32 threads .* write 64"):
        kernel(40)
    a, c = torch.randn(64, 64).half(), torch.zeros(64, 64, dtype=torch.float16)
    kernel(64)(a, c)
    assert torch.equal(c, a)


@pytest.mark.parametrize(("stages", "loads"), [(0, 1), (2, 2)])
def test_a_pipeline_runs_copies_with_mbarriers_ahead(stages, loads):
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((64, 256), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier(1)
            for k in T.Pipelined(4, num_stages=stages):
                T.tma_copy(A[0, k * 64], S, barrier=full)
                if T.get_thread_binding() == 0:
                    T.mbarrier_arrive(full)
                T.mbarrier_wait_parity(full, k % 2)
                for i, j in T.Parallel(64, 64):
                    B[i, k * 64 + j] = S[i, j]
                T.sync_threads()

    kernel = build(main)
    assert kernel.get_kernel_source().count("tl::tma_load<") == loads
    a, b = random((64, 256)), torch.zeros((64, 256), dtype=torch.float16)
    kernel(a, b)
    assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("shape", "tile", "at"),
    [((512,), (256,), (256,)), ((20, 40), (20, 40), None), ((9, 5, 24), (1, 2, 24), (8, 2, 0))],
)
def test_bytes_in_one_piece_need_no_tensor_map(shape, tile, at):
    """Strides of 5 x 24 bytes are none that a tensor map has."""
    kernel = build(loads(shape, tile, "int8" if len(shape) == 3 else "float32", at))
    source = kernel.get_kernel_source()
    assert kernel.artifact.launch_plan.descriptors == ()
    assert "tl::bulk_load<tl::evict_normal>" in source
    dtype = "int8" if len(shape) == 3 else "float32"
    a, b = random(shape, dtype), torch.zeros(tile, dtype=getattr(torch, dtype))
    kernel(a, b)
    assert torch.equal(
        b, a[tuple(slice(o, o + e) for o, e in zip(at or (0,) * len(tile), tile, strict=True))]
    )


@pytest.mark.parametrize(("behind", "in_one_piece"), [(0, True), (1, False)])
def test_a_piece_of_a_row_of_as_many_as_a_call_brings(behind, in_one_piece):
    """A block's row is one of them, the next one may be none. Tiles of so many bytes stay of one
    block each."""
    rows, width = T.dynamic("rows"), 4128

    @T.prim_func
    def main(A: T.Tensor((rows, width + 64), "float32"), B: T.Tensor((rows, width), "float32")):
        with T.Kernel(rows, threads=32) as b:
            S = T.alloc_shared((width,), "float32")
            T.copy(A[b, 64], S)
            T.copy(S, B[b + behind, :])

    kernel = build(main)
    assert ("tl::bulk_store" in kernel.get_kernel_source()) == in_one_piece
    a, b = random((5, width + 64), "float32"), torch.zeros(5, width)
    kernel(a, b)
    assert torch.equal(b, torch.cat([torch.zeros(behind, width), a[: 5 - behind, 64:]]))


def test_a_store_of_one_piece():
    @T.prim_func
    def main(A: T.Tensor((4, 96), "float32"), B: T.Tensor((4, 96), "float32")):
        with T.Kernel(4, threads=32) as b:
            S = T.alloc_shared((96,), "float32")
            for i in T.Parallel(96):
                S[i] = A[b, i] * 2
            T.copy(S, B[b, :])

    kernel = build(main)
    assert "tl::bulk_store<tl::evict_normal>(B + bx * 96, S, 384)" in kernel.get_kernel_source()
    a, b = random((4, 96), "float32"), torch.zeros(4, 96)
    kernel(a, b)
    assert torch.equal(b, a * 2)


def preferred(shape, tile, at, loops=1, guarded=False):
    @T.prim_func
    def main(A: T.Tensor(shape, "float16"), B: T.Tensor((loops, *tile), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared(tile, "float16")
            if loops == 1:
                T.copy(A[at], S, prefer_instruction="tma")
                T.copy(S, B[0, 0, 0], prefer_instruction="sync")
            else:
                for k in T.serial(loops):
                    if not guarded or k != 1:
                        T.copy(A[at[0], k * tile[1]], S, prefer_instruction="tma")
                        for i, j in T.Parallel(*tile):
                            S[i, j] = S[i, j] + 1
                    for i, j in T.Parallel(*tile):
                        B[k, i, j] = S[i, j]

    return main


def test_a_load_that_is_asked_for_is_waited_for():
    kernel = build(preferred((64, 96), (64, 64), (8, 32)))
    source = kernel.get_kernel_source()
    assert source.count("tl::tma_load<") == source.count("tl::mbarrier_wait(") == 1
    assert "parity" not in source
    a, b = random((64, 96)), torch.ones((1, 64, 64), dtype=torch.float16)
    kernel(a, b)
    wanted = torch.zeros(64, 64, dtype=torch.float16)
    wanted[:56] = a[8:, 32:]
    assert torch.equal(b[0], wanted)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_load_that_is_asked_for_counts_its_phases_in_a_loop(guarded):
    kernel = build(preferred((64, 160), (64, 32), (0, 0), 5, guarded))
    a, b = random((64, 160)), torch.zeros((5, 64, 32), dtype=torch.float16)
    kernel(a, b)
    wanted = a.reshape(64, 5, 32).transpose(0, 1) + 1
    if guarded:
        wanted[1] = wanted[0]
    assert torch.equal(b, wanted)


def test_threads_that_wrote_are_fenced_from_a_load_that_is_asked_for():
    source = build(preferred((64, 160), (64, 32), (0, 0), 5)).get_kernel_source()
    loop = source[source.index("for (int k") :]
    fence = loop.index("tl::fence_proxy_async();\n    __syncthreads();")
    assert fence < loop.index("tl::tma_load<")


def test_a_load_that_cannot_be_made_is_refused():
    def kernel(padded=False, safe=False):
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=128):
                S = T.alloc_shared((64, 64), "float16")
                F = T.alloc_fragment((64, 64), "float16")
                if padded:
                    T.annotate_layout({S: make_padded_layout(S)})
                if safe:
                    T.annotate_safe_value({A: 1})
                T.copy(A, S if padded or safe else F, prefer_instruction="tma")
                T.copy(S if padded or safe else F, B)

        return main

    for options, found in (
        ({}, "a copy that is not between shared and global memory"),
        ({"padded": True}, "a layout of S"),
        ({"safe": True}, "A with a safe value"),
    ):
        with pytest.raises(ValueError, match=rf"test_tma_copy.py:.*T.copy: found {found}"):
            build(kernel(**options))


@pytest.mark.parametrize(
    ("dtype", "instruction", "shape"),
    [
        ("float32", "tl::tma_reduce<tl::SumOp>", (70, 64)),
        ("int32", "tl::tma_reduce<tl::SumOp>", (70, 64)),
        ("bfloat16", "tl::tma_reduce<tl::SumOp>", (64, 96)),
        ("float32", "tl::bulk_reduce_add", (256,)),
    ],
)
def test_the_unit_adds_tiles(dtype, instruction, shape):
    tile = (32, 32) if len(shape) == 2 else (64,)

    @T.prim_func
    def main(A: T.Tensor((3, *tile), dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(3, threads=64) as b:
            S = T.alloc_shared(tile, dtype)
            for k in T.serial(2):
                T.copy(A[(b, *[0 for _ in tile])], S)
                T.atomic_add(B[tuple(32 * (k + 1) for _ in tile)], S, use_tma=True)

    kernel = build(main)
    assert instruction in kernel.get_kernel_source()
    a, b = random((3, *tile), "int32").to(getattr(torch, dtype)) % 8, random(shape, "int32") % 8
    b = b.to(a.dtype)
    wanted = b.clone()
    for k in (1, 2):
        part = wanted[tuple(slice(32 * k, 32 * k + e) for e in tile)]
        part += a.sum(0)[tuple(slice(0, e) for e in part.shape)].to(a.dtype)
    kernel(a, b)
    assert torch.equal(b, wanted)


def test_what_the_unit_cannot_add_is_refused():
    def kernel(dtype, fragment=False):
        @T.prim_func
        def main(B: T.Tensor((64, 64), dtype)):
            with T.Kernel(1, threads=128):
                S = (T.alloc_fragment if fragment else T.alloc_shared)((64, 64), dtype)
                T.clear(S)
                T.atomic_add(B, S, use_tma=True)

        return main

    with pytest.raises(ValueError, match=r"T.atomic_add: found elements of float64"):
        build(kernel("float64"))
    with pytest.raises(ValueError, match=r"T.atomic_add: found S, which is not in shared memory"):
        build(kernel("float32", fragment=True))


@pytest.mark.parametrize("threads", [1, 32])
def test_a_thread_that_stores_what_it_wrote_itself_is_fenced(threads):
    """No barrier stands between: the thread has written the whole tile."""

    @T.prim_func
    def main(B: T.Tensor((8, 128), "float16")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((8, 64), "float16")
            if T.get_thread_binding() == 0:
                for i, j in T.grid(8, 64):
                    S[i, j] = i
            T.copy(S, B[0, 0])

    kernel = build(main, pass_configs={"tl.disable_shuffle_elect": True})
    source = kernel.get_kernel_source()
    assert "tl::tma_store<" in source
    assert source.index("S[") < source.index("tl::fence_proxy_async()")
    b = torch.zeros((8, 128), dtype=torch.float16)
    kernel(b)
    assert torch.equal(b[:, :64], torch.arange(8).half()[:, None].expand(8, 64))


def test_a_tile_in_static_memory_is_aligned():
    @T.prim_func
    def main(C: T.Tensor((96, 16), "bool"), D: T.Tensor((96, 32), "bool")):
        with T.Kernel(1, threads=128):
            few = T.alloc_shared((27,), "bool")
            tile = T.alloc_shared((96, 16), "bool")
            for i in T.Parallel(27):
                few[i] = C[i, 0]
            for i, j in T.Parallel(96, 16):
                tile[i, j] = few[i % 27] or C[i, j]
            T.copy(tile, D[0, 16])

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    assert "tl::tma_store<" in kernel.get_kernel_source()
    c, d = torch.rand(96, 16) < 0.5, torch.zeros(96, 32, dtype=torch.bool)
    kernel(c, d)
    assert d[:, 16:].equal(c | c[torch.arange(96) % 27, :1])


def test_a_swizzled_tile_in_static_memory_begins_where_swizzles_do():
    @T.prim_func
    def main(A: T.Tensor((64, 256), "uint8"), C: T.Tensor((64, 256), "uint8")):
        with T.Kernel(2, threads=128) as bx:
            few = T.alloc_shared((27,), "bool")
            a = T.alloc_shared((64, 128), "uint8", scope="shared")
            T.annotate_layout({a: make_swizzled_layout(a)})
            for i in T.Parallel(27):
                few[i] = A[i, 0] > 9
            for i, j in T.Parallel(64, 128):
                a[i, j] = A[i, bx * 128 + j] + T.if_then_else(few[i % 27], 1, 0)
            T.copy(a, C[0, bx * 128])

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    assert "tl::tma_store<" in kernel.get_kernel_source()
    a = torch.randint(0, 99, (64, 256), dtype=torch.uint8)
    c = torch.zeros_like(a)
    kernel(a, c)
    assert c.equal(a + (a[torch.arange(64) % 27, :1] > 9))
