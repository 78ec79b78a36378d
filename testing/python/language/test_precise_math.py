"""Approximations, roundings and pairs: kernels against exact or float64 references."""

import math
import operator
from fractions import Fraction

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
N = 64

APPROXIMATIONS = {
    "__exp": torch.exp,
    "__exp2": torch.exp2,
    "__exp10": lambda x: 10.0**x,
    "__log": torch.log,
    "__log2": torch.log2,
    "__log10": torch.log10,
    "__sin": torch.sin,
    "__cos": torch.cos,
    "__tan": torch.tan,
    "fast_rcp": lambda x: 1 / x,
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_approximations(dtype):
    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((len(APPROXIMATIONS), N), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                for row, name in enumerate(APPROXIMATIONS):
                    B[row, i] = getattr(T, name)(A[i])

    kernel = tilelang.compile(main, out_idx=-1)
    assert "tl::fast_exp(tl::" in kernel.get_kernel_source()
    a = torch.linspace(0.125, 3, N).to(getattr(torch, dtype))
    x = a.double()
    wanted = torch.stack([f(x) for f in APPROXIMATIONS.values()])
    bound = (4e-6 if dtype == "float32" else 1e-3) * (1 + wanted.abs())
    # Near its pole the tangent has the absolute errors of the sine and cosine that it is made of
    # (CUDA C++ Programming Guide, "Intrinsic Functions").
    errors = 2**-21.41 / x.sin().abs() + 2**-21.19 / x.cos().abs()
    bound[list(APPROXIMATIONS).index("__tan")] += errors * x.tan().abs()
    assert bool(((kernel(a.to(DEVICE)).cpu().double() - wanted).abs() <= bound).all())


OPERATORS = {"ieee_add": operator.add, "ieee_sub": operator.sub, "ieee_mul": operator.mul}
MODES = ("rn", "rz", "ru", "rd")


def neighbours(exact, dtype):
    """The largest number of the dtype that is not above, the smallest that is not below."""
    near = torch.tensor(float(exact), dtype=dtype)
    down, up = torch.tensor(-math.inf, dtype=dtype), torch.tensor(math.inf, dtype=dtype)
    low = near if Fraction(near.item()) <= exact else torch.nextafter(near, down)
    high = near if Fraction(near.item()) >= exact else torch.nextafter(near, up)
    return low.item(), high.item()


def rounded(exact, mode, dtype):
    low, high = neighbours(exact, dtype)
    below, above = exact - Fraction(low), Fraction(high) - exact
    if mode == "rn" and below == above:
        return torch.tensor(float(exact), dtype=dtype).item()
    if mode == "rn":
        return low if below < above else high
    return {"ru": high, "rd": low, "rz": low if exact > 0 else high}[mode]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_roundings(dtype):
    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype), C: T.Tensor((7, 4, N), dtype)):
        with T.Kernel(1, threads=N):
            i = T.get_thread_binding()
            for m, mode in enumerate(MODES):
                for row, name in enumerate(OPERATORS):
                    C[row, m, i] = getattr(T, name)(A[i], B[i], mode)
                C[3, m, i] = T.ieee_fdiv(A[i], B[i], mode)
                C[4, m, i] = T.ieee_fmaf(A[i], B[i], 1.0, mode)
                C[5, m, i] = T.ieee_frcp(B[i], rounding_mode=mode)
                C[6, m, i] = T.ieee_fsqrt(T.abs(A[i]), mode)

    torch_dtype = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(N, dtype=torch_dtype, generator=generator) for _ in range(2))
    found = tilelang.compile(main, out_idx=-1)(a.to(DEVICE), b.to(DEVICE)).cpu()
    for i in range(N):
        x, y = Fraction(a[i].item()), Fraction(b[i].item())
        exact = [f(x, y) for f in OPERATORS.values()] + [x / y, x * y + 1, 1 / y]
        for m, mode in enumerate(MODES):
            wanted = [rounded(e, mode, torch_dtype) for e in exact]
            assert found[:6, m, i].tolist() == wanted, mode
        # A root is between its neighbours if its square is.
        low, high = (Fraction(found[6, MODES.index(m), i].item()) for m in ("rd", "ru"))
        assert low**2 <= abs(x) <= high**2
        assert neighbours((low + high) / 2, torch_dtype) == (float(low), float(high))
        assert found[6, MODES.index("rz"), i] == float(low)
        assert found[6, 0, i].double().item() in (float(low), float(high))


