"""The module that programs know the layouts of a warp's matrices by."""

from tilelang.compat.mma_layouts import *  # noqa: F403
