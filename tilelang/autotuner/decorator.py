"""`tilelang.autotune`: functions under `tilelang.jit` that choose their configuration."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from types import MethodType
from typing import Any

import torch
import tvm

from tilelang._signatures import bind, place_of
from tilelang.autotuner.inputs import ProfileArgs
from tilelang.autotuner.key import structure
from tilelang.autotuner.result import AutotuneResult
from tilelang.autotuner.tuner import PASS_CONFIGS, AutoTuner, listed, merged
from tilelang.jit.cache_key import hashable
from tilelang.jit.compile import surroundings
from tilelang.jit.impl import JITImpl
from tilelang.jit.kernel import JITKernel
from tilelang.language.tensors import Tensor
from tilelang.utils.log import logger
from tilelang.utils.tensor import TensorSupplyType


def _taken(configs: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords that a function of a call's arguments takes: others may be what is tuned, which
    only its result names."""
    parameters = inspect.signature(configs).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return kwargs
    return {name: value for name, value in kwargs.items() if name in parameters}


class _Call:
    """A function under `tilelang.jit` with the arguments of a call."""

    def __init__(self, tuned: AutoTuneImpl, args: tuple[Any, ...], kwargs: dict[str, Any]):
        impl = tuned.jit_impl
        self._tuned, self._args, self._kwargs = tuned, args, kwargs
        self.name = impl.__name__
        self.parameters: Mapping[str, inspect.Parameter] = impl.signature.parameters
        self.out_idx, self.target = impl.out_idx, impl.target
        self.execution_backend, self.pass_configs = impl.execution_backend, impl.pass_configs
        self.compile_flags = impl.compile_flags

    def trace(self, config: Mapping[str, Any]) -> tvm.tirx.PrimFunc:
        """See `Subject`."""
        return self._tuned.jit_impl.get_tir(*self._args, **self._with(config))

    def kernel(self, config: Mapping[str, Any]) -> JITKernel:
        """See `Subject`."""
        return self._tuned.variant(config).compile(*self._args, **self._with(config))

    def _with(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._kwargs, **{k: v for k, v in config.items() if k != PASS_CONFIGS}}

    def structure(self) -> str:
        """See `Subject`."""
        impl = self._tuned.jit_impl
        return structure(impl.func, self.arguments(), impl._local)

    def arguments(self) -> dict[str, Any]:
        """See `Subject`."""
        return self._tuned.bound(self._args, self._kwargs)

    def inputs(self, names: Sequence[str]) -> list[Any] | None:
        """The tensors of the call, by the names of the kernel's inputs."""
        found = [self.arguments().get(name) for name in names]
        if names and all(isinstance(v, torch.Tensor | int | float) for v in found):
            return found
        return None


class AutoTuneImpl:
    """What `tilelang.autotune` makes of a function under `tilelang.jit`."""

    def __init__(
        self,
        jit_impl: JITImpl,
        configs: Any,
        profile: ProfileArgs,
        do_not_specialize: Iterable[str],
        early_stop: bool,
        early_stop_factor: float,
        executors: tuple[Executor | None, Executor | None, int],
    ):
        self.jit_impl = jit_impl
        self._configs = configs
        self._profile = profile
        self._ignored = frozenset(do_not_specialize)
        self._early_stop, self._factor = early_stop, early_stop_factor
        self._executors = executors
        self._results: dict[Hashable, AutotuneResult] = {}
        self._variants: dict[Hashable, JITImpl] = {}
        self._lock = threading.Lock()
        functools.update_wrapper(self, jit_impl, updated=())

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The fastest kernel for these arguments; in eager mode runs it and returns its outputs.

        The first call with each set of arguments tunes; tensors count by dtype, shape and strides.
        A call with an argument that is tuned compiles with that, and warns.
        """
        config = self._config(args, kwargs)
        return self.variant(config)(*args, **{**kwargs, **_parameters(config)})

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The function with its first argument bound, as a method has it."""
        return self if instance is None else MethodType(self, instance)

    def compile(self, /, *args: Any, **kwargs: Any) -> JITKernel:
        """The fastest kernel for these arguments, which are those of `JITImpl.compile`."""
        config = self._config(args, kwargs)
        return self.variant(config).compile(*args, **{**kwargs, **_parameters(config)})

    def get_tir(self, /, *args: Any, **kwargs: Any) -> tvm.tirx.PrimFunc:
        """The program of the fastest configuration."""
        config = self._config(args, kwargs)
        return self.variant(config).get_tir(*args, **{**kwargs, **_parameters(config)})

    def get_kernel_source(self, /, *args: Any, **kwargs: Any) -> str:
        """The device code of the fastest configuration."""
        return self.compile(*args, **kwargs).get_kernel_source()

    def tune(self, /, *args: Any, **kwargs: Any) -> AutotuneResult:
        """The result for these arguments, with all trials; tunes where there is none yet.

        Example: ``print(matmul.tune(1024, 1024, 1024).table())``
        """
        key = self._key(args, kwargs)
        found = self._results.get(key)
        if found is not None:
            return found
        with self._lock:
            if key not in self._results:
                self._results[key] = self._tuned(args, kwargs)
            return self._results[key]

    def _tuned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AutotuneResult:
        call = _Call(self, args, kwargs)
        configs = listed(self._configs, args, kwargs)
        tuner = AutoTuner(call, configs)
        compiling, timing, workers = self._executors
        tuner.set_executors(compiling, timing, workers)
        tuner._profile, tuner._inputs = self._profile, call.inputs
        return tuner.run(early_stop=self._early_stop, early_stop_factor=self._factor)

    def _config(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        passed = self._tunable(args, kwargs) & self.bound(args, kwargs, defaults=False).keys()
        if passed:
            logger.warning(
                "autotune: %s of `%s` is passed by the caller: nothing is tuned",
                ", ".join(sorted(passed)),
                self.jit_impl.__name__,
            )
            return {}
        config = self.tune(*args, **kwargs).config
        assert config is not None
        return config

    def _tunable(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[str]:
        """Names of what is tuned; those of a function of the call's arguments are known with its
        result."""
        if callable(self._configs):
            found = self._results.get(self._key(args, kwargs))
            configs = [] if found is None else [trial.config for trial in found.trials]
            if found is None and self.bound(args, kwargs, defaults=False):
                configs = listed(self._configs, args, _taken(self._configs, kwargs))
        else:
            configs = listed(self._configs)
        return {name for config in configs for name in config}

    def bound(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], defaults: bool = True
    ) -> dict[str, Any]:
        """The arguments of a call by name; keywords that are no parameters are constants."""
        signature = self.jit_impl.signature
        own = {k: v for k, v in kwargs.items() if k in signature.parameters}
        found = bind(signature, place_of(self.jit_impl.func), args, own, partial=True)
        if defaults:
            found.apply_defaults()
        return {**found.arguments, **{k: v for k, v in kwargs.items() if k not in own}}

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        bound = self.bound(args, kwargs)
        values = tuple(
            (name, _described(value)) for name, value in bound.items() if name not in self._ignored
        )
        return (values, surroundings(self.jit_impl.target))

    def variant(self, config: Mapping[str, Any]) -> JITImpl:
        """The function under `tilelang.jit` with the pass configurations of a configuration."""
        own = config.get(PASS_CONFIGS)
        if not own:
            return self.jit_impl
        impl = self.jit_impl
        options = merged(impl.pass_configs, config)
        key = hashable(options)
        if key not in self._variants:
            self._variants[key] = JITImpl(
                impl.func,
                out_idx=impl.out_idx,
                target=impl.target,
                target_host=impl.target_host,
                execution_backend=impl.execution_backend,
                verbose=impl.verbose,
                pass_configs=options,
                debug_root_path=impl.debug_root_path,
                compile_flags=impl.compile_flags,
                local=impl._local,
                checks=impl.checks,
            )
        return self._variants[key]


def _parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != PASS_CONFIGS}


