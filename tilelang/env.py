"""The environment variables that tilelang reads: ``from tilelang.env import env``.

Each is read at every access, so that a change of `os.environ` counts at once; an assignment to the
attribute wins over the environment. An empty variable counts as one that is not set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")

_TRUE = ("1", "true", "yes", "on")


def parse_bool(text: str) -> bool:
    """Whether `text` is one of 1, true, yes, on, in any case."""
    return text.strip().lower() in _TRUE


def parse_size(text: str) -> int:
    """Bytes of a number with a unit of K, M, G or T (times 1024) or none.

    Raises `ValueError` for other text.

    Example: ``parse_size("4G") == 4 << 30``
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise ValueError(f"size {text!r}: expected a number of bytes such as 500M or 4G")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


class EnvVar(Generic[T]):
    """One variable: its name, its default as text, and how its text is read."""

    def __init__(self, name: str, default: str, parse: Callable[[str], T]):
        self.name = name
        self.default = default
        self.parse = parse

    @overload
    def __get__(self, instance: None, owner: type) -> EnvVar[T]: ...
    @overload
    def __get__(self, instance: Any, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> EnvVar[T] | T:
        if instance is None:
            return self
        assigned = instance.__dict__.get(self.name)
        # A variable that is set to nothing is not set.
        text = os.environ.get(self.name) or self.default
        return self.parse(text) if assigned is None else assigned

    def __set__(self, instance: Any, value: T | None) -> None:
        """Overrides the environment; None goes back to it."""
        instance.__dict__[self.name] = value


class Environment:
    """All variables. Example: ``env.TILELANG_VERBOSE`` is a bool."""

    TILELANG_CACHE_DIR = EnvVar(
        "TILELANG_CACHE_DIR", "~/.tilelang/cache", lambda s: Path(s).expanduser()
    )
    TILELANG_CACHE_MAX_SIZE = EnvVar("TILELANG_CACHE_MAX_SIZE", "4G", parse_size)
    TILELANG_DISABLE_CACHE = EnvVar("TILELANG_DISABLE_CACHE", "0", parse_bool)
    TILELANG_AUTO_TUNING_DISABLE_CACHE = EnvVar(
        "TILELANG_AUTO_TUNING_DISABLE_CACHE", "0", parse_bool
    )
    TILELANG_AUTO_TUNING_CPU_UTILITIES = EnvVar("TILELANG_AUTO_TUNING_CPU_UTILITIES", "0.9", float)
    TILELANG_AUTO_TUNING_CPU_COUNTS = EnvVar("TILELANG_AUTO_TUNING_CPU_COUNTS", "-1", int)
    TILELANG_AUTO_TUNING_MAX_CPU_COUNT = EnvVar("TILELANG_AUTO_TUNING_MAX_CPU_COUNT", "-1", int)
    CUDA_HOME = EnvVar("CUDA_HOME", "", str)
    ROCM_PATH = EnvVar("ROCM_PATH", "/opt/rocm", Path)
    TILELANG_PRINT_ON_COMPILATION = EnvVar("TILELANG_PRINT_ON_COMPILATION", "1", parse_bool)
    TILELANG_VERBOSE = EnvVar("TILELANG_VERBOSE", "0", parse_bool)
    TILELANG_DUMP_IR = EnvVar("TILELANG_DUMP_IR", "0", parse_bool)
    TILELANG_VERIFY_IR = EnvVar("TILELANG_VERIFY_IR", "0", parse_bool)
    TILELANG_JIT_DIAGNOSTICS = EnvVar("TILELANG_JIT_DIAGNOSTICS", "0", parse_bool)
    TILELANG_COMPILE_TIMEOUT_SECONDS = EnvVar(
        "TILELANG_COMPILE_TIMEOUT_SECONDS", "0", lambda s: float(s or 0)
    )
    TILELANG_PASS_DIFF = EnvVar("TILELANG_PASS_DIFF", "0", parse_bool)
    TILELANG_PASS_DIFF_OUTPUT = EnvVar("TILELANG_PASS_DIFF_OUTPUT", "./pass_diff", Path)
    TILELANG_PASS_PROFILE = EnvVar("TILELANG_PASS_PROFILE", "0", parse_bool)
    TILELANG_PASS_PROFILE_THRESHOLD_MS = EnvVar(
        "TILELANG_PASS_PROFILE_THRESHOLD_MS", "0", lambda s: float(s or 0)
    )
    TL_LOWER_TRACE = EnvVar("TL_LOWER_TRACE", "0", parse_bool)
    TL_LOWER_TRACE_DIR = EnvVar("TL_LOWER_TRACE_DIR", "./dump_ir", Path)
    TILELANG_ENABLE_DATA_RACE_CHECK = EnvVar("TILELANG_ENABLE_DATA_RACE_CHECK", "1", parse_bool)
    TILELANG_DEFAULT_TARGET = EnvVar("TILELANG_DEFAULT_TARGET", "auto", str)
    TILELANG_EMULATE_CHECKS = EnvVar("TILELANG_EMULATE_CHECKS", "0", str)
    TILELANG_EXECUTION_BACKEND = EnvVar("TILELANG_EXECUTION_BACKEND", "auto", str)
    TILELANG_EMULATE_SCHEDULE = EnvVar("TILELANG_EMULATE_SCHEDULE", "", str)
    TILELANG_EMULATE_SEED: EnvVar[int | None] = EnvVar(
        "TILELANG_EMULATE_SEED", "", lambda s: int(s) if s else None
    )
    TILELANG_EMULATE_PATIENCE = EnvVar("TILELANG_EMULATE_PATIENCE", "60", float)
    TILELANG_EMULATE_WORKERS = EnvVar("TILELANG_EMULATE_WORKERS", "0", int)


env = Environment()
