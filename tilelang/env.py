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
    """All variables, each with its meaning below. Example: ``env.TILELANG_VERBOSE`` is a bool."""

    TILELANG_CACHE_DIR = EnvVar(
        "TILELANG_CACHE_DIR", "~/.tilelang/cache", lambda s: Path(s).expanduser()
    )
    """Folder of what is compiled: `python -m tilelang.cache` shows it."""
    TILELANG_CACHE_MAX_SIZE = EnvVar("TILELANG_CACHE_MAX_SIZE", "4G", parse_size)
    """Size of that folder at most; the least recently used goes first."""
    TILELANG_DISABLE_CACHE = EnvVar("TILELANG_DISABLE_CACHE", "0", parse_bool)
    """Programs and binaries are compiled each time. The emulator's builds are kept all the same."""
    TILELANG_AUTO_TUNING_DISABLE_CACHE = EnvVar(
        "TILELANG_AUTO_TUNING_DISABLE_CACHE", "0", parse_bool
    )
    """Results of tuning are neither read nor kept."""
    TILELANG_AUTO_TUNING_CPU_UTILITIES = EnvVar("TILELANG_AUTO_TUNING_CPU_UTILITIES", "0.9", float)
    """Share of the cores on which tuning compiles."""
    TILELANG_AUTO_TUNING_CPU_COUNTS = EnvVar("TILELANG_AUTO_TUNING_CPU_COUNTS", "-1", int)
    """Number of these cores instead of a share; -1 for the share."""
    TILELANG_AUTO_TUNING_MAX_CPU_COUNT = EnvVar("TILELANG_AUTO_TUNING_MAX_CPU_COUNT", "-1", int)
    """Number of these cores at most; -1 for no limit."""
    CUDA_HOME = EnvVar("CUDA_HOME", "", str)
    """Where a CUDA toolkit is, of which nvdisasm is used for `kernel.sass` if there is no
    package."""
    ROCM_PATH = EnvVar("ROCM_PATH", "/opt/rocm", Path)
    """Where ROCm is, whose clang and device library are preferred."""
    TILELANG_PRINT_ON_COMPILATION = EnvVar("TILELANG_PRINT_ON_COMPILATION", "1", parse_bool)
    """Two log lines for each kernel that is compiled."""
    TILELANG_VERBOSE = EnvVar("TILELANG_VERBOSE", "0", parse_bool)
    """The source of each kernel that is compiled is logged."""
    TILELANG_DUMP_IR = EnvVar("TILELANG_DUMP_IR", "0", parse_bool)
    """The program is written after every pass, as by `tl.enable_dump_ir`."""
    TILELANG_ENABLE_IR_SPAN = EnvVar("TILELANG_ENABLE_IR_SPAN", "1", parse_bool)
    """0: errors and explanations do not say which line of the program they are about."""
    TILELANG_VERIFY_IR = EnvVar("TILELANG_VERIFY_IR", "0", parse_bool)
    """The form of the program is verified after every pass. Tests set it."""
    TILELANG_JIT_DIAGNOSTICS = EnvVar("TILELANG_JIT_DIAGNOSTICS", "0", parse_bool)
    """As `TILELANG_VERBOSE`."""
    TILELANG_COMPILE_TIMEOUT_SECONDS = EnvVar(
        "TILELANG_COMPILE_TIMEOUT_SECONDS", "0", lambda s: float(s or 0)
    )
    """Seconds that a compiler may take in the emulator and while tuning; 0 for no limit, or
    tuning's own."""
    TILELANG_PASS_DIFF = EnvVar("TILELANG_PASS_DIFF", "0", parse_bool)
    """What each pass has changed is written, as text and as a page."""
    TILELANG_PASS_DIFF_OUTPUT = EnvVar("TILELANG_PASS_DIFF_OUTPUT", "./pass_diff", Path)
    """The folder of that."""
    TILELANG_PASS_PROFILE = EnvVar("TILELANG_PASS_PROFILE", "0", parse_bool)
    """The time of each pass is logged."""
    TILELANG_PASS_PROFILE_THRESHOLD_MS = EnvVar(
        "TILELANG_PASS_PROFILE_THRESHOLD_MS", "0", lambda s: float(s or 0)
    )
    """Milliseconds from which on a pass is logged."""
    TL_LOWER_TRACE = EnvVar("TL_LOWER_TRACE", "0", parse_bool)
    """As `TILELANG_DUMP_IR`."""
    TL_LOWER_TRACE_DIR = EnvVar("TL_LOWER_TRACE_DIR", "./dump_ir", Path)
    """Where the programs after each pass go, unless `tl.dump_ir_path` says so."""
    TILELANG_ENABLE_DATA_RACE_CHECK = EnvVar("TILELANG_ENABLE_DATA_RACE_CHECK", "1", parse_bool)
    """0: iterations of T.Parallel are not checked for dependences, as by
    `tl.disable_data_race_check`."""
    TILELANG_DEFAULT_TARGET = EnvVar("TILELANG_DEFAULT_TARGET", "auto", str)
    """Target of what is compiled without one: `auto`, `cuda -arch=sm_90a`, `hip -mcpu=gfx942`,
    .."""
    TILELANG_EMULATE_CHECKS = EnvVar("TILELANG_EMULATE_CHECKS", "0", str)
    """Checks of kernels in the emulator: 1, 0, or some of races, uninitialized, bounds, with
    commas."""
    TILELANG_EMULATE_OPTIMIZATION = EnvVar("TILELANG_EMULATE_OPTIMIZATION", "2", str)
    """The level -O at which the emulator builds kernels. `0` builds in a third of the time of `2`,
    `g` in half of it; a launch takes up to four and 2.5 times as long."""
    TILELANG_EXECUTION_BACKEND = EnvVar("TILELANG_EXECUTION_BACKEND", "auto", str)
    """Where kernels run that are compiled without a word about it: `auto`, `emulate`, or that of a
    GPU."""
    TILELANG_EMULATE_SCHEDULE = EnvVar("TILELANG_EMULATE_SCHEDULE", "", str)
    """Order of the emulator's threads: `round_robin`, `random` or `adversarial`."""
    TILELANG_EMULATE_SEED: EnvVar[int | None] = EnvVar(
        "TILELANG_EMULATE_SEED", "", lambda s: int(s) if s else None
    )
    """Seed of the emulator's schedule; alone it makes the schedule random."""
    TILELANG_EMULATE_PATIENCE = EnvVar("TILELANG_EMULATE_PATIENCE", "60", float)
    """Seconds of processor time that a thread of the emulator takes at most without waiting for
    anything; 0 for no limit."""
    TILELANG_EMULATE_WORKERS = EnvVar("TILELANG_EMULATE_WORKERS", "0", int)
    """OS threads that run the emulator's blocks; 0 for one for each core."""


env = Environment()
