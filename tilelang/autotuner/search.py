"""A tuning run: configurations are compiled side by side while devices time those that are ready.

A configuration is traced and lowered in this process. What is left is data, and is compiled and
timed by tasks of executors (`build_apart`, `run_batch`), on this machine or others. Those that are
ready when a device is free form a *batch* and are timed in turns. As a chip is warmer in later
batches, the fastest of all batches are timed together once more.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
import tvm

from tilelang.autotuner.bench import Batch, Measured, Rules, end_run, run_batch
from tilelang.autotuner.candidate import Candidate, Lowered, build_apart
from tilelang.autotuner.inputs import Prepared, ProfileArgs, prepare
from tilelang.autotuner.processes import close_idle, start_fork_server
from tilelang.autotuner.result import Trial
from tilelang.autotuner.session import copies
from tilelang.engine.launch_plan import LaunchPlan
from tilelang.engine.param import KernelParam, arguments
from tilelang.env import env
from tilelang.utils.log import logger

COMPILE_SECONDS = 600.0
"""How long a configuration may be compiled, where TILELANG_COMPILE_TIMEOUT_SECONDS is not set."""

FINALISTS = 8
NEARLY = 1.1
"""The final has those within this factor of the best."""


_LOWERING = "tilelang-autotuner-lowering"
"""What threads that lower are called."""


def _is_worth_saying(record: logging.LogRecord) -> bool:
    """Whether a record is not of a configuration's compilation, of which there are many."""
    return record.levelno > logging.INFO or not str(record.threadName).startswith(_LOWERING)


@dataclass
class Executors:
    """Where configurations are compiled and timed; None is this machine.

    Attributes:
        compiling: takes one task for each configuration.
        timing: takes a task for each batch; its workers have a GPU of their own each.
        timing_workers: how many batches it is given at a time.
        devices: numbers of the GPUs of this machine, where `timing` is None.
        workers: how many configurations are compiled at a time, where `compiling` is None.
    """

    compiling: Executor | None = None
    timing: Executor | None = None
    timing_workers: int = 1
    devices: tuple[int, ...] = (0,)
    workers: int = 0


def compile_workers() -> int:
    """How many configurations are compiled at a time, by the environment."""
    wanted = env.TILELANG_AUTO_TUNING_CPU_COUNTS
    if wanted <= 0:
        cores = len(os.sched_getaffinity(0))
        wanted = max(1, int(cores * env.TILELANG_AUTO_TUNING_CPU_UTILITIES))
    most = env.TILELANG_AUTO_TUNING_MAX_CPU_COUNT
    return min(wanted, most) if most > 0 else wanted


@dataclass
class _Job:
    """A configuration that was traced."""

    params: list[KernelParam]
    plan: LaunchPlan | None = None
    candidate: Candidate | None = None
    workload: str = ""


