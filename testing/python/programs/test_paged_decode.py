"""Decoding with keys in pages (PagedAttention, Kwon et al. 2023): a tile of 64 rows is four pages
of 16, which a table names; queries share the keys of their group (Ainslie et al. 2023)."""

import pytest
import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
DIM, ROWS, BLOCK, PAGE = 64, 64, 64, 16


def paged_decode(add_block, heads, groups):
    batch, pages, most = T.dynamic("batch"), T.dynamic("pages"), T.dynamic("most")
    per_group = heads // groups

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, DIM), "float16"),
        K: T.Tensor((pages, PAGE, groups, DIM), "float16"),
        V: T.Tensor((pages, PAGE, groups, DIM), "float16"),
        Table: T.Tensor((batch, most), "int32"),
        Lengths: T.Tensor((batch,), "int32"),
        Out: T.Tensor((batch, heads, DIM), "float16"),
    ):
        with T.Kernel(groups, batch, threads=128) as (g, b):
            q = T.alloc_shared((ROWS, DIM), "float16")
            k = T.alloc_shared((BLOCK, DIM), "float16")
            v = T.alloc_shared((BLOCK, DIM), "float16")
            scores = T.alloc_fragment((ROWS, BLOCK), "float32")
            weights = T.alloc_fragment((ROWS, BLOCK), "float16")
            out = T.alloc_fragment((ROWS, DIM), "float32")
            top = T.alloc_fragment((ROWS,), "float32")
            total = T.alloc_fragment((ROWS,), "float32")
            length = Lengths[b]
            for i, d in T.Parallel(ROWS, DIM):
                q[i, d] = T.if_then_else(i < per_group, Q[b, g * per_group + i, d], 0)
            T.clear(out)
            T.clear(total)
            T.fill(top, -(2.0**100))
            for t in T.Pipelined(T.ceildiv(length, BLOCK), num_stages=2):
                for n in T.serial(BLOCK // PAGE):
                    page = Table[b, T.min(t * (BLOCK // PAGE) + n, most - 1)]
                    T.copy(K[page, :, g, :], k[n * PAGE : (n + 1) * PAGE, :])
                    T.copy(V[page, :, g, :], v[n * PAGE : (n + 1) * PAGE, :])
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(ROWS, BLOCK):
                    scores[i, j] = T.if_then_else(t * BLOCK + j < length, scores[i, j], -(2.0**100))
                add_block(scores, top, total, out, LOG2_E / DIM**0.5)
                T.copy(scores, weights)
                T.gemm(weights, v, out)
            for i, d in T.Parallel(ROWS, DIM):
                if i < per_group:
                    Out[b, g * per_group + i, d] = out[i, d] / total[i]

    return main


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, add_block, arch):
    heads, groups, batch, pages, most = 6, 2, 2, 14, 7
    kernel = tilelang.compile(
        paged_decode(add_block, heads, groups),
        execution_backend="auto",
        target=f"cuda -arch={arch}",
    )
    q = torch.randn(batch, heads, DIM).half().to(device)
    k, v = (torch.randn(pages, PAGE, groups, DIM).half().to(device) for _ in range(2))
    table = torch.randperm(pages).reshape(batch, most).int().to(device)
    lengths = torch.tensor([7 * PAGE - 3, 5], dtype=torch.int32, device=device)
    out = torch.full_like(q, torch.nan)
    kernel(q, k, v, table, lengths, out)
    for b in range(batch):
        keys, values = (
            x[table[b].long()].reshape(-1, groups, DIM)[: lengths[b]].double() for x in (k, v)
        )
        keys, values = (x.repeat_interleave(heads // groups, dim=1) for x in (keys, values))
        scores = torch.einsum("hd,lhd->hl", q[b].double(), keys) / DIM**0.5
        wanted = torch.einsum("hl,lhd->hd", scores.softmax(-1), values)
        torch.testing.assert_close(out[b].double(), wanted, rtol=4e-3, atol=4e-3)
