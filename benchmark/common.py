"""What the benchmarks share: a row of a table, its check, its times beside torch's, the table.

A script makes rows and calls `main`. With a GPU each row is checked against its reference, then
ours and the baseline take turns in one process on the same inputs; without one the script says so
and fails, unless it is asked to emulate: then small sizes are checked and nothing is timed.
"""

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

import tilelang
from tilelang.profiler import compare

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
ROUNDS = 6
H200_PROCESSORS = 132

_processors: int | None = None


@dataclass
class Row:
    """A line of a table: a program of ours beside what it is measured against.

    `program` is called with `arguments` and a configuration, and `call` with the kernel and the
    inputs. `work` is what ours does in a call (FLOP or bytes), `baseline_work` what the baseline
    does; their speeds are compared. Without a `baseline`, `limit` tells the milliseconds that ours
    could take. `error` checks a result of ours: (relative error, bound). Where the baseline does
    not take ours' first operand and has a padded one, `padded_baseline` pads it in each call: it is
    called with ours' inputs and the baseline's. Where its result has longer rows than ours,
    `contiguous_baseline` does that where it has to, and copies the result to rows as ours has them.
    Where inputs depend on the configuration, `for_config` makes them of the others and of it.
    """

    name: str
    program: Any
    arguments: dict[str, Any]
    config: dict[str, Any]
    inputs: Callable[[str], list[Any]]
    error: Callable[[list[Any], Any], tuple[float, float]]
    work: float
    baseline: Callable[..., Any] | None = None
    baseline_work: float | None = None
    baseline_inputs: Callable[[str], list[Any]] | None = None
    padded_baseline: Callable[[list[Any], list[Any]], Any] | None = None
    contiguous_baseline: Callable[[list[Any], list[Any]], Any] | None = None
    limit: Callable[[list[Any]], float] | None = None
    wanted: float = 1.0
    configs: list[dict[str, Any]] = field(default_factory=list)
    call: Callable[..., Any] = lambda kernel, *inputs: kernel(*inputs)
    for_config: Callable[[list[Any], Mapping[str, Any]], list[Any]] = lambda inputs, config: inputs
    unit: str = "TFLOP/s"

    def kernel(self, config: Mapping[str, Any]) -> Any:
        """Ours, compiled with a configuration."""
        return self.program(**self.arguments, **config)


