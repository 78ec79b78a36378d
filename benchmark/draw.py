"""Families of kernels at shapes that are drawn at random, as servers and training meet them: the
distribution of torch's time over ours, or of that of the bytes.

The rows of the other benchmarks are samples; this asks about the rest. A shape is a function of the
family, the seed and its number. The cost model's first ``--top`` configurations are compiled, all
shapes' in processes beside each other, and then checked and timed in turns with torch; the fastest
counts. While a family's shapes are timed, those of the next one are compiled. What an example
refuses, or computes wrong, is a row that failed, and counts as such. The limit of a row that is
measured against its bytes is their time at the speed of a large copy, and that of an empty launch;
the time of the bytes alone is in the output. Such a row's calls find no lines in the L2 cache that
another kernel has written (`clean_flush` of `do_bench`).
Where torch takes larger operands only, its time is that of the product of such operands; beside it
stands that of a call which pads A, as a server's has to (weights are padded once). Where the result
has longer rows for that, too, there also stands the time of a call that takes what ours takes and
returns what ours returns: it pads A, if it has to, and makes the result contiguous. The ratio that
counts is the first of these, without both.

``--dry``, which is also what happens without a GPU, compiles for sm_90a and times nothing;
``--emulate`` draws small shapes and checks them in the emulator.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import json
import multiprocessing
import os
import pathlib
import statistics
import threading
import time
from collections import Counter

import draw_attention
import draw_products
import draw_rows
import torch
from draw_family import Draw, name_of
from program_cases import TARGET
from programs import Apart, attempt, chip_speeds

import tilelang
from tilelang.profiler import compare

FAMILIES = {**draw_products.FAMILIES, **draw_attention.FAMILIES, **draw_rows.FAMILIES}
ROUNDS, TURN_MS, WARM_MS = 4, 8, 2
WORST = 5


def shape_of(family, seed, index, small=False):
    """A shape, a function of these."""
    return FAMILIES[family].draw(Draw(family, seed, index, small))


def row_of(family, seed, index, top, small=False):
    """Its row."""
    return FAMILIES[family].row(shape_of(family, seed, index, small), top)


def words(error):
    """What an exception says, in a line."""
    said = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {said[0]}"


def build(family, seed, index, number, top):
    """Compile a shape's configuration of that number into the cache, or with -1 what is beside
    it."""
    tilelang.set_log_level("ERROR")
    start = time.perf_counter()
    try:
        if number < 0:
            FAMILIES[family].beside(shape_of(family, seed, index))
            return {}
        row = row_of(family, seed, index, top)
        kernel = row.kernel(row.configs[number])
        found = {"registers": kernel.n_regs, "spilled": kernel.n_spills}
    except Exception as error:  # noqa: BLE001
        found = {"refused": words(error)}
    return {**found, "seconds": time.perf_counter() - start}


def submit_all(pool, family, seed, count, top):
    """The compilations of each configuration of each shape, by both numbers, and why shapes have
    none, by the shape's number."""
    tasks, failed = {}, {}
    for index in range(count):
        shape = attempt(row_of, family, seed, index, top)
        if isinstance(shape, dict):
            failed[index] = shape["failed"]
            continue
        numbers = list(range(len(shape.configs)))
        if FAMILIES[family].beside:
            numbers.insert(0, -1)
        for number in numbers:
            tasks[index, number] = pool.submit(build, family, seed, index, number, top)
    return tasks, failed


def collect_all(tasks, failed, count, seconds):
    """What is known of each configuration of each shape, and of shapes without any; both by the
    shape's number. What is not compiled in time is refused."""
    left = min(seconds, threading.TIMEOUT_MAX)
    concurrent.futures.wait(tasks.values(), left)
    found, failed = {index: {} for index in range(count)}, dict(failed)
    for (index, number), task in tasks.items():
        late = {"refused": f"not compiled in {left:.0f} s"}
        result = task.result() if task.done() else late
        task.cancel()
        if number >= 0:
            found[index][number] = result
        elif "refused" in result:
            failed[index] = result["refused"]
    return found, failed


