"""Running the emitted kernel source on the CPU, and what its checks find."""

from tilelang.emulator.checks import CHECKS, resolve_checks
from tilelang.emulator.machine import Schedule, current_schedule, schedule
from tilelang.emulator.reports import Access, EmulationError, Report
from tilelang.emulator.timeline import Timeline, timeline

__all__ = [
    "CHECKS",
    "Access",
    "EmulationError",
    "Report",
    "Schedule",
    "Timeline",
    "current_schedule",
    "resolve_checks",
    "schedule",
    "timeline",
]
