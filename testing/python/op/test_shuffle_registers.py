"""Copies of fragments to other lanes: the shuffles, against the elements that they have to move."""

import random
import re

import pytest
import torch

import tilelang
import tilelang.language as T

DTYPES = ("float16", "float32", "int8", "bool", "float64")
WARP, WARPS = 32, 2


def count_of_shuffles(kernel):
    return sum(int(n) for n in re.findall(r"by shuffles in a warp: (\d+) shfl", kernel.explain()))


def are_independent(vectors):
    basis = []
    for v in vectors:
        for b in basis:
            v = min(v, v ^ b)
        if not v:
            return False
        basis.append(v)
    return True


def drawn_masks(rng, elements, replicas, is_swizzled):
    """What each bit of an element's number, then of a replica's, adds by xor: to the lane in the
    low 5 bits, to the register above."""
    places = elements + replicas
    if not is_swizzled:
        masks = [1 << b for b in rng.sample(range(places), places)]
        copies = [m for m in masks if m < WARP][:replicas]
        return [m for m in masks if m not in copies] + copies
    while True:
        masks = [rng.randrange(1, 1 << places) for _ in range(elements)]
        masks += [rng.randrange(1, WARP) for _ in range(replicas)]
        if are_independent(masks):
            return masks


def fragment(shape, masks, replicas):
    """Its rows of one half lie in one warp."""
    columns = shape[1].bit_length() - 1
    rows = len(masks) - replicas - columns

    def place(i, j, replica=0):
        bits = [j // 2**k % 2 for k in range(columns)] + [i // 2**k % 2 for k in range(rows)]
        bits += [replica // 2**k % 2 for k in range(replicas)]
        lane, register = 0, 0
        for mask, bit in zip(masks, bits, strict=True):
            lane = bit * (mask % WARP) ^ lane
            register = bit * (mask // WARP) ^ register
        return lane + i // 2**rows * WARP, register

    return T.Fragment(shape, place, replicate=2**replicas)


def copies(pairs, shape, threads):
    """A kernel that takes each tensor through two fragments, of dtypes and layouts of a pair."""
    types_a = [T.Tensor(shape, a) for a, *_ in pairs]
    types_b = [T.Tensor(shape, b) for _, b, *_ in pairs]

    @T.prim_func
    def main(
        A0: types_a[0], A1: types_a[1], A2: types_a[2], A3: types_a[3], A4: types_a[4],
        B0: types_b[0], B1: types_b[1], B2: types_b[2], B3: types_b[3], B4: types_b[4],
    ):  # fmt: skip
        with T.Kernel(1, threads=threads):
            for A, B, pair in zip((A0, A1, A2, A3, A4), (B0, B1, B2, B3, B4), pairs, strict=True):
                F = T.alloc_fragment(shape, A.dtype)
                G = T.alloc_fragment(shape, B.dtype)
                T.annotate_layout({F: pair[2], G: pair[3]})
                T.copy(A, F)
                T.copy(F, G)
                T.copy(G, B)

    return main


def check(kernel, pairs, shape, device):
    inputs = [torch.randint(0, 2, shape).to(getattr(torch, a)) for a, *_ in pairs]
    for x in inputs:
        if x.dtype != torch.bool:
            x += torch.arange(x.numel()).reshape(shape).to(x.dtype) % 100
    outputs = [torch.zeros(shape, dtype=getattr(torch, b), device=device) for _, b, *_ in pairs]
    kernel(*(x.to(device) for x in inputs), *outputs)
    for x, y in zip(inputs, outputs, strict=True):
        assert torch.equal(x.to(y.dtype), y.cpu())


@pytest.mark.parametrize("is_swizzled", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_drawn_layouts(seed, is_swizzled, device):
    """Bits of lanes and registers in any order, or any invertible mixture of them by xor."""
    rng = random.Random(f"{seed} {is_swizzled}")
    elements = rng.randrange(5, 7)
    shape = (WARPS * 2 ** (elements - 3), 8)
    pairs = []
    for dtype in DTYPES:
        layouts = []
        for _ in range(2):
            replicas = rng.randrange(3)
            layouts.append(
                fragment(shape, drawn_masks(rng, elements, replicas, is_swizzled), replicas)
            )
        pairs.append((dtype, dtype, *layouts))
    kernel = tilelang.compile(copies(pairs, shape, WARP * WARPS), execution_backend="auto")
    check(kernel, pairs, shape, device)
    assert count_of_shuffles(kernel) > 0


def accumulator(i, j):
    return i % 8 * 4 + j % 8 // 2, j % 2 + i // 8 * 2 + j // 8 * 4


CASES = [
    # One thread has what eight want: it sends one register after the other.
    (((32,), lambda i: (i // 8, i % 8)), ((32,), lambda i: (i, 0)), 8),
    # A result of a row, in four lanes, to the lanes of its column.
    (
        ((16,), lambda i, r: (i % 8 * 4 + r, i // 8), 4),
        ((16,), lambda i, r: (r * 4 + i % 8 // 2, i % 2 + i // 8 * 2), 8),
        4,
    ),
    # 24 columns are three blocks of eight.
    (
        ((16, 24), accumulator),
        ((16, 24), lambda i, j: (i * 2 + j // 4 % 2, j % 4 + j // 8 * 4)),
        12,
    ),
]


def layout_of(shape, place, replicate=1):
    return T.Fragment(shape, place, replicate=replicate)


@pytest.mark.parametrize(("source", "target", "shuffles"), CASES)
def test_how_many_shuffles(source, target, shuffles, device):
    shape = source[0]
    pairs = [("float32", "float32", layout_of(*source), layout_of(*target))] * 5
    kernel = tilelang.compile(copies(pairs, shape, WARP), execution_backend="auto")
    check(kernel, pairs, shape, device)
    assert re.findall(r"(\d+) shfl", kernel.explain()) == [str(shuffles)]
    assert "shared memory: 0 bytes" in kernel.explain()


def test_narrow_elements_share_words(device):
    """An accumulator becomes an operand of 8 bits: the narrower type is shuffled, in words of 4."""
    shape = (16, 32)
    operand = T.Fragment(
        shape, lambda i, j: (i % 8 * 4 + j % 16 // 4, j % 4 + i // 8 * 4 + j // 16 * 8)
    )
    pairs = [
        (a, b, T.Fragment(shape, accumulator), operand)
        for a, b in [
            ("float32", "float8_e4m3fn"),
            ("float32", "bfloat16"),
            ("float16", "float32"),
            ("int32", "int8"),
            ("bool", "bool"),
        ]
    ]
    kernel = tilelang.compile(copies(pairs, shape, WARP), execution_backend="auto")
    inputs = [torch.arange(512).reshape(shape) % 16 for _ in pairs]
    inputs = [x.to(getattr(torch, a)) for x, (a, *_) in zip(inputs, pairs, strict=True)]
    outputs = [torch.zeros(shape, device=device).to(getattr(torch, b)) for _, b, *_ in pairs]
    kernel(*(x.to(device) for x in inputs), *outputs)
    for x, y in zip(inputs, outputs, strict=True):
        assert torch.equal(x.to(torch.float32), y.cpu().to(torch.float32))
    assert sorted(map(int, re.findall(r"(\d+) shfl", kernel.explain()))) == [4, 8]


def test_wavefronts_of_64_lanes():
    shape = (16, 8)
    source = T.Fragment(shape, lambda i, j: (i * 4 + j // 2, j % 2))
    target = T.Fragment(shape, lambda i, j: (i % 8 * 8 + j, i // 8))
    pairs = [(d, d, source, target) for d in DTYPES]
    kernel = tilelang.compile(copies(pairs, shape, 128), target="hip -mcpu=gfx942")
    check(kernel, pairs, shape, "cpu")
    assert "64)" in kernel.get_kernel_source()
    assert count_of_shuffles(kernel) > 0


@pytest.mark.parametrize(
    ("threads", "target", "words"),
    [
        (64, lambda i, j: (i * 4 + j // 2 ^ 32, j % 2), "another warp has the first element"),
        (64, lambda i, j: (i * 4 + j // 2, j % 2), "another warp has some of the elements"),
        (48, lambda i, j: (i % 8 * 4 + j // 2, j % 2 + i // 8 * 2), "a warp lacks lanes"),
    ],
)
def test_shared_memory_where_a_warp_does_not_do(threads, target, words, device):
    shape = (16, 8)
    layout = T.Fragment(shape, lambda i, j: (i * 2 + j // 4, j % 4))
    pairs = [("float32", "float32", layout, T.Fragment(shape, target))] * 5
    kernel = tilelang.compile(copies(pairs, shape, threads), execution_backend="auto")
    check(kernel, pairs, shape, device)
    assert count_of_shuffles(kernel) == 0, words
    assert "through shared memory, 512 bytes" in kernel.explain()


def test_a_part_of_a_fragment_leaves_the_rest(device):
    """Lanes that hold other elements than the part's would overwrite them."""

    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32"), B: T.Tensor((16, 8), "float32")):
        with T.Kernel(1, threads=32):
            F = T.alloc_fragment((8, 8), "float32")
            G = T.alloc_fragment((16, 8), "float32")
            T.annotate_layout(
                {
                    F: T.Fragment((8, 8), lambda i, j: (j * 4 + i // 2, i % 2)),
                    G: T.Fragment((16, 8), lambda i, j: (i * 2 + j // 4, j % 4)),
                }
            )
            T.copy(A, F)
            T.fill(G, 7.0)
            T.copy(F, G[4:12, :])
            T.copy(G, B)

    a, b = torch.randn(8, 8, device=device), torch.zeros(16, 8, device=device)
    tilelang.compile(main, execution_backend="auto")(a, b)
    wanted = torch.full((16, 8), 7.0, device=device)
    wanted[4:12] = a
    assert torch.equal(b, wanted)
