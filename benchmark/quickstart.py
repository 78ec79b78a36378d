"""What the quickstart's GEMM costs: import, compilation, emulation, on a GPU its error and speed.

Prints a table, or JSON with --json. Everything that is called cold runs in a process and with a
cache directory of its own.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time
from typing import NamedTuple

from fresh import measure_fresh

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))

BLOCK = (128, 128, 32)
SIZES = [(1024,) * 3, (4096,) * 3, (1000, 777, 333), (1000, 776, 336), (1, 1, 1)]


class Row(NamedTuple):
    """One line of the table; `wanted` is the bound to meet, in the same unit."""

    what: str
    measured: float
    unit: str
    wanted: str


def import_share() -> float:
    """Seconds that `import tilelang` takes where torch and tvm are imported already."""
    import torch  # noqa: F401
    import tvm  # noqa: F401

    start = time.perf_counter()
    import tilelang  # noqa: F401

    return time.perf_counter() - start


def cold_compile() -> dict[str, float]:
    """Seconds from the Python function to source text, from there to a cubin, and both."""
    import quickstart

    import tilelang
    from tilelang.cuda.nvrtc import compile_cubin

    target = "cuda -arch=sm_90a"
    start = time.perf_counter()
    artifact = tilelang.lower(quickstart.matmul.get_tir(4096, 4096, 4096, *BLOCK), target=target)
    lowered = time.perf_counter()
    compile_cubin(artifact.kernel_source, "sm_90a", [k.name for k in artifact.launch_plan.kernels])
    end = time.perf_counter()
    return {"lower": lowered - start, "nvrtc": end - lowered, "all": end - start}


def cold_emulation() -> float:
    """Seconds from the Python function to the result of the 512 GEMM on the CPU."""
    import quickstart
    import torch

    a, b = (torch.ones(512, 512, dtype=torch.float16) for _ in range(2))
    start = time.perf_counter()
    result = quickstart.matmul(512, 512, 512, *BLOCK)(a, b)
    elapsed = time.perf_counter() - start
    assert torch.all(result == 512)
    return elapsed


def torch_ratio(**pass_configs: bool) -> float:
    """Our speed at 4096 over torch.matmul's: medians of calls that alternate in one process."""
    import quickstart
    import torch

    import tilelang

    configs = {f"tl.{name}": value for name, value in pass_configs.items()}
    matmul = tilelang.jit(quickstart.matmul.func, out_idx=[-1], pass_configs=configs)
    kernel = matmul(4096, 4096, 4096, *BLOCK)
    a, b = (torch.randn(4096, 4096, dtype=torch.float16, device="cuda") for _ in range(2))
    times: dict[str, list[float]] = {"ours": [], "torch": []}
    for repeat in range(60):
        for name, function in (("ours", kernel), ("torch", torch.matmul)):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            function(a, b)
            end.record()
            end.synchronize()
            if repeat >= 10:
                times[name].append(begin.elapsed_time(end))
    return statistics.median(times["torch"]) / statistics.median(times["ours"])


def relative_errors() -> dict[str, float]:
    """Relative error against float64 at each size."""
    import quickstart

    return {
        str(size): quickstart.relative_error(quickstart.matmul(*size, *BLOCK), *size, "cuda")
        for size in SIZES
    }


FRESH = {f.__name__: f for f in (import_share, cold_compile, cold_emulation)}


def median_fresh(name: str, repeat: int) -> dict[str, float]:
    """The medians over several processes, by key."""
    runs = [measure_fresh(__file__, name) for _ in range(repeat)]
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def measure(repeat: int) -> list[Row]:
    """All rows that this machine can measure; the short ones are medians of `repeat` processes."""
    import torch

    share = statistics.median(measure_fresh(__file__, "import_share") for _ in range(repeat))
    compiled = median_fresh("cold_compile", repeat)
    emulated = measure_fresh(__file__, "cold_emulation", TILELANG_EXECUTION_BACKEND="emulate")
    rows = [
        Row("import tilelang beyond torch and tvm", share, "s", "< 0.3"),
        Row("GEMM, cold: trace and lower", compiled["lower"], "s", "< 0.15"),
        Row("GEMM, cold: NVRTC", compiled["nvrtc"], "s", "< 0.3"),
        Row("GEMM, cold: all", compiled["all"], "s", "< 0.6"),
        Row("emulator, 512 GEMM with compilation", emulated, "s", "< 3"),
    ]
    if torch.cuda.is_available():
        for size, error in relative_errors().items():
            rows.append(Row(f"relative error at {size}", error, "", "< 1e-3"))
        ratio = torch_ratio(disable_wgmma=True)
        rows.append(Row("4096 GEMM by mma.sync, speed over torch", ratio, "", ">= 0.45"))
        rows.append(Row("4096 GEMM, speed over torch", torch_ratio(), "", ">= 0.45"))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print a list of objects")
    parser.add_argument("--repeat", type=int, default=5, help="processes a median is taken of")
    parser.add_argument("--fresh", choices=sorted(FRESH), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fresh:
        print(json.dumps(FRESH[arguments.fresh]()))
        return
    rows = measure(arguments.repeat)
    if arguments.json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
        return
    print(f"{'what':<42} {'measured':>12} {'wanted':>10}")
    for row in rows:
        print(f"{row.what:<42} {row.measured:>10.3g} {row.unit:<1} {row.wanted:>10}")


if __name__ == "__main__":
    main()
