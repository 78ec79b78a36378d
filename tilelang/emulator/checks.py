"""Which defects an emulated kernel is watched for."""

from __future__ import annotations

from collections.abc import Iterable

from tilelang.env import env

RACES = "races"
UNINITIALIZED = "uninitialized"
BOUNDS = "bounds"

CHECKS = (RACES, UNINITIALIZED, BOUNDS)
"""All checks, in the order of their bits in TL_EMU_CHECKS (src/device/emu/tl/check.h).

``"races"`` are accesses that no synchronisation orders, ``"uninitialized"`` reads of shared memory
and of a thread's arrays before anything is written there, ``"bounds"`` accesses outside of their
buffer.
Misaligned vectors, diverging lanes, wrong arrivals and deadlocks are reported without any of them.
"""

Checks = bool | str | Iterable[str]
"""True for all, False for none, or names of `CHECKS`."""


def resolve_checks(checks: Checks | None) -> frozenset[str]:
    """The checks that `checks` stands for; None asks ``TILELANG_EMULATE_CHECKS``.

    The variable is a truth value (1, true, yes, on; 0, false, no, off, nothing), or names with
    commas. Raises `ValueError` for a name that is none of `CHECKS`.

    Example: ``resolve_checks("races") == {"races"}``
    """
    if checks is None:
        text = env.TILELANG_EMULATE_CHECKS.strip().lower()
        if text in ("", "0", "false", "no", "off"):
            return frozenset()
        checks = text in ("1", "true", "yes", "on") or text.split(",")
    if isinstance(checks, bool):
        return frozenset(CHECKS if checks else ())
    names = frozenset([checks] if isinstance(checks, str) else (name.strip() for name in checks))
    for name in sorted(names - set(CHECKS)):
        raise ValueError(
            f"checks: {name!r} is unknown: expected True, False, or some of {', '.join(CHECKS)}"
        )
    return names


def bits_of(checks: frozenset[str]) -> int:
    """The value of TL_EMU_CHECKS."""
    return sum(1 << i for i, name in enumerate(CHECKS) if name in checks)
