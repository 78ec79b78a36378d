"""Weights that are unpacked to a shared tile are the operand of wgmma in registers."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

M, N, K = 136, 200, 256
HOPPER = {"kind": "cuda", "arch": "sm_90a"}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    tilelang.set_log_level("WARNING")
    yield
    tilelang.set_log_level("INFO")


def unpacked(byte, j):
    """A nibble as a signed number."""
    return T.cast((byte >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15), "int32") - 8


@T.macro
def make_weights(form, w, packed, scales, W4, first, transposed):
    """The weights of a step, of which the first is W4's `first`, in one of several forms."""
    high, width = packed.shape
    step = 2 * width
    if form == "shared":
        for i, j in T.Parallel(high, step):
            value = unpacked(packed[i, j // 2], j) * scales[i]
            if transposed:
                w[i, j] = value
            else:
                w[j, i] = value
    elif form == "pairs":
        for i, j in T.Parallel(high, width):
            w[i, 2 * j] = unpacked(packed[i, j], 0) * scales[i]
            w[i, 2 * j + 1] = unpacked(packed[i, j], 1) * scales[i]
    elif form == "then scaled":
        for i, j in T.Parallel(high, step):
            w[i, j] = unpacked(packed[i, j // 2], j)
        for i, j in T.Parallel(high, step):
            w[i, j] *= scales[i]
    elif form == "fragments":
        packed_local = T.alloc_fragment((high, width), "uint8")
        w_local = T.alloc_fragment((high, step), w.dtype)
        T.copy(packed, packed_local)
        for i, j in T.Parallel(high, step):
            w_local[i, j] = unpacked(packed_local[i, j // 2], j) * scales[i]
        T.copy(w_local, w)
    elif form == "global":
        for i, j in T.Parallel(high, step):
            w[i, j] = unpacked(W4[first[0] + i, (first[1] + j) // 2], j) * scales[i]


@T.macro
def store(end, total, C, row, column):
    """The results go to C, as they are or behind one of several statements."""
    rows, columns = total.shape
    if end == "sum":
        sums = T.alloc_fragment((rows,), "float32")
        T.reduce_sum(total, sums, dim=1)
        for i, j in T.Parallel(rows, columns):
            total[i, j] += sums[i]
    if end == "loop":
        for i, j in T.Parallel(rows, columns):
            total[i, j] = T.max(total[i, j], -T.infinity("float32"))
    if end == "pairs":
        for i, j in T.Parallel(rows, columns // 2):
            total[i, 2 * j] += total[i, 2 * j + 1]
    if end == "atomic":
        T.atomic_add(C[row, column], total)
    else:
        T.copy(total, C[row, column])


def product(
    *,
    left=False,
    form="shared",
    reader="gemm",
    tile=(64, 128),
    threads=256,
    step=64,
    transposed=True,
    annotated=None,
    order=None,
    end="copy",
    blocks=None,
    dtype="float16",
):
    """C of numbers and nibbles, in which weights are unpacked in a step: W is (N, K), or (M, K)
    where it is the `left` operand."""
    rows, columns = tile
    height, length = (M, N) if left else (N, M)  # of W, and of X
    high, long = (rows, columns) if left else (columns, rows)
    shape = (high, step) if transposed else (step, high)

    @T.prim_func
    def main(
        X: T.Tensor((length, K), dtype),
        W4: T.Tensor((height, K // 2), "uint8"),
        S: T.Tensor((height,), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, columns), T.ceildiv(M, rows), threads=threads) as (bx, by):
            if blocks:
                T.annotate_min_blocks_per_sm(blocks)
            x = T.alloc_shared((long, step), dtype)
            packed = T.alloc_shared((high, step // 2), "uint8")
            scales = T.alloc_shared((high,), dtype)
            w = T.alloc_shared(shape, dtype)
            total = T.alloc_fragment(tile, "float32")
            if annotated == "w":
                T.annotate_layout({w: make_swizzled_layout(w)})
            at, other = (by * rows, bx * columns) if left else (bx * columns, by * rows)
            T.copy(S[at], scales)
            T.clear(total)
            keywords = order or {"num_stages": 2}
            for k in T.Pipelined(K // step, **keywords):
                T.copy(X[other, k * step], x)
                T.copy(W4[at, k * (step // 2)], packed)
                make_weights(form, w, packed, scales, W4, (at, k * step), transposed)
                if left:
                    T.gemm(w, x, total, transpose_B=True)
                else:
                    T.gemm(x, w, total, transpose_B=transposed)
                if reader == "another":
                    T.gemm(x, w, total, transpose_B=True)
            store(end, total, C, by * rows, bx * columns)

    return main


FORMS = {
    "right": {},
    "left": {"left": True, "tile": (128, 64)},
    "pairs": {"form": "pairs"},
    "scaled by a loop of its own": {"form": "then scaled"},
    "by fragments": {"form": "fragments"},
    "elements along K below each other": {"transposed": False},
    "few rows": {"tile": (16, 128)},
    "a part of 32": {"step": 32},
    "results that are added": {"end": "atomic"},
    "results that a loop changes": {"end": "loop"},
}


def decided(tile_passes, program, arch="sm_90a"):
    passes = ("HoistViews", "Simplify", "ReadNibbles", "RegisterOperands")
    text = tile_passes(program, *passes, arch=arch)["main"].script(show_meta=False)
    return [line.strip() for line in text.splitlines()]


def test_the_program(tile_passes):
    lines = decided(tile_passes, product())
    assert 'w = T.sblock_alloc_buffer((128, 64), "float16", scope="local.fragment")' in lines
    assert [line for line in lines if "tl.tileop.gemm" in line] == [
        'T.Call("tl.tileop.gemm", [w[0:128, 0:64], x[0:64, 0:64], total[0:64, 0:128], '
        "T.bool(False), T.bool(True), 1, T.bool(False)], "
        'attrs={"transpose_C": 1}, ret_ty="void")'
    ]


@pytest.mark.parametrize("name", FORMS)
def test_results(name):
    options = FORMS[name]
    kernel = tilelang.compile(product(**options), execution_backend="emulate", target=HOPPER)
    source = kernel.get_kernel_source()
    assert "tl::wgmma_rs<" in source, "the weights are not in registers"
    assert "local<half_t" in source
    left = options.get("left", False)
    height, length = (M, N) if left else (N, M)
    torch.manual_seed(0)
    x, scales = torch.randn(length, K).half(), torch.rand(height).half()
    bytes_of = torch.randint(0, 256, (height, K // 2), dtype=torch.uint8)
    numbers = torch.stack([bytes_of & 15, bytes_of >> 4], -1).view(height, K).half() - 8
    w = (numbers * scales[:, None]).double()
    wanted = w @ x.double().T if left else x.double() @ w.T
    found = torch.zeros(M, N).half()
    kernel(x, bytes_of, scales, found)
    torch.testing.assert_close(found.double(), wanted, rtol=2e-3, atol=0.1)


KEPT = {
    "a target without wgmma": ({}, "sm_90"),
    "another reader": ({"reader": "another"}, "sm_90a"),
    "a layout of the user's": ({"annotated": "w"}, "sm_90a"),
    "straight from global memory": ({"form": "global"}, "sm_90a"),
    "an order of the user's": (
        {"order": {"num_stages": 2, "order": [0, 1, 2, 3], "stage": [0, 0, 1, 1]}},
        "sm_90a",
    ),
    "a sum along the rows": ({"end": "sum"}, "sm_90a"),
    "pairs of results along the rows": ({"end": "pairs"}, "sm_90a"),
    "no room in registers": ({"tile": (256, 256)}, "sm_90a"),
    "blocks that leave no room": ({"tile": (128, 128), "blocks": 4}, "sm_90a"),
    "registers that threads begin with": ({"tile": (104, 128), "blocks": 2}, "sm_90a"),
    "more warp groups than rows": ({"tile": (128, 64)}, "sm_90a"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays(tile_passes, name):
    options, arch = KEPT[name]
    lines = decided(tile_passes, product(**options), arch)
    assert any(line.startswith("T.tl.gemm(x[") for line in lines)
    assert not any("transpose_C" in line for line in lines)
