"""The results of a comparison as Markdown, with a plot where matplotlib is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tilelang.testing.perf.build import Tree
from tilelang.testing.perf.costs import NAMES, WEIGHED
from tilelang.testing.perf.run import Options, Result
from tilelang.testing.perf.statistics import CONFIDENCE, Comparison, Interval, together

PLOT = "regression.svg"
_TABLES = ("registers", "spills", "shared")
_INCHES_OF_A_CASE = 0.28
_NO_PLOT = "No plot: nothing to draw, or no matplotlib (the extra `plot`)."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; bars and ends of lines in cells are escaped."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.replace("|", "\\|").replace("\n", "<br>") for c in cells) + " |"

    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])


def _milliseconds(comparison: Comparison, scale: float = 1.0) -> list[str]:
    both = [f"{value * scale:.4g}" for value in (comparison.base, comparison.head)]
    return [*both, str(comparison.interval)]


def _costs_of(result: Result, names: Sequence[str]) -> list[str]:
    """What is different of these costs."""
    return [
        f"{NAMES[name]} {result.costs['base'][name]} → {result.costs['head'][name]}"
        for name in names
        if result.ratio(name) not in (None, 1.0)
    ]


class Report:
    """The text about a comparison.

    Args:
        base, head: the commits.
        options: how they were compared.
        results: what was found.
        states: the GPU's state, by when it was read; see `gpu_state`.

    Example: ``Report(base, head, options, results, {}).text()``
    """

    def __init__(
        self,
        base: Tree,
        head: Tree,
        options: Options,
        results: Sequence[Result],
        states: Mapping[str, Mapping[str, str]],
    ):
        self.base, self.head, self.options, self.results = base, head, options, results
        self.states = states

    @property
    def regressions(self) -> list[Result]:
        """The cases that are slower, compile slower, or fail in head alone."""
        return [r for r in self.results if r.is_regression(self.options.threshold)]

    def text(self, plot: str | None = None) -> str:
        """The Markdown; `plot` is the address of the plot, without which it says why there is
        none."""
        parts = [
            "# Performance: base and head",
            f"* base: {self.base.describe()}\n* head: {self.head.describe()}\n* {self._how()}",
            f"**{self._summary()}**",
            f"![ratios]({plot})" if plot else _NO_PLOT,
            self._section(f"Slower{self._by}", self._with_verdict("slower")),
            self._section(f"Faster{self._by}", self._with_verdict("faster")),
            self._section("Compile time, CPU milliseconds", self._compile_rows()),
            *(self._cost_section(name) for name in _TABLES),
            self._section("Failures", self._failures()),
            self._unchanged(),
            self._other_costs(),
            self._states(),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    @property
    def _by(self) -> str:
        return "" if self.options.device == "cuda" else ", by what is counted"

    @property
    def compile_verdict(self) -> str:
        """Of all cases together; ``unchanged`` where none was compiled."""
        interval = self._compile_interval
        return interval.verdict(self.options.compile_threshold) if interval else "unchanged"

    @property
    def _compile_interval(self) -> Interval | None:
        compiled = [result.compile for result in self.results if result.compile]
        return together(compiled) if compiled else None

    @property
    def is_worse(self) -> bool:
        """Whether a case has become worse, or compilation slower in all cases together."""
        return bool(self.regressions) or self.compile_verdict == "slower"

    def _how(self) -> str:
        options = self.options
        rule = (
            f"intervals of {CONFIDENCE:.1%} by bootstrap over pairs of turns; a case is different "
            "if the whole interval is further from 1 than {:.0%}, twice in new processes"
        )
        if options.device == "cuda":
            return (
                f"timed on one GPU in {options.turns} turns; {rule.format(options.threshold)} "
                f"({options.compile_threshold:.0%} for compile time)"
            )
        weighed = ", ".join(NAMES[name] for name in WEIGHED)
        return (
            "no GPU: nothing was timed. Kernels were compiled for sm_90a and what they cost was "
            f"counted; slower means more {weighed} (by more than {options.threshold:.0%}). Compile "
            f"time in {options.compilations} turns: {rule.format(options.compile_threshold)}"
        )

    def _verdicts(self, verdict: str) -> list[Result]:
        return [r for r in self.results if r.verdict(self.options.threshold) == verdict]

    def _compiling(self, verdict: str) -> list[Result]:
        return [r for r in self.results if r.compile and r.compile.verdict == verdict]

    def _summary(self) -> str:
        counts = [
            f"{len(self._verdicts(verdict))} {verdict}"
            for verdict in ("slower", "faster", "unchanged", "failed")
        ]
        compiling = [f"{len(self._compiling(v))} compile {v}" for v in ("slower", "faster")]
        found = len(self.regressions)
        if self.compile_verdict != "unchanged":
            compiling.append(f"compilation of all together {self.compile_verdict}")
        return f"{', '.join([*counts, *compiling])}: {found or 'no'} regression{'s'[: found != 1]}"

    def _section(self, title: str, text: str) -> str:
        return f"## {title}\n\n{text}" if text else ""

    def _with_verdict(self, verdict: str) -> str:
        found = self._verdicts(verdict)
        if not found:
            return "none"
        if self.options.device == "cuda":
            rows = [[r.name, *_milliseconds(r.time)] for r in found if r.time]
            return table(["case", "base, ms", "head, ms", "ratio"], rows)
        rows = [[r.name, "; ".join(_costs_of(r, WEIGHED))] for r in found]
        return table(["case", "what changed"], rows)

    def _compile_rows(self) -> str:
        rows = [
            [r.name, *_milliseconds(r.compile, 1e3), r.compile.verdict]
            for r in self.results
            if r.compile
        ]
        if interval := self._compile_interval:
            rows.append(["**all together**", "", "", str(interval), self.compile_verdict])
        return table(["case", "base", "head", "ratio", ""], rows) if rows else ""

    def _cost_section(self, name: str) -> str:
        rows = [
            [r.name, str(r.costs["base"][name]), str(r.costs["head"][name])]
            for r in self.results
            if r.ratio(name) not in (None, 1.0)
        ]
        title = NAMES[name][0].upper() + NAMES[name][1:]
        text = table(["case", "base", "head"], rows) if rows else "the same in all cases"
        return self._section(title, text)

    def _failures(self) -> str:
        rows = [
            [r.name, side, f"`{why.splitlines()[0] if why else ''}`"]
            for r in self.results
            for side, why in r.failures.items()
        ]
        return table(["case", "side", "why"], rows) if rows else "none"

    def _unchanged(self) -> str:
        found = self._verdicts("unchanged")
        if not found:
            return self._section("Unchanged", "none")
        if self.options.device == "cuda":
            rows = [[r.name, *_milliseconds(r.time)] for r in found if r.time]
            text = table(["case", "base, ms", "head, ms", "ratio"], rows)
        else:
            text = "\n".join(f"* {r.name}" for r in found)
        return _folded(f"Unchanged: {len(found)}", text)

    def _other_costs(self) -> str:
        others = [name for name in NAMES if name not in _TABLES]
        rows = [[r.name, "; ".join(found)] for r in self.results if (found := _costs_of(r, others))]
        text = table(["case", "what changed"], rows)
        return _folded(f"Other costs that changed: {len(rows)}", text) if rows else ""

    def _states(self) -> str:
        if self.options.device != "cuda":
            return ""
        if not any(self.states.values()):
            return self._section("GPU", "nvidia-smi is not there or says nothing")
        names = list(dict.fromkeys(name for state in self.states.values() for name in state))
        rows = [[n, *(state.get(n, "") for state in self.states.values())] for n in names]
        return self._section("GPU", table(["", *self.states], rows))


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def draw(results: Sequence[Result], path: Path) -> bool:
    """Draws the ratios of time and compile time with their intervals; False where there is no
    matplotlib or nothing to draw."""
    kinds: dict[str, Callable[[Result], Comparison | None]] = {
        "time of a call": lambda r: r.time,
        "compile time": lambda r: r.compile,
    }
    shown = {
        title: [(r.name, c.interval) for r in results if (c := get(r))]
        for title, get in kinds.items()
    }
    shown = {title: rows for title, rows in shown.items() if rows}
    if not shown or importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure

    tallest = max(map(len, shown.values()))
    figure = Figure(figsize=(6 + 4 * len(shown), 1.2 + _INCHES_OF_A_CASE * tallest))
    for number, (title, rows) in enumerate(shown.items()):
        axes = figure.add_subplot(1, len(shown), number + 1)
        centers = [interval.estimate for _, interval in rows]
        below = [i.estimate - min(i.low, i.estimate) for _, i in rows]
        above = [max(i.high, i.estimate) - i.estimate for _, i in rows]
        axes.errorbar(centers, range(len(rows)), xerr=[below, above], fmt="o", capsize=3)
        axes.axvline(1.0, color="gray", linewidth=1)
        axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel(f"{title}, head / base")
    figure.tight_layout()
    figure.savefig(path)
    return True
