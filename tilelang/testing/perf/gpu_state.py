"""Clocks, temperature and what holds the clocks back, by nvidia-smi."""

from __future__ import annotations

import os
import subprocess

FIELDS = {
    "name": "GPU",
    "driver_version": "driver",
    "clocks.sm": "SM clock, MHz",
    "clocks.mem": "memory clock, MHz",
    "temperature.gpu": "temperature, C",
    "power.draw": "power, W",
    "clocks_throttle_reasons.active": "throttle reasons",
}
"""What nvidia-smi is asked for, and what the report calls it."""

# Bits of nvmlClocksEventReasons (NVML API reference, "NvmlClocksEventReasons").
REASONS = {
    0x1: "idle",
    0x2: "clocks set by an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}


def reasons_of(mask: str) -> str:
    """The names of the bits of a mask such as ``0x0000000000000005``; the text itself where it is
    no mask."""
    try:
        bits = int(mask, 16)
    except ValueError:
        return mask
    found = [name for bit, name in REASONS.items() if bits & bit]
    unknown = bits & ~sum(REASONS)
    return ", ".join([*found, *([hex(unknown)] if unknown else [])]) or "none"


def gpu_state(command: str = "nvidia-smi") -> dict[str, str]:
    """The state of the first GPU that this process sees, by the names that reports use; empty where
    there is no nvidia-smi or it has nothing to say."""
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    query = [f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits", f"--id={device}"]
    try:
        done = subprocess.run(
            [command, *query], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [value.strip() for value in done.stdout.strip().split(", ")]
    if done.returncode or len(values) != len(FIELDS):
        return {}
    found = dict(zip(FIELDS.values(), values, strict=True))
    return {**found, "throttle reasons": reasons_of(found["throttle reasons"])}
