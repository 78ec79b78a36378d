"""`tilelang.tools.pass_diff`, where scripts look for it."""

from tilelang.tools.pass_diff import PassDiff, pass_diff

__all__ = ["PassDiff", "pass_diff"]
