"""Tools around the compiler: pictures of layouts, the work of programs."""

from tilelang.tools.analyzer import AnalysisResult, Analyzer
from tilelang.tools.plot_layout import plot_layout

__all__ = ["AnalysisResult", "Analyzer", "plot_layout"]
