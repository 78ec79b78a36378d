"""PlaceWgmmaWaits: where a product is waited for."""

import pytest
import tvm

import tilelang.language as T
from tilelang import transform
from tilelang.utils.target import determine_target


def planned(func):
    """The operators of a kernel after the pass, short: a wait with its count and accumulators."""
    target = determine_target("cuda -arch=sm_90a", return_object=True)
    mod = tvm.IRModule({"main": func})
    for step in (
        transform.BindTarget(target),
        transform.MaterializeKernelLaunch(),
        transform.PipelinePlanning(),
        transform.InjectSoftwarePipeline(),
        transform.Simplify(),
        transform.PlaceWgmmaWaits(),
    ):
        mod = step(mod)
    lines = []
    for line in mod.script().splitlines():
        line = line.strip()
        if line.startswith("for ") and "T.parallel" not in line:
            lines.append("for")
        if line.startswith("if "):
            lines.append("if")
        if line.startswith("T.tl.wgmma_wait("):
            arguments = line.removeprefix("T.tl.wgmma_wait(").removesuffix(")").split(", ")
            names = [a.partition("[")[0] for a in arguments[1:] if "[" in a]
            lines.append(" ".join(["wait", arguments[0], *names]))
        elif line.startswith("T.tl.gemm("):
            asynchronous = "wg_wait" in line or "-1" in line
            lines.append("gemm" if asynchronous else "gemm and wait")
        elif line.startswith("T.tl."):
            lines.append(line.removeprefix("T.tl.").partition("(")[0])
    return lines
