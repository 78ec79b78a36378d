"""The compiler's passes as Python sees them. Each function makes a pass: ``LowerTileOp()(mod)``.

What a pass takes and establishes stands at the top of its C++ file (src/transform).
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import tvm
from tvm.tirx.transform import BindTarget, StmtSimplify

from tilelang._ffi import get_function
from tilelang.transform.pass_config import (
    PassConfigKey,
    PassContext,
    current_config,
    normalize_pass_configs,
)

Pass: TypeAlias = tvm.transform.Pass


def CheckSemantics() -> Pass:
    """Refuses tile programs that nest operators and loops in ways that no thread mapping has."""
    return get_function("transform.CheckSemantics")()


def VerifyBufferInit() -> Pass:
    """Warns of buffers that are read before anything is written to them."""
    return get_function("transform.VerifyBufferInit")()


def CheckBounds() -> Pass:
    """Refuses indices that provably leave a shared buffer, a fragment or local memory."""
    return get_function("transform.CheckBounds")()


def VerifyParallelLoop() -> Pass:
    """Refuses T.Parallel loops of which two iterations touch one element, one writing it."""
    return get_function("transform.VerifyParallelLoop")()


def PackFloat6() -> Pass:
    """Tensors and tiles of 6-bit floats become bytes."""
    return get_function("transform.PackFloat6")()


def HoistViews() -> Pass:
    """Declares views of buffers in front of a kernel's statements."""
    return get_function("transform.HoistViews")()


def ReadNibbles() -> Pass:
    """Elements of 4 bits that a program shifts and masks out of bytes become loads of them."""
    return get_function("transform.ReadNibbles")()


def DeepenPipelines() -> Pass:
    """Loops that load few bytes ahead get more stages, where there is room."""
    return get_function("transform.DeepenPipelines")()


def WidenSteps() -> Pass:
    """Steps of a product along K whose rows are short become one step."""
    return get_function("transform.WidenSteps")()


def NarrowProducts() -> Pass:
    """Products by wgmma of fewer columns, where wide ones keep a block off a multiprocessor."""
    return get_function("transform.NarrowProducts")()


def MakePersistent() -> Pass:
    """Blocks of a grid of tiles take tile after tile, where one block has a multiprocessor."""
    return get_function("transform.MakePersistent")()


def WidenAccumulators() -> Pass:
    """Sums of 16-bit floats that no matrix instruction forms are formed in float32."""
    return get_function("transform.WidenAccumulators")()


def FoldClears() -> Pass:
    """Products of cleared accumulators clear them themselves."""
    return get_function("transform.FoldClears")()


def GuardMasks() -> Pass:
    """Masks of accumulators are skipped in iterations in which they mask nothing."""
    return get_function("transform.GuardMasks")()


def MergeBlocks() -> Pass:
    """Neighbouring blocks of small products become one block of larger tiles."""
    return get_function("transform.MergeBlocks")()


def WidenBlocks() -> Pass:
    """A second choice: kernels with products have twice as many threads."""
    return get_function("transform.WidenBlocks")()


def MaterializeKernelLaunch() -> Pass:
    """Loops bound to blocks and threads become thread_extent attributes."""
    return get_function("transform.MaterializeKernelLaunch")()


def LegalizeNegativeIndex() -> Pass:
    """Indices of elements that are negative whenever they happen count from the end."""
    return get_function("transform.LegalizeNegativeIndex")()


def AssumeGuards() -> Pass:
    """Each kernel begins with what the call of this variant has checked (`tilelang_guards`)."""
    return get_function("transform.AssumeGuards")()


def CheckTensorLayouts() -> Pass:
    """Refuses layouts of tensors that are no permutation of their elements."""
    return get_function("transform.CheckTensorLayouts")()


def CheckReturns() -> Pass:
    """Refuses work for all threads where some may have left the kernel."""
    return get_function("transform.CheckReturns")()


def NarrowThreads() -> Pass:
    """Lets operators work with the threads that reach them, or refuses them."""
    return get_function("transform.NarrowThreads")()


def AttachDescriptorOperands() -> Pass:
    """Products by wgmma descriptors say which memory they read."""
    return get_function("transform.AttachDescriptorOperands")()


def IfStmtBinding() -> Pass:
    """Copies in branches of T.Pipelined loops stand alone, so that they can run ahead."""
    return get_function("transform.IfStmtBinding")()


def UnrollCopies() -> Pass:
    """Writes out the loops of T.Pipelined loops that fill a tile in pieces."""
    return get_function("transform.UnrollCopies")()


def RegisterOperands() -> Pass:
    """Tiles that threads write for one wgmma are its operand in registers."""
    return get_function("transform.RegisterOperands")()


def StageResults() -> Pass:
    """Lets results of MMAs go to tensors through shared memory that the loops leave."""
    return get_function("transform.StageResults")()