def _described(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), value.stride(), value.device.type)
    if isinstance(value, Tensor):
        return repr(value)
    return hashable(value)


def autotune(
    func: Any = None,
    *,
    configs: Any = None,
    warmup: int = 25,
    rep: int = 100,
    timeout: float = 100,
    supply_type: TensorSupplyType = TensorSupplyType.Auto,
    ref_prog: Callable[..., Any] | None = None,
    supply_prog: Callable[..., Any] | None = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    max_mismatched_ratio: float = 0.01,
    skip_check: bool = False,
    manual_check_prog: Callable[..., Any] | None = None,
    cache_input_tensors: bool = False,
    do_not_specialize: str | Iterable[str] | None = None,
    early_stop: bool = False,
    early_stop_factor: float = 2.0,
    executor: Executor | None = None,
    timing_executor: Executor | None = None,
    timing_workers: int = 1,
) -> Callable[[JITImpl], AutoTuneImpl]:
    """Finds the fastest of `configs` at the first call with each set of arguments.

    Stands above `tilelang.jit`. `configs` is a list of dicts of parameters, a dict of lists (all
    combinations), or a function of the call's arguments that returns either. The key
    ``"pass_configs"`` has pass configurations of its own. `do_not_specialize` are parameters whose
    values do not matter to the choice; `executor` and `timing_executor` are those of
    `AutoTuner.set_executors`, `early_stop` and its factor those of `AutoTuner.run`, the rest is of
    `AutoTuner.set_profile_args`. Results are kept on disk where no function of the user's checks
    or makes data.

    Raises `ValueError` without `configs` or for `early_stop_factor` below 1, `AssertionError` on
    what is not under `tilelang.jit`; at the call `ValueError` for no configuration, or for keys
    that are no parameters, and `RuntimeError` where all configurations fail.

    Example::

        @tilelang.autotune(configs=[{"block": 64}, {"block": 128}])
        @tilelang.jit(out_idx=[-1])
        def matmul(M, N, K, block=64): ...

        kernel = matmul(1024, 1024, 1024)
    """
    if func is not None or configs is None:
        raise ValueError(
            "tilelang.autotune: expected configs, as in @tilelang.autotune(configs=[...]) above "
            "@tilelang.jit"
        )
    configs = configs if callable(configs) else listed(configs)
    if early_stop_factor < 1:
        raise ValueError(f"early_stop_factor is {early_stop_factor}, wanted 1.0 or more")
    profile = ProfileArgs(
        warmup,
        rep,
        timeout,
        supply_type,
        ref_prog,
        supply_prog,
        rtol,
        atol,
        max_mismatched_ratio,
        skip_check,
        manual_check_prog,
        cache_input_tensors,
    )
    ignored = [do_not_specialize] if isinstance(do_not_specialize, str) else do_not_specialize or ()

    def wrap(impl: JITImpl) -> AutoTuneImpl:
        assert isinstance(impl, JITImpl), (
            f"tilelang.autotune: expected a function under @tilelang.jit, got "
            f"{type(impl).__name__}; put @tilelang.autotune(...) above @tilelang.jit"
        )
        executors = (executor, timing_executor, timing_workers)
        return AutoTuneImpl(
            impl, configs, profile, ignored, early_stop, early_stop_factor, executors
        )

    return wrap
