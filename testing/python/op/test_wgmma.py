"""T.gemm by wgmma on sm_90a against float64 and exact integers: types, memories, orders of the
operands, swizzles, regions, warp groups; and what is left to other instructions.
"""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.cuda.nvrtc import compile_ptx
from tilelang.layout import make_swizzled_layout

ARCH = {"kind": "cuda", "arch": "sm_90a"}
ERROR = {"float16": 2e-3, "float32": 1e-6, "int32": 0.0}


def gemm(tile, dtype, accum, form, threads=128, call=None, **options):
    """One product. `form` has a letter for each of A and B: s(hared) or f(ragment), in upper case
    where the operand is stored transposed.
    """
    m, n, k = tile
    trans_a, trans_b = (letter.isupper() for letter in form)
    shape_a, shape_b = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)
    call = call or T.gemm

    @T.prim_func
    def main(A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((m, n), accum)):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared(shape_a, dtype)
            b = T.alloc_shared(shape_b, dtype)
            a_f = T.alloc_fragment(shape_a, dtype)
            c = T.alloc_fragment((m, n), accum)
            T.copy(A, a)
            T.copy(B, b)
            if form[0] in "fF":
                T.copy(a, a_f)
            T.fill(c, 1)
            call(a_f if form[0] in "fF" else a, b, c, trans_a, trans_b, **options)
            if call is not T.gemm:
                T.wait_wgmma(0)
            T.copy(c, C)

    return main


def data(dtype, *shape):
    torch_dtype = T.dtype(dtype).as_torch()
    if torch_dtype.is_floating_point:
        return torch.randn(*shape, dtype=torch.float64).to(torch_dtype)
    return torch.randint(0 if dtype.startswith("u") else -128, 128, shape).to(torch_dtype)


def build(func, **config):
    return tilelang.compile(
        func, out_idx=-1, target=ARCH, execution_backend="emulate", pass_configs=config
    )


def check(tile, dtype, accum, form="sS", threads=128, error=None, **options):
    """Runs the kernel of `gemm`, compares, and returns its source."""
    m, n, k = tile
    kernel = build(gemm(tile, dtype, accum, form, threads, **options))
    a = data(dtype, *((k, m) if form[0].isupper() else (m, k)))
    b = data(dtype, *((n, k) if form[1].isupper() else (k, n)))
    x = a.double().T if form[0].isupper() else a.double()
    y = b.double().T if form[1].isupper() else b.double()
    wanted = x @ y + (0 if options.get("clear_accum") else 1)
    found = kernel(a, b).double()
    limit = (ERROR[accum] if error is None else error) * float(wanted.norm())
    assert float((found - wanted).norm()) <= limit
    return kernel.get_kernel_source()


@pytest.mark.parametrize("form", ["ss", "Ss", "sS", "SS", "fs", "FS"])
def test_memories_and_orders(form):
    source = check((64, 64, 64), "float16", "float32", form)
    name = "wgmma_rs" if form[0] in "fF" else "wgmma_ss"
    assert f"{name}<64, 64, 16, half_t, half_t, float" in source
    assert "a_f_shared" not in source


@pytest.mark.parametrize("form", ["sS", "fS"])
@pytest.mark.parametrize(
    ("dtype", "accum", "k", "types"),
    [
        ("float16", "float16", 16, "half_t, half_t, half_t"),
        ("bfloat16", "float32", 16, "bfloat16_t, bfloat16_t, float"),
        ("float32", "float32", 8, "tfloat32_t, tfloat32_t, float"),
        ("float8_e4m3fn", "float32", 32, "fp8_e4_t, fp8_e4_t, float"),
        ("float8_e5m2", "float16", 32, "fp8_e5_t, fp8_e5_t, half_t"),
        ("int8", "int32", 32, "int8_t, int8_t, int"),
        ("uint8", "int32", 32, "uint8_t, uint8_t, int"),
    ],
)
def test_types(dtype, accum, k, types, form):
    options = {}
    if dtype == "float32":
        # Twice what rounding to nearest costs: the lower bits are left out.
        options = {"annotations": {"allow_tf32": True}, "error": 2e-3}
    source = check((64, 32, 2 * k), dtype, accum, form, **options)
    assert f"<64, 32, {k}, {types}, " in source


