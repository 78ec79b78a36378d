"""Attention over the blocks of keys that a mask names, whose row lies in a fragment (block-sparse
attention: Child et al. 2019; by blocks: Guo et al. 2024, Block Sparse Attention)."""

import pytest
import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
DIM, ROWS, BLOCK = 64, 64, 32


def masked_attention(
    add_block, heads, blocks, dim=DIM, rows=ROWS, block=BLOCK, threads=128, num_stages=2
):
    """A row of the mask says for each block of keys whether a block of queries sees it."""
    queries, keys = T.dynamic("queries"), T.dynamic("keys")

    @T.prim_func
    def main(
        Q: T.Tensor((heads, queries, dim), "float16"),
        K: T.Tensor((heads, keys, dim), "float16"),
        V: T.Tensor((heads, keys, dim), "float16"),
        Mask: T.Tensor((heads, T.ceildiv(queries, rows), blocks), "int32"),
        Out: T.Tensor((heads, queries, dim), "float16"),
    ):
        with T.Kernel(T.ceildiv(queries, rows), heads, threads=threads) as (bx, h):
            q = T.alloc_shared((rows, dim), "float16")
            k = T.alloc_shared((block, dim), "float16")
            v = T.alloc_shared((block, dim), "float16")
            mask = T.alloc_fragment((blocks,), "int32")
            scores = T.alloc_fragment((rows, block), "float32")
            weights = T.alloc_fragment((rows, block), "float16")
            out = T.alloc_fragment((rows, dim), "float32")
            top = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(Q[h, bx * rows : (bx + 1) * rows, :], q)
            T.copy(Mask[h, bx, :], mask)
            T.clear(out)
            T.clear(total)
            T.fill(top, -(2.0**100))
            for b in T.Pipelined(T.ceildiv(keys, block), num_stages=num_stages):
                if mask[b] != 0:
                    T.copy(K[h, b * block : (b + 1) * block, :], k)
                    for i, j in T.Parallel(rows, block):
                        scores[i, j] = T.if_then_else(b * block + j < keys, 0, -(2.0**100))
                    T.gemm(q, k, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    add_block(scores, top, total, out, LOG2_E / dim**0.5)
                    T.copy(scores, weights)
                    T.copy(V[h, b * block : (b + 1) * block, :], v)
                    T.gemm(weights, v, out, policy=T.GemmWarpPolicy.FullRow)
            for i, d in T.Parallel(rows, dim):
                out[i, d] = T.if_then_else(total[i] > 0, out[i, d] / total[i], 0)
            T.copy(out, Out[h, bx * rows : (bx + 1) * rows, :])

    return main


def reference(q, k, v, mask, rows=ROWS, block=BLOCK):
    scores = q.double() @ k.double().transpose(1, 2) / q.shape[2] ** 0.5
    seen = mask.bool().repeat_interleave(rows, 1)[:, : q.shape[1]]
    seen = seen.repeat_interleave(block, 2)[:, :, : k.shape[1]]
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0)
    return weights @ v.double()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, add_block, arch):
    heads, blocks, queries, keys = 2, 5, 71, 4 * BLOCK + 9
    kernel = tilelang.compile(
        masked_attention(add_block, heads, blocks),
        execution_backend="auto",
        target=f"cuda -arch={arch}",
    )
    q, k, v = (torch.randn(heads, n, DIM).half().to(device) for n in (queries, keys, keys))
    mask = torch.tensor(
        [[[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]], [[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]],
        dtype=torch.int32,
        device=device,
    )
    out = torch.full((heads, queries, DIM), torch.nan, dtype=torch.float16, device=device)
    kernel(q, k, v, mask, out)
    torch.testing.assert_close(out.double(), reference(q, k, v, mask), rtol=4e-3, atol=4e-3)
    how = {"sm_80": "1 step ahead", "sm_90a": "products of two iterations at a time"}
    assert how[arch] in kernel.explain()
