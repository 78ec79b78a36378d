"""Tools around the compiler: pictures of layouts."""

from tilelang.tools.plot_layout import plot_layout

__all__ = ["plot_layout"]