@pytest.mark.parametrize("form", ["ss", "sS", "Ss"])
@pytest.mark.parametrize(
    ("tile", "spans"),
    [
        # Bytes of a row, of A and then of B, that the form has side by side.
        ((64, 16, 16), {"ss": (32, 32), "sS": (32, 32), "Ss": (128, 32)}),
        ((64, 32, 32), {"ss": (64, 64), "sS": (64, 64), "Ss": (128, 64)}),
        ((128, 48, 96), {"ss": (64, 32), "sS": (64, 64), "Ss": (128, 32)}),
        ((64, 128, 128), {"ss": (128, 128), "sS": (128, 128), "Ss": (128, 128)}),
    ],
)
def test_swizzles(tile, spans, form):
    """Tiles of several spans, along K and beside it."""
    source = check(tile, "bfloat16", "float32", form)
    for name, span in zip("ab", spans[form], strict=True):
        assert f"{name}_desc = tl::wgmma_descriptor<{span}>" in source


@pytest.mark.parametrize(
    ("tile", "threads", "policy", "warps", "columns"),
    [
        ((128, 64, 16), 128, "Square", "4x1", 64),
        ((128, 64, 16), 256, "FullRow", "8x1", 64),
        ((128, 64, 16), 256, "FullCol", "4x2", 32),
        ((64, 512, 16), 128, "Square", "4x1", 256),
        ((64, 272, 16), 128, "Square", "4x1", 136),
        ((192, 24, 16), 384, "FullRow", "12x1", 24),
    ],
)
def test_warp_groups(tile, threads, policy, warps, columns, caplog):
    policy = T.GemmWarpPolicy[policy]
    source = check(tile, "float16", "float32", "sS", threads, policy=policy)
    assert f"wgmma_ss<64, {columns}, 16" in source
    assert f"{warps} warps" in caplog.text


def test_columns_of_integers():
    """From 32 on multiples of 16."""
    assert "wgmma_ss<64, 8, 32" in check((64, 40, 32), "int8", "int32")
    assert "wgmma_ss<64, 24, 32" in check((64, 24, 32), "int8", "int32")


@pytest.mark.parametrize(("form", "place"), [("sS", "shared"), ("fS", "registers")])
def test_steps_along_k(form, place):
    """Nine of them are two assembly statements, which the headers need not have: without the list
    of products each is one."""
    source = check((64, 32, 144), "float16", "float32", form)
    products, _, rest = source.partition("\n")
    assert products.endswith(f"sparse) {place}(float, 16, 1) {place}(float, 16, 8)")
    for text, statements in ((source, 2), (rest, 9)):
        ptx = compile_ptx(text, "sm_90a")
        assert ptx.count("wgmma.mma_async.") == 9
        assert ptx.count("setp.ne.b32 q") == statements


def test_products_of_own_source():
    """They are not known, so all products that there are can be had."""

    def call(*args, **options):
        T.import_source("#include <tl/wgmma_ss.h>")
        T.gemm(*args, **options)

    kernel = build(gemm((64, 32, 32), "float16", "float32", "sS", call=call))
    assert "TL_WGMMA_PRODUCTS" not in kernel.get_kernel_source()


