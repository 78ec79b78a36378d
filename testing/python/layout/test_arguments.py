"""Wrong arguments of what makes layouts: the function that took one names it."""

import inspect

import numpy as np
import pytest
import torch

import tilelang.language as T
from tilelang import layout as L
from tilelang.layout import Fragment, Layout, cute

ANNOTATION = T.Tensor((64, 64), "float16")
TILE = ANNOTATION.as_buffer()
BYTES = T.Tensor((64, 64), "uint8")
LINEAR = L.make_linear_layout(TILE)
PAIRS = L.make_gemm_fragment_8x8()
OF_BUFFERS = [
    name
    for name in L.__all__
    if inspect.isfunction(getattr(L, name))
    and "buffer" in inspect.signature(getattr(L, name)).parameters
]


def of_buffer(name, buffer):
    """Call a function of a buffer."""
    given = {"layout": LINEAR, "threads": 32}
    parameters = inspect.signature(getattr(L, name)).parameters
    return getattr(L, name)(**{k: v for k, v in given.items() if k in parameters}, buffer=buffer)


def test_the_functions_of_buffers():
    assert {"make_swizzled_layout", "make_cutlass_metadata_layout"} <= set(OF_BUFFERS)
    assert len(OF_BUFFERS) >= 12


@pytest.mark.parametrize("name", OF_BUFFERS)
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ((8, 64), r"\(8, 64\) of type tuple"),
        (None, "None of type NoneType"),
        ("A", "'A' of type str"),
        (torch.zeros(8, 64), r"a Tensor of shape \(8, 64\)"),
        (LINEAR, "of type Layout"),
    ],
    ids=["shape", "None", "name", "torch", "layout"],
)
def test_what_is_no_buffer(name, wrong, told):
    with pytest.raises(TypeError, match=f"{name} found .*{told}, wanted a buffer.*; pass the tile"):
        of_buffer(name, wrong)


@pytest.mark.parametrize("name", sorted({*OF_BUFFERS} - {"make_cutlass_metadata_layout"}))
def test_an_annotation_stands_for_its_buffer(name):
    found, wanted = of_buffer(name, ANNOTATION), of_buffer(name, TILE)
    assert found.is_equal(wanted) if isinstance(found, Layout) else found == wanted


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: L.make_wgmma_swizzled_layout(TILE, "x"), "continuity is 'x' of type str"),
        (lambda: L.make_fully_replicated_layout_fragment(TILE, "x"), "threads of .* is 'x'"),
        (lambda: L.detect_swizzle_mode(5, TILE), "layout of detect_swizzle_mode is 5 .*; pass"),
        (lambda: L.make_cutlass_metadata_layout(BYTES, arch="9.0", block_k="x"), "block_k of met"),
        (lambda: L.make_gemm_fragment("A", 5, (2, 2), "float16"), "shape of make_gemm_fragment is"),
        (lambda: L.make_gemm_fragment("A", (64, 16), 2, "float16"), "warps of make_gemm_fragment"),
        (
            lambda: L.make_gemm_fragment("A", (64, 16), (1, 1), "float16", "m16"),
            "instruction of make_gemm_fragment is 'm16'",
        ),
        (lambda: Layout(5, lambda i: i), "the shape of a layout is 5 .*, wanted a sequence"),
        (lambda: Layout("ab", lambda i, j: i), "the shape of a layout is 'ab'"),
        (lambda: Layout((4, 4), 5), "forward_fn of Layout is 5 .*, wanted a function that takes 2"),
        (lambda: Layout((4, 4), len), "forward_fn of Layout is .*, wanted a function"),
        (lambda: Layout((4, 4), lambda i, j: T.cast(i, "float32")), "coordinate 0 is T.Cast"),
        (lambda: Fragment(5, lambda i: (i, 0)), "the shape of a layout is 5"),
        (lambda: Fragment((4, 4), 5), "forward_fn is 5 of type int, which does not take 2"),
        (lambda: Fragment((4, 4), lambda i, j: (i, j), replicate="x"), "replicate of Fragment"),
        (lambda: LINEAR("a", "b"), "index 0 is 'a'"),
        (lambda: LINEAR(1.5, 2), "index 0 is 1.5"),
        (lambda: LINEAR.map_forward_index(5), "the index of an element is 5"),
        (lambda: LINEAR.repeat("a", 2), "dim of repeat is 'a'"),
        (lambda: LINEAR.expand(5), "the shape of a layout is 5"),
        (lambda: LINEAR.reshape(512), "the shape of a layout is 512"),
        (lambda: LINEAR.is_equal(5), "other of is_equal is 5"),
        (lambda: PAIRS.replicate(1.5), "n of replicate is 1.5"),
        (lambda: PAIRS.map_forward_thread(("a", 1)), "index 0 is 'a'"),
        (lambda: L.shared_wavefronts(["a"], 4), "an address is 'a'"),
        (lambda: L.memory_accesses(5), "func of memory_accesses is 5"),
        (lambda: cute.size("a"), "layout of size is 'a' .*; make one by make_layout"),
        (lambda: cute.composition(cute.make_layout(4), 5), "inner of composition is 5"),
        (lambda: cute.from_layout((4, 2)), r"layout of from_layout is \(4, 2\)"),
    ],
)
def test_a_wrong_type(make, told):
    with pytest.raises(TypeError, match=told):
        make()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        # Divisors: these ended the process.
        (lambda: L.make_wgmma_swizzled_layout(TILE, 0), "continuity is 0, wanted a positive int"),
        (lambda: LINEAR.reshape((64, 64), 0, 0), "rescale_num of reshape is 0"),
        (lambda: L.make_cutlass_metadata_layout(BYTES, arch="9.0", block_k=0), "block_k of metad"),
        (
            lambda: L.make_cutlass_metadata_layout(BYTES, arch="9.0", block_k=33),
            "33 elements along K in a block_k, wanted a multiple of 8",
        ),
        (lambda: L.make_cutlass_metadata_layout(TILE, arch=80), "arch of metadata is 80 of type"),
        (lambda: L.make_cutlass_metadata_layout(BYTES, "foo", "9.0"), "mma_dtype of metadata is"),
        (lambda: L.make_fully_replicated_layout_fragment(TILE, 0), "threads of .* is 0"),
        (lambda: L.make_gemm_fragment("A", (5,), (1, 1), "float16"), "found 1 numbers, wanted 2"),
        (lambda: L.make_gemm_fragment("A", (64, 16), (2,), "float16"), "warps .* found 1 numbers"),
        (lambda: L.make_gemm_fragment("A", (64, 16), (0, 1), "float16"), "element 0 of warps .* 0"),
        (lambda: L.make_gemm_fragment("A", (64, 16), (1, 1), "foo"), "dtype of make_gemm_fragment"),
        (
            lambda: L.make_gemm_fragment("A", (64, 16), (1, 1), "float16", (16, 8)),
            "instruction .* found 2 numbers, wanted 3",
        ),
        (lambda: cute.make_layout(None), "make_layout found None"),
    ],
)
def test_a_wrong_value(make, told):
    with pytest.raises(ValueError, match=told):
        make()


def test_numbers_of_numpy():
    assert L.shared_wavefronts(np.arange(32) * 4, 4).found == 1
    assert LINEAR.repeat(np.int64(0), np.int64(2)).get_input_shape() == [128, 64]
