"""The published families' programs at full size, beside what the chip allows and beside torch.

The bound is the longer of the program's FLOP at the speed of a bfloat16 product by torch and of its
bytes at the speed of a large copy, both measured in this process. Calls find no lines in the L2
cache that another kernel has written (`clean_flush` of `do_bench`). Each program is checked at a
small size against its reference before it is timed, and at full size against torch where torch has
the function. All are compiled first, in processes beside each other. What fails says so in its row,
and the next row is measured in a new process: a GPU runs nothing more for one that it has faulted.

`--compile-only` and `--emulate` need no GPU.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import program_attention
import program_others
import torch
from common import norm_error
from program_cases import TARGET, Case, Program

import tilelang
from tilelang.profiler import compare

ROUNDS, TURN_MS = 3, 20
PROGRAMS = {**program_attention.PROGRAMS, **program_others.PROGRAMS}


def build(make: Callable[[], Program]) -> dict[str, Any]:
    """Compile a program's kernels into the cache; registers, spilled bytes and seconds."""
    start = time.perf_counter()
    tilelang.set_log_level("WARNING")
    program = make()
    usages = [use for k in program.kernels(program.full) for use in k.resource_usage.values()]
    for kernel in program.kernels(program.small):
        assert kernel.n_regs  # is in the cache
    return {
        "registers": [usage.registers for usage in usages],
        "spilled": [usage.spill_stores + usage.spill_loads for usage in usages],
        "seconds": time.perf_counter() - start,
    }


