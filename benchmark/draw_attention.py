"""Families of `draw.py` that are attention: forward, its gradients, and decoding."""

import dataclasses
import heapq
import itertools
import math

import attention_backward
import attention_forward
import torch
from common import Row, example, norm_error
from draw_family import MOST_BYTES, MOST_WORK, Family, best, name_of
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilelang.language as T
from tilelang.carver import FlashAttentionTemplate
from tilelang.carver.arch import auto_infer_current_arch
from tilelang.carver.cost import BANDWIDTH_SHARE, LATENCY_CLOCKS, together

HALVES = (T.float16, T.bfloat16)
BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
"""Torch's, the first that takes a shape."""
BOUNDS = {"float16": 1e-3, "bfloat16": 8e-3}


def torch_attention(q, k, v, causal):
    """Attention of tensors (batch, length, heads, dim) by torch."""
    with sdpa_kernel(BACKENDS, set_priority=True):
        return torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)),
            is_causal=causal,
            enable_gqa=q.shape[2] != k.shape[2],
        )


def draw_attention(draw, dims, groups, work):
    """Sequences of training or of prompts: few long ones, or many short ones."""

    def make():
        key_heads, group = draw.count(1, 32), draw.choice(groups)
        return {
            "batch": draw.count(1, 64),
            "heads": key_heads * group,
            "key_heads": key_heads,
            "length": draw.size(64, 32768, 64),
            "dim": draw.choice(dims),
            "causal": draw.random() < 0.5,
        }

    def fits(s):
        elements = s["batch"] * s["length"] * s["heads"] * s["dim"]
        products = s["batch"] * s["heads"] * s["length"] ** 2 * s["dim"]
        most = 2 if draw.small else 128
        return s["heads"] <= most and 8.0 * elements <= MOST_BYTES and work * products <= MOST_WORK

    return draw.until(make, fits)


def draw_forward(draw):
    """Heads of 64 or 128 for the most part, and grouped queries."""
    shape = draw_attention(draw, (64, 128, 128, 128, 96, 256), (1, 1, 4, 8), 4.0)
    return {**shape, "dtype": str(draw.choice(HALVES))}


def tile(template, hint):
    """The parameters of `flash_attention` for a hint of the carver's template."""
    return {
        "block_M": hint.block[0],
        "block_N": hint.rstep[0],
        "num_stages": hint.pipeline_stage,
        "threads": hint.threads,
        "out_parts": template.out_parts(hint),
    }


def forward(shape, top):
    """Attention by the carver's hints, beside torch's."""
    own, causal, dtype = example("flash_attention"), shape["causal"], T.dtype(shape["dtype"])
    sizes = {name: shape[name] for name in ("batch", "heads", "length", "dim")}
    template = FlashAttentionTemplate(
        *(sizes[name] for name in ("batch", "heads", "dim", "length")),
        is_causal=causal,
        in_dtype=str(dtype),
        persistent=True,
        num_kv_heads=shape["key_heads"],
    )
    configs = [tile(template, hint) for hint in template.recommend_hints(top)]
    if sizes["dim"] <= 64:
        # There are registers for Q's tile, too.
        configs = [{**config, "hold_Q": hold} for config in configs for hold in (False, True)][:top]
    key_heads = shape["key_heads"]

    def inputs(device):
        tensors = own.inputs(**sizes, key_heads=key_heads, dtype=dtype, device=device)
        return [*tensors, own.new_counter(device)]

    def error(given, found):
        return attention_forward.error(*given[:3], causal, found), BOUNDS[str(dtype)]

    return Row(
        name=name_of(shape),
        program=own.flash_attention,
        arguments={**sizes, "causal": causal, "key_heads": key_heads, "dtype": dtype},
        config=configs[0],
        configs=configs,
        inputs=inputs,
        error=error,
        work=attention_forward.flops(**sizes, causal=causal),
        baseline=lambda q, k, v, counter: torch_attention(q, k, v, causal),
    )


def draw_backward(draw):
    """As many heads of keys as of queries."""
    shape = draw_attention(draw, (64, 128), (1,), 10.0)
    del shape["key_heads"]
    return shape


def backward_seconds(shape, config):
    """What a configuration may take: its blocks' steps, whose products and loads overlap."""
    arch = auto_infer_current_arch()
    block_M, block_N, dim = config["block_M"], config["block_N"], shape["dim"]
    blocks = shape["batch"] * shape["heads"] * math.ceil(shape["length"] / block_N)
    steps = math.ceil(shape["length"] / block_M) * (0.5 if shape["causal"] else 1.0)
    products = 10.0 * block_M * block_N * dim / arch.tensor_flop_per_clock("float16")
    # A score is computed in about 16 operations of its thread.
    others = 16.0 * block_M * block_N / (arch.speeds.fma_flop / 2)
    added = 4.0 * block_M * dim / 32  # bytes of dQ, of which L2 takes 32 in a clock
    beside = products + (0 if config["overlap"] else others)
    step = max(beside, others, added) + 1200 / config["num_stages"]
    waves = math.ceil(blocks / arch.speeds.sms)
    return waves * steps * step / arch.speeds.clock