def StageTransposes() -> Pass:
    """A loop that transposes from tensor to tensor goes through shared memory."""
    return get_function("transform.StageTransposes")()


def StripMineLoops() -> Pass:
    """Serial loops along neighbours in memory run in strips of a vector."""
    return get_function("transform.StripMineLoops")()


def SelectInstructions() -> Pass:
    """Decides which instructions make each product, and says why no better ones do."""
    return get_function("transform.SelectInstructions")()


def DoubleAccumulators() -> Pass:
    """Lets a product run beside what is made of the one before it."""
    return get_function("transform.DoubleAccumulators")()


def CoarsenBlocks() -> Pass:
    """Many blocks of little work each become fewer blocks of more."""
    return get_function("transform.CoarsenBlocks")()


def CompactLoops() -> Pass:
    """Loops over iterations of which memory says whether they happen run those alone."""
    return get_function("transform.CompactLoops")()


def PlanWarpRoles() -> Pass:
    """Decides which warps of a kernel do what (sm_90 and later): a plan of each kernel."""
    return get_function("transform.PlanWarpRoles")()


def PrefetchLoads() -> Pass:
    """A step of a pipelined loop does not wait for its small loads from global memory."""
    return get_function("transform.PrefetchLoads")()


def ProducerConsumerWarpSpecialized() -> Pass:
    """Gives each role of a kernel's plan its own program."""
    return get_function("transform.ProducerConsumerWarpSpecialized")()


def PipelinePlanning() -> Pass:
    """Leaves a schedule on every T.Pipelined loop."""
    return get_function("transform.PipelinePlanning")()


def InjectSoftwarePipeline() -> Pass:
    """Applies the schedules: prologue, steady loop, epilogue, versions of shared buffers."""
    return get_function("transform.InjectSoftwarePipeline")()


def ApplyAssumptions() -> Pass:
    """What T.assume states decides branches and simplifies indices."""
    return get_function("transform.ApplyAssumptions")()


def AddWrapperForSingleBufStore() -> Pass:
    """Stores of single elements of fragments become loops that layout inference sees."""
    return get_function("transform.AddWrapperForSingleBufStore")()


def PlaceAsyncWaits() -> Pass:
    """Lets products of warp groups, and stores by TMA, run on until someone needs what they make or
    read: the former in a tile program, the latter in a thread program."""
    return get_function("transform.PlaceAsyncWaits")()


def LayoutInference() -> Pass:
    """Decides where every element of shared buffers and fragments lives."""
    return get_function("transform.LayoutInference")()


def LowerTileOp() -> Pass:
    """Turns the tile program into the program of one thread."""
    return get_function("transform.LowerTileOp")()


def LowerSharedBarrier() -> Pass:
    """Initialises mbarriers in front of the kernel that uses them."""
    return get_function("transform.LowerSharedBarrier")()


def LegalizeSafeMemoryAccess() -> Pass:
    """Guards global accesses that are not provably in bounds."""
    return get_function("transform.LegalizeSafeMemoryAccess")()


def PlaceTensors() -> Pass:
    """Accesses of tensors that have a layout go to the places that it gives."""
    return get_function("transform.PlaceTensors")()


def VerifyTileProgram() -> Pass:
    """Checks the form of programs in front of `LowerTileOp`; a violation is a bug of a pass."""
    return get_function("transform.VerifyTileProgram")()


def VerifyThreadProgram() -> Pass:
    """Checks the form of programs behind `LowerTileOp`; a violation is a bug of a pass."""
    return get_function("transform.VerifyThreadProgram")()


def EvaluateOnce() -> Pass:
    """Calls that do something and whose value is used several times are made once."""
    return get_function("transform.EvaluateOnce")()


def VerifyReducer() -> Pass:
    """Refuses reducers that are not initialised, updated and finalised in this order."""
    return get_function("transform.VerifyReducer")()


def VectorizeLoop() -> Pass:
    """Makes vectorised loops legal and turns them into vector expressions."""
    return get_function("transform.VectorizeLoop")()


def LowerAsyncCopy() -> Pass:
    """Global-to-shared stores marked as asynchronous become cp.async."""
    return get_function("transform.LowerAsyncCopy")()


def UnswitchLoops() -> Pass:
    """Moves conditions that do not change in a loop in front of it."""
    return get_function("transform.UnswitchLoops")()


def LowerBufferLoads() -> Pass:
    """Vectors from global memory are loaded by AMD's buffer loads."""
    return get_function("transform.LowerBufferLoads")()


def CountAsyncOperations() -> Pass:
    """Waits for groups of copies become waits for operations, where hardware counts these."""
    return get_function("transform.CountAsyncOperations")()


def JoinElections() -> Pass:
    """What the same elected thread does in statements behind each other is one branch."""
    return get_function("transform.JoinElections")()


