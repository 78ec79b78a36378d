"""`tilelang.lower`: from a traced function to source text and a launch plan."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import tvm
from tvm.target import Target

from tilelang.engine.callback import postprocess
from tilelang.engine.device_codegen import SplitHostDevice, emit_cuda, launch_plan_of, split_modules
from tilelang.engine.errors import SharedMemoryError
from tilelang.engine.launch_plan import LaunchPlan
from tilelang.engine.observers import Observers
from tilelang.engine.param import CompiledArtifact, KernelParam, arguments
from tilelang.engine.phase import LowerAndLegalize, OptimizeForTarget
from tilelang.engine.target_compiler import compiler_keywords, compiler_of
from tilelang.transform import PassConfigKey, PassContext, current_config
from tilelang.utils.arch import is_amd
from tilelang.utils.log import say
from tilelang.utils.target import TargetLike, arch_of, determine_target

if TYPE_CHECKING:
    from tilelang.cuda.nvrtc import Cubin
    from tilelang.hip.compile import CodeObject


def lower(
    func_or_mod: Any,  # a PrimFunc, which type checkers take for a function, or an IRModule
    target: TargetLike = "auto",
    target_host: TargetLike | None = None,
    runtime_only: bool = False,
    enable_host_codegen: bool = False,
    enable_device_compile: bool = False,
) -> CompiledArtifact:
    """Lowers one function to device source and a launch plan.

    `target` is what `determine_target` takes. With `enable_device_compile` NVRTC, or clang,
    compiles the source, to `rt_mod` of the result. The host side is data, so `target_host`,
    `runtime_only` and `enable_host_codegen` change nothing; scripts pass them. Configuration comes
    from the current `tilelang.transform.PassContext`.

    Raises `ValueError`, with the kernel's file and line, for programs that the target cannot run
    (`tilelang.engine.errors.SharedMemoryError` for blocks that need too much shared memory),
    `RuntimeError` for source that the compiler refuses.

    Example: ``print(tilelang.lower(main, target="cuda -arch=sm_80").kernel_source)``
    """
    func = _single_function(func_or_mod)
    chosen = determine_target(target, return_object=True)
    name = str(func.attrs["global_symbol"])
    if is_amd(arch_of(chosen)) and "tilelang_team" in func.attrs:
        raise ValueError(
            f"{name}: found target {arch_of(chosen)} for a program of several GPUs "
            "(T.SymmetricTensor, T.rank), wanted one of kind cuda: AMD's GPUs have no signals here "
            "yet"
        )
    observers = Observers.of(name)
    try:
        mod = _run_passes(tvm.IRModule({name: func}), name, chosen, observers)
    finally:
        observers.close()
    host_mod, device_mod = split_modules(mod)
    lines = bool(current_config(PassConfigKey.TL_EMIT_LINE_DIRECTIVES, False))
    source = postprocess(emit_cuda(device_mod, line_directives=lines), chosen)
    plan = launch_plan_of(host_mod, device_mod)
    return CompiledArtifact(
        host_mod=host_mod,
        device_mod=device_mod,
        params=[KernelParam.of(variable) for variable in arguments(func)],
        kernel_source=source,
        launch_plan=plan,
        target=chosen,
        target_host=None
        if target_host is None
        else determine_target(target_host, return_object=True),
        rt_mod=_compiled(source, plan, chosen) if enable_device_compile else None,
    )


_TAKES_SHARED = "tl.takes_shared"
_SPARE_SHARED = "tl.second_choice.spare_shared"
"""Of src/transform/tile/shared_estimate.h."""


def _run_passes(mod: tvm.IRModule, name: str, target: Target, observers: Observers) -> tvm.IRModule:
    observers.write("trace", mod)
    legal = LowerAndLegalize(mod, target, observers)
    optimized = _optimized(legal, name, observers)
    if optimized is None:
        config = {**tvm.transform.PassContext.current().config, _SPARE_SHARED: True}
        with PassContext(config=config):
            return _run_passes(mod, name, target, observers)
    # A pipeline repeats its operators before and after the loop.
    for note in dict.fromkeys(legal[name].attrs.get("tl.notes", ())):
        say(logging.INFO, str(note))
    split = SplitHostDevice()(optimized)
    observers.write("SplitHostDevice", split)
    return split


def _optimized(legal: tvm.IRModule, name: str, observers: Observers) -> tvm.IRModule | None:
    """None where a pass has given a block more shared memory than there is: only the last passes
    know what a block takes; others estimate it."""
    try:
        return OptimizeForTarget(legal, observers)
    except SharedMemoryError:
        if _TAKES_SHARED not in legal[name].attrs:
            raise
        return None


def _compiled(source: str, plan: LaunchPlan, target: Target) -> Cubin | CodeObject:
    keywords = compiler_keywords(target, lambda key: current_config(PassConfigKey(key)))
    names = [kernel.name for kernel in plan.kernels]
    arch = arch_of(target)
    return compiler_of(arch)(source, arch, names, location=plan.location, **keywords)


def _single_function(func_or_mod: tvm.tirx.PrimFunc | tvm.IRModule) -> tvm.tirx.PrimFunc:
    if isinstance(func_or_mod, tvm.tirx.PrimFunc):
        return func_or_mod
    if not isinstance(func_or_mod, tvm.IRModule):
        raise TypeError(
            f"tilelang.lower: found {type(func_or_mod).__name__}, wanted a PrimFunc or an "
            "IRModule; pass a function under @T.prim_func"
        )
    functions = list(func_or_mod.functions.values())
    if len(functions) != 1:
        raise ValueError(
            f"tilelang.lower: found a module of {len(functions)} functions, wanted one; "
            "lower them one by one"
        )
    return functions[0]
