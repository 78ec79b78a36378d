"""``T.CUDASourceCodeKernel``: a kernel whose body is CUDA C++ text."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm import ir
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.launch import Kernel
from tilelang.language.ops import device_call
from tilelang.language.tracer import current_tracer

_LOOKS_LIKE_CODE = ("\n", "__global__", 'extern "C"', "#include")


def CUDASourceCodeKernel(
    *blocks: Any,
    threads: int | Sequence[int] | None = None,
    source_code_or_path: str | Path,
    entry_name: str = "main_kernel",
    cluster_dims: Any = None,
    prelude: str | None = None,
) -> contextlib.nullcontext[None]:
    """Launch a kernel that is given as CUDA C++.

    It gets the function's tensors as pointers, then its scalars, then the sizes and strides of the
    run (``T.dynamic``) in the order in which they appear first. Of those behind the tensors it may
    leave out the last ones. It has no dynamic shared memory. The device headers are included before
    it (``half_t``, ``tl::load``, ...); CUDA's own headers are not.

    Parameters
    ----------
    blocks, threads, cluster_dims, prelude
        As for ``T.Kernel``.
    source_code_or_path
        The text, or the path of a file that has it, a str or a `pathlib.Path`.
    entry_name
        The ``__global__`` function to launch.

    Raises
    ------
    FileNotFoundError
        If it looks like a path, and there is no such file.
    ValueError
        If the text is empty or has no such function; for wrong extents. When it is loaded, if it
        does not take what it gets: another number of parameters, or of other sizes.

    Example
    -------
    ``T.CUDASourceCodeKernel(blocks, threads=128, source_code_or_path="kernels/scale.cu",
    entry_name="scale")``
    """
    tracer = current_tracer("T.CUDASourceCodeKernel")
    text = _exported(_text(source_code_or_path), entry_name)
    kernel = Kernel(*blocks, threads=threads, prelude=prelude, cluster_dims=cluster_dims)
    tracer.enter(kernel)
    tir_builder.evaluate(
        device_call("source_kernel", [ir.StringImm(entry_name), ir.StringImm(text)])
    )
    tracer.leave(kernel)
    return contextlib.nullcontext()


def _text(source: str | Path) -> str:
    if isinstance(source, Path):
        source = str(source)
    elif isinstance(source, str) and any(mark in source for mark in _LOOKS_LIKE_CODE):
        return source
    if not isinstance(source, str) or not source.strip():
        raise ValueError(
            f"source_code_or_path of T.CUDASourceCodeKernel is {source!r}, wanted CUDA C++ or the "
            "path of a file"
        )
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(
            f"source_code_or_path of T.CUDASourceCodeKernel is {source!r}, and there is no such "
            "file; give the path of one, or the text itself"
        )
    return path.read_text()


def _exported(text: str, entry: str) -> str:
    """Return the text with C linkage for the kernel, under whose name it is found in the binary."""
    found = re.search(rf'(extern\s*"C"\s*)?__global__[^;{{}}]*?\b{re.escape(entry)}\s*\(', text)
    if found is None:
        raise ValueError(
            f"the text of T.CUDASourceCodeKernel has no __global__ function {entry}; name one that "
            "it has as entry_name"
        )
    linked = found.group(1) is not None or re.search(r'extern\s*"C"\s*\{', text[: found.start()])
    return text if linked else text[: found.start()] + 'extern "C" ' + text[found.start() :]
