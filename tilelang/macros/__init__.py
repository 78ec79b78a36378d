"""Macros that programs share. They are written in the language, as a user's are."""

from tilelang.macros.rows import copy_rows

__all__ = ["copy_rows"]
