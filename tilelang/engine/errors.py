"""Errors of passes that have a class of their own; _ffi.py tells it to the library."""

from __future__ import annotations


class SharedMemoryError(ValueError):
    """A block of a kernel needs more shared memory than its target has.

    The message has the bytes found and wanted, one repair, and a table of what takes them.
    """
