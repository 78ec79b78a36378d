"""Rows are copied to longer and shorter ones, wherever they begin in a word."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.macros import copy_rows
from tilelang.macros.rows import Copy


@tilelang.jit
def copies(rows, given, wanted, dtype):
    """Of a matrix and of a tensor, by one kernel."""

    @T.prim_func
    def main(X: T.Tensor((rows, given), dtype), Z: T.Tensor((2, 3, given), dtype)):
        Y = T.empty((rows, wanted), dtype)
        W = T.empty((2, 3, wanted), dtype)
        copy_rows((X, Y), (Z, W))
        return Y, W

    return main


@pytest.mark.parametrize(
    ("rows", "given", "wanted", "dtype"),
    [
        # Rows begin at all bytes of a word; the last one ends in one that the tensor has not.
        pytest.param(21, 1027, 1040, T.float8_e4m3fn, id="longer"),
        pytest.param(13, 37, 200, T.bfloat16, id="longer by many words"),
        # Words of the target have bytes of two rows, and the last one is not whole.
        pytest.param(33, 1040, 1027, T.float8_e4m3fn, id="shorter"),
        pytest.param(9, 40, 37, T.bfloat16, id="shorter by two-byte elements"),
        pytest.param(20, 33, 30, T.float8_e4m3fn, id="between words on both sides"),
        pytest.param(9, 16, 32, T.bfloat16, id="whole words"),
        pytest.param(700, 17, 24, T.bfloat16, id="several rows of a block's threads"),
        pytest.param(700, 24, 17, T.bfloat16, id="several shorter ones"),
        pytest.param(300, 3, 16, T.float8_e4m3fn, id="rows without a word"),
        pytest.param(1, 9, 16, T.float8_e4m3fn, id="a row of one word"),
    ],
)
def test_rows_are_copied(device, rows, given, wanted, dtype):
    kernel = copies(rows, given, wanted, dtype)
    shared = min(given, wanted)
    inputs = [
        torch.randint(1, 100, shape, device=device).to(dtype.as_torch())
        for shape in ((rows, given), (2, 3, given))
    ]
    for source, found in zip(inputs, kernel(*inputs), strict=True):
        expected = torch.zeros_like(found)
        expected[..., :shared] = source[..., :shared]
        assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize(("given", "wanted"), [(34, 48), (48, 34), (6, 1040)])
def test_short_rows_share_the_threads_of_a_block(given, wanted):
    assert Copy(10000, given, wanted).words > 100


@pytest.mark.parametrize(("source", "target"), [(1, 0), (0, 3), (8, 8), (15, 1)])
def test_tensors_at_any_address_are_copied(device, source, target):
    @T.prim_func
    def main(X: T.Tensor((5, 37), "uint8"), Y: T.Tensor((5, 48), "uint8")):
        copy_rows((X, Y))

    memory = torch.randint(1, 100, (600,), device=device).to(torch.uint8)
    x = memory[source : source + 5 * 37].view(5, 37)
    y = memory[256 + target : 256 + target + 5 * 48].view(5, 48)
    before = memory.clone()
    tilelang.compile(main)(x, y)
    assert torch.equal(y[:, :37], x)
    assert not y[:, 37:].any()
    memory[256 + target : 256 + target + 5 * 48] = 0
    before[256 + target : 256 + target + 5 * 48] = 0
    assert torch.equal(memory, before)


def test_no_barrier_stands_between_the_loads_of_a_thread(monkeypatch):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    source = copies(100, 1040, 1027, T.float8_e4m3fn).get_kernel_source()
    loads = source[: source.index("= ((low")]
    assert "__syncthreads" not in loads
    assert "uint64_t" in loads


@pytest.mark.parametrize(
    ("source", "target", "dtypes", "message"),
    [
        ((4, 9), (5, 16), "bb", "found 4 rows of bfloat16 and 5 of bfloat16"),
        ((4, 9), (4, 16), "bh", "found 4 rows of bfloat16 and 4 of float16"),
    ],
)
def test_what_is_no_copy_of_rows_is_refused(source, target, dtypes, message):
    of, to = ({"b": "bfloat16", "h": "float16"}[letter] for letter in dtypes)
    with pytest.raises(ValueError, match=message):

        @T.prim_func
        def main(X: T.Tensor(source, of), Y: T.Tensor(target, to)):
            copy_rows((X, Y))


def test_extents_are_constant():
    n = T.dynamic("n")
    with pytest.raises(ValueError, match=r"found X of shape .*, wanted ints"):

        @T.prim_func
        def main(X: T.Tensor((4, n), "bfloat16"), Y: T.Tensor((4, 16), "bfloat16")):
            copy_rows((X, Y))
