"""The family of `draw.py` whose kernels go over rows: softmax, norms, activations, and casts to
8-bit floats."""

import math

import torch
from common import Row, example, norm_error
from draw_family import Family, best

import tilelang.language as T
from tilelang.carver.arch import auto_infer_current_arch
from tilelang.carver.cost import BANDWIDTH_SHARE, LATENCY_CLOCKS

MOST_BYTES, LEAST_BYTES = 2.0**31, 2.0**21
EXCHANGE_CLOCKS = 400
"""Of a reduction of threads in several warps. Assumed."""
INSTRUCTIONS, LANES = 16, 128
"""Of an element, assumed; and how many lanes of a multiprocessor issue one in a clock (CUDA C++
Programming Guide, Compute Capability 9.x: four schedulers of 32 lanes)."""
TILES = [
    {"block_M": block_M, "threads": threads}
    for block_M in (1, 2, 4, 8, 16, 32)
    for threads in (64, 128, 256, 512, 1024)
]
BOUNDS = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 8e-3}
KERNELS = ("softmax", "rms_norm", "rms_residual", "layer_residual", "gelu", "quantize", "silu_fp8")


def draw_rows(draw):
    """Tokens of a step, or of a batch, and widths of layers."""

    def make():
        return {"rows": draw.size(1, 131072), "width": draw.size(64, 32768, 64)}

    def fits(s):
        least = 0 if draw.small else LEAST_BYTES
        return least <= 2.0 * s["rows"] * s["width"] <= MOST_BYTES / 4

    kind = draw.choice(KERNELS)
    dtypes = (
        ("bfloat16", "float16", "float32") if kind in ("softmax", "rms_norm") else ("bfloat16",)
    )
    return {"kernel": kind, **draw.until(make, fits), "dtype": draw.choice(dtypes)}


def seconds_of(shape, width_bytes, tensors, moved):
    """A model of kernels that keep rows in registers, for a configuration."""
    arch, rows, width = auto_infer_current_arch(), shape["rows"], shape["width"]
    speeds = arch.speeds

    def seconds(config):
        block_M, threads = config.get("block_M", 1), config["threads"]
        elements = block_M * width / threads
        # A number of float32 for each element besides the tensors.
        registers = 24 + elements * (1 + tensors * width_bytes / 4)
        room = arch.blocks_per_sm(threads, 0, math.ceil(registers))
        if not room:
            # Some of it is kept in local memory.
            return 1e3 * registers
        blocks = math.ceil(rows / block_M)
        resident = min(blocks, speeds.sms * room)
        latency = (2 * LATENCY_CLOCKS + EXCHANGE_CLOCKS) / speeds.clock
        flight = min(resident * block_M, rows) * width * width_bytes * tensors
        reached = min(BANDWIDTH_SHARE * speeds.bandwidth, flight / latency)
        waves = blocks / resident
        tail = math.ceil(waves) / waves if waves < 8 else 1.0
        # Of the multiprocessor that has most of them.
        lanes = min(LANES, threads * math.ceil(resident / speeds.sms))
        most = math.ceil(waves) * math.ceil(resident / speeds.sms) * block_M * width
        issue = most * INSTRUCTIONS / lanes / speeds.clock
        return max(moved / reached * tail, issue) + latency

    return seconds


def torch_scaled(value):
    """Rows as 8-bit floats with a scale each."""
    scale = value.abs().amax(1, keepdim=True).clamp(min=1e-4) / 448
    return (value / scale).to(torch.float8_e4m3fn), scale


def torch_norm(total, w, bias, centred, epsilon):
    """Of a sum."""
    if centred:
        return torch.nn.functional.layer_norm(total, w.shape, w, bias, epsilon)
    return torch.nn.functional.rms_norm(total, w.shape, w, epsilon)


def relative(found, wanted, bound):
    """Of pairs of results, the largest error."""
    return max(norm_error(x, y) for x, y in zip(found, wanted, strict=True)), bound


def softmax(shape, dtype):
    own, name = example("softmax"), str(dtype)
    rows, width = shape["rows"], shape["width"]
    return {
        "program": own.softmax,
        "arguments": {"M": rows, "N": width, "dtype": dtype},
        "inputs": lambda device: [torch.randn(rows, width, device=device).to(dtype.as_torch())],
        "error": lambda a, found: (norm_error(found, a[0].double().softmax(1)), BOUNDS[name]),
        "baseline": lambda a: a.softmax(1),
        "tensors": 1,
        "moved": 2,
    }


