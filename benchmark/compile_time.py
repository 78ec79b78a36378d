"""What compiling the quickstart's GEMM and attention forward costs on one core, cold, and where the
time goes.

Runs in new processes with empty caches. Needs no GPU. The processor's time is what the clock says
where nobody else uses the core.
"""

import argparse
import json
import logging
import os
import pathlib
import statistics
import sys
import time

import torch
from common import EXAMPLES, compile_as_for_an_h200, example
from fresh import measure_fresh

TARGET = "cuda -arch=sm_90a"

GEMM = (4096, 4096, 4096, 128, 128, 32)
SIZES = {"batch": 8, "heads": 32, "length": 4096, "dim": 128, "causal": True}
CONFIG = {"block_M": 128, "block_N": 128, "num_stages": 2, "threads": 256}


def use_one_core():
    """Keep this process to the first core that it may use."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


class Passes(logging.Handler):
    """Milliseconds of each pass, which TILELANG_PASS_PROFILE has logged."""

    def __init__(self):
        super().__init__()
        self.milliseconds = {}

    def emit(self, record):
        if isinstance(record.args, tuple) and record.msg.startswith("pass "):
            name, milliseconds = record.args
            self.milliseconds[name] = self.milliseconds.get(name, 0.0) + milliseconds


def gemm():
    """The quickstart's function under `tilelang.jit`, and what traces it."""
    sys.path.insert(0, str(EXAMPLES))
    import quickstart

    return quickstart.matmul, lambda: quickstart.matmul.get_tir(*GEMM)


def attention():
    """The same of attention forward."""
    program = example("flash_attention").flash_attention
    return program, lambda: program.get_tir(**SIZES, **CONFIG)


# With the milliseconds that are wanted.
KERNELS = {"gemm": (gemm, 100.0), "attention": (attention, 350.0)}


def compile_cold(name):
    """Milliseconds that tracing, lowering and NVRTC take, and all; and those of each pass. What a
    process pays for its first tensor on a GPU is not among them."""
    use_one_core()
    compile_as_for_an_h200()
    if torch.cuda.is_available():
        torch.cuda.init()
    program, trace = KERNELS[name][0]()

    import tilelang
    from tilelang.cuda.nvrtc import compile_cubin
    from tilelang.utils.log import logger

    passes = Passes()
    logger.addHandler(passes)
    start = time.process_time()
    func = trace()
    traced = time.process_time()
    configs = program.pass_configs or {}
    with tilelang.transform.PassContext(config=configs):
        artifact = tilelang.lower(func, target=TARGET)
    lowered = time.process_time()
    names = [kernel.name for kernel in artifact.launch_plan.kernels]
    fast_math = bool(configs.get(tilelang.PassConfigKey.TL_ENABLE_FAST_MATH))
    compiled = compile_cubin(artifact.kernel_source, "sm_90a", names, fast_math=fast_math)
    usage = compiled.resource_usage
    end = time.process_time()
    return {
        "trace": 1e3 * (traced - start),
        "lower": 1e3 * (lowered - traced),
        "NVRTC": 1e3 * (end - lowered),
        "all": 1e3 * (end - start),
        "registers": max(found.registers for found in usage.values()),
        "passes": passes.milliseconds,
    }


def measure(name, repeat):
    """The medians over several processes."""
    runs = [measure_fresh(__file__, name, TILELANG_PASS_PROFILE="1") for _ in range(repeat)]
    found = {
        key: statistics.median(run[key] for run in runs)
        for key in ("trace", "lower", "NVRTC", "all")
    }
    names = runs[0]["passes"]
    found["passes"] = {
        name: statistics.median(run["passes"][name] for run in runs) for name in names
    }
    return found


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="processes a median is taken of")
    parser.add_argument("--output", type=pathlib.Path, help="directory for the details, as JSON")
    parser.add_argument("--only", choices=KERNELS, action="append", help="kernels, by default all")
    parser.add_argument("--fresh", choices=KERNELS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fresh:
        print(json.dumps(compile_cold(arguments.fresh)))
        return
    details = {}
    for name in arguments.only or KERNELS:
        found = details[name] = measure(name, arguments.repeat)
        print(f"{f'{name} for sm_90a, cold, one core':<46} {'ms':>8}")
        for key in ("trace", "lower", "NVRTC", "all"):
            print(f"{key:<46} {found[key]:>8.1f}")
        print(f"{'wanted':<46} {KERNELS[name][1]:>8.1f}")
        print("of the passes, by the clock:")
        for each, milliseconds in sorted(found["passes"].items(), key=lambda item: -item[1])[:12]:
            print(f"    {each:<42} {milliseconds:>8.1f}")
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "compile_time.json").write_text(json.dumps(details, indent=2))


if __name__ == "__main__":
    main()