def test_single_roundings_that_have_no_mode():
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((3, N), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                B[0, i] = T.ieee_frsqrt(A[i])
                B[1, i] = T.fmul(A[i], A[i]) - 1.0
                B[2, i] = T.fma(A[i], A[i], -1.0)

    a = torch.linspace(0.5, 2, N)
    wide = a.double()
    found = tilelang.compile(main, out_idx=-1)(a.to(DEVICE)).cpu()
    wanted = [wide.rsqrt(), (wide * wide).float().double() - 1, wide * wide - 1]
    assert torch.equal(found, torch.stack(wanted).float())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_pairs(dtype):
    pair = T.dtype(dtype + "x2")

    @T.prim_func
    def main(A: T.Tensor((3, N), dtype), B: T.Tensor((7, N), dtype)):
        with T.Kernel(1, threads=N // 2):
            i = T.get_thread_binding() * 2
            x, y, z = (pair(A[row, i], A[row, i + 1]) for row in range(3))
            results = [T.add2(x, y), T.sub2(x, y), T.mul2(x, y), T.fma2(x, y, z)]
            results += [T.max2(x, y), T.min2(x, y), T.abs2(x)]
            for row, result in enumerate(results):
                for lane in (0, 1):
                    B[row, i + lane] = T.extract_lane(result, lane)

    torch_dtype = getattr(torch, dtype)
    a = torch.randn((3, N), generator=torch.Generator().manual_seed(2)).to(torch_dtype)
    a[0, 0] = math.nan
    found = tilelang.compile(main, out_idx=-1)(a.to(DEVICE)).cpu()
    x, y, z = a.double()
    wanted = [x + y, x - y, x * y, x * y + z, torch.fmax(x, y), torch.fmin(x, y), x.abs()]
    wanted = torch.stack(wanted).to(torch_dtype)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_a_fused_operation_of_halves_rounds_once():
    @T.prim_func
    def main(A: T.Tensor((2,), "float16")):
        with T.Kernel(1, threads=1):
            # 2049 lies between 2048 and 2050, and the tiny term decides.
            x = T.float16x2(T.float16(1), T.float16(1))
            y = T.float16x2(T.float16(2**-24), T.float16(-(2**-24)))
            z = T.float16x2(T.float16(3), T.float16(3))
            half = T.float16x2(T.float16(683), T.float16(683))
            inner = T.fma2(half, z, y)
            A[0] = T.extract_lane(inner, 0)
            A[1] = T.extract_lane(T.fma2(x, inner, y), 1)

    # 683 * 3 = 2049, a tie that 2**-24 breaks upwards and -(2**-24) downwards.
    assert tilelang.compile(main, out_idx=-1)().tolist() == [2050, 2048]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda i, x: T.__exp(i), TypeError, r"T\.__exp found .* of dtype int32, wanted a scalar"),
        (lambda i, x: T.__exp(T.float64(x)), TypeError, "wanted a scalar of float16"),
        (lambda i, x: T.fast_rcp("a"), TypeError, "T.fast_rcp found 'a'"),
        (lambda i, x: T.ieee_add(x, x, "up"), ValueError, "'up', wanted one of rn, rz, ru, rd"),
        (lambda i, x: T.ieee_mul(x, i), TypeError, "of dtype int32, wanted a scalar of float32"),
        (lambda i, x: T.ieee_add(x, T.float64(x)), TypeError, "float32, float64, wanted one dtype"),
        (lambda i, x: T.add2(x, x), TypeError, "wanted a scalar of float32x2"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(T.int32(), T.float32())
