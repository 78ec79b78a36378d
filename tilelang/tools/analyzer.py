"""What a program has to do and how long a chip takes for it, as `tilelang.profiler.roofline`, under
the names that scripts use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang.carver.arch.cuda import CUDA
from tilelang.profiler.roofline import roofline


@dataclass(frozen=True)
class AnalysisResult:
    """The work of a call.

    Attributes:
        total_flops: of its products.
        total_global_bytes: that copies move between global memory and the chip.
        estimated_time: seconds at least: of the products at the chip's peak, or of the tensors at
            the memory's bandwidth.
        expected_tflops: TFLOP/s in that time.
        expected_bandwidth_GBps: GB/s of the copies in that time.
    """

    total_flops: float
    total_global_bytes: float
    estimated_time: float
    expected_tflops: float
    expected_bandwidth_GBps: float


class Analyzer:
    """Counts work in programs."""

    @staticmethod
    def analysis(fn: Any, device: CUDA | None = None) -> AnalysisResult:
        """The work of a PrimFunc or a kernel on a chip, by default the one compiled for here.

        Raises what `roofline` raises.

        Example: ``Analyzer.analysis(main, CUDA("cuda")).expected_tflops``
        """
        found = roofline(fn, arch=device)
        seconds = found.milliseconds / 1e3
        flop = sum(found.flop.values())
        return AnalysisResult(
            flop, found.copied, seconds, flop / seconds / 1e12, found.copied / seconds / 1e9
        )