def rms_norm(shape, dtype):
    """A row in registers."""
    own, name = example("rms_norm"), str(dtype)
    rows, width = shape["rows"], shape["width"]

    def torch_rms(a, w):
        return torch.nn.functional.rms_norm(a, (width,), w, own.EPSILON)

    def error(given, found):
        return norm_error(found, torch_rms(*(x.double() for x in given))), BOUNDS[name]

    return {
        "program": own.rms_norm,
        "arguments": {"M": rows, "N": width, "dtype": dtype, "block_N": width},
        "inputs": lambda device: [
            torch.randn(size, device=device).to(dtype.as_torch()) for size in ((rows, width), width)
        ],
        "error": error,
        "baseline": torch_rms,
        "tensors": 1,
        "moved": 2,
    }


def residual(shape, centred):
    own, rows, width = example("norm_residual"), shape["rows"], shape["width"]

    def inputs(device):
        shapes = ((rows, width), (rows, width), (width,), (width,))
        return [torch.randn(size, device=device).bfloat16() for size in shapes]

    def torch_forward(x, y, w, bias):
        total = x + y
        return total, torch_norm(total, w, bias, centred, own.EPSILON)

    def error(given, found):
        return relative(found[:2], own.reference(*given, centred), BOUNDS["bfloat16"])

    return {
        "program": own.forward,
        "arguments": {"N": width, "centred": centred},
        "inputs": inputs,
        "error": error,
        "baseline": torch_forward,
        "tensors": 2,
        "moved": 4,
    }


def gelu(shape):
    own, rows, width = example("elementwise"), shape["rows"], shape["width"]

    def torch_gated(a, b):
        return torch.nn.functional.gelu(a, approximate="tanh") * b

    def error(given, found):
        wanted = torch_gated(*(x.double() for x in given))
        return norm_error(found, wanted), BOUNDS["bfloat16"]

    return {
        "program": own.gated,
        "arguments": {},
        "configs": [
            {"block_M": m, "block_N": n, "threads": threads}
            for m, n, threads in ((32, 128, 128), (8, 512, 128), (4, 1024, 256), (16, 256, 256))
        ],
        "inputs": lambda device: [
            torch.randn(rows, width, device=device).bfloat16() for _ in range(2)
        ],
        "error": error,
        "baseline": torch_gated,
        "tensors": 2,
        "moved": 3,
    }


def quantize(shape, gated):
    own, rows, width = example("quantize_tokens"), shape["rows"], shape["width"]

    def torch_quantize(x):
        value = x
        if gated:
            gate, up = x.chunk(2, dim=1)
            value = torch.nn.functional.silu(gate) * up
        return torch_scaled(value)

    def error(given, found):
        value, scales = own.reference(given[0], gated)
        y, found_scales = found
        # Of 8-bit floats, whose fraction has three bits.
        return relative((y.double() * found_scales[:, None], found_scales), (value, scales), 4e-2)

    columns = width * (2 if gated else 1)
    return {
        "program": own.quantize_tokens,
        "arguments": {"width": width, "gated": gated},
        "configs": [{"threads": n} for n in (64, 128, 256, 512, 1024)],
        "inputs": lambda device: [torch.randn(rows, columns, device=device).bfloat16()],
        "error": error,
        "baseline": torch_quantize,
        "tensors": 2 if gated else 1,
        "moved": 2.5 if gated else 1.5,
    }


def parts_of(shape):
    """What the row of a kernel is made of."""
    kind, dtype = shape["kernel"], T.dtype(shape["dtype"])
    if kind == "softmax":
        return softmax(shape, dtype)
    if kind == "rms_norm":
        return rms_norm(shape, dtype)
    if kind == "gelu":
        return gelu(shape)
    if kind in ("quantize", "silu_fp8"):
        return quantize(shape, kind == "silu_fp8")
    return residual(shape, kind == "layer_residual")


def row(shape, top):
    """One kernel's, by the model of rows in registers, beside torch's functions."""
    parts, width_bytes = parts_of(shape), T.dtype(shape["dtype"]).as_torch().itemsize
    moved = parts.pop("moved") * shape["rows"] * shape["width"] * width_bytes
    seconds = seconds_of(shape, width_bytes, parts.pop("tensors"), moved)
    configs = best(parts.pop("configs", TILES), seconds, top)
    sizes = f"{shape['kernel']} {shape['rows']} x {shape['width']} {shape['dtype']}"
    return Row(name=sizes, config=configs[0], configs=configs, work=moved, unit="GB/s", **parts)


FAMILIES = {"rows": Family(draw_rows, row)}
