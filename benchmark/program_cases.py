"""The programs of the published families, from testing/python/programs and examples, with the sizes
that they are timed at, their references and what they have to compute and to move."""

import functools
import importlib.util
import inspect
import pathlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from common import example

import tilelang
import tilelang.language as T

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "testing" / "python" / "programs"
TARGET = "cuda -arch=sm_90a"
HALF, FLOAT = 2, 4


@dataclass
class Case:
    """A call of a program's kernels on inputs of a size.

    `ours` makes the results, `reference` makes the same in float64, and `baseline` those of torch's
    functions, where torch has them: as many of the results as it makes, in the same order.
    """

    ours: Callable[[], Sequence[torch.Tensor]]
    reference: Callable[[], Sequence[torch.Tensor]]
    baseline: Callable[[], Sequence[torch.Tensor]] | None = None


@dataclass
class Program:
    """A line of the table.

    `parts` are functions that compile a kernel for sizes, which most leave to the call, and
    `sources` what its author wrote. `case` takes the kernels, a device and sizes: those of `small`
    are checked against the reference, and those of `full` are timed. `work` gives FLOP and bytes of
    the full sizes, each byte of a tensor in global memory counted once. `bound` is the largest
    relative error of a result.
    """

    name: str
    sources: Sequence[Callable[..., Any]]
    parts: Sequence[Callable[..., Any]]
    case: Callable[..., Case]
    small: dict[str, int]
    full: dict[str, int]
    work: Callable[..., tuple[float, float]]
    bound: float = 5e-3

    @property
    def lines(self) -> int:
        """Lines that are not blank."""
        texts = "\n".join(inspect.getsource(getattr(s, "func", s)) for s in self.sources)
        return sum(bool(line.strip()) for line in texts.splitlines())

    @property
    def size(self) -> str:
        """The sizes that are timed, as text."""
        return " ".join(f"{name}={value}" for name, value in self.full.items())

    def kernels(self, sizes: dict[str, int]) -> list[Any]:
        """The kernels, compiled for sizes."""
        return [part(**sizes) for part in self.parts]


