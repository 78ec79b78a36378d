"""T.gemm_sp against float64 and exact integers: types, metadata, memories, sizes, refusals."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_cutlass_metadata_layout
from tilelang.utils.sparse import compress

ERROR = {"float16": 2e-3, "float32": 1e-5, "int32": 0.0}


def gemm_sp(tile, dtype, accum, metadata="int16", form="ss", threads=64, layout=None, **options):
    """One T.gemm_sp; `form` has a letter for A and B: s(hared) or f(ragment), in upper case where
    the operand is stored transposed; E of form "E" is stored transposed."""
    m, n, k = tile
    trans_a, trans_b, trans_e = form[0].isupper(), form[1].isupper(), form[2:] == "E"
    entries = k * (2 if dtype == "float32" else 1) // T.dtype(metadata).bits
    shape_a = (k // 2, m) if trans_a else (m, k // 2)
    shape_b = (n, k) if trans_b else (k, n)
    shape_e = (entries, m) if trans_e else (m, entries)

    @T.prim_func
    def main(
        A: T.Tensor(shape_a, dtype),
        E: T.Tensor(shape_e, metadata),
        B: T.Tensor(shape_b, dtype),
        C: T.Tensor((m, n), accum),
    ):
        with T.Kernel(1, threads=threads):
            a_s, b_s = T.alloc_shared(shape_a, dtype), T.alloc_shared(shape_b, dtype)
            a_f, b_f = T.alloc_fragment(shape_a, dtype), T.alloc_fragment(shape_b, dtype)
            e = T.alloc_shared(shape_e, metadata)
            c = T.alloc_fragment((m, n), accum)
            if layout:
                T.annotate_layout({e: layout(e)})
            T.copy(A, a_s)
            T.copy(B, b_s)
            T.copy(E, e)
            if form[0] in "fF":
                T.copy(a_s, a_f)
            if form[1] in "fF":
                T.copy(b_s, b_f)
            T.fill(c, 1)
            a, b = (a_f if form[0] in "fF" else a_s), (b_f if form[1] in "fF" else b_s)
            T.gemm_sp(a, e, b, c, trans_a, trans_e, trans_b, **options)
            T.copy(c, C)

    return main


def data(dtype, *shape):
    torch_dtype = T.dtype(dtype).as_torch()
    if torch_dtype.is_floating_point:
        return torch.randn(*shape, dtype=torch.float64).to(torch_dtype)
    low = 0 if dtype.startswith("u") else -128
    return torch.randint(low, 128, shape).to(torch_dtype)


def pruned(dtype, m, k):
    """A matrix that keeps elements at random places of each group, and some groups with fewer."""
    group = 2 if dtype == "float32" else 4
    keep = torch.rand(m, k // group, group).argsort(-1) < group // 2
    keep &= torch.rand(m, k // group, 1) < 0.9
    return torch.where(keep.view(m, k), data(dtype, m, k).double(), 0.0).to(
        T.dtype(dtype).as_torch()
    )


def check(tile, dtype, accum, metadata="int16", form="ss", arch="sm_89", **options):
    m, n, k = tile
    func = gemm_sp(tile, dtype, accum, metadata, form, **options)
    # An H200 has them all; an architecture is asked for where there is no GPU.
    target = {"target": f"cuda -arch={arch}"} if not torch.cuda.is_available() else {}
    kernel = tilelang.compile(func, out_idx=-1, execution_backend="auto", **target)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = pruned(dtype, m, k), data(dtype, k, n)
    values, codes = compress(a, T.dtype(metadata).as_torch())
    inputs = [
        values.T.contiguous() if form[0].isupper() else values,
        codes.T.contiguous() if form[2:] == "E" else codes,
        b.T.contiguous() if form[1].isupper() else b,
    ]
    found = kernel(*(x.to(device) for x in inputs)).cpu().double()
    wanted = a.double() @ b.double() + 1
    limit = 1e-3 if dtype == "float32" else ERROR[accum]
    assert float((found - wanted).norm()) <= limit * float(wanted.norm())
    return kernel.get_kernel_source()


@pytest.mark.parametrize(
    ("dtype", "accum", "metadata", "tile", "form", "mma"),
    [
        ("float16", "float32", "int16", (32, 24, 96), "ss", "32, half_t, half_t, float"),
        ("float16", "float16", "uint8", (48, 16, 32), "sS", "32, half_t, half_t, half_t"),
        ("bfloat16", "float32", "int32", (16, 40, 64), "Ss", "32, bfloat16_t, bfloat16_t, float"),
        ("float32", "float32", "int16", (32, 24, 48), "sS", "16, tfloat32_t, tfloat32_t, float"),
        ("int8", "int32", "int32", (64, 8, 64), "sS", "64, int8_t, int8_t, int"),
        ("int8", "int32", "int16", (16, 24, 192), "SsE", "64, int8_t, int8_t, int"),
        ("uint8", "int32", "uint8", (16, 16, 64), "sS", "64, uint8_t, uint8_t, int"),
        ("float8_e4m3fn", "float32", "int32", (32, 8, 128), "sS", "64, fp8_e4_t, fp8_e4_t, float"),
        ("float8_e5m2", "float32", "uint8", (16, 8, 64), "ss", "64, fp8_e5_t, fp8_e5_t, float"),
    ],
)
def test_types_metadata_and_sizes(dtype, accum, metadata, tile, form, mma):
    options = {"annotations": {"allow_tf32": True}} if dtype == "float32" else {}
    source = check(tile, dtype, accum, metadata, form, **options)
    assert f"mma_sp_sync<16, 8, {mma}>" in source


@pytest.mark.parametrize("form", ["fs", "sf", "Fs", "ffE"])
def test_fragments(form):
    assert "mma_sp_sync<16, 8, 32" in check((32, 16, 64), "float16", "float32", form=form)


@pytest.mark.parametrize("threads", [32, 96, 128])
def test_threads(threads):
    check((96, 16, 32), "float16", "float32", threads=threads)


@pytest.mark.parametrize(("dtype", "metadata"), [("float16", "int16"), ("int8", "int32")])
def test_metadata_has_any_layout(dtype, metadata):
    """What the layout changes is the order in memory."""
    accum = "int32" if dtype == "int8" else "float32"
    check((32, 8, 128), dtype, accum, metadata, "sS", layout=make_cutlass_metadata_layout)


def test_stages_of_a_pipeline(compiled, device):
    m, n, k = 64, 32, 192

    @T.prim_func
    def main(
        A: T.Tensor((m, k // 2), "float16"),
        E: T.Tensor((m, k // 16), "int16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=64):
            a, e = T.alloc_shared((m, 32), "float16"), T.alloc_shared((m, 4), "int16")
            b, c = T.alloc_shared((64, n), "float16"), T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for ko in T.Pipelined(k // 64, num_stages=2):
                T.copy(A[0, ko * 32], a)
                T.copy(E[0, ko * 4], e)
                T.copy(B[ko * 64, 0], b)
                T.gemm_sp(a, e, b, c)
            T.copy(c, C)

    a, b = pruned("float16", m, k), data("float16", k, n)
    values, codes = compress(a)
    found = compiled(main, out_idx=-1)(*(x.to(device) for x in (values, codes, b))).cpu().double()
    torch.testing.assert_close(found, a.double() @ b.double(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("tile", "dtype", "accum", "found"),
    [
        ((24, 8, 32), "float16", "float32", "M must be a multiple of 16, found 24"),
        ((32, 8, 48), "float16", "float32", "K must be a multiple of 32, found 48"),
        ((32, 8, 32), "float32", "float32", "allow_tf32"),
        ((32, 8, 32), "float64", "float64", "no instruction for float64"),
    ],
)
def test_what_no_instruction_takes_is_refused(tile, dtype, accum, found):
    with pytest.raises(ValueError, match=rf"\.py:\d+: T\.gemm_sp: .*{found}.*use T\.gemm with"):
        tilelang.lower(gemm_sp(tile, dtype, accum), target="cuda -arch=sm_80")


def test_metadata_of_another_shape_is_refused():
    with pytest.raises(AssertionError, match=r"E of T\.gemm_sp is \(16, 2\) .* \(16, 4\)"):

        @T.prim_func
        def main(C: T.Tensor((16, 8), "float32")):
            with T.Kernel(1, threads=32):
                a, b = T.alloc_shared((16, 32), "float16"), T.alloc_shared((64, 8), "float16")
                e, c = T.alloc_shared((16, 2), "int16"), T.alloc_fragment((16, 8), "float32")
                T.gemm_sp(a, e, b, c)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU does not say that metadata is wrong")
def test_the_emulator_names_metadata_that_is_none():
    kernel = tilelang.compile(
        gemm_sp((16, 8, 32), "float16", "float32"), out_idx=-1, execution_backend="emulate"
    )
    half, codes = torch.ones(16, 16).half(), torch.full((16, 2), 0x4444, dtype=torch.int16)
    codes[9, 1] = 0x4447
    told = r"metadata 0x7 of row 9, elements 16 to 19 along K[\s\S]*Fill E with .*compress"
    with pytest.raises(RuntimeError, match=told):
        kernel(half, codes, torch.ones(32, 8).half())
    codes[9, 1] = 0x4440
    told = r"metadata 0x0 of row 9[\s\S]*rows outside of E: .* T\.annotate_safe_value\(\{E: 0x4444"
    with pytest.raises(RuntimeError, match=told):
        kernel(half, codes, torch.ones(32, 8).half())
