"""Small programs as users write them, with the tiles, stages and threads of published kernels,
beside torch's call for the same.

A line: microseconds of ours and of torch's call, torch's time over ours, and the share of the limit
that ours reaches. The limit is the longer of the FLOP at the speed of a bfloat16 product by torch
and of the bytes at the speed of a large copy, each measured in this process. All are compiled
first, in parallel. Each result is checked against float64, and against torch's, before it is timed;
results are NaN before. A program that fails says so in its line, and the status is 1 then.

`--list` and `--compile-only` need no GPU.
"""

import argparse
import collections
import functools
import json
import os
import pathlib
import re
import statistics
import sys
import time

import plain_attention
import plain_products
import plain_rows
import plain_weights
import torch
from common import norm_error
from plain_case import Plain
from program_cases import TARGET
from programs import chip_speeds

import tilelang
from tilelang.profiler import compare

ROUNDS, TURN_MS, WARM_MS = 3, 4, 1
CASES = [
    *plain_products.cases(),
    *plain_weights.cases(),
    *plain_attention.cases(),
    *plain_rows.cases(),
]


def words(error):
    """What an exception says, in a line."""
    said = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {said[0]}"


def compile_all(cases, **options):
    """The kernel of each case, or why there is none."""
    alike = collections.defaultdict(list)
    for case in cases:
        alike[tuple(case.pass_configs.items())].append(case)
    found = {}
    for configs, group in alike.items():
        kernels = tilelang.par_compile(
            [case.make() for case in group],
            pass_configs=dict(configs),
            ignore_error=True,
            **options,
        )
        found.update(zip((case.name for case in group), kernels, strict=True))
    return found


def check(case, what, found, wanted, bound):
    """The relative error. Raises ValueError above the bound."""
    error = norm_error(found, wanted)
    if not error < bound:
        raise ValueError(f"relative error {error:.1e} to {what}, wanted under {bound:.1e}")
    return error


def limit_of(case, tensors, speeds):
    """Milliseconds that the chip takes for the FLOP or the bytes of a case."""
    problem = case.problem
    moved = sum(x.numel() * x.element_size() for x in tensors)
    return max(problem.flops / (problem.rate * speeds[0]), moved / speeds[1])


def measure(case, kernel, speeds, device):
    """Check a program and time it; what is known of it."""
    problem = case.problem
    torch.manual_seed(0)
    inputs = problem.inputs(device)
    others = problem.others(*inputs)
    theirs = problem.call(*others)
    result = torch.full_like(
        theirs, torch.nan, dtype=problem.dtype, memory_format=torch.contiguous_format
    )
    case.call(kernel, inputs, result)
    error = check(case, "float64", problem.part(result), problem.wanted(inputs), problem.bound)
    check(case, "torch's", result, theirs, 2 * problem.bound)
    functions = {
        "ours": functools.partial(case.call, kernel, inputs, result),
        "torch": functools.partial(problem.call, *others),
    }
    times = compare(functions, TURN_MS, ROUNDS, warmup=WARM_MS).medians
    limit = limit_of(case, [*inputs, result], speeds)
    return {
        "error": error,
        "registers": kernel.n_regs,
        "spilled": kernel.n_spills,
        "ours": 1e3 * times["ours"],
        "torch": 1e3 * times["torch"],
        "ratio": times["torch"] / times["ours"],
        "of_limit": limit / times["ours"],
    }


WIDTH = 52
HEAD = (
    f"{'program':<{WIDTH}} {'ours us':>9} {'torch us':>9} {'ratio':>6} {'of limit':>8} "
    f"{'registers':>9} {'spilled':>7}"
)


def line(name, found):
    """A line of the table."""
    if "failed" in found:
        return f"{name:<{WIDTH}} {found['failed']}"
    return (
        f"{name:<{WIDTH}} {found['ours']:>9.1f} {found['torch']:>9.1f} {found['ratio']:>6.2f} "
        f"{found['of_limit']:>8.2f} {found['registers']:>9} {found['spilled']:>7}"
    )


def attempt(case, kernel, speeds, device="cuda"):
    """`measure`, or what went wrong: the table goes on behind a program that fails."""
    if isinstance(kernel, Exception):
        return {"failed": words(kernel)}
    try:
        return measure(case, kernel, speeds, device)
    except (ValueError, RuntimeError, TypeError) as error:
        return {"failed": words(error)}


def print_table(cases, kernels):
    """Measure and print; what was found, by name."""
    speeds = chip_speeds()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: ", end="")
    print(f"{speeds[0] * 1e-9:.0f} TFLOP/s, {speeds[1] * 1e-6:.0f} GB/s")
    print(HEAD)
    found = {}
    for case in cases:
        found[case.name] = attempt(case, kernels[case.name], speeds)
        print(line(case.name, found[case.name]), flush=True)
        torch.cuda.empty_cache()
    ratios = [row["ratio"] for row in found.values() if "ratio" in row]
    if ratios:
        fast = sum(ratio >= 0.98 for ratio in ratios)
        print(f"{len(ratios)} programs, median {statistics.median(ratios):.2f}, ", end="")
        print(f"{fast} at 0.98 or more, least {min(ratios):.2f}")
    return found


def print_registers(cases, kernels):
    """What compiled, without a GPU."""
    found = {}
    for case in cases:
        kernel = kernels[case.name]
        if isinstance(kernel, Exception):
            found[case.name] = {"failed": words(kernel)}
            print(line(case.name, found[case.name]))
            continue
        found[case.name] = {"registers": kernel.n_regs, "spilled": kernel.n_spills}
        print(f"{case.name:<{WIDTH}} {kernel.n_regs:>9} {kernel.n_spills:>7}")
    return found


def main(cases: list[Plain], description: str | None) -> None:
    """Compile, check, measure and print."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default="", help="programs whose name this expression finds")
    parser.add_argument("--list", action="store_true", help="print names and do nothing")
    parser.add_argument("--compile-only", action="store_true", help="registers and spills alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="threads that compile")
    parser.add_argument("--output", type=pathlib.Path, help="directory for the details, as JSON")
    arguments = parser.parse_args()
    tilelang.set_log_level("ERROR")
    cases = [case for case in cases if re.search(arguments.only, case.name)]
    if not cases:
        raise SystemExit(f"no program's name matches {arguments.only!r}")
    if arguments.list:
        print("\n".join(case.name for case in cases))
        return
    if not arguments.compile_only and not torch.cuda.is_available():
        raise SystemExit(
            "found no GPU, wanted one to time kernels on; --list and --compile-only need none"
        )
    start = time.perf_counter()
    kernels = compile_all(cases, num_workers=arguments.jobs, target=TARGET)
    print(f"compiled in {time.perf_counter() - start:.0f} s")
    found = (print_registers if arguments.compile_only else print_table)(cases, kernels)
    print(f"{time.perf_counter() - start:.0f} s in all")
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        file = arguments.output / f"{pathlib.Path(sys.argv[0]).stem}.json"
        file.write_text(json.dumps(found, indent=2))
    if failed := [name for name, row in found.items() if "failed" in row]:
        raise SystemExit(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main(CASES, __doc__)