def SeparateProducts() -> Pass:
    """Products of warp groups that ptxas would take for each other are apart."""
    return get_function("transform.SeparateProducts")()


def IfConversion() -> Pass:
    """Choices between computed values compute both, without a branch."""
    return get_function("transform.IfConversion")()


def BoundUnrolling() -> Pass:
    """Long loops that need no copy of their body for each iteration get a few."""
    return get_function("transform.BoundUnrolling")()


def RemoveUnusedBindings() -> Pass:
    """Removes names of numbers that nobody reads."""
    return get_function("transform.RemoveUnusedBindings")()


def PlanSharedMemory() -> Pass:
    """Gives every dynamic shared buffer its offset, one place to several where their lives allow.

    `MergeSharedMemoryAllocations` is an older name of it.
    """
    return get_function("transform.PlanSharedMemory")()


MergeSharedMemoryAllocations = PlanSharedMemory


def ThreadSync(storage_scope: str = "shared") -> Pass:
    """Inserts the barriers that accesses of shared memory need.

    One pass serves the scopes ``shared`` and ``shared.dyn``; `ValueError` for other ones.
    """
    if storage_scope not in ("shared", "shared.dyn"):
        raise ValueError(
            f"ThreadSync: found scope {storage_scope!r}, wanted 'shared' or 'shared.dyn'"
        )
    return get_function("transform.ThreadSync")()


def AnnotateWarpGroupRegAlloc() -> Pass:
    """Moves registers from warp groups that copy to those that compute."""
    return get_function("transform.AnnotateWarpGroupRegAlloc")()


def FlattenBuffer() -> Pass:
    """Makes every buffer one-dimensional."""
    return get_function("transform.FlattenBuffer")()


def HoistDivisions() -> Pass:
    """Divisions that do not change in a loop are computed once, in front of it."""
    return get_function("transform.HoistDivisions")()


def HoistTableReads() -> Pass:
    """A producer reads tables of pages before it waits for a slot, and once."""
    return get_function("transform.HoistTableReads")()


def HoistWarpUniformValues() -> Pass:
    """What a warp agrees on in descriptors of wgmma is asked once, at the kernel's beginning."""
    return get_function("transform.HoistWarpUniformValues")()


def RenewThreadNumber() -> Pass:
    """Roles with few registers compute addresses anew in each iteration."""
    return get_function("transform.RenewThreadNumber")()


def SpreadInstances() -> Pass:
    """Several warp groups run one body of code, each with tiles of its own."""
    return get_function("transform.SpreadInstances")()


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


__all__ = [
    "AddWrapperForSingleBufStore",
    "AnnotateWarpGroupRegAlloc",
    "ApplyAssumptions",
    "AssumeGuards",
    "BindTarget",
    "BoundUnrolling",
    "CheckBounds",
    "CheckSemantics",
    "CheckTensorLayouts",
    "CoarsenBlocks",
    "CompactLoops",
    "CountAsyncOperations",
    "DeepenPipelines",
    "DoubleAccumulators",
    "EvaluateOnce",
    "FlattenBuffer",
    "FoldClears",
    "GuardMasks",
    "HoistDivisions",
    "HoistTableReads",
    "HoistViews",
    "HoistWarpUniformValues",
    "IfConversion",
    "IfStmtBinding",
    "InjectSoftwarePipeline",
    "JoinElections",
    "LayoutInference",
    "LegalizeNegativeIndex",
    "LegalizeSafeMemoryAccess",
    "LowerAsyncCopy",
    "LowerBufferLoads",
    "LowerOpaqueBlock",
    "LowerSharedBarrier",
    "LowerTileOp",
    "MakePersistent",
    "MaterializeKernelLaunch",
    "MergeBlocks",
    "MergeSharedMemoryAllocations",
    "NarrowProducts",
    "NarrowThreads",
    "PackFloat6",
    "Pass",
    "PassConfigKey",
    "PassContext",
    "PipelinePlanning",
    "PlaceAsyncWaits",
    "PlaceTensors",
    "PlanSharedMemory",
    "PlanWarpRoles",
    "PrefetchLoads",
    "ProducerConsumerWarpSpecialized",
    "ReadNibbles",
    "RegisterOperands",
    "RemoveUnusedBindings",
    "RenewThreadNumber",
    "SeparateProducts",
    "Simplify",
    "SpreadInstances",
    "StageResults",
    "StageTransposes",
    "StmtSimplify",
    "StripMineLoops",
    "ThreadSync",
    "UnrollCopies",
    "UnswitchLoops",
    "VectorizeLoop",
    "VerifyBufferInit",
    "VerifyParallelLoop",
    "VerifyReducer",
    "VerifyThreadProgram",
    "VerifyTileProgram",
    "WidenAccumulators",
    "WidenBlocks",
    "WidenSteps",
    "current_config",
    "normalize_pass_configs",
    "simplify_prim_func",
]
