"""Sums of 16 bits that no instruction forms are formed in float32."""

import pytest
import torch

import tilelang
import tilelang.language as T

SIZE, K = 64, 96


def product(dtype, sums, clear="in front"):
    """A @ B^T in three steps, or of the last step alone where each one clears."""

    @T.prim_func
    def main(
        A: T.Tensor((SIZE, K), dtype),
        B: T.Tensor((SIZE, K), dtype),
        C: T.Tensor((SIZE, SIZE), sums),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((SIZE, 32), dtype), T.alloc_shared((SIZE, 32), dtype)
            c = T.alloc_fragment((SIZE, SIZE), sums)
            T.clear(c)
            for k in T.Pipelined(K // 32, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                if clear == "each":
                    T.gemm(a, b, c, transpose_B=True, clear_accum=True)
                elif clear == "first":
                    T.gemm(a, b, c, transpose_B=True, clear_accum=k == 0)
                else:
                    T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    return main


def plan_of(said):
    (plan,) = {text for text in said if "T.gemm 64x64x32" in text}
    return plan


@pytest.mark.parametrize(
    ("target", "dtype", "sums"),
    [
        ("hip -mcpu=gfx942", "float16", "float16"),
        ("hip -mcpu=gfx1100", "bfloat16", "bfloat16"),
        ("cuda -arch=sm_90a", "bfloat16", "bfloat16"),
    ],
)
@pytest.mark.parametrize("clear", ["in front", "each"])
def test_it_is_an_instruction(said, target, dtype, sums, clear):
    program = product(dtype, sums, clear)
    kernel = tilelang.compile(program, out_idx=-1, target=target, execution_backend="emulate")
    assert f"({dtype} x {dtype} -> float32)" in plan_of(said)
    a, b = (torch.randn(SIZE, K).to(getattr(torch, dtype)) for _ in range(2))
    last = slice(K - 32 if clear == "each" else 0, K)
    wanted = (a[:, last].float() @ b[:, last].float().T).to(getattr(torch, sums))
    torch.testing.assert_close(kernel(a, b), wanted, rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize(
    ("target", "dtype", "sums", "clear", "found"),
    [
        # The instruction forms sums of float16.
        ("cuda -arch=sm_80", "float16", "float16", "in front", "float16 x float16 -> float16)"),
        # Whether it clears only the run knows.
        ("hip -mcpu=gfx942", "float16", "float16", "first", "no instruction for float16"),
        # float32 has none either.
        ("hip -mcpu=gfx1100", "float32", "float16", "in front", "multiply-add from K=0 on"),
    ],
)
def test_others_stay(said, target, dtype, sums, clear, found):
    tilelang.lower(product(dtype, sums, clear), target=target)
    assert found in plan_of(said)
