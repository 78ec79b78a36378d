"""T.wgmma_gemm_sp on sm_90a against exact sums: types, orders of B, warp groups, regions; and what
is no such product."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.cuda.nvrtc import compile_cubin
from tilelang.utils.sparse import compress

ARCH = {"kind": "cuda", "arch": "sm_90a"}
pytestmark = pytest.mark.usefixtures("on_sm_90a")


def product(
    tile, dtype, accum, e_dtype="int16", trans_b=True, trans_e=False, threads=128, rounds=1
):
    """`rounds` products of tiles along K, two of them in flight."""
    m, n, k = tile
    entries = k // 2 * 2 // T.dtype(e_dtype).bits
    shape_b = (n, k) if trans_b else (k, n)
    shape_e = (entries, m) if trans_e else (m, entries)

    @T.prim_func
    def main(
        A: T.Tensor((rounds, m, k // 2), dtype),
        E: T.Tensor((rounds, *shape_e), e_dtype),
        B: T.Tensor((rounds, *shape_b), dtype),
        C: T.Tensor((m, n), accum),
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((rounds, m, k // 2), dtype)
            e = T.alloc_shared((rounds, *shape_e), e_dtype)
            b = T.alloc_shared((rounds, *shape_b), dtype)
            c = T.alloc_fragment((m, n), accum)
            T.copy(A, a)
            T.copy(E, e)
            T.copy(B, b)
            T.fill(c, 1)
            for r in T.unroll(rounds, explicit=True):
                T.wgmma_gemm_sp(
                    a[r, :, :],
                    e[r, :, :],
                    b[r, :, :],
                    c,
                    False,
                    trans_e,
                    trans_b,
                    clear_accum=r == 0,
                )
                if r > 0:
                    T.wait_wgmma(1)
            T.wait_wgmma(0)
            T.copy(c, C)

    return main


def build(func, target=ARCH):
    return tilelang.compile(func, out_idx=-1, target=target)


def sparse(m, k, dtype):
    """A matrix of which two of every four elements are zeros, in any places."""
    keep = torch.rand(m, k // 4, 4).argsort(-1) < 2
    values = torch.randint(1, 5, (m, k // 4, 4)) * (1 if dtype.startswith("u") else -1)
    return (values * keep).reshape(m, k).to(T.dtype(dtype).as_torch())


@pytest.mark.parametrize(
    ("tile", "dtype", "accum", "options"),
    [
        ((64, 64, 64), "float16", "float32", {}),
        ((128, 64, 128), "bfloat16", "float32", {"threads": 256, "rounds": 2}),
        ((64, 128, 32), "float16", "float16", {"trans_b": False, "e_dtype": "int32"}),
        ((128, 32, 128), "int8", "int32", {"e_dtype": "uint8", "trans_e": True}),
        ((64, 16, 64), "float8_e4m3fn", "float32", {"e_dtype": "int32"}),
    ],
)
def test_a_product(tile, dtype, accum, options):
    m, n, k = tile
    kernel = build(product(tile, dtype, accum, **options))
    rounds = options.get("rounds", 1)
    dense = [sparse(m, k, dtype) for _ in range(rounds)]
    b = torch.randint(-4, 5, (rounds, n, k)).to(dense[0].dtype)
    e_type = T.dtype(options.get("e_dtype", "int16")).as_torch()
    a, e = (torch.stack(x) for x in zip(*(compress(d) for d in dense), strict=True))
    e = e.view(torch.uint8).view(e_type)
    e = e.transpose(1, 2).contiguous() if options.get("trans_e") else e
    c = kernel(a, e, b if options.get("trans_b", True) else b.transpose(1, 2).contiguous())
    wanted = sum(x.double() @ y.double().T for x, y in zip(dense, b, strict=True))
    assert torch.equal(c.double(), wanted)
    source = kernel.get_kernel_source()
    step = {8: 64, 16: 32}[T.dtype(dtype).bits]
    assert re.search(rf"tl::wgmma_sp_ss<64, \d+, {step}, ", source)
    compiled = compile_cubin(source, "sm_90a", ["main_kernel"])
    assert "serialized" not in compiled.log
    assert compiled.resource_usage["main_kernel"].spill_stores == 0


def test_in_a_pipeline_operands_stay_until_the_wait(monkeypatch):
    m, n, k = 64, 64, 64

    @T.prim_func
    def main(
        A: T.Tensor((m, 4 * k // 2), "float16"),
        E: T.Tensor((m, 4 * k // 16), "int16"),
        B: T.Tensor((n, 4 * k), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((m, k // 2), "float16"), T.alloc_shared((n, k), "float16")
            e = T.alloc_shared((m, k // 16), "int16")
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for r in T.Pipelined(4, num_stages=2):
                T.copy(A[0, r * k // 2], a)
                T.copy(E[0, r * k // 16], e)
                T.copy(B[0, r * k], b)
                T.wgmma_gemm_sp(a, e, b, c, transpose_B=True)
                T.wait_wgmma(0)
            T.copy(c, C)

    kernel = build(main)
    dense = sparse(m, 4 * k, "float16")
    b = torch.randint(-4, 5, (n, 4 * k)).half()
    a, e = compress(dense)
    for seed in ("0", "3"):
        monkeypatch.setenv("TILELANG_EMULATE_SEED", seed)
        assert torch.equal(kernel(a, e.view(torch.int16), b), dense.float() @ b.float().T)


@pytest.mark.parametrize(
    ("tile", "dtype", "options", "why"),
    [
        ((64, 64, 64), "float16", {"arch": "sm_80"}, "needs sm_90a, found sm_80"),
        ((32, 64, 64), "float16", {}, "M must be a multiple of 64, found 32"),
        ((64, 64, 64), "float32", {"tf32": True}, "none for float32 x float32 -> float32"),
        ((64, 64, 64), "float16", {"trans_a": True}, "A must have elements along K side by side"),
        ((64, 64, 64), "float16", {"fragment": True}, "A is not in shared memory"),
        ((64, 64, 64), "int8", {"trans_b": False}, "must have elements along K side by side"),
    ],
)
def test_what_is_no_wgmma(tile, dtype, options, why):
    m, n, k = tile
    accum = "int32" if dtype == "int8" else "float32"
    trans_a, trans_b = options.get("trans_a", False), options.get("trans_b", True)
    bits = k // 2 * (4 if dtype == "float32" else 2)

    @T.prim_func
    def main(C: T.Tensor((m, n), accum)):
        with T.Kernel(1, threads=128):
            shape = (k // 2, m) if trans_a else (m, k // 2)
            a = (T.alloc_fragment if options.get("fragment") else T.alloc_shared)(shape, dtype)
            e = T.alloc_shared((m, bits // 16), "int16")
            b = T.alloc_shared((n, k) if trans_b else (k, n), dtype)
            c = T.alloc_fragment((m, n), accum)
            T.clear(a)
            T.clear(e)
            T.clear(b)
            note = {"allow_tf32": True} if options.get("tf32") else None
            T.wgmma_gemm_sp(a, e, b, c, trans_a, False, trans_b, clear_accum=True, annotations=note)
            T.wait_wgmma(0)
            T.copy(c, C)

    message = rf"T\.wgmma_gemm_sp: found a product of .* that is no wgmma: .*{why}.*T\.gemm_sp"
    with pytest.raises(ValueError, match=message):
        build(main, {"kind": "cuda", "arch": options.get("arch", "sm_90a")})


def test_a_synchronous_product_is_one_of_warps(caplog):
    @T.prim_func
    def main(C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 32), "float16"), T.alloc_shared((64, 64), "float16")
            e = T.alloc_shared((64, 4), "int16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(a)
            T.fill(e, 0x4444)
            T.clear(b)
            T.gemm_sp(a, e, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    source = build(main).get_kernel_source()
    assert "tl::mma_sp_sync<16, 8, 32, half_t, half_t, float>" in source
    assert "wgmma" not in source
