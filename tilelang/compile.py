"""``python -m tilelang.compile``: kernel files ahead of time, without a GPU.

::

    python -m tilelang.compile kernels.gemm:matmul --arg M=4096 --arg dtype=float16 \\
        --arch sm_90a,sm_100a -o matmul.tlk

Before the colon stands a module or a Python file, behind it a function under `tilelang.jit`, a
function that returns a PrimFunc, or a PrimFunc. It is traced and compiled for each architecture;
``emulate`` among them adds what the emulator runs. `tilelang.runtime.load` and `tilelang_kernel.h`
call the file (docs/shipping.md).
"""

from __future__ import annotations

import argparse
import ast
import importlib
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm

import tilelang
from tilelang.jit.backend import EMULATE, GPU_BACKENDS
from tilelang.jit.export import variant_of
from tilelang.jit.impl import JITImpl
from tilelang.jit.kernel import JITKernel
from tilelang.runtime.file import Variant, write_kernel
from tilelang.utils.arch import check_arch
from tilelang.utils.target import FALLBACK_ARCH, determine_target


def find_function(name: str) -> Any:
    """What ``module:function`` or ``file.py:function`` names.

    Raises `ValueError` where it names nothing.

    Example: ``find_function("kernels.gemm:matmul")``
    """
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise ValueError(f"{name!r}: expected module:function or file.py:function")
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise ValueError(f"{name!r}: there is no file {place}")
        found = runpy.run_path(place)
    else:
        try:
            found = vars(importlib.import_module(place))
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            raise ValueError(f"{name!r}: there is no module {error.name}") from error
    if attribute not in found:
        raise ValueError(f"{name!r}: {place} has no {attribute}")
    return found[attribute]


def compile_for(
    function: Any, arch: str, arguments: Mapping[str, Any], out_idx: Sequence[int] | None = None
) -> JITKernel:
    """The kernel of a function, or PrimFunc, for an architecture.

    Raises `TypeError` where it is neither, or the arguments are not its own; what compiling raises.

    Example: ``compile_for(matmul, "sm_90a", {"M": 4096})``
    """
    target = {"kind": "cuda", "arch": arch}
    if isinstance(function, JITImpl):
        before = function.target
        if before is not None:
            given: Any = determine_target(before, return_object=True)
            target = {**dict(given.export()), **target}
        function.target = target
        try:
            return function.compile(**arguments)
        finally:
            function.target = before
    with tvm.target.Target(target):
        program = function
        if not isinstance(program, tvm.tirx.PrimFunc):
            program = function(**arguments) if callable(function) else None
        elif arguments:
            raise TypeError(f"a PrimFunc takes no --arg, got {', '.join(arguments)}")
        if not isinstance(program, tvm.tirx.PrimFunc):
            raise TypeError(
                f"expected a function under @tilelang.jit, one that returns a PrimFunc, or a "
                f"PrimFunc, got {type(function).__name__}"
            )
        backend = GPU_BACKENDS[0]
        return tilelang.compile(program, out_idx, execution_backend=backend, target=target)


def compile_variants(
    function: Any,
    archs: Sequence[str],
    arguments: Mapping[str, Any],
    out_idx: Sequence[int] | None = None,
) -> list[Variant]:
    """The variants of a file for `archs`, among which ``"emulate"`` may be; its source is that for
    the first of the others.
    """
    for arch in archs:
        if arch != EMULATE:
            check_arch(arch)
    real = [arch for arch in archs if arch != EMULATE] or [FALLBACK_ARCH]
    kernels = {arch: compile_for(function, arch, arguments, out_idx) for arch in real}
    return [variant_of(kernels[real[0] if arch == EMULATE else arch], arch) for arch in archs]


def _argument(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE such as M=4096")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value  # a text, such as float16


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tilelang.compile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("function", help="module:function or file.py:function")
    parser.add_argument(
        "--arg", action="append", type=_argument, default=[], metavar="NAME=VALUE",
        help="an argument of the function: a Python literal, else a text",
    )  # fmt: skip
    parser.add_argument("--arch", required=True, help="such as sm_90a,sm_100a,emulate")
    parser.add_argument(
        "--out-idx", type=lambda text: [int(i) for i in text.split(",")], metavar="I,J",
        help="parameters that a call allocates and returns, where the function does not say",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file, or a folder")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; its exit status."""
    given = _parser().parse_args(arguments)
    sys.path.insert(0, "")  # as `python -m` does
    try:
        function = find_function(given.function)
        archs = [arch.strip() for arch in given.arch.split(",")]
        variants = compile_variants(function, archs, dict(given.arg), given.out_idx)
        path = given.output
        if path.is_dir():
            path = path / f"{variants[0].plan.name}.tlk"
        write_kernel(path, variants, tilelang.__version__)
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        print(f"{given.function}: {error}", file=sys.stderr)
        return 1
    print(f"{path}: {variants[0].plan.name} for {', '.join(archs)}, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