@functools.cache
def example(name: str) -> Any:
    """A module of a family in examples/, which may have the name of a benchmark."""
    (file,) = EXAMPLES.glob(f"*/{name}.py")
    spec = importlib.util.spec_from_file_location(f"example_{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # It finds its neighbours, as it does when it is started, and not benchmarks of their names.
    neighbours = {path.stem for path in file.parent.glob("*.py")}
    hidden = {key: sys.modules.pop(key) for key in neighbours & sys.modules.keys()}
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
        for key in neighbours:
            sys.modules.pop(key, None)
        sys.modules.update(hidden)
    if own := getattr(module, "processors", None):
        module.processors = lambda: _processors or own()
    return module


def compile_as_for_an_h200() -> None:
    """Give the persistent kernels of the examples as many blocks as an H200 has multiprocessors.

    The number decides about the program: whether each block has as many tiles, for one. What an
    example takes by itself is the GPU's number, and a few for the emulator.
    """
    global _processors
    _processors = H200_PROCESSORS


def norm_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """||found - wanted|| / ||wanted||"""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def checked_error(row: Row, kernel: Any, inputs: list[Any]) -> float:
    """The relative error of a kernel; more than the bound ends the benchmark."""
    error, bound = row.error(inputs, row.call(kernel, *inputs))
    if not error < bound:
        raise SystemExit(f"{row.name}: relative error {error:.1e}, wanted under {bound:.1e}")
    return error


def tune(row: Row, inputs: list[Any]) -> list[dict[str, Any]]:
    """Compile all configurations in parallel, check each and time them in turns: the fastest first.
    What does not compile stands at the end with the reason."""
    tried = [row.config, *(c for c in row.configs if c != row.config)]
    kernels = row.program.par_compile([{**row.arguments, **c} for c in tried], ignore_error=True)
    found: list[dict[str, Any]] = []
    functions = {}
    for number, (config, kernel) in enumerate(zip(tried, kernels, strict=True)):
        found.append({"config": config, "ms": float("inf")})
        if isinstance(kernel, Exception):
            found[-1]["failed"] = str(kernel).splitlines()[0]
            continue
        found[-1].update(registers=kernel.n_regs, spilled=kernel.n_spills)
        checked_error(row, kernel, inputs)
        functions[number] = functools.partial(row.call, kernel, *inputs)
    for number, milliseconds in compare(functions, 30, ROUNDS).medians.items():
        found[number]["ms"] = milliseconds
    return sorted(found, key=lambda entry: entry["ms"])


def side_by_side(
    row: Row, kernel: Any, inputs: list[Any], device: str, rest: float
) -> dict[str, float]:
    """Milliseconds of ours and of the baseline."""
    functions = {"ours": lambda: row.call(kernel, *inputs)}
    if row.baseline is None:
        assert row.limit is not None
        return {
            **compare(functions, rounds=ROUNDS, rest=rest).medians,
            "baseline": row.limit(inputs),
        }
    others = row.baseline_inputs(device) if row.baseline_inputs else inputs
    functions["baseline"] = functools.partial(row.baseline, *others)
    return compare(functions, rounds=ROUNDS, rest=rest).medians


def measure(row: Row, tuned: bool, device: str, rest: float = 0) -> dict[str, Any]:
    """Check a row and time it; all that is known about it."""
    inputs = row.inputs(device)
    trials = tune(row, inputs) if tuned else []
    config = trials[0]["config"] if trials else row.config
    kernel = row.kernel(config)
    error = checked_error(row, kernel, inputs)
    times = side_by_side(row, kernel, inputs, device, rest)
    speed = row.work / times["ours"] * SCALES[row.unit]
    baseline_work = row.work if row.baseline_work is None else row.baseline_work
    baseline = baseline_work / times["baseline"] * SCALES[row.unit]
    return {
        "name": row.name,
        "config": config,
        "error": error,
        "ms": times,
        "unit": row.unit,
        "speed": speed,
        "baseline": baseline,
        "ratio": speed / baseline,
        "wanted": row.wanted,
        "registers": kernel.n_regs,
        "spilled": kernel.n_spills,
        "trials": trials,
    }


# From work in a millisecond.
SCALES = {"TFLOP/s": 1e-9, "GB/s": 1e-6}


def emulate(rows: Iterable[Row]) -> None:
    """Check small sizes in the emulator, compiled as for an H200."""
    os.environ["TILELANG_EXECUTION_BACKEND"] = "emulate"
    os.environ.setdefault("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    for row in rows:
        error = checked_error(row, row.kernel(row.config), row.inputs("cpu"))
        print(f"{row.name:<52} relative error {error:.1e}", flush=True)


def print_row(found: Mapping[str, Any]) -> None:
    """A line of the table."""
    verdict = "" if found["ratio"] >= found["wanted"] else "  below"
    print(
        f"{found['name']:<52} {found['speed']:>8.0f} {found['baseline']:>8.0f} {found['unit']:<8}"
        f"{found['ratio']:>6.3f} {found['wanted']:>7.2f}{verdict}",
        flush=True,
    )


def main(description: str, make_rows: Callable[[bool], list[Row]]) -> None:
    """Measure the rows of `make_rows(False)`, or check those of `make_rows(True)`, the small ones,
    in the emulator."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--emulate", action="store_true", help="check small sizes, time nothing")
    parser.add_argument("--tune", action="store_true", help="try all configurations")
    parser.add_argument("--only", default="", help="rows whose name this regular expression finds")
    parser.add_argument("--rest", type=float, default=0, help="seconds to idle before each turn")
    parser.add_argument("--output", type=pathlib.Path, help="directory for the details, as JSON")
    arguments = parser.parse_args()
    tilelang.set_log_level("WARNING")
    rows = [row for row in make_rows(arguments.emulate) if re.search(arguments.only, row.name)]
    if not rows:
        raise SystemExit(f"no row's name matches {arguments.only!r}")
    if arguments.emulate:
        emulate(rows)
        return
    if not torch.cuda.is_available():
        raise SystemExit("found no GPU, wanted one to time kernels on; --emulate checks them")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'':<52} {'ours':>8} {'baseline':>8} {'':<8}{'ratio':>6} {'wanted':>7}")
    found = []
    for row in rows:
        torch.manual_seed(0)
        found.append(measure(row, arguments.tune, "cuda", arguments.rest))
        print_row(found[-1])
        torch.cuda.empty_cache()
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        file = arguments.output / f"{pathlib.Path(sys.argv[0]).stem}.json"
        file.write_text(json.dumps(found, indent=2, default=str))
