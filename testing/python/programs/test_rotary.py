"""Rotary positions (RoFormer, Su et al. 2021) on the halves of an accumulator, in place."""

import pytest
import torch

import tilelang
import tilelang.language as T

ROWS, DIM, STEP = 64, 64, 32


def project_and_rotate(depth):
    """Q = rotate(X W), a head a block; element d of a head turns with element d + DIM // 2."""
    tokens, heads = T.dynamic("tokens"), T.dynamic("heads")

    @T.prim_func
    def main(
        X: T.Tensor((tokens, depth), "float16"),
        W: T.Tensor((depth, heads * DIM), "float16"),
        Cos: T.Tensor((tokens, DIM // 2), "float32"),
        Sin: T.Tensor((tokens, DIM // 2), "float32"),
        Q: T.Tensor((tokens, heads, DIM), "float16"),
    ):
        with T.Kernel(T.ceildiv(tokens, ROWS), heads, threads=128) as (bx, h):
            x = T.alloc_shared((ROWS, STEP), "float16")
            w = T.alloc_shared((STEP, DIM), "float16")
            acc = T.alloc_fragment((ROWS, DIM), "float32")
            cos = T.alloc_fragment((ROWS, DIM // 2), "float32")
            sin = T.alloc_fragment((ROWS, DIM // 2), "float32")
            T.clear(acc)
            T.copy(Cos[bx * ROWS, 0], cos)
            T.copy(Sin[bx * ROWS, 0], sin)
            for k in T.Pipelined(T.ceildiv(depth, STEP), num_stages=2):
                T.copy(X[bx * ROWS, k * STEP], x)
                T.copy(W[k * STEP, h * DIM], w)
                T.gemm(x, w, acc)
            for i, d in T.Parallel(ROWS, DIM // 2):
                first = acc[i, d]
                second = acc[i, d + DIM // 2]
                acc[i, d] = first * cos[i, d] - second * sin[i, d]
                acc[i, d + DIM // 2] = second * cos[i, d] + first * sin[i, d]
            T.copy(acc, Q[bx * ROWS : (bx + 1) * ROWS, h, :])

    return main


def reference(x, w, cos, sin):
    q = (x.double() @ w.double()).reshape(len(x), -1, DIM)
    first, second = q[..., : DIM // 2], q[..., DIM // 2 :]
    cos, sin = cos.double()[:, None], sin.double()[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    depth, tokens, heads = 72, 77, 3
    kernel = tilelang.compile(
        project_and_rotate(depth), execution_backend="auto", target=f"cuda -arch={arch}"
    )
    x, w = torch.randn(tokens, depth).half(), (torch.randn(depth, heads * DIM) / 8).half()
    angles = torch.randn(tokens, DIM // 2)
    x, w, cos, sin = (t.to(device) for t in (x, w, angles.cos(), angles.sin()))
    q = torch.full((tokens, heads, DIM), torch.nan, dtype=torch.float16, device=device)
    kernel(x, w, cos, sin, q)
    torch.testing.assert_close(q.double(), reference(x, w, cos, sin), rtol=2e-3, atol=2e-3)
    # Where one thread has both halves, it turns them in its registers.
    assert "copied to shared memory" not in kernel.explain()
