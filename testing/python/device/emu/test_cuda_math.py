"""The functions of CUDA C++ that code of users may call without a header."""

import torch

import tilelang
import tilelang.language as T

SOURCE = """
__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * rsqrtf(2.0f))); }
__device__ float clamped(float x) { return min(max(x, -0.5f), fminf(0.5f, 1.0f)) + max(1, 2); }
"""


@T.prim_func
def main(A: T.Tensor((64,), "float32"), B: T.Tensor((3, 64), "float32")):
    with T.Kernel(1, threads=64):
        T.import_source(SOURCE)
        for i in T.Parallel(64):
            B[0, i] = T.call_extern("float32", "gelu", A[i])
            B[1, i] = T.call_extern("float32", "clamped", A[i])
            B[2, i] = T.call_extern("float32", "fabsf", A[i])


def test_functions_without_a_header():
    a, b = torch.randn(64), torch.zeros(3, 64)
    tilelang.compile(main, execution_backend="emulate")(a, b)
    wanted = [torch.nn.functional.gelu(a), a.clamp(-0.5, 0.5) + 2, a.abs()]
    torch.testing.assert_close(b, torch.stack(wanted))
