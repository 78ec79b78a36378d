"""Running the emitted kernel source on the CPU, and what its checks find."""

from tilelang.emulator.checks import CHECKS, resolve_checks
from tilelang.emulator.machine import Schedule, current_schedule, schedule
from tilelang.emulator.reports import Access, EmulationError, Report

__all__ = [
    "CHECKS",
    "Access",
    "EmulationError",
    "Report",
    "Schedule",
    "current_schedule",
    "resolve_checks",
    "schedule",
]
