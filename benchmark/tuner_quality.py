"""Do the suggestions of `tilelang.carver` contain a good configuration? Ten GEMMs, each searched
exhaustively: the best of ten suggestions beside the best of all."""

import argparse
import itertools
import json
import os
import pathlib
import time

import torch
from tuned_gemm import config_of, matmul, reference, supply

import tilelang
from tilelang.autotuner import AutoTuner
from tilelang.carver import CUDA, MatmulTemplate

SHAPES = [
    (16, 8192, 8192),
    (64, 4096, 8192),
    (128, 7168, 2048),
    (512, 4096, 4096),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 1024),
    (5120, 5120, 5120),
    (4096, 14336, 4096),
    (8192, 8192, 8192),
]
SMALL = [(64, 64, 64)]
SUGGESTIONS = 10
NEAR = 1.05
STAGES, PANELS, DEPTH = (2, 3, 4, 6), (0, 8), 64


def space(template, small):
    """All tiles that fit, with each number of threads, stages and order of the tiles."""
    hints = [hint for hint in template.candidates() if hint.seconds < float("inf")]
    configs = [config_of(hint) for hint in hints]
    found = [
        c
        for c in configs
        if c["num_stages"] in STAGES and c["panel"] in PANELS and c["block_K"] >= DEPTH
    ]
    if small:
        found = [c for c in found if c["num_stages"] == 2 and c["threads"] == 128]
        found = found[:: max(1, len(found) // 4)]
    return found


def without_repetition(configs):
    """Each configuration once, in order."""
    return [c for c, _ in itertools.groupby(sorted(configs, key=repr))]


def tuned(shape, configs):
    """The result of trying all; those that are clearly slower are given up."""
    tuner = AutoTuner.from_kernel(lambda **config: matmul.get_tir(*shape, **config), configs)
    tuner.set_compile_args(out_idx=-1)
    tuner.set_profile_args(ref_prog=reference, supply_prog=supply, rep=50, timeout=60)
    return tuner.run(early_stop=True, early_stop_factor=1.3)


def measure(shape, arch, small):
    """A shape's row: the best of all, and the best of the suggestions."""
    template = MatmulTemplate(*shape).with_arch(arch)
    suggested = [config_of(hint) for hint in template.recommend_hints(SUGGESTIONS)]
    if small:
        suggested = suggested[:2]
    configs = without_repetition([*space(template, small), *suggested])
    start = time.perf_counter()
    result = tuned(shape, configs)
    seconds = time.perf_counter() - start
    latencies = {repr(t.config): t.latency for t in result.trials if t.latency is not None}
    times = [latencies.get(repr(config)) for config in suggested]
    best = min((t for t in times if t is not None), default=float("inf"))
    return {
        "shape": shape,
        "tried": len(configs),
        "worked": len(latencies),
        "seconds": seconds,
        "best": result.latency,
        "config": result.config,
        "suggested": best,
        "place": times.index(best) + 1 if best in times else None,
        "ratio": best / result.latency,
        "trials": [vars(trial) for trial in result.trials],
        "suggestions": suggested,
    }


def main():
    """Measures all shapes, or a small one in the emulator, whose times are counts of statements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emulate", action="store_true", help="a small shape, claims nothing")
    parser.add_argument("--shape", type=int, nargs=3, help="M, N and K of one GEMM")
    parser.add_argument("--output", type=pathlib.Path, help="file for the details, as JSON")
    arguments = parser.parse_args()
    tilelang.set_log_level("ERROR")
    if arguments.emulate:
        os.environ["TILELANG_EXECUTION_BACKEND"] = "emulate"
        os.environ.setdefault("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    elif not torch.cuda.is_available():
        raise SystemExit("found no GPU, wanted one to time kernels on; --emulate runs a small one")
    arch = CUDA(os.environ.get("TILELANG_DEFAULT_TARGET", "auto"))
    shapes = SMALL if arguments.emulate else SHAPES
    if arguments.shape:
        shapes = [tuple(arguments.shape)]
    columns = f"{'tried':>6}{'s':>7}{'best':>12}{'suggested':>12}{'place':>7}{'ratio':>8}"
    print(f"{'M x N x K':<22}{columns}")
    found = []
    for shape in shapes:
        found.append(measure(shape, arch, arguments.emulate))
        row = found[-1]
        print(
            f"{' x '.join(map(str, shape)):<22}{row['tried']:>6}{row['seconds']:>7.1f}"
            f"{row['best']:>9.4f} ms{row['suggested']:>9.4f} ms{row['place'] or '-':>7}"
            f"{row['ratio']:>8.3f}",
            flush=True,
        )
        if arguments.output:
            arguments.output.write_text(json.dumps(found, indent=1))
    near = sum(row["ratio"] <= NEAR for row in found)
    print(f"{near} of {len(found)} have a suggestion within {NEAR - 1:.0%} of the best")


if __name__ == "__main__":
    main()