def attempt(work: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """What `work` finds, or what went wrong: the table goes on behind a program that fails."""
    try:
        return work(*args)
    except Exception as error:  # noqa: BLE001
        return {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}


def attempt_build(make: Callable[[], Program]) -> dict[str, Any]:
    """`build`, or what went wrong."""
    return attempt(build, make)


def errors(found: Any, wanted: Any) -> list[float]:
    """The relative error of each result that is wanted."""
    return [norm_error(x, y) for x, y in zip(found, wanted, strict=False)]


def check(program: Program, case: Case, wanted: Any, what: str) -> float:
    """The largest relative error of a call's results. Raises ValueError above the bound."""
    error = max(errors(case.ours(), wanted))
    if not error < program.bound:
        raise ValueError(f"{what}: relative error {error:.1e}, wanted under {program.bound:.1e}")
    return error


def check_small(program: Program, device: str) -> float:
    """The error of the small sizes."""
    case = program.case(program.kernels(program.small), device, **program.small)
    # What the reference leaves may be an input of ours.
    wanted = case.reference()
    return check(program, case, wanted, "at a small size")


def chip_speeds() -> tuple[float, float]:
    """FLOP and bytes in a millisecond: of a product, and of a copy, that reads and writes each."""
    a, b = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = compare(
        {"product": lambda: a @ b, "copy": lambda: target.copy_(source)}, TURN_MS, ROUNDS
    ).medians
    return 2.0 * 8192**3 / times["product"], 2.0 * len(source) / times["copy"]


def measure(make: Callable[[], Program], speeds: tuple[float, float]) -> dict[str, Any]:
    """Check a program and time it; microseconds of ours, of the bound, of torch."""
    tilelang.set_log_level("WARNING")
    torch.manual_seed(0)
    torch.cuda.empty_cache()
    program = make()
    error = check_small(program, "cuda")
    case = program.case(program.kernels(program.full), "cuda", **program.full)
    functions = {"ours": case.ours}
    if case.baseline:
        check(program, case, case.baseline(), "at full size, beside torch")
        functions["torch"] = case.baseline
    times = compare(functions, TURN_MS, ROUNDS, clean_flush=True).medians
    flops, moved = program.work(**program.full)
    limits = {"FLOP": flops / speeds[0], "bytes": moved / speeds[1]}
    by = max(limits, key=limits.__getitem__)
    return {
        "error": error,
        "ours": 1e3 * times["ours"],
        "bound": 1e3 * limits[by],
        "by": by,
        "ratio": limits[by] / times["ours"],
        "torch": 1e3 * times["torch"] if case.baseline else None,
    }


class Apart:
    """A process that measures, replaced when something fails in it."""

    def __init__(self) -> None:
        self._process: concurrent.futures.ProcessPoolExecutor | None = None

    def call(self, work: Callable[..., Any], *args: Any) -> Any:
        """What `work` returns there. Raises what it raises, and BrokenProcessPool where the process
        ends."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._process = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
        try:
            return self._process.submit(work, *args).result()
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.shutdown()
            self._process = None


HEAD = (
    f"{'program':<43} {'lines':>5} {'registers':>9} {'spilled':>9} {'ours us':>9} {'bound us':>9} "
    f"{'':<5} {'ratio':>6} {'torch us':>9}  size"
)


def line(program: Program, found: dict[str, Any]) -> str:
    """A line of the table."""
    numbers = "/".join(str(n) for n in found.get("registers", ["-"]))
    spilled = "/".join(str(n) for n in found.get("spilled", ["-"]))
    begin = f"{program.name:<43} {program.lines:>5} {numbers:>9} {spilled:>9}"
    if "failed" in found:
        return f"{begin} {found['failed']}"
    if "ours" not in found:
        return f"{begin} {'':>51}  {program.size}"
    beside = "-" if found["torch"] is None else f"{found['torch']:.1f}"
    return (
        f"{begin} {found['ours']:>9.1f} {found['bound']:>9.1f} {found['by']:<5} "
        f"{found['ratio']:>6.3f} {beside:>9}  {program.size}"
    )


def compile_all(makers: dict[str, Callable[[], Program]], jobs: int) -> dict[str, dict[str, Any]]:
    """Compile programs in processes of their own."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as processes:
        return dict(zip(makers, processes.map(attempt_build, makers.values()), strict=True))


def emulate(programs: dict[str, Program]) -> None:
    """Check the small sizes in the emulator."""
    os.environ["TILELANG_EXECUTION_BACKEND"] = "emulate"
    os.environ.setdefault("TILELANG_DEFAULT_TARGET", TARGET)
    failed = []
    for name, program in programs.items():
        done = attempt(lambda p=program: {"error": check_small(p, "cpu")})
        said = done.get("failed") or f"relative error {done['error']:.1e}"
        print(f"{program.name:<43} {said}", flush=True)
        failed += [name] if "failed" in done else []
    end(failed)


def end(failed: list[str]) -> None:
    """End with status 1 if any program failed."""
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def main(makers: dict[str, Callable[[], Program]], description: str | None) -> None:
    """Compile, check, measure and print."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--compile-only", action="store_true", help="registers and spills alone")
    parser.add_argument("--emulate", action="store_true", help="check small sizes, time nothing")
    parser.add_argument("--only", default="", help="programs whose key this expression finds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile")
    parser.add_argument("--output", type=pathlib.Path, help="directory for the details, as JSON")
    arguments = parser.parse_args()
    tilelang.set_log_level("WARNING")
    makers = {name: make for name, make in makers.items() if re.search(arguments.only, name)}
    if not makers:
        raise SystemExit(f"no program's key matches {arguments.only!r}")
    programs = {name: make() for name, make in makers.items()}
    if arguments.emulate:
        emulate(programs)
        return
    timed = not arguments.compile_only
    if arguments.compile_only:
        os.environ.setdefault("TILELANG_DEFAULT_TARGET", TARGET)
    if timed and not torch.cuda.is_available():
        raise SystemExit(
            "found no GPU, wanted one to time kernels on; --compile-only and --emulate need none"
        )
    start = time.perf_counter()
    found = compile_all(makers, arguments.jobs)
    print(f"compiled in {time.perf_counter() - start:.0f} s")
    apart = Apart()
    if timed:
        speeds = apart.call(chip_speeds)
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: ", end="")
        print(f"{speeds[0] * 1e-9:.0f} TFLOP/s, {speeds[1] * 1e-6:.0f} GB/s")
    print(HEAD)
    for name, program in programs.items():
        if timed and "failed" not in found[name]:
            found[name].update(attempt(apart.call, measure, makers[name], speeds))
        print(line(program, found[name]), flush=True)
    apart.close()
    print(f"{time.perf_counter() - start:.0f} s in all")
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / f"{pathlib.Path(sys.argv[0]).stem}.json").write_text(
            json.dumps(found, indent=2)
        )
    end([name for name in makers if "failed" in found[name]])


if __name__ == "__main__":
    main(PROGRAMS, __doc__)
