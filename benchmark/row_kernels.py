"""Softmax and RMSNorm over rows: bytes a second beside a copy of the same size and beside torch.

Needs a GPU. Prints a table: medians of calls that take turns in one process.
"""

import torch
from common import example

import tilelang
import tilelang.language as T
from tilelang.profiler import compare

ROWS, COLUMNS = 16384, 8192


@tilelang.jit(out_idx=[-1])
def rms_norm_row(M, N, dtype, threads, epsilon=1e-6):
    """RMSNorm with the whole row in registers: one read and one write of memory."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), W: T.Tensor((N,), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=threads) as bx:
            row = T.alloc_fragment((1, N), dtype)
            value = T.alloc_fragment((1, N), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            T.copy(A[bx, 0], row)
            for i, j in T.Parallel(1, N):
                value[i, j] = T.cast(row[i, j], T.float32) * T.cast(row[i, j], T.float32)
            T.reduce_sum(value, total, dim=1)
            for i, j in T.Parallel(1, N):
                value[i, j] = row[i, j] * T.rsqrt(total[i] / N + epsilon) * W[j]
            T.copy(value, B[bx, 0])

    return main


def main() -> None:
    """Measure and print."""
    softmax = example("softmax").softmax
    a = torch.randn(ROWS, COLUMNS, device="cuda").bfloat16()
    weight = torch.randn(COLUMNS, device="cuda").bfloat16()
    target = torch.empty_like(a)
    functions = {
        "copy": lambda: target.copy_(a),
        "torch softmax": lambda: a.softmax(dim=1),
        "torch rms_norm": lambda: torch.nn.functional.rms_norm(a, (COLUMNS,), weight, 1e-6),
    }
    for threads in (256, 512, 1024):
        kernel = softmax(ROWS, COLUMNS, T.bfloat16, block_M=1, threads=threads)
        wanted = a.double().softmax(dim=1)
        assert (kernel(a).double() - wanted).norm() < 5e-3 * wanted.norm()
        functions[f"softmax, {threads} threads"] = lambda k=kernel: k(a)
        norm = rms_norm_row(ROWS, COLUMNS, T.bfloat16, threads)
        x = a.double()
        wanted = x * torch.rsqrt((x * x).mean(dim=1, keepdim=True) + 1e-6) * weight.double()
        assert (norm(a, weight).double() - wanted).norm() < 5e-3 * wanted.norm()
        functions[f"rms_norm, {threads} threads"] = lambda k=norm: k(a, weight)
    times = compare(functions).medians
    print(f"{'16384 x 8192 bfloat16':<24} {'ms':>8} {'GB/s':>8} {'of the copy':>12}")
    for name, milliseconds in times.items():
        speed = 2 * a.numel() * a.element_size() / milliseconds * 1e-6
        share = times["copy"] / milliseconds
        print(f"{name:<24} {milliseconds:>8.4f} {speed:>8.0f} {share:>12.3f}")


if __name__ == "__main__":
    main()