@contextlib.contextmanager
def poisoned():
    """Memory that torch hands out is full of NaN, or of the largest integer: what a kernel does not
    write is not the result of the kernel before."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def checked(row, kernel, inputs, config):
    """The relative error of a call. Raises ValueError above the bound."""
    with poisoned():
        result = row.call(kernel, *row.for_config(inputs, config))
    error, bound = row.error(inputs, result)
    if not error < bound:
        raise ValueError(f"relative error {error:.1e}, wanted under {bound:.1e}")
    return error


def limits():
    """FLOP and bytes in a millisecond, and the milliseconds of a launch that does nothing."""
    one = torch.zeros(1, device="cuda")
    empty = compare({"empty": one.zero_}, TURN_MS, ROUNDS, clean_flush=True).medians["empty"]
    return (*chip_speeds(), empty)


def measure(family, seed, index, top, numbers, limit, device="cuda", small=False):
    """Check the configurations of these numbers, and time them in turns with torch."""
    tilelang.set_log_level("ERROR")
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    row = row_of(family, seed, index, top, small)
    inputs = row.inputs(device)
    functions, wrong, errors = {}, {}, []
    for number in numbers:
        kernel = row.kernel(row.configs[number])
        try:
            errors.append(checked(row, kernel, inputs, row.configs[number]))
        except ValueError as error:
            wrong[number] = words(error)
            continue
        given = row.for_config(inputs, row.configs[number])
        functions[number] = functools.partial(row.call, kernel, *given)
    found = {"error": max(errors, default=None), "wrong": wrong}
    if row.baseline:
        others = row.baseline_inputs(device) if row.baseline_inputs else inputs
        call = functools.partial(row.baseline, *others)
        try:
            call()
            functions["torch"] = call
            if row.padded_baseline:
                functions["padded"] = functools.partial(row.padded_baseline, inputs, others)
            if row.contiguous_baseline:
                functions["contiguous"] = functools.partial(row.contiguous_baseline, inputs, others)
        except RuntimeError as error:
            found["torch_refused"] = words(error)
    if not any(number in functions for number in numbers):
        return found
    clean = row.baseline is None
    times = compare(functions, TURN_MS, ROUNDS, warmup=WARM_MS, clean_flush=clean).medians
    _, copy, empty = limit
    base = times.pop("torch", None) if row.baseline else row.work / copy + empty
    padded, contiguous = (times.pop(name, None) for name in ("padded", "contiguous"))
    fastest = min(times, key=times.__getitem__)
    return {
        **found,
        "ms": times[fastest],
        "base_ms": base,
        "base": "torch" if row.baseline else "bytes",
        "ratio": base / times[fastest] if base else None,
        "padded_ms": padded,
        "padded_ratio": padded / times[fastest] if padded else None,
        "contiguous_ms": contiguous,
        "contiguous_ratio": contiguous / times[fastest] if contiguous else None,
        "first_ratio": base / times[0] if base and 0 in times else None,
        "fastest": fastest,
        "all_ms": {str(number): ms for number, ms in times.items()},
        "bytes_ratio": None if row.baseline else row.work / copy / times[fastest],
        "speed": row.work / times[fastest],
    }


def described(family, seed, index, top):
    """A row before anything is known of it."""
    shape = shape_of(family, seed, index)
    found = {"family": family, "seed": seed, "index": index, "shape": shape}
    made = attempt(row_of, family, seed, index, top)
    if isinstance(made, dict):
        return {**found, "name": name_of(shape), "configs": []}
    return {**found, "name": made.name, "configs": made.configs}


def verdict_of(row):
    """What a row failed by, or nothing."""
    if "failed" in row:
        return row["failed"]
    refused = [c["refused"] for c in row["compiled"].values() if "refused" in c]
    if len(refused) == len(row["compiled"]):
        return f"refused: {refused[0]}" if refused else "refused: the model has no configuration"
    if row.get("wrong"):
        return f"wrong: {next(iter(row['wrong'].values()))}"
    return ""


def run(family, seed, arguments, compiled, failed, apart, limit, deadline):
    """All rows of a family and a seed, of which that is known, as far as the time goes."""
    count, top = arguments.count, arguments.top
    rows = []
    for index in range(count):
        row = described(family, seed, index, top)
        row["compiled"] = {str(number): what for number, what in compiled[index].items()}
        if index in failed:
            row["failed"] = f"refused: {failed[index]}"
        numbers = [n for n, what in compiled[index].items() if "refused" not in what]
        if time.perf_counter() > deadline:
            print(f"{family}, seed {seed}: no time left behind {index} of {count} shapes")
            break
        if apart and numbers and index not in failed:
            row.update(attempt(apart.call, measure, family, seed, index, top, numbers, limit))
        row["verdict"] = verdict_of(row)
        rows.append(row)
        if arguments.verbose or not apart:
            print_row(row)
    return rows


def run_all(groups, arguments, pool, apart, limit, deadline):
    """The rows of all families and seeds, a list for each. While one is timed, the next one is
    compiled."""
    count, top = arguments.count, arguments.top
    submitted = submit_all(pool, *groups[0], count, top)
    for number, (family, seed) in enumerate(groups, 1):
        start = time.perf_counter()
        if start > deadline:
            print(f"{family}, seed {seed}: no time left")
            continue
        compiled, failed = collect_all(*submitted, count, max(deadline - start, 1.0))
        spent = time.perf_counter() - start
        if number < len(groups):
            submitted = submit_all(pool, *groups[number], count, top)
        yield run(family, seed, arguments, compiled, failed, apart, limit, deadline)
        whole = time.perf_counter() - start
        print(f"{family}, seed {seed}: compiled in {spent:.0f} s, {whole:.0f} s in all", flush=True)


def config_text(row):
    """The configuration that counts: the fastest, or the model's first."""
    if not row["configs"]:
        return ""
    config = row["configs"][row.get("fastest", 0)]
    return " ".join(f"{name}={value}" for name, value in config.items())


