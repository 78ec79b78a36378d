"""What is compiled is kept: in this process, and on disk for the next one.

On disk there are four kinds of entries (`tilelang.cache.store`): ``program``, what lowering makes
of a program (source, launch plan, explanation, warnings); ``cubin``, what NVRTC makes of a source;
``emulator``, what the machine's C++ compiler makes of it; and ``tuning``, what was found of a
function's configurations. ``stamp`` remembers digests of files, and versions of C++ compilers.
``python -m tilelang.cache`` lists, explains and prunes them.
"""

from __future__ import annotations

from tilelang.cache import memory
from tilelang.cache.store import Store
from tilelang.env import env


def store() -> Store:
    """The store in `TILELANG_CACHE_DIR`, limited to `TILELANG_CACHE_MAX_SIZE`.

    Example: ``sum(entry.size for entry in tilelang.cache.store().entries())``
    """
    return Store(env.TILELANG_CACHE_DIR, env.TILELANG_CACHE_MAX_SIZE)


def enable_cache() -> None:
    """Kernels that were compiled before are not compiled again; this is the default, unless
    `TILELANG_DISABLE_CACHE` is set.

    Example: ``tilelang.enable_cache()``
    """
    env.TILELANG_DISABLE_CACHE = False


def disable_cache() -> None:
    """Every kernel is lowered, and compiled by NVRTC, from now on. The emulator's builds are still
    kept: they depend on the source alone.

    Example: ``tilelang.disable_cache(); kernel = tilelang.compile(main)``
    """
    env.TILELANG_DISABLE_CACHE = True


def is_cache_enabled() -> bool:
    """Whether kernels are kept, on disk and in this process.

    Example: ``assert tilelang.is_cache_enabled()``
    """
    return not env.TILELANG_DISABLE_CACHE


def clear_cache() -> None:
    """Forgets everything that is kept, in this process and on disk, the emulator's builds included.
    Kernels that there are stay usable.

    Example: ``tilelang.clear_cache()``
    """
    memory.forget()
    store().clear()


__all__ = ["clear_cache", "disable_cache", "enable_cache", "is_cache_enabled", "store"]
