"""`AutoTuner`: the fastest configuration of a function that makes kernels."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

import torch
import tvm
from tvm.target import Target

from tilelang.autotuner.candidate import Lowered, lower
from tilelang.autotuner.inputs import ProfileArgs, captured_inputs
from tilelang.autotuner.key import KIND, result_parts, structure
from tilelang.autotuner.result import (
    AutotuneResult,
    best_of,
    read_trials,
    result_files,
    table,
)
from tilelang.autotuner.search import Executors, Search, plain, rules_of
from tilelang.cache import is_cache_enabled, store
from tilelang.env import env
from tilelang.jit.backend import EMULATE, resolve_backend
from tilelang.jit.compile import compile, current_target
from tilelang.jit.kernel import JITKernel
from tilelang.utils.log import logger
from tilelang.utils.target import TargetLike
from tilelang.utils.tensor import TensorSupplyType

RUN_TIMEOUT = 180.0
PASS_CONFIGS = "pass_configs"
"""The key of a configuration that is no parameter of the function."""


class Subject(Protocol):
    """What is tuned: a function with all arguments but the tunable ones."""

    name: str
    parameters: Mapping[str, inspect.Parameter]
    out_idx: int | Sequence[int] | None
    target: TargetLike | None
    execution_backend: str | None
    pass_configs: Mapping[Any, Any] | None
    compile_flags: str | Sequence[str] | None

    def trace(self, config: Mapping[str, Any]) -> tvm.tirx.PrimFunc:
        """The program for a configuration."""

    def kernel(self, config: Mapping[str, Any]) -> JITKernel:
        """The kernel for a configuration."""

    def structure(self) -> str:
        """A digest of the function."""

    def arguments(self) -> dict[str, Any]:
        """The arguments that are not tuned."""


class PlainFunction:
    """A function from a configuration to a PrimFunc, which is compiled with some options."""

    target_host: TargetLike | None = None
    verbose: bool | None = None

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.parameters = inspect.signature(function).parameters
        self.out_idx: int | Sequence[int] | None = None
        self.target: TargetLike | None = None
        self.execution_backend: str | None = None
        self.pass_configs: Mapping[Any, Any] | None = None
        self.compile_flags: str | Sequence[str] | None = None

    def trace(self, config: Mapping[str, Any]) -> tvm.tirx.PrimFunc:
        """See `Subject`."""
        found = self._function(**{k: v for k, v in config.items() if k != PASS_CONFIGS})
        if not isinstance(found, tvm.tirx.PrimFunc):
            raise TypeError(
                f"autotune: expected `{self.name}` to return a PrimFunc, got {type(found).__name__}"
            )
        return found

    def kernel(self, config: Mapping[str, Any]) -> JITKernel:
        """See `Subject`."""
        return compile(
            self.trace(config),
            out_idx=self.out_idx,
            execution_backend=self.execution_backend,
            target=self.target,
            target_host=self.target_host,
            verbose=self.verbose,
            pass_configs=merged(self.pass_configs, config),
            compile_flags=self.compile_flags,
        )

    def structure(self) -> str:
        """See `Subject`."""
        return structure(self._function, {}, None)

    def arguments(self) -> dict[str, Any]:
        """See `Subject`."""
        return {}


def merged(options: Mapping[Any, Any] | None, config: Mapping[str, Any]) -> dict[Any, Any]:
    """Pass configurations, those of a configuration above the function's."""
    both = [*(options or {}).items(), *(config.get(PASS_CONFIGS) or {}).items()]
    return {str(getattr(key, "value", key)): value for key, value in both}


