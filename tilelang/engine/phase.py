"""The pass pipeline: a table of contents of the compiler.

``LowerAndLegalize`` decides everything that needs meaning, on tile programs; ``OptimizeForTarget``
is mechanical, on thread programs. docs/design.md, sections 3 and 4, has the two forms.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import tvm
from tvm.target import Target

from tilelang import transform
from tilelang.engine.observers import Observer
from tilelang.env import env
from tilelang.transform import PassConfigKey, current_config
from tilelang.utils.log import logger


def LowerAndLegalize(
    mod: tvm.IRModule, target: Target, observer: Observer | None = None
) -> tvm.IRModule:
    """From the traced tile program to the program of one thread; `observer` sees each step.

    Raises `ValueError` for what a kernel may not do, with its file and line.
    """
    checked = not current_config(PassConfigKey.TL_DISABLE_PRELOWER_SEMANTIC_CHECK, False)
    race_checked = not current_config(
        PassConfigKey.TL_DISABLE_DATA_RACE_CHECK, not env.TILELANG_ENABLE_DATA_RACE_CHECK
    )
    passes: list[Callable[[], transform.Pass]] = [
        lambda: transform.BindTarget(target),
        transform.EvaluateOnce,
    ]
    if checked:
        passes += [transform.CheckSemantics, transform.VerifyReducer]
    passes += [
        transform.PackFloat6,
        transform.HoistViews,
        transform.MaterializeKernelLaunch,
        transform.LegalizeNegativeIndex,
        transform.AssumeGuards,
        transform.RaiseIm2col,
        transform.RaiseAdditions,
        transform.Simplify,
        transform.CheckTensorLayouts,
        transform.CheckReturns,
        transform.NarrowThreads,
        transform.AttachDescriptorOperands,
    ]
    if checked:
        passes.append(transform.CheckBounds)
    if race_checked:
        passes.append(transform.VerifyParallelLoop)
    passes += [
        transform.VerifyBufferInit,
        transform.ReadNibbles,
        transform.UnrollCopies,
        transform.WidenAccumulators,
        transform.FoldClears,
        transform.PipelineLoops,
        transform.ShiftRows,
        transform.WidenSteps,
        transform.ResizeBlocks,
        transform.WidenBlocks,
        transform.RegisterOperands,
        transform.WidenSoftmax,
        transform.GuardMasks,
        transform.StageResults,
        transform.StageTransposes,
        transform.FlattenLoops,
        transform.CoarsenBlocks,
        transform.SelectInstructions,
        transform.DoubleAccumulators,
        transform.CompactLoops,
        transform.NarrowProducts,
        transform.BeginAccumulators,
        transform.MakePersistent,
        transform.DeepenPipelines,
        transform.PlanWarpRoles,
        transform.ProducerConsumerWarpSpecialized,
        transform.IfStmtBinding,
        transform.PipelinePlanning,
        transform.InjectSoftwarePipeline,
        transform.ApplyAssumptions,
        transform.Simplify,
        transform.AddWrapperForSingleBufStore,
        transform.PlaceAsyncWaits,
        transform.LayoutInference,
        transform.LowerTileOp,
        transform.PlaceAsyncWaits,
        transform.LowerSharedBarrier,
        transform.LegalizeSafeMemoryAccess,
        transform.PlaceTensors,
    ]
    return _run(mod, passes, observer)


def OptimizeForTarget(mod: tvm.IRModule, observer: Observer | None = None) -> tvm.IRModule:
    """From thread programs to flat ones that code generation prints."""
    passes = [
        transform.VectorizeLoop,
        transform.LowerAsyncCopy,
        transform.Simplify,
        transform.LowerOpaqueBlock,
        transform.PlanSharedMemory,
        transform.ThreadSync,
        transform.AnnotateWarpGroupRegAlloc,
        transform.PrefetchLoads,
        transform.HoistTableReads,
        transform.UnswitchLoops,
        transform.FlattenBuffer,
        transform.StripMineLoops,
        transform.Simplify,
        transform.LowerBufferLoads,
        transform.CountAsyncOperations,
        transform.HoistDivisions,
        transform.RemoveUnusedBindings,
        transform.JoinElections,
        transform.HoistWarpUniformValues,
        transform.RenewThreadNumber,
        transform.SpreadInstances,
        transform.IfConversion,
        transform.PredicateLoads,
        transform.SeparateProducts,
        transform.BoundUnrolling,
    ]
    return _run(mod, passes, observer, lowered=True)


def verify(mod: tvm.IRModule, pass_name: str, lowered: bool) -> None:
    """Checks the form of a program after a pass (TILELANG_VERIFY_IR): that of thread programs if it
    is `lowered`, else that of tile programs.

    Raises `RuntimeError` that names the pass where it has left another form.

    Example: ``verify(mod, "LayoutInference", lowered=False)``
    """
    check = transform.VerifyThreadProgram if lowered else transform.VerifyTileProgram
    try:
        check()(mod)
    except tvm.error.InternalError as error:
        raise RuntimeError(f"after pass {pass_name}: {error}") from error


def _run(
    mod: tvm.IRModule,
    passes: list[Callable[[], transform.Pass]],
    observer: Observer | None,
    lowered: bool = False,
) -> tvm.IRModule:
    for make in passes:
        step = make()
        start = time.perf_counter()
        mod = step(mod)
        milliseconds = (time.perf_counter() - start) * 1e3
        if env.TILELANG_PASS_PROFILE and milliseconds >= env.TILELANG_PASS_PROFILE_THRESHOLD_MS:
            logger.info("pass %s took %.2f ms", step.info.name, milliseconds)
        if observer is not None:
            observer.write(step.info.name, mod)
        lowered |= step.info.name == "tl.LowerTileOp"
        # What users may write in other forms is refused by the check of semantics.
        if env.TILELANG_VERIFY_IR and step.info.name not in ("tirx.BindTarget", "tl.EvaluateOnce"):
            verify(mod, step.info.name, lowered)
    return mod
