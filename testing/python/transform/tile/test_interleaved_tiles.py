"""SelectInstructions: of how many MMAs of a warp rows and columns take turns, as values."""

import pytest
import tvm
from tvm_ffi import structural_walk

import tilelang.language as T
from tilelang.layout import Fragment

F16 = "float16"
GROUP = T.GemmWarpPolicy.FullRow
BLOCKED = Fragment((64, 128), lambda i, j: (i + j // 64 * 64, j % 64))
NONE, COLUMNS = [1, 1], [1, 4]


def products(use, trans_a=False, trans_b=(False, False)):
    """A @ B and A @ D of 64 x 128, and what `use` says that is done with the accumulators."""
    shape_a = (32, 64) if trans_a else (64, 32)
    shape_b, shape_d = ((128, 32) if trans else (32, 128) for trans in trans_b)

    @T.prim_func
    def main(Out: T.Tensor((64, 128), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared(shape_a, F16)
            b = T.alloc_shared(shape_b, F16)
            d = T.alloc_shared(shape_d, F16)
            c = T.alloc_fragment((64, 128), "float32")
            e = T.alloc_fragment((64, 128), "float32")
            if use == "placed":
                T.annotate_layout({c: BLOCKED})
            if use == "named twice":
                T.clear(T.reshape(c, (128, 64)))
            T.gemm(a, b, c, trans_a, trans_b[0], policy=GROUP)
            T.gemm(a, d, c if use == "one" else e, trans_a, trans_b[1], policy=GROUP)
            if use == "sum":
                for i, j in T.Parallel(64, 128):
                    c[i, j] += e[i, j]
            if use == "bias":
                bias = T.alloc_fragment((128,), "float32")
                for i, j in T.Parallel(64, 128):
                    c[i, j] += bias[j]
                for i, j in T.Parallel(64, 128):
                    e[i, j] -= bias[j]
            if use == "total of rows":
                total = T.alloc_fragment((64,), "float32")
                for i, j in T.Parallel(64, 128):
                    c[i, j] *= total[i]
                for i, j in T.Parallel(64, 128):
                    e[i, j] *= total[i]
            if use == "copy":
                T.copy(c, e)
            if use == "operand":
                cast = T.alloc_fragment((64, 128), F16)
                g = T.alloc_shared((128, 128), F16)
                T.copy(c, cast)
                T.gemm(cast, g, e, policy=GROUP)
            T.copy(e, Out)

    return main


def counts(tile_passes, func, arch="gfx942"):
    """`interleaved` of each product, in order."""
    found = []

    def call(node):
        if isinstance(node.value, tvm.ir.Call) and node.value.op.name == "tl.tileop.gemm":
            found.append([*node.value.attrs.get("interleaved", NONE)])

    mod = tile_passes(func, "HoistViews", "SelectInstructions", arch=arch)
    structural_walk(mod["main"], [(tvm.tirx.Evaluate, call)])
    return found


@pytest.mark.parametrize(
    ("use", "trans_b", "wanted"),
    [
        ("nothing", (False, False), [COLUMNS, COLUMNS]),
        ("nothing", (False, True), [COLUMNS, NONE]),
        ("one", (False, False), [COLUMNS, COLUMNS]),
        ("one", (False, True), [NONE, NONE]),
        ("sum", (False, False), [COLUMNS, COLUMNS]),
        ("sum", (False, True), [NONE, NONE]),
        ("copy", (True, False), [NONE, NONE]),
        # A column is in other threads, a row is not.
        ("bias", (False, True), [NONE, NONE]),
        ("total of rows", (False, True), [COLUMNS, NONE]),
        ("placed", (False, False), [NONE, COLUMNS]),
        ("named twice", (False, False), [NONE, COLUMNS]),
        # It is A of the third product, in the registers in which an accumulator is by itself.
        ("operand", (False, False), [NONE, COLUMNS, COLUMNS]),
    ],
)
def test_accumulators_that_go_together_are_alike(tile_passes, use, trans_b, wanted):
    assert counts(tile_passes, products(use, trans_b=trans_b)) == wanted


@pytest.mark.parametrize(
    ("arch", "wanted"),
    [
        ("gfx90a", [2, 4]),
        ("gfx942", [2, 4]),
        ("gfx1100", [2, 4]),
        ("gfx950", NONE),  # ds_read_tr
        ("sm_90a", NONE),
    ],
)
def test_rows_of_a(tile_passes, arch, wanted):
    """Where the wavefronts of a block leave each several rows of MMAs."""

    @T.prim_func
    def main(Out: T.Tensor((128, 128), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((32, 128), F16)
            b = T.alloc_shared((32, 128), F16)
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(a)
            T.clear(b)
            T.gemm(a, b, c, transpose_A=True, policy=GROUP)
            T.copy(c, Out)

    assert counts(tile_passes, main, arch) == [wanted]
