"""Tensor maps of the program's own and loads of boxes by hand: what they load, the errors, and a
GEMM whose loads and products are all by hand."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.cuda.nvrtc import compile_cubin
from tilelang.layout import make_swizzled_layout

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
pytestmark = pytest.mark.usefixtures("on_sm_90a")


def build(func, target=HOPPER):
    return tilelang.compile(func, target=target)


def loads(numbers, shape, tile, at, dtype="float16", swizzled=False, kind=None, **options):
    """One box of A, stored to B."""
    box = 1
    for extent in tile:
        box *= extent

    @T.prim_func
    def main(A: T.Tensor(shape, dtype), B: T.Tensor(tile, dtype)):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared(tile, dtype)
            full = T.alloc_barrier([1, 1])
            described = T.create_tma_descriptor(kind or dtype, len(shape), A, *numbers)
            if swizzled:
                T.annotate_layout({S: make_swizzled_layout(S)})
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive_expect_tx(full[1], box * T.dtype(dtype).bits // 8)
                T.tma_load(described, full[1], S, *at, **options)
            T.mbarrier_wait_parity(full[1], 0)
            for i in T.serial(tile[0]):
                T.copy(S[i, :], B[i, :])

    return main


@pytest.mark.parametrize(
    ("numbers", "swizzled", "at"),
    [
        ((96, 40, 2, 192, 32, 24, 1, 1, 0, 0, 2, 0), False, (16, 8)),
        ((96, 40, 2, 192, 32, 24, 1, 1, 0, 2, 0, 0), True, (64, 16, 1)),
    ],
)
def test_a_box_is_loaded(numbers, swizzled, at):
    kernel = build(loads(numbers, (40, 96), (24, 32), at, swizzled=swizzled))
    (described,) = kernel.artifact.launch_plan.descriptors
    assert (described.box, described.swizzle) == ((32, 24), 64 if swizzled else 0)
    policy = "evict_first" if len(at) == 3 else "evict_normal"
    assert f"tl::tma_load<tl::{policy}>(A_desc, full + 1, S, {at[0]}, {at[1]});" in (
        kernel.get_kernel_source()
    )
    a, b = torch.randn(40, 96).half(), torch.zeros(24, 32).half()
    kernel(a, b)
    assert torch.equal(b, a[at[1] : at[1] + 24, at[0] : at[0] + 32])


def test_the_map_says_what_is_outside_and_which_elements():
    numbers = (32, 10, 4, 128, 32, 16, 1, 2, 0, 0, 3, 1)
    kernel = build(loads(numbers, (10, 32), (8, 32), (0, 0), "float32", kind=7))
    a, b = torch.randn(10, 32), torch.zeros(8, 32)
    kernel(a, b)
    assert torch.equal(b[:5], a[::2])
    assert b[5:].isnan().all()


def test_sizes_of_the_call_are_the_maps():
    m, k = T.dynamic("m, k")

    @T.prim_func
    def main(A: T.Tensor((m, k), "float32"), B: T.Tensor((8, 8), "float32")):
        described = T.create_tma_descriptor(
            "float32", 2, A.data, k, m, 4, k * 4, 8, 8, 1, 1, 0, 0, 2, 0
        )
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 8), "float32")
            full = T.alloc_barrier(1)
            if T.shuffle_elect(32):
                T.mbarrier_arrive_expect_tx(full, 256)
                T.tma_load(described, full, S[0, 0], k - 8, m - 4, eviction_policy=2)
            T.mbarrier_wait_parity(full, 0)
            T.copy(S, B)

    kernel = build(main)
    for shape in ((16, 16), (20, 44)):
        a, b = torch.randn(*shape), torch.ones(8, 8)
        kernel(a, b)
        assert torch.equal(b[:4], a[-4:, -8:])
        assert torch.equal(b[4:], torch.zeros(4, 8))
    with pytest.raises(ValueError, match=r"multiples? of 16"):
        kernel(torch.randn(16, 15), torch.ones(8, 8))


def test_a_box_for_the_blocks_of_a_cluster():
    @T.prim_func
    def main(A: T.Tensor((16, 64), "float16"), B: T.Tensor((2, 16, 64), "float16")):
        with T.Kernel(2, threads=32, cluster_dims=2) as bx:
            S = T.alloc_shared((16, 64), "float16")
            full = T.alloc_barrier(1)
            described = T.create_tma_descriptor(
                "float16", 2, A, 64, 16, 2, 128, 64, 16, 1, 1, 0, 0, 2, 0
            )
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive_expect_tx(full, 2048)
            T.cluster_sync()
            if bx == 0 and T.get_thread_binding() == 0:
                T.tma_load(described, full, S, 0, 0, cluster_mask=3)
            T.mbarrier_wait_parity(full, 0)
            T.copy(S, B[bx, :, :])

    a, b = torch.randn(16, 64).half(), torch.zeros(2, 16, 64).half()
    build(main)(a, b)
    assert torch.equal(b[0], a)
    assert torch.equal(b[1], a)


def by_hand(m, n, k):
    """A GEMM of one warp group and one thread that loads, over two slots."""
    box = (64, 64, 1, 1, 0, 3, 2, 0)

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "bfloat16"),
        B: T.Tensor((n, k), "bfloat16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(n // 64, m // 64, threads=160) as (bx, by):
            tx = T.get_thread_binding()
            a = T.alloc_shared((2, 64, 64), "bfloat16")
            b = T.alloc_shared((2, 64, 64), "bfloat16")
            c = T.alloc_local((32,), "float32")
            full, empty = T.alloc_barrier([1, 1]), T.alloc_barrier([128, 128])
            map_a = T.create_tma_descriptor("bfloat16", 2, A, k, m, 2, k * 2, *box)
            map_b = T.create_tma_descriptor("bfloat16", 2, B.data, k, n, 2, k * 2, *box)
            desc_a, desc_b = T.alloc_wgmma_desc(), T.alloc_wgmma_desc()
            if tx >= 128:
                if tx == 128:
                    for i in T.serial(k // 64):
                        T.mbarrier_wait_parity(empty[i % 2], (i // 2 + 1) % 2)
                        T.mbarrier_arrive_expect_tx(full[i % 2], 2 * 8192)
                        T.tma_load(map_a, full[i % 2], a[i % 2, 0, 0], i * 64, by * 64)
                        T.tma_load(map_b, full[i % 2], b[i % 2, 0, 0], i * 64, bx * 64)
            else:
                for i in T.serial(k // 64):
                    T.mbarrier_wait_parity(full[i % 2], i // 2 % 2)
                    T.initialize_wgmma_descriptor(desc_a, a[i % 2, 0, 0], 1, 1, 64)
                    T.initialize_wgmma_descriptor(desc_b, b[i % 2, 0, 0], 1, 1, 64)
                    T.warpgroup_fence_operand(c)
                    T.warpgroup_arrive()
                    for s in T.unroll(4):
                        T.ptx_wgmma_ss("float32", "m64n64k16", True, True, "bf16", "bf16", "fp32",
                                       desc_a, s * 32, desc_b, s * 32, c, 0, i + s > 0)  # fmt: skip
                    T.warpgroup_commit_batch()
                    T.warpgroup_wait(0)
                    T.warpgroup_fence_operand(c)
                    T.mbarrier_arrive(empty[i % 2])
                for i in T.serial(32):
                    row = by * 64 + 16 * (tx // 32) + tx % 32 // 4 + 8 * (i // 2 % 2)
                    C[row, bx * 64 + 8 * (i // 4) + 2 * (tx % 4) + i % 2] = c[i]

    return main


def test_a_gemm_by_hand(monkeypatch):
    kernel = build(by_hand(128, 64, 256))
    source = kernel.get_kernel_source()
    assert source.count("__syncthreads()") == 1  # behind the initialisation of the mbarriers
    usage = compile_cubin(source, "sm_90a", ["main_kernel"]).resource_usage["main_kernel"]
    assert usage.spill_stores == 0
    a = torch.randint(-4, 5, (128, 256)).bfloat16()
    b = torch.randint(-4, 5, (64, 256)).bfloat16()
    for seed in ("1", "4"):
        monkeypatch.setenv("TILELANG_EMULATE_SEED", seed)
        c = torch.zeros(128, 64)
        kernel(a, b, c)
        assert torch.equal(c, a.float() @ b.float().T)


MAP = "m = T.create_tma_descriptor('float32', 2, A, 16, 8, 4, 64, 8, 8, 1, 1, 0, {swizzle}, 2, 0)\n"
HEAD = "S = T.alloc_shared((8, 8), 'float32')\nbar = T.alloc_barrier(1)\n"


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("T.create_tma_descriptor('float32', 6, A)", ValueError, "rank of .* is 6, wanted one of "),
        ("T.create_tma_descriptor('float32', 1, A, 16)", ValueError, "found 1 numbers .* wanted 8"),
        (MAP.format(swizzle=4), ValueError, "swizzle of .* is 4, wanted a constant 0 to 3"),
        (MAP.format(swizzle=0).replace("A", "A[1, 0]"), ValueError, "an element of A that is not "),
        (MAP.format(swizzle=0).replace("A", "S"), ValueError, "found S in memory 'shared.dyn', wa"),
        (MAP.format(swizzle=0).replace("A", "3"), TypeError, "found 3 of type int, wanted a param"),
        (MAP.format(swizzle=0).replace("16,", "0.5,"), TypeError, "found 0.5 of type float, wante"),
        (MAP.format(swizzle=0).replace("'float32'", "'int4'"), ValueError, "dtype of .* is 'int4'"),
        (MAP.format(swizzle=0).replace("8, 8, 1", "n, 8, 1"), ValueError, "box of .* is n, wanted"),
        ("T.tma_load(A, bar, S, 0, 0)", TypeError, "wanted a tensor map of T.create_tma_descripto"),
        ("T.tma_load(m, S, S, 0, 0)", TypeError, "wanted a barrier of T.alloc_barrier"),
        ("T.tma_load(m, bar, A, 0, 0)", ValueError, "found A in memory 'global', wanted 'shared.d"),
        ("T.tma_load(m, bar, S, 0)", ValueError, "found 1 coordinates, wanted 2, one for each dim"),
        ("T.tma_load(m, bar, S, 0, 0, 3)", ValueError, "eviction_policy of .* is 3, wanted one of"),
        ("T.tma_load(m, bar, S, 0, 0, cluster_mask=2)", ValueError, "cluster_mask of .* is 2, wan"),
        ("T.tma_load(m, bar, S, 0, 0.5)", TypeError, "found 0.5 of type float, wanted an integer"),
    ],
)  # fmt: skip
def test_errors(trace, statement, error, message):
    text = statement if "create" in statement else MAP.format(swizzle=0) + statement
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(HEAD + text)


def test_another_swizzle_than_the_tiles_is_refused(trace):
    load = "T.tma_load(m, bar, S, 0, 0)\nT.copy(S, B[0:8, 0:8])"
    with pytest.raises(ValueError, match=r"swizzle of 32 bytes for S, whose layout has one of 0"):
        build(trace(HEAD + MAP.format(swizzle=1) + load))


def test_other_chips_have_no_such_load(trace):
    func = trace(HEAD + MAP.format(swizzle=0) + "T.tma_load(m, bar, S, 0, 0)")
    with pytest.raises(ValueError, match="for sm_80, wanted sm_90 or later"):
        build(func, {"kind": "cuda", "arch": "sm_80"})
