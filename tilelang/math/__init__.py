"""Integer arithmetic on Python ints that kernels' callers often need."""

from __future__ import annotations


def cdiv(a: int, b: int) -> int:
    """`a` divided by `b`, rounded up. Raises `ZeroDivisionError`. Example: ``cdiv(10, 4) == 3``"""
    return -(-a // b)


def next_power_of_2(x: int) -> int:
    """The smallest power of two that is at least `x`, 1 for `x` below 1. Example:
    ``next_power_of_2(5) == 8``
    """
    return 1 << max(x - 1, 0).bit_length()