def test_a_loop_of_products_is_not_unrolled():
    """NVVM copies the bodies of others, such as those with products of a warp."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 128), "float16"),
        C: T.Tensor((64, 128), "float32"),
        D: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((64, 128), "float32")
            d = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.clear(d)
            for _ in T.serial(8):
                T.gemm(a, b, c)
                T.gemm(a, a, d, transpose_B=True)
            T.copy(c, C)
            T.copy(d, D)

    kernel = tilelang.compile(main, out_idx=[-2, -1], target=ARCH, execution_backend="emulate")
    a, b = data("float16", 64, 64), data("float16", 64, 128)
    for found, other in zip(kernel(a, b), (b, a.T), strict=True):
        wanted = 8 * a.double() @ other.double()
        # Sums of squares: tensor cores truncate.
        assert float((found - wanted).norm()) <= 8 * ERROR["float32"] * float(wanted.norm())

    def in_front_of_the_loop(source):
        lines = [line.strip() for line in source.splitlines()]
        loop = next(k for k, line in enumerate(lines) if line.endswith("< 8; ++_) {"))
        return lines[loop - 1]

    assert in_front_of_the_loop(kernel.get_kernel_source()) == "#pragma unroll 1"
    warps = tilelang.lower(main, target="cuda -arch=sm_80").kernel_source
    assert not in_front_of_the_loop(warps).startswith("#pragma")


@pytest.mark.parametrize("clear", [False, True])
def test_clear_accum(clear):
    source = check((64, 16, 32), "float16", "float32", clear_accum=clear)
    assert (", false);" in source) is clear
    assert (", true);" in source) is not clear
    # The test's own fill is the only one.
    assert source.count("c[r] = 1.0f;") == source.count("c[r] =") == 1


@pytest.mark.parametrize(
    ("tile", "form", "threads", "why"),
    [
        ((32, 64, 64), "sS", 128, "M must be a multiple of 64, found 32"),
        ((64, 64, 40), "sS", 128, "K must be a multiple of 16, found 40"),
        ((64, 64, 64), "sS", 96, "threads must be a multiple of 128, found 96"),
        ((64, 8, 16), "sS", 256, "no way to share 64x8 among 8 warps"),
        ((64, 24, 16), "ss", 128, "a row of b is no multiple of 32 bytes"),
    ],
)
def test_what_warps_do(tile, form, threads, why, caplog):
    assert "mma_sync" in check(tile, "float16", "float32", form, threads)
    assert f"no wgmma: {why}" in caplog.text


def test_bytes_are_k_major(caplog):
    assert "wgmma" not in check((64, 32, 32), "int8", "int32", "ss")
    assert "must have elements along K side by side" in caplog.text


def test_disabled():
    func = gemm((64, 32, 32), "float16", "float32", "sS")
    assert "mma_sync" in build(func, **{"tl.disable_wgmma": True}).get_kernel_source()


@pytest.mark.parametrize("form", ["sS", "fs"])
def test_asynchronous(form):
    source = check((64, 32, 32), "float16", "float32", form, call=T.wgmma_gemm)
    assert source.count("warpgroup_wait<0>") == 1
    # In front of the first product, and after the wait.
    assert source.count("warpgroup_fence_operand<16>") == 2


def test_asynchronous_alias():
    assert T.wgmma_mma is T.wgmma_gemm


@pytest.mark.parametrize(
    ("tile", "dtype", "why"),
    [
        ((32, 64, 64), "float16", "M must be a multiple of 64"),
        ((64, 64, 64), "float64", "none for float64 x float64"),
    ],
)
def test_asynchronous_or_not_at_all(tile, dtype, why):
    accum = "float64" if dtype == "float64" else "float32"
    with pytest.raises(ValueError, match=rf"T.wgmma_gemm: found a product of .*{why}"):
        build(gemm(tile, dtype, accum, "sS", call=T.wgmma_gemm))
    with pytest.raises(ValueError, match="needs sm_90a, found sm_80"):
        tilelang.lower(
            gemm((64, 64, 64), "float16", "float32", "sS", call=T.wgmma_gemm),
            target="cuda -arch=sm_80",
        )


@pytest.mark.parametrize("groups", [-1, 8, "n"])
def test_groups_to_wait_for(groups):
    with pytest.raises((ValueError, TypeError), match=r"T\.wait_wgmma found"):

        @T.prim_func
        def main(n: T.int32):
            with T.Kernel(1, threads=128):
                T.wait_wgmma(n if groups == "n" else groups)


@pytest.mark.parametrize("swizzled", [True, False])
def test_annotated_layouts(swizzled):
    """A descriptor can express swizzles alone."""
    rows = T.Layout((64, 64), lambda i, j: [i, j])

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64))
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.annotate_layout({a: make_swizzled_layout(a) if swizzled else rows})
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    a, b = data("float16", 64, 64), data("float16", 64, 64)
    kernel = build(main)
    assert ("wgmma" in kernel.get_kernel_source()) is swizzled
    assert torch.allclose(kernel(a, b).double(), a.double() @ b.double().T, atol=1e-4)


def test_regions():
    """Parts of tiles, chosen at run time: rows of A, columns of B, and both along K."""
    m, n, k = 128, 64, 64

    @T.prim_func
    def main(
        A: T.Tensor((2, m, k), "float16"), B: T.Tensor((k, 2 * n), "float16"),
        C: T.Tensor((2, 2, 64, n), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((2, m, k), "float16")
            b = T.alloc_shared((k, 2 * n), "float16")
            c = T.alloc_fragment((64, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.grid(2, 2):
                T.clear(c)
                for ko in T.serial(2):
                    rows, columns, depth = i * 64, j * n, ko * 32
                    T.gemm(
                        a[1, rows : rows + 64, depth : depth + 32],
                        b[depth : depth + 32, columns : columns + n],
                        c,
                    )
                T.copy(c, C[i, j, :, :])

    a, b = data("float16", 2, m, k), data("float16", k, 2 * n)
    kernel = build(main)
    assert "wgmma_ss" in kernel.get_kernel_source()
    wanted = (a[1].double() @ b.double()).reshape(2, 64, 2, n).permute(0, 2, 1, 3)
    assert torch.allclose(kernel(a, b).double(), wanted, atol=1e-4)


@pytest.mark.parametrize(
    ("begins", "depth", "span"),
    [
        pytest.param((0, 32, 64, 96), 32, 128, id="halves of spans"),
        pytest.param((16, 112, 32), 16, 128, id="single steps"),
        pytest.param((48, 0, 96), 32, 32, id="from one span to the next"),
    ],
)
def test_parts_along_k(begins, depth, span):
    """Parts of rows of 256 bytes leave the tiles the widest swizzle that each part is within."""
    m, n, k = 64, 32, 128

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((n, k), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((m, k), "float16")
            b = T.alloc_shared((n, k), "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            for begin in begins:
                part = slice(begin, begin + depth)
                T.gemm(a[:, part], b[:, part], c, transpose_B=True)
            T.copy(c, C)

    a, b = data("float16", m, k), data("float16", n, k)
    kernel = build(main)
    assert kernel.get_kernel_source().count(f"wgmma_descriptor<{span}>") == 2 * len(begins)
    taken = [column for begin in begins for column in range(begin, begin + depth)]
    wanted = a[:, taken].double() @ b[:, taken].double().T
    assert torch.allclose(kernel(a, b).double(), wanted, atol=1e-4)


@pytest.mark.parametrize("stages", [0, 2])
def test_views(stages):
    """Operands that have another shape where they are filled, once and in a pipeline by TMA."""
    m, n, k, block_k = 128, 64, 192, 64

    @T.prim_func
    def main(
        A: T.Tensor((16, 8, k), "float16"), B: T.Tensor((n // 2, 2, k), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((16, 8, block_k), "float16")
            b = T.alloc_shared((n // 2, 2, block_k), "float16")
            c = T.alloc_fragment((m, n), "float32")
            rows, columns = T.reshape(a, (m, block_k)), T.reshape(b, (n, block_k))
            T.clear(c)
            for ko in T.Pipelined(k // block_k, num_stages=stages):
                T.copy(A[0, 0, ko * block_k], a)
                T.copy(B[0, 0, ko * block_k], b)
                T.gemm(rows, columns, c, transpose_B=True)
            T.copy(c, C)

    a, b = data("float16", 16, 8, k), data("float16", n // 2, 2, k)
    kernel = build(main)
    source = kernel.get_kernel_source()
    assert "tl::wgmma_ss<64" in source
    assert ("tl::tma_load" in source) is (stages > 0)
    wanted = a.reshape(m, k).double() @ b.reshape(n, k).double().T
    assert torch.allclose(kernel(a, b).double(), wanted, atol=1e-4)


@pytest.mark.parametrize("bits", [16, 32])
def test_views_of_another_type(caplog, bits):
    """Elements of another width have no place of their own in a swizzled tile."""
    shape = 64, 64 * 16 // bits

    @T.prim_func
    def main(A: T.Tensor(shape, f"uint{bits}"), B: T.Tensor((64, 64), "float16"),
             C: T.Tensor((64, 64), "float32")):  # fmt: skip
        with T.Kernel(1, threads=128):
            a = T.alloc_shared(shape, f"uint{bits}")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(T.view(a, (64, 64), "float16"), b, c, clear_accum=True)
            T.copy(c, C)

    a, b = data("float16", 64, 64), data("float16", 64, 64)
    kernel = build(main)
    why = "no wgmma: an operand is a view with elements of another width"
    assert (why in caplog.text) is (bits == 32)
    assert ("tl::wgmma_ss<64" in kernel.get_kernel_source()) is (bits == 16)
    viewed = a.view(torch.uint16 if bits == 16 else torch.uint32)
    assert torch.allclose(kernel(viewed, b).double(), a.double() @ b.double(), atol=1e-4)


@pytest.mark.parametrize(("block_m", "stages", "threads"), [(64, 1, 128), (128, 3, 256)])
def test_in_a_pipeline(block_m, stages, threads):
    """Operands that cp.async fills pass a fence, and are not written before the wait."""
    n, k, block_k = 64, 160, 32

    @T.prim_func
    def main(
        A: T.Tensor((block_m, k), "float16"), B: T.Tensor((k, n), "float16"),
        C: T.Tensor((block_m, n), "float16"),
    ):  # fmt: skip
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((block_m, block_k), "float16")
            b = T.alloc_shared((block_k, n), "float16")
            c = T.alloc_fragment((block_m, n), "float32")
            out = T.alloc_shared((block_m, n), "float16")
            for ko in T.Pipelined(k // block_k, num_stages=stages):
                T.copy(A[0, ko * block_k], a)
                T.copy(B[ko * block_k, 0], b)
                T.gemm(a, b, c, clear_accum=ko == 0)
            T.copy(c, out)
            T.copy(out, C)

    a, b = data("float16", block_m, k), data("float16", k, n)
    kernel = build(main, **{"tl.disable_warp_specialized": True})
    source = kernel.get_kernel_source()
    assert "wgmma_ss" in source
    assert "tl::cp_async_wait<" in source
    assert "tl::fence_proxy_async();\n    __syncthreads();" in source
    wanted = a.double() @ b.double()
    assert float((kernel(a, b).double() - wanted).norm()) <= 1e-3 * float(wanted.norm())


def attention(m, n, d, threads, policy):
    """Both products of attention; V is read along its rows, K across."""

    @T.prim_func
    def main(
        Q: T.Tensor((m, d), "float16"), K: T.Tensor((2 * n, d), "float16"),
        V: T.Tensor((2 * n, d), "float16"), Out: T.Tensor((m, d)),
    ):  # fmt: skip
        with T.Kernel(1, threads=threads):
            q = T.alloc_shared((m, d), "float16")
            k = T.alloc_shared((n, d), "float16")
            v = T.alloc_shared((n, d), "float16")
            s = T.alloc_fragment((m, n), "float32")
            p = T.alloc_fragment((m, n), "float16")
            o = T.alloc_fragment((m, d), "float32")
            T.copy(Q, q)
            T.clear(o)
            for i in T.serial(2):
                T.copy(K[i * n, 0], k)
                T.copy(V[i * n, 0], v)
                T.gemm(q, k, s, transpose_B=True, policy=policy, clear_accum=True)
                T.copy(s, p)
                T.gemm(p, v, o, policy=policy)
            T.copy(o, Out)

    return main


@pytest.mark.parametrize(
    ("m", "threads", "policy", "stays"),
    [
        (64, 128, T.GemmWarpPolicy.FullRow, True),
        (128, 128, T.GemmWarpPolicy.FullRow, True),
        (128, 256, T.GemmWarpPolicy.FullRow, True),
        (64, 256, T.GemmWarpPolicy.FullCol, False),
    ],
)
def test_accumulator_becomes_operand(m, threads, policy, stays):
    """What a warp group has all columns of stays in its registers."""
    n, d = 64, 32
    q, k, v = data("float16", m, d), data("float16", 2 * n, d), data("float16", 2 * n, d)
    kernel = build(attention(m, n, d, threads, policy))
    source = kernel.get_kernel_source()
    assert "wgmma_rs" in source if stays else "p_shared" in source
    assert ("p_shared" in source) is not stays
    assert "p_frag" not in source
    scores = (q.double() @ k.double().T).half().double()
    wanted = scores @ v.double()
    assert float((kernel(q, k, v).double() - wanted).norm()) <= 1e-3 * float(wanted.norm())


def of_a_branch(tile, policy, consumes, loads):
    """Of 12 warps, those of one branch load tiles and those of another multiply them."""
    m, n, k = tile

    @T.prim_func
    def main(
        A: T.Tensor((3, m, k), "float16"),
        B: T.Tensor((3, k, n), "float16"),
        C: T.Tensor((3, m, n), "float32"),
    ):
        with T.Kernel(1, threads=384):
            tx = T.get_thread_binding()
            a = T.alloc_shared((2, m, k), "float16")
            b = T.alloc_shared((2, k, n), "float16")
            c = T.alloc_fragment((m, n), "float32")
            full = T.alloc_barrier([128, 128])
            empty = T.alloc_barrier([128, 128])
            if loads(tx):
                for i in T.serial(3):
                    T.barrier_wait(empty[i % 2], (i // 2 + 1) % 2)
                    T.copy(A[i, :, :], a[i % 2, :, :])
                    T.copy(B[i, :, :], b[i % 2, :, :])
                    T.barrier_arrive(full[i % 2])
            else:
                if consumes(tx):
                    for i in T.serial(3):
                        T.barrier_wait(full[i % 2], i // 2 % 2)
                        T.wgmma_gemm(
                            a[i % 2, :, :], b[i % 2, :, :], c, policy=policy, clear_accum=True
                        )
                        T.wait_wgmma(0)
                        T.barrier_arrive(empty[i % 2])
                        T.copy(c, C[i, :, :])

    return main


@pytest.mark.parametrize(
    ("tile", "policy", "warps", "consumes", "loads"),
    [
        # In a block of 12 warps, FullRow would leave a warp group 64 / 3 rows.
        (
            (64, 64, 32),
            T.GemmWarpPolicy.FullRow,
            "4x1",
            lambda tx: tx < 128,
            lambda tx: tx >= 256,
        ),
        (
            (64, 128, 32),
            T.GemmWarpPolicy.FullCol,
            "4x1",
            lambda tx: tx // 128 == 1,
            lambda tx: tx // 128 == 2,
        ),
        (
            (128, 64, 32),
            T.GemmWarpPolicy.Square,
            "4x1",
            lambda tx: tx >= 256,
            lambda tx: tx // 128 == 1,
        ),
    ],
)
def test_a_policy_deals_to_the_threads_of_the_branch(tile, policy, warps, consumes, loads):
    m, n, k = tile
    kernel = tilelang.compile(
        of_a_branch(tile, policy, consumes, loads), target=ARCH, execution_backend="emulate"
    )
    assert f"{warps} warps" in kernel.explain()
    a, b, c = data("float16", 3, m, k), data("float16", 3, k, n), torch.zeros(3, m, n)
    kernel(a, b, c)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-3, atol=1e-3)
