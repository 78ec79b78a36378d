"""Families of `draw.py` whose kernels are products: GEMM, 8-bit floats, experts, convolution,
weights of 4 bits."""

import dataclasses
import itertools
import math

import dequantize
import gemm_shapes
import torch
from common import Row, example, norm_error
from draw_family import MOST_BYTES, MOST_WORK, Family, best, name_of
from gemm_fp8 import scaled_mm, scaled_row

import tilelang.language as T
from tilelang.carver import schedules_of
from tilelang.carver.arch import auto_infer_current_arch
from tilelang.carver.cost import (
    BANDWIDTH_SHARE,
    Product,
    Tiling,
    product_seconds,
)
from tilelang.carver.schedules import PANELS

HALVES = (T.bfloat16, T.float16)
LONG_WORK = 2.0**37
"""FLOP, above which the order of tiles decides what L2 holds."""
UNIT = 16
"""Multiples of it are sizes that torch's products of 8-bit floats take."""


def draw_product(draw, most=MOST_WORK):
    """M, N and K. Rows of A are few (decoding), or as many as in training; the others are widths of
    layers. One product of eight is square."""

    def make():
        if draw.random() < 1 / 8:
            return dict.fromkeys("MNK", draw.size(256, 8192, 64))
        M = draw.size(1, 64) if draw.random() < 1 / 3 else draw.size(64, 16384, 8)
        return {"M": M, "N": draw.size(128, 32768, 64), "K": draw.size(128, 32768, 64)}

    return draw.until(make, lambda s: 2.0 * math.prod(s.values()) <= most)


def flops(shape):
    """Of a product."""
    return 2.0 * shape["M"] * shape["N"] * shape["K"]