@functools.cache
def module(name: str) -> Any:
    """A module of testing/python/programs."""
    spec = importlib.util.spec_from_file_location(f"program_{name}", PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    # What inspect asks for the source of a macro.
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def compiled(program: Callable[..., Any], *args: Any, **options: Any) -> Callable[..., Any]:
    """What compiles a PrimFunc that `program` makes for all sizes."""
    return lambda **_: tilelang.compile(
        program(*args, **options), execution_backend="auto", target=TARGET
    )


def add_block() -> Any:
    """The macro that the attention programs share."""
    return module("conftest").add_block


def normal(*shape: int, device: str, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Normally distributed numbers."""
    return torch.randn(shape, device=device).to(dtype)


def nothing(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A result that is not there yet."""
    return torch.full(shape, torch.nan, device=device, dtype=dtype)


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


def attention_backward() -> Program:
    own, dim, keys = module("test_attention_backward"), 128, 128

    def case(kernels, device, heads, length):
        gradients, cast = kernels
        q, k, v, do = (normal(heads, length, dim, device=device) for _ in range(4))
        log_sum, delta = (torch.empty(heads, length, device=device) for _ in range(2))
        dq = nothing(heads, length, dim, device=device)
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
            compiled(own.backward, 128, dim=dim, rows=64, keys=keys, threads=256),
            compiled(own.read_back, 128, dim=dim),
        ],
        case,
        {"heads": 128, "length": 136},
        {"heads": 128, "length": 4096},
        lambda heads, length: (
            10.0 * heads * length**2 * dim,
            8.0 * HALF * heads * length * dim,
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
        [pingpong.schedule, *macros, pingpong.added, pingpong.mla_decode],
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


def streams(length, hidden, device):
    """The state of streams, weights and biases of hyper-connections, and their results."""
    own = module("test_hyper_connections")
    count = own.STREAMS
    x = normal(length, count, hidden, device=device, dtype=torch.bfloat16)
    w = normal(32, count * hidden, device=device, dtype=torch.float32) / 16
    layer = nothing(length, hidden, device=device, dtype=x.dtype)
    gate, mix = (nothing(length, *s, device=device) for s in ((count,), (count, count)))
    return x, w, torch.randn(32, device=device), layer, gate, mix


def connections_before() -> Program:
    own, hidden = module("test_hyper_connections"), 4096

    def case(kernels, device, length):
        x, w, bias, layer, gate, mix = streams(length, hidden, device)

        def ours():
            kernels[0](x, w, bias, layer, gate, mix)
            return [layer, gate, mix]

        return Case(ours, lambda: own.reference(x, w, bias))

    return Program(
        "mHC pre",
        [own.pre],
        [compiled(own.pre, hidden, tokens=32, step=64, threads=128)],
        case,
        {"length": 37},
        {"length": 16384},
        # The product is one of float32, which is eight times as slow as float16 on tensor cores.
        lambda length: (0.0, (own.STREAMS + 1.0) * HALF * length * hidden),
        bound=1e-2,
    )


def connections_behind() -> Program:
    own, hidden = module("test_hyper_connections"), 4096

    def case(kernels, device, length):
        x, _, _, layer, gate, mix = streams(length, hidden, device)
        for t in (layer, gate, mix):
            t.normal_()
        out = torch.empty_like(x)

        def ours():
            kernels[0](x, layer, gate, mix, out)
            return [out]

        return Case(ours, lambda: [own.reference_post(x, layer, gate, mix)])

    return Program(
        "mHC post",
        [own.post],
        [compiled(own.post, hidden, step=1024, threads=128)],
        case,
        {"length": 37},
        {"length": 16384},
        lambda length: (0.0, (2 * own.STREAMS + 1.0) * HALF * length * hidden),
    )


def chunk_scan() -> Program:
    own, heads, d_state, width = module("test_chunk_scan"), 640, 128, 64

    def case(kernels, device, length):
        x = normal(length, heads, width, device=device)
        b, c = ((torch.randn(length, d_state, device=device) / 8).half() for _ in range(2))
        dt, a = torch.rand(length, heads, device=device), -torch.rand(heads, device=device) / 4
        y, last = torch.empty_like(x), nothing(heads, d_state, width, device=device)

        def ours():
            kernels[0](x, dt, a, b, c, y, last)
            return [y, last]

        return Case(ours, lambda: own.reference(x, dt, a, b, c))

    def work(length):
        # A row of a chunk by a chunk's columns, twice; by a state and into one.
        per_row = 2.0 * (64 * d_state + 64 * width + 2 * d_state * width)
        return heads * length * per_row, 2.0 * HALF * length * heads * width

    return Program(
        "Mamba-2 chunk scan",
        [own.chunk_scan],
        [compiled(own.chunk_scan, heads, d_state=d_state, width=width)],
        case,
        {"length": 139},
        {"length": 4096},
        work,
    )


def delta_rule(where: str, channels: bool = False) -> Program:
    own, heads, size = module("test_delta_rule"), 256, 128
    # Decayed keys take the shared memory of a chunk of 64.
    chunk = 32 if channels else 64

    def case(kernels, device, length):
        q, k, v, beta = own.inputs(heads, length, size, size, device)
        gates = (length, heads, size) if channels else (length, heads)
        gate = -torch.rand(gates, device=device) / 8
        out = nothing(length, heads, size, device=device)

        def ours():
            kernels[0](q, k, v, gate, beta, out)
            return [out]

        return Case(ours, lambda: [own.reference(q, k, v, gate, beta)])

    def work(length):
        # Three products with the state, two of rows of the chunk, one of them by the updates, and
        # the triangular system.
        per_row = 2.0 * (3 * size * size + 3 * chunk * size + chunk * size / 2)
        moved = 3.0 * HALF + FLOAT * (1 + channels)
        return heads * length * per_row, moved * length * heads * size

    sizes = {"chunk": chunk, "d_key": size, "d_value": size, "threads": 256}
    if channels:
        sources = [own.channel_delta_rule, own.solve_in_shared]
        kernel = compiled(own.channel_delta_rule, heads, **sizes)
    else:
        fragment = where == "registers"
        sources = [own.delta_rule, own.solve_in_fragment if fragment else own.solve_in_shared]
        kernel = compiled(own.delta_rule, heads, fragment, **sizes)
    name = "KDA" if channels else "gated delta rule"
    return Program(
        f"{name}, solved in {where}",
        sources,
        [kernel],
        case,
        {"length": 135},
        {"length": 4096},
        work,
        bound=2e-2,
    )


def sparse_latent_backward() -> Program:
    own, heads, latent, rotated = module("test_sparse_latent_backward"), 64, 512, 64
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
            *gradients, sums, deltas = own.reference(q, kv, do, lists)
            log_sum.copy_(sums)
            delta.copy_(deltas)
            return gradients

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
        "sparse MLA backward",
        [own.sparse_latent_backward],
        [
            compiled(
                *(own.sparse_latent_backward, 2),
                latent=latent,
                rotated=rotated,
                block=32,
                threads=256,
            )
        ],
        case,
        {"queries": 3, "length": 90, "chosen": 77},
        {"queries": 4096, "length": 8192, "chosen": 2048},
        work,
        bound=1e-2,
    )


def normalise() -> Program:
    own, width = module("test_normalise"), 4096

    def case(kernels, device, length):
        bf16 = torch.bfloat16
        x, residual = (normal(length, width, device=device, dtype=bf16) for _ in range(2))
        weight, bias = torch.randn(2, width, device=device)
        h, y = torch.empty_like(x), torch.empty_like(x)
        mean, scale = torch.empty(2, length, device=device)

        def ours():
            kernels[0](x, residual, weight, bias, h, y, mean, scale)
            return [y, h]

        def layer_norm(total, *more):
            return torch.nn.functional.layer_norm(total, (width,), *more, eps=own.EPS)

        def baseline():
            total = x + residual
            return [layer_norm(total, weight.to(bf16), bias.to(bf16)), total]

        def reference():
            total = x.double() + residual.double()
            return [layer_norm(total, weight.double(), bias.double()), total]

        return Case(ours, reference, baseline)

    return Program(
        "layer norm with a residual",
        [own.forward],
        [compiled(own.forward, width, rows=2, threads=256)],
        case,
        {"length": 11},
        {"length": 16384},
        lambda length: (0.0, 4.0 * HALF * length * width),
        bound=1e-2,
    )


def normalise_backward() -> Program:
    own, width = module("test_normalise"), 4096

    def case(kernels, device, length):
        h, dy = (normal(length, width, device=device, dtype=torch.bfloat16) for _ in range(2))
        weight, bias = torch.randn(2, width, device=device)
        variance, mean = torch.var_mean(h.float(), dim=1, correction=0)
        mean, scale = mean.contiguous(), (variance + own.EPS).rsqrt()
        dh = nothing(length, width, device=device)
        sums = torch.empty(2, width, device=device)

        def ours():
            sums.zero_()
            kernels[0](h, weight, mean, scale, dy, dh, *sums)
            return [dh, *sums]

        def reference():
            leaves = [t.double().requires_grad_() for t in (h, weight, bias)]
            y = torch.nn.functional.layer_norm(leaves[0], (width,), *leaves[1:], eps=own.EPS)
            return torch.autograd.grad(y, leaves, dy.double())

        def baseline():
            weights = [t.to(h.dtype) for t in (weight, bias)]
            given = (dy, h, [width], mean[:, None], scale[:, None], *weights, [True] * 3)
            return torch.ops.aten.native_layer_norm_backward(*given)

        return Case(ours, reference, baseline)

    return Program(
        "layer norm's gradients",
        [own.backward],
        [compiled(own.backward, width, rows=4, threads=512)],
        case,
        {"length": 11},
        {"length": 16384},
        lambda length: (0.0, (2.0 * HALF + FLOAT) * length * width),
        bound=1e-2,
    )


def rotary() -> Program:
    own, depth, dim = module("test_rotary"), 4096, 128

    def case(kernels, device, tokens, heads):
        x = normal(tokens, depth, device=device)
        w = normal(depth, heads * dim, device=device) / depth**0.5
        angles = torch.randn(tokens, dim // 2, device=device)
        cos, sin = angles.cos(), angles.sin()
        q = nothing(tokens, heads, dim, device=device, dtype=x.dtype)

        def ours():
            kernels[0](x, w, cos, sin, q)
            return [q]

        def baseline():
            first, second = (x @ w).view(tokens, heads, dim).chunk(2, dim=2)
            c, s = cos[:, None], sin[:, None]
            halves = (first * c - second * s, second * c + first * s)
            return [torch.cat(halves, dim=-1).half()]

        return Case(ours, lambda: [own.reference(x, w, cos, sin)], baseline)

    return Program(
        "projection with RoPE",
        [own.project_and_rotate],
        [
            compiled(
                *(own.project_and_rotate, depth),
                rows=128,
                dim=dim,
                step=64,
                threads=256,
                num_stages=3,
            )
        ],
        case,
        {"tokens": 77, "heads": 3},
        {"tokens": 8192, "heads": 32},
        lambda tokens, heads: (
            2.0 * tokens * depth * heads * dim,
            HALF * 1.0 * (tokens * depth + (tokens + depth) * heads * dim),
        ),
    )


def grouped_top_k() -> Program:
    own, groups, per_group, best, k = module("test_grouped_top_k"), 8, 32, 4, 8

    def case(kernels, device, length):
        logits = torch.randn(length, groups * per_group, device=device)
        bias = torch.randn(groups * per_group, device=device) / 4
        weights = nothing(length, k, device=device)
        experts = torch.full((length, k), -1, dtype=torch.int32, device=device)

        def ours():
            kernels[0](logits, bias, weights, experts)
            return [weights, experts]

        def torch_route(logits, bias):
            scores = logits.sigmoid()
            choice = (scores + bias).view(len(logits), groups, per_group)
            worth = choice.topk(2, dim=2).values.sum(2)
            seen = torch.zeros_like(worth, dtype=torch.bool)
            seen.scatter_(1, worth.topk(best, dim=1).indices, True)
            choice = choice.masked_fill(~seen[:, :, None], -torch.inf).flatten(1)
            chosen = choice.topk(k, dim=1).indices
            found = scores.gather(1, chosen)
            return [found / found.sum(1, keepdim=True), chosen]

        return Case(
            ours,
            lambda: own.reference(logits, bias, groups, best, k),
            lambda: torch_route(logits, bias),
        )

    return Program(
        "routing by grouped top-k",
        [own.route],
        [compiled(own.route, groups, per_group, best, k, tokens=8, threads=128)],
        case,
        {"length": 21},
        {"length": 32768},
        lambda length: (0.0, FLOAT * 1.0 * length * (groups * per_group + 2 * k)),
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


def dequantised_gemm(rows: int, m: int) -> Program:
    own, group, width = module("test_dequantised_gemm"), 128, 8192
    tile = {
        "rows": rows,
        "columns": 64 if rows < 128 else 128,
        "threads": 2 * rows,
        "num_stages": 3,
    }

    def case(kernels, device, m, n, k):
        a = normal(m, k, device=device)
        packed, scales, weights = own.quantised(n, k, group, device)
        c = nothing(m, n, device=device)

        def ours():
            kernels[0](a, packed, scales, c)
            return [c]

        return Case(ours, lambda: [a.double() @ weights.double().T], lambda: [a @ weights.T])

    return Program(
        f"GEMM with weights of 4 bits, {m} rows",
        [own.low_bits, own.scaled, own.dequantised_gemm],
        [lambda m, n, k: compiled(own.dequantised_gemm, group, n, k, **tile)()],
        case,
        {"m": 67, "n": 45, "k": 256},
        {"m": m, "n": width, "k": width},
        lambda m, n, k: (
            2.0 * m * n * k,
            HALF * 1.0 * m * k + n * k / 2 + HALF * n * k / group + FLOAT * m * n,
        ),
    )


def roles_gemm(by_schedule: bool) -> Program:
    schedule, own = example("ws_schedule").matmul, module("test_roles").roles_gemm

    def kernel(M, N, K):
        if by_schedule:
            return schedule(M, N, K, 132)
        return tilelang.compile(own(M, N, K), -1, execution_backend="auto", target=TARGET)

    def case(kernels, device, M, N, K):
        a, b = normal(M, K, device=device), normal(K, N, device=device)
        return Case(lambda: [kernels[0](a, b)], lambda: [a.double() @ b.double()], lambda: [a @ b])

    return Program(
        "GEMM, roles by a schedule" if by_schedule else "GEMM, roles by hand",
        [schedule if by_schedule else own],
        [kernel],
        case,
        {"M": 256, "N": 256, "K": 256},
        {"M": 8192, "N": 8192, "K": 8192},
        lambda M, N, K: (2.0 * M * N * K, HALF * 1.0 * (M * K + K * N + M * N)),
    )


PROGRAMS_BY_NAME: dict[str, Callable[[], Program]] = {
    "split_decode": split_decode,
    "paged_decode": paged_decode,
    "latent_decode": latent_decode,
    "latent_decode_by_schedule": latent_decode_by_schedule,
    "masked_attention": masked_attention,
    "attention_backward": attention_backward,
    "sparse_latent_backward": sparse_latent_backward,
    "chunk_scan": chunk_scan,
    "delta_rule_in_registers": functools.partial(delta_rule, "registers"),
    "delta_rule_in_shared": functools.partial(delta_rule, "shared memory"),
    "delta_rule_of_channels": functools.partial(delta_rule, "shared memory", channels=True),
    "connections_before": connections_before,
    "connections_behind": connections_behind,
    "normalise": normalise,
    "normalise_backward": normalise_backward,
    "rotary": rotary,
    "grouped_top_k": grouped_top_k,
    "dequantised_gemv": functools.partial(dequantised_gemm, 64, 64),
    "dequantised_gemm": functools.partial(dequantised_gemm, 128, 4096),
    "roles_by_schedule": functools.partial(roles_gemm, True),
    "roles_by_hand": functools.partial(roles_gemm, False),
}
