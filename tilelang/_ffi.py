"""Loads the C++ library into TVM, after proving that its view of TVM's classes is right."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi

from tilelang._paths import library
from tilelang._snippet import snippet
from tilelang.engine.errors import SharedMemoryError

TVM_VERSION = "0.27.0.post1"
"""The TVM release whose classes src/tvm mirrors."""


def _load() -> None:
    advice = f"install apache-tvm=={TVM_VERSION}"
    if tvm.__version__ != TVM_VERSION:
        raise ImportError(
            f"tilelang: found apache-tvm {tvm.__version__}, wanted {TVM_VERSION}; {advice}"
        )
    wrong = list(tvm_ffi.load_module(str(library())).tl_register())
    if wrong:
        raise ImportError(
            f"tilelang: found an apache-tvm {tvm.__version__} whose classes differ from the "
            f"release's, wanted the released wheel; {advice}. Differences:\n  "
            + "\n  ".join(map(str, wrong))
        )


@tvm_ffi.register_global_func("tl.log", override=True)
def _log(level: int, message: str) -> None:
    """What the library has to say, to the logger `tilelang`."""
    from tilelang.utils.log import say  # whose package needs this module

    say(level, message)


tvm_ffi.register_global_func("tl.snippet", snippet, override=True)
tvm_ffi.register_error("SharedMemoryError", SharedMemoryError)
_load()


def get_function(name: str) -> Any:
    """Return the C++ function registered as ``tl.<name>``."""
    return tvm_ffi.get_global_func("tl." + name)
