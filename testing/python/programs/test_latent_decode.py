"""Decoding with latent attention (DeepSeek-V2, Liu et al. 2024): keys are a latent row beside a
rotated one, values the latent row again. The result is staged in a tile that lies in the bytes of
the operands, since there is no room beside them."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
HEADS, BLOCK, ROTATED = 64, 64, 64


def latent_decode(
    add_block, latent, blocks_of_a_processor=1, heads=HEADS, block=BLOCK, rotated=ROTATED
):
    batch, length = T.dynamic("batch"), T.dynamic("length")
    scale = LOG2_E / (latent + rotated) ** 0.5

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, latent), "float16"),
        QR: T.Tensor((batch, heads, rotated), "float16"),
        KV: T.Tensor((batch, length, latent), "float16"),
        KR: T.Tensor((batch, length, rotated), "float16"),
        Out: T.Tensor((batch, heads, latent), "float16"),
    ):
        with T.Kernel(batch, threads=256) as b:
            T.annotate_min_blocks_per_sm(blocks_of_a_processor)
            q = T.alloc_shared((heads, latent), "float16")
            qr = T.alloc_shared((heads, rotated), "float16")
            kv = T.alloc_shared((block, latent), "float16")
            kr = T.alloc_shared((block, rotated), "float16")
            weights = T.alloc_shared((heads, block), "float16")
            out_shared = T.alloc_shared((heads, latent), "float16")
            scores = T.alloc_fragment((heads, block), "float32")
            out = T.alloc_fragment((heads, latent), "float32")
            top = T.alloc_fragment((heads,), "float32")
            total = T.alloc_fragment((heads,), "float32")
            T.copy(Q[b, :, :], q)
            T.copy(QR[b, :, :], qr)
            T.clear(out)
            T.clear(total)
            T.fill(top, -(2.0**100))
            for t in T.Pipelined(T.ceildiv(length, block), num_stages=2):
                T.copy(KV[b, t * block : (t + 1) * block, :], kv)
                T.copy(KR[b, t * block : (t + 1) * block, :], kr)
                T.gemm(
                    q,
                    kv,
                    scores,
                    transpose_B=True,
                    clear_accum=True,
                    policy=T.GemmWarpPolicy.FullCol,
                )
                T.gemm(qr, kr, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                for i, j in T.Parallel(heads, block):
                    scores[i, j] = T.if_then_else(t * block + j < length, scores[i, j], -(2.0**100))
                add_block(scores, top, total, out, scale)
                T.copy(scores, weights)
                T.gemm(weights, kv, out, policy=T.GemmWarpPolicy.FullCol)
            for i, d in T.Parallel(heads, latent):
                out[i, d] /= total[i]
            T.copy(out, out_shared)
            T.copy(out_shared, Out[b, :, :])

    return main


def reference(q, qr, kv, kr):
    keys, queries = (torch.cat(pair, dim=-1).double() for pair in ((kv, kr), (q, qr)))
    weights = (queries @ keys.transpose(1, 2) / keys.shape[2] ** 0.5).softmax(-1)
    return weights @ kv.double()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, add_block, arch):
    latent, batch, length = 128, 2, 2 * BLOCK + 5
    kernel = tilelang.compile(
        latent_decode(add_block, latent), execution_backend="auto", target=f"cuda -arch={arch}"
    )
    q, qr = (torch.randn(batch, HEADS, n).half().to(device) for n in (latent, ROTATED))
    kv, kr = (torch.randn(batch, length, n).half().to(device) for n in (latent, ROTATED))
    out = torch.full_like(q, torch.nan)
    kernel(q, qr, kv, kr, out)
    torch.testing.assert_close(out.double(), reference(q, qr, kv, kr), rtol=4e-3, atol=4e-3)


def test_the_result_lies_in_the_operands_bytes_of_a_large_program(add_block):
    kernel = tilelang.compile(latent_decode(add_block, 512), target="cuda -arch=sm_90a")
    used = re.search(r"shared memory: (\d+) bytes", kernel.explain())
    # Side by side: 288 KB, more than there is.
    assert int(used.group(1)) <= 227 * 1024
    assert "out_shared is in bytes of" in kernel.explain()