def listed(configs: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """Configurations as a list of dicts: of a list of them, a dict of lists (all combinations), or
    a function of the call's arguments, or of none, that returns either.

    Raises `TypeError` for something else, `ValueError` where there are none.

    Example: ``listed({"a": [1, 2], "b": [3]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]``
    """
    if callable(configs):
        takes = bool(inspect.signature(configs).parameters)
        configs = configs(*args, **(kwargs or {})) if takes else configs()
    if isinstance(configs, Mapping):
        columns = [list(values) for values in configs.values()]
        configs = [dict(zip(configs, row, strict=True)) for row in itertools.product(*columns)]
    if not isinstance(configs, Iterable) or isinstance(configs, str):
        raise TypeError(f"autotune: configs is {type(configs).__name__}, wanted a list of dicts")
    found = list(configs)
    wrong = next((config for config in found if not isinstance(config, Mapping)), None)
    if wrong is not None:
        raise TypeError(f"autotune: found {wrong!r} among configs, wanted a dict")
    if not found:
        raise ValueError("autotune: found no configuration, wanted one or more in `configs`")
    return [dict(config) for config in found]


class AutoTuner:
    """Compiles a function with each configuration and finds the fastest.

    A configuration that does not compile, takes too long, computes something else than the
    reference or faults costs itself only; what became of it is in the result's trials.

    Example::

        result = (
            AutoTuner.from_kernel(lambda block: matmul(1024, 1024, block), {"block": [64, 128]})
            .set_compile_args(out_idx=-1)
            .set_profile_args(ref_prog=lambda a, b: a @ b)
            .run()
        )
        c = result.kernel(a, b)
    """

    def __init__(self, subject: Subject | Callable[..., Any], configs: Any):
        """`configs` is what `listed` takes; `subject` a function from their keys to a PrimFunc."""
        self.configs = listed(configs)
        found: Any = subject if hasattr(subject, "structure") else PlainFunction(subject)
        _check_names(self.configs, found.name, found.parameters)
        self._subject = found
        self._profile: ProfileArgs | None = None
        self._executors = Executors()
        self._inputs: Callable[[Sequence[str]], Sequence[Any] | None] = lambda names: None

    @classmethod
    def from_kernel(cls, kernel: Callable[..., Any], configs: Any) -> AutoTuner:
        """A tuner of a function from keywords to a PrimFunc; `configs` as of `autotune`."""
        return cls(kernel, configs)

    def set_compile_args(
        self,
        out_idx: int | Sequence[int] | None = None,
        target: TargetLike | None = None,
        execution_backend: str | None = None,
        target_host: TargetLike | None = None,
        verbose: bool | None = None,
        pass_configs: Mapping[Any, Any] | None = None,
    ) -> AutoTuner:
        """Options of `tilelang.compile`; what is None comes from the environment. Returns the
        tuner."""
        subject = self._subject
        subject.out_idx, subject.target = out_idx, target
        subject.execution_backend, subject.target_host = execution_backend, target_host
        subject.verbose, subject.pass_configs = verbose, pass_configs
        return self

    def set_profile_args(
        self,
        warmup: int = 25,
        rep: int = 100,
        timeout: float = 30,
        supply_type: TensorSupplyType = TensorSupplyType.Auto,
        ref_prog: Callable[..., Any] | None = None,
        supply_prog: Callable[..., Any] | None = None,
        rtol: float = 1e-2,
        atol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
        skip_check: bool = False,
        manual_check_prog: Callable[..., Any] | None = None,
        cache_input_tensors: bool = False,
        backend: str = "event",
    ) -> AutoTuner:
        """How configurations are checked and timed. Returns the tuner.

        Args:
            warmup: has no effect: each configuration runs untimed before each of its turns.
            rep: timed runs of a configuration.
            timeout: seconds that a configuration may take to be checked, or for a turn.
            supply_type: what generated inputs hold.
            ref_prog: computes the outputs, or changes the inputs, from the same inputs.
            supply_prog: makes the inputs from the list of the kernel's `KernelParam` that are no
                outputs.
            rtol, atol, max_mismatched_ratio: as of `torch_assert_close`.
            skip_check: nothing is compared, and in the emulator nothing runs.
            manual_check_prog: compares instead: ``check(reference outputs, kernel outputs)``.
            cache_input_tensors: inputs are not restored between configurations.
            backend: of `tilelang.profiler.do_bench`.
        """
        given = dict(locals())
        del given["self"]
        self._profile = ProfileArgs(**given)
        return self

    def set_executors(
        self,
        compiling: Executor | None = None,
        timing: Executor | None = None,
        timing_workers: int = 1,
    ) -> AutoTuner:
        """Compiles and times elsewhere: on any `concurrent.futures.Executor`, whose workers import
        this package. `timing` is given `timing_workers` tasks at a time; its workers have a GPU
        each. What is None happens on this machine. Returns the tuner.

        Example: ``tuner.set_executors(compiling=client.get_executor())``, of Dask
        """
        self._executors.compiling, self._executors.timing = compiling, timing
        self._executors.timing_workers = timing_workers
        return self

    def run(
        self,
        warmup: int = 25,
        rep: int = 100,
        timeout: float = RUN_TIMEOUT,
        use_pipeline: bool = True,
        enable_grouped_compile: bool = False,
        group_compile_size: int = 2,
        benchmark_devices: Sequence[int | str | torch.device] | None = None,
        benchmark_multi_gpu: bool = False,
        early_stop: bool = False,
        early_stop_factor: float = 2.0,
    ) -> AutotuneResult:
        """Tunes, unless the result is kept from before.

        `warmup`, `rep` and `timeout` count where `set_profile_args` was not called. With
        `use_pipeline` timing begins while other configurations are compiled. With `early_stop` a
        configuration whose first estimate takes `early_stop_factor` times the best time is given
        up. `benchmark_devices` are GPUs of this machine that time side by side,
        `benchmark_multi_gpu` takes all. `enable_grouped_compile` and `group_compile_size` have no
        effect: each configuration is compiled in a process of its own.

        Raises `ValueError` for `early_stop_factor` below 1 and where inputs cannot be generated,
        `RuntimeError` where all configurations fail.
        """
        if early_stop_factor < 1:
            raise ValueError(f"early_stop_factor is {early_stop_factor}, wanted 1.0 or more")
        profile = self._profile or ProfileArgs(warmup, rep, timeout)
        subject = self._subject
        target = current_target(subject.target)
        backend = subject.execution_backend or env.TILELANG_EXECUTION_BACKEND
        emulated = resolve_backend(backend, target) == EMULATE
        self._executors.devices = _devices(benchmark_devices, benchmark_multi_gpu, emulated)
        rules = rules_of(profile, emulated, early_stop_factor if early_stop else None)
        parts = self._parts(profile, target, emulated, rules.factor)
        kept = self._found(parts)
        if kept is not None:
            return kept

        def lowered(program: tvm.tirx.PrimFunc, config: dict[str, Any]) -> Lowered:
            options = merged(subject.pass_configs, config)
            flags = subject.compile_flags
            return lower(program, target, subject.out_idx, options, flags, emulated)

        search = Search(
            self.configs,
            subject.trace,
            lowered,
            self._given,
            profile,
            rules,
            "cuda" if torch.cuda.is_available() and not emulated else "cpu",
            self._executors,
            use_pipeline,
        )
        trials = search.run()
        if best_of(trials) is None:
            raise RuntimeError(
                f"autotune: none of {len(trials)} configurations of `{subject.name}` works:\n"
                f"{table(trials)}"
            )
        result = AutotuneResult(ref_latency=search.reference_latency(), trials=trials)
        if parts is not None:
            store().put(KIND, parts, result_files(result, with_configs=False))
        return self._finished(result)

    def _given(self, names: Sequence[str]) -> Sequence[Any] | None:
        captured = captured_inputs()
        return self._inputs(names) if captured is None else captured

    def _finished(self, result: AutotuneResult) -> AutotuneResult:
        best = best_of(result.trials)
        assert best is not None
        trial = result.trials[best]
        assert trial.latency is not None
        result.latency, result.config = trial.latency, trial.config
        result.kernel = self._subject.kernel(trial.config)
        result.kernel.update_tuner_result(trial.latency, trial.config, result.ref_latency)
        result.func = result.kernel.prim_func
        result.libcode = result.kernel.get_kernel_source()
        return result

    # Results on disk.

    def _parts(
        self, profile: ProfileArgs, target: Target, emulated: bool, factor: float | None
    ) -> dict[str, Any] | None:
        """The parts of the result's key; None where it is not kept: what a user's own function
        reads or checks may be other than the last time."""
        own = (profile.ref_prog, profile.supply_prog, profile.manual_check_prog)
        if any(own) or env.TILELANG_AUTO_TUNING_DISABLE_CACHE or not is_cache_enabled():
            return None
        subject = self._subject
        kept = ("rep", "supply_type", "skip_check", "cache_input_tensors", "backend")
        asked_for = {name: getattr(profile, name) for name in kept}
        options = {
            "target": str(target),
            "device": self._device(emulated),
            "compiled": plain(
                {
                    "out_idx": subject.out_idx,
                    "pass_configs": sorted(merged(subject.pass_configs, {}).items()),
                    "flags": subject.compile_flags,
                }
            ),
            "profile": plain({**asked_for, "factor": factor}),
        }
        given = captured_inputs()
        try:
            digest = subject.structure()
            return result_parts(
                subject.name, digest, subject.arguments(), self.configs, given, options, store()
            )
        except TypeError as error:  # such as a callable object, which has no bytecode
            logger.info("autotune: the result is not kept: %s", error)
            return None

    def _device(self, emulated: bool) -> str:
        """Where times are from, for a key."""
        if self._executors.timing is not None:
            return "of an executor"
        return "emulator" if emulated else torch.cuda.get_device_name()

    def _found(self, parts: dict[str, Any] | None) -> AutotuneResult | None:
        entry = None if parts is None else store().get(KIND, parts)
        if entry is None:
            return None
        trials, reference = read_trials(entry.files, self.configs)
        logger.info("autotune: `%s` was tuned before: %s", self._subject.name, entry.path)
        return self._finished(AutotuneResult(ref_latency=reference, trials=trials))


def _devices(
    asked_for: Sequence[int | str | torch.device] | None, all_of_them: bool, emulated: bool
) -> tuple[int, ...]:
    if emulated or not torch.cuda.is_available():
        return (0,)
    if asked_for is not None:
        found = [
            torch.device("cuda", d) if isinstance(d, int) else torch.device(d) for d in asked_for
        ]
        return tuple(device.index or 0 for device in found) or (torch.cuda.current_device(),)
    if all_of_them and torch.cuda.device_count() > 1:
        return tuple(range(torch.cuda.device_count()))
    if all_of_them:
        logger.warning("autotune: there is one GPU, which times alone")
    return (torch.cuda.current_device(),)


def _check_names(
    configs: Sequence[Mapping[str, Any]],
    name: str,
    parameters: Mapping[str, inspect.Parameter],
) -> None:
    """Raises `ValueError` for keys that are no parameters."""
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for config in configs:
        unused = sorted(config.keys() - parameters.keys() - {PASS_CONFIGS})
        if unused:
            raise ValueError(
                f"Unused keys in config {config}: `{name}` has no parameters "
                f"{', '.join(unused)}; its parameters are {', '.join(parameters)}"
            )
