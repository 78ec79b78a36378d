"""What a tuning run has found, and its forms: a table, files, a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilelang.jit.kernel import JITKernel
from tilelang.utils.log import logger

_RESULT = "result.json"
_SOURCE = "device_kernel.cu"


@dataclass
class Trial:
    """What was found of one configuration.

    Attributes:
        config: the configuration.
        latency: milliseconds, in the emulator those of `session.NANOSECONDS_A_STATEMENT`; None
            where it failed.
        registers: of a thread.
        shared: bytes of a block's shared memory.
        spills: bytes of spill stores and loads of a thread.
        stopped: whether `latency` is only the estimate by which it was given up.
        failure: why it failed, empty where it did not.
    """

    config: dict[str, Any]
    latency: float | None = None
    registers: int | None = None
    shared: int | None = None
    spills: int | None = None
    stopped: bool = False
    failure: str = ""

    @property
    def counts(self) -> bool:
        """Whether it has been timed to the end."""
        return self.latency is not None and not self.stopped


@dataclass
class AutotuneResult:
    """The best configuration and the kernel that is compiled with it.

    Attributes:
        latency: milliseconds of the best configuration.
        config: the best configuration.
        ref_latency: milliseconds of the reference; None where there is none, or no GPU.
        libcode: the kernel's source.
        func: the kernel's program.
        kernel: the kernel.
        trials: what was found of each configuration, in their order.
    """

    latency: float | None = None
    config: dict[str, Any] | None = None
    ref_latency: float | None = None
    libcode: str | None = None
    func: Any = None
    kernel: JITKernel | None = None
    trials: list[Trial] = field(default_factory=list)

    def table(self) -> str:
        """All trials as text, the fastest first.

        Example: ``print(result.table())``
        """
        return table(self.trials)

    def plot(self, path: str | Path) -> Path:
        """Draws the search to a file, whose suffix is its format. Needs the extra ``plot``.

        Example: ``result.plot("search.svg")``
        """
        from tilelang.autotuner.plot import plot_trials

        return plot_trials(self.trials, path)

    def save_to_disk(self, path: str | Path, verbose: bool = False) -> None:
        """Writes the result to a folder: `result.json` and the kernel's source.

        Raises `TypeError` where a configuration is no JSON.
        """
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in result_files(self).items():
            (folder / name).write_bytes(content)
        if self.libcode is not None:
            (folder / _SOURCE).write_text(self.libcode)
        if verbose:
            logger.info("autotune: the result is in %s", folder)

    @staticmethod
    def load_from_disk(path: str | Path, compile_args: Any = None) -> AutotuneResult:
        """What `save_to_disk` has written. `compile_args`, a function of the configuration that
        returns the kernel, compiles it; without it there is none.

        Raises `OSError` where there is no result.

        Example: ``AutotuneResult.load_from_disk(path, lambda config: matmul.compile(**config))``
        """
        folder = Path(path)
        text = json.loads((folder / _RESULT).read_bytes())
        trials = [Trial(**trial) for trial in text["trials"]]
        best = text["best"]
        source = folder / _SOURCE
        result = AutotuneResult(
            trials[best].latency,
            trials[best].config,
            text["ref_latency"],
            source.read_text() if source.is_file() else None,
            trials=trials,
        )
        if compile_args is not None:
            assert result.config is not None
            result.kernel = compile_args(result.config)
            assert result.kernel is not None
            result.func = result.kernel.prim_func
        return result


def best_of(trials: Sequence[Trial]) -> int | None:
    """The number of the fastest trial."""
    timed = [i for i, trial in enumerate(trials) if trial.counts]
    return min(timed, key=lambda i: trials[i].latency or 0.0, default=None)


def result_files(result: AutotuneResult, with_configs: bool = True) -> dict[str, bytes]:
    """The files of a result. Raises `TypeError` where configurations are wanted and are no JSON."""
    trials = [vars(trial) | ({} if with_configs else {"config": {}}) for trial in result.trials]
    text = {
        "best": best_of(result.trials),
        "ref_latency": result.ref_latency,
        "trials": trials,
    }
    return {_RESULT: json.dumps(text, indent=1).encode()}


def read_trials(
    files: Mapping[str, bytes], configs: Sequence[dict[str, Any]]
) -> tuple[list[Trial], float | None]:
    """The inverse of `result_files`, with these configurations; and the reference's latency."""
    text = json.loads(files[_RESULT])
    trials = [
        Trial(**{**trial, "config": config})
        for trial, config in zip(text["trials"], configs, strict=True)
    ]
    return trials, text["ref_latency"]


def table(trials: Sequence[Trial]) -> str:
    """Trials as text: those that were timed, the fastest first, those that were given up, those
    that failed."""

    def order(trial: Trial) -> tuple[bool, bool, float]:
        return (trial.latency is None, trial.stopped, trial.latency or 0.0)

    rows = [("time, ms", "registers", "shared", "spills", "configuration")]
    for trial in sorted(trials, key=order):
        shown = ", ".join(f"{name}={value}" for name, value in trial.config.items())
        if trial.failure:
            shown += f": {trial.failure.splitlines()[0]}"
        if trial.latency is None:
            time = "failed"
        else:
            time = f"{trial.latency:.4g}" + (" (given up)" if trial.stopped else "")
        found = (trial.registers, trial.shared, trial.spills)
        registers, shared, spills = ("" if n is None else str(n) for n in found)
        rows.append((time, registers, shared, spills, shown))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[4]]))
    return "\n".join(lines)