def print_row(row):
    """A line."""
    if row["verdict"]:
        print(f"  {row['name']}: {row['verdict']}", flush=True)
        return
    if "ms" not in row:
        print(f"  {row['name']}: {config_text(row)}", flush=True)
        for number, what in row["compiled"].items():
            if "refused" in what or what.get("spilled"):
                said = what.get("refused") or f"spilled {what['spilled']} bytes"
                print(f"    {row['configs'][int(number)]}: {said}", flush=True)
        return
    ratio = f"{row['ratio']:>6.2f}" if row["ratio"] else f"{'-':>6}"
    first = f"{row['first_ratio']:>6.2f}" if row["first_ratio"] else f"{'-':>6}"
    base = f"{1e3 * row['base_ms']:>9.1f}" if row["base_ms"] else f"{'-':>9}"
    wholes, said = [], []
    for name, what in (("padded", "A padded"), ("contiguous", "the result made contiguous")):
        if row.get(f"{name}_ms"):
            wholes.append(what)
            said.append(
                f"{row[f'{name}_ratio']:.2f}, {1e3 * row[f'{name}_ms']:.1f} us with "
                f"{' and '.join(wholes)}"
            )
    padded = f"({'; '.join(said)}) " if said else ""
    print(
        f"  {ratio} {first} {1e3 * row['ms']:>9.1f} us {base} us {row['base']:<5} {padded}"
        f"{row['name']}: {config_text(row)}",
        flush=True,
    )


