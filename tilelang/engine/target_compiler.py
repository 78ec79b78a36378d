"""Which compiler takes the source of a target: NVRTC, or clang for AMD. Neither is imported before
something is compiled for such a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm.target import Target

from tilelang.utils.arch import is_amd
from tilelang.utils.target import kind_of

if TYPE_CHECKING:
    from tilelang.cuda.nvrtc import Cubin
    from tilelang.hip.compile import CodeObject


def compiler_keywords(target: Target, get: Callable[[str], Any]) -> dict[str, Any]:
    """The keywords that pass configurations have for the compiler of the target's source,
    `compile_cubin` or `compile_code_object`; `get` gives the value of a key or None.

    Example: ``compiler_keywords(target, {"tl.enable_fast_math": True}.get)``
    """
    if kind_of(target) == "hip":
        from tilelang.hip.compile import configured
    else:
        from tilelang.cuda.nvrtc import configured
    return configured(get)


def compiler_of(arch: str) -> Callable[..., Cubin | CodeObject]:
    """`compile_cubin`, or `compile_code_object` for an architecture of AMD."""
    if is_amd(arch):
        from tilelang.hip.compile import compile_code_object

        return compile_code_object
    from tilelang.cuda.nvrtc import compile_cubin

    return compile_cubin
