"""Dropout and a residual: random numbers come from a counter (Philox, Salmon et al. 2011), so that
the backward pass makes the same ones again, and no mask is stored. Check what is kept.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

WIDTH = 8  # elements of a thread


@tilelang.jit(out_idx=[-1])
def dropout(probability, add=True, dtype=T.bfloat16, threads=256):
    """X / (1 - probability) where a random number of 16 bits is not below `probability`, else 0;
    with `add` plus Residual. X, Residual and Y are (size,), a multiple of 8. With the same seed the
    same elements are kept: gradients are dropped by the same kernel."""
    size = T.dynamic("size")
    below, scale = round(probability * 2**16), 1 / (1 - probability)

    @T.prim_func
    def main(
        X: T.Tensor((size,), dtype),
        Residual: T.Tensor((size,), dtype),
        seed: T.int64,
        Y: T.Tensor((size,), dtype),
    ):
        assert size % WIDTH == 0, f"size is no multiple of {WIDTH}"
        with T.Kernel(T.ceildiv(size, threads * WIDTH), threads=threads) as bx:
            tx = T.get_thread_binding()
            bits = T.alloc_local((WIDTH // 2,), T.uint32)
            x = T.alloc_local((WIDTH,), dtype)
            residual = T.alloc_local((WIDTH,), dtype)
            first = (bx * threads + tx) * WIDTH
            T.rng_init(seed, seq=bx * threads + tx)
            if first < size:
                for i in T.vectorized(WIDTH):
                    x[i] = X[first + i]
                if add:
                    for i in T.vectorized(WIDTH):
                        residual[i] = Residual[first + i]
                # Two numbers of 16 bits in each of the generator's.
                for i in T.unroll(WIDTH // 2):
                    bits[i] = T.rng_rand()
                for i in T.unroll(WIDTH):
                    number = bits[i // 2] >> T.uint32(16 * (i % 2)) & T.uint32(0xFFFF)
                    y = T.if_then_else(number < T.uint32(below), 0, T.cast(x[i], T.float32) * scale)
                    x[i] = y + residual[i] if add else y
                for i in T.vectorized(WIDTH):
                    Y[first + i] = x[i]

    return main


def share_off(size, probability, device="cpu"):
    """How far the share of dropped elements is from the probability, in standard deviations. What
    is kept, what another seed keeps, and the gradient are checked."""
    torch.manual_seed(0)
    x, residual, gradient = (torch.randn(size, device=device).bfloat16() for _ in range(3))
    ones, zeros = torch.ones_like(x), torch.zeros_like(x)
    forward, backward = dropout(probability), dropout(probability, add=False)
    mask = backward(ones, zeros, 1).double()
    kept = mask > 0
    scale = torch.tensor(1 / (1 - probability)).bfloat16().double().to(device)
    assert torch.equal(mask, kept * scale), "found other factors than 0 and 1 / (1 - p)"
    wanted = residual.double() + kept * x.double() / (1 - probability)
    torch.testing.assert_close(forward(x, residual, 1).double(), wanted, rtol=1e-2, atol=1e-2)
    slope = kept * gradient.double() / (1 - probability)
    torch.testing.assert_close(backward(gradient, zeros, 1).double(), slope, rtol=1e-2, atol=1e-2)
    assert (backward(ones, zeros, 2) > 0).ne(kept).any(), "two seeds keep the same elements"
    dropped = float((~kept).sum())
    return abs(dropped - size * probability) / (size * probability * (1 - probability)) ** 0.5


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2**26 if gpu else 5000)
    parser.add_argument("--probability", type=float, default=0.1)
    arguments = parser.parse_args()
    off = share_off(arguments.size, arguments.probability, "cuda" if gpu else "cpu")
    assert off < 4, f"the share is {off:.1f} deviations off, wanted under 4"
    print(f"{arguments.size} elements: the share is {off:.1f} deviations off")
