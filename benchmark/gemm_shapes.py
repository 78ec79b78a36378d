"""GEMM of any shape, B transposed, by the schedule that the cost model chooses, beside cuBLAS.

With ``--top K`` the model's first K schedules are tried, and the table says what the fastest of
them takes and how much slower the model's own choice is. `draw.py` draws shapes at random.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import multiprocessing
import os
import pathlib
import statistics
from concurrent.futures import ProcessPoolExecutor

import torch
from common import Row, checked_error, emulate, example

import tilelang
import tilelang.language as T
from tilelang.carver import schedules_of
from tilelang.carver.schedules import PANELS
from tilelang.profiler import compare

SIZES = [
    (5120, 5120, 5120),
    (4096, 14336, 4096),
    (6144, 6144, 6144),
    (4096, 4096, 4096),
    (256, 4096, 7168),
    (128, 7168, 2048),
    (32, 8192, 8192),
]
SMALL = (24, 264, 520)
REP, ROUNDS = 20, 5


@functools.cache
def counters(kernel, device):
    """Those of a kernel, made once: they are zero again behind each call."""
    return example("gemm_any_shape").counters(kernel, device)


def tried(size, dtype, top, clusters, panels):
    """The model's first `top` schedules; with `panels` the first two of them also with other orders
    of tiles; with `clusters` each also for clusters of two blocks, where these have tiles below
    each other."""
    found = schedules_of(*size, dtype)[:top]
    if panels:
        orders = itertools.product(found[:2], PANELS)
        found += [dataclasses.replace(s, panel=p) for s, p in orders if p != s.panel]
    if clusters:
        M, N, _ = size
        pairs = [s for s in found if s.blocks % 2 == 0 and (N if s.swap else M) > s.block_M]
        # A schedule counts the tiles of single blocks.
        found += [dataclasses.replace(s, cluster=2) for s in pairs if not s.shared_tiles]
    return found


def make_row(size, dtype, schedules):
    """A line of the table, with schedules as configurations."""
    gemm = example("gemm_any_shape")
    M, N, K = size
    configs = [gemm.parameters(schedule) for schedule in schedules]
    bound = torch.finfo(dtype.as_torch()).eps
    return Row(
        name=f"{M} x {N} x {K} {dtype}",
        program=gemm.matmul,
        arguments={"M": M, "N": N, "K": K, "dtype": dtype},
        config=configs[0],
        configs=configs,
        inputs=lambda device: gemm.inputs(M, N, K, dtype, device),
        error=lambda ab, found: (gemm.relative_error(*ab, found), bound),
        work=2.0 * M * N * K,
        baseline=lambda a, b: a @ b.T,
        call=lambda kernel, a, b: kernel(a, b, *counters(kernel, a.device)),
    )


def keep(call):
    """Compiles a kernel in this process, for the cache that other processes look into."""
    tilelang.set_log_level("WARNING")
    example("gemm_any_shape").matmul.par_compile([call], ignore_error=True)


def compile_all(rows):
    """The kernels of all rows: a list for each row, with None for what does not compile, of which a
    line is printed. NVRTC compiles one program of a process at a time, so processes fill the cache
    of kernels first."""
    calls = [{**row.arguments, **config} for row in rows for config in row.configs]
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(len(calls), os.cpu_count() or 1), processes) as pool:
        list(pool.map(keep, calls))
    kernels = iter(rows[0].program.par_compile(calls, ignore_error=True))
    found = []
    for row in rows:
        found.append([])
        for config, kernel in zip(
            row.configs, itertools.islice(kernels, len(row.configs)), strict=True
        ):
            if isinstance(kernel, Exception):
                print(f"{row.name} {config}: {str(kernel).splitlines()[0]}")
            found[-1].append(None if isinstance(kernel, Exception) else kernel)
    return found


def measure(row, kernels, device):
    """Each kernel is checked, and takes turns with torch: times, by number and as "torch"."""
    torch.manual_seed(0)
    inputs = row.inputs(device)
    functions = {"torch": functools.partial(row.baseline, *inputs)}
    for number, kernel in enumerate(kernels):
        if kernel is not None:
            checked_error(row, kernel, inputs)
            functions[number] = functools.partial(row.call, kernel, *inputs)
    times = compare(functions, REP, ROUNDS).medians
    torch.cuda.empty_cache()
    return times


def line(row, schedules, times, kernels):
    """A row's result: speeds of the model's choice and of the fastest schedule tried."""
    ours = {number: ms for number, ms in times.items() if number != "torch"}
    best = min(ours, key=ours.__getitem__)
    scale = row.work * 1e-9
    kernel = kernels[best]
    return {
        "name": row.name,
        "ours": scale / times[best],
        "torch": scale / times["torch"],
        "ratio": times["torch"] / times[best],
        "model": times["torch"] / ours[0] if 0 in ours else 0.0,
        "expected": scale * 1e-3 / schedules[0].seconds,
        "place": best + 1,
        "schedule": dataclasses.asdict(schedules[best]),
        "kind": schedules[best].kind,
        "registers": kernel.n_regs,
        "spilled": kernel.n_spills,
        "ms": {str(name): ms for name, ms in times.items()},
    }


def print_line(found):
    """A line of the table."""
    schedule = found["schedule"]
    tile = f"{schedule['block_M']}x{schedule['block_N']}x{schedule['block_K']}"
    print(
        f"{found['name']:<30}{found['ours']:>7.0f}{found['torch']:>7.0f}{found['ratio']:>7.2f}"
        f"{found['model']:>7.2f}{found['expected']:>9.0f}{found['place']:>6}"
        f"  {tile} s{schedule['stages']} p{schedule['panel']}, {found['kind']}"
        + (f", {found['spilled']} bytes spilled" if found["spilled"] else ""),
        flush=True,
    )


def print_distribution(ratios):
    """Of ours over torch."""
    ordered = sorted(ratios)
    places = {"least": 0, "tenth": len(ordered) // 10, "quarter": len(ordered) // 4}
    shown = [f"{name} {ordered[place]:.2f}" for name, place in places.items()]
    shown.append(f"median {statistics.median(ordered):.2f}, most {ordered[-1]:.2f}")
    mean = statistics.geometric_mean(ordered)
    least = sum(ratio >= 1 for ratio in ordered)
    print(
        f"ours over torch: {', '.join(shown)}; geometric mean {mean:.2f}; "
        f"{least} of {len(ordered)} at least 1"
    )


def main():
    """Prints the table, or checks small shapes in the emulator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emulate", action="store_true", help="check small sizes, time nothing")
    parser.add_argument("--top", type=int, default=1, help="schedules of each shape to try")
    parser.add_argument("--clusters", action="store_true", help="try clusters of two blocks, too")
    parser.add_argument("--panels", action="store_true", help="try other orders of tiles, too")
    parser.add_argument("--size", type=int, nargs=3, action="append", help="M, N and K")
    parser.add_argument("--output", type=pathlib.Path, help="file for the details, as JSON")
    arguments = parser.parse_args()
    tilelang.set_log_level("WARNING")
    if arguments.emulate:
        os.environ.setdefault("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
        emulate([make_row(SMALL, T.bfloat16, schedules_of(*SMALL, T.bfloat16)[:1])])
        return
    if not torch.cuda.is_available():
        raise SystemExit("found no GPU, wanted one to time kernels on; --emulate checks them")
    shapes = [(tuple(size), T.bfloat16) for size in arguments.size or SIZES]
    options = arguments.top, arguments.clusters, arguments.panels
    choices = [tried(*shape, *options) for shape in shapes]
    rows = [make_row(*shape, choice) for shape, choice in zip(shapes, choices, strict=True)]
    kernels = compile_all(rows)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; TFLOP/s")
    print(f"{'':<30}{'ours':>7}{'torch':>7}{'ratio':>7}{'model':>7}{'expected':>9}{'place':>6}")
    found = []
    for row, choice, made in zip(rows, choices, kernels, strict=True):
        if any(kernel is not None for kernel in made):
            found.append(line(row, choice, measure(row, made, "cuda"), made))
            print_line(found[-1])
    print_distribution([each["ratio"] for each in found])
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
