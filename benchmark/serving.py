"""What servers and trainers run, but for plain products and attention: kernels of examples/ with
the sizes of current models, beside what the chip allows and beside torch.

The bound is the longer of the kernels' FLOP at the speed of a bfloat16 product by torch and of
their bytes, each of a tensor in global memory counted once, at the speed of a large copy. Each is
checked at a small size against float64 before it is timed.

`--compile-only` and `--emulate` need no GPU.
"""

import functools
import itertools

import torch
from common import example
from program_cases import FLOAT, HALF, Case, Program
from programs import main

import tilelang.language as T


def spread(total: int, parts: int) -> list[int]:
    """Counts whose sum is `total`, between none and several times the mean."""
    shares = [(7 * n + 3) % 11 for n in range(parts)]
    ends = [total * s // sum(shares) for s in itertools.accumulate(shares)]
    return [end - begin for begin, end in itertools.pairwise([0, *ends])]


def decoding(own) -> list:
    """What kernels of decoding are made of."""
    ends = [own.begin_softmax, own.end_softmax, own.leave_result, own.leave_share]
    steps = [own.online_softmax, own.step, own.attend, own.load_queries]
    return [own.state_of, own.share_of, own.tiles_of, *steps, *ends]


def gqa_decode(pages: bool = False, window: int | None = None) -> Program:
    own, heads, key_heads, dim = example("gqa_decode"), 32, 8, 128
    page = 64 if pages else None

    def part(batch, length):
        splits = own.splits_for(batch, key_heads, length)
        sees = None if window is None else min(window, length // 2)
        return own.gqa_decode(
            heads, key_heads, dim, splits, page, sees, window is not None, T.bfloat16
        )

    def case(kernels, device, batch, length):
        lengths = [length, *[length] * (batch - 1)]
        tensors = own.inputs(lengths, heads, key_heads, dim, page, T.bfloat16, device)
        sees = None if window is None else min(window, length // 2)
        sinks = None if window is None else tensors[5]

        def torch_decode():
            q, k, v = tensors[0][:, :, None], tensors[1].transpose(1, 2), tensors[2].transpose(1, 2)
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            return [out[:, :, 0]]

        return Case(
            lambda: [kernels[0](*tensors)],
            lambda: [own.reference(*tensors[:5], sinks, page, sees)],
            None if pages or window else torch_decode,
        )

    def work(batch, length):
        keys = batch * min(length, window or length)
        moved = HALF * (2.0 * keys * key_heads * dim + 2 * batch * heads * dim)
        return 4.0 * keys * heads * dim, moved

    name = "GQA decode, pages of 64" if pages else "GQA decode"
    return Program(
        name if window is None else f"{name}, window {window}, sinks",
        [own.combine, own.load, *decoding(own), own.gqa_decode],
        [part],
        case,
        {"batch": 2, "length": 200},
        {"batch": 32, "length": 8192 if window is None else 131072},
        work,
        bound=8e-3,
    )


def gqa_decode_long() -> Program:
    program = gqa_decode()
    program.name += ", few sequences"
    program.small, program.full = {"batch": 1, "length": 700}, {"batch": 1, "length": 131072}
    return program


def gqa_decode_fp8() -> Program:
    own, heads, key_heads, dim = example("gqa_decode_fp8"), 32, 8, 128

    def part(batch, length):
        splits = own.splits_for(batch, key_heads, length)
        return own.gqa_decode_fp8(heads, key_heads, dim, splits)

    def case(kernels, device, batch, length):
        tensors = own.inputs([length] * batch, heads, key_heads, dim, device)
        return Case(lambda: [kernels[0](*tensors)], lambda: [own.reference_fp8(*tensors)])

    def work(batch, length):
        keys = batch * length
        return 4.0 * keys * heads * dim, 2.0 * keys * key_heads * dim

    return Program(
        "GQA decode, 8-bit cache",
        [*decoding(own), own.gqa_decode_fp8],
        [part],
        case,
        {"batch": 2, "length": 200},
        {"batch": 32, "length": 16384},
        work,
    )


def mla_decode_paged(by_schedule: bool = False) -> Program:
    own, heads = example("mla_decode_paged"), 128
    name, sources = "MLA decode, pages of 64", [own.combine, own.mla_decode_paged]
    program = functools.partial(own.mla_decode_paged, heads, block_N=128)
    if by_schedule:
        name, theirs = f"{name}, by a schedule", example("mla_decode_paged_pingpong")
        sources = [theirs.mla_decode_paged]
        program = functools.partial(theirs.mla_decode_paged, heads)

    def case(kernels, device, batch, length):
        tensors = own.inputs([length, *[length - 1] * (batch - 1)], heads, device=device)
        return Case(lambda: [kernels[0](*tensors)], lambda: [own.reference(*tensors)])

    def work(batch, length):
        rows = batch * (1.0 * length * 576 + heads * (576 + 512))
        return 2.0 * batch * heads * length * (2 * 512 + 64), HALF * rows

    return Program(
        name,
        sources,
        [lambda **_: program()],
        case,
        {"batch": 1, "length": 100},
        {"batch": 132, "length": 8192},
        work,
        bound=8e-3,
    )


def grouped_gemm(fp8: bool) -> Program:
    own = example("grouped_gemm_experts")
    program = own.grouped_matmul_fp8 if fp8 else own.grouped_matmul
    parts = [own.add_scaled_products, own.store_rows] if fp8 else [own.store_tile]
    tile = {} if fp8 else {"block_N": 256, "num_stages": 3}

    def case(kernels, device, rows, groups, N, K):
        tensors = own.inputs(spread(rows, groups), N, K, fp8, device)

        def torch_grouped():
            a, b, ends = tensors
            return [torch._grouped_mm(a, b.transpose(1, 2), offs=ends)]

        return Case(
            lambda: [kernels[0](*tensors)],
            lambda: [own.reference(*tensors)],
            None if fp8 else torch_grouped,
        )

    def work(rows, groups, N, K):
        operand = 1 if fp8 else HALF
        # A product of 8-bit floats takes half of the time of one of 16 bits.
        flops = (1.0 if fp8 else 2.0) * rows * N * K
        return flops, operand * (1.0 * rows * K + groups * N * K) + 1.0 * HALF * rows * N

    return Program(
        f"products of experts, {'8-bit floats' if fp8 else 'bfloat16'}",
        [own.fetch_tiles if fp8 else own.deal_tiles, *parts, program],
        [lambda rows, groups, N, K: program(groups, N, K, rows, **tile)],
        case,
        {"rows": 150, "groups": 5, "N": 136, "K": 144},
        {"rows": 32768, "groups": 64, "N": 4096, "K": 4096},
        work,
        bound=1e-2,
    )


def masked_gemm(fp8: bool) -> Program:
    own = example("grouped_gemm_masked")
    program = own.masked_matmul_fp8 if fp8 else own.masked_matmul
    # A group has 64 rows in the mean.
    tile = {"block_M": 64, "threads": 128, "num_stages": 8}
    if fp8:
        tile = {"block_M": 64, "threads": 256, "num_stages": 4, "width": 256, "parts": 1}

    def case(kernels, device, rows, groups, most, N, K):
        tensors = own.inputs(spread(rows, groups), most, N, K, fp8, device)

        def ours():
            found = kernels[0](*tensors)
            # The check alone reads the counts.
            return [found if rows > 1000 else own.valid(found, tensors[-1])]

        return Case(ours, lambda: [own.reference(*tensors)])

    def work(rows, groups, most, N, K):
        operand, busy = 1 if fp8 else HALF, sum(count > 0 for count in spread(rows, groups))
        # A product of 8-bit floats takes half of the time of one of 16 bits.
        flops = (1.0 if fp8 else 2.0) * rows * N * K
        return flops, operand * (1.0 * rows * K + busy * N * K) + 1.0 * HALF * rows * N

    return Program(
        f"products of experts, masked, {'8-bit floats' if fp8 else 'bfloat16'}",
        [own.deal_masked_tiles, *([own.add_scaled_products] if fp8 else []), program],
        [lambda rows, groups, most, N, K: program(groups, most, N, K, **tile)],
        case,
        {"rows": 150, "groups": 10, "most": 68, "N": 136, "K": 144},
        {"rows": 2048, "groups": 32, "most": 512, "N": 4096, "K": 7168},
        work,
        bound=1e-2,
    )


def fused_moe() -> Program:
    own, k = example("fused_moe"), 6

    def case(kernels, device, tokens, hidden, inner, experts):
        tensors = own.inputs(tokens, hidden, inner, experts, device=device)
        return Case(lambda: [kernels[0](*tensors)], lambda: [own.reference(*tensors, k)])

    def work(tokens, hidden, inner, experts):
        flops = 2.0 * tokens * hidden * (experts + 3 * k * inner)
        return flops, HALF * (3.0 * experts * hidden * inner + 2 * tokens * hidden)

    return Program(
        "layer of experts",
        [
            *(own.route, own.sort, own.permute, own.deal_tiles, own.first_tile, own.second_tile),
            *(own.store_tile, own.combine, own.fused_moe),
        ],
        [lambda tokens, hidden, inner, experts: own.fused_moe(tokens, hidden, inner, experts, k)],
        case,
        {"tokens": 21, "hidden": 136, "inner": 72, "experts": 8},
        {"tokens": 8192, "hidden": 4096, "inner": 1536, "experts": 64},
        work,
        bound=8e-3,
    )


def norm(centred: bool, backward: bool) -> Program:
    own, functional = example("norm_residual"), torch.nn.functional

    def case(kernels, device, rows, width):
        *tensors, d_y, d_sum = own.inputs(rows, width, device)
        if not centred:
            tensors[3].zero_()

        def torch_forward():
            total, (_, _, w, bias) = tensors[0] + tensors[1], tensors
            if centred:
                return [total, functional.layer_norm(total, (width,), w, bias, own.EPSILON)]
            return [total, functional.rms_norm(total, (width,), w, own.EPSILON)]

        if not backward:
            return Case(
                lambda: kernels[0](*tensors)[:2],
                lambda: own.reference(*tensors, centred),
                torch_forward,
            )
        total, _, *statistics = own.forward(width, centred)(*tensors)

        def slopes():
            leaves = [x.double().requires_grad_() for x in tensors]
            results = own.reference(*leaves, centred)
            found = torch.autograd.grad(
                results, leaves, (d_sum.double(), d_y.double()), allow_unused=True
            )
            return [found[0], found[2]]

        return Case(
            lambda: own.gradients((total, *statistics), tensors[2], d_y, d_sum, centred), slopes
        )

    def work(rows, width):
        return 10.0 * rows * width, 4.0 * HALF * rows * width

    parts = [lambda rows, width: own.forward(width, centred)]
    if backward:
        parts = [
            lambda rows, width: own.backward(width, 2 * own.processors(), centred),
            lambda rows, width: own.column_sums(2 * own.processors(), width),
        ]
    name = f"{'LayerNorm' if centred else 'RMSNorm'} with residual"
    return Program(
        f"{name}, gradients" if backward else name,
        [own.backward, own.column_sums] if backward else [own.forward],
        parts,
        case,
        {"rows": 9, "width": 520},
        {"rows": 16384, "width": 8192},
        work,
        bound=8e-3,
    )


def rope_cache() -> Program:
    own, heads, key_heads, dim = example("rope_cache"), 32, 8, 128

    def case(kernels, device, tokens):
        tensors = own.inputs(tokens, heads, key_heads, dim, 64, device=device)
        return Case(lambda: [kernels[0](*tensors), *tensors[-2:]], lambda: own.reference(*tensors))

    return Program(
        "RoPE, keys and values to pages",
        [own.rope_cache],
        [lambda **_: own.rope_cache(heads, key_heads, dim, 64)],
        case,
        {"tokens": 9},
        {"tokens": 65536},
        lambda tokens: (0.0, 2.0 * HALF * tokens * (heads + 2 * key_heads) * dim),
    )


def quantize_tokens(gated: bool) -> Program:
    own = example("quantize_tokens")

    def case(kernels, device, rows, width):
        x = torch.randn(rows, width * (2 if gated else 1), device=device).bfloat16()

        def ours():
            y, scales = kernels[0](x)
            return [scales] if y.is_cuda and rows > 1000 else [y.double() * scales[:, None], scales]

        return Case(ours, lambda: own.reference(x, gated))

    def work(rows, width):
        return 0.0, 1.0 * rows * width * (2 * HALF + 1 if gated else HALF + 1)

    return Program(
        "SiLU and 8-bit floats, a scale a row" if gated else "8-bit floats, a scale a row",
        [own.quantize_tokens],
        [lambda rows, width: own.quantize_tokens(width, gated)],
        case,
        {"rows": 5, "width": 520},
        {"rows": 32768, "width": 7168},
        work,
        bound=4e-2,
    )


def quantize_blocks() -> Program:
    own = example("quantize_tokens")

    def case(kernels, device, N, K):
        w = torch.randn(N, K, device=device).bfloat16()
        tops = torch.nn.functional.pad(w.double().abs(), (0, -K % 128, 0, -N % 128))

        def wanted():
            return [tops.unfold(0, 128, 128).unfold(1, 128, 128).amax((2, 3)) / 448]

        return Case(lambda: kernels[0](w)[1:], wanted)

    return Program(
        "8-bit floats, a scale for 128 x 128",
        [own.quantize_blocks],
        [lambda N, K: own.quantize_blocks(N, K)],
        case,
        {"N": 200, "K": 264},
        {"N": 16384, "K": 7168},
        lambda N, K: (0.0, 1.0 * N * K * (HALF + 1)),
    )


def sampling() -> Program:
    own = example("top_k_top_p")

    def case(kernels, device, batch, vocabulary):
        logits, k, p, uniform = own.inputs(batch, vocabulary, device)

        def wanted():
            total, _ = own.sums(logits, k, p)
            return [(total < uniform[:, None]).sum(1)]

        return Case(lambda: [kernels[0](logits, k, p, uniform)], wanted)

    return Program(
        "top-k and top-p sampling",
        [
            *(own.ordered, own.number_of, own.weight_of, own.threshold, own.shift_of),
            *(own.load, own.find_lowest, own.append, own.list_tile, own.take, own.scale_of),
            *(own.bin_of, own.by_steps, own.bins_of, own.by_warps, own.scan),
            *(own.sums_in_front, own.by_list),
            *(own.by_passes, own.measure, own.add_to, own.units_from, own.weigh, own.weigh_tile),
            *(own.sum_up, own.key_of, own.place_of, own.draw),
            own.top_k_top_p,
        ],
        [
            lambda batch, vocabulary: own.top_k_top_p(
                vocabulary, **(own.SMALL if vocabulary < 1000 else {})
            )
        ],
        case,
        {"batch": 3, "vocabulary": 300},
        {"batch": 132, "vocabulary": 128256},
        lambda batch, vocabulary: (0.0, 1.0 * FLOAT * batch * vocabulary),
    )


def windows(backward: bool) -> Program:
    own, heads, key_heads, dim = example("flash_attention_windows_forward"), 64, 8, 64
    slopes = example("flash_attention_windows_backward")

    def case(kernels, device, batch, length, window):
        tensors, d_out = own.case(batch, heads, key_heads, length, dim, device)
        forward = own.attention(batch, heads, length, dim, window, key_heads)
        if not backward:
            return Case(
                lambda: [forward(*tensors)[0]],
                lambda: [own.reference(*(x.double() for x in tensors), window)],
            )
        _, log_sum = forward(*tensors)

        return Case(
            lambda: slopes.backward(tensors, log_sum, d_out, window),
            lambda: slopes.wanted_gradients(tensors, d_out, window)[1:],
        )

    def part(batch, length, window):
        sizes = (batch, heads, length, dim, window, key_heads)
        if not backward:
            return own.attention(*sizes)
        ranges = slopes.ranges_of(batch, heads, length, window, key_heads)
        return slopes.gradients(*sizes, ranges=ranges)

    def work(batch, length, window):
        products = 5 if backward else 2
        flops = 2.0 * products * batch * heads * length * min(window, length / 2) * dim
        # Gradients need Q and dO of the queries' heads, no results.
        rows = 3 * heads + 4 * key_heads if backward else 2 * (heads + key_heads)
        return flops, 1.0 * HALF * batch * length * rows * dim

    walk = [
        slopes.Walk.of,
        slopes.at_chunk,
        slopes.Walk.first_mask,
        slopes.put_masks,
        slopes.leave_out,
        slopes.take,
        slopes.retire,
        slopes.store_last,
    ]
    groups = [
        slopes.put,
        slopes.load_for_scores,
        slopes.load,
        slopes.begin_scores,
        slopes.hand_over,
        slopes.weigh,
        slopes.multiply,
        slopes.add_up,
        slopes.shared_tiles,
        slopes.tile_of,
        slopes.gradients,
        slopes.add_early,
        slopes.backward,
    ]
    stretch = [
        own.Stretch.of,
        own.mask,
        own.part_of,
        own.load,
        own.weigh,
        own.attend,
        own.attention,
    ]
    return Program(
        f"attention, windows and sinks{', gradients' if backward else ''}",
        [own.schedule, own.fill, *([*walk, *groups] if backward else stretch)],
        [part],
        case,
        {"batch": 1, "length": 70, "window": 30},
        {"batch": 4, "length": 8192, "window": 128},
        work,
    )


def prefill(dim: int, value_dim: int, block_N: int, out_parts: int = 1) -> Program:
    own, heads = example("flash_attention"), 64
    tile = {"block_N": block_N, "out_parts": out_parts}

    def case(kernels, device, batch, length):
        q, k, v = own.inputs(batch, heads, length, dim, device=device, value_dim=value_dim)
        counter = own.new_counter(device)

        def torch_attention():
            out = torch.nn.functional.scaled_dot_product_attention(
                *(x.transpose(1, 2) for x in (q, k, v)), is_causal=True
            )
            return [out.transpose(1, 2)]

        return Case(
            lambda: [kernels[0](q, k, v, counter)],
            lambda: [own.reference(q, k, v, True)],
            torch_attention,
        )

    def work(batch, length):
        moved = 2.0 * HALF * batch * length * heads * (dim + value_dim)
        return 1.0 * batch * heads * length**2 * (dim + value_dim), moved

    return Program(
        f"causal attention, heads of {dim}/{value_dim}",
        [own.online_softmax, own.flash_attention],
        [
            lambda batch, length: own.flash_attention(
                batch, heads, length, dim, True, value_dim=value_dim, **tile
            )
        ],
        case,
        {"batch": 1, "length": 70},
        {"batch": 2, "length": 4096},
        work,
    )


def gemm_int8() -> Program:
    own = example("gemm")

    def case(kernels, device, M, N, K):
        a, b = (
            torch.randint(-128, 128, shape, dtype=torch.int8, device=device)
            for shape in ((M, K), (N, K))
        )
        return Case(
            lambda: [kernels[0](a, b)],
            lambda: [own.reference(a, b, True)],
            lambda: [torch._int_mm(a, b.T)],
        )

    def part(M, N, K):
        return own.matmul(
            M, N, K, T.int8, True, block_N=256, block_K=128, parts=4, out_dtype=T.int32
        )

    def work(M, N, K):
        # A product of 8-bit numbers takes half of the time of one of 16 bits.
        return 1.0 * M * N * K, 1.0 * (M * K + N * K) + FLOAT * M * N

    return Program(
        "int8 product",
        [own.matmul],
        [part],
        case,
        {"M": 70, "N": 136, "K": 144},
        {"M": 8192, "N": 8192, "K": 8192},
        work,
    )


def sparse_mla(by_schedule: bool = False) -> Program:
    own, heads, latent, rotated = example("sparse_mla"), 128, 512, 64
    name, program = "sparse MLA", functools.partial(own.sparse_mla, block_N=128)
    source = own.sparse_mla
    if by_schedule:
        name = f"{name}, by a schedule"
        program = source = example("sparse_mla_pingpong").sparse_mla

    def case(kernels, device, queries, length, chosen):
        tensors = own.inputs(queries, length, chosen, heads, latent, rotated, device=device)
        q, kv, lists = tensors
        return Case(
            lambda: kernels[0](*tensors),
            lambda: own.reference(q.double(), kv.double(), lists, latent),
        )

    def work(queries, length, chosen):
        flops = 2.0 * queries * heads * chosen * (2 * latent + rotated)
        elements = queries * heads * (2 * latent + rotated) + length * (latent + rotated)
        return flops, 1.0 * HALF * elements + FLOAT * queries * chosen

    return Program(
        name,
        [own.online_softmax, source],
        [lambda **_: program(heads, latent, rotated)],
        case,
        {"queries": 2, "length": 90, "chosen": 70},
        {"queries": 4096, "length": 8192, "chosen": 2048},
        work,
        bound=8e-3,
    )


def indexer() -> Program:
    own, heads, dim = example("lightning_indexer"), 64, 128

    def case(kernels, device, queries, length):
        tensors = own.inputs(queries, length, heads, dim, device=device)

        def ours():
            found = kernels[0](*tensors)
            # What a query does not see is not written.
            return [found if queries > 1000 else found.tril(length - queries)]

        return Case(ours, lambda: [own.reference(*tensors).tril(length - queries).nan_to_num(0)])

    def work(queries, length):
        pairs = queries * (length - queries / 2)
        # A product of 8-bit numbers takes half of the time of one of 16 bits.
        return 1.0 * pairs * heads * dim, queries * heads * dim + length * dim + FLOAT * pairs

    return Program(
        "scores of the indexer, 8-bit floats",
        [own.sum_heads, own.index_scores],
        [lambda **_: own.index_scores(heads, dim)],
        case,
        {"queries": 5, "length": 150},
        {"queries": 8192, "length": 8192},
        work,
    )


def indexer_top_k() -> Program:
    own = example("lightning_indexer")

    def case(kernels, device, queries, length, k):
        scores = torch.randn(queries, length, device=device)

        def ours():
            chosen = kernels[0](scores)
            # In any order.
            return [chosen if queries > 1000 else scores.gather(1, chosen.long()).sort(1).values]

        def wanted():
            row = torch.arange(length, device=device)
            behind = row[:queries, None] + length - queries < row
            return [scores.masked_fill(behind, -torch.inf).topk(k).values.sort(1).values]

        return Case(ours, wanted)

    def work(queries, length, k):
        return 0.0, 1.0 * FLOAT * queries * (length - queries / 2 + k)

    return Program(
        "rows chosen by the indexer",
        [
            *(own.ordered, own.find_digit, own.by_passes, own.load, own.count_digits),
            *(own.load_step, own.append, own.count_row, own.list_row, own.find_in_list),
            *(own.choose_near, own.choose, own.top_k),
        ],
        [lambda queries, length, k: own.top_k(k)],
        case,
        {"queries": 5, "length": 150, "k": 40},
        {"queries": 8192, "length": 16384, "k": 2048},
        work,
    )


def gemm_int2() -> Program:
    own = example("int2_gemm")

    def case(kernels, device, M, N, K):
        a, weights, *scales = own.inputs(M, N, K, device)
        words = own.pack(weights)
        return Case(
            lambda: [kernels[0](a, words, *scales)],
            lambda: [own.reference(a, weights, *scales)],
        )

    def work(M, N, K):
        # A product of 8-bit numbers takes half of the time of one of 16 bits.
        return 1.0 * M * N * K, 1.0 * M * K + N * K / 4 + HALF * M * N

    return Program(
        "int8 product with weights in int2",
        [own.four_of, own.matmul_int2],
        [lambda M, N, K: own.matmul_int2(M, N, K)],
        case,
        {"M": 70, "N": 136, "K": 144},
        {"M": 8192, "N": 8192, "K": 8192},
        work,
    )


def cross_entropy() -> Program:
    own = example("cross_entropy")

    def case(kernels, device, rows, vocabulary):
        logits, labels, factor = own.inputs(rows, vocabulary, device)

        def ours():
            return [kernels[0](logits, labels, factor), logits]

        return Case(ours, lambda: own.reference(logits, labels, factor))

    return Program(
        "cross-entropy and its gradients",
        [own.load, own.fetch, own.add, own.store_loaded, own.store_held, own.cross_entropy],
        [lambda rows, vocabulary: own.cross_entropy(vocabulary)],
        case,
        {"rows": 3, "vocabulary": 1003},
        {"rows": 8192, "vocabulary": 128256},
        lambda rows, vocabulary: (0.0, 2.0 * HALF * rows * vocabulary),
    )


def dropout() -> Program:
    own = example("dropout")

    def case(kernels, device, size):
        x, residual = (torch.randn(size, device=device).bfloat16() for _ in range(2))
        forward, mask = kernels

        def wanted():
            kept = mask(torch.ones_like(x), torch.zeros_like(x), 1).double() > 0
            return [residual.double() + kept * x.double() / 0.9]

        return Case(lambda: [forward(x, residual, 1)], wanted)

    return Program(
        "dropout and residual",
        [own.dropout],
        [lambda size: own.dropout(0.1), lambda size: own.dropout(0.1, add=False)],
        case,
        {"size": 5000},
        {"size": 2**28},
        lambda size: (0.0, 3.0 * HALF * size),
    )


def hadamard() -> Program:
    own = example("hadamard")

    def case(kernels, device, rows, size):
        x = torch.randn(rows, size, device=device).bfloat16()
        tile = x.view(rows, *own.factors(size))
        return Case(lambda: [kernels[0](tile).view(rows, size)], lambda: [own.reference(x)])

    return Program(
        "Hadamard transform",
        [own.fill_hadamard, own.hadamard],
        [lambda rows, size: own.hadamard(*own.factors(size))],
        case,
        {"rows": 9, "size": 512},
        {"rows": 32768, "size": 4096},
        lambda rows, size: (2.0 * rows * size * sum(own.factors(size)), 2.0 * HALF * rows * size),
    )


PROGRAMS = {
    "gqa": gqa_decode,
    "gqa_pages": functools.partial(gqa_decode, True),
    "gqa_window": functools.partial(gqa_decode, True, 4096),
    "gqa_long": gqa_decode_long,
    "gqa_fp8": gqa_decode_fp8,
    "mla_pages": mla_decode_paged,
    "mla_pages_by_schedule": functools.partial(mla_decode_paged, by_schedule=True),
    "experts_bf16": functools.partial(grouped_gemm, False),
    "experts_fp8": functools.partial(grouped_gemm, True),
    "experts_masked_bf16": functools.partial(masked_gemm, False),
    "experts_masked_fp8": functools.partial(masked_gemm, True),
    "layer_of_experts": fused_moe,
    "rms": functools.partial(norm, False, False),
    "rms_backward": functools.partial(norm, False, True),
    "layer_norm": functools.partial(norm, True, False),
    "layer_norm_backward": functools.partial(norm, True, True),
    "rope": rope_cache,
    "quantize_rows": functools.partial(quantize_tokens, False),
    "quantize_silu": functools.partial(quantize_tokens, True),
    "quantize_blocks": quantize_blocks,
    "sampling": sampling,
    "windows": functools.partial(windows, False),
    "windows_backward": functools.partial(windows, True),
    "prefill_192": functools.partial(prefill, 192, 128, 128, 2),
    "prefill_256": functools.partial(prefill, 256, 256, 64, 2),
    "gemm_int8": gemm_int8,
    "sparse_mla": sparse_mla,
    "sparse_mla_by_schedule": functools.partial(sparse_mla, by_schedule=True),
    "indexer": indexer,
    "indexer_top_k": indexer_top_k,
    "gemm_int2": gemm_int2,
    "cross_entropy": cross_entropy,
    "dropout": dropout,
    "hadamard": hadamard,
}


if __name__ == "__main__":
    main(PROGRAMS, __doc__)
