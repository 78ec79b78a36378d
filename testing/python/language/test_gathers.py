"""``T.transpose`` and ``T.im2col`` at sizes that divide and that do not."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("memory", [T.alloc_fragment, T.alloc_shared])
def test_transpose_of_a_version(memory):
    """Of one of several tiles, to and from a tile without versions."""

    @T.prim_func
    def main(A: T.Tensor((3, 2, 24, 32), "float16"), B: T.Tensor((3, 2, 24, 32), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((3, 2, 24, 32), "float16")
            R = T.alloc_shared((2, 24, 32), "float16")
            F = memory((32, 24), "float16")
            T.copy(A, S)
            for v in T.serial(3):
                T.transpose(S[v, 1, :, :], F)
                T.transpose(F, R[v % 2, :, :])
                T.copy(R[v % 2, :, :], B[v, 1, :, :])

    a = torch.randn(3, 2, 24, 32, device=DEVICE).half()
    b = torch.zeros_like(a)
    tilelang.compile(main)(a, b)
    assert torch.equal(b[:, 1], a[:, 1])
    assert not b[:, 0].any()


@pytest.mark.parametrize(
    ("m", "n", "threads"), [(1, 17, 32), (60, 100, 96), (64, 64, 128), (129, 3, 256)]
)
def test_transpose(m, n, threads):
    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), B: T.Tensor((n, m), "float16")):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((m, n), "float32")
            R = T.alloc_shared((n + 1, m), "float16")
            T.copy(A, S)
            T.transpose(S, R[1 : n + 1, 0:m])
            T.copy(R[1 : n + 1, 0:m], B)

    a = torch.randn(m, n, device=DEVICE)
    b = torch.zeros(n, m, dtype=torch.float16, device=DEVICE)
    tilelang.compile(main)(a, b)
    assert torch.equal(b, a.T.half())


@pytest.mark.parametrize(("leading", "m", "n"), [((3,), 15, 20), ((2, 1, 3), 7, 9)])
def test_transpose_of_several_matrices(leading, m, n):
    @T.prim_func
    def main(A: T.Tensor((*leading, m, n), "float32"), B: T.Tensor((*leading, n, m), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((*leading, m, n), "float32")
            R = T.alloc_shared((*leading, n, m), "float16")
            T.copy(A, S)
            T.transpose(S, R)
            T.copy(R, B)

    a = torch.randn(*leading, m, n, device=DEVICE)
    b = torch.zeros(*leading, n, m, dtype=torch.float16, device=DEVICE)
    tilelang.compile(main)(a, b)
    assert torch.equal(b, a.mT.half())


@pytest.mark.parametrize(
    ("image", "kernel", "stride", "dilation", "pad", "tile", "memory"),
    [
        ((2, 9, 7, 8), 3, 1, 1, 1, (64, 32), "shared"),
        ((1, 8, 12, 5), 3, 2, 1, 1, (17, 24), "shared"),
        ((3, 11, 5, 16), 2, 1, 2, 0, (32, 64), "fragment"),
        ((1, 6, 6, 3), 1, 3, 1, 2, (60, 4), "shared"),
    ],
    ids=str,
)
def test_im2col(image, kernel, stride, dilation, pad, tile, memory):
    n, h, w, c = image
    size = [(x + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for x in (h, w)]
    rows, columns = n * size[0] * size[1], kernel * kernel * c
    m, k = tile

    @T.prim_func
    def main(A: T.Tensor(image, "float16"), B: T.Tensor((rows, columns), "float16")):
        with T.Kernel(T.ceildiv(rows, m), threads=128) as by:
            S = getattr(T, f"alloc_{memory}")(tile, "float16")
            for ko in T.serial(T.ceildiv(columns, k)):
                T.im2col(A, S, by, ko, kernel, stride, dilation, pad)
                T.copy(S, B[by * m, ko * k])

    a = torch.randn(image, device=DEVICE).half()
    b = torch.full((rows, columns), float("nan"), dtype=torch.float16, device=DEVICE)
    tilelang.compile(main)(a, b)
    unfolded = torch.nn.functional.unfold(
        a.float().permute(0, 3, 1, 2), kernel, dilation, pad, stride
    )
    wanted = unfolded.reshape(n, c, kernel * kernel, -1).permute(0, 3, 2, 1).reshape(rows, columns)
    assert torch.equal(b, wanted.half())


def test_im2col_in_a_pipeline():
    """The tile is a version of its buffer, which has one dimension more."""

    @T.prim_func
    def main(
        A: T.Tensor((1, 6, 6, 16), "float16"),
        W: T.Tensor((144, 8), "float16"),
        C: T.Tensor((36, 8), "float32"),
    ):
        with T.Kernel(2, threads=64) as by:
            S = T.alloc_shared((32, 48), "float16")
            B = T.alloc_shared((48, 8), "float16")
            F = T.alloc_fragment((32, 8), "float32")
            T.clear(F)
            for ko in T.Pipelined(3, num_stages=2):
                T.im2col(A, S, by, ko, 3, 1, 1, 1)
                T.copy(W[ko * 48, 0], B)
                T.gemm(S, B, F)
            T.copy(F, C[by * 32, 0])

    a, w = (torch.randint(-4, 5, s, device=DEVICE).half() for s in ((1, 6, 6, 16), (144, 8)))
    c = torch.zeros(36, 8, device=DEVICE)
    tilelang.compile(main)(a, w, c)
    wanted = torch.nn.functional.conv2d(
        a.float().permute(0, 3, 1, 2), w.float().view(3, 3, 16, 8).permute(3, 2, 0, 1), padding=1
    )
    assert torch.equal(c.view(1, 6, 6, 8).permute(0, 3, 1, 2), wanted)


def test_outside_of_the_matrix_is_zero():
    with pytest.warns(DeprecationWarning, match=r"T\.im2col"):

        @T.prim_func
        def main(A: T.Tensor((1, 4, 4, 3), "float32"), B: T.Tensor((2, 32, 64), "float32")):
            with T.Kernel(2, threads=64) as bx:
                S = T.alloc_shared((32, 64), "float32")
                T.c2d_im2col(A, S, 0, -bx, 3, 1, 1, 1)
                T.copy(S, B[bx, 0, 0])

    b = torch.full((2, 32, 64), 7.0, device=DEVICE)
    tilelang.compile(main)(torch.ones(1, 4, 4, 3, device=DEVICE), b)
    b, in_front = b
    assert not in_front.any()
    assert not b[16:].any()
    assert not b[:, 27:].any()
    # Every input is counted once for each pixel whose window has it: 3 of them along each axis, 2
    # at the edges.
    assert b.sum() == 3 * (2 + 3 + 3 + 2) ** 2


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("T.transpose(A, B)", "shapes \\(\\.\\., M, N\\) and"),
        ("T.im2col(A, B, 0, 0, 3, 1, 1, 1)", "shape \\(N, H, W, C\\)"),
    ],
)
def test_refused(trace, statement, words):
    with pytest.raises(ValueError, match=words):
        trace(statement)
