"""Instructions of a warp's matrices by hand: what they compute, and the errors."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.cuda.nvrtc import compile_cubin
from tilelang.utils.sparse import compress

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
pytestmark = pytest.mark.usefixtures("on_sm_90a")


def build(func, arch="sm_90a"):
    target = {"kind": "cuda", "arch": arch}
    return tilelang.compile(func, target=target)


def product(shape, words, dtype, accum, sparse=False):
    """The fragments of PTX ISA, Matrix Fragments for mma: register i of lane 4 g + t holds elements
    p * t + 4 * p * (i / (rows / 8)) and following of row g + 8 * (i % (rows / 8)).
    """
    m, n, k = shape
    p = max(32 // T.dtype(dtype).bits, 1)
    stored = k // 2 if sparse else k
    a_count, b_count, c_count = m * stored // 32, n * k // 32, m * n // 32
    name = f"m{m}n{n}k{k}"

    @T.prim_func
    def main(
        A: T.Tensor((m, stored), dtype),
        B: T.Tensor((n, k), dtype),
        E: T.Tensor((m, max(k // 16, 1)), "int16"),
        C: T.Tensor((m, n), accum),
    ):
        with T.Kernel(1, threads=32):
            lane = T.get_thread_binding()
            g, t = lane // 4, lane % 4
            a = T.alloc_local((1 + a_count,), dtype)
            b = T.alloc_local((2, b_count), dtype)
            c = T.alloc_local((c_count,), accum)
            e = T.alloc_local((2,), "uint32")
            T.clear(c)
            for i in T.serial(a_count):
                a[1 + i] = A[
                    g + 8 * (i // p % (m // 8)), p * t + 4 * p * (i // p // (m // 8)) + i % p
                ]
            for i in T.serial(b_count):
                b[1, i] = B[g, p * t + 4 * p * (i // p) + i % p]
            for _ in T.serial(2):
                if sparse:
                    low, high = E[g, lane % 2], E[g + 8, lane % 2]
                    e[1] = T.cast(T.cast(low, "uint16"), "uint32") | (
                        T.cast(T.cast(high, "uint16"), "uint32") << T.uint32(16)
                    )
                    form = ("row", "col", *words)
                    operands = (a.data, 1, b.data, b_count, c.data, 0, e.data, 1)
                    T.ptx_mma_sp(accum, name, *form, *operands, 0, False)
                else:
                    operands = (a, 1, b[1, 0], 0, c.data, 0)
                    T.ptx_mma(name, "row", "col", *words, *operands, T.bool(False), dtype=accum)
            for i in T.serial(c_count):
                C[g + 8 * (i // 2), 2 * t + i % 2] = c[i]

    return main


@pytest.mark.parametrize(
    ("shape", "words", "dtype", "accum"),
    [
        ((16, 8, 16), ("fp16", "fp16", "fp32"), "float16", "float32"),
        ((16, 8, 8), ("bf16", "bf16", "fp32"), "bfloat16", "float32"),
        ((16, 8, 8), ("tf32", "tf32", "fp32"), "float32", "float32"),
        ((8, 8, 4), ("fp64", "fp64", "fp64"), "float64", "float64"),
        ((16, 8, 32), ("s8", "s8", "s32"), "int8", "int32"),
        ((16, 8, 32), ("float8_e4m3", "e4m3", "float32"), "float8_e4m3", "float32"),
    ],
)
def test_a_product_is_added_twice(shape, words, dtype, accum):
    m, n, k = shape
    kernel = build(product(shape, words, dtype, accum))
    a, b = (torch.randint(-4, 5, (rows, k)).to(T.dtype(dtype).as_torch()) for rows in (m, n))
    c = torch.zeros(m, n, dtype=T.dtype(accum).as_torch())
    kernel(a, b, torch.zeros(m, max(k // 16, 1), dtype=torch.int16), c)
    assert torch.equal(c.double(), 2 * (a.double() @ b.double().T))


def test_a_product_with_half_of_a():
    words = ("fp16", "fp16", "fp32")
    kernel = build(product((16, 8, 32), words, "float16", "float32", sparse=True))
    dense = torch.randint(1, 5, (16, 32)).half()
    dense[:, 1::4] = 0
    dense[:, 2::4] = 0
    a, e = compress(dense)
    b, c = torch.randint(-4, 5, (8, 32)).half(), torch.zeros(16, 8)
    kernel(a, b, e.view(torch.int16), c)
    assert torch.equal(c, 2 * (dense.float() @ b.float().T))
    assert "tl::mma_sp_sync<16, 8, 32, half_t, half_t, float>" in kernel.get_kernel_source()


def test_matrices_go_to_registers_and_back():
    @T.prim_func
    def main(A: T.Tensor((16, 16), "float16"), B: T.Tensor((16, 16), "float16")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            S = T.alloc_shared((16, 16), "float16")
            held = T.alloc_local((2, 8), "float16")
            T.copy(A, S)
            T.ptx_ldmatrix(True, 4, S[tx % 16, tx // 16 * 8], held[1, 0])
            T.ptx_ldmatrix("float16", False, 2, ".b16", held.data, 0, S.data, tx % 16 * 16)
            T.ptx_stmatrix(0, 4, S[tx % 16, tx // 16 * 8], T.access_ptr(held[1, 0], "r"))
            T.ptx_stmatrix(False, 1, S[8 + tx % 8, 8], held)
            T.copy(S, B)

    kernel = build(main)
    source = kernel.get_kernel_source()
    a, b = torch.randn(16, 16).half(), torch.zeros(16, 16).half()
    kernel(a, b)
    quarters = [a[i : i + 8, j : j + 8] for i in (0, 8) for j in (0, 8)]
    upper, lower = (
        torch.cat([q.T for q in quarters[:2]], 1),
        torch.cat([quarters[2].T, a[:8, :8]], 1),
    )
    assert torch.equal(b, torch.cat([upper, lower]))
    # Loads of all lanes come before the stores of any: between them and the copies are barriers.
    order = [source.index(w) for w in ("ldmatrix_x4_trans(", "ldmatrix_x2(", "stmatrix_x4(")]
    assert order == sorted(order)
    assert source.count("__syncthreads();") == 4
    compile_cubin(source, "sm_90a", ["main_kernel"])


HEAD = """\
S = T.alloc_shared((16, 16), "float16")
a, b = T.alloc_local((8,), "float16"), T.alloc_local((4,), "float16")
c, e = T.alloc_local((4,), "float32"), T.alloc_local((1,), "float32")
F = T.alloc_fragment((16, 16), "float16")
"""


def issued(
    name="m16n8k16", words=("fp16", "fp16", "fp32"), layout="col", a="a", at=0, rest="0", sp=""
):
    listed = ", ".join(map(repr, words))
    call = "ptx_mma_sp" if sp else "ptx_mma"
    operands = f"{a}, {at}, b, 0, c, 0, {sp}{rest}"
    return f"T.{call}('float32', {name!r}, 'row', {layout!r}, {listed}, {operands})"


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        (issued("m16n8k4"), ValueError, "found 'm16n8k4' of float16 and float16 into float32, wan"),
        (issued(words=("fp16", "bf16", "fp32")), ValueError, "of float16 and bfloat16 into float3"),
        (issued(layout="row"), ValueError, "B_layout of T.ptx_mma is 'row', wanted 'col'"),
        (issued(rest="True"), ValueError, "saturate of T.ptx_mma is True, wanted False: sums wrap"),
        (issued(rest="0, 'xor'"), ValueError, "operator of T.ptx_mma is 'xor', wanted None"),
        (issued(rest="n"), ValueError, "saturate of T.ptx_mma is n, wanted True or False"),
        (issued(a="c"), TypeError, "found c of float32, wanted float16; T.view"),
        (issued(a="S"), ValueError, "found S in memory 'shared.dyn', wanted 'local'; allocate it"),
        (issued(a="F"), ValueError, "found F in memory 'local.fragment', wanted 'local'"),
        (issued(a="3"), TypeError, "found 3 of type int, wanted a tile of a thread"),
        (issued(at=1), IndexError, "touches elements 1 to 8 of a, which has 8; wanted them inside"),
        (issued("m16n8k8", words=("s8", "s8", "nope")), ValueError, "'nope' is not a data type"),
        (issued("m16n8k32", sp="e, 0, 1, "), ValueError, "sparse_selector of .* is 1, wanted 0"),
        (issued("m16n8k32", sp="e, 0, 0, "), TypeError, "metadata of .* is e of float32, wanted u"),
        (issued("m16n8k16", sp="e, 0, 0, "), ValueError, "found 'm16n8k16' of float16 and float16"),
        ("T.ptx_ldmatrix(False, 3, S, a)", ValueError, "num of T.ptx_ldmatrix is 3, wanted one of"),
        ("T.ptx_ldmatrix(2, 4, S, a)", ValueError, "trans of T.ptx_ldmatrix is 2, wanted True or "),
        ("T.ptx_ldmatrix(False, 4, A, a)", ValueError, "found A in memory 'global', wanted 'share"),
        ("T.ptx_ldmatrix(False, 4, S, b)", IndexError, "touches elements 0 to 7 of b, which has 4"),
        ("T.ptx_ldmatrix(False, 4)", TypeError, "found 2 arguments, wanted .trans, num, smem, reg"),
        ("T.ptx_ldmatrix(0, 4, '.b8', a, 0, S, 0, dtype='int8')", ValueError, "type of .* is '.b8"),
        ("T.ptx_ldmatrix(0, 4, '.b16', a, 0, S, 0.5, dtype='int8')", TypeError, "offset of .* is "),
        ("T.ptx_stmatrix(False, 1, S, F)", ValueError, "found F in memory 'local.fragment', wante"),
    ],
)  # fmt: skip
def test_errors(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(HEAD + statement)


@pytest.mark.parametrize(
    ("statement", "arch", "message"),
    [
        (issued(), "sm_75", "found tl::mma_sync for sm_75, wanted sm_80 or later"),
        ("T.ptx_stmatrix(False, 4, S[tx % 16, 0], a)", "sm_80", "ptx_stmatrix_x4 for sm_80, wante"),
    ],
)  # fmt: skip
def test_chips_before_the_instruction_are_refused(trace, statement, arch, message):
    with pytest.raises(ValueError, match=rf"{message}[\s\S]*--> "):
        build(trace(HEAD + "T.clear(a)\n" + statement), arch)


def test_it_stays_in_its_order_in_a_pipeline():
    """Loads of fragments from the tiles of a pipelined loop read the version of their iteration,
    and warps are not specialised."""

    @T.prim_func
    def main(A: T.Tensor((4, 16, 16), "float16"), C: T.Tensor((16, 8), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            S = T.alloc_shared((16, 16), "float16")
            a, c = T.alloc_local((8,), "float16"), T.alloc_local((4,), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k, :, :], S)
                T.ptx_ldmatrix(False, 4, S[tx % 16, tx // 16 * 8], a)
                T.ptx_mma(
                    "float32", "m16n8k16", "row", "col", "fp16", "fp16", "fp32", a, 0, a, 0, c, 0, 0
                )
            for i in T.serial(4):
                C[tx // 4 + 8 * (i // 2), 2 * (tx % 4) + i % 2] = c[i]

    kernel = build(main)
    assert "not warp specialised" in str(kernel.explain())
    a, c = torch.randint(-4, 5, (4, 16, 16)).half(), torch.zeros(16, 8)
    kernel(a, c)
    # Registers 0 and 1 of A are those of B for the first 8 columns along K, and rows 0 to 7 twice.
    first = a.float()[:, :8, :8]
    b = torch.cat([first, a.float()[:, 8:, :8]], 2)
    assert torch.equal(c, (a.float() @ b.transpose(1, 2)).sum(0))
