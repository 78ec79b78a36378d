"""The compiler's passes as Python sees them. Each function makes a pass: ``LowerTileOp()(mod)``.

What a pass takes and establishes stands at the top of its C++ file (src/transform).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import tvm
from tvm.tirx.transform import BindTarget

from tilelang._ffi import get_function
from tilelang.transform.pass_config import (
    PassConfigKey,
    PassContext,
    current_config,
    normalize_pass_configs,
)

Pass: TypeAlias = tvm.transform.Pass


def _pass(name: str) -> Callable[[], Pass]:
    def make() -> Pass:
        return get_function(f"transform.{name}")()

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Makes the pass {name}."
    return make


AddWrapperForSingleBufStore = _pass("AddWrapperForSingleBufStore")
AnnotateWarpGroupRegAlloc = _pass("AnnotateWarpGroupRegAlloc")
ApplyAssumptions = _pass("ApplyAssumptions")
AssumeGuards = _pass("AssumeGuards")
AttachDescriptorOperands = _pass("AttachDescriptorOperands")
BeginAccumulators = _pass("BeginAccumulators")
BoundUnrolling = _pass("BoundUnrolling")
CheckBounds = _pass("CheckBounds")
CheckReturns = _pass("CheckReturns")
CheckSemantics = _pass("CheckSemantics")
CheckTensorLayouts = _pass("CheckTensorLayouts")
CoarsenBlocks = _pass("CoarsenBlocks")
CompactLoops = _pass("CompactLoops")
CountAsyncOperations = _pass("CountAsyncOperations")
DeepenPipelines = _pass("DeepenPipelines")
DoubleAccumulators = _pass("DoubleAccumulators")
EvaluateOnce = _pass("EvaluateOnce")
FlattenBuffer = _pass("FlattenBuffer")
FlattenLoops = _pass("FlattenLoops")
FoldClears = _pass("FoldClears")
GuardMasks = _pass("GuardMasks")
HoistDivisions = _pass("HoistDivisions")
HoistTableReads = _pass("HoistTableReads")
HoistViews = _pass("HoistViews")
HoistWarpUniformValues = _pass("HoistWarpUniformValues")
IfConversion = _pass("IfConversion")
IfStmtBinding = _pass("IfStmtBinding")
InjectSoftwarePipeline = _pass("InjectSoftwarePipeline")
JoinElections = _pass("JoinElections")
LayoutInference = _pass("LayoutInference")
LegalizeNegativeIndex = _pass("LegalizeNegativeIndex")
LegalizeSafeMemoryAccess = _pass("LegalizeSafeMemoryAccess")
LowerAsyncCopy = _pass("LowerAsyncCopy")
LowerBufferLoads = _pass("LowerBufferLoads")
LowerSharedBarrier = _pass("LowerSharedBarrier")
LowerTileOp = _pass("LowerTileOp")
MakePersistent = _pass("MakePersistent")
MaterializeKernelLaunch = _pass("MaterializeKernelLaunch")
NarrowProducts = _pass("NarrowProducts")
NarrowThreads = _pass("NarrowThreads")
PackFloat6 = _pass("PackFloat6")
PipelineLoops = _pass("PipelineLoops")
PipelinePlanning = _pass("PipelinePlanning")
PlaceAsyncWaits = _pass("PlaceAsyncWaits")
PlaceTensors = _pass("PlaceTensors")
PlanSharedMemory = _pass("PlanSharedMemory")
PlanWarpRoles = _pass("PlanWarpRoles")
PredicateLoads = _pass("PredicateLoads")
PrefetchLoads = _pass("PrefetchLoads")
ProducerConsumerWarpSpecialized = _pass("ProducerConsumerWarpSpecialized")
RaiseAdditions = _pass("RaiseAdditions")
RaiseIm2col = _pass("RaiseIm2col")
ReadNibbles = _pass("ReadNibbles")
RegisterOperands = _pass("RegisterOperands")
RemoveUnusedBindings = _pass("RemoveUnusedBindings")
RenewThreadNumber = _pass("RenewThreadNumber")
ResizeBlocks = _pass("ResizeBlocks")
SelectInstructions = _pass("SelectInstructions")
SeparateProducts = _pass("SeparateProducts")
ShiftRows = _pass("ShiftRows")
SpreadInstances = _pass("SpreadInstances")
StageResults = _pass("StageResults")
StageTransposes = _pass("StageTransposes")
StripMineLoops = _pass("StripMineLoops")
UnrollCopies = _pass("UnrollCopies")
UnswitchLoops = _pass("UnswitchLoops")
VectorizeLoop = _pass("VectorizeLoop")
VerifyBufferInit = _pass("VerifyBufferInit")
VerifyParallelLoop = _pass("VerifyParallelLoop")
VerifyReducer = _pass("VerifyReducer")
VerifyThreadProgram = _pass("VerifyThreadProgram")
VerifyTileProgram = _pass("VerifyTileProgram")
WidenAccumulators = _pass("WidenAccumulators")
WidenBlocks = _pass("WidenBlocks")
WidenSoftmax = _pass("WidenSoftmax")
WidenSteps = _pass("WidenSteps")
MergeSharedMemoryAllocations = PlanSharedMemory
"""An older name."""


def ThreadSync(storage_scope: str = "shared") -> Pass:
    """Inserts the barriers that accesses of shared memory need.

    One pass serves the scopes ``shared`` and ``shared.dyn``; `ValueError` for other ones.
    """
    if storage_scope not in ("shared", "shared.dyn"):
        raise ValueError(
            f"ThreadSync: found scope {storage_scope!r}, wanted 'shared' or 'shared.dyn'"
        )
    return get_function("transform.ThreadSync")()


def Simplify() -> Pass:
    """TVM's statement simplifier, the form that knows blocks, of everything but the operations
    that it takes for others, such as those of floats (src/tvm/hidden_operations.h)."""
    simplify = tvm.s_tir.transform.StmtSimplify()
    hide, show = (get_function(f"transform.{name}Operations")() for name in ("Hide", "Show"))
    return tvm.transform.Sequential([hide, simplify, show], name=simplify.info.name)


def simplify_prim_func(function: Any) -> Any:
    """Simplify a program, or those that a function returns which this decorates.

    Lowering does it, too: programs that say it keep working.

    Example
    -------
    ``@tilelang.jit`` above ``@simplify_prim_func`` above ``def matmul(M, N, K): ...``
    """
    if isinstance(function, tvm.tirx.PrimFunc):
        return Simplify()(tvm.IRModule({"main": function}))["main"]

    @functools.wraps(function)
    def simplified(*args: Any, **kwargs: Any) -> Any:
        return simplify_prim_func(function(*args, **kwargs))

    return simplified


def LowerOpaqueBlock() -> Pass:
    """TVM's: blocks are replaced by their allocations and bodies, and loops of one iteration by
    their bodies, except loops with a ``break`` or ``continue``
    (src/transform/thread/jump_targets.cc)."""
    mark = get_function("transform.MarkJumpTargets")()
    lower = tvm.s_tir.transform.LowerOpaqueBlock()
    return tvm.transform.Sequential([mark, lower], name=lower.info.name)


# Passes are no public names, only how they are configured.
__all__ = [
    "BindTarget",
    "PassConfigKey",
    "PassContext",
    "current_config",
    "normalize_pass_configs",
    "simplify_prim_func",
]
