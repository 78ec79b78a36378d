"""Casts of whole tiles, roundings, bits, clamps, safe values and strides."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PAIRS = [
    ("float32", "float16"),
    ("float32", "bfloat16"),
    ("float32", "int8"),
    ("float16", "float32"),
    ("float16", "uint8"),
    ("bfloat16", "float16"),
    ("bfloat16", "int32"),
    ("int8", "float16"),
    ("uint8", "bfloat16"),
    ("int32", "float32"),
    ("int32", "int8"),
    ("int8", "int32"),
    ("float64", "float32"),
    ("float64", "float16"),
    ("float32", "float64"),
    ("int32", "float64"),
]


def convert(x, dtype):
    """`x` rounded once: torch goes from float64 to float16 through float32, which rounds twice."""
    if x.dtype == torch.float64 and dtype == torch.float16:
        return torch.from_numpy(x.cpu().numpy().astype("float16")).to(x.device)
    return x.to(dtype)


def test_float64_becomes_float16_with_one_rounding():
    """Just below the middle of two float16 values, where float32 is exactly in the middle."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float64"), B: T.Tensor((64,), "float16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                B[i] = A[i]

    a = torch.full((64,), 89.71875 - 2.0**-40, dtype=torch.float64, device=DEVICE)
    b = torch.zeros(64, dtype=torch.float16, device=DEVICE)
    tilelang.compile(main)(a, b)
    assert (b == 89.6875).all()


@pytest.mark.parametrize("start", range(0, len(PAIRS), 4))
def test_tiles_are_cast_in_vectors(start):
    pairs = PAIRS[start : start + 4]

    def tensors(side):
        return [T.Tensor((3, 64), pair[side]) for pair in pairs]

    a, b = tensors(0), tensors(1)

    @T.prim_func
    def main(A0: a[0], A1: a[1], A2: a[2], A3: a[3], B0: b[0], B1: b[1], B2: b[2], B3: b[3]):
        with T.Kernel(1, threads=32):
            for source, target in ((A0, B0), (A1, B1), (A2, B2), (A3, B3)):
                F = T.alloc_fragment((3, 64), source.dtype)
                T.copy(source, F)
                T.copy(F, target)

    inputs = []
    for source, target in pairs:
        x = torch.randn(3, 64, dtype=torch.float64, device=DEVICE) * 40
        if target == "uint8" or source == "uint8":
            x = x.abs()
        inputs.append(x.to(getattr(torch, source)))
    outputs = [torch.zeros(3, 64, dtype=getattr(torch, t), device=DEVICE) for _, t in pairs]
    kernel = tilelang.compile(main)
    kernel(*inputs, *outputs)
    for x, y, (_, target) in zip(inputs, outputs, pairs, strict=True):
        wanted = x
        if not y.is_floating_point() and x.is_floating_point():
            limits = torch.iinfo(y.dtype)
            wanted = x.double().trunc().clamp(limits.min, limits.max)
        assert torch.equal(y, convert(wanted, getattr(torch, target)))
    assert "tl::cast<" in kernel.get_kernel_source()


def test_roundings_to_integers():
    modes = ["rn", "rz", "ru", "rd", ""]

    @T.prim_func
    def main(A: T.Tensor((60,), "float32"), B: T.Tensor((5, 60), "int8")):
        with T.Kernel(1, threads=32):
            for k, mode in enumerate(modes):
                for i in T.Parallel(60):
                    B[k, i] = T.cast(A[i], "int8", round=mode)

    a = torch.cat([torch.arange(-20, 20) / 2, torch.randn(20) * 200]).to(DEVICE)
    b = torch.zeros(5, 60, dtype=torch.int8, device=DEVICE)
    tilelang.compile(main)(a, b)
    wanted = torch.stack([a.round(), a.trunc(), a.ceil(), a.floor(), a.trunc()])
    assert torch.equal(b, wanted.clamp(-128, 127).to(torch.int8))


def representable(dtype):
    """All finite numbers of a 16-bit or 8-bit float, in order."""
    bits = 8 * dtype.itemsize
    every = torch.arange(2**bits).to(getattr(torch, f"uint{bits}")).view(dtype).double()
    return torch.unique(every[every.isfinite()])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("wide", ["float32", "float64"])
def test_roundings_between_floats(name, wide):
    modes = ["rz", "ru", "rd", "rs"]
    n = 480

    @T.prim_func
    def main(A: T.Tensor((n,), wide), R: T.Tensor((n,), "uint32"), B: T.Tensor((4, n), name)):
        with T.Kernel(1, threads=32):
            for k, mode in enumerate(modes):
                for i in T.Parallel(n):
                    B[k, i] = T.cast(A[i], name, round=mode, rbits=R[i] if mode == "rs" else None)

    dtype, torch_wide = getattr(torch, name), getattr(torch, wide)
    table = representable(dtype)
    largest = table[-1].item()
    # Numbers of every size, the representable ones themselves, zeros, and what is out of range.
    spread = torch.randn(300).double() * 2.0 ** torch.randint(-30, 20, (300,))
    some = table[torch.randint(len(table), (170,))]
    edges = [0.0, -0.0, largest * 1.01, -largest * 1.01, 1e30, -1e30, 1e-30, -1e-30]
    a = torch.cat([spread.clamp(-largest, largest), some, torch.tensor([*edges, 1.0, -1.0])])
    most = torch.finfo(torch_wide).max
    a = a.clamp(-most, most).to(torch_wide)
    random = torch.randint(2**32, (n,))
    kernel = tilelang.compile(main, out_idx=-1)
    found = kernel(a.to(DEVICE), random.to(torch.uint32).to(DEVICE)).cpu().double()

    x = a.double()
    up = torch.searchsorted(table, x)
    infinite = float("inf") if name in ("float16", "bfloat16") else largest
    above = torch.where(x > largest, infinite, table[up.clamp(max=len(table) - 1)])
    down = torch.searchsorted(table, x, right=True) - 1
    below = torch.where(x < -largest, -infinite, table[down.clamp(min=0)])
    towards, away = torch.where(x < 0, above, below), torch.where(x < 0, below, above)
    carry = ((x - towards) / (away - towards) * 2.0**32).floor() + random >= 2**32
    stochastic = torch.where(carry & (x.abs() < largest) & (away != towards), away, towards)
    assert torch.equal(found, torch.stack([towards, above, below, stochastic]))


def test_a_double_is_rounded_to_a_float():
    @T.prim_func
    def main(A: T.Tensor((64,), "float64"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                B[i] = T.cast(A[i], "float32", round="ru")

    a = torch.randn(64, dtype=torch.float64, device=DEVICE)
    b = tilelang.compile(main, out_idx=-1)(a)
    assert (b.double() >= a).all()
    assert (torch.nextafter(b, torch.full_like(b, -9.0)).double() < a).all()


def test_bits_clamps_and_safe_values():
    @T.prim_func
    def main(
        A: T.Tensor((10, 60), "float16"),
        B: T.Tensor((17, 100), "float32"),
        C: T.Tensor((17, 100), "uint32"),
    ):
        with T.Kernel(1, threads=64):
            T.annotate_safe_value({A: -3})
            S = T.alloc_shared((17, 100), "float32")
            T.copy(A[0:17, 0:100], S)
            for i, j in T.Parallel(17, 100):
                B[i, j] = T.clamp(S[i, j], -2.5, 1)
                C[i, j] = T.reinterpret(S[i, j], "uint32")

    a = torch.randn(10, 60, device=DEVICE).half()
    b, c = torch.zeros(17, 100, device=DEVICE), torch.zeros(17, 100, device=DEVICE)
    kernel = tilelang.compile(main)
    kernel(a, b, c.view(torch.uint32))
    wanted = torch.full((17, 100), -3.0, device=DEVICE)
    wanted[:10, :60] = a.float()
    assert torch.equal(b, wanted.clamp(-2.5, 1))
    assert torch.equal(c, wanted)
    assert "tl::bit_cast<tl::vec<uint32_t, 4>>" in kernel.get_kernel_source()


def test_safe_values_in_a_pipeline():
    @T.prim_func
    def main(A: T.Tensor((100,), "int32"), B: T.Tensor((4, 32), "int32")):
        with T.Kernel(1, threads=32):
            T.annotate_safe_value(A, 7)
            S = T.alloc_shared((32,), "int32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 32], S)
                T.copy(S, B[k, 0])

    a = torch.arange(100, dtype=torch.int32, device=DEVICE)
    b = torch.zeros(4, 32, dtype=torch.int32, device=DEVICE)
    tilelang.compile(main)(a, b)
    assert b.flatten().tolist() == [*range(100), *[7] * 28]


def test_strides():
    row = T.dynamic("row")

    @T.prim_func
    def main(
        A: T.StridedTensor((17, 60), (row, 1), "float32"),
        B: T.StridedTensor((17, 60), (1, 20), "float32"),
    ):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((17, 60), "float32")
            T.copy(A, S)
            T.copy(S, B)

    whole = torch.randn(17, 100, device=DEVICE)
    target = torch.zeros(60, 20, device=DEVICE)
    tilelang.compile(main)(whole[:, :60], target.T[:17])
    assert torch.equal(target.T[:17], whole[:, :60])
    assert not target.T[17:].any()
    with pytest.raises(ValueError, match="found 1 strides for 2 dimensions"):
        T.StridedTensor((3, 4), (4,), "float32")


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        ("A[0, 0] = T.cast(B[0, 0], 'int8', round='up')", ValueError, "rn, rz, ru, rd"),
        ("A[0, 0] = T.cast(B[0, 0], 'float16', round='rs')", ValueError, "wanted both"),
        ("A[0, 0] = T.cast(B[0, 0], 'float16', rbits=n)", ValueError, "wanted both"),
        ("A[0, 0] = T.cast(n, 'float16', round='rs', rbits=n)", ValueError, "wanted a float and"),
        ("A[0, 0] = T.cast(B[0, 0], 'float64', round='rz')", ValueError, "one of float32, float16"),
        ("A[0, 0] = T.reinterpret(B[0, 0], 'int16')", ValueError, "of 32 bits"),
        ("T.annotate_safe_value({T.alloc_shared((2,), 'int8'): 1})", ValueError, "a global tensor"),
        ("x = T.extract_lane(B[0, 0], 0)", TypeError, "wanted a vector"),
    ],
)
def test_refused(trace, statement, error, words):
    with pytest.raises(error, match=words):
        trace(statement)
