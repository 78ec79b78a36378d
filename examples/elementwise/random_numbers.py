"""Tensors of random numbers, uniform or normal, from a counter (Philox, Salmon et al. 2011): the
same seed gives the same numbers, whatever the grid. Check them against Philox in Python, with
float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math

import torch

import tilelang
import tilelang.language as T

WIDTH = 4  # elements of a stream


@tilelang.jit
def random_numbers(size, dist="uniform", threads=256):
    """X (size,) in float32 of a seed: element i is number i % 4 of the stream i // 4, between 0 and
    1, or with `dist` "normal" of mean 0 and variance 1, for which two numbers are drawn."""

    @T.prim_func
    def main(seed: T.int64):
        X = T.empty((size,), T.float32)
        with T.Kernel(T.ceildiv(size, threads * WIDTH), threads=threads) as bx:
            tx = T.get_thread_binding()
            x = T.alloc_local((WIDTH,), T.float32)
            stream = bx * threads + tx
            T.rng_init(seed, seq=stream)
            for i in T.unroll(WIDTH):
                x[i] = T.rng_rand_float(dist=dist)
            for i in T.vectorized(WIDTH):
                if stream * WIDTH + i < size:
                    X[stream * WIDTH + i] = x[i]
        return X

    return main


def philox(seed, stream, count):
    """`count` numbers of 32 bits of a stream, by Philox4x32-10."""
    mask, numbers = 2**32 - 1, []
    for block in range(-(-count // 4)):
        c = [block, 0, stream & mask, stream >> 32]
        key = [seed & mask, seed >> 32 & mask]
        for _ in range(10):
            first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [
                *(second >> 32 ^ c[1] ^ key[0], second & mask),
                *(first >> 32 ^ c[3] ^ key[1], first & mask),
            ]
            key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
        numbers += c
    return numbers[:count]


def reference(dist, seed, size):
    """The first numbers in float64: uniform ones in the middle of their interval of 2^-32, normal
    ones of two of these (Box and Muller 1958)."""
    draws, streams = WIDTH * (2 if dist == "normal" else 1), -(-size // WIDTH)
    numbers = [n for stream in range(streams) for n in philox(seed, stream, draws)]
    uniform = (torch.tensor(numbers, dtype=torch.float64) + 0.5) / 2**32
    if dist == "uniform":
        return uniform[:size]
    first, second = uniform.view(-1, 2).T
    return ((-2 * first.log()).sqrt() * (2 * math.pi * second).cos())[:size]


def relative_error(dist, size, seed=2**40 + 3, checked=5000):
    """||ours - reference|| / ||reference|| of the first numbers; mean and variance are checked of
    all, and that another grid makes the same ones and another seed others."""
    x = random_numbers(size, dist)(seed)
    wanted = reference(dist, seed, min(size, checked)).to(x.device)
    mean, variance = (0.5, 1 / 12) if dist == "uniform" else (0.0, 1.0)
    # Five deviations: of the mean of numbers, and of their squares' at most twice as far.
    off = 5 * (variance / size) ** 0.5
    assert abs(float(x.double().mean()) - mean) < off, "another mean"
    assert abs(float(x.double().var()) - variance) < 2 * off * max(variance, 0.5), (
        "another variance"
    )
    assert torch.equal(random_numbers(size, dist, threads=128)(seed), x), (
        "another grid, other numbers"
    )
    assert (random_numbers(size, dist)(seed + 1) != x).any(), "another seed, the same numbers"
    return float((x[:checked].double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2**26 if gpu else 5001)
    size = parser.parse_args().size
    for dist in ("uniform", "normal"):
        error = relative_error(dist, size)
        assert error < 1e-5, f"{dist}: relative error {error:.1e}, wanted under 1e-5"
        print(f"{size} {dist} numbers: relative error {error:.1e}")