@dataclass
class Search:
    """Finds out how fast configurations are.

    Attributes:
        configs: the configurations.
        trace: makes the program of one; called in this thread.
        lower: lowers a program with its configuration, in any thread.
        given: finds the user's inputs by the names of the kernel's inputs, None where there are
            none.
        profile, rules: how they are checked and timed.
        device: torch's name of where inputs are generated.
        executors: where.
        pipelined: whether timing begins while others are compiled.
    """

    configs: Sequence[dict[str, Any]]
    trace: Callable[[dict[str, Any]], tvm.tirx.PrimFunc]
    lower: Callable[[tvm.tirx.PrimFunc, dict[str, Any]], Lowered]
    given: Callable[[Sequence[str]], Sequence[Any] | None]
    profile: ProfileArgs
    rules: Rules
    device: str
    executors: Executors
    pipelined: bool = True
    trials: list[Trial] = field(init=False)
    prepared: dict[str, Prepared] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trials = [Trial(config) for config in self.configs]
        self._run = uuid.uuid4().hex
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._jobs: dict[int, _Job] = {}
        self._workloads: dict[str, bytes] = {}
        self._ready: list[int] = []
        self._compiling: set[int] = set()
        self._batches = 0
        self._lanes: list[int] = []
        self._busy = 0

    def run(self) -> list[Trial]:
        """The trials, in the order of the configurations. What `ref_prog`, `supply_prog` and the
        generation of inputs raise ends the search."""
        from tqdm import tqdm

        local = self.executors.timing is None
        lanes = list(self.executors.devices) if local else [0] * self.executors.timing_workers
        workers = self.executors.workers or compile_workers()
        if local or self.executors.compiling is None:
            start_fork_server()  # its import goes on beside the tracing
        lowering = ThreadPoolExecutor(min(workers, 4), _LOWERING)
        own: list[Executor] = [lowering]  # which end with the search
        compiling, timing = self.executors.compiling, self.executors.timing
        if compiling is None:
            own.append(compiling := ThreadPoolExecutor(workers))
        if timing is None:
            own.append(timing := ThreadPoolExecutor(len(lanes)))
        self._lanes = lanes
        logger.addFilter(_is_worth_saying)
        try:
            with tqdm(total=len(self.configs), desc="Tuning", disable=None) as bar:
                self._bar = bar
                for number, config in enumerate(self.configs):
                    self._begin(number, config, lowering, compiling)
                while self._compiling or self._busy or self._ready:
                    self._start_batches(timing)
                    self._events.get()()
                self._final(timing)
        finally:
            logger.removeFilter(_is_worth_saying)
            for pool in own:
                pool.shutdown(wait=False, cancel_futures=True)
            end_run(self._run)
            close_idle()
        return self.trials

    # Compiling.

    def _begin(
        self, number: int, config: dict[str, Any], lowering: Executor, compiling: Executor
    ) -> None:
        try:
            program = self.trace(config)
        except Exception as error:  # noqa: BLE001 (it costs this configuration only)
            self._failed(number, f"{type(error).__name__}: {error}")
            return
        self._jobs[number] = _Job([KernelParam.of(v) for v in arguments(program)])
        self._compiling.add(number)
        lowering.submit(self._lower, number, program, config, compiling)

    def _lower(
        self,
        number: int,
        program: tvm.tirx.PrimFunc,
        config: dict[str, Any],
        compiling: Executor,
    ) -> None:
        """In another thread."""
        seconds = env.TILELANG_COMPILE_TIMEOUT_SECONDS or COMPILE_SECONDS
        try:
            lowered = self.lower(program, config)
            self._jobs[number].plan = LaunchPlan.from_json(lowered.plan)
            future = compiling.submit(build_apart, lowered, seconds)
        except Exception as error:  # noqa: BLE001 (it costs this configuration only)
            text = f"{type(error).__name__}: {error}"
            self._events.put(lambda: self._not_built(number, text))
            return
        future.add_done_callback(lambda done: self._events.put(lambda: self._built(number, done)))

    def _not_built(self, number: int, text: str) -> None:
        self._compiling.discard(number)
        self._failed(number, text)

    def _built(self, number: int, future: Future[Candidate]) -> None:
        error = future.exception()
        if error is not None:
            self._not_built(number, str(error))
            return
        self._compiling.discard(number)
        job, trial = self._jobs[number], self.trials[number]
        job.candidate = candidate = future.result()
        trial.registers, trial.shared = candidate.registers, candidate.shared
        trial.spills = candidate.spills
        job.workload = self._workload(job)
        self._ready.append(number)

    def _workload(self, job: _Job) -> str:
        """The name of the inputs for a kernel; kernels with equal parameters have the same."""
        assert job.plan is not None
        params = [job.params[i] for i in job.plan.inputs]
        name = repr([(p.dtype, tuple(map(str, p.shape)), p.scalar) for p in params])
        if name not in self.prepared:
            if self.prepared and self.profile.cache_input_tensors:
                logger.warning("autotune: configurations have other parameters, hence other inputs")
            given = self.given([job.plan.params[i].name for i in job.plan.inputs])
            emulated = self.rules.device == "emulator"
            self.prepared[name] = prepare(params, self.profile, given, self.device, emulated)
            self._workloads[name] = self.prepared[name].workload.to_bytes()
        return name

    # Timing.

    def _start_batches(self, timing: Executor) -> None:
        if self._compiling and not self.pipelined:
            return
        while self._lanes and self._ready:
            count = math.ceil(len(self._ready) / len(self._lanes))
            numbers, self._ready = self._ready[:count], self._ready[count:]
            self._submit(timing, self._batch(numbers, self._lanes.pop(0)))

    def _batch(self, numbers: Sequence[int], lane: int, checked: bool = False) -> Batch:
        candidates: dict[int, tuple[Candidate, str]] = {}
        for number in numbers:
            candidate = self._jobs[number].candidate
            assert candidate is not None
            candidates[number] = candidate, self._jobs[number].workload
        names = {name for _, name in candidates.values()}
        best = min((t.latency for t in self.trials if t.counts and t.latency), default=None)
        return Batch(
            self._run,
            lane,
            self.rules,
            candidates,
            {name: self._workloads[name] for name in names},
            best,
            checked,
        )

    def _submit(self, timing: Executor, batch: Batch) -> None:
        self._batches += 1
        self._busy += 1
        future = timing.submit(run_batch, batch)
        future.add_done_callback(lambda done: self._events.put(lambda: self._timed(batch, done)))

    def _timed(self, batch: Batch, future: Future[dict[int, Measured]]) -> None:
        self._busy -= 1
        self._lanes.append(batch.number)
        error = future.exception()
        for number in batch.candidates:
            if error is not None:
                self._failed(number, f"{type(error).__name__}: {error}")
            else:
                self._note(number, future.result()[number], is_final=batch.checked)

    def _note(self, number: int, measured: Measured, is_final: bool) -> None:
        trial = self.trials[number]
        failure = measured.failure or self._checked_by_hand(number, measured)
        if failure:
            self._failed(number, failure)
            return
        trial.latency, trial.stopped = measured.latency, measured.stopped
        if is_final:
            return
        said = "gave up" if trial.stopped else "Tuned Latency"
        logger.info("%s %s with config %s at index %s", said, trial.latency, trial.config, number)
        self._bar.update()

    def _checked_by_hand(self, number: int, measured: Measured) -> str:
        """Why the user's own check refuses what was computed, empty where it does not."""
        if measured.outputs is None:
            return ""
        assert self.profile.manual_check_prog is not None
        expected = self.prepared[self._jobs[number].workload].expected
        try:
            outputs = [o.to(e.device) for o, e in zip(measured.outputs, expected, strict=True)]
            self.profile.manual_check_prog(expected, outputs)
        except Exception as error:  # noqa: BLE001 (whatever a check raises is its verdict)
            return f"{type(error).__name__}: {error}"
        return ""

    def _failed(self, number: int, text: str) -> None:
        trial = self.trials[number]
        trial.latency, trial.stopped, trial.failure = None, False, text
        logger.warning(
            "autotune: config %s at index %s failed: %s", trial.config, number, text.split("\n")[0]
        )
        self._bar.update()

    def _final(self, timing: Executor) -> None:
        """Times the fastest of several batches side by side, on the first of the GPUs."""
        if self._batches < 2 or not self.rules.rounds:
            return
        timed = [(t.latency, i) for i, t in enumerate(self.trials) if t.counts and t.latency]
        timed.sort()
        finalists = [i for latency, i in timed if latency <= NEARLY * timed[0][0]][:FINALISTS]
        if len(finalists) < 2:
            return
        self._submit(timing, self._batch(finalists, min(self._lanes), checked=True))
        self._events.get()()

    # The reference.

    def reference_latency(self) -> float | None:
        """Milliseconds of the reference on the GPU; None without one of them."""
        reference = self.profile.ref_prog
        if reference is None or not self.prepared or torch.device(self.device).type != "cuda":
            return None
        from tilelang.profiler import do_bench

        # Its own copies: it may change them.
        inputs = copies(next(iter(self.prepared.values())).inputs)
        found = do_bench(lambda: reference(*inputs), backend=self.profile.backend)
        assert isinstance(found, float)
        return found


def rules_of(profile: ProfileArgs, emulated: bool, factor: float | None) -> Rules:
    """How configurations are timed."""
    device = "emulator" if emulated else "cuda"
    return Rules(device, profile.backend, profile.rep, profile.timeout, factor)


def plain(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as text, for a key."""
    return {name: repr(value) for name, value in options.items()}
