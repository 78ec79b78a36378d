"""Blocks of products get other tiles: neighbours become one, or one block two."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


@T.macro
def store(form, c, row, C, sums, x, y):
    """What becomes of a block's elements of the product."""
    bm, bn = c.shape
    if form == "rows":
        T.reduce_sum(c, row, dim=1)
        T.copy(row, sums[x, y * bm])
    elif form == "a number of each":
        T.copy(c, C[y * bm, x * bn])
        for i in T.Parallel(1):
            sums[x + i, 0] = 1
    elif form == "one place":
        T.copy(c, C[y * bm, 0])
    elif form == "sums":
        T.atomic_add(C[y * bm, x * bn], c)
    elif form == "sums of one place":
        T.atomic_add(C[y * bm, 0], c)
    else:
        T.copy(c, C[y * bm, x * bn])


def product(
    M=4096,
    N=4096,
    K=4096,
    tile=(64, 64, 64),
    threads=128,
    stages=3,
    form="",
    dtype="bfloat16",
    grid=None,
    trans=(False, True),
):
    """C = A B by tiles of rows, columns and a step along K; `form`: what a block does besides."""
    bm, bn, bk = tile
    of_a, of_b = (bm, bk), (bn, bk)
    total = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def main(
        A: T.Tensor((K, M) if trans[0] else (M, K), dtype),
        B: T.Tensor((N, K) if trans[1] else (K, N), dtype),
        bias: T.Tensor((N,), total),
        table: T.Tensor((M // bm,), "int32"),
        C: T.Tensor((M, N), total),
        sums: T.Tensor((N // bn, M), total),
    ):
        with T.Kernel(*(grid or (N // bn, M // bm)), threads=threads) as (x, y):
            a = T.alloc_shared(of_a[::-1] if trans[0] else of_a, dtype)
            b = T.alloc_shared(of_b if trans[1] else of_b[::-1], dtype)
            c = T.alloc_fragment((bm, bn), total)
            row = T.alloc_fragment((bm,), total)
            own = T.alloc_shared((bn,), total)
            if form == "layout":
                T.annotate_layout({a: make_swizzled_layout(a)})
            if form == "swizzle":
                T.use_swizzle(8)
            if form.endswith("an element"):
                T.copy(bias[x * bn], own)
            T.fill(c, own[0] if form == "begins with an element" else 0)
            if form == "in place":
                T.copy(C[y * bm, x * bn], c)
            if form == "aliased":
                T.annotate_restrict_buffers(A, bias)
            first = table[y] * bm if form == "table" else y * bm
            for k in T.Pipelined(y + 1 if form == "bound" else K // bk, num_stages=stages):
                T.copy(A[k * bk, first] if trans[0] else A[first, k * bk], a)
                T.copy(B[x * bn, k * bk] if trans[1] else B[k * bk, x * bn], b)
                T.gemm(a, b, c, transpose_A=trans[0], transpose_B=trans[1])
            if form == "bias":
                for i, j in T.Parallel(bm, bn):
                    c[i, j] = T.if_then_else(
                        y * bm + i >= x * bn + j, c[i, j] + bias[x * bn + j], 0
                    )
            if form == "place in the block":
                for i, j in T.Parallel(bm, bn):
                    c[i, j] = c[i, j] * (i + 1)
            if form == "column":
                for i, j in T.Parallel(bm, bn):
                    c[i, j] += c[i, 0]
            if form == "block":
                for i, j in T.Parallel(bm, bn):
                    c[i, j] += x
            if form == "thread" and T.get_thread_binding() == 0:
                a[0, 0] = 1
            if form == "branch" and y > 0:
                T.clear(c)
            if form == "branch on an element" and own[1] > 0:
                T.clear(c)
            if form == "diagonal":
                for i, j in T.Parallel(bn, bn):
                    C[x * bn + i, x * bn + j] = 1
            store(form, c, row, C, sums, x, y)

    return main


def launch(text):
    """Blocks along x and y, threads."""
    extents = dict(re.findall(r'launch_thread\("(blockIdx\.[xy]|threadIdx\.x)", (\d+)\)', text))
    return tuple(int(extents.get(a, 1)) for a in ("blockIdx.x", "blockIdx.y", "threadIdx.x"))


def merged(tile_passes, function, arch="sm_90a"):
    return launch(tile_passes(function, "ResizeBlocks", arch=arch)["main"].script())


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, (16, 32, 256)),
        ({"tile": (64, 64, 32)}, (16, 32, 256)),
        ({"tile": (64, 128, 64)}, (16, 32, 256)),
        ({"tile": (32, 32, 64)}, (16, 32, 256)),
        ({"trans": (True, False)}, (16, 32, 256)),
        ({"threads": 256}, (16, 32, 256)),
        ({"tile": (128, 128, 64)}, (16, 32, 256)),
        ({"tile": (128, 256, 64), "threads": 256}, (16, 32, 256)),  # products bind
        ({"dtype": "int8", "tile": (64, 64, 128)}, (16, 32, 256)),
        ({"form": "bias"}, (16, 32, 256)),
        ({"form": "swizzle"}, (16, 32, 256)),
        ({"form": "sums"}, (16, 32, 256)),
        ({"form": "table"}, (8, 64, 256)),  # of rows, one block has one entry
        ({"form": "rows"}, (64, 16, 128)),  # a sum over all columns of a block is no other's
        ({"grid": (63, 64)}, (63, 16, 128)),  # 2 does not divide 63
        ({"M": 1024, "N": 1024, "K": 1024}, (8, 16, 128)),  # 64 blocks would leave half idle
        # Others have as many blocks, of tiles of which products read less.
        ({"tile": (256, 128, 64), "threads": 256}, (16, 32, 256)),
        ({"tile": (256, 64, 64), "threads": 256}, (16, 32, 256)),
        # And more, where these would leave multiprocessors idle.
        ({"M": 1024, "N": 1024, "K": 1024, "tile": (128, 128, 64)}, (8, 16, 128)),
        ({"M": 128, "tile": (128, 128, 64)}, (64, 2, 128)),
        ({"M": 16, "tile": (16, 128, 64)}, (64, 1, 128)),  # 64 columns for a warp group
        ({"M": 1024, "N": 1024, "K": 1024, "tile": (128, 256, 64), "threads": 256}, (8, 16, 128)),
        # 192 columns, where tiles of others leave multiprocessors idle in the last wave.
        ({"M": 1536, "N": 1536, "tile": (128, 128, 64)}, (8, 12, 256)),
        ({"M": 3072, "N": 3072, "tile": (128, 256, 64), "threads": 256}, (16, 24, 256)),
        ({"M": 4608, "N": 4608, "tile": (128, 256, 64), "threads": 256}, (18, 36, 256)),
        ({"M": 1408, "N": 1664, "tile": (128, 128, 64)}, (13, 11, 128)),  # 3 does not divide 13
    ],
)
def test_blocks(tile_passes, options, found):
    assert merged(tile_passes, product(**options)) == found


@pytest.mark.parametrize(
    "form",
    ["thread", "layout"],
)
def test_kept(tile_passes, form):
    assert merged(tile_passes, product(form=form)) == (64, 64, 128)


@pytest.mark.parametrize(
    ("form", "blocks"),
    [
        ("place in the block", (0, 64)),
        ("bound", (0, 64)),
        ("branch", (0, 64)),
        ("block", (64, 0)),
        ("column", (64, 0)),
        ("begins with an element", (64, 0)),  # of the block's part of a vector
        ("branch on an element", (64, 0)),
        ("diagonal", (64, 0)),
        ("one place", (64, 0)),
        ("sums of one place", (64, 0)),
    ],
)
def test_an_axis_kept(tile_passes, form, blocks):
    """Along the other one blocks may be merged."""
    found = merged(tile_passes, product(form=form))
    assert all(f == b for f, b in zip(found, blocks, strict=False) if b)
    assert found[0] * found[1] < 64 * 64


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"M": 1024, "N": 768}, (12, 16, 128)),  # fewer than two a multiprocessor
        ({"M": 16, "N": 32768, "tile": (16, 64, 64)}, (512, 1, 128)),  # the memory binds
        ({"dtype": "float32", "tile": (64, 64, 32)}, (64, 64, 128)),
    ],
)
def test_where_loads_do_not_bind(tile_passes, options, found):
    assert merged(tile_passes, product(**options)) == found


@pytest.mark.parametrize("form", ["in place", "aliased", "a number of each"])
def test_what_is_not_halved(tile_passes, form):
    """One half would write what the other one has yet to read; one number has no half."""
    program = product(1024, 128, 1024, (64, 128, 64), form=form)
    assert merged(tile_passes, program) == (1, 16, 128)
    assert merged(tile_passes, product(1024, 128, 1024, (64, 128, 64))) == (2, 16, 128)


def test_a_view_of_halves_of_bytes_is_halved(tile_passes):
    @T.prim_func
    def main(
        A: T.Tensor((16, 4096), "float16"),
        W: T.Tensor((4096, 2048), "uint8"),
        C: T.Tensor((16, 4096), "float16"),
    ):
        with T.Kernel(32, threads=128) as x:
            a = T.alloc_shared((16, 128), "float16")
            packed = T.alloc_shared((128, 64), "uint8")
            w = T.alloc_shared((128, 128), "float16")
            c = T.alloc_fragment((16, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(32, num_stages=3):
                T.copy(A[0, k * 128], a)
                T.copy(W[x * 128, k * 64], packed)
                for i, j in T.Parallel(128, 128):
                    nibble = (packed[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15)
                    w[i, j] = T.cast(nibble, "int32") - 8
                T.gemm(a, w, c, transpose_B=True)
            T.copy(c, C[0, x * 128])

    text = tile_passes(main, "HoistViews", "ReadNibbles", "ResizeBlocks", arch="sm_90a")
    text = text["main"].script()
    assert launch(text) == (64, 1, 128)
    assert 'packed_nibbles = packed.view("uint4")' in text
    assert 'packed = T.sblock_alloc_buffer((64, 64), "uint8"' in text


def test_loops_without_stages_keep_their_blocks(tile_passes):
    """Larger tiles make loads wait longer for the product before."""
    assert merged(tile_passes, product(stages=0)) == (64, 64, 128)


def test_only_where_warp_groups_multiply(tile_passes):
    assert merged(tile_passes, product(), arch="sm_80") == (64, 64, 128)


def test_merged_blocks_are_given_up_where_shared_memory_is_short(tile_passes):
    """`lower` compiles a function that takes more than there is a second time."""
    module = tile_passes(product(), "ResizeBlocks", arch="sm_90a")
    assert "tl.takes_shared" in module["main"].attrs
    config = {"tl.second_choice.spare_shared": True}
    module = tile_passes(product(), "ResizeBlocks", arch="sm_90a", config=config)
    assert launch(module["main"].script()) == (64, 64, 128)


def test_stages_let_two_blocks_share_a_multiprocessor(tile_passes):
    text = tile_passes(product(stages=5), "ResizeBlocks", arch="sm_90a")["main"].script()
    assert re.search(r'"num_stages": (?:T\.int32\()?3', text)


def computes_the_same(note, M, N, K, tile, form):
    """C and sums of the kernel, of which `explain` says so, are those of whole numbers."""
    function = product(M, N, K, tile, form=form, dtype="float16")
    kernel = tilelang.compile(function, target=HOPPER, execution_backend="emulate")
    assert note in kernel.explain()
    a, b = (torch.randint(-4, 5, (n, K)).half() for n in (M, N))
    bias = torch.randint(-9, 9, (N,)).float()
    table = torch.arange(M // tile[0], dtype=torch.int32)
    c, sums = torch.full((M, N), 1.0), torch.full((N // tile[1], M), -1.0)
    kernel(a, b, bias, table, c, sums)
    wanted = a.float() @ b.float().T
    if form == "rows":
        assert torch.equal(sums, wanted.view(M, -1, tile[1]).sum(2).T)
        return
    if form == "bias":
        wanted = torch.tril(wanted + bias)
    assert torch.equal(c, wanted + 1 if form == "sums" else wanted)


@pytest.mark.parametrize("form", ["", "bias", "rows", "sums"])
def test_it_computes_the_same(form):
    computes_the_same("neighbouring blocks are one", 256, 256, 64, (16, 16, 32), form)


@pytest.mark.parametrize("form", ["", "bias", "rows", "sums"])
def test_halves_compute_the_same(form):
    computes_the_same("2 blocks do what one did", 256, 64, 256, (128, 64, 64), form)


@pytest.mark.parametrize("form", ["", "bias"])
def test_tiles_of_192_columns_compute_the_same(form):
    computes_the_same("tiles along bx are 3/2 as long", 5760, 384, 256, (128, 128, 64), form)


@pytest.mark.parametrize("form", ["in place", "rows"])
def test_what_has_no_tiles_of_192_columns(tile_passes, form):
    """A tile of 128 would be in two blocks: one half would write what the other has yet to read;
    half of a sum is no sum."""
    assert merged(tile_passes, product(5760, 384, 256, (128, 128, 64), form=form))[:2] == (3, 45)


def shares(form="", size=(512, 4096, 4096), split=4, tile=(128, 128, 64), threads=128):
    """C += A B by `split` blocks for each tile; `form`: what is different about their shares."""
    (M, N, K), (bm, bn, bk) = size, tile
    count = K // (bk * split)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(N // bn, M // bm, split, threads=threads) as (x, y, z):
            a = T.alloc_shared((bm, bk), "float16")
            b = T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            if form == "begun":
                T.fill(c, 1)
            else:
                T.clear(c)
            for k in T.Pipelined(count, num_stages=3):
                step = k * split + z if form == "every fourth step" else z * count + k
                T.copy(A[y * bm, step * bk], a)
                T.copy(B[k * bk if form == "one B" else step * bk, x * bn], b)
                T.gemm(a, b, c)
            if form == "positive":
                for i, j in T.Parallel(bm, bn):
                    c[i, j] = T.max(c[i, j], 0)
            if form == "elements":
                for i, j in T.Parallel(bm, bn):
                    T.atomic_add(C[y * bm + i, x * bn + j], c[i, j])
            elif form == "stored":
                T.copy(c, C[y * bm, x * bn])
            elif form == "largest":
                T.atomic_max(C[y * bm, x * bn], c)
            else:
                T.atomic_add(C[y * bm, x * bn], c)

    return main


def shares_of(tile_passes, form):
    """Blocks that share a tile behind the pass."""
    text = tile_passes(shares(form), "ResizeBlocks", arch="sm_90a")["main"].script()
    return int(re.search(r'launch_thread\("blockIdx\.z", (\d+)\)', text).group(1))


def test_blocks_that_share_a_sum_become_fewer(tile_passes):
    assert shares_of(tile_passes, "") < 4


@pytest.mark.parametrize(
    "form", ["begun", "every fourth step", "one B", "positive", "stored", "largest"]
)
def test_other_shares_stay(tile_passes, form):
    assert shares_of(tile_passes, form) == 4


def test_merged_shares_add_the_same():
    function = shares("elements", (32, 32, 8192), 256, (32, 32, 16))
    kernel = tilelang.compile(function, target=HOPPER, execution_backend="emulate")
    note = "T.Kernel: 2 neighbouring blocks are one, which adds the products of all their shares"
    assert note in kernel.explain()
    assert "loads what they share" not in kernel.explain()
    a, b = torch.randint(-4, 5, (32, 8192)).half(), torch.randint(-4, 5, (8192, 32)).half()
    c = torch.ones(32, 32)
    kernel(a, b, c)
    assert torch.equal(c, a.float() @ b.float() + 1)
