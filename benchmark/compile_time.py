"""What the compilation of attention costs on one core, cold, and where the time goes.

Runs in new processes with empty caches. Needs no GPU. The processor's time is what the clock says
where nobody else uses the core.
"""

import argparse
import json
import logging
import os
import pathlib
import statistics
import time

import torch
from common import example
from fresh import measure_fresh

TARGET = "cuda -arch=sm_90a"
WANTED_MS = 1000.0
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


def compile_attention():
    """Milliseconds that tracing, lowering and NVRTC take, and all; and those of each pass. What a
    process pays for its first tensor on a GPU is not among them."""
    use_one_core()
    if torch.cuda.is_available():
        torch.cuda.init()
    program = example("flash_attention").flash_attention

    import tilelang
    from tilelang.cuda.nvrtc import compile_cubin
    from tilelang.utils.log import logger

    passes = Passes()
    logger.addHandler(passes)
    start = time.process_time()
    func = program.get_tir(**SIZES, **CONFIG)
    traced = time.process_time()
    with tilelang.transform.PassContext(config=program.pass_configs):
        artifact = tilelang.lower(func, target=TARGET)
    lowered = time.process_time()
    names = [kernel.name for kernel in artifact.launch_plan.kernels]
    usage = compile_cubin(artifact.kernel_source, "sm_90a", names, fast_math=True).resource_usage
    end = time.process_time()
    return {
        "trace": 1e3 * (traced - start),
        "lower": 1e3 * (lowered - traced),
        "NVRTC": 1e3 * (end - lowered),
        "all": 1e3 * (end - start),
        "registers": max(found.registers for found in usage.values()),
        "passes": passes.milliseconds,
    }


def measure(repeat):
    """The medians over several processes."""
    runs = [
        measure_fresh(__file__, "compile_attention", TILELANG_PASS_PROFILE="1")
        for _ in range(repeat)
    ]
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
    parser.add_argument("--fresh", choices=["compile_attention"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fresh:
        print(json.dumps(compile_attention()))
        return
    found = measure(arguments.repeat)
    print(f"{'attention forward for sm_90a, cold, one core':<46} {'ms':>8}")
    for key in ("trace", "lower", "NVRTC", "all"):
        print(f"{key:<46} {found[key]:>8.1f}")
    print(f"{'wanted':<46} {WANTED_MS:>8.1f}")
    print("of the passes, by the clock:")
    for name, milliseconds in sorted(found["passes"].items(), key=lambda item: -item[1])[:12]:
        print(f"    {name:<42} {milliseconds:>8.1f}")
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "compile_time.json").write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