def backward(shape, top):
    """The gradients, beside torch's."""
    sizes = {name: shape[name] for name in ("batch", "heads", "length", "dim", "causal")}
    row = attention_backward.row(*sizes.values())
    first = attention_backward.CONFIG[shape["dim"]]
    others = best(row.configs, lambda config: backward_seconds(shape, config), len(row.configs))
    configs = [first, *(config for config in others if config != first)][:top]
    return dataclasses.replace(
        row,
        name=name_of(shape),
        config=first,
        configs=configs,
        baseline=attention_backward.Baseline(shape["causal"], torch_attention),
    )


def backward_beside(shape):
    """The forward pass, and the kernels around the gradients'."""
    own, sizes = example("flash_attention_backward"), shape
    batch, heads, length, dim = (sizes[name] for name in ("batch", "heads", "length", "dim"))
    example("flash_attention").flash_attention(
        batch, heads, length, dim, sizes["causal"], log_sum=True
    )
    own.dot_of_rows(batch, heads, length, dim, T.float16)
    own.scaled(batch * heads * length * dim, dim**-0.5, T.float16)


STEP_CLOCKS = {2: 800, 1: 1500}
"""Of a step of decoding, 64 keys of so many bytes an element: its products and its softmax, one
after the other. Assumed."""
ISSUE_CLOCKS = {2: 200, 1: 350}
"""Of these, those in which a multiprocessor issues instructions: counted in SASS."""
COPY_CLOCKS = 70
"""Of a copy of rows of a page, as the one thread that issues them takes: counted in SASS."""
BEGIN_CLOCKS = 3 * LATENCY_CLOCKS
"""Of a block's length, its pages' numbers and its first tile, one after the other."""
COMBINE_SECONDS = 4e-6
"""Of a second kernel, that waits for the first one: 3 to 4.4 us, and what its launch takes."""
HEADS = ((32, 8), (64, 8), (40, 8), (28, 4), (16, 2), (8, 1), (32, 32), (128, 8))
"""Of queries and keys, as models have them."""
PAGES = (None, None, 16, 64, 128)


def draw_decode(draw):
    """Sequences of servers, in different states, and their caches."""

    def make():
        heads, key_heads = (4, 2) if draw.small else draw.choice(HEADS)
        cache = draw.choice(("float16", "bfloat16", "float8_e4m3fn"))
        return {
            "batch": draw.count(1, 128),
            "longest": draw.size(256, 131072),
            "heads": heads,
            "key_heads": key_heads,
            "dim": draw.choice((64, 128, 128)),
            "cache": cache,
            "page": None if cache == "float8_e4m3fn" else draw.choice(PAGES),
            "even": draw.random() < 0.5,
        }

    def fits(s):
        elements = s["batch"] * s["longest"] * s["key_heads"] * s["dim"]
        # Less is a few microseconds of a launch and of latency.
        return (0 if draw.small else 2.0**22) <= elements and 4.0 * elements <= MOST_BYTES

    shape = draw.until(make, fits)
    longest = shape["longest"]
    others = [
        longest if shape["even"] else draw.randint(1, longest) for _ in range(shape["batch"] - 1)
    ]
    return {**shape, "lengths": [longest, *others]}


