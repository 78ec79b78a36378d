"""Rotary positions (RoFormer, Su et al. 2021) on the halves of an accumulator, in place."""

import pytest
import torch

import tilelang
import tilelang.language as T

ROWS, DIM, STEP = 64, 64, 32


def project_and_rotate(depth, rows=ROWS, dim=DIM, step=STEP, threads=128, num_stages=2):
    """Q = rotate(X W), a head a block; element d of a head turns with element d + dim // 2."""
    tokens, heads = T.dynamic("tokens"), T.dynamic("heads")

    @T.prim_func
    def main(
        X: T.Tensor((tokens, depth), "float16"),
        W: T.Tensor((depth, heads * dim), "float16"),
        Cos: T.Tensor((tokens, dim // 2), "float32"),
        Sin: T.Tensor((tokens, dim // 2), "float32"),
        Q: T.Tensor((tokens, heads, dim), "float16"),
    ):
        with T.Kernel(T.ceildiv(tokens, rows), heads, threads=threads) as (bx, h):
            x = T.alloc_shared((rows, step), "float16")
            w = T.alloc_shared((step, dim), "float16")
            acc = T.alloc_fragment((rows, dim), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(depth, step), num_stages=num_stages):
                T.copy(X[bx * rows, k * step], x)
                T.copy(W[k * step, h * dim], w)
                T.gemm(x, w, acc, policy=T.GemmWarpPolicy.FullRow)
            for i, d in T.Parallel(rows, dim // 2):
                first = acc[i, d]
                second = acc[i, d + dim // 2]
                # Read here, angles take no registers from the accumulator during the product.
                cos = Cos[bx * rows + i, d]
                sin = Sin[bx * rows + i, d]
                acc[i, d] = first * cos - second * sin
                acc[i, d + dim // 2] = second * cos + first * sin
            T.copy(acc, Q[bx * rows : (bx + 1) * rows, h, :])

    return main


def reference(x, w, cos, sin):
    q = (x.double() @ w.double()).reshape(len(x), -1, 2 * cos.shape[1])
    first, second = q.chunk(2, dim=2)
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
    # A number of heads that the call decides leaves rows of Q at multiples of 16 bytes.
    assert ("tl::tma_store" in kernel.get_kernel_source()) == (arch == "sm_90a")
