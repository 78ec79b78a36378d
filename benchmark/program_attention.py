"""The attention programs of testing/python/programs and examples: the sizes that they are timed at,
their references, and what they have to compute and to move."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from common import example
from program_cases import (
    FLOAT,
    HALF,
    Case,
    Program,
    add_block,
    compiled,
    module,
    normal,
    nothing,
)

import tilelang.language as T


def split_decode() -> Program:
    own, heads, groups, splits, dim = module("test_split_decode"), 32, 8, 4, 128

    def case(kernels, device, batch, length):
        decode, combine = kernels
        q = normal(batch, heads, dim, device=device)
        k, v = (normal(batch, length, groups, dim, device=device) for _ in range(2))
        partial = nothing(batch, heads, splits, dim, device=device)
        log_sums = nothing(batch, heads, splits, device=device)
        out = nothing(batch, heads, dim, device=device, dtype=q.dtype)

        def ours():
            decode(q, k, v, partial, log_sums)
            combine(partial, log_sums, out)
            return [out]

        def baseline():
            queries, keys, values = q[:, :, None], k.transpose(1, 2), v.transpose(1, 2)
            found = torch.nn.functional.scaled_dot_product_attention(
                queries, keys, values, enable_gqa=True
            )
            return [found[:, :, 0]]

        return Case(ours, lambda: [own.reference(q, k, v)], baseline)

    def work(batch, length):
        return (
            4.0 * batch * heads * length * dim,
            HALF * 2.0 * batch * dim * (groups * length + heads),
        )

    return Program(
        "split-KV decode and combination",
        [own.split_decode, own.combine, add_block()],
        [
            compiled(
                *(own.split_decode, add_block(), heads, groups, splits, T.dynamic("length")),
                dim=dim,
                rows=16,
                block=64,
            ),
            compiled(own.combine, heads, splits, dim=dim),
        ],
        case,
        {"batch": 2, "length": 197},
        {"batch": 64, "length": 8192},
        work,
    )


def paged_decode() -> Program:
    own, heads, groups, dim, page = module("test_paged_decode"), 32, 8, 128, 16

    def case(kernels, device, batch, length):
        most = -(-length // page)
        q = normal(batch, heads, dim, device=device)
        k, v = (normal(batch * most, page, groups, dim, device=device) for _ in range(2))
        table = torch.randperm(batch * most, device=device).view(batch, most).int()
        lengths = torch.full((batch,), length, dtype=torch.int32, device=device)
        out = torch.empty_like(q)

        def ours():
            kernels[0](q, k, v, table, lengths, out)
            return [out]

        def reference():
            rows = [own.reference(q[b], k, v, table[b], length) for b in range(batch)]
            return [torch.stack(rows)]

        return Case(ours, reference)

    return Program(
        "paged GQA decode",
        [own.paged_decode, add_block()],
        [compiled(own.paged_decode, add_block(), heads, groups, dim=dim, page_rows=page)],
        case,
        {"batch": 2, "length": 109},
        {"batch": 64, "length": 8192},
        lambda batch, length: (
            4.0 * batch * heads * length * dim,
            2.0 * HALF * batch * dim * (groups * length + heads),
        ),
    )


def latent_decode() -> Program:
    own, heads, latent, rotated = module("test_latent_decode"), 64, 512, 64

    def case(kernels, device, batch, length):
        q, qr = (normal(batch, heads, n, device=device) for n in (latent, rotated))
        kv, kr = (normal(batch, length, n, device=device) for n in (latent, rotated))
        out = torch.empty_like(q)

        def ours():
            kernels[0](q, qr, kv, kr, out)
            return [out]

        return Case(ours, lambda: [own.reference(q, qr, kv, kr)])

    return Program(
        "MLA decode",
        [own.latent_decode, add_block()],
        [compiled(own.latent_decode, add_block(), latent)],
        case,
        {"batch": 2, "length": 133},
        {"batch": 132, "length": 8192},
        functools.partial(of_latent_decode, heads),
    )


def of_latent_decode(heads: int, batch: int, length: int) -> tuple[float, float]:
    """FLOP and bytes, the queries' and results' bytes among them."""
    products = 2.0 * batch * heads * length * (2 * 512 + 64)
    return products, HALF * 1.0 * batch * (length * (512 + 64) + heads * (2 * 512 + 64))


def latent_decode_by_schedule() -> Program:
    mla, pingpong, heads = example("mla_decode"), example("mla_decode_pingpong"), 128
    macros = [pingpong.rescaled, pingpong.topmost, pingpong.weighed, pingpong.followed]

    def case(kernels, device, batch, length):
        tensors = mla.inputs(batch, heads, length, device=device)
        return Case(lambda: [kernels[0](*tensors)], lambda: [mla.reference(*tensors)])

    return Program(
        "MLA decode, roles by a schedule",
        [pingpong.schedule, *macros, pingpong.added, pingpong.attend, pingpong.mla_decode],
        [
            lambda **_: pingpong.mla_decode(
                T.dynamic("batch"), heads, T.dynamic("length"), cluster=2
            ),
        ],
        case,
        {"batch": 2, "length": 200},
        {"batch": 132, "length": 8192},
        functools.partial(of_latent_decode, heads),
    )


def masked_attention() -> Program:
    own, heads, dim, rows, block = module("test_masked_attention"), 32, 128, 128, 128

    def case(kernels, device, length, blocks):
        q, k, v = (normal(heads, length, dim, device=device) for _ in range(3))
        mask = torch.zeros(heads, -(-length // rows), blocks, dtype=torch.int32, device=device)
        # Every other block: the same work for all.
        mask[:, ::2, ::2] = 1
        mask[:, 1::2, 1::2] = 1
        out = torch.empty_like(q)

        def ours():
            kernels[0](q, k, v, mask, out)
            return [out]

        return Case(ours, lambda: [own.reference(q, k, v, mask, rows, block)])

    return Program(
        "block-sparse attention, half of the blocks",
        [own.masked_attention, add_block()],
        [
            compiled(
                *(own.masked_attention, add_block(), heads, 64),
                dim=dim,
                rows=rows,
                block=block,
                threads=256,
                # Weights under 2^-126 count for nothing.
                fast_math=True,
            )
        ],
        case,
        {"length": 297, "blocks": 64},
        {"length": 8192, "blocks": 64},
        lambda length, blocks: (
            4.0 * heads * length**2 * dim / 2,
            4.0 * HALF * heads * length * dim,
        ),
    )


def attention_backward() -> Program:
    own, dim, rows, keys = module("test_attention_backward"), 128, 64, 128

    def case(kernels, device, heads, length):
        gradients, cast = kernels
        q, k, v, do = (normal(heads, length, dim, device=device) for _ in range(4))
        log_sum, delta = (torch.empty(heads, length, device=device) for _ in range(2))
        dq = nothing(heads, -(-length // rows) * rows, dim, device=device)
        found = [torch.empty_like(q) for _ in range(3)]
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        out = torch.nn.functional.scaled_dot_product_attention(*(t[None] for t in leaves))[0]
        # What the forward pass leaves, a head after the other: its scores need a lot of room.
        for h in range(heads):
            scores = q[h].float() @ k[h].float().T / dim**0.5
            log_sum[h] = scores.logsumexp(-1) * own.LOG2_E
            delta[h] = (out[h].detach().float() * do[h].float()).sum(-1)

        def ours():
            dq.zero_()
            gradients(q, k, v, do, log_sum, delta, dq, *found[1:])
            cast(dq, found[0])
            return found

        return Case(
            ours,
            lambda: own.reference(q, k, v, do)[0],
            lambda: torch.autograd.grad(out, leaves, do, retain_graph=True),
        )

    return Program(
        "attention backward, dQ permuted",
        [own.by_lanes, own.backward, own.read_back],
        [
            compiled(own.backward, 128, dim=dim, rows=rows, keys=keys, threads=256),
            compiled(own.read_back, 128, dim=dim, rows=rows),
        ],
        case,
        {"heads": 128, "length": 136},
        {"heads": 128, "length": 4096},
        lambda heads, length: (
            10.0 * heads * length**2 * dim,
            8.0 * HALF * heads * length * dim,
        ),
    )


def gradients_of_sparse_latent(
    name: str, kernels: Sequence[Callable[..., Any]], macros: Sequence[Any]
) -> Program:
    own, heads, latent, rotated = example("sparse_mla_backward"), 64, 512, 64
    width = latent + rotated

    def case(kernels, device, queries, length, chosen):
        q, do = (normal(queries, heads, n, device=device) for n in (width, latent))
        kv = normal(length, width, device=device)
        lists = torch.rand(queries, length, device=device).argsort(dim=1)[:, :chosen].int()
        lists[1, 5:60:7] = -1
        lists = lists.contiguous()
        dq, dkv = torch.empty_like(q), nothing(length, width, device=device)
        log_sum, delta = (torch.empty(queries, heads, device=device) for _ in range(2))

        def wanted():
            out, sums = own.reference(q.double(), kv.double(), lists, latent)
            log_sum.copy_(sums)
            delta.copy_((out * do.double()).sum(-1))
            return own.gradients(q, kv, lists, do)

        if queries > 100:
            # Any numbers take as long.
            log_sum.fill_(10)
            delta.zero_()

        def ours():
            dkv.zero_()
            kernels[0](q, kv, do, lists, log_sum, delta, dq, dkv)
            return [dq, dkv]

        return Case(ours, wanted)

    def work(queries, length, chosen):
        pairs = 2.0 * queries * chosen * heads * (3 * width + 2 * latent)
        tensors = queries * heads * (2 * width + latent) + length * width
        return pairs, HALF * tensors + FLOAT * (queries * chosen + length * width)

    return Program(
        name,
        [
            *(own.weights, own.slopes, own.rows_of, own.lines, own.add_rows, own.row_products),
            *macros,
        ],
        kernels,
        case,
        {"queries": 3, "length": 90, "chosen": 77},
        {"queries": 4096, "length": 8192, "chosen": 2048},
        work,
        bound=1e-2,
    )


def sparse_latent_backward() -> Program:
    own = example("sparse_mla_backward").sparse_mla_backward
    kernel = compiled(own, 64, 512, 64, T.float16)
    return gradients_of_sparse_latent("sparse MLA backward", [kernel], [own])


def sparse_latent_backward_by_schedule() -> Program:
    own = example("sparse_mla_backward_roles")
    return gradients_of_sparse_latent(
        "sparse MLA backward, roles by a schedule",
        [compiled(own.sparse_mla_backward, 64, 512, 64, T.float16)],
        [
            *(own.schedule, own.load_rows, own.score_slopes, own.heads_gradients),
            *(own.add_columns, own.rows_gradients, own.sparse_mla_backward),
        ],
    )


PROGRAMS = {
    "split_decode": split_decode,
    "paged_decode": paged_decode,
    "latent_decode": latent_decode,
    "latent_decode_by_schedule": latent_decode_by_schedule,
    "masked_attention": masked_attention,
    "attention_backward": attention_backward,
    "sparse_latent_backward": sparse_latent_backward,
    "sparse_latent_backward_by_schedule": sparse_latent_backward_by_schedule,
}
