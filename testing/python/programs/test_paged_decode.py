"""Decoding with keys in pages (PagedAttention, Kwon et al. 2023): a tile of 64 rows is four pages
of 16, which a table names; queries share the keys of their group (Ainslie et al. 2023)."""

import pytest
import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
DIM, ROWS, BLOCK, PAGE = 64, 64, 64, 16


def paged_decode(
    add_block, heads, groups, dim=DIM, rows=ROWS, block=BLOCK, page_rows=PAGE, threads=128
):
    batch, pages, most = T.dynamic("batch"), T.dynamic("pages"), T.dynamic("most")
    per_group = heads // groups

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), "float16"),
        K: T.Tensor((pages, page_rows, groups, dim), "float16"),
        V: T.Tensor((pages, page_rows, groups, dim), "float16"),
        Table: T.Tensor((batch, most), "int32"),
        Lengths: T.Tensor((batch,), "int32"),
        Out: T.Tensor((batch, heads, dim), "float16"),
    ):
        with T.Kernel(groups, batch, threads=threads) as (g, b):
            q = T.alloc_shared((rows, dim), "float16")
            k = T.alloc_shared((block, dim), "float16")
            v = T.alloc_shared((block, dim), "float16")
            scores = T.alloc_fragment((rows, block), "float32")
            weights = T.alloc_fragment((rows, block), "float16")
            out = T.alloc_fragment((rows, dim), "float32")
            top = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            length = Lengths[b]
            for i, d in T.Parallel(rows, dim):
                q[i, d] = T.if_then_else(i < per_group, Q[b, g * per_group + i, d], 0)
            T.clear(out)
            T.clear(total)
            T.fill(top, -(2.0**100))
            for t in T.Pipelined(T.ceildiv(length, block), num_stages=2):
                for n in T.serial(block // page_rows):
                    page = Table[b, T.min(t * (block // page_rows) + n, most - 1)]
                    T.copy(K[page, :, g, :], k[n * page_rows : (n + 1) * page_rows, :])
                    T.copy(V[page, :, g, :], v[n * page_rows : (n + 1) * page_rows, :])
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(rows, block):
                    scores[i, j] = T.if_then_else(t * block + j < length, scores[i, j], -(2.0**100))
                add_block(scores, top, total, out, LOG2_E / dim**0.5)
                T.copy(scores, weights)
                T.gemm(weights, v, out)
            for i, d in T.Parallel(rows, dim):
                if i < per_group:
                    Out[b, g * per_group + i, d] = out[i, d] / total[i]

    return main


def reference(q, k, v, table, length):
    """The result of one query, whose pages are `table`."""
    keys, values = (
        x[table.long()].flatten(0, 1)[:length].double().repeat_interleave(len(q) // x.shape[2], 1)
        for x in (k, v)
    )
    scores = torch.einsum("hd,lhd->hl", q.double(), keys) / q.shape[1] ** 0.5
    return torch.einsum("hl,lhd->hd", scores.softmax(-1), values)


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
        wanted = reference(q[b], k, v, table[b], lengths[b])
        torch.testing.assert_close(out[b].double(), wanted, rtol=4e-3, atol=4e-3)