def decode_configs(lengths, heads, key_heads, dim, narrow):
    """Shares of half a wave to three waves of blocks, in tiles of 64 keys, or of 128 of few bytes;
    two to four blocks on a multiprocessor, with as many tiles as there is room for."""
    own, arch, found = example("gqa_decode"), auto_infer_current_arch(), []
    # Else all shares have keys, and the length is there before a row of a list and the queries.
    listed = len(set(lengths)) > 1
    columns = -(-heads // key_heads // 8) * 8
    for block_N in (64, 128) if dim == 64 else (64,):
        # The first one counts where the model sees no difference: more blocks, which are faster.
        for blocks in (4, 3, 2):
            for waves in (0.5, 1, 2, 3):
                slots = int(waves * blocks * arch.speeds.sms)
                splits, least = own.shares_for(lengths, key_heads, 1, slots, block_N)
                # Beside tiles there are q, weights and parts of reductions; the system has 1 KB.
                beside = 2048 + columns * (2 * dim + 2 * block_N + 32)
                room = 228 * 1024 // blocks - beside
                stages = min(4, room // (2 * block_N * dim * (1 if narrow else 2)))
                config = {"splits": splits, "least": least, "block_N": block_N}
                config |= {"min_blocks": blocks, "num_stages": stages}
                config["dependent"] = splits > 1 and arch.sm >= 90
                config["listed"] = listed
                # A share's first tile has a stage of its own, which its other tiles do not use.
                few = math.ceil(math.ceil(max(lengths) / block_N) / splits) <= 2 * stages
                config["early"] = not listed and few and stages > 2
                found += [] if config in found or stages < 2 else [config]
    return found


def decode_seconds(config, lengths, key_heads, tile_bytes, element, copies, results):
    """What shares may take: blocks of which each is as fast as its own steps, and as its part of
    the memory's bandwidth; and what it takes to put their results together."""
    speeds, block_N, splits = auto_infer_current_arch().speeds, config["block_N"], config["splits"]
    room = config["min_blocks"]
    longer = (1 + block_N / 64) / 2
    clocks = longer * max(STEP_CLOCKS[element], ISSUE_CLOCKS[element] * room)
    step = max(clocks, copies * COPY_CLOCKS) / speeds.clock
    bandwidth = BANDWIDTH_SHARE * speeds.bandwidth
    begin = (BEGIN_CLOCKS - (LATENCY_CLOCKS if config["early"] else 0)) / speeds.clock

    def tile_seconds(blocks):
        return together(step, blocks * tile_bytes / bandwidth)

    of_each = []
    for length in lengths:
        tiles = -(-length // block_N)
        share = max(-(-tiles // splits), config["least"])
        of_each.append([min(share, tiles - begun) for begun in range(0, tiles, share)])
    by_turns = itertools.zip_longest(*of_each, fillvalue=0)
    shares = [tiles for turn in by_turns for tiles in turn for _ in range(key_heads) if tiles]
    if config["listed"]:
        shares.sort(reverse=True)
    slots = min(room * speeds.sms, len(shares))
    empty = 0 if config["listed"] else len(lengths) * splits * key_heads - len(shares)
    begin_tiles = begin / tile_seconds(slots)
    # Each block in turn where one has ended, in tiles.
    ends = [0.5 * begin_tiles * empty / slots] * slots
    for tiles in shares:
        heapq.heapreplace(ends, ends[0] + tiles + begin_tiles)
    seconds, before = 0.0, 0.0
    for ended, end in enumerate(sorted(ends)):
        seconds += (end - before) * tile_seconds(slots - ended)
        before = end
    if splits == 1:
        return seconds
    return seconds + COMBINE_SECONDS + results / bandwidth


def decode(shape, top):
    """GQA of a token of each sequence, against the bytes of its keys and values."""
    heads, key_heads, dim, page = (shape[n] for n in ("heads", "key_heads", "dim", "page"))
    lengths, narrow = shape["lengths"], shape["cache"] == "float8_e4m3fn"
    own = example("gqa_decode_fp8" if narrow else "gqa_decode")
    dtype = T.dtype("float16" if narrow else shape["cache"])
    total = sum(lengths)
    moved = 2.0 * key_heads * dim * total * (1 if narrow else 2)
    moved += 4.0 * len(lengths) * heads * dim
    element = 1 if narrow else 2

    def seconds(config):
        block_N = config["block_N"]
        # A box has 128 bytes of a row.
        copies = 2 * -(-block_N // (page or block_N)) * -(-dim * element // 128)
        tile_bytes = 2.0 * block_N * dim * element
        results = 8.0 * len(lengths) * heads * dim * config["splits"]
        return decode_seconds(config, lengths, key_heads, tile_bytes, element, copies, results)

    configs = best(decode_configs(lengths, heads, key_heads, dim, narrow), seconds, top)
    arguments = {"heads": heads, "key_heads": key_heads, "dim": dim}

    def inputs(device):
        if narrow:
            return list(own.inputs(lengths, heads, key_heads, dim, device))
        return list(own.inputs(lengths, heads, key_heads, dim, page, dtype, device))

    def error(given, result):
        ends = [0, -1]
        if narrow:
            q, k, v, scale_k, scale_v, counts = given
            wanted = own.reference_fp8(q[ends], k[ends], v[ends], scale_k, scale_v, counts[ends])
            return norm_error(result[ends], wanted), 2e-3
        q, k, v, table, counts, _ = given
        if not page:
            k, v = k[ends], v[ends]
        wanted = own.reference(q[ends], k, v, table[ends], counts[ends], None, page)
        return norm_error(result[ends], wanted), torch.finfo(dtype.as_torch()).eps

    def for_config(given, config):
        if not config["listed"]:
            return given
        cut = {name: config[name] for name in ("splits", "least", "block_N")}
        place = 5 if narrow else 4
        listed = own.list_shares(lengths, **cut, device=given[place].device)
        return [*given[:place], listed, *given[place + 1 :]]

    named = {name: value for name, value in shape.items() if name not in ("lengths", "even")}
    return Row(
        name=f"{name_of(named)} {'equal' if shape['even'] else f'mean={total // len(lengths)}'}",
        program=own.gqa_decode_fp8 if narrow else own.gqa_decode,
        arguments=arguments if narrow else {**arguments, "page": page, "dtype": dtype},
        config=configs[0],
        configs=configs,
        inputs=inputs,
        error=error,
        work=moved,
        for_config=for_config,
        unit="GB/s",
    )


FAMILIES = {
    "attention": Family(draw_forward, forward),
    "attention_backward": Family(draw_backward, backward, beside=backward_beside),
    "decode": Family(draw_decode, decode, 0.8, 0.6),
}
