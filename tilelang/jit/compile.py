"""From PrimFuncs to kernels: `tilelang.compile` and `tilelang.par_compile`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar, overload

import torch
import tvm
from tvm.target import Target

from tilelang.emulator.checks import Checks
from tilelang.engine.callback import registered_postproc
from tilelang.env import env
from tilelang.jit.kernel import JITKernel, split_flags
from tilelang.utils.log import logger
from tilelang.utils.target import TargetLike, determine_target

T = TypeVar("T")


def compile(
    func: Any,  # a PrimFunc; type checkers take it for a function (tilelang/language)
    out_idx: int | Sequence[int] | None = None,
    execution_backend: str | None = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: str | Sequence[str] | None = None,
    checks: Checks | None = None,
) -> JITKernel:
    """Compiles `func` to a kernel.

    `out_idx` are the parameters that a call allocates and returns. `execution_backend` is
    ``"auto"``, ``"tvm_ffi"``, ``"cython"``, ``"nvrtc"`` (the GPU) or ``"emulate"`` (the CPU).
    `target` is what `determine_target` takes. `compile_flags` are given to NVRTC,
    nvcc's in its words (`tilelang.compat.nvcc_flags`). `checks` are the
    defects that the emulator looks for (`tilelang.emulator.CHECKS`): True for all, or their names.
    What is None comes from the environment (`TILELANG_DEFAULT_TARGET`,
    `TILELANG_EXECUTION_BACKEND`, `TILELANG_EMULATE_CHECKS`, and `TILELANG_VERBOSE`, for which
    `TILELANG_JIT_DIAGNOSTICS` is another name). The function's attributes `tilelang_pass_configs`
    and `tilelang_compile_flags` count under the arguments.

    Raises `AssertionError` where `func` is no PrimFunc, `ValueError` for bad options and where
    `out_idx` conflicts with outputs that the function declares, and what the compiler raises about
    the program.

    Example: ``kernel = tilelang.compile(main, out_idx=-1)``
    """
    assert isinstance(func, tvm.tirx.PrimFunc), (
        f"tilelang.compile: expected a PrimFunc, got {type(func).__name__}. Pass a function under "
        "@T.prim_func, or put @tilelang.jit on the function that returns one."
    )
    attrs = func.attrs or {}
    declared = attrs.get("tilelang_out_idx")
    if declared is not None and out_idx is not None:
        raise ValueError(
            f"Out index conflict: out_idx={out_idx} is given and the function returns parameters "
            f"{list(declared)}. Leave out out_idx."
        )
    flags = [*split_flags(attrs.get("tilelang_compile_flags")), *split_flags(compile_flags)]
    return JITKernel(
        func,
        out_idx=out_idx if declared is None else [int(index) for index in declared],
        execution_backend=execution_backend or env.TILELANG_EXECUTION_BACKEND,
        target=current_target(target),
        target_host=target_host,
        verbose=env.TILELANG_VERBOSE or env.TILELANG_JIT_DIAGNOSTICS
        if verbose is None
        else verbose,
        pass_configs={**dict(attrs.get("tilelang_pass_configs") or {}), **(pass_configs or {})},
        compile_flags=flags,
        checks=checks,
    )


def current_target(target: TargetLike | None) -> Target:
    """What `target` stands for here and now; None is the default of the environment."""
    wanted = env.TILELANG_DEFAULT_TARGET if target is None else target
    found = determine_target(wanted, return_object=True)
    assert isinstance(found, Target)
    return found


def surroundings(target: TargetLike | None) -> Hashable:
    """What decides about a kernel besides the program and the options of `compile`: equal as long
    as `compile` with this `target` gives the same. Takes a few microseconds."""
    wanted = env.TILELANG_DEFAULT_TARGET if target is None else target
    scope = None
    if isinstance(wanted, str) and wanted == "auto":
        scope = Target.current(allow_none=True)
    return (
        wanted if target is None else None,
        None if scope is None else _text(scope),
        torch.cuda.current_device() if torch.cuda.is_initialized() else 0,
        env.TILELANG_EXECUTION_BACKEND,
        env.TILELANG_EMULATE_CHECKS,
        env.TILELANG_ENABLE_DATA_RACE_CHECK,
        registered_postproc(),
    )


@functools.lru_cache(maxsize=64)
def _text(target: Target) -> str:
    return str(target)


@overload
def par_compile(
    funcs: Iterable[Any],
    out_idx: int | Sequence[int] | None = None,
    execution_backend: str | None = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: str | Sequence[str] | None = None,
    num_workers: int | None = None,
    ignore_error: Literal[False] = False,
    checks: Checks | None = None,
) -> list[JITKernel]: ...
@overload
def par_compile(
    funcs: Iterable[Any],
    out_idx: int | Sequence[int] | None = None,
    execution_backend: str | None = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: str | Sequence[str] | None = None,
    num_workers: int | None = None,
    *,
    ignore_error: bool,
    checks: Checks | None = None,
) -> list[JITKernel | Exception]: ...
def par_compile(
    funcs: Iterable[Any],
    out_idx: int | Sequence[int] | None = None,
    execution_backend: str | None = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: str | Sequence[str] | None = None,
    num_workers: int | None = None,
    ignore_error: bool = False,
    checks: Checks | None = None,
) -> list[JITKernel] | list[JITKernel | Exception]:
    """Compiles several functions, each as `compile` does, in `num_workers` threads (one a processor
    by default). Their binaries are built here, not by the first call.

    Returns the kernels in order. The first failure is raised; with `ignore_error` the exceptions
    take the place of the kernels that failed.

    Example: ``kernels = tilelang.par_compile([matmul(n, n, n) for n in (512, 1024)], out_idx=-1)``
    """

    # Other threads have no target scope.
    chosen = current_target(target)

    def compile_one(func: Any) -> JITKernel:
        kernel = compile(
            func,
            out_idx,
            execution_backend,
            chosen,
            target_host,
            verbose,
            pass_configs,
            compile_flags,
            checks,
        )
        kernel.build()
        return kernel

    return map_parallel(compile_one, list(funcs), num_workers, ignore_error, "Parallel Compiling")


def map_parallel(
    function: Callable[[Any], T],
    items: Sequence[Any],
    num_workers: int | None,
    ignore_error: bool,
    title: str,
) -> list[T | Exception]:
    """``function(item)`` of each item in threads, in order, with a progress bar called `title`; in
    this thread for one worker. For `ignore_error` see `par_compile`.
    """
    from tqdm import tqdm

    def attempt(number: int, item: Any) -> T | Exception:
        try:
            return function(item)
        except Exception as error:
            if not ignore_error:
                raise
            logger.warning("%s: number %d failed: %s", title, number, error)
            return error

    if num_workers == 1:
        return [attempt(*pair) for pair in enumerate(tqdm(items, desc=title, disable=None))]
    if not items:
        return []
    workers = num_workers or min(len(items), os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(attempt, number, item) for number, item in enumerate(items)]
        try:
            return [future.result() for future in tqdm(futures, desc=title, disable=None)]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