def summary(family, seed, rows):
    """The distribution of a family's rows for a seed."""
    ratios = sorted(row["ratio"] for row in rows if row.get("ratio") and not row["verdict"])
    failed = sum(bool(row["verdict"]) for row in rows)
    alone = sum("torch_refused" in row for row in rows)
    found = {"family": family, "seed": seed, "rows": len(rows), "failed": failed, "alone": alone}
    if ratios:
        tenth = ratios[len(ratios) // 10]
        median = statistics.median(ratios)
        found.update(median=median, tenth=tenth, worst=ratios[0], ratios=len(ratios))
    strict = sorted(row["bytes_ratio"] for row in rows if row.get("bytes_ratio"))
    if strict:
        found.update(strict_median=statistics.median(strict), strict_worst=strict[0])
    return found


HEAD = (
    f"{'family':<20}{'seed':>5}{'rows':>6}{'median':>8}{'p10':>6}{'worst':>7}{'wanted':>11}"
    f"{'failed':>8}{'torch failed':>14}"
)


def print_summary(rows, measured):
    """The table, then the worst rows of each family, and what failed."""
    print(HEAD if measured else f"{'family':<20}{'seed':>5}{'rows':>6}{'failed':>8}")
    groups = {}
    for row in rows:
        groups.setdefault((row["family"], row["seed"]), []).append(row)
    found = []
    for (name, seed), members in groups.items():
        line, family = summary(name, seed, members), FAMILIES[name]
        found.append(line)
        begin = f"{name:<20}{seed:>5}{line['rows']:>6}"
        if "median" not in line:
            print(f"{begin}{line['failed']:>8}")
            continue
        holds = line["median"] >= family.median and line["worst"] >= family.worst
        print(
            f"{begin}{line['median']:>8.2f}{line['tenth']:>6.2f}{line['worst']:>7.2f}"
            f"{family.median:>6.2f}/{family.worst:.2f}{line['failed']:>8}{line['alone']:>14}"
            f"{'' if holds and not line['failed'] else '  below'}"
        )
        if "strict_median" in line:
            print(
                f"{'':<20}by bytes alone: median {line['strict_median']:.2f}, "
                f"worst {line['strict_worst']:.2f}"
            )
    for name in dict.fromkeys(row["family"] for row in rows):
        print_worst(name, [row for row in rows if row["family"] == name], measured)
    return found


def print_worst(name, rows, measured):
    """Those of a family."""
    timed = [row for row in rows if row.get("ratio") and not row["verdict"]]
    failed = [row for row in rows if row["verdict"]]
    if timed:
        print(f"{name}: ratio, that of the model's first, ours, torch or bytes")
    for row in sorted(timed, key=lambda row: row["ratio"])[:WORST]:
        print_row(row)
    if failed and measured:
        print(f"{name}: failed")
        for row in failed:
            print_row(row)
    said = Counter(row["torch_refused"] for row in rows if "torch_refused" in row)
    for text, times in said.items():
        print(f"{name}: torch failed {times} times: {text}")


def emulate(families, seed, count):
    """Check small shapes in the emulator."""
    os.environ["TILELANG_EXECUTION_BACKEND"] = "emulate"
    os.environ.setdefault("TILELANG_DEFAULT_TARGET", TARGET)
    for family in families:
        for index in range(count):
            row = row_of(family, seed, index, 1, small=True)
            error = checked(row, row.kernel(row.config), row.inputs("cpu"), row.config)
            print(f"{family:<20}{row.name}: relative error {error:.1e}", flush=True)


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", action="append", choices=[*FAMILIES, "all"], help="repeatable")
    parser.add_argument("--seed", type=int, action="append", help="repeatable; 1 if none is given")
    parser.add_argument("--count", type=int, default=40, help="shapes of each family and seed")
    parser.add_argument("--top", type=int, default=3, help="configurations of a shape")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop behind so many")
    parser.add_argument(
        "--jobs",
        type=int,
        default=max(1, (os.cpu_count() or 1) - 2),
        help="processes that compile; by default two processors are left to what measures",
    )
    parser.add_argument("--dry", action="store_true", help="compile only")
    parser.add_argument("--emulate", action="store_true", help="check small shapes, time nothing")
    parser.add_argument("--verbose", action="store_true", help="print all rows")
    parser.add_argument("--output", type=pathlib.Path, help="file for all rows, as JSON")
    return parser.parse_args()


def main():
    """Draw, compile, measure, print."""
    arguments = parse()
    start = time.perf_counter()
    tilelang.set_log_level("ERROR")
    chosen = arguments.family or ["all"]
    families = list(FAMILIES) if "all" in chosen else chosen
    seeds = arguments.seed or [1]
    if arguments.emulate:
        emulate(families, seeds[0], arguments.count)
        return
    dry = arguments.dry or not torch.cuda.is_available()
    if dry:
        os.environ.setdefault("TILELANG_DEFAULT_TARGET", TARGET)
        print("compiled for sm_90a, not measured")
    rows, apart, limit = [], None if dry else Apart(), None
    if apart:
        limit = apart.call(limits)
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: ", end="")
        print(f"{limit[0] * 1e-9:.0f} TFLOP/s, {limit[1] * 1e-6:.0f} GB/s, ", end="")
        print(f"{1e3 * limit[2]:.1f} us for an empty launch", flush=True)
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, mp_context=spawn) as pool:
        groups = [(family, seed) for seed in seeds for family in families]
        for found in run_all(groups, arguments, pool, apart, limit, start + arguments.seconds):
            rows += found
            if arguments.output:
                arguments.output.write_text(json.dumps(rows, indent=1, default=str))
        pool.shutdown(cancel_futures=True)
    if apart:
        apart.close()
    found = print_summary(rows, not dry)
    if arguments.output:
        arguments.output.write_text(
            json.dumps({"summary": found, "rows": rows}, indent=1, default=str)
        )
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