def padded(size):
    """The least size that torch's products of 8-bit floats take."""
    return -(-size // UNIT) * UNIT


def draw_gemm(draw):
    """A product of 16-bit floats."""
    return {**draw_product(draw), "dtype": str(draw.choice(HALVES))}


def gemm(shape, top):
    """By the schedules of the carver; of long products the first in other orders of tiles, too."""
    size, dtype = (shape["M"], shape["N"], shape["K"]), T.dtype(shape["dtype"])
    found = schedules_of(*size, dtype)[:top]
    if top > 1 and flops(shape) > LONG_WORK:
        found += [dataclasses.replace(found[0], panel=p) for p in PANELS if p != found[0].panel]
    return gemm_shapes.make_row(size, dtype, found)


def eights(M, N, K, device):
    """Operands of torch's product of 8-bit floats: larger ones, where it does not take these."""
    return [
        torch.randn(padded(rows), padded(K), device=device).to(torch.float8_e4m3fn)
        for rows in (M, N)
    ]


def pad(a, wide):
    """A in the first rows and columns of a larger matrix, as much as `wide` has."""
    rows, columns = (more - own for more, own in zip(wide.shape, a.shape, strict=True))
    # As bytes: torch does not pad all 8-bit floats.
    flat = torch.nn.functional.pad(a.view(torch.uint8), (0, columns * a.element_size(), 0, rows))
    return flat.view(a.dtype)


def padded_mm(ours, others):
    """torch's product of 8-bit floats, of an A whose rows it does not take as they are."""
    a = ours[0]
    return scaled_mm(a if a.shape[1] == others[0].shape[1] else pad(a, others[0]), others[1])


def contiguous(call, N):
    """A call whose result has the columns of ours alone, in rows without gaps."""

    def made(ours, others):
        return call(ours, others)[: len(ours[0]), :N].contiguous()

    return made


def draw_fp8(draw):
    """A product of 8-bit floats."""
    return {**draw_product(draw), "out_dtype": "bfloat16"}


def fp8(shape, top):
    """The same program with one scale a tensor, beside torch's."""
    size = shape["M"], shape["N"], shape["K"]
    dtype, out_dtype = T.float8_e4m3fn, T.dtype(shape["out_dtype"])
    row = gemm_shapes.make_row(size, dtype, schedules_of(*size, dtype, out_dtype)[:top])
    return dataclasses.replace(
        row,
        arguments={**row.arguments, "out_dtype": out_dtype},
        # Tensor cores keep fewer bits of sums of 8-bit products than float32.
        error=lambda ab, found: (norm_error(found, ab[0].double() @ ab[1].double().T), 1e-2),
        baseline=scaled_mm,
        baseline_inputs=lambda device: eights(*size, device),
        padded_baseline=padded_mm if shape["K"] % UNIT else None,
        contiguous_baseline=contiguous(padded_mm, shape["N"]) if shape["N"] % UNIT else None,
    )


def fp8_blocks(shape, top):
    """With scales of 1 x 128 and 128 x 128, beside torch's product with one scale a tensor."""
    M, N, K = size = shape["M"], shape["N"], shape["K"]
    return dataclasses.replace(
        scaled_row(size, top, blocks=None),
        name=name_of(shape),
        baseline=scaled_mm,
        baseline_inputs=lambda device: eights(M, N, K, device),
        padded_baseline=padded_mm if K % UNIT else None,
        contiguous_baseline=contiguous(padded_mm, N) if N % UNIT else None,
    )


EXPERT_TILES = [
    {
        "block_M": block_M,
        "block_N": block_N,
        "num_stages": stages,
        "threads": threads,
        "panel": panel,
    }
    for (block_M, block_N, stages, threads), panel in itertools.product(
        [
            (64, 128, 6, 128),
            (64, 256, 4, 128),
            (128, 128, 5, 256),
            (128, 192, 4, 256),
            (128, 256, 3, 256),
        ],
        [4, 8],
    )
]


WORD_TILES = [
    {"block_M": 128, "block_N": 160, "num_stages": 3, "threads": 256, "panel": 4, "padded": "A"},
    {"block_M": 128, "block_N": 128, "num_stages": 3, "threads": 256, "panel": 4, "padded": "A"},
    {"block_M": 64, "block_N": 256, "num_stages": 3, "threads": 128, "panel": 4, "padded": ""},
    {
        "block_M": 64,
        "block_N": 128,
        "num_stages": 3,
        "threads": 128,
        "panel": 4,
        "padded": "",
        "beside": 2,
    },
]
"""Of rows that TMA takes only from copies, and that threads load by words of 8 or 4 bytes. More
stages leave less of the L1 cache, which has the other part of a line that lies in two tiles."""
ODD_TILES = [
    {"odd_rows": True, "block_M": rows, "num_stages": stages}
    for rows, stages in [(16, 8), (32, 8), (48, 8), (64, 7), (128, 5)]
]
"""Of weights whose rows TMA does not take, which are read where they lie: 128 of them, and so many
rows of A."""
WORD_BYTES_PER_CLOCK = {8: 36, 4: 22}
"""What a multiprocessor loads by words. Fitted, as `PRODUCER`, to five shapes on an H200."""
PRODUCER = 1.2
"""How much longer a step takes than its longest part, where warps of their own load."""


ODD_STEP_CLOCKS = 512
"""Of a step of 64 elements of 128 rows of weights: each word is loaded twice from shared memory."""


def words_clocks(config, K):
    """Clocks of the steps along K of the blocks of a multiprocessor, by words."""
    m, n, beside = config["block_M"], config["block_N"], config.get("beside", 1)
    rows = n if "A" in config["padded"] else m + n
    loading = beside * 128 * rows / WORD_BYTES_PER_CLOCK[8 if K % 4 == 0 else 4]
    multiplying = beside * m * n / 32  # at 4096 FLOP a clock
    if "A" in config["padded"]:
        step = PRODUCER * max(loading, multiplying, 128 * (m + n) / 40)
    else:  # the same warps do both; another block does the other one meanwhile
        step = max(loading, multiplying) if beside > 1 else loading + multiplying
    return -(-K // 64) * step


def experts(odd_rows=False, **arguments):
    """The kernel that a configuration is of."""
    own = example("grouped_gemm_experts")
    program = own.grouped_matmul_odd_rows if odd_rows else own.grouped_matmul
    return program(**arguments)


def draw_experts(draw):
    """Rows of tokens that a router gave to experts, some of which may have none."""

    def make():
        groups = draw.choice((2, 3, 5) if draw.small else (4, 8, 16, 32, 64, 128))
        sizes = {"rows": draw.size(32, 65536), "groups": groups}
        return {**sizes, "N": draw.size(512, 8192, 64), "K": draw.size(512, 8192, 64)}

    def fits(s):
        moved = 2.0 * (s["groups"] * s["N"] * s["K"] + s["rows"] * (s["N"] + s["K"]))
        return 2.0 * s["rows"] * s["N"] * s["K"] <= MOST_WORK and moved <= MOST_BYTES

    shape = draw.until(make, fits)
    # How much a router prefers some: from nearly even to a few that have nearly all.
    spread = draw.choice((0.2, 1.0, 8.0))
    shares = [draw.gammavariate(spread, 1.0) for _ in range(shape["groups"])]
    ends = [round(shape["rows"] * s / sum(shares)) for s in itertools.accumulate(shares)]
    ends[-1] = shape["rows"]
    return {**shape, "sizes": [end - begin for begin, end in itertools.pairwise([0, *ends])]}


def grouped(shape, top):
    """The products of experts, beside torch's grouped product."""
    own, sizes = example("grouped_gemm_experts"), shape["sizes"]
    N, K, rows = shape["N"], shape["K"], shape["rows"]
    arch = auto_infer_current_arch()

    def odd_seconds(config):
        """Each tile of rows of A reads a matrix: from memory, or from L2 as fast as from there."""
        m = config["block_M"]
        tiles = sum(-(-size // m) for size in sizes)
        rounds = -(-tiles * -(-N // 128) // arch.speeds.sms)
        steps = -(-K // 64) * ODD_STEP_CLOCKS
        read = 2 * (tiles * N * K + 3 * rows * K) / (BANDWIDTH_SHARE * arch.speeds.bandwidth)
        return max(read, rounds * steps / arch.speeds.clock)

    def seconds(config):
        if "odd_rows" in config:
            return odd_seconds(config)
        m, n = config["block_M"], config["block_N"]
        tiles = sum(-(-size // m) for size in sizes)
        tiling = Tiling(m, n, 64, config["num_stages"], config["threads"], config["panel"], True)
        time = product_seconds(arch, Product(m * tiles, N, K, "bfloat16", 2, 2), tiling)
        if K % 8 == 0:
            return time
        bandwidth, copied = BANDWIDTH_SHARE * arch.speeds.bandwidth, config.get("padded", "AB")
        held = {"A": rows * K, "B": len(sizes) * N * K}
        # Copies are read and written, 2 bytes an element.
        copies = sum(4 * held[name] for name in copied) / bandwidth
        if "B" not in copied:
            blocks = arch.speeds.sms * config.get("beside", 1)
            rounds = -(-tiles * -(-N // n) // blocks)
            time = max(time, rounds * words_clocks(config, K) / arch.speeds.clock)
        return max(time, 2 * sum(held.values()) / bandwidth) + copies

    def torch_inputs(device):
        """Larger matrices where torch takes none whose rows are no multiples of 16 bytes."""
        wide, deep = -(-N // 8) * 8, -(-K // 8) * 8
        return own.inputs(sizes, wide, deep, device=device)

    def grouped_mm(a, b, ends):
        return torch._grouped_mm(a, b.transpose(1, 2), offs=ends)

    def padded_grouped_mm(ours, others):
        a, b, ends = others
        return grouped_mm(pad(ours[0], a) if K % 8 else ours[0], b, ends)

    configs = best(EXPERT_TILES, seconds, top)
    if K % 8:
        if K % 2 == 0:
            with_A = min((tile for tile in WORD_TILES if tile["padded"]), key=seconds)
            configs += [with_A, *(tile for tile in WORD_TILES if not tile["padded"])]
        if N % (8 // math.gcd(K, 8)) == 0:
            configs += ODD_TILES
        configs = sorted(configs, key=seconds)[:top]
    bound = torch.finfo(torch.bfloat16).eps
    return Row(
        name=f"rows={rows} groups={len(sizes)} (most {max(sizes)}) N={N} K={K}",
        program=experts,
        arguments={"groups": len(sizes), "N": N, "K": K, "rows": rows},
        config=configs[0],
        configs=configs,
        inputs=lambda device: list(own.inputs(sizes, N, K, device=device)),
        error=lambda given, found: (norm_error(found, own.reference(*given)), bound),
        work=2.0 * rows * N * K,
        baseline=grouped_mm,
        baseline_inputs=torch_inputs,
        padded_baseline=padded_grouped_mm if K % 8 else None,
        contiguous_baseline=contiguous(padded_grouped_mm, N) if N % 8 else None,
    )


def draw_convolution(draw):
    """Layers of image networks, and of diffusion models; an image's channels may be three."""

    def make():
        kernel = draw.choice((1, 3, 3, 3, 5, 7))
        return {
            "batch": draw.count(1, 256),
            "height": draw.size(7, 224),
            "width": draw.size(7, 224),
            "channels": 3 if draw.random() < 1 / 16 else draw.size(16, 2048, 16),
            "filters": draw.size(16, 2048, 16),
            "kernel": kernel,
            "stride": draw.choice((1, 1, 1, 2)),
            "dilation": 1 if draw.random() < 7 / 8 else 2,
            "pad": draw.choice((0, kernel // 2, kernel // 2)),
        }

    def fits(s):
        rows, columns = outputs(s)
        if min(rows, columns) < 1:
            return False
        pixels = s["batch"] * s["height"] * s["width"] * s["channels"]
        results = s["batch"] * rows * columns * s["filters"]
        work = 2.0 * results * s["kernel"] ** 2 * s["channels"]
        # Of the smallest, all but the launch is noise.
        least = 0 if draw.small else 2.0**26
        return least <= work <= MOST_WORK and 2.0 * (pixels + results) <= MOST_BYTES

    return draw.until(make, fits)


def outputs(s):
    """Rows and columns of a convolution's result."""
    sides = ("height", "width", "kernel", "stride", "dilation", "pad")
    return example("convolution").outputs(*(s[name] for name in sides))


FEW_CHANNELS = 8
"""Of fewer, threads gather windows: TMA takes 16 bytes at least."""


def convolved(channels, **arguments):
    """The kernel that a configuration is of."""
    name = "halo" if "tile" in arguments else "any_shape"
    few = channels < FEW_CHANNELS
    own = example(f"convolution_{'few_channels' if few else name}")
    return own.convolution(channels=channels, **arguments)


def convolution(shape, top):
    """Beside cuDNN, with the channels of an image next to each other, too."""
    M, N = shape["batch"] * math.prod(outputs(shape)), shape["filters"]
    K = shape["kernel"] ** 2 * shape["channels"]
    few = shape["channels"] < FEW_CHANNELS
    own = example("convolution_few_channels" if few else "convolution_any_shape")
    configs = own.configurations(own.Problem(**shape))
    configs = [*example("convolution_halo").configurations(own.Problem(**shape))[:1], *configs][
        :top
    ]
    image = [shape[name] for name in ("batch", "height", "width", "channels")]
    window = (shape["kernel"], shape["kernel"], shape["channels"], N)
    steps = shape["stride"], shape["pad"], shape["dilation"]

    def inputs(device):
        x = torch.randn(image, device=device, dtype=torch.float16)
        return [x, torch.randn(window, device=device, dtype=torch.float16)]

    def cudnn(x, w):
        return torch.nn.functional.conv2d(x, w, None, *steps)

    def error(given, found):
        x, w = given
        ends = [0, -1]
        # In float32, since convolutions in float64 take seconds.
        with torch.backends.cudnn.flags(allow_tf32=False):
            wanted = cudnn(x[ends].float().permute(0, 3, 1, 2), w.float().permute(3, 2, 0, 1))
        return norm_error(found[ends], wanted.permute(0, 2, 3, 1)), 1e-3

    def torch_inputs(device):
        x, w = inputs(device)
        w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        return [x.permute(0, 3, 1, 2), w]

    return Row(
        name=name_of(shape),
        program=convolved,
        arguments=dict(shape),
        config=configs[0],
        configs=configs,
        inputs=inputs,
        error=error,
        work=2.0 * M * N * K,
        baseline=cudnn,
        baseline_inputs=torch_inputs,
    )


FEW_ROWS = 64
"""Of A, above which weights of 4 bits are measured against the product of 16 bits."""


def draw_quantised(draw):
    """Weights of 4 bits. Two share a byte."""

    def fits(s):
        # Less is a microsecond of the memory and several of a launch.
        return s["K"] % 2 == 0 and s["N"] * s["K"] >= (0 if draw.small else 2**23)

    shape = draw.until(lambda: draw_product(draw), fits)
    return {**shape, "form": draw.choice(("int4", "mxfp4"))}


MOST_WARPS, MOST_AHEAD = 8, 2
"""Of `dequantize_gemv`, with which all loads of a row are under way at once."""


def by_threads(K):
    """The configuration of `dequantize_gemv` that has a warp for each step or two, None where that
    is not the faster kernel. On an H200 (2026-11-29), of 14 for each of three sizes the fastest, or
    1 % behind it: 1 x 7232 x 1216 by 5 warps 7.0 us, by 8 with two steps 9.3."""
    steps = -(-K // example("dequantize_gemv").STEP)
    ahead = 1 if steps <= MOST_WARPS else MOST_AHEAD
    warps = -(-steps // ahead)
    return {"warps": warps, "ahead": ahead} if warps <= MOST_WARPS else None


def dequantized(form, M, N, K, **config):
    """The kernel that a configuration is of."""
    if "warps" in config:
        return example("dequantize_gemv").matvec(form, N, K, **config)
    return example("dequantize_gemm").matmul(form, M, N, K, **config)


def quantised(shape, top):
    """Against the bytes where A has few rows, else beside the product with weights of 16 bits."""
    M, N, K, form = (shape[name] for name in ("M", "N", "K", "form"))
    row = dequantize.row(form, M, N, K, 1.0, packed=True)
    configs = row.configs[:top]
    if M == 1 and by_threads(K):
        configs = [by_threads(K), *configs][:top]
    row = dataclasses.replace(
        row,
        name=name_of(shape),
        program=dequantized,
        config=configs[0],
        configs=configs,
        # Without counters of shares.
        for_config=lambda given, config: given[:3] if "warps" in config else given,
    )
    if M > FEW_ROWS:
        return row
    scales = 2 * -(-K // 128) if form == "int4" else -(-K // 32)
    moved = N * (K / 2 + scales) + 2.0 * M * (K + N)
    return dataclasses.replace(row, baseline=None, work=moved, unit="GB/s")


FAMILIES = {
    "gemm": Family(draw_gemm, gemm),
    "fp8": Family(draw_fp8, fp8),
    "fp8_blocks": Family(draw_fp8, fp8_blocks, 0.9, 0.8),
    "grouped": Family(draw_experts, grouped),
    "convolution": Family(draw_convolution, convolution),
    "quantised": Family(draw_quantised, quantised, 0.8, 0.6),
}
