"""From kernels to files that are called without the compiler (`tilelang.runtime.file`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tilelang
from tilelang.jit.backend import EMULATE, GPU_BACKENDS
from tilelang.runtime.file import Variant, write_kernel
from tilelang.utils.arch import is_amd
from tilelang.utils.target import arch_of, kind_of

if TYPE_CHECKING:
    from tilelang.jit.kernel import JITKernel


def export_kernel(kernel: JITKernel, path: str | Path, archs: Sequence[str] | None = None) -> None:
    """As `JITKernel.export`."""
    if kernel.launch_plan.team:
        raise ValueError(
            f"{kernel.launch_plan.where()}: found a kernel of several GPUs, wanted one of one GPU: "
            "files are called without tilelang.distributed. Compile it in each process"
        )
    own = arch_of(kernel.target)
    if archs is None:
        archs = [own, *([EMULATE] if kernel.execution_backend == EMULATE else [])]
    elif isinstance(archs, str) or not archs:
        raise ValueError(f"archs={archs!r}: expected a list such as ['sm_90a', 'sm_100a']")
    variants = [
        variant_of(kernel if arch in (own, EMULATE) else _for_arch(kernel, arch), arch)
        for arch in archs
    ]
    write_kernel(path, variants, tilelang.__version__)


def variant_of(kernel: JITKernel, arch: str) -> Variant:
    """The part of a file for `arch`: the architecture that the kernel is compiled for, or
    ``"emulate"``. A file has the program's variant for any sizes."""
    kernel = kernel.for_any_sizes
    # The plan behind it: a binary is of the choice of the compiler that it was made for.
    code = kernel.emulated_source.encode() if arch == EMULATE else kernel.cubin
    return Variant(arch, dataclasses.replace(kernel.launch_plan, others=()), code)


def _for_arch(kernel: JITKernel, arch: str) -> JITKernel:
    """The same program for another architecture, of either vendor."""
    from tilelang.utils.arch import check_arch

    target: dict[str, object] = {"kind": "hip", "mcpu": arch}
    if not is_amd(arch):
        check_arch(arch)
        own = dict(kernel.target.export())
        target = {**(own if kind_of(kernel.target) == "cuda" else {"kind": "cuda"}), "arch": arch}
    return type(kernel)(
        kernel.prim_func,
        out_idx=kernel.out_idx,
        execution_backend=GPU_BACKENDS[0],
        target=target,
        target_host=kernel.target_host,
        verbose=kernel.verbose,
        pass_configs=kernel.pass_configs,
        compile_flags=kernel.compile_flags,
    )
