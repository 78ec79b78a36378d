"""PackFloat6: tensors and tiles of 6-bit floats are bytes behind it; what elements would need that
cross bytes is refused."""

import re

import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang import transform
from tilelang.utils import float6

GFX950 = "hip -mcpu=gfx950"
E2M3, E3M2 = "float6_e2m3fn", "float6_e3m2fn"


def copying(dtype=E2M3, columns=64, at=32, to=E2M3, **keywords):
    """Parts of rows, from a tensor through a tile to another tensor."""

    @T.prim_func
    def main(A: T.Tensor((8, columns), dtype), B: T.Tensor((8, 2 * columns), to)):
        with T.Kernel(2, threads=64) as bx:
            S = T.alloc_shared((8, 32), dtype)
            T.copy(A[0, bx * 32], S)
            T.copy(S, B[0, bx * 32 + at], **keywords)

    return main


def test_regions_are_counted_in_bytes():
    lines = transform.PackFloat6()(tvm.IRModule({"main": copying()})).script()
    assert "float6" not in lines
    assert 'A: T.Buffer((8, 48), "uint8"' in lines
    assert 'B: T.Buffer((8, 96), "uint8"' in lines
    assert "A[0:8, bx * 24:bx * 24 + 24]" in lines
    assert "B[0:8, bx * 24 + 24:bx * 24 + 24 + 24]" in lines


def test_a_copy_of_elements_is_one_of_bytes():
    kernel = tilelang.compile(copying(), target=GFX950)
    codes = torch.randint(0, 64, (8, 64))
    b = torch.zeros(8, 96, dtype=torch.uint8)
    kernel(float6.pack_codes(codes), b)
    assert torch.equal(float6.unpack_codes(b)[:, 32:96].long(), codes)
    assert not b[:, :24].any()
    assert not b[:, 72:].any()


@tilelang.jit(target=GFX950, execution_backend="emulate")
def doubled(A, K: int = 0):
    M, K = T.const("M, K")
    A: T.Tensor[[M, K], E2M3]
    B = T.empty((M, 2 * K), E2M3)
    with T.Kernel(1, threads=64):
        S = T.alloc_shared((M, K), E2M3)
        T.copy(A, S)
        T.copy(S, B[:, 0:K])
        T.copy(S, B[:, K : 2 * K])
    return B


def test_constants_read_off_a_tensor_are_elements():
    codes = torch.randint(0, 64, (4, 32))
    found = float6.unpack_codes(doubled(float6.pack_codes(codes)))
    assert torch.equal(found.long(), torch.cat([codes, codes], 1))


def other(what):
    """A program that does something else with a tile."""

    @T.prim_func
    def main(A: T.Tensor((32, 64), E2M3), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((32, 64), E2M3)
            R = T.alloc_shared((64, 32), E2M3)
            F = T.alloc_fragment((32, 64), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            scales = T.alloc_shared((32, 2), "float8_e8m0fnu")
            if what == "element":
                for i, j in T.Parallel(32, 64):
                    F[i, j] = T.cast(S[i, j], "float32")
            elif what == "store":
                for i, j in T.Parallel(32, 64):
                    S[i, j] = T.cast(F[i, j], E2M3)
            elif what == "convert":
                T.copy(S, F)
            elif what == "fill":
                T.clear(S)
            elif what == "gemm":
                T.gemm(S, S, c, transpose_B=True)
            elif what == "rows of K":
                T.gemm_blockscaled(S, R, c, scales, scales)
            elif what == "layout":
                T.annotate_layout({S: tilelang.layout.make_linear_layout(S)})
                T.copy(A, S)
            elif what == "place":
                T.copy(A[0:32, 2:34], S[:, 0:32])

    return main


@pytest.mark.parametrize(
    ("program", "found", "wanted"),
    [
        (other("element"), "found an element of S", "convert on the host"),
        (other("store"), "found an element of S", "convert on the host"),
        (other("convert"), "found T.copy that converts S", "both sides of this type"),
        (other("fill"), "found T.fill of S", "T.copy or T.gemm_blockscaled"),
        (other("gemm"), "found T.gemm of S", "T.copy or T.gemm_blockscaled"),
        (other("rows of K"), "found T.gemm_blockscaled of R, whose rows are of K", "transpose_B=T"),
        (other("layout"), "found a layout or a safe value of S", "none: its layout is that of"),
        (other("place"), "a row of A that begins at element 2,", "a multiple of 4 there"),
        (copying(columns=66), "a row of A that has 66", "a multiple of 4 there: pad the rows"),
        (copying(at=2), "a row of B that begins at element a number of the run", "a multiple of 4"),
        (copying(to=E3M2), "found T.copy that converts S", "both sides of this type"),
        (copying(to="uint8"), "found T.copy that converts S", "both sides of this type"),
        (copying(coalesced_width=4), "found T.copy of S", "no `coalesced_width`"),
        (copying(columns=T.dynamic("n")), "found A, whose last extent is not known", "a constant"),
    ],
)
def test_what_crosses_bytes_is_refused(program, found, wanted):
    message = f"test_pack_float6.py:.*{re.escape(found)}.*lie in three bytes; wanted .*"
    with pytest.raises(ValueError, match=message + re.escape(wanted)):
        tilelang.lower(program, target=GFX950)


def test_rows_may_be_symbols():
    m = T.dynamic("m")

    @T.prim_func
    def main(A: T.Tensor((m, 64), E3M2), B: T.Tensor((m, 64), E3M2)):
        with T.Kernel(T.ceildiv(m, 16), threads=64) as bx:
            S = T.alloc_shared((16, 64), E3M2)
            T.copy(A[bx * 16, 0], S)
            T.copy(S, B[bx * 16, 0])

    a = torch.randint(0, 256, (21, 48), dtype=torch.uint8)
    b = torch.zeros_like(a)
    tilelang.compile(main, target=GFX950)(a, b)
    assert torch.equal(a, b)
