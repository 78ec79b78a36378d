"""Loads the C++ library into TVM, once a process, after proving that its view of TVM's classes is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

TVM_VERSION = "0.27.0.post1"
"""The TVM release whose classes src/tvm mirrors."""

_LIBRARY = Path(__file__).parent / "lib" / "libtilelang.so"


def _load() -> None:
    # A second copy of this package in one process finds TVM's registry filled: it uses what is there.
    if tvm_ffi.get_global_func("tl.Layout", allow_missing=True) is not None:
        return
    wrong = list(tvm_ffi.load_module(str(_LIBRARY)).tl_register())
    if wrong:
        raise ImportError(
            f"tilelang was built for apache-tvm {TVM_VERSION}, found {tvm.__version__}: "
            f"install apache-tvm=={TVM_VERSION}. Differences:\n  " + "\n  ".join(map(str, wrong))
        )


_load()


def get_function(name: str) -> Any:
    """Return the C++ function registered as ``tl.<name>``."""
    return tvm_ffi.get_global_func("tl." + name)
