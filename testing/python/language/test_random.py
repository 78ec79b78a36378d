"""Random numbers: known answers, streams, distributions."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PHILOX, XORWOW, MRG = (f"curandState{name}_t" for name in ("Philox4_32_10", "XORWOW", "MRG32k3a"))


def integers(generator, count=8, threads=32, off=0, seed=0, seq=None):
    @T.prim_func
    def main(A: T.Tensor((2, threads, count), "uint32")):
        with T.Kernel(2, threads=threads) as bx:
            t = T.get_thread_binding()
            T.rng_init(seed, seq, off, generator=generator)
            for i in T.serial(count):
                A[bx, t, i] = T.rng_rand()

    found = tilelang.compile(main, out_idx=-1)().cpu().view(torch.int32).long() & 0xFFFFFFFF
    return found.view(2 * threads, count)


def test_philox_gives_the_known_answers():
    # Known answer tests of Random123, philox4x32 of 10 rounds.
    zeros = integers(PHILOX, count=4, seq=0)[0].tolist()
    assert zeros == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def philox(counter, key):
    """The paper's algorithm on Python integers."""
    c, (k, m) = list(counter), key
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [q >> 32 ^ c[1] ^ k, q % 2**32, p >> 32 ^ c[3] ^ m, p % 2**32]
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return c


def test_philox_streams_and_offsets():
    seed = 0x123456789ABCDEF
    found = integers(PHILOX, count=9, off=6, seed=T.uint64(seed))
    key = (seed % 2**32, seed >> 32)
    for thread in (0, 31, 32, 63):
        numbers = [n for step in (1, 2, 3) for n in philox((step, 0, thread, 0), key)]
        assert found[thread].tolist() == numbers[2:11]


def xorwow(words):
    while True:
        t = words[0] ^ words[0] >> 2
        v = (words[4] ^ words[4] << 4 ^ t ^ t << 1) % 2**32
        words = [*words[1:5], v, (words[5] + 362437) % 2**32]
        yield (words[4] + words[5]) % 2**32


def mrg32k3a(words):
    m1, m2 = 2**32 - 209, 2**32 - 22853
    a, b = words[:3], words[3:6]
    while True:
        x, y = (1403580 * a[1] - 810728 * a[0]) % m1, (527612 * b[2] - 1370589 * b[0]) % m2
        a, b = [*a[1:], x], [*b[1:], y]
        yield (x - y) % m1


@pytest.mark.parametrize(("generator", "reference"), [(XORWOW, xorwow), (MRG, mrg32k3a)])
def test_the_other_generators(generator, reference):
    found = integers(generator, off=3, seed=7)
    for thread in (0, 40):
        words = [n for step in (0, 1) for n in philox((step, 0, thread, 0), (7, 0))][:6]
        if generator == XORWOW:
            words[0] |= 1
        numbers = reference(words)
        wanted = [next(numbers) for _ in range(11)][3:]
        assert found[thread].tolist() == wanted


@pytest.mark.parametrize("bit", [32, 64])
def test_distributions(bit):
    dtype = f"float{bit}"

    @T.prim_func
    def main(A: T.Tensor((2, 128, 64), dtype)):
        with T.Kernel(1, threads=128):
            t = T.get_thread_binding()
            T.rng_init(seed=11)
            for i in T.serial(64):
                A[0, t, i] = T.rng_rand_float(bit)
                A[1, t, i] = T.rng_rand_float(bit, dist="normal")

    uniform, normal = tilelang.compile(main, out_idx=-1)().cpu().double().view(2, -1)
    assert 0 < uniform.min() < 1e-3
    assert 1 - 1e-3 < uniform.max() <= 1
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(uniform.var() - 1 / 12) < 0.005
    assert abs(normal.mean()) < 0.05
    assert abs(normal.std() - 1) < 0.03
    assert (normal.abs() > 2.5).double().mean().sub(0.0124).abs() < 0.006
    assert uniform.unique().numel() > 8100


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("T.rng_init(1, generator='mt')", AssertionError, "'mt', wanted one of curandState"),
        ("A[0, 0] = T.rng_rand_float()", ValueError, "found no generator; call T.rng_init"),
        ("A[0, 0] = T.rng_rand_float(16)", AssertionError, "is 16, wanted 32 or 64"),
        ("A[0, 0] = T.rng_rand_float(dist='x')", AssertionError, "wanted one of uniform, normal"),
    ],
)
def test_errors(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(statement)
