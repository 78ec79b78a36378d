"""Running the emitted kernel source on the CPU."""

from tilelang.emulator.machine import Schedule, current_schedule, schedule

__all__ = ["Schedule", "current_schedule", "schedule"]
