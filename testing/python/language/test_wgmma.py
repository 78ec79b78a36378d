"""Products of warp groups by hand: descriptors, the calls, their errors, and kernels whose sums are
exact."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.cuda.nvrtc import compile_cubin
from tilelang.layout import make_swizzled_layout
from tilelang.utils.sparse import compress

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
pytestmark = pytest.mark.usefixtures("on_sm_90a")
WORDS = {"float16": "fp16", "bfloat16": "bf16", "float32": "tf32", "int8": "s8"}
WORDS |= {"float8_e4m3fn": "e4m3", "int32": "s32"}
SWIZZLES = {128: 1, 64: 2, 32: 3}
FORM = ("float32", "m64n64k16", True, True, "fp16", "fp16", "fp32")


def build(func, target=HOPPER, **config):
    return tilelang.compile(func, target=target, pass_configs=config)


@T.macro
def store_accumulator(c, C, columns):
    """Where a lane of a warp group holds its elements (PTX ISA, wgmma)."""
    tx = T.get_thread_binding()
    for i in T.serial(columns // 2):
        row = 16 * (tx // 32) + tx % 32 // 4 + 8 * (i // 2 % 2)
        C[row, 8 * (i // 4) + 2 * (tx % 4) + i % 2] = c[i]


def product(dtype, accum, n, k, b_k_major=True, registers=False, scale=(), word=None):
    """One tile of 64 x n from tiles of shared memory whose rows a swizzle takes as a whole."""
    size = T.dtype(dtype).bits // 8
    shape_b = (n, k) if b_k_major else (k, n)
    step = 32 // size
    word = word or WORDS[dtype]
    out = "fp32" if accum == "float32" else WORDS[accum]
    fields = {row: (SWIZZLES[row * size], 1, row * size // 2) for row in (k, shape_b[1])}

    @T.prim_func
    def main(A: T.Tensor((64, k), dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((64, n), accum)):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, k), dtype)
            b = T.alloc_shared(shape_b, dtype)
            T.annotate_layout({a: make_swizzled_layout(a), b: make_swizzled_layout(b)})
            c = T.alloc_local((n // 2,), accum)
            held = T.alloc_local((k // step, 4 * 4 // size), dtype)
            desc_a, desc_b = T.alloc_wgmma_desc(), T.alloc_descriptor("wgmma")
            T.initialize_wgmma_descriptor(desc_a, a, *fields[k])
            T.initialize_wgmma_descriptor(desc_b, b[0, 0], *fields[shape_b[1]])
            T.copy(A, a)
            T.copy(B, b)
            if registers:
                tx = T.get_thread_binding()
                row = 16 * (tx // 32) + tx % 32 // 4
                for s, i in T.grid(k // step, 16 // size):
                    word_of = i // (4 // size)
                    held[s, i] = a[
                        row + 8 * (word_of % 2),
                        s * step
                        + step // 2 * (word_of // 2)
                        + 4 // size * (tx % 4)
                        + i % (4 // size),
                    ]
            T.warpgroup_fence_operand(c)
            T.warpgroup_arrive()
            for s in T.unroll(k // step):
                types = (word, word, out)
                form, out_of = (b_k_major, *types), (c.data, 0, s > 0, *scale)
                prefix = f"m64n{n}k{step}"
                if registers:
                    operands = (held, s * 16 // size, desc_b, 0)
                    T.ptx_wgmma_rs(accum, prefix, *form, *operands, *out_of)
                else:
                    operands = (desc_a, s * 32, desc_b.data, 0)
                    T.ptx_wgmma_ss(accum, prefix, True, *form, *operands, *out_of)
                T.increase_descriptor_offset(desc_b, 32 if b_k_major else step * n * size)
            T.warpgroup_commit_batch()
            T.warpgroup_wait(0)
            T.warpgroup_fence_operand(c)
            store_accumulator(c, C, n)

    return main


def data(dtype, *shape):
    torch_dtype = T.dtype(dtype).as_torch()
    return torch.randint(-3, 4, shape).to(torch_dtype)


@pytest.mark.parametrize(
    ("dtype", "accum", "n", "k", "options"),
    [
        ("float16", "float32", 64, 64, {}),
        ("float16", "float16", 32, 32, {"word": "float16", "scale": (-1, 1)}),
        ("float16", "float32", 64, 64, {"b_k_major": False}),
        ("bfloat16", "float32", 16, 64, {"registers": True, "scale": (1, -1)}),
        ("float32", "float32", 8, 32, {}),
        ("int8", "int32", 16, 32, {"registers": True}),
        ("float8_e4m3fn", "float32", 40, 128, {}),
    ],
)
def test_a_product(dtype, accum, n, k, options):
    kernel = build(product(dtype, accum, n, k, **options))
    source = kernel.get_kernel_source()
    a, b = data(dtype, 64, k), data(dtype, n, k)
    c = torch.zeros(64, n, dtype=T.dtype(accum).as_torch())
    kernel(a, b if options.get("b_k_major", True) else b.T.contiguous(), c)
    sign = -1 if options.get("scale") else 1
    assert torch.equal(c.double(), sign * (a.double() @ b.double().T))
    if not options:
        return
    usage = compile_cubin(source, "sm_90a", ["main_kernel"]).resource_usage["main_kernel"]
    assert usage.spill_stores == 0


def test_half_of_a_is_stored():
    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"),
        E: T.Tensor((64, 4), "uint16"),
        B: T.Tensor((16, 64), "float16"),
        C: T.Tensor((64, 16), "float32"),
    ):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((16, 64), "float16")
            T.annotate_layout({a: make_swizzled_layout(a), b: make_swizzled_layout(b)})
            c, e = T.alloc_local((8,), "float32"), T.alloc_local((2,), "uint32")
            desc_a, desc_b = T.alloc_wgmma_desc(), T.alloc_wgmma_desc()
            T.initialize_wgmma_descriptor(desc_a, a, 2, 1, 32)
            T.initialize_wgmma_descriptor(desc_b, b, 1, 1, 64)
            T.copy(A, a)
            T.copy(B, b)
            for s in T.serial(2):
                row = 16 * (tx // 32) + tx % 32 // 4
                low, high = E[row, 2 * s + tx % 2], E[row + 8, 2 * s + tx % 2]
                e[s] = T.cast(low, "uint32") | (T.cast(high, "uint32") << T.uint32(16))
            T.warpgroup_arrive()
            for s in T.unroll(2):
                operands = (desc_a, s * 32, desc_b, s * 64, c, 0, e, s, 0)
                form = ("float32", "m64n16k32", True, "fp16", "fp16", "fp32")
                T.ptx_wgmma_sp(*form, *operands, s > 0)
            T.warpgroup_commit_batch()
            T.warpgroup_wait(0)
            store_accumulator(c, C, 16)

    kernel = build(main)
    dense = data("float16", 64, 16, 4)
    dense[:, :, :2] = 0
    a, e = compress(dense.reshape(64, 64))
    b, c = data("float16", 16, 64), torch.zeros(64, 16)
    kernel(a, e.view(torch.uint16), b, c)
    assert torch.equal(c, dense.reshape(64, 64).float() @ b.float().T)
    compile_cubin(kernel.get_kernel_source(), "sm_90a", ["main_kernel"])


def test_the_compiler_orders_what_threads_write():
    """The descriptors stand before everything: the products say what they read."""
    source = build(product("float16", "float32", 64, 64)).get_kernel_source()
    at = [
        source.index(text)
        for text in (
            "tl::initialize_wgmma_descriptor<1, 1, 64>(&desc_a, a);",
            "tl::store(b",
            "tl::fence_proxy_async();",
            "__syncthreads();",
            "tl::wgmma_ss<64, 64, 16, half_t, half_t, float, true, true>(c, tl::wgmma_desc",
            "tl::increase_descriptor_offset(&desc_b, 32);",
        )
    ]
    assert at == sorted(at)


def rounds(stages):
    """The tile is written anew in each iteration, the descriptors are not."""

    @T.prim_func
    def main(A: T.Tensor((4, 64, 32), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            T.annotate_layout({a: make_swizzled_layout(a)})
            c = T.alloc_local((32,), "float32")
            desc = T.alloc_wgmma_desc()
            T.initialize_wgmma_descriptor(desc, a, 2, 1, 32)
            T.clear(c)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[k, :, :], a)
                T.warpgroup_arrive()
                for s in T.unroll(2):
                    T.ptx_wgmma_ss(*FORM, desc, s * 32, desc, s * 32, c, 0, 1)
                T.warpgroup_commit_batch()
                T.warpgroup_wait(0)
            store_accumulator(c, C, 64)

    return main


@pytest.mark.parametrize("stages", [0, 2])
def test_a_loop_writes_what_products_read(stages, monkeypatch):
    kernel = build(rounds(stages))
    a = data("float16", 4, 64, 32)
    for seed in ("0", "5"):
        monkeypatch.setenv("TILELANG_EMULATE_SEED", seed)
        c = torch.zeros(64, 64)
        kernel(a, c)
        assert torch.equal(c, sum(x.float() @ x.float().T for x in a))
    loop = kernel.get_kernel_source().split("for (int k = 0; k < 4; ++k)")[1]
    assert loop.count("__syncthreads();") == 2
    if stages:
        assert "its order with other statements is the program's" in str(kernel.explain())
        assert "synchronises threads itself (tl.initialize_wgmma" in str(kernel.explain())


def test_a_synchronous_product_beside_them_waits_for_itself():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        D: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_local((32,), "float32")
            sums = T.alloc_fragment((64, 64), "float32")
            desc = T.alloc_wgmma_desc()
            T.copy(A, a)
            T.initialize_wgmma_descriptor(desc, a[0, 0], 1, 1, 64)
            T.warpgroup_arrive()
            for s in T.unroll(4):
                T.ptx_wgmma_ss(*FORM, desc, s * 32, desc, s * 32, c, 0, s > 0)
            T.warpgroup_commit_batch()
            T.gemm(a, a, sums, transpose_B=True, clear_accum=True)
            T.warpgroup_wait(0)
            store_accumulator(c, C, 64)
            T.copy(sums, D)

    kernel = build(main)
    assert kernel.get_kernel_source().count("tl::warpgroup_wait<0>();") == 2
    a, c, d = data("float16", 64, 64), torch.zeros(64, 64), torch.zeros(64, 64)
    kernel(a, c, d)
    assert torch.equal(c, a.float() @ a.float().T)
    assert torch.equal(d, c)
